"""A model on disk: config.json, model.safetensors and the tokenizer, as transformers reads them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from litebert.config import AlbertConfig
from litebert.errors import DamagedError, LitebertError
from litebert.files import write_bytes
from litebert.folder.configuration import read_config, write_config
from litebert.folder.names import tensor_names
from litebert.nn import AlbertForPretraining

WEIGHTS_FILE = "model.safetensors"
_PROJECTION = "albert.encoder.embedding_hidden_mapping_in"
# Non-persistent buffers of transformers that old files carry.
_IGNORED = ("albert.embeddings.position_ids", "albert.embeddings.token_type_ids")


@dataclass(frozen=True)
class LoadedModel:
    """A network with the parameters that its file did not have (they hold no numbers)."""

    network: AlbertForPretraining
    missing: frozenset[str]


def save_model(
    network: AlbertForPretraining, folder: Path, *, dtype: torch.dtype = torch.float32
) -> None:
    """Write config.json and model.safetensors; the tokenizer saves itself beside them."""
    write_config(network.config, folder, dtype=str(dtype).removeprefix("torch."))
    tensors = to_disk(dict(network.state_dict()), network.config)
    cast = {name: tensor.to(dtype).cpu().contiguous() for name, tensor in tensors.items()}
    write_bytes(folder / WEIGHTS_FILE, save(cast, metadata={"format": "pt"}))


def load_model(folder: Path, *, dtype: torch.dtype = torch.float32) -> LoadedModel:
    """Read a folder; whatever its file lacks is listed in `missing`, never made up."""
    config = read_config(folder)
    tensors = read_weights(folder / WEIGHTS_FILE)
    network = _empty_network(config, dtype)
    config, parameters = from_disk(tensors, config, source=folder / WEIGHTS_FILE)
    if config != network.config:
        network = _empty_network(config, dtype)
    _check_shapes(parameters, network, folder / WEIGHTS_FILE)
    result = network.load_state_dict(parameters, strict=False, assign=True)
    for parameter in network.parameters():
        parameter.requires_grad_()
    return LoadedModel(network.eval(), frozenset(result.missing_keys))


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file as float32 tensors."""
    if not path.is_file():
        raise LitebertError(
            "LB-602",
            f"there are no weights in {path.parent}",
            received=f"{path} missing",
            expected="a folder with config.json and model.safetensors",
            next="ls the folder; litebert pretrain writes its result to runs/<name>/model",
        )
    try:
        return {name: tensor.float() for name, tensor in load_file(path).items()}
    except (SafetensorError, ValueError, OSError) as error:
        raise DamagedError(
            "LB-603",
            f"{path} is not a whole safetensors file",
            received=str(error),
            expected="a file written by safetensors; pickled weights are never opened",
            next="fetch or save the model again",
        ) from error


def to_disk(parameters: dict[str, Tensor], config: AlbertConfig) -> dict[str, Tensor]:
    """Rename our parameters; where E = H without projection, transformers needs the identity."""
    tensors = {
        name: tensor.detach().clone()
        for parameter, tensor in parameters.items()
        for name in tensor_names(parameter, config)
    }
    if not config.projects_embeddings:
        tensors[f"{_PROJECTION}.weight"] = torch.eye(config.hidden_size)
        tensors[f"{_PROJECTION}.bias"] = torch.zeros(config.hidden_size)
    return tensors


def from_disk(
    tensors: dict[str, Tensor], config: AlbertConfig, *, source: Path
) -> tuple[AlbertConfig, dict[str, Tensor]]:
    """Rename tensors to our parameters; also say whether E = H comes with a projection."""
    named = _canonical(tensors)
    if config.embedding_size == config.hidden_size and _is_identity(named, config.hidden_size):
        named.pop(f"{_PROJECTION}.weight", None)
        named.pop(f"{_PROJECTION}.bias", None)
    elif config.embedding_size == config.hidden_size:
        config = config.model_copy(update={"embedding_projection": True})
    parameters, used = {}, set(_IGNORED)
    for parameter in _empty_network(config, torch.float32).state_dict():
        names = [name for name in tensor_names(parameter, config) if name in named]
        used.update(names)
        if names:
            parameters[parameter] = _one_of([named[name] for name in names], names, source)
    if unexpected := sorted(set(named) - used):
        raise DamagedError(
            "LB-604",
            f"{source} holds tensors that this network does not have",
            received=", ".join(unexpected[:5]),
            expected="the tensors of config.json's network",
            next="check num_hidden_groups, inner_group_num and sharing in config.json",
        )
    return config, parameters


def _canonical(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Add the prefix that a bare AlbertModel lacks and drop what is tied to other tensors."""
    bare = any(name.startswith("embeddings.") for name in tensors)
    named = {f"albert.{name}" if bare else name: tensor for name, tensor in tensors.items()}
    tied_bias = named.pop("predictions.decoder.bias", None)
    if tied_bias is not None:
        named.setdefault("predictions.bias", tied_bias)
    named.pop("predictions.decoder.weight", None)
    return named


def _is_identity(named: dict[str, Tensor], size: int) -> bool:
    weight, bias = named.get(f"{_PROJECTION}.weight"), named.get(f"{_PROJECTION}.bias")
    if weight is None or bias is None:
        return True
    return torch.equal(weight, torch.eye(size)) and not bool(bias.any())


def _one_of(copies: list[Tensor], names: list[str], source: Path) -> Tensor:
    """Return the tensor that all places on disk must agree on."""
    for name, copy in zip(names, copies, strict=True):
        if not torch.equal(copy, copies[0]):
            raise DamagedError(
                "LB-605",
                f"{source}: config.json says these tensors are shared, but they differ",
                received=f"{names[0]} and {name}",
                expected="equal copies of one shared tensor",
                next='set "sharing" to "none" in config.json to load them as separate layers',
            )
    return copies[0]


def _check_shapes(
    parameters: dict[str, Tensor], network: AlbertForPretraining, source: Path
) -> None:
    expected = network.state_dict()
    for name, tensor in parameters.items():
        if tensor.shape != expected[name].shape:
            raise DamagedError(
                "LB-606",
                f"{source}: {tensor_names(name, network.config)[0]} has another shape",
                received=str(list(tensor.shape)),
                expected=f"{list(expected[name].shape)}, by config.json",
                next="use the config.json that belongs to these weights",
            )


def _empty_network(config: AlbertConfig, dtype: torch.dtype) -> AlbertForPretraining:
    """Build a network whose parameters have shapes but no memory yet."""
    with torch.device("meta"):
        return AlbertForPretraining(config, dtype=dtype)
