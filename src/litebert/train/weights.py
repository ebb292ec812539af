"""The first weights of a pretraining run: random, those of another model, or made from a
teacher's.
"""

from collections.abc import Collection
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from litebert import rng
from litebert.config import PretrainConfig
from litebert.device import choose_device
from litebert.errors import LitebertError
from litebert.folder import start_from
from litebert.hub import PACKAGED, locate, packaged_model
from litebert.nn import AlbertForPretraining
from litebert.objectives.frequencies import log_frequencies
from litebert.optim import (
    MomentOptimizer,
    build_optimizer,
    load_state_tensors,
    require_same_layout,
    state_tensors,
)
from litebert.plugins import PRETRAINING_HEADS
from litebert.tasks.teacher import Teacher, TeacherVectors
from litebert.tokenizer import Tokenizer
from litebert.train.checkpoint import OPTIMIZER_FILE
from litebert.train.local_start import attend_locally
from litebert.train.log import RunLog, say_start
from litebert.train.sources import Sources, open_loader, plain_text_config
from litebert.train.student import begin_as_teacher

# Texts to fit the embedding projection on: some 10,000 tokens, for E + 1 unknowns per
# hidden unit.
FIT_TEXTS = 256


def new_network(
    config: PretrainConfig,
    sources: Sources,
    teacher: Teacher | TeacherVectors | None,
    dtype: torch.dtype,
) -> AlbertForPretraining:
    """Return the network on the CPU: random or begun as its teacher, with attention and
    output bias as configured.
    """
    # A stream of its own, so that no other draw of the run changes the first weights. On
    # the CPU, because a GPU would draw other numbers.
    generator = torch.Generator()
    generator.manual_seed(rng.torch_seed(config.train.seed, "init", 0))
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
        # (vocab,): log probabilities, which as logits give the frequencies back
        frequencies = log_frequencies(corpus.shards, config.model.vocab_size)
        network.masked_lm.bias.data.copy_(torch.from_numpy(frequencies))
    return network


def require_moments(config: PretrainConfig) -> None:
    """Raise unless the optimizer's state of the start, if it is asked for, fits the
    network and the optimizer of this run.
    """
    if not config.start.optimizer:
        return
    folder = locate(str(config.start.model))
    moments = _read_moments(folder)
    dtype = choose_device(config.train.device).dtype(config.train.precision)
    with torch.device("meta"):  # shapes only
        network = AlbertForPretraining(
            config.model, heads=config.objective.chosen_heads, dtype=dtype
        )
        optimizer = build_optimizer(config.optim, network.named_parameters())
        wanted = state_tensors(optimizer)
    try:
        require_same_layout(moments, wanted)
    except LitebertError as error:
        raise LitebertError(
            "LB-516",
            f"the optimizer state in {folder} does not fit this run",
            received=error.received,
            expected="the network, vocabulary and optimizer that it was written with",
            next="set start.optimizer=false",
        ) from error


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
    start = start_from(network, folder, rows=_rows_of_pieces(tokenizer, folder, log))
    say_start(log, start)
    # A head that is dropped without a word would be missed only after the run.
    for head in sorted({name.partition(".")[0] for name in start.dropped}):
        if head in PRETRAINING_HEADS and head not in config.objective.heads:
            log.say(
                f"dropped: the head {head} of that model, which this run does not"
                f" train; objective.heads.{head}=1 keeps it",
                is_warning=True,
            )
    if config.start.optimizer:
        load_state_tensors(optimizer, _read_moments(folder))  # which were checked
        log.say("also loaded its optimizer's state")
    return start.fresh


def _rows_of_pieces(
    tokenizer: Tokenizer, folder: Path, log: RunLog
) -> list[list[int]] | None:
    """Return the pieces of a model that each piece of a new vocabulary is made from;
    None if the vocabulary is the model's own.
    """
    former = Tokenizer.load(folder)
    if former.hash == tokenizer.hash:
        return None
    pieces = tokenizer.pieces
    num_shared = len(set(pieces) & set(former.pieces))
    log.say(f"a new vocabulary: {num_shared:,} of {len(pieces):,} pieces are shared")
    return former_pieces(tokenizer, former)


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
        # A text without former pieces, such as an empty one, becomes [UNK].
        rows.append(known.get(piece) or former.encode(text).ids or [former.unk_id])
    return rows


def _read_moments(folder: Path) -> dict[str, torch.Tensor]:
    """Read the optimizer's state of a checkpoint."""
    try:
        return load_file(folder / OPTIMIZER_FILE)
    except (SafetensorError, OSError, ValueError) as error:
        raise LitebertError(
            "LB-516",
            f"there is no complete optimizer state in {folder}",
            received=error,
            expected="a checkpoint, such as runs/NAME/checkpoints/step-000001000",
            next="set start.optimizer=false",
        ) from error
