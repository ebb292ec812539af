"""Runs as litebert pretrain writes them, by the same functions."""

from collections.abc import Callable
from pathlib import Path

import pytest

from litebert.config import PretrainConfig, Setting, resolve
from litebert.files import write_json
from litebert.train.log import RunLog
from litebert.train.run import begin_or_resume

MakeRun = Callable[..., Path]


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Give a function that writes a run of 40 steps, evaluated at 0, 20 and 40."""

    def make(
        name: str = "mine",
        *,
        sentence: str = "order",
        corpus: str = "corpora/wiki",
        evaluated: tuple[int, ...] = (0, 20, 40),
        last_step: int = 40,
        accuracies: tuple[float, float] = (0.3, 0.8),
    ) -> Path:
        folder = tmp_path / name
        settings = {
            "model.preset": Setting("tiny", "flag"),
            "data.corpus": Setting(corpus, "flag"),
            "objective.sentence": Setting(sentence, "command line"),
            "train.steps": Setting(40, "recipe laptop"),
            "train.log_every": Setting(1, "recipe laptop"),
        }
        data = {"tokenizer": "a1b2c3", "training tokens": 1_234_567}
        begin_or_resume(folder, resolve(PretrainConfig, settings), data=data)
        log = RunLog(folder, 40, is_quiet=True)
        for step in range(last_step + 1):
            if step:
                rates = {"learning_rate": 1e-3, "gradient_norm": 2.0 / step}
                log.training(step, 4_000, measures(step, sentence, accuracies), rates)
            if step in evaluated:
                held_out = measures(step, sentence, accuracies)
                log.evaluation(step, held_out | {"masked_lm_baseline": 0.054})
        if last_step == 40:
            write_json(folder / "model" / "config.json", {})
        return folder

    return make


def measures(step: int, sentence: str, accuracies: tuple[float, float]) -> dict[str, float]:
    masked, order = accuracies
    values = {"masked_lm_loss": 10 - step / 8, "masked_lm_accuracy": masked * step / 40}
    if sentence == "none":
        return values
    swapped = 0.5 + (order - 0.5) * step / 40
    return values | {"sentence_order_loss": 0.7, "sentence_order_accuracy": swapped}
