"""Every verb gives the same answers for typed, piped and file inputs of any format, and
in every output format.
"""

import csv
import gzip
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import zstandard

from tests.tables import csv_text, jsonl

from .shell import assert_error, litebert, near
from .tiny import Desk
from .verbs import OF_TEXT, TEXTS, VERBS, Row

every_verb = pytest.mark.parametrize("name", VERBS)


def model_of(desk: Desk, name: str) -> tuple[object, object]:
    """Return the option that chooses a model for a verb."""
    return ("--model", getattr(desk, VERBS[name].run))


@cache
def typed_answers(desk: Desk, name: str) -> list[Any]:
    """Return the answers to all rows of a verb, each typed as its own command."""
    answers = list[Any]()
    for words in VERBS[name].typed:
        done = litebert(name, *words, *model_of(desk, name), "--json").ok
        # these take several texts, and print a list
        if name in {"score", "embed", "classify", "tag"}:
            (answer,) = done.json
            answers.append(answer)
        else:
            answers.append(done.json)
    return answers


def csv_rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text("utf-8").splitlines()))


def json_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


# ---- typed texts ---------------------------------------------------------------------


@every_verb
def test_a_typed_text_is_answered_as_text(desk: Desk, name: str) -> None:
    done = litebert(name, *VERBS[name].typed[0], *model_of(desk, name)).ok
    assert VERBS[name].shown in done.stdout
    assert done.stderr.startswith("model: ")


@every_verb
def test_a_typed_text_is_answered_as_json(desk: Desk, name: str) -> None:
    for answer in typed_answers(desk, name):
        if name == "embed":
            assert len(answer) == 32
            continue
        records = answer if isinstance(answer, list) else [answer]
        assert records
        for record in records:
            assert set(record) == VERBS[name].fields


def test_texts_may_begin_with_a_dash(desk: Desk) -> None:
    texts = ("- a bad film", "-3 of 10")
    done = litebert("classify", *texts, "--model", desk.reviews, "--json").ok
    assert len(done.json) == 2


# ---- files of any format -------------------------------------------------------------

OF_ROLES = ["csv", "tsv", "jsonl", "ndjson", "parquet", "jsonl.gz", "jsonl.zst"]
OF_LINES = ["txt", "txt.gz"]


def write_rows(folder: Path, rows: list[Row], suffix: str) -> Path:
    """Write the rows as one file of this format."""
    path = folder / f"rows.{suffix}"
    form, _, packing = suffix.partition(".")
    table = pd.DataFrame(rows)
    if form == "parquet":
        table.to_parquet(path)
        return path
    if form == "csv":
        text = table.to_csv(index=False)
    elif form == "tsv":
        text = table.to_csv(index=False, sep="\t")
    elif form == "txt":
        text = "".join(row["text"] + "\n" for row in rows)
    else:
        text = jsonl(rows)
    pack = {"": bytes, "gz": gzip.compress, "zst": zstandard.compress}[packing]
    path.write_bytes(pack(text.encode()))
    return path


def assert_answered_as_typed(
    desk: Desk, name: str, *words: object, stdin: str = ""
) -> None:
    """Check that a command prints the answers to the rows of a verb, in their order."""
    options = (*model_of(desk, name), "--json", "--quiet")
    rows = litebert(name, *words, *options, stdin=stdin).ok.rows
    assert rows == answered_rows(desk, name)


def answered_rows(desk: Desk, name: str) -> list[dict[str, object]]:
    """Return the lines of JSON that answer all rows of a verb."""
    rows = list[dict[str, object]]()
    for number, answer in enumerate(typed_answers(desk, name), 1):
        rows.append({"row": number, "answer": near(answer)})
    return rows


@every_verb
@pytest.mark.parametrize("suffix", OF_ROLES)
def test_rows_of_a_table_are_answered_like_typed_ones(
    desk: Desk, tmp_path: Path, name: str, suffix: str
) -> None:
    path = write_rows(tmp_path, VERBS[name].rows, suffix)
    assert_answered_as_typed(desk, name, path)


