"""A model's folder, wherever it is: on this disk, or on the Hugging Face Hub."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import IO

from litebert.errors import LitebertError, did_you_mean
from litebert.folder.hub_errors import Failure, explained
from litebert.folder.transfer import Request

MODEL_FILES = (
    "config.json",
    "*.safetensors",
    "*.safetensors.index.json",
    "spiece.model",
    "*.model",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.txt",
    "README.md",
)
PATIENCE = 30.0
"""Seconds without a new byte, or an answer, after which a transfer is given up."""

_PICKLED_FILES = ("pytorch_model*.bin", "pytorch_model.bin.index.json")
_NAME = re.compile(r"([a-zA-Z0-9][\w.-]*/[\w.-]+)(?:@([\w./-]+))?", re.ASCII)


@dataclass(frozen=True)
class HubName:
    """OWNER/NAME of a repository, and perhaps a branch, tag or commit of it.

    >>> HubName.parse("albert/albert-base-v2@main")
    HubName(repository='albert/albert-base-v2', revision='main')
    """

    repository: str
    revision: str | None = None

    @classmethod
    def parse(cls, text: str) -> HubName | None:
        """Read OWNER/NAME or OWNER/NAME@REVISION; None for anything else."""
        match = _NAME.fullmatch(text)
        return cls(match[1], match[2]) if match else None

    @classmethod
    def read(cls, text: str, *, revision: str | None = None) -> HubName:
        """Read a name that can be nothing else, with a revision after it or apart.

        Raises:
            LitebertError: LB-636, this is no name.
        """
        name = cls.parse(text if revision is None else f"{text}@{revision}")
        if name is None:
            raise LitebertError(
                "LB-636",
                "this is no name of a model on the Hub",
                received=text if revision is None else f"{text} at revision {revision}",
                expected="OWNER/NAME, or OWNER/NAME@REVISION",
                next="hf auth whoami tells your OWNER; https://huggingface.co/models has others",
            )
        return name


def locate(name_or_path: str | Path, *, legacy_pickle: bool = False) -> Path:
    """Return a model's folder: the one named, or that of a Hub name, which is fetched if needed.

    A path whose first folder exists is never looked for on the Hub. `legacy_pickle` also accepts
    pytorch_model.bin from repositories that have nothing else.

    Raises:
        LitebertError: LB-620, nothing there; LB-621 to LB-634, it could not be fetched.
    """
    path = Path(name_or_path)
    found = _found(path)
    if found == "a folder":
        return path
    name = HubName.parse(str(name_or_path))
    if name is None or found != "nothing" or Path(name.repository).parent.is_dir():
        raise LitebertError(
            "LB-620",
            f"there is no model folder {str(path)[:200]!r}",
            received=found,
            expected=f"a folder{_similar(path)}; or a name on the Hub, such as "
            "albert/albert-base-v2",
            next=f"ls {_existing_parent(path)}",
        )
    return pull(name, legacy_pickle=legacy_pickle)


def pull(name: HubName, *, legacy_pickle: bool = False, patience: float = PATIENCE) -> Path:
    """Fetch a model into the cache of huggingface_hub, or find it there, and return its folder.

    Raises:
        LitebertError: LB-621 to LB-634; see `locate`.
    """
    folder = _fetch(name, MODEL_FILES, patience)
    if any(folder.glob("*.safetensors")):
        return folder
    if legacy_pickle:
        folder = _fetch(name, (*MODEL_FILES, *_PICKLED_FILES), patience)
        if any(folder.glob("*.bin")):
            return folder
    listed = _run(_request("list", name), patience)["files"]
    names = list(map(str, listed)) if isinstance(listed, list) else []
    pickled = [file for file in names if file.endswith(".bin") and "/" not in file]
    raise LitebertError(
        "LB-634",
        f"{name.repository} has no weights that litebert reads as they are",
        received=", ".join((pickled or names)[:5]) or "no files",
        expected="model.safetensors; pickles (.bin) can carry programs, and are read only when "
        "asked for, by a reader that runs nothing",
        next=f"litebert import huggingface {name.repository} --output FOLDER --legacy-pickle"
        if pickled
        else "choose another model",
    )


def model_files(folder: Path) -> dict[str, Path]:
    """Return the files of a model by name; whatever else lies in its folder is left out."""
    return {
        path.name: path
        for path in sorted(folder.iterdir())
        if path.is_file() and any(fnmatch(path.name, pattern) for pattern in MODEL_FILES)
    }


def require_new(folder: Path) -> None:
    """Refuse to write over what is there.

    Raises:
        LitebertError: LB-638, it is a file, or a folder with something in it.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise LitebertError(
            "LB-638",
            f"{folder} is there already",
            received="a folder with files in it" if folder.is_dir() else "a file",
            expected="a new folder",
            next="choose another --output",
        )


