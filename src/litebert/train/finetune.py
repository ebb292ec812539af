"""Fine-tune a pretrained model on a task: the data and every setting, the plan, the
training, the result.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import JsonValue

from litebert import rng
from litebert.config import (
    DROPOUTS,
    AlbertConfig,
    FinetuneConfig,
    HeadConfig,
    have_same_layers,
)
from litebert.device import choose_device, move_network
from litebert.distributed import ALONE, World
from litebert.errors import LitebertError
from litebert.fast import checkpoint_gradients, compile_steps
from litebert.files import write_json, write_text
from litebert.flops import forward_flops
from litebert.folder import (
    ModelFolder,
    SentenceVectors,
    hash_weights,
    read_folder,
    read_shape,
    start_from,
)
from litebert.folder.card import write_card
from litebert.folder.config import plugins_of, refusal_of
from litebert.folder.storage import Start
from litebert.hub import locate
from litebert.nn import AlbertForTask
from litebert.optim import build_optimizer, build_schedule, use_average
from litebert.plugins import DATASETS, plugins_used
from litebert.runs import RESULT_FILE, AnswerRow, Result, RunFolder, is_run
from litebert.settings import Resolved
from litebert.tasks.calibration import calibrate, tempered
from litebert.tasks.check import vocabulary_doubts
from litebert.tasks.finetuning import (
    Finetuning,
    LabelledSet,
    adapt_defaults,
    add_teacher_logits,
    baseline,
    doubts,
    doubts_of_training,
    is_start_kept,
)
from litebert.tasks.kinds.family import Dataset, Example, Family, Feature
from litebert.tasks.kinds.similarity import Similarity
from litebert.tasks.kinds.text import SingleLabel, TextClassification
from litebert.tasks.named import open_dataset
from litebert.tasks.probing import Probe, fit_head
from litebert.tokenizer import Tokenizer
from litebert.train.estimate import Estimate, measure_needs
from litebert.train.loop import train
from litebert.train.run import (
    RunLog,
    begin,
    session,
    threads,
    write_model,
)
from litebert.train.start import HEADS, Reading, choose_reading, require_pairs

# of texts whose cosines are trained
TRAINED_VECTORS = SentenceVectors(pooling="mean", normalize=True)
PROBED = 8  # the most features in the larger of a plan's two probes


def finetune(
    resolved: Resolved[FinetuneConfig],
    folder: Path,
    *,
    prepared: "Prepared | None" = None,
    group: Path | None = None,
    is_quiet: bool = False,
    world: World = ALONE,
) -> int:
    """Fine-tune as configured, or resume an interrupted run of the same configuration;
    return the exit code.

    `prepared` is what a plan has already read for this configuration and folder. A new
    seed of a `group`, the folder of several seeds, has the precision of the others, and
    must have their settings. The run writes `model` (the last step), `best` (the best
    evaluation by the key measure) and `result.json`, which reports both and never mixes
    them.
    """
    with session(folder, world) as opened:
        if prepared is None:
            is_new_seed = group is not None and not is_run(folder)
            prepared = prepare(resolved, group if group and is_new_seed else folder)
        prepared = prepared.as_first(world)
        config = prepared.config
        settings = config.train
        if begin(
            folder,
            prepared.resolved,
            data=prepared.data,
            plugins=prepared.plugins,
            group=group,
            world=world,
        ):
            return 0
        device = choose_device(settings.device)
        dtype = device.dtype(settings.precision)
        with (
            threads(settings.threads),
            device.computing(dtype, is_deterministic=settings.deterministic),
        ):
            seed = rng.torch_seed(settings.seed, "init", 0)
            network = prepared.network(torch.Generator().manual_seed(seed))
            flops = 3.0 * forward_flops(
                prepared.network_config,
                seq_length=prepared.mean_tokens,
                masked_share=0.0,
            )
            log = RunLog(
                opened, settings, device, is_quiet, flops, baseline=prepared.baseline
            )
            start = None
            if not config.model.random:
                start = start_from(network, prepared.start_folder)
            say_start(log, start)
            network.to(device.place).train()
            optim = config.optim
            optimizer = build_optimizer(
                optim, network.named_parameters(), head_scale=optim.head_rate_scale
            )
            teacher = config.teacher if config.teacher.run else None
            task = Finetuning(
                network,
                prepared.dataset.family,
                prepared.features,
                prepared.held_out,
                settings,
                teacher,
                world,
            )
            if prepared.fits_head:
                say_probe(log, fit_head(network, task.family, task.features))
            model = ModelFolder(network, prepared.tokenizer, prepared.vectors)
            key = prepared.key_measure
            if not train(task, config, log, optimizer, model, key_measure=key):
                return opened.exit_code()
            if world.is_first:
                fresh = () if start is None else start.fresh
                with use_average(optimizer):
                    write_result(folder, prepared, task, model, log, fresh)
    return 0


def write_result(
    folder: Path,
    prepared: "Prepared",
    task: Finetuning[Any, Any],
    model: ModelFolder,
    log: RunLog,
    fresh: tuple[str, ...],
) -> None:
    """Write answers, result and cards, and then the model: a run that has its model is
    finished.
    """
    key = prepared.key_measure
    family = prepared.dataset.family
    evaluations = RunFolder(folder).evaluations
    last = evaluations[-1]
    best = max(evaluations, key=lambda row: row.values.get(key, -math.inf))
    kept: Literal["last", "best"] = "last"
    # Where both are equal, as on a few rows that are all right, the trained model is
    # kept: a regression with a strong penalty gives probabilities near chance.
    first = evaluations[0]
    if prepared.has_worthy_start and is_start_kept(
        key, first.values, last.values, prepared.baseline
    ):
        kept = "best"
        weights = read_folder(folder / "best").network.state_dict()
        task.load(weights)
    answered = task.answers()
    first_set = prepared.dataset.dev_splits[0]
    calibration = calibrate(
        task.network,
        family,
        prepared.held_out[first_set].examples,
        answered[first_set],
    )
    answers = dict[str, list[AnswerRow]]()
    for name, split_answers in answered.items():
        given = tempered(family, split_answers, calibration)
        rows = family.rows(prepared.held_out[name].examples, given)
        lines = [json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in rows]
        write_text(folder / "answers" / f"{name}.jsonl", "".join(lines))
        answers[name] = rows
    chosen = best if kept == "best" else last
    found = doubts(key, chosen.values, prepared.baseline, answers, family.baseline)
    if prepared.has_worthy_start:
        found += doubts_of_training(
            key, first.values, last.values, prepared.baseline, answers
        )
    result = Result(
        task=prepared.dataset.name,
        key_measure=key,
        last=last,
        best=best,
        first=first if prepared.has_worthy_start else None,
        kept=kept,
        num_evaluations=len(evaluations),
        seed=prepared.config.train.seed,
        start=str(prepared.config.model.start),
        fresh=fresh,
        baseline=prepared.baseline,
        doubts=found,
        calibration=calibration,
    )
    if calibration is not None:
        log.say(f"probabilities: {calibration}")
    write_json(folder / RESULT_FILE, result.model_dump(mode="json", by_alias=True))
    write_card(folder / "best")
    write_model(folder / "model", model, has_card=True)
    if model.head is not None:
        say_what_opens(log, model.head)


def say_start(log: RunLog, start: Start | None) -> None:
    """Say which modules are new and which are left out; parameters of one module are
    one entry.
    """
    if start is None:
        log.say("random weights, as configured: nothing was taken from the model")
        return
    for text, names in (
        ("new, not pretrained", start.fresh),
        ("not used from the start model", start.dropped),
    ):
        modules = sorted({name.rpartition(".")[0] for name in names})
        if modules:
            log.say(f"{text}: {', '.join(modules)}")
    for note in start.notes:
        log.say(f"note: {note}")


def say_probe(log: RunLog, probe: Probe) -> None:
    log.say(
        f"the head starts from a regression on the vectors of {probe.num_rows:,}"
        f" examples (C {probe.strength:g}, by cross-validation)"
    )


def say_what_opens(log: RunLog, head: HeadConfig) -> None:
    """Say at the end of a run if transformers cannot open the head."""
    if head.task_kind is Similarity:
        log.say("note: sentence-transformers opens this model, too")
        return
    reason = refusal_of(head)
    if reason:
        log.say(f"note: other programs do not open this model: {reason}")
        return
    if head.record.is_in_transformers:
        return
    line = "transformers opens only the encoder of this model: it has no such head"
    if head.record.reads == "texts":
        line += ". model.pooling=cls trains a head that transformers opens"
    log.say(f"note: {line}")


# ---- preparation: data, settings and defaults before the first step ------------------


@dataclass(frozen=True)
class Prepared:
    """The data, the network's shape and all settings, including those derived from
    network, data and machine.
    """

    resolved: Resolved[FinetuneConfig]
    network_config: AlbertConfig
    dataset: Dataset[Any, Any]
    start: ModelFolder  # without its weights
    features: list[Feature]
    held_out: Mapping[str, LabelledSet]
    baseline: dict[str, float]
    data: dict[str, JsonValue]  # what the run depends on, for run.json
    fits_head: bool  # whether the head starts from a regression on the vectors

    @property
    def has_worthy_start(self) -> bool:
        """Whether answers mean something before any training, so that it must add to
        them.
        """
        return self.fits_head or self.dataset.family.starts_trained

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
    def tokenizer(self) -> Tokenizer:
        return self.start.require_tokenizer()

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
        return sum(feature.num_tokens for feature in self.features) / len(self.features)

    @property
    def key_measure(self) -> str:
        """The measure, on the first held-out set, that decides which evaluation is
        best.
        """
        dataset = self.dataset
        prefix = f"{dataset.dev_splits[0]}_" if len(dataset.dev_splits) > 1 else ""
        return f"{prefix}{dataset.key_measure}"

    def network(self, generator: torch.Generator | None = None) -> AlbertForTask:
        """Return the network with random weights."""
        train = self.config.train
        head = self.dataset.family.head
        dtype = choose_device(train.device).dtype(train.precision)
        network = AlbertForTask(
            self.network_config, head, dtype=dtype, generator=generator
        )
        if train.gradient_checkpointing:
            checkpoint_gradients(network.albert)
        if train.compile:
            compile_steps(network.albert)
        return network


def prepare(resolved: Resolved[FinetuneConfig], folder: Path) -> Prepared:
    """Read the data and the model's shape, and choose the defaults; write nothing."""
    config = resolved.config
    start = read_shape(config.model.start)
    data = _data_path(config)
    opened: Dataset[Any, Any] = open_dataset(config.task, config.data)
    require_fit(config, opened)
    examples = opened.read(data, "train")
    if config.model.pooling == "apart":
        require_pairs(opened, examples)
    dataset, reading = choose_reading(config, opened, examples, start, folder)
    dropouts = {
        name: getattr(config.model, name)
        for name in DROPOUTS
        if getattr(config.model, name) is not None
    }
    shape = start.config.model_copy(update=dropouts)

    tokenizer = start.require_tokenizer()
    longest = min(config.task.max_length, shape.max_position_embeddings)
    encode = partial(dataset.family.features, tokenizer=tokenizer, max_length=longest)
    features = encode(examples, training=True)
    require_features(features, dataset.name, data)
    doubts = vocabulary_doubts(dataset.family, tokenizer, examples, features)
    dataset = replace(dataset, notes=(*dataset.notes, *doubts))
    held_out = dict[str, LabelledSet]()
    for split in dataset.dev_splits:
        labeled = dataset.read(data, split)
        held_out[split] = LabelledSet(labeled, encode(labeled, training=False))

    described: dict[str, JsonValue] = {
        "tokenizer": tokenizer.hash,
        "task": dataset.name,
        **dataset.settled,
        "start": None,
        "shape of the start": shape.model_dump(mode="json", exclude_defaults=True),
    }
    if not config.model.random:
        described["start"] = hash_weights(locate(config.model.start))
    if config.teacher.run:
        teacher = _find_teacher(config.teacher.run)
        described["teacher"] = hash_weights(teacher)
        features = _learn_from(teacher, config, dataset.family, features, examples)
    described["training examples"] = len({feature.example for feature in features})
    described["training features"] = len(features)
    described["train hash"] = _hash_examples(examples)
    for split, labelled_set in held_out.items():
        described[f"{split} examples"] = len(labelled_set.examples)
        described[f"{split} hash"] = _hash_examples(labelled_set.examples)

    # a head that was trained for these labels starts as it is
    has_same_head = have_same_layers(start.head, dataset.family.head)
    fits_head = (
        reading != "cls"
        and dataset.family.has_linear_fit()
        and not config.model.random
        and not has_same_head
    )
    return Prepared(
        resolved=settle_defaults(
            resolved,
            folder,
            hidden_size=shape.hidden_size,
            num_features=len(features),
            num_held_out=sum(len(part.features) for part in held_out.values()),
            reading=reading,
            fits_head=fits_head,
            family=dataset.family,
        ),
        network_config=shape,
        dataset=dataset,
        start=start,
        features=features,
        held_out=held_out,
        baseline=baseline(dataset.family, examples, held_out),
        data=described,
        fits_head=fits_head,
    )


