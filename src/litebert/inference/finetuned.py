"""Fine-tuned runs and ensembles of them on whole data sets: answers, measures, and
eight-bit copies.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import torch

from litebert.config import (
    FinetuneConfig,
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
from litebert.hub import locate
from litebert.inference.inputs import open_network
from litebert.interop import Quantized
from litebert.nn import AlbertForTask, group_by_length
from litebert.runs import RUN_FILE, RunFolder
from litebert.settings import Schema, Setting, fields_of, resolve
from litebert.tasks.finetuning import answer
from litebert.tasks.kinds.family import Dataset, Feature, collate, frame_ids
from litebert.tasks.named import open_dataset
from litebert.tasks.own.dataset import require_same_data
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
        columns: Sequence[str] = (),
        device: str = "auto",
        precision: Precision | None = None,
        depth: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> "Finetuned":
        """Open a run, one of its models, or a model folder with a task name.

        `device` is where it computes; `precision` defaults to that of the run's
        training; `columns` replace the column
        roles that it was trained with; `depth` is the number of steps applied.
        """
        run = RunFolder.of(fspath(path))
        if run is not None:
            run.require_plugins()
        folder = locate(fspath(path))
        if run.kind == "pretraining" if run else task is None:
            what = (
                f"{path} is not a run of litebert finetune, and no file in it names its"
                " task"
            )
            advice = (
                f"litebert finetune DATA --model {path}"
                if run
                else "add --task mrpc, or whichever task it is"
            )
            raise LitebertError("LB-613", what, next=advice)
        if run is None and task == OWN:
            raise LitebertError(
                "LB-613",
                f"{path} is not a run of litebert finetune: no file in it says which"
                " columns it learned from",
                expected="a run; `quantize RUN OUTPUT --evaluate` measures an eight-bit"
                " copy of one",
                next="litebert runs list",
            )
        config = recorded_config(FinetuneConfig, run) if run else None
        settings, where = (
            (config.task, config.data)
            if config
            else (TaskConfig(name=str(task)), TaskDataConfig())
        )
        settled = dict(run.file.data) if run and "columns" in run.file.data else None
        if columns:
            where = where.model_copy(update={"columns": tuple(columns)})
        dataset = open_dataset(settings, where, settled=settled)
        used = choose_device(device).precision(precision or precision_of(config))
        model = open_network(folder, used, depth, device)
        own = model.head
        wanted = dataset.family.head
        # placeholder names
        if own and own.labels == numbered_labels(len(wanted.labels)):
            if len(wanted.labels) > 1:
                say(
                    f"warning: {folder} names no labels: they are taken to be, in"
                    f" order, {', '.join(wanted.labels)}"
                )
            own = own.model_copy(update={"labels": wanted.labels})
        # The labels must also be in the same order: the network predicts a label's
        # position.
        if own is None or not own.answers_as(wanted):
            what = f"{folder} has no head for {settings.name}"
            has = own or "pretraining heads only"
            advice = "choose a model that was fine-tuned on this task"
            raise LitebertError(
                "LB-614", what, received=has, expected=str(wanted), next=advice
            )
        # the head of the model says how texts are read
        family = replace(dataset.family, head=own)
        return cls(
            folder, model, settings, replace(dataset, family=family), used, progress
        )


def ensemble_answers(models: Sequence[Finetuned], examples: Sequence[Any]) -> list[Any]:
    """Answer with one model, or with the mean of several (paper 4.9: its headline
    results).
    """
    first = models[0].dataset
    for model in models[1:]:
        ours = first.family.head
        theirs = model.dataset.family.head
        # a mean would mix up labels
        if first.name != model.dataset.name or not ours.answers_as(theirs):
            what = "these runs cannot be averaged"
            advice = "name only runs of one task with the same labels"
            received = f"{model.dataset.name}: {theirs}"
            expected = f"{first.name}: {ours}"
            raise LitebertError(
                "LB-924", what, received=received, expected=expected, next=advice
            )
    answers = []
    for model in models:
        family = model.dataset.family
        length = model.task.max_length
        found = answer(
            model.network,
            model.tokenizer,
            family,
            examples,
            max_length=length,
            progress=model.progress,
        )
        answers.append(found)
    return (
        [first.family.averaged(each) for each in zip(*answers, strict=True)]
        if len(answers) > 1
        else answers[0]
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


# Records of a run


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
    version no longer has.
    """
    given = {
        key: Setting(run.settings[key], RUN_FILE)
        for key in fields_of(kind)
        if key in run.settings
    }
    return resolve(kind, given).config


