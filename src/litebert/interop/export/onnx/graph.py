"""Convert the padded network to an ONNX graph that contains each weight once."""

from __future__ import annotations

import torch

from litebert.errors import LitebertError
from litebert.interop.export.onnx.runtime import onnx
from litebert.interop.export.padded import INPUTS, PaddedNetwork
from litebert.interop.export.program import dynamic_shapes, quiet, trace

DEFAULT_OPSET = 20
"""The first opset that has Gelu as one operator."""
OPSETS = range(18, 25)
_FILE_LIMIT = 2**31 - 2**20
"""Largest protobuf message in bytes, less some for the graph."""
_SLACK = 2**16
"""Bytes of shape constants, and of tables so small that the exporter folds them."""


def to_graph(network: PaddedNetwork, *, opset: int = DEFAULT_OPSET) -> onnx.ModelProto:
    """Export with dynamic axes for batch and length.

    Raises:
        LitebertError: LB-756, no such opset; LB-757, too large for one file; LB-758, the exporter
            stored weights more than once.
    """
    _require_opset(opset)
    _require_size(network)
    shapes = dynamic_shapes(network)
    with quiet():
        program = torch.onnx.export(
            trace(network),
            dynamo=True,
            opset_version=opset,
            dynamic_shapes=shapes,
            input_names=list(INPUTS),
            output_names=list(network.output_names),
            verbose=False,
        )
    assert program is not None
    model = _without_origins(program.model_proto)
    require_weights_once(model, network)
    onnx.checker.check_model(model, full_check=True)
    return model


def stored_bytes(model: onnx.ModelProto) -> int:
    """Count the bytes of the constants of a graph."""
    return sum(tensor.ByteSize() for tensor in model.graph.initializer)


def require_weights_once(model: onnx.ModelProto, network: PaddedNetwork) -> None:
    """Refuse a graph with more constants than the network has weights.

    Raises:
        LitebertError: LB-758.
    """
    stored, needed = stored_bytes(model), 4 * sum(p.numel() for p in network.parameters())
    if stored > needed + _SLACK:
        raise LitebertError(
            "LB-758",
            "the exporter stored weights more than once",
            received=f"{stored:,} bytes of constants",
            expected=f"about {needed:,} bytes, each weight once",
            next="pip install -U torch onnxscript",
        )


def _without_origins(model: onnx.ModelProto) -> onnx.ModelProto:
    """Remove the exporter's metadata, which is long and contains paths of this machine."""
    model.producer_name, model.producer_version = "litebert", ""
    graph = model.graph
    del graph.value_info[:], graph.metadata_props[:], model.metadata_props[:]
    for part in (*graph.node, *graph.initializer, *graph.input, *graph.output):
        del part.metadata_props[:]
        part.doc_string = ""
    return model


def _require_opset(opset: int) -> None:
    if opset not in OPSETS:
        raise LitebertError(
            "LB-756",
            "the graph cannot be written in this opset",
            received=f"--opset {opset}",
            expected=f"{OPSETS[0]} to {OPSETS[-1]}",
            next=f"omit --opset to use {DEFAULT_OPSET}",
        )


def _require_size(network: PaddedNetwork) -> None:
    size = 4 * sum(parameter.numel() for parameter in network.parameters())
    if size > _FILE_LIMIT:
        raise LitebertError(
            "LB-757",
            "the weights do not fit in one ONNX file",
            received=f"{size:,} bytes",
            expected=f"at most {_FILE_LIMIT:,} bytes, the limit of the format",
            next="litebert export program has no such limit",
        )
