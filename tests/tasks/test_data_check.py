"""Checking examples before training: what is found, where, and the exit code."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import litebert as package
from litebert.reading.findings import Finding
from litebert.tasks.check import DataReport, check_files
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


BAD = f"{HEAD}{GOOD}one,two,three\nno label,\nshort\n{GOOD.replace('row', 'line')}"
OF_BAD = [
    "unusable row (LB-843) | 2 | line 42; line 44 | expected 2 columns, found 3: one | two | three"
]
OF_BAD += ["unusable row (LB-857) | 1 | line 43 | there is no label in column label"]
LATIN = (HEAD + GOOD).encode() + b"Z\xffrich,a\n"
TWICE = f"{HEAD}{GOOD}row  number 7,b\nrow number 8,b\nnew,a\n"
OF_TWICE = ["contradictory labels | 2 | line 43 | differs from {path}, line 10"]
OF_TWICE += ["repeated row | 1 | line 42 | the same as {path}, line 9"]
ODD = f"\ufeff{HEAD}{GOOD},a\n  ,b\nlost \ufffd here,a\n"
ODD_LABELS = "".join(
    f"row {n},{('good', 'Good', 'bad', 'good;bad', 'N/A')[n % 5]}\n" for n in range(50)
)
OF_ODD_LABELS = [
    "joined labels | 10 | line 5 | good;bad",
    "doubtful label | 20 |  | N/A",
]
ELSEWHERE = (
    '{"question": "?", "context": "Me.", "answers": [{"text": "%s", "answer_start":'
    " 0}]}\n" * 3 % ("Me", "You", "Him")
)
# The name and content of a file, and its findings: kind | count | places | example
FOUND: dict[str, tuple[str, bytes | str, list[str]]] = {
    "nothing": ("good.csv", HEAD + GOOD, []),
    "bad rows": ("bad.csv", BAD, OF_BAD),
    "bad rows only": (
        "a.csv",
        HEAD + "well, no,a\nwell, yes,b\n",
        ["unusable row (LB-843) | 2 | line 2; line 3 | expected 2 columns, found 3"],
    ),
    "another encoding": ("a.csv", LATIN, ["unusable file | 1 | line 42 | not UTF-8"]),
    "another encoding far on": (
        "late.csv",
        LATE.encode() + b"\xff,a\n",
        ["unusable file | 1 | line 25,002 | "],
    ),
    "repeated and contradictory rows": ("twice.csv", TWICE, OF_TWICE),
    "odd texts": (
        "odd.csv",
        ODD,
        ["empty text | 2 | line 42; line 43 | ", "lost character | 1 | line 44 | lost"],
    ),
    "balance": (
        "a.csv",
        HEAD + LOPSIDED,
        ["rare label | 1 |  | b: 3", "one label in most rows | 96 |  | a: 97.0%"],
    ),
    "many rare labels": (
        "a.csv",
        HEAD + GOOD + "one more,c\nanother,d\n",
        ["rare label | 2 | line 42; line 43 | c: 1"],
    ),
    "odd labels": ("a.csv", HEAD + ODD_LABELS, OF_ODD_LABELS),
    "one label": (
        "a.csv",
        f"{HEAD}one,a\ntwo,a\nbad\n",
        ["unusable file | 1 |  | ", "unusable row | 1 | line 4 | "],
    ),
    "answers elsewhere": (
        "q.jsonl",
        ELSEWHERE,
        ["unusable row (LB-802) | 2 | line 2; line 3 | "],
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_findings_have_kind_count_place_and_example(name: str, write: Write) -> None:
    file, content, wanted = FOUND[name]
    path = write(file, content)
    report = check_files(path)
    assert len(report.findings) == len(wanted)
    for actual, line in zip(report.findings, wanted, strict=True):
        kind, count, places, example = line.split(" | ", 3)
        assert (actual.kind.startswith(kind), actual.count) == (True, int(count))
        assert not places or actual.where == "; ".join(
            f"{path}, {place}" for place in places.split("; ")
        )
        assert example.format(path=path) in actual.example
    assert report.exit_code == 3 * any(line.startswith("unusable") for line in wanted)
    if not wanted:
        assert (report.splits[0].num_rows, report.splits[0].labels) == (
            40,
            {"a": 20, "b": 20},
        )
        assert str(report).endswith("nothing to correct")


def test_other_files_are_compared_with_the_training_file(write: Write) -> None:
    train = write("train.csv", HEAD + GOOD)
    overlap = finding(
        check_files(train, [write("dev.csv", HEAD + GOOD[:60])]),
        "both trained and evaluated on",
    )
    assert (overlap.severity, overlap.count, overlap.example) == (
        "warning",
        4,
        f"the same texts as {train}, line 2",
    )
    odd = write("odd.csv", f"{HEAD}odd,a\nother,c\n")
    assert (
        finding(check_files(train, [odd]), "unusable row (LB-858)").where
        == f"{odd}, line 3"
    )
    for name, content in (
        ("a.csv", "text\nso odd\nso even\n"),
        ("b.csv", f"{HEAD}odd,\neven,\n"),
    ):
        (actual,) = check_files(train, [write(name, content)]).findings
        assert (actual.kind.split(" (")[0], actual.count, actual.severity) == (
            "no labels",
            2,
            "note",
        )


def test_lengths_and_unknown_pieces_are_counted(
    write: Write, tokenizer: Tokenizer
) -> None:
    path = write("long.csv", f"{HEAD}{GOOD}{'row number one ' * 9},a\nrow ЖЖЖ Ж,b\n")
    report = check_files(path, tokenizer=tokenizer, max_length=30)
    lengths = report.splits[0].lengths
    assert lengths is not None
    assert (
        lengths.median
        == sorted(len(tokenizer.encode(f"row number {n}").ids) + 2 for n in range(40))[
            20
        ]
    )
    assert lengths.longest == len(tokenizer.encode("row number one " * 9).ids) + 2
    assert (lengths.num_too_long, lengths.num_unknown > 0) == (1, True)
    assert finding(report, "too long").where == f"{path}, line 42"
    assert "'Ж' 4" in finding(report, "unknown piece").example
    pairs = write(
        "p.csv", "premise,hypothesis,label\n" + "one,two,a\nrow,number,b\n" * 2
    )
    (framed,) = check_files(pairs, tokenizer=tokenizer).splits
    longest = max(
        len(tokenizer.encode(*pair).ids) for pair in (("one", "two"), ("row", "number"))
    )
    assert framed.lengths is not None and framed.lengths.longest == longest


def test_rows_of_every_kind_of_task_are_checked(write: Write) -> None:
    spans = '{"question": "%s", "context": "Me.", "answer": %s, "answer_start": %s}\n'
    for name, content, labels in (
        ("t.conll", "Anna B-PER\ngoes O\n\nhome O\n", {"B-PER": 1, "O": 2}),
        (
            "c.jsonl",
            '{"question": "?", "choices": ["a", "b"], "label": 0}\n',
            {"choice 1": 1},
        ),
        (
            "q.jsonl",
            spans % ("Who?", '"Me"', 0) + spans % ("Why?", "null", "null"),
            {"answered": 1, "unanswerable": 1},
        ),
        (
            "m.jsonl",
            '{"text": "a b", "tags": ["x", "y"]}\n{"text": "c", "tags": []}\n',
            {"x": 1, "y": 1},
        ),
    ):
        report = check_files(write(name, content))
        assert (report.splits[0].labels, report.exit_code) == (labels, 0)


def test_the_command_exits_with_3_if_training_would_fail_and_with_1_for_wrong_arguments(
    write: Write, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    good = write("g.csv", HEAD + GOOD)
    bad = write("b.csv", f"{HEAD}{GOOD}x\n")
    tokenizer.save(tmp_path / "vocabulary")
    done = litebert(
        "data", "check", good, bad, "--model", tmp_path / "vocabulary", "--json"
    )
    report = done.json
    assert (litebert("data", "check", good).code, done.code) == (0, 3)
    assert [*report] == ["findings", "counts", "guessed", "splits"]
    assert (
        report["findings"][0]["severity"],
        report["splits"][0]["lengths"]["max_length"],
    ) == ("error", 256)
    assert_error(litebert("data", "check", tmp_path), 1)


@settings(deadline=None, max_examples=60)
@given(
    rows=st.lists(
        st.tuples(st.sampled_from(["one x", "two x", "six x"]), st.sampled_from("ab")),
        max_size=9,
    )
)
def test_repeated_and_contradictory_rows_are_counted_as_by_brute_force(
    rows: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "counted.csv"
    path.write_text(
        HEAD
        + "a first row,a\na last row,b\n"
        + "".join(f"{text},{label}\n" for text, label in rows)
    )
    counts = {
        entry.kind.split(" (")[0]: entry.count
        for entry in check_files(path, columns=["label=label"]).findings
    }
    assert counts.get("repeated row", 0) == len(rows) - len(set(rows))
    expected = sum(
        len({other for again, other in rows if again == text}) > 1 for text, _ in rows
    )
    assert counts.get("contradictory labels", 0) == expected


def test_texts_that_belong_together_need_no_labels(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    rows = [f"what is number {n} here?,it is that of row {n}" for n in range(20)]
    path.write_text("question,answer\n" + "\n".join(rows), "utf-8")
    report = check_files(path)
    assert "matches" in report.guessed[2]
    assert report.findings == ()


def test_the_plan_of_a_training_doubts_labels_that_look_alike_or_joined(
    write: Write,
) -> None:
    labels = ("Billing", "Delivery", "billing", "Billing,Delivery")
    rows = [f'row {n},"{labels[n % 4 if n > 20 else n % 2]}"' for n in range(60)]
    run = package.finetune(
        write("a.csv", "text,label\n" + "\n".join(rows)), dry_run=True
    )
    assert run.plan is not None
    assert "label billing (10) looks like Billing (20)" in run.plan.text
    assert "1 of the labels join others (Billing,Delivery)" in run.plan.text
    assert "--problem multi-label" in run.plan.text
