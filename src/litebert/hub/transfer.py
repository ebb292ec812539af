"""Fetching a repository of the Hub into the cache of huggingface_hub, and sending one.

In order: the files of a model, fetching, the copy in the cache, sending, the requests
and their errors.
"""

import hashlib
import re
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from litebert.errors import DamagedError, LitebertError, disk_errors, say
from litebert.files import hash_file

# seconds that a request waits for an answer, or for the next bytes of one
PATIENCE = 10.0
# seconds that the Hub has to answer if there is a copy that can be used instead
PATIENCE_WITH_COPY = 3.0
_ATTEMPTS = 5  # to resume a download from the same position
# how the messages of huggingface_hub begin
_CONSISTENCY_FAILED = "Consistency check failed"
_COMMIT = re.compile("[0-9a-f]{40}")

# ---- the files of a model ------------------------------------------------------------

MODEL_FILES = (
    "config.json",
    "model*.safetensors",
    "model.safetensors.index.json",
    "README.md",
    "*.model",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.txt",
    # the files of sentence-transformers
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "[0-9]_*/config.json",
    "[0-9]_*/model.safetensors",
)
_PICKLED_WEIGHTS = "pytorch_model.bin"
# Of the folders in a repository, only those of modules are needed: 1_Pooling, 2_Dense.
_IN_FOLDERS = [
    "[!0-9]*/*",
    "*/*.model",
    "*/*.txt",
    "*/*.bin",
    "*/*.md",
]


def model_files(folder: Path) -> dict[str, Path]:
    """Return the files of a model by name; other files in its folder are skipped."""
    paths = set[Path]()
    for pattern in MODEL_FILES:
        paths.update(path for path in folder.glob(pattern) if path.is_file())
    return {path.relative_to(folder).as_posix(): path for path in sorted(paths)}


def hash_model(folder: Path) -> str:
    """Return a digest of the files that a model's answers depend on: all but its
    card.
    """
    digest = hashlib.blake2b(digest_size=16)
    for name, path in model_files(folder).items():
        if name != "README.md":
            digest.update(f"{name} {hash_file(path)}\n".encode())
    return digest.hexdigest()


def _patterns(names: Sequence[str], *, legacy_pickle: bool) -> list[str]:
    """Return the patterns of the files that a model needs; of pickled weights only if
    they are allowed and the repository has no others.
    """
    top_level = [name for name in names if "/" not in name]
    has_safetensors = any(name.endswith(".safetensors") for name in top_level)
    if legacy_pickle and not has_safetensors:
        return [*MODEL_FILES, _PICKLED_WEIGHTS]
    return [*MODEL_FILES]


def _needed(names: Sequence[str], *, legacy_pickle: bool) -> list[str]:
    """Return the files of a repository that a model needs."""
    from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined]

    patterns = _patterns(names, legacy_pickle=legacy_pickle)
    needed = filter_repo_objects(
        names, allow_patterns=patterns, ignore_patterns=_IN_FOLDERS
    )
    return list(needed)


# ---- fetching ------------------------------------------------------------------------


def pull(
    repository: str, revision: str | None = None, *, legacy_pickle: bool = False
) -> Path:
    """Fetch a model into the cache of huggingface_hub, or find it there, and return its
    folder.

    A commit never changes: if the cache has all of its files, nothing is requested. For
    a branch or a tag, the Hub is asked once which commit that is; if it does not
    answer, the copy that was fetched last is used, with a note.

    `legacy_pickle` also accepts pytorch_model.bin from repositories that have nothing
    else.
    """
    with _hub("fetch", repository):
        copy = _CachedCopy.find(repository, revision, legacy_pickle=legacy_pickle)
        is_commit = revision is not None and _COMMIT.fullmatch(revision) is not None
        if copy is not None and copy.is_complete and is_commit:
            folder = copy.folder
        else:
            folder = _fetch(repository, revision, copy, legacy_pickle=legacy_pickle)
    _require_weights(repository, folder, legacy_pickle=legacy_pickle)
    return folder


