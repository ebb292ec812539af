"""Checking examples before training: what is found, where, and the exit code."""

from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import litebert as package
from litebert.reading.findings import Finding
from litebert.tasks.check import (
    DataReport,
    LengthReport,
    SplitReport,
    check_files,
)
from litebert.tokenizer import Tokenizer, train_tokenizer
from tests.contract.shell import assert_error, litebert
from tests.tables import Write

GOOD = "".join(f"row number {n},{'ab'[n % 2]}\n" for n in range(40))
HEAD = "text,label\n"
LATE = HEAD + "".join(f"the row number {n},{'ab'[n % 2]}\n" for n in range(25_000))
LOPSIDED = "".join(f"row number {n},{'b' if n < 3 else 'a'}\n" for n in range(99))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_model(
        train_tokenizer(
            ["row number one, two", "7 rows", "even so"] * 20, vocab_size=28
        )
    )


def finding(report: DataReport, kind: str) -> Finding:
    (match,) = [match for match in report.findings if match.kind.startswith(kind)]
    return match


def lengths_of(split: SplitReport) -> LengthReport:
    assert split.lengths is not None
    return split.lengths


# ---- findings ------------------------------------------------------------------------

BAD = f"{HEAD}{GOOD}one,two,three\nno label,\nshort\n{GOOD.replace('row', 'line')}"
LATIN = (HEAD + GOOD).encode() + b"Z\xffrich,a\n"
TWICE = f"{HEAD}{GOOD}row  number 7,b\nrow number 8,b\nnew,a\n"
ODD = f"\ufeff{HEAD}{GOOD},a\n  ,b\nlost \ufffd here,a\n"
ODD_LABELS = "".join(
    f"row {n},{('good', 'Good', 'bad', 'good;bad', 'N/A')[n % 5]}\n" for n in range(50)
)
ELSEWHERE = (
    '{"question": "?", "context": "Me.", "answers": [{"text": "%s", "answer_start":'
    " 0}]}\n" * 3 % ("Me", "You", "Him")
)


class Expected(NamedTuple):
    """A finding: the start of its kind, its count, its places ("" for any) and a part
    of its example.
    """

    kind: str
    count: int
    places: str
    example: str


FINDINGS: dict[str, tuple[str, bytes | str, list[Expected]]] = {
    "bad rows": (
        "bad.csv",
        BAD,
        [
            Expected(
                "unusable row (LB-843)",
                2,
                "line 42; line 44",
                "expected 2 columns, found 3: one | two | three",
            ),
            Expected(
                "unusable row (LB-857)",
                1,
                "line 43",
                "there is no label in column label",
            ),
        ],
    ),
    "bad rows only": (
        "a.csv",
        HEAD + "well, no,a\nwell, yes,b\n",
        [
            Expected(
                "unusable row (LB-843)",
                2,
                "line 2; line 3",
                "expected 2 columns, found 3",
            )
        ],
    ),
    "another encoding": (
        "a.csv",
        LATIN,
        [Expected("unusable file", 1, "line 42", "not UTF-8")],
    ),
    "another encoding far on": (
        "late.csv",
        LATE.encode() + b"\xff,a\n",
        [Expected("unusable file", 1, "line 25,002", "")],
    ),
    "repeated and contradictory rows": (
        "twice.csv",
        TWICE,
        [
            Expected(
                "contradictory labels", 2, "line 43", "differs from {path}, line 10"
            ),
            Expected("repeated row", 1, "line 42", "the same as {path}, line 9"),
        ],
    ),
    "odd texts": (
        "odd.csv",
        ODD,
        [
            Expected("empty text", 2, "line 42; line 43", ""),
            Expected("lost character", 1, "line 44", "lost"),
        ],
    ),
    "balance": (
        "a.csv",
        HEAD + LOPSIDED,
        [
            Expected("rare label", 1, "", "b: 3"),
            Expected("one label in most rows", 96, "", "a: 97.0%"),
        ],
    ),
    "many rare labels": (
        "a.csv",
        HEAD + GOOD + "one more,c\nanother,d\n",
        [Expected("rare label", 2, "line 42; line 43", "c: 1")],
    ),
    "odd labels": (
        "a.csv",
        HEAD + ODD_LABELS,
        [
            Expected("joined labels", 10, "line 5", "good;bad"),
            Expected("doubtful label", 20, "", "N/A"),
        ],
    ),
    "one label": (
        "a.csv",
        f"{HEAD}one,a\ntwo,a\nbad\n",
        [
            Expected("unusable file", 1, "", ""),
            Expected("unusable row", 1, "line 4", ""),
        ],
    ),
    "answers elsewhere": (
        "q.jsonl",
        ELSEWHERE,
        [Expected("unusable row (LB-802)", 2, "line 2; line 3", "")],
    ),
}
"""The name of a file, its content and what is found in it."""


