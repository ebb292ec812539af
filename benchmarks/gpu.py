"""Measure litebert beside transformers on one CUDA device, in under 8 minutes.

    python -m pip install --target vendored pydantic jaxtyping
    PYTHONPATH=vendored python benchmarks/gpu.py --out gpu

It needs Python 3.11, torch 2.10 or newer and numpy, which the image has, and the two packages of
the first line; litebert itself is read from src/ beside it. Where transformers is missing, its rows
are left out by name. On a machine without the network, `pip download` the two packages elsewhere,
for that Python and with what they need, and add `--no-index --find-links FOLDER` to that line.

It writes gpu.json and gpu.md: ceilings, pretraining at 128 and 512 (equal and ragged lengths),
inference, latency, memory, fine-tuning, loading. Everything is bf16 with random weights and random
tokens; rivals take turns, each beside the GEMM that shares are taken of. FLOPs are counted with all
layers unrolled and all tokens in all layers, so work that is skipped exactly counts as done.

A worker process measures; this one ends what exceeds its time and goes on with the next section.

    python benchmarks/gpu.py --device cpu --preset tiny --smoke --out smoke

runs every path that needs no CUDA device; its figures mean nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
TIMES = {
    "ceilings": (20, 0),
    "equal losses": (80, 50),
    "pretraining at 128": (130, 80),
    "pretraining at 512": (130, 40),
    "ragged lengths": (60, 35),
    "inference": (70, 40),
    "latency": (70, 40),
    "fine-tuning": (45, 20),
    "memory": (60, 30),
    "loader": (45, 25),
}
"""Seconds a section may take, and those that sections before it leave to it."""
START = 120
"""Seconds a worker may take to begin; a smoke test has the whole time for everything."""
Row = dict[str, object]


def main() -> int:
    """Measure, write the two files, and print the second."""
    options = arguments()
    if options.rows:
        work(options)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows"
        rows.touch()
        supervise(options, rows)
        found = read(rows)
    page = markdown(found)
    out = Path(options.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    out.with_suffix(".md").write_text(page, encoding="utf-8")
    print(page)
    return 0 if any(row["kind"] == "figure" for row in found) else 1


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="gpu", help="path of the .json and .md to write")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--preset", default="base-v2")
    parser.add_argument("--tokens", type=int, default=0, help="of a pretraining step; 0: by memory")
    parser.add_argument("--minutes", type=float, default=7.6, help="for all sections together")
    parser.add_argument("--sections", nargs="+", default=list(TIMES), choices=list(TIMES))
    parser.add_argument("--without-transformers", action="store_true")
    parser.add_argument("--smoke", action="store_true", help="one round of little: does it run?")
    parser.add_argument("--rows", help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    return parser.parse_args()


def supervise(options: argparse.Namespace, rows: Path) -> None:
    """Run workers until every section was begun or the time is over."""
    until = time.time() + 60 * options.minutes
    pending = list(options.sections)
    while pending and time.time() < until:
        command = [sys.executable, *sys.argv, "--rows", str(rows), "--until", str(until)]
        command += ["--sections", *pending]
        worker = subprocess.Popen(command, start_new_session=True)
        try:
            start = until if options.smoke else time.time() + START
            why = watched(worker, rows, len(read(rows)), min(start, until), until)
        finally:
            end(worker)
        begun = [row["section"] for row in read(rows) if row["kind"] == "begin"]
        ended = [row["section"] for row in read(rows) if row["kind"] == "end"]
        if pending[0] not in begun:
            append(rows, section=pending.pop(0), why=why or "the worker did not start")
            break
        for name in set(begun) - set(ended):
            append(rows, section=name, why=why or f"the worker ended with {worker.returncode}")
            append(rows, section=name, kind="end")
        pending = [name for name in pending if name not in begun]
    for name in pending:
        append(rows, section=name, why="no time was left")


def watched(worker: subprocess.Popen[bytes], rows: Path, known: int, start: float, until: float) -> str:
    """Wait for a worker; return why it has to be ended, or nothing where it ended by itself."""
    while worker.poll() is None:
        time.sleep(0.2)
        marks = [row for row in read(rows)[known:] if row["kind"] in ("begin", "end")]
        now = time.time()
        if now > until:
            return "the time for all sections was over"
        if not marks and now > start:
            return "the worker did not start in time"
        if marks and marks[-1]["kind"] == "begin" and now > float(str(marks[-1]["until"])):
            return "the time of the section was over"
    return ""


def end(worker: subprocess.Popen[bytes]) -> None:
    """End a worker and the processes it started."""
    with suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()


def work(options: argparse.Namespace) -> None:
    """Measure section after section in this process; it ends where one fails."""
    sys.path[:0] = [str(HERE.parent / "src"), str(HERE)]
    import torch
    from on_gpu.feeding import feeding
    from on_gpu.finetuning import finetuning
    from on_gpu.inference import latency, throughput
    from on_gpu.notes import Bench, has_transformers
    from on_gpu.training import ceilings, equal_losses, memory, pretraining, ragged_lengths
    from on_gpu.work import Setting

    sections = {
        "ceilings": ceilings,
        "equal losses": equal_losses,
        "pretraining at 128": partial(pretraining, length=128),
        "pretraining at 512": partial(pretraining, length=512),
        "ragged lengths": ragged_lengths,
        "inference": throughput,
        "latency": latency,
        "fine-tuning": finetuning,
        "memory": memory,
        "loader": feeding,
    }
    torch.set_float32_matmul_precision("high")
    setting = Setting.of(options.device, options.preset, options.tokens, is_smoke=options.smoke)
    rival = has_transformers(wanted=not options.without_transformers)
    bench = Bench(setting, Path(options.rows), rival)
    bench.machine(options.preset)
    for place, name in enumerate(options.sections):
        reserved = sum(TIMES[later][1] for later in options.sections[place + 1 :])
        left = options.until - time.time() - reserved
        seconds = min(TIMES[name][0], max(left, TIMES[name][1]))
        bench.begin(name, left if options.smoke else seconds)
        bench.attempt(name, partial(sections[name], bench))
        bench.note("end")


def read(rows: Path) -> list[Row]:
    """Return the whole lines written so far."""
    text = rows.read_text(encoding="utf-8")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def append(rows: Path, *, section: str, why: str = "", kind: str = "left out") -> None:
    """Note what the worker could not note itself."""
    row = {"kind": kind, "section": section, "name": section, "why": why, "is_failure": True}
    with rows.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def markdown(rows: list[Row]) -> str:
    """Lay out machine, targets, figures by section, and what was left out."""
    lines = ["# litebert on a GPU", ""]
    machine = next((row for row in rows if row["kind"] == "machine"), {})
    lines += [f"- {name}: {value}" for name, value in machine.items() if name in MACHINE]
    targets = [row for row in rows if row["kind"] == "target"]
    lines += ["", "| section | target | measured | wanted | met |", "|---|---|---|---|---|"]
    for row in targets:
        value, least, most = (float(str(row[key])) for key in ("value", "least", "most"))
        wanted, is_met = (f">= {least:g}", value >= least) if least else (
            f"<= {most:g}", value <= most)  # fmt: skip
        cells = (row["section"], row["name"], shown(value, row["unit"]), wanted)
        lines.append("| " + " | ".join(map(str, cells)) + f" | {'yes' if is_met else 'NO'} |")
    for section in dict.fromkeys(row["section"] for row in rows if row["kind"] == "figure"):
        lines += ["", f"## {section}", "", "| what | measured | of the GEMM | |", "|---|---|---|---|"]
        for row in rows:
            if row["kind"] == "figure" and row["section"] == section:
                share = "" if row["share"] is None else f"{100 * float(str(row['share'])):.1f} %"
                value = shown(float(str(row["value"])), row["unit"])
                lines.append(f"| {row['name']} | {value} | {share} | {row['note']} |")
    lines += ["", "## Left out", ""]
    lines += [
        f"- {row['section']}: {row['name']}: {row['why']}" + " (failed)" * bool(row["is_failure"])
        for row in rows
        if row["kind"] == "left out"
    ]
    return "\n".join(lines) + "\n"


MACHINE = ("device", "python", "torch", "cuda", "transformers", "preset", "tokens", "cores")


def shown(value: float, unit: object) -> str:
    """Write a figure with its unit."""
    digits = f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"
    return f"{digits} {unit}".strip()


if __name__ == "__main__":
    sys.exit(main())
