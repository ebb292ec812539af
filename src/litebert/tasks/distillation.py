"""Distillation: a student learns masked words, sentence order, and a teacher's states
of the same text.

The teacher is a pretrained encoder with its own vocabulary. A step has masked pairs
(masked LM, sentence order, hidden states) and short plain texts (hidden states, one
vector per text). The ids become text, the teacher reads it unmasked, and the two
tokenizations are aligned by characters.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config import DistilConfig
from litebert.device import choose_device, device_of
from litebert.distributed import ALONE, World
from litebert.errors import LitebertError
from litebert.fast import is_int8, pack
from litebert.folder import SentenceVectors, read_folder
from litebert.nn import (
    Albert,
    AlbertForPretraining,
    Batch,
    HeadContext,
    pool_rows,
)
from litebert.nn.model import FeedForwardBlock
from litebert.objectives import Loader, PretrainingBatch, prefetch
from litebert.rng import Ints
from litebert.tasks.heads import PretrainingWork
from litebert.tasks.pretraining import Pretraining, micro_batches
from litebert.tasks.task import Loss, MicroBatch, Task, stack_sums
from litebert.tokenizer import Tokenizer

Span = tuple[int, int]


# The teacher


class Teacher:
    """A frozen encoder with its own tokenizer, which reads the text behind the ids of a
    student.

    The text has the normalization of the student's vocabulary (lower case), so the
    teacher should be uncased.
    """

    def __init__(
        self,
        encoder: Albert,
        tokenizer: Tokenizer,
        student: Tokenizer,
        *,
        vectors: SentenceVectors | None = None,
    ) -> None:
        self.encoder = encoder.eval()
        self.tokenizer = tokenizer
        self.student = student
        self.vectors = vectors or SentenceVectors()
        self._texts = [
            "?" if index == student.unk_id else text
            for index, text in enumerate(student.texts)
        ]

    @classmethod
    def load(cls, folder: Path, student: Tokenizer, *, dtype: torch.dtype) -> "Teacher":
        """Read a model folder; a sentence-transformers folder also defines how texts
        become vectors.
        """
        model = read_folder(folder, dtype=dtype, for_inference=True)
        if is_int8(model.network.albert):
            what = f"{folder} is an eight-bit model, which cannot teach"
            raise LitebertError(
                "LB-664", what, next="distil the model that it was made from"
            )
        # its states are targets of training, which must be the same when it is resumed
        pack(model.network.albert, is_repeatable=True)
        tokenizer = model.require_tokenizer()
        return cls(
            model.network.albert, tokenizer, student, vectors=model.require_vectors()
        )

    @torch.no_grad()
    def read(
        self, ids: Ints, offsets: Ints, layers: Sequence[int]
    ) -> tuple[Tensor, list[Tensor], Tensor]:
        """Read the texts behind a student's ids (tokens,), unmasked and framed;
        `offsets` delimit the sequences.

        Return which tokens have a counterpart (kept,), its states after the given
        layers (0: the embeddings), each of shape (kept, teacher hidden), and the pooled
        vectors (texts, teacher hidden).
        """
        longest = self.encoder.config.max_position_embeddings - 2
        device = device_of(self.encoder)
        framed = list[list[int]]()
        ours = list[list[Span]]()
        theirs = list[list[Span]]()
        for begin, end in pairwise(offsets):
            parts = [self._texts[index] for index in ids[begin:end]]
            ends = np.cumsum([0, *map(len, parts)]).tolist()  # in characters
            ours.append(
                [
                    (ends[i] + part.startswith(" "), ends[i + 1])
                    for i, part in enumerate(parts)
                ]
            )
            encoded = self.tokenizer.encode("".join(parts))
            framed.append(
                [self.tokenizer.cls_id, *encoded.ids[:longest], self.tokenizer.sep_id]
            )
            theirs.append([(0, 0), *encoded.offsets[:longest], (0, 0)])
        batch = Batch.from_lists(framed).to(device)
        # before the first step and after each, (their tokens, hidden)
        states = list(self.encoder.states(batch))

        # for each token, the mean of the states of its counterparts, rows first ...
        # stop - 1: their sum is a difference of running sums, which float32 would round
        # away
        bounds = align(ours, theirs)
        numbers = np.flatnonzero(bounds[1] > bounds[0])
        kept, first, stop = (
            device.copy(torch.from_numpy(x))
            for x in (numbers, *(each[numbers] for each in bounds))
        )
        targets = []
        for x in (states[layer] for layer in layers):
            # (their tokens + 1, hidden)
            whole = torch.cat([x.new_zeros(1, x.shape[1]), x])
            sums = whole.to(device.sum_dtype).cumsum(0)
            targets.append(
                ((sums[stop] - sums[first]) / (stop - first)[:, None]).float()
            )
        return kept, targets, pool_rows(states[-1].float(), batch, self.vectors.pooling)


@dataclass(frozen=True)
class TeacherVectors:
    """A teacher of which only the vectors of some texts are known.

    The student learns them in the directions `axes` (teacher's width, hidden), which
    `TaughtTexts.axes` chooses: plain alignment, as in LEAF (arXiv 2509.12539), so that
    vectors of both models can be compared.
    """

    axes: Tensor
    vectors: SentenceVectors

    def project(self, rows: NDArray[np.floating[Any]]) -> Tensor:
        """Return the targets (texts, hidden) of some texts from their vectors."""
        vectors = torch.from_numpy(rows.astype(np.float32))
        return vectors.to(self.axes.device) @ self.axes


def align(
    student: Sequence[Sequence[Span]], teacher: Sequence[Sequence[Span]]
) -> tuple[Ints, Ints]:
    """Align two tokenizations of the same texts by characters.

    Return for each student token the first of the teacher tokens that correspond to it,
    and where these stop, both (tokens,). If the two are equal, it has no counterpart
    ([SEP] between two sentences, a lone `▁`). The first spans of a text in both ([CLS])
    correspond to each other, and so do the last ones (the final [SEP]).

    >>> first, stop = align([[(0, 0), (0, 3), (0, 0)]], [[(0, 0), (0, 2), (2, 3), (0, 0)]])
    >>> first.tolist(), stop.tolist()
    ([0, 1, 3], [1, 3, 4])
    """
    first = []
    stop = []
    row = 0
    for ours, theirs in zip(student, teacher, strict=True):
        begin, end = np.array(ours).T  # in characters, (tokens of the student,)
        starts, ends = np.array(theirs[1:-1]).reshape(-1, 2).T
        # Teacher tokens that overlap a student token end after its begin and begin
        # before its end.
        low = row + 1 + np.searchsorted(ends, begin, side="right")
        high = row + 1 + np.searchsorted(starts, end, side="left")
        low[begin == end] = high[begin == end] = 0
        low[0], high[0] = row, row + 1  # [CLS]
        row += len(theirs)
        low[-1], high[-1] = row - 1, row  # the last [SEP]
        first.append(low)
        stop.append(np.maximum(low, high))
    return np.concatenate(first), np.concatenate(stop)


# A student that starts from its teacher
#
# The word table is the teacher's, cut by SVD; the shared blocks are some of its layers.
# Even untrained, such a student ranks sentence pairs somewhat as the teacher does, and
# distillation takes minutes instead of days. All of this is computed before either
# network moves to a GPU.


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
    plain = replace(sample, ids=unmask(sample))
    # the input of its first layer
    kept, (targets,), _ = teacher.read(plain.ids, plain.offsets, [0])
    (work,) = micro_batches(plain, None, choose_device("cpu"))
    words = embedding.word(work.batch.ids)
    positions = embedding.position(work.batch.positions)
    # (tokens, embed)
    narrow = embedding.norm(words + positions + embedding.segment(work.batch.segments))
    # (kept, embed + 1)
    inputs = torch.cat([narrow, narrow.new_ones(len(narrow), 1)], dim=1)[kept]
    # Normal equations; a small ridge term keeps them solvable for any text.
    gram = inputs.T @ inputs + len(inputs) * 1e-4 * torch.eye(inputs.shape[1])
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
    config = student.config
    source = teacher.encoder.embedding
    embedding = student.albert.embedding
    table: Tensor = source.word.weight.float()  # (teacher vocab, teacher embed)
    mean = table.mean(0)
    theirs = source.projection
    ours = embedding.projection
    assert isinstance(ours, nn.Linear)
    if isinstance(theirs, nn.Linear):  # ALBERT: (hidden, teacher embed)
        weight = theirs.weight
        bias = theirs(source.norm.bias)
    else:  # BERT: its embeddings have the hidden size
        weight = torch.eye(config.hidden_size)
        bias = source.norm.bias
    # (kept, teacher embed)
    basis = torch.linalg.svd(table - mean, full_matrices=False).Vh[
        : config.embedding_size
    ]
    kept = slice(len(basis))  # a student may have wider embeddings than its teacher
    ours.weight[:, kept] = weight @ (source.norm.weight[:, None] * basis.T)
    ours.bias.copy_(bias)
    student.masked_lm.dense.weight[kept] = basis @ weight.T
    length = min(config.max_position_embeddings, source.position.num_embeddings)
    embedding.position.weight[:length, kept] = source.position.weight[:length] @ basis.T
    embedding.segment.weight[:, kept] = (source.segment.weight[:1] + mean) @ basis.T

    # a vector for each piece of the student, (vocab, kept)
    known = {piece: index for index, piece in enumerate(teacher.tokenizer.pieces)}
    special = dict(
        zip(teacher.student.special_ids, teacher.tokenizer.special_ids, strict=True)
    )
    centred = table - mean
    rows = list[Tensor]()
    for index, text in enumerate(teacher.student.texts):
        # continues a word, as BERT marks it
        one = special[index] if index in special else known.get(f"##{text}")
        ids = teacher.tokenizer.encode(text).ids if one is None else [one]
        rows.append(centred[ids].mean(0) if ids else table.new_zeros(table.shape[1]))
    embedding.word.weight[:, kept] = torch.stack(rows) @ basis.T

    # into each block the middle one of the teacher's layers that it replaces
    plan = student.albert.plan
    their_plan = teacher.encoder.plan
    for kind in ("attention", "feed_forward"):
        for number, block in enumerate(getattr(student.albert, kind)):
            steps = [i for i, step in enumerate(plan) if getattr(step, kind) == number]
            middle = their_plan[steps[len(steps) // 2] * len(their_plan) // len(plan)]
            of_teacher = getattr(teacher.encoder, kind)[getattr(middle, kind)]
            weights = of_teacher.state_dict()
            if kind == "feed_forward":
                before = teacher.encoder.attention[middle.attention].norm
                weights = _narrow(of_teacher, before, config.intermediate_size)
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


# The task


@dataclass(frozen=True)
class Lesson(MicroBatch):
    """Masked `pairs` of segments, or plain texts with the teacher's `vectors` (texts,
    hidden).

    `targets` are the teacher's states (kept, hidden) of the same unmasked text for each
    step of the student, at the tokens `kept` (kept,) that have a counterpart; pairs
    have none if `distil.hidden` is 0. `share` is the lesson's share of the step's
    tokens; `world` are the processes that share the lesson.
    """

    share: float
    world: World
    pairs: PretrainingWork | None = None
    kept: Tensor | None = None
    targets: Sequence[Tensor] = ()
    vectors: Tensor | None = None


@dataclass(eq=False)
class Distillation(Task[Lesson]):
    """The task of distillation.

    At a masked position the student must predict the state of the hidden word (as in
    data2vec, arXiv 2202.03555). Hidden states are compared by squared error relative to
    the teacher's size, vectors by cosine.
    """

    pretraining: Pretraining
    teacher: Teacher | TeacherVectors
    open_texts: Callable[[], Loader]
    held_out_texts: Sequence[PretrainingBatch]
    distil: DistilConfig

    def __post_init__(self) -> None:
        self.network: AlbertForPretraining = self.pretraining.network
        # the errors of states and vectors, each with its count
        self.num_sums = self.pretraining.num_sums + 4
        self._layers = list[int]()
        self._errors = ["vector_error"]
        if isinstance(self.teacher, Teacher):
            # for each step of the student, the teacher's layer at the same depth
            depth = len(self.network.albert.plan)
            of_teacher = len(self.teacher.encoder.plan)
            steps = range(1, depth + 1)
            self._layers = [round(step * of_teacher / depth) for step in steps]
            self._errors = ["hidden_error", "vector_error"]

    def batches(self, start: int, stop: int) -> Iterator[Sequence[Lesson]]:
        """Yield two lessons a step: pairs, then texts."""
        steps = range(start, stop)
        world = self.pretraining.world
        workers = self.pretraining.train.loader_workers
        assert self.pretraining.open_loader is not None
        loaders = self.pretraining.open_loader, self.open_texts
        both = (
            prefetch(
                each, steps, rank=world.rank, world_size=world.size, workers=workers
            )
            for each in loaders
        )
        for pairs, texts in zip(*both, strict=True):
            sizes = world.totals(pairs.offsets[-1], texts.offsets[-1])  # in tokens
            yield [
                self._lesson(pairs, sizes[0] / sum(sizes), world, is_masked=True),
                self._lesson(texts, sizes[1] / sum(sizes), world, is_masked=False),
            ]

    def _lesson(
        self, batch: PretrainingBatch, share: float, world: World, *, is_masked: bool
    ) -> Lesson:
        """Let the teacher read a batch; the student gets it masked or, like the
        teacher, plain.
        """
        ids = unmask(batch)
        (work,) = micro_batches(
            batch if is_masked else replace(batch, ids=ids),
            None,
            device_of(self.network),
            world,
        )
        aligns_states = self.distil.hidden and isinstance(self.teacher, Teacher)
        if is_masked and not aligns_states:
            return Lesson(work.batch, share, world, pairs=work)
        if isinstance(self.teacher, TeacherVectors):
            assert batch.vectors is not None, "its texts come with their vectors"
            targets = self.teacher.project(batch.vectors)
            return Lesson(work.batch, share, world, vectors=targets)
        kept, states, vectors = self.teacher.read(ids, batch.offsets, self._layers)
        if is_masked:
            return Lesson(
                work.batch, share, world, pairs=work, kept=kept, targets=states
            )
        return Lesson(
            work.batch, share, world, kept=kept, targets=states, vectors=vectors
        )

    def loss(self, work: Lesson) -> Loss:
        # after each step, (tokens, hidden)
        states = list(self.network.albert.states(work.batch))[1:]
        hidden = self.hidden_error(states, work)
        share = work.share if work.targets else 0.0
        # each lesson has its share of the tokens in this error
        total = work.share * (self.distil.hidden * hidden)
        sums = stack_sums(hidden * share, hidden.new_full((), share / work.world.size))
        if work.pairs is not None:
            context = HeadContext(
                work.batch, work.pairs.masked_positions, self.network.albert
            )
            tokens = self.network.tokens_read(context)
            last = [states[-1][places] for places in tokens]
            logits = self.network.read(context, last)
            learned = self.pretraining.loss(work.pairs, logits)
            total = total + self.distil.pretraining * learned.total
            return Loss(total, torch.cat([learned.sums, sums, sums.new_zeros(2)]))
        assert work.vectors is not None
        vectors = pool_rows(
            states[-1].float(), work.batch, self.teacher.vectors.pooling
        )
        # (texts,)
        distances = 1 - F.cosine_similarity(vectors, work.vectors.float(), dim=-1)
        (num_texts,) = work.world.totals(len(distances))
        total = total + self.distil.vectors * distances.sum() / num_texts
        of_vectors = stack_sums(distances.sum(), distances.new_full((), len(distances)))
        return Loss(
            total,
            torch.cat([sums.new_zeros(self.pretraining.num_sums), sums, of_vectors]),
        )

    def hidden_error(self, states: Sequence[Tensor], work: Lesson) -> Tensor:
        """Return the mean error of the student's states after each step, of which the
        last has half the weight.
        """
        if not work.targets:
            return states[-1].new_zeros((), dtype=torch.float32)
        sizes = [target.square().sum() for target in work.targets]  # one for each step
        work.world.sum_(sizes)  # errors are relative to all texts of the lesson
        errors = [
            (ours[work.kept].float() - target).square().sum() / size
            for ours, target, size in zip(states, work.targets, sizes, strict=True)
        ]
        return (
            (torch.stack(errors[:-1]).mean() + errors[-1]) / 2
            if errors[1:]
            else errors[0]
        )

    def measures(self, sums: Sequence[float]) -> dict[str, float]:
        *pretraining, hidden, lessons, vector, texts = sums
        errors = {
            "hidden_error": hidden / (lessons or 1.0),
            "vector_error": vector / (texts or 1.0),
        }
        known = {name: errors[name] for name in self._errors}
        return self.pretraining.measures(pretraining) | known

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Measure as pretraining does, and against the teacher on held-out plain
        texts.
        """
        values = self.pretraining.evaluate()
        self.network.eval()
        device = device_of(self.network)
        sums = torch.zeros(self.num_sums, dtype=device.sum_dtype, device=device.place)
        for batch in self.pretraining.world.share(self.held_out_texts):
            sums += self.loss(self._lesson(batch, 1.0, ALONE, is_masked=False)).sums
        self.pretraining.world.sum_([sums])
        self.network.train()
        measured = self.measures(sums.tolist())
        return values | {name: measured[name] for name in self._errors}


def unmask(batch: PretrainingBatch) -> Ints:
    """Return the ids of a batch as they were before they were masked, shape
    (tokens,).
    """
    ids: Ints = batch.ids.copy()
    ids[batch.masked_positions] = batch.masked_ids
    return ids
