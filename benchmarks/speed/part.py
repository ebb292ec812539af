"""One part of the benchmark, in this process: python -m benchmarks.speed.part PART ROOT OUT.json.

`--threads` is the number for every contender; OMP_NUM_THREADS must have been set to the same.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from benchmarks.speed.cold import Cold
from benchmarks.speed.rows import REFERENCE, Row

TRAINED = ("transformers fp32", "transformers bf16", "litebert fp32", "litebert bf16")


def main() -> None:
    """Measure and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part")
    parser.add_argument("root", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--preset", default="base-v2", help="the network of exports")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--names", nargs="*", help="contenders, 'litebert fp32' ...; unset: all")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.part == "exports":
        from benchmarks.speed.exports import export_all

        export_all(options.root, options.preset)
        return
    figures = measured(options.part, options.root, options.threads, options.quick, options.names)
    options.output.write_text(json.dumps([asdict(figure) for figure in figures], indent=1))


def measured(part: str, root: Path, threads: int, is_quick: bool, names: Sequence[str] | None) -> Sequence[Row | Cold]:
    """Run one part; each imports what only it needs."""
    if part == "cold":
        from benchmarks.speed import cold

        return cold.measure(root, is_quick=is_quick)
    if part == "inference":
        from benchmarks.speed import inference, rivals

        return inference.measure(root, threads, is_quick=is_quick, names=asked(rivals.names(), names))
    from benchmarks.speed import finetuning, pretraining

    trained = {"pretraining": pretraining, "finetuning": finetuning}[part]
    return trained.measure(root, threads, is_quick=is_quick, names=asked(TRAINED, names))


def asked(known: Sequence[str], names: Sequence[str] | None) -> list[str]:
    """Return the names to measure, the reference always."""
    return [name for name in known if not names or name in names or name == REFERENCE]


if __name__ == "__main__":
    main()
