"""Pretrain an ALBERT, alone or with a teacher: settle every setting and the start, begin or resume, train, write it."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file

from litebert import rng
from litebert.config import AlbertConfig, Origin, PretrainConfig, Resolved, TrainConfig, flattened
from litebert.config.load import expected
from litebert.distributed.world import ALONE, World
from litebert.errors import DamagedError, LitebertError
from litebert.fast import checkpoint_gradients
from litebert.files import Json
from litebert.folder import read_config, start_from
from litebert.hub import locate
from litebert.nn import AlbertForPretraining
from litebert.objectives.batch import log_frequencies
from litebert.optim import MomentOptimizer, averaged, load_state_tensors
from litebert.runs import read_metrics, recorded_setting
from litebert.tasks.base import Task
from litebert.tasks.distillation import DISTILLATION_MEASURES, Distillation, Surface, Teacher
from litebert.tasks.pretraining import Pretraining, depth_at, hardest, pretraining_measures
from litebert.tasks.start import attend_locally, begin_as_teacher
from litebert.tokenizer import Tokenizer
from litebert.train.checkpoint import OPTIMIZER_FILE
from litebert.train.estimate import Estimate, estimate, faster_precision, with_steps_for
from litebert.train.log import BestModel, Listener, RunLog
from litebert.train.loop import Trainer, resumed, run_steps
from litebert.train.run import (
    Outcome,
    choose_device,
    dtype_of,
    measured_origins,
    opened,
    require_alone,
    session,
    threads,
    write_model,
)
from litebert.train.sources import Sources

MAY_DIFFER = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout_prob")
"""Settings of the network that a continued run may change."""
FROM_TEACHER = ("hidden_size", "num_attention_heads", "intermediate_size", "hidden_act", "num_hidden_layers")
STUDENT_GROUPS = 3
"""Blocks of a student, unless set: with six layers, three blocks reach in 2 minutes what one
reaches in 115 (benchmarks/distillation)."""
FIT_TEXTS = 256
"""Texts that the embedding projection is fitted on: some 10,000 tokens for E + 1 unknowns each."""
SHARDS_COUNTED = 8
"""Shards of a large corpus whose pieces are counted to initialise the output bias."""


def pretrain(
    resolved: Resolved[PretrainConfig],
    folder: Path,
    *,
    is_quiet: bool = False,
    listeners: tuple[Listener, ...] = (),
    planned: TrainConfig | None = None,
    world: World = ALONE,
) -> Outcome:
    """Pretrain by the configuration, or resume where the same one was interrupted.

    `planned` is what a plan has already measured on this machine; without it, a new run measures.
    """
    begun = time.monotonic()
    with session(folder, world) as interruption:
        sources = Sources.open(resolved.config)
        found = world.from_first(lambda: completed(resolved, sources, folder, planned)[0].model_dump(mode="json"))
        config = PretrainConfig.model_validate(found)
        origins = measured_origins(resolved.config, config)
        of_shape = origins_of_shape(resolved.config, [name for name in origins if name.startswith("model.")])
        settled = Resolved(config, resolved.origins | origins | of_shape)
        if done := opened(folder, settled, data=sources.described(), world=world):
            return done
        train, device = config.train, choose_device(config.train.device)
        log = RunLog(
            folder,
            train.steps,
            is_quiet=is_quiet,
            listeners=listeners,
            is_first=world.is_first,
            measures=(*pretraining_measures(), *DISTILLATION_MEASURES),
            eval_every=train.eval_every,
            cost=cost_of_steps(config),
        )
        with threads(train.threads):
            # a student begins as its teacher on the CPU, before either moves
            named = config.distil.teacher
            teacher = Teacher.load(locate(named), dtype=dtype_of(train)) if named else None
            network = new_network(config, sources, teacher)
            network.to(device).train()
            if teacher:
                teacher.encoder.to(device)
            if train.gradient_checkpointing:
                checkpoint_gradients(network.albert)
            trainer = Trainer.build(network, config, folder, log, begun=begun, world=world, tokenizer=sources.tokenizer)
            if config.start.model:
                for line in take_start(network, trainer.optimizer, config, sources.tokenizer):
                    log.say(line)
            task = task_of(network, config, sources, teacher, world)
            progress = resumed(trainer)
            if train.keep_best:
                best = BestModel(folder / "best", "masked_lm_accuracy", network, sources.tokenizer, interruption)
                best.recall(read_metrics(folder) if progress.step and world.is_first else [])
                log.listeners = (best, *log.listeners)
            progress = run_steps(trainer, task, progress, interruption)
        if not trainer.pace.is_last(progress.step):
            signal = world.largest(interruption.signal_number or 0)
            return Outcome(folder, progress.step, 128 + signal, None)
        with averaged(trainer.optimizer):
            if world.is_first:
                write_model(folder / "model", network, sources.tokenizer, has_card=True)
        return Outcome(folder, progress.step, 0, folder / "model")


def task_of(
    network: AlbertForPretraining, config: PretrainConfig, sources: Sources, teacher: Teacher | None, world: World
) -> Task[Any]:
    """Return what the network is trained for: pretraining, or with a teacher distillation as well."""
    train, select = config.train, None
    require_alone(config.mining, world)
    if config.mining.pool > 1:
        select = partial(hardest, network, keep=train.batch_size, micro_batch_size=train.micro_batch_size)
    task = Pretraining(
        network,
        open_loader=sources.pairs(config),
        held_out=sources.evaluation(config),
        train=train,
        early=config.early,
        elastic=config.elastic,
        select=select,
        mask_id=sources.tokenizer.mask_id,
        world=world,
    )
    if teacher is None:
        return task
    return Distillation(
        task,
        teacher=teacher,
        surface=Surface(sources.tokenizer),
        open_pairs=sources.pairs(config),
        open_texts=sources.texts(config),
        held_out_texts=sources.evaluation_texts(config),
        train=train,
        distil=config.distil,
    )


def cost_of_steps(config: PretrainConfig) -> Callable[[int, int], float]:
    """Return the relative time of the steps from one to another: early ones may apply a part of the network."""
    steps, full = config.train.steps, config.model.num_steps
    switch = round(config.early.depth_share * steps)
    early = depth_at(0, config.early, steps, full) / full

    def cost(first: int, last: int) -> float:
        return early * max(0, min(last, switch) - first) + max(0, last - max(first, switch))

    return cost


# What is settled before a run


def plan(
    resolved: Resolved[PretrainConfig], folder: Path, *, vocab_size: int | None = None
) -> tuple[PretrainConfig, Estimate]:
    """Return the full configuration and what it will need, without writing anything.

    `vocab_size` is given if the corpus, and thus the vocabulary, is not made yet.
    """
    if vocab_size is None:
        config, needs = completed(resolved, Sources.open(resolved.config), folder)
    else:
        config = resolved.config
        if config.start.model:
            model = read_config(locate(config.start.model))
        else:
            model = shape_of_student(resolved) if config.distil.teacher else config.model
            model = model.model_copy(update={"vocab_size": vocab_size})
        config, needs = measured(config.model_copy(update={"model": model}), folder)
    return config, needs or estimate(config, choose_device(config.train.device))


def completed(
    resolved: Resolved[PretrainConfig], sources: Sources, folder: Path, planned: TrainConfig | None = None
) -> tuple[PretrainConfig, Estimate | None]:
    """Fill in what the data determine, and what this machine determines."""
    config, tokenizer = resolved.config, sources.tokenizer
    model = config.model
    if config.start.model:
        model = shape_of_start(resolved, tokenizer)
    else:
        sources.require_vocabulary(model.vocab_size, resolved.origins["model.vocab_size"])
        if config.distil.teacher:
            model = shape_of_student(resolved)
    ids = {"pad_token_id": tokenizer.pad_id, "bos_token_id": tokenizer.cls_id, "eos_token_id": tokenizer.sep_id}
    model = model.model_copy(update={"vocab_size": tokenizer.vocab_size, **ids})
    return measured(config.model_copy(update={"model": model}), folder, planned)


def measured(
    config: PretrainConfig, folder: Path, planned: TrainConfig | None = None
) -> tuple[PretrainConfig, Estimate | None]:
    """Fill in precision, threads and steps by measurements on this machine, once for a run.

    A run that was begun keeps what it measured; `planned` is what a plan has measured just now. Return the needs, if
    they were measured on the way.
    """
    device, train = choose_device(config.train.device), config.train
    if train.precision == "auto":
        precision = recorded_setting(folder, "train.precision")
        precision = precision or (planned.precision if planned else faster_precision(device))
        config = with_train(config, precision=precision)
    if train.minutes is None:
        return config, None
    if recorded_setting(folder, "train.minutes") == train.minutes:
        number, steps = (recorded_setting(folder, f"train.{name}") for name in ("threads", "steps"))
        return with_train(config, threads=number, steps=steps), None
    if planned:
        return with_train(config, threads=planned.threads, steps=planned.steps), None
    return with_steps_for(config, train.minutes, device)


def with_train(config: PretrainConfig, **values: Json) -> PretrainConfig:
    """Return the configuration with other values in its section `train`."""
    return config.model_copy(update={"train": config.train.model_copy(update=values)})


# The network's shape


def shape_of_start(resolved: Resolved[PretrainConfig], tokenizer: Tokenizer) -> AlbertConfig:
    """Return the starting model's configuration; only its dropouts may be changed."""
    start = str(resolved.config.start.model)
    folder = locate(start)
    if Tokenizer.load(folder).hash != tokenizer.hash and not resolved.config.start.new_vocabulary:
        raise LitebertError(
            "LB-514",
            "the corpus was made with another tokenizer than the model that training starts from",
            received=f"tokenizer {tokenizer.hash[:12]} in the corpus",
            expected=f"that of {start}",
            next=f"build the corpus with --tokenizer {start}, or add start.new_vocabulary=true",
        )
    shape, configured = read_config(folder), flattened(resolved.config.model)
    shape = shape.model_copy(update={"vocab_size": tokenizer.vocab_size})
    for name, value in flattened(shape).items():
        origin, chosen = resolved.origins[f"model.{name}"], configured[name]
        if origin.is_typed and chosen != value and name not in MAY_DIFFER:
            raise LitebertError(
                "LB-515",
                f"model.{name} is not that of the model that training starts from",
                received=f"{chosen} ({origin})",
                expected=f"{value}, as in {start}, or nothing",
                next=f"omit model.{name}",
            )
        if origin.is_typed:
            shape = shape.model_copy(update={name: chosen})
    return shape


