"""litebert beside its rivals on a CPU, with the tables: `make bench`.

    python -m benchmarks.speed.run [PART ...] [--quick] [--threads 1 2] [--record RESULTS.md]

Parts: inference, pretraining, finetuning, cold. Each, for each number of threads, has a process of its own, shared by
all its contenders. Exported models, figures (JSON) and tables (Markdown) lie in --folder; what was exported once is
used again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.measure import recorded

PARTS = ("inference", "pretraining", "finetuning", "cold")
TRAINED = ("transformers fp32", "transformers bf16", "litebert fp32", "litebert bf16")
QUIET = {"PYTHONWARNINGS": "ignore", "TORCHINDUCTOR_COMPILE_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
QUIET |= {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
QUIET |= {"CI": "true", "NNCF_CI": "1"}
"""Quiet and offline; the last two keep OpenVINO and NNCF from sending statistics."""


def part(name: str, folder: Path, threads: int, options: argparse.Namespace) -> None:
    """Measure one part in this process, which prints its figures as the last line."""
    import torch

    from benchmarks.speed.rows import REFERENCE

    torch.set_num_threads(threads)
    if name == "exports":
        from benchmarks.speed.exports import export_all

        export_all(folder, options.preset)
        found: list[Any] = []
    elif name == "cold":
        from benchmarks.speed.cold import measure

        found = measure(folder, is_quick=options.quick)
    else:
        if name == "inference":
            from benchmarks.speed.inference import measure
            from benchmarks.speed.rivals import names

            known = names()
        else:
            from benchmarks.speed import training

            known, measure = TRAINED, getattr(training, name)
        chosen = [each for each in known if not options.names or each in options.names or each == REFERENCE]
        found = [asdict(row) for row in measure(folder, is_quick=options.quick, names=chosen)]
    print(json.dumps(found))


def figures_of(name: str, folder: Path, threads: int) -> list[dict[str, Any]]:
    """Run one part in its own process and return its figures."""
    print(f"\n{name}, {threads} threads, load {os.getloadavg()[0]:.1f}", flush=True)
    command = [sys.executable, "-m", __spec__.name, *sys.argv[1:], "--part", name, str(folder), str(threads)]
    given = {**QUIET, "TORCHINDUCTOR_CACHE_DIR": str(folder / "compiled"), "OMP_NUM_THREADS": str(threads)}
    last = ""
    with subprocess.Popen(command, env={**os.environ, **given}, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if last:
                print(last, end="", flush=True)
            last = line
    if process.returncode:
        sys.exit(last or process.returncode)
    return json.loads(last)


def main(options: argparse.Namespace) -> None:
    """Run the parts one after the other, then write what they found."""
    from benchmarks.speed.rows import document

    start, folder = time.perf_counter(), options.folder / options.preset
    folder.mkdir(parents=True, exist_ok=True)
    figures_of("exports", folder, os.cpu_count() or 1)
    figures: dict[str, list[dict[str, Any]]] = {}
    for name in options.parts or PARTS:
        for threads in (1,) if name == "cold" else options.threads:
            figures.setdefault(name, []).extend(figures_of(name, folder, threads))
    text = document(figures, options.preset)
    (folder / "speed.json").write_text(json.dumps(figures, indent=1))
    (folder / "speed.md").write_text(text)
    print(f"\n{text}\n{(time.perf_counter() - start) / 60:.1f} minutes; {folder / 'speed.md'}")
    if options.record:
        options.record.write_text(recorded(options.record.read_text(), text))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; unset: all")
    parser.add_argument("--preset", default="base-v2", help="base-v2, another preset, minilm-l6 or bert-base")
    parser.add_argument("--quick", action="store_true", help="three minutes: fewer texts and turns")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--names", nargs="+", help="contenders only, 'litebert fp32' for instance")
    parser.add_argument("--folder", type=Path, default=Path("build/speed"))
    parser.add_argument("--record", type=Path, help="replace the section in this Markdown file")
    parser.add_argument("--part", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if unknown := set(asked.parts) - set(PARTS):
        parser.error(f"no part is called {', '.join(sorted(unknown))}")
    if asked.part:
        part(asked.part[0], Path(asked.part[1]), int(asked.part[2]), asked)
    else:
        main(asked)
