"""The command line as people meet it: mistakes, dashes, help, and files of texts."""

import io
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from litebert.cli import VERBS, cli
from litebert.errors import LitebertError
from litebert.terminal import harmless

from .conftest import Command


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield " ".join(path), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from leaves(found, (*path, name))


LEAVES = dict(leaves(cli))


@pytest.mark.parametrize("name", LEAVES)
def test_every_command_has_two_examples_that_parse(name: str) -> None:
    text = LEAVES[name].help or ""
    examples = [line.strip() for line in text.splitlines() if line.strip().startswith("litebert ")]
    assert len([line for line in examples if line.startswith(f"litebert {name}")]) >= 2
    for line in examples:
        words = shlex.split(line.split(" >")[0])[1:]
        command: click.Command = cli
        context = click.Context(cli, info_name="litebert")
        while isinstance(command, click.Group):
            found = command.get_command(context, words.pop(0))
            assert found is not None, line
            command = found
        command.make_context(command.name or "", words)


@pytest.mark.parametrize(
    ("words", "exit_code", "said"),
    [
        (["fill", "[MASK]", "--top", "-3"], 2, "range|at least"),
        (["serve", "--port", "99999"], 2, "--port"),
        (["serve", "--batch-tokens", "-5"], 2, "range|at least"),
        (["serve", "--queue", "0"], 2, "range|at least"),
        (["serve", "--threads", "-1"], 2, "not a whole number of at least 0"),
        (["serve", "--timeout-ms", "0"], 2, "range|at least"),
        (["serve", "--client-seconds", "0"], 2, "--client-seconds"),
        (["pretrain", "x.txt", "--vocab-size", "-1"], 2, "range|at least"),
        (["runs", "tail", "x", "--rows", "-3"], 2, "range|at least"),
        (["data", "check", "x.csv", "--max-length", "-1"], 2, "range|at least"),
        (["classify", "a", "--pair", "a", "--pair", "b"], 1, "LB-946"),
        (["pretrian"], 2, "pretrain"),
        (["fill", "[MASK]", "--precsion", "fp32"], 2, "--precision"),
        (["pretrain", "x.txt", "--name", "../x", "--preset", "tiny"], 1, "LB-"),
        (["pretrain", "--corpus", "x", "--name", "../x"], 1, "LB-920"),
        (["pretrain", "--corpus", "x", "--name", "\x1b[31m"], 1, "LB-920"),
        (["search", "a", "nowhere.txt"], 1, "LB-"),
        (["help", "nothing"], 2, "no such verb"),
        (["fill", "[MASK]", "--model", "runs/nowhere"], 1, "LB-620"),
    ],
)
def test_a_mistake_is_four_lines(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], exit_code: int, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = command(*words)
    assert done.exit_code == exit_code
    assert re.search(said, done.stderr)
    lines = [line for line in done.stderr.splitlines() if not line.startswith("model: ")]
    assert lines[0].startswith("LB-")
    assert [line.split(":")[0].strip() for line in lines[1:]] == ["received", "expected", "next"]
    assert "\x1b" not in done.stderr
    assert done.stdout == ""