def shape_of_student(resolved: Resolved[PretrainConfig]) -> AlbertConfig:
    """Return the student's configuration: the teacher's widths and depth, unless set.

    Its layers share three blocks, unless `num_hidden_groups` or another sharing is set.
    """
    config, origins = resolved.config, resolved.origins
    teacher = read_config(locate(str(config.distil.teacher)))

    def is_open(name: str) -> bool:
        return origins[f"model.{name}"].kind in ("default", "preset")

    shape = config.model.model_dump() | {name: getattr(teacher, name) for name in FROM_TEACHER if is_open(name)}
    if is_open("num_hidden_groups") and config.model.sharing == "all":
        shape["num_hidden_groups"] = min(STUDENT_GROUPS, shape["num_hidden_layers"])
    try:
        model = AlbertConfig.model_validate(shape)
    except ValidationError as error:
        raise LitebertError(
            "LB-988",
            "with what it takes from its teacher, the student cannot have this shape",
            received=f"{shape['num_hidden_layers']} layers, {shape['num_hidden_groups']} groups",
            expected=expected(error, AlbertConfig),
            next="litebert distil --help",
        ) from error
    for name in FROM_TEACHER[:3]:
        size, theirs, may_be_less = getattr(model, name), getattr(teacher, name), name == "intermediate_size"
        if size > theirs or (size < theirs and not may_be_less):
            raise LitebertError(
                "LB-991",
                f"a student starts from its teacher's layers: model.{name} does not fit",
                received=f"{size} ({origins[f'model.{name}']})",
                expected=f"{theirs}{' or less' * may_be_less}, as in {config.distil.teacher}",
                next=f"omit model.{name}; choose num_hidden_layers, num_hidden_groups or embedding_size",
            )
    return model


