"""The findings of a check: each kind once, with its count, its first places and what to
do.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from litebert.errors import DamagedError, format_count

Severity = Literal["error", "warning", "note"]
Advice: TypeAlias = Mapping[str, tuple[Severity, str]]

EXAMPLE_CHARACTERS = 120


@dataclass(frozen=True)
class Finding:
    """How often a problem was found, where first (`file:line`), and what to do about
    it.
    """

    severity: Severity
    kind: str
    count: int
    where: str
    example: str
    advice: str


@dataclass(frozen=True)
class CheckReport:
    """The findings, the most serious first, and what was checked (documents, sentences,
    …).
    """

    findings: tuple[Finding, ...]
    counts: dict[str, int]

    @property
    def exit_code(self) -> int:
        """The exit code of damaged data if something must be corrected before training,
        else 0.
        """
        return (
            DamagedError.exit_code
            if any(finding.severity == "error" for finding in self.findings)
            else 0
        )

    def __str__(self) -> str:
        """Return a report for people, a paragraph for each finding."""
        names = {name: name.replace("_", " ").removesuffix("s") for name in self.counts}
        checked = [
            format_count(number, names[name]) for name, number in self.counts.items()
        ]
        lines = [f"checked {', '.join(checked)}" if checked else "stopped"]
        for finding in self.findings:
            lines += [
                f"{finding.severity}: {finding.kind}, {finding.count:,} in all",
                f"  first: {finding.where}  {finding.example}",
                f"  to do: {finding.advice}",
            ]
        return "\n".join(lines if self.findings else [*lines, "nothing to correct"])


class Findings:
    """Collect findings of the kinds in a table of advice; the first places of each are
    kept.

    Kinds that differ in a detail ("unusable row (LB-843)") are counted separately.
    """

    def __init__(self, advice: Advice, *, num_places: int = 1) -> None:
        self._advice = advice
        self._num_places = num_places
        # both by kind and detail: the count; and place, example and advice of the first
        # ones
        self._counts = Counter[tuple[str, str]]()
        self._first = defaultdict[tuple[str, str], list[tuple[str, str, str]]](list)

    def add(
        self,
        kind: str,
        where: str,
        example: str = "",
        *,
        detail: str = "",
        times: int = 1,
        advice: str = "",
    ) -> None:
        """Count a finding; `advice` precedes the general advice for its kind."""
        self._counts[kind, detail] += times
        first = self._first[kind, detail]
        if len(first) < self._num_places:
            first.append((where, example, advice))

    def __contains__(self, kind: str) -> bool:
        return any(found == kind for found, _ in self._counts)

    def report(self) -> tuple[Finding, ...]:
        """Return what was found, in the order of the table."""
        findings = []
        order = list(self._advice)
        for kind, detail in sorted(
            self._counts, key=lambda found: order.index(found[0])
        ):
            (severity, general), count = self._advice[kind], self._counts[kind, detail]
            places, (example, *_), (advice, *_) = zip(
                *self._first[kind, detail], strict=True
            )
            example = " ".join(example.split())
            if len(example) > EXAMPLE_CHARACTERS:
                example = f"{example[:EXAMPLE_CHARACTERS]}…"
            where = "; ".join(places) + ("; …" if count > len(places) > 1 else "")
            name = f"{kind} ({detail})" if detail else kind
            advice = "; ".join(filter(None, (advice, general)))
            findings.append(Finding(severity, name, count, where, example, advice))
        return tuple(findings)
