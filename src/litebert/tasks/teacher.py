"""The teacher of a distillation: a pretrained encoder with its own vocabulary, which
reads the text behind a student's ids.

The two tokenizations are aligned by characters, so that each token of the student has
the teacher's state of the same letters.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from litebert.device import device_at, device_of
from litebert.errors import LitebertError
from litebert.fast import is_int8, pack
from litebert.folder import SentenceVectors, read_folder
from litebert.nn import Albert, Batch, pool_rows
from litebert.rng import Ints
from litebert.tokenizer import Tokenizer

Span: TypeAlias = tuple[int, int]
"""The first character of a token in its text, and the one after its last."""


class Reading(NamedTuple):
    """What a teacher makes of texts: its states at the student's tokens `kept` that have
    a counterpart, after each layer that was asked for, and a vector for each text.
    """

    kept: Int[Tensor, " kept"]
    states: list[Float[Tensor, "kept teacher_hidden"]]
    vectors: Float[Tensor, "texts teacher_hidden"]


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
        self._texts = list(student.texts)  # of the student's pieces, by id
        self._texts[student.unk_id] = "?"

    @classmethod
    def load(cls, folder: Path, student: Tokenizer, *, dtype: torch.dtype) -> "Teacher":
        """Read a model folder; a sentence-transformers folder also defines how texts
        become vectors.
        """
        model = read_folder(folder, dtype=dtype, for_inference=True)
        encoder = model.network.albert
        if is_int8(encoder):
            raise LitebertError(
                "LB-664",
                f"{folder} is an eight-bit model, which cannot teach",
                next="distil the model that it was made from",
            )
        # its states are targets of training, which must be the same when it is resumed
        pack(encoder, is_repeatable=True)
        tokenizer = model.require_tokenizer()
        return cls(encoder, tokenizer, student, vectors=model.require_vectors())

    @torch.no_grad()
    def read(self, ids: Ints, offsets: Ints, layers: Sequence[int]) -> Reading:
        """Read the texts behind a student's ids (tokens,), unmasked and framed;
        `offsets` delimit the sequences.

        Each of `layers` is a number of steps of the teacher; 0 is what its first layer
        reads.
        """
        framed = list[list[int]]()
        student_spans = list[list[Span]]()
        teacher_spans = list[list[Span]]()
        # The student's text may be longer in the teacher's pieces: its end is cut off.
        longest = self.encoder.config.max_position_embeddings - 2
        for begin, end in pairwise(offsets):
            parts = [self._texts[index] for index in ids[begin:end]]
            student_spans.append(_spans_of(parts))
            encoded = self.tokenizer.encode("".join(parts))
            pieces = encoded.ids[:longest]
            framed.append([self.tokenizer.cls_id, *pieces, self.tokenizer.sep_id])
            teacher_spans.append([(0, 0), *encoded.offsets[:longest], (0, 0)])

        device = device_of(self.encoder)
        batch = Batch.from_lists(framed).to(device)
        # before the first step and after each, (teacher's tokens, hidden)
        states = list(self.encoder.states(batch))

        first, stop = align(student_spans, teacher_spans)  # (student's tokens,)
        aligned = np.flatnonzero(stop > first)
        kept = device.copy(torch.from_numpy(aligned))
        first_rows = device.copy(torch.from_numpy(first[aligned]))
        stop_rows = device.copy(torch.from_numpy(stop[aligned]))
        targets = list[Tensor]()
        for layer in layers:
            targets.append(mean_rows(states[layer], first_rows, stop_rows))
        vectors = pool_rows(states[-1].float(), batch, self.vectors.pooling)
        return Reading(kept, targets, vectors)


def _spans_of(parts: Sequence[str]) -> list[Span]:
    """Return where the texts of pieces stand when they are joined, without the space
    that begins a word.

    >>> _spans_of(["", " cat", "s"])
    [(0, 0), (1, 4), (4, 5)]
    """
    spans = list[Span]()
    end = 0
    for part in parts:
        begin = end
        if part.startswith(" "):
            begin += 1
        end += len(part)
        spans.append((begin, end))
    return spans


def mean_rows(
    rows: Float[Tensor, "rows hidden"],
    first: Int[Tensor, " ranges"],
    stop: Int[Tensor, " ranges"],
) -> Float[Tensor, "ranges hidden"]:
    """Return the mean of the rows first ... stop - 1 of each range.

    A sum is a difference of running sums. In float32 the running sums of thousands of
    rows would round it away, so they are in the device's precision for sums.
    """
    padded = torch.cat([rows.new_zeros(1, rows.shape[1]), rows])  # (rows + 1, hidden)
    running = padded.to(device_at(rows.device).sum_dtype).cumsum(0)
    sums = running[stop] - running[first]
    return (sums / (stop - first)[:, None]).float()


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
    firsts = list[Ints]()
    stops = list[Ints]()
    row = 0  # of the teacher's states: where the text begins
    for student_spans, teacher_spans in zip(student, teacher, strict=True):
        # in characters, both (tokens of the student,)
        begin, end = np.array(student_spans).T
        inner = np.array(teacher_spans[1:-1]).reshape(-1, 2)  # without [CLS] and [SEP]
        teacher_begin, teacher_end = inner.T
        # Teacher tokens that overlap a student token end after its begin and begin
        # before its end.
        first = row + 1 + np.searchsorted(teacher_end, begin, side="right")
        stop = row + 1 + np.searchsorted(teacher_begin, end, side="left")
        is_empty = begin == end
        first[is_empty] = 0
        stop[is_empty] = 0
        last_row = row + len(teacher_spans) - 1
        first[0] = row  # [CLS]
        stop[0] = row + 1
        first[-1] = last_row  # the last [SEP]
        stop[-1] = last_row + 1
        firsts.append(first)
        stops.append(np.maximum(first, stop))
        row += len(teacher_spans)
    return np.concatenate(firsts), np.concatenate(stops)


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
