"""A student that starts from its teacher.

The word table is the teacher's, cut by SVD; the shared blocks are some of its layers.
Even untrained, such a student ranks sentence pairs somewhat as the teacher does, and
distillation takes minutes instead of days. All of this is computed before either
network moves to a GPU.

In the shapes, `embed` is the student's embedding size and `teacher_embed` the teacher's;
`hidden` is the same in both.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from litebert.device import choose_device
from litebert.nn import Albert, AlbertForPretraining
from litebert.nn.model import Blocks, FeedForwardBlock
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
    """Convert the teacher's weights; then fit the embedding projection to a sample of
    texts.

    What the student's first layer reads becomes as similar as possible to what the
    teacher's first layer reads for the same letters.
    """
    convert(student, teacher)
    plain = replace(sample, ids=sample.unmasked_ids())
    reading = teacher.read(plain.ids, plain.offsets, layers=[0])
    [targets] = reading.states  # (kept, hidden)

    embedding = student.albert.embedding
    [work] = micro_batches(plain, None, choose_device("cpu"))
    words = embedding.word(work.batch.ids)
    positions = embedding.position(work.batch.positions)
    segments = embedding.segment(work.batch.segments)
    embedded = embedding.norm(words + positions + segments)  # (tokens, embed)
    projection = embedding.projection
    assert isinstance(projection, nn.Linear)
    _fit_linear(projection, embedded[reading.kept], targets)


def _fit_linear(
    layer: nn.Linear,
    inputs: Float[Tensor, "rows embed"],
    targets: Float[Tensor, "rows hidden"],
) -> None:
    """Set a layer by least squares, through the normal equations."""
    ones = inputs.new_ones(len(inputs), 1)  # for the bias
    rows = torch.cat([inputs, ones], dim=1)  # (rows, embed + 1)
    ridge = len(rows) * RIDGE * torch.eye(rows.shape[1])
    gram = rows.T @ rows + ridge  # (embed + 1, embed + 1)
    solution = torch.linalg.solve(gram, rows.T @ targets)  # (embed + 1, hidden)
    layer.weight.copy_(solution[:-1].T)
    layer.bias.copy_(solution[-1])


@torch.no_grad()
def convert(student: AlbertForPretraining, teacher: Teacher) -> None:
    """Set the student's weights, in place, from a teacher of the same width and number
    of heads.

    The teacher's word table is centered and cut to `embed` dimensions by SVD; a piece of
    the student gets the mean of the teacher's pieces for its text. Every block is a copy
    of the middle one of the teacher's layers that it replaces, with only its most active
    neurons if the student has fewer. The masked-LM head starts as the transposed
    projection.
    """
    _convert_embeddings(student, teacher)
    _convert_attention(student.albert, teacher.encoder)
    _convert_feed_forward(student.albert, teacher.encoder)


# ---- embeddings ----------------------------------------------------------------------


def _convert_embeddings(student: AlbertForPretraining, teacher: Teacher) -> None:
    """Start the student's embeddings from the teacher's, in the directions that its
    words vary most in.
    """
    source = teacher.encoder.embedding
    embedding = student.albert.embedding
    table: Tensor = source.word.weight.float()  # (teacher_vocab, teacher_embed)
    mean = table.mean(0)  # (teacher_embed,)
    centered = table - mean
    directions = torch.linalg.svd(centered, full_matrices=False).Vh
    basis = directions[: student.config.embedding_size]  # (kept, teacher_embed)
    kept = slice(len(basis))  # a student may have wider embeddings than its teacher

    # from the teacher's embeddings to its hidden states, (hidden, teacher_embed)
    weight = torch.eye(student.config.hidden_size)  # BERT: both have one size
    bias = source.norm.bias
    if isinstance(source.projection, nn.Linear):  # ALBERT
        weight = source.projection.weight
        bias = source.projection(source.norm.bias)
    projection = embedding.projection
    assert isinstance(projection, nn.Linear)
    # The teacher's norm scales each of its dimensions: the projection does that here.
    scaled = source.norm.weight[:, None] * basis.T  # (teacher_embed, kept)
    projection.weight[:, kept] = weight @ scaled
    projection.bias.copy_(bias)
    student.masked_lm.dense.weight[kept] = basis @ weight.T

    words = _words_of_student(teacher, centered)  # (vocab, teacher_embed)
    embedding.word.weight[:, kept] = words @ basis.T
    length = min(student.config.max_position_embeddings, source.position.num_embeddings)
    positions = source.position.weight[:length]
    embedding.position.weight[:length, kept] = positions @ basis.T
    # Every token has a segment: it carries the mean that was taken from the words.
    segment = source.segment.weight[:1] + mean
    embedding.segment.weight[:, kept] = segment @ basis.T


def _words_of_student(
    teacher: Teacher, table: Float[Tensor, "teacher_vocab teacher_embed"]
) -> Float[Tensor, "vocab teacher_embed"]:
    """Return a vector for each piece of the student: of special pieces the teacher's,
    of others the mean of the teacher's pieces for its text.
    """
    tokenizer = teacher.tokenizer
    ids_by_piece = {piece: index for index, piece in enumerate(tokenizer.pieces)}
    special = dict(zip(teacher.student.special_ids, tokenizer.special_ids, strict=True))
    vectors = list[Tensor]()
    for index, text in enumerate(teacher.student.texts):
        continuing = f"##{text}"  # as BERT marks a piece that continues a word
        if index in special:
            ids = [special[index]]
        elif continuing in ids_by_piece:
            ids = [ids_by_piece[continuing]]
        else:
            ids = tokenizer.encode(text).ids
        if ids:
            vectors.append(table[ids].mean(0))
        else:
            vectors.append(table.new_zeros(table.shape[1]))
    return torch.stack(vectors)


# ---- blocks --------------------------------------------------------------------------


def _convert_attention(student: Albert, teacher: Albert) -> None:
    """Copy into each block the one of the teacher's that it replaces."""
    used = [step.attention for step in student.plan]  # block by step
    for number, block in enumerate(student.attention):
        step = _replaced_step(teacher, used, number)
        block.load_state_dict(teacher.attention[step.attention].state_dict())