def test_a_misspelt_preset_is_refused_before_any_work(
    command: Command, stories: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = command("pretrain", stories, "--preset", "mnii")
    assert done.exit_code == 1
    assert "mini" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_from_text_trains_no_vocabulary(
    command: Command, stories: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = command("pretrain", stories, "--preset", "tiny", "--dry-run", "--vocab-size", 90)
    assert done.exit_code == 0, done.stderr
    assert "vocabulary 90" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_texts_may_begin_with_a_dash(command: Command, classifier: Path) -> None:
    done = command("classify", "- a bad film", "-3 of 10", "--model", classifier, "--json")
    assert done.exit_code == 0, done.stderr
    assert len(json.loads(done.stdout)) == 2


def test_labels_cannot_steer_the_terminal(command: Command, classifier: Path) -> None:
    shown = command("classify", "Anna", "--model", classifier)
    assert "\x1b" not in shown.stdout
    assert "\x9b" not in shown.stdout
    as_json = command("classify", "Anna", "--model", classifier, "--json")
    assert "\\x1b[31mbad" in repr(json.loads(as_json.stdout)[0]["values"])
    assert harmless("plain ünïcode ✓\n") == "plain ünïcode ✓\n"


def test_names_and_data_cannot_steer_the_terminal(command: Command, corpus: Path, tmp_path: Path) -> None:
    bad = "\x1b[31m\x9b0m\U000e0001\u202e"
    rows = [f"text{bad},label", f"Anna {bad},good{bad}", *(f"Bert {n},bad{bad}" for n in range(9))]
    data = tmp_path / f"data{bad}.csv"
    data.write_text("\n".join(rows) + "\n", encoding="utf-8")
    text = tmp_path / f"text{bad}.txt"
    text.write_text(f"Anna {bad} walked.\n\nBert {bad}\x00 slept.\n", encoding="utf-8")
    run = tmp_path / "runs" / f"run{bad}"
    run.mkdir(parents=True)
    (run / "run.json").write_text(json.dumps({"settings": {"train.name": bad}}), encoding="utf-8")
    copy = tmp_path / f"corpus{bad}"
    shutil.copytree(corpus, copy)
    said = [
        command("data", "check", data),
        command("data", "check", data, "--json"),
        command("corpus", "check", text),
        command("corpus", "check", copy),
        command("config", "show", run, "--origin"),
        command("config", "show", run, "--json"),
        command("runs", "list", "--runs", run.parent),
        command("runs", "list", "--runs", run.parent, "--json"),
        command("runs", "compare", run, run.parent),
        command("report", run),
        command("tokenizer", "encode", f"Anna {bad}", "--tokenizer", corpus / "tokenizer"),
        command("recipes", "show", bad),
        command(bad),
    ]
    for done in said:
        shown = done.stdout + done.stderr
        assert shown
        assert not set(bad[0] + bad[5] + bad[-2:]) & set(shown), shown


def test_escapes_keep_the_meaning_of_json() -> None:
    for text in ("\x1b", "\x9b", "\U000e0001", "\u202e"):
        as_json = harmless(json.dumps(text, ensure_ascii=False))
        assert as_json.isascii()
        assert json.loads(as_json) == text


def test_the_first_line_says_which_model_answers(command: Command, pretrained: Path) -> None:
    done = command("fill", "Anna [MASK].", "--model", pretrained, "--top", 2)
    assert done.stderr.splitlines()[0] == f"model: {pretrained}"
    assert len(done.stdout.splitlines()) == 2


def test_debug_may_stand_anywhere(command: Command) -> None:
    with pytest.raises(LitebertError):
        command("recipes", "show", "nothing", "--debug")


def test_version_help_and_completion(command: Command) -> None:
    assert "litebert" in command("-V").stdout
    assert command("help", "corpus", "build").stdout == command("corpus", "build", "--help").stdout
    assert "_LITEBERT_COMPLETE" in command("completion", "bash").stdout
    assert set(VERBS) <= set(command("help").stdout.split())


def test_a_file_of_texts_is_answered_row_by_row(command: Command, classifier: Path, tmp_path: Path) -> None:
    rows = ["body,stars", '"Anna walked.",1', ",2", '"Bert slept.",3']
    (tmp_path / "reviews.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    output = tmp_path / "answers.jsonl"
    words = ("classify", tmp_path / "reviews.csv", "--column", "body", "--model", classifier)
    done = command(*words, "--output", output)
    assert done.exit_code == 0, done.stderr
    found = [json.loads(line) for line in output.read_text("utf-8").splitlines()]
    assert "answer" in found[0]
    assert len([row for row in found if "answer" in row]) >= 2
    assert [row["row"] for row in found] == sorted(row["row"] for row in found)
    assert "LB-941" in command(*words, "--output", output).stderr
    assert command(*words, "--output", output, "--force").exit_code == 0


def test_answers_are_resumed_where_they_stopped(command: Command, pretrained: Path, tmp_path: Path) -> None:
    texts, whole, other = tmp_path / "texts.txt", tmp_path / "whole.jsonl", tmp_path / "other.jsonl"
    texts.write_text("".join(f"Anna walked {n} times.\n" for n in range(600)), encoding="utf-8")
    words = ("embed", texts, "--model", pretrained, "--quiet")
    assert command(*words, "--output", whole).exit_code == 0
    code = f"from litebert.cli import run; run({[str(word) for word in (*words, '--output', other)]})"
    killer = "import os, signal, litebert.api.bulk as bulk\nwrite = bulk.AnswerFile.write\n"
    killer += "def once(self, chunk):\n    write(self, chunk)\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    killer += "bulk.AnswerFile.write = once\n"
    assert subprocess.run([sys.executable, "-c", killer + code], check=False).returncode == -9
    with open(f"{other}.unfinished", "ab") as file:
        file.write(b'{"row": 257, "ans')  # half a row
    assert "resuming after 256 rows" in command(*words, "--output", other).stderr
    assert other.read_bytes() == whole.read_bytes()
    assert not (tmp_path / "other.jsonl.unfinished").exists()


def test_standard_input_is_answered(command: Command, pretrained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    typed = "\ufeffAnna [MASK].\r\nno blank\nBert [MASK]."
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(typed.encode())))
    done = command("fill", "-", "--model", pretrained, "--json", "--top", 1, "--quiet")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert ["answer" in row for row in found] == [True, False, True]
    assert found[0]["answer"][0]["offsets"] == [[5, 11]]
    assert found[0]["answer"][0]["text"].endswith(".")
    assert "1 of them skipped" in done.stderr


def test_standard_input_is_utf8_as_files_are(
    command: Command, pretrained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a\nB\xf6se [MASK]\n")))
    done = command("fill", "-", "--model", pretrained)
    assert "LB-309: -, line 2: not UTF-8" in done.stderr
    monkeypatch.setattr("sys.stdin", None)
    assert command("fill", "-", "--model", pretrained).exit_code == 0


def test_a_pretrained_model_is_evaluated_on_a_text(command: Command, pretrained: Path, stories: Path) -> None:
    done = command("evaluate", pretrained, "--data", stories, "--json", "--quiet")
    assert done.exit_code == 0, done.stderr
    measures = json.loads(done.stdout)["texts"]
    assert {"masked_lm_loss", "sentence_order_accuracy"} <= set(measures)
    assert "LB-926" in command("evaluate", pretrained).stderr


def test_doctor_says_that_this_machine_works(command: Command) -> None:
    found = {check["name"]: check for check in json.loads(command("doctor", "--json").stdout)}
    assert found["self-test"]["is_good"], found["self-test"]
    assert found["python"]["is_good"]


def test_control_labels_that_nobody_escapes_steer_the_terminal(
    command: Command, classifier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("litebert.cli.output.harmless", str)
    with pytest.raises(AssertionError):
        test_labels_cannot_steer_the_terminal(command, classifier)


def test_control_without_the_boundary_a_mistake_is_a_traceback(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("litebert.failures.as_litebert_error", lambda _: None)
    with pytest.raises((LitebertError, OSError)):
        command("corpus", "build", "x.txt", "--tokenizer", "x" * 300, "--output", "c")


@pytest.mark.parametrize(
    ("option", "value", "code"),
    [
        *(("--weights", value, "LB-279") for value in ("1e999,1", "nan,1", "0,1", "1", "")),
        *(("--temperature", value, "LB-219") for value in ("nan", "0", "-1", "inf")),
    ],
)
def test_the_numbers_of_a_mix_are_refused_in_words(command: Command, option: str, value: str, code: str) -> None:
    done = command("corpus", "mix", "one", "two", option, value)
    assert (done.exit_code, code in done.stderr) == (1, True), done


def test_a_pretraining_that_learned_nothing_says_so(command: Command, corpus: Path, tmp_path: Path) -> None:
    words = ("pretrain", "--corpus", corpus, "--preset", "tiny", "--runs", tmp_path / "runs")
    settings = ("train.steps=2", "train.batch_size=4", "optim.name=adamw", "optim.learning_rate=10")
    done = command(*words, "--quiet", *settings, "optim.warmup_steps=1", "train.loader_workers=0")
    assert done.exit_code == 0
    assert "warning" in done.stderr and "train longer, or lower optim.learning_rate" in done.stderr
