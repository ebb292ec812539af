"""From a pretrained model and a task to a model that answers: begin or resume, train, report."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from litebert import rng
from litebert.config import AlbertConfig, FinetuneConfig, HeadConfig, Origin, Resolved, flattened
from litebert.errors import LitebertError
from litebert.files import Json, write_text
from litebert.folder import Start, read_config, start_from
from litebert.hub import locate, write_card
from litebert.nn import AlbertForTask
from litebert.optim import build_optimizer, build_schedule
from litebert.runs import (
    RESULT_FILE,
    Evaluation,
    Result,
    locked,
    read_metrics,
    read_record,
    recorded_setting,
    write_result,
)
from litebert.tasks.dataset import Dataset
from litebert.tasks.finetuning import Finetuning, LabelledSet, answer
from litebert.tasks.kinds.family import Feature
from litebert.tasks.registry import open_dataset
from litebert.tokenizer import Tokenizer
from litebert.train.best import BestModel
from litebert.train.checkpoint import Checkpoints
from litebert.train.depth import rate_scales
from litebert.train.estimate import faster_precision
from litebert.train.interrupt import Interruption, interruptible
from litebert.train.log import Listener, RunLog
from litebert.train.loop import Trainer, resumed, run_steps
from litebert.train.run import (
    Outcome,
    begin_or_resume,
    choose_device,
    dtype_of,
    require_disk,
    write_model,
)

AnyDataset = Dataset[Any, Any]


@dataclass(frozen=True)
class Prepared:
    """Everything that is known before the first step."""

    config: FinetuneConfig
    network_config: AlbertConfig
    dataset: AnyDataset
    tokenizer: Tokenizer
    start: Path
    features: list[Feature]
    held_out: Mapping[str, LabelledSet[Any]]

    @property
    def num_examples(self) -> int:
        """Count the examples that are trained on."""
        return len({feature.example for feature in self.features})


def prepare(resolved: Resolved[FinetuneConfig], folder: Path) -> Prepared:
    """Read the data and the model's shape, and settle what nobody set; writes nothing."""
    config = resolved.config
    start = locate(config.model.start)
    tokenizer = Tokenizer.load(start)
    dataset = open_dataset(config.task, config.data)
    data = Path(config.data.folder or str(config.data.train))
    examples = dataset.read(data, dataset.train_split)
    length = min(config.task.max_length, read_config(start).max_position_embeddings)
    features = dataset.family.features(examples, tokenizer, max_length=length, training=True)
    if not features:
        raise LitebertError(
            "LB-513",
            f"there is nothing to train on in {data}",
            received="no examples",
            expected=f"examples of {dataset.name}",
            next=f"litebert data check {data}",
        )
    if config.train.exits and dataset.family.head.kind != "sequence-classification":
        raise LitebertError(
            "LB-518",
            f"{dataset.name} cannot have a head after every step",
            received=f"train.exits=true, {dataset.family.head.kind}",
            expected="a task that gives a whole text, or a pair, labels or a score",
            next="leave train.exits out",
        )
    held_out = {}
    for split in dataset.dev_splits:
        labelled = dataset.read(data, split)
        encoded = dataset.family.features(labelled, tokenizer, max_length=length, training=False)
        held_out[split] = LabelledSet(labelled, encoded)
    return Prepared(
        config=_completed(config, len(features), folder),
        network_config=_network_config(config, start),
        dataset=dataset,
        tokenizer=tokenizer,
        start=start,
        features=features,
        held_out=held_out,
    )


def finetune(
    resolved: Resolved[FinetuneConfig],
    folder: Path,
    *,
    is_quiet: bool = False,
    listeners: tuple[Listener, ...] = (),
) -> Outcome:
    """Train a task from the configuration, or go on where the same one was interrupted.

    Leaves `model` (the last step), `best` (the best evaluation by the key measure) and
    `result.json`, which reports both and never mixes them.
    """
    with locked(folder):
        prepared = prepare(resolved, folder)
        config, train = prepared.config, prepared.config.train
        origins = resolved.origins | _origins(resolved.config, config)
        begin_or_resume(folder, Resolved(config, origins), data=_described(prepared))
        if (folder / RESULT_FILE).exists():
            return Outcome(folder, train.steps, 0, folder / "model")
        with interruptible() as interruption:
            network = _network(prepared, config)
            best = _best(folder, prepared, network, interruption)
            log = RunLog(folder, train.steps, is_quiet=is_quiet, listeners=(best, *listeners))
            start = _started(network, prepared)
            for line in (*prepared.dataset.notes, *_said(start)):
                log.say(line)
            trainer = _trainer(network, config, folder, log)
            progress = resumed(trainer)
            best.recall(read_metrics(folder) if progress.step else [])
            progress = run_steps(trainer, _task(network, prepared), progress, best)
        if interruption.is_requested and progress.step < train.steps:
            return Outcome(folder, progress.step, interruption.exit_code, None)
        write_model(folder / "model", network, prepared.tokenizer)
        _write_answers(folder / "answers", network, prepared)
        write_result(folder, _result(folder, prepared, best, start))
        for kept in ("model", "best"):
            write_card(folder / kept)
        return Outcome(folder, progress.step, 0, folder / "model")


