"""A new user's first day with their own text and tables, and the messages that they
see.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from litebert import Run
from litebert.report.finetuning import usage_of
from litebert.runs import RunFolder, read_answers
from tests.waiting import DEADLINE, exit_code

from .shell import COMMAND, QUICK, assert_error, litebert, story
from .tiny import PRETRAIN, Desk, rows

LOUD = shlex.join(QUICK[:-1])
SHORT = shlex.join(QUICK)
LONG = f"{SHORT} objective.max_seq_length=64 train.steps=1000000000"
CONTINUED = (
    "--from",
    "BASE",
    *QUICK,
    "--sentences",
    "line",
    "--held-out",
    0.2,
    "objective.max_seq_length=64",
)
INPUT = r"standard input|(?<![\w-])-(?![\w-])"

# A command that succeeds, and regular expressions for what its output contains and does
# not contain.
OUTPUTS: dict[str, tuple[str, str, str]] = {
    "pieces that are unknown": (
        "embed 'A cat.' 'собака бежит'",
        "note: 'собака бежит' .* unknown pieces",
        "",
    ),
    "a full stop is no part of a word": (
        "tag 'Lena went to Oslo.' --model RUNS/tags",
        r"\bOslo/",
        "",
    ),
    "the column used in training": (
        "classify both.csv --model RUNS/tickets --json",
        r'"row": 1, "answer"',
        "",
    ),
    "blank lines end documents": (
        "corpus check STORIES",
        "48 documents",
        r"\b1 (inputs|documents|rows|files)\b",
    ),
    "a few rows to evaluate on": (
        f"finetune REVIEWS --model BASE {SHORT}",
        "chance",
        "",
    ),
    "a note, once": (
        f"finetune REVIEWS --model BASE --seeds 1,2 {LOUD}",
        "problem: class",
        r"(problem: class).*\1",
    ),
    "texts all alike": (
        "evaluate RUNS/stars --data alike.csv",
        "mean score",
        "answer to dev is the same: (?!.*text)",
    ),
    "more sequences than are measured": (
        "evaluate BASE --data many.jsonl --column b",
        "only 1,024 of 1,100 seq",
        "",
    ),
    "a long time": (
        f"pretrain --corpus CORPUS --preset tiny --dry-run {LONG}",
        "time",
        r"\d{3,}h",
    ),
    "help of fill": ("fill --help", INPUT, ""),
    "ndjson to learn from": (
        "tokenizer train t.ndjson --vocab-size 50 --output v",
        "50 pieces in v",
        "",
    ),
    **{
        f"no commonest label of {name}": (
            f"evaluate RUNS/{name} --data {name.upper()}",
            said,
            "most common label",
        )
        for name, said in {
            "stars": "mean score",
            "tags": "most common tag",
            "spans": "no answer",
        }.items()
    },
    **{
        f"the packaged model: {typed.split()[0]}": (typed, said, "no model")
        for typed, said in {
            "fill 'A [MASK].' --model litebert": r"\d%",
            "evaluate litebert --data STORIES": "masked_lm_accuracy",
            f"finetune REVIEWS --model litebert --dry-run {SHORT}": (
                "model litebert, H 384"
            ),
            "quantize litebert out --texts few.txt": "bytes, .* before",
            f"pretrain STORIES --from litebert --dry-run --held-out 0.2 {SHORT}": (
                "H 384 x 6 layers"
            ),
        }.items()
    },
}


@pytest.mark.parametrize(("typed", "present", "absent"), OUTPUTS.values(), ids=OUTPUTS)
def test_commands_inform_a_new_user(
    desk: Desk, tmp_path: Path, typed: str, present: str, absent: str
) -> None:
    (tmp_path / "few.txt").write_text("Anna left.\n" * 20)
    (tmp_path / "both.csv").write_text("text,body\n,Anna left.\n")
    (tmp_path / "alike.csv").write_text(
        "text,score\n" + "".join(f"Anna left.,{n / 7}\n" for n in range(9))
    )
    (tmp_path / "t.ndjson").write_text(json.dumps({"text": story(1) * 9}) + "\n")
    (tmp_path / "many.jsonl").write_text('{"b": "Anna left. Bert came."}\n' * 1_100)
    done = desk.run(tmp_path, *shlex.split(typed)).ok
    lines = [
        line
        for line in (done.stdout + done.stderr).splitlines()
        if not line.startswith("model: ")
    ]
    said = " ".join(" ".join(lines).split())
    assert re.search(present, said), said
    assert not absent or not re.search(absent, said), said


# ---- empty texts ---------------------------------------------------------------------


def test_a_text_without_words_is_refused_by_a_dry_run(tmp_path: Path) -> None:
    (tmp_path / "blank.txt").write_text("\n\n   \n")
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(
        arrow.table({"text": arrow.array([], arrow.string())}),
        tmp_path / "empty.parquet",
    )
    for name in ("blank.txt", "empty.parquet"):
        assert_error(
            litebert("pretrain", name, *PRETRAIN, *QUICK, "--dry-run", cwd=tmp_path),
            1,
            name,
        )


# ---- pretraining on the user's own text ----------------------------------------------


@pytest.mark.parametrize("documents", [1, 5, 40])
def test_the_default_works_for_any_text(tmp_path: Path, documents: int) -> None:
    text = tmp_path / "my.txt"
    between = "" if documents == 1 else "\n"  # a blank line between stories
    text.write_text(between.join(map(story, range(max(documents, 5)))))
    assert litebert("pretrain", "my.txt", *PRETRAIN, *QUICK, cwd=tmp_path).ok
    assert rows(tmp_path / "runs" / "albert")[-1]["kind"] == "eval"

    same = ("pretrain", "my.txt", *PRETRAIN, *QUICK[:-1])
    again = litebert(*same, cwd=tmp_path)
    assert "already finished" in again.stderr and "building" not in again.stderr
    other_size = litebert(*same, "--vocab-size", 50, cwd=tmp_path)
    assert_error(other_size, 1, "LB-105", "50")

    text.write_text("\n".join(map(story, range(50, 60))))
    assert_error(litebert(*same, cwd=tmp_path), 1, "LB-333")
    # as that advises, but the vocabulary is of the former text
    (tmp_path / "runs/albert/corpus").rename(tmp_path / "gone")
    assert_error(litebert(*same, cwd=tmp_path), 1, "LB-105")


def test_a_continuation_has_a_gentler_rate_and_says_when_it_is_worse_than_its_start(
    desk: Desk, tmp_path: Path
) -> None:
    assert desk.run(tmp_path, "pretrain", "STORIES", *CONTINUED, "--name", "gentle").ok
    gentle = Run.open(tmp_path / "runs/gentle")
    start = Run.open(desk.base)
    rate = "optim.learning_rate"
    assert gentle.settings[rate] < start.settings[rate]

    wild = ["--name", "wild", "optim.learning_rate=1", "train.steps=3"]
    done = desk.run(tmp_path, "pretrain", "STORIES", *CONTINUED, *wild).ok
    losses = [
        row["masked_lm_loss"]
        for row in rows(tmp_path / "runs" / "wild")
        if row["kind"] == "eval"
    ]
    assert losses[-1] > losses[0] + 0.5
    assert re.search(r"step 0|worse|rose", done.stdout + done.stderr), done


def test_the_card_of_a_model_says_how_it_was_made(desk: Desk) -> None:
    card = (desk.reviews / "model" / "README.md").read_text("utf-8")
    assert "reviews.csv" in card and re.search(r"[0-9a-f]{12,}", card)
    assert not re.search(r"(?m)^# model$", card)


# ---- rows ----------------------------------------------------------------------------

ROWS = {
    "blank.csv": ('text,n\nAnna,1\n"   ",2\n"",3\n,4\n', [1]),
    "blank.jsonl": (
        '{"text": "Anna"}\n{"text": "   "}\n{"text": ""}\n{"text": null}\n',
        [1],
    ),
    "lines.csv": ('text,n\nAnna,1\n"two\nlines",2\nBert,3\nClara,4\n', [1, 2, 3, 4]),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_keep_their_numbers_and_blank_rows_get_no_answer(
    desk: Desk, tmp_path: Path, name: str
) -> None:
    text, answered = ROWS[name]
    (tmp_path / name).write_text(text)
    done = litebert("classify", tmp_path / name, "--model", desk.reviews, "--json").rows
    assert [row["row"] for row in done] == [1, 2, 3, 4]
    assert [row["row"] for row in done if "answer" in row] == answered


# ---- the next step -------------------------------------------------------------------


def test_the_next_command_of_a_run_has_a_held_out_text(desk: Desk) -> None:
    command, python = usage_of(RunFolder.open(desk.reviews))
    words = shlex.split(command)
    texts = [row.text for row in read_answers(desk.reviews)["dev"]]
    assert words[2] in texts
    assert words[2] in python


def test_a_model_without_the_head_is_refused_before_the_columns_of_a_file(
    desk: Desk, tmp_path: Path
) -> None:
    (tmp_path / "new.csv").write_text("Message,Channel\nso it was,mail\n")
    done = litebert("classify", tmp_path / "new.csv", "--model", desk.base)
    assert_error(done, 1, "LB-615")
    done = litebert("embed", tmp_path / "new.csv", "--model", desk.base)
    assert "add --column text=Message" in done.stderr


def test_a_command_that_fails_before_its_first_row_leaves_no_file(
    desk: Desk, tmp_path: Path
) -> None:
    (tmp_path / "new.csv").write_text("Message,Channel\nso it was,mail\n")
    output = tmp_path / "vectors.csv"
    done = litebert(
        "embed", tmp_path / "new.csv", "--model", desk.base, "--output", output
    )
    assert "LB-944" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.csv"]


def test_several_files_are_searched(desk: Desk, tmp_path: Path) -> None:
    for name, text in {
        "one.txt": "a cat sleeps",
        "two.txt": "the bread is old",
    }.items():
        (tmp_path / name).write_text(text + "\n")
    files = [tmp_path / "one.txt", tmp_path / "two.txt"]
    done = litebert("search", "a cat", *files, "--model", desk.base)
    assert "a cat sleeps" in done.ok.stdout
    assert "the bread is old" in done.stdout


def test_a_role_as_an_option_is_told_the_flag_of_columns() -> None:
    done = litebert("finetune", "reviews.csv", "--label", "Category")
    assert "--column label=NAME" in done.stderr


def test_a_fine_tuned_model_names_the_model_that_fills(desk: Desk) -> None:
    done = litebert("fill", "a [MASK] sleeps", "--model", desk.reviews)
    assert "LB-612" in done.stderr
    start = RunFolder.open(desk.reviews).setting("model.start")
    assert f"--model {shlex.quote(start)}" in done.stderr


# ---- signals and pipes ---------------------------------------------------------------

AT_IMPORT = """
import importlib.abc, runpy, signal, sys
class Interrupting(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "click":
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
sys.argv = ["litebert", "recipes", "list"]
runpy.run_module("litebert", run_name="__main__")
"""


def test_ctrl_c_during_the_first_imports_gives_no_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-c", AT_IMPORT],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert "Traceback" not in done.stderr
    assert done.returncode in (130, -2)


@pytest.mark.parametrize(
    "typed",
    ["% recipes list >&-", "WORLD_SIZE=2 % recipes list 2>&-", "% nothing >&- 2>&-"],
)
def test_closed_streams_and_a_missing_rank_are_no_error(typed: str) -> None:
    done = subprocess.run(
        typed.replace("%", shlex.join(COMMAND)),
        shell=True,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr, bool(done.stdout)) == (
        2 * ("nothing" in typed),
        "",
        "WORLD" in typed,
    )


@pytest.mark.skipif(os.name == "nt", reason="Windows does not delete this folder")
def test_a_current_folder_that_was_deleted_is_named(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    done = subprocess.run(
        ["/bin/sh", "-c", f'rmdir "$PWD"; {shlex.join(COMMAND)} recipes list'],
        cwd=gone,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("LB-010: the current folder does not exist")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has it")
@pytest.mark.parametrize("words", ["recipes list", "recipes list --json", "--help"])
def test_a_full_disk_behind_standard_output_is_named(words: str) -> None:
    buffered = {**os.environ, "PYTHONUNBUFFERED": ""}
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, *words.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=buffered,
        )
    assert done.returncode == 4
    first, second, *_ = done.stderr.splitlines()
    assert first == "LB-001: the disk is full while writing standard output"
    assert second.endswith("No space left on device")


@pytest.mark.parametrize(
    "words", ["config list", "embed TEXTS --model BASE --json --quiet"]
)
def test_a_closed_pipe_is_no_error(desk: Desk, tmp_path: Path, words: str) -> None:
    (tmp_path / "t.txt").write_text("Anna walked home.\n" * 600)
    typed = [
        {"TEXTS": str(tmp_path / "t.txt"), "BASE": str(desk.base)}.get(word, word)
        for word in words.split()
    ]
    with subprocess.Popen(
        [*COMMAND, *typed], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        running.stdout.readline()
        running.stdout.close()
        said = running.stderr.read().decode()
        code = exit_code(running)
    assert "Traceback" not in said
    assert code in (0, 141, -13), (code, said)
