"""Models of transformers: convert a folder of any year to one of ours, or give a model
in memory our engine.
"""

import re
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import torch
from torch import Tensor, nn

from litebert.config import AlbertConfig, Precision
from litebert.device import DTYPES
from litebert.errors import DamagedError, LitebertError, NoVocabularyError
from litebert.fast import pack
from litebert.files import require_new, staged_folder
from litebert.folder import ModelFolder, read_head, weights_path, write_folder
from litebert.folder.config import architecture, parse_config, read_layout
from litebert.folder.doubts import doubts
from litebert.folder.model import build_network
from litebert.folder.storage import read_beside
from litebert.folder.weights import INDEX_FILE, read_weights
from litebert.hub import locate
from litebert.interop import ModelImport
from litebert.nn import Albert, Batch

PICKLED_FILE = "pytorch_model.bin"
_WITHOUT = {
    "sentence_order": "no sentence-order head (files on the Hub lack it): no order()",
    "masked_lm": "no masked-LM head: no fill()",
    "albert": "no pooler: no order(), and training starts with a new one",
}


def import_model(
    path_or_name: str | Path,
    output: Path,
    *,
    legacy_pickle: bool = False,
    activation: Literal["gelu", "gelu_new"] | None = None,
) -> ModelImport:
    """Read a folder or a model from the Hub, and write config.json, safetensors and the
    tokenizer.

    `legacy_pickle` allows pytorch_model.bin if there is no safetensors file;
    `activation` overrides config.json if that is known to be wrong.
    """
    require_new(output)
    source = locate(path_or_name, legacy_pickle=legacy_pickle)
    layout, config = read_layout(source)

    tensors = _read_any_weights(source, legacy_pickle=legacy_pickle)
    if activation is not None:
        config = config.model_copy(update={"hidden_act": activation})
    network = build_network(
        tensors, config, read_head(source), source=source, layout=layout
    )
    model = read_beside(network, source)
    model.require_vectors()

    missing_parts = {name.split(".")[0] for name in network.missing}
    notes = [_WITHOUT[part] for part in sorted(missing_parts)]
    open_questions = doubts(config)
    if activation is not None:
        open_questions.pop("hidden_act", None)
    notes += open_questions.values()
    notes += network.notes
    notes += notes_on_tokenizer(model)
    with staged_folder(output, if_exists="refuse") as staged:
        write_folder(model, staged)
    return report_of(source, output, model, notes)


def _read_any_weights(source: Path, *, legacy_pickle: bool) -> dict[str, Tensor]:
    """Read safetensors or, if there are none and it is allowed, a pickle."""
    pickled = source / PICKLED_FILE
    single_or_index = (weights_path(source), source / INDEX_FILE)
    has_safetensors = any(path.is_file() for path in single_or_index)
    if has_safetensors or not pickled.is_file():
        return read_weights(source).tensors
    if legacy_pickle:
        return read_torch_file(pickled)
    raise LitebertError(
        "LB-742",
        f"{pickled} is a pickle, and pickles can carry programs",
        expected="model.safetensors; with --legacy-pickle no code in it is run, and"
        " anything but tensors is refused",
        next=f"litebert import huggingface {source} --output FOLDER --legacy-pickle",
    )


def notes_on_tokenizer(model: ModelFolder) -> list[str]:
    """Return a note if the tokenizer of an imported model is missing, or does not fit
    the network.
    """
    if model.tokenizer is None:
        try:
            model.require_tokenizer()
        except NoVocabularyError as error:
            return [f"{error.what}: add spiece.model or vocab.txt to work on texts"]
    assert model.tokenizer is not None
    num_pieces = model.tokenizer.vocab_size
    num_vectors = model.config.vocab_size
    if num_pieces == num_vectors:
        return []
    return [f"the tokenizer has {num_pieces:,} pieces, the network {num_vectors:,}"]


def report_of(
    source: Path, output: Path, model: ModelFolder, notes: Iterable[str]
) -> ModelImport:
    """Return the report of an import."""
    parameters = model.network.state_dict()
    for name in model.missing:
        del parameters[name]
    return ModelImport(
        source=str(source),
        output=str(output),
        architecture=architecture(model.head, parameters),
        num_parameters=sum(tensor.numel() for tensor in parameters.values()),
        missing=tuple(sorted(model.missing)),
        unused=model.unused,
        notes=tuple(notes),
    )