def _completed(config: FinetuneConfig, num_features: int, folder: Path) -> FinetuneConfig:
    """Fill in the steps of the epochs, evaluation once an epoch, and this machine's precision."""
    train = config.train
    per_epoch = math.ceil(num_features / train.batch_size)
    steps = train.steps or max(1, round(train.epochs * num_features / train.batch_size))
    precision = train.precision
    if precision == "auto":
        recorded = recorded_setting(folder, "train.precision")
        precision = str(recorded or faster_precision(choose_device(train.device)))  # type: ignore[assignment]
    update = {
        "steps": steps,
        "eval_every": train.eval_every or min(per_epoch, steps),
        "precision": precision,
    }
    return config.model_copy(update={"train": train.model_copy(update=update)})


def _origins(asked: FinetuneConfig, completed: FinetuneConfig) -> dict[str, Origin]:
    before, after = flattened(asked), flattened(completed)
    return {name: Origin("measured") for name, value in after.items() if before[name] != value}


def _network_config(config: FinetuneConfig, start: Path) -> AlbertConfig:
    names = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout_prob")
    asked = {name: getattr(config.model, name) for name in names}
    changes = {name: value for name, value in asked.items() if value is not None}
    return read_config(start).model_copy(update=changes)


def _described(prepared: Prepared) -> dict[str, Json]:
    """Name what the numbers of a run depend on, for run.json."""
    return {
        "tokenizer": prepared.tokenizer.hash,
        "task": prepared.dataset.name,
        **prepared.dataset.settled,
        "training examples": prepared.num_examples,
        "training features": len(prepared.features),
        **{f"{name} examples": len(held.examples) for name, held in prepared.held_out.items()},
    }


def _network(prepared: Prepared, config: FinetuneConfig) -> AlbertForTask:
    head: HeadConfig = prepared.dataset.family.head
    generator = torch.Generator().manual_seed(rng.torch_seed(config.train.seed, "init", 0))
    network = AlbertForTask(
        prepared.network_config,
        head,
        has_exits=config.train.exits,
        dtype=dtype_of(config.train),
        generator=generator,
    )
    if config.train.gradient_checkpointing:
        network.albert.checkpoint_gradients()
    return network


def _started(network: AlbertForTask, prepared: Prepared) -> Start | None:
    """Take the pretrained weights, unless random ones were asked for."""
    config = prepared.config
    start = None if config.model.random else start_from(network, prepared.start)
    network.to(choose_device(config.train.device)).train()
    return start


def _said(start: Start | None) -> list[str]:
    if start is None:
        return ["random weights, as asked: nothing was taken from the model"]
    parts = {"new, not pretrained": start.fresh, "left out": start.dropped}
    return [f"{text}: {', '.join(_modules(names))}" for text, names in parts.items() if names]


def _modules(names: tuple[str, ...]) -> list[str]:
    return sorted({name.rpartition(".")[0] for name in names})


def _best(
    folder: Path, prepared: Prepared, network: AlbertForTask, interruption: Interruption
) -> BestModel:
    return BestModel(
        folder / "best",
        key_measure_of(prepared.dataset),
        network,
        prepared.tokenizer,
        interruption,
        prepared.config.train.patience,
    )


def key_measure_of(dataset: AnyDataset) -> str:
    """Name the measure that decides which evaluation is best: of the first held-out set."""
    prefix = f"{dataset.dev_splits[0]}_" if len(dataset.dev_splits) > 1 else ""
    return f"{prefix}{dataset.key_measure}"


def _trainer(network: AlbertForTask, config: FinetuneConfig, folder: Path, log: RunLog) -> Trainer:
    train = config.train
    num_parameters = sum(p.numel() for p in network.parameters())
    require_disk(folder, (train.keep_checkpoints + 2) * num_parameters * 12)
    scales = rate_scales(network, config.optim.layer_decay)
    return Trainer(
        network=network,
        optimizer=build_optimizer(config.optim, network.named_parameters(), rate_scales=scales),
        schedule=build_schedule(config.optim, total_steps=train.steps),
        train=train,
        optim=config.optim,
        checkpoints=Checkpoints(folder / "checkpoints", keep=train.keep_checkpoints),
        log=log,
    )


def _task(network: AlbertForTask, prepared: Prepared) -> Finetuning[Any, Any]:
    return Finetuning(
        network,
        prepared.dataset.family,
        features=prepared.features,
        held_out=prepared.held_out,
        train=prepared.config.train,
    )


def _result(folder: Path, prepared: Prepared, best: BestModel, start: Start | None) -> Result:
    """Report the last step and the best evaluation, each with all its measures."""
    measured = [Evaluation.of(row) for row in read_record(folder).evaluations]
    return Result(
        task=prepared.dataset.name,
        key_measure=best.key_measure,
        last=measured[-1],
        best=next(each for each in measured if each.step == best.step),
        num_evaluations=len(measured),
        seed=prepared.config.train.seed,
        start=str(prepared.config.model.start),
        fresh=() if start is None else start.fresh,
    )


def _write_answers(folder: Path, network: AlbertForTask, prepared: Prepared) -> None:
    """Write what the last step answers on each held-out set, a line an example."""
    family = prepared.dataset.family
    for name, held_out in prepared.held_out.items():
        answers = answer(network, family, held_out.examples, held_out.features)
        rows = family.rows(held_out.examples, answers)
        lines = [json.dumps(asdict(row), ensure_ascii=False) for row in rows]
        write_text(folder / f"{name}.jsonl", "".join(f"{line}\n" for line in lines))
