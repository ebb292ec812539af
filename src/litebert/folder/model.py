"""A model and what belongs to it as one value, and its network from tensors on disk.

`litebert.folder.storage` reads this value from a folder and writes it to one.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor

from litebert.config import AlbertConfig, HeadConfig
from litebert.errors import DamagedError, LitebertError
from litebert.fast import Int8Calibration, to_int8
from litebert.folder import names as on_disk
from litebert.folder.names import ALBERT, BERT, TensorNames, damaged_model
from litebert.folder.vector_files import read_sentence_vectors
from litebert.folder.vectors import SentenceVectors
from litebert.folder.weights import widen
from litebert.nn import USUAL_HEADS, AlbertForPretraining, AlbertForTask, Network
from litebert.tokenizer import Tokenizer

_NEXT_SENTENCE = (
    "This BERT's sentence head was trained on next-sentence prediction: order() tells"
    " whether the second text follows the first in a document, not which of two"
    " neighbors comes first."
)


@dataclass(frozen=True)
class ModelFolder:
    """A model with everything that its folder holds beside the weights.

    The network has its configuration and its head. Whatever makes a new
    model of an old one keeps the rest with `dataclasses.replace(folder, network=...)`.
    """

    network: Network
    tokenizer: Tokenizer | None = None  # some folders on the Hub have none
    # how a text becomes a vector; None if no file says it
    vectors: SentenceVectors | None = None
    source: Path | None = None  # where it was read
    # names of parameters that its file lacks, which have no values
    missing: frozenset[str] = frozenset()
    unused: tuple[str, ...] = ()  # names of tensors that the network does not need
    notes: tuple[str, ...] = ()  # what the files leave uncertain

    @property
    def config(self) -> AlbertConfig:
        return self.network.config

    @property
    def head(self) -> HeadConfig | None:
        return head_of(self.network)

    def require_vectors(self) -> SentenceVectors | None:
        """Return how a text becomes a vector; raise if litebert cannot compute it."""
        if self.vectors is None and self.source is not None:
            return read_sentence_vectors(self.source)  # it raises, or there is none
        return self.vectors

    def require_tokenizer(self) -> Tokenizer:
        """Return the tokenizer; raise if there is none, or if it has more pieces than
        the network has word vectors.
        """
        tokenizer = self.tokenizer
        if tokenizer is None:
            tokenizer = Tokenizer.load(self.source or "")  # it raises
        num_vectors = self.config.vocab_size
        if tokenizer.vocab_size > num_vectors:
            raise LitebertError(
                "LB-677",
                f"{self.source} has more pieces than word vectors",
                received=f"{tokenizer.vocab_size:,} pieces, {num_vectors:,} vectors",
                next="restore the tokenizer that the model was trained with",
            )
        return tokenizer


def head_of(network: Network) -> HeadConfig | None:
    """Return the task head of a network; None for the pretraining heads."""
    return network.head_config if isinstance(network, AlbertForTask) else None


# ---- a network from tensors ----------------------------------------------------------


def build_network(
    tensors: dict[str, Tensor],
    config: AlbertConfig,
    head: HeadConfig | None,
    *,
    source: Path,
    pretraining_heads: Sequence[str] = USUAL_HEADS,
    layout: TensorNames = ALBERT,
    dtype: torch.dtype = torch.float32,
    for_inference: bool = False,
) -> ModelFolder:
    """Build a network from tensors under Hugging Face's names; without a head, for
    pretraining.
    """
    canonical, notes = on_disk.canonicalize(tensors, layout)
    settled, named = _settle_projection(config, canonical)
    network = _empty_network(
        named,
        settled,
        head,
        pretraining_heads,
        source=source,
        dtype=dtype,
        for_inference=for_inference,
    )
    expected = network.state_dict()
    places = dict[str, list[str]]()
    for name in expected:
        places[name] = on_disk.tensor_names(name, settled, head, layout)
    stored = _Stored(named, places, layout, source)
    parameters = stored.merge_copies()
    missing = frozenset(expected) - frozenset(parameters)

    # The file must have no other layers, no other shapes, and lack nothing needed.
    unused = stored.unused(parameters)
    stored.require_no_layers(unused)
    for name, tensor in parameters.items():
        place = f"{source}: {places[name][0]}"
        _require_fit(tensor, expected[name], place)
        parameters[name] = widen(tensor, place)
        _require_calibration(name, tensor, place)
    optional = list[str]()
    if head is None:
        optional = [f"{name}." for name in (*pretraining_heads, "albert.pooler")]
    stored.require_complete(missing, parameters, optional)

    # the tensors themselves become the parameters: nothing is copied
    network.load_state_dict(parameters, strict=False, assign=True)
    for parameter in network.parameters():
        parameter.requires_grad_()
    if layout is BERT and "sentence_order.classifier.weight" in parameters:
        notes = (*notes, _NEXT_SENTENCE)
    return ModelFolder(
        network.eval(), source=source, missing=missing, unused=unused, notes=notes
    )


def _settle_projection(
    config: AlbertConfig, named: dict[str, Tensor]
) -> tuple[AlbertConfig, dict[str, Tensor]]:
    """Keep the projection of embeddings as wide as the layers unless it is the identity,
    which transformers needs on disk and we do not compute.
    """
    size = config.hidden_size
    if config.embedding_size != size:
        return config, named
    weight, bias = (named.get(name) for name in on_disk.PROJECTION)
    is_identity = weight is None
    # `size` may be absurd: an identity is made only if the file has such a matrix
    if weight is not None and weight.shape == (size, size):
        is_identity = on_disk.are_equal(weight, torch.eye(size))
    has_bias = bias is not None and bool(bias.any())
    if has_bias or not is_identity:
        return config.model_copy(update={"embedding_projection": True}), named
    without_projection = dict(named)
    for name in on_disk.PROJECTION:
        without_projection.pop(name, None)
    return config, without_projection


def _empty_network(
    named: Mapping[str, Tensor],
    config: AlbertConfig,
    head: HeadConfig | None,
    pretraining_heads: Sequence[str],
    *,
    source: Path,
    dtype: torch.dtype,
    for_inference: bool,
) -> Network:
    """Return the network for these tensors; its parameters have shapes, but no memory
    yet.
    """
    has_int8 = any(name.endswith(".quantized") for name in named)
    if has_int8 and not for_inference:
        raise LitebertError(
            "LB-663",
            f"{source} is an eight-bit model, which supports inference only",
            next="train, convert or export the float model that it was made from",
        )
    # in an eight-bit network, whatever is not an integer is float32
    float_dtype = torch.float32 if has_int8 else dtype
    network: Network
    with torch.device("meta"):
        if head is None:
            network = AlbertForPretraining(
                config, heads=pretraining_heads, dtype=float_dtype
            )
        else:
            network = AlbertForTask(config, head, dtype=float_dtype)
        if has_int8:
            to_int8(network, Int8Calibration.without_numbers(config))
    return network


# ---- the tensors of a file -----------------------------------------------------------


@dataclass(frozen=True)
class _Stored:
    """The tensors of a file, which become the parameters of a network."""

    tensors: Mapping[str, Tensor]  # by their names on disk
    # The names on disk of each parameter: a block that several layers share may be there
    # once for each of them.
    places: Mapping[str, list[str]]
    layout: TensorNames
    source: Path

    def merge_copies(self) -> dict[str, Tensor]:
        """Return the tensor of each parameter; with partial sharing, a file has several
        copies, which must be equal.
        """
        parameters = dict[str, Tensor]()
        for name, copies in self.places.items():
            for place in copies:
                if place not in self.tensors:
                    continue
                first = parameters.setdefault(name, self.tensors[place])
                if not on_disk.are_equal(first, self.tensors[place]):
                    raise DamagedError(
                        "LB-605",
                        f"{self.source}: config.json says that {place} is shared, but"
                        " its copies differ",
                        next='set "sharing" to "none" in config.json to load separate'
                        " layers",
                    )
        return parameters

    def unused(self, parameters: Iterable[str]) -> tuple[str, ...]:
        """Return the names on disk of tensors that are in none of these parameters."""
        used = set(chain.from_iterable(self.places[name] for name in parameters))
        return tuple(sorted(self.tensors.keys() - used))

    def require_no_layers(self, unused: Iterable[str]) -> None:
        """Raise if the file has layers that the configuration lacks; unused heads are
        allowed.
        """
        pooler = f"{self.layout.encoder}pooler"
        of_encoder = [name for name in unused if name.startswith(self.layout.encoder)]
        layers = [name for name in of_encoder if not name.startswith(pooler)]
        if not layers:
            return
        settings = "num_hidden_groups, inner_group_num and sharing"
        if self.layout is BERT:
            settings = "num_hidden_layers"
        raise DamagedError(
            "LB-604",
            f"{self.source} has tensors that do not belong to this network",
            received=", ".join(layers[:5]),
            next=f"check {settings} in config.json",
        )

    def require_complete(
        self,
        missing: Collection[str],
        parameters: Iterable[str],
        optional: Sequence[str],
    ) -> None:
        """Raise if weights are missing that the network needs.

        Those whose names begin like `optional` may be missing, each of their layers as
        a whole: without a task head, the pretraining heads and the pooler.
        """
        # layers of which the file has something, but not all
        partial = {name.rpartition(".")[0] for name in parameters}
        needed = list[str]()
        for name in sorted(missing):
            is_optional = name.startswith(tuple(optional))
            layer = name.rpartition(".")[0]
            if not is_optional or layer in partial:
                needed.append(self.places[name][0])
        if not needed:
            return
        received = f"no {', '.join(needed[:3])}"
        if len(needed) > 3:
            received += " ..."
        raise DamagedError(
            "LB-660",
            f"{self.source} lacks weights that its network needs",
            received=received,
            next='to read only the encoder, set "architectures" to'
            f' ["{self.layout.family}Model"] in the configuration',
        )


# ---- tensors that do not fit ---------------------------------------------------------------


def _require_fit(tensor: Tensor, expected: Tensor, place: str) -> None:
    """Raise unless a tensor has the shape of its parameter, and floats where it has
    floats.
    """
    fits = tensor.dtype == expected.dtype
    if expected.is_floating_point():
        fits = tensor.is_floating_point()
    if not fits or tensor.shape != expected.shape:
        raise damaged_model(
            "LB-606",
            f"{place} does not match the configuration",
            _describe(tensor),
            _describe(expected),
        )


def _describe(tensor: Tensor) -> str:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return f"{dtype} of shape {list(tensor.shape)}"


def _require_calibration(name: str, tensor: Tensor, place: str) -> None:
    """Raise if the ranges or scales of an eight-bit model are impossible."""
    is_impossible = False
    if name == "albert.ranges":  # (..., [lowest, highest]), around 0
        lowest, highest = tensor.unbind(-1)
        is_impossible = bool((lowest > 0).any() or (highest < 0).any())
    if name.endswith(".scale"):
        is_impossible = bool((tensor <= 0).any())
    if is_impossible:
        least = float(tensor.min())
        most = float(tensor.max())
        raise damaged_model(
            "LB-666",
            f"{place} has values that no calibration gives",
            f"from {least:.4g} to {most:.4g}",
        )