def read_torch_file(path: Path) -> dict[str, Tensor]:
    """Read a state dict of torch.save, as a zip archive or in the older format; no code
    in it is run.
    """
    try:
        if zipfile.is_zipfile(path):
            _check_archive(path)
        state = torch.load(path, map_location="cpu", weights_only=True)  # noqa: TID251
        is_table = isinstance(state, dict) and len(state) > 0
        if not is_table or not all(map(_is_whole, state.values())):
            raise ValueError("something other than tensors")
    except Exception as error:  # whatever a damaged or hostile file makes torch raise
        raise DamagedError(
            "LB-731",
            f"{path} is not a complete state dict; nothing in it was run",
            received=_first_words(error),
            expected="one dictionary of tensors, as torch.save(model.state_dict(),"
            " path) writes it",
            next="fetch or save the file again, or use the safetensors file of the same"
            " model",
        ) from error
    return {str(name): tensor.detach() for name, tensor in state.items()}


def _check_archive(path: Path) -> None:
    """Check what torch does not: checksums, and that no entry is compressed, as torch
    never writes them.
    """
    with zipfile.ZipFile(path) as archive:
        is_compressed = any(entry.compress_type for entry in archive.infolist())
        if is_compressed or archive.testzip():
            raise zipfile.BadZipFile(
                "an entry with a wrong checksum, or a compressed one"
            )


def _first_words(error: Exception) -> str:
    """Return the code that was not run, if that is the cause; else the first words, as
    torch then advises to run the file.
    """
    text = str(error)
    code = re.search(r"GLOBAL \S+", text)
    if code is not None:
        return code[0]
    first_words = re.split(r"[.\n]", text)[0]
    return first_words or type(error).__name__


def _is_whole(value: object) -> bool:
    """Return whether a value is a tensor with all its numbers in the file, not one
    number expanded 2^50 times.
    """
    return (
        isinstance(value, Tensor)
        and value.is_cpu
        and value.nbytes <= value.untyped_storage().nbytes()
    )


# --- a model in memory ----------------------------------------------------------------

ModelT = TypeVar("ModelT")
# where a weight is in memory, and how often it was written
Version: TypeAlias = tuple[int, int]

# arguments of `forward` that do not change the hidden states
_WITHOUT_EFFECT = ("return_dict", "num_items_in_batch")


def optimize(model: ModelT, *, precision: Precision = "fp32") -> ModelT:
    """Make every ALBERT and BERT encoder in a transformers model compute with the
    ragged engine.

    `model` is an `AlbertModel` or `BertModel`, a model with a head on one, a
    `pipeline`, or a `SentenceTransformer`. It is changed in place and returned. Outputs
    of real tokens are the same within 1e-5; those of padding, which is no longer
    computed, are zero. `precision="bf16"` is faster if the CPU supports it, and within
    1 %.

    The original `forward` computes what the engine does not: training, calls that
    record gradients, `output_attentions`, `output_hidden_states`, `inputs_embeds`,
    decoders, padding on the left, weights that are not float32. Weights may change
    between calls; they are then packed again.
    """
    encoders = _encoders_in(model)
    if not encoders:
        raise LitebertError(
            "LB-871",
            f"a {type(model).__name__} has no encoder that the engine can compute",
            expected="an AlbertModel or BertModel, or a model with one",
            next="litebert.optimize(AlbertModel.from_pretrained(...))",
        )
    for encoder in encoders:
        encoder.forward = EngineForward(encoder, DTYPES[precision])
    return model


def _encoders_in(model: object) -> list[nn.Module]:
    """Return the ALBERT and BERT encoders of transformers in a model or a pipeline."""
    module = model
    if not isinstance(model, nn.Module):
        module = getattr(model, "model", None)  # a pipeline's
    if not isinstance(module, nn.Module):
        return []
    encoders = list[nn.Module]()
    for part in module.modules():
        is_of_transformers = type(part).__module__.startswith("transformers.")
        if is_of_transformers and type(part).__name__ in ("AlbertModel", "BertModel"):
            encoders.append(part)
    return encoders


