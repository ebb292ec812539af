"""Examples looked through before training: what is found, where, and with which exit code."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.cli import cli
from litebert.errors import LitebertError
from litebert.reading.findings import Finding
from litebert.tasks.check import DataReport, Likeness, Seen, check_dataset, check_files
from litebert.tasks.named import DATASETS
from litebert.tokenizer import Tokenizer, train_tokenizer

from .conftest import Write

GOOD = "".join(f"row number {n},{'ab'[n % 2]}\n" for n in range(40))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """Give a tokenizer of a few words."""
    return Tokenizer.from_model(train_tokenizer(["row number one, two", "7 rows", "even so"] * 20, vocab_size=28))


def finding(report: DataReport, kind: str) -> Finding:
    (found,) = [found for found in report.findings if found.kind.startswith(kind)]
    return found


def kinds(report: DataReport) -> list[str]:
    return [found.kind.split(" (")[0] for found in report.findings]


def test_good_file_has_nothing_to_mend(write: Write) -> None:
    report = check_files(write("good.csv", "text,label\n" + GOOD))
    assert (report.findings, report.has_errors) == ((), False)
    assert (report.splits[0].num_rows, report.splits[0].labels) == (40, {"a": 20, "b": 20})
    assert str(report).endswith("nothing to correct")


def test_bad_rows_are_told_by_line_and_kind_and_the_others_are_counted(write: Write) -> None:
    content = f"text,label\n{GOOD}one,two,three\nno label,\nshort\n{GOOD}"
    path = write("bad.csv", content)
    report = check_files(path)
    ragged, unlabelled = (finding(report, f"unusable row (LB-{code})") for code in (843, 857))
    assert ragged.count == 2
    assert ragged.where == f"{path}, line 42; {path}, line 44"
    assert ragged.example == "3 cells, not 2: one | two | three"
    assert unlabelled.where == f"{path}, line 43"
    assert report.has_errors
    assert report.splits[0].num_rows == 80


def test_file_that_cannot_be_read_on_is_told_with_the_line(write: Write) -> None:
    path = write("mixed.csv", f"text,label\n{GOOD}".encode() + "Zürich,a\n".encode("latin-1"))
    report = check_files(path)
    assert kinds(report) == ["unusable file"]
    assert "not UTF-8" in report.findings[0].example
    assert "iconv" in report.findings[0].advice


def test_encoding_that_breaks_far_on_leaves_what_was_read(write: Write) -> None:
    rows = "".join(f"the row number {n},{'ab'[n % 2]}\n" for n in range(25_000))
    path = write("late.csv", f"text,label\n{rows}".encode() + b"\xff,a\n")
    report = check_files(path)
    assert kinds(report)[0] == "unusable file"
    assert 0 < report.splits[0].num_rows <= 25_000
    assert report.findings[0].where == f"{path}, line 25,002"


def test_rows_that_repeat_or_contradict_are_told(write: Write) -> None:
    path = write("twice.csv", f"text,label\n{GOOD}row  number 7,b\nrow number 8,b\nnew,a\n")
    report = check_files(path)
    repeated, contradictory = (finding(report, k) for k in ("repeated row", "contradictory labels"))
    assert (repeated.count, repeated.where) == (1, f"{path}, line 42")
    assert repeated.example == f"the same as {path}, line 9"
    assert (contradictory.count, contradictory.where) == (2, f"{path}, line 43")
    assert contradictory.example == f"another answer than {path}, line 10"


def test_rows_on_both_sides_are_told(write: Write) -> None:
    train, dev = (write("train.csv", f"text,label\n{GOOD}"), write("dev.csv", "text,label\n" + GOOD[:60]))
    overlap = finding(check_files(train, [dev]), "both trained and evaluated on")
    assert overlap.severity == "warning"
    assert overlap.count == 4
    assert overlap.example == f"the same texts as {train}, line 2"


def test_label_that_training_lacks_is_an_error(write: Write) -> None:
    dev = write("dev.csv", "text,label\nodd,a\nother,c\n")
    report = check_files(write("train.csv", f"text,label\n{GOOD}"), [dev])
    assert finding(report, "unusable row (LB-858)").where == f"{dev}, line 3"


def test_file_without_labels_is_noted_not_refused(write: Write) -> None:
    train = write("train.csv", f"text,label\n{GOOD}")
    for name, content in (("a.csv", "text\nso odd\nso even\n"), ("b.csv", "text,label\nodd,\neven,\n")):
        report = check_files(train, [write(name, content)])
        assert kinds(report) == ["no labels"]
        assert report.findings[0].count == 2
        assert not report.has_errors


def test_empty_texts_lost_characters_and_a_mark_are_told(write: Write) -> None:
    path = write("odd.csv", f"\ufefftext,label\n{GOOD},a\n  ,b\nlost \ufffd here,a\n")
    report = check_files(path)
    assert (
        kinds(report)
        == ["repeated row", "empty text", "lost character", "byte-order mark"][
            1 if "repeated row" not in kinds(report) else 0 :
        ]
    )
    assert finding(report, "empty text").where == f"{path}, line 42; {path}, line 43"


def test_balance_is_weighed(write: Write) -> None:
    rows = "".join(f"row number {n},{'b' if n < 3 else 'a'}\n" for n in range(99))
    report = check_files(write("lopsided.csv", f"text,label\n{rows}"))
    assert kinds(report) == ["rare label", "one label in most rows"]
    assert finding(report, "rare label").example == "b: 3"


def test_labels_that_cannot_be_learnt_are_an_error(write: Write) -> None:
    report = check_files(write("one.csv", "text,label\nrow one,a\nrow two,a\nbad\n"))
    assert kinds(report) == ["unusable file", "unusable row"]
    assert report.has_errors


def test_lengths_and_unknown_pieces_are_counted(write: Write, tokenizer: Tokenizer) -> None:
    rows = f"{GOOD}{'row number one, ' * 9},a\nrow ЖЖЖ Ж,b\n".replace("one, ", "one ")
    path = write("long.csv", f"text,label\n{rows}")
    report = check_files(path, tokenizer=tokenizer, max_length=30)
    lengths = report.splits[0].lengths
    assert lengths is not None
    encoded = [len(tokenizer.encode(f"row number {n}").ids) + 2 for n in range(40)]
    assert lengths.median == sorted(encoded)[20]
    assert lengths.longest == len(tokenizer.encode("row number one " * 9).ids) + 2
    assert (lengths.num_too_long, lengths.num_unknown > 0) == (1, True)
    assert finding(report, "too long").where == f"{path}, line 42"
    assert "'Ж' 4" in finding(report, "unknown piece").example


def test_pair_is_as_long_as_its_frame(write: Write, tokenizer: Tokenizer) -> None:
    rows = "one,two,a\nrow,number,b\n" * 2
    report = check_files(write("p.csv", f"premise,hypothesis,label\n{rows}"), tokenizer=tokenizer)
    ids = [len(tokenizer.encode(first, second).ids) for first, second in (("one", "two"), ("row", "number"))]
    assert report.splits[0].lengths.longest == max(ids)


@pytest.mark.parametrize(
    ("name", "content", "labels"),
    [
        ("t.conll", "Anna B-PER\ngoes O\n\nhome O\n", {"B-PER": 1, "O": 2}),
        ("c.jsonl", '{"question": "?", "choices": ["a", "b"], "label": 1}\n', {"choice 2": 1}),
        (
            "q.jsonl",
            '{"question": "Who?", "context": "Me.", "answer": "Me", "answer_start": 0}\n'
            '{"question": "Why?", "context": "Me.", "answer": null, "answer_start": null}\n',
            {"answered": 1, "unanswerable": 1},
        ),
        ("m.jsonl", '{"text": "a b", "tags": ["x", "y"]}\n{"text": "c", "tags": []}\n', {"x": 1, "y": 1}),
    ],
)
def test_every_kind_of_row_is_looked_at(name: str, content: str, labels: dict[str, int], write: Write) -> None:
    report = check_files(write(name, content))
    assert report.splits[0].labels == labels
    assert not report.has_errors


def test_answers_out_of_range_are_told(write: Write) -> None:
    rows = [
        {"question": "?", "context": "Me.", "answers": [{"text": "Me", "answer_start": start}]} for start in (0, 1, 99)
    ]
    path = write("q.jsonl", "\n".join(map(json.dumps, rows)))
    found = finding(check_files(path), "unusable row (LB-866)")
    assert found.where == f"{path}, line 2; {path}, line 3"


def test_folder_of_a_named_task_is_looked_through(tmp_path: Path) -> None:
    folder = tmp_path / "RTE"
    folder.mkdir()
    header = "index\tsentence1\tsentence2\tlabel\n"
    rows = [f"{n}\tone {n}\ttwo\t{'not_' * (n % 2)}entailment\n" for n in range(24)]
    (folder / "train.tsv").write_text(header + "".join(rows))
    (folder / "dev.tsv").write_text(header + "".join(rows[:2]))
    report = check_dataset(DATASETS["rte"], tmp_path)
    assert [split.num_rows for split in report.splits] == [24, 2]
    assert report.said == (f"{tmp_path}: rte", "test: no such file")
    assert kinds(report) == ["both trained and evaluated on"]


def test_file_of_squad_with_an_answer_out_of_range_is_told(tmp_path: Path) -> None:
    question = {"id": "q", "question": "?", "answers": [{"text": "Me", "answer_start": 7}]}
    content = {"version": "1.1", "data": [{"paragraphs": [{"context": "Me.", "qas": [question]}]}]}
    (tmp_path / "train-v1.1.json").write_text(json.dumps(content))
    report = check_dataset(DATASETS["squad"], tmp_path)
    assert [found.kind for found in report.findings] == ["unusable file (LB-802)"]
    assert report.has_errors


def test_folder_without_the_task_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LitebertError, match="LB-820"):
        check_dataset(DATASETS["rte"], tmp_path)


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["data", "check", *map(str, arguments)])
    if isinstance(result.exception, LitebertError):
        raise result.exception
    return result.exit_code, result.output


def test_exit_code_is_3_where_training_would_stop(write: Write) -> None:
    good, bad = write("g.csv", f"text,label\n{GOOD}"), write("b.csv", f"text,label\n{GOOD}x\n")
    assert run(good)[0] == 0
    assert run(bad)[0] == 3
    assert run(good, "--dev", bad)[0] == 3


def test_json_says_the_same(write: Write, tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "vocabulary")
    path = write("b.csv", f"text,label\n{GOOD}x\n")
    code, output = run(path, "--model", tmp_path / "vocabulary", "--json")
    report = json.loads(output)
    assert code == 3
    assert set(report) == {"notes", "splits", "findings"}
    assert report["findings"][0]["severity"] == "error"
    assert report["splits"][0]["labels"] == {"a": 20, "b": 20}
    assert report["splits"][0]["lengths"]["max_length"] == 256


def test_folder_needs_the_name_of_its_task(tmp_path: Path) -> None:
    with pytest.raises(LitebertError, match="LB-869"):
        run(tmp_path)
    with pytest.raises(LitebertError, match="LB-870") as caught:
        run(tmp_path, "--task", "mrcp")
    assert "did you mean mrpc?" in caught.value.expected


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["missing.csv"], "LB-303"),
        (["rows.xyz"], "LB-303"),
        (["rows.csv", "--column", "text=none"], "LB-851"),
        (["rows.csv", "--column", "nonsense"], "LB-850"),
        (["unclear.csv"], "LB-854"),
    ],
)
def test_what_was_typed_wrongly_is_an_error_of_the_user(
    arguments: list[str], code: str, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("rows.csv", f"text,label\n{GOOD}")
    write("unclear.csv", "eins,zwei\n" + "so it was,as it is,\n".replace(",\n", "\n") * 9)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LitebertError, match=code) as caught:
        run(*arguments)
    assert caught.value.exit_code == 1


def test_seen_rows_are_told_apart_by_text_and_answer() -> None:
    seen = Seen()
    rows = [("a", "x"), ("a", "x"), ("b", None), ("b", "y"), ("c", "z"), ("c", "w"), ("a", "x")]
    for number, (text, answer) in enumerate(rows, 1):
        seen.add([text], answer, number)
    assert seen.repeated() == Likeness(2, 2, 1)
    assert seen.contradictory() == Likeness(2, 6, 5)


@settings(deadline=None, max_examples=80)
@given(rows=st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["x", "y", None])), max_size=9))
def test_seen_counts_as_a_slow_count_does(rows: list[tuple[str, str | None]]) -> None:
    seen = Seen()
    for number, (text, answer) in enumerate(rows, 1):
        seen.add([text], answer, number)
    repeated, contradictory = seen.repeated(), seen.contradictory()
    assert (repeated.count if repeated else 0) == len(rows) - len(set(rows))
    labelled = [row for row in rows if row[1] is not None]
    expected = sum(len({a for t, a in labelled if t == text}) > 1 for text, _ in labelled)
    assert (contradictory.count if contradictory else 0) == expected


@settings(deadline=None, max_examples=60)
@given(content=st.binary(max_size=200))
def test_any_file_ends_in_a_report_or_an_error_for_people(
    content: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(b"text,label\nso good,a\nso bad,b\n" + content)
    assert str(check_files(path))
