"""Models by name: find the local folder that is meant, or fetch and push a repository
of the Hub.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib.metadata import version
from importlib.resources import files as package_files
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from shlex import quote
from typing import Any

from litebert.errors import DamagedError, LitebertError, did_you_mean, disk_errors
from litebert.files import as_path, hash_file
from litebert.runs import Run, is_run

# seconds that a request waits for an answer, or for the next bytes of one
PATIENCE = 10.0
_ATTEMPTS = 5  # to resume a download from the same position
# how the messages of huggingface_hub begin
_CONSISTENCY_FAILED = "Consistency check failed"

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
    # those of sentence-transformers
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "[0-9]_*/config.json",
)
# Of the folders in a repository, only 1_Pooling/config.json and the like are needed.
_IN_FOLDERS = [
    "[!0-9]*/*",
    "*/*.safetensors",
    "*/*.model",
    "*/*.txt",
    "*/*.bin",
    "*/*.md",
]

_NAME = re.compile(r"([a-zA-Z0-9][\w.-]*/[\w.-]+)(?:@([\w./-]+))?", re.ASCII)


def parse_name(text: str) -> tuple[str, str | None]:
    """Return the repository OWNER/NAME and, if one is named after an @, its branch, tag
    or commit.

    >>> parse_name("albert/albert-base-v2@main")
    ('albert/albert-base-v2', 'main')
    """
    if (match := _NAME.fullmatch(text)) is None:
        what = "this is not the name of a model on the Hub"
        expected = "OWNER/NAME, or OWNER/NAME@REVISION"
        raise LitebertError("LB-636", what, received=text, expected=expected)
    return match[1], match[2]


# ---- which folder a name means -------------------------------------------------------

# the model that comes with the package; a local folder of this name takes precedence
PACKAGED_NAME = "litebert"
# The usual folders of models and of their files here; no owner and no model on the Hub
# has such a name.
_OUR_FOLDERS = {
    "runs",
    "models",
    "model",
    "checkpoints",
    "output",
    "outputs",
    "out",
    "data",
    "tmp",
}
_OUR_MODELS = {"model", "best", "checkpoints"}


def packaged_model() -> Path:
    """Return the folder of the model that comes with the package."""
    return Path(str(package_files("litebert") / "model"))


def locate(name_or_path: str | PathLike[str], *, legacy_pickle: bool = False) -> Path:
    """Return a model's folder: the named one, a run's, the packaged one, or one fetched
    from the Hub (`pull`).

    A path whose first folder exists, and one that looks local (runs/mine, mine/model),
    is never looked up on the Hub.
    """
    path = as_path(name_or_path, "a model")
    text = str(name_or_path)
    found = _describe_path(path)
    if found == "a folder":
        # Run.of refuses a folder of several seeds
        return path / "model" if Run.of(path) and is_run(path) else path
    if text == PACKAGED_NAME and found == "nothing":
        return packaged_model()
    name = _NAME.fullmatch(text) if found == "nothing" else None
    looks_local = (
        path.name in _OUR_MODELS
        or path.suffix in (".json", ".safetensors")
        or path.parts[0] in _OUR_FOLDERS
    )
    if name is not None and not looks_local and not Path(name[1]).parent.is_dir():
        return pull(name[1], name[2], legacy_pickle=legacy_pickle)

    # Suggest the run or model of this name in the usual folders, or a folder with a
    # similar name.
    parent = next(
        parent
        for parent in path.absolute().parents
        if _describe_path(parent) == "a folder"
    )
    missing = path.absolute().relative_to(parent).parts[0]
    similar = ""
    with suppress(OSError):
        hint = did_you_mean(
            missing, [entry.name for entry in parent.iterdir() if entry.is_dir()]
        )
        similar = f" ({hint})" if hint.startswith("did") else ""
    usual = [
        folder / path
        for folder in (Path("runs"), Path("models"))
        if _describe_path(folder / path) == "a folder"
    ]
    next_step = (
        f"--model {quote(str(usual[0]))}" if usual else f"ls {quote(str(parent))}"
    )
    what = f"there is no model folder {text[:200]!r}"
    expected = f"a folder{similar}; or a name on the Hub, such as "
    raise LitebertError(
        "LB-620",
        what,
        received=found,
        expected=expected + "albert/albert-base-v2",
        next=next_step,
    )


def _describe_path(path: Path) -> str:
    """Describe what is at a path, or why it cannot be read."""
    try:
        return "a folder" if path.is_dir() else "a file" if path.exists() else "nothing"
    except OSError as error:
        return error.strerror or str(error)


# ---- fetching and sending ------------------------------------------------------------


def pull(
    repository: str, revision: str | None = None, *, legacy_pickle: bool = False
) -> Path:
    """Fetch a model into the cache of huggingface_hub, or find it there, and return its
    folder.

    `legacy_pickle` also accepts pytorch_model.bin from repositories that have nothing
    else.
    """
    with _hub("fetch", repository):
        from huggingface_hub import HfApi, constants, hf_hub_download, snapshot_download
        from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined]

        names = list[str]()
        commit = revision
        # snapshot_download raises the error, or finds what was fetched before
        with suppress(Exception):
            info = HfApi().model_info(repository, revision=revision)
            names = [file.rfilename for file in info.siblings or ()]
            commit = info.sha
        patterns = [*MODEL_FILES]
        if legacy_pickle and not any(
            "/" not in file and file.endswith(".safetensors") for file in names
        ):
            patterns.append("pytorch_model.bin")

        # One file at a time, in this thread, so that Ctrl-C ends it at once
        blobs = (
            Path(constants.HF_HUB_CACHE)
            / f"models--{repository.replace('/', '--')}"
            / "blobs"
        )
        known = set(blobs.glob("*"))
        for file in filter_repo_objects(
            names, allow_patterns=patterns, ignore_patterns=_IN_FOLDERS
        ):
            hf_hub_download(repository, file, revision=commit, library_name="litebert")
        folder = Path(
            snapshot_download(
                repository,
                revision=revision,
                allow_patterns=patterns,
                ignore_patterns=_IN_FOLDERS,
            )
        )
        for blob in set(blobs.glob("*")) - known:
            _require_hash(blob)
    if any(folder.glob("*.safetensors")) or (
        legacy_pickle and any(folder.glob("*.bin"))
    ):
        return folder
    what = f"{repository} has no safetensors"
    pickled = [file for file in names if file.endswith(".bin")]
    received = ", ".join((pickled or names)[:5]) or "no files"
    again = (
        f"litebert import huggingface {repository} --output FOLDER --legacy-pickle"
        " reads pickles (.bin)"
    )
    raise LitebertError(
        "LB-634", what, received=received, next=f"{again}; or choose another model"
    )


def _require_hash(blob: Path) -> None:
    """Delete a cached file, and raise, if its hash is not its name: SHA-256, or SHA-1
    as git (or a mirror) has it.
    """
    sizes = {
        64: ("sha256", [b""]),
        40: ("sha1", [b"", b"blob %d\0" % blob.stat().st_size]),
    }
    kind, starts = sizes.get(len(blob.name), ("", []))
    for start in starts:
        with blob.open("rb") as file:
            if (
                hashlib.file_digest(file, partial(hashlib.new, kind, start)).hexdigest()
                == blob.name
            ):
                return
    if starts:
        blob.unlink()
        raise OSError(f"{_CONSISTENCY_FAILED}: a file whose hash is not {blob.name}")


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
            what = f"{repository} already exists and is public: nothing was sent"
            raise LitebertError(
                "LB-632",
                what,
                next="choose another name, or make it private in its settings",
            )
        if revision is not None:
            api.create_branch(repository, branch=revision, exist_ok=True)
        operations = [
            CommitOperationAdd(path, str(file.resolve()))
            for path, file in files.items()
        ]
        operations += [
            CommitOperationAdd(path, text.encode()) for path, text in texts.items()
        ]
        commit = api.create_commit(
            repository, operations, commit_message="Upload model", revision=revision
        )
    return str(commit.commit_url)


def model_files(folder: Path) -> dict[str, Path]:
    """Return the files of a model by name; other files in its folder are skipped."""
    found = {
        path
        for pattern in MODEL_FILES
        for path in folder.glob(pattern)
        if path.is_file()
    }
    return {path.relative_to(folder).as_posix(): path for path in sorted(found)}


def hash_model(folder: Path) -> str:
    """Return a digest of the files that a model's answers depend on: all but its
    card.
    """
    hashes = (
        f"{name} {hash_file(path)}\n"
        for name, path in model_files(folder).items()
        if name != "README.md"
    )
    return hashlib.blake2b("".join(hashes).encode(), digest_size=16).hexdigest()


@contextmanager
def _hub(action: str, repository: str) -> Iterator[None]:
    """Limit how long the requests of huggingface_hub wait in this block; turn a failure
    into one readable error.

    Some of its calls wait without a limit (repo_info, create_commit); a download that
    always ends at one position, as the server ignores where to resume, is repeated
    without a limit. It retries temporary failures itself.
    """
    if find_spec("huggingface_hub") is None:
        what = (
            f"{repository} is on the Hub, and the package huggingface_hub is not"
            " installed"
        )
        raise LitebertError(
            "LB-621",
            what,
            next="pip install 'litebert[hub]', or give a folder on this disk",
        )
    from huggingface_hub import constants, errors, get_session

    begun: Counter[tuple[str, str]] = Counter()

    def limit(request: Any) -> None:
        request.extensions["timeout"] = dict.fromkeys(
            ("connect", "read", "write", "pool"), PATIENCE
        )
        if place := request.headers.get("Range"):
            begun[request.url.path, place] += 1
            if begun[request.url.path, place] > _ATTEMPTS:
                raise OSError(
                    f"the download ended {_ATTEMPTS} times at one position ({place})"
                )

    session = get_session()
    hooks = session.event_hooks
    session.event_hooks = hooks | {"request": [*hooks["request"], limit]}
    elsewhere = (
        "give the folder of files fetched elsewhere"
        if action == "fetch"
        else "upload it in a browser"
    )
    try:
        with disk_errors(Path(constants.HF_HUB_CACHE)):
            yield
    except LitebertError:
        raise
    except Exception as error:
        cause = (
            error.__cause__
            if isinstance(error, errors.LocalEntryNotFoundError)
            else None
        )
        seen = " ".join(str(cause or error).split()) or type(error).__name__
        again = "run the same command again later"
        if seen.startswith(_CONSISTENCY_FAILED):
            what = f"{repository} arrived damaged, and was deleted"
            raise DamagedError(
                "LB-626", what, received=seen, next=f"{again}; or {elsewhere}"
            ) from error
        status = getattr(getattr(cause or error, "response", None), "status_code", 0)
        if isinstance(error, errors.HFValidationError) or (
            400 <= status < 500 and status not in (408, 429)
        ):
            what = (
                f"there is no folder {repository} here, and the Hub does not let this"
                f" user {action} that name"
            )
            advice = (
                "check OWNER/NAME and its revision; hf auth login for a private model;"
                " ask there for a gated one"
            )
            raise LitebertError(
                "LB-629", what, received=seen, next=f"{advice}; or {elsewhere}"
            ) from error
        what = f"could not {action} {repository}: the Hub is {constants.ENDPOINT}"
        advice = (
            f"check the connection, proxy, HF_ENDPOINT and HF_HUB_OFFLINE, or {again}"
        )
        raise LitebertError(
            "LB-623", what, received=seen, next=f"{advice}; or {elsewhere}"
        ) from error
    finally:
        session.event_hooks = hooks
