"""What a check of texts or of a corpus has found: each kind once, counted, with its first place."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

from litebert.files import Json

Severity = Literal["error", "warning", "note"]

EXAMPLE_CHARACTERS = 120

ADVICE: dict[str, tuple[Severity, str]] = {
    "unreadable": ("error", "mend this place: the rest of the file was not read"),
    "damaged": ("error", "build the corpus again"),
    "held-out overlap": ("error", "build again with --held-out, which keeps duplicates together"),
    "mojibake": ("warning", "text was decoded wrongly before; repair it, for instance with ftfy"),
    "replacement character": ("warning", "U+FFFD stands for lost bytes; go back to the source"),
    "control character": ("warning", "remove them; NUL on every other place means UTF-16"),
    "duplicate document": ("warning", "remove all but one: training would see them more often"),
    "repeated line": ("warning", "probably boilerplate, such as a header or a licence; remove it"),
    "unknown token": (
        "warning",
        "above 1 % another vocabulary is better: litebert tokenizer train",
    ),
    "empty document": ("note", "left out of a corpus"),
    "empty sentence": ("note", "left out of a corpus"),
    "single-sentence document": ("note", "teaches no sentence order; join such documents"),
    "long sentence": ("note", "cut in training; does --sentences suit this text?"),
    "short sentence": ("note", "often a heading or a number; does --sentences suit this text?"),
}
"""How grave each kind is, and what to do; in the order in which they are reported."""


@dataclass(frozen=True)
class Finding:
    """Say how often something was found, where first (`file:line`), and what to do."""

    severity: Severity
    kind: str
    count: int
    where: str
    example: str
    advice: str


@dataclass(frozen=True)
class CheckReport:
    """Hold the findings, the gravest first, and what was looked at (documents, sentences, …)."""

    findings: tuple[Finding, ...]
    counts: dict[str, int]

    @property
    def has_errors(self) -> bool:
        """Whether something must be mended before training."""
        return any(finding.severity == "error" for finding in self.findings)

    def __str__(self) -> str:
        """Tell a person, in one paragraph a finding."""
        looked_at = ", ".join(f"{count:,} {name}" for name, count in self.counts.items())
        lines = [f"looked at {looked_at}" if looked_at else "stopped"]
        for finding in self.findings:
            lines += [
                f"{finding.severity}: {finding.kind}, {finding.count:,} in all",
                f"  first: {finding.where}  {finding.example}",
                f"  to do: {finding.advice}",
            ]
        return "\n".join(lines if self.findings else [*lines, "nothing to mend"])

    def to_json(self) -> dict[str, Json]:
        """Return the report as JSON values."""
        findings: list[Json] = [asdict(finding) for finding in self.findings]
        return {"findings": findings, "counts": dict(self.counts)}


class Findings:
    """Collect findings; of each kind the first example is kept.

    >>> found = Findings()
    >>> found.add("empty document", "a.txt:3")
    >>> found.add("empty document", "a.txt:9")
    >>> found.report({"documents": 2}).findings[0].count
    2
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._first: dict[str, tuple[str, str, str]] = {}

    def add(
        self, kind: str, where: str, example: str = "", *, times: int = 1, advice: str = ""
    ) -> None:
        """Count a finding; `advice` comes before what is said of the kind."""
        self._counts[kind] = self._counts.get(kind, 0) + times
        self._first.setdefault(kind, (where, _shortened(example), advice))

    def __contains__(self, kind: str) -> bool:
        return kind in self._counts

    def report(self, counts: dict[str, int]) -> CheckReport:
        """Return what was found in the order of `ADVICE`."""
        findings = []
        for kind, (severity, general) in ADVICE.items():
            if kind in self._counts:
                where, example, special = self._first[kind]
                advice = f"{special}; {general}" if special else general
                count = self._counts[kind]
                findings.append(Finding(severity, kind, count, where, example, advice))
        return CheckReport(tuple(findings), counts)


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= EXAMPLE_CHARACTERS else f"{line[:EXAMPLE_CHARACTERS]}…"
