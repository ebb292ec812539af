"""The commands: their help and its examples, what they leave on a terminal, and the edge that a mistake reaches."""

import json
import shlex
import shutil
import sys
from pathlib import Path

import click
import pytest

from litebert.cli import cli, verbs
from litebert.errors import LitebertError, harmless
from tests.contract.shell import leaves, litebert
from tests.contract.tiny import Desk

# ---- the examples of help -------------------------------------------------------------------------------------------

LEAVES = leaves()
EXAMPLES = {
    name: [
        line.strip().split(" >")[0] for line in str(command.help).splitlines() if line.strip().startswith("litebert ")
    ]
    for name, command in LEAVES.items()
}


@pytest.mark.parametrize("name", LEAVES)
def test_the_examples_of_every_command_parse(name: str) -> None:
    for line in EXAMPLES[name]:
        words = shlex.split(line, comments=True)[1:]
        command: click.Command = cli
        context = click.Context(cli, info_name="litebert")
        while isinstance(command, click.Group):
            command = command.get_command(context, words.pop(0))
            assert command is not None, line
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


RUNS = {"mine": "base", "squad": "spans", "race": "choices", "names": "tags"}
RUNS |= dict.fromkeys(("sst2", "rte", "reviews", "mrpc", "mrpc-further", "one", "two", "../experiments/one"), "reviews")
"""The runs that examples name, and which of the desk they are."""


@pytest.fixture
def laid(tmp_path: Path, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a folder with the files, models and runs that examples name."""
    monkeypatch.chdir(tmp_path)
    for name, run in RUNS.items():
        shutil.copytree(desk.folder / "runs" / run, tmp_path / "runs" / name)
    shutil.copytree(desk.base / "model", tmp_path / "models" / "mine")
    for name in ("corpora/news", "corpora/one", "corpora/two", "vocabularies/mine"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(desk.corpus if name.startswith("corpora") else desk.tokenizer)
    words = desk.stories.read_text("utf-8")
    told = words.split("\n\n")
    files = dict.fromkeys(("my-text.txt", "stories.txt", "report.txt"), words) | {"blanks.txt": "Anna saw [MASK].\n"}
    files["stories.jsonl"] = "\n".join(json.dumps({"text": told[n % 40] + told[n // 10]}) for n in range(400))
    files["reviews.csv"] = "body,label\n" + "".join(f"Anna saw {n}.,{'good' if n % 2 else 'bad'}\n" for n in range(40))
    files["pairs.csv"] = "before,after\nAnna left.,Bert slept.\n"
    files["questions.csv"] = "question,context,A,B\nWho?,Ada left.,Ada,Bert\n"
    for name in ("train", "dev", "test", "raw"):
        files[f"{name}.jsonl"] = "".join(f'{{"text": "{who} {name}.", "label": "{who}"}}\n' for who in ("Anna", "Bert"))
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    table = pytest.importorskip("pyarrow").table({"text": told})
    pytest.importorskip("pyarrow.parquet").write_table(table, tmp_path / "wiki.parquet")
    return tmp_path


def test_the_examples_of_help_run(laid: Path) -> None:
    assert set(LEAVES) > NAMED and {line for lines in EXAMPLES.values() for line in lines} > NOT_RUN
    failed = []
    for line in dict.fromkeys(line for name in LEAVES if name not in NAMED for line in EXAMPLES[name]):
        if line not in NOT_RUN:
            (laid / "answers.jsonl").unlink(missing_ok=True)
            done = litebert(*shlex.split(line)[1:])
            if done.code or not (done.stdout or done.stderr):
                failed.append((line, done.code, done.stderr, done.stdout))
    assert not failed, "\n".join(map(str, failed))


# ---- the terminal ---------------------------------------------------------------------------------------------------


def test_control_labels_that_nobody_escapes_steer_the_terminal(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That they are escaped is tested in the contract."""
    model = Path(shutil.copytree(desk.reviews / "model", tmp_path / "m"))
    config = model / "config.json"
    config.write_text(config.read_text().replace('"bad"', '"\\u001b[31mbad\\u009b0m"'))
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


def test_a_pretraining_that_learned_nothing_says_so(desk: Desk, tmp_path: Path) -> None:
    words = ("pretrain", "--corpus", desk.corpus, "--preset", "tiny", "--runs", tmp_path / "runs")
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


def test_a_corrected_command_takes_over_an_output_without_rows(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("body\nAnna left.\n")
    words = ("embed", tmp_path / "t.csv", "--model", desk.base, "--output", tmp_path / "v.npy")
    assert litebert(*words).code == 1
    assert litebert(*words, "--column", "body").code == 0


def test_rows_without_an_answer_are_known_again_when_the_command_is_rerun(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.jsonl").write_text('{"text": "Anna left."}\n{"text": " "}\n{"text": null}\n')
    words = ("embed", tmp_path / "t.jsonl", "--model", desk.base, "--output", tmp_path / "v.npy")
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr("litebert.cli.verbs.write_stream", lambda *_: 1 / 0)
        litebert(*words)
    done = litebert(*words)
    assert (done.code, "resuming after 3 rows" in done.stderr) == (0, True), done.stderr
