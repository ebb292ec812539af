"""litebert and its rivals on a CPU, with the tables: `make bench`.

    python -m benchmarks.speed.run [PART ...] [--quick] [--threads 1,2] [--record RESULTS.md]

Parts: inference, pretraining, finetuning, cold. Each, for each number of threads, runs
in its own process, shared by all its contenders. Exported models, figures (JSON) and
tables (Markdown) are written to --folder; existing exports are used again.
"""

import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from benchmarks.measure import apart, record_section
from litebert.cli.command import command_of

Part = Literal["inference", "pretraining", "finetuning", "cold"]
TRAINED = ("transformers fp32", "transformers bf16", "litebert fp32", "litebert bf16")
QUIET = {
    "PYTHONWARNINGS": "ignore",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    # these keep OpenVINO and NNCF from sending statistics
    "CI": "true",
    "NNCF_CI": "1",
}


def part(
    name: str, root: str, preset: str, threads: int, is_quick: bool, names: list[str]
) -> list[dict[str, Any]]:
    """Measure a part in this process; return its rows."""
    import torch

    from benchmarks.speed.rows import REFERENCE

    torch.set_num_threads(threads)
    folder = Path(root)
    if name == "exports":
        from benchmarks.speed.exports import export_all

        export_all(folder, preset)
        return []
    if name == "cold":
        from benchmarks.speed import cold

        return cold.measure(folder, is_quick=is_quick)
    if name == "inference":
        from benchmarks.speed import inference, rivals

        known = rivals.names()
        measure = inference.measure
    else:
        from benchmarks.speed import training

        known = TRAINED
        measure = getattr(training, name)
    wanted = {REFERENCE, *(names or known)}
    chosen = [contender for contender in known if contender in wanted]
    return [asdict(row) for row in measure(folder, is_quick=is_quick, names=chosen)]


def main(
    parts: tuple[Part, ...] = (),
    *,
    preset: Annotated[
        str, "base-v2, another preset, minilm-l6 or bert-base."
    ] = "base-v2",
    quick: Annotated[bool, "Three minutes: fewer texts and turns."] = False,
    threads: tuple[int, ...] = (1, 2),
    names: Annotated[
        tuple[str, ...],
        "Only these contenders, for instance 'litebert fp32'; may be repeated.",
    ] = (),
    folder: Path = Path("build/speed"),
    record: Annotated[Path | None, "Replace the section in this Markdown file."] = None,
) -> None:
    """Run the parts one after the other, then write their results."""
    from benchmarks.speed.rows import document

    start = time.perf_counter()
    folder = folder / preset
    folder.mkdir(parents=True, exist_ok=True)
    figures: dict[str, list[dict[str, Any]]] = {}
    for name in ("exports", *(parts or get_args(Part))):
        counts = {"exports": (os.cpu_count() or 1,), "cold": (1,)}.get(name, threads)
        figures[name] = []
        for count in counts:
            load = os.getloadavg()[0]
            print(f"\n{name}, {count} threads, load {load:.1f}", flush=True)
            environment = {
                **QUIET,
                "TORCHINDUCTOR_CACHE_DIR": str(folder / "compiled"),
                "OMP_NUM_THREADS": str(count),
            }
            arguments = (name, folder, preset, count, quick, names)
            figures[name] += apart(part, *arguments, environment=environment)
    del figures["exports"]
    text = document(figures, preset)
    (folder / "speed.json").write_text(json.dumps(figures, indent=1))
    (folder / "speed.md").write_text(text)
    minutes = (time.perf_counter() - start) / 60
    print(f"\n{text}\n{minutes:.1f} minutes; {folder / 'speed.md'}")
    if record:
        record_section(record, text)


if __name__ == "__main__":
    command_of(main, "run")()
