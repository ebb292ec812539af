"""Fine-tuned runs, one or an ensemble, put to whole data sets: answers, measures, files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import JsonValue

from litebert.config import (
    FinetuneConfig,
    Origin,
    Precision,
    Setting,
    TaskConfig,
    TaskDataConfig,
    numbered_labels,
    resolve,
)
from litebert.errors import LitebertError
from litebert.fast import limit_depth
from litebert.fast.exits import require_exits
from litebert.files import Json
from litebert.folder import load_model, locate
from litebert.nn import DTYPES, AlbertForTask
from litebert.runs import RUN_FILE, RunFile, read_record, read_run
from litebert.tasks.dataset import Dataset
from litebert.tasks.finetuning import answer
from litebert.tasks.kinds.classification import TextClassification
from litebert.tasks.kinds.spans import ConditionalSpanAnswering, tuned_threshold
from litebert.tasks.registry import open_dataset
from litebert.tokenizer import Tokenizer

Kept = Literal["last", "best"]


@dataclass(frozen=True)
class Finetuned:
    """A fine-tuned network with its tokenizer and the task that it was trained for."""

    folder: Path
    network: AlbertForTask
    tokenizer: Tokenizer
    task: TaskConfig
    dataset: Dataset[Any, Any]

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        kept: Kept = "last",
        task: str | None = None,
        data: TaskDataConfig | None = None,
        precision: Precision = "fp32",
        depth: int | None = None,
    ) -> Finetuned:
        """Open a run (its last step or its best evaluation), or a model folder with a task name.

        `depth` applies only so many steps.

        Raises:
            LitebertError: LB-613, LB-614, nothing says what the model was trained for, or it has
                another head than the task.
        """
        run = Path(path)
        recorded = read_run(run)
        folder = run / {"last": "model", "best": "best"}[kept] if recorded else locate(path)
        if recorded is None and task is None:
            raise LitebertError(
                "LB-613",
                f"nothing says what {path} was trained for",
                received="a model folder without its run",
                expected="a run that litebert finetune made (runs/<name>), or the task's name",
                next="add --task mrpc, or whichever task it is",
            )
        config = _configuration(recorded.settings) if recorded else None
        settings = config.task if config else TaskConfig(name=str(task))
        where = data or (config.data if config else TaskDataConfig())
        dataset = open_dataset(settings, where, settled=_settled(recorded) if recorded else None)
        network = load_model(folder, dtype=DTYPES[precision], for_inference=True).network
        if not isinstance(network, AlbertForTask) or not _fits(network, dataset):
            raise LitebertError(
                "LB-614",
                f"{folder} has no head for {settings.name}",
                received=_head(network),
                expected=f"{dataset.family.head.kind}: {', '.join(dataset.family.head.labels)}",
                next="choose a model that was fine-tuned on this task",
            )
        if depth is not None:
            limit_depth(network, depth)
        return cls(folder, network, Tokenizer.load(folder), settings, dataset)

    def answers(self, examples: Sequence[Any]) -> list[Any]:
        """Answer every example."""
        length = min(self.task.max_length, self.network.config.max_position_embeddings)
        family = self.dataset.family
        features = family.features(examples, self.tokenizer, max_length=length, training=False)
        return answer(self.network, family, examples, features)


def ensemble_answers(models: Sequence[Finetuned], examples: Sequence[Any]) -> list[Any]:
    """Answer with one model, or with the mean of several (paper 4.9: its headline results)."""
    answers = [model.answers(examples) for model in models]
    averaged: list[Any] = models[0].dataset.family.averaged(answers)
    return answers[0] if len(answers) == 1 else averaged


def measured(
    models: Sequence[Finetuned], data: Path, split: str
) -> tuple[dict[str, float], list[Any], list[Any]]:
    """Return measures, examples and answers of one labelled split."""
    dataset = models[0].dataset
    examples = dataset.read(data, split)
    answers = ensemble_answers(models, examples)
    return dataset.family.measures(examples, answers), examples, answers


def with_clean_threshold(models: Sequence[Finetuned], data: Path) -> list[Finetuned]:
    """Return SQuAD 2.0 models that keep silent from a threshold tuned on training articles.

    That is fair only where these were left out of training (data.train_split=fit).

    Raises:
        LitebertError: LB-616, the task knows no threshold.
    """
    family = models[0].dataset.family
    if not isinstance(family, ConditionalSpanAnswering):
        raise LitebertError(
            "LB-616",
            f"{models[0].dataset.name} has no threshold to tune",
            received=family.head.kind,
            expected="conditional-question-answering",
            next="leave --clean out",
        )
    examples = models[0].dataset.read(data, "tune")
    threshold = tuned_threshold(examples, ensemble_answers(models, examples))
    silent = replace(models[0].dataset, family=replace(family, null_threshold=threshold))
    return [replace(model, dataset=silent) for model in models]


def with_patience(models: Sequence[Finetuned], patience: int) -> list[Finetuned]:
    """Return models that stop early, each text for itself; see litebert.fast.exits."""
    for model in models:
        require_exits(model.network, patience)
    family = models[0].dataset.family
    assert isinstance(family, TextClassification), "no other head is after every step"
    dataset = replace(models[0].dataset, family=replace(family, patience=patience))
    return [replace(model, dataset=dataset) for model in models]


def data_of(folder: str | Path) -> Path:
    """Return where the data of a run lay when it was trained."""
    data = _configuration(read_record(Path(folder)).settings).data
    return Path(str(data.folder or data.train))


def _settled(run: RunFile) -> dict[str, Json] | None:
    """Return what the run guessed of people's own files."""
    return run.data if "columns" in run.data else None


def _configuration(settings: Mapping[str, JsonValue]) -> FinetuneConfig:
    given = {key: Setting(value, Origin("file", RUN_FILE)) for key, value in settings.items()}
    return resolve(FinetuneConfig, given).config


def _fits(network: AlbertForTask, dataset: Dataset[Any, Any]) -> bool:
    """Compare kinds and labels; the same labels in another order would be other answers."""
    ours, asked = network.head_config, dataset.family.head
    is_unnamed = ours.labels == numbered_labels(len(ours.labels))
    has_labels = ours.labels == asked.labels or (is_unnamed and bool(asked.labels))
    return ours.kind == asked.kind and ours.num_outputs == asked.num_outputs and has_labels


def _head(network: object) -> str:
    if isinstance(network, AlbertForTask):
        labels = ", ".join(network.head_config.labels[:10])
        return f"{network.head_config.kind}{f': {labels}' if labels else ''}"
    return "pretraining heads only"