def origins_of_shape(configured: PretrainConfig, names: list[str]) -> dict[str, Origin]:
    """Return where the settings of the network that were not set came from."""
    start = configured.start.model or configured.distil.teacher
    origins = {}
    for name in names:
        is_vocabulary = name == "model.vocab_size" or name.endswith("_token_id")
        of_text = is_vocabulary and not configured.start.model
        origins[name] = Origin("tokenizer") if of_text or not start else Origin("start", start)
    return origins


# The weights


def new_network(config: PretrainConfig, sources: Sources, teacher: Teacher | None) -> AlbertForPretraining:
    """Return the network on the CPU: random, begun as its teacher, local attention and output bias as configured."""
    generator = torch.Generator().manual_seed(rng.torch_seed(config.train.seed, "init", 0))
    network = AlbertForPretraining(config.model, dtype=dtype_of(config.train), generator=generator)
    if config.start.model:
        return network  # `take_start` fills it
    if teacher:
        sample = sources.texts(config)().samples(0, FIT_TEXTS)
        begin_as_teacher(network, sources.tokenizer, teacher, sample)
    if config.start.attention == "local":
        attend_locally(network.albert, seed=config.train.seed)
    if config.start.output_bias == "unigram":
        corpus = sources.corpus
        shards = corpus.shards or corpus.open_shards(range(min(SHARDS_COUNTED, len(corpus.manifest.shards))))
        network.masked_lm.bias.data.copy_(torch.from_numpy(log_frequencies(shards, config.model.vocab_size)))
    return network


