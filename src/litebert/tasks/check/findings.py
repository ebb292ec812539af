"""The findings of a check of examples: each kind once, with its count and the first places."""

from __future__ import annotations

from dataclasses import dataclass

from litebert.errors import LitebertError
from litebert.reading.findings import Advice, CheckReport, Finding, Findings
from litebert.tasks.check.lengths import LengthReport
from litebert.terminal import counted

PLACES = 5
"""The most places that are named for each kind."""
_SHOWN_LABELS = 12

ADVICE: Advice = {
    "unusable file": ("error", "correct this first: nothing after it was checked"),
    "unusable row": ("error", "correct or remove these rows: training would stop here"),
    "both trained and evaluated on": ("warning", "remove them from one side: results are inflated"),
    "contradictory labels": ("warning", "one of them is wrong: look them up, keep one"),
    "repeated row": ("warning", "remove all but one: training would see them more often"),
    "empty text": ("warning", "an example without text teaches nothing"),
    "rare label": ("warning", "too few to learn from: add examples, or merge labels"),
    "one label in most rows": ("warning", "do not judge by accuracy; see task.class_weights"),
    "lost character": ("warning", "U+FFFD stands for lost bytes: reconvert the text"),
    "unknown piece": ("warning", "the vocabulary lacks these characters"),
    "too long": ("warning", "raise task.max_length, or accept the loss"),
    "byte-order mark": ("note", "ignored when the file is read"),
    "no labels": ("note", "can be answered, but neither trained nor evaluated on"),
}
"""The severity of each kind and what to do, in the order in which they are reported."""


class TableFindings(Findings):
    """Collect what is wrong with rows; for each kind, the first PLACES places are named."""

    def __init__(self) -> None:
        super().__init__(ADVICE, num_places=PLACES)

    def add_error(self, kind: str, place: str, error: LitebertError) -> None:
        """Count an error raised while reading, by its code; its message may name the place."""
        own, _, reason = error.what.rpartition(": ")
        example = f"{reason}: {error.received}"
        self.add(kind, own or place, example, detail=error.code, advice=error.next)


@dataclass(frozen=True)
class SplitReport:
    """The contents of one file or split: rows by label and, with a vocabulary, lengths."""

    name: str
    num_rows: int
    labels: dict[str, int]
    lengths: LengthReport | None


@dataclass(frozen=True)
class DataReport:
    """What was guessed about the data, what each split contains, and what is wrong with it."""

    notes: tuple[str, ...]
    splits: tuple[SplitReport, ...]
    findings: tuple[Finding, ...]

    @property
    def has_errors(self) -> bool:
        """Whether something would stop training."""
        return any(finding.severity == "error" for finding in self.findings)

    def __str__(self) -> str:
        """Write the report for people."""
        lines = [*self.notes]
        for split in self.splits:
            lines.append(f"{split.name}: {counted(split.num_rows, 'row')}")
            lines += [f"  {line}" for line in (_balance(split), _lengths(split)) if line]
        counts = {f"rows of {split.name}": split.num_rows for split in self.splits}
        return "\n".join([*lines, "", str(CheckReport(self.findings, counts))])


def _balance(split: SplitReport) -> str:
    total = sum(split.labels.values())
    ranked = sorted(split.labels.items(), key=lambda item: -item[1])
    labels = [f"{label} {count:,} ({count / total:.1%})" for label, count in ranked[:_SHOWN_LABELS]]
    left = len(ranked) - len(labels)
    return ", ".join(labels) + (f", and {left} more" if left else "")


def _lengths(split: SplitReport) -> str:
    lengths = split.lengths
    if lengths is None:
        return ""
    too_long = lengths.num_too_long / split.num_rows
    return (
        f"pieces: mean {lengths.mean:.1f}, median {lengths.median}, 95 % up to {lengths.share_95}, "
        f"longest {lengths.longest:,}; over {lengths.max_length}: {too_long:.2%}; "
        f"unknown: {lengths.unknown_share:.3%}"
    )
