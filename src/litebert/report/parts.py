"""The parts of a report that depend on the kind of run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from litebert.report.figures import Figure
from litebert.report.page import Section
from litebert.runs import RunFolder


@dataclass(frozen=True)
class Parts:
    """What pretraining and fine-tuning each tell of a run, and how to use its model."""

    facts: Mapping[str, str]  # by name; empty ones are not shown
    sections: Sequence[Section]
    shell: Sequence[str]  # commands
    python: str  # a call of a method of the model


def curves(figures: Sequence[Figure], run: RunFolder) -> Section:
    """Return the section of curves, with a sentence on what a line is."""
    if not figures:
        return Section("Curves", ["No step was logged yet."])
    merged = "the seeds" if run.seeds else "neighboring log lines"
    sentence = (
        f"Lines are means of {merged}; bands show their lowest and highest. A log line"
        f" is the mean of {run.settings.get('train.log_every')} training steps."
    )
    return Section("Curves", [sentence], figures)


def sentences(clauses: Sequence[str]) -> list[str]:
    return [f"{clause[0].upper()}{clause[1:]}." for clause in clauses]
