"""Pretrain an ALBERT, with or without a teacher: settings and initial weights, begin or
resume, train, save.
"""

from collections.abc import Collection
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file

from litebert import rng
from litebert.config import DROPOUTS, AlbertConfig, PretrainConfig
from litebert.device import choose_device, move_network
from litebert.distributed import ALONE, World
from litebert.errors import LitebertError
from litebert.fast import checkpoint_gradients, compile_steps
from litebert.files import Json, write_bytes
from litebert.flops import forward_flops
from litebert.folder import (
    ModelFolder,
    SentenceVectors,
    hash_weights,
    read_config,
    read_shape,
    start_from,
)
from litebert.hub import PACKAGED, locate, packaged_model
from litebert.nn import USUAL_HEADS, AlbertForPretraining
from litebert.objectives import PretrainingBatch
from litebert.objectives.sequences import log_frequencies
from litebert.objectives.taught import holds_vectors, vector_width
from litebert.optim import (
    MomentOptimizer,
    build_optimizer,
    load_state_tensors,
    use_average,
)
from litebert.origins import MEASURED, TOKENIZER, Origin
from litebert.plugins import PRETRAINING_HEADS
from litebert.runs import RunFolder
from litebert.settings import Resolved, expected_value
from litebert.tasks.distillation import Distillation
from litebert.tasks.local_start import attend_locally
from litebert.tasks.pretraining import Pretraining
from litebert.tasks.student import begin_as_teacher
from litebert.tasks.task import Task
from litebert.tasks.teacher import Teacher, TeacherVectors
from litebert.tokenizer import Tokenizer
from litebert.train.checkpoint import OPTIMIZER_FILE
from litebert.train.estimate import Estimate, estimate, fit_steps
from litebert.train.log import RunLog
from litebert.train.loop import train
from litebert.train.run import (
    begin,
    computing,
    session,
    settled_precision,
    write_model,
)
from litebert.train.sources import Sources, open_loader, plain_text_config

FROM_TEACHER = (
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "num_hidden_layers",
)
# blocks of a student: with six layers, three reach in 2 minutes what one reaches in 115
# (benchmarks/distillation)
STUDENT_GROUPS = 3
# to fit the embedding projection on: some 10,000 tokens for E + 1 unknowns per hidden
# unit
FIT_TEXTS = 256
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
        sources = Sources.open(resolved.config)
        settled = settle(resolved, sources, folder, world)
        data = sources.describe() | _describe_teacher(settled.config, sources)
        is_finished = begin(folder, settled, data=data, world=world)
        if is_finished:
            return 0
        train_config = settled.config.train
        device = choose_device(train_config.device)
        with computing(train_config, device):
            log = RunLog(opened, train_config, device, is_quiet)
            return _train(settled.config, sources, log)


def settle(
    resolved: Resolved[PretrainConfig], sources: Sources, folder: Path, world: World
) -> Resolved[PretrainConfig]:
    """Return the full configuration, the same in all processes, with the origin of
    each setting: the network's shape comes from the vocabulary or the starting model.
    """
    # Measured in one process: others, on slower processors, would choose other steps and
    # threads, and then wait for one another.
    measured = world.from_first(
        lambda: complete(resolved, sources, folder)[0].model_dump(mode="json")
    )
    settled = resolved.fill_measured(PretrainConfig.model_validate(measured))
    start = settled.config.start.model
    begins_as = start or settled.config.distil.teacher
    # "measured here" is said of whatever was filled in: the shape has a better origin.
    origins = dict[str, Origin]()
    for name, origin in settled.origins.items():
        if origin != MEASURED or not name.startswith("model."):
            continue
        is_of_text = name == "model.vocab_size" or name.endswith("_token_id")
        if begins_as is None or (is_of_text and not start):
            origins[name] = TOKENIZER
        else:
            origins[name] = Origin("start", begins_as)
    return Resolved(settled.config, settled.origins | origins)


def _describe_teacher(config: PretrainConfig, sources: Sources) -> dict[str, Json]:
    """Describe a teacher by its hash, so that a run resumes only with the same."""
    if sources.taught:
        return {"teacher": sources.taught.hash}
    if config.distil.teacher:
        return {"teacher": hash_weights(locate(config.distil.teacher))}
    return {}