def _fetch(
    repository: str,
    revision: str | None,
    copy: "_CachedCopy | None",
    *,
    legacy_pickle: bool,
) -> Path:
    """Fetch what the cache lacks of a revision; if the Hub does not answer, use the
    copy in the cache.
    """
    from huggingface_hub import errors

    seconds = PATIENCE if copy is None else min(PATIENCE, PATIENCE_WITH_COPY)
    try:
        commit, names = _ask(repository, revision, seconds)
    except (errors.HFValidationError, errors.RevisionNotFoundError):
        raise
    except Exception as error:
        if copy is None:
            raise
        if not isinstance(error, errors.OfflineModeIsEnabled):
            say(
                f"note: the Hub did not give {repository}"
                f" ({_in_one_line(error)}): using the copy that was fetched before,"
                f" commit {copy.folder.name[:8]}"
            )
        return copy.folder

    if copy is not None and copy.is_complete and copy.folder.name == commit:
        return copy.folder
    return _download(repository, revision, commit, names, legacy_pickle=legacy_pickle)


def _download(
    repository: str,
    revision: str | None,
    commit: str,
    names: Sequence[str],
    *,
    legacy_pickle: bool,
) -> Path:
    """Fetch the files of a commit that a model needs, and check the new ones; `names`
    are all files of the commit.
    """
    from huggingface_hub import hf_hub_download, snapshot_download

    blobs = _cache_of(repository) / "blobs"
    known = set(blobs.glob("*"))
    # one file at a time, in this thread, so that Ctrl-C ends it at once
    for name in _needed(names, legacy_pickle=legacy_pickle):
        hf_hub_download(repository, name, revision=commit, library_name="litebert")
    # The library notes the files of the commit, and which commit the branch is: without
    # these notes, nobody can tell later whether a copy is complete.
    folder = snapshot_download(
        repository,
        revision=revision,
        allow_patterns=_patterns(names, legacy_pickle=legacy_pickle),
        ignore_patterns=_IN_FOLDERS,
        library_name="litebert",
    )
    for blob in set(blobs.glob("*")) - known:
        _require_hash(blob)
    return Path(folder)


def _ask(
    repository: str, revision: str | None, seconds: float
) -> tuple[str, list[str]]:
    """Return the commit of a revision and its files, from one request.

    A limit on each read would not end a look-up of the address, or an answer that
    arrives byte by byte: the request runs in a thread that is left behind.
    """
    from huggingface_hub import HfApi

    answers = SimpleQueue[Any]()

    def ask() -> None:
        try:
            api = HfApi(library_name="litebert")
            info = api.model_info(repository, revision=revision, timeout=seconds)
            answers.put(info)
        except Exception as error:  # noqa: BLE001 - the thread that asks raises it
            answers.put(error)

    threading.Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=seconds)
    except Empty:
        raise TimeoutError(f"no answer in {seconds:g} s") from None
    if isinstance(answer, Exception):
        raise answer
    return answer.sha, [file.rfilename for file in answer.siblings or ()]


def _has_weights(folder: Path, *, legacy_pickle: bool) -> bool:
    """Return whether a folder has weights that may be read."""
    if any(folder.glob("*.safetensors")):
        return True
    return legacy_pickle and (folder / _PICKLED_WEIGHTS).is_file()


def _require_weights(repository: str, folder: Path, *, legacy_pickle: bool) -> None:
    """Raise if a repository has no weights that may be read."""
    if _has_weights(folder, legacy_pickle=legacy_pickle):
        return
    names = _listed(repository, folder.name)
    pickled = [name for name in names if name.endswith(".bin")]
    shown = (pickled or names)[:5]
    raise LitebertError(
        "LB-634",
        f"{repository} has no safetensors",
        received=", ".join(shown) or "no files",
        next=f"litebert import huggingface {repository} --output FOLDER"
        " --legacy-pickle reads pickles (.bin); or choose another model",
    )


