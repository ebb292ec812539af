"""The worst errors, with their texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import nsmallest

from litebert.report.markup import Html, paragraph, section, table
from litebert.runs.answers import Answered

MOST_ERRORS = 20
LONGEST_TEXT = 280
LONGEST_ANSWER = 120
NO_ANSWER = "(none)"


def sections(answers: Mapping[str, Sequence[Answered]]) -> list[Html]:
    """Return the worst errors of each held-out set."""
    parts = [_errors(split, rows) for split, rows in answers.items()]
    words = "What the last step gets wrong: what it was surest of, or farthest off, comes first."
    return [section("Worst errors", paragraph(words), *parts)] if parts else []


def badness(row: Answered) -> float:
    """Return how bad an answer is: how wrong, times how confident (1 if unknown)."""
    return (1 - row.score) * (1.0 if row.confidence is None else row.confidence)


def shortened(text: str, *, most: int) -> str:
    """Return a text on one line, without unprintable characters and cut if it is too long.

    >>> shortened("one\\n two\\x00 three", most=9)
    'one two\\ufffd …'
    """
    line = " ".join(text.split())
    line = "".join(letter if letter.isprintable() else "\ufffd" for letter in line)
    if len(line) <= most:
        return line
    kept, space, _ = line[: most + 1].rpartition(" ")
    # Some scripts have no spaces, and a word may be very long.
    return f"{kept if space and len(kept) > most // 2 else line[:most]} …"


def _errors(split: str, rows: Sequence[Answered]) -> Html:
    wrong = [row for row in rows if not row.is_right]
    if not wrong:
        return paragraph(f"{split}: nothing is wrong.")
    shown = nsmallest(MOST_ERRORS, wrong, key=lambda row: (-badness(row), row.id))
    if all(row.confidence is None for row in shown):
        caption = f"{split}: the {len(shown)} of {len(rows):,} answers that are farthest off"
    else:
        caption = f"{split}: the worst {len(shown)} of {len(wrong):,} errors in {len(rows):,}"
    headings = ("Id", "Sure", "Expected", "Answered", "Text")
    return table(caption, headings, map(_cells, shown), kind="texts")


def _cells(row: Answered) -> tuple[str, ...]:
    return (
        shortened(row.id, most=40),
        "not told" if row.confidence is None else f"{row.confidence:.1%}",
        shortened(row.expected, most=LONGEST_ANSWER) or NO_ANSWER,
        shortened(row.answer, most=LONGEST_ANSWER) or NO_ANSWER,
        shortened(row.text, most=LONGEST_TEXT),
    )
