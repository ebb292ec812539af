"""Start pretraining from a model on disk: its shape, its weights, its optimizer's state."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from litebert.config import AlbertConfig, PretrainConfig, Resolved, flattened
from litebert.errors import DamagedError, LitebertError
from litebert.folder import read_config, start_from
from litebert.hub import locate
from litebert.nn import AlbertForPretraining
from litebert.optim import MomentOptimizer, load_state_tensors
from litebert.tokenizer import Tokenizer

OPTIMIZER_FILE = "optimizer.safetensors"
_MAY_DIFFER = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout_prob")


def shape_of_start(resolved: Resolved[PretrainConfig], tokenizer: Tokenizer) -> AlbertConfig:
    """Return the starting model's configuration; only its dropouts may be changed.

    Raises:
        LitebertError: LB-514, the corpus has another tokenizer; LB-515, a setting contradicts the
            model.
    """
    start = str(resolved.config.start.model)
    folder = locate(start)
    is_other = Tokenizer.load(folder).hash != tokenizer.hash
    if is_other and not resolved.config.start.new_vocabulary:
        raise LitebertError(
            "LB-514",
            "the corpus was made with another tokenizer than the model that training starts from",
            received=f"tokenizer {tokenizer.hash[:12]} in the corpus",
            expected=f"that of {start}",
            next=f"litebert corpus build ... --tokenizer {start}; or start.new_vocabulary=true",
        )
    shape, configured = read_config(folder), flattened(resolved.config.model)
    shape = shape.model_copy(update={"vocab_size": tokenizer.vocab_size})
    changes = {}
    for name, value in flattened(shape).items():
        if not resolved.origins[f"model.{name}"].is_typed or configured[name] == value:
            continue
        if name not in _MAY_DIFFER:
            raise LitebertError(
                "LB-515",
                f"model.{name} is not that of the model that training starts from",
                received=f"{configured[name]} ({resolved.origins[f'model.{name}']})",
                expected=f"{value}, as in {start}, or nothing",
                next=f"omit model.{name}",
            )
        changes[name] = configured[name]
    return shape.model_copy(update=changes)


def take_start(
    network: AlbertForPretraining, optimizer: MomentOptimizer, config: PretrainConfig, tokenizer: Tokenizer
) -> list[str]:
    """Copy weights and, if configured, the optimizer's state; return lines for the log."""
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
        load_state_tensors(optimizer, network.named_parameters(), _state(folder))
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


def _state(folder: Path) -> dict[str, Tensor]:
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
            expected="the optimizer's state",
            next="set start.optimizer=false to begin with a fresh one",
        ) from error
