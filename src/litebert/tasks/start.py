"""Weights that a network begins with: heads that attend to neighbours, or those of a teacher.

With small random weights, attention is close to uniform and adds about 1 % to the residual, so that at small learning
rates a network predicts from piece frequencies alone for millions of pieces. Heads that read the pieces beside a gap
from the start shorten that plateau (docs/choices.md).

A student that begins as its teacher (word table by SVD, some of its layers as shared blocks) ranks sentence pairs
somewhat as the teacher does even untrained; distillation then takes minutes instead of days. All of it is computed
where the two networks are, before either moves to a GPU.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from litebert import rng
from litebert.nn import Albert, AlbertForPretraining
from litebert.nn.model import FeedForwardBlock
from litebert.objectives import PretrainingBatch, longest_first
from litebert.tasks.distillation import Teacher, unmasked
from litebert.tasks.pretraining import micro_batches

# Heads that attend to neighbours

OFFSETS = (-1, 1, -2, 2, -3, 3)  # positions that the heads attend to: the piece before, the one after, and so on
_MOST_FREQUENCIES = 32
_POSITION_STRENGTH = 1.2  # standard deviation of the position rows, relative to that of the word rows
_CUT_NORMAL_STD = 0.88  # of a unit normal that is cut at two sigma, as in nn.init


@torch.no_grad()
def attend_locally(albert: Albert, *, seed: int) -> None:
    """Set positions, projection and some heads so that each of these attends to one offset.

    Position p is written as cos and sin of p w for jittered frequencies w, in a random subspace of E. The projection
    keeps lengths, so a reader B takes that subspace out of H. A head for offset d has W_k = B and W_q = R(d) B, where R
    turns each phase by d w: q_i k_j is largest at j = i + d.
    """
    config = albert.config
    embedding_size, hidden_size = config.embedding_size, config.hidden_size
    draws = rng.stream(seed, "local-start", 0)
    num = min(_MOST_FREQUENCIES, config.head_size // 2, embedding_size // 2)
    frequencies = np.pi * (np.arange(num) + draws.random(num)) / num
    subspace = _isometry(draws, embedding_size, embedding_size)[: 2 * num]  # (2 num, E)
    phases = np.outer(np.arange(config.max_position_embeddings), frequencies)
    waves = np.concatenate([np.cos(phases), np.sin(phases)], axis=1)  # (positions, 2 num), of squared length num
    std = _POSITION_STRENGTH * _CUT_NORMAL_STD * config.initializer_range
    positions = waves @ subspace * (embedding_size / num) ** 0.5 * std
    albert.embedding.position.weight.copy_(torch.from_numpy(positions))
    reader = subspace  # of a hidden vector, where E = H and nothing is projected
    if config.projects_embeddings:
        isometry = _isometry(draws, hidden_size, embedding_size)  # (H, E)
        assert isinstance(albert.embedding.projection, torch.nn.Linear)
        gain = (hidden_size / embedding_size) ** 0.5  # unit variance stays unit variance
        albert.embedding.projection.weight.copy_(torch.from_numpy(isometry * gain))
        reader = subspace @ isometry.T / gain  # (2 num, H)
    for block in albert.attention:
        for head, offset in enumerate(OFFSETS[: num_local_heads(config.num_attention_heads)]):
            rows = slice(head * config.head_size, head * config.head_size + 2 * num)
            # the rotation of each pair (cos, sin) by its angle, (2 num, 2 num)
            cos, sin = np.diag(np.cos(frequencies * offset)), np.diag(np.sin(frequencies * offset))
            rotation = np.block([[cos, -sin], [sin, cos]])
            block.key.weight[rows].copy_(torch.from_numpy(reader))
            block.query.weight[rows].copy_(torch.from_numpy(rotation @ reader))


def num_local_heads(num_heads: int) -> int:
    """Return how many heads start local: all but one or, of more than four heads, all but two.

    >>> [num_local_heads(n) for n in (1, 2, 4, 8, 12)]
    [0, 1, 3, 6, 6]
    """
    return min(len(OFFSETS), num_heads - (1 if num_heads <= 4 else 2))


def _isometry(draws: np.random.Generator, rows: int, columns: int) -> NDArray[np.float64]:
    """Draw a matrix with orthonormal columns, or rows where there are fewer of them."""
    normal = draws.standard_normal((max(rows, columns), min(rows, columns)))
    basis: NDArray[np.float64] = np.linalg.qr(normal)[0]
    return basis if rows >= columns else basis.T


# The weights of a teacher


@torch.no_grad()
def begin_as_teacher(student: AlbertForPretraining, teacher: Teacher, sample: PretrainingBatch) -> None:
    """Convert the teacher's weights; fit the embedding projection, if there is one, by least squares on a sample."""
    convert(student, teacher)
    embedding = student.albert.embedding
    projection = embedding.projection
    if not isinstance(projection, torch.nn.Linear):
        return
    masked = longest_first(sample)
    plain = replace(masked, ids=unmasked(masked))
    kept, (targets,), _ = teacher.read(plain.ids, plain.offsets, [0])  # what its first layer reads
    (work,) = micro_batches(plain, None, torch.device("cpu"))
    batch = work.batch
    narrow = embedding.norm(
        embedding.word(batch.ids) + embedding.position(batch.positions) + embedding.segment(batch.segments)
    )  # (tokens, embed)
    inputs = torch.cat([narrow, narrow.new_ones(len(narrow), 1)], dim=1)[kept]
    # Normal equations; a small ridge term keeps them solvable for any text.
    gram = inputs.T @ inputs + len(inputs) * 1e-4 * torch.eye(inputs.shape[1])
    solution = torch.linalg.solve(gram, inputs.T @ targets)  # (embed + 1, hidden)
    projection.weight.copy_(solution[:-1].T)
    projection.bias.copy_(solution[-1])


