"""A new user's first day: one's own text and tables, what is said, and options that cannot act."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .desk import PRETRAIN, Desk
from .shell import COMMAND, QUICK, litebert, refusal, says, story

# ---- 7, 13: what is no text ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "word"),
    [(bytes(range(256)) * 10, "UTF-8"), ("Böse Wörter".encode("latin-1"), "UTF-8"), (b"", "empty"), (b" \n\n", "text")],
    ids=["bytes", "latin-1", "empty", "blank"],
)
def test_a_context_that_is_no_text_is_refused(desk: Desk, tmp_path: Path, data: bytes, word: str) -> None:
    (tmp_path / "report.txt").write_bytes(data)
    says(litebert("answer", "Who?", "--file", tmp_path / "report.txt", "--model", desk.spans), 1, "report.txt", word)


def test_a_long_context_shows_progress_or_is_quick(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "report.txt").write_text("Anna walked home . " * 3_000)
    started = time.monotonic()
    done = litebert("answer", "Who?", "--file", tmp_path / "report.txt", "--model", desk.spans)
    seconds = time.monotonic() - started
    assert done.code == 0
    said = [line for line in done.stderr.splitlines() if not line.startswith("model: ")]
    assert said or seconds < 1, f"{seconds:.1f} s without a line"


@pytest.mark.parametrize("kind", ["blank.txt", "empty.parquet"])
def test_what_cannot_be_trained_on_is_refused_by_the_plan(tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    if kind == "blank.txt":
        path.write_text("\n\n   \n")
    else:
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.table({"text": arrow.array([], arrow.string())}), path)
    done = litebert("pretrain", path, "--preset", "tiny", "--vocab-size", 70, *QUICK, "--dry-run", cwd=tmp_path)
    says(done, 1, kind)


def test_the_plan_of_a_distillation_is_not_silent(desk: Desk, tmp_path: Path) -> None:
    words = ["distil", desk.base, desk.stories, "--dry-run"]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": tmp_path}
    with subprocess.Popen([*COMMAND, *map(str, words)], **streams) as running:
        try:
            running.communicate(timeout=10)
        except subprocess.TimeoutExpired as late:
            assert late.stderr, "ten seconds without a word"
        finally:
            running.kill()


# ---- 14, 15, 16, 19: pretraining on one's own text ------------------------------------------------------------------


@pytest.mark.parametrize("documents", [1, 5, 40])
def test_the_default_works_for_any_text(tmp_path: Path, documents: int) -> None:
    join = "" if documents == 1 else "\n"
    (tmp_path / "my.txt").write_text(join.join(story(n) for n in range(max(documents, 5))))
    done = litebert("pretrain", "my.txt", *PRETRAIN, *QUICK, cwd=tmp_path)
    assert done.code == 0, done.stderr
    assert json.loads((tmp_path / "runs" / "albert" / "metrics.jsonl").read_text().splitlines()[-1])["kind"] == "eval"


def test_a_small_share_holds_out_one_document_at_least(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "my.txt").write_text("\n".join(story(n) for n in range(120)))
    words = ("corpus", "build", "my.txt", "--tokenizer", desk.tokenizer, "--documents", "blank-line", "--quiet")
    done = litebert(*words, "--held-out", 0.01, "--output", "c", "--workers", 1, "--json", cwd=tmp_path)
    assert done.code == 0, done.stderr
    assert done.json["held_out"]["documents"] >= 1


def test_rerunning_with_another_share_is_enough(tmp_path: Path) -> None:
    (tmp_path / "my.txt").write_text("\n".join(story(n) for n in range(5)))
    words = ("pretrain", "my.txt", *PRETRAIN, *QUICK)
    litebert(*words, "--held-out", 0.0001, cwd=tmp_path)
    done = litebert(*words, "--held-out", 0.5, "train.steps=2", cwd=tmp_path)
    if done.code:  # a finished run of its own may be refused, but by its settings
        says(done, 1, "settings")
        assert (tmp_path / "runs" / "albert" / "model").is_dir()


def test_a_continuation_that_is_worse_than_its_start_says_so(desk: Desk, tmp_path: Path) -> None:
    words = ("pretrain", desk.stories, "--from", desk.base, *QUICK, "--sentences", "line", "--held-out", 0.2)
    done = litebert(*words, "objective.max_seq_length=64", "optim.learning_rate=1", "train.steps=3", cwd=tmp_path)
    assert done.code == 0, done.stderr
    (log,) = tmp_path.glob("runs/*/metrics.jsonl")
    evaluations = [json.loads(line) for line in log.read_text().splitlines()]
    losses = [row["masked_lm_loss"] for row in evaluations if row["kind"] == "eval"]
    assert losses[-1] > losses[0] + 0.5
    assert re.search(r"step 0|worse|rose", done.stdout + done.stderr), done


def test_a_continuation_has_a_gentler_rate_than_a_start(desk: Desk, tmp_path: Path) -> None:
    words = ("pretrain", desk.stories, "--from", desk.base, *QUICK, "--sentences", "line", "--held-out", 0.2)
    assert litebert(*words, "objective.max_seq_length=64", cwd=tmp_path).code == 0
    rates = [
        litebert("config", "show", run, "--json").json["settings"]["optim.learning_rate"]
        for run in (desk.base, next((tmp_path / "runs").iterdir()))
    ]
    assert rates[1] < rates[0], rates


def test_a_few_rows_to_evaluate_on_are_remarked_in_the_terminal(desk: Desk, tmp_path: Path) -> None:
    done = litebert("finetune", desk.table("reviews.csv"), "--model", desk.base, *QUICK, cwd=tmp_path)
    assert "chance" in done.stdout + done.stderr


NAMED = {
    "fill": ["fill", "A [MASK].", "--model", "litebert"],
    "evaluate": ["evaluate", "litebert", "--data", "STORIES"],
    "finetune": ["finetune", "REVIEWS", "--model", "litebert", "--dry-run", *QUICK],
    "quantize": ["quantize", "litebert", "out", "--texts", "FEW"],
    "pretrain": ["pretrain", "STORIES", "--from", "litebert", "--dry-run", "--held-out", "0.2", *QUICK],
}


@pytest.mark.parametrize("words", NAMED.values(), ids=NAMED)
def test_the_packaged_model_is_called_litebert_everywhere(desk: Desk, tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "few.txt").write_text("Anna left.\n")
    names = {"STORIES": desk.stories, "REVIEWS": desk.table("reviews.csv"), "FEW": tmp_path / "few.txt"}
    done = litebert(*(names.get(word, word) for word in words), cwd=tmp_path)
    assert done.code == 0 or refusal(done)["code"] not in ("LB-620", "LB-675"), done.stderr
    assert "no model" not in done.stderr


def test_documents_end_at_the_same_places_in_every_verb(desk: Desk, tmp_path: Path) -> None:
    words = ("corpus", "build", desk.stories, "--tokenizer", desk.tokenizer, "--held-out", 0.2)
    done = litebert(*words, "--quiet", "--workers", 1, "--json", "--output", tmp_path / "c")
    assert done.code == 0, done.stderr
    assert done.json["train"]["documents"] + done.json["held_out"]["documents"] == 40
    checked = litebert("corpus", "check", desk.stories)
    assert "40 documents" in checked.stdout


# ---- 17, 18: rows and columns ---------------------------------------------------------------------------------------

EMPTY = {
    "csv": 'text,n\nAnna,1\n"   ",2\n"",3\n,4\n',
    "jsonl": '{"text": "Anna"}\n{"text": "   "}\n{"text": ""}\n{"text": null}\n',
    "tsv": "text\tn\nAnna\t1\n   \t2\n\t3\n\t4\n",
}


@pytest.mark.parametrize("kind", EMPTY)
def test_a_row_without_a_word_has_no_answer(desk: Desk, tmp_path: Path, kind: str) -> None:
    (tmp_path / f"t.{kind}").write_text(EMPTY[kind])
    rows = litebert("classify", tmp_path / f"t.{kind}", "--model", desk.reviews, "--json").rows
    assert ["answer" in row for row in rows] == [True, False, False, False]


@pytest.mark.parametrize("kind", ["csv", "tsv"])
def test_row_numbers_join_with_the_table(desk: Desk, tmp_path: Path, kind: str) -> None:
    mark = "," if kind == "csv" else "\t"
    lines = [f"text{mark}n", f"Anna{mark}1", f'"two\nlines"{mark}2', f"Bert{mark}3"]
    (tmp_path / f"t.{kind}").write_text("\n".join(lines) + "\n")
    rows = litebert("classify", tmp_path / f"t.{kind}", "--model", desk.reviews, "--json").rows
    assert [row["row"] for row in rows] == [1, 2, 3]


def test_a_run_reads_the_column_that_it_was_trained_on(desk: Desk) -> None:
    done = litebert("classify", desk.table("tickets.csv"), "--model", desk.tickets, "--json")
    assert done.code == 0, done.stderr
    assert len(done.rows) == 20


# ---- 20, 21: what is said -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["similar", "собака бежит", "кошка спит"], ["embed", "собака бежит"]])
def test_a_text_of_unknown_pieces_is_remarked(words: list[str]) -> None:
    done = litebert(*words)
    said = "\n".join(line for line in done.stderr.splitlines() if not line.startswith("model: "))
    assert done.code == 0
    assert re.search("piece|letter|vocabulary|unknown", said)


def test_a_full_stop_is_no_part_of_a_tagged_word(desk: Desk) -> None:
    (tagged,) = litebert("tag", "Lena went to Oslo.", "--model", desk.tags, "--json").json
    assert "Oslo" in [word["word"] for word in tagged]


def test_a_model_is_not_blamed_for_a_dev_set_of_equal_texts(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "alike.csv").write_text("text,score\n" + "".join(f"Anna left.,{n / 7}\n" for n in range(9)))
    done = litebert("evaluate", desk.stars, "--data", tmp_path / "alike.csv")
    assert done.code == 0, done.stderr
    assert "every answer to dev is the same: " not in done.stderr or "text" in done.stderr.split("the same: ")[1]


def test_a_finished_pretraining_builds_no_corpus(desk: Desk) -> None:
    words = [word for word in (*PRETRAIN, *QUICK) if word != "--quiet"]
    done = litebert("pretrain", "stories.txt", *words, "--held-out", 0.2, "--name", "base", cwd=desk.folder)
    assert "already finished" in done.stderr
    assert "building" not in done.stderr


def test_one_input_is_one_input(desk: Desk) -> None:
    assert not re.search(r"\b1 (inputs|documents|rows|files)\b", litebert("corpus", "check", desk.stories).stdout)


def test_notes_are_printed_once_for_all_seeds(desk: Desk, tmp_path: Path) -> None:
    words = [word for word in QUICK if word != "--quiet"]
    done = litebert("finetune", desk.table("reviews.csv"), "--model", desk.base, "--seeds", "1,2", *words, cwd=tmp_path)
    assert done.code == 0, done.stderr
    assert done.stderr.count("problem: classification") == 1


def test_a_long_time_is_told_in_days_or_years(desk: Desk, tmp_path: Path) -> None:
    words = ("pretrain", "--corpus", desk.corpus, "--preset", "tiny", *QUICK, "objective.max_seq_length=64")
    done = litebert(*words, "train.steps=1000000000", "--dry-run", cwd=tmp_path)
    assert done.code == 0, done.stderr
    assert not re.search(r"\d{3,}h", done.stdout), done.stdout


@pytest.mark.parametrize(
    ("verb", "word"), [("finetune", "multiple-choice"), ("fill", "standard input"), ("embed", "standard input")]
)
def test_help_lists_what_may_be_given(verb: str, word: str) -> None:
    said = " ".join(litebert(verb, "--help").stdout.split())
    assert word in said or (word == "standard input" and re.search(r"(?<![\w-])-(?![\w-])", said))


def test_the_card_of_a_run_says_how_it_was_made(desk: Desk) -> None:
    card = (desk.reviews / "model" / "README.md").read_text("utf-8")
    assert "reviews.csv" in card
    assert not re.search(r"(?m)^# model$", card)
    assert re.search(r"[0-9a-f]{12,}", card)


# ---- 22, 23, 24: options and advice ---------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", [["corpus", "check"], ["tokenizer", "train"]])
def test_ndjson_is_a_text_wherever_jsonl_is(tmp_path: Path, verb: list[str]) -> None:
    (tmp_path / "t.ndjson").write_text(json.dumps({"text": story(1) * 9}) + "\n")
    last = ["--vocab-size", 50, "--output", tmp_path / "v"] if verb[0] == "tokenizer" else []
    assert litebert(*verb, tmp_path / "t.ndjson", *last).code == 0


@pytest.mark.parametrize(("run", "table"), [("stars", "stars.csv"), ("tags", "tags.conll"), ("spans", "spans.jsonl")])
def test_only_labels_are_compared_with_the_commonest_label(desk: Desk, run: str, table: str) -> None:
    done = litebert("evaluate", getattr(desk, run), "--data", desk.table(table))
    assert done.code == 0, done.stderr
    assert "commonest label" not in done.stdout + done.stderr


# ---- 12: signals and pipes ------------------------------------------------------------------------------------------

AT_IMPORT = """
import importlib.abc, runpy, signal, sys
class Interrupting(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {name!r}:
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
sys.argv = ["litebert", "recipes", "list"]
runpy.run_module("litebert", run_name="__main__")
"""


def test_ctrl_c_during_the_first_imports_is_no_traceback() -> None:
    words = [sys.executable, "-c", AT_IMPORT.format(name="click")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr
    assert done.returncode in (130, -2)


PIPED = {"config list": ["config", "list"], "embed --json": ["embed", "TEXTS", "--model", "BASE", "--json", "--quiet"]}


@pytest.mark.parametrize("words", PIPED.values(), ids=PIPED)
def test_a_reader_that_leaves_is_no_mistake(desk: Desk, tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "t.txt").write_text("Anna walked home.\n" * 600)
    names = {"TEXTS": str(tmp_path / "t.txt"), "BASE": str(desk.base)}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([*COMMAND, *(names.get(word, word) for word in words)], **streams) as running:
        running.stdout.readline()
        running.stdout.close()
        said = running.stderr.read().decode()
        code = running.wait(60)
    assert "Traceback" not in said
    assert code in (0, 141, -13), (code, said)
