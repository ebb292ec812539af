"""Temperatures of heads: what is fitted on held-out rows, and where it goes."""

from pathlib import Path

import numpy as np
import pytest
import torch

import litebert
from litebert.config import AlbertConfig, HeadConfig
from litebert.nn import AlbertForTask, Batch
from litebert.rng import random_bits
from litebert.runs import RunFolder, read_answers
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

LABELS = ("no", "yes", "or")
HEAD = HeadConfig(kind="sequence-classification", labels=LABELS)
ONE = SingleLabel(HEAD)
SEVERAL = MultiLabel(
    HEAD.model_copy(update={"problem_type": "multi_label_classification"})
)
CONFIG = AlbertConfig(vocab_size=30, hidden_size=8, num_attention_heads=2)
LOGITS = 2 * np.random.default_rng(1).standard_normal((2_000, 3))
CHANCE = np.random.default_rng(2).random((2_000, 3))


def targets_of(family: TextClassification) -> np.ndarray:
    """Draw labels with the probabilities that LOGITS give."""
    values = family.values(torch.from_numpy(LOGITS)).numpy()
    if family is SEVERAL:
        return (values > CHANCE).astype(np.float32)
    drawn_labels = (CHANCE[:, :1] > values.cumsum(1)).sum(1)
    return drawn_labels[:, None].astype(np.int64)


@pytest.mark.parametrize("family", [ONE, SEVERAL])
@pytest.mark.parametrize("factor", [0.5, 3.0])
def test_the_temperature_undoes_a_factor_of_the_logits(
    family: TextClassification, factor: float
) -> None:
    found = measure(family, factor * LOGITS, targets_of(family))
    assert found.temperature == pytest.approx(factor, rel=0.15)
    assert found.loss_after < found.loss_before
    right = measure(family, LOGITS, targets_of(family))
    assert right.temperature == pytest.approx(1, rel=0.15)
    assert abs(right.loss_after - right.loss_before) < 0.01


@torch.no_grad()
@pytest.mark.parametrize("family", [ONE, SEVERAL])
def test_a_calibrated_network_gives_the_tempered_answers(
    family: TextClassification,
) -> None:
    network = drawn(AlbertForTask(CONFIG, family.head))
    assert isinstance(network, AlbertForTask)
    network.eval()
    batch = Batch.from_lists([[2, number, 3] for number in range(4, 29)] * 4)
    network.head.dense.weight.mul_(20)
    network.head.dense.bias.mul_(20)
    answers = [Scores(tuple(row)) for row in family.outputs(network, batch)]
    examples = [
        TextExample(str(n), "a", None, (n % 3,) if family is SEVERAL else n % 3)
        for n in range(len(answers))
    ]
    assert calibrate(network, family, examples[:40], answers[:40]) is None
    found = calibrate(network, family, examples, answers)
    assert found is not None and found.temperature > 1
    again = np.array(family.outputs(network, batch))
    expected = [each.values for each in tempered(family, answers, found)]
    np.testing.assert_allclose(again, expected, atol=1e-5)


def test_a_fine_tuned_model_is_as_sure_as_it_is_right(tmp_path: Path) -> None:
    rows = ["text,label"]
    for number in range(300):
        bits = int(random_bits(1, str(number), 0))
        word = ("red", "blue")[bits % 2]
        # three labels of ten are wrong
        is_wrong = bits // 2 % 10 < 3
        label = ("cold", "warm")[(word == "red") != is_wrong]
        rows.append(f"the {word} house number {number},{label}")
    half = len(rows) // 2
    (tmp_path / "train.csv").write_text("\n".join(rows[:half]) + "\n", encoding="utf-8")
    dev = [rows[0], *rows[half:]]
    (tmp_path / "dev.csv").write_text("\n".join(dev) + "\n", encoding="utf-8")
    run = tmp_path / "runs" / "train"
    command = ["finetune", tmp_path / "train.csv", "--dev", tmp_path / "dev.csv"]
    words = ["train.epochs=4", "optim.learning_rate=0.001"]
    done = shell.litebert(*command, *words, cwd=tmp_path)
    assert done.code == 0, done.stderr
    result = RunFolder(run).outcome
    assert result is not None
    found = result.calibration
    assert found is not None and found.num_rows >= FEWEST_ROWS
    assert found.loss_after < found.loss_before
    assert f"temperature {found.temperature:.2f}" in done.stderr
    texts = [line.rpartition(",")[0] for line in dev[1:]]
    confidences = [row.confidence for row in read_answers(run)["dev"]]
    model = litebert.load(run)
    given = [max(found.values.values()) for found in model.classify(texts)]
    np.testing.assert_allclose(confidences, given, atol=0.02)
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "divided by a temperature" in page
