"""The process that talks to the Hub, run by litebert.hub.remote; it alone imports huggingface_hub.

It is a separate process because several calls of huggingface_hub wait for an answer without a
timeout (repo_info, create_commit), and a process can be killed. It reads one request from stdin as
JSON, and writes a JSON line to stdout for every sign of progress and for the outcome.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import sys
import threading
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TextIO, TypedDict

_CHUNK = 1 << 16
# Of the folders in a repository, only 1_Pooling/config.json and the like are needed.
_IN_FOLDERS = ["[!0-9]*/*", "*/*.safetensors", "*/*.model", "*/*.txt", "*/*.bin", "*/*.md"]
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_BARRED = {errno.EACCES, errno.EROFS, errno.EPERM, errno.ENOTDIR, errno.EIO}


class HubRequest(TypedDict):
    """An action on a repository: fetch `patterns`, list, or push `files` (name to path)."""

    action: str
    name: str
    revision: str | None
    patterns: list[str]
    files: dict[str, str]
    texts: dict[str, str]
    private: bool
    message: str


class _DamagedBlobError(Exception):
    """A file's bytes are not those that the Hub lists."""


class _PublicError(Exception):
    """A repository that should be private exists and is public."""


class _Messenger:
    """Writes JSON objects to the waiting process, one per line, from any thread."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._lock = stream, threading.Lock()

    def say(self, message: dict[str, object]) -> None:
        with self._lock:
            print(json.dumps(message), file=self._stream, flush=True)


class _Relay(logging.Handler):
    """Forwards warnings instead of printing them."""

    def __init__(self, line: _Messenger) -> None:
        super().__init__()
        self._line = line

    def emit(self, record: logging.LogRecord) -> None:
        self._line.say({"warning": _first_line(record.getMessage())})


def _listen(line: _Messenger) -> None:
    """Report every update of a progress bar as a sign of progress."""
    from huggingface_hub import constants
    from huggingface_hub.utils.tqdm import tqdm

    step = tqdm.update

    def update(bar: tqdm, n: float | None = 1) -> object:
        line.say({"bytes": n or 0})
        return step(bar, n)

    tqdm.update = update
    constants.DOWNLOAD_CHUNK_SIZE = _CHUNK  # an update every 64 KiB, not every 10 MiB
    logging.getLogger("huggingface_hub").handlers = [_Relay(line)]


def _fetch(request: HubRequest) -> dict[str, object]:
    """Return the folder in the cache that holds the requested files."""
    from huggingface_hub import constants, snapshot_download

    name = request["name"]
    blobs = Path(constants.HF_HUB_CACHE) / f"models--{name.replace('/', '--')}" / "blobs"
    known = set(blobs.glob("*"))
    folder = snapshot_download(
        name,
        revision=request["revision"],
        allow_patterns=request["patterns"],
        ignore_patterns=_IN_FOLDERS,
        library_name="litebert",
        library_version=version("litebert"),
    )
    for blob in set(blobs.glob("*")) - known:
        _require_hash(blob)
    return {"folder": folder}


def _require_hash(blob: Path) -> None:
    """Compare a new file with its name in the cache, which is its hash.

    The Hub names by SHA-256, or by SHA-1 as git computes it; mirrors also by plain SHA-1.
    """
    header = f"blob {blob.stat().st_size}\0".encode()
    digests = {64: [hashlib.sha256()], 40: [hashlib.sha1(header), hashlib.sha1()]}  # noqa: S324
    matching = digests.get(len(blob.name), [])
    with blob.open("rb") as file:
        while matching and (piece := file.read(1 << 20)):
            for digest in matching:
                digest.update(piece)
    if matching and blob.name not in [digest.hexdigest() for digest in matching]:
        blob.unlink()
        raise _DamagedBlobError(f"a file with another hash than {blob.name}")


def _list(request: HubRequest) -> dict[str, object]:
    """Return the names of all files of a repository."""
    from huggingface_hub import HfApi

    return {"files": HfApi().list_repo_files(request["name"], revision=request["revision"])}


def _push(request: HubRequest) -> dict[str, object]:
    """Create the repository and the branch if needed; put all files in one commit."""
    from huggingface_hub import CommitOperationAdd, HfApi

    api = HfApi(library_name="litebert", library_version=version("litebert"))
    name, branch = request["name"], request["revision"]
    api.create_repo(name, private=request["private"] or None, exist_ok=True)
    if request["private"] and not api.model_info(name).private:
        raise _PublicError(f"{name} is public")
    if branch is not None:
        api.create_branch(name, branch=branch, exist_ok=True)
    contents: dict[str, str | bytes] = {
        **request["files"],
        **{path: text.encode() for path, text in request["texts"].items()},
    }
    operations = [CommitOperationAdd(path, source) for path, source in contents.items()]
    commit = api.create_commit(name, operations, commit_message=request["message"], revision=branch)
    return {"url": commit.commit_url}


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


def _reason(error: BaseException) -> str | None:
    """Return the reason, a word of hub.errors, for an error of huggingface_hub or the system."""
    from huggingface_hub import errors

    status = error.response.status_code if isinstance(error, errors.HfHubHTTPError) else None
    kinds: list[tuple[type[BaseException] | tuple[type[BaseException], ...], str]] = [
        (errors.OfflineModeIsEnabled, "offline"),
        (errors.GatedRepoError, "forbidden"),
        (errors.DisabledRepoError, "forbidden"),
        (errors.RepositoryNotFoundError, "repository"),
        (errors.RevisionNotFoundError, "revision"),
        (errors.HFValidationError, "name"),
        (_DamagedBlobError, "damaged"),
        (_PublicError, "public"),
    ]
    for kind, reason in kinds:
        if isinstance(error, kind):
            return reason
    if status is not None:
        return {401: "forbidden", 403: "forbidden", 404: "repository"}.get(status, "server")
    if isinstance(error, OSError) and error.errno in _FULL | _BARRED:
        return "full" if error.errno in _FULL else "disk"
    if isinstance(error, OSError) and str(error).startswith("Consistency check failed"):
        return "damaged"
    if type(error).__name__ == "TooManyRedirects":
        return "server"
    return "unreachable" if type(error).__module__.startswith("httpx") else None


def _failure(error: BaseException) -> dict[str, object]:
    from huggingface_hub import constants

    causes = list(_causes(error))
    reasons = [reason for cause in causes if (reason := _reason(cause))]
    fallback = "offline" if constants.is_offline_mode() else "other"
    return {
        "failed": reasons[0] if reasons else fallback,
        "text": _first_line(str(causes[-1])) or type(causes[-1]).__name__,
        "endpoint": constants.ENDPOINT,
    }


def _first_line(text: str) -> str:
    return next(iter(text.strip().splitlines()), "")


def main() -> None:
    """Carry out one request and report its outcome."""
    line, sys.stdout = _Messenger(sys.stdout), sys.stderr
    request: HubRequest = json.load(sys.stdin)
    _listen(line)
    try:
        line.say({"done": _ACTIONS[request["action"]](request)})
    except Exception as error:  # noqa: BLE001  any error is reported by the other process
        line.say(_failure(error))


_ACTIONS = {"fetch": _fetch, "list": _list, "push": _push}

if __name__ == "__main__":
    main()
