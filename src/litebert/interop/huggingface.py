"""Models of transformers: convert a folder of any year to one of ours, or give a model
in memory our engine.
"""

import re
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from litebert.config import Precision
from litebert.device import DTYPES
from litebert.errors import DamagedError, LitebertError, NoVocabularyError
from litebert.fast import pack
from litebert.files import require_new, staged_folder
from litebert.folder import ModelFolder, read_head, weights_path, write_folder
from litebert.folder.config import architecture, doubts, parse_config, read_layout
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
    require_new(output, force=None)
    source = locate(path_or_name, legacy_pickle=legacy_pickle)
    layout, config = read_layout(source)

    pickled = source / PICKLED_FILE
    if (
        not pickled.is_file()
        or weights_path(source).is_file()
        or (source / INDEX_FILE).is_file()
    ):
        tensors = read_weights(source).tensors
    elif legacy_pickle:
        tensors = read_torch_file(pickled)
    else:
        what = f"{pickled} is a pickle, and pickles can carry programs"
        again = f"litebert import huggingface {source}"
        expected = (
            "model.safetensors; with --legacy-pickle no code in it is run, and anything"
            " but tensors is refused"
        )
        raise LitebertError(
            "LB-742",
            what,
            expected=expected,
            next=f"{again} --output FOLDER --legacy-pickle",
        )
    if activation is not None:
        config = config.model_copy(update={"hidden_act": activation})
    loaded = build_network(
        tensors, config, read_head(source), source=source, layout=layout
    )
    model = read_beside(loaded, source)
    model.require_vectors()

    # What is missing and what is doubtful
    notes = [
        _WITHOUT[part]
        for part in sorted({name.split(".")[0] for name in loaded.missing})
    ]
    notes += [
        note
        for name, note in doubts(config).items()
        if name != "hidden_act" or activation is None
    ]
    notes += loaded.notes
    notes += notes_on_tokenizer(model)
    with staged_folder(output, force=None) as staged:
        write_folder(model, staged)
    return report_of(source, output, model, notes)


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
    source: Path, output: Path, loaded: ModelFolder, notes: Iterable[str]
) -> ModelImport:
    """Return the report of an import."""
    parameters = {
        name: each
        for name, each in loaded.network.state_dict().items()
        if name not in loaded.missing
    }
    return ModelImport(
        source=str(source),
        output=str(output),
        architecture=architecture(loaded.head, parameters),
        num_parameters=sum(each.numel() for each in parameters.values()),
        optimizer_step=None,
        missing=tuple(sorted(loaded.missing)),
        unused=loaded.unused,
        notes=tuple(notes),
    )


def read_torch_file(path: Path) -> dict[str, Tensor]:
    """Read a state dict of torch.save, as a zip archive or in the older format; no code
    in it is run.
    """
    try:
        # torch checks no checksum, and unpacks compressed entries, which it never
        # writes
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                if (
                    any(entry.compress_type for entry in archive.infolist())
                    or archive.testzip()
                ):
                    raise zipfile.BadZipFile(
                        "an entry with a wrong checksum, or a compressed one"
                    )
        state = torch.load(path, map_location="cpu", weights_only=True)  # noqa: TID251
        if (
            not isinstance(state, dict)
            or not state
            or not all(map(_is_whole, state.values()))
        ):
            raise ValueError("something other than tensors")
    except Exception as error:  # whatever a damaged or hostile file makes torch raise
        # The code that was not run, if that is the cause; else the first words, as
        # torch then advises to run the file.
        found = re.search(r"GLOBAL \S+", str(error)) or re.match(r"[^.\n]*", str(error))
        received = (found and found[0]) or type(error).__name__
        what = f"{path} is not a complete state dict; nothing in it was run"
        expected = (
            "one dictionary of tensors, as torch.save(model.state_dict(), path)"
            " writes it"
        )
        advice = (
            "fetch or save the file again, or use the safetensors file of the same"
            " model"
        )
        raise DamagedError(
            "LB-731", what, received=received, expected=expected, next=advice
        ) from error
    return {str(name): tensor.detach() for name, tensor in state.items()}


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
    # a pipeline's
    module = model if isinstance(model, nn.Module) else getattr(model, "model", None)
    modules = module.modules() if isinstance(module, nn.Module) else ()
    theirs = (
        each for each in modules if type(each).__module__.startswith("transformers.")
    )
    encoders = [
        each for each in theirs if type(each).__name__ in ("AlbertModel", "BertModel")
    ]
    if not encoders:
        what = f"a {type(model).__name__} has no encoder that the engine can compute"
        expected = "an AlbertModel or BertModel, or a model with one"
        call = "AlbertModel.from_pretrained(...)"
        raise LitebertError(
            "LB-871", what, expected=expected, next=f"litebert.optimize({call})"
        )
    for encoder in encoders:
        encoder.forward = EngineForward(encoder, DTYPES[precision])
    return model


