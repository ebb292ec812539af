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
from litebert.folder import (
    ModelFolder,
    SentenceVectors,
    read_folder,
    storage,
    write_folder,
)
from litebert.folder.storage import Start
from litebert.nn import AlbertForPretraining, Network
from litebert.rng import random_bits
from litebert.runs import AnswerRow, Result, RunFolder
from litebert.settings import Resolved, resolve, settings_from_words
from litebert.tasks import probing
from litebert.tasks.doubts import doubts_of_training, has_lost_start
from litebert.tokenizer import Tokenizer, train_tokenizer
from litebert.train.finetune import finetune
from litebert.train.preparation import prepare
from litebert.train.start import MANY_PAIRS
from tests.contract import shell
from tests.networks import config_for
from tests.tables import csv_text

Configure = Callable[..., Resolved[FinetuneConfig]]

# ---- tables of phrases ---------------------------------------------------------------

COLORS = ("red", "blue", "green", "black")
THINGS = ("ball", "river", "map", "house", "train", "garden")
NUM_PHRASES = len(COLORS) * len(THINGS)


def phrase(number: int) -> tuple[str, str]:
    """Return a color and a thing."""
    return COLORS[number % 4], THINGS[number // 4 % 6]


def drawn_phrase(seed: int, row: int) -> tuple[str, str]:
    return phrase(int(random_bits(seed, str(row), 0)) % NUM_PHRASES)


def texts_with_colors(num_rows: int) -> str:
    rows = [("text", "label")]
    for row in range(num_rows):
        color, thing = phrase(row)
        rows.append((f"a {color} {thing}", color))
    return csv_text(rows)


def pairs_with_scores(first: int, stop: int) -> str:
    """Return pairs whose score is how many of two words they share."""
    rows: list[tuple[object, ...]] = [("sentence1", "sentence2", "score")]
    for row in range(first, stop):
        color, thing = phrase(row)
        other_color, other_thing = drawn_phrase(1, row)
        num_shared = (color == other_color) + (thing == other_thing)
        pair = (f"a {color} {thing}", f"the {other_color} {other_thing}")
        rows.append((*pair, num_shared + 0.5))
    return csv_text(rows)


def pairs_with_labels(first: int, stop: int) -> list[tuple[str, str, str]]:
    """Return pairs with a label: whether both phrases name the same color."""
    rows = []
    for row in range(first, stop):
        color, thing = phrase(row)
        other_color, place = drawn_phrase(2, row)
        if row % 2:
            other_color = color
        label = "same" if color == other_color else "other"
        rows.append((f"a {color} {thing}", f"the {other_color} {place}", label))
    return rows


def questions_with_answers() -> list[tuple[str, str]]:
    """Return pairs that belong together; the color of an answer is another one, which
    no vector knows.
    """
    rows = []
    for row in range(24):
        color, thing = phrase(row)
        other_color = COLORS[(row + 1) % 4]
        rows.append((f"a {color} {thing}", f"the {other_color} {thing}"))
    return rows


LABELED = ("premise", "hypothesis", "label")
NEW_LABELED = pairs_with_labels(96, 132)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a model of text vectors with random weights, and tables of texts and
    pairs.
    """
    folder = tmp_path_factory.mktemp("start")
    tables = {
        "texts.csv": texts_with_colors(60),
        "new.csv": texts_with_colors(24),
        "scored.csv": pairs_with_scores(0, 96),
        "new-scored.csv": pairs_with_scores(96, 144),
        "labeled.csv": csv_text([LABELED, *pairs_with_labels(0, 96)]),
        "new-labeled.csv": csv_text([LABELED, *NEW_LABELED]),
        "answers.csv": csv_text([("question", "answer"), *questions_with_answers()]),
    }
    for name, table in tables.items():
        (folder / name).write_text(table, encoding="utf-8")

    words = [*COLORS, *THINGS, "a the number 0 1 2 3 4 5 6 7 8 9"]
    tokenizer = Tokenizer.from_model(train_tokenizer(words * 9, vocab_size=50))
    config = config_for(tokenizer, max_position_embeddings=40, initializer_range=0.1)
    network = AlbertForPretraining(config, generator=torch.Generator().manual_seed(3))
    model = ModelFolder(network, tokenizer, SentenceVectors(normalize=True))
    write_folder(model, folder / "model")
    return folder


@pytest.fixture(scope="module")
def configure(start: Path) -> Configure:
    """Return a function that resolves the settings of a fine-tuning."""
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


def finetuned(settings: Resolved[FinetuneConfig], run: Path) -> Result:
    assert finetune(settings, run, is_quiet=True) == 0
    result = RunFolder(run).outcome
    assert result is not None
    return result


# ---- what the start knows ------------------------------------------------------------


def test_the_first_evaluation_is_a_regression_on_the_vectors(
    tmp_path: Path, configure: Configure
) -> None:
    run = tmp_path / "run"
    result = finetuned(configure("texts.csv", "new.csv", "train.steps=2"), run)
    first = RunFolder(run).evaluations[0]
    assert first.step == 0
    assert first.values["accuracy"] > 0.9
    assert result.first is not None
    assert result.first.values == first.values
    assert result.baseline["accuracy"] == 0.25  # of four colors


def test_a_start_from_vectors_is_trained_alike_twice(
    tmp_path: Path, configure: Configure
) -> None:
    settings = configure("texts.csv", "new.csv", "train.steps=2")
    losses = list[list[object]]()
    for name in ("one", "two"):
        finetuned(settings, tmp_path / name)
        lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        losses.append([json.loads(line).get("loss") for line in lines])
    assert losses[0] == losses[1]


def test_a_run_goes_on_with_the_same_start_at_another_path_and_with_no_other(
    tmp_path: Path, start: Path, configure: Configure
) -> None:
    run = tmp_path / "run"
    finetuned(configure("texts.csv", "new.csv", "train.steps=1"), run)
    moved = shutil.copytree(start / "model", tmp_path / "moved")
    from_moved = configure(
        "texts.csv", "new.csv", "train.steps=1", f"model.start={moved}"
    )
    finetuned(from_moved, run)

    weights = moved / "model.safetensors"
    tensors = load_file(weights)
    tensors["albert.embeddings.word_embeddings.weight"] += 0.01
    save_file(tensors, weights)
    with pytest.raises(LitebertError, match="LB-505"):
        finetune(from_moved, run, is_quiet=True)


# ---- which model is kept -------------------------------------------------------------

DIVERGING = ("train.steps=3", "optim.learning_rate=0.5", "train.eval_every=1")


@pytest.fixture(scope="module")
def diverged(
    tmp_path_factory: pytest.TempPathFactory, configure: Configure
) -> tuple[Path, Result]:
    """Train until what the start knew is lost."""
    run = tmp_path_factory.mktemp("diverged") / "run"
    return run, finetuned(configure("texts.csv", "new.csv", *DIVERGING), run)


def test_training_that_loses_what_the_start_had_is_doubted(
    diverged: tuple[Path, Result],
) -> None:
    _, result = diverged
    assert result.last.values["accuracy"] < 0.9 < result.best.values["accuracy"]
    assert "made the model worse" in "\n".join(result.doubts)


def test_the_start_is_kept_if_training_loses_what_it_had(
    diverged: tuple[Path, Result], start: Path
) -> None:
    run, result = diverged
    assert result.kept == "best"
    assert result.best.step == 0
    kept = read_folder(run / "model").network.state_dict()
    best = read_folder(run / "best").network.state_dict()
    for name, tensor in best.items():
        assert torch.equal(kept[name], tensor), name

    evaluated = litebert.evaluate(run, data=start / "new.csv", quiet=True)
    accuracy = result.best.values["accuracy"]
    assert evaluated.measures["dev"]["accuracy"] == accuracy


def test_the_answers_of_a_run_are_those_of_the_model_that_is_kept(
    diverged: tuple[Path, Result],
) -> None:
    run, result = diverged
    lines = (run / "answers" / "dev.jsonl").read_text().splitlines()
    scores = [json.loads(line)["score"] for line in lines]
    assert np.mean(scores) == pytest.approx(result.best.values["accuracy"])


def test_of_a_start_and_an_end_that_are_equally_right_the_end_is_kept(
    tmp_path: Path, configure: Configure
) -> None:
    """A regression with a strong penalty is right, too, but hardly sure."""
    words = ("train.steps=2", "optim.learning_rate=1e-9")
    result = finetuned(configure("texts.csv", "new.csv", *words), tmp_path / "run")
    assert result.first is not None
    assert result.first.values["accuracy"] == result.last.values["accuracy"]
    assert result.kept == "last"
    assert "added nothing that 24 rows can show" in "\n".join(result.doubts)


@pytest.mark.parametrize(
    ("before", "after", "is_lost", "doubt"),
    [
        (0.80, 0.75, True, "made the model worse"),
        (0.80, 0.80, False, "added nothing"),
        (0.80, 0.90, False, ""),
        # the regression gives all rows the most common label
        (0.70, 0.65, False, "no better than always giving the same answer"),
    ],
)
def test_a_start_is_kept_only_if_it_knew_something_that_training_lost(
    before: float, after: float, is_lost: bool, doubt: str
) -> None:
    first = {"accuracy": before}
    last = {"accuracy": after}
    constant = {"accuracy": 0.70}
    assert has_lost_start("accuracy", first, last, constant) == is_lost

    answers = [AnswerRow(str(n), "a text", "yes", "yes", 0.9, 1.0) for n in range(500)]
    doubts = doubts_of_training("accuracy", first, last, constant, {"dev": answers})
    assert doubt in "".join(doubts)
    assert bool(doubts) == bool(doubt)


# ---- pairs with a score --------------------------------------------------------------


def assert_answers_as_evaluated(run: Path, measure: str) -> None:
    """Check that the model of a run has the measure that the run has recorded, and the
    vectors that sentence-transformers computes from it.
    """
    result = RunFolder(run).outcome
    assert result is not None
    evaluated = shell.litebert("evaluate", run, "--json").ok.json
    expected = result.of_model.values[measure]
    assert evaluated["dev"][measure] == pytest.approx(expected)

    texts = ["a red ball", "the red ball", "the green train"]
    reference = SentenceTransformer(str(run / "model"), device="cpu")
    vectors = litebert.load(run).embed(texts)
    np.testing.assert_allclose(vectors, reference.encode(texts), atol=1e-5)


def test_pairs_with_a_score_become_a_model_of_vectors(
    tmp_path: Path, configure: Configure
) -> None:
    run = tmp_path / "run"
    words = ("train.epochs=6", "optim.learning_rate=0.002", "data.problem=similarity")
    result = finetuned(configure("scored.csv", "new-scored.csv", *words), run)
    assert result.key_measure == "spearman"
    assert result.first is not None
    assert result.last.values["spearman"] > result.first.values["spearman"] + 0.05

    model = litebert.load(run)
    assert model.verbs == ("embed",)
    near = model.similar("a red ball", "the red ball")
    far = model.similar("a red ball", "the green train")
    assert near > far
    assert_answers_as_evaluated(run, "spearman")


def test_the_better_start_decides_how_scored_pairs_are_trained(
    tmp_path: Path, configure: Configure
) -> None:
    run = tmp_path / "run"
    settings = configure("scored.csv", "new-scored.csv", "train.steps=2")
    note = prepare(settings, run).dataset.notes[-1]
    way = "read together|read apart|compared by cosine"
    correlations = dict(re.findall(rf"({way}) (-?[0-9]+\.[0-9]+)", note))
    together = float(correlations["read together"])
    apart = float(correlations["read apart"])
    cosine = float(correlations["compared by cosine"])
    is_best = cosine > apart and cosine > together + 0.01
    better = "similarity" if is_best else "regression"
    finetuned(settings, run)
    assert RunFolder(run).file.data["problem"] == better
    # resumed as it was begun
    finetuned(settings, run)
    assert RunFolder(run).file.data["problem"] == better


def test_a_problem_that_is_named_is_trained(
    tmp_path: Path, configure: Configure
) -> None:
    run = tmp_path / "run"
    words = ("train.steps=2", "data.problem=regression")
    finetuned(configure("scored.csv", "new-scored.csv", *words), run)
    assert RunFolder(run).file.data["problem"] == "regression"


# ---- pairs with a label --------------------------------------------------------------


@pytest.mark.parametrize("reading", ["apart", "mean"])
def test_a_pair_is_read_as_its_head_was_trained_wherever_it_is_answered(
    tmp_path: Path, start: Path, configure: Configure, reading: str
) -> None:
    run = tmp_path / "run"
    words = ("train.steps=4", f"model.pooling={reading}")
    result = finetuned(configure("labeled.csv", "new-labeled.csv", *words), run)
    accuracy = result.of_model.values["accuracy"]
    evaluated = litebert.evaluate(run, data=start / "new-labeled.csv", quiet=True)
    assert evaluated.measures["dev"]["accuracy"] == accuracy

    firsts = [first for first, _, _ in NEW_LABELED]
    seconds = [second for _, second, _ in NEW_LABELED]
    model = litebert.load(run)
    answers = model.classify(firsts, seconds)
    num_right = 0
    for answer, (_, _, label) in zip(answers, NEW_LABELED, strict=True):
        num_right += answer.labels == (label,)
    assert num_right / len(NEW_LABELED) == pytest.approx(accuracy)

    explanation = model.explain("classify", firsts[0], seconds[0])
    assert {word.part for word in explanation.words} == {"text", "pair"}
    assert abs(explanation.error) < 0.05

    write_folder(read_folder(run / "model"), tmp_path / "again")
    assert litebert.load(tmp_path / "again").classify(firsts, seconds) == answers


def test_the_better_start_decides_how_labeled_pairs_are_read(
    tmp_path: Path, configure: Configure
) -> None:
    run = tmp_path / "run"
    settings = configure("labeled.csv", "labeled.csv", "train.steps=1")
    note = prepare(settings, run).dataset.notes[-1]
    losses = re.findall(r"read (?:together|apart) ([0-9.]+)", note)
    together, apart = map(float, losses)
    better = "apart" if apart < together - 0.01 else "mean"
    finetuned(settings, run)
    assert RunFolder(run).settings["model.pooling"] == better
    # resumed as it was begun
    finetuned(settings, run)


def test_many_labeled_pairs_are_read_together_without_a_trial(
    tmp_path: Path, start: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trial(*_: object) -> None:
        pytest.fail("nothing needs to be measured")

    monkeypatch.setattr("litebert.train.start.Trial", trial)
    many = pairs_with_labels(0, MANY_PAIRS)
    (tmp_path / "many.csv").write_text(csv_text([LABELED, *many]), "utf-8")
    settings = configure(tmp_path / "many.csv", "new-labeled.csv", "train.steps=1")
    run = tmp_path / "run"
    prepared = prepare(settings, run)
    assert "read together" in prepared.dataset.notes[-1]
    finetuned(settings, run)
    assert RunFolder(run).settings["model.pooling"] == "mean"


@pytest.mark.parametrize("table", ["labeled", "scored"])
def test_a_single_pair_to_train_on_is_read_together(
    tmp_path: Path, start: Path, configure: Configure, table: str
) -> None:
    lines = (start / f"{table}.csv").read_text("utf-8").splitlines()
    (tmp_path / "one.csv").write_text("\n".join(lines[:2]), "utf-8")
    words = ("train.steps=1",)
    if table == "labeled":
        words += ('data.labels=["same", "other"]',)
    settings = configure(tmp_path / "one.csv", f"new-{table}.csv", *words)
    finetuned(settings, tmp_path / "run")
    assert RunFolder(tmp_path / "run").settings["model.pooling"] == "mean"


def test_the_start_is_read_once_for_all_ways_to_start(
    tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = list[Path]()

    def start_from(network: Network, folder: Path) -> Start:
        read.append(folder)
        return storage.start_from(network, folder)

    monkeypatch.setattr(probing, "start_from", start_from)
    settings = configure("labeled.csv", "labeled.csv", "train.steps=1")
    prepare(settings, tmp_path / "run")
    assert len(read) == 1


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory, configure: Configure) -> Path:
    """Train a model that reads two texts apart."""
    run = tmp_path_factory.mktemp("apart") / "run"
    words = ("train.steps=1", "model.pooling=apart")
    finetuned(configure("labeled.csv", "labeled.csv", *words), run)
    return run


def test_a_model_that_reads_two_texts_apart_asks_for_both(apart: Path) -> None:
    with pytest.raises(LitebertError, match="LB-938"):
        litebert.load(apart).classify("a red ball")


def test_a_model_that_reads_two_texts_apart_is_not_exported(
    apart: Path, tmp_path: Path
) -> None:
    done = shell.litebert("export", "onnx", apart, tmp_path / "export" / "model.onnx")
    assert "LB-476" in done.stderr
    assert "apart" in done.stderr


def test_single_texts_do_not_get_the_head_of_a_model_that_reads_two_apart(
    tmp_path: Path, apart: Path, configure: Configure
) -> None:
    rows = [(first, label) for first, _, label in NEW_LABELED]
    (tmp_path / "single.csv").write_text(csv_text([("text", "label"), *rows]), "utf-8")
    table = tmp_path / "single.csv"
    run = tmp_path / "run"
    finetuned(configure(table, table, "train.steps=1", f"model.start={apart}"), run)
    assert RunFolder(run).settings["model.pooling"] == "mean"
    assert litebert.load(run).classify("a red ball").labels


def test_single_texts_cannot_be_read_apart(
    tmp_path: Path, configure: Configure
) -> None:
    settings = configure("texts.csv", "new.csv", "train.steps=1", "model.pooling=apart")
    with pytest.raises(LitebertError, match="LB-518"):
        finetune(settings, tmp_path / "run")


# ---- pairs that belong together ------------------------------------------------------


def test_pairs_without_a_score_become_a_model_of_vectors(
    tmp_path: Path, configure: Configure
) -> None:
    run = tmp_path / "run"
    words = ("train.epochs=20", "optim.learning_rate=0.002", "data.problem=matches")
    result = finetuned(configure("answers.csv", "answers.csv", *words), run)
    assert result.key_measure == "mrr"
    assert result.baseline["accuracy"] == pytest.approx(1 / 24)
    assert result.first is not None
    assert result.last.values["mrr"] > result.first.values["mrr"] + 0.2
    assert_answers_as_evaluated(run, "mrr")


def test_pairs_without_a_score_are_checked(start: Path) -> None:
    words = ("data", "check", start / "answers.csv", "--problem", "matches")
    assert shell.litebert(*words).ok
