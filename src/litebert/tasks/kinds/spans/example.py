"""A question on a context, and its gold answers."""

from __future__ import annotations

from dataclasses import dataclass

from litebert.errors import LitebertError

MAX_CONTEXT = 200_000
"""The longest context in a data set, in characters: all its windows are in memory at once."""


@dataclass(frozen=True, slots=True)
class GoldAnswer:
    """A right answer, and the character of the context at which it starts."""

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class SpanExample:
    """A question on a context; `answers` is None if unknown, empty if the question has none.

    >>> SpanExample("q", "Who?", "Nobody knows.", ()).is_impossible
    True
    """

    id: str
    question: str
    context: str
    answers: tuple[GoldAnswer, ...] | None = None
    title: str = ""

    @property
    def is_impossible(self) -> bool:
        """Whether the context does not answer the question."""
        return self.answers == ()


def require_bounded_context(context: str, where: str) -> None:
    """Check that the windows of a context fit in memory.

    Raises:
        LitebertError: LB-811, it is longer than MAX_CONTEXT.
    """
    if len(context) > MAX_CONTEXT:
        raise LitebertError(
            "LB-811",
            f"{where} has a context that is too long for a data set",
            received=f"{len(context):,} characters",
            expected=f"at most {MAX_CONTEXT:,}; `litebert answer` reads a text of any length",
            next="split the context into chapters, each with its questions",
        )
