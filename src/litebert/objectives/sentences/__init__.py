"""The sentence objectives by name; adding one: docs/extending/objective.md."""

from litebert.errors import LitebertError, did_you_mean
from litebert.objectives.sentences.base import Draws, InOrder, Instance, SentenceObjective
from litebert.objectives.sentences.kinds import (
    HalvesApart,
    NextSentence,
    NoSentences,
    OfficialOrder,
    SameDocument,
    SentenceOrder,
    Shuffle,
)

__all__ = ["SENTENCE_OBJECTIVES", "Draws", "InOrder", "Instance", "SentenceObjective", "sentence_objective"]

_BUILT_IN: tuple[SentenceObjective, ...] = (
    SentenceOrder(),
    OfficialOrder(),
    NextSentence(),
    Shuffle(),
    SameDocument(),
    HalvesApart(),
    NoSentences(),
)

SENTENCE_OBJECTIVES: dict[str, SentenceObjective] = {each.name: each for each in _BUILT_IN}
"""The values of `objective.sentence`. Other packages add their own here before training."""


def sentence_objective(name: str) -> SentenceObjective:
    """Return the sentence objective of this name; LB-431 if there is none.

    >>> sentence_objective("order").fewest_sentences
    2
    """
    if name in SENTENCE_OBJECTIVES:
        return SENTENCE_OBJECTIVES[name]
    raise LitebertError(
        "LB-431",
        "there is no sentence objective of this name",
        received=f"objective.sentence={name}",
        expected=did_you_mean(name, list(SENTENCE_OBJECTIVES)),
        next="litebert config list pretrain",
    )
