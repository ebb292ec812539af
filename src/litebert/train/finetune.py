"""Fine-tuning: from a pretrained model and a task to a run with a model; begin or resume."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from litebert import rng
from litebert.config import FinetuneConfig, HeadConfig, Resolved
from litebert.distributed import ALONE, World
from litebert.fast import AlbertWithExits, checkpoint_gradients
from litebert.files import write_text
from litebert.folder import Start, start_from
from litebert.hub import write_card
from litebert.nn import AlbertForTask
from litebert.optim import averaged
from litebert.runs import RESULT_FILE, EvaluatedStep, Result, read_metrics, read_record, write_result
from litebert.tasks.baseline import doubts
from litebert.tasks.finetuning import Finetuning, Select
from litebert.tasks.hardest import hardest_features, require_alone
from litebert.tasks.kinds.family import AnswerRow
from litebert.tasks.kinds.teaching import Teachable, Teaching
from litebert.train.best import BestModel
from litebert.train.build import build_trainer
from litebert.train.depth import rate_scales
from litebert.train.interrupt import Interruption
from litebert.train.log import Listener, RunLog
from litebert.train.loop import resumed, run_steps
from litebert.train.prepared import Prepared, described, prepare
from litebert.train.run import (
    Outcome,
    choose_device,
    dtype_of,
    measured_origins,
    opened,
    require_share,
    session,
    threads,
    write_model,
)


def finetune(
    resolved: Resolved[FinetuneConfig],
    folder: Path,
    *,
    prepared: Prepared | None = None,
    is_quiet: bool = False,
    listeners: tuple[Listener, ...] = (),
    world: World = ALONE,
) -> Outcome:
    """Fine-tune by the configuration, or resume where the same one was interrupted.

    `prepared` is what a plan has already read for this configuration and folder. The run leaves
    `model` (the last step), `best` (the best evaluation by the key measure) and `result.json`,
    which reports both and never mixes them.
    """
    begun = time.monotonic()
    with session(folder, world) as interruption:
        prepared = _agreed(prepared or prepare(resolved, folder), world)
        config, train = prepared.config, prepared.config.train
        suited = prepared.resolved
        settled = Resolved(config, suited.origins | measured_origins(suited.config, config))
        data = described(prepared)
        if done := opened(folder, settled, data=data, world=world, result=RESULT_FILE):
            return done
        with threads(train.threads):
            network = _network(prepared, config)
            best = _best(folder, prepared, network, interruption)
            log = RunLog(folder, train.steps, is_quiet=is_quiet, listeners=(best, *listeners), is_first=world.is_first)
            start = _started(network, prepared)
            for line in (*prepared.dataset.notes, *_start_lines(start)):
                log.say(line)
            optim = config.optim
            scales = rate_scales(network, decay=optim.layer_decay, head=optim.head_rate_scale)
            trainer = build_trainer(
                network, config, folder, log, begun=begun, rate_scales=scales, world=world, tokenizer=prepared.tokenizer
            )
            progress = resumed(trainer)
            best.recall(read_metrics(folder) if progress.step and world.is_first else [])
            task = _task(network, prepared, world)
            progress = run_steps(trainer, task, progress, best)
        signal = world.largest(interruption.signal_number or 0)
        if signal and not trainer.pace.is_last(progress.step):
            return Outcome(folder, progress.step, 128 + signal, None)
        if world.is_first:
            with averaged(trainer.optimizer):
                _conclude(folder, prepared, task, best, start, log)
        return Outcome(folder, progress.step, 0, folder / "model")


def _conclude(
    folder: Path, prepared: Prepared, task: Finetuning[Any, Any], best: BestModel, start: Start | None, log: RunLog
) -> None:
    """Write answers, result and cards, and last the model: a run that has it is finished."""
    answers = _write_answers(folder / "answers", task, prepared)
    result = _result(folder, prepared, best, start, answers)
    for line in result.doubts:
        log.say(f"warning: {line}")
    write_result(folder, result)
    write_card(folder / "best")
    write_model(folder / "model", task.network, prepared.tokenizer, has_card=True)


def _agreed(prepared: Prepared, world: World) -> Prepared:
    """Take over what the first process measured on its machine; check the batch size."""
    require_share(prepared.config.train.batch_size, world)
    config = world.from_first(lambda: prepared.config.model_dump(mode="json"))
    return replace(prepared, config=FinetuneConfig.model_validate(config))


def _network(prepared: Prepared, config: FinetuneConfig) -> AlbertForTask:
    head: HeadConfig = prepared.dataset.family.head
    generator = torch.Generator().manual_seed(rng.torch_seed(config.train.seed, "init", 0))
    kind = AlbertWithExits if config.train.exits else AlbertForTask
    network = kind(prepared.network_config, head, dtype=dtype_of(config.train), generator=generator)
    if config.train.gradient_checkpointing:
        checkpoint_gradients(network.albert)
    return network


def _started(network: AlbertForTask, prepared: Prepared) -> Start | None:
    """Take the pretrained weights, unless random ones are configured."""
    config = prepared.config
    start = None if config.model.random else start_from(network, prepared.start)
    network.to(choose_device(config.train.device)).train()
    return start


def _start_lines(start: Start | None) -> list[str]:
    if start is None:
        return ["random weights, as configured: nothing was taken from the model"]
    parts = {"new, not pretrained": start.fresh, "left out": start.dropped}
    taken = [f"{text}: {', '.join(_modules(names))}" for text, names in parts.items() if names]
    return [*taken, *(f"note: {note}" for note in start.notes)]


def _modules(names: tuple[str, ...]) -> list[str]:
    return sorted({name.rpartition(".")[0] for name in names})


def _best(folder: Path, prepared: Prepared, network: AlbertForTask, interruption: Interruption) -> BestModel:
    return BestModel(
        folder / "best", prepared.key_measure, network, prepared.tokenizer, interruption, prepared.config.train.patience
    )


def _task(network: AlbertForTask, prepared: Prepared, world: World) -> Finetuning[Any, Any]:
    return Finetuning(
        network,
        prepared.dataset.family,
        features=prepared.features,
        held_out=prepared.held_out,
        train=prepared.config.train,
        teaching=_teaching(prepared),
        select=_select(network, prepared, world),
        pool=prepared.config.mining.pool,
        world=world,
    )


def _select(network: AlbertForTask, prepared: Prepared, world: World) -> Select | None:
    """Return what chooses the hardest examples of a step, where the settings say so."""
    config = prepared.config
    if config.mining.pool == 1:
        return None
    require_alone(config.mining, world)
    return partial(hardest_features, network=network, family=prepared.dataset.family, keep=config.train.batch_size)


def _teaching(prepared: Prepared) -> Teaching | None:
    family, teacher = prepared.dataset.family, prepared.config.teacher
    if teacher.run is None or not isinstance(family, Teachable):
        return None
    return Teaching(family, teacher)


def _result(
    folder: Path, prepared: Prepared, best: BestModel, start: Start | None, answers: dict[str, list[AnswerRow]]
) -> Result:
    """Report the last step and the best evaluation, each with all its measures."""
    measured = [EvaluatedStep.of(row) for row in read_record(folder).evaluations]
    constant = prepared.baseline
    return Result(
        task=prepared.dataset.name,
        key_measure=best.key_measure,
        last=measured[-1],
        best=next(each for each in measured if each.step == best.step),
        num_evaluations=len(measured),
        seed=prepared.config.train.seed,
        start=str(prepared.config.model.start),
        fresh=() if start is None else start.fresh,
        baseline=constant,
        doubts=doubts(best.key_measure, measured[-1].measures, constant, answers),
    )


def _write_answers(folder: Path, task: Finetuning[Any, Any], prepared: Prepared) -> dict[str, list[AnswerRow]]:
    """Write and return the last step's answers on each held-out set, a line per example."""
    written = {}
    for name, answers in task.answers().items():
        rows = written[name] = task.family.rows(prepared.held_out[name].examples, answers)
        lines = [json.dumps(asdict(row), ensure_ascii=False) for row in rows]
        write_text(folder / f"{name}.jsonl", "".join(f"{line}\n" for line in lines))
    return written
