"""Convert between tensors under Hugging Face's names and our parameters."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from litebert.config import AlbertConfig, HeadConfig
from litebert.errors import DamagedError
from litebert.folder.names import ALBERT, TensorNames, tensor_names

_PROJECTION = "albert.encoder.embedding_hidden_mapping_in"
_BARE = ("embeddings.", "encoder.", "pooler.")
# Non-persistent buffers of transformers that old files carry.
_IGNORED = ("embeddings.position_ids", "embeddings.token_type_ids")
# Layer norms of files that were converted from TensorFlow, among them bert-base-uncased.
_OLD_NORMS = (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias"))


def to_disk(parameters: dict[str, Tensor], config: AlbertConfig, head: HeadConfig | None = None) -> dict[str, Tensor]:
    """Rename our parameters; without a projection of E = H, transformers needs an identity."""
    tensors = {
        name: tensor.detach().clone()
        for parameter, tensor in parameters.items()
        for name in tensor_names(parameter, config, head)
    }
    if not config.projects_embeddings:
        tensors[f"{_PROJECTION}.weight"] = torch.eye(config.hidden_size)
        tensors[f"{_PROJECTION}.bias"] = torch.zeros(config.hidden_size)
    return tensors


def canonical(tensors: dict[str, Tensor], source: Path, layout: TensorNames = ALBERT) -> dict[str, Tensor]:
    """Add the prefix that a bare encoder lacks; drop buffers and tied copies.

    Raises:
        DamagedError: LB-609, a tied copy differs.
    """
    named = {_full_name(name, layout): tensor for name, tensor in tensors.items()}
    for buffer in _IGNORED:
        named.pop(layout.encoder + buffer, None)
    for copy, original in (
        (f"{layout.predictions}.decoder.weight", layout.words),
        (f"{layout.predictions}.decoder.bias", f"{layout.predictions}.bias"),
    ):
        tied = named.pop(copy, None)
        if tied is not None and not _equal(named.setdefault(original, tied), tied):
            raise DamagedError(
                "LB-609",
                f"{source}: the output layer of the masked LM is not tied",
                received=f"{copy} differs from {original}",
                expected=f"equal tensors, as in every {layout.family.upper()}",
                next="fetch the model again, or save it with tie_word_embeddings true",
            )
    return named


def _full_name(name: str, layout: TensorNames) -> str:
    for old, new in _OLD_NORMS:
        name = name.removesuffix(old) + new if name.endswith(old) else name
    return layout.encoder + name if name.startswith(_BARE) else name


def with_projection(named: dict[str, Tensor], config: AlbertConfig) -> AlbertConfig:
    """Keep a projection of E = H unless it is the identity, and set `embedding_projection`."""
    if config.embedding_size != config.hidden_size:
        return config
    weight, bias = named.get(f"{_PROJECTION}.weight"), named.get(f"{_PROJECTION}.bias")
    identity = torch.eye(config.hidden_size)
    if weight is None or bias is None or (_equal(weight, identity) and not bool(bias.any())):
        named.pop(f"{_PROJECTION}.weight", None)
        named.pop(f"{_PROJECTION}.bias", None)
        return config
    return config.model_copy(update={"embedding_projection": True})


def from_disk(
    named: dict[str, Tensor],
    parameters: Iterable[str],
    config: AlbertConfig,
    head: HeadConfig | None,
    *,
    source: Path,
    layout: TensorNames = ALBERT,
) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Return the tensor of every parameter on disk, and the names of unused tensors."""
    found, used = {}, set()
    for parameter in parameters:
        on_disk = tensor_names(parameter, config, head, layout)
        names = [name for name in on_disk if name in named]
        used.update(names)
        if names:
            found[parameter] = _one_of([named[name] for name in names], names, source)
    return found, tuple(sorted(set(named) - used))


def _one_of(copies: list[Tensor], names: list[str], source: Path) -> Tensor:
    """Return a shared tensor; raise LB-605 if its copies on disk differ."""
    for name, copy in zip(names[1:], copies[1:], strict=True):
        if not _equal(copy, copies[0]):
            raise DamagedError(
                "LB-605",
                f"{source}: config.json says these tensors are shared, but they differ",
                received=f"{names[0]} and {name}",
                expected="equal copies of one shared tensor",
                next='set "sharing" to "none" in config.json to load them as separate layers',
            )
    return copies[0]


def _equal(one: Tensor, other: Tensor) -> bool:
    """Compare numbers of any dtypes; NaN equals NaN, because another check refuses it."""
    if one.shape != other.shape:
        return False
    one, other = one.float(), other.float()
    return torch.equal(one, other) or torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)
