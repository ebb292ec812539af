"""The shell as users see it: commands run in this process, or in a child process where
signals and pipes matter.
"""

import contextlib
import io
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click
import jsonschema
import pytest

COMMAND = [sys.executable, "-m", "litebert"]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
QUICK = (
    "train.steps=2",
    "train.batch_size=4",
    "train.loader_workers=0",
    "optim.warmup_steps=1",
    "--quiet",
)
"""Settings of the shortest possible training."""


@dataclass(frozen=True)
class Done:
    """The result of a command: its exit code and what it printed."""

    code: int
    stdout: str
    stderr: str

    @property
    def ok(self) -> "Done":
        assert self.code == 0, self
        return self

    @property
    def json(self) -> object:
        return json.loads(self.stdout)

    @property
    def rows(self) -> list[dict]:
        return [json.loads(line) for line in self.stdout.splitlines()]


def litebert(
    *words: object, stdin: bytes | str | None = b"", cwd: Path | None = None
) -> Done:
    """Run a command in this process, through the entry point of the shell's
    `litebert`.
    """
    from litebert.cli import main

    typed = stdin.encode() if isinstance(stdin, str) else stdin
    out, err = (
        io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2)
    )
    own = (sys.argv, sys.stdin)
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    code: object = 0
    try:
        sys.argv = ["litebert", *map(str, words)]
        sys.stdin = None if typed is None else io.TextIOWrapper(io.BytesIO(typed))
        with (
            contextlib.chdir(cwd or "."),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            main()
    except SystemExit as stopped:
        code = stopped.code or 0
    finally:
        sys.argv, sys.stdin = own
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert isinstance(code, int)
    shown = [stream.buffer.getvalue().decode() for stream in (out, err)]
    return Done(code, *shown)


def interrupted(*words: object, once: Path, size: int = 0, **options: object) -> Done:
    """Run a command in this process, and send Ctrl-C once a file is larger than
    `size`.
    """
    is_over = threading.Event()
    was_sent = threading.Event()

    def wait() -> None:
        while not is_over.wait(0.002):
            if once.exists() and (once.is_dir() or once.stat().st_size > size):
                was_sent.set()
                os.kill(os.getpid(), signal.SIGINT)
                return

    waiter = threading.Thread(target=wait)
    waiter.start()
    try:
        done = litebert(*words, **options)
    finally:
        is_over.set()
        waiter.join()
    assert was_sent.is_set(), done
    return done


def refusal(done: Done) -> dict[str, str]:
    """Return the parts of the error that a command ended with; assert that it is the
    only one and no traceback.
    """
    stderr = done.stderr
    assert "Traceback" not in stderr, stderr
    lines = stderr.splitlines()
    (start,) = [
        number for number, line in enumerate(lines) if line.startswith("LB-")
    ] or [None]
    assert start is not None, f"no error in: {stderr!r}"
    code, _, what = lines[start].partition(": ")
    parts = {"code": code, "what": what}
    for line in lines[start + 1 :]:
        name, colon, text = line.strip().partition(":")
        if colon and name in ("received", "expected", "next"):
            parts[name] = text.strip()
    return parts


def assert_error(done: Done, code: int, *words: str) -> dict[str, str]:
    """Assert that a command ended with one error that contains these words and names a
    next step.
    """
    parts = refusal(done)
    assert done.code == code, done
    whole = done.stderr.lower()
    missing = [word for word in words if word.lower() not in whole]
    assert not missing, (missing, done.stderr)
    assert parts["what"] and parts.get("next"), done.stderr
    return parts


def near(value: object, rel: float = 1e-4, abs: float = 1e-5) -> object:
    """Compare numbers approximately, all else exactly: in a batch, a row's numbers
    differ in the last bits.
    """
    if isinstance(value, float):
        return pytest.approx(value, rel=rel, abs=abs)
    if isinstance(value, list):
        return [near(item, rel, abs) for item in value]
    if isinstance(value, dict):
        return {name: near(item, rel, abs) for name, item in value.items()}
    return value


def leaves(
    command: click.Command | None = None, path: tuple[str, ...] = ()
) -> dict[str, click.Command]:
    """Return every command that is not a group, by its words."""
    from litebert.cli import cli

    command = command or cli
    if not isinstance(command, click.Group):
        return {" ".join(path): command}
    context = click.Context(command)
    below = (
        (name, command.get_command(context, name))
        for name in command.list_commands(context)
    )
    return {
        leaf: value
        for name, member in below
        for leaf, value in leaves(member, (*path, name)).items()
    }


def closed(schema: object) -> object:
    """Return a copy of a schema that allows only the fields it names."""
    if isinstance(schema, list):
        return [closed(member) for member in schema]
    if not isinstance(schema, dict):
        return schema
    fields = {name: closed(member) for name, member in schema.items()}
    return (
        {"additionalProperties": False, **fields}
        if "properties" in schema and "$ref" not in schema
        else fields
    )


def assert_matches_schema(name: str, value: object) -> None:
    jsonschema.validate(value, closed(litebert("help", "--schema", *name.split()).json))


def story(number: int) -> str:
    """Return a document of four sentences, one per line."""
    who = ["Anna", "Bert", "Clara", "David"][number % 4]
    where = ["house", "garden", "market", "river"][number // 4 % 4]
    return (
        f"In the morning {who} walked to the {where}.\nThere {who} found a red ball"
        f" under a tree.\nNobody at the {where} knew where it came from.\nAt night the"
        f" {where} was quiet again.\n"
    )


TEXTS = [
    f"{who} walked to the {where}."
    for who in ("Anna", "Bert")
    for where in ("house", "garden", "market")
]

TABLES = {
    "reviews.csv": (
        "text,label\n"
        + "".join(
            f"Anna walked {n} times.,{'good' if n % 2 else 'bad'}\n" for n in range(20)
        )
    ),
    "stars.csv": (
        "text,score\n" + "".join(f"Anna walked {n} times.,{n / 7}\n" for n in range(20))
    ),
    "tags.conll": "Anna B-PER\nwalked O\nhome O\n\n" * 20,
    "choices.csv": (
        "question,context,optionA,optionB,answer\n"
        + "".join(f"Who {n}?,Ada left.,Ada,Bert,{n % 2}\n" for n in range(20))
    ),
    "tickets.csv": (
        "id,body,dept\n"
        + "".join(
            f"{n},Anna walked {n} times to the market.,{'in' if n % 2 else 'out'}\n"
            for n in range(20)
        )
    ),
    "spans.jsonl": "".join(
        json.dumps(
            {
                "question": f"Who left {n}?",
                "context": "Ada left at noon.",
                "answer": "Ada",
                "start": 0,
            }
        )
        + "\n"
        for n in range(20)
    ),
}
"""Examples for each kind of task; the run trained on a table is named after its file.
"""


def tree(folder: Path) -> dict[str, bytes]:
    """Read all files of a folder, hidden ones too."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


DAMAGE: dict[str, Callable[[bytes], bytes | None]] = {
    "cut": lambda data: data[:-4],
    "flipped": lambda data: data[:-3] + bytes([data[-3] ^ 1]) + data[-2:],
    "emptied": lambda _: b"",
    "removed": lambda _: None,
    "another": lambda data: data.replace(b'"documents": ', b'"documents": 1'),
}


def damage(path: Path, how: str) -> None:
    """Replace a file by a damaged one, or remove it; what has mapped the old one keeps
    its bytes.
    """
    left = DAMAGE[how](path.read_bytes())
    path.unlink()
    if left is not None:
        path.write_bytes(left)
