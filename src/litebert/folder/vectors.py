"""How a text becomes a vector: the files that sentence-transformers keeps next to a
model.

`modules.json` lists the modules: the encoder, a pooling, dense layers, a
normalization. `config_sentence_transformers.json` has the prompts, the number of
dimensions that are kept and the similarity, `sentence_bert_config.json` the longest
text. A folder without `modules.json` says nothing about vectors.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import quote
from typing import Literal, cast, get_args

import torch
from pydantic import BaseModel, Field, TypeAdapter
from safetensors.torch import save
from torch import Tensor
from torch.nn import functional as F

from litebert.config import Pooling
from litebert.device import device_at
from litebert.errors import LitebertError
from litebert.files import Json, read_capped, read_json, write_bytes, write_json
from litebert.folder.weights import (
    WEIGHTS_FILE,
    read_tensors,
    widen,
)
from litebert.nn import Batch, pool_rows
from litebert.settings import describe_invalid

Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]

MODULES_FILE = "modules.json"
_SETTINGS_FILE = "sentence_bert_config.json"
_PROMPTS_FILE = "config_sentence_transformers.json"
_TOKENIZER_FILE = "tokenizer_config.json"
_CONFIG_FILE = "config.json"
_LIMIT = 1 << 20  # bytes of each of these files
_LONGEST = 1 << 20  # pieces; larger values mean that nobody chose a limit
_MODULES_OF = "sentence_transformers.models."
# Before version 6, sentence-transformers wrote one switch per pooling.
_SWITCHES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
# The activations of a dense layer, by the class of torch that names them.
_ACTIVATIONS = {
    "Identity": lambda x: x,
    "Tanh": torch.tanh,
    "ReLU": F.relu,
    "GELU": F.gelu,
    "SiLU": F.silu,
    "Sigmoid": torch.sigmoid,
}
_DENSE_NAMES = ("linear.weight", "linear.bias")


@dataclass(frozen=True)
class DenseLayer:
    """A linear layer on vectors of texts, with an activation."""

    weight: Tensor  # (outputs, inputs)
    bias: Tensor | None  # (outputs,)
    activation: str = "Tanh"

    def __call__(self, vectors: Tensor) -> Tensor:
        """Return the outputs for vectors of shape (texts, inputs)."""
        device = device_at(vectors.device)
        outputs = F.linear(vectors, device.copy(self.weight))
        if self.bias is not None:
            outputs = outputs + device.copy(self.bias)
        activated: Tensor = _ACTIVATIONS[self.activation](outputs)
        return activated


@dataclass(frozen=True)
class SentenceVectors:
    """How hidden states become one vector per text; the defaults are those of a plain
    model.
    """

    pooling: Pooling = "mean"
    normalize: bool = False
    # in pieces; unset, only the network's positions limit texts
    max_length: int | None = None
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None  # the name of one of them
    pools_prompt: bool = True  # whether its tokens count in the pooling
    dimensions: int | None = None  # only the first ones are kept
    similarity: Similarity = "cosine"
    # after the pooling, before the normalization
    dense: tuple[DenseLayer, ...] = field(default=(), compare=False)

    def prompt(self, name: str | None = None) -> str:
        """Return the text that is put before every text: the prompt of this name, or
        the default one; "" if no name is given and there is no default.
        """
        chosen = self.default_prompt if name is None else name
        return self.prompts.get(chosen or "", "")

    def prompt_for(self, role: Literal["query", "document"]) -> str | None:
        """Return the name of the prompt for queries, or for the documents that they
        search, as sentence-transformers chooses it; None if there is none.
        """
        names = ("query",) if role == "query" else ("document", "passage", "corpus")
        return next((name for name in names if name in self.prompts), None)

    def pool(self, states: Tensor, batch: Batch, *, skipped: int = 0) -> Tensor:
        """Return one vector for each sequence of a batch, (sequences, width), before
        normalization.

        `states` are the last hidden states, (tokens, hidden); the first `skipped` tokens
        of every sequence do not count.
        """
        if skipped:
            states, batch = _without_prompt(states, batch, skipped)
        return self.project(pool_rows(states, batch, self.pooling))

    def project(self, pooled: Tensor) -> Tensor:
        """Apply the dense layers to pooled states, (texts, hidden)."""
        for layer in self.dense:
            pooled = layer(pooled)
        return pooled

    def width(self, hidden_size: int) -> int:
        """Return the number of dimensions before any are cut off."""
        return self.dense[-1].weight.shape[0] if self.dense else hidden_size

    def length(self, hidden_size: int) -> int:
        """Return the number of dimensions of the vectors."""
        width = self.width(hidden_size)
        return min(self.dimensions or width, width)


def _without_prompt(states: Tensor, batch: Batch, skipped: int) -> tuple[Tensor, Batch]:
    """Return the states of all tokens but the first ones of each sequence, and their
    batch; of a short sequence, the last token is kept.
    """
    # found on the host, which knows the lengths: a GPU would have to be waited for
    lengths = torch.tensor(batch.lengths)  # (sequences,)
    skips = (lengths - 1).clamp(max=skipped)
    sizes = lengths - skips
    is_kept = torch.cat(
        [
            torch.arange(length) >= skip
            for length, skip in zip(batch.lengths, skips.tolist(), strict=True)
        ]
    )  # (tokens,)
    device = device_at(states.device)
    rows = device.copy(is_kept.nonzero().flatten())
    kept = Batch(
        batch.ids[rows],
        batch.positions[rows],
        batch.segments[rows],
        device.copy(torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])),
        tuple(sizes.tolist()),
    )
    return states[rows], kept


# ---- reading -------------------------------------------------------------------------


class _Module(BaseModel):
    type: str
    # a folder inside the model folder, or that folder itself
    path: str = Field(pattern=r"^[\w-]*$")

    @property
    def kind(self) -> str:
        return self.type.rpartition(".")[2]


class _Dense(BaseModel):
    activation_function: str = "torch.nn.modules.activation.Tanh"
    module_input_name: str = "sentence_embedding"
    module_output_name: str | None = None
    use_residual: bool = False


class _Prompts(BaseModel):
    prompts: dict[str, str | None] | None = None
    default_prompt_name: str | None = None
    similarity_fn_name: str | None = None
    truncate_dim: int | None = Field(None, ge=1)


_MODULES = TypeAdapter(list[_Module])


class VectorsError(LitebertError):
    """A folder describes vectors that litebert cannot compute."""


def read_sentence_vectors(
    folder: Path, *, hidden_size: int | None = None
) -> SentenceVectors | None:
    """Read how sentence-transformers makes vectors with a model of this size; None if
    no file says it.
    """
    path = folder / MODULES_FILE
    if not path.is_file():
        return None
    data = read_capped(path, _LIMIT, command=f"ls {quote(str(folder))}")
    try:
        modules = _MODULES.validate_json(data)
        if _is_of_task(modules):
            return None
        pooling, dense, has_normalize = _arrange(modules)
        settings = _table(folder, _SETTINGS_FILE)
        _check_case(folder, settings)
        read = _read_pooling(folder / pooling.path)
        read = _add_prompts(read, _table(folder, _PROMPTS_FILE))
        layers = tuple(_read_dense(folder / module.path) for module in dense)
        _check_widths(layers, hidden_size)
        return replace(
            read,
            normalize=has_normalize,
            max_length=_longest(folder, settings),
            dense=layers,
        )
    except ValueError as error:
        raise VectorsError(
            "LB-672",
            f"{path} describes vectors that litebert cannot compute",
            received=describe_invalid(error),
            expected="the encoder, a pooling (mean, cls or max), dense layers,"
            " a normalization",
            next=f"to use only the encoder, delete {path}",
        ) from error


def _is_of_task(modules: list[_Module]) -> bool:
    """Return whether a folder has a whole model of transformers with its task head, as
    a CrossEncoder has: it makes no vectors.
    """
    return [module.kind for module in modules] == ["Transformer"] and (
        not modules[0].path
    )


def _arrange(modules: list[_Module]) -> tuple[_Module, list[_Module], bool]:
    """Return the pooling, the dense layers, and whether a normalization follows."""
    kinds = [module.kind for module in modules]
    has_normalize = kinds[-1:] == ["Normalize"]
    dense = modules[2 : len(modules) - has_normalize]
    wanted = ["Transformer", "Pooling", *("Dense" for _ in dense)]
    if has_normalize:
        wanted.append("Normalize")
    if kinds != wanted or modules[0].path:
        places = [f"{each.type} in {each.path or 'this folder'}" for each in modules]
        raise ValueError(", ".join(places) or "no modules")
    return modules[1], dense, has_normalize


def _table(folder: Path, name: str) -> dict[str, Json]:
    """Return the contents of a JSON file; nothing if there is no such file."""
    path = folder / name
    if not path.is_file():
        return {}
    return read_json(path, command=f"ls {quote(str(folder))}", limit=_LIMIT)


def _check_case(folder: Path, settings: dict[str, Json]) -> None:
    """Raise if texts are lower-cased although the tokenizer keeps capitals."""
    keeps_capitals = _table(folder, _TOKENIZER_FILE).get("do_lower_case") is False
    if settings.get("do_lower_case") and keeps_capitals:
        raise ValueError("do_lower_case before a tokenizer that keeps capitals")


def _read_pooling(folder: Path) -> SentenceVectors:
    command = f"ls {quote(str(folder))}"
    table = read_json(folder / _CONFIG_FILE, command=command, limit=_LIMIT)
    switched = [mode for name, mode in _SWITCHES.items() if table.get(name)]
    written = table.get("pooling_mode") or switched or "mean"
    modes = written if isinstance(written, list) else [written]
    if len(modes) != 1 or modes[0] not in get_args(Pooling):
        raise ValueError(f"pooling {', '.join(map(str, modes))}")
    pools_prompt = table.get("include_prompt") is not False
    return SentenceVectors(pooling=cast(Pooling, modes[0]), pools_prompt=pools_prompt)


def _add_prompts(vectors: SentenceVectors, table: dict[str, Json]) -> SentenceVectors:
    """Add the prompts, the similarity and the number of dimensions that are kept."""
    read = _Prompts.model_validate(table)
    prompts = {name: text or "" for name, text in (read.prompts or {}).items()}
    similarity = read.similarity_fn_name
    # others are of models with several vectors per text; sentence-transformers
    # ignores them, too
    if similarity not in get_args(Similarity):
        similarity = "cosine"
    return replace(
        vectors,
        prompts=prompts,
        default_prompt=read.default_prompt_name,
        dimensions=read.truncate_dim,
        similarity=cast(Similarity, similarity),
    )


def _longest(folder: Path, settings: dict[str, Json]) -> int | None:
    """Return how many pieces of a text are read, with [CLS] and [SEP]; None if no file
    limits it.
    """
    by_tokenizer = _table(folder, _TOKENIZER_FILE).get("model_max_length")
    longest = settings.get("max_seq_length") or by_tokenizer
    # at least one piece between [CLS] and [SEP]
    if isinstance(longest, int) and 3 <= longest <= _LONGEST:
        return longest
    return None


def _read_dense(folder: Path) -> DenseLayer:
    table = _Dense.model_validate(_table(folder, _CONFIG_FILE))
    activation = table.activation_function.rpartition(".")[2]
    is_known = activation in _ACTIVATIONS
    if not is_known or not table.activation_function.startswith("torch."):
        raise ValueError(f"a dense layer with {table.activation_function}")
    output = table.module_output_name or table.module_input_name
    is_in_place = table.module_input_name == output == "sentence_embedding"
    if table.use_residual or not is_in_place:
        raise ValueError(
            "a dense layer with a residual, or not on the vectors of texts"
        )
    path = folder / WEIGHTS_FILE
    if not path.is_file():
        raise ValueError(f"a dense layer without {path.name}")
    tensors = read_tensors(path).tensors
    if "linear.weight" not in tensors or not tensors.keys() <= {*_DENSE_NAMES}:
        raise ValueError(f"a dense layer of {', '.join(sorted(tensors)[:5])}")
    wide = {name: widen(each, f"{path}: {name}") for name, each in tensors.items()}
    weight, bias = (wide.get(name) for name in _DENSE_NAMES)
    assert weight is not None
    if weight.ndim != 2 or (bias is not None and bias.shape != weight.shape[:1]):
        raise ValueError(f"a dense layer of shape {list(weight.shape)}")
    return DenseLayer(weight, bias, activation)


def _check_widths(dense: tuple[DenseLayer, ...], hidden_size: int | None) -> None:
    """Raise unless the dense layers fit the network, if it is known, and each other."""
    width = hidden_size
    for layer in dense:
        outputs, inputs = layer.weight.shape
        if width is not None and inputs != width:
            raise ValueError(
                f"a dense layer that reads {inputs:,} of {width:,} numbers"
            )
        width = outputs


# ---- writing -------------------------------------------------------------------------


_MOST_MODULES = 20
SENTENCE_FILES = (
    MODULES_FILE,
    _SETTINGS_FILE,
    _PROMPTS_FILE,
    f"1_Pooling/{_CONFIG_FILE}",
    *(f"{idx}_Dense/{_CONFIG_FILE}" for idx in range(2, _MOST_MODULES)),
    *(f"{idx}_Dense/{WEIGHTS_FILE}" for idx in range(2, _MOST_MODULES)),
)
"""The names of the files that `write_sentence_transformers` writes."""


def write_sentence_transformers(folder: Path, vectors: SentenceVectors) -> None:
    """Write the files that let `SentenceTransformer(folder)`, since 2.0, open a model
    folder with the same vectors.
    """
    config = read_json(folder / _CONFIG_FILE, command=f"ls {quote(str(folder))}")
    positions = cast(int, config["max_position_embeddings"])
    kinds = ["Transformer", "Pooling", *("Dense" for _ in vectors.dense)]
    if vectors.normalize:
        kinds.append("Normalize")
    paths = ["", *(f"{number}_{kind}" for number, kind in enumerate(kinds[1:], 1))]

    switches = {name: mode == vectors.pooling for name, mode in _SWITCHES.items()}
    pooling: dict[str, Json] = {
        "word_embedding_dimension": config["hidden_size"],
        **switches,
        "include_prompt": vectors.pools_prompt,
    }
    write_json(folder / paths[1] / _CONFIG_FILE, pooling)
    for path, layer in zip(paths[2:], vectors.dense, strict=False):
        _write_dense(folder / path, layer)
    longest = min(vectors.max_length or positions, positions)
    write_json(
        folder / _SETTINGS_FILE, {"max_seq_length": longest, "do_lower_case": False}
    )
    prompts: dict[str, Json] = {
        "prompts": dict(vectors.prompts),
        "default_prompt_name": vectors.default_prompt,
        "similarity_fn_name": vectors.similarity,
    }
    if vectors.dimensions is not None:
        prompts["truncate_dim"] = vectors.dimensions
    write_json(folder / _PROMPTS_FILE, prompts)
    # last: without it, the others are not read
    write_json(
        folder / MODULES_FILE,
        [
            {"idx": idx, "name": str(idx), "path": path, "type": _MODULES_OF + kind}
            for idx, (kind, path) in enumerate(zip(kinds, paths, strict=True))
        ],
    )


def _write_dense(folder: Path, layer: DenseLayer) -> None:
    outputs, inputs = layer.weight.shape
    module = "linear" if layer.activation == "Identity" else "activation"
    table: dict[str, Json] = {
        "in_features": inputs,
        "out_features": outputs,
        "bias": layer.bias is not None,
        "activation_function": f"torch.nn.modules.{module}.{layer.activation}",
    }
    write_json(folder / _CONFIG_FILE, table)
    named = zip(_DENSE_NAMES, (layer.weight, layer.bias), strict=True)
    tensors = {name: each.contiguous() for name, each in named if each is not None}
    write_bytes(folder / WEIGHTS_FILE, save(tensors, metadata={"format": "pt"}))
