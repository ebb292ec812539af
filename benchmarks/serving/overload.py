"""litebert serve under five times the load that it can answer: what is refused, and how
fast.

`python -m benchmarks.serving.overload [--model FOLDER] [--seconds 60] [--times 5]`

First the capacity is measured with clients that wait for their answers, then requests
arrive at a fixed rate whether or not earlier ones are answered (an open loop), then a
single client again. The server has one core, the load another.
"""

import asyncio
import os
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import TypeAlias

import numpy as np

from benchmarks.measure import memory
from benchmarks.serving.run import (
    MODEL,
    Measured,
    body_of,
    children_of,
    free_port,
    loads,
    measure,
    server,
)
from litebert.cli.command import command_of

ANSWERED = 200
REFUSED = 429
Connection: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def ask(port: int, idle: list[Connection], body: bytes) -> tuple[int, bool]:
    """Send one request over an idle connection, or a new one; return its status, and
    whether Retry-After was set.

    An idle connection that the server has closed meanwhile is replaced, as clients do.
    """
    is_new = not idle
    if is_new:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    else:
        reader, writer = idle.pop()
    head = (
        "POST /v1/embed HTTP/1.1\r\n"
        f"Host: {port}\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Content-Type: application/json\r\n"
        "\r\n"
    )
    writer.write(head.encode() + body)
    try:
        headers = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    except (asyncio.IncompleteReadError, ConnectionResetError) as error:
        if is_new or getattr(error, "partial", b""):
            raise
        return await ask(port, idle, body)
    _, _, behind = headers.partition("content-length:")
    await reader.readexactly(int(behind.split()[0]))
    idle.append((reader, writer))
    return int(headers.split()[1]), "retry-after:" in headers


@dataclass(frozen=True)
class Answer:
    """What a request got: the HTTP status, after how many seconds, and whether it was
    told when to try again.
    """

    status: int
    seconds: float
    has_retry_after: bool


async def arrivals(
    port: int, texts: Iterable[str], *, rate: float, seconds: float
) -> list[Answer]:
    """Send requests at a fixed rate, and return all answers."""
    answers = list[Answer]()
    idle = list[Connection]()
    bodies = [body_of([text]).encode() for text in texts]

    async def timed(body: bytes) -> None:
        started = time.perf_counter()
        status, has_retry_after = await ask(port, idle, body)
        answers.append(Answer(status, time.perf_counter() - started, has_retry_after))

    started = time.perf_counter()
    tasks = []
    for number, body in enumerate(islice(cycle(bodies), int(rate * seconds))):
        due = started + number / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(timed(body)))
    late = time.perf_counter() - started - seconds
    await asyncio.gather(*tasks)
    for _, writer in idle:
        writer.close()
    if late >= 0.1 * seconds:
        raise SystemExit(f"the load itself is {late:.1f} s late; it needs a free core")
    return answers


def megabytes(process: int) -> float:
    """Return the resident memory of a process and of all that it started."""
    return memory(process)["Rss"] + sum(map(megabytes, children_of(process)))


def milliseconds(times: Sequence[float]) -> str:
    if not times:
        return "none"
    p50, p99 = np.percentile(times, [50, 99]) * 1_000
    return f"p50 {p50:.1f} ms, p99 {p99:.1f} ms"


def main(*, model: Path = MODEL, seconds: float = 60, times: float = 5) -> None:
    """Print what was measured."""
    core = leave_a_core_to_the_server()
    port = free_port()
    command = [sys.executable, "-m", "litebert", "serve", str(model), "--threads", "1"]
    mixed, short = loads(400)
    with server(command, port, core) as process:
        measure(mixed, port)  # warms up
        closed = measure(mixed, port)
        alone = measure(short, port)
        _print_unloaded(closed, alone)
        before = megabytes(process)
        rate = times * closed.per_second
        answers = asyncio.run(arrivals(port, mixed.texts, rate=rate, seconds=seconds))
        ended = time.perf_counter()
        measure(short, port)
        recovered = time.perf_counter() - ended
        _print_load(answers, rate, seconds, capacity=closed.per_second)
        print(f"memory:   {before:.0f} MB before, {megabytes(process):.0f} MB after")
        number = len(short.texts)
        print(f"after:    {number} short texts one after another in {recovered:.1f} s")


def leave_a_core_to_the_server() -> int:
    """Move this process to another core, if there is one; return that of the server."""
    first, *others = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, others[:1] or [first])
    return first


def _print_unloaded(closed: Measured, alone: Measured) -> None:
    print(
        f"unloaded: one short text p50 {alone.p50_ms:.1f} ms, p99 {alone.p99_ms:.1f} ms"
    )
    print(f"capacity: {closed.per_second:.0f} requests/s, 16 clients")
    print(f"          p50 {closed.p50_ms:.1f} ms, p99 {closed.p99_ms:.1f} ms")


def _print_load(
    answers: Sequence[Answer], rate: float, seconds: float, *, capacity: float
) -> None:
    waits: dict[int, list[float]] = {ANSWERED: [], REFUSED: []}
    for answer in answers:
        waits.setdefault(answer.status, []).append(answer.seconds)
    refusals = [answer for answer in answers if answer.status == REFUSED]
    told = sum(refusal.has_retry_after for refusal in refusals)
    num_answered = len(waits[ANSWERED])
    goodput = num_answered / seconds
    share = goodput / capacity
    print(f"load:     {len(answers)} requests in {seconds:.0f} s, {rate:.0f} a second")
    print(f"answered: {num_answered}, {goodput:.0f} a second, {share:.0%} of capacity")
    print(f"          {milliseconds(waits[ANSWERED])}")
    print(
        f"refused:  {len(refusals)}, {told} with Retry-After,"
        f" {milliseconds(waits[REFUSED])}"
    )
    print(f"other:    {len(answers) - num_answered - len(refusals)}")


if __name__ == "__main__":
    command_of(main, "overload")()