@pytest.mark.parametrize(
    ("name", "content", "expected"), FINDINGS.values(), ids=FINDINGS
)
def test_findings_have_kind_count_place_and_example(
    name: str, content: bytes | str, expected: list[Expected], write: Write
) -> None:
    path = write(name, content)
    report = check_files(path)
    assert len(report.findings) == len(expected)
    for actual, wanted in zip(report.findings, expected, strict=True):
        assert actual.kind.startswith(wanted.kind)
        assert actual.count == wanted.count
        assert wanted.example.format(path=path) in actual.example
        if wanted.places:
            places = [f"{path}, {place}" for place in wanted.places.split("; ")]
            assert actual.where == "; ".join(places)

    is_unusable = any(wanted.kind.startswith("unusable") for wanted in expected)
    assert report.exit_code == (3 if is_unusable else 0)


def test_a_good_file_has_nothing_to_correct(write: Write) -> None:
    report = check_files(write("good.csv", HEAD + GOOD))
    assert report.findings == ()
    assert report.exit_code == 0
    assert report.splits[0].num_rows == 40
    assert report.splits[0].labels == {"a": 20, "b": 20}
    assert str(report).endswith("nothing to correct")


# ---- other files beside the training file --------------------------------------------


def test_rows_that_are_trained_and_evaluated_on_are_counted(write: Write) -> None:
    train = write("train.csv", HEAD + GOOD)
    report = check_files(train, [write("dev.csv", HEAD + GOOD[:60])])
    overlap = finding(report, "both trained and evaluated on")
    assert overlap.severity == "warning"
    assert overlap.count == 4
    assert overlap.example == f"the same texts as {train}, line 2"


def test_rows_that_a_column_trains_and_evaluates_on_are_counted(write: Write) -> None:
    rows = "".join(f"row number {n},{'ab'[n % 2]},train\n" for n in range(40))
    copies = "row number 7,b,dev\nrow number 8,a,test\nnew,a,dev\nnew,a,dev\n"
    path = write("a.csv", f"text,label,split\n{rows}{copies}")
    report = check_files(path)
    overlap = finding(report, "both trained and evaluated on")
    assert overlap.count == 2
    assert overlap.example == f"the same texts as {path}, line 9"
    assert finding(report, "repeated row").count == 1  # among those evaluated on


def test_a_label_that_the_training_file_lacks_makes_a_row_unusable(
    write: Write,
) -> None:
    train = write("train.csv", HEAD + GOOD)
    dev = write("odd.csv", f"{HEAD}odd,a\nother,c\n")
    report = check_files(train, [dev])
    assert finding(report, "unusable row (LB-858)").where == f"{dev}, line 3"


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("text\nso odd\nso even\n", id="no column"),
        pytest.param(f"{HEAD}odd,\neven,\n", id="an empty column"),
    ],
)
def test_another_file_without_labels_is_noted(content: str, write: Write) -> None:
    train = write("train.csv", HEAD + GOOD)
    (note,) = check_files(train, [write("other.csv", content)]).findings
    assert note.kind.split(" (")[0] == "no labels"
    assert note.count == 2
    assert note.severity == "note"


# ---- lengths -------------------------------------------------------------------------


def test_the_lengths_of_texts_are_those_of_their_frames(
    write: Write, tokenizer: Tokenizer
) -> None:
    path = write("long.csv", f"{HEAD}{GOOD}{'row number one ' * 9},a\nrow ЖЖЖ Ж,b\n")
    report = check_files(path, tokenizer=tokenizer, max_length=30)
    lengths = lengths_of(report.splits[0])
    # [CLS] and [SEP] are counted
    sizes = [len(tokenizer.encode(f"row number {n}").ids) + 2 for n in range(40)]
    assert lengths.median == sorted(sizes)[20]
    assert lengths.longest == len(tokenizer.encode("row number one " * 9).ids) + 2
    assert lengths.num_too_long == 1
    assert finding(report, "too long").where == f"{path}, line 42"


def test_unknown_pieces_are_named_and_counted(
    write: Write, tokenizer: Tokenizer
) -> None:
    path = write("unknown.csv", f"{HEAD}{GOOD}row ЖЖЖ Ж,b\n")
    report = check_files(path, tokenizer=tokenizer)
    assert lengths_of(report.splits[0]).num_unknown > 0
    assert "'Ж' 4" in finding(report, "unknown piece").example


