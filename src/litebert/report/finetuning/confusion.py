"""Confusion matrices: which labels are mistaken for which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from litebert.report.markup import Html, paragraph, section, shaded_table, table
from litebert.runs.answers import Answered

MOST_LABELS = 12
"""Above this many labels a matrix is unreadable; the commonest confusions are listed instead."""
MOST_PAIRS = 20


def sections(answers: Mapping[str, Sequence[Answered]], labels: Sequence[str]) -> list[Html]:
    """Return the confusions of each held-out set whose answers are single labels."""
    shown = [(split, rows) for split, rows in answers.items() if are_labels(rows, labels)]
    parts = [_confused(split, rows, labels) for split, rows in shown]
    one = [(split, rows) for split, rows in shown if len({row.answer for row in rows}) == 1]
    words = "What the last step answers: a row for each label that was right."
    constant = [f"On {split}, it answers '{rows[0].answer}' to every text." for split, rows in one]
    return [section("Confusion", *map(paragraph, [words, *constant]), *parts)] if parts else []


def are_labels(rows: Sequence[Answered], labels: Sequence[str]) -> bool:
    """Say whether each answer is one of several labels: not text, not a number, not a set."""
    known = set(labels)
    return len(known) > 1 and all({row.expected, row.answer} <= known for row in rows)


def _confused(split: str, rows: Sequence[Answered], labels: Sequence[str]) -> Html:
    counts = Counter((row.expected, row.answer) for row in rows)
    if len(labels) > MOST_LABELS:
        return _pairs(split, counts)
    totals = Counter(row.expected for row in rows)
    cells = (
        (
            wanted,
            [(f"{counts[wanted, found]:,}", counts[wanted, found] / max(1, totals[wanted])) for found in labels]
            + [(_share(counts[wanted, wanted], totals[wanted]), 0.0)],
        )
        for wanted in labels
    )
    headings = ("Expected", *(f"answered {label}" for label in labels), "Right")
    return shaded_table(f"{split}, {len(rows):,} examples", headings, cells)


def _pairs(split: str, counts: Counter[tuple[str, str]]) -> Html:
    wrong = [(pair, count) for pair, count in counts.most_common() if pair[0] != pair[1]]
    shown = wrong[:MOST_PAIRS]
    caption = f"{split}: the {len(shown)} commonest of {len(wrong):,} confusions"
    cells = ((wanted, found, f"{count:,}") for (wanted, found), count in shown)
    return table(caption, ("Expected", "Answered", "Times"), cells)


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "none"
