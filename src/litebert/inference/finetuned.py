"""Fine-tuned runs, and ensembles of them, on whole data sets: answers and measures."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from shlex import quote
from typing import Any

from pydantic import JsonValue

from litebert.config import (
    OWN_FILES,
    FinetuneConfig,
    HeadConfig,
    Precision,
    PretrainConfig,
    TaskConfig,
    TaskDataConfig,
    numbered_labels,
    without_effect,
)
from litebert.device import choose_device
from litebert.errors import LitebertError, say
from litebert.folder import ModelFolder
from litebert.folder.config import read_head
from litebert.hub import locate
from litebert.inference.inputs import open_network
from litebert.nn import AlbertForTask
from litebert.origins import Origin
from litebert.runs import RUN_FILE, RunFolder
from litebert.settings import Schema, Setting, Settings, fields_of, resolve
from litebert.tasks.finetuning import answer
from litebert.tasks.kinds.family import Dataset
from litebert.tasks.named import open_dataset
from litebert.tasks.tables.dataset import require_same_data
from litebert.tasks.tables.settling import problems_of_head
from litebert.tokenizer import Tokenizer


@dataclass(frozen=True)
class _Trained:
    """What a model was trained on, as its run recorded it or its caller says it."""

    task: TaskConfig
    data: TaskDataConfig
    precision: Precision | None = None  # None: that of the device
    # what the run recorded about the user's own files
    settled: dict[str, JsonValue] | None = None

    @classmethod
    def of_run(cls, run: RunFolder, path: str) -> "_Trained":
        """Return the record of a run, which must be a fine-tuning."""
        if run.kind == "pretraining":
            raise LitebertError(
                "LB-613",
                f"{path} is a run of pretraining, not of litebert finetune",
                next=f"litebert finetune DATA --model {quote(path)}",
            )
        config = recorded_config(FinetuneConfig, run)
        settled = None
        if "columns" in run.file.data:
            settled = dict(run.file.data)
        return cls(config.task, config.data, precision_of(config), settled)

    @classmethod
    def of_folder(
        cls, folder: Path, task: str | None, data: str | PathLike[str] | None
    ) -> "_Trained":
        """Return the named task, or the task of a table whose columns are guessed for
        the model.
        """
        if task in (None, OWN_FILES):
            return cls(TaskConfig(name=OWN_FILES), _data_like(folder, data))
        return cls(TaskConfig(name=str(task)), TaskDataConfig())


@dataclass(frozen=True)
class Finetuned:
    """A fine-tuned network with its tokenizer and the task that it was trained for."""

    folder: Path
    model: ModelFolder
    task: TaskConfig
    dataset: Dataset[Any, Any]
    precision: Precision = "fp32"
    progress: Callable[[int], None] | None = None

    @property
    def network(self) -> AlbertForTask:
        assert isinstance(self.model.network, AlbertForTask), "checked by `open`"
        return self.model.network

    @property
    def tokenizer(self) -> Tokenizer:
        return self.model.require_tokenizer()

    @classmethod
    def open(
        cls,
        path: str | PathLike[str],
        *,
        task: str | None = None,
        data: str | PathLike[str] | None = None,
        columns: Sequence[str] = (),
        device: str = "auto",
        precision: Precision | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> "Finetuned":
        """Open a run, one of its models, or a model folder with a task name or, for a
        task of one's own, with `data`: labeled rows whose columns are guessed anew.

        `device` is where it computes; `precision` defaults to that of the run's
        training; `columns` replace the column roles that it was trained with.
        """
        run = RunFolder.of(fspath(path))
        folder = locate(fspath(path))
        if run is None:
            trained = _Trained.of_folder(folder, task, data)
        else:
            trained = _Trained.of_run(run, fspath(path))
        data_config = trained.data
        if columns:
            data_config = data_config.model_copy(update={"columns": tuple(columns)})
        dataset = open_dataset(trained.task, data_config, settled=trained.settled)

        used = choose_device(device).precision(precision or trained.precision)
        model = open_network(folder, used, device)
        # the head of the model says how texts are read
        head = _head_for(dataset.family.head, model, folder, trained.task.name)
        family = replace(dataset.family, head=head)
        dataset = replace(dataset, family=family)
        return cls(folder, model, trained.task, dataset, used, progress)

    def answer(self, examples: Sequence[Any]) -> list[Any]:
        """Answer examples of the task, cut to the length that it was trained with."""
        return answer(
            self.network,
            self.tokenizer,
            self.dataset.family,
            examples,
            max_length=self.task.max_length,
            progress=self.progress,
        )


def _head_for(
    expected: HeadConfig, model: ModelFolder, folder: Path, task: str
) -> HeadConfig:
    """Return the head of a model, which must answer as the task wants: with the same
    labels in the same order, since the network predicts a label's position.
    """
    head = model.head
    if head is not None and head.labels == numbered_labels(len(expected.labels)):
        if len(expected.labels) > 1:
            say(
                f"warning: {folder} names no labels: they are taken to be, in order,"
                f" {', '.join(expected.labels)}"
            )
        head = head.model_copy(update={"labels": expected.labels})
    if head is not None and head.answers_as(expected):
        return head
    raise LitebertError(
        "LB-614",
        f"{folder} has no head for {task}",
        received=head or "pretraining heads only",
        expected=str(expected),
        next="choose a model that was fine-tuned on this task",
    )


def _data_like(folder: Path, data: str | PathLike[str] | None) -> TaskDataConfig:
    """Return how a table is read for a model without its run: all rows are measured,
    with the labels of the model in their order.
    """
    head = read_head(folder)
    if head is None or data is None or not Path(data).exists():
        raise _no_task(folder, head)
    say(f"note: all rows of {data} are read: {folder} names none that it has learned")
    problem = None
    possible = problems_of_head(head)
    if len(possible) == 1:
        problem = possible[0]
    return TaskDataConfig(
        train=str(data), dev=str(data), problem=problem, labels=head.labels
    )


def _no_task(folder: Path, head: HeadConfig | None) -> LitebertError:
    verb = head.verb if head else "embed"
    return LitebertError(
        "LB-613",
        f"{folder} is not a run of litebert finetune, and no file in it names its task",
        received=str(head or "pretraining heads only"),
        expected="a run, or the name of a task: --task mrpc",
        next=f"litebert {verb} FILE --model {folder}",
    )


def ensemble_answers(models: Sequence[Finetuned], examples: Sequence[Any]) -> list[Any]:
    """Answer with one model, or with the mean of several (paper 4.9: its headline
    results).
    """
    first = models[0].dataset
    for model in models[1:]:
        _require_same_labels(first, model.dataset)
    answers_by_model = [model.answer(examples) for model in models]
    if len(models) == 1:
        return answers_by_model[0]
    answers_by_example = zip(*answers_by_model, strict=True)
    return [first.family.averaged(answers) for answers in answers_by_example]


def _require_same_labels(first: Dataset[Any, Any], other: Dataset[Any, Any]) -> None:
    """Raise unless the answers to two tasks can be averaged; otherwise a mean would mix
    up labels.
    """
    head = first.family.head
    if first.name == other.name and head.answers_as(other.family.head):
        return
    raise LitebertError(
        "LB-924",
        "these runs cannot be averaged",
        received=f"{other.name}: {other.family.head}",
        expected=f"{first.name}: {head}",
        next="name only runs of one task with the same labels",
    )


def measure_split(
    models: Sequence[Finetuned], data: Path, split: str
) -> tuple[dict[str, float], list[Any], list[Any]]:
    """Return measures, examples and answers of one labeled split."""
    dataset = models[0].dataset
    require_same_data({str(model.folder): model.dataset for model in models}, data)
    examples = dataset.read(data, split)
    answers = ensemble_answers(models, examples)
    return dataset.family.measures(examples, answers), examples, answers


# ---- records of a run ----------------------------------------------------------------


def data_of(folder: str | PathLike[str]) -> Path:
    """Return the path of the data that a run was trained on."""
    run = RunFolder.of(fspath(folder))
    if run is None:
        raise LitebertError(
            "LB-925",
            f"{folder} is not a run, so no file names its data",
            next="add --data FOLDER",
        )
    data = recorded_config(FinetuneConfig, run).data
    return Path(str(data.folder or data.train))


def precision_of(config: PretrainConfig | FinetuneConfig | None) -> Precision | None:
    """Return the precision that a run was trained in; None, the device's, without a
    run.
    """
    recorded = config.train.precision if config else None
    return None if recorded == "auto" else recorded


def recorded_config(kind: type[Schema], run: RunFolder) -> Schema:
    """Return the configuration of a run from its run.json, without settings that this
    version no longer has; its plug-ins must be loaded.
    """
    run.require_plugins()
    recorded = Settings()
    for name in fields_of(kind):
        if name in run.settings:
            recorded[name] = Setting(run.settings[name], Origin("file", RUN_FILE))
    _drop_without_effect(recorded)
    return resolve(kind, recorded).config


def _drop_without_effect(recorded: Settings) -> None:
    """Remove the settings of the data that changed nothing: this version refuses them,
    earlier ones took them without a word.
    """
    data: dict[str, JsonValue] = {}
    for name in TaskDataConfig.model_fields:
        if f"data.{name}" in recorded:
            data[name] = recorded[f"data.{name}"].value
    for name in without_effect(TaskDataConfig.model_validate(data)):
        del recorded[f"data.{name}"]
