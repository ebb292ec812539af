"""A fine-tuned run, or an ensemble of them, on whole data sets: answers and measures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal

from pydantic import JsonValue

from litebert.config import (
    FinetuneConfig,
    Origin,
    Precision,
    PretrainConfig,
    Schema,
    Setting,
    TaskConfig,
    TaskDataConfig,
    numbered_labels,
    resolve,
)
from litebert.config.load import RETIRED
from litebert.errors import LitebertError
from litebert.fast import limit_depth
from litebert.fast.exits import require_exits
from litebert.fast.steps import DTYPES
from litebert.folder.model import load_model
from litebert.hub.transfer import locate
from litebert.nn import AlbertForTask
from litebert.runs import RUN_FILE, is_run, read_run
from litebert.tasks.finetuning import answer
from litebert.tasks.kinds.family import Dataset
from litebert.tasks.kinds.spans import ConditionalSpanAnswering, tuned_threshold
from litebert.tasks.kinds.text import TextClassification
from litebert.tasks.named import open_dataset
from litebert.tasks.own.dataset import require_same_data
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
    precision: Precision = "fp32"
    progress: Callable[[int], None] | None = None

    @classmethod
    def open(
        cls,
        path: str | PathLike[str],
        *,
        kept: Kept = "last",
        task: str | None = None,
        columns: Sequence[str] = (),
        precision: Precision | None = None,
        depth: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Finetuned:
        """Open a run (its last step or its best evaluation), or a model folder with a task name.

        `precision` defaults to the one that the run was trained in; `columns` replace the roles of columns that it was
        trained with; `depth` is the number of steps applied.
        """
        run = run_of(path)
        recorded = None if run is None else read_run(run)
        if run is not None and run == Path(path):
            folder = run / {"last": "model", "best": "best"}[kept]
        else:
            folder = locate(fspath(path))
        if recorded is None and task is None:
            raise LitebertError(
                "LB-613",
                f"no file names what {path} was trained for",
                expected="a run that litebert finetune made (runs/<name>), or the task's name",
                next="add --task mrpc, or whichever task it is",
            )
        config = recorded_config(FinetuneConfig, recorded.settings) if recorded else None
        settings = config.task if config else TaskConfig(name=str(task))
        where = config.data if config else TaskDataConfig()
        settled = dict(recorded.data) if recorded and "columns" in recorded.data else None
        if columns:
            where = where.model_copy(update={"columns": tuple(columns)})
            if settled is not None:  # the recorded roles, some of them replaced
                old = settled["columns"]
                words = [*(old if isinstance(old, list) else []), *columns]
                settled["columns"] = list({str(word).partition("=")[0]: str(word) for word in words}.values())
        dataset = open_dataset(settings, where, settled=settled)
        used = precision or trained_in(config)
        network = load_model(folder, dtype=DTYPES[used], for_inference=True).network
        if not isinstance(network, AlbertForTask) or not _fits(network, dataset):
            own = network.head_config if isinstance(network, AlbertForTask) else None
            raise LitebertError(
                "LB-614",
                f"{folder} has no head for {settings.name}",
                received=f"{own.kind}: {', '.join(own.labels[:10])}" if own else "pretraining heads only",
                expected=f"{dataset.family.head.kind}: {', '.join(dataset.family.head.labels)}",
                next="choose a model that was fine-tuned on this task",
            )
        if depth is not None:
            limit_depth(network, depth)
        return cls(folder, network, Tokenizer.load(folder), settings, dataset, used, progress)

    def answers(self, examples: Sequence[Any]) -> list[Any]:
        """Answer every example."""
        length = min(self.task.max_length, self.network.config.max_position_embeddings)
        family = self.dataset.family
        features = family.features(examples, self.tokenizer, max_length=length, training=False)
        return answer(self.network, family, examples, features, progress=self.progress)


def ensemble_answers(models: Sequence[Finetuned], examples: Sequence[Any]) -> list[Any]:
    """Answer with one model, or with the mean of several (paper 4.9: its headline results)."""
    first = models[0].dataset
    for model in models[1:]:
        ours, theirs = first.family.head, model.dataset.family.head
        if first.name != model.dataset.name or not ours.answers_as(theirs):  # a mean would mix up labels
            raise LitebertError(
                "LB-924",
                f"{models[0].folder} and {model.folder} cannot be averaged",
                received=f"{model.dataset.name}: {', '.join(theirs.labels) or theirs.kind}",
                expected=f"{first.name}: {', '.join(ours.labels) or ours.kind}",
                next="name only runs of one task with the same labels",
            )
    answers = [model.answers(examples) for model in models]
    if len(answers) == 1:
        return answers[0]
    averaged: list[Any] = first.family.averaged(answers)
    return averaged


def measured(models: Sequence[Finetuned], data: Path, split: str) -> tuple[dict[str, float], list[Any], list[Any]]:
    """Return measures, examples and answers of one labelled split."""
    dataset = models[0].dataset
    require_same_data({str(model.folder): model.dataset for model in models}, data)
    examples = dataset.read(data, split)
    answers = ensemble_answers(models, examples)
    return dataset.family.measures(examples, answers), examples, answers


def with_clean_threshold(models: Sequence[Finetuned], data: Path) -> list[Finetuned]:
    """Return SQuAD 2.0 models whose threshold for "no answer" is tuned on training articles.

    That is fair only if the models were not trained on these articles (data.train_split=fit).
    """
    dataset = models[0].dataset
    if not isinstance(dataset.family, ConditionalSpanAnswering):
        raise LitebertError("LB-616", f"{dataset.name} has no threshold to tune", next="omit --clean")
    examples = dataset.read(data, "tune")
    threshold = tuned_threshold(examples, ensemble_answers(models, examples))
    silent = replace(dataset, family=replace(dataset.family, null_threshold=threshold))
    return [replace(model, dataset=silent) for model in models]


def with_patience(models: Sequence[Finetuned], patience: int) -> list[Finetuned]:
    """Return models that stop early, separately for each text; see litebert.fast.exits."""
    for model in models:
        require_exits(model.network, patience)
    family = models[0].dataset.family
    assert isinstance(family, TextClassification), "no other head is after every step"
    dataset = replace(models[0].dataset, family=replace(family, patience=patience))
    return [replace(model, dataset=dataset) for model in models]


def data_of(folder: str | PathLike[str]) -> Path:
    """Return the path of the data that a run was trained on."""
    found = run_of(folder)
    if found is None:
        raise LitebertError("LB-925", f"no file names the data of {folder}, which has no run", next="add --data FOLDER")
    recorded = read_run(found)
    assert recorded is not None
    data = recorded_config(FinetuneConfig, recorded.settings).data
    return Path(str(data.folder or data.train))


def run_of(path: str | PathLike[str]) -> Path | None:
    """Return the run of a folder: itself, or the one whose model it is; None if there is none."""
    folder = Path(path)
    if is_run(folder):
        return folder
    return folder.parent if folder.name in ("model", "best") and is_run(folder.parent) else None


def trained_in(config: PretrainConfig | FinetuneConfig | None) -> Precision:
    """Return the precision that a run was trained in; fp32 where there is no run."""
    recorded = config.train.precision if config else "fp32"
    return "fp32" if recorded == "auto" else recorded


def recorded_config(kind: type[Schema], settings: Mapping[str, JsonValue]) -> Schema:
    """Return the configuration of a run from the settings in its run.json."""
    given = {key: Setting(value, Origin("file", RUN_FILE)) for key, value in settings.items() if key not in RETIRED}
    return resolve(kind, given).config


def _fits(network: AlbertForTask, dataset: Dataset[Any, Any]) -> bool:
    """Compare kinds and labels, in order: a label's position is what the network predicts."""
    ours, wanted = network.head_config, dataset.family.head
    is_unnamed = ours.labels == numbered_labels(len(ours.labels))
    has_labels = ours.labels == wanted.labels or (is_unnamed and bool(wanted.labels))
    is_same_kind = ours.kind == wanted.kind or (ours.record.has_problem_type and wanted.record.has_problem_type)
    return is_same_kind and ours.num_outputs == wanted.num_outputs and has_labels
