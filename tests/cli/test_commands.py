"""The commands: their help and its examples, what they leave on a terminal, and the edge that a mistake reaches."""

import json
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from litebert.cli import cli, verbs
from litebert.errors import LitebertError, harmless
from tests.contract.shell import QUICK, litebert

from .conftest import write_model


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

# ---- the examples of help -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LEAVES)
def test_the_examples_of_every_command_parse(name: str) -> None:
    text = LEAVES[name].help or ""
    for line in (line.strip() for line in text.splitlines() if line.strip().startswith("litebert ")):
        words = shlex.split(line.split(" >")[0], comments=True)[1:]
        command: click.Command = cli
        context = click.Context(cli, info_name="litebert")
        while isinstance(command, click.Group):
            found = command.get_command(context, words.pop(0))
            assert found is not None, line
            command = found
        command.make_context(command.name or "", words)


ELSEWHERE = {
    "take minutes": "distil, finetune, pretrain, study ablation, study cost",
    "need data, services or files of others": "corpus push, evaluate, import huggingface, predict, serve, study page",
    "tests/cli and tests/contract": "doctor, glue",
    "tests/hub": "hub pull, hub push",
    "tests/inference": "quantize",
    "tests/interop": "export google, export onnx, export program, export web, import google",
}
"""Commands whose examples are not run here, by the reason or the tests that run them."""
NAMED = {name for names in ELSEWHERE.values() for name in names.split(", ")}
NOT_RUN = {
    "litebert corpus merge corpora/2024-* --output corpora/2024",
    "litebert recipes show mrpc",
    "litebert runs average runs/mine --last 3 --output models/averaged",
    "litebert runs average runs/mine --output models/last",
    "litebert runs tail runs/mine --follow",
    "litebert tokenizer train my-text.txt --vocab-size 16000 --output vocabularies/mine",
    "litebert tokenizer train wiki.parquet --output vocabularies/wiki --cased",
    "litebert study layers runs/mine models/bert --texts my-text.txt --depths 24,48,96 --output study",
}
"""Examples that need other files, minutes, or an end that nobody types."""


def _examples() -> list[str]:
    lines = [
        line.strip().split(" >")[0]
        for name, command in LEAVES.items()
        if name not in NAMED
        for line in (command.help or "").splitlines()
        if line.strip().startswith("litebert ")
    ]
    return [line for line in dict.fromkeys(lines) if line not in NOT_RUN]


