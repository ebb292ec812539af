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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import installed, machine, record_section, table
from litebert.cli.command import command_of

ROOT = Path(__file__).parents[2]
MODEL = Path("src/litebert/model")
OURS = "litebert serve"
ENGINES = ("transformers", "onnxruntime", "openvino")
ALONE = "/v1/embed"
TOGETHER = "/v1/embed-together"  # of a rival: padded batches of waiting requests


class Load(NamedTuple):
    """A number of clients, each of which sends its next request as soon as it is
    answered.
    """

    name: str
    texts: Sequence[str]
    clients: int


class Measured(NamedTuple):
    """What a server did with a load; the CPU time is that of a request."""

    cpu_ms: float
    per_second: float
    p50_ms: float
    p99_ms: float


class Route(NamedTuple):
    """Where a server answers, and the process of which the CPU time counts."""

    port: int
    path: str
    process: int


Rounds: TypeAlias = dict[str, list[Measured]]
"""What each server did in each round, by its name."""


# ---- loads ---------------------------------------------------------------------------


def loads(requests: int) -> list[Load]:
    """Return the loads: mixed lengths for many clients, one short text for one
    client.
    """
    pages = [path.read_text("utf-8") for path in sorted(ROOT.glob("docs/*.md"))]
    words = " ".join(pages).split()
    draws = np.random.default_rng(7)
    lengths = np.clip(np.exp(draws.normal(3.3, 1.0, requests)), 3, 350).astype(int)
    starts = draws.integers(0, len(words) - 400, requests)
    mixed = list[str]()
    for start, length in zip(starts, lengths, strict=True):
        mixed.append(" ".join(words[start : start + length]))
    short = ["The cat sat on the mat near the old door."] * (requests // 2)
    return [
        Load("mixed lengths, 16 clients", mixed, 16),
        Load("one short text", short, 1),
    ]


def measure(
    load: Load,
    port: int,
    path: str = ALONE,
    cpu_ms: Callable[[], float] = lambda: 0.0,
) -> Measured:
    """Put a load on a server; `cpu_ms` gives the CPU time that it has used so far."""
    client = threading.local()  # a connection for each thread
    links = list[http.client.HTTPConnection]()

    def ask(text: str) -> float:
        if not hasattr(client, "link"):
            client.link = http.client.HTTPConnection("127.0.0.1", port)
            links.append(client.link)
        started = time.perf_counter()
        post(client.link, path, [text])
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
    response = link.getresponse()
    answer = json.loads(response.read())
    assert response.status == 200, answer
    return answer["result"]


def body_of(texts: Sequence[str]) -> str:
    """Return a request for plain means, whatever a model's own settings are; the rivals
    give nothing else.
    """
    return json.dumps({"texts": list(texts), "pooling": "mean", "normalize": False})


def cpu_ms(process: int) -> float:
    """Return the CPU time of a process and of all that it started (Linux).

    Threads that have ended count; the figure moves in steps of 10 ms.
    """
    _, _, behind_name = Path(f"/proc/{process}/stat").read_text().rpartition(")")
    words = behind_name.split()
    ticks = int(words[11]) + int(words[12])  # in user mode, and in the kernel
    of_process = ticks * 1_000 / os.sysconf("SC_CLK_TCK")
    return of_process + sum(map(cpu_ms, children_of(process)))


def children_of(process: int) -> list[int]:
    """Return the processes that a process has started; they are listed under the thread
    that did.
    """
    children = list[int]()
    for thread in Path(f"/proc/{process}/task").iterdir():
        children += map(int, (thread / "children").read_text().split())
    return children


# ---- servers -------------------------------------------------------------------------


@contextmanager
def server(command: Sequence[str], port: int, core: int) -> Iterator[int]:
    """Run a server on one core; give its process number once it answers."""
    process = subprocess.Popen(
        [*command, "--port", str(port)],
        preexec_fn=partial(os.sched_setaffinity, 0, {core}),
        cwd=ROOT,
    )
    try:
        _wait_until_ready(port)
        yield process.pid
    finally:
        process.terminate()
        process.wait(30)


def _wait_until_ready(port: int) -> None:
    """Wait for the first answer, for two minutes at most."""
    for _ in range(1_200):
        try:
            measure(Load("", ("warm up",), 1), port)
        except (ConnectionError, AssertionError):
            time.sleep(0.1)
        else:
            return


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


# ---- the rounds ----------------------------------------------------------------------


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
    chosen = [one for one in loads(requests) if load in one.name]
    measured: dict[str, Rounds] = {one.name: {} for one in chosen}
    with ExitStack() as stack:
        routes = start_servers(stack, commands_of(model, bf16=bf16), core)
        furthest = largest_difference(routes.values())
        limit = 0.1 if bf16 else 1e-3
        if furthest >= limit:
            raise SystemExit(f"same weights give other vectors: {furthest}")
        for number in range(rounds + 1):
            for one in chosen:
                for name, route in routes.items():
                    cpu_time = partial(cpu_ms, route.process)
                    result = measure(one, route.port, route.path, cpu_time)
                    if number > 0:  # the first round warms up
                        measured[one.name].setdefault(name, []).append(result)
    options = f"--rounds {rounds} --requests {requests}"
    precision = "float32"
    if bf16:
        options += " --bf16"
        precision = "litebert in bf16, the others in float32 unless stated"
    text = (
        f"`python -m benchmarks.serving.run {options}`, model {model}, {precision}, one"
        f" core for every server, {rounds} rounds of {requests} requests"
        f" ({requests // 2} of one short text) in turns, closed loop; medians over the"
        " rounds. Ratios are of litebert to the other within a round: throughput above"
        " 1 and waiting times below 1 are in favor of litebert. Vectors differ by"
        f" {furthest:.0e} at most."
    )
    pages = [page(name, servers) for name, servers in measured.items()]
    results = "\n\n".join(["## The last run", text, machine(), *pages]) + "\n"
    print(results)
    if record:
        record_section(record, results)


def commands_of(model: Path, *, bf16: bool) -> dict[str, list[str]]:
    """Return the command that starts each server, without its port."""
    python = [sys.executable, "-m"]
    ours = [*python, "litebert", "serve", str(model), "--threads", "1"]
    rival = [*python, "benchmarks.serving.rival", str(model), "--engine"]
    commands = {OURS: ours}
    for engine in ENGINES:
        if installed(engine):
            commands[engine] = [*rival, engine]
    if bf16:
        commands[OURS] = [*ours, "--precision", "bf16"]
        commands["openvino in bf16"] = [*rival, "openvino", "--precision", "bf16"]
    return commands


def start_servers(
    stack: ExitStack, commands: Mapping[str, Sequence[str]], core: int
) -> dict[str, Route]:
    """Start the servers; return their routes, of which a rival has two."""
    routes = dict[str, Route]()
    for name, command in commands.items():
        port = free_port()
        process = stack.enter_context(server(command, port, core))
        routes[name] = Route(port, ALONE, process)
        if name != OURS:
            routes[f"{name}, padded batches"] = Route(port, TOGETHER, process)
    return routes


def largest_difference(routes: Iterable[Route]) -> float:
    """Ask every server for the same vectors; return how far any is from the first."""
    texts = ["The cat sat on the mat.", "A longer text " * 20]
    vectors = list[NDArray[np.float64]]()  # (texts, hidden) of each server
    for route in routes:
        link = http.client.HTTPConnection("127.0.0.1", route.port)
        vectors.append(np.array(post(link, route.path, texts)))
        link.close()
    return float(np.abs(np.array(vectors) - vectors[0]).max())


# ---- the page ------------------------------------------------------------------------

HEADER = (
    "server",
    "CPU ms a request (range)",
    "requests/s",
    "p50 ms",
    "p99 ms",
    "CPU ratio",
    "throughput ratio (range)",
    "p50 ratio",
    "p99 ratio",
)


def page(load: str, servers: Rounds) -> str:
    """Return a table with a line for each server."""
    lines = list[list[str]]()
    for name, rounds in servers.items():
        cpu = [measured.cpu_ms for measured in rounds]
        cells = [
            name,
            f"{median(cpu):.1f} ({min(cpu):.1f} to {max(cpu):.1f})",
            f"{median(measured.per_second for measured in rounds):.0f}",
            f"{median(measured.p50_ms for measured in rounds):.1f}",
            f"{median(measured.p99_ms for measured in rounds):.1f}",
        ]
        ratios = [""] * 4 if name == OURS else ratio_cells(servers[OURS], rounds)
        lines.append(cells + ratios)
    title = load[0].upper() + load[1:]
    return f"### {title}\n\n{table(HEADER, lines)}"


def ratio_cells(ours: Sequence[Measured], theirs: Sequence[Measured]) -> list[str]:
    """Return the medians of the rounds' ratios of litebert to a rival."""
    cells = list[str]()
    for field in Measured._fields:
        ratios = list[float]()
        for our_round, their_round in zip(ours, theirs, strict=True):
            our_value = getattr(our_round, field)
            their_value = getattr(their_round, field)
            # CPU time moves in steps: it may be 0
            ratios.append(our_value / their_value if their_value else 0.0)
        cell = f"{median(ratios):.2f}"
        if field == "per_second":
            cell += f" ({min(ratios):.2f} to {max(ratios):.2f})"
        cells.append(cell)
    return cells


if __name__ == "__main__":
    command_of(main, "run")()
