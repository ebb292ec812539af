"""Check a user's own examples before training, in one pass over each file."""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from litebert.errors import LitebertError, RequestError, format_count
from litebert.reading.findings import Advice, CheckReport, Findings
from litebert.reading.tables import Row
from litebert.tasks.own.cells import MISSING, NO_LABEL
from litebert.tasks.own.table import TableFile
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.tokenizer import UnknownPieces

if TYPE_CHECKING:  # it imports torch, which `litebert data check --help` does not need
    from litebert.tasks.kinds.family import Family, Feature
    from litebert.tasks.own.rows import RowReading

PLACES = 5  # listed for each kind, at most
# a label with fewer rows is rare; one with a larger share of the rows is in most rows
RARE = 10
MOST = 0.9
AT_ONCE = 2_048  # examples that are encoded together
_WHOLE = 1 << 24  # pieces: nothing is cut
_SHOWN_LABELS = 12

OTHER_MODEL = (
    "the vocabulary lacks these characters: start from a model of this language,"
    " --model OWNER/NAME (Chinese: voidful/albert_chinese_base)"
)
KEEPS_MARKS = (
    "the vocabulary reads ü as u: start from a model that keeps marks, --model OWNER/NAME,"
    " or pretrain one with --keep-accents"
)

ADVICE: Advice = {
    "unusable file": ("error", "correct this first: nothing after it was checked"),
    "unusable row": ("error", "correct or remove these rows: training would stop here"),
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
    "too long": ("warning", "raise task.max_length, or accept that texts are cut"),
    "no labels": ("note", "can be answered, but neither trained nor evaluated on"),
}
"""The severity of each kind of finding and what to do, in the order of the report."""


@dataclass(frozen=True)
class LengthReport:
    """Pieces per example, including [CLS] and [SEP], and how many of all pieces are
    unknown.
    """

    max_length: int
    mean: float
    median: int
    share_95: int
    longest: int
    num_too_long: int
    num_pieces: int
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
        if total := sum(self.labels.values()):
            ranked = sorted(self.labels.items(), key=lambda item: -item[1])
            shown = [
                f"{label} ({count:,}, {count / total:.1%})"
                for label, count in ranked[:_SHOWN_LABELS]
            ]
            more = (
                [f"and {len(ranked) - _SHOWN_LABELS} more"]
                if len(ranked) > _SHOWN_LABELS
                else []
            )
            lines.append(f"  {', '.join([*shown, *more])}")
        if found := self.lengths:
            lines.append(
                f"  pieces: mean {found.mean:.1f}, median {found.median}, 95 % up to"
                f" {found.share_95}, longest {found.longest:,}; over"
                f" {found.max_length}: {found.num_too_long / self.num_rows:.2%};"
                f" unknown: {found.num_unknown / max(1, found.num_pieces):.3%}"
            )
        return "\n".join(lines)


@dataclass(frozen=True)
class DataReport(CheckReport):
    """What was guessed about the data, what each split contains, and what is wrong with
    it.
    """

    guessed: tuple[str, ...]
    splits: tuple[SplitReport, ...]

    def __str__(self) -> str:
        return "\n".join([*self.guessed, *map(str, self.splits), "", super().__str__()])


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
    from litebert.tasks.own.dataset import Choices, settle

    check = _Check(tokenizer, max_length)
    try:
        choices = Choices(columns, problem, labels)
        table = choices.open(train)
        check.notes = [f"{train}: {table.writing}"]
        # errors in the other rows are found below
        good = partial(_Check(None, max_length).usable_rows, table)
        reading, check.notes = settle(replace(table, scan=good), choices)
    except RequestError:
        raise
    except LitebertError as error:
        check.add_error("unusable file", str(train), error)
        if check.notes:
            # records the errors of single rows
            deque(check.usable_rows(table), maxlen=0)
        return check.report()

    check.add_split(table, reading, is_labelled=True)
    for path in others:
        try:
            table = reading.open(path, is_labelled=False)
            answers = [
                name for role in reading.learned for name in reading.columns.all(role)
            ]
            is_labelled = any(
                row.get(name) not in (None, "")
                for row in table.sample()
                for name in answers
            )
        except RequestError:
            raise
        except LitebertError as error:
            check.add_error("unusable file", str(path), error)
        else:
            check.add_split(table, reading, is_labelled=is_labelled)
    return check.report()


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
        doubts.append(f"warning: unknown are {unknown}; {OTHER_MODEL}")
    if unknown.dropped:
        doubts.append(f"warning: {unknown.dropped}; {KEEPS_MARKS}")
    return tuple(doubts)