def _train(config: PretrainConfig, sources: Sources, log: RunLog) -> int:
    """Make the network, its optimizer and its task; train, and write the model at the
    end. Return the exit code.
    """
    device = log.device
    world = log.session.world
    folder = log.session.folder
    dtype = device.dtype(config.train.precision)
    # A student is initialized from its teacher on the CPU, before either moves.
    teacher = open_teacher(config, sources, folder, dtype=dtype, world=world)
    network = new_network(config, sources, teacher, dtype)
    network.to(device.place).train()
    if isinstance(teacher, Teacher):
        move_network(teacher.encoder, device)
    elif teacher is not None:
        teacher = replace(teacher, axes=teacher.axes.to(device.place))
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
    held_out = sources.evaluation(config)
    _note_few(held_out, config.train.eval_sequences, log)
    task = task_of(network, config, sources, held_out, teacher, world)
    model = ModelFolder(network, sources.tokenizer, vectors_of(config, teacher))
    is_complete = train(
        task,
        config,
        log,
        optimizer,
        model,
        key_measure="masked_lm_accuracy" if config.train.keep_best else None,
    )
    if not is_complete:
        return log.session.exit_code()
    if world.is_first:
        with use_average(optimizer):
            write_model(folder / "model", model, has_card=True)
    return 0


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


# ---- the parts of a run --------------------------------------------------------------