@torch.no_grad()
def convert(student: AlbertForPretraining, teacher: Teacher) -> None:
    """Set the student's weights, in place, from a teacher of the same width and number of heads.

    The teacher's word table is centred and cut to E dimensions by SVD; a piece of the student gets the mean of the
    teacher's pieces for its text. Every block is a copy of the middle one of the teacher's layers that it replaces,
    with its most active neurons if the student has fewer. The masked-LM head starts as the transposed projection.
    """
    config, source, embedding = student.config, teacher.encoder.embedding, student.albert.embedding
    table: Tensor = source.word.weight.float()  # (teacher vocab, teacher embed)
    mean = table.mean(0)
    theirs, ours = source.projection, embedding.projection
    if isinstance(theirs, torch.nn.Linear):  # ALBERT: (hidden, teacher embed)
        weight, bias = theirs.weight, theirs(source.norm.bias)
    else:  # BERT: its embeddings have the hidden size
        weight, bias = torch.eye(config.hidden_size), source.norm.bias
    gain = weight * source.norm.weight  # (hidden, teacher embed)
    if isinstance(ours, torch.nn.Linear):
        _, _, basis = torch.linalg.svd(table - mean, full_matrices=False)
        basis = basis[: config.embedding_size]  # (kept, teacher embed)
        ours.weight[:, : len(basis)] = weight @ (source.norm.weight[:, None] * basis.T)
        ours.bias.copy_(bias)
        student.masked_lm.dense.weight[: len(basis)] = basis @ weight.T
    else:  # embeddings as wide as the layers: nothing is cut, and the norm does what their norm and projection did
        is_same = not isinstance(theirs, torch.nn.Linear)
        basis = weight if is_same else gain
        embedding.norm.weight.copy_(source.norm.weight if is_same else gain.norm().expand(len(gain)) / len(gain) ** 0.5)
        embedding.norm.bias.copy_(bias)
        student.masked_lm.dense.weight.copy_(torch.eye(config.hidden_size))
    kept = slice(len(basis))  # a student may have wider embeddings than its teacher
    length = min(config.max_position_embeddings, source.position.num_embeddings)
    embedding.position.weight[:length, kept] = source.position.weight[:length] @ basis.T
    embedding.segment.weight[:, kept] = (source.segment.weight[:1] + mean) @ basis.T

    # a vector for each piece of the student, (vocab, kept)
    known = {piece: index for index, piece in enumerate(teacher.tokenizer.pieces)}
    special = dict(zip(teacher.student.special_ids, teacher.tokenizer.special_ids, strict=True))
    centred, rows = table - mean, list[Tensor]()
    for index, piece in enumerate(teacher.student.pieces):
        if index in special:
            ids = [special[index]]
        elif not piece.startswith("▁") and f"##{piece}" in known:
            ids = [known[f"##{piece}"]]
        else:
            ids = list(teacher.tokenizer.encode(piece.replace("▁", " ")).ids)
        rows.append(centred[ids].mean(0) if ids else table.new_zeros(table.shape[1]))
    embedding.word.weight[:, kept] = torch.stack(rows) @ basis.T

    # into each block the middle one of the teacher's layers that it replaces
    encoder: Any = teacher.encoder
    plan, their_plan = student.albert.plan, encoder.plan
    for kind in ("attention", "feed_forward"):
        for number, block in enumerate(getattr(student.albert, kind)):
            steps = [i for i, step in enumerate(plan) if getattr(step, kind) == number]
            middle = their_plan[steps[len(steps) // 2] * len(their_plan) // len(plan)]
            of_teacher = getattr(encoder, kind)[getattr(middle, kind)]
            weights = of_teacher.state_dict()
            if kind == "feed_forward":
                weights = _narrow(
                    of_teacher, teacher.encoder.attention[middle.attention].norm, config.intermediate_size
                )
            block.load_state_dict(weights)


def _narrow(source: FeedForwardBlock, norm: torch.nn.LayerNorm, size: int) -> dict[str, Tensor]:
    """Return the weights of a feed-forward block with its `size` most active neurons.

    `norm` is the layer norm before the block. If its output were normally distributed, each neuron's activation would
    have a known mean and spread. The neurons with the largest spread times the norm of their output weights are kept;
    the means of the others go into the bias.
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
