"""Each recipe says what the paper's Table 14 and run_glue.sh say (official-behaviour 6.6)."""

from importlib.resources import as_file, files
from typing import Any

import pytest

from litebert.config import FinetuneConfig, Origin, Setting, resolve
from litebert.config.load import settings_from_toml
from litebert.tasks.named import glue, race

FOLDER = files("litebert") / "recipes" / "finetune"

# task, rate, batch, encoder dropout, steps, warm-up, length, evaluated every (None: not said)
TABLE = {
    "cola": ("cola", 1e-5, 16, 0.0, 5_336, 320, 512, 100),
    "stsb": ("stsb", 2e-5, 16, 0.0, 3_598, 214, 512, 100),
    "sst2": ("sst2", 1e-5, 32, 0.0, 20_935, 1_256, 512, 100),
    "mnli": ("mnli", 3e-5, 128, 0.0, 10_000, 1_000, 512, 100),
    "qnli": ("qnli", 1e-5, 32, 0.0, 33_112, 1_986, 512, 200),
    "qqp": ("qqp", 5e-5, 128, 0.1, 14_000, 1_000, 512, 100),
    "rte": ("rte", 3e-5, 32, 0.1, 800, 200, 512, 100),
    "mrpc": ("mrpc", 2e-5, 32, 0.0, 800, 200, 512, 100),
    "wnli": ("wnli", 2e-5, 16, 0.1, 2_000, 250, 512, 0),
    "squad": ("squad", 5e-5, 48, 0.0, 3_649, 365, 384, 5_000),
    "squad2": ("squad2", 3e-5, 48, 0.0, 8_144, 814, 512, 5_000),
    "race": ("race", 2e-5, 32, 0.1, 12_000, 1_000, 512, 100),
    "race-v2": ("race", 1e-5, 32, 0.0, 12_000, 1_000, 512, 100),
}
EPOCHS = {  # the last column of 6.6, from steps x batch over the sizes of the training sets
    "cola": (8_551, 10.0),
    "stsb": (5_749, 10.0),
    "sst2": (67_349, 9.9),
    "mnli": (392_702, 3.3),
    "qnli": (104_743, 10.1),
    "qqp": (363_846, 4.9),
    "rte": (2_490, 10.3),
    "mrpc": (3_668, 7.0),
    "wnli": (635, 50.4),
    "squad": (87_599, 2.0),
    "squad2": (130_319, 3.0),
    "race": (87_866, 4.4),
    "race-v2": (87_866, 4.4),
}
GIVEN: dict[str, Setting] = {
    "model.start": Setting("model", Origin("flag")),
    "data.folder": Setting("data", Origin("flag")),
}


def _recipe(name: str) -> FinetuneConfig:
    with as_file(FOLDER / f"{name}.toml") as path:
        return resolve(FinetuneConfig, settings_from_toml(path), GIVEN).config


@pytest.mark.parametrize("name", TABLE)
def test_a_recipe_has_the_published_values(name: str) -> None:
    config = _recipe(name)
    model, optim, train = config.model, config.optim, config.train
    found: tuple[Any, ...] = (
        config.task.name,
        optim.learning_rate,
        train.batch_size,
        model.hidden_dropout_prob,
        train.steps,
        optim.warmup_steps,
        config.task.max_length,
        train.eval_every,
    )
    assert found == TABLE[name]
    assert model.attention_probs_dropout_prob == model.hidden_dropout_prob
    assert model.classifier_dropout_prob == 0.1
    assert (optim.name, optim.schedule, optim.weight_decay, optim.clip_norm) == ("adamw", "official", 0.01, 1.0)
    assert (optim.beta1, optim.beta2, optim.epsilon) == (0.9, 0.999, 1e-6)


@pytest.mark.parametrize("name", EPOCHS)
def test_the_steps_are_the_passes_that_the_paper_means(name: str) -> None:
    train = _recipe(name).train
    size, epochs = EPOCHS[name]
    assert train.steps * train.batch_size / size == pytest.approx(epochs, abs=0.051)


@pytest.mark.parametrize("name", ["squad", "squad2"])
def test_questions_and_windows_are_the_official_ones(name: str) -> None:
    task = _recipe(name).task
    assert (task.max_query_length, task.doc_stride) == (64, 128)


@pytest.mark.parametrize("school", ["middle", "high"])
def test_one_school_alone_has_the_values_of_race_by_passes(school: str) -> None:
    config, whole = _recipe(f"race-{school}"), _recipe("race")
    assert config.model == whole.model
    assert config.optim.model_copy(update={"warmup_steps": 1_000}) == whole.optim
    assert config.optim.warmup_steps == pytest.approx(1_000 / 12_000, abs=0.001)
    assert (config.train.epochs, config.train.steps) == (4.4, 0)


def test_every_task_that_can_be_trained_has_a_recipe_of_its_name() -> None:
    names = {entry.name.removesuffix(".toml") for entry in FOLDER.iterdir()}
    assert {*glue.DATASETS, *race.DATASETS, "squad", "squad2"} - names == {"ax"}
    assert names >= set(TABLE)


@pytest.mark.parametrize("name", [*TABLE, "race-middle", "race-high"])
def test_a_recipe_tells_its_source_data_hardware_and_expected_score(name: str) -> None:
    text = (FOLDER / f"{name}.toml").read_text(encoding="utf-8")
    head = text.partition("[task]")[0]
    for part in ("# Source: ", "# Data: ", "# Hardware: ", "# Expected: ", "Table 14", "Not run"):
        assert part in head
    assert max(map(len, text.splitlines())) <= 100
