"""The files that sentence-transformers keeps next to a model: how a text becomes a
vector.

`modules.json` lists the modules: the encoder, a pooling, dense layers, a
normalization. `config_sentence_transformers.json` has the prompts, the number of
dimensions that are kept and the similarity, `sentence_bert_config.json` the longest
text. A folder without `modules.json` says nothing about vectors.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast, get_args

from pydantic import BaseModel, Field, RootModel, ValidationError
from safetensors.torch import save
from torch import Tensor

from litebert.config import AlbertConfig, Pooling
from litebert.errors import LitebertError
from litebert.files import Json, read_capped, read_json, write_bytes, write_json
from litebert.folder.vectors import ACTIVATIONS, DenseLayer, SentenceVectors, Similarity
from litebert.folder.weights import WEIGHTS_FILE, read_tensors, widen
from litebert.settings import describe_invalid

Contents = TypeVar("Contents")
Parsed = TypeVar("Parsed")

MODULES_FILE = "modules.json"
_SETTINGS_FILE = "sentence_bert_config.json"
_PROMPTS_FILE = "config_sentence_transformers.json"
_TOKENIZER_FILE = "tokenizer_config.json"
_CONFIG_FILE = "config.json"
_LIMIT = 1 << 20  # bytes of each of these files
_LONGEST = 1 << 20  # pieces; larger values mean that nobody chose a limit
_MOST_MODULES = 20  # whose files are known
SENTENCE_FILES = (
    MODULES_FILE,
    _SETTINGS_FILE,
    _PROMPTS_FILE,
    f"1_Pooling/{_CONFIG_FILE}",
    *(f"{idx}_Dense/{_CONFIG_FILE}" for idx in range(2, _MOST_MODULES)),
    *(f"{idx}_Dense/{WEIGHTS_FILE}" for idx in range(2, _MOST_MODULES)),
)
"""The names of the files that `write_sentence_transformers` writes."""
# Before version 6, sentence-transformers wrote one switch per pooling.
_SWITCHES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
# the tensors of a dense layer
_WEIGHT = "linear.weight"
_BIAS = "linear.bias"


# ---- reading -------------------------------------------------------------------------


class _Module(BaseModel):
    type: str
    # a folder inside the model folder, or that folder itself
    path: str = Field(pattern=r"^[\w-]*$")

    @property
    def kind(self) -> str:
        return self.type.rpartition(".")[2]


class _Modules(RootModel[list[_Module]]):
    @property
    def is_of_task(self) -> bool:
        """Whether a folder has a whole model of transformers with its task head, as a
        CrossEncoder has: it makes no vectors.
        """
        kinds = [module.kind for module in self.root]
        return kinds == ["Transformer"] and not self.root[0].path

    @property
    def has_normalize(self) -> bool:
        return bool(self.root) and self.root[-1].kind == "Normalize"

    @property
    def dense(self) -> list[_Module]:
        """Everything between the pooling and a normalization."""
        after_pooling = self.root[2:]
        return after_pooling[:-1] if self.has_normalize else after_pooling


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
    data = read_capped(path, _LIMIT)
    reader = _Reader(folder)
    modules = reader.validate(_Modules.model_validate_json, data)
    if modules.is_of_task:
        return None
    reader.check_modules(modules)
    reader.check_case()
    prompts = reader.validate(_Prompts.model_validate, reader.table(_PROMPTS_FILE))
    pooling = reader.table(Path(modules.root[1].path, _CONFIG_FILE), is_needed=True)
    similarity = prompts.similarity_fn_name
    # Other similarities are for several vectors per text; sentence-transformers
    # ignores them, too.
    if similarity not in get_args(Similarity):
        similarity = "cosine"
    return SentenceVectors(
        pooling=reader.pooling(pooling),
        normalize=modules.has_normalize,
        max_length=reader.max_length(),
        prompts={name: text or "" for name, text in (prompts.prompts or {}).items()},
        default_prompt=prompts.default_prompt_name,
        pools_prompt=pooling.get("include_prompt") is not False,
        dimensions=prompts.truncate_dim,
        similarity=cast(Similarity, similarity),
        dense=reader.dense_layers(modules.dense, hidden_size),
    )


class _Reader:
    """Reads the files of one folder; what litebert cannot compute raises one error."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def refusal(self, received: str) -> VectorsError:
        path = self.folder / MODULES_FILE
        return VectorsError(
            "LB-672",
            f"{path} describes vectors that litebert cannot compute",
            received=received,
            expected="the encoder, a pooling (mean, cls or max), dense layers,"
            " a normalization",
            next=f"to use only the encoder, delete {path}",
        )

    def validate(
        self, parse: Callable[[Contents], Parsed], contents: Contents
    ) -> Parsed:
        try:
            return parse(contents)
        except ValidationError as error:
            raise self.refusal(describe_invalid(error)) from error

    def table(self, name: str | Path, *, is_needed: bool = False) -> dict[str, Json]:
        """Return the contents of a JSON file; nothing if it is not there, unless it is
        needed.
        """
        path = self.folder / name
        if not is_needed and not path.is_file():
            return {}
        return read_json(path, limit=_LIMIT)

    def check_modules(self, modules: _Modules) -> None:
        """Raise unless the modules are those that litebert computes, in their order."""
        kinds = [module.kind for module in modules.root]
        computed = ["Transformer", "Pooling", *("Dense" for _ in modules.dense)]
        if modules.has_normalize:
            computed.append("Normalize")
        if kinds != computed or modules.root[0].path:
            places = [f"{m.type} in {m.path or 'this folder'}" for m in modules.root]
            raise self.refusal(", ".join(places) or "no modules")

    def check_case(self) -> None:
        """Raise if texts are lower-cased although the tokenizer keeps capitals."""
        keeps_capitals = self.table(_TOKENIZER_FILE).get("do_lower_case") is False
        if keeps_capitals and self.table(_SETTINGS_FILE).get("do_lower_case"):
            raise self.refusal("do_lower_case before a tokenizer that keeps capitals")

    def pooling(self, table: dict[str, Json]) -> Pooling:
        """Return the one pooling that a folder names."""
        # newer files name the mode, older ones have a switch for each
        modes = table.get("pooling_mode")
        if not modes:
            modes = [mode for name, mode in _SWITCHES.items() if table.get(name)]
        if not modes:
            modes = ["mean"]
        if not isinstance(modes, list):
            modes = [modes]
        if len(modes) != 1 or modes[0] not in get_args(Pooling):
            raise self.refusal(f"pooling {', '.join(map(str, modes))}")
        return cast(Pooling, modes[0])

    def max_length(self) -> int | None:
        """Return how many pieces of a text are read, with [CLS] and [SEP]; None if no
        file limits it.
        """
        longest = self.table(_SETTINGS_FILE).get("max_seq_length")
        if not longest:
            longest = self.table(_TOKENIZER_FILE).get("model_max_length")
        # at least one piece between [CLS] and [SEP]
        if isinstance(longest, int) and 3 <= longest <= _LONGEST:
            return longest
        return None

    def dense_layers(
        self, modules: list[_Module], hidden_size: int | None
    ) -> tuple[DenseLayer, ...]:
        """Return the dense layers, which must fit each other and the network, if its
        size is known.
        """
        layers = list[DenseLayer]()
        width = hidden_size
        for module in modules:
            layer = self._dense_layer(module.path)
            outputs, inputs = layer.weight.shape
            if width is not None and inputs != width:
                raise self.refusal(
                    f"a dense layer that reads {inputs:,} of {width:,} numbers"
                )
            width = outputs
            layers.append(layer)
        return tuple(layers)

    def _dense_layer(self, place: str) -> DenseLayer:
        """Read the dense layer in a folder of this name."""
        contents = self.table(Path(place, _CONFIG_FILE))
        table = self.validate(_Dense.model_validate, contents)
        activation = table.activation_function.rpartition(".")[2]
        is_of_torch = table.activation_function.startswith("torch.")
        if not is_of_torch or activation not in ACTIVATIONS:
            raise self.refusal(f"a dense layer with {table.activation_function}")
        # it must turn the vector of a text into the vector of a text
        output = table.module_output_name or table.module_input_name
        is_in_place = table.module_input_name == output == "sentence_embedding"
        if table.use_residual or not is_in_place:
            raise self.refusal(
                "a dense layer with a residual, or not on the vectors of texts"
            )
        weight, bias = self._dense_weights(self.folder / place / WEIGHTS_FILE)
        return DenseLayer(weight, bias, activation)

    def _dense_weights(self, path: Path) -> tuple[Tensor, Tensor | None]:
        """Read the weight, (outputs, inputs), and the bias, (outputs,), if there is
        one.
        """
        if not path.is_file():
            raise self.refusal(f"a dense layer without {path.name}")
        tensors = read_tensors(path).tensors
        if _WEIGHT not in tensors or not tensors.keys() <= {_WEIGHT, _BIAS}:
            raise self.refusal(f"a dense layer of {', '.join(sorted(tensors)[:5])}")
        shape = tensors[_WEIGHT].shape
        has_other_bias = _BIAS in tensors and tensors[_BIAS].shape != shape[:1]
        if len(shape) != 2 or 0 in shape or has_other_bias:
            raise self.refusal(f"a dense layer of shape {list(shape)}")
        weight = widen(tensors[_WEIGHT], f"{path}: {_WEIGHT}")
        bias = None
        if _BIAS in tensors:
            bias = widen(tensors[_BIAS], f"{path}: {_BIAS}")
        return weight, bias


