"""Every verb gives the same answers for typed, piped and file inputs of any format, and
in every output format.
"""

import csv
import gzip
import json
from functools import cache
from pathlib import Path

import pandas as pd
import pytest
import zstandard

from .shell import assert_error, litebert, near
from .tiny import Desk
from .verbs import OF_TEXT, TEXTS, VERBS, Row

FORMATS = [
    "csv",
    "tsv",
    "jsonl",
    "ndjson",
    "parquet",
    "jsonl.gz",
    "jsonl.zst",
    "txt",
    "txt.gz",
    "stdin",
    "files",
]
CASES = [
    (name, kind)
    for name in VERBS
    for kind in FORMATS
    if name in OF_TEXT or kind.split(".")[0] not in ("txt", "stdin", "files")
]


def write_rows(folder: Path, rows: list[Row], kind: str) -> list[Path]:
    """Write the rows as files of one format."""
    if kind == "files":
        return [
            *write_rows(folder, rows[:1], "jsonl"),
            *write_rows(folder, rows[1:], "txt"),
        ]
    path, (base, _, packed) = folder / f"rows.{kind}", kind.partition(".")
    if base == "parquet":
        pd.DataFrame(rows).to_parquet(path)
        return [path]
    if base in ("csv", "tsv"):
        text = pd.DataFrame(rows).to_csv(
            index=False, sep="," if base == "csv" else "\t"
        )
    else:
        text = "".join(
            (row["text"] if base == "txt" else json.dumps(row)) + "\n" for row in rows
        )
    pack = {"": bytes, "gz": gzip.compress, "zst": zstandard.compress}[packed]
    path.write_bytes(pack(text.encode()))
    return [path]


@cache
def single_answers(desk: Desk, name: str) -> list[object]:
    verb = VERBS[name]
    found = [
        litebert(name, *words, "--model", getattr(desk, verb.run), "--json")
        for words in verb.typed
    ]
    assert {done.code for done in found} == {0}, found
    # these take several texts: a list
    several = name in {"score", "embed", "classify", "tag"}
    return [done.json[0] if several else done.json for done in found]


@pytest.mark.parametrize("name", VERBS)
def test_a_typed_text_is_answered_as_text_and_as_json(desk: Desk, name: str) -> None:
    verb = VERBS[name]
    done = litebert(name, *verb.typed[0], "--model", getattr(desk, verb.run)).ok
    assert verb.shown in done.stdout
    assert done.stderr.splitlines()[0].startswith("model: ")
    for answer in single_answers(desk, name):
        if name == "embed":
            assert len(answer) == 32
            continue
        for each in answer if isinstance(answer, list) else [answer]:
            assert set(each) == verb.fields


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_rows_of_any_file_are_answered_like_typed_ones(
    desk: Desk, tmp_path: Path, name: str, kind: str
) -> None:
    verb = VERBS[name]
    words: list[object] = ["-"]
    typed = "".join(row.get("text", "") + "\n" for row in verb.rows)
    if kind != "stdin":
        words = [
            f"file://{path}" if kind == "tsv" else path
            for path in write_rows(tmp_path, verb.rows, kind)
        ]
    done = litebert(
        name,
        *words,
        "--model",
        getattr(desk, verb.run),
        "--json",
        "--quiet",
        stdin=typed,
    ).ok
    assert [set(row) for row in done.rows] == [{"row", "answer"}] * len(verb.rows)
    assert [row["row"] for row in done.rows] == [*range(1, len(verb.rows) + 1)]
    assert [row["answer"] for row in done.rows] == near(single_answers(desk, name))


