"""litebert serve beside other engines behind FastAPI: same weights, same load, one core.

`python -m benchmarks.serving.run [--model FOLDER] [--record benchmarks/serving/RESULTS.md]`

All servers are pinned to one core with one thread each; the load goes to one of them at a time, in
turns, so that a busy machine is busy for all. Ratios are medians over the rounds. CPU time per
request, summed over the processes of a server, is the figure that other work on the core disturbs
least.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from litebert.files import write_text

PACKAGES = ("torch", "transformers", "onnxruntime", "openvino", "fastapi", "uvicorn")
ROOT = Path(__file__).parents[2]
MODEL = Path("src/litebert/model")
OURS = "litebert serve"
ENGINES = ("transformers", "onnxruntime", "openvino")
MARK = "<!-- the last run -->\n"
PATHS = {"": "/v1/embed", ", padded batches": "/v1/embed-together"}
"""A rival's routes, and what its name is followed by."""


@dataclass(frozen=True)
class Load:
    """So many clients, each of which asks again as soon as it is answered."""

    name: str
    texts: tuple[str, ...]
    clients: int


@dataclass(frozen=True)
class Route:
    """Where a server computes embeddings."""

    server: str
    port: int
    path: str


@dataclass(frozen=True)
class Measured:
    """One round of one server."""

    per_second: float
    p50_ms: float
    p99_ms: float
    cpu_ms: float = 0.0


