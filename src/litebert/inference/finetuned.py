"""Fine-tuned runs and ensembles of them on whole data sets: answers, measures, and
eight-bit copies.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from os import PathLike, fspath
from pathlib import Path
from shlex import quote
from typing import Any

import torch
from torch import nn

from litebert.config import (
    FinetuneConfig,
    HeadConfig,
    Precision,
    PretrainConfig,
    TaskConfig,
    TaskDataConfig,
    numbered_labels,
)
from litebert.device import choose_device
from litebert.errors import LitebertError, say
from litebert.fast import calibrate, pack, to_int8
from litebert.files import require_new, staged_folder
from litebert.folder import (
    INT8_FILE,
    ModelFolder,
    read_folder,
    weights_path,
    write_folder,
)
from litebert.folder.config import read_head
from litebert.hub import locate
from litebert.inference.inputs import open_network
from litebert.interop import Quantized
from litebert.nn import Albert, AlbertForTask, Batch, group_by_length
from litebert.origins import Origin
from litebert.runs import RUN_FILE, RunFolder
from litebert.settings import Schema, Setting, fields_of, resolve
from litebert.tasks.finetuning import answer
from litebert.tasks.kinds.family import Dataset, Feature, collate, frame_ids
from litebert.tasks.named import open_dataset
from litebert.tasks.own.dataset import require_same_data
from litebert.tasks.own.settling import problems_of_head
from litebert.tasks.own.table import OWN
from litebert.tokenizer import Tokenizer

_NUM_EXAMPLES = 512  # texts, or examples, for the calibration of eight bits
_HELD_OUT_EVERY = 16  # one in this many is held out to measure the error


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
        task of one's own, with `data`: labelled rows whose columns are guessed anew.

        `device` is where it computes; `precision` defaults to that of the run's
        training; `columns` replace the column roles that it was trained with.
        """
        run = RunFolder.of(fspath(path))
        folder = locate(fspath(path))
        config: FinetuneConfig | None = None
        settled = None  # what the run recorded about the user's own files
        if run is not None:
            _require_finetuned(run, path)
            config = recorded_config(FinetuneConfig, run)
            settings = config.task
            where = config.data
            if "columns" in run.file.data:
                settled = dict(run.file.data)
        elif task in (None, OWN):
            settings = TaskConfig(name=OWN)
            where = _data_like(folder, data)
        else:
            settings = TaskConfig(name=str(task))
            where = TaskDataConfig()
        if columns:
            where = where.model_copy(update={"columns": tuple(columns)})
        dataset = open_dataset(settings, where, settled=settled)

        used = choose_device(device).precision(precision or precision_of(config))
        model = open_network(folder, used, device)
        # the head of the model says how texts are read
        head = _head_for(dataset.family.head, model, folder, settings.name)
        family = replace(dataset.family, head=head)
        dataset = replace(dataset, family=family)
        return cls(folder, model, settings, dataset, used, progress)


def _head_for(
    wanted: HeadConfig, model: ModelFolder, folder: Path, task: str
) -> HeadConfig:
    """Return the head of a model, which must answer as the task wants: with the same
    labels in the same order, since the network predicts a label's position.
    """
    head = model.head
    has_placeholders = head is not None and head.labels == numbered_labels(
        len(wanted.labels)
    )
    if head is not None and has_placeholders:
        if len(wanted.labels) > 1:
            say(
                f"warning: {folder} names no labels: they are taken to be, in order,"
                f" {', '.join(wanted.labels)}"
            )
        head = head.model_copy(update={"labels": wanted.labels})
    if head is not None and head.answers_as(wanted):
        return head
    raise LitebertError(
        "LB-614",
        f"{folder} has no head for {task}",
        received=head or "pretraining heads only",
        expected=str(wanted),
        next="choose a model that was fine-tuned on this task",
    )


def _require_finetuned(run: RunFolder, path: str | PathLike[str]) -> None:
    if run.kind == "pretraining":
        raise LitebertError(
            "LB-613",
            f"{path} is a run of pretraining, not of litebert finetune",
            next=f"litebert finetune DATA --model {quote(fspath(path))}",
        )


def _data_like(folder: Path, data: str | PathLike[str] | None) -> TaskDataConfig:
    """Return how a table is read for a model without its run: all rows are measured,
    with the labels of the model in their order.
    """
    head = read_head(folder)
    if head is None or data is None or not Path(data).exists():
        raise LitebertError(
            "LB-613",
            f"{folder} is not a run of litebert finetune, and no file in it names its"
            " task",
            received=str(head or "pretraining heads only"),
            expected="a run, or the name of a task: --task mrpc",
            next=f"litebert {head.verb if head else 'embed'} FILE --model {folder}",
        )
    say(f"note: all rows of {data} are read: {folder} names none that it has learned")
    kinds = problems_of_head(head)
    return TaskDataConfig(
        train=str(data),
        dev=str(data),
        problem=kinds[0] if len(kinds) == 1 else None,
        labels=head.labels,
    )


