"""What a fine-tuning knows before its first step: the data, the shape of the network,
every setting; and the plan of a run, which is all of this with an estimate.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from pydantic import JsonValue

from litebert.config import DROPOUTS, AlbertConfig, FinetuneConfig, have_same_layers
from litebert.device import choose_device, move_network
from litebert.distributed import World
from litebert.errors import LitebertError
from litebert.fast import checkpoint_gradients, compile_steps
from litebert.folder import (
    ModelFolder,
    SentenceVectors,
    hash_weights,
    read_folder,
    read_shape,
)
from litebert.folder.config import plugins_of
from litebert.hub import locate
from litebert.nn import AlbertForTask
from litebert.plugins import DATASETS, plugins_used
from litebert.runs import EXAMPLES_HASH, is_run
from litebert.settings import Resolved
from litebert.tasks.check import (
    doubts_about_overlap,
    doubts_about_rows,
    vocabulary_doubts,
)
from litebert.tasks.doubts import baseline
from litebert.tasks.finetuning import (
    Finetuning,
    FinetuningWork,
    LabeledSet,
    add_teacher_logits,
)
from litebert.tasks.kinds.family import Dataset, Example, Family, Feature
from litebert.tasks.kinds.text import SingleLabel, TextClassification
from litebert.tasks.named import open_dataset, require_settings_of_kind
from litebert.train.defaults import settle_defaults
from litebert.train.estimate import Estimate, measure_needs
from litebert.train.start import HEADS, Reading, choose_reading, require_pairs

# How a model makes vectors whose cosines are trained.
TRAINED_VECTORS = SentenceVectors(pooling="mean", normalize=True)
MAX_PROBED = 8  # features in the larger of a plan's two probes, on a CPU


@dataclass(frozen=True)
class Prepared:
    """The data, the network's shape and all settings, including those derived from
    network, data and machine.
    """

    resolved: Resolved[FinetuneConfig]
    network_config: AlbertConfig  # of the start model, with the dropouts that are set
    dataset: Dataset[Any, Any]  # with the head that will be trained
    start: ModelFolder  # without its weights
    features: list[Feature]  # to train on
    held_out: Mapping[str, LabeledSet]  # by split
    baseline: dict[str, float]  # measures of answers that ignore the text
    data: dict[str, JsonValue]  # what the run depends on, for run.json
    fits_head: bool  # whether the head starts from a regression on the vectors

    def as_first(self, world: World) -> "Prepared":
        """Return this with the settings of the first process: all use what it measured
        on its machine.
        """
        dump = partial(self.config.model_dump, mode="json")
        config = FinetuneConfig.model_validate(world.from_first(dump))
        return replace(self, resolved=Resolved(config, self.resolved.origins))

    @property
    def config(self) -> FinetuneConfig:
        return self.resolved.config

    @property
    def start_folder(self) -> Path:
        assert self.start.source is not None, "a start is read from a folder"
        return self.start.source

    @property
    def has_worthy_start(self) -> bool:
        """Whether answers mean something before any training, so that it must add to
        them.
        """
        return self.fits_head or self.dataset.family.starts_trained

    @property
    def vectors(self) -> SentenceVectors | None:
        """How the model makes vectors: as the start model, or as they are trained."""
        if self.dataset.family.starts_trained:
            return TRAINED_VECTORS
        return self.start.vectors

    @property
    def plugins(self) -> list[str]:
        """The plug-ins that the run needs besides those that its settings name."""
        of_data = plugins_used([(DATASETS, self.dataset.name)])
        of_network = plugins_of(self.network_config, self.dataset.family.head)
        return sorted({*of_data, *of_network})

    @property
    def mean_tokens(self) -> float:
        """The mean length of a sequence to train on."""
        return sum(feature.num_tokens for feature in self.features) / len(self.features)

    @property
    def key_measure(self) -> str:
        """The measure, on the first held-out set, that decides which evaluation is
        best.
        """
        splits = self.dataset.dev_splits
        # with several sets, the names of measures begin with the name of the set
        if len(splits) == 1:
            return self.dataset.key_measure
        return f"{splits[0]}_{self.dataset.key_measure}"

    def network(self, generator: torch.Generator | None = None) -> AlbertForTask:
        """Return the network with random weights."""
        train = self.config.train
        network = AlbertForTask(
            self.network_config,
            self.dataset.family.head,
            dtype=choose_device(train.device).dtype(train.precision),
            generator=generator,
        )
        if train.gradient_checkpointing:
            checkpoint_gradients(network.albert)
        if train.compile:
            compile_steps(network.albert)
        return network


# ---- reading data and settings -------------------------------------------------------


def prepare(resolved: Resolved[FinetuneConfig], folder: Path) -> Prepared:
    """Read the data and the model's shape, and choose the defaults; write nothing.

    `folder` is that of the run: if it was begun, it keeps what was measured then.
    """
    config = resolved.config

    # ---- the start and the examples
    start = read_shape(config.model.start)
    shape = _shape_of(config, start)
    data = Path(config.data.folder or str(config.data.train))
    opened: Dataset[Any, Any] = open_dataset(config.task, config.data)
    require_fit(config, opened)
    examples = opened.read(data, "train")
    if config.model.pooling == "apart":
        require_pairs(opened, examples)
    # This may also change the kind of task: of pairs with a score to their cosines.
    dataset, reading = choose_reading(config, opened, examples, start, folder)
    about_data = dataset.notes[: len(opened.notes)]
    about_reading = dataset.notes[len(opened.notes) :]
    family = dataset.family

    # ---- what the network reads
    tokenizer = start.require_tokenizer()
    # Longer texts are cut, or divided into windows, as the kind of task has it.
    longest = min(config.task.max_length, shape.max_position_embeddings)  # tokens
    encode = partial(family.features, tokenizer=tokenizer, max_length=longest)
    features = encode(examples, training=True)
    require_features(features, dataset.name, data)
    # Said before the training: a text that the vocabulary cannot read teaches little.
    notes = vocabulary_doubts(family, tokenizer, examples, features)
    if dataset.train is not None:  # a file of the user's own
        notes += doubts_about_rows(family, examples, data)
    held_out = dict[str, LabeledSet]()
    for split in dataset.dev_splits:
        labeled = dataset.read(data, split)
        held_out[split] = LabeledSet(labeled, encode(labeled, training=False))
        if dataset.train is not None:
            paths = [data]
            if config.data.dev is not None:
                paths.append(Path(config.data.dev))
            notes += doubts_about_overlap(family, examples, labeled, paths)

    # ---- what must be the same when the run is resumed
    teacher = _find_teacher(config)
    facts: dict[str, JsonValue] = {
        "tokenizer": tokenizer.hash,
        "task": dataset.name,
        **dataset.settled,
        **_describe_models(config, shape, teacher),
        "training features": len(features),
        **_describe_examples(examples, features, held_out),
    }
    if teacher is not None:
        # It reads every example once, here, and not once in each epoch.
        features = _learn_from(teacher, config, family, features, examples)

    # ---- the settings that depend on all of this
    fits_head = _fits_head(config, start, family, reading)
    settled = settle_defaults(
        resolved,
        folder,
        hidden_size=shape.hidden_size,
        num_features=len(features),
        num_held_out=sum(len(labeled.features) for labeled in held_out.values()),
        reading=reading,
        fits_head=fits_head,
        trains_vectors=family.starts_trained,
    )
    return Prepared(
        resolved=settled,
        network_config=shape,
        dataset=replace(dataset, notes=(*about_data, *notes, *about_reading)),
        start=start,
        features=features,
        held_out=held_out,
        baseline=baseline(family, examples, held_out),
        data=facts,
        fits_head=fits_head,
    )


def _shape_of(config: FinetuneConfig, start: ModelFolder) -> AlbertConfig:
    """Return the shape of the start model, with the dropouts that are set."""
    # Dropouts have no weights, so that they are the only sizes that a run may change.
    dropouts = dict[str, float]()
    for name in DROPOUTS:
        rate = getattr(config.model, name)
        if rate is not None:
            dropouts[name] = rate
    return start.config.model_copy(update=dropouts)


def _fits_head(
    config: FinetuneConfig,
    start: ModelFolder,
    family: Family[Any, Any],
    reading: Reading,
) -> bool:
    """Return whether the head starts from a regression on the vectors of the start."""
    # It is a regression on means of the tokens; with random weights they mean nothing.
    if reading == "cls" or config.model.random or not family.has_linear_fit():
        return False
    # a head that was trained for these labels starts as it is
    return not have_same_layers(start.head, family.head)


def _describe_models(
    config: FinetuneConfig, shape: AlbertConfig, teacher: Path | None
) -> dict[str, JsonValue]:
    """Return the shape and the hashes of the start and of the teacher, for run.json."""
    facts: dict[str, JsonValue] = {
        "start": None,
        "shape of the start": shape.model_dump(mode="json", exclude_defaults=True),
    }
    if not config.model.random:
        facts["start"] = hash_weights(locate(config.model.start))
    if teacher is not None:
        facts["teacher"] = hash_weights(teacher)
    return facts


def _describe_examples(
    examples: Sequence[Any],
    features: Sequence[Feature],
    held_out: Mapping[str, LabeledSet],
) -> dict[str, JsonValue]:
    """Return the numbers and hashes of the examples, for run.json: a run resumes only
    with the same.
    """
    facts: dict[str, JsonValue] = {
        # not `len(examples)`: long examples have several features, unusable ones none
        "training examples": len({feature.example for feature in features}),
        EXAMPLES_HASH: _hash_examples(examples),
    }
    for split, labeled_set in held_out.items():
        facts[f"{split} examples"] = len(labeled_set.examples)
        facts[f"{split} hash"] = _hash_examples(labeled_set.examples)
    return facts


def _hash_examples(examples: Sequence[Any]) -> str:
    digest = blake2b(digest_size=16)
    # By what was read, not by the file: another order of columns changes nothing. A text
    # may have lone surrogates.
    for example in examples:
        digest.update(repr(example).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


# ---- the teacher ---------------------------------------------------------------------


def _find_teacher(config: FinetuneConfig) -> Path | None:
    """Return the model folder of the teacher, which may be a run; None without one."""
    if not config.teacher.run:
        return None
    run = Path(config.teacher.run)
    return run / "model" if is_run(run) else locate(config.teacher.run)


def _learn_from(
    teacher: Path,
    config: FinetuneConfig,
    family: Family[Any, Any],
    features: list[Feature],
    examples: Sequence[Example],
) -> list[Feature]:
    """Return the features with the outputs of the teacher, which is not needed after
    this.
    """
    model = read_folder(teacher)
    network = model.network
    move_network(network, choose_device(config.train.device))
    return add_teacher_logits(
        family,
        features,
        examples,
        network,
        model.require_tokenizer(),
        max_length=min(config.task.max_length, network.config.max_position_embeddings),
    )


# ---- checks --------------------------------------------------------------------------


def require_fit(config: FinetuneConfig, dataset: Dataset[Any, Any]) -> None:
    """Refuse a pooling, class weights or settings of a task that do not fit it."""
    family = dataset.family
    pooling = config.model.pooling
    if pooling in HEADS and not isinstance(family, TextClassification):
        raise LitebertError(
            "LB-518",
            f"{dataset.name} cannot be trained with model.pooling={pooling}",
            received=family.head.kind,
            expected="labels or scores of texts or pairs",
            next=f"omit model.pooling={pooling}",
        )
    if config.task.class_weights:
        _require_fitting_weights(config.task.class_weights, family)
    require_settings_of_kind(family, config.task)


def _require_fitting_weights(
    weights: Sequence[float], family: Family[Any, Any]
) -> None:
    """Refuse class weights unless a text has exactly one label, and each label one
    weight.
    """
    is_one_each = len(weights) == len(family.head.labels)
    is_usable = min(weights) >= 0 < max(weights)
    if isinstance(family, SingleLabel) and is_one_each and is_usable:
        return
    raise LitebertError(
        "LB-517",
        "task.class_weights does not fit the task",
        received=f"{[*weights]} for {family.head}",
        expected=(
            "a weight for each label, where a text has exactly one; none below 0, not"
            " all 0"
        ),
        next="omit or correct it",
    )


def require_features(features: Sequence[Feature], task: str, data: Path) -> None:
    if not features:
        raise LitebertError(
            "LB-513",
            f"there are no examples of {task} to train on in {data}",
            next=f"ls -l {data}",
        )


# ---- the plan of a run ---------------------------------------------------------------


def plan_finetuning(
    resolved: Resolved[FinetuneConfig], folder: Path
) -> tuple[Prepared, Estimate]:
    """Prepare a run and time a small batch of typical length; write nothing."""
    prepared = prepare(resolved, folder)
    train = prepared.config.train
    device = choose_device(train.device)
    # A GPU may hold more than this run, which the estimate adds.
    bytes_before = device.allocated_bytes()
    network = prepared.network().to(device.place)
    at_once = train.micro_batch_size or train.batch_size
    num_probed = max(2, at_once)
    if device.is_cpu:
        # on a CPU, the time for each feature hardly depends on their number
        num_probed = min(num_probed, MAX_PROBED)
    # Memory peaks in the first micro-batch of a step, which has its longest texts: they
    # are assumed to be up to twice as long as the mean.
    longest = max(feature.num_tokens for feature in prepared.features)
    peak_length = min(longest, 2 * prepared.mean_tokens)
    needs = measure_needs(
        _task_of(prepared, network, prepared.features, train.batch_size),
        prepared.config,
        _probe(prepared, network, num_probed // 2),
        _probe(prepared, network, num_probed),
        tokens_per_step=prepared.mean_tokens * train.batch_size,
        tokens_at_once=peak_length * at_once,
        bytes_before=bytes_before,
    )
    return prepared, needs


def _probe(prepared: Prepared, network: AlbertForTask, number: int) -> FinetuningWork:
    """Return a micro-batch of features of typical lengths: they divide all features,
    sorted by length, into equal parts.
    """
    by_length = sorted(prepared.features, key=lambda feature: feature.num_tokens)
    places = torch.linspace(0, len(by_length) - 1, number + 2)[1:-1].round()
    features = [by_length[int(place)] for place in places]
    task = _task_of(prepared, network, features, number)
    [[work]] = task.batches(0, 1)
    return work


def _task_of(
    prepared: Prepared,
    network: AlbertForTask,
    features: Sequence[Feature],
    batch_size: int,
) -> Finetuning[Any, Any]:
    """Return a task whose steps are computed in one piece."""
    settings = {"batch_size": batch_size, "micro_batch_size": None}
    return Finetuning(
        network,
        prepared.dataset.family,
        features,
        held_out={},
        train=prepared.config.train.model_copy(update=settings),
    )