@pytest.fixture
def desk(tmp_path: Path, stories: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a folder with the files, models and runs that examples name."""
    monkeypatch.chdir(tmp_path)
    words = stories.read_text(encoding="utf-8")
    for name in ("my-text.txt", "stories.txt", "report.txt"):
        (tmp_path / name).write_text(words[:9_000], encoding="utf-8")
    (tmp_path / "blanks.txt").write_text("Anna saw [MASK].\n")
    reviews = "".join(f"Anna saw {n} balls.,{'good' if n % 2 else 'bad'}\n" for n in range(40))
    (tmp_path / "reviews.csv").write_text("body,label\n" + reviews)
    (tmp_path / "pairs.csv").write_text("before,after\nAnna left.,Bert slept.\n")
    (tmp_path / "questions.csv").write_text("question,context,A,B\nWho?,Ada left.,Ada,Bert\n")
    for name in ("train", "dev", "test", "raw"):
        row = f'{{"text": "Anna {name}.", "label": "a"}}\n{{"text": "Bert {name}.", "label": "b"}}\n'
        (tmp_path / f"{name}.jsonl").write_text(row)
    table = pytest.importorskip("pyarrow").table({"text": words.split("\n\n")})
    pytest.importorskip("pyarrow.parquet").write_table(table, tmp_path / "wiki.parquet")
    told = words.split("\n\n")
    rows = [json.dumps({"text": told[n % 200] + told[n // 2]}) for n in range(400)]
    (tmp_path / "stories.jsonl").write_text("\n".join(rows))
    kinds = {"squad": "question-answering", "race": "multiple-choice"}
    kinds |= {"names": "token-classification", "sst2": "sequence-classification", "rte": "sequence-classification"}
    for name, kind in kinds.items():
        labels = ("no", "yes") if kind.endswith("classification") else ()
        write_model(tmp_path / "runs" / name, corpus, labels, kind=kind)
    write_model(tmp_path / "models" / "mine", corpus)
    for name in ("corpora/news", "corpora/one", "corpora/two", "vocabularies/mine"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(corpus if name.startswith("corpora") else corpus / "tokenizer")
    done = litebert("pretrain", "--corpus", corpus, "--preset", "tiny", "--name", "mine", *QUICK)
    assert done.code == 0, done.stderr
    tuning = ("finetune", "reviews.csv", "--model", "models/mine", *QUICK)
    assert litebert(*tuning, "--name", "reviews").code == 0
    for name in ("runs/mrpc", "runs/mrpc-further", "runs/one", "runs/two", "experiments/one"):
        shutil.copytree("runs/reviews", name)
    return tmp_path


def test_the_examples_of_help_run(desk: Path) -> None:
    failed = []
    for line in _examples():
        (desk / "answers.jsonl").unlink(missing_ok=True)
        done = litebert(*shlex.split(line)[1:])
        if done.code or not (done.stdout or done.stderr):
            failed.append((line, done.code, done.stderr, done.stdout))
    assert not failed, "\n".join(map(str, failed))


def test_what_is_not_run_is_there() -> None:
    assert set(LEAVES) > NAMED
    texts = "\n".join(command.help or "" for command in LEAVES.values())
    assert [line for line in NOT_RUN if line not in texts] == []


# ---- the terminal ---------------------------------------------------------------------------------------------------


def test_control_labels_that_nobody_escapes_steer_the_terminal(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That they are escaped is tested in the contract."""
    model = write_model(tmp_path, corpus, ("good", "\x1b[31mbad\x9b0m"))
    assert "\x9b" not in litebert("classify", "Anna", "--model", model).stdout
    monkeypatch.setattr("litebert.cli.command.harmless", str)
    assert "\x9b" in litebert("classify", "Anna", "--model", model).stdout


def test_escapes_keep_the_meaning_of_json() -> None:
    assert harmless("plain ünïcode ✓\n") == "plain ünïcode ✓\n"
    for text in ("\x1b", "\x9b", "\U000e0001", "\u202e"):
        as_json = harmless(json.dumps(text, ensure_ascii=False))
        assert as_json.isascii()
        assert json.loads(as_json) == text


# ---- mistakes -------------------------------------------------------------------------------------------------------


def test_control_without_the_boundary_a_mistake_is_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("litebert.cli.as_litebert_error", lambda _: None)
    with pytest.raises((LitebertError, OSError)):
        litebert("corpus", "build", "x.txt", "--tokenizer", "x" * 300, "--output", "c")


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("litebert.serve.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    done = litebert("serve")
    assert done.code == 1
    assert "LB-305" in done.stderr
    assert "pip install 'litebert[serve]'" in done.stderr


def test_a_pretraining_that_learned_nothing_says_so(corpus: Path, tmp_path: Path) -> None:
    words = ("pretrain", "--corpus", corpus, "--preset", "tiny", "--runs", tmp_path / "runs")
    settings = ("train.steps=2", "train.batch_size=4", "optim.name=adamw", "optim.learning_rate=10")
    done = litebert(*words, "--quiet", *settings, "optim.warmup_steps=1", "train.loader_workers=0")
    assert done.code == 0
    assert "warning" in done.stderr and "train longer, or lower optim.learning_rate" in done.stderr


# ---- files of answers -----------------------------------------------------------------------------------------------


def test_progress_knows_how_many_rows_there_are(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("a\nb\n")
    (tmp_path / "t.csv").write_text("text\na\nb\n")
    assert verbs._count_rows(verbs.find_sources([str(tmp_path / "t.txt"), str(tmp_path / "t.csv")])) == 4
    assert verbs._count_rows(verbs.find_sources(["-"])) is None


def test_a_corrected_command_takes_over_an_output_without_rows(pretrained: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("body\nAnna left.\n")
    words = ("embed", tmp_path / "t.csv", "--model", pretrained, "--output", tmp_path / "v.npy")
    assert litebert(*words).code == 1
    assert litebert(*words, "--column", "body").code == 0


def test_rows_without_an_answer_are_known_again_when_the_command_is_rerun(
    pretrained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.jsonl").write_text('{"text": "Anna left."}\n{"text": " "}\n{"text": null}\n')
    words = ("embed", tmp_path / "t.jsonl", "--model", pretrained, "--output", tmp_path / "v.npy")
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr("litebert.cli.verbs.write_stream", lambda *_: 1 / 0)
        litebert(*words)
    done = litebert(*words)
    assert (done.code, "resuming after 3 rows" in done.stderr) == (0, True), done.stderr
