"""Run commands in one process and note what each of them reaches and writes.

Used as a program: `python watched.py LOG COMMANDS`, where COMMANDS is a JSON file of
[name, words] and LOG gets one JSON object a line: the command, the kind of event and its
address or path. Python's audit hook sees what Python does, not what native code does.
"""

import ctypes
import json
import os
import signal
import socket
import struct
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

WRITING_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# event -> the number of the argument that names what is reached or written
REACHED = {
    "socket.connect": 1,
    "socket.sendto": 1,
    "socket.getaddrinfo": 0,
    "socket.gethostbyname": 0,
    "urllib.Request": 0,
}
WRITTEN = {
    "os.mkdir": 0,
    "os.rename": 1,
    "os.link": 1,
    "os.symlink": 1,
    "os.remove": 0,
    "os.rmdir": 0,
    "os.truncate": 0,
    "sqlite3.connect": 0,
}


class Watch:
    """An audit hook that writes a line for each event of the current command."""

    def __init__(self, log: Path) -> None:
        self.log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.command = "start"

    def note(self, kind: str, what: object) -> None:
        """Write one line."""
        name = os.fsdecode(what) if isinstance(what, bytes | os.PathLike) else str(what)
        line = json.dumps({"command": self.command, "kind": kind, "what": name})
        os.write(self.log, f"{line}\n".encode())

    def hook(self, event: str, arguments: tuple[object, ...]) -> None:
        """Note an event that reaches something or writes a file."""
        if event in REACHED:
            self.note("reached", arguments[REACHED[event]])
        elif event in WRITTEN:
            self.note("written", arguments[WRITTEN[event]])
        elif event == "open":
            path, _, flags = arguments
            # a file that is open already has a number
            if isinstance(path, str | bytes) and int(flags or 0) & WRITING_FLAGS:
                self.note("written", path)


def raise_loopback() -> None:
    """Start the loopback interface, which is down in a new network namespace."""
    request = struct.pack("16sH14s", b"lo", 0x1 | 0x40, b"")  # up and running
    with socket.socket() as any_socket, suppress(ImportError, OSError):
        from fcntl import ioctl

        ioctl(any_socket, 0x8914, request)


def run(words: list[str]) -> int:
    """Run a command through the entry point of the shell's `litebert`."""
    from litebert.cli import main

    sys.argv = ["litebert", *words]
    try:
        main()
    except SystemExit as stopped:
        return int(stopped.code or 0)
    return 0


def ask_and_stop(port: int) -> None:
    """Wait until the server of this process is ready, ask for a vector, end the server."""
    root = f"http://127.0.0.1:{port}"
    body = json.dumps({"input": "Anna left.", "model": "base"}).encode()
    headers = {"Content-Type": "application/json"}
    try:
        for _ in range(600):
            with (
                suppress(urllib.error.URLError),
                urllib.request.urlopen(f"{root}/ready"),
            ):
                break
            time.sleep(0.1)
        request = urllib.request.Request(f"{root}/v1/embeddings", body, headers)
        with urllib.request.urlopen(request) as answer:
            assert len(json.load(answer)["data"]) == 1
    finally:
        os.kill(os.getpid(), signal.SIGTERM)


def serve(words: list[str]) -> int:
    """Run `litebert serve` on a free port until it has answered a request."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    client = threading.Thread(target=ask_and_stop, args=(port,))
    client.start()
    code = run([*words, "--port", str(port)])
    client.join()
    return code


def misbehave(words: list[str]) -> int:
    """Look a name up and write into the home, through Python and through the C library."""
    with suppress(OSError):
        socket.getaddrinfo("events.example.invalid", 443)
    (Path.home() / "python").write_text("an id")
    if words:
        libc = ctypes.CDLL(None)
        libc.open(os.fsencode(Path.home() / "native"), os.O_WRONLY | os.O_CREAT, 0o600)
        # 192.0.2.1 belongs to nobody (RFC 5737); the descriptor is not blocking
        descriptor = libc.socket(socket.AF_INET, socket.SOCK_DGRAM, 0)
        host = socket.inet_aton("192.0.2.1")
        address = struct.pack("=HH4s8x", socket.AF_INET, socket.htons(53), host)
        libc.connect(descriptor, address, len(address))
    return 0


if __name__ == "__main__":
    raise_loopback()
    watch = Watch(Path(sys.argv[1]))
    commands = json.loads(Path(sys.argv[2]).read_text("utf-8"))
    sys.addaudithook(watch.hook)

    runners = {"serve": serve, "misbehave": misbehave}
    for name, words in commands:
        watch.command = name
        code = runners.get(name, run)(words)
        watch.note("code", code)