def loads(requests: int) -> list[Load]:
    """Return the loads: mixed lengths for many clients, one short text for one client."""
    words = " ".join(path.read_text("utf-8") for path in sorted(ROOT.glob("docs/*.md"))).split()
    draws = np.random.default_rng(7)
    lengths = np.clip(np.exp(draws.normal(3.3, 1.0, requests)), 3, 350).astype(int)
    starts = draws.integers(0, len(words) - 400, requests)
    mixed = tuple(" ".join(words[a : a + n]) for a, n in zip(starts, lengths, strict=True))
    short = ("The cat sat on the mat near the old door.",) * (requests // 2)
    return [Load("mixed lengths, 16 clients", mixed, 16), Load("one short text", short, 1)]


def body_of(texts: Sequence[str]) -> str:
    """Ask for plain means, whatever a model's own settings are; the rivals give nothing else."""
    return json.dumps({"texts": list(texts), "pooling": "mean", "normalize": False})


def measure(route: Route, load: Load) -> Measured:
    """Send all requests of a load to one route."""
    own, links = threading.local(), []

    def ask(text: str) -> float:
        if not hasattr(own, "link"):
            own.link = http.client.HTTPConnection("127.0.0.1", route.port)
            links.append(own.link)
        started = time.perf_counter()
        body = body_of([text])
        own.link.request("POST", route.path, body, {"Content-Type": "application/json"})
        answer = own.link.getresponse()
        found = answer.read()
        assert answer.status == 200, found
        return time.perf_counter() - started

    started = time.perf_counter()
    with ThreadPoolExecutor(load.clients) as pool:
        times = list(pool.map(ask, load.texts))
    seconds = time.perf_counter() - started
    for link in links:
        link.close()
    p50, p99 = np.percentile(times, [50, 99]) * 1_000
    return Measured(len(times) / seconds, float(p50), float(p99))


def cpu_ms(process: int) -> float:
    """Return the CPU time of a process and of all that it started (Linux).

    Threads that have ended count; the figure moves in steps of 10 ms.
    """
    words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    total = (int(words[11]) + int(words[12])) * 1_000 / os.sysconf("SC_CLK_TCK")
    for thread in Path(f"/proc/{process}/task").iterdir():
        # Children are listed under the thread that started them.
        total += sum(cpu_ms(int(child)) for child in (thread / "children").read_text().split())
    return total


@contextmanager
def server(command: Sequence[str], port: int, core: int) -> Iterator[int]:
    """Run a server on one core; give its process number once it answers."""
    process = subprocess.Popen(command, preexec_fn=lambda: os.sched_setaffinity(0, {core}), cwd=ROOT)
    try:
        for _ in range(1_200):
            try:
                measure(Route("", port, "/v1/embed"), Load("", ("warm up",), 1))
                break
            except (ConnectionError, AssertionError):
                time.sleep(0.1)
        yield process.pid
    finally:
        process.terminate()
        process.wait(30)


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def require_same_answers(routes: Sequence[Route]) -> float:
    """Return how far the servers' vectors are apart; same weights must give the same."""
    body = body_of(["The cat sat on the mat.", "A longer text " * 20])
    found = []
    for route in routes:
        link = http.client.HTTPConnection("127.0.0.1", route.port)
        link.request("POST", route.path, body, {"Content-Type": "application/json"})
        found.append(np.array(json.loads(link.getresponse().read())["result"]))
        link.close()
    furthest = max(float(np.abs(found[0] - other).max()) for other in found[1:])
    assert furthest < 1e-3, furthest
    return furthest


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Return the versions of those packages that are installed."""
    found = {}
    for package in packages:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def commands_of(model: Path) -> dict[str, list[str]]:
    """Return the command of every server; a rival whose engine is not installed is left out."""
    rival = [sys.executable, "-m", "benchmarks.serving.rival", str(model), "--engine"]
    return {
        OURS: [sys.executable, "-m", "litebert", "serve", str(model), "--threads", "1"],
        **{engine: [*rival, engine] for engine in versions(ENGINES)},
    }


def run(model: Path, *, rounds: int, requests: int, core: int, chosen: str) -> str:
    """Measure all servers in turns; return the page of results."""
    commands = commands_of(model)
    ports = {name: free_port() for name in commands}
    routes = {
        f"{name}{suffix}": Route(name, ports[name], path)
        for name in commands
        for suffix, path in PATHS.items()
        if not (suffix and name == OURS)
    }
    found: dict[tuple[str, str], list[Measured]] = {}
    processes = {}
    with ExitStack() as stack:
        for name, port in ports.items():
            command = [*commands[name], "--port", str(port)]
            processes[name] = stack.enter_context(server(command, port, core))
        furthest = require_same_answers(list(routes.values()))
        for number in range(rounds + 1):
            for load in (load for load in loads(requests) if chosen in load.name):
                for name, route in routes.items():
                    before = cpu_ms(processes[route.server])
                    measured = measure(route, load)
                    spent = (cpu_ms(processes[route.server]) - before) / len(load.texts)
                    if number:  # the first round warms up
                        found.setdefault((load.name, name), []).append(replace(measured, cpu_ms=spent))
    return page(model, found, rounds=rounds, requests=requests, furthest=furthest)


def page(
    model: Path, found: dict[tuple[str, str], list[Measured]], *, rounds: int, requests: int, furthest: float
) -> str:
    """Return the table, with ratios of each round's figures."""
    lines = [
        "## The last run",
        "",
        f"`python -m benchmarks.serving.run --rounds {rounds} --requests {requests}`, "
        f"model {model}, float32, one core for every server, {rounds} rounds of {requests} "
        f"requests ({requests // 2} of one short text) in turns, closed loop; medians over the "
        "rounds. Ratios are of litebert to the other within a round: throughput above 1 and "
        "waiting times below 1 are in favour of litebert. "
        f"Vectors differ by {furthest:.0e} at most.",
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        + ", ".join(f"{name} {found}" for name, found in versions(PACKAGES).items())
        + ".",
    ]
    for load in dict.fromkeys(load for load, _ in found):
        lines += [
            "",
            f"### {load[0].upper()}{load[1:]}",
            "",
            "| server | CPU ms a request (range) | requests/s | p50 ms | p99 ms | CPU ratio | "
            "throughput ratio (range) | p50 ratio | p99 ratio |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        ours = found[load, OURS]
        for name in dict.fromkeys(name for _, name in found):
            theirs = found[load, name]
            rates = [a.per_second / b.per_second for a, b in zip(ours, theirs, strict=True)]
            p50 = [a.p50_ms / b.p50_ms for a, b in zip(ours, theirs, strict=True)]
            p99 = [a.p99_ms / b.p99_ms for a, b in zip(ours, theirs, strict=True)]
            spent = [one.cpu_ms for one in theirs]
            cpu = [a.cpu_ms / b.cpu_ms for a, b in zip(ours, theirs, strict=True)]
            mean = statistics.median
            ratios = (
                ["", "", "", ""]
                if name == OURS
                else [
                    f"{mean(cpu):.2f}",
                    f"{mean(rates):.2f} ({min(rates):.2f} to {max(rates):.2f})",
                    f"{mean(p50):.2f}",
                    f"{mean(p99):.2f}",
                ]
            )
            figures = [
                f"{mean(spent):.1f} ({min(spent):.1f} to {max(spent):.1f})",
                f"{mean(one.per_second for one in theirs):.0f}",
                f"{mean(one.p50_ms for one in theirs):.1f}",
                f"{mean(one.p99_ms for one in theirs):.1f}",
            ]
            lines.append(f"| {name} | " + " | ".join([*figures, *ratios]) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--load", default="", help="only the loads whose names contain this")
    parser.add_argument("--core", type=int, default=min(os.sched_getaffinity(0)))
    parser.add_argument("--record", type=Path)
    given = parser.parse_args()
    results = run(given.model, rounds=given.rounds, requests=given.requests, core=given.core, chosen=given.load)
    print(results)
    if given.record:
        # What is written by hand above the mark stays.
        kept, mark, _ = given.record.read_text("utf-8").partition(MARK)
        write_text(given.record, f"{kept}{mark}\n{results}")
