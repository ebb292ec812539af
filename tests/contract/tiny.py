"""The desk: tiny texts, tables, a corpus, networks and runs, made once through Python
and the shell.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import litebert as package

from .golden import muon_in_float32
from .shell import QUICK, TABLES, Done, litebert, story

SIZES = {
    "embedding_size": 16,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
SIZES |= {
    "intermediate_size": 64,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
}
"""A network that learns in a second, with dropout."""

PACE = {
    "train.steps": 6,
    "train.batch_size": 8,
    "train.precision": "fp32",
    "train.threads": 1,
}
PACE |= {
    "train.log_every": 1,
    "train.eval_every": 3,
    "train.save_every": 3,
    "train.eval_sequences": 16,
}
PACE |= {"train.loader_workers": 0}
"""Settings of a training of six steps that logs every step."""

PRETRAINING = {
    **{f"model.{name}": value for name, value in SIZES.items()},
    **PACE,
    "objective.max_seq_length": 48,
}

MORE = {
    "pairs.csv": (
        "text,second,label\n"
        + "".join(
            f"Anna walked {n} times.,Bert {'slept' if n % 2 else 'left'}.,{n % 2}\n"
            for n in range(20)
        )
    ),
    # many rows with different predictions: the correlation of two that differ in one
    # bit could be anything
    "ratings.csv": (
        "text,label\n"
        + "".join(
            f"{'Anna walked on. ' * (1 + n % 7)}Bert slept {n} times.,{n % 5 + 0.5}\n"
            for n in range(60)
        )
    ),
    "topics.jsonl": "".join(
        json.dumps(
            {
                "text": f"Anna walked {n} times.",
                "labels": [name for k, name in enumerate("abc") if n >> k & 1],
            }
        )
        + "\n"
        for n in range(24)
    ),
    "blank.txt": " \n\n",
    "other.toml": '[task]\nname = "mrpc"\n[data]\nfolder = "elsewhere"\n',
}
"""Examples for more kinds of task, a file without a word, and a recipe with its own
task and data.
"""

Settings = dict[str, object]
FINETUNING: Settings = {
    **PACE,
    "train.batch_size": 4,
    "task.max_length": 48,
    "optim.learning_rate": 0.001,
}


@dataclass(frozen=True)
class Desk:
    """A text of forty-eight stories, its vocabulary, its corpus, tables, and a run of
    each kind as an attribute.
    """

    folder: Path

    def __getattr__(self, name: str) -> Path:
        run = self.folder / "runs" / name
        if not run.is_dir():
            raise AttributeError(name)
        return run

    stories = property(lambda self: self.folder / "stories.txt")
    tokenizer = property(lambda self: self.folder / "tokenizer")
    corpus = property(lambda self: self.folder / "corpus")

    def table(self, name: str) -> Path:
        return self.folder / name

    def pretrain(
        self, runs: Path, name: str = "own", **settings: object
    ) -> package.Run:
        changed = {
            name: value
            for name, value in {**PRETRAINING, **settings}.items()
            if value is not None
        }
        return package.pretrain(
            corpus=self.corpus, runs=runs, name=name, settings=changed, quiet=True
        )

    def finetune(
        self,
        runs: Path,
        table: str = "reviews.csv",
        settings: Settings = FINETUNING,
        **how: object,
    ) -> package.Run:
        return package.finetune(
            self.table(table),
            model=self.base,
            runs=runs,
            settings=settings,
            quiet=True,
            **how,
        )

    def run(self, place: Path, *words: object) -> Done:
        """Run a command in the folder `place`; words in capitals are replaced by paths
        on the desk.
        """
        names = {path.stem.upper(): path for path in self.folder.iterdir()} | {
            "BASE": self.base
        }
        typed = (
            names.get(word, str(word).replace("RUNS", str(self.folder / "runs")))
            for word in words
        )
        return litebert(*typed, cwd=place)


PRETRAIN = (
    "--preset",
    "tiny",
    "--vocab-size",
    70,
    "--sentences",
    "line",
    "objective.max_seq_length=64",
)
"""Options to pretrain on a text of stories; together with QUICK it takes a second."""


@pytest.fixture(scope="session")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """Write a text, train its vocabulary, build its corpus, pretrain on it; fine-tune
    on a table of each kind.

    On every CPU the runs have the same weights to five digits.
    """
    import torch

    torch.set_num_threads(1)
    made = Desk(tmp_path_factory.mktemp("desk"))
    made.stories.write_text("\n".join(map(story, range(48))), encoding="utf-8")
    for name, text in {**TABLES, **MORE}.items():
        made.table(name).write_text(text, encoding="utf-8")
    train_vocabulary(made)
    build_corpus(made)
    with muon_in_float32():
        made.pretrain(made.folder / "runs", "base")
        for name in TABLES:
            words = ("finetune", name, "--model", "runs/base", *QUICK)
            assert litebert(*words, cwd=made.folder).ok
    return made


def train_vocabulary(desk: Desk) -> None:
    words = ("tokenizer", "train", desk.stories, "--vocab-size", 60)
    assert litebert(*words, "--output", desk.tokenizer).ok


def build_corpus(desk: Desk) -> None:
    words = ("corpus", "build", desk.stories, "--tokenizer", desk.tokenizer)
    how = ("--documents", "blank-line", "--sentences", "line", "--held-out", 0.2)
    quiet = ("--workers", 1, "--quiet")
    assert litebert(*words, *how, *quiet, "--output", desk.corpus).ok


def rows(run: package.Run | Path) -> list[dict]:
    """Return the rows of a run's log without the field that depends on the clock."""
    folder = run.folder if isinstance(run, package.Run) else run
    lines = (folder / "metrics.jsonl").read_text("utf-8").splitlines()
    return [
        {k: v for k, v in json.loads(line).items() if k != "tokens_per_second"}
        for line in lines
    ]


def weights(run: package.Run | Path) -> bytes:
    folder = run.folder if isinstance(run, package.Run) else run
    return (folder / "model" / "model.safetensors").read_bytes()


Random = Callable[..., Path]


@pytest.fixture(scope="session")
def random_model(desk: Desk, tmp_path_factory: pytest.TempPathFactory) -> Random:
    """Return a function that writes model folders with transformers, with large random
    weights and our vocabulary.
    """
    from tests.networks import random_model

    def make(architecture: str, **changes: object) -> Path:
        vocabulary = package.Tokenizer.load(desk.tokenizer)
        folder = tmp_path_factory.mktemp(architecture)
        sizes = {**SIZES, "vocab_size": vocabulary.vocab_size, **changes}
        random_model(architecture, **sizes).save_pretrained(folder)
        vocabulary.save(folder)
        return folder

    return make
