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
from itertools import cycle, islice
from pathlib import Path
from typing import TypeAlias

import numpy as np

from benchmarks.measure import memory
from benchmarks.serving.run import (
    MODEL,
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
    reader, writer = (
        await asyncio.open_connection("127.0.0.1", port) if is_new else idle.pop()
    )
    head = f"POST /v1/embed HTTP/1.1\r\nHost: {port}\r\nContent-Length: {len(body)}\r\n"
    writer.write(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
    try:
        headers = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    except (asyncio.IncompleteReadError, ConnectionResetError) as error:
        if is_new or getattr(error, "partial", b""):
            raise
        return await ask(port, idle, body)
    await reader.readexactly(int(headers.partition("content-length:")[2].split()[0]))
    idle.append((reader, writer))
    return int(headers.split()[1]), "retry-after:" in headers


async def arrivals(
    port: int, texts: Iterable[str], *, rate: float, seconds: float
) -> list[tuple[int, float, bool]]:
    """Send requests at a fixed rate; return status, seconds, and whether Retry-After
    was set.
    """
    found = []
    idle = list[Connection]()
    bodies = [body_of([text]).encode() for text in texts]

    async def timed(body: bytes) -> None:
        started = time.perf_counter()
        status, has_retry = await ask(port, idle, body)
        found.append((status, time.perf_counter() - started, has_retry))

    started = time.perf_counter()
    tasks = []
    for number, body in enumerate(islice(cycle(bodies), int(rate * seconds))):
        await asyncio.sleep(max(0.0, started + number / rate - time.perf_counter()))
        tasks.append(asyncio.create_task(timed(body)))
    late = time.perf_counter() - started - seconds
    await asyncio.gather(*tasks)
    for _, writer in idle:
        writer.close()
    assert late < 0.1 * seconds, (
        f"the load itself is {late:.1f} s late; it needs a free core"
    )
    return found


def megabytes(process: int) -> float:
    return memory(process)["Rss"] + sum(map(megabytes, children_of(process)))


def milliseconds(times: Sequence[float]) -> str:
    if not times:
        return "none"
    p50, p99 = np.percentile(times, [50, 99]) * 1_000
    return f"p50 {p50:.1f} ms, p99 {p99:.1f} ms"


def main(*, model: Path = MODEL, seconds: float = 60, times: float = 5) -> None:
    """Print what was measured."""
    first, *others = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {others[0] if others else first})
    port = free_port()
    command = [sys.executable, "-m", "litebert", "serve", str(model), "--threads", "1"]
    mixed, short = loads(400)
    with server(command, port, first) as process:
        measure(mixed, port)
        closed = measure(mixed, port)
        alone = measure(short, port)
        print(
            f"unloaded: one short text p50 {alone.p50_ms:.1f} ms, p99"
            f" {alone.p99_ms:.1f} ms"
        )
        print(f"capacity: {closed.per_second:.0f} requests/s, 16 clients")
        print(f"          p50 {closed.p50_ms:.1f} ms, p99 {closed.p99_ms:.1f} ms")
        before = megabytes(process)
        rate = times * closed.per_second
        found = asyncio.run(arrivals(port, mixed.texts, rate=rate, seconds=seconds))
        ended = time.perf_counter()
        measure(short, port)
        recovered = time.perf_counter() - ended
        answered, refused = (
            [wait for status, wait, _ in found if status == each]
            for each in (ANSWERED, REFUSED)
        )
        told = sum(retry for status, _, retry in found if status == REFUSED)
        goodput = len(answered) / seconds
        print(
            f"load:     {len(found)} requests in {seconds:.0f} s, {rate:.0f} a second"
        )
        print(
            f"answered: {len(answered)}, {goodput:.0f} a second,"
            f" {goodput / closed.per_second:.0%} of capacity"
        )
        print(f"          {milliseconds(answered)}")
        print(
            f"refused:  {len(refused)}, {told} with Retry-After,"
            f" {milliseconds(refused)}"
        )
        print(f"other:    {len(found) - len(answered) - len(refused)}")
        print(f"memory:   {before:.0f} MB before, {megabytes(process):.0f} MB after")
        print(
            f"after:    {len(short.texts)} short texts one after another in"
            f" {recovered:.1f} s"
        )


if __name__ == "__main__":
    command_of(main, "overload")()
