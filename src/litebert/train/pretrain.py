"""Pretrain an ALBERT, with or without a teacher: complete the settings, begin or resume,
build, train, write.
"""

from collections.abc import Collection
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch

from litebert.config import PretrainConfig
from litebert.device import Device, choose_device, move_network
from litebert.distributed import ALONE, World
from litebert.errors import format_count
from litebert.fast import checkpoint_gradients, compile_steps
from litebert.files import Json, write_bytes
from litebert.flops import forward_flops
from litebert.folder import (
    ModelFolder,
    SentenceVectors,
    hash_weights,
    read_shape,
)
from litebert.hub import locate
from litebert.nn import USUAL_HEADS, AlbertForPretraining
from litebert.objectives import PretrainingBatch
from litebert.optim import (
    build_optimizer,
    use_average,
)
from litebert.origins import MEASURED
from litebert.settings import Resolved
from litebert.tasks.distillation import Distillation
from litebert.tasks.pretraining import Pretraining
from litebert.tasks.task import Task
from litebert.tasks.teacher import Teacher, TeacherVectors
from litebert.train.beginning import begin
from litebert.train.completion import settle
from litebert.train.log import RunLog
from litebert.train.loop import Trainee, train
from litebert.train.pace import Pace
from litebert.train.run import computing, write_model
from litebert.train.session import Session, session
from litebert.train.sources import Sources, plain_text_config
from litebert.train.weights import new_network, require_moments, take_start

# the directions in which a student learns known vectors, (teacher's width, hidden)
AXES = "axes.npy"


def pretrain(
    resolved: Resolved[PretrainConfig],
    folder: Path,
    *,
    is_quiet: bool = False,
    world: World = ALONE,
) -> int:
    """Pretrain as configured, or resume an interrupted run of the same configuration;
    return the exit code.
    """
    with session(folder, world) as opened:
        # Before `begin` writes run.json, so that mistakes in the data begin no run.
        sources = Sources.open(resolved.config)
        settled = settle(resolved, sources, folder, world)
        require_moments(settled.config)
        data = sources.describe() | _describe_teacher(settled.config, sources)
        is_finished = begin(folder, settled, data=data, world=world)
        if is_finished:
            return 0
        # Asked before `computing` sets `train.threads`.
        all_threads = torch.get_num_threads()
        train_config = settled.config.train
        device = choose_device(train_config.device)
        with computing(train_config, device):
            log = RunLog(opened, train_config, device, is_quiet)
            return _train(settled, sources, log, all_threads)


def _describe_teacher(config: PretrainConfig, sources: Sources) -> dict[str, Json]:
    """Describe a teacher by its hash, so that a run resumes only with the same."""
    if sources.taught:
        return {"teacher": sources.taught.hash}
    if config.distil.teacher:
        return {"teacher": hash_weights(locate(config.distil.teacher))}
    return {}


def _train(
    settled: Resolved[PretrainConfig], sources: Sources, log: RunLog, all_threads: int
) -> int:
    """Build the network, train it and write the model; return the exit code."""
    config = settled.config
    session = log.session
    trainee = build(config, sources, log)
    is_complete = train(
        trainee,
        config,
        log,
        key_measure="masked_lm_accuracy" if config.train.keep_best else None,
        pace=_pace_of(settled, log, all_threads),
    )
    if not is_complete:
        return session.exit_code()
    if session.world.is_first:
        # the weights that evaluations have measured
        with use_average(trainee.optimizer):
            write_model(session.folder / "model", trainee.model, has_card=True)
    return 0


def _pace_of(
    settled: Resolved[PretrainConfig], log: RunLog, all_threads: int
) -> Pace | None:
    """Return what watches the pace of a run by the clock on a CPU."""
    if settled.config.train.minutes is None or not log.device.is_cpu:
        return None
    # Threads that the user has set stay, and all processes have the same.
    is_measured = settled.origins["train.threads"] == MEASURED
    may_change = is_measured and log.session.world.size == 1
    choices = (1, all_threads) if may_change else ()
    return Pace(log, choices)


# ---- building the network ------------------------------------------------------------


def build(config: PretrainConfig, sources: Sources, log: RunLog) -> Trainee[Any]:
    """Return the network on its device, with its first weights, its optimizer and its
    task.
    """
    device = log.device
    dtype = device.dtype(config.train.precision)
    # Everything is made on the CPU, where random numbers do not depend on the device. A
    # student is initialized from its teacher before either moves.
    teacher = open_teacher(config, sources, log.session, dtype=dtype)
    network = new_network(config, sources, teacher, dtype)
    network.to(device.place).train()
    if teacher is not None:
        teacher = _on_device(teacher, device)
    if config.train.gradient_checkpointing:
        checkpoint_gradients(network.albert)
    if config.train.compile:
        compile_steps(network.albert)
    log.flops_per_token = _flops_per_token(config, sources)

    # Built before `take_start`, which may fill in its moments.
    optimizer = build_optimizer(config.optim, network.named_parameters())
    random_names: Collection[str] = network.state_dict()
    if config.start.model:
        random_names = take_start(network, optimizer, config, sources.tokenizer, log)
    if not sources.teaches_order(config):
        _leave_order_untrained(network, random_names, config, log)
    # In memory for the whole run: each evaluation reads the same sequences with the same
    # masks, so that its numbers can be compared.
    held_out = sources.evaluation(config)
    _note_few(held_out, config.train.eval_sequences, log)
    task = task_of(network, config, sources, held_out, teacher, log.session.world)
    model = ModelFolder(network, sources.tokenizer, vectors_of(config, teacher))
    return Trainee(task, optimizer, model)


