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
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import onnx
import torch
import transformers
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


def full_rectangle(*shape: int) -> Inputs:
    ids = np.arange(np.prod(shape)).reshape(shape)
    return dict(zip(INPUTS, (ids, np.ones_like(ids), np.zeros_like(ids)), strict=True))


def exported(
    rectangle: PaddedNetwork, theirs: torch.nn.Module, folder: Path
) -> dict[str, bytes]:
    example = tuple(torch.ones((2, 8), dtype=torch.int64) for _ in INPUTS)
    file = folder / "theirs.onnx"
    shapes = dynamic_shapes(rectangle)
    names = {"input_names": list(INPUTS), "output_names": list(NAMES)}
    with quiet():
        program = torch.onnx.export(
            theirs, example, dynamo=True, dynamic_shapes=shapes, verbose=False, **names
        )
    assert program is not None
    program.save(file, external_data=False)
    quantize_dynamic(file, folder / "theirs-int8.onnx", weight_type=QuantType.QInt8)
    ours = to_graph(rectangle)
    return {
        "its ONNX, `torch.onnx.export`": file.read_bytes(),
        "that, `quantize_dynamic` as documented": (
            (folder / "theirs-int8.onnx").read_bytes()
        ),
        "litebert's ONNX fp32": ours.SerializeToString(),
        "litebert's ONNX int8": quantize(ours).SerializeToString(),
    }


def main(*, shape: str = "base-v2", rounds: int = 7) -> None:
    """Export, count, time, and print a row for each program."""
    warnings.simplefilter("ignore")
    logging.getLogger().setLevel(logging.ERROR)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    network = AlbertForPretraining(
        preset(shape), generator=torch.Generator().manual_seed(1)
    ).eval()
    rectangle = pad_network(network, has_head=False)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_folder(ModelFolder(network), folder)
        theirs = transformers.AlbertModel.from_pretrained(folder).eval()
        files = exported(rectangle, theirs, folder)

    @torch.inference_mode()
    def their_outputs(inputs: Inputs) -> dict[str, np.ndarray]:
        outputs = theirs(
            **{name: torch.from_numpy(values) for name, values in inputs.items()}
        )
        return {name: outputs[name].numpy() for name in NAMES}

    @torch.inference_mode()
    def our_outputs(inputs: Inputs) -> dict[str, np.ndarray]:
        batch = Batch.from_padded(*(torch.from_numpy(inputs[name]) for name in INPUTS))
        hidden = network.albert(batch)
        pooled = network.albert.pool(hidden[batch.first_tokens])
        return dict(
            zip(NAMES, (batch.to_padded(hidden).numpy(), pooled.numpy()), strict=True)
        )

    runners: dict[str, RunBatch] = {
        "transformers fp32": their_outputs,
        "litebert": our_outputs,
    }
    runners |= {name: runner(data) for name, data in files.items()}
    times: dict[str, dict[str, float]] = {name: {} for name in runners}
    for rows in SHAPES:
        calls = {
            name: partial(run, full_rectangle(*rows)) for name, run in runners.items()
        }
        for name, taken in take_turns(
            calls, rounds=1 + rounds, clock=time.perf_counter
        ).items():
            # the first round warms up
            times[name]["x".join(map(str, rows))] = 1e3 * median(taken[1:])
    inputs = full_rectangle(2, 64)
    states = {
        name: run(inputs)["last_hidden_state"].ravel() for name, run in runners.items()
    }
    reference = times["transformers fp32"]
    wanted = states["transformers fp32"]
    lines = []
    for name, taken in times.items():
        counts = [""] * 3
        if data := files.get(name):
            model = onnx.load_from_string(data)
            products = count_products(model)
            counts = [
                f"{len(data):,}",
                f"{len(model.graph.node):,}",
                f"{products[0]} / {products[1]}",
            ]
        ratios = (f"{taken[s]:.1f} ms ({reference[s] / taken[s]:.2f}x)" for s in taken)
        cosine = (
            wanted
            @ states[name]
            / np.linalg.norm(wanted)
            / np.linalg.norm(states[name])
        )
        lines.append([name, *counts, *ratios, f"{cosine:.5f}"])
    print(f"{machine()} {torch.get_num_threads()} threads\n")
    print(
        table(
            ["", "bytes", "nodes", "products float / int8", *reference, "cosine"], lines
        )
    )


if __name__ == "__main__":
    command_of(main, "onnx_export")()