class EngineForward:
    """The `forward` of one encoder: the engine if its outputs are the same, else the
    original.
    """

    encoder: Any  # modules of transformers are not typed

    def __init__(self, encoder: nn.Module, dtype: torch.dtype) -> None:
        forward: Any = encoder.forward
        if isinstance(forward, EngineForward):
            forward = forward.original
        self.original: Any = forward
        self.__wrapped__ = forward  # inspect.signature and transformers read it
        self.encoder = encoder
        self.dtype = dtype
        self._source = Path(type(encoder).__name__)  # the name in error messages
        described = self.encoder.config.to_dict() | {"architectures": None}
        self.layout, self.config = parse_config(described, self._source)
        self._names = {name for name, _ in encoder.named_parameters()}
        self._packed: Albert | None = None
        self._packed_versions = dict[str, Version]()
        # raises now, not at the first call, for a kind of BERT that the engine cannot
        # compute
        self._engine()

    def __getstate__(self) -> dict[str, Any]:
        """Omit the packed weights from copies and pickles: they are rebuilt from the
        weights.
        """
        return self.__dict__ | {"_packed": None, "_packed_versions": {}}

    def __call__(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        *arguments: object,
        **options: object,
    ) -> object:
        values = list(arguments)
        for name, value in options.items():
            if name not in _WITHOUT_EFFECT:
                values.append(value)
        albert = None
        is_plain = all(value is None or value is False for value in values)
        is_inference = is_plain and self._is_inference()
        inputs = (input_ids, attention_mask, token_type_ids)
        if is_inference and _are_usual(*inputs, self.config):
            albert = self._engine()
        if albert is None or input_ids is None:
            return self.original(*inputs, *arguments, **options)
        batch = Batch.from_padded(input_ids, attention_mask, token_type_ids)
        # (sequences, width, hidden)
        states = batch.to_padded(albert(batch).float(), width=input_ids.shape[1])
        output = self._output(states)
        if options.get("return_dict", self.encoder.config.return_dict) is False:
            return output.to_tuple()
        return output

    def _is_inference(self) -> bool:
        """Return whether a call needs the last states and nothing else."""
        config = self.encoder.config
        if config.output_attentions or config.output_hidden_states:
            return False
        if self.encoder.training or torch.is_grad_enabled():
            return False
        return not (torch.compiler.is_compiling() or torch.jit.is_tracing())  # type: ignore[no-untyped-call,attr-defined]

    def _output(self, states: Tensor) -> Any:
        """Pool the states and name the outputs as the encoder does."""
        from transformers import modeling_outputs as outputs

        pooler = self.encoder.pooler
        pooled = None
        if type(self.encoder).__name__ == "BertModel":
            if pooler is not None:  # it takes [CLS] itself
                pooled = pooler(states)
            return outputs.BaseModelOutputWithPoolingAndCrossAttentions(states, pooled)
        if pooler is not None:
            pooled = self.encoder.pooler_activation(pooler(states[:, 0]))
        return outputs.BaseModelOutputWithPooling(states, pooled)

    def _engine(self) -> Albert | None:
        """Return the encoder packed with its current weights; None if its weights or
        hooks are unusual.
        """
        versions = self._versions()
        if versions is None or versions.keys() != self._names:
            return None
        if self._packed is None or self._packed_versions != versions:
            # Weights that the engine does not pack are shared with the encoder.
            state = self.encoder.state_dict()
            model = build_network(
                {name: tensor.detach() for name, tensor in state.items()},
                self.config,
                None,
                source=self._source,
                layout=self.layout,
                dtype=self.dtype,
            )
            pack(model.network.albert)
            self._packed = model.network.albert
            self._packed_versions = versions
        return self._packed

    def _versions(self) -> dict[str, Version] | None:
        """Return the version of each weight; None if a weight is not float32, or if a
        hook may change what a layer computes.
        """
        versions = dict[str, Version]()
        for path, module in self.encoder.named_modules():
            if path and _has_own_hooks(module):
                return None
            for name, weight in module.named_parameters(prefix=path, recurse=False):
                if weight.dtype != torch.float32:
                    return None
                # Weights made in inference mode have no counter: they are never written
                # again.
                num_writes = 0 if weight.is_inference() else weight._version
                versions[name] = (weight.data_ptr(), num_writes)
        return versions


def _has_own_hooks(module: nn.Module) -> bool:
    """Return whether a layer has hooks but the recorders of transformers, for
    `output_attentions` and `output_hidden_states`, which change nothing.
    """
    hooks = (*module._forward_pre_hooks.values(), *module._forward_hooks.values())
    recorders = "transformers.utils.output_capturing"
    return any(hook.__module__ != recorders for hook in hooks)


def _are_usual(
    ids: Tensor | None,
    mask: Tensor | None,
    segments: Tensor | None,
    config: AlbertConfig,
) -> bool:
    """Return whether ids, mask and segments are rectangles, (sequences, width), that
    the engine can compute: no row may begin with padding.
    """
    if ids is None or ids.ndim != 2 or not ids.numel():
        return False
    if ids.shape[1] > config.max_position_embeddings:
        return False
    if segments is not None and segments.shape != ids.shape:
        return False
    if mask is None:
        return True
    return mask.shape == ids.shape and bool(mask[:, 0].all())
