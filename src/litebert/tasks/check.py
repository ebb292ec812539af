"""Check a user's own examples before training, in one pass over each file."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import numpy as np

from litebert.errors import LitebertError, RequestError, escape_breaks, format_count
from litebert.reading.findings import Advice, CheckReport, Findings
from litebert.reading.tables import Row
from litebert.rng import hash_text
from litebert.tasks.tables.cells import MISSING, NO_LABEL, split_of
from litebert.tasks.tables.table import TableFile
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.unknown import UnknownPieces

if TYPE_CHECKING:  # it imports torch, which `litebert data check --help` does not need
    from litebert.tasks.kinds.family import Family, Feature
    from litebert.tasks.tables.rows import RowReading

PLACES = 5  # listed for each kind, at most
# a label with fewer rows is rare; one with a larger share of the rows is in most rows
RARE = 10
MOST = 0.9
# the plan of a training warns if a larger share of the rows contradict others
MOST_CONTRADICTORY = 0.01
AT_ONCE = 2_048  # examples that are encoded together
_WHOLE = 1 << 24  # pieces: nothing is cut
_SHOWN_LABELS = 12

OTHER_MODEL = (
    "the vocabulary lacks these characters: start from a model of this language,"
    " --model OWNER/NAME (Chinese: voidful/albert_chinese_base)"
)
WRITTEN_AS_WORDS = (
    "the vocabulary lacks these signs and reads them all as the same unknown one: write"
    " those that matter as words"
)
KEEPS_MARKS = (
    "the vocabulary reads ü as u: start from a model that keeps marks, --model OWNER/NAME,"
    " or pretrain one with --keep-accents"
)

ADVICE: Advice = {
    "unusable file": ("error", "correct this first: nothing after it was checked"),
    "unusable row": ("error", "training would stop at these rows"),
    "both trained and evaluated on": (
        "warning",
        "remove them from one side: results are inflated",
    ),
    "contradictory labels": ("warning", "one of them is wrong: check them, keep one"),
    "repeated row": (
        "warning",
        "remove all but one: training would see them more often",
    ),
    "empty text": ("warning", "an example without text teaches nothing"),
    "joined labels": ("warning", "with several labels per row: --problem multi-label"),
    "doubtful label": (
        "warning",
        (
            "if it differs from another only in case, correct it; if it means that there"
            " is none: data.missing_labels=skip"
        ),
    ),
    "rare label": ("warning", "too few to learn from: add examples, or merge labels"),
    "one label in most rows": (
        "warning",
        "do not judge by accuracy; see task.class_weights",
    ),
    "lost character": ("warning", "U+FFFD marks lost bytes: convert the text again"),
    "unknown piece": ("warning", OTHER_MODEL),
    "dropped mark": ("warning", KEEPS_MARKS),
    "too long": (
        "warning",
        "raise task.max_length, or accept that training reads only the beginning",
    ),
    "no labels": ("note", "can be answered, but neither trained nor evaluated on"),
}
"""The severity of each kind of finding and what to do, in the order of the report."""


@dataclass(frozen=True)
class LengthReport:
    """Pieces per example, including [CLS] and [SEP], and how many of all pieces are
    unknown.
    """

    max_length: int  # of the training
    mean: float
    median: int
    share_95: int  # 95 % of the examples have no more pieces
    longest: int
    num_too_long: int  # examples with more pieces than `max_length`
    num_pieces: int  # of all examples
    num_unknown: int


@dataclass(frozen=True)
class SplitReport:
    """The contents of one file or split: rows by label and, with a vocabulary,
    lengths.
    """

    name: str
    num_rows: int
    labels: dict[str, int]
    lengths: LengthReport | None

    def __str__(self) -> str:
        lines = [f"{self.name}: {format_count(self.num_rows, 'row')}"]
        if any(self.labels.values()):
            lines.append(f"  {self._common_labels()}")
        if self.lengths is not None:
            lines.append(f"  {self._lengths_in_words(self.lengths)}")
        return "\n".join(map(escape_breaks, lines))

    def _common_labels(self) -> str:
        total = sum(self.labels.values())
        ranked = sorted(self.labels.items(), key=lambda item: -item[1])
        shown = list[str]()
        for label, count in ranked[:_SHOWN_LABELS]:
            shown.append(f"{label} ({count:,}, {count / total:.1%})")
        num_more = len(ranked) - len(shown)
        if num_more:
            shown.append(f"and {num_more} more")
        return ", ".join(shown)

    def _lengths_in_words(self, lengths: LengthReport) -> str:
        share_too_long = lengths.num_too_long / self.num_rows
        share_unknown = lengths.num_unknown / max(1, lengths.num_pieces)
        return (
            f"pieces: mean {lengths.mean:.1f}, median {lengths.median}, 95 % up to"
            f" {lengths.share_95}, longest {lengths.longest:,}; over"
            f" {lengths.max_length}: {share_too_long:.2%}; unknown: {share_unknown:.3%}"
        )


@dataclass(frozen=True)
class DataReport(CheckReport):
    """What was guessed about the data, what each split contains, and what is wrong with
    it.
    """

    guessed: tuple[str, ...]
    splits: tuple[SplitReport, ...]

    def __str__(self) -> str:
        findings = super().__str__()
        return "\n".join([*self.guessed, *map(str, self.splits), "", findings])


def check_files(
    train: Path,
    others: Sequence[Path] = (),
    *,
    columns: Sequence[str] = (),
    problem: str | None = None,
    labels: tuple[str, ...] = (),
    tokenizer: Tokenizer | None = None,
    max_length: int = 256,
) -> DataReport:
    """Check a training file, and other files to be evaluated on or answered.

    With a tokenizer, lengths and unknown pieces are counted, too. Whatever would stop
    training becomes a finding of severity error, one for each row where possible;
    errors in the request itself are raised.
    """
    from litebert.tasks.tables.settling import Choices, settle

    check = _Check(tokenizer, max_length)
    choices = Choices(columns, problem, labels)
    try:
        table = choices.open(train)
    except RequestError:
        raise
    except LitebertError as error:
        check.add_error("unusable file", str(train), error)
        return check.report()

    check.notes = [escape_breaks(f"{train}: {table.writing}")]
    # Settled on the usable rows. The others are findings when the file is checked below,
    # so this check of them is dropped.
    usable_rows = partial(_Check(None, max_length).usable_rows, table)
    try:
        reading, check.notes = settle(replace(table, scan=usable_rows), choices)
    except RequestError:
        raise
    except LitebertError as error:
        check.add_unsettled(table, error)
        return check.report()

    check.add_split(table, reading, is_labeled=True)
    for path in others:
        try:
            table = reading.open(path, is_labeled=False)
            is_labeled = _has_answers(table, reading)
        except RequestError:
            raise
        except LitebertError as error:
            check.add_error("unusable file", str(path), error)
        else:
            check.add_split(table, reading, is_labeled=is_labeled)
    return check.report()


def _has_answers(table: TableFile, reading: "RowReading[Any, Any]") -> bool:
    """Return whether some of the first rows of a file have a label, score or answer."""
    sample = table.sample()
    for role in reading.learned:
        for name in reading.columns.all(role):
            if any(row.get(name) not in (None, "") for row in sample):
                return True
    return False


def vocabulary_doubts(
    family: "Family[Any, Any]",
    tokenizer: Tokenizer,
    examples: Sequence[Any],
    features: "Sequence[Feature]",
) -> tuple[str, ...]:
    """Return what the vocabulary cannot read of the first examples, with the model that
    can.
    """
    unknown = UnknownPieces(tokenizer)
    for feature in features[:AT_ONCE]:
        text = " ".join(family.texts(examples[feature.example]))
        unknown.add(text, [*chain(*feature.ids)])
    doubts = list[str]()
    if unknown.has_unknown:
        doubts.append(f"warning: unknown are {unknown}; {_advice_on(unknown)}")
    if unknown.dropped:
        doubts.append(f"warning: {unknown.dropped}; {KEEPS_MARKS}")
    return tuple(doubts)


def _advice_on(unknown: UnknownPieces) -> str:
    return OTHER_MODEL if unknown.are_letters else WRITTEN_AS_WORDS


def doubts_about_rows(
    family: "Family[Any, Any]", examples: Sequence[Any], path: Path
) -> tuple[str, ...]:
    """Return what is wrong with the rows of a file that are trained on: texts that are
    missing, and equal ones with different labels.
    """
    num_empty = 0
    labels_of = dict[int, Counter[str]]()  # by the hash of the texts
    for example in examples:
        texts = family.texts(example)
        label = family.expected(example)
        if not texts[0] or texts[0].isspace():
            num_empty += 1
        elif label is not None:
            labels_of.setdefault(_hash_texts(texts), Counter())[label] += 1
    num_rows = len(examples)
    doubts = list[str]()
    if num_empty:
        doubts.append(
            f"warning: {num_empty:,} of {num_rows:,} rows have no text: they teach"
            " nothing, so delete them"
        )
    num_contradictory = 0
    for labels in labels_of.values():
        if len(labels) > 1:
            num_contradictory += labels.total()
    # scores of equal texts differ where people rate them
    are_names = bool(family.head.labels) and not getattr(family, "is_number", False)
    if are_names and num_contradictory > MOST_CONTRADICTORY * num_rows:
        doubts.append(
            f"warning: {num_contradictory:,} of {num_rows:,} rows have a text to which"
            " other rows give another label: litebert data check"
            f" {quote(str(path))} lists them"
        )
    return tuple(doubts)


def doubts_about_overlap(
    family: "Family[Any, Any]",
    train: Sequence[Any],
    held_out: Sequence[Any],
    paths: Sequence[Path],
) -> tuple[str, ...]:
    """Return how many of the examples that are evaluated on have the same texts as one
    that is trained on; `paths` are the files that they come from.
    """
    trained_on = {_hash_texts(family.texts(example)) for example in train}
    num_overlapping = 0
    for example in held_out:
        texts = family.texts(example)
        has_text = bool(texts[0]) and not texts[0].isspace()
        if has_text and _hash_texts(texts) in trained_on:
            num_overlapping += 1
    if not num_overlapping:
        return ()
    files = " ".join(quote(str(path)) for path in paths)
    return (
        f"warning: {num_overlapping:,} of {len(held_out):,} rows that are evaluated on"
        " stand in the training rows, too, so that the measures say less about new"
        f" texts: litebert data check {files} lists them",
    )


@dataclass
class _Check:
    """The findings so far: splits are checked one after the other, and compared with
    the first, the training data.
    """

    tokenizer: Tokenizer | None
    max_length: int
    notes: list[str] = field(default_factory=list)
    splits: list[SplitReport] = field(default_factory=list)
    findings: Findings = field(
        default_factory=lambda: Findings(ADVICE, num_places=PLACES)
    )
    # a training row by the hash of its texts
    train: dict[int, str] = field(default_factory=dict)

    def report(self) -> DataReport:
        counts = dict[str, int]()
        if self.splits:
            counts["rows"] = sum(split.num_rows for split in self.splits)
        return DataReport(
            self.findings.report(), counts, tuple(self.notes), tuple(self.splits)
        )

    def add_error(self, kind: str, place: str, error: LitebertError) -> None:
        """Count an error raised while reading, by its code; if its message names a
        place, that is more exact than `place`.
        """
        named_place, _, reason = error.what.rpartition(": ")
        example = ": ".join(filter(None, (reason, error.received)))
        self.findings.add(
            kind, named_place or place, example, detail=error.code, advice=error.next
        )

    def add_unsettled(self, table: TableFile, error: LitebertError) -> None:
        """Add why it is unclear how the rows of a file are read: if all are unusable,
        their own errors say so.
        """
        num_usable = sum(1 for _ in self.usable_rows(table))
        if num_usable or "unusable row" not in self.findings:
            self.add_error("unusable file", table.source.name, error)

    def usable_rows(
        self, table: TableFile, made_of: Callable[[int, Row], Any] = lambda _, row: row
    ) -> Iterator[tuple[int, Any]]:
        """Yield the rows of a table, or what is made of them; bad rows and an early end
        of the file are findings.
        """
        try:
            for number, row in table.scan():
                try:
                    if isinstance(row, LitebertError):
                        raise row
                    yield number, made_of(number, row)
                except LitebertError as error:
                    self.add_error("unusable row", table.source.place(number), error)
        except LitebertError as error:
            self.add_error("unusable file", table.source.name, error)

    def add_split(
        self, table: TableFile, reading: "RowReading[Any, Any]", *, is_labeled: bool
    ) -> None:
        """Check the examples of a file."""
        name = table.source.name
        family = reading.family
        is_train = not self.splits
        divides = is_train and bool(reading.columns.all("split"))

        def made_of(number: int, row: Row) -> tuple[Any, bool]:
            """Return the example of a row, and whether it is only evaluated on."""
            example = reading.example_of(table, number, row, is_labeled=is_labeled)
            split = "train"
            if divides:
                split = split_of(reading.columns.cell(row, "split")) or "other"
            return example, split != "train"

        examples = self.usable_rows(table, made_of)
        rows = _Rows(self.findings, table, family, self.train)
        pieces = None
        if self.tokenizer is not None:
            pieces = _Pieces(family, self.tokenizer, self.max_length)
        while group := list(islice(examples, AT_ONCE)):
            if pieces is not None:
                pieces.add([(number, example) for number, (example, _) in group])
            for number, (example, is_held_out) in group:
                rows.add(number, example, is_held_out=is_held_out)

        # findings that need all rows; texts that belong together have no label
        learns_labels = "second" not in reading.learned
        if rows.number and not rows.num_labeled and learns_labels:
            self.findings.add("no labels", name, detail=name, times=rows.number)
        lengths = None
        if pieces is not None and pieces.sizes:
            lengths = pieces.report()
            pieces.say(self.findings, table, rows.number)
        labels = dict(sorted(rows.labels.items()))
        self.splits.append(SplitReport(name, rows.number, labels, lengths))
        if is_train:
            self.train = rows.places()
        if is_train and family.head.labels:
            self._add_labels(name, rows)

    def _add_labels(self, name: str, rows: "_Rows") -> None:
        """Find labels that may be mistakes, and those with too few or too many rows."""
        from litebert.tasks.tables.rows import is_joined, usual_spellings

        labels = rows.labels
        spelled = usual_spellings(labels)
        for label, count in sorted(labels.items()):
            where = rows.first_place(label)
            if is_joined(label, labels):
                self.findings.add("joined labels", where, label, times=count)
            if label.lower() in (*MISSING, *NO_LABEL):
                self.findings.add("doubtful label", where, label, times=count)
            elif spelled[label] != label:
                example = f"{label} looks like {spelled[label]}"
                self.findings.add("doubtful label", where, example, times=count)
            share = count / rows.number
            if count < RARE:
                self.findings.add("rare label", where, f"{label}: {count}")
            elif share > MOST and rows.num_labeled == labels.total():
                self.findings.add(
                    "one label in most rows",
                    name,
                    f"{label}: {share:.1%}",
                    detail=name,
                    times=count,
                )


class _Pieces:
    """The pieces of a file's examples: how many each has, and what the vocabulary cannot
    read.
    """

    def __init__(
        self, family: "Family[Any, Any]", tokenizer: Tokenizer, max_length: int
    ) -> None:
        self._family = family
        self._tokenizer = tokenizer
        self._max_length = max_length
        self._unknown = UnknownPieces(tokenizer)
        self._first_unknown = 0  # the number of its row
        self._first_too_long = 0
        self.sizes = list[int]()

    def add(self, group: Sequence[tuple[int, Any]]) -> None:
        """Count the pieces of examples, given with the numbers of their rows."""
        examples = [example for _, example in group]
        features = self._family.features(
            examples, self._tokenizer, max_length=_WHOLE, training=False
        )
        for feature in features:
            number, example = group[feature.example]
            size = max(map(len, feature.ids))  # of choices, the longest
            self.sizes.append(size)
            if size > self._max_length:
                self._first_too_long = self._first_too_long or number
            text = " ".join(self._family.texts(example))
            if self._unknown.add(text, [*chain(*feature.ids)]):
                self._first_unknown = self._first_unknown or number

    @property
    def num_too_long(self) -> int:
        return sum(size > self._max_length for size in self.sizes)

    def report(self) -> LengthReport:
        """Return the lengths."""
        # lengths that occur, not means of two lengths
        shares = np.quantile(self.sizes, [0.5, 0.95, 1], method="inverted_cdf")
        median, share_95, longest = map(int, shares)
        return LengthReport(
            max_length=self._max_length,
            mean=float(np.mean(self.sizes)),
            median=median,
            share_95=share_95,
            longest=longest,
            num_too_long=self.num_too_long,
            num_pieces=self._unknown.num_pieces,
            num_unknown=self._unknown.num_unknown,
        )

    def say(self, findings: Findings, table: TableFile, num_rows: int) -> None:
        """Add what is wrong with the pieces to the findings."""
        name = table.source.name
        place = table.source.place
        unknown = self._unknown
        if self.num_too_long and self._family.head.record.reads == "pooled":
            share = f"{self.num_too_long / num_rows:.2%} of rows"
            loss = f"{share} lose their end"
            if getattr(self._family, "reads_windows", False):
                loss = f"{share} are longer: answers read them in windows"
            findings.add(
                "too long",
                place(self._first_too_long),
                loss,
                detail=name,
                times=self.num_too_long,
            )
        if unknown.dropped:
            findings.add(
                "dropped mark",
                name,
                unknown.dropped,
                detail=name,
                times=unknown.num_dropped,
            )
        if unknown.has_unknown:
            findings.add(
                "unknown piece",
                place(self._first_unknown),
                str(unknown),
                detail=name,
                times=unknown.num_unknown,
                advice=_advice_on(unknown),
            )


@dataclass
class _EqualRows:
    """The rows with the same texts and the same answer."""

    first: int  # the number of the first one
    count: int = 0


class _Rows:
    """The rows of a file one by one: their labels, and which repeat or contradict
    others; `train` has the places of the training rows by their texts.
    """

    def __init__(
        self,
        findings: Findings,
        table: TableFile,
        family: "Family[Any, Any]",
        train: Mapping[int, str],
    ) -> None:
        self._findings = findings
        self._place = table.source.place
        self._say = partial(findings.add, detail=table.source.name)
        self._family = family
        self._train = train
        # by the hash of their texts, then by their answer
        self._equal_rows: dict[int, dict[str | None, _EqualRows]] = {}
        # the first row with each text that is trained on, and that a column holds out
        self._first_by_side: dict[bool, dict[int, int]] = {False: {}, True: {}}
        self.number = 0
        self.num_labeled = 0
        self.labels = Counter[str]()
        self._first_of_label = dict[str, int]()

    def first_place(self, label: str) -> str:
        """Return the place of the first row with a label."""
        return self._place(self._first_of_label[label])

    def places(self) -> dict[int, str]:
        """Return the place of the first row with each text."""
        places = dict[int, str]()
        for key, by_answer in self._equal_rows.items():
            rows = next(iter(by_answer.values()))
            places[key] = self._place(rows.first)
        return places

    def add(self, number: int, example: Any, *, is_held_out: bool = False) -> None:
        """Count a row, and compare it with those before it; a column of the training
        file may hold it out.
        """
        self.number += 1
        where = self._place(number)
        texts = self._family.texts(example)
        answer = self._family.expected(example)
        if answer is not None:
            self.num_labeled += 1
        for label in self._family.labels(example):
            self.labels[label] += 1
            self._first_of_label.setdefault(label, number)
        if any("\ufffd" in text for text in texts):
            self._findings.add("lost character", where, texts[0])
        if not texts[0] or texts[0].isspace():
            self._findings.add("empty text", where)
            return
        key = _hash_texts(texts)
        if key in self._train:
            example_row = f"the same texts as {self._train[key]}"
            self._say("both trained and evaluated on", where, example_row)
        self._first_by_side[is_held_out].setdefault(key, number)
        other_side = self._first_by_side[not is_held_out].get(key)
        by_answer = self._equal_rows.setdefault(key, {})
        if other_side is not None:
            example_row = f"the same texts as {self._place(other_side)}"
            self._say("both trained and evaluated on", where, example_row)
        elif answer in by_answer:
            first = self._place(by_answer[answer].first)
            self._say("repeated row", where, f"the same as {first}")
        self._compare(where, answer, by_answer)
        rows = by_answer.setdefault(answer, _EqualRows(number))
        rows.count += 1

    def _compare(
        self, where: str, answer: str | None, by_answer: Mapping[str | None, _EqualRows]
    ) -> None:
        """Find rows with the same texts and another answer."""
        if answer is None:
            return
        others = list[_EqualRows]()
        for other_answer, rows in by_answer.items():
            if other_answer not in (None, answer):
                others.append(rows)
        if not others:
            return
        # with the first contradiction, the rows before it contradict, too
        is_first = len(others) == 1 and answer not in by_answer
        before = others[0].count if is_first else 0
        self._say(
            "contradictory labels",
            where,
            f"differs from {self._place(others[0].first)}",
            times=1 + before,
        )


def _hash_texts(texts: Sequence[str]) -> int:
    """Return a hash of texts; white space makes no difference."""
    return hash_text("\x1f".join(" ".join(text.split()) for text in texts))