def take_start(
    network: AlbertForPretraining, optimizer: MomentOptimizer, config: PretrainConfig, tokenizer: Tokenizer
) -> list[str]:
    """Copy a model's weights and, if configured, its optimizer's state; return lines for the log."""
    folder = locate(str(config.start.model))
    former = Tokenizer.load(folder)
    rows = None if former.hash == tokenizer.hash else former_pieces(tokenizer, former)
    start = start_from(network, folder, rows=rows)
    lines = [f"starting from {folder}"]
    if rows is not None:
        shared = len(set(tokenizer.pieces) & set(former.pieces))
        lines.append(f"a new vocabulary: {shared:,} of {tokenizer.vocab_size:,} pieces are shared")
    if start.fresh:
        lines.append(f"new, not in that model: {', '.join(start.fresh[:6])}")
    if config.start.optimizer:
        path = folder / OPTIMIZER_FILE
        if not path.is_file():
            raise LitebertError(
                "LB-516",
                f"there is no optimizer state in {folder}",
                expected="a checkpoint, or a Google checkpoint imported with its optimizer slots",
                next="litebert import google PATH --optimizer, or set start.optimizer=false",
            )
        try:
            state = load_file(path)
        except (SafetensorError, OSError, ValueError) as error:
            what, next_step = (
                f"{path} is not a complete safetensors file",
                "set start.optimizer=false to begin with a fresh one",
            )
            raise DamagedError("LB-517", what, received=str(error), next=next_step) from error
        load_state_tensors(optimizer, network.named_parameters(), state)
        lines.append("with its optimizer's state")
    return lines


def former_pieces(tokenizer: Tokenizer, former: Tokenizer) -> list[list[int]]:
    """Return the ids of the former pieces that make up each piece of the new vocabulary.

    A shared piece is made of itself, another of the former pieces of its text, or of [UNK].
    """
    known = {piece: [index] for index, piece in enumerate(former.pieces)}
    known |= {tokenizer.pieces[new]: [old] for new, old in zip(tokenizer.special_ids, former.special_ids, strict=True)}
    return [known.get(p) or former.encode(p.replace("▁", " ")).ids or [former.unk_id] for p in tokenizer.pieces]
