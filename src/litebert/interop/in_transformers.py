"""Let the encoder of a transformers model compute with the ragged engine in its own `forward`."""

from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from litebert.config import Precision
from litebert.errors import LitebertError
from litebert.fast import DTYPES, pack
from litebert.folder.config import parse_config
from litebert.folder.model import build_network
from litebert.nn import Albert, Batch

ModelT = TypeVar("ModelT")

_WITHOUT_EFFECT = ("return_dict", "num_items_in_batch")  # arguments of `forward` that do not change the hidden states


def optimize(model: ModelT, *, precision: Precision = "fp32") -> ModelT:
    """Let every ALBERT and BERT encoder in a transformers model compute with the ragged engine.

    `model` is an `AlbertModel` or `BertModel`, a model with a head on one, a `pipeline`, or a `SentenceTransformer`. It
    is changed in place and returned. Outputs of real tokens are the same within 1e-5; those of padding, which is no
    longer computed, are zero. `precision="bf16"` is faster where the CPU has it, and within 1 %.

    The original `forward` computes what the engine does not: training, calls that record gradients,
    `output_attentions`, `output_hidden_states`, `inputs_embeds`, decoders, padding on the left, weights that are not
    float32. Weights may change between calls; they are then packed again.
    """
    module = model if isinstance(model, nn.Module) else getattr(model, "model", None)  # a pipeline's
    modules = module.modules() if isinstance(module, nn.Module) else ()
    theirs = (each for each in modules if type(each).__module__.startswith("transformers."))
    encoders = [each for each in theirs if type(each).__name__ in ("AlbertModel", "BertModel")]
    if not encoders:
        what = f"a {type(model).__name__} has no encoder that the engine can compute"
        expected, call = "an AlbertModel or BertModel, or a model with one", "AlbertModel.from_pretrained(...)"
        raise LitebertError("LB-871", what, expected=expected, next=f"litebert.optimize({call})")
    for encoder in encoders:
        encoder.forward = EngineForward(encoder, DTYPES[precision])
    return model


class EngineForward:
    """The `forward` of one encoder: the engine if it gives the same outputs, else the original."""

    encoder: Any  # modules of transformers are not typed

    def __init__(self, encoder: nn.Module, dtype: torch.dtype) -> None:
        forward: Any = encoder.forward
        self.original: Any = forward.original if isinstance(forward, EngineForward) else forward
        self.__wrapped__ = self.original  # inspect.signature and transformers read it
        self.encoder, self.dtype = encoder, dtype
        self._source = Path(type(encoder).__name__)  # what an error names
        self.layout, self.config = parse_config(self.encoder.config.to_dict() | {"architectures": None}, self._source)
        self._names = {name for name, _ in encoder.named_parameters()}
        # The encoder packed, and of what: where each parameter is in memory, and how often it was written
        self._packed: tuple[dict[str, tuple[int, int]], Albert] | None = None
        self._engine()  # a kind of BERT that the engine cannot compute is refused now, not at the first call

    def __getstate__(self) -> dict[str, Any]:
        """Omit the packed weights from copies and pickles: they are rebuilt from the weights."""
        return self.__dict__ | {"_packed": None}

    def __call__(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        *more: object,
        **others: object,
    ) -> object:
        config, ids, mask, albert = self.encoder.config, input_ids, attention_mask, None
        asked = [*more, *(value for name, value in others.items() if name not in _WITHOUT_EFFECT)]
        is_plain = all(value is None or value is False for value in asked)
        is_plain = is_plain and not (config.output_attentions or config.output_hidden_states)
        is_traced = torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[no-untyped-call,attr-defined]
        is_inference = not (is_traced or self.encoder.training or torch.is_grad_enabled())
        # Ids are (batch, length); no row may begin with padding.
        if is_plain and is_inference and ids is not None and ids.ndim == 2 and ids.numel():
            is_left = mask is not None and (mask.shape != ids.shape or not mask[:, 0].all())
            albert = None if is_left or ids.shape[1] > config.max_position_embeddings else self._engine()
        if albert is None or ids is None:
            return self.original(input_ids, attention_mask, token_type_ids, *more, **others)

        from transformers import modeling_outputs as outputs

        batch, pooler = Batch.from_padded(ids, mask, token_type_ids), self.encoder.pooler
        states = batch.to_padded(albert(batch).float(), width=ids.shape[1])
        # Pooled, and named, as the encoder does it
        found: Any
        if type(self.encoder).__name__ == "BertModel":
            found = outputs.BaseModelOutputWithPoolingAndCrossAttentions(states, pooler and pooler(states))
        else:
            pooled = pooler and self.encoder.pooler_activation(pooler(states[:, 0]))
            found = outputs.BaseModelOutputWithPooling(states, pooled)
        return found.to_tuple() if others.get("return_dict", config.return_dict) is False else found

    def _engine(self) -> Albert | None:
        """Return the encoder packed with its current weights; None where weights or hooks are not the usual ones."""
        weights: dict[str, tuple[int, int]] = {}
        for path, module in self.encoder.named_modules():
            hooks = (*module._forward_pre_hooks.values(), *module._forward_hooks.values())
            # The recorders of transformers, for `output_attentions` and `output_hidden_states`, change nothing.
            if path and any(hook.__module__ != "transformers.utils.output_capturing" for hook in hooks):
                return None
            for name, weight in module.named_parameters(prefix=path, recurse=False):
                if weight.dtype != torch.float32:
                    return None
                # Weights made in inference mode have no version: they are never written again.
                weights[name] = (weight.data_ptr(), 0 if weight.is_inference() else weight._version)
        if weights.keys() != self._names:
            return None
        if self._packed is None or self._packed[0] != weights:
            # Weights that the engine does not pack are shared with the encoder.
            tensors = {name: tensor.detach() for name, tensor in self.encoder.state_dict().items()}
            built = build_network(tensors, self.config, None, source=self._source, layout=self.layout, dtype=self.dtype)
            pack(built.network.albert)
            self._packed = weights, built.network.albert
        return self._packed[1]