def _convert_feed_forward(student: Albert, teacher: Albert) -> None:
    """Copy into each block the one of the teacher's that it replaces, narrowed."""
    used = [step.feed_forward for step in student.plan]
    size = student.config.intermediate_size
    for number, block in enumerate(student.feed_forward):
        step = _replaced_step(teacher, used, number)
        source = teacher.feed_forward[step.feed_forward]
        norm = teacher.attention[step.attention].norm  # of what the block reads
        block.load_state_dict(_narrow(source, norm, size))


def _replaced_step(teacher: Albert, used: Sequence[int], block: int) -> Blocks:
    """Return the step of the teacher that a block of the student replaces: the one at
    the relative depth of the middle one of the steps that apply the block.

    `used` has the number of the block that each step of the student applies.
    """
    steps = [step for step, number in enumerate(used) if number == block]
    middle = steps[len(steps) // 2]
    return teacher.plan[middle * len(teacher.plan) // len(used)]


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
    incoming = weights["intermediate.weight"]  # (neurons, hidden)
    outgoing = weights["output.weight"]  # (hidden, neurons)
    if size == len(incoming):
        return weights

    # what a neuron gets is then normal, too, with this center and width: (neurons,)
    center = incoming @ norm.bias.float() + weights["intermediate.bias"]
    width = (incoming * norm.weight.float()).norm(dim=1)
    # the mean and the standard deviation of its activation, by a sum over 81 points
    z = torch.linspace(-4, 4, 81)  # (points,)
    density = torch.softmax(-z.square() / 2, 0)  # of the normal distribution; sums to 1
    inputs = center[:, None] + width[:, None] * z  # (neurons, points)
    active = source.activation(inputs)
    mean = active @ density  # (neurons,)
    spread = ((active - mean[:, None]).square() @ density).sqrt()

    influence = spread * outgoing.norm(dim=0)  # (neurons,)
    order = influence.argsort(descending=True)
    keep = order[:size].sort().values
    drop = order[size:]
    return weights | {
        "intermediate.weight": incoming[keep],
        "intermediate.bias": weights["intermediate.bias"][keep],
        "output.weight": outgoing[:, keep],
        "output.bias": weights["output.bias"] + outgoing[:, drop] @ mean[drop],
    }
