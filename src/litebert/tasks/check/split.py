"""Check one file or split row by row, without keeping the rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from litebert.config import HeadConfig
from litebert.tasks.check.findings import SplitReport, TableFindings
from litebert.tasks.check.lengths import Lengths
from litebert.tasks.check.seen import Likeness, Seen
from litebert.tasks.kinds.family import Item

RARE, MOST = 10, 0.9
UNKNOWN_SHARE = 0.01
"""Kinds of task that cut off what is too long; the others cut it into several sequences."""


class Split:
    """Collect the findings of the rows of one file; `place` names a row."""

    def __init__(
        self,
        name: str,
        place: Callable[[int], str],
        *,
        found: TableFindings,
        lengths: Lengths | None,
    ) -> None:
        self.name, self.place, self.seen = name, place, Seen()
        self._found, self._lengths = found, lengths
        self._num_rows = self._num_labelled = 0
        self._labels = Counter[str]()

    def look(self, items: Iterable[tuple[int, Item]]) -> None:
        """Look at the rows, each with its number."""
        for number, item in items:
            self._num_rows += 1
            self._num_labelled += item.answer is not None
            self._labels.update(item.labels)
            if item.main and not item.main.isspace():
                self.seen.add((*item.texts, *item.choices), item.answer, number)
            else:
                self._found.add("empty text", self.place(number))
            if any("\ufffd" in text for text in item.texts):
                self._found.add("lost character", self.place(number), item.main)
            if self._lengths:
                self._lengths.add(number, item)

    def close(self, head: HeadConfig) -> SplitReport:
        """Add what only all rows together show, and return what was counted."""
        if self._num_rows and not self._num_labelled:
            self._say("no labels", self.name, "", self._num_rows)
        self._compare("repeated row", self.seen.repeated(), self, "the same as")
        self._compare(
            "contradictory labels", self.seen.contradictory(), self, "another answer than"
        )
        lengths = self._lengths.report() if self._lengths else None
        if lengths and lengths.num_too_long and head.is_pooled:
            example = f"{lengths.num_too_long / self._num_rows:.2%} of rows lose their end"
            place = self.place(lengths.first_too_long)
            self._say("too long", place, example, lengths.num_too_long)
        if lengths and lengths.unknown_share > UNKNOWN_SHARE:
            shown = ", ".join(f"{mark!r} {count:,}" for mark, count in lengths.unknown_characters)
            example = f"{lengths.unknown_share:.2%} of pieces: {shown}"
            place = self.place(lengths.first_unknown)
            self._say("unknown piece", place, example, lengths.num_unknown)
        return SplitReport(self.name, self._num_rows, dict(sorted(self._labels.items())), lengths)

    def weigh(self) -> None:
        """Look for labels that are too rare, and for one that most rows have."""
        for label, count in sorted(self._labels.items()):
            share = count / self._num_rows
            if count < RARE:
                self._found.add("rare label", self.name, f"{label}: {count}", detail=label)
            elif share > MOST and self._num_labelled == self._labels.total():
                self._say("one label in most rows", self.name, f"{label}: {share:.1%}", count)

    def compare(self, train: Split) -> None:
        """Add the rows that are trained on, too."""
        overlap = self.seen.overlap(train.seen)
        self._compare("both trained and evaluated on", overlap, train, "the same texts as")

    def _compare(self, kind: str, likeness: Likeness | None, others: Split, how: str) -> None:
        if likeness:
            example = f"{how} {others.place(likeness.other)}"
            self._say(kind, self.place(likeness.number), example, likeness.count)

    def _say(self, kind: str, place: str, example: str, times: int) -> None:
        """Add a finding about all rows of this split."""
        self._found.add(kind, place, example, detail=self.name, times=times)