@pytest.mark.parametrize("name", OF_TEXT)
@pytest.mark.parametrize("suffix", OF_LINES)
def test_lines_of_a_text_are_answered_like_typed_ones(
    desk: Desk, tmp_path: Path, name: str, suffix: str
) -> None:
    path = write_rows(tmp_path, VERBS[name].rows, suffix)
    assert_answered_as_typed(desk, name, path)


@pytest.mark.parametrize("name", OF_TEXT)
def test_lines_of_standard_input_are_answered_like_typed_ones(
    desk: Desk, name: str
) -> None:
    lines = [row["text"] + "\n" for row in VERBS[name].rows]
    assert_answered_as_typed(desk, name, "-", stdin="".join(lines))


@pytest.mark.parametrize("name", OF_TEXT)
def test_rows_of_several_files_are_numbered_through(
    desk: Desk, tmp_path: Path, name: str
) -> None:
    first, *others = VERBS[name].rows
    paths = [
        write_rows(tmp_path, [first], "jsonl"),
        write_rows(tmp_path, others, "txt"),
    ]
    assert_answered_as_typed(desk, name, *paths)


def test_a_file_may_be_named_by_its_address(desk: Desk, tmp_path: Path) -> None:
    path = write_rows(tmp_path, VERBS["embed"].rows, "tsv")
    assert_answered_as_typed(desk, "embed", f"file://{path}")


def test_each_text_of_a_folder_is_a_row(desk: Desk, tmp_path: Path) -> None:
    folder = tmp_path / "new"
    folder.mkdir()
    (folder / "a.txt").write_text(TEXTS[0])
    (folder / "b.txt").write_text(TEXTS[1])
    words = ("classify", "new/", "--model", desk.reviews, "--json")
    rows = litebert(*words, cwd=tmp_path).ok.rows
    assert [row["id"] for row in rows] == ["a.txt", "b.txt"]


# ---- columns -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "heading"),
    [
        pytest.param(["--column", "body"], ["id", "body"], id="a name"),
        pytest.param(["--column", "text=body"], ["id", "body"], id="a role"),
        pytest.param(["--column", "2", "--column", "header=no"], None, id="a number"),
        pytest.param(
            ["--column", "header=no", "--column", "text=2"],
            None,
            id="a number of a role",
        ),
    ],
)
def test_a_column_is_chosen_by_name_role_or_number(
    desk: Desk, tmp_path: Path, options: list[str], heading: list[str] | None
) -> None:
    rows: list[Sequence[object]] = [] if heading is None else [heading]
    rows.extend(enumerate(TEXTS, 1))
    path = tmp_path / "t.csv"
    path.write_text(csv_text(rows))
    words = ("embed", path, *options, *model_of(desk, "embed"), "--json", "--quiet")
    answers = [row["answer"] for row in litebert(*words).ok.rows]
    assert answers == near(typed_answers(desk, "embed"))


@pytest.mark.parametrize("role", ["second", "pair"])
@pytest.mark.parametrize("is_named_so", [True, False])
def test_the_column_of_a_second_text_may_have_either_name(
    desk: Desk, tmp_path: Path, role: str, is_named_so: bool
) -> None:
    model = ("--model", desk.reviews, "--json")
    pairs = ("--pair", TEXTS[0]) * len(TEXTS)
    expected = litebert("classify", *TEXTS, *pairs, *model).ok.json

    column = role if is_named_so else "b"
    rows = [("text", column), *((text, TEXTS[0]) for text in TEXTS)]
    path = tmp_path / "t.csv"
    path.write_text(csv_text(rows))
    options = () if is_named_so else ("--column", f"{role}=b")
    done = litebert("classify", path, *options, *model).ok
    assert [row["answer"] for row in done.rows] == near(expected)


def test_choices_stand_in_the_columns_of_the_training(desk: Desk) -> None:
    table = desk.table("choices.csv")
    done = litebert("choose", table, "--model", desk.choices, "--json", "--quiet").ok
    assert done.rows
    assert all("answer" in row for row in done.rows)


