"""The commands as a user types them: real processes, real files."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from litebert.cli import VERBS


def _run(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    code = "import sys; from litebert.cli import main; main()"
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


@pytest.fixture(scope="module")
def run(stories: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pretrain from plain text to a report in one command."""
    cwd = tmp_path_factory.mktemp("shell")
    done = _run(
        *("pretrain", str(stories), "--sentences", "line", "--vocab-size", "90"),
        *("--preset", "tiny", "--name", "first", "--held-out", "0.2"),
        *("train.steps=6", "train.batch_size=4", "objective.max_seq_length=32"),
        *("train.log_every=2", "train.loader_workers=0"),
        cwd=cwd,
    )
    assert done.returncode == 0, done.stderr
    assert "step 6/6" in done.stderr
    return cwd / "runs" / "first"


def test_one_command_goes_from_text_to_a_model_and_a_report(run: Path) -> None:
    assert (run / "model" / "model.safetensors").exists()
    assert "<svg" in (run / "report.html").read_text(encoding="utf-8")


def test_one_file_of_free_text_is_enough(stories: Path, tmp_path: Path) -> None:
    paragraphs = stories.read_text(encoding="utf-8").split("\n\n")
    text = "\n\n".join(" ".join(paragraph.splitlines()) for paragraph in paragraphs)
    (tmp_path / "free.txt").write_text(text, encoding="utf-8")
    done = _run(
        *("pretrain", "free.txt", "--preset", "tiny"),
        *("train.steps=2", "train.batch_size=4", "train.loader_workers=0"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "the text has only" in done.stderr  # fewer pieces than the 8,000 of the default
    config = json.loads((tmp_path / "runs" / "albert" / "model" / "config.json").read_text())
    assert 50 < config["vocab_size"] < 1_000


def test_text_without_document_ends_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("It rained all day. Nobody came. " * 200, encoding="utf-8")
    done = _run("pretrain", "one.txt", "--vocab-size", "28", "train.steps=2", cwd=tmp_path)
    assert done.returncode == 1
    assert "blank lines between documents" in done.stderr


def test_the_same_command_again_trains_nothing_and_says_where_the_model_is(run: Path, stories: Path) -> None:
    again = _run(
        *("pretrain", str(stories), "--sentences", "line", "--vocab-size", "90"),
        *("--preset", "tiny", "--name", "first", "--held-out", "0.2", "--json"),
        *("train.steps=6", "train.batch_size=4", "objective.max_seq_length=32"),
        *("train.log_every=2", "train.loader_workers=0"),
        cwd=run.parents[1],
    )
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["model"] == "runs/first/model"
    assert "step 6/6" not in again.stderr


def test_verbs_answer_in_text_and_in_json(run: Path) -> None:
    model = str(run / "model")
    fill = _run("fill", "Anna walked to the [MASK].", "--model", model, "--json")
    assert len(json.loads(fill.stdout)) == 5
    assert "Anna walked to the" in _run("fill", "Anna walked to the [MASK].", "--model", model).stdout
    order = json.loads(_run("order", "A.", "B.", "--model", model, "--json").stdout)
    assert set(order) == {"is_in_order", "probability"}
    assert len(json.loads(_run("embed", "a", "b", "--model", model, "--json").stdout)) == 2


def test_a_dry_run_prints_the_plan_and_writes_no_run(run: Path) -> None:
    corpus = str(run / "corpus")
    words = ("pretrain", "--corpus", corpus, "--preset", "tiny", "--name", "dry", "--dry-run")
    done = _run(*words, "train.steps=5", "train.batch_size=4", cwd=run.parents[1])
    assert done.returncode == 0, done.stderr
    assert {line.split()[0] for line in done.stdout.splitlines()} >= {"parameters", "memory", "time"}
    assert not (run.parent / "dry").exists()


def test_the_origin_of_each_value_can_be_asked_for(run: Path) -> None:
    shown = _run("config", "show", str(run), "--origin").stdout
    assert "train.steps = 6  # command line: train.steps=6" in shown
    assert "optim.name = " in shown


def test_checking_a_text_and_a_corpus(run: Path, stories: Path) -> None:
    for subject in (str(stories), str(run / "corpus")):
        done = _run("corpus", "check", subject, "--json")
        assert done.returncode == 0, done.stderr
        assert isinstance(json.loads(done.stdout), dict)


def test_checking_a_damaged_corpus_says_so_in_the_exit_code(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run / "corpus", tmp_path / "corpus")
    tokens = next(copy.glob("shard-*")) / "tokens.npy"
    tokens.write_bytes(tokens.read_bytes()[:-4])
    done = _run("corpus", "check", str(copy))
    assert done.returncode == 3
    assert "tokens.npy" in done.stdout


def test_a_tokenizer_is_trained_and_shows_its_pieces(stories: Path, tmp_path: Path) -> None:
    words = ("tokenizer", "train", str(stories), "--vocab-size", "80", "--output", "v", "--json")
    done = _run(*words, cwd=tmp_path)
    assert json.loads(done.stdout) == {"folder": "v", "vocab_size": 80}
    shown = _run("tokenizer", "encode", "Anna", "--tokenizer", "v", "--json", cwd=tmp_path)
    assert json.loads(shown.stdout)["offsets"][-1][1] == 4


@pytest.mark.parametrize(
    ("words", "exit_code", "said"),
    [
        (["pretran"], 2, "pretrain"),
        (["pretrain"], 1, "LB-523"),
        (["pretrain", "nowhere.txt"], 1, "nowhere.txt"),
        (["pretrain", "--corpus", "nowhere"], 1, "LB-3"),
        (["pretrain", "--corpus", "x", "--recipe", "lapto"], 1, "laptop"),
        (["pretrain", "--corpus", "x", "--recipe", "none.toml"], 1, "LB-004"),
        (["pretrain", "--corpus", "x", "train.sed=1"], 1, "train.seed"),
        (["fill", "[MASK]", "--model", "nowhere"], 1, "LB-620"),
        (["recipes", "show", "papr-base"], 1, "paper-base"),
        (["config", "show", "nowhere"], 1, "LB-520"),
        (["finetune", "mrcp", "--model", "x", "--data", "y"], 1, "did you mean mrpc?"),
        (["finetune", "mrpc", "--model", "x"], 1, "LB-531"),
        (["finetune", "mrcp"], 1, "did you mean mrpc?"),
        (["finetune", "mrpc", "--model", "nowhere", "--data", "."], 1, "LB-620"),
        (["evaluate"], 1, "LB-525"),
        (["evaluate", "--predictions", "x.json"], 1, "LB-526"),
        (["predict", "nowhere", "--output", "out"], 1, "LB-6"),
        (["answer", "Who?", "--model", "nowhere"], 1, "LB-535"),
        (["classify", "text", "--model", "nowhere"], 1, "LB-620"),
        (["import", "google", "nowhere", "--output", "out"], 1, "LB-718"),
        (["import", "huggingface", "no/where/x", "--output", "out"], 1, "LB-620"),
        (["export", "onnx", "nowhere", "out.onnx"], 1, "LB-"),
        (["export", "google", "nowhere", "out"], 1, "LB-"),
        (["data", "check", "nowhere.csv"], 1, "LB-"),
        (["sizes", "--preset", "bsae"], 1, "base"),
    ],
)
def test_a_users_mistake_is_a_message_and_never_a_traceback(
    tmp_path: Path, words: list[str], exit_code: int, said: str
) -> None:
    done = _run(*words, cwd=tmp_path)
    assert done.returncode == exit_code
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_debug_shows_the_traceback() -> None:
    assert "Traceback" in _run("--debug", "recipes", "show", "nothing").stderr


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_help_shows_examples_first(verb: str) -> None:
    done = _run(verb, "--help")
    assert done.returncode == 0
    assert f"litebert {verb}" in done.stdout.split("Options")[0]


def test_recipes_are_listed_and_copied(tmp_path: Path) -> None:
    listed = json.loads(_run("recipes", "list", "--json").stdout)
    assert "paper-base" in listed["pretrain"]
    assert "mrpc" in listed["finetune"]
    assert _run("recipes", "copy", "laptop", "mine.toml", cwd=tmp_path).returncode == 0
    assert "LB-521" in _run("recipes", "copy", "laptop", "mine.toml", cwd=tmp_path).stderr
