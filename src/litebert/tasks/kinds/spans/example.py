"""A question on a context, and its gold answers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GoldAnswer:
    """A right answer, and the character of the context at which it starts."""

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class SpanExample:
    """A question on a context; `answers` is None where they are unknown, empty where there is none.

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