# Eight-bit copies, calibrated on texts like those that the model will read


def quantize(
    model: str | PathLike[str],
    output: Path,
    *,
    texts: Iterable[str] = (),
    data: Path | None = None,
    task: str | None = None,
    evaluate: bool = False,
) -> Quantized:
    """Write an eight-bit copy of a model, calibrated on texts or, with `data`, on
    training examples of a run's task.

    `task` is needed only for a model folder without its run. With `evaluate`, the model
    is evaluated on the development splits before and after.
    """
    require_new(output, force=None)
    folder = locate(fspath(model))
    if weights_path(folder).name == INT8_FILE:
        raise LitebertError(
            "LB-617", f"{folder} is already in eight bits", next="use it as it is"
        )
    features = list[Feature]()
    before = dict[str, dict[str, float]]()
    if data is None:
        source = read_folder(folder)
        source.require_vectors()
        network = source.network
        tokenizer = source.require_tokenizer()
        longest = network.config.max_position_embeddings
        for number, each in enumerate(
            filter(None, tokenizer.encode_ids(list(islice(texts, _NUM_EXAMPLES))))
        ):
            ids, segments = frame_ids(tokenizer, each, None, max_length=longest)
            features.append(Feature((ids,), (segments,), None, number))
    else:
        # whatever it was trained in
        opened = Finetuned.open(model, task=task, device="cpu", precision="fp32")
        source = opened.model
        network = source.network
        tokenizer = source.require_tokenizer()
        dataset = opened.dataset
        rows = dataset.read(data, "train")
        chosen = rows[:: max(1, len(rows) // _NUM_EXAMPLES)][:_NUM_EXAMPLES]
        length = min(opened.task.max_length, network.config.max_position_embeddings)
        features = dataset.family.features(
            chosen, tokenizer, max_length=length, training=False
        )
        before = {
            split: measure_split([opened], data, split)[0]
            for split in dataset.dev_splits
            if evaluate
        }
    if len(features) < _HELD_OUT_EVERY:
        what = f"{len(features)} texts are too few to calibrate on"
        expected = f"a few hundred, at least {_HELD_OUT_EVERY}"
        raise LitebertError("LB-618", what, expected=expected, next="give more texts")

    # Calibrate on most examples, measure the error on the rest.
    held_out = features[::_HELD_OUT_EVERY]
    used = [
        feature for number, feature in enumerate(features) if number % _HELD_OUT_EVERY
    ]
    of_used, of_rest = (
        [
            collate([some[number] for number in group])
            for group in group_by_length([each.num_tokens for each in some])
        ]
        for some in (used, held_out)
    )
    albert = network.albert
    weights = [each for each in network.state_dict().values() if not each.is_meta]
    in_float32 = 4 * sum(each.numel() for each in weights)
    with torch.no_grad():
        exact = torch.cat([albert(batch) for batch in of_rest])  # (tokens, hidden)
        to_int8(network, calibrate(albert, of_used))
        pack(albert)
        rounded = torch.cat([albert(batch) for batch in of_rest])
    error = float((rounded - exact).norm() / exact.norm())
    with staged_folder(output, force=None) as staged:
        write_folder(source, staged)
    old, new = (
        sum(path.stat().st_size for path in each.glob("*.safetensors"))
        for each in (folder, output)
    )
    after = (
        {}
        if data is None
        else {split: measure_split([opened], data, split)[0] for split in before}
    )
    return Quantized(
        output=str(output),
        num_examples=len(used),
        bytes_before=old,
        bytes_after=new,
        bytes_in_float32=in_float32,
        error=error,
        before=before,
        after=after,
    )
