"""The server's side of a model process: start it, send requests, notice when it dies."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import socket
from multiprocessing.process import BaseProcess
from typing import cast

from litebert.errors import DamagedError, LitebertError, ResourceError
from litebert.files import Json
from litebert.serve.entry import ModelSource, enter
from litebert.serve.frames import frame, receive_frame
from litebert.serve.limits import BATCH_SECONDS

START_SECONDS = 300


class ProcessDiedError(Exception):
    """The model process ended before it answered."""


class Link:
    """A running model process with its description of its model."""

    def __init__(self, process: BaseProcess, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.process = process
        self.facts: dict[str, Json] = {}
        self.closed = asyncio.Event()
        self._reader, self._writer = reader, writer
        self._answer: asyncio.Future[Json] | None = None
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, source: ModelSource) -> Link:
        """Start a process, and wait until its model is loaded and tested.

        Raises:
            LitebertError: The model cannot be used.
            ProcessDiedError: The process ended, or took too long.
        """
        ours, theirs = socket.socketpair()
        process = await asyncio.to_thread(_spawn, theirs, source)
        reader, writer = await asyncio.open_connection(sock=ours)
        link = cls(process, reader, writer)
        try:
            async with asyncio.timeout(START_SECONDS):
                message = await receive_frame(reader)
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError) as error:
            await link.stop()
            raise ProcessDiedError("the model process ended while it loaded") from error
        assert isinstance(message, dict)
        if "failed" in message:
            await link.stop()
            raise _as_error(cast(dict[str, Json], message["failed"]))
        link.facts = cast(dict[str, Json], message["ready"])
        link._reading = asyncio.create_task(link._read())
        return link

    async def ask(self, requests: list[Json]) -> list[Json]:
        """Send one batch and wait for its answers.

        Raises:
            ProcessDiedError: The process ended, or took too long and was killed.
        """
        if self.closed.is_set():
            raise ProcessDiedError
        self._answer = asyncio.get_running_loop().create_future()
        self._writer.write(frame(requests))
        try:
            async with asyncio.timeout(BATCH_SECONDS):
                return cast(list[Json], await self._answer)
        except TimeoutError as error:
            self.process.kill()
            raise ProcessDiedError from error

    async def stop(self) -> None:
        """Close the connection, which ends the process; kill the process if it does not."""
        if self._reading is not None:
            self._reading.cancel()
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()
        await asyncio.to_thread(_end, self.process)

    async def _read(self) -> None:
        try:
            while True:
                answer = await receive_frame(self._reader)
                if self._answer is not None and not self._answer.done():
                    self._answer.set_result(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            if self._answer is not None and not self._answer.done():
                self._answer.set_exception(ProcessDiedError())
        finally:
            self.closed.set()


def _as_error(sent: dict[str, Json]) -> LitebertError:
    """Return the error that the process met while it loaded."""
    kinds = {kind.exit_code: kind for kind in (LitebertError, DamagedError, ResourceError)}
    fields = {name: str(sent[name]) for name in ("received", "expected", "next")}
    kind = kinds.get(cast(int, sent["exit_code"]), LitebertError)
    return kind(str(sent["code"]), str(sent["what"]), **fields)


def _spawn(theirs: socket.socket, source: ModelSource) -> BaseProcess:
    """Fork from a process that has already imported torch, so a restart takes under a second."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["litebert.serve.model_process"])
    process = context.Process(target=enter, args=(theirs, source), daemon=True)
    with theirs:
        process.start()
    return process


def _end(process: BaseProcess) -> None:
    process.join(2)
    if process.is_alive():
        process.kill()
        process.join(2)
    if not process.is_alive():
        process.close()