def _flops_per_token(config: PretrainConfig, sources: Sources) -> float | None:
    """Return the FLOPs of the forward and backward pass; None if not every token passes
    through the whole network in every step, and none else.
    """
    if config.distil.teacher or config.early.depth:
        return None
    length = sources.mean_length(config)
    # A backward pass takes twice as many as a forward pass: the gradients of the inputs
    # and those of the weights.
    return 3.0 * forward_flops(config.model, seq_length=length)


def _leave_order_untrained(
    network: AlbertForPretraining,
    random_names: Collection[str],
    config: PretrainConfig,
    log: RunLog,
) -> None:
    """Mark what nothing will train, so that it is not written into the model: its
    answers would be those of random weights.
    """
    prefixes = ["sentence_order."]
    # Another head, of a plug-in, may read the pooler and train it.
    if set(network.heads) <= set(USUAL_HEADS):
        prefixes.append("albert.pooler.")  # only sentence order reads it
    untrained = [name for name in random_names if name.startswith(tuple(prefixes))]
    network.untrained = frozenset(untrained)
    is_expected = config.objective.sentence == "none"
    log.say(
        "sentence order is not learned: no document has two sentences (see --language,"
        " --sentences), or objective.sentence=none, or"
        " objective.heads.sentence_order=0",
        is_warning=not is_expected and "sentence_order" in network.heads,
    )


def _note_few(held_out: list[PretrainingBatch], num_wanted: int, log: RunLog) -> None:
    """Say if the held-out documents have fewer sequences than were asked for."""
    number = sum(len(batch.offsets) - 1 for batch in held_out)
    if number < num_wanted:
        log.say(
            f"evaluations have {format_count(number, 'sequence')}, not {num_wanted:,}"
            " (train.eval_sequences): the held-out documents have no more; a larger"
            " --held-out measures more exactly"
        )


# ---- the teacher and the task --------------------------------------------------------


def open_teacher(
    config: PretrainConfig,
    sources: Sources,
    session: Session,
    *,
    dtype: torch.dtype,
) -> Teacher | TeacherVectors | None:
    """Return the teacher of a run on the CPU: a network, or known vectors.

    Of these, the run keeps the directions that the student learns in `axes.npy`: with
    them, the teacher's vectors of other texts can be compared with the student's.
    """
    named = config.distil.teacher
    if sources.taught is None:
        if named is None:
            return None
        return Teacher.load(locate(named), sources.tokenizer, dtype=dtype)
    taught = sources.taught
    # Computed once, and then read: a resumed run must have the same directions, and
    # eigenvectors may differ in sign on another machine.
    path = session.folder / AXES

    def write_axes() -> None:
        if not path.exists():
            file = BytesIO()
            np.lib.format.write_array(file, taught.axes(config.model.hidden_size))
            write_bytes(path, file.getvalue())

    session.world.from_first(write_axes)
    # The directions come from vectors of length 1, so the student's should have it, too.
    vectors = SentenceVectors(normalize=True)
    if config.start.model:
        vectors = read_shape(config.start.model).vectors or vectors
    return TeacherVectors(torch.from_numpy(np.load(path)), vectors)


def _on_device(
    teacher: Teacher | TeacherVectors, device: Device
) -> Teacher | TeacherVectors:
    """Return a teacher that answers on the student's device."""
    if isinstance(teacher, TeacherVectors):
        return replace(teacher, axes=teacher.axes.to(device.place))
    move_network(teacher.encoder, device)
    return teacher


def vectors_of(
    config: PretrainConfig, teacher: Teacher | TeacherVectors | None
) -> SentenceVectors | None:
    """Return how the model makes vectors: as its teacher or the model that it starts
    from; None if neither says it.
    """
    if teacher is not None:
        return teacher.vectors
    if config.start.model:
        return read_shape(config.start.model).vectors
    return None


def task_of(
    network: AlbertForPretraining,
    config: PretrainConfig,
    sources: Sources,
    held_out: list[PretrainingBatch],
    teacher: Teacher | TeacherVectors | None,
    world: World,
) -> Task[Any]:
    """Return the task of the run: pretraining, and with a teacher distillation as
    well.
    """
    task = Pretraining(
        network,
        open_loader=sources.batches(config),
        held_out=held_out,
        train=config.train,
        early=config.early,
        mask_id=sources.tokenizer.mask_id,
        world=world,
        weights=config.objective.heads,
    )
    if teacher is None:
        return task
    # A student also reads short plain texts: from the corpus, or those that come with
    # their vectors.
    plain = plain_text_config(config)
    open_texts = sources.batches(plain)
    held_out_texts = sources.evaluation(plain)
    if sources.taught:
        open_texts = sources.taught_texts(config)
        held_out_texts = [*open_texts().held_out()]
    return Distillation(
        task,
        teacher=teacher,
        open_texts=open_texts,
        held_out_texts=held_out_texts,
        distil=config.distil,
    )
