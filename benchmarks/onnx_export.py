"""Compare our ONNX files with transformers' own export: python benchmarks/onnx_export.py.

One network of base-v2's shape with random weights goes four ways: our export in float32 and int8,
and torch.onnx.export of transformers' AlbertModel, then onnxruntime's documented quantize_dynamic.
Bytes, nodes and products are counted in the files; times are medians of rounds in which all take
turns, with OMP_NUM_THREADS threads each.
"""

from __future__ import annotations

import argparse
import collections
import logging
import os
import tempfile
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
import transformers
from onnxruntime.quantization import QuantType, quantize_dynamic

from litebert.config import preset
from litebert.folder import save_model
from litebert.interop.export.check import Inputs, RunBatch, ragged_outputs
from litebert.interop.export.network import INPUTS, PaddedNetwork, padded
from litebert.interop.export.onnx import count_products, full_rectangle, measure, quantise, start, to_graph
from litebert.interop.export.program import dynamic_shapes, quiet
from litebert.nn import AlbertForPretraining

NAMES = ("last_hidden_state", "pooler_output")


def main() -> None:
    """Export, count, time, and print two tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="base-v2")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    print(
        f"{processor()}, {torch.get_num_threads()} threads, torch {torch.__version__}, "
        f"onnxruntime {onnxruntime.__version__}, transformers {transformers.__version__}, "
        f"load {os.getloadavg()[0]:.1f}"
    )
    generator = torch.Generator().manual_seed(1)
    network = AlbertForPretraining(preset(options.preset), generator=generator).eval()
    rectangle = padded(network, has_head=False)
    with tempfile.TemporaryDirectory() as folder:
        save_model(network, Path(folder))
        theirs = transformers.AlbertModel.from_pretrained(folder).eval()
        weights = (Path(folder) / "model.safetensors").stat().st_size
        files = exported(rectangle, theirs, Path(folder))
    runners: dict[str, RunBatch] = {
        "transformers": lambda inputs: their_outputs(theirs, inputs),
        "litebert": lambda inputs: ragged_outputs(network, inputs, NAMES),
    }
    runners |= {name: start(data) for name, data in files.items()}
    report_files(files, weights)
    report_times(runners, rectangle, network.config.vocab_size, options.rounds)


def exported(rectangle: PaddedNetwork, theirs: torch.nn.Module, folder: Path) -> dict[str, bytes]:
    """Return the four files."""
    ours = to_graph(rectangle)
    example = tuple(torch.ones((2, 8), dtype=torch.int64) for _ in INPUTS)
    with quiet():
        program = torch.onnx.export(
            theirs,
            example,
            dynamo=True,
            dynamic_shapes=dynamic_shapes(rectangle),
            input_names=list(INPUTS),
            output_names=list(NAMES),
            verbose=False,
        )
    assert program is not None
    program.save(folder / "theirs.onnx", external_data=False)
    quantize_dynamic(folder / "theirs.onnx", folder / "theirs-int8.onnx", weight_type=QuantType.QInt8)
    return {
        "theirs fp32": (folder / "theirs.onnx").read_bytes(),
        "ours fp32": ours.SerializeToString(),
        "theirs quantize_dynamic": (folder / "theirs-int8.onnx").read_bytes(),
        "ours int8": quantise(ours).SerializeToString(),
    }


@torch.inference_mode()
def their_outputs(theirs: torch.nn.Module, inputs: Inputs) -> dict[str, np.ndarray]:
    """Run transformers' model as its users do."""
    outputs = theirs(**{name: torch.from_numpy(values) for name, values in inputs.items()})
    return {name: outputs[name].numpy() for name in NAMES}


def report_files(files: dict[str, bytes], weights: int) -> None:
    """Print bytes, nodes and the products with weights of each file."""
    print(f"\nmodel.safetensors with the pretraining heads: {weights:,} bytes")
    print(f"{'':26s}{'bytes':>12s} {'nodes':>6s} {'weight products: float':>23s} {'int8':>5s}")
    for name, data in files.items():
        model = onnx.load_from_string(data)
        products = count_products(model)
        operators = collections.Counter(node.op_type for node in model.graph.node)
        print(
            f"{name:26s}{len(data):12,} {len(model.graph.node):6,} {products.floating:23} "
            f"{products.integer:5}   MatMulInteger {operators['MatMulInteger']}"
        )


def report_times(runners: dict[str, RunBatch], rectangle: PaddedNetwork, vocab_size: int, rounds: int) -> None:
    """Print medians, how many times faster than transformers that is, and the cosine to it."""
    times = measure(runners, rectangle, vocab_size=vocab_size, rounds=rounds)
    shapes = list(times["transformers"])
    inputs = full_rectangle(2, 64, axes=rectangle.axes, vocab_size=vocab_size)
    states = {name: run(inputs)["last_hidden_state"].ravel() for name, run in runners.items()}
    print(f"\n{'':26s}" + "".join(f"{shape + ' ms':>18s}" for shape in shapes) + f"{'cosine':>10s}")
    for name, taken in times.items():
        ratios = (times["transformers"][shape] / taken[shape] for shape in shapes)
        cells = (f"{taken[s]:10.1f} ({r:.2f}x)" for s, r in zip(shapes, ratios, strict=True))
        a, b = states["transformers"], states[name]
        cosine = float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
        print(f"{name:26s}" + "".join(f"{cell:>18s}" for cell in cells) + f"{cosine:10.5f}")
    print(f"load {os.getloadavg()[0]:.1f}")


def processor() -> str:
    """Return the name of the processor."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.getLogger().setLevel(logging.ERROR)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    main()
