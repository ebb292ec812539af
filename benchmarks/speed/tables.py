"""The figures as Markdown: what litebert is beside the best rival, then every contender."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.speed.cold import Cold
from benchmarks.speed.rows import REFERENCE, Row

HEADING = "## Speed on a CPU: `make bench`"
PACKAGES = ("litebert", "torch", "transformers", "onnxruntime", "openvino", "nncf")
PRECISIONS = ("fp32", "bf16", "int8")


def heading(shape: str) -> str:
    """Return the heading of a network's section."""
    return HEADING if shape == "base-v2" else f"{HEADING}, {shape}"


def document(figures: dict[str, list[dict[str, Any]]], shape: str) -> str:
    """Return the section of a network."""
    rows = [Row(**f) for part, found in figures.items() if part != "cold" for f in found]
    parts = [heading(shape), machine(), LEGEND]
    for threads in sorted({row.threads for row in rows}):
        chosen = [row for row in rows if row.threads == threads]
        loads = [row.load for row in chosen]
        clock = "processor time, least" if threads == 1 else "wall time, median"
        title = f"### {threads} thread{'s' * (threads > 1)} ({clock}; load {min(loads):.1f}"
        parts += [f"{title} to {max(loads):.1f})", summary(chosen), details(chosen)]
    if found := figures.get("cold"):
        parts += ["### From a folder to the first answer", cold([Cold(**f) for f in found])]
    return "\n\n".join(parts) + "\n"


def recorded(text: str, section: str) -> str:
    """Return a Markdown text with its section of the same heading replaced, or added at the end."""
    title = section.partition("\n")[0]
    pattern = re.compile(rf"^{re.escape(title)}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    if pattern.search(text):
        return pattern.sub(lambda _: f"{section}\n", text).rstrip("\n") + "\n"
    return f"{text.rstrip()}\n\n{section}"


LEGEND = """\
One network with random weights; all contenders of a part in one process,
taking turns in random order. "Times" is how many times faster than transformers (`AutoModel`,
sdpa, fp32, padded to the longest text of a batch). "Use" is the network's FLOPs, padding not
counted, over the rate of a packed 1024 x 768 x 3072 product of the same precision in the same
turns. "Error" is the largest difference to the output of transformers in fp32 over its largest
value. "First" is "times" for first calls, on shapes not met before, compiling included. Streams are
batches of 16 texts in the order of their files; `stream` is their sum."""


def summary(rows: Sequence[Row]) -> str:
    """Return one line a work: litebert's ratio, and in brackets the best rival's."""
    lines = []
    for work in dict.fromkeys(row.work for row in rows):
        cells = []
        for precision in PRECISIONS:
            chosen = [r for r in rows if r.work == work and r.precision == precision]
            ours = [r for r in chosen if r.name.startswith("litebert")]
            others = sorted((r for r in chosen if r not in ours), key=lambda r: -r.ratio)
            best = f" ({others[0].ratio:.2f} {others[0].name.split()[0]})" if others else ""
            cells.append(f"**{ours[0].ratio:.2f}**{best}" if ours else best.strip())
        lines.append([work, *cells])
    return table(["times faster than transformers", *PRECISIONS], lines)


def details(rows: Sequence[Row]) -> str:
    """Return one line for each figure."""
    return table(
        ["work", "contender", "ms", "tokens/s", "times", "use", "error", "first"],
        [
            [
                row.work,
                row.name,
                f"{row.seconds * 1e3:,.1f}",
                f"{row.num_tokens / row.seconds:,.0f}",
                f"{row.ratio:.2f}",
                f"{row.utilisation:.0%}",
                "" if row.name == REFERENCE else f"{row.error:.0e}",
                f"{row.first_of_reference / row.first:.2f}",
            ]
            for row in rows
        ],
    )


def cold(found: Sequence[Cold]) -> str:
    """Return one line for each program and precision."""
    header = ["after the imports", "first answer, s", "of a core, s", "resident, MB"]
    header += ["of which anonymous", "four processes, MB", "four forked, MB"]
    lines = [
        [
            row.name,
            f"{row.seconds:.2f}",
            f"{row.processor_seconds:.2f}",
            *(f"{value:.0f}" for value in (row.resident, row.anonymous)),
            *(f"{value:.0f}" for value in (row.four_started, row.four_forked)),
        ]
        for row in found
    ]
    return table(header, lines)


def table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    rule = ["---"] * len(header)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *lines))


def machine() -> str:
    """Name the processor, what it can multiply, and the versions of everyone."""
    info = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":")[1].strip() for line in info if line.startswith("model name")]
    flags = next((line.split() for line in info if line.startswith("flags")), [])
    units = [flag for flag in ("avx2", "avx512_vnni", "avx512_bf16", "amx_bf16") if flag in flags]
    versions = (f"{name} {found}" for name in PACKAGES if (found := _version(name)))
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA")
    capped = f", ONEDNN_MAX_CPU_ISA={limit}" if limit else ""
    processor = names[0] if names else platform.machine()
    return (
        f"{processor} ({', '.join(units)}{capped}), {os.cpu_count()} cores; "
        f"Python {platform.python_version()}, {', '.join(versions)}."
    )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