@pytest.mark.parametrize("option", ["--context", "--file"])
def test_one_context_serves_all_questions(
    desk: Desk, tmp_path: Path, option: str
) -> None:
    questions = tmp_path / "q.txt"
    questions.write_text("Who left?\nWhere?\n")
    report = tmp_path / "report.txt"
    report.write_text(TEXTS[0])
    context = TEXTS[0] if option == "--context" else report
    model = ("--model", desk.spans, "--json")
    rows = litebert("answer", questions, option, context, *model).ok.rows

    assert len(rows) == 2
    for row, question in zip(rows, ("Who left?", "Where?"), strict=True):
        typed = litebert("answer", question, "--context", TEXTS[0], *model).ok
        assert row["answer"] == near(typed.json)


# ---- outputs -------------------------------------------------------------------------


@every_verb
def test_answers_are_written_as_lines_of_json(
    desk: Desk, tmp_path: Path, name: str
) -> None:
    path = write_rows(tmp_path, VERBS[name].rows, "jsonl")
    output = tmp_path / "a.jsonl"
    words = (path, *model_of(desk, name), "--output", output, "--quiet")
    done = litebert(name, *words).ok
    assert done.stdout == ""
    assert f"{len(VERBS[name].rows)} rows" in done.stderr
    assert json_lines(output) == answered_rows(desk, name)


@every_verb
def test_the_answer_to_a_typed_text_is_written_as_a_line_of_json(
    desk: Desk, tmp_path: Path, name: str
) -> None:
    output = tmp_path / "a.jsonl"
    words = (*VERBS[name].typed[0], *model_of(desk, name), "--output", output)
    assert litebert(name, *words).ok.stdout == ""
    assert json_lines(output) == answered_rows(desk, name)[:1]


@every_verb
def test_answers_are_written_as_a_table_in_their_order(
    desk: Desk, tmp_path: Path, name: str
) -> None:
    path = write_rows(tmp_path, VERBS[name].rows, "jsonl")
    output = tmp_path / "a.csv"
    assert litebert(name, path, *model_of(desk, name), "--output", output).ok
    table = csv_rows(output)
    numbers = [str(number) for number in range(1, len(VERBS[name].rows) + 1)]
    assert [row["row"] for row in table] == numbers
    for row in table:
        assert row["error"] == ""
        assert len(row) >= 3


@pytest.mark.parametrize(
    ("name", "field"),
    [("order", "probability"), ("similar", "cosine"), ("choose", "index")],
)
def test_the_fields_of_an_answer_are_columns_of_the_table(
    desk: Desk, tmp_path: Path, name: str, field: str
) -> None:
    path = write_rows(tmp_path, VERBS[name].rows, "jsonl")
    output = tmp_path / "a.csv"
    assert litebert(name, path, *model_of(desk, name), "--output", output).ok
    cells = [float(row[field]) for row in csv_rows(output)]
    assert cells == near([float(answer[field]) for answer in typed_answers(desk, name)])


@pytest.fixture
def numbered_texts(tmp_path: Path) -> Path:
    path = tmp_path / "t.jsonl"
    path.write_text(jsonl([{"id": 7, "body": "Anna left."}, {"id": 8, "body": 42}]))
    return path


def test_an_answer_has_the_id_of_its_row(desk: Desk, numbered_texts: Path) -> None:
    words = ("classify", numbered_texts, "--column", "body")
    rows = litebert(*words, "--model", desk.reviews, "--json").ok.rows
    assert [row["id"] for row in rows] == ["7", "8"]


def test_a_table_of_answers_has_the_ids_and_the_texts(
    desk: Desk, numbered_texts: Path, tmp_path: Path
) -> None:
    output = tmp_path / "a.csv"
    words = ("classify", numbered_texts, "--column", "body", "--output", output)
    assert litebert(*words, "--model", desk.reviews).ok
    first, second = csv_rows(output)
    assert list(first)[:4] == ["row", "id", "text", "labels"]
    assert first["id"] == "7"
    assert first["text"] == "Anna left."
    assert second["id"] == "8"
    assert second["text"] == "42"


