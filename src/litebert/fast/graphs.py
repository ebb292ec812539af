"""Use onnxruntime where it is faster: for attention in float32, and for a single short
text as a whole.

Its products of many small matrices use the whole CPU; torch's may not (MKL's do not on
AMD). For a short text, the overhead of torch's many small operators equals the cost of
the products, so each distinct step is one graph. The weights are then stored a second
time, but only once however many steps share them.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from litebert.config import Activation
from litebert.errors import missing_package
from litebert.fast.attention import Kernel, Layout, time_each
from litebert.fast.int8 import is_int8
from litebert.fast.steps import Step, projection
from litebert.nn import Albert, AttentionBlock, Batch, FeedForwardBlock

try:
    import onnx
    import onnxruntime
except ImportError as error:
    raise missing_package(
        error.name or "onnx", extra="onnx", needed_for="an ONNX graph"
    ) from error

# rows of one sequence -> their hidden states after the step
Graph = Callable[[Tensor], Tensor]
# The operators of onnxruntime that fuse a bias and an activation.
_FUSED: dict[Activation, str] = {
    "gelu": "BiasGelu",
    "gelu_new": "FastGelu",
    "gelu_pytorch_tanh": "FastGelu",
}
# up to this many, a graph is used; from 128 on, products take nearly all the time
_MOST_ROWS = 64
# scores that are computed in one run, at most: 4 MB, which stay in the caches
_AT_ONCE = 2**20
_MOST_SCORES = 2**22  # of one sequence: 16 MB
_ATTENTION = """
<ir_version: 10, opset_import: ["": 20, "com.microsoft": 1]>
attention (float[n, queries, heads, size] q, float[n, keys, heads, size] k, float[n, keys, heads, size] v{inputs})
=> (float[n, queries, heads, size] y) {{
    query = Transpose<perm = [0, 2, 1, 3]>(q)
    key = Transpose<perm = [0, 2, 1, 3]>(k)
    value = Transpose<perm = [0, 2, 1, 3]>(v)
    scores = com.microsoft.FusedMatMul<transB = 1, alpha = {scale}>(query, key)
    masked = {masked}
    weights = Softmax<axis = -1>(masked)
    mixed = MatMul(weights, value)
    y = Transpose<perm = [0, 2, 1, 3]>(mixed)
}}
"""  # noqa: E501
_MASKING = {
    False: {"inputs": "", "masked": "Identity(scores)"},
    True: {"inputs": ", float[n, one, one, keys] mask", "masked": "Add(scores, mask)"},
}
_STEP = """
<ir_version: 10, opset_import: ["": 20, "com.microsoft": 1]>
step (float[rows, {size}] x) => (float[rows, {size}] y) {{
    projected = Gemm(x, project_weight, project_bias)
    by_row = Reshape(projected, by_heads)
    by_head = Transpose<perm = [1, 2, 0, 3]>(by_row)
    query, key, value = Split<axis = 0, num_outputs = 3>(by_head)
    scores = com.microsoft.FusedMatMul<transB = 1, alpha = {scale}>(query, key)
    weights = Softmax<axis = -1>(scores)
    mixed = MatMul(weights, value)
    mixed_by_row = Transpose<perm = [0, 2, 1, 3]>(mixed)
    mixed_rows = Reshape(mixed_by_row, by_rows)
    output = MatMul(mixed_rows, attention_output_weight)
    hidden = com.microsoft.SkipLayerNormalization<epsilon = {eps}>(
        output, x, attention_norm_weight, attention_norm_bias, attention_output_bias)
    wide = MatMul(hidden, feed_forward_intermediate_weight)
    activated = com.microsoft.{activation}(wide, feed_forward_intermediate_bias)
    narrow = MatMul(activated, feed_forward_output_weight)
    y = com.microsoft.SkipLayerNormalization<epsilon = {eps}>(
        narrow, hidden, feed_forward_norm_weight, feed_forward_norm_bias, feed_forward_output_bias)
}}
"""


@lru_cache
def attention_graph(num_threads: int) -> Kernel:
    """Return a kernel for attention in float32; a sequence with too many scores to hold
    is left to torch.
    """

    @lru_cache
    def start(head_size: int, has_mask: bool) -> onnxruntime.InferenceSession:
        text = _ATTENTION.format(scale=head_size**-0.5, **_MASKING[has_mask])
        return start_session(
            onnx.parser.parse_model(text).SerializeToString(), num_threads
        )

    def attend(
        query: Tensor, key: Tensor, value: Tensor, is_key: Tensor | None
    ) -> Tensor:
        scores_each = query.shape[1] * query.shape[2] * key.shape[2]
        if scores_each > _MOST_SCORES:
            return F.scaled_dot_product_attention(query, key, value, is_key)
        inputs = {"q": query, "k": key, "v": value}
        inputs = {
            name: x.transpose(1, 2).float().contiguous() for name, x in inputs.items()
        }
        if is_key is not None:
            inputs["mask"] = torch.zeros(is_key.shape).masked_fill_(~is_key, -torch.inf)
        session = start(query.shape[3], is_key is not None)
        number = max(1, _AT_ONCE // scores_each)
        mixed = [
            torch.from_numpy(
                session.run(
                    None,
                    {name: x[at : at + number].numpy() for name, x in inputs.items()},
                )[0]
            )
            for at in range(0, len(query), number)
        ]
        return (
            (mixed[0] if len(mixed) == 1 else torch.cat(mixed))
            .to(query.dtype)
            .transpose(1, 2)
        )

    return attend


def add_graphs(
    albert: Albert, steps: Sequence[Step], *, is_forced: bool
) -> Sequence[Step]:
    """Return steps that use a graph for a single short text; unchanged steps if that is
    impossible or not faster.
    """
    config = albert.config
    is_float = albert.dtype == torch.float32 and not is_int8(albert)
    has_operators = config.hidden_act in _FUSED and config.has_full_attention
    if not (is_float and has_operators):
        return steps
    graphs = {
        (i, j): _compile_step(albert.attention[i], albert.feed_forward[j])
        for i, j in set(albert.plan)
    }
    # unless a graph is faster on a text of 16 tokens (a test of 20 ms), keep the steps
    if not is_forced:
        x = torch.full((16, config.hidden_size), 0.5)
        layout = Layout(Batch.from_lists([[0] * 16]))
        ours, theirs = time_each(
            partial(graphs[albert.plan[0]], x), partial(steps[0], x, layout), rounds=15
        )
        if ours >= theirs:
            return steps
    return [
        partial(_run_step, graphs[number], step)
        for number, step in zip(albert.plan, steps, strict=True)
    ]


def _run_step(graph: Graph, step: Step, x: Tensor, layout: Layout) -> Tensor:
    lengths = layout.batch.lengths
    is_alone = (
        len(lengths) == 1
        and lengths[0] <= _MOST_ROWS
        and isinstance(layout.queries, slice)
    )
    return graph(x[: lengths[0]]) if is_alone else step(x, layout)


def _compile_step(attention: AttentionBlock, feed_forward: FeedForwardBlock) -> Graph:
    """Write a step in onnxruntime's fused operators, and start a session; products are
    x W, so W is transposed.
    """
    (heads, head_size), size = attention.heads, attention.output.in_features
    parameters: dict[str, Tensor] = {
        f"attention.{name}": parameter
        for name, parameter in attention.named_parameters()
    }
    parameters |= {
        f"feed_forward.{name}": parameter
        for name, parameter in feed_forward.named_parameters()
    }
    parameters["project.weight"], parameters["project.bias"] = projection(attention)
    constants = {
        "by_heads": np.array([-1, 3, heads, head_size]),
        "by_rows": np.array([-1, size]),
    }
    for name, parameter in parameters.items():
        if (symbol := name.replace(".", "_")) in _STEP:
            # a bias is its own transpose
            constants[symbol] = np.ascontiguousarray(parameter.detach().numpy().T)
    activation = _FUSED[feed_forward.hidden_act]
    eps = attention.norm.eps
    step = _STEP.format(
        size=size, scale=head_size**-0.5, eps=eps, activation=activation
    )
    model = onnx.parser.parse_model(step)
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(array, name) for name, array in constants.items()
    )

    session = start_session(model.SerializeToString(), torch.get_num_threads())
    return lambda x: torch.from_numpy(session.run(None, {"x": x.numpy()})[0])


def start_session(model: bytes, num_threads: int) -> onnxruntime.InferenceSession:
    """Start a session of a graph. Threads that keep spinning after a run would slow
    torch down.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors only
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return onnxruntime.InferenceSession(
        model, options, providers=["CPUExecutionProvider"]
    )