@pytest.mark.parametrize("name", VERBS)
def test_answers_go_to_lines_or_a_table_and_rows_keep_their_order(
    desk: Desk, tmp_path: Path, name: str
) -> None:
    verb = VERBS[name]
    (path,) = write_rows(tmp_path, verb.rows, "jsonl")
    asked = {"a.jsonl": [path], "a.csv": [path], "typed.jsonl": verb.typed[0]}
    for output, words in asked.items():
        given = (
            *words,
            "--model",
            getattr(desk, verb.run),
            "--output",
            tmp_path / output,
        )
        done = litebert(name, *given, *["--quiet"] * (words == [path]))
        assert (done.code, done.stdout) == (0, ""), done.stderr
        assert words != [path] or f"{len(verb.rows)} rows" in done.stderr
    expected = [
        {"row": n, "answer": near(answer)}
        for n, answer in enumerate(single_answers(desk, name), 1)
    ]
    files = (tmp_path / f"{stem}.jsonl" for stem in ("a", "typed"))
    lines, typed = (
        [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        for file in files
    )
    assert (lines, typed) == (expected, expected[:1])
    table = list(csv.DictReader((tmp_path / "a.csv").read_text("utf-8").splitlines()))
    assert [(row["row"], row["error"]) for row in table] == [
        (str(line["row"]), "") for line in lines
    ]
    field = {"order": "probability", "similar": "cosine", "choose": "index"}.get(name)
    if field:
        assert [float(row[field]) for row in table] == near(
            [float(line["answer"][field]) for line in lines]
        )
    else:
        assert len(table[0]) >= 3


COLUMNS = {
    "a name": (["body"], "id,body\n1,{0}\n2,{1}\n3,{2}\n"),
    "a role": (["text=body"], "id,body\n1,{0}\n2,{1}\n3,{2}\n"),
    "a number": (["2", "header=no"], "1,{0}\n2,{1}\n3,{2}\n"),
    "a number of a role": (["header=no", "text=2"], "1,{0}\n2,{1}\n3,{2}\n"),
}


@pytest.mark.parametrize(("columns", "table"), COLUMNS.values(), ids=COLUMNS)
def test_a_column_is_chosen_by_name_role_or_number(
    desk: Desk, tmp_path: Path, columns: list[str], table: str
) -> None:
    (tmp_path / "t.csv").write_text(table.format(*TEXTS))
    words = [word for column in columns for word in ("--column", column)]
    done = litebert(
        "embed", tmp_path / "t.csv", *words, "--model", desk.base, "--json", "--quiet"
    ).ok
    assert [row["answer"] for row in done.rows] == near(single_answers(desk, "embed"))


def test_an_answer_stands_beside_the_id_and_the_text_of_its_row(
    desk: Desk, tmp_path: Path
) -> None:
    rows = [{"id": 7, "body": "Anna left."}, {"id": 8, "body": 42}]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("classify", tmp_path / "t.jsonl", "--column", "body", "--model")
    done = litebert(*words, desk.reviews, "--json").ok
    assert [row["id"] for row in done.rows] == ["7", "8"]
    litebert(*words, desk.reviews, "--output", tmp_path / "a.csv").ok  # noqa: B018
    table = list(csv.DictReader((tmp_path / "a.csv").read_text("utf-8").splitlines()))
    assert list(table[0])[:4] == ["row", "id", "text", "labels"]
    assert [(row["id"], row["text"]) for row in table] == [
        ("7", "Anna left."),
        ("8", "42"),
    ]


def test_choices_stand_in_the_columns_of_the_training(desk: Desk) -> None:
    table = desk.table("choices.csv")
    done = litebert("choose", table, "--model", desk.choices, "--json", "--quiet").ok
    assert done.rows
    assert all("answer" in row for row in done.rows)


def test_each_text_of_a_folder_is_a_row(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    for name, text in zip("ab", TEXTS, strict=False):
        (tmp_path / "new" / f"{name}.txt").write_text(text)
    words = ("classify", "new/", "--model", desk.reviews, "--json")
    done = litebert(*words, cwd=tmp_path).ok
    assert [row["id"] for row in done.rows] == ["a.txt", "b.txt"]


@pytest.mark.parametrize("role", ["second", "pair"])
def test_the_column_of_a_second_text_may_have_either_name(
    desk: Desk, tmp_path: Path, role: str
) -> None:
    model = ("--model", desk.reviews, "--json")
    pairs = [word for _ in TEXTS for word in ("--pair", TEXTS[0])]
    expected = litebert("classify", *TEXTS, *pairs, *model).json
    for header, words in ((f"text,{role}", []), ("text,b", ["--column", f"{role}=b"])):
        (tmp_path / "t.csv").write_text(
            header + "\n" + "".join(f"{text},{TEXTS[0]}\n" for text in TEXTS)
        )
        done = litebert("classify", tmp_path / "t.csv", *words, *model)
        assert [row["answer"] for row in done.ok.rows] == near(expected)


def test_one_context_serves_all_questions(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text("Who left?\nWhere?\n")
    (tmp_path / "report.txt").write_text(TEXTS[0])
    words = ("answer", tmp_path / "q.txt", "--model", desk.spans, "--json")
    typed = litebert(*words, "--context", TEXTS[0])
    assert (typed.code, len(typed.rows)) == (0, 2), typed.stderr
    assert litebert(*words, "--file", tmp_path / "report.txt").rows == typed.rows


def test_a_text_of_several_sentences_is_ordered_at_its_joins(
    desk: Desk, tmp_path: Path
) -> None:
    text = "Anna left. Bert came. It was night."
    joins = litebert("order", text, "--model", desk.base, "--json").json
    (tmp_path / "t.txt").write_text(f"{text}\nOne sentence only\n")
    (tmp_path / "t.csv").write_text("first,second\nAnna left.,Bert came.\n")
    assert litebert(
        "order",
        "t.txt",
        "t.csv",
        "--model",
        desk.base,
        "--output",
        "a.csv",
        cwd=tmp_path,
    ).ok
    first, second, third = csv.DictReader(
        (tmp_path / "a.csv").read_text("utf-8").splitlines()
    )
    assert (
        len(joins) == 2
        and json.loads(first["answer"]) == near(joins)
        and third["probability"]
    )
    assert "needs two sentences" in second["error"]


def test_texts_may_begin_with_a_dash(desk: Desk) -> None:
    assert (
        len(
            litebert(
                "classify",
                "- a bad film",
                "-3 of 10",
                "--model",
                desk.reviews,
                "--json",
            ).ok.json
        )
        == 2
    )


def test_standard_input_may_have_a_bom_crlf_and_rows_that_cannot_be_answered(
    desk: Desk,
) -> None:
    words = ("fill", "-", "--model", desk.base, "--json", "--top", 1)
    done = litebert(*words, stdin="\ufeffAnna [MASK].\r\nno blank\nBert [MASK].")
    assert [set(row) for row in done.rows] == [
        {"row", "answer"},
        {"row", "error"},
        {"row", "answer"},
    ]
    assert done.rows[0]["answer"][0]["offsets"] == [[5, 11]]
    assert "1 of them skipped" in done.stderr
    done = litebert(*words, stdin=b"A [MASK].\nB\xf6se [MASK]\nC [MASK].\n")
    assert [row["row"] for row in done.rows if "answer" in row] == [1, 3]
    assert "line 2: not UTF-8 (byte 0xf6" in done.stderr
    assert_error(
        litebert(*words, stdin="no blank\nnone here\n"), 1, "no row has an answer"
    )
    assert litebert(*words, stdin=None).stdout == ""