def ensemble_answers(models: Sequence[Finetuned], examples: Sequence[Any]) -> list[Any]:
    """Answer with one model, or with the mean of several (paper 4.9: its headline
    results).
    """
    first = models[0].dataset
    for model in models[1:]:
        _require_same_labels(first, model.dataset)
    answers = list[list[Any]]()
    for model in models:
        answers.append(
            answer(
                model.network,
                model.tokenizer,
                model.dataset.family,
                examples,
                max_length=model.task.max_length,
                progress=model.progress,
            )
        )
    if len(models) == 1:
        return answers[0]
    answers_by_example = zip(*answers, strict=True)
    return [first.family.averaged(several) for several in answers_by_example]


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
    recorded = dict[str, Setting]()
    for name in fields_of(kind):
        if name in run.settings:
            recorded[name] = Setting(run.settings[name], Origin("file", RUN_FILE))
    return resolve(kind, recorded).config


# ---- eight-bit copies ----------------------------------------------------------------


def quantize(
    model: str | PathLike[str],
    output: Path,
    *,
    texts: Iterable[str] = (),
    data: Path | None = None,
    task: str | None = None,
) -> Quantized:
    """Write an eight-bit copy of a model, calibrated on texts or, with `data`, on
    training examples of a run's task: they should be like what the model will read.

    `task` is needed only for a model folder without its run.
    """
    require_new(output, force=None)
    folder = locate(fspath(model))
    if weights_path(folder).name == INT8_FILE:
        raise LitebertError(
            "LB-617", f"{folder} is already in eight bits", next="use it as it is"
        )
    if data is None:
        source = read_folder(folder)
        source.require_vectors()
        features = _features_of_texts(source, texts)
    else:
        # whatever it was trained in
        finetuned = Finetuned.open(
            model, task=task, data=data, device="cpu", precision="fp32"
        )
        source = finetuned.model
        features = _features_of_task(finetuned, data)
    _require_enough(features)

    # Calibrate on most examples, measure the error on the others.
    held_out = features[::_HELD_OUT_EVERY]
    used = list[Feature]()
    for number, feature in enumerate(features):
        if number % _HELD_OUT_EVERY:
            used.append(feature)
    bytes_in_float32 = _bytes_in_float32(source.network)
    error = _to_eight_bits(source.network, _batches(used), _batches(held_out))
    with staged_folder(output, force=None) as staged:
        write_folder(source, staged)
    return Quantized(
        output=str(output),
        num_examples=len(used),
        bytes_before=_bytes_on_disk(folder),
        bytes_after=_bytes_on_disk(output),
        bytes_in_float32=bytes_in_float32,
        error=error,
    )


def _features_of_texts(model: ModelFolder, texts: Iterable[str]) -> list[Feature]:
    """Encode the first texts that are not empty, each as far as the model reads."""
    tokenizer = model.require_tokenizer()
    longest = model.network.config.max_position_embeddings
    features = list[Feature]()
    for pieces in tokenizer.encode_ids(list(islice(texts, _NUM_EXAMPLES))):
        if pieces:
            ids, segments = frame_ids(tokenizer, pieces, None, max_length=longest)
            features.append(Feature((ids,), (segments,), None, len(features)))
    return features


def _features_of_task(finetuned: Finetuned, data: Path) -> list[Feature]:
    """Encode training examples, evenly spaced over the file."""
    examples = finetuned.dataset.read(data, "train")
    spacing = max(1, len(examples) // _NUM_EXAMPLES)
    positions = finetuned.network.config.max_position_embeddings
    return finetuned.dataset.family.features(
        examples[::spacing][:_NUM_EXAMPLES],
        finetuned.tokenizer,
        max_length=min(finetuned.task.max_length, positions),
        training=False,
    )


def _require_enough(features: Sequence[Feature]) -> None:
    """Raise unless there is something to calibrate on, and something to hold out."""
    if len(features) >= _HELD_OUT_EVERY:
        return
    raise LitebertError(
        "LB-618",
        f"{len(features)} texts are too few to calibrate on",
        expected=f"a few hundred, at least {_HELD_OUT_EVERY}",
        next="give more texts",
    )


def _batches(features: Sequence[Feature]) -> list[Batch]:
    """Return the batches of features of similar lengths."""
    lengths = [feature.num_tokens for feature in features]
    batches = list[Batch]()
    for group in group_by_length(lengths):
        batches.append(collate([features[number] for number in group]))
    return batches


@torch.no_grad()
def _to_eight_bits(
    network: Any, calibration: Sequence[Batch], held_out: Sequence[Batch]
) -> float:
    """Replace the weights in place; return the relative error of the last hidden states
    of held-out texts.
    """
    albert: Albert = network.albert
    exact = torch.cat([albert(batch) for batch in held_out])  # (tokens, hidden)
    to_int8(network, calibrate(albert, calibration))
    pack(albert)
    rounded = torch.cat([albert(batch) for batch in held_out])
    return float((rounded - exact).norm() / exact.norm())


def _bytes_in_float32(network: nn.Module) -> int:
    """Return the size of the weights that a model has, whatever they are stored in."""
    num_weights = 0
    for weight in network.state_dict().values():
        if not weight.is_meta:
            num_weights += weight.numel()
    return 4 * num_weights


def _bytes_on_disk(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))
