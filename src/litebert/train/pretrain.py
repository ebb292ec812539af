"""Pretrain an ALBERT on a corpus, alone or with a teacher: settle every setting, begin or resume, train, write it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from litebert.config import PretrainConfig, Resolved, TrainConfig
from litebert.distributed.world import ALONE, World
from litebert.fast import checkpoint_gradients
from litebert.files import Json
from litebert.folder import read_config
from litebert.hub import locate
from litebert.nn import AlbertForPretraining
from litebert.optim import averaged
from litebert.runs import read_metrics, recorded_setting
from litebert.tasks.base import Task
from litebert.tasks.distillation import DISTILLATION_MEASURES, Distillation, Surface, Teacher
from litebert.tasks.pretraining import Pretraining, depth_at, pretraining_measures, select_hardest
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
from litebert.train.start import new_network, origins_of_shape, shape_of_start, shape_of_student, take_start


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
        config = PretrainConfig.model_validate(
            world.from_first(lambda: completed(resolved, sources, folder, planned)[0].model_dump(mode="json"))
        )
        origins = resolved.origins | measured_origins(resolved.config, config)
        of_shape = [n for n in measured_origins(resolved.config, config) if n.startswith("model.")]
        settled = Resolved(config, origins | origins_of_shape(resolved.config, of_shape))
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
            teacher = (
                Teacher.load(locate(config.distil.teacher), dtype=dtype_of(train)) if config.distil.teacher else None
            )
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
    if config.mining.pool > 1:
        require_alone(config.mining, world)
        select = select_hardest(network, keep=train.batch_size, micro_batch_size=train.micro_batch_size)
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
    ids = {
        "vocab_size": tokenizer.vocab_size,
        "pad_token_id": tokenizer.pad_id,
        "bos_token_id": tokenizer.cls_id,
        "eos_token_id": tokenizer.sep_id,
    }
    model = model.model_copy(update=ids)
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