def _data_path(config: FinetuneConfig) -> Path:
    return Path(config.data.folder or str(config.data.train))


def settle_defaults(
    resolved: Resolved[FinetuneConfig],
    folder: Path,
    *,
    hidden_size: int,
    num_features: int,
    num_held_out: int,
    reading: Reading,
    fits_head: bool,
    family: Family[Any, Any],
) -> Resolved[FinetuneConfig]:
    """Choose what the settings leave open: the defaults that suit network and data,
    then steps, evaluations and this machine's precision.
    """
    suited = adapt_defaults(
        resolved,
        hidden_size,
        num_features,
        reads_mean=reading != "cls",
        fits_head=fits_head,
        are_vectors=family.starts_trained,
    )
    train = suited.config.train
    steps_per_epoch = num_features / train.batch_size
    steps = train.steps or max(1, round(train.epochs * steps_per_epoch))
    # raises for a warm-up that is too long, before any work
    build_schedule(suited.config.optim, total_steps=steps)
    eval_every = train.eval_every
    if not eval_every:
        # Once an epoch, but an evaluation must not cost more than a third of the
        # training before it: answering a row takes a third of training on it.
        least_trained = max(num_features, num_held_out)
        eval_every = min(math.ceil(least_trained / train.batch_size), steps)
    precision = train.precision
    if precision in (None, "auto"):
        recorded = RunFolder(folder).settings.get("train.precision")
        measured = choose_device(train.device).precision(precision)
        precision = recorded or measured  # type: ignore[assignment]
    settled = train.model_copy(
        update={
            "steps": steps,
            "eval_every": eval_every,
            "precision": precision,
            "eval_at_start": (
                train.eval_at_start or fits_head or family.starts_trained
            ),
        }
    )
    model = suited.config.model.model_copy(update={"pooling": reading})
    return suited.fill_measured(
        suited.config.model_copy(update={"model": model, "train": settled})
    )


