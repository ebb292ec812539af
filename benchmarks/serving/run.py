"""litebert serve compared with other engines behind FastAPI: same weights, same load,
one core.

`python -m benchmarks.serving.run [--model FOLDER] [--record
benchmarks/serving/RESULTS.md]`

All servers are pinned to one core with one thread each; the load goes to one of them at
a time, in turns, so that a busy machine slows down all of them. Ratios are medians over
the rounds. CPU time per request, summed over the processes of a server, is the figure
that other work on the core disturbs least.
"""

import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Annotated, NamedTuple

import numpy as np

from benchmarks.measure import installed, machine, recorded, table
from litebert.cli.command import command_of

ROOT = Path(__file__).parents[2]
MODEL = Path("src/litebert/model")
OURS = "litebert serve"
ENGINES = ("transformers", "onnxruntime", "openvino")
PATHS = {"": "/v1/embed", ", padded batches": "/v1/embed-together"}
"""A rival's routes, by the suffix of its name."""


class Load(NamedTuple):
    """A number of clients, each of which sends its next request as soon as it is
    answered.
    """

    name: str
    texts: Sequence[str]
    clients: int


class Measured(NamedTuple):
    cpu_ms: float
    per_second: float
    p50_ms: float
    p99_ms: float


def loads(requests: int) -> list[Load]:
    """Return the loads: mixed lengths for many clients, one short text for one
    client.
    """
    words = " ".join(
        path.read_text("utf-8") for path in sorted(ROOT.glob("docs/*.md"))
    ).split()
    draws = np.random.default_rng(7)
    lengths = np.clip(np.exp(draws.normal(3.3, 1.0, requests)), 3, 350).astype(int)
    starts = draws.integers(0, len(words) - 400, requests)
    mixed = [
        " ".join(words[start : start + length])
        for start, length in zip(starts, lengths, strict=True)
    ]
    short = ["The cat sat on the mat near the old door."] * (requests // 2)
    return [
        Load("mixed lengths, 16 clients", mixed, 16),
        Load("one short text", short, 1),
    ]


def measure(
    load: Load,
    port: int,
    path: str = "/v1/embed",
    cpu_ms: Callable[[], float] = lambda: 0.0,
) -> Measured:
    own = threading.local()
    links = list[http.client.HTTPConnection]()

    def ask(text: str) -> float:
        if not hasattr(own, "link"):
            own.link = http.client.HTTPConnection("127.0.0.1", port)
            links.append(own.link)
        started = time.perf_counter()
        post(own.link, path, [text])
        return time.perf_counter() - started

    before = cpu_ms()
    started = time.perf_counter()
    with ThreadPoolExecutor(load.clients) as pool:
        times = list(pool.map(ask, load.texts))
    seconds = time.perf_counter() - started
    spent = cpu_ms() - before
    for link in links:
        link.close()
    p50, p99 = np.percentile(times, [50, 99]) * 1_000
    return Measured(spent / len(times), len(times) / seconds, float(p50), float(p99))


def post(
    link: http.client.HTTPConnection, path: str, texts: Sequence[str]
) -> list[list[float]]:
    link.request("POST", path, body_of(texts), {"Content-Type": "application/json"})
    answer = link.getresponse()
    found = json.loads(answer.read())
    assert answer.status == 200, found
    return found["result"]


def body_of(texts: Sequence[str]) -> str:
    """Return a request for plain means, whatever a model's own settings are; the rivals
    give nothing else.
    """
    return json.dumps({"texts": list(texts), "pooling": "mean", "normalize": False})


def cpu_ms(process: int) -> float:
    """Return the CPU time of a process and of all that it started (Linux).

    Threads that have ended count; the figure moves in steps of 10 ms.
    """
    words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    own = (int(words[11]) + int(words[12])) * 1_000 / os.sysconf("SC_CLK_TCK")
    return own + sum(map(cpu_ms, children_of(process)))


def children_of(process: int) -> list[int]:
    """Return the processes that a process has started; they are listed under the thread
    that did.
    """
    threads = Path(f"/proc/{process}/task").iterdir()
    return [
        int(child)
        for thread in threads
        for child in (thread / "children").read_text().split()
    ]


@contextmanager
def server(command: Sequence[str], port: int, core: int) -> Iterator[int]:
    """Run a server on one core; give its process number once it answers."""
    pin = lambda: os.sched_setaffinity(0, {core})  # noqa: E731
    process = subprocess.Popen(
        [*command, "--port", str(port)], preexec_fn=pin, cwd=ROOT
    )
    try:
        for _ in range(1_200):
            try:
                measure(Load("", ("warm up",), 1), port)
                break
            except (ConnectionError, AssertionError):
                time.sleep(0.1)
        yield process.pid
    finally:
        process.terminate()
        process.wait(30)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def main(
    *,
    model: Path = MODEL,
    rounds: int = 5,
    requests: int = 200,
    load: Annotated[str, "Only the loads whose names contain this."] = "",
    core: int = min(os.sched_getaffinity(0)),
    bf16: Annotated[
        bool, "Run litebert in bf16, and add the rivals that support it."
    ] = False,
    record: Annotated[
        Path | None, "Replace the last run in this Markdown file."
    ] = None,
) -> None:
    """Measure all servers in turns; print the page of results."""
    rival = [sys.executable, "-m", "benchmarks.serving.rival", str(model), "--engine"]
    commands = {
        OURS: [sys.executable, "-m", "litebert", "serve", str(model), "--threads", "1"]
    }
    commands |= {engine: [*rival, engine] for engine in ENGINES if installed(engine)}
    if bf16:
        commands[OURS] += ["--precision", "bf16"]
        commands["openvino in bf16"] = [*rival, "openvino", "--precision", "bf16"]
    found: dict[str, dict[str, list[Measured]]] = {}
    with ExitStack() as stack:
        routes = {}
        for name, command in commands.items():
            port = free_port()
            process = stack.enter_context(server(command, port, core))
            for suffix, path in PATHS.items():
                if not (suffix and name == OURS):
                    routes[f"{name}{suffix}"] = (
                        port,
                        path,
                        lambda process=process: cpu_ms(process),
                    )
        texts = ["The cat sat on the mat.", "A longer text " * 20]
        links = [
            (http.client.HTTPConnection("127.0.0.1", port), path)
            for port, path, _ in routes.values()
        ]
        first, *others = (np.array(post(link, path, texts)) for link, path in links)
        furthest = max(
            (float(np.abs(first - other).max()) for other in others), default=0.0
        )
        assert furthest < (0.1 if bf16 else 1e-3), (
            f"same weights give other vectors: {furthest}"
        )
        for link, _ in links:
            link.close()
        for number in range(rounds + 1):
            for each in (each for each in loads(requests) if load in each.name):
                for name, route in routes.items():
                    measured = measure(each, *route)
                    if number:  # the first round warms up
                        found.setdefault(each.name, {}).setdefault(name, []).append(
                            measured
                        )
    precision = (
        "litebert in bf16, the others in float32 unless stated" if bf16 else "float32"
    )
    text = (
        f"`python -m benchmarks.serving.run --rounds {rounds} --requests"
        f" {requests}{' --bf16' * bf16}`, model {model}, {precision}, one core for"
        f" every server, {rounds} rounds of {requests} requests ({requests // 2} of one"
        " short text) in turns, closed loop; medians over the rounds. Ratios are of"
        " litebert to the other within a round: throughput above 1 and waiting times"
        f" below 1 are in favor of litebert. Vectors differ by {furthest:.0e} at most."
    )
    pages = (page(name, each) for name, each in found.items())
    results = "\n\n".join(["## The last run", text, machine(), *pages]) + "\n"
    print(results)
    if record:
        record.write_text(recorded(record.read_text("utf-8"), results))


def page(load: str, found: dict[str, list[Measured]]) -> str:
    lines = []
    for name, theirs in found.items():
        cpu, rate, p50, p99 = ([one[i] for one in theirs] for i in range(4))
        cells = [
            name,
            f"{median(cpu):.1f} ({min(cpu):.1f} to {max(cpu):.1f})",
            f"{median(rate):.0f}",
        ]
        cells += [f"{median(p50):.1f}", f"{median(p99):.1f}"]
        ratios = [
            [
                a[i] / b[i] if b[i] else 0.0
                for a, b in zip(found[OURS], theirs, strict=True)
            ]
            for i in range(4)
        ]
        shown = [f"{median(each):.2f}" for each in ratios]
        shown[1] += f" ({min(ratios[1]):.2f} to {max(ratios[1]):.2f})"
        lines.append([*cells, *(["", "", "", ""] if name == OURS else shown)])
    header = [
        "server",
        "CPU ms a request (range)",
        "requests/s",
        "p50 ms",
        "p99 ms",
        "CPU ratio",
    ]
    header += ["throughput ratio (range)", "p50 ratio", "p99 ratio"]
    return f"### {load[0].upper()}{load[1:]}\n\n{table(header, lines)}"


if __name__ == "__main__":
    command_of(main, "run")()
