"""The rivals' engines: arrays of padded tokens in, hidden states out, each as its users load it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AlbertModel

Inputs: TypeAlias = dict[str, NDArray[np.int64]]
Engine: TypeAlias = Callable[[Inputs], NDArray[np.float32]]

NAMES = ("input_ids", "attention_mask", "token_type_ids")


class LastHiddenState(torch.nn.Module):
    """The encoder with one output; the pooler is left out."""

    def __init__(self, model: str) -> None:
        super().__init__()
        self.albert = AlbertModel.from_pretrained(
            model, add_pooling_layer=False, attn_implementation="sdpa", dtype=torch.float32
        ).eval()

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        """Return the last hidden state."""
        hidden: torch.Tensor = self.albert(ids, mask, segments).last_hidden_state
        return hidden


def transformers(model: str) -> Engine:
    """Return the encoder as it is."""
    network = LastHiddenState(model)

    @torch.inference_mode()
    def run(inputs: Inputs) -> NDArray[np.float32]:
        tensors = [torch.from_numpy(inputs[name]) for name in NAMES]
        found: NDArray[np.float32] = network(*tensors).numpy()
        return found

    return run


def onnxruntime(model: str) -> Engine:
    """Export to ONNX with free batch and length, and load a session of one thread."""
    from onnxruntime import InferenceSession, SessionOptions

    axes = {0: torch.export.Dim("batch", max=4_096), 1: torch.export.Dim("length", min=2, max=512)}
    program = torch.onnx.export(
        LastHiddenState(model),
        _example(),
        dynamo=True,
        dynamic_shapes=(axes,) * 3,
        input_names=list(NAMES),
        output_names=["last_hidden_state"],
        verbose=False,
    )
    assert program is not None
    options = SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        program.save(file, external_data=False)
        session = InferenceSession(file, options)
    return lambda inputs: session.run(["last_hidden_state"], inputs)[0]


def openvino(model: str) -> Engine:
    """Convert, and compile for one thread in float32."""
    from openvino import Core, convert_model

    converted = convert_model(LastHiddenState(model), example_input=_example())
    settings = {
        "INFERENCE_NUM_THREADS": 1,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    compiled = Core().compile_model(converted, "CPU", settings)
    # A request belongs to one caller at a time; the thread pool has several.
    return lambda inputs: compiled.create_infer_request().infer([inputs[name] for name in NAMES], share_inputs=True)[0]


ENGINES: dict[str, Callable[[str], Engine]] = {
    "transformers": transformers,
    "onnxruntime": onnxruntime,
    "openvino": openvino,
}


def _example() -> tuple[torch.Tensor, ...]:
    ids = torch.full((2, 8), 5)
    return ids, torch.ones_like(ids), torch.zeros_like(ids)
