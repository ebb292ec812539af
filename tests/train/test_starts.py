"""Fine-tuning starts from what the vectors of the start model know, and does not end
with less.
"""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer

import litebert
from litebert.config import FinetuneConfig
from litebert.errors import LitebertError
from litebert.folder import ModelFolder, SentenceVectors, read_folder, write_folder
from litebert.nn import AlbertForPretraining
from litebert.rng import random_bits
from litebert.runs import AnswerRow, RunFolder
from litebert.settings import Resolved, resolve, settings_from_words
from litebert.tasks.doubts import doubts_of_training, is_start_kept
from litebert.tokenizer import Tokenizer, train_tokenizer
from litebert.train.finetune import finetune
from litebert.train.preparation import prepare
from tests.contract import shell
from tests.networks import config_for

COLORS = ("red", "blue", "green", "black")
THINGS = ("ball", "river", "map", "house", "train", "garden")
Configure = Callable[..., Resolved[FinetuneConfig]]


def _phrase(number: int) -> tuple[str, str]:
    return COLORS[number % 4], THINGS[number // 4 % 6]


def _texts(number: int) -> str:
    rows = ["text,label"]
    for row in range(number):
        color, thing = _phrase(row)
        rows.append(f"a {color} {thing},{color}")
    return "\n".join(rows) + "\n"


def _pairs(first: int, last: int) -> str:
    """Return pairs whose score is how many of two words they share."""
    rows = ["sentence1,sentence2,score"]
    for row in range(first, last):
        one = _phrase(row)
        other = _phrase(int(random_bits(1, str(row), 0)) % 24)
        shared = sum(a == b for a, b in zip(one, other, strict=True))
        rows.append(f"a {' '.join(one)},the {' '.join(other)},{shared + 0.5}")
    return "\n".join(rows) + "\n"


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a model of text vectors with random weights, and tables of texts and
    pairs.
    """
    folder = tmp_path_factory.mktemp("start")
    (folder / "texts.csv").write_text(_texts(60), encoding="utf-8")
    (folder / "new.csv").write_text(_texts(24), encoding="utf-8")
    (folder / "pairs.csv").write_text(_pairs(0, 96), encoding="utf-8")
    (folder / "others.csv").write_text(_pairs(96, 144), encoding="utf-8")
    words = [*COLORS, *THINGS, "a the number 0 1 2 3 4 5 6 7 8 9"]
    tokenizer = Tokenizer.from_model(train_tokenizer(words * 9, vocab_size=50))
    config = config_for(tokenizer, max_position_embeddings=40, initializer_range=0.1)
    network = AlbertForPretraining(config, generator=torch.Generator().manual_seed(3))
    model = ModelFolder(network, tokenizer, SentenceVectors(normalize=True))
    write_folder(model, folder / "model")
    return folder


@pytest.fixture(scope="module")
def configure(start: Path) -> Configure:
    common = [
        "task.name=table",
        f"model.start={start / 'model'}",
        "train.batch_size=12",
        "train.log_every=2",
        "train.save_every=2",
    ]

    def of(train: str, dev: str, *words: str) -> Resolved[FinetuneConfig]:
        files = [f"data.train={start / train}", f"data.dev={start / dev}"]
        return resolve(FinetuneConfig, settings_from_words([*common, *files, *words]))

    return of


def test_the_first_evaluation_is_a_regression_on_the_vectors(
    tmp_path: Path, configure: Configure
) -> None:
    configured = configure("texts.csv", "new.csv", "train.steps=2")
    for name in ("one", "two"):
        assert finetune(configured, tmp_path / name, is_quiet=True) == 0
    run = RunFolder(tmp_path / "one")
    first = run.evaluations[0]
    assert first.step == 0 and first.values["accuracy"] > 0.9
    result = run.outcome
    assert result is not None and result.first is not None
    assert result.first.values == first.values
    assert result.baseline["accuracy"] == 0.25
    rows = [(tmp_path / name / "metrics.jsonl").read_text() for name in ("one", "two")]
    losses = [
        [json.loads(line).get("loss") for line in text.splitlines()] for text in rows
    ]
    assert losses[0] == losses[1]


def test_a_run_goes_on_with_the_same_start_at_another_path_and_with_no_other(
    tmp_path: Path, start: Path, configure: Configure
) -> None:
    run = tmp_path / "run"
    words = ("train.steps=1",)
    assert finetune(configure("texts.csv", "new.csv", *words), run, is_quiet=True) == 0
    moved = shutil.copytree(start / "model", tmp_path / "moved")
    words = (*words, f"model.start={moved}")
    assert finetune(configure("texts.csv", "new.csv", *words), run, is_quiet=True) == 0
    weights = moved / "model.safetensors"
    tensors = load_file(weights)
    tensors["albert.embeddings.word_embeddings.weight"] += 0.01
    save_file(tensors, weights)
    with pytest.raises(LitebertError, match="LB-505"):
        finetune(configure("texts.csv", "new.csv", *words), run, is_quiet=True)


def test_training_that_loses_what_the_start_had_is_said_and_the_start_is_kept(
    tmp_path: Path,
    start: Path,
    configure: Configure,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("train.steps=3", "optim.learning_rate=0.5", "train.eval_every=1")
    run = tmp_path / "run"
    assert finetune(configure("texts.csv", "new.csv", *words), run, is_quiet=True) == 0
    result = RunFolder(run).outcome
    assert result is not None and result.kept == "best" and result.best.step == 0
    accuracy = result.best.values["accuracy"]
    assert result.last.values["accuracy"] < 0.9 < accuracy
    doubts = [doubt for doubt in result.doubts if "made the model worse" in doubt]
    assert len(doubts) == 1
    kept, best = (
        read_folder(run / name).network.state_dict() for name in ("model", "best")
    )
    assert all(torch.equal(kept[name], best[name]) for name in best)
    evaluated = litebert.evaluate(run, data=start / "new.csv", quiet=True)
    assert evaluated.measures["dev"]["accuracy"] == accuracy
    answers = (run / "answers" / "dev.jsonl").read_text().splitlines()
    scores = [json.loads(line)["score"] for line in answers]
    assert np.mean(scores) == pytest.approx(accuracy)


def test_of_a_start_and_an_end_that_are_equally_right_the_end_is_kept(
    tmp_path: Path, configure: Configure
) -> None:
    """A regression with a strong penalty is right, too, but hardly sure."""
    run = tmp_path / "run"
    words = ("train.steps=2", "optim.learning_rate=1e-9")
    assert finetune(configure("texts.csv", "new.csv", *words), run, is_quiet=True) == 0
    result = RunFolder(run).outcome
    assert result is not None and result.first is not None
    assert result.first.values["accuracy"] == result.last.values["accuracy"]
    assert result.kept == "last"
    assert any("added nothing that 24 rows can show" in text for text in result.doubts)


@pytest.mark.parametrize(
    ("before", "after", "is_kept", "said"),
    [
        (0.80, 0.75, True, "made the model worse"),
        (0.80, 0.80, False, "added nothing"),
        (0.80, 0.90, False, ""),
        # the regression gives all rows the most common label
        (0.70, 0.65, False, "no better than always giving the same answer"),
    ],
)
def test_a_start_that_knows_nothing_is_not_kept(
    before: float, after: float, is_kept: bool, said: str
) -> None:
    first = {"accuracy": before}
    last = {"accuracy": after}
    constant = {"accuracy": 0.70}
    answers = [AnswerRow(str(n), "a text", "yes", "yes", 0.9, 1.0) for n in range(500)]
    assert is_start_kept("accuracy", first, last, constant) == is_kept
    doubts = doubts_of_training("accuracy", first, last, constant, {"dev": answers})
    assert said in "".join(doubts)
    assert bool(doubts) == bool(said)


def test_pairs_with_a_score_become_a_model_of_vectors(
    tmp_path: Path, configure: Configure
) -> None:
    words = ("train.epochs=6", "optim.learning_rate=0.002", "data.problem=similarity")
    run = tmp_path / "run"
    assert (
        finetune(configure("pairs.csv", "others.csv", *words), run, is_quiet=True) == 0
    )
    result = RunFolder(run).outcome
    assert result is not None and result.first is not None
    assert result.key_measure == "spearman"
    assert result.last.values["spearman"] > result.first.values["spearman"] + 0.05
    model = litebert.load(run)
    assert model.verbs == ("embed",)
    texts = ["a red ball", "the red ball", "the green train"]
    near, far = (float(model.similar(texts[0], text)) for text in texts[1:])
    assert near > far
    theirs = SentenceTransformer(str(run / "model"), device="cpu").encode(texts)
    np.testing.assert_allclose(model.embed(texts), theirs, atol=1e-5)
    evaluated = shell.litebert("evaluate", run, "--json").json
    assert evaluated["dev"]["spearman"] == pytest.approx(result.last.values["spearman"])


def test_the_better_start_decides_how_scored_pairs_are_trained(
    tmp_path: Path, configure: Configure
) -> None:
    run = tmp_path / "run"
    configured = configure("pairs.csv", "others.csv", "train.steps=2")
    assert finetune(configured, run, is_quiet=True) == 0
    problem = RunFolder(run).file.data["problem"]
    assert problem in ("similarity", "regression")
    # resumed as it was begun
    assert finetune(configured, run, is_quiet=True) == 0
    named = configure(
        "pairs.csv", "others.csv", "train.steps=2", "data.problem=regression"
    )
    assert finetune(named, tmp_path / "named", is_quiet=True) == 0
    assert RunFolder(tmp_path / "named").file.data["problem"] == "regression"


def _unlike(first: int, last: int) -> str:
    """Return pairs with a label: whether both phrases name the same color."""
    rows = ["premise,hypothesis,label"]
    for row in range(first, last):
        color, thing = _phrase(row)
        other, place = _phrase(int(random_bits(2, str(row), 0)) % 24)
        if row % 2:
            other = color
        label = "same" if color == other else "other"
        rows.append(f"a {color} {thing},the {other} {place},{label}")
    return "\n".join(rows) + "\n"


@pytest.mark.parametrize("reading", ["apart", "mean"])
def test_a_pair_is_read_as_its_head_was_trained_wherever_it_is_answered(
    tmp_path: Path, start: Path, configure: Configure, reading: str
) -> None:
    for name, last in (("unlike.csv", 96), ("unlike-new.csv", 132)):
        rows = _unlike(last - 36 if name == "unlike-new.csv" else 0, last)
        (start / name).write_text(rows, encoding="utf-8")
    words = ("train.steps=4", f"model.pooling={reading}")
    run = tmp_path / "run"
    configured = configure("unlike.csv", "unlike-new.csv", *words)
    assert finetune(configured, run, is_quiet=True) == 0
    result = RunFolder(run).outcome
    assert result is not None
    chosen = result.best if result.kept == "best" else result.last
    accuracy = chosen.values["accuracy"]
    evaluated = litebert.evaluate(run, data=start / "unlike-new.csv", quiet=True)
    assert evaluated.measures["dev"]["accuracy"] == accuracy
    model = litebert.load(run)
    lines = [
        line.split(",") for line in (start / "unlike-new.csv").read_text().splitlines()
    ]
    firsts, seconds, labels = zip(*lines[1:], strict=True)
    predictions = model.classify(firsts, seconds)
    is_right = [
        one.labels[0] == label for one, label in zip(predictions, labels, strict=True)
    ]
    assert np.mean(is_right) == pytest.approx(accuracy)
    explained = model.explain("classify", firsts[0], seconds[0])
    assert {word.part for word in explained.words} == {"text", "pair"}
    assert abs(explained.error) < 0.05
    write_folder(read_folder(run / "model"), tmp_path / "again")
    again = litebert.load(tmp_path / "again").classify(firsts, seconds)
    assert again == predictions


def test_the_better_start_decides_how_labelled_pairs_are_read(
    tmp_path: Path, start: Path, configure: Configure
) -> None:
    (start / "unlike.csv").write_text(_unlike(0, 96), encoding="utf-8")
    run = tmp_path / "run"
    configured = configure("unlike.csv", "unlike.csv", "train.steps=1")
    note = prepare(configured, run).dataset.notes[-1]
    losses = re.findall(r"read (?:together|apart) ([0-9.]+)", note)
    together, apart = map(float, losses)
    better = "apart" if apart < together - 0.01 else "mean"
    assert finetune(configured, run, is_quiet=True) == 0
    assert RunFolder(run).settings["model.pooling"] == better
    # resumed as it was begun
    assert finetune(configured, run, is_quiet=True) == 0


def test_a_model_that_reads_two_texts_apart_asks_for_both(
    tmp_path: Path, start: Path, configure: Configure
) -> None:
    (start / "unlike.csv").write_text(_unlike(0, 48), encoding="utf-8")
    words = ("train.steps=1", "model.pooling=apart")
    run = tmp_path / "run"
    assert finetune(configure("unlike.csv", "unlike.csv", *words), run) == 0
    with pytest.raises(LitebertError, match="LB-938"):
        litebert.load(run).classify("a red ball")
    output = tmp_path / "export" / "model.onnx"
    refused = shell.litebert("export", "onnx", run, output)
    assert "LB-476" in refused.stderr and "apart" in refused.stderr
    with pytest.raises(LitebertError, match="LB-518"):
        finetune(configure("texts.csv", "new.csv", *words), tmp_path / "single")


def test_pairs_without_a_score_become_a_model_of_vectors(
    tmp_path: Path, start: Path, configure: Configure
) -> None:
    rows = ["question,answer"]
    for row in range(24):
        color, thing = _phrase(row)
        # the color of the answer is another one, which no vector knows
        other = COLORS[(row + 1) % 4]
        rows.append(f"a {color} {thing},the {other} {thing}")
    (start / "answers.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    words = ("train.epochs=20", "optim.learning_rate=0.002", "data.problem=matches")
    run = tmp_path / "run"
    configured = configure("answers.csv", "answers.csv", *words)
    assert finetune(configured, run, is_quiet=True) == 0
    result = RunFolder(run).outcome
    assert result is not None and result.first is not None
    assert result.key_measure == "mrr"
    assert result.baseline["accuracy"] == pytest.approx(1 / 24)
    assert result.last.values["mrr"] > result.first.values["mrr"] + 0.2
    model = litebert.load(run)
    texts = [row.split(",")[1] for row in rows[1:]]
    theirs = SentenceTransformer(str(run / "model"), device="cpu").encode(texts)
    np.testing.assert_allclose(model.embed(texts), theirs, atol=1e-5)
    evaluated = shell.litebert("evaluate", run, "--json").json
    assert evaluated["dev"]["mrr"] == pytest.approx(result.of_model.values["mrr"])
    checked = shell.litebert(
        "data", "check", start / "answers.csv", "--problem", "matches"
    )
    assert checked.code == 0, checked.stderr