def push(
    name: HubName,
    files: dict[str, Path],
    *,
    texts: dict[str, str],
    private: bool = False,
    message: str = "Upload model",
    patience: float = PATIENCE,
) -> str:
    """Send files, and texts that become files, in one commit; return the commit's address.

    Repository and branch are made where they do not exist. Raises: LitebertError, LB-621 to LB-633.
    """
    request = _request("push", name)
    request["files"] = {path: str(file.resolve()) for path, file in files.items()}
    request["texts"], request["private"], request["message"] = texts, private, message
    return str(_run(request, patience)["url"])


def _fetch(name: HubName, patterns: tuple[str, ...], patience: float) -> Path:
    request = _request("fetch", name)
    request["patterns"] = list(patterns)
    return Path(str(_run(request, patience)["folder"]))


def _request(action: str, name: HubName) -> Request:
    return Request(
        action=action,
        name=name.repository,
        revision=name.revision,
        patterns=[],
        files={},
        texts={},
        private=False,
        message="",
    )


def _run(request: Request, patience: float) -> dict[str, object]:
    """Let another process do a request; stop it when it stops moving."""
    if find_spec("huggingface_hub") is None:
        raise LitebertError(
            "LB-621",
            f"{request['name']} is on the Hub, and huggingface_hub is not installed",
            received="no package huggingface_hub",
            expected="the extra [hub], or a folder on this disk",
            next="pip install 'litebert[hub]'",
        )
    is_watched = sys.stderr is not None and sys.stderr.isatty()
    process = subprocess.Popen(
        # -P: the modules beside that file are no top-level modules.
        [sys.executable, "-P", str(Path(__file__).with_name("transfer.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None if is_watched else subprocess.DEVNULL,
        text=True,
        env=os.environ | {"HF_HUB_DISABLE_TELEMETRY": "1", "PYTHONWARNINGS": "ignore"},
    )
    assert process.stdin is not None and process.stdout is not None
    lines: Queue[str] = Queue()
    reader = Thread(target=_collect, args=(process.stdout, lines), daemon=True)
    reader.start()
    try:
        with suppress(BrokenPipeError), process.stdin:
            process.stdin.write(json.dumps(request))
        return _outcome(lines, request, patience)
    finally:
        process.kill()
        process.wait()
        reader.join()
        process.stdout.close()


def _collect(stream: IO[str], lines: Queue[str]) -> None:
    for line in stream:
        lines.put(line)
    lines.put("")


def _outcome(lines: Queue[str], request: Request, patience: float) -> dict[str, object]:
    """Read what the other process says until it is done, failed, or silent for too long."""
    reached = most = 0.0
    last_words = f"nothing new for {patience:.0f} seconds"
    deadline = time.monotonic() + patience
    while True:
        try:
            line = lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            raise _failed("stalled", last_words, request) from None
        if not line:
            raise _failed("other", "the process that fetches has ended", request)
        message = json.loads(line)
        if "done" in message:
            return dict(message["done"])
        if "failed" in message:
            raise _failed(message["failed"], message["text"], request, message["endpoint"])
        last_words = message.get("warning", last_words)
        reached += message.get("bytes", 0)
        if reached > most:  # bytes that are sent a second time are no progress
            most, deadline = reached, time.monotonic() + patience


def _failed(reason: str, text: str, request: Request, endpoint: str = "") -> LitebertError:
    return explained(Failure(reason, text, request["action"], request["name"], endpoint))


def _found(path: Path) -> str:
    """Say what lies at a path; no path is too long or too well guarded for that."""
    try:
        return "a folder" if path.is_dir() else "a file" if path.exists() else "nothing"
    except OSError as error:
        return error.strerror or str(error)


def _existing_parent(path: Path) -> Path:
    return next(parent for parent in path.absolute().parents if _found(parent) == "a folder")


def _similar(path: Path) -> str:
    """Say which folder was perhaps meant, where one is called nearly so."""
    parent = _existing_parent(path)
    missing = path.absolute().relative_to(parent).parts[0]
    with suppress(OSError):
        hint = did_you_mean(missing, [entry.name for entry in parent.iterdir() if entry.is_dir()])
        return f" ({hint})" if hint.startswith("did") else ""
    return ""
