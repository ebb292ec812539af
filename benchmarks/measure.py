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
PACKAGES = [
    "litebert",
    "torch",
    "transformers",
    "onnxruntime",
    "openvino",
    "nncf",
    "sentencepiece",
]
PACKAGES += ["fastapi", "uvicorn"]


def seconds_of(call: Call, clock: Callable[[], float] = time.process_time) -> float:
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
    seconds: float = 0.0,
    most: int = 40,
    clock: Callable[[], float] = time.process_time,
) -> dict[str, list[float]]:
    """Return the seconds of each call in each round.

    Every call is made once per round, in an order that changes from round to round, so
    that a busy machine slows down all of them. There are at least `rounds` rounds, and
    up to `most` until `seconds` are over.
    """
    taken: dict[str, list[float]] = {name: [] for name in calls}
    order = np.random.default_rng(1)
    begun = time.perf_counter()
    done = 0
    while done < rounds or (done < most and time.perf_counter() - begun < seconds):
        for name in order.permutation(list(calls)):
            taken[name].append(seconds_of(calls[name], clock))
        done += 1
    return taken


def memory(process: int | str = "self") -> dict[str, float]:
    """Return what a process holds in MB (Linux); in Pss, a shared page is divided
    equally among its owners.
    """
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]
    return {
        name: int(value.split()[0]) / 1e3
        for name, value in (line.split(":") for line in lines)
    }


def peak_bytes(work: Call | None = None) -> int:
    """Return the highest resident memory of this process, while it works or since it
    began.
    """
    if work is not None:
        Path("/proc/self/clear_refs").write_text("5")  # sets VmHWM back to VmRSS
        work()
    # ru_maxrss would be that of the parent process if that is larger
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def apart(
    function: Callable[..., Any], *given: object, environment: Mapping[str, str] = {}
) -> Any:
    """Return the result of a script's function, run in its own process and passed as
    JSON; its output is shown.
    """
    module = (
        function.__module__
        if function.__module__ != "__main__"
        else sys.modules["__main__"].__spec__.name
    )
    code = (
        f"import contextlib, json, sys\nfrom {module} import {function.__name__} as"
        " call\nwith contextlib.redirect_stdout(sys.stderr):\n    found ="
        " call(*json.loads(sys.argv[1]))\nprint(json.dumps(found))"
    )
    command = [sys.executable, "-c", code, json.dumps(given, default=str)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, check=True, env={**os.environ, **environment}
    )
    return json.loads(done.stdout.splitlines()[-1])


def table(header: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    first, *others = (f"| {' | '.join(map(str, cells))} |" for cells in (header, *rows))
    return "\n".join([first, "|" + "---|" * len(header), *others])


def recorded(text: str, section: str) -> str:
    """Return a Markdown text with its section of the same heading replaced, or added at
    the end.
    """
    title = section.partition("\n")[0]
    pattern = re.compile(
        rf"^{re.escape(title)}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL
    )
    if pattern.search(text):
        return (
            pattern.sub(lambda _: f"{section.rstrip()}\n\n", text).rstrip("\n") + "\n"
        )
    return f"{text.rstrip()}\n\n{section}"


def machine() -> str:
    """Describe the processor, its instruction sets for products, the load, and the
    versions of all packages.
    """
    info = (
        Path("/proc/cpuinfo").read_text().splitlines()
        if Path("/proc/cpuinfo").exists()
        else []
    )
    names = [
        line.split(":")[1].strip() for line in info if line.startswith("model name")
    ]
    flags = next((line.split() for line in info if line.startswith("flags")), [])
    units = [
        flag
        for flag in ("avx2", "avx512_vnni", "avx512_bf16", "amx_bf16")
        if flag in flags
    ]
    versions = (f"{name} {found}" for name in PACKAGES if (found := installed(name)))
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA")
    capped = f", ONEDNN_MAX_CPU_ISA={limit}" if limit else ""
    return (
        f"{names[0] if names else platform.machine()} ({', '.join(units)}{capped}),"
        f" {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; Python"
        f" {platform.python_version()}, {', '.join(versions)}."
    )


def installed(package: str) -> str | None:
    """Return the version of a package, or None if it is not installed."""
    return version(package) if find_spec(package) else None
