"""Initialise a student from its teacher: word table by SVD, some of its layers as shared blocks.

Even untrained, such a student ranks sentence pairs somewhat as the teacher does; distillation then
takes minutes instead of days. All of it is computed where the two networks are, before either moves to a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from litebert.nn import AlbertForPretraining, Batch
from litebert.nn.model import FeedForwardBlock
from litebert.objectives import PretrainingBatch, longest_first
from litebert.tasks.distillation import Alignment, Surface, Teacher, align, unmasked
from litebert.tasks.pretraining import micro_batches
from litebert.tokenizer import Tokenizer


def begin_as_teacher(
    student: AlbertForPretraining, tokenizer: Tokenizer, teacher: Teacher, sample: PretrainingBatch
) -> None:
    """Convert the teacher's weights, then fit the embedding projection on a sample of the corpus."""
    convert(student, tokenizer, teacher)
    masked = longest_first(sample)
    plain = replace(masked, ids=unmasked(masked))
    texts, spans = Surface(tokenizer).read(plain.ids, plain.offsets)
    theirs, their_spans = teacher.encode(texts)
    (work,) = micro_batches(plain, None, torch.device("cpu"))
    embedded = teacher.read(theirs, [0]).states[0]  # what the teacher's first layer reads
    fit_projection(student, work.batch, align(spans, their_spans), embedded)


@torch.no_grad()
def convert(student: AlbertForPretraining, tokenizer: Tokenizer, teacher: Teacher) -> None:
    """Set the student's weights, in place, from a teacher of the same width and number of heads.

    The teacher's word table is centred and cut to E dimensions by SVD; a piece of the student gets
    the mean of the teacher's pieces for its text. Every block is a copy of the middle one of the
    teacher's layers that it replaces, with its most active neurons if the student has fewer. The
    masked-LM head starts as the transposed projection.
    """
    config, source = student.config, teacher.encoder.embedding
    table: Tensor = source.word.weight.float()  # (teacher vocab, teacher embed)
    mean = table.mean(0)
    _, _, basis = torch.linalg.svd(table - mean, full_matrices=False)
    basis = basis[: config.embedding_size]  # (kept, teacher embed)
    kept = slice(len(basis))  # a student may have wider embeddings than its teacher
    embedding = student.albert.embedding
    words = _piece_vectors(tokenizer, teacher, table - mean) @ basis.T  # (vocab, kept)
    embedding.word.weight[:, kept] = words
    length = min(config.max_position_embeddings, source.position.num_embeddings)
    embedding.position.weight[:length, kept] = source.position.weight[:length] @ basis.T
    embedding.segment.weight[:, kept] = (source.segment.weight[:1] + mean) @ basis.T
    theirs, ours = source.projection, embedding.projection
    assert isinstance(ours, torch.nn.Linear)
    if isinstance(theirs, torch.nn.Linear):  # ALBERT: (hidden, teacher embed)
        weight, bias = theirs.weight, theirs(source.norm.bias)
    else:  # BERT: its embeddings have the hidden size
        weight, bias = torch.eye(config.hidden_size), source.norm.bias
    ours.weight[:, kept] = weight @ (source.norm.weight[:, None] * basis.T)
    ours.bias.copy_(bias)
    student.masked_lm.dense.weight[kept] = basis @ weight.T
    _copy_blocks(student, teacher)


