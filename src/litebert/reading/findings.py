"""The findings of a check: each kind once, with its count, its first places and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from litebert.errors import DamagedError

Severity = Literal["error", "warning", "note"]
Advice: TypeAlias = Mapping[str, tuple[Severity, str]]

EXAMPLE_CHARACTERS = 120


@dataclass(frozen=True)
class Finding:
    """How often something was found, where first (`file:line`), and what to do."""

    severity: Severity
    kind: str
    count: int
    where: str
    example: str
    advice: str


@dataclass(frozen=True)
class CheckReport:
    """The findings, the most serious first, and what was checked (documents, sentences, …)."""

    findings: tuple[Finding, ...]
    counts: dict[str, int]

    @property
    def has_errors(self) -> bool:
        """Whether something must be corrected before training."""
        return any(finding.severity == "error" for finding in self.findings)

    @property
    def exit_code(self) -> int:
        """That of damaged data where something must be corrected."""
        return DamagedError.exit_code if self.has_errors else 0

    def __str__(self) -> str:
        """Return a report for people, a paragraph for each finding."""
        named = ((count, *name.partition(" ")) for name, count in self.counts.items())  # "rows of a.csv": 1 row of it
        checked = ", ".join(
            f"{n:,} {what.removesuffix('s') if n == 1 else what}{gap}{of}" for n, what, gap, of in named
        )
        lines = [f"checked {checked}" if checked else "stopped"]
        for finding in self.findings:
            lines += [
                f"{finding.severity}: {finding.kind}, {finding.count:,} in all",
                f"  first: {finding.where}  {finding.example}",
                f"  to do: {finding.advice}",
            ]
        return "\n".join(lines if self.findings else [*lines, "nothing to correct"])


@dataclass
class _Tally:
    count: int = 0
    places: list[str] = field(default_factory=list)
    example: str = ""
    advice: str = ""


class Findings:
    """Collect findings of the kinds in a table of advice; the first places of each are kept.

    Kinds that differ in a detail ("unusable row (LB-843)") are counted separately.

    >>> found = Findings({"empty text": ("note", "omitted")}, num_places=2)
    >>> for line in (3, 9):
    ...     found.add("empty text", f"a.csv, line {line}")
    >>> found.report()[0].where
    'a.csv, line 3; a.csv, line 9'
    """

    def __init__(self, advice: Advice, *, num_places: int = 1) -> None:
        self._advice, self._num_places = advice, num_places
        self._found: dict[tuple[str, str], _Tally] = {}

    def add(
        self, kind: str, where: str, example: str = "", *, detail: str = "", times: int = 1, advice: str = ""
    ) -> None:
        """Count a finding; `advice` precedes the general advice for its kind."""
        found = self._found.setdefault((kind, detail), _Tally(example=example, advice=advice))
        found.count += times
        if len(found.places) < self._num_places:
            found.places.append(where)

    def __contains__(self, kind: str) -> bool:
        return any(found == kind for found, _ in self._found)

    def report(self) -> tuple[Finding, ...]:
        """Return what was found, in the order of the table."""
        findings = []
        for kind, (severity, general) in self._advice.items():
            for (own, detail), found in self._found.items():
                if own != kind:
                    continue
                example, more = " ".join(found.example.split()), "; …" if found.count > len(found.places) > 1 else ""
                if len(example) > EXAMPLE_CHARACTERS:
                    example = f"{example[:EXAMPLE_CHARACTERS]}…"
                name, where = f"{kind} ({detail})" if detail else kind, "; ".join(found.places) + more
                advice = "; ".join(filter(None, (found.advice, general)))
                findings.append(Finding(severity, name, found.count, where, example, advice))
        return tuple(findings)