def test_a_table_of_scores_names_the_score_in_its_heading_only(
    desk: Desk, numbered_texts: Path, tmp_path: Path
) -> None:
    words = ("classify", numbered_texts, "--column", "body", "--model", desk.stars)
    assert litebert(*words, "--output", tmp_path / "a.csv").ok
    rows = csv_rows(tmp_path / "a.csv")
    assert [*rows[0]] == ["row", "id", "text", "values.score", "error"]

    # JSON keeps the fields that every classifier has
    assert litebert(*words, "--output", tmp_path / "a.jsonl").ok
    for row, line in zip(rows, json_lines(tmp_path / "a.jsonl"), strict=True):
        assert line["answer"]["labels"] == ["score"]
        assert float(row["values.score"]) == near(line["answer"]["values"]["score"])


# ---- rows that cannot be answered ----------------------------------------------------


def test_a_text_of_several_sentences_is_ordered_at_its_joins(
    desk: Desk, tmp_path: Path
) -> None:
    text = "Anna left. Bert came. It was night."
    model = ("--model", desk.base)
    joins = litebert("order", text, *model, "--json").ok.json
    assert len(joins) == 2

    (tmp_path / "t.txt").write_text(f"{text}\nOne sentence only\n")
    (tmp_path / "t.csv").write_text("first,second\nAnna left.,Bert came.\n")
    words = ("order", "t.txt", "t.csv", *model, "--output", "a.csv")
    assert litebert(*words, cwd=tmp_path).ok
    several, one, pair = csv_rows(tmp_path / "a.csv")
    assert json.loads(several["answer"]) == near(joins)
    assert "needs two sentences" in one["error"]
    assert pair["probability"]


def fill_lines(desk: Desk, lines: str | bytes | None) -> Any:
    words = ("fill", "-", "--model", desk.base, "--json", "--top", 1)
    return litebert(*words, stdin=lines)


def test_a_line_that_cannot_be_answered_is_skipped_and_counted(desk: Desk) -> None:
    done = fill_lines(desk, "Anna [MASK].\nno blank\nBert [MASK].").ok
    first, second, third = done.rows
    assert first.keys() == third.keys() == {"row", "answer"}
    assert second.keys() == {"row", "error"}
    assert "1 of them skipped" in done.stderr


def test_offsets_do_not_count_a_byte_order_mark(desk: Desk) -> None:
    (row,) = fill_lines(desk, "\ufeffAnna [MASK].\r\n").ok.rows
    assert row["answer"][0]["offsets"] == [[5, 11]]


def test_a_line_that_is_not_utf8_is_named(desk: Desk) -> None:
    done = fill_lines(desk, b"A [MASK].\nB\xf6se [MASK]\nC [MASK].\n")
    answered = [row["row"] for row in done.rows if "answer" in row]
    assert answered == [1, 3]
    assert "line 2: not UTF-8 (byte 0xf6" in done.stderr


def test_lines_of_which_none_can_be_answered_are_an_error(desk: Desk) -> None:
    done = fill_lines(desk, "no blank\nnone here\n")
    assert_error(done, 1, "no row has an answer")


@pytest.mark.parametrize("lines", ["", None], ids=["empty", "closed"])
def test_empty_standard_input_is_an_error(desk: Desk, lines: str | None) -> None:
    done = fill_lines(desk, lines)
    assert_error(done, 1, "LB-853")
    assert done.stdout == ""


@pytest.mark.parametrize("name", ["embed", "classify"])
def test_empty_standard_input_leaves_no_output(
    desk: Desk, tmp_path: Path, name: str
) -> None:
    output = tmp_path / "answers.jsonl"
    words = (name, "-", *model_of(desk, name), "--output", output)
    assert_error(litebert(*words, stdin=""), 1, "LB-853")
    assert list(tmp_path.iterdir()) == []