def require_fit(config: FinetuneConfig, dataset: Dataset[Any, Any]) -> None:
    """Refuse a pooling or class weights that the task cannot be trained with."""
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
    weights = config.task.class_weights
    if not weights:
        return
    is_one_each = len(weights) == len(family.head.labels)
    is_usable = min(weights) >= 0 < max(weights)
    if not (isinstance(family, SingleLabel) and is_one_each and is_usable):
        raise LitebertError(
            "LB-517",
            "task.class_weights does not fit the task",
            received=f"{[*weights]} for {family.head}",
            expected=(
                "a weight for each label, where a text has exactly one; none below 0,"
                " not all 0"
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


def _find_teacher(teacher: str) -> Path:
    run = Path(teacher)
    return run / "model" if is_run(run) else locate(teacher)


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


def _hash_examples(examples: Sequence[Example]) -> str:
    digest = blake2b(digest_size=16)
    for example in examples:
        digest.update(repr(example).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def plan_finetuning(
    resolved: Resolved[FinetuneConfig], folder: Path
) -> tuple[Prepared, Estimate]:
    """Prepare a run and time a small batch of typical length; write nothing."""
    prepared = prepare(resolved, folder)
    config = prepared.config
    train = prepared.config.train
    device = choose_device(train.device)
    before = device.allocated_bytes()
    by_length = sorted(prepared.features, key=lambda feature: feature.num_tokens)
    make = partial(
        Finetuning,
        prepared.network().to(device.place),
        prepared.dataset.family,
        held_out={},
    )

    def probe(number: int) -> Any:
        places = (
            torch.linspace(0, len(by_length) - 1, number + 2)[1:-1]
            .round()
            .int()
            .tolist()
        )
        settings = train.model_copy(
            update={"batch_size": number, "micro_batch_size": None}
        )
        return next(
            make(
                features=[by_length[place] for place in places], train=settings
            ).batches(0, 1)
        )[0]

    at_once = train.micro_batch_size or train.batch_size
    # on a CPU few features are as fast, each, as many
    large = max(2, min(PROBED, at_once) if device.is_cpu else at_once)
    mean = prepared.mean_tokens
    needs = measure_needs(
        make(features=prepared.features, train=train),
        config,
        probe(max(1, large // 2)),
        probe(large),
        tokens_per_step=mean * train.batch_size,
        tokens_at_once=min(by_length[-1].num_tokens, 2 * mean) * at_once,
        bytes_before=before,
    )
    return prepared, needs