class EngineForward:
    """The `forward` of one encoder: the engine if its outputs are the same, else the
    original.
    """

    encoder: Any  # modules of transformers are not typed

    def __init__(self, encoder: nn.Module, dtype: torch.dtype) -> None:
        forward: Any = encoder.forward
        self.original: Any = (
            forward.original if isinstance(forward, EngineForward) else forward
        )
        self.__wrapped__ = self.original  # inspect.signature and transformers read it
        self.encoder = encoder
        self.dtype = dtype
        self._source = Path(type(encoder).__name__)  # the name in error messages
        described = self.encoder.config.to_dict() | {"architectures": None}
        self.layout, self.config = parse_config(described, self._source)
        self._names = {name for name, _ in encoder.named_parameters()}
        # The packed encoder with its state: where each parameter is in memory, and how
        # often it was written
        self._packed: tuple[dict[str, tuple[int, int]], Albert] | None = None
        # raises now, not at the first call, for a kind of BERT that the engine cannot
        # compute
        self._engine()

    def __getstate__(self) -> dict[str, Any]:
        """Omit the packed weights from copies and pickles: they are rebuilt from the
        weights.
        """
        return self.__dict__ | {"_packed": None}

    def __call__(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        *more: object,
        **others: object,
    ) -> object:
        config = self.encoder.config
        ids = input_ids
        mask = attention_mask
        albert = None
        asked = [
            *more,
            *(value for name, value in others.items() if name not in _WITHOUT_EFFECT),
        ]
        is_plain = all(value is None or value is False for value in asked)
        is_plain = is_plain and not (
            config.output_attentions or config.output_hidden_states
        )
        is_traced = torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[no-untyped-call,attr-defined]
        is_inference = not (
            is_traced or self.encoder.training or torch.is_grad_enabled()
        )
        # Ids, mask and segments are (batch, length); no row may begin with padding.
        if (
            is_plain
            and is_inference
            and ids is not None
            and ids.ndim == 2
            and ids.numel()
        ):
            fits = all(
                each is None or each.shape == ids.shape
                for each in (mask, token_type_ids)
            )
            if (
                fits
                and (mask is None or mask[:, 0].all())
                and ids.shape[1] <= config.max_position_embeddings
            ):
                albert = self._engine()
        if albert is None or ids is None:
            return self.original(
                input_ids, attention_mask, token_type_ids, *more, **others
            )

        from transformers import modeling_outputs as outputs

        batch = Batch.from_padded(ids, mask, token_type_ids)
        pooler = self.encoder.pooler
        states = batch.to_padded(albert(batch).float(), width=ids.shape[1])
        # Pool the states and name the outputs as the encoder does
        found: Any
        if type(self.encoder).__name__ == "BertModel":
            found = outputs.BaseModelOutputWithPoolingAndCrossAttentions(
                states, pooler and pooler(states)
            )
        else:
            pooled = pooler and self.encoder.pooler_activation(pooler(states[:, 0]))
            found = outputs.BaseModelOutputWithPooling(states, pooled)
        return (
            found.to_tuple()
            if others.get("return_dict", config.return_dict) is False
            else found
        )

    def _engine(self) -> Albert | None:
        """Return the encoder packed with its current weights; None if its weights or
        hooks are unusual.
        """
        weights: dict[str, tuple[int, int]] = {}
        for path, module in self.encoder.named_modules():
            hooks = (
                *module._forward_pre_hooks.values(),
                *module._forward_hooks.values(),
            )
            # The recorders of transformers, for `output_attentions` and
            # `output_hidden_states`, change nothing.
            if path and any(
                hook.__module__ != "transformers.utils.output_capturing"
                for hook in hooks
            ):
                return None
            for name, weight in module.named_parameters(prefix=path, recurse=False):
                if weight.dtype != torch.float32:
                    return None
                # Weights made in inference mode have no version: they are never written
                # again.
                weights[name] = (
                    weight.data_ptr(),
                    0 if weight.is_inference() else weight._version,
                )
        if weights.keys() != self._names:
            return None
        if self._packed is None or self._packed[0] != weights:
            # Weights that the engine does not pack are shared with the encoder.
            tensors = {
                name: tensor.detach()
                for name, tensor in self.encoder.state_dict().items()
            }
            built = build_network(
                tensors,
                self.config,
                None,
                source=self._source,
                layout=self.layout,
                dtype=self.dtype,
            )
            pack(built.network.albert)
            self._packed = weights, built.network.albert
        return self._packed[1]
