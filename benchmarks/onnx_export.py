"""Our ONNX files compared with transformers' own export: python -m
benchmarks.onnx_export.

One network of base-v2's shape with random weights is exported in four ways: our export
in float32 and int8, and torch.onnx.export of transformers' AlbertModel, then
onnxruntime's documented quantize_dynamic. Bytes, nodes and products are counted in the
files; times are medians of interleaved rounds, with OMP_NUM_THREADS threads each.
"""

import logging
import tempfile
import time
import warnings
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import onnx
import torch
import transformers
from numpy.typing import NDArray
from onnxruntime.quantization import QuantType, quantize_dynamic

from benchmarks.measure import machine, table, take_turns
from benchmarks.speed.exports import count_products
from litebert.cli.command import command_of
from litebert.config import preset
from litebert.folder import ModelFolder, write_folder
from litebert.interop.export.check import Inputs, RunBatch
from litebert.interop.export.network import INPUTS, PaddedNetwork, pad_network
from litebert.interop.export.onnx import quantize, runner, to_graph
from litebert.interop.export.tracing import dynamic_shapes, quiet
from litebert.nn import AlbertForPretraining, Batch

NAMES = ("last_hidden_state", "pooler_output")
SHAPES = ((1, 16), (1, 128), (8, 128))  # rows, and the length of each


REFERENCE = "transformers fp32"


def main(*, shape: str = "base-v2", rounds: int = 7) -> None:
    """Export, count, time, and print a row for each program."""
    warnings.simplefilter("ignore")
    logging.getLogger().setLevel(logging.ERROR)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    generator = torch.Generator().manual_seed(1)
    network = AlbertForPretraining(preset(shape), generator=generator).eval()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_folder(ModelFolder(network), folder)
        theirs = transformers.AlbertModel.from_pretrained(folder).eval()
        files = exported(pad_network(network, has_head=False), theirs, folder)
    runners: dict[str, RunBatch] = {
        REFERENCE: partial(their_outputs, theirs),
        "litebert": partial(our_outputs, network),
    }
    for name, data in files.items():
        runners[name] = runner(data)
    times = {rows: times_of(runners, rows, rounds) for rows in SHAPES}
    wanted = states_of(runners[REFERENCE])
    lines = list[list[str]]()
    for name, run in runners.items():
        line = [name, *counts_of(files.get(name))]
        for of_shape in times.values():
            ratio = of_shape[REFERENCE] / of_shape[name]
            line.append(f"{of_shape[name]:.1f} ms ({ratio:.2f}x)")
        line.append(f"{cosine(wanted, states_of(run)):.5f}")
        lines.append(line)
    shapes = ["x".join(map(str, rows)) for rows in SHAPES]
    header = ["", "bytes", "nodes", "products float / int8", *shapes, "cosine"]
    print(f"{machine()} {torch.get_num_threads()} threads\n")
    print(table(header, lines))


# ---- the programs --------------------------------------------------------------------


def exported(
    rectangle: PaddedNetwork, theirs: torch.nn.Module, folder: Path
) -> dict[str, bytes]:
    """Return the four ONNX files."""
    file = folder / "theirs.onnx"
    with quiet():
        program = torch.onnx.export(
            theirs,
            tuple(torch.ones((2, 8), dtype=torch.int64) for _ in INPUTS),
            input_names=list(INPUTS),
            output_names=list(NAMES),
            dynamo=True,
            dynamic_shapes=dynamic_shapes(rectangle),
            verbose=False,
        )
    assert program is not None
    program.save(file, external_data=False)
    quantized = folder / "theirs-int8.onnx"
    quantize_dynamic(file, quantized, weight_type=QuantType.QInt8)
    ours = to_graph(rectangle)
    return {
        "its ONNX, `torch.onnx.export`": file.read_bytes(),
        "that, `quantize_dynamic` as documented": quantized.read_bytes(),
        "litebert's ONNX fp32": ours.SerializeToString(),
        "litebert's ONNX int8": quantize(ours).SerializeToString(),
    }


@torch.inference_mode()
def their_outputs(
    network: transformers.AlbertModel, inputs: Inputs
) -> dict[str, NDArray[np.float32]]:
    tensors = {name: torch.from_numpy(values) for name, values in inputs.items()}
    outputs = network(**tensors)
    return {name: outputs[name].numpy() for name in NAMES}


@torch.inference_mode()
def our_outputs(
    network: AlbertForPretraining, inputs: Inputs
) -> dict[str, NDArray[np.float32]]:
    batch = Batch.from_padded(*(torch.from_numpy(inputs[name]) for name in INPUTS))
    hidden = network.albert(batch)  # (tokens, hidden)
    pooled = network.albert.pool(hidden[batch.first_tokens])  # (sequences, hidden)
    outputs = (batch.to_padded(hidden).numpy(), pooled.numpy())
    return dict(zip(NAMES, outputs, strict=True))


# ---- what is measured ----------------------------------------------------------------


def full_rectangle(*shape: int) -> Inputs:
    """Return inputs without padding."""
    ids = np.arange(np.prod(shape)).reshape(shape)
    inputs = (ids, np.ones_like(ids), np.zeros_like(ids))
    return dict(zip(INPUTS, inputs, strict=True))


def times_of(
    runners: Mapping[str, RunBatch], shape: tuple[int, int], rounds: int
) -> dict[str, float]:
    """Return the median milliseconds of each program on a rectangle."""
    inputs = full_rectangle(*shape)
    calls = {name: partial(run, inputs) for name, run in runners.items()}
    taken = take_turns(calls, rounds=rounds, warm_ups=1, clock=time.perf_counter)
    return {name: 1e3 * median(seconds) for name, seconds in taken.items()}


def counts_of(data: bytes | None) -> list[str]:
    """Return the bytes, nodes and products of a file, if the program is one."""
    if data is None:
        return [""] * 3
    model = onnx.load_from_string(data)
    num_float, num_int8 = count_products(model)
    return [
        f"{len(data):,}",
        f"{len(model.graph.node):,}",
        f"{num_float} / {num_int8}",
    ]


def states_of(run: RunBatch) -> NDArray[np.float32]:
    return run(full_rectangle(2, 64))["last_hidden_state"].ravel()


def cosine(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


if __name__ == "__main__":
    command_of(main, "onnx_export")()
