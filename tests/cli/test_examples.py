"""The examples of the commands' help, run as they stand in a folder with the files they name."""

import json
import shlex
import shutil
from pathlib import Path

import pytest

from .conftest import Command, write_model
from .test_shell_manners import LEAVES

ELSEWHERE = {
    "corpus push": "needs object storage",
    "distil": "trains for an hour",
    "doctor": "test_json_output.py",
    "evaluate": "needs data sets of others",
    "export google": "tests/interop/google",
    "export onnx": "tests/interop/export",
    "export program": "tests/interop/export",
    "export web": "tests/interop/export",
    "finetune": "trains for minutes",
    "glue": "tests/cli/test_glue.py",
    "hub pull": "tests/hub",
    "hub push": "tests/hub",
    "import google": "tests/interop/google",
    "import huggingface": "needs the Hub",
    "predict": "needs data sets of others",
    "pretrain": "trains for minutes",
    "quantize": "tests/inference/test_quantize.py",
    "runs resume": "tests/cli/test_runs.py",
    "serve": "runs until it is stopped",
    "study ablation": "trains for minutes",
    "study attention": "measures for minutes",
    "study cost": "measures for minutes",
    "study depth": "measures for minutes",
    "study page": "reads what the other studies wrote",
}
"""Commands whose examples are not run here, and why."""
NOT_RUN = {
    "litebert corpus filter raw.txt --keep my_filters:is_english --output english.jsonl",
    "litebert corpus merge corpora/2024-* --output corpora/2024",
    "litebert recipes show mrpc",
    "litebert runs average runs/mine --last 3 --output models/averaged",
    "litebert runs average runs/mine --until 20000 --output models/at-20000",
    "litebert runs tail runs/mine --follow",
    "litebert tokenizer train my-text.txt --vocab-size 16000 --output vocabularies/mine",
    "litebert tokenizer train wiki.parquet --output vocabularies/wiki --cased",
    "litebert study layers runs/mine models/bert --texts my-text.txt --depths 24,48,96 --json",
}
"""Examples that need other files, minutes, or an end that nobody types."""


def _examples() -> list[str]:
    lines = [
        line.strip().split(" >")[0]
        for name, command in LEAVES.items()
        if name not in ELSEWHERE
        for line in (command.help or "").splitlines()
        if line.strip().startswith("litebert ")
    ]
    return [line for line in dict.fromkeys(lines) if line not in NOT_RUN]


@pytest.fixture
def desk(tmp_path: Path, stories: Path, corpus: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a folder with the files, models and runs that examples name."""
    monkeypatch.chdir(tmp_path)
    words = stories.read_text(encoding="utf-8")
    for name in ("my-text.txt", "stories.txt", "report.txt"):
        (tmp_path / name).write_text(words[:9_000], encoding="utf-8")
    (tmp_path / "blanks.txt").write_text("Anna saw [MASK].\n")
    reviews = "".join(f"Anna saw {n} balls.,{'good' if n % 2 else 'bad'}\n" for n in range(40))
    (tmp_path / "reviews.csv").write_text("body,label\n" + reviews)
    (tmp_path / "held-out.csv").write_text("body,label\nBert slept.,bad\n")
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
    models = {
        "runs/squad": "question-answering",
        "runs/squad2": "conditional-question-answering",
        "runs/race": "multiple-choice",
        "runs/names": "token-classification",
        "runs/sst2": "sequence-classification",
        "runs/rte": "sequence-classification",
    }
    for name, kind in models.items():
        labels = () if "question" in kind or "choice" in kind else ("no", "yes")
        write_model(tmp_path / name, corpus, labels, kind=kind)
    write_model(tmp_path / "models" / "mine", corpus)
    for name, target in {
        "corpora/news": corpus,
        "corpora/one": corpus,
        "corpora/two": corpus,
        "vocabularies/mine": corpus / "tokenizer",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(target)
    quick = ("train.steps=2", "train.batch_size=4", "optim.warmup_steps=1", "--quiet")
    done = command("pretrain", "--corpus", corpus, "--preset", "tiny", "--name", "mine", *quick)
    assert done.exit_code == 0, done.stderr
    tuning = ("finetune", "reviews.csv", "--model", "models/mine", *quick)
    assert command(*tuning, "--name", "reviews").exit_code == 0
    for name in ("runs/mrpc", "runs/mrpc-further", "runs/one", "runs/two", "experiments/one"):
        shutil.copytree("runs/reviews", name)
    return tmp_path


def test_the_examples_of_help_run(command: Command, desk: Path) -> None:
    failed = []
    for line in _examples():
        (desk / "answers.jsonl").unlink(missing_ok=True)
        done = command(*shlex.split(line)[1:])
        if done.exit_code or not (done.stdout or done.stderr):
            failed.append((line, done.exit_code, done.stderr, done.stdout))
    assert not failed, "\n".join(map(str, failed))


def test_what_is_not_run_is_there() -> None:
    assert set(ELSEWHERE) < set(LEAVES)
    texts = "\n".join(command.help or "" for command in LEAVES.values())
    assert [line for line in NOT_RUN if line not in texts] == []