@torch.no_grad()
def fit_projection(student: AlbertForPretraining, batch: Batch, alignment: Alignment, embedded: Tensor) -> None:
    """Fit the student's embedding projection to the teacher's embedding output by least squares.

    `batch` is unmasked text, tokenized for the student; `embedded` (teacher tokens, hidden) is what
    the teacher's first layer reads for the same text.
    """
    embedding = student.albert.embedding
    projection = embedding.projection
    assert isinstance(projection, torch.nn.Linear)
    narrow = embedding.norm(
        embedding.word(batch.ids) + embedding.position(batch.positions) + embedding.segment(batch.segments)
    )  # (tokens, embed)
    has_target = torch.from_numpy(alignment.has_target)
    inputs = torch.cat([narrow, narrow.new_ones(len(narrow), 1)], dim=1)[has_target]
    targets = alignment.means(embedded.float())[has_target]
    # Normal equations; a small ridge term keeps them solvable for any text.
    gram = inputs.T @ inputs + len(inputs) * 1e-4 * torch.eye(inputs.shape[1])
    solution = torch.linalg.solve(gram, inputs.T @ targets)  # (embed + 1, hidden)
    projection.weight.copy_(solution[:-1].T)
    projection.bias.copy_(solution[-1])


def _piece_vectors(tokenizer: Tokenizer, teacher: Teacher, table: Tensor) -> Tensor:
    """Return a vector for each student piece: the mean over the teacher's pieces of its text."""
    known = {piece: index for index, piece in enumerate(teacher.tokenizer.pieces)}
    special = dict(zip(tokenizer.special_ids, teacher.tokenizer.special_ids, strict=True))
    rows = []
    for index, piece in enumerate(tokenizer.pieces):
        if index in special:
            ids: Sequence[int] = [special[index]]
        elif not piece.startswith("▁") and f"##{piece}" in known:
            ids = [known[f"##{piece}"]]
        else:
            ids = teacher.tokenizer.encode(piece.replace("▁", " ")).ids
        rows.append(table[list(ids)].mean(0) if ids else table.new_zeros(table.shape[1]))
    return torch.stack(rows)


def _copy_blocks(student: AlbertForPretraining, teacher: Teacher) -> None:
    """Copy into each block the middle one of the teacher's layers that it replaces."""
    kinds = ("attention", "feed_forward")
    ours, theirs = student.albert, teacher.encoder
    sources = {kind: getattr(theirs, kind) for kind in kinds}
    for kind in kinds:
        for number, block in enumerate(getattr(ours, kind)):
            steps = [i for i, step in enumerate(ours.plan) if getattr(step, kind) == number]
            middle = theirs.plan[steps[len(steps) // 2] * len(theirs.plan) // len(ours.plan)]
            source = sources[kind][getattr(middle, kind)]
            weights = source.state_dict()
            if kind == "feed_forward":
                norm = sources["attention"][middle.attention].norm
                weights = _narrow(source, norm, student.config.intermediate_size)
            block.load_state_dict(weights)


def _narrow(source: FeedForwardBlock, norm: torch.nn.LayerNorm, size: int) -> dict[str, Tensor]:
    """Return the weights of a feed-forward block with its `size` most active neurons.

    `norm` is the layer norm before the block. If its output were normally distributed, each
    neuron's activation would have a known mean and spread. The neurons with the largest spread
    times the norm of their output weights are kept; the means of the others go into the bias.
    """
    weights = {name: weight.float() for name, weight in source.state_dict().items()}
    rows, columns = weights["intermediate.weight"], weights["output.weight"]
    if size == len(rows):
        return weights
    z = torch.linspace(-4, 4, 81)
    chance = torch.softmax(-z.square() / 2, 0)  # the normal density, summing to 1
    centre = rows @ norm.bias.float() + weights["intermediate.bias"]  # (neurons,)
    width = (rows * norm.weight.float()).norm(dim=1)
    active = source.activation(centre[:, None] + width[:, None] * z)  # (neurons, points)
    mean = active @ chance
    spread = ((active - mean[:, None]).square() @ chance).sqrt()
    order = (spread * columns.norm(dim=0)).argsort(descending=True)
    keep, drop = order[:size].sort().values, order[size:]
    return weights | {
        "intermediate.weight": rows[keep],
        "intermediate.bias": weights["intermediate.bias"][keep],
        "output.weight": columns[:, keep],
        "output.bias": weights["output.bias"] + columns[:, drop] @ mean[drop],
    }
