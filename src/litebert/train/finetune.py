"""Fine-tune a pretrained model on a task: prepare, begin or resume, build, train, and
write the result.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from litebert import rng
from litebert.config import FinetuneConfig, HeadConfig
from litebert.device import choose_device
from litebert.distributed import ALONE, World
from litebert.files import write_json, write_text
from litebert.flops import forward_flops
from litebert.folder import ModelFolder, read_folder, start_from
from litebert.folder.card import write_card
from litebert.folder.config import refusal_of
from litebert.optim import build_optimizer, use_average
from litebert.runs import (
    ANSWERS,
    RESULT_FILE,
    AnswerRow,
    Calibration,
    MeasuredStep,
    Result,
    RunFolder,
    is_run,
)
from litebert.settings import Resolved
from litebert.tasks.calibration import calibrate, tempered
from litebert.tasks.doubts import doubts, doubts_of_training, has_lost_start
from litebert.tasks.finetuning import Finetuning, FinetuningWork
from litebert.tasks.kinds.similarity import Similarity
from litebert.tasks.probing import Probe, fit_head
from litebert.train.beginning import begin
from litebert.train.log import RunLog, say_start
from litebert.train.loop import Trainee, train
from litebert.train.preparation import Prepared, prepare
from litebert.train.run import computing, write_model
from litebert.train.session import session


def finetune(
    resolved: Resolved[FinetuneConfig],
    folder: Path,
    *,
    prepared: Prepared | None = None,
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
        # Before `begin` writes run.json, so that a mistake in the data begins no run.
        local = prepared
        if local is None:
            local = prepare(resolved, _folder_of_choices(folder, group))
        # Every process has prepared its own; on another machine, it may have measured
        # another precision.
        shared = local.as_first(world)
        is_finished = begin(
            folder,
            shared.resolved,
            data=shared.data,
            plugins=shared.plugins,
            group=group,
            world=world,
        )
        if is_finished:
            return 0
        settings = shared.config.train
        device = choose_device(settings.device)
        with computing(settings, device):
            log = RunLog(
                opened,
                settings,
                device,
                is_quiet,
                flops_per_token=_flops_per_token(shared),
                baseline=shared.baseline,
            )
            return _train(shared, log)


def _folder_of_choices(folder: Path, group: Path | None) -> Path:
    """Return the folder with the choices that a run keeps: its own or, for a new seed,
    that of its group.
    """
    if group is None or is_run(folder):
        return folder
    return group


def _flops_per_token(prepared: Prepared) -> float:
    """Return the FLOPs of the forward pass and of the backward pass, which has twice as
    many: the gradients of the inputs and those of the weights.
    """
    return 3.0 * forward_flops(
        prepared.network_config, seq_length=prepared.mean_tokens, masked_share=0.0
    )


def _train(prepared: Prepared, log: RunLog) -> int:
    """Build the network, train it and write the result; return the exit code."""
    trainee = build(prepared, log)
    key = prepared.key_measure
    # A run that was stopped has no result, and resumes at its last checkpoint.
    if not train(trainee, prepared.config, log, key_measure=key):
        return log.session.exit_code()
    if log.session.world.is_first:
        # What evaluations have measured, if the optimizer keeps an average.
        with use_average(trainee.optimizer):
            write_result(prepared, trainee, log)
    return 0


# ---- building the network ------------------------------------------------------------


@dataclass(frozen=True)
class TaskTrainee(Trainee[FinetuningWork]):
    """A network that is fine-tuned."""

    task: Finetuning[Any, Any]
    fresh: tuple[str, ...]  # the parameters that the start model lacks


def build(prepared: Prepared, log: RunLog) -> TaskTrainee:
    """Return the network with the weights of the start model, and with a head that is
    random or, if it reads vectors, fitted to the examples.
    """
    config = prepared.config
    family = prepared.dataset.family
    # On the CPU, so that a new head has the same weights on every device.
    generator = torch.Generator()
    generator.manual_seed(rng.torch_seed(config.train.seed, "init", 0))
    network = prepared.network(generator)
    fresh: tuple[str, ...] = ()
    if config.model.random:
        log.say("random weights, as configured: nothing was taken from the model")
    else:
        start = start_from(network, prepared.start_folder)
        fresh = start.fresh
        say_start(log, start)
    network.to(log.device.place).train()
    optimizer = build_optimizer(
        config.optim,
        network.named_parameters(),
        head_scale=config.optim.head_rate_scale,
    )
    teacher = config.teacher if config.teacher.run else None
    task = Finetuning(
        network,
        family,
        prepared.features,
        prepared.held_out,
        config.train,
        teacher=teacher,
        world=log.session.world,
    )
    # After the encoder has its weights, and on the device, where the vectors are computed.
    if prepared.fits_head:
        say_probe(log, fit_head(network, family, prepared.features))
    tokenizer = prepared.start.require_tokenizer()
    model = ModelFolder(network, tokenizer, prepared.vectors)
    return TaskTrainee(task, optimizer, model, fresh)


def say_probe(log: RunLog, probe: Probe) -> None:
    log.say(
        f"the head starts from a regression on the vectors of {probe.num_rows:,}"
        f" examples (C {probe.strength:g}, by cross-validation)"
    )


# ---- writing the result --------------------------------------------------------------


@dataclass(frozen=True)
class Evaluations:
    """What a run has measured on the first held-out set."""

    first: MeasuredStep  # before any step, if the start can answer
    last: MeasuredStep
    best: MeasuredStep  # by the key measure
    number: int

    @classmethod
    def read(cls, run: Path, key: str) -> "Evaluations":
        """Read them from metrics.jsonl: an interrupted run has some from before."""
        steps = RunFolder(run).evaluations
        best = max(steps, key=lambda step: step.values.get(key, -math.inf))
        return cls(steps[0], steps[-1], best, len(steps))


def write_result(prepared: Prepared, trainee: TaskTrainee, log: RunLog) -> None:
    """Write answers, result and cards, and then the model: a run that has its model is
    finished.
    """
    folder = log.session.folder
    evaluations = Evaluations.read(folder, prepared.key_measure)
    kept = _step_to_keep(prepared, evaluations)
    if kept == "best":
        trainee.task.load(read_folder(folder / "best").network.state_dict())

    # The temperature is set in the network after it has answered, so the answers are
    # tempered here, as those of the written model will be.
    answers = trainee.task.answers()
    calibration = _calibrate(prepared, trainee, answers)
    rows = _rows_of(prepared, answers, calibration)
    result = Result(
        task=prepared.dataset.name,
        key_measure=prepared.key_measure,
        last=evaluations.last,
        best=evaluations.best,
        first=evaluations.first if prepared.has_worthy_start else None,
        kept=kept,
        num_evaluations=evaluations.number,
        seed=prepared.config.train.seed,
        start=str(prepared.config.model.start),
        fresh=trainee.fresh,
        baseline=prepared.baseline,
        doubts=_doubts(prepared, evaluations, kept, rows),
        calibration=calibration,
    )

    _write_answers(folder / ANSWERS, rows)
    if calibration is not None:
        log.say(f"probabilities: {calibration}")
    write_json(folder / RESULT_FILE, result.model_dump(mode="json", by_alias=True))
    write_card(folder / "best")  # it tells the result, which is known only now
    # last: a run with this folder counts as finished
    write_model(folder / "model", trainee.model, has_card=True)
    if trainee.model.head is not None:
        say_what_opens(log, trainee.model.head)


def _step_to_keep(
    prepared: Prepared, evaluations: Evaluations
) -> Literal["last", "best"]:
    """Return which step the written model is: the last one, or the best if training
    lost what the start knew.

    Where both are equal, as on a few rows that are all right, the trained model is
    kept: a regression with a strong penalty gives probabilities near chance.
    """
    if not prepared.has_worthy_start:
        return "last"
    is_lost = has_lost_start(
        prepared.key_measure,
        evaluations.first.values,
        evaluations.last.values,
        prepared.baseline,
    )
    return "best" if is_lost else "last"


def _doubts(
    prepared: Prepared,
    evaluations: Evaluations,
    kept: Literal["last", "best"],
    rows: Mapping[str, Sequence[AnswerRow]],
) -> tuple[str, ...]:
    """Return what a reader of the result should know: answers near chance, one label
    for all, a training that added nothing.
    """
    key = prepared.key_measure
    baseline = prepared.baseline
    measured = evaluations.best if kept == "best" else evaluations.last
    family = prepared.dataset.family
    reasons = doubts(key, measured.values, baseline, rows, family.baseline)
    if not prepared.has_worthy_start:
        return reasons
    first = evaluations.first.values
    last = evaluations.last.values
    return reasons + doubts_of_training(key, first, last, baseline, rows)


def _calibrate(
    prepared: Prepared, trainee: TaskTrainee, answers: Mapping[str, Sequence[Any]]
) -> Calibration | None:
    """Fit the temperature of the probabilities to the first held-out set, and set it in
    the network.
    """
    # Not the training rows: of these, a network is surer than it is right.
    split = prepared.dataset.dev_splits[0]
    examples = prepared.held_out[split].examples
    return calibrate(
        trainee.task.network, prepared.dataset.family, examples, answers[split]
    )


def _rows_of(
    prepared: Prepared,
    answers: Mapping[str, Sequence[Any]],
    calibration: Calibration | None,
) -> dict[str, list[AnswerRow]]:
    """Return the answers to each held-out set with the probabilities that the written
    model gives.
    """
    family = prepared.dataset.family
    rows = dict[str, list[AnswerRow]]()
    for split, split_answers in answers.items():
        examples = prepared.held_out[split].examples
        rows[split] = family.rows(
            examples, tempered(family, split_answers, calibration)
        )
    return rows


def _write_answers(folder: Path, rows: Mapping[str, Sequence[AnswerRow]]) -> None:
    """Write a file for each held-out set, with an answer in each line."""
    for split, split_rows in rows.items():
        lines = list[str]()  # JSON, in the order of the file
        for row in split_rows:
            lines.append(json.dumps(asdict(row), ensure_ascii=False) + "\n")
        write_text(folder / f"{split}.jsonl", "".join(lines))


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
