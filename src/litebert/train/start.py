"""Where pretraining starts: at random, from a model on disk, or, for a student, from its teacher."""

from __future__ import annotations

from pathlib import Path

import torch
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from litebert import rng
from litebert.config import AlbertConfig, Origin, PretrainConfig, Resolved, flattened
from litebert.config.allowed import expected
from litebert.errors import DamagedError, LitebertError
from litebert.folder import read_config, start_from
from litebert.hub import locate
from litebert.nn import AlbertForPretraining
from litebert.objectives.batch import log_frequencies
from litebert.optim import MomentOptimizer, load_state_tensors
from litebert.tasks.distillation import Teacher
from litebert.tasks.start import attend_locally, begin_as_teacher
from litebert.tokenizer import Tokenizer
from litebert.train.checkpoint import OPTIMIZER_FILE
from litebert.train.run import dtype_of
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
    changes = {}
    for name, value in flattened(shape).items():
        origin = resolved.origins[f"model.{name}"]
        if not origin.is_typed or configured[name] == value:
            continue
        if name not in MAY_DIFFER:
            raise LitebertError(
                "LB-515",
                f"model.{name} is not that of the model that training starts from",
                received=f"{configured[name]} ({origin})",
                expected=f"{value}, as in {start}, or nothing",
                next=f"omit model.{name}",
            )
        changes[name] = configured[name]
    return shape.model_copy(update=changes)


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
        size, theirs = getattr(model, name), getattr(teacher, name)
        may_be_less = name == "intermediate_size"
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
        load_state_tensors(optimizer, network.named_parameters(), _optimizer_state(folder))
        lines.append("with its optimizer's state")
    return lines


def former_pieces(tokenizer: Tokenizer, former: Tokenizer) -> list[list[int]]:
    """Return the ids of the former pieces that make up each piece of the new vocabulary.

    A shared piece is made of itself, another of the former pieces of its text, or of [UNK].
    """
    known = {piece: [index] for index, piece in enumerate(former.pieces)}
    special = dict(zip(tokenizer.special_ids, former.special_ids, strict=True))
    rows = []
    for index, piece in enumerate(tokenizer.pieces):
        kept = [special[index]] if index in special else known.get(piece)
        rows.append(kept or former.encode(piece.replace("▁", " ")).ids or [former.unk_id])
    return rows


def _optimizer_state(folder: Path) -> dict[str, Tensor]:
    path = folder / OPTIMIZER_FILE
    if not path.is_file():
        raise LitebertError(
            "LB-516",
            f"there is no optimizer state in {folder}",
            received=f"{path} missing",
            expected="a checkpoint, or a Google checkpoint imported with its optimizer slots",
            next="litebert import google PATH --optimizer, or set start.optimizer=false",
        )
    try:
        tensors: dict[str, Tensor] = load_file(path)
        return tensors
    except (SafetensorError, OSError, ValueError) as error:
        raise DamagedError(
            "LB-517",
            f"{path} is not a complete safetensors file",
            received=str(error),
            next="set start.optimizer=false to begin with a fresh one",
        ) from error
