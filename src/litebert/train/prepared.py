"""Prepare fine-tuning before its first step: the data, the network's shape, every setting."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import JsonValue

from litebert.config import AlbertConfig, FinetuneConfig, Resolved
from litebert.errors import LitebertError
from litebert.files import hash_file
from litebert.folder import load_model, read_config, read_head, read_sentence_vectors
from litebert.folder.weights import weights_path
from litebert.hub import locate
from litebert.nn import AlbertForTask
from litebert.runs import is_run, recorded_setting
from litebert.tasks.baseline import baseline
from litebert.tasks.dataset import Dataset
from litebert.tasks.defaults import with_suited
from litebert.tasks.finetuning import LabelledSet
from litebert.tasks.imitation import taught
from litebert.tasks.kinds.classification import TextClassification
from litebert.tasks.kinds.family import Feature
from litebert.tasks.registry import open_dataset
from litebert.tokenizer import Tokenizer
from litebert.train.estimate import faster_precision
from litebert.train.run import choose_device

AnyDataset = Dataset[Any, Any]


@dataclass(frozen=True)
class Prepared:
    """Everything that is known before the first step.

    `resolved` has the defaults that suit the network and the data; in `config` the steps, the
    evaluations and the precision are filled in as well.
    """

    resolved: Resolved[FinetuneConfig]
    config: FinetuneConfig
    network_config: AlbertConfig
    dataset: AnyDataset
    tokenizer: Tokenizer
    start: Path
    features: list[Feature]
    held_out: Mapping[str, LabelledSet[Any]]
    baseline: dict[str, float]

    @property
    def num_examples(self) -> int:
        """The number of training examples."""
        return len({feature.example for feature in self.features})

    @property
    def key_measure(self) -> str:
        """The measure that decides which evaluation is best, that of the first held-out set."""
        dataset = self.dataset
        prefix = f"{dataset.dev_splits[0]}_" if len(dataset.dev_splits) > 1 else ""
        return f"{prefix}{dataset.key_measure}"


def prepare(resolved: Resolved[FinetuneConfig], folder: Path) -> Prepared:
    """Read the data and the model's shape, and choose the defaults; writes nothing."""
    config = resolved.config
    start = locate(config.model.start)
    tokenizer = Tokenizer.load(start)
    dataset = open_dataset(config.task, config.data)
    pooling = _pooling(config, start, dataset)
    if pooling == "mean":
        assert isinstance(dataset.family, TextClassification)
        dataset = replace(dataset, family=dataset.family.on_vectors())
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
    if config.train.exits and not dataset.family.head.record.has_problem_type:
        raise LitebertError(
            "LB-518",
            f"{dataset.name} cannot have a head after every step",
            received=f"train.exits=true, {dataset.family.head.kind}",
            expected="a task that gives a whole text, or a pair, labels or a score",
            next="omit train.exits",
        )
    shape = _network_config(config, start)
    if config.teacher.run:
        features = _taught(config, dataset, features, examples, shape.hidden_size)
    held_out = {}
    for split in dataset.dev_splits:
        labelled = dataset.read(data, split)
        encoded = dataset.family.features(labelled, tokenizer, max_length=length, training=False)
        held_out[split] = LabelledSet(labelled, encoded)
    reads_mean = pooling == "mean"
    suited = with_suited(resolved, shape.hidden_size, len(features), reads_mean=reads_mean)
    return Prepared(
        resolved=suited,
        config=_completed(suited.config, len(features), folder, pooling),
        network_config=shape,
        dataset=dataset,
        tokenizer=tokenizer,
        start=start,
        features=features,
        held_out=held_out,
        baseline=baseline(dataset, examples, held_out),
    )


