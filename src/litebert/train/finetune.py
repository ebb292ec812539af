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
from typing import Any

import torch
from pydantic import JsonValue

from litebert import rng
from litebert.config import DROPOUTS, AlbertConfig, FinetuneConfig, HeadConfig
from litebert.device import choose_device, move_network
from litebert.distributed import ALONE, World
from litebert.errors import LitebertError
from litebert.fast import checkpoint_gradients, compile_steps
from litebert.files import write_json, write_text
from litebert.flops import forward_flops
from litebert.folder import (
    ModelFolder,
    hash_weights,
    read_folder,
    read_shape,
    start_from,
)
from litebert.folder.config import plugins_of, refusal_of
from litebert.hub import locate
from litebert.hub.card import write_card
from litebert.nn import AlbertForTask
from litebert.optim import build_optimizer, build_schedule, use_average
from litebert.plugins import DATASETS, plugins_used
from litebert.runs import RESULT_FILE, AnswerRow, Result, Run, is_run
from litebert.settings import Resolved
from litebert.tasks.finetuning import (
    Finetuning,
    LabelledSet,
    adapt_defaults,
    add_teacher_logits,
    baseline,
    doubts,
)
from litebert.tasks.kinds.family import Dataset, Example, Feature
from litebert.tasks.kinds.text import SingleLabel, TextClassification
from litebert.tasks.named import open_dataset
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
        prepared = prepared or prepare(
            resolved, group if group and not is_run(folder) else folder
        )
        # all processes use what the first one measured on its machine
        config = FinetuneConfig.model_validate(
            world.from_first(partial(prepared.config.model_dump, mode="json"))
        )
        prepared = replace(
            prepared, resolved=Resolved(config, prepared.resolved.origins)
        )
        settings = config.train
        key = prepared.key_measure
        family = prepared.dataset.family
        held_out = prepared.held_out
        plugins = {
            *plugins_used([(DATASETS, prepared.dataset.name)]),
            *plugins_of(prepared.network_config, family.head),
        }
        if begin(
            folder,
            prepared.resolved,
            data=prepared.data,
            plugins=sorted(plugins),
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
            network = prepared.network(
                torch.Generator().manual_seed(rng.torch_seed(settings.seed, "init", 0))
            )
            flops = 3.0 * forward_flops(
                prepared.network_config,
                seq_length=prepared.mean_tokens,
                masked_share=0.0,
            )
            log = RunLog(opened, settings, device, is_quiet, flops)
            start = None
            if not config.model.random:
                start = start_from(network, prepared.start_folder)
            network.to(device.place).train()
            if start is None:
                log.say(
                    "random weights, as configured: nothing was taken from the model"
                )
            else:
                # list new and left-out modules; the parameters of a module are listed
                # as one
                for text, names in (
                    ("new, not pretrained", start.fresh),
                    ("left out", start.dropped),
                ):
                    if names:
                        log.say(
                            f"{text}:"
                            f" {', '.join(sorted({name.rpartition('.')[0] for name in names}))}"
                        )
                for note in start.notes:
                    log.say(f"note: {note}")
            optim = config.optim
            optimizer = build_optimizer(
                optim, network.named_parameters(), head_scale=optim.head_rate_scale
            )
            teacher = config.teacher if config.teacher.run else None
            task = Finetuning(
                network, family, prepared.features, held_out, settings, teacher, world
            )
            model = ModelFolder(network, prepared.tokenizer, prepared.start.vectors)
            if not train(task, config, log, optimizer, model, key_measure=key):
                return opened.exit_code()
        if not world.is_first:
            return 0
        # answers, result and cards first: a run that has its model is finished
        with use_average(optimizer):
            answers = dict[str, list[AnswerRow]]()
            for name, given_answers in task.answers().items():
                answers[name] = family.rows(held_out[name].examples, given_answers)
                rows = (
                    json.dumps(asdict(row), ensure_ascii=False) + "\n"
                    for row in answers[name]
                )
                write_text(folder / "answers" / f"{name}.jsonl", "".join(rows))
            evaluated = Run(folder).evaluations
            result = Result(
                task=prepared.dataset.name,
                key_measure=key,
                last=evaluated[-1],
                best=max(evaluated, key=lambda row: row.values.get(key, -math.inf)),
                num_evaluations=len(evaluated),
                seed=settings.seed,
                start=str(config.model.start),
                fresh=() if start is None else start.fresh,
                baseline=prepared.baseline,
                doubts=doubts(
                    key,
                    evaluated[-1].values,
                    prepared.baseline,
                    answers,
                    family.baseline,
                ),
            )
            for line in result.doubts:
                log.say(f"warning: {line}")
            write_json(
                folder / RESULT_FILE, result.model_dump(mode="json", by_alias=True)
            )
            write_card(folder / "best")
            write_model(folder / "model", model, has_card=True)
            if model.head is not None:
                say_what_opens(log, model.head)
        return 0


def say_what_opens(log: RunLog, head: HeadConfig) -> None:
    """Say at the end of a run if transformers cannot open the head."""
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
        has_exits = train.exits
        network = AlbertForTask(
            self.network_config,
            head,
            has_exits=has_exits,
            dtype=dtype,
            generator=generator,
        )
        if train.gradient_checkpointing:
            checkpoint_gradients(network.albert)
        if train.compile:
            compile_steps(network.albert)
        return network


def prepare(resolved: Resolved[FinetuneConfig], folder: Path) -> Prepared:
    """Read the data and the model's shape, and choose the defaults; write nothing."""
    config = resolved.config
    train = resolved.config.train
    start = read_shape(config.model.start)
    tokenizer = start.require_tokenizer()
    shape = start.config
    dataset: Dataset[Any, Any] = open_dataset(config.task, config.data)

    # By default a classifier's head reads the mean of the tokens if the starting model
    # makes its text vectors like this, since its [CLS] was not trained to hold the
    # text. Otherwise, and in other tasks, the head reads [CLS].
    pooling = config.model.pooling
    is_of_texts = isinstance(dataset.family, TextClassification)
    has_choice = is_of_texts and not train.exits
    has_wrong_exits = train.exits and (
        not is_of_texts or config.teacher.run is not None
    )
    if has_wrong_exits or (pooling == "mean" and not has_choice):
        setting = "train.exits" if has_wrong_exits else "model.pooling=mean"
        what = f"{dataset.name} cannot be trained with {setting}"
        advice = f"omit {setting}"
        received = (
            f"{dataset.family.head.kind}, train.exits={train.exits},"
            f" teacher.run={config.teacher.run}"
        )
        expected = (
            "labels or scores of texts or pairs; and exits without a teacher or"
            " model.pooling=mean"
        )
        raise LitebertError(
            "LB-518", what, received=received, expected=expected, next=advice
        )
    weights = config.task.class_weights
    head = dataset.family.head
    fits = (
        isinstance(dataset.family, SingleLabel)
        and weights
        and len(weights) == len(head.labels)
    )
    if weights and not (fits and min(weights) >= 0 < max(weights)):
        what = "task.class_weights does not fit the task"
        received = f"{[*weights]} for {head}"
        expected = (
            "a weight for each label, where a text has exactly one; none below 0, not"
            " all 0"
        )
        raise LitebertError(
            "LB-517",
            what,
            received=received,
            expected=expected,
            next="omit or correct it",
        )
    if pooling == "auto":
        pooling = "mean" if has_choice and _gives_means(start) else "cls"
    if pooling == "mean":
        family = dataset.family
        head = dataset.family.head.model_copy(update={"kind": "vector-classification"})
        dataset = replace(dataset, family=replace(family, head=head))

    # the examples, each with the outputs of the teacher, which is not needed after this
    data = Path(config.data.folder or str(config.data.train))
    family = dataset.family
    longest = min(config.task.max_length, shape.max_position_embeddings)
    encode = partial(family.features, tokenizer=tokenizer, max_length=longest)
    examples = dataset.read(data, "train")
    features = encode(examples, training=True)
    if not features:
        what = f"there are no examples of {dataset.name} to train on in {data}"
        raise LitebertError("LB-513", what, next=f"ls -l {data}")
    given = {
        name: value
        for name in DROPOUTS
        if (value := getattr(config.model, name)) is not None
    }
    shape = shape.model_copy(update=given)
    described: dict[str, JsonValue] = {
        "tokenizer": tokenizer.hash,
        "task": dataset.name,
        **dataset.settled,
    }
    described["start"] = (
        None if config.model.random else hash_weights(locate(config.model.start))
    )
    described["shape of the start"] = shape.model_dump(
        mode="json", exclude_defaults=True
    )
    if config.teacher.run:
        run = Path(config.teacher.run)
        teacher = run / "model" if is_run(run) else locate(config.teacher.run)
        described["teacher"] = hash_weights(teacher)
        taught = read_folder(teacher)
        network = taught.network
        move_network(network, choose_device(train.device))
        longest = min(config.task.max_length, network.config.max_position_embeddings)
        features = add_teacher_logits(
            family,
            features,
            examples,
            network,
            taught.require_tokenizer(),
            max_length=longest,
        )
    described |= {
        "training examples": len({each.example for each in features}),
        "training features": len(features),
    }
    described["train hash"] = _hash_examples(examples)
    held_out = {}
    for split in dataset.dev_splits:
        labelled = dataset.read(data, split)
        held_out[split] = LabelledSet(labelled, encode(labelled, training=False))
        described |= {
            f"{split} examples": len(labelled),
            f"{split} hash": _hash_examples(labelled),
        }

    # the defaults that suit the network and the data, then steps, evaluations, and this
    # machine's precision
    suited = adapt_defaults(
        resolved, shape.hidden_size, len(features), reads_mean=pooling == "mean"
    )
    train = suited.config.train
    steps = train.steps or max(
        1, round(train.epochs * len(features) / train.batch_size)
    )
    precision = train.precision
    # raises for a warm-up that is too long, before any work
    build_schedule(suited.config.optim, total_steps=steps)
    # every epoch
    eval_every = train.eval_every or min(
        math.ceil(len(features) / train.batch_size), steps
    )
    if precision in (None, "auto"):
        recorded = Run(folder).settings.get("train.precision")
        measured = choose_device(train.device).precision(precision)
        precision = recorded or measured  # type: ignore[assignment]
    train = train.model_copy(
        update={"steps": steps, "eval_every": eval_every, "precision": precision}
    )
    model = config.model.model_copy(update={"pooling": pooling})
    return Prepared(
        resolved=suited.fill_measured(
            suited.config.model_copy(update={"model": model, "train": train})
        ),
        network_config=shape,
        dataset=dataset,
        start=start,
        features=features,
        held_out=held_out,
        baseline=baseline(family, examples, held_out),
        data=described,
    )


def _hash_examples(examples: Sequence[Example]) -> str:
    digest = blake2b(digest_size=16)
    for example in examples:
        digest.update(repr(example).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _gives_means(start: ModelFolder) -> bool:
    """Return whether a model reads the mean of the tokens: by its head, or else by how
    it makes vectors.
    """
    if start.head is not None:
        return bool(start.head.record.reads == "texts")
    return start.vectors is not None and start.vectors.pooling == "mean"


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
