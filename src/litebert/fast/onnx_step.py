"""Compute a single short text with onnxruntime: each step as one compiled graph.

For a short text, torch's many small operators cost as much as the products. There is one graph per distinct step, so
weights are stored once, however many steps share them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from litebert.config import ATTENTION_KINDS, Activation
from litebert.errors import missing_package
from litebert.fast.attention import Layout, fastest
from litebert.fast.int8 import is_int8
from litebert.fast.steps import Step, projection
from litebert.nn.batch import Batch
from litebert.nn.model import Albert, AttentionBlock, FeedForwardBlock

try:
    import onnx
    import onnxruntime
except ImportError as error:
    raise missing_package(error.name or "onnx", extra="onnx", needed_for="onnxruntime") from error

Graph = Callable[[Tensor], Tensor]
"""(rows of one sequence) -> their hidden states after the step."""

# The operators of onnxruntime that fuse a bias and an activation.
_FUSED: dict[Activation, str] = {"gelu": "BiasGelu", "gelu_new": "FastGelu", "gelu_pytorch_tanh": "FastGelu"}
_OPSET, _IR_VERSION, _MICROSOFT, _ERRORS_ONLY = 20, 10, "com.microsoft", 3
_PROBED_ROWS = 16
_MOST_ROWS = 64  # for which a graph is used; from 128 on, products take nearly all the time


def with_graphs(albert: Albert, steps: Sequence[Step], *, is_forced: bool) -> Sequence[Step]:
    """Return the steps, computed by a graph for a single short text; unchanged where that cannot be or does not pay."""
    config = albert.config
    is_float = albert.dtype == torch.float32 and not is_int8(albert)
    has_operators = config.hidden_act in _FUSED and ATTENTION_KINDS[config.attention].is_exported
    if not (is_float and has_operators) or albert.embedding.word.weight.device.type != "cpu":
        return steps
    graphs = {(i, j): _compiled(albert.attention[i], albert.feed_forward[j]) for i, j in set(albert.plan)}
    if not is_forced:  # unless a graph wins on a short text (20 ms), the steps stay
        x, layout = torch.full((_PROBED_ROWS, config.hidden_size), 0.5), Layout(Batch.from_lists([[0] * _PROBED_ROWS]))
        choices: tuple[Graph, Graph] = (graphs[albert.plan[0]], lambda x: steps[0](x, layout))
        ours, theirs = fastest(lambda function: function(x), choices, rounds=15)
        if ours >= theirs:
            return steps
    return [partial(_alone_by, graphs[number], step) for number, step in zip(albert.plan, steps, strict=True)]


def _alone_by(graph: Graph, step: Step, x: Tensor, layout: Layout) -> Tensor:
    """Compute a single short text by the graph, all else by the step."""
    lengths = layout.batch.lengths
    is_alone = len(lengths) == 1 and lengths[0] <= _MOST_ROWS and isinstance(layout.queries, slice)
    return graph(x[: lengths[0]]) if is_alone else step(x, layout)


def _compiled(attention: AttentionBlock, feed_forward: FeedForwardBlock) -> Graph:
    """Write a step in onnxruntime's fused operators, and start it; products are x W, so W is transposed."""
    (heads, head_size), size = attention.heads, attention.output.in_features
    layers: dict[str, nn.Linear | nn.LayerNorm]
    layers = {"mix": attention.output, "inner": feed_forward.intermediate, "outer": feed_forward.output}
    layers |= {"norm_1": attention.norm, "norm_2": feed_forward.norm}
    weights = {name: (each.weight, each.bias) for name, each in layers.items()} | {"project": projection(attention)}
    constants = {"heads": np.array([-1, 3, heads, head_size]), "rows": np.array([-1, size])}
    for name, (weight, bias) in weights.items():
        constants[f"{name}.w"] = np.ascontiguousarray(weight.detach().numpy().T)
        constants[f"{name}.b"] = bias.detach().numpy()

    make, joined = onnx.helper.make_node, {"domain": _MICROSOFT}

    def add_and_norm(x: str, residual: str, norm: str, bias: str, out: str, eps: float) -> onnx.NodeProto:
        inputs = [x, residual, f"{norm}.w", f"{norm}.b", bias]  # LN(x + bias + residual) as one operator
        return make("SkipLayerNormalization", inputs, [out], domain=_MICROSOFT, epsilon=eps)

    nodes = [
        make("Gemm", ["x", "project.w", "project.b"], ["projected"]),
        make("Reshape", ["projected", "heads"], ["by_row"]),
        make("Transpose", ["by_row"], ["by_head"], perm=[1, 2, 0, 3]),
        make("Split", ["by_head"], ["query", "key", "value"], axis=0, num_outputs=3),
        make("FusedMatMul", ["query", "key"], ["scores"], transB=1, alpha=head_size**-0.5, **joined),
        make("Softmax", ["scores"], ["weights"], axis=-1),
        make("MatMul", ["weights", "value"], ["mixed_by_head"]),
        make("Transpose", ["mixed_by_head"], ["mixed_by_row"], perm=[0, 2, 1, 3]),
        make("Reshape", ["mixed_by_row", "rows"], ["mixed"]),
        make("MatMul", ["mixed", "mix.w"], ["output"]),
        add_and_norm("output", "x", "norm_1", "mix.b", "hidden", attention.norm.eps),
        make("MatMul", ["hidden", "inner.w"], ["wide"]),
        make(_FUSED[feed_forward.hidden_act], ["wide", "inner.b"], ["activated"], **joined),
        make("MatMul", ["activated", "outer.w"], ["narrow"]),
        add_and_norm("narrow", "hidden", "norm_2", "outer.b", "y", feed_forward.norm.eps),
    ]
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None, size]) for name in ("x", "y")]
    stored = [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()]
    model = onnx.helper.make_model(
        onnx.helper.make_graph(nodes, "step", ends[:1], ends[1:], stored),
        opset_imports=[onnx.helper.make_opsetid("", _OPSET), onnx.helper.make_opsetid(_MICROSOFT, 1)],
        ir_version=_IR_VERSION,
    )

    # as many threads as torch uses; those that keep spinning after a run would slow torch down
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = torch.get_num_threads(), 1
    options.log_severity_level = _ERRORS_ONLY
    options.add_session_config_entry("session.force_spinning_stop", "1")
    running = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda x: torch.from_numpy(running.run(None, {"x": x.numpy()})[0])
