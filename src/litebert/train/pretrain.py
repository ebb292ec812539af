"""Pretrain an ALBERT on a corpus: open, check, begin or resume, train, write the result."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from litebert import rng
from litebert.config import Origin, PretrainConfig, Resolved, TrainConfig
from litebert.distributed import ALONE, World
from litebert.fast import checkpoint_gradients
from litebert.files import Json
from litebert.nn import AlbertForPretraining
from litebert.objectives import Batches
from litebert.objectives.batch import log_frequencies
from litebert.optim import averaged
from litebert.runs import read_metrics, recorded_setting
from litebert.tasks import Pretraining, Task
from litebert.tasks.beginning import attend_locally
from litebert.tasks.hardest import hardest, require_alone
from litebert.tasks.pretraining import Select
from litebert.tokenizer import Tokenizer
from litebert.train.best import BestModel
from litebert.train.build import build_trainer
from litebert.train.distil import begin_as_teacher, distillation, load_teacher, shape_of_student
from litebert.train.estimate import Estimate, estimate, faster_precision, with_steps_for
from litebert.train.interrupt import Interruption
from litebert.train.log import Listener, RunLog
from litebert.train.loop import Trainer, resumed, run_steps
from litebert.train.run import Outcome, choose_device, dtype_of, measured_origins, opened, session, threads, write_model
from litebert.train.sources import Sources, batches_of
from litebert.train.warm import shape_of_start, take_start

_SHARDS_COUNTED = 8
"""Shards of a large corpus whose pieces are counted to initialise the output bias."""


def plan(resolved: Resolved[PretrainConfig], folder: Path) -> tuple[PretrainConfig, Estimate]:
    """Return the full configuration and what it will need, without writing anything."""
    config = _completed(resolved, Sources.open(resolved.config), folder)
    device = choose_device(config.train.device)
    return config, estimate(config, device, dtype_of(config.train))


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
            world.from_first(lambda: _completed(resolved, sources, folder, planned).model_dump(mode="json"))
        )
        settled = Resolved(config, resolved.origins | _origins(resolved.config, config))
        if done := opened(folder, settled, data=sources.described(), world=world):
            return done
        train, is_first = config.train, world.is_first
        log = RunLog(folder, train.steps, is_quiet=is_quiet, listeners=listeners, is_first=is_first)
        with threads(train.threads):
            trainer, task = _built(config, sources, folder, log, begun, world)
            progress = resumed(trainer)
            if train.keep_best:
                best = _best(folder, trainer, sources.tokenizer, interruption)
                best.recall(read_metrics(folder) if progress.step and world.is_first else [])
            progress = run_steps(trainer, task, progress, interruption)
        if not trainer.pace.is_last(progress.step):
            exit_code = world.largest(interruption.exit_code)
            return Outcome(folder, progress.step, exit_code, None)
        with averaged(trainer.optimizer):
            if world.is_first:
                write_model(folder / "model", trainer.network, sources.tokenizer, has_card=True)
        return Outcome(folder, progress.step, 0, folder / "model")


def _completed(
    resolved: Resolved[PretrainConfig], sources: Sources, folder: Path, planned: TrainConfig | None = None
) -> PretrainConfig:
    """Fill in what the data determine, and what this machine determines (once for a run)."""
    config, tokenizer = resolved.config, sources.tokenizer
    if config.start.model:
        config = config.model_copy(update={"model": shape_of_start(resolved, tokenizer)})
    else:
        sources.require_vocabulary(config.model.vocab_size, resolved.origins["model.vocab_size"])
        if config.distil.teacher:
            config = config.model_copy(update={"model": shape_of_student(resolved)})
    ids = {
        "vocab_size": tokenizer.vocab_size,
        "pad_token_id": tokenizer.pad_id,
        "bos_token_id": tokenizer.cls_id,
        "eos_token_id": tokenizer.sep_id,
    }
    config = config.model_copy(update={"model": config.model.model_copy(update=ids)})
    device = choose_device(config.train.device)
    if config.train.precision == "auto":
        precision = recorded_setting(folder, "train.precision")
        precision = precision or (planned.precision if planned else faster_precision(device))
        config = _with_train(config, "precision", precision)
    minutes = config.train.minutes
    if minutes is None:
        return config
    if recorded_setting(folder, "train.minutes") == minutes:
        config = _with_train(config, "threads", recorded_setting(folder, "train.threads"))
        return _with_train(config, "steps", recorded_setting(folder, "train.steps"))
    if planned:
        config = _with_train(config, "threads", planned.threads)
        return _with_train(config, "steps", planned.steps)
    return with_steps_for(config, minutes, device, dtype_of(config.train))


def _origins(configured: PretrainConfig, completed: PretrainConfig) -> dict[str, Origin]:
    """Record the origin of the values that were not set."""
    start = configured.start.model or configured.distil.teacher
    origins = measured_origins(configured, completed)
    for name in (name for name in origins if name.startswith("model.")):
        is_vocabulary = name == "model.vocab_size" or name.endswith("_token_id")
        of_text = is_vocabulary and not configured.start.model
        origins[name] = Origin("tokenizer") if of_text or not start else Origin("start", start)
    return origins


def _with_train(config: PretrainConfig, name: str, value: Json) -> PretrainConfig:
    return config.model_copy(update={"train": config.train.model_copy(update={name: value})})


def _built(
    config: PretrainConfig, sources: Sources, folder: Path, log: RunLog, begun: float, world: World
) -> tuple[Trainer, Task[Any]]:
    train = config.train
    teacher = load_teacher(config) if config.distil.teacher else None
    generator = torch.Generator().manual_seed(rng.torch_seed(train.seed, "init", 0))
    network = AlbertForPretraining(config.model, dtype=dtype_of(config.train), generator=generator)
    if not config.start.model:
        if teacher:
            begin_as_teacher(network, config, sources, teacher)
        _begin(network, config, sources)
    network.to(choose_device(train.device)).train()
    if train.gradient_checkpointing:
        checkpoint_gradients(network.albert)
    open_loader: Callable[[], Batches] = partial(
        batches_of, sources.corpus.path, config=config, sentence=sources.sentence
    )
    trainer = build_trainer(network, config, folder, log, begun=begun, world=world, tokenizer=sources.tokenizer)
    if config.start.model:
        for line in take_start(network, trainer.optimizer, config, sources.tokenizer):
            log.say(line)
    task = Pretraining(
        network,
        open_loader=open_loader,
        held_out=sources.evaluation(config),
        train=train,
        early=config.early,
        elastic=config.elastic,
        select=_select(network, config, world),
        mask_id=sources.tokenizer.mask_id,
        world=world,
    )
    return trainer, distillation(task, config, sources, teacher) if teacher else task


def _select(network: AlbertForPretraining, config: PretrainConfig, world: World) -> Select | None:
    """Return what chooses the hardest sequences of a step, where the settings say so."""
    if config.mining.pool == 1:
        return None
    require_alone(config.mining, world)
    train = config.train
    return partial(hardest, network, keep=train.batch_size, micro_batch_size=train.micro_batch_size)


def _best(folder: Path, trainer: Trainer, tokenizer: Tokenizer, interruption: Interruption) -> BestModel:
    """Add a listener to the log that also keeps the model of the best evaluation."""
    best = BestModel(folder / "best", "masked_lm_accuracy", trainer.network, tokenizer, interruption)
    trainer.log.listeners = (best, *trainer.log.listeners)
    return best


def _begin(network: AlbertForPretraining, config: PretrainConfig, sources: Sources) -> None:
    """Initialise local attention and the output bias as the settings say."""
    if config.start.attention == "local":
        attend_locally(network.albert, seed=config.train.seed)
    if config.start.output_bias == "unigram":
        corpus = sources.corpus
        some = range(min(_SHARDS_COUNTED, len(corpus.manifest.shards)))
        bias = log_frequencies(corpus.shards or corpus.open_shards(some), config.model.vocab_size)
        network.masked_lm.bias.data.copy_(torch.from_numpy(bias))