def _require_hash(blob: Path) -> None:
    """Delete a cached file, and raise, if its hash is not its name: SHA-256, or SHA-1
    as git (or a mirror) has it.
    """
    kind = {64: "sha256", 40: "sha1"}.get(len(blob.name))  # by the digits of a hash
    if kind is None:
        return
    # git hashes a header before the content
    headers = [b""]
    if kind == "sha1":
        headers.append(b"blob %d\0" % blob.stat().st_size)
    for header in headers:
        with blob.open("rb") as file:
            digest = hashlib.file_digest(file, partial(hashlib.new, kind, header))
        if digest.hexdigest() == blob.name:
            return
    blob.unlink()
    raise OSError(f"{_CONSISTENCY_FAILED}: a file whose hash is not {blob.name}")


# ---- the copy in the cache -----------------------------------------------------------


def _cache_of(repository: str) -> Path:
    """Return the folder of a repository in the cache of huggingface_hub: blobs, refs
    and snapshots.
    """
    from huggingface_hub import constants

    name = repository.replace("/", "--")
    return Path(constants.HF_HUB_CACHE) / f"models--{name}"


def _listed(repository: str, commit: str) -> list[str]:
    """Return the names of the files of a commit as noted in the cache; none if they are
    not noted.
    """
    from huggingface_hub import errors, get_cached_repo_tree

    with suppress(errors.CachedRepoTreeNotFoundError):
        return [file.path for file in get_cached_repo_tree(repository, revision=commit)]
    return []


@dataclass(frozen=True)
class _CachedCopy:
    """The files of one commit that were fetched before."""

    folder: Path
    # all files of the model are there; otherwise, nobody knows which files there are
    is_complete: bool

    @classmethod
    def find(
        cls, repository: str, revision: str | None, *, legacy_pickle: bool
    ) -> "_CachedCopy | None":
        """Find the copy of a revision; None if there is none with weights, or if a file
        is known to be missing.
        """
        cache = _cache_of(repository)
        commit = revision or "main"
        if not _COMMIT.fullmatch(commit):
            ref = cache / "refs" / commit
            if not ref.is_file():
                return None
            commit = ref.read_text("utf-8").strip()
        folder = cache / "snapshots" / commit
        names = _listed(repository, commit)
        if names:
            needed = _needed(names, legacy_pickle=legacy_pickle)
            has_all = all((folder / name).is_file() for name in needed)
            return cls(folder, True) if has_all else None
        if _has_weights(folder, legacy_pickle=legacy_pickle):
            return cls(folder, False)
        return None


# ---- sending -------------------------------------------------------------------------


def push(
    repository: str,
    revision: str | None,
    files: dict[str, Path],
    *,
    texts: dict[str, str],
    private: bool = False,
) -> str:
    """Upload files, and texts that become files, in one commit; return its URL. Creates
    repository and branch.
    """
    with _hub("push", repository):
        from huggingface_hub import CommitOperationAdd, HfApi

        api = HfApi(library_name="litebert", library_version=version("litebert"))
        api.create_repo(repository, private=private or None, exist_ok=True)
        if private and not api.model_info(repository).private:
            raise LitebertError(
                "LB-632",
                f"{repository} already exists and is public: nothing was sent",
                next="choose another name, or make it private in its settings",
            )
        if revision is not None:
            api.create_branch(repository, branch=revision, exist_ok=True)
        operations = list[CommitOperationAdd]()
        for path, file in files.items():
            operations.append(CommitOperationAdd(path, str(file.resolve())))
        for path, text in texts.items():
            operations.append(CommitOperationAdd(path, text.encode()))
        commit = api.create_commit(
            repository, operations, commit_message="Upload model", revision=revision
        )
    return str(commit.commit_url)


# ---- the requests and their errors ---------------------------------------------------

_SESSION_LOCK = threading.Lock()  # one thread at a time changes the hooks of a session