@dataclass
class _Check:
    """The findings so far: splits are checked one after the other, and compared with
    the first, the training data.
    """

    tokenizer: Tokenizer | None
    max_length: int
    notes: list[str] = field(default_factory=list)
    splits: list[SplitReport] = field(default_factory=list)
    found: Findings = field(default_factory=lambda: Findings(ADVICE, num_places=PLACES))
    # a training row by the hash of its texts
    train: dict[bytes, str] = field(default_factory=dict)

    def report(self) -> DataReport:
        counts = (
            {"rows": sum(split.num_rows for split in self.splits)}
            if self.splits
            else {}
        )
        return DataReport(
            self.found.report(), counts, tuple(self.notes), tuple(self.splits)
        )

    def add_error(self, kind: str, place: str, error: LitebertError) -> None:
        """Count an error raised while reading, by its code; its message may name the
        place.
        """
        own, _, reason = error.what.rpartition(": ")
        example = ": ".join(filter(None, (reason, error.received)))
        self.found.add(
            kind, own or place, example, detail=error.code, advice=error.next
        )

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
        self, table: TableFile, reading: "RowReading[Any, Any]", *, is_labelled: bool
    ) -> None:
        """Check the examples of a file."""
        from litebert.tasks.own.rows import labels_in

        name = table.source.name
        place = table.source.place
        family = reading.family
        is_train = not self.splits
        examples = self.usable_rows(
            table, partial(reading.example_of, table, is_labelled=is_labelled)
        )
        say = partial(self.found.add, detail=name)
        labels = Counter[str]()
        # by texts and answer: the first row, the number of rows
        seen: dict[bytes, dict[str | None, list[int]]] = {}
        unknown = None if self.tokenizer is None else UnknownPieces(self.tokenizer)
        sizes = list[int]()
        num_rows = num_labelled = first_unknown = first_too_long = 0
        while group := list(islice(examples, AT_ONCE)):
            # the pieces of the group
            if self.tokenizer is not None and unknown is not None:
                given = [example for _, example in group]
                for feature in family.features(
                    given, self.tokenizer, max_length=_WHOLE, training=False
                ):
                    # of choices, the longest
                    number = group[feature.example][0]
                    size = max(map(len, feature.ids))
                    sizes.append(size)
                    if size > self.max_length:
                        first_too_long = first_too_long or number
                    if unknown.add(
                        " ".join(family.texts(given[feature.example])),
                        [*chain(*feature.ids)],
                    ):
                        first_unknown = first_unknown or number

            # its examples, one by one
            for number, example in group:
                num_rows += 1
                where = place(number)
                texts = family.texts(example)
                answer = family.expected(example)
                num_labelled += answer is not None
                labels.update(family.labels(example))
                if any("\ufffd" in text for text in texts):
                    self.found.add("lost character", where, texts[0])
                if not texts[0] or texts[0].isspace():
                    self.found.add("empty text", where)
                    continue
                # white space makes no difference
                joined = "\x1f".join(" ".join(text.split()) for text in texts)
                key = blake2b(
                    joined.encode("utf-8", "surrogatepass"), digest_size=8
                ).digest()
                if not is_train and key in self.train:
                    say(
                        "both trained and evaluated on",
                        where,
                        f"the same texts as {self.train[key]}",
                    )
                answers = seen.setdefault(key, {})
                others = [
                    row
                    for other, row in answers.items()
                    if None not in (other, answer) and other != answer
                ]
                if answer in answers:
                    say(
                        "repeated row",
                        where,
                        f"the same as {place(answers[answer][0])}",
                    )
                # with the first contradiction, the rows before it contradict, too
                if others:
                    before = 0 if len(others) > 1 or answer in answers else others[0][1]
                    say(
                        "contradictory labels",
                        where,
                        f"differs from {place(others[0][0])}",
                        times=1 + before,
                    )
                answers.setdefault(answer, [number, 0])[1] += 1

        # what needs all rows
        if num_rows and not num_labelled:
            say("no labels", name, times=num_rows)
        lengths = None
        if sizes and unknown is not None:
            # lengths that occur, not means of two lengths
            median, share_95, longest = map(
                int, np.quantile(sizes, [0.5, 0.95, 1], method="inverted_cdf")
            )
            num_too_long = sum(size > self.max_length for size in sizes)
            counts = num_too_long, unknown.num_pieces, unknown.num_unknown
            lengths = LengthReport(
                self.max_length,
                float(np.mean(sizes)),
                median,
                share_95,
                longest,
                *counts,
            )
            if num_too_long and family.head.record.reads == "pooled":
                example = f"{num_too_long / num_rows:.2%} of rows lose their end"
                say("too long", place(first_too_long), example, times=num_too_long)
            if unknown.dropped:
                say("dropped mark", name, unknown.dropped, times=unknown.num_dropped)
            if unknown.has_unknown:
                say(
                    "unknown piece",
                    place(first_unknown),
                    str(unknown),
                    times=unknown.num_unknown,
                )
        self.splits.append(
            SplitReport(name, num_rows, dict(sorted(labels.items())), lengths)
        )
        if is_train:
            self.train = {
                key: place(next(iter(answers.values()))[0])
                for key, answers in seen.items()
            }
        cases = Counter(map(str.casefold, labels))
        for label, count in (
            sorted(labels.items()) if is_train and family.head.labels else ()
        ):
            if len(parts := labels_in(label, label)) > 1 and labels.keys() >= {*parts}:
                self.found.add("joined labels", name, label, times=count)
            if cases[label.casefold()] > 1 or label.lower() in (*MISSING, *NO_LABEL):
                self.found.add("doubtful label", name, label, times=count)
            if count < RARE:
                self.found.add("rare label", name, f"{label}: {count}")
            elif count / num_rows > MOST and num_labelled == labels.total():
                say(
                    "one label in most rows",
                    name,
                    f"{label}: {count / num_rows:.1%}",
                    times=count,
                )
