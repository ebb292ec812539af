"""Vectors of texts, trained on pairs that belong together, such as questions with their
answers: no labels, no scores.

Every other second text of a batch stands for a wrong one (in-batch negatives, Henderson
et al. 2017, arXiv 1705.00652; MultipleNegativesRankingLoss of sentence-transformers). The
result is a model of vectors, as in `similarity`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from litebert import metrics
from litebert.config import HeadConfig
from litebert.nn import AlbertForTask, Batch
from litebert.plugins import TASK_KINDS
from litebert.reading.tables import Row
from litebert.rng import hash_text
from litebert.runs import AnswerRow
from litebert.tasks.kinds.family import (
    Activation,
    Feature,
    Framed,
    Output,
    Scoring,
    frame_apart,
)
from litebert.tasks.kinds.text import TextExample
from litebert.tasks.tables.cells import have_words, list_of, text_of
from litebert.tasks.tables.columns import PAIRS, Role
from litebert.tasks.tables.guess import ColumnGuess
from litebert.tasks.tables.rows import RowReading, TrainingRows
from litebert.tokenizer import Tokenizer

# How sharply cosines are compared; the default of sentence-transformers, too.
SHARPNESS = 20.0
# more names of columns whose texts belong together, the likeliest first
POSITIVES: Sequence[Sequence[str]] = (
    ("anchor", "positive"),
    ("anchor", "pos"),
    ("query", "positive"),
    ("query", "pos"),
)
MATCHES: Sequence[Sequence[str]] = (
    *POSITIVES,
    ("question", "answer"),
    ("query", "answer"),
    *PAIRS,
)


@dataclass(frozen=True, eq=False)
class VectorPair:
    """The vectors of both texts, of length 1."""

    first: Output
    second: Output

    @property
    def cosine(self) -> float:
        return float(self.first @ self.second)


@dataclass(frozen=True)
class Matches(Scoring[TextExample, VectorPair]):
    """The answer to a pair are its vectors: the second text must be nearest to the
    first, of all second texts.
    """

    heads: ClassVar[tuple[str, ...]] = ("text-vectors",)
    starts_trained: ClassVar[bool] = True
    has_several_sequences: ClassVar[bool] = True
    baseline: ClassVar[str] = "a random order"
    key_measure: ClassVar[str] = "mrr"
    activation: ClassVar[Activation] = "none"
    refusal: ClassVar[str] = ""  # other programs read its encoder, and take the mean

    def texts(self, example: TextExample, /) -> tuple[str, ...]:
        return (example.first, example.second or "")

    def framed(
        self, pairs: Sequence[tuple[str, ...]], tokenizer: Tokenizer, max_length: int
    ) -> list[tuple[Framed, ...]]:
        return frame_apart(pairs, tokenizer, max_length)

    def target(self, example: TextExample, /) -> NDArray[np.int64]:
        """Return the hash of each text, by which the loss knows equal texts."""
        return np.array([hash_text(text) for text in self.texts(example)])

    def logits(
        self, network: AlbertForTask, batch: Batch
    ) -> Float[Tensor, "pairs two_hidden"]:
        """Return both vectors of each pair, of length 1, side by side."""
        vectors = F.normalize(network(batch), dim=-1)
        return vectors.view(len(vectors) // 2, -1)

    def losses_of(
        self, logits: Float[Tensor, "pairs two_hidden"], targets: Tensor
    ) -> Float[Tensor, " pairs"]:
        """Return the cross entropy of each first text with all second texts.

        A pair that shares a text with another is not wrong for it.
        """
        firsts, seconds = logits.chunk(2, dim=-1)  # (pairs, hidden) each
        hashes = targets.view(-1, 2)
        # (pairs, pairs): first text of i, second text of j
        scores = SHARPNESS * firsts @ seconds.T
        shares_text = (hashes[:, None] == hashes[None, :]).any(-1)
        shares_text.fill_diagonal_(False)  # a pair with itself is the right answer
        candidates = scores.masked_fill(shares_text, -torch.inf)
        partners = torch.arange(len(hashes), device=hashes.device)
        return F.cross_entropy(candidates, partners, reduction="none")

    def answer(
        self, _: TextExample, __: Sequence[Feature], outputs: Sequence[Output], /
    ) -> VectorPair:
        first, second = np.split(outputs[0], 2)
        return VectorPair(first, second)

    def averaged(self, answers: Sequence[VectorPair], /) -> VectorPair:
        """Return the vectors end to end: their cosine is the mean of the cosines."""
        scale = len(answers) ** -0.5
        return VectorPair(
            scale * np.concatenate([answer.first for answer in answers]),
            scale * np.concatenate([answer.second for answer in answers]),
        )

    def constant(
        self, _: Sequence[TextExample], examples: Sequence[TextExample], /
    ) -> list[VectorPair]:
        nothing = np.zeros(1)
        return [VectorPair(nothing, nothing)] * len(examples)

    def measures(
        self, examples: Sequence[TextExample], answers: Sequence[VectorPair], /
    ) -> dict[str, float]:
        """Rank all second texts by their cosine with each first one.

        `mrr` is the mean of 1 / the rank of its partner, `accuracy` the share whose
        partner comes first; of equal cosines every order is as likely.
        """
        metrics.require_examples(len(examples))
        # A second text may stand in several pairs: it is one candidate.
        place_of = dict[str, int]()
        for example in examples:
            place_of.setdefault(example.second or "", len(place_of))
        partners = np.array([place_of[example.second or ""] for example in examples])
        firsts = np.stack([answer.first for answer in answers])  # (pairs, width)
        candidates = np.zeros((len(place_of), firsts.shape[1]))
        candidates[partners] = np.stack([answer.second for answer in answers])

        num_nearer, num_equal = metrics.count_nearer(firsts, candidates, partners)
        # The partner has one of the ranks num_nearer + 1 ... num_nearer + num_equal,
        # each as likely: take the mean of 1 / rank over them.
        ranks = np.arange(1, len(candidates) + 1)
        sums = np.concatenate([[0.0], np.cumsum(1 / ranks)])  # over the first n ranks
        sum_over_ranks = sums[num_nearer + num_equal] - sums[num_nearer]
        reciprocal_ranks = sum_over_ranks / num_equal
        is_first = (num_nearer == 0) / num_equal
        return {
            "mrr": float(reciprocal_ranks.mean()),
            "accuracy": float(is_first.mean()),
        }

    def in_words(
        self, _: TextExample, answer: VectorPair, /
    ) -> tuple[str, float | None, float | None]:
        return f"{answer.cosine:.4g}", None, None

    def numbers(self, _: AnswerRow, answer: VectorPair, /) -> Mapping[str, float]:
        return {"cosine": answer.cosine}


# ---- a user's own files --------------------------------------------------------------


class MatchRows(RowReading[TextExample, VectorPair]):
    """Two texts that belong together in each row; the second is what is learned."""

    what: ClassVar[str] = "pairs of texts that belong together"
    roles: ClassVar[tuple[Role, ...]] = ("text", "second", "id")
    learned: ClassVar[tuple[Role, ...]] = ("second",)

    @classmethod
    def are_like(cls, guess: ColumnGuess) -> bool:
        """Return whether two columns are called so; or there are two columns of texts
        that differ from row to row, and no other but an id.
        """
        chosen_roles = {*guess.chosen.names}
        if chosen_roles - {"id"}:
            return False
        if guess.usual_pair(POSITIVES):
            return True
        ids = guess.usual("id")
        names = [name for name in guess.free_columns() if name not in ids]
        if len(names) != 2 or not set(names) <= set(guess.texts()):
            return False
        return all(have_words(guess.cells(name)) for name in names)

    @classmethod
    def guess(cls, guess: ColumnGuess) -> None:
        guess.find_usual(("id",))
        if not {"text", "second"} & {*guess.assigned}:  # the user chose neither
            pair = guess.usual_pair(MATCHES) or guess.texts()
            if len(pair) == 2:
                guess.assign_pair(pair)
        for role in ("text", "second"):
            if not guess.assigned.get(role):
                guess.require_one(role, guess.texts())

    @classmethod
    def settle(cls, training: TrainingRows) -> tuple[Self, str]:
        first = training.columns.all("text")[0]
        second = training.columns.all("second")[0]
        note = (
            f"each {second} belongs to the {first} of its row; those of others do not"
        )
        if any(list_of(row.get(second)) for row in training.rows()):
            note += f"; of several texts in {second}, the first is read"
        return cls(training.columns, "matches"), note

    @cached_property
    def family(self) -> Matches:
        return Matches(HeadConfig(kind=Matches.heads[0]))

    def example(
        self, id: str, row: Row, place: str, *, is_labeled: bool
    ) -> TextExample:
        cells = {name: _first_of(row.get(name)) for name in self.columns.all("second")}
        second = self.text(cells, "second", place)
        if is_labeled and not second:
            # raises: the row has nothing to learn
            self.label_index(None, place)
        return TextExample(id, self.text(row, "text", place), second)

    def lacks_label(self, row: Row) -> bool:
        return not text_of(_first_of(self.columns.cell(row, "second")))


def _first_of(cell: object) -> object:
    """Return the first member of a list, as sets with several positives have them."""
    members = list_of(cell)
    return cell if members is None else next(iter(members), None)


Matches.reading = MatchRows
TASK_KINDS.add("matches", Matches)