@contextmanager
def _hub(action: str, repository: str) -> Iterator[None]:
    """Limit how long the requests of huggingface_hub wait in this block; turn a failure
    into one readable error.
    """
    if find_spec("huggingface_hub") is None:
        raise LitebertError(
            "LB-621",
            f"{repository} is on the Hub, and the package huggingface_hub is not"
            " installed",
            next="pip install 'litebert[hub]', or give a folder on this disk",
        )
    from huggingface_hub import constants

    try:
        with disk_errors(Path(constants.HF_HUB_CACHE)), _limited_requests():
            yield
    except LitebertError:
        raise
    except Exception as error:
        raise _readable(error, action, repository) from error


class _RequestLimit:
    """A hook that limits the requests of the thread that makes it.

    Some calls of huggingface_hub wait without a limit (create_commit); a download that
    always ends at one position, as the server ignores where to resume, is repeated
    without a limit. It retries temporary failures itself.
    """

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        # how often a download began, by its path and position
        self._num_begun = Counter[tuple[str, str]]()

    def __call__(self, request: Any) -> None:
        if threading.get_ident() != self._thread:
            return  # another thread's request: the session is shared
        waits = ("connect", "read", "write", "pool")
        request.extensions["timeout"] = dict.fromkeys(waits, PATIENCE)
        position = request.headers.get("Range")
        if position is None:
            return
        download = (request.url.path, position)
        self._num_begun[download] += 1
        if self._num_begun[download] > _ATTEMPTS:
            raise OSError(
                f"the download ended {_ATTEMPTS} times at one position ({position})"
            )


@contextmanager
def _limited_requests() -> Iterator[None]:
    """Limit the requests of this thread to huggingface_hub's session in this block."""
    from huggingface_hub import get_session

    session = get_session()
    limit = _RequestLimit()
    with _SESSION_LOCK:
        hooks = session.event_hooks
        session.event_hooks = hooks | {"request": [*hooks["request"], limit]}
    try:
        yield
    finally:
        # Others may have added theirs meanwhile: only this one is taken away.
        with _SESSION_LOCK:
            hooks = session.event_hooks
            others = [hook for hook in hooks["request"] if hook is not limit]
            session.event_hooks = hooks | {"request": others}


def _in_one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _readable(error: Exception, action: str, repository: str) -> LitebertError:
    """Return the error for a failure of huggingface_hub."""
    from huggingface_hub import errors

    cause: BaseException = error
    if isinstance(error, errors.LocalEntryNotFoundError) and error.__cause__:
        cause = error.__cause__
    message = _in_one_line(cause)
    elsewhere = "upload it in a browser"
    if action == "fetch":
        elsewhere = "give the folder of files fetched elsewhere"
    if message.startswith(_CONSISTENCY_FAILED):
        return DamagedError(
            "LB-626",
            f"{repository} arrived damaged, and was deleted",
            received=message,
            next=f"{_AGAIN}; or {elsewhere}",
        )
    status = getattr(getattr(cause, "response", None), "status_code", 0)
    # 408 and 429: too slow, and too many requests
    is_refused = 400 <= status < 500 and status not in (408, 429)
    if is_refused or isinstance(error, errors.HFValidationError):
        return _refused(action, repository, message, elsewhere)
    return _not_reached(action, repository, message, elsewhere)


_AGAIN = "run the same command again later"


def _refused(
    action: str, repository: str, message: str, elsewhere: str
) -> LitebertError:
    return LitebertError(
        "LB-629",
        f"there is no folder {repository} here, and the Hub does not let this user"
        f" {action} that name",
        received=message,
        next="check OWNER/NAME and its revision; hf auth login for a private model; ask"
        f" there for a gated one; or {elsewhere}",
    )


def _not_reached(
    action: str, repository: str, message: str, elsewhere: str
) -> LitebertError:
    from huggingface_hub import constants

    return LitebertError(
        "LB-623",
        f"could not {action} {repository}: the Hub is {constants.ENDPOINT}",
        received=message,
        next="check the connection, proxy, HF_ENDPOINT and HF_HUB_OFFLINE, or"
        f" {_AGAIN}; or {elsewhere}",
    )
