"""Everyone who computes the encoder, behind one call: inputs once, then last hidden states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.speed.texts import Texts

Ready: TypeAlias = Callable[[Texts], Callable[[], Any]]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Rival:
    """A program at a precision; `ready` takes a batch and returns the call that computes it."""

    name: str
    precision: str
    ready: Ready
    is_padded: bool = True

    def states(self, output: Any, texts: Texts) -> NDArray[np.float32]:
        """Return the states of the real tokens, end to end, by which all can be compared."""
        states = output.float().numpy() if isinstance(output, torch.Tensor) else output
        return states[texts.mask] if self.is_padded else states


def load(name: str, root: Path) -> Rival:
    """Load one of NAMES from what `exports` wrote."""
    program, precision = name.rsplit(" ", 1)
    ready = PROGRAMS[program](root, precision)
    return Rival(name, precision, ready, is_padded=program != "litebert")


def transformers(root: Path, precision: str) -> Ready:
    """`AlbertModel` as its users load it, with torch's fused attention."""
    return called(albert_model(root, precision))


def compiled(root: Path, precision: str) -> Ready:
    """The same with its one layer compiled: as fast as compiling all, in a tenth of the time.

    Weights are frozen, which lets the compiler pack them; rectangles are compiled for their shape,
    real texts once for all lengths.
    """
    import torch._dynamo
    import torch._inductor.config

    torch._inductor.config.freezing = True
    torch._dynamo.config.recompile_limit = 64
    variants = {}
    for is_dynamic in (False, True):
        model = albert_model(root, precision)
        model.encoder.albert_layer_groups[0].albert_layers[0].compile(dynamic=is_dynamic)
        variants[is_dynamic] = called(model)
    return lambda texts: variants[len(set(texts.lengths)) > 1](texts)


def albert_model(root: Path, precision: str) -> torch.nn.Module:
    """Load transformers' encoder."""
    from transformers import AlbertModel

    dtype = DTYPES[precision]
    model = AlbertModel.from_pretrained(root / "model", attn_implementation="sdpa", dtype=dtype)
    return model.eval()


def called(model: Callable[..., Any]) -> Ready:
    """Feed tensors to a module of transformers' signature."""

    def ready(texts: Texts) -> Callable[[], torch.Tensor]:
        inputs = {name: torch.from_numpy(values) for name, values in texts.padded().items()}
        return lambda: model(**inputs).last_hidden_state

    return ready


def onnxruntime(root: Path, precision: str) -> Ready:
    """A session with as many threads as torch has, which do not spin while others work."""
    from onnxruntime import InferenceSession, SessionOptions

    options = SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = torch.get_num_threads(), 1
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = InferenceSession(root / f"{precision}.onnx", options)

    def ready(texts: Texts) -> Callable[[], NDArray[np.float32]]:
        inputs = texts.padded()
        return lambda: session.run(["last_hidden_state"], inputs)[0]

    return ready


def openvino(root: Path, precision: str) -> Ready:
    """One stream; what NNCF left in float is computed in bf16, which measured fastest."""
    from openvino import Core

    hint = "f32" if precision == "fp32" else "bf16"
    settings = {
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
    }
    file = root / ("int8.xml" if precision == "int8" else "fp32.xml")
    model = Core().compile_model(file, "CPU", {**settings, "INFERENCE_PRECISION_HINT": hint})
    if precision == "int8":
        print("openvino int8:", integer_products(model))
    request = model.create_infer_request()

    def ready(texts: Texts) -> Callable[[], NDArray[np.float32]]:
        inputs = list(texts.padded().values())
        return lambda: request.infer(inputs, share_inputs=True, share_outputs=True)[0]

    return ready


def integer_products(model: Any) -> str:
    """Count the products of a compiled OpenVINO model by precision; refuse one without int8."""
    kinds = [
        str(info["runtimePrecision"].astype(str))
        for info in (node.get_rt_info() for node in model.get_runtime_model().get_ops())
        if info["layerType"].astype(str) in ("FullyConnected", "MatMul")
    ]
    integer = sum(kind in ("u8", "i8") for kind in kinds)
    assert integer > len(kinds) // 2, f"OpenVINO computes {kinds}"
    return f"{integer} of {len(kinds)} products"


def litebert(root: Path, precision: str) -> Ready:
    """The encoder of a folder, loaded as `litebert.load` does, on batches without padding."""
    from litebert.folder import load_model
    from litebert.nn import Batch

    is_int8 = precision == "int8"
    folder, dtype = root / ("int8" if is_int8 else "model"), DTYPES.get(precision, torch.float32)
    albert = load_model(folder, dtype=dtype, for_inference=True).network.albert

    def ready(texts: Texts) -> Callable[[], torch.Tensor]:
        batch = Batch.from_lists(texts.ids, texts.segments)
        return lambda: albert(batch)

    return ready


PROGRAMS: dict[str, Callable[[Path, str], Ready]] = {
    "transformers": transformers,
    "torch.compile": compiled,
    "onnxruntime": onnxruntime,
    "openvino": openvino,
    "litebert": litebert,
}
NAMES = (
    *(f"{name} fp32" for name in PROGRAMS),
    *(f"{name} bf16" for name in PROGRAMS if name != "onnxruntime"),
    *(f"{name} int8" for name in ("onnxruntime", "openvino", "litebert")),
)
