"""Shared parts of the benchmarks: interleaved timing, memory of processes, the
machine's name, tables in Markdown.
"""

import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

Call: TypeAlias = Callable[[], object]
Clock: TypeAlias = Callable[[], float]


# ---- time ----------------------------------------------------------------------------


def seconds_of(call: Call, clock: Clock = time.process_time) -> float:
    """Return the seconds of one call, by default CPU time, which other work on the
    machine disturbs least.
    """
    start = clock()
    call()
    return clock() - start


def take_turns(
    calls: Mapping[str, Call],
    *,
    rounds: int = 3,
    warm_ups: int = 0,
    seconds: float = 0.0,
    most: int = 40,
    clock: Clock = time.process_time,
) -> dict[str, list[float]]:
    """Return the seconds of each call in each round after the first `warm_ups`.

    Every call is made once per round, in an order that changes from round to round, so
    that a busy machine slows down all of them. There are at least `rounds` rounds, and
    up to `most` until `seconds` are over.
    """
    taken: dict[str, list[float]] = {name: [] for name in calls}
    order = np.random.default_rng(1)
    begun = time.perf_counter()
    done = 0
    while True:
        is_time_left = time.perf_counter() - begun < seconds
        limit = max(rounds, most) if is_time_left else rounds
        if done >= warm_ups + limit:
            break
        for name in order.permutation(list(calls)):
            taken[name].append(seconds_of(calls[name], clock))
        done += 1
    return {name: times[warm_ups:] for name, times in taken.items()}


# ---- memory --------------------------------------------------------------------------


def memory(process: int | str = "self") -> dict[str, float]:
    """Return what a process holds in MB (Linux); in Pss, a shared page is divided
    equally among its owners.
    """
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    held = dict[str, float]()
    for line in lines[1:]:  # the first one has addresses
        name, value = line.split(":")
        kilobytes = int(value.split()[0])
        held[name] = kilobytes / 1e3
    return held


def peak_bytes(work: Call | None = None) -> int:
    """Return the highest resident memory of this process, while it works or since it
    began.
    """
    if work is not None:
        Path("/proc/self/clear_refs").write_text("5")  # sets VmHWM back to VmRSS
        work()
    # ru_maxrss would be that of the parent process if that is larger
    status = Path("/proc/self/status").read_text()
    _, _, behind = status.partition("VmHWM:")
    return int(behind.split()[0]) * 1024


# ---- another process -----------------------------------------------------------------

# it has the module, the function and the arguments in JSON; its own output goes to
# standard error, so that the last line of standard output is the result
CALL_APART = """
import contextlib, importlib, json, sys
module, function, arguments = sys.argv[1:]
with contextlib.redirect_stdout(sys.stderr):
    call = getattr(importlib.import_module(module), function)
    result = call(*json.loads(arguments))
print(json.dumps(result))
"""


def apart(
    function: Callable[..., Any],
    *arguments: object,
    environment: Mapping[str, str] = {},
) -> Any:
    """Return the result of a script's function, run in its own process and passed as
    JSON; its output is shown.
    """
    module = function.__module__
    if module == "__main__":
        module = sys.modules["__main__"].__spec__.name
    words = [module, function.__name__, json.dumps(arguments, default=str)]
    finished = subprocess.run(
        [sys.executable, "-c", CALL_APART, *words],
        stdout=subprocess.PIPE,
        check=True,
        env={**os.environ, **environment},
    )
    return json.loads(finished.stdout.splitlines()[-1])


# ---- pages ---------------------------------------------------------------------------


def table(header: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown."""
    lines = [_table_line(header), "|" + "---|" * len(header)]
    lines += [_table_line(row) for row in rows]
    return "\n".join(lines)


def _table_line(cells: Sequence[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def record_section(path: Path, section: str) -> None:
    """Replace the section of the same heading in a Markdown file, or add it at the
    end.
    """
    text = recorded(path.read_text(encoding="utf-8"), section)
    path.write_text(text, encoding="utf-8")


def recorded(text: str, section: str) -> str:
    """Return a Markdown text with its section of the same heading replaced, or added at
    the end.
    """
    title, _, _ = section.partition("\n")
    pattern = re.compile(
        rf"^{re.escape(title)}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL
    )
    if not pattern.search(text):
        return f"{text.rstrip()}\n\n{section}"
    # a function, since a replacement would have its backslashes interpreted
    replaced = pattern.sub(lambda _: f"{section.rstrip()}\n\n", text)
    return replaced.rstrip("\n") + "\n"


# ---- the machine ---------------------------------------------------------------------

# of the processor, those that make products faster
INSTRUCTION_SETS = ("avx2", "avx512_vnni", "avx512_bf16", "amx_bf16")
PACKAGES = (
    "litebert",
    "torch",
    "transformers",
    "onnxruntime",
    "openvino",
    "nncf",
    "sentencepiece",
    "fastapi",
    "uvicorn",
)


def machine() -> str:
    """Describe the processor, its instruction sets for products, the load, and the
    versions of all packages.
    """
    versions = [f"Python {platform.python_version()}"]
    versions += [f"{name} {installed(name)}" for name in PACKAGES if installed(name)]
    return (
        f"{_processor()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f};"
        f" {', '.join(versions)}."
    )


def _processor() -> str:
    """Return the name of the processor, and in brackets its instruction sets."""
    name = platform.machine()
    flags = list[str]()
    info = Path("/proc/cpuinfo")
    if info.exists():
        facts = dict[str, str]()  # of the last core: they are all the same
        for line in info.read_text().splitlines():
            fact, _, value = line.partition(":")
            facts[fact.strip()] = value.strip()
        name = facts.get("model name", name)
        flags = facts.get("flags", "").split()
    details = [flag for flag in INSTRUCTION_SETS if flag in flags]
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA")
    if limit:
        details.append(f"ONEDNN_MAX_CPU_ISA={limit}")
    return f"{name} ({', '.join(details)})"


def installed(package: str) -> str | None:
    """Return the version of a package, or None if it is not installed."""
    return version(package) if find_spec(package) else None