# ---- writing -------------------------------------------------------------------------


def write_sentence_transformers(
    folder: Path, vectors: SentenceVectors, config: AlbertConfig
) -> None:
    """Write the files that let `SentenceTransformer(folder)`, since 2.0, open a model
    folder with the same vectors.
    """
    write_json(folder / "1_Pooling" / _CONFIG_FILE, _pooling_table(vectors, config))
    for number, layer in enumerate(vectors.dense, 2):
        _write_dense(folder / f"{number}_Dense", layer)
    positions = config.max_position_embeddings
    longest = min(vectors.max_length or positions, positions)
    settings: dict[str, Json] = {"max_seq_length": longest, "do_lower_case": False}
    write_json(folder / _SETTINGS_FILE, settings)
    write_json(folder / _PROMPTS_FILE, _prompts_table(vectors))
    # last: without it, the others are not read
    write_json(folder / MODULES_FILE, _modules_table(vectors))


def _modules_table(vectors: SentenceVectors) -> list[Json]:
    """Return the modules in their order, each with its folder."""
    kinds = ["Transformer", "Pooling", *("Dense" for _ in vectors.dense)]
    if vectors.normalize:
        kinds.append("Normalize")
    modules = list[Json]()
    for number, kind in enumerate(kinds):
        # the encoder is in the model folder itself
        path = f"{number}_{kind}" if number else ""
        module: dict[str, Json] = {
            "idx": number,
            "name": str(number),
            "path": path,
            "type": f"sentence_transformers.models.{kind}",
        }
        modules.append(module)
    return modules


def _pooling_table(vectors: SentenceVectors, config: AlbertConfig) -> dict[str, Json]:
    table: dict[str, Json] = {"word_embedding_dimension": config.hidden_size}
    for name, mode in _SWITCHES.items():
        table[name] = mode == vectors.pooling
    table["include_prompt"] = vectors.pools_prompt
    return table


def _prompts_table(vectors: SentenceVectors) -> dict[str, Json]:
    table: dict[str, Json] = {
        "prompts": dict(vectors.prompts),
        "default_prompt_name": vectors.default_prompt,
        "similarity_fn_name": vectors.similarity,
    }
    if vectors.dimensions is not None:
        table["truncate_dim"] = vectors.dimensions
    return table


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
    tensors = {_WEIGHT: layer.weight.contiguous()}
    if layer.bias is not None:
        tensors[_BIAS] = layer.bias.contiguous()
    write_bytes(folder / WEIGHTS_FILE, save(tensors, metadata={"format": "pt"}))