def open_teacher(
    config: PretrainConfig,
    sources: Sources,
    folder: Path,
    *,
    dtype: torch.dtype,
    world: World,
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
    path = folder / AXES

    def write_axes() -> None:
        if not path.exists():
            file = BytesIO()
            np.lib.format.write_array(file, taught.axes(config.model.hidden_size))
            write_bytes(path, file.getvalue())

    world.from_first(write_axes)
    # The directions come from vectors of length 1, so the student's should have it, too.
    vectors = SentenceVectors(normalize=True)
    if config.start.model:
        vectors = read_shape(config.start.model).vectors or vectors
    return TeacherVectors(torch.from_numpy(np.load(path)), vectors)


def vectors_of(
    config: PretrainConfig, teacher: Teacher | TeacherVectors | None
) -> SentenceVectors | None:
    """Return how the model makes vectors: as its teacher or the model that it starts
    from; None if neither says it.
    """
    if teacher is not None:
        return teacher.vectors
    return read_shape(config.start.model).vectors if config.start.model else None


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


def _note_few(held_out: list[PretrainingBatch], num_wanted: int, log: RunLog) -> None:
    """Say if the held-out documents have fewer sequences than were asked for."""
    number = sum(len(batch.offsets) - 1 for batch in held_out)
    if number < num_wanted:
        log.say(
            f"evaluations have {number:,} sequences, not {num_wanted:,}"
            " (train.eval_sequences): the held-out documents have no more; a larger"
            " --held-out measures more exactly"
        )


# ---- settings that are completed before a run ----------------------------------------


def plan(
    resolved: Resolved[PretrainConfig], folder: Path, *, vocab_size: int | None = None
) -> tuple[PretrainConfig, Estimate]:
    """Return the full configuration and what it will need, without writing anything.

    Give `vocab_size` if the corpus, and therefore the vocabulary, does not exist yet.
    """
    sources = Sources.open(resolved.config) if vocab_size is None else None
    config, needs = complete(resolved, sources, folder, vocab_size=vocab_size)
    device = choose_device(config.train.device)
    return config, needs or estimate(config, device, sources)


def complete(
    resolved: Resolved[PretrainConfig],
    sources: Sources | None,
    folder: Path,
    *,
    vocab_size: int | None = None,
) -> tuple[PretrainConfig, Estimate | None]:
    """Fill in what depends on the data, and what depends on this machine: precision,
    threads and steps.

    What a run that has begun, or a plan, measured is kept. Also return the needs, if
    they were measured on the way.
    """
    config = resolved.config
    tokenizer = sources.tokenizer if sources else None
    of_data: dict[str, Json] = {"vocab_size": vocab_size}
    if tokenizer:
        of_data = {
            "vocab_size": tokenizer.vocab_size,
            "pad_token_id": tokenizer.pad_id,
            "bos_token_id": tokenizer.cls_id,
            "eos_token_id": tokenizer.sep_id,
        }
    model = shape_of(resolved, tokenizer).model_copy(update=of_data)

    train = config.train
    device = choose_device(train.device)
    recorded = RunFolder(folder).settings
    of_machine: dict[str, Json] = {"precision": settled_precision(train, recorded)}
    is_planned = train.minutes is None or resolved.origins["train.steps"] == MEASURED
    is_begun = not is_planned and recorded.get("train.minutes") == train.minutes
    if is_begun:
        of_machine["threads"] = recorded["train.threads"]
        of_machine["steps"] = recorded["train.steps"]
    settled = config.model_copy(
        update={"model": model, "train": train.model_copy(update=of_machine)}
    )
    if is_planned or is_begun:
        return settled, None
    # What is left is a run by the clock: its steps are as many as the time allows.
    return fit_steps(settled, device, sources)


def shape_of(
    resolved: Resolved[PretrainConfig], tokenizer: Tokenizer | None = None
) -> AlbertConfig:
    """Return the network's configuration: the starting model's, a student's, or the one
    that is set.
    """
    config = resolved.config
    if config.start.model:
        shape = shape_of_start(resolved, tokenizer)
    else:
        shape = _shape_of_settings(resolved, tokenizer)
    if config.distil.teacher and holds_vectors(config.distil.teacher):
        require_wide_vectors(config.distil.teacher, shape.hidden_size)
    return shape


def require_wide_vectors(teacher: str, hidden_size: int) -> None:
    """Raise if a student would be wider than the vectors that it is to learn."""
    width = vector_width(teacher)
    if hidden_size > width:
        what = "the student is wider than the vectors that it would learn"
        raise LitebertError(
            "LB-566",
            what,
            received=f"hidden_size {hidden_size}, and vectors of {width} numbers",
            expected=f"hidden_size {width} or less",
            next=f"set model.hidden_size={width}, or --from a narrower student",
        )


def _shape_of_settings(
    resolved: Resolved[PretrainConfig], tokenizer: Tokenizer | None
) -> AlbertConfig:
    config = resolved.config
    is_open = _is_usual(resolved.origins["model.vocab_size"])
    if tokenizer and not is_open and config.model.vocab_size != tokenizer.vocab_size:
        raise _other_shape(
            resolved,
            "vocab_size",
            f"{tokenizer.vocab_size}, the pieces of {config.data.corpus}",
        )
    if config.distil.teacher and not holds_vectors(config.distil.teacher):
        return shape_of_student(resolved)
    return config.model


def shape_of_start(
    resolved: Resolved[PretrainConfig], tokenizer: Tokenizer | None
) -> AlbertConfig:
    """Return the starting model's configuration; only its dropouts may be set to other
    values.
    """
    start = str(resolved.config.start.model)
    folder = locate(start)
    shape = read_config(folder)
    if tokenizer:
        if not resolved.config.start.new_vocabulary:
            _require_same_vocabulary(start, Tokenizer.load(folder), tokenizer)
        shape = shape.model_copy(update={"vocab_size": tokenizer.vocab_size})
    _require_positions(resolved, start, shape.max_position_embeddings)
    typed = dict[str, Json]()
    for name in AlbertConfig.model_fields:
        if not resolved.origins[f"model.{name}"].is_typed:
            continue
        typed[name] = getattr(resolved.config.model, name)
        size = getattr(shape, name)
        if name not in DROPOUTS and typed[name] != size:
            raise _other_shape(resolved, name, f"{size}, as in {start}")
    return shape.model_copy(update=typed)


def _require_same_vocabulary(start: str, former: Tokenizer, corpus: Tokenizer) -> None:
    if former.hash == corpus.hash:
        return
    raise LitebertError(
        "LB-514",
        "the corpus was made with another tokenizer than the model that training"
        " starts from",
        received=f"tokenizer {corpus.hash[:12]} in the corpus",
        expected=f"that of {start}",
        next=f"build the corpus with --tokenizer {start}, or add"
        " start.new_vocabulary=true",
    )


def _require_positions(
    resolved: Resolved[PretrainConfig], start: str, num_positions: int
) -> None:
    """Raise if sequences are longer than the starting model can read."""
    length = resolved.config.objective.max_seq_length
    if length <= num_positions:
        return
    raise LitebertError(
        "LB-519",
        f"objective.max_seq_length is above the positions of {start}",
        received=f"{length} ({resolved.origins['objective.max_seq_length']})",
        expected=f"at most {num_positions}",
        next=f"set objective.max_seq_length={num_positions}",
    )


def shape_of_student(resolved: Resolved[PretrainConfig]) -> AlbertConfig:
    """Return the student's configuration: the teacher's widths and depth, unless set.

    Its layers share three blocks, unless `num_hidden_groups` or another sharing is set.
    """
    named = str(resolved.config.distil.teacher)
    chosen = resolved.config.model
    teacher = read_config(locate(named))
    shape = chosen.model_dump()
    for name in FROM_TEACHER:
        if _is_usual(resolved.origins[f"model.{name}"]):
            shape[name] = getattr(teacher, name)
    if shape["embedding_size"] == shape["hidden_size"]:
        # `begin_as_teacher` fits it to the teacher's word table
        shape["embedding_projection"] = True  # (embedding, hidden), square
    may_group = _is_usual(resolved.origins["model.num_hidden_groups"])
    if may_group and chosen.sharing == "all":
        shape["num_hidden_groups"] = min(STUDENT_GROUPS, shape["num_hidden_layers"])
    for name in FROM_TEACHER[:3]:
        size = shape[name]
        teacher_size = getattr(teacher, name)
        expected = str(teacher_size)
        is_good = size == teacher_size
        if name == "intermediate_size":  # the most active neurons can be chosen
            expected += " or less"
            is_good = size <= teacher_size
        if not is_good:
            raise _other_shape(resolved, name, f"{expected}, as in {named}")
    try:
        return AlbertConfig.model_validate(shape)
    except ValidationError as error:
        # too many groups for the depth that it takes from its teacher
        raise _other_shape(
            resolved,
            "num_hidden_groups",
            expected_value(error.errors(include_url=False)[0]),
        ) from error


def _is_usual(origin: Origin) -> bool:
    return origin.kind in ("default", "preset")


def _other_shape(
    resolved: Resolved[PretrainConfig], name: str, expected: str
) -> LitebertError:
    value = getattr(resolved.config.model, name)
    origin = resolved.origins[f"model.{name}"]
    return LitebertError(
        "LB-515",
        f"model.{name} does not fit the corpus, or the model that training starts from",
        received=f"{value} ({origin})",
        expected=expected,
        next=f"omit model.{name}",
    )


# ---- the weights ---------------------------------------------------------------------


def new_network(
    config: PretrainConfig,
    sources: Sources,
    teacher: Teacher | TeacherVectors | None,
    dtype: torch.dtype,
) -> AlbertForPretraining:
    """Return the network on the CPU: random or begun as its teacher, with attention and
    output bias as configured.
    """
    generator = torch.Generator().manual_seed(
        rng.torch_seed(config.train.seed, "init", 0)
    )
    network = AlbertForPretraining(
        config.model,
        heads=config.objective.chosen_heads,
        dtype=dtype,
        generator=generator,
    )
    if config.start.model:
        return network  # `take_start` fills it
    # The order matters: local attention and the output bias replace what the teacher
    # gave, where both are set.
    corpus = sources.corpus
    if isinstance(teacher, Teacher):
        texts = open_loader(corpus.path, config=plain_text_config(config))
        begin_as_teacher(network, teacher, texts.batch_between(0, FIT_TEXTS))
    if config.start.attention == "local":
        attend_locally(network.albert, seed=config.train.seed)
    if config.start.output_bias == "unigram":
        # The first thing that a network learns is how frequent each piece is: here it
        # begins with that.
        frequencies = log_frequencies(corpus.shards, config.model.vocab_size)
        network.masked_lm.bias.data.copy_(torch.from_numpy(frequencies))
    return network


def former_pieces(tokenizer: Tokenizer, former: Tokenizer) -> list[list[int]]:
    """Return for each piece of a new vocabulary the former pieces whose mean vector it
    gets: itself if it is shared, otherwise those of its text, or [UNK].
    """
    known = {piece: [index] for index, piece in enumerate(former.pieces)}
    # [CLS] is [CLS], however the two vocabularies spell it.
    special_ids = zip(tokenizer.special_ids, former.special_ids, strict=True)
    for new_id, former_id in special_ids:
        known[tokenizer.pieces[new_id]] = [former_id]
    rows = list[list[int]]()
    for piece, text in zip(tokenizer.pieces, tokenizer.texts, strict=True):
        rows.append(known.get(piece) or former.encode(text).ids or [former.unk_id])
    return rows


def take_start(
    network: AlbertForPretraining,
    optimizer: MomentOptimizer,
    config: PretrainConfig,
    tokenizer: Tokenizer,
    log: RunLog,
) -> Collection[str]:
    """Copy a model's weights and, if configured, its optimizer's state; return the
    names of what it lacks.
    """
    folder = locate(str(config.start.model))
    name = PACKAGED if folder == packaged_model() else folder
    log.say(f"starting from {name}")
    rows = None
    former = Tokenizer.load(folder)
    if former.hash != tokenizer.hash:
        rows = former_pieces(tokenizer, former)
        pieces = tokenizer.pieces
        shared = len(set(pieces) & set(former.pieces))
        log.say(f"a new vocabulary: {shared:,} of {len(pieces):,} pieces are shared")
    start = start_from(network, folder, rows=rows)
    if start.fresh:
        log.say(f"new, not in that model: {', '.join(start.fresh[:6])}")
    for head in sorted({name.partition(".")[0] for name in start.dropped}):
        if head in PRETRAINING_HEADS and head not in config.objective.heads:
            log.say(
                f"dropped: the head {head} of that model, which this run does not"
                f" train; objective.heads.{head}=1 keeps it",
                is_warning=True,
            )
    if config.start.optimizer:
        try:
            state = load_file(folder / OPTIMIZER_FILE)
        except (SafetensorError, OSError, ValueError) as error:
            raise LitebertError(
                "LB-516",
                f"there is no complete optimizer state in {folder}",
                received=error,
                expected="a checkpoint, such as runs/NAME/checkpoints/step-000001000",
                next="set start.optimizer=false",
            ) from error
        load_state_tensors(optimizer, state)
        log.say("also loaded its optimizer's state")
    return start.fresh