def test_the_length_of_a_pair_is_that_of_both_texts(
    write: Write, tokenizer: Tokenizer
) -> None:
    table = "premise,hypothesis,label\n" + "one,two,a\nrow,number,b\n" * 2
    (split,) = check_files(write("p.csv", table), tokenizer=tokenizer).splits
    first = len(tokenizer.encode("one", "two").ids)
    second = len(tokenizer.encode("row", "number").ids)
    assert lengths_of(split).longest == max(first, second)


# ---- kinds of tasks ------------------------------------------------------------------

QUESTION = '{"question": "%s", "context": "Me.", "answer": %s, "answer_start": %s}\n'
OTHER_KINDS = {
    "tags": (
        "t.conll",
        "Anna B-PER\ngoes O\n\nhome O\n",
        {"B-PER": 1, "O": 2},
    ),
    "choices": (
        "c.jsonl",
        '{"question": "?", "choices": ["a", "b"], "label": 0}\n',
        {"choice 1": 1},
    ),
    "answers": (
        "q.jsonl",
        QUESTION % ("Who?", '"Me"', 0) + QUESTION % ("Why?", "null", "null"),
        {"answered": 1, "unanswerable": 1},
    ),
    "several labels": (
        "m.jsonl",
        '{"text": "a b", "tags": ["x", "y"]}\n{"text": "c", "tags": []}\n',
        {"x": 1, "y": 1},
    ),
}


@pytest.mark.parametrize(
    ("name", "content", "labels"), OTHER_KINDS.values(), ids=OTHER_KINDS
)
def test_rows_of_every_kind_of_task_are_checked(
    name: str, content: str, labels: dict[str, int], write: Write
) -> None:
    report = check_files(write(name, content))
    assert report.splits[0].labels == labels
    assert report.exit_code == 0


def test_texts_that_belong_together_need_no_labels(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    rows = [f"what is number {n} here?,it is that of row {n}" for n in range(20)]
    path.write_text("question,answer\n" + "\n".join(rows), "utf-8")
    report = check_files(path)
    assert "matches" in report.guessed[2]
    assert report.findings == ()


# ---- the command, and the plan of a training -----------------------------------------


def test_the_command_exits_with_3_if_training_would_fail(
    write: Write, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    good = write("g.csv", HEAD + GOOD)
    bad = write("b.csv", f"{HEAD}{GOOD}x\n")
    tokenizer.save(tmp_path / "vocabulary")
    check = ("data", "check", good, bad, "--model", tmp_path / "vocabulary", "--json")
    done = litebert(*check)
    assert done.code == 3
    assert list(done.json) == ["findings", "counts", "guessed", "splits"]
    assert done.json["findings"][0]["severity"] == "error"
    assert done.json["splits"][0]["lengths"]["max_length"] == 256


def test_the_command_exits_with_0_if_nothing_is_wrong(write: Write) -> None:
    assert litebert("data", "check", write("g.csv", HEAD + GOOD)).code == 0


def test_the_command_exits_with_1_for_wrong_arguments(tmp_path: Path) -> None:
    assert_error(litebert("data", "check", tmp_path), 1)


def test_the_plan_of_a_training_doubts_labels_that_look_alike_or_joined(
    write: Write,
) -> None:
    first_labels = ("Billing", "Delivery")
    all_labels = (*first_labels, "billing", "Billing,Delivery")
    lines = ["text,label"]
    for number in range(60):
        labels = all_labels if number > 20 else first_labels
        lines.append(f'row {number},"{labels[number % len(labels)]}"')
    run = package.finetune(write("a.csv", "\n".join(lines)), dry_run=True)
    assert run.plan is not None
    assert "label billing (10) looks like Billing (20)" in run.plan.text
    assert "1 of the labels join others (Billing,Delivery)" in run.plan.text
    assert "--problem multi-label" in run.plan.text


# ---- by brute force ------------------------------------------------------------------

ROWS = st.lists(
    st.tuples(st.sampled_from(["one x", "two x", "six x"]), st.sampled_from("ab")),
    max_size=9,
)


@settings(deadline=None, max_examples=60)
@given(rows=ROWS)
def test_repeated_and_contradictory_rows_are_counted_as_by_brute_force(
    rows: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "counted.csv"
    lines = ["a first row,a\n", "a last row,b\n"]
    lines += [f"{text},{label}\n" for text, label in rows]
    path.write_text(HEAD + "".join(lines))
    counts = dict[str, int]()
    for entry in check_files(path, columns=["label=label"]).findings:
        counts[entry.kind.split(" (")[0]] = entry.count

    assert counts.get("repeated row", 0) == len(rows) - len(set(rows))
    num_contradictory = 0
    for text, _ in rows:
        labels = {label for other_text, label in rows if other_text == text}
        num_contradictory += len(labels) > 1
    assert counts.get("contradictory labels", 0) == num_contradictory
