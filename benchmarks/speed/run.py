"""Measure litebert beside its rivals and write the tables: `make bench`.

    python -m benchmarks.speed.run [PART ...] [--quick] [--threads 1 2] [--record RESULTS.md]

Parts: inference, pretraining, finetuning, cold. Each, for each number of threads, has a process of
its own, shared by all its contenders. Exported models, figures (JSON) and tables (Markdown) lie in
--folder; what was exported once is used again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.speed.tables import document, recorded

PARTS = ("inference", "pretraining", "finetuning", "cold")
ENVIRONMENT = {
    "PYTHONWARNINGS": "ignore",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "CI": "true",
    "NNCF_CI": "1",
}
"""Quiet and offline; the last two keep OpenVINO and NNCF from sending statistics."""


def main() -> None:
    """Run the parts one after the other, then write what they found."""
    options = parsed()
    start, folder = time.perf_counter(), options.folder / options.preset
    folder.mkdir(parents=True, exist_ok=True)
    run_part("exports", folder, os.cpu_count() or 1, ["--preset", options.preset])
    figures: dict[str, list[dict[str, Any]]] = {}
    words = (["--quick"] if options.quick else []) + (["--names", *options.names] if options.names else [])
    for part in options.parts or PARTS:
        for threads in (1,) if part == "cold" else options.threads:
            figures.setdefault(part, []).extend(run_part(part, folder, threads, words))
    text = document(figures, options.preset)
    (folder / "speed.json").write_text(json.dumps(figures, indent=1))
    (folder / "speed.md").write_text(text)
    print(f"\n{text}\n{(time.perf_counter() - start) / 60:.1f} minutes; {folder / 'speed.md'}")
    if options.record:
        options.record.write_text(recorded(options.record.read_text(), text))


def parsed() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; unset: all")
    parser.add_argument("--preset", default="base-v2", help="base-v2, another preset, minilm-l6 or bert-base")
    parser.add_argument("--quick", action="store_true", help="three minutes: fewer texts and turns")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--names", nargs="+", help="contenders only, 'litebert fp32' for instance")
    parser.add_argument("--folder", type=Path, default=Path("build/speed"))
    parser.add_argument("--record", type=Path, help="replace the section in this Markdown file")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no part is called {', '.join(sorted(unknown))}")
    return options


def run_part(part: str, folder: Path, threads: int, words: Sequence[str]) -> list[dict[str, Any]]:
    """Run one part in its own process and return its figures."""
    print(f"\n{part}, {threads} threads, load {os.getloadavg()[0]:.1f}", flush=True)
    output = folder / f"{part}-{threads}.json"
    command = [sys.executable, "-m", "benchmarks.speed.part", part, str(folder), str(output)]
    compiled = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "compiled")}
    subprocess.run(
        [*command, "--threads", str(threads), *words],
        env={**os.environ, **ENVIRONMENT, **compiled, "OMP_NUM_THREADS": str(threads)},
        check=True,
    )
    return json.loads(output.read_text()) if part != "exports" else []


if __name__ == "__main__":
    main()
