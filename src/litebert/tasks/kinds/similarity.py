"""Vectors of texts, trained on pairs with a score: the cosines of the two vectors of
each pair must follow the scores.

Each text is read alone, so the result is a model of vectors, not of pairs: it embeds,
compares and searches, and sentence-transformers opens it. Unlike a regression it keeps
no scale: answers are cosines.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config import AlbertConfig, HeadConfig
from litebert.nn import Batch, TaskHead, pool_rows
from litebert.plugins import TASK_HEADS, TASK_KINDS
from litebert.tasks.kinds.text import Label, Regression, Scores, TextExample

# Keeps the correlation of pairs with equal scores, or equal cosines, at 0.
TINY = 1e-6


class MeanVector(nn.Module):
    """The vector of each text: the mean of its tokens. It has no parameters."""

    def forward(
        self, hidden: Float[Tensor, "tokens hidden"], batch: Batch
    ) -> Float[Tensor, "sequences hidden"]:
        """Return one vector for each sequence."""
        return pool_rows(hidden, batch, "mean")


@dataclass(frozen=True)
class Similarity(Regression):
    """The answer to a pair is the cosine of the vectors of its texts."""

    heads: ClassVar[tuple[str, ...]] = ("text-vectors",)
    verb: ClassVar[str] = "embed"
    starts_trained: ClassVar[bool] = True
    has_several_sequences: ClassVar[bool] = True
    baseline: ClassVar[str] = "the same cosine"
    key_measure: ClassVar[str] = "spearman"
    problem_type: ClassVar[str] = ""
    refusal: ClassVar[str] = ""  # other programs read its encoder, and take the mean

    @property
    def names(self) -> tuple[str, ...]:
        return ("cosine",)

    @property
    def reads_apart(self) -> bool:
        return True

    def by_example(
        self, logits: Float[Tensor, "sequences hidden"]
    ) -> Float[Tensor, "pairs 1"]:
        """Return the cosine of each pair of vectors."""
        return F.cosine_similarity(logits[0::2], logits[1::2])[:, None]

    def losses_of(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return 1 - r for each pair, where r is the correlation (Pearson) of cosines
        and scores over the pairs that are computed at once.

        The vectors of the start already give a useful order, which a loss must not
        destroy. CoSENT (log-sum-exp over pairs in the wrong order) follows the few
        worst pairs of a batch: on 500 pairs of STS-B, it loses twelve points of
        Spearman in the first epoch. The squared error, which also trains the scale of
        the cosines, ends 1.3 points lower.
        """
        cosines = logits[:, 0] - logits[:, 0].mean()
        scores = targets.view(-1).to(cosines.dtype)
        scores = scores - scores.mean()
        norms = cosines.norm() * scores.norm()
        correlation: Tensor = (cosines @ scores) / (norms + TINY)
        loss: Tensor = 1 - correlation
        return loss.expand(len(cosines))

    def measured(
        self, labels: Sequence[Label], values: NDArray[np.floating]
    ) -> dict[str, float]:
        measures = super().measured(labels, values)
        # cosines and scores have different scales
        return {name: measures[name] for name in ("spearman", "pearson")}

    def named(self, _: Scores) -> tuple[str, ...]:
        return ()

    def in_words(
        self, _: TextExample, answer: Scores, /
    ) -> tuple[str, float | None, float | None]:
        (cosine,) = answer.values
        return f"{cosine:.4g}", None, None


def _make(_: AlbertConfig, __: HeadConfig) -> nn.Module:
    return MeanVector()


TASK_HEADS.add(
    "text-vectors",
    TaskHead(
        make=_make,
        reads="texts",
        purpose="turns texts into vectors",
        pipeline="sentence-similarity",
        class_name="TextVectors",
    ),
)
TASK_KINDS.add("similarity", Similarity)
