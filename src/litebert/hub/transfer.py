"""Models by name: the folder on this disk that is meant, or a repository of the Hub, fetched from there or sent there.

Several calls of huggingface_hub wait for an answer without a limit (repo_info, create_commit), and a server that sends
some bytes again and again keeps a download alive for ever. So the requests of a transfer are watched: it is given up
after 30 seconds without 64 KiB, or an answer, that it did not have before.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files as package_files
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from shlex import quote
from typing import Any, TypeVar

from litebert.errors import DamagedError, LitebertError, ResourceError, did_you_mean
from litebert.files import as_path
from litebert.runs import is_run

Done = TypeVar("Done")

PATIENCE = 30.0  # a transfer is given up after this many seconds without anything new
_STEP = 1 << 16  # bytes that count as something new

MODEL_FILES = (
    "config.json", "*.safetensors", "*.safetensors.index.json", "*.model", "tokenizer.json", "tokenizer_config.json",
    "special_tokens_map.json", "vocab.txt", "README.md",
    # those of sentence-transformers
    "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json", "[0-9]_*/config.json",
)  # fmt: skip
# Of the folders in a repository, only 1_Pooling/config.json and the like are needed.
_IN_FOLDERS = ["[!0-9]*/*", "*/*.safetensors", "*/*.model", "*/*.txt", "*/*.bin", "*/*.md"]

_NAME = re.compile(r"([a-zA-Z0-9][\w.-]*/[\w.-]+)(?:@([\w./-]+))?", re.ASCII)
_one_at_a_time = threading.Lock()


@dataclass(frozen=True)
class HubName:
    """OWNER/NAME of a repository, and optionally a branch, tag or commit.

    >>> HubName.parse("albert/albert-base-v2@main")
    HubName(repository='albert/albert-base-v2', revision='main')
    """

    repository: str
    revision: str | None = None

    @classmethod
    def parse(cls, text: str) -> HubName | None:
        """Parse OWNER/NAME or OWNER/NAME@REVISION; return None for anything else."""
        match = _NAME.fullmatch(text)
        return cls(match[1], match[2]) if match else None

    @classmethod
    def read(cls, text: str, *, revision: str | None = None) -> HubName:
        """Parse a name that must be one, with its revision in it or as an argument."""
        text = text if revision is None else f"{text}@{revision}"
        if (name := cls.parse(text)) is None:
            raise _no_name(text)
        return name


# ---- which folder a name means --------------------------------------------------------------------------------------

PACKAGED_NAME = "litebert"  # the model that comes with the package; a folder of this name here goes first
# The usual folders of models and of their files here; no owner and no model on the Hub has such a name.
_OUR_FOLDERS = {"runs", "models", "model", "checkpoints", "output", "outputs", "out", "data", "tmp"}
_OUR_MODELS = {"model", "best", "checkpoints"}


def packaged_model() -> Path:
    """Return the folder of the model that comes with the package."""
    folder = Path(str(package_files("litebert") / "model"))
    if (folder / "config.json").is_file():
        return folder
    next_step = "name a model: litebert embed --model FOLDER, or litebert serve FOLDER"
    raise LitebertError("LB-938", "no model comes with this build of litebert", next=next_step)


def locate(name_or_path: str | PathLike[str], *, legacy_pickle: bool = False) -> Path:
    """Return a model's folder: the named one, a run's, the packaged one, or a Hub name's, fetched if needed.

    A path whose first folder exists, and one that looks local (runs/mine, mine/model), is never looked up on the Hub.
    `legacy_pickle` also accepts pytorch_model.bin from repositories that have nothing else.
    """
    path = as_path(name_or_path, "a model")
    found = _found(path)
    if found == "a folder":
        return path / "model" if is_run(path) else path
    if str(name_or_path) == PACKAGED_NAME and found == "nothing":
        return packaged_model()
    name = HubName.parse(str(name_or_path)) if found == "nothing" else None
    looks_local = path.name in _OUR_MODELS or path.suffix in (".json", ".safetensors") or path.parts[0] in _OUR_FOLDERS
    if name is not None and not looks_local and not Path(name.repository).parent.is_dir():
        return pull(name, legacy_pickle=legacy_pickle)

    # Suggest the run or model of this name in the usual folders, or a folder with a similar name.
    parent = next(parent for parent in path.absolute().parents if _found(parent) == "a folder")
    missing, similar = path.absolute().relative_to(parent).parts[0], ""
    with suppress(OSError):
        hint = did_you_mean(missing, [entry.name for entry in parent.iterdir() if entry.is_dir()])
        similar = f" ({hint})" if hint.startswith("did") else ""
    usual = [Path(folder) / path for folder in ("runs", "models") if len(path.parts) == 1]
    there = [place for place in usual if _found(place) == "a folder"]
    next_step = f"--model {quote(str(there[0]))}" if there else f"ls {quote(str(parent))}"
    what = f"there is no model folder {str(path)[:200]!r}"
    expected = f"a folder{similar}; or a name on the Hub, such as albert/albert-base-v2"
    raise LitebertError("LB-620", what, received=found, expected=expected, next=next_step)


def _found(path: Path) -> str:
    """Describe what is at a path, or why it cannot be read."""
    try:
        return "a folder" if path.is_dir() else "a file" if path.exists() else "nothing"
    except OSError as error:
        return error.strerror or str(error)


# ---- fetching and sending -------------------------------------------------------------------------------------------


def pull(name: HubName, *, legacy_pickle: bool = False, patience: float = PATIENCE) -> Path:
    """Fetch a model into the cache of huggingface_hub, or find it there, and return its folder.

    `legacy_pickle` also accepts pytorch_model.bin from repositories that have nothing else.
    """
    pickles = ("pytorch_model*.bin", "pytorch_model.bin.index.json")
    ways = (("*.safetensors", MODEL_FILES), ("*.bin", (*MODEL_FILES, *pickles)))[: 1 + legacy_pickle]

    def fetch() -> Path | list[str]:
        """Return the folder in the cache, or the names of what the repository has instead of weights."""
        from huggingface_hub import HfApi, constants, snapshot_download

        blobs = Path(constants.HF_HUB_CACHE) / f"models--{name.repository.replace('/', '--')}" / "blobs"
        for weights, patterns in ways:
            known = set(blobs.glob("*"))
            found = snapshot_download(
                name.repository,
                revision=name.revision,
                allow_patterns=list(patterns),
                ignore_patterns=_IN_FOLDERS,
                library_name="litebert",
                library_version=version("litebert"),
            )
            for blob in set(blobs.glob("*")) - known:
                _require_hash(blob)
            if any(Path(found).glob(weights)):
                return Path(found)
        return HfApi().list_repo_files(name.repository, revision=name.revision)

    names = _watched(fetch, "fetch", name, patience)
    if isinstance(names, Path):
        return names
    pickled = [file for file in names if file.endswith(".bin") and "/" not in file]
    read_it = f"litebert import huggingface {name.repository} --output FOLDER --legacy-pickle"
    raise LitebertError(
        "LB-634",
        f"{name.repository} has no weights that litebert reads by default",
        received=", ".join((pickled or names)[:5]) or "no files",
        expected="model.safetensors; pickles (.bin) can contain programs, and are read only on request",
        next=read_it if pickled else "choose another model",
    )


def _require_hash(blob: Path) -> None:
    """Delete a file of the cache that has not the hash in its name: SHA-256, or SHA-1 as git (or a mirror) has it."""
    if len(blob.name) == 64:
        with blob.open("rb") as file:
            hashes = [hashlib.file_digest(file, "sha256").hexdigest()]
    else:
        data = blob.read_bytes() if len(blob.name) == 40 else b""
        hashes = [hashlib.sha1(start + data).hexdigest() for start in (b"", b"blob %d\0" % len(data))]  # noqa: S324
    if len(blob.name) in (40, 64) and blob.name not in hashes:
        blob.unlink()
        raise _TransferError("damaged", f"a file with another hash than {blob.name}")


def push(
    name: HubName,
    files: dict[str, Path],
    *,
    texts: dict[str, str],
    private: bool = False,
    message: str = "Upload model",
    patience: float = PATIENCE,
) -> str:
    """Send files, and texts that become files, in one commit; return its address. Creates repository and branch."""

    def send() -> str:
        from huggingface_hub import CommitOperationAdd, HfApi

        api = HfApi(library_name="litebert", library_version=version("litebert"))
        api.create_repo(name.repository, private=private or None, exist_ok=True)
        if private and not api.model_info(name.repository).private:
            raise _TransferError("public", f"--private, and {name.repository} is public")
        if name.revision is not None:
            api.create_branch(name.repository, branch=name.revision, exist_ok=True)
        operations = [CommitOperationAdd(path, str(file.resolve())) for path, file in files.items()]
        operations += [CommitOperationAdd(path, text.encode()) for path, text in texts.items()]
        commit = api.create_commit(name.repository, operations, commit_message=message, revision=name.revision)
        return str(commit.commit_url)

    return _watched(send, "push", name, patience)


def model_files(folder: Path) -> dict[str, Path]:
    """Return the files of a model by name; other files in its folder are skipped."""
    found = {path for pattern in MODEL_FILES for path in folder.glob(pattern) if path.is_file()}
    return {path.relative_to(folder).as_posix(): path for path in sorted(found)}


class _TransferError(Exception):
    """A failure that huggingface_hub does not know, so that it does not try again: its reason and what was seen."""

    def __init__(self, reason: str, seen: str) -> None:
        super().__init__(seen)
        self.reason = reason


class _Watch:
    """The hooks on the requests of one transfer, which may run in several threads.

    What counts is how far the bytes of each address have come: those that arrive again are nothing new. Of what is
    sent, the system limits how long each piece may take.
    """

    def __init__(self, patience: float) -> None:
        self._patience, self._deadline = patience, 0.0
        self._reached: dict[str, int] = {}
        self.is_stopped = False  # then all requests end, and further ones are refused

    def saw(self, key: str, size: int = 0) -> None:
        """Note how many bytes have come; more by a step, or another key, is something new."""
        now = time.monotonic()
        if size // _STEP > self._reached.get(key, -1):
            self._reached[key], self._deadline = size // _STEP, now + self._patience
        if self.is_stopped or now > self._deadline:
            raise _TransferError("stalled", f"nothing new for {self._patience:.0f} seconds")

    def on_request(self, request: Any) -> None:
        """Limit how long a request may wait for each answer."""
        self.saw(f"ask {request.method} {request.url}")
        request.extensions["timeout"] = dict.fromkeys(("connect", "read", "write", "pool"), self._patience)

    def on_response(self, response: Any) -> None:
        """Count what an answer brings; a byte range counts from its begin."""
        from httpx2 import SyncByteStream

        key, stream, saw = f"{response.request.method} {response.request.url}", response.stream, self.saw
        saw(key)
        found = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
        before = int(found[1]) if found else 0

        class Counted(SyncByteStream):
            def __iter__(self) -> Iterator[bytes]:
                passed = before
                for piece in stream:
                    passed += len(piece)
                    saw(f"from {key}", passed)
                    yield piece

            def close(self) -> None:
                stream.close()

        response.stream = Counted()


@contextmanager
def _hooked(watch: _Watch) -> Iterator[None]:
    """Watch all requests of huggingface_hub in this process, and keep its warnings off the terminal.

    Its own protocol for large files (Xet) does not go through these requests, so it is off meanwhile.
    """
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    from huggingface_hub import constants, get_session
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    session, logger = get_session(), logging.getLogger("huggingface_hub")
    hooks, level = session.event_hooks, logger.level
    xet, chunk = constants.HF_HUB_DISABLE_XET, constants.DOWNLOAD_CHUNK_SIZE
    hides_bars = not (are_progress_bars_disabled() or (sys.stderr is not None and sys.stderr.isatty()))
    ours = {"request": watch.on_request, "response": watch.on_response}
    session.event_hooks = {kind: [*hooks[kind], hook] for kind, hook in ours.items()}
    logger.setLevel(logging.ERROR)
    constants.HF_HUB_DISABLE_XET, constants.DOWNLOAD_CHUNK_SIZE = True, _STEP
    if hides_bars:
        disable_progress_bars()
    try:
        with warnings.catch_warnings(action="ignore"):  # about its own use of httpx2
            yield
    finally:
        session.event_hooks = hooks
        logger.setLevel(level)
        constants.HF_HUB_DISABLE_XET, constants.DOWNLOAD_CHUNK_SIZE = xet, chunk
        if hides_bars:
            enable_progress_bars()


def _watched(work: Callable[[], Done], action: str, name: HubName, patience: float) -> Done:
    """Do something with the Hub; a failure becomes one error for people."""
    if find_spec("huggingface_hub") is None:
        what = f"{name.repository} is on the Hub, and the package huggingface_hub is not installed"
        raise LitebertError("LB-621", what, next="pip install 'litebert[hub]', or give a folder on this disk")
    watch = _Watch(patience)
    outcome: Future[Done] = Future()

    def run() -> None:
        try:
            with _one_at_a_time, _hooked(watch):
                outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001  it is raised in the thread that waits
            outcome.set_exception(error)

    # In a thread of its own: Ctrl-C ends the waiting here at once, and its requests with their next bytes.
    threading.Thread(target=run, daemon=True).start()
    try:
        return outcome.result()
    except Exception as error:
        from huggingface_hub import constants

        causes: list[BaseException] = [error]
        while (cause := causes[-1].__cause__) is not None:
            causes.append(cause)
        reason = next(filter(None, map(_reason, causes)), "other")
        if reason == "name":
            raise _no_name(name.repository) from error
        code, what, remedy = _FAILURES[reason]
        kind = {"damaged": DamagedError, "full": ResourceError}.get(reason, LitebertError)
        elsewhere = "give the folder of files fetched elsewhere" if action == "fetch" else "upload it in a browser"
        what = what.format(action=action, name=name.repository, endpoint=constants.ENDPOINT)
        seen = next(iter(str(causes[-1]).strip().splitlines()), "") or type(causes[-1]).__name__
        raise kind(code, what, received=seen, next=f"{remedy}; or {elsewhere}") from error
    finally:
        watch.is_stopped = True


_AGAIN = "run the same command again later"
# By reason: the code, what happened, and the remedy.
_FAILURES = {
    "offline": ("LB-622", "{name} is not complete in the cache, and HF_HUB_OFFLINE is set", "unset HF_HUB_OFFLINE"),
    "unreachable": ("LB-623", "the Hub, {endpoint}, cannot be reached to {action} {name}",
                    "check connection, proxy and HF_ENDPOINT"),
    "stalled": ("LB-624", "the Hub has stopped answering during: {action} {name}", _AGAIN),
    "server": ("LB-625", "the Hub, {endpoint}, could not {action} {name}", _AGAIN),
    "damaged": ("LB-626", "{name} arrived damaged, and was deleted", _AGAIN),
    "full": ("LB-627", "the disk is full while fetching {name}", "free space, or set HF_HOME to one on another disk"),
    "disk": ("LB-628", "the cache for {name} cannot be read or written",
             "set HF_HOME to a folder that this user may write to"),
    "repository": ("LB-629", "there is no folder {name} here, and no visible model of this name on the Hub",
                   "check the name OWNER/NAME; for a private model hf auth login"),
    "forbidden": ("LB-630", "the Hub does not let this user {action} {name}",
                  "hf auth login with a token that may; for a gated model, ask for access there"),
    "revision": ("LB-631", "{name} has no such revision", "omit the revision for the newest one"),
    "public": ("LB-632", "{name} exists already and is public: nothing was sent",
               "choose another name, or make the repository private in its settings"),
    "other": ("LB-633", "it was not possible to {action} {name}", _AGAIN),
}  # fmt: skip


def _reason(error: BaseException) -> str | None:
    """Return the reason that an error of huggingface_hub, of its requests or of the system tells, if any."""
    import httpx2
    from huggingface_hub import constants, errors

    kinds: dict[type[BaseException], str] = {  # the first that fits
        errors.OfflineModeIsEnabled: "offline",
        errors.GatedRepoError: "forbidden",
        errors.DisabledRepoError: "forbidden",
        errors.RepositoryNotFoundError: "repository",
        errors.RevisionNotFoundError: "revision",
        errors.HFValidationError: "name",
        httpx2.TooManyRedirects: "server",
        httpx2.ConnectTimeout: "unreachable",
        httpx2.TimeoutException: "stalled",
    }
    numbers = dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "full")
    numbers |= dict.fromkeys((errno.EACCES, errno.EROFS, errno.EPERM, errno.ENOTDIR, errno.EIO), "disk")
    if isinstance(error, _TransferError):
        return error.reason
    if known := next((reason for kind, reason in kinds.items() if isinstance(error, kind)), None):
        return known
    if isinstance(error, errors.HfHubHTTPError):
        status = error.response.status_code
        by_status = {401: "forbidden", 403: "forbidden", 404: "repository", 408: "server", 429: "server"}
        return by_status.get(status, "other" if status < 500 else "server")
    if isinstance(error, httpx2.HTTPError):
        return "unreachable"
    if isinstance(error, OSError) and str(error).startswith("Consistency check failed"):
        return "damaged"
    if isinstance(error, errors.LocalEntryNotFoundError):
        return "offline" if error.__cause__ is None and constants.is_offline_mode() else None
    return numbers.get(error.errno or 0) if isinstance(error, OSError) else None


def _no_name(received: str) -> LitebertError:
    what, expected = "this is not the name of a model on the Hub", "OWNER/NAME, or OWNER/NAME@REVISION"
    next_step = "hf auth whoami prints your OWNER; https://huggingface.co/models has others"
    return LitebertError("LB-636", what, received=received, expected=expected, next=next_step)
