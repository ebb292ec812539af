"""Temperatures of heads: what is fitted on held-out rows, and where it goes."""

from pathlib import Path

import numpy as np
import pytest
import torch

import litebert
from litebert.config import AlbertConfig, HeadConfig
from litebert.nn import AlbertForTask, Batch
from litebert.rng import random_bits
from litebert.runs import Calibration, RunFolder, read_answers
from litebert.tasks.calibration import FEWEST_ROWS, calibrate, measure, tempered
from litebert.tasks.kinds.text import (
    MultiLabel,
    Scores,
    SingleLabel,
    TextClassification,
    TextExample,
)
from tests.contract import shell
from tests.networks import drawn
from tests.tables import csv_text

HEAD = HeadConfig(kind="sequence-classification", labels=("no", "yes", "or"))
ONE = SingleLabel(HEAD)
SEVERAL = MultiLabel(
    HEAD.model_copy(update={"problem_type": "multi_label_classification"})
)
both_families = pytest.mark.parametrize(
    "family", [pytest.param(ONE, id="one"), pytest.param(SEVERAL, id="several")]
)

# ---- the temperature that is fitted --------------------------------------------------

# (rows, labels)
LOGITS = 2 * np.random.default_rng(1).standard_normal((2_000, 3))
CHANCE = np.random.default_rng(2).random((2_000, 3))


def targets_of(family: TextClassification) -> np.ndarray:
    """Draw labels with the probabilities that LOGITS give."""
    probabilities = family.values(torch.from_numpy(LOGITS)).numpy()
    if family is SEVERAL:
        return (probabilities > CHANCE).astype(np.float32)
    numbers = (CHANCE[:, :1] > probabilities.cumsum(1)).sum(1)
    return numbers[:, None].astype(np.int64)


@both_families
@pytest.mark.parametrize("factor", [0.5, 3.0])
def test_the_temperature_undoes_a_factor_of_the_logits(
    family: TextClassification, factor: float
) -> None:
    calibration = measure(family, factor * LOGITS, targets_of(family))
    assert calibration.temperature == pytest.approx(factor, rel=0.15)
    assert calibration.loss_after < calibration.loss_before


@both_families
def test_logits_that_give_the_right_probabilities_keep_them(
    family: TextClassification,
) -> None:
    calibration = measure(family, LOGITS, targets_of(family))
    assert calibration.temperature == pytest.approx(1, rel=0.15)
    assert abs(calibration.loss_after - calibration.loss_before) < 0.01


# ---- the head that takes it ----------------------------------------------------------

CONFIG = AlbertConfig(vocab_size=30, hidden_size=8, num_attention_heads=2)
BATCH = Batch.from_lists([[2, number, 3] for number in range(4, 29)] * 4)


def overconfident_network(family: TextClassification) -> AlbertForTask:
    """Draw a network whose large weights make it surer than it is right."""
    network = AlbertForTask(CONFIG, family.head)
    drawn(network)
    with torch.no_grad():
        network.head.dense.weight.mul_(20)
        network.head.dense.bias.mul_(20)
    return network


def scores_of(network: AlbertForTask, family: TextClassification) -> list[Scores]:
    with torch.no_grad():
        rows = family.outputs(network, BATCH)
    return [Scores(tuple(row)) for row in rows]


def examples_of(family: TextClassification) -> list[TextExample]:
    """Return an example for each row of the batch; its label says nothing."""
    examples = []
    for number in range(100):
        label = number % 3
        target = (label,) if family is SEVERAL else label
        examples.append(TextExample(str(number), "a", None, target))
    return examples


@both_families
def test_a_calibrated_network_gives_the_tempered_answers(
    family: TextClassification,
) -> None:
    network = overconfident_network(family)
    answers = scores_of(network, family)
    calibration = calibrate(network, family, examples_of(family), answers)
    assert calibration is not None
    assert calibration.temperature > 1

    expected = tempered(family, answers, calibration)
    np.testing.assert_allclose(
        [scores.values for scores in scores_of(network, family)],
        [scores.values for scores in expected],
        atol=1e-5,
    )


@both_families
def test_too_few_rows_leave_a_network_as_it_is(family: TextClassification) -> None:
    network = overconfident_network(family)
    answers = scores_of(network, family)
    few = FEWEST_ROWS - 1
    examples = examples_of(family)
    assert calibrate(network, family, examples[:few], answers[:few]) is None
    assert scores_of(network, family) == answers


# ---- a run ---------------------------------------------------------------------------


def house(number: int, share_wrong: float) -> tuple[str, str]:
    """Return a text and its label, which may be wrong."""
    bits = int(random_bits(1, str(number), 0))
    color = ("red", "blue")[bits % 2]
    is_warm = color == "red"
    if bits // 2 % 10 < 10 * share_wrong:
        is_warm = not is_warm
    return f"the {color} house number {number}", "warm" if is_warm else "cold"


# What is always right in training is wrong in three held-out rows of ten: the network
# is too sure.
TRAIN = [house(number, share_wrong=0) for number in range(150)]
DEV = [house(number, share_wrong=0.3) for number in range(150, 300)]


@pytest.fixture(scope="module")
def finetuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Fine-tune on the houses: the folder of the run, and what it printed."""
    folder = tmp_path_factory.mktemp("houses")
    for name, rows in (("train", TRAIN), ("dev", DEV)):
        table = csv_text([("text", "label"), *rows])
        (folder / f"{name}.csv").write_text(table, encoding="utf-8")
    done = shell.litebert(
        "finetune",
        folder / "train.csv",
        "--dev",
        folder / "dev.csv",
        "train.epochs=4",
        "optim.learning_rate=0.001",
        "train.precision=fp32",
        cwd=folder,
    )
    assert done.code == 0, done.stderr
    return folder / "runs" / "train", done.stderr


def calibration_of(run: Path) -> Calibration:
    result = RunFolder(run).outcome
    assert result is not None
    assert result.calibration is not None
    return result.calibration


def test_a_run_is_calibrated_on_its_held_out_rows(
    finetuned: tuple[Path, str],
) -> None:
    run, printed = finetuned
    calibration = calibration_of(run)
    assert calibration.num_rows == len(DEV)
    assert calibration.loss_after < calibration.loss_before
    assert f"temperature {calibration.temperature:.2f}" in printed


def test_the_model_of_a_run_is_as_sure_as_the_answers_that_the_run_recorded(
    finetuned: tuple[Path, str],
) -> None:
    run, _ = finetuned
    recorded = [row.confidence for row in read_answers(run)["dev"]]
    texts = [text for text, _ in DEV]
    answers = litebert.load(run).classify(texts)
    confidences = [max(answer.values.values()) for answer in answers]
    np.testing.assert_allclose(confidences, recorded, atol=1e-4)


def test_the_report_of_a_run_explains_the_temperature(
    finetuned: tuple[Path, str],
) -> None:
    run, _ = finetuned
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "divided by a temperature" in page