def _taught(
    config: FinetuneConfig, dataset: AnyDataset, features: list[Feature], examples: Sequence[Any], hidden_size: int
) -> list[Feature]:
    """Add the teacher's outputs to the features; the teacher is not needed after this."""
    if config.train.exits:
        raise LitebertError(
            "LB-885",
            "a head after every step cannot learn from a teacher",
            received="train.exits=true and teacher.run",
            expected="one of the two",
            next="omit train.exits",
        )
    run, folder = config.teacher.run, _teacher_folder(config)
    network = load_model(folder).network
    if not isinstance(network, AlbertForTask):
        raise LitebertError(
            "LB-886",
            f"{run} cannot be a teacher",
            received="a model without a task head",
            expected="a run of litebert finetune",
            next=f"litebert finetune {dataset.name} --model {run} ...",
        )
    network.to(choose_device(config.train.device))
    length = min(config.task.max_length, network.config.max_position_embeddings)
    tokenizer = Tokenizer.load(folder)
    return taught(
        dataset.family,
        features,
        examples,
        network,
        tokenizer,
        max_length=length,
        state_size=hidden_size if config.teacher.hidden else None,
    )


def _teacher_folder(config: FinetuneConfig) -> Path:
    run = Path(str(config.teacher.run))
    return run / "model" if is_run(run) else locate(run)


def described(prepared: Prepared) -> dict[str, JsonValue]:
    """Describe the data that a run depends on, for run.json."""
    config, teacher = prepared.config, {}
    if config.teacher.run:
        teacher = {"teacher": hash_file(weights_path(_teacher_folder(config)))}
    return {
        "tokenizer": prepared.tokenizer.hash,
        "task": prepared.dataset.name,
        **prepared.dataset.settled,
        **teacher,
        "training examples": prepared.num_examples,
        "training features": len(prepared.features),
        **{f"{name} examples": len(held.examples) for name, held in prepared.held_out.items()},
    }


def _pooling(config: FinetuneConfig, start: Path, dataset: AnyDataset) -> Literal["cls", "mean"]:
    """Return what a classifier's head reads: the mean of the tokens, or [CLS].

    By default it is the mean if the start gives text vectors by their mean, because such a model
    has no pooler. Heads of other tasks never read the mean.
    """
    chosen, needs_cls = config.model.pooling, config.train.exits
    has_choice = isinstance(dataset.family, TextClassification) and not needs_cls
    if chosen == "mean" and not has_choice:
        raise LitebertError(
            "LB-546",
            f"{dataset.name} cannot be learnt from the mean of the tokens",
            received="model.pooling=mean" + ", with train.exits" * needs_cls,
            expected="a task that gives texts labels or scores, without train.exits",
            next="omit model.pooling",
        )
    if chosen == "cls" or not has_choice:
        return "cls"
    if chosen == "mean":
        return "mean"
    head = read_head(start, tensors={})
    reads_mean = head.record.reads_texts if head else _has_mean_vectors(start)
    return "mean" if reads_mean else "cls"


def _has_mean_vectors(start: Path) -> bool:
    try:
        vectors = read_sentence_vectors(start)
    except LitebertError as error:
        if error.code != "LB-672":  # vectors of another kind; the encoder can be trained
            raise
        return False
    return vectors is not None and vectors.pooling == "mean"


def _completed(
    config: FinetuneConfig, num_features: int, folder: Path, pooling: Literal["cls", "mean"]
) -> FinetuneConfig:
    """Fill in what the head reads, the steps, the evaluations, and this machine's precision."""
    train = config.train
    drawn = train.batch_size * config.mining.pool
    per_epoch = math.ceil(num_features / drawn)
    steps = train.steps or max(1, round(train.epochs * num_features / drawn))
    precision = train.precision
    if precision == "auto":
        recorded = recorded_setting(folder, "train.precision")
        precision = str(recorded or faster_precision(choose_device(train.device)))  # type: ignore[assignment]
    update = {"steps": steps, "eval_every": train.eval_every or min(per_epoch, steps), "precision": precision}
    start = config.model.model_copy(update={"pooling": pooling})
    return config.model_copy(update={"model": start, "train": train.model_copy(update=update)})


def _network_config(config: FinetuneConfig, start: Path) -> AlbertConfig:
    names = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout_prob")
    configured = {name: getattr(config.model, name) for name in names}
    changes = {name: value for name, value in configured.items() if value is not None}
    return read_config(start).model_copy(update=changes)
