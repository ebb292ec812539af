"""A student that starts from its teacher.

The word table is the teacher's, cut by SVD; the shared blocks are some of its layers.
Even untrained, such a student ranks sentence pairs somewhat as the teacher does, and
distillation takes minutes instead of days. All of this is computed before either
network moves to a GPU.
"""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from litebert.device import choose_device
from litebert.nn import Albert, AlbertForPretraining
from litebert.nn.model import FeedForwardBlock
from litebert.objectives import PretrainingBatch
from litebert.tasks.pretraining import micro_batches
from litebert.tasks.teacher import Teacher

RIDGE = 1e-4
"""Added to the diagonal of the normal equations, for each token: they stay solvable for
any text.
"""


@torch.no_grad()
def begin_as_teacher(
    student: AlbertForPretraining, teacher: Teacher, sample: PretrainingBatch
) -> None:
    """Convert the teacher's weights; fit the embedding projection by least squares on a
    sample.
    """
    convert(student, teacher)
    embedding = student.albert.embedding
    assert isinstance(embedding.projection, nn.Linear)
    plain = replace(sample, ids=sample.unmasked_ids())
    # what the teacher's first layer reads is what the projection should give
    kept, (targets,), _ = teacher.read(plain.ids, plain.offsets, [0])
    (work,) = micro_batches(plain, None, choose_device("cpu"))
    words = embedding.word(work.batch.ids)
    positions = embedding.position(work.batch.positions)
    segments = embedding.segment(work.batch.segments)
    narrow = embedding.norm(words + positions + segments)  # (tokens, embed)
    ones = narrow.new_ones(len(narrow), 1)  # for the bias
    inputs = torch.cat([narrow, ones], dim=1)[kept]  # (kept, embed + 1)
    gram = inputs.T @ inputs + len(inputs) * RIDGE * torch.eye(inputs.shape[1])
    solution = torch.linalg.solve(gram, inputs.T @ targets)  # (embed + 1, hidden)
    embedding.projection.weight.copy_(solution[:-1].T)
    embedding.projection.bias.copy_(solution[-1])


@torch.no_grad()
def convert(student: AlbertForPretraining, teacher: Teacher) -> None:
    """Set the student's weights, in place, from a teacher of the same width and number
    of heads.

    The teacher's word table is centred and cut to E dimensions by SVD; a piece of the
    student gets the mean of the teacher's pieces for its text. Every block is a copy of
    the middle one of the teacher's layers that it replaces, with only its most active
    neurons if the student has fewer. The masked-LM head starts as the transposed
    projection.
    """
    _convert_embeddings(student, teacher)
    _convert_blocks(student.albert, teacher.encoder)


def _convert_embeddings(student: AlbertForPretraining, teacher: Teacher) -> None:
    config = student.config
    source = teacher.encoder.embedding
    embedding = student.albert.embedding
    table: Tensor = source.word.weight.float()  # (teacher vocab, teacher embed)
    mean = table.mean(0)
    centred = table - mean
    directions = torch.linalg.svd(centred, full_matrices=False).Vh
    basis = directions[: config.embedding_size]  # (kept, teacher embed)
    kept = slice(len(basis))  # a student may have wider embeddings than its teacher

    # The teacher's norm scales each of its dimensions: the projection does that here.
    weight = torch.eye(config.hidden_size)  # BERT: its embeddings have the hidden size
    bias = source.norm.bias
    if isinstance(source.projection, nn.Linear):  # ALBERT
        weight = source.projection.weight  # (hidden, teacher embed)
        bias = source.projection(source.norm.bias)
    projection = embedding.projection
    assert isinstance(projection, nn.Linear)
    projection.weight[:, kept] = weight @ (source.norm.weight[:, None] * basis.T)
    projection.bias.copy_(bias)
    student.masked_lm.dense.weight[kept] = basis @ weight.T

    words = _words_of_student(teacher, centred)  # (vocab, teacher embed)
    embedding.word.weight[:, kept] = words @ basis.T
    length = min(config.max_position_embeddings, source.position.num_embeddings)
    positions = source.position.weight[:length]
    embedding.position.weight[:length, kept] = positions @ basis.T
    # The mean that was taken from the words is in every token: so is the segment.
    segment = source.segment.weight[:1] + mean
    embedding.segment.weight[:, kept] = segment @ basis.T


def _words_of_student(
    teacher: Teacher, table: Float[Tensor, "teacher_vocab embed"]
) -> Float[Tensor, "vocab embed"]:
    """Return a vector for each piece of the student: of special pieces the teacher's,
    of others the mean of the teacher's pieces for its text.
    """
    tokenizer = teacher.tokenizer
    ids_by_piece = {piece: index for index, piece in enumerate(tokenizer.pieces)}
    special_ids = zip(teacher.student.special_ids, tokenizer.special_ids, strict=True)
    special = dict(special_ids)
    rows = list[Tensor]()
    for index, text in enumerate(teacher.student.texts):
        continuing = f"##{text}"  # as BERT marks a piece that continues a word
        if index in special:
            ids = [special[index]]
        elif continuing in ids_by_piece:
            ids = [ids_by_piece[continuing]]
        else:
            ids = tokenizer.encode(text).ids
        if ids:
            rows.append(table[ids].mean(0))
        else:
            rows.append(table.new_zeros(table.shape[1]))
    return torch.stack(rows)


def _convert_blocks(student: Albert, teacher: Albert) -> None:
    """Copy into each block the middle one of the teacher's layers that it replaces."""
    depth = len(student.plan)
    for kind in ("attention", "feed_forward"):
        for number, block in enumerate(getattr(student, kind)):
            # the student's steps that apply this block
            steps = list[int]()
            for place, step in enumerate(student.plan):
                if getattr(step, kind) == number:
                    steps.append(place)
            middle = steps[len(steps) // 2]
            # the teacher's step at the same relative depth
            layer = teacher.plan[middle * len(teacher.plan) // depth]
            source = getattr(teacher, kind)[getattr(layer, kind)]
            weights = source.state_dict()
            if kind == "feed_forward":
                norm = teacher.attention[layer.attention].norm
                weights = _narrow(source, norm, student.config.intermediate_size)
            block.load_state_dict(weights)


def _narrow(
    source: FeedForwardBlock, norm: nn.LayerNorm, size: int
) -> dict[str, Tensor]:
    """Return the weights of a feed-forward block with its `size` most active neurons.

    `norm` is the layer norm before the block. If its output were normally distributed,
    each neuron's activation would have a known mean and spread. The neurons with the
    largest spread times the norm of their output weights are kept; the means of the
    others go into the bias.
    """
    weights = {name: weight.float() for name, weight in source.state_dict().items()}
    rows = weights["intermediate.weight"]
    columns = weights["output.weight"]
    if size == len(rows):
        return weights
    z = torch.linspace(-4, 4, 81)
    chance = torch.softmax(-z.square() / 2, 0)  # the normal density, summing to 1
    center = rows @ norm.bias.float() + weights["intermediate.bias"]  # (neurons,)
    width = (rows * norm.weight.float()).norm(dim=1)
    # (neurons, points)
    active = source.activation(center[:, None] + width[:, None] * z)
    mean = active @ chance
    spread = ((active - mean[:, None]).square() @ chance).sqrt()
    order = (spread * columns.norm(dim=0)).argsort(descending=True)
    keep = order[:size].sort().values
    drop = order[size:]
    return weights | {
        "intermediate.weight": rows[keep],
        "intermediate.bias": weights["intermediate.bias"][keep],
        "output.weight": columns[:, keep],
        "output.bias": weights["output.bias"] + columns[:, drop] @ mean[drop],
    }
