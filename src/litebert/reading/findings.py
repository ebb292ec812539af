"""The findings of a check: each kind once, with its count, its first places and what to
do.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from litebert.errors import DamagedError, escape_breaks, format_count

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
        is_damaged = any(finding.severity == "error" for finding in self.findings)
        return DamagedError.exit_code if is_damaged else 0

    def __str__(self) -> str:
        """Return a report for people, a paragraph for each finding."""
        counts = list[str]()
        for name, number in self.counts.items():
            noun = name.replace("_", " ").removesuffix("s")
            counts.append(format_count(number, noun))
        lines = ["stopped"]
        if counts:
            lines = [f"checked {', '.join(counts)}"]
        for finding in self.findings:
            lines += [
                f"{finding.severity}: {finding.kind}, {finding.count:,} in all",
                f"  first: {escape_breaks(finding.where)}  {finding.example}",
                f"  to do: {finding.advice}",
            ]
        if not self.findings:
            lines.append("nothing to correct")
        return "\n".join(lines)


class _Example(NamedTuple):
    """One of the first findings of a kind."""

    where: str
    text: str
    advice: str


class Findings:
    """Collect findings of the kinds in a table of advice; the first places of each are
    kept.

    Kinds that differ in a detail ("unusable row (LB-843)") are counted separately.
    """

    def __init__(self, advice: Advice, *, num_places: int = 1) -> None:
        self._advice = advice
        self._num_places = num_places
        # both by kind and detail
        self._counts = Counter[tuple[str, str]]()
        self._first = defaultdict[tuple[str, str], list[_Example]](list)

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
            first.append(_Example(where, example, advice))

    def __contains__(self, kind: str) -> bool:
        return any(counted == kind for counted, _ in self._counts)

    def report(self) -> tuple[Finding, ...]:
        """Return the findings, in the order of the table of advice."""
        findings = list[Finding]()
        for kind in self._advice:
            for counted, detail in self._counts:
                if counted == kind:
                    findings.append(self._finding(kind, detail))
        return tuple(findings)

    def _finding(self, kind: str, detail: str) -> Finding:
        severity, general_advice = self._advice[kind]
        count = self._counts[kind, detail]
        examples = self._first[kind, detail]
        where = "; ".join(example.where for example in examples)
        if count > len(examples) > 1:
            where += "; …"
        text = " ".join(examples[0].text.split())
        if len(text) > EXAMPLE_CHARACTERS:
            text = f"{text[:EXAMPLE_CHARACTERS]}…"
        advice = "; ".join(filter(None, (examples[0].advice, general_advice)))
        name = f"{kind} ({detail})" if detail else kind
        return Finding(severity, name, count, where, text, advice)
