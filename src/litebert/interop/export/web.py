"""Export a model as a page in which it answers inside the browser, without a server."""

import base64
import gzip
import hashlib
import io
import json
import tarfile
import unicodedata
import urllib.request
from collections.abc import Callable, Sequence
from http.client import HTTPException
from pathlib import Path

import numpy as np

from litebert.config import HeadConfig
from litebert.errors import DamagedError, LitebertError
from litebert.files import Json, read_capped, require_new, staged_folder, write_bytes
from litebert.folder import SentenceVectors, read_head
from litebert.folder.vector_files import read_sentence_vectors
from litebert.interop import ExportReport
from litebert.interop.export.onnx import convert
from litebert.interop.export.source import open_source
from litebert.plugins import VERBS
from litebert.privacy import cache_folder
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.model_file import NORMAL, read_model
from litebert.tokenizer.on_disk import read_vocabulary
from litebert.tokenizer.text import character_runs

PAGE = Path(__file__).parent / "page"
_SERVED = Path(__file__).parents[2] / "serve" / "page"
SHARED = (_SERVED / "charts.js", _SERVED / "icon.svg", _SERVED / "look.css")
VERSION = "1.30.0"
URL = f"https://registry.npmjs.org/onnxruntime-web/-/onnxruntime-web-{VERSION}.tgz"
INTEGRITY = "q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ=="  # noqa: E501
"""SHA-512 of the package, as the npm registry publishes it."""
_SCRIPT = "package/dist/ort.wasm.bundle.min.mjs"
_BINARY = "package/dist/ort-wasm-simd-threaded.wasm"
_PACKAGE_LIMIT = 64 << 20
_SECONDS = 60
# bits of the word table, over half of a small network: fewer bits compress better
_TABLE_BITS = 7
_SERVE = "litebert serve answers with every kind of model"
_NOTICE = f"""\
A page in which a litebert model answers, without a server behind it.
Try it: python -m http.server, then open http://127.0.0.1:8000/

onnxruntime.js and runtime.bin (compressed) are onnxruntime-web {VERSION} (Microsoft, MIT license).
"""


def export_web(
    folder: Path, output: Path, *, runtime: Path | None = None
) -> ExportReport:
    """Write a page into a folder that any static server can serve; `runtime` is a local
    npm package.

    The page fills blanks if the model has a masked-LM head, classifies if it was
    fine-tuned for that, and always searches by vectors. Large files are compressed; the
    page unpacks them.
    """
    require_new(output)
    table = vocabulary_table(folder, Tokenizer.load(folder))
    script, binary = read_runtime(runtime)
    head = read_head(folder)
    has_head = head is None or VERBS[head.verb].exported != ""
    vectors = read_sentence_vectors(folder) or SentenceVectors()
    _require_simple(vectors, folder)
    source = open_source(folder, has_head=has_head, has_states=True)
    model, report = convert(source, output, int8=True, table_bits=_TABLE_BITS)

    # names that no server takes for already compressed, as some take .gz
    files = {
        "model.bin": _compress(model),
        "runtime.bin": _compress(binary),
        "tokenizer.bin": _compress(json.dumps(table, ensure_ascii=False).encode()),
    }
    verbs = _page_verbs(report.outputs)
    settings: dict[str, Json] = {
        "name": _name_of(folder),
        "verbs": [*verbs],
        "positions": source.network.config.max_position_embeddings,
        "sizes": {name: len(data) for name, data in files.items()},
        **_vector_settings(vectors),
    }
    if has_head:
        settings |= _answer_settings(head)
    files["settings.json"] = json.dumps(settings, indent=1).encode()
    files["onnxruntime.js"] = script
    for path in (*sorted(PAGE.iterdir()), *SHARED):
        files[path.name] = path.read_bytes()
    num_bytes = sum(map(len, files.values()))
    files["README.txt"] = _NOTICE.encode()

    with staged_folder(output, if_exists="refuse") as staged:
        for name, data in files.items():
            write_bytes(staged / name, data)
    note = f"try it: python -m http.server --directory {output}"
    notes = (*report.notes, note)
    return ExportReport(output, verbs, num_bytes, report.parity, notes)


def _page_verbs(outputs: Sequence[str]) -> tuple[str, ...]:
    """Return the verbs that a page answers with these outputs of a network."""
    by_output = {verb.exported: name for name, verb in VERBS.items()}
    verbs = [by_output[name] for name in outputs if name in by_output]
    return (*verbs, "search")


def _compress(data: bytes) -> bytes:
    return gzip.compress(data, 9, mtime=0)  # the same bytes at any time


def _name_of(folder: Path) -> str:
    """Return the name of a model: the name of its run or of the package, or of its
    folder.
    """
    place = folder.resolve()
    return place.parent.name if place.name == "model" else place.name


def _vector_settings(vectors: SentenceVectors) -> dict[str, Json]:
    """Return how the page turns the states of a text into a vector."""
    return {
        "pooling": vectors.pooling,
        "max_length": vectors.max_length,
        "prompt": vectors.prompt(),
    }


def _answer_settings(head: HeadConfig | None) -> dict[str, Json]:
    """Return how the page turns the logits of a head into answers."""
    if head is None:
        return {}
    return {
        "labels": list(head.labels),
        "compares_texts": head.compares_texts,
        "activation": head.task_kind.activation,
    }


def _require_simple(vectors: SentenceVectors, folder: Path) -> None:
    """Raise if a page cannot make the vectors of a model: it only pools."""
    obstacle = ""
    if vectors.dense:
        obstacle = "a dense layer"
    elif vectors.prompt() and not vectors.pools_prompt:
        obstacle = "a prompt that is not pooled"
    elif vectors.dimensions is not None:
        obstacle = "vectors of which only the first numbers are kept"
    elif vectors.similarity != "cosine":
        obstacle = f"the similarity {vectors.similarity}"
    if obstacle:
        raise LitebertError(
            "LB-879",
            f"a web page cannot search with the vectors of {folder}",
            received=obstacle,
            next=_SERVE,
        )


def vocabulary_table(folder: Path, tokenizer: Tokenizer) -> dict[str, Json]:
    """Return the tokenizer of a folder as a table for `tokenizer.js`."""
    vocabulary = read_vocabulary(folder)
    if vocabulary.suffix != ".model":
        raise LitebertError(
            "LB-879",
            "a web page can read only a SentencePiece vocabulary, not"
            f" {vocabulary.path}",
            next=_SERVE,
        )
    if tokenizer.added:
        raise LitebertError(
            "LB-879",
            "a web page cannot split added tokens off a text",
            received=", ".join(token.content for token in tokenizer.added[:5]),
            next=_SERVE,
        )
    pieces, charsmap, _ = read_model(vocabulary.data, str(folder))
    kinds: dict[str, Json] = {}
    for number, piece in enumerate(pieces):
        if piece.kind != NORMAL:
            kinds[str(number)] = piece.kind
    return {
        "pieces": [piece.text for piece in pieces],
        # The shortest decimals that round-trip to the same float32.
        "scores": [float(str(np.float32(piece.score))) for piece in pieces],
        "kinds": kinds,
        "charsmap": base64.b64encode(charsmap).decode("ascii"),
        "lowercase": vocabulary.settings.lowercase,
        "keep_accents": vocabulary.settings.keep_accents,
        "special": {
            "pad": tokenizer.pad_id,
            "unk": tokenizer.unk_id,
            "cls": tokenizer.cls_id,
            "sep": tokenizer.sep_id,
            "mask": tokenizer.mask_id,
        },
        "spaces": _characters_of(str.isspace),
        "marks": _characters_of(unicodedata.combining),
        "digits": _characters_of(str.isdigit),
    }


def _characters_of(belongs: Callable[[str], object]) -> str:
    """Return a JavaScript character class, without brackets, of the characters for
    which `belongs` is true.
    """
    runs = character_runs(belongs)
    return "".join(rf"\u{{{first:x}}}-\u{{{last:x}}}" for first, last in runs)


# --- onnxruntime in the browser -------------------------------------------------------


def read_runtime(package: Path | None) -> tuple[bytes, bytes]:
    """Return the script and binary of onnxruntime-web from the npm package at
    `package`.

    With None, it is taken from the user's cache, or downloaded. A file without the
    published hash is never kept.
    """
    kept = cache_folder() / f"onnxruntime-web-{VERSION}.tgz"
    download = f"npm pack onnxruntime-web@{VERSION}, then add --runtime FILE"
    if package is not None:
        data = _read_package(package, advice=download)
    elif kept.is_file():
        data = _read_package(kept, advice=f"rm {kept}")
    else:
        data = _fetch(advice=download)
        _require_published(data, URL, advice=download)
        write_bytes(kept, data)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return _member(archive, _SCRIPT), _member(archive, _BINARY)


def _read_package(path: Path, *, advice: str) -> bytes:
    data = read_capped(path, _PACKAGE_LIMIT)
    _require_published(data, str(path), advice=advice)
    return data


def _fetch(*, advice: str) -> bytes:
    try:
        with urllib.request.urlopen(URL, timeout=_SECONDS) as answer:
            data: bytes = answer.read(_PACKAGE_LIMIT)
    except (OSError, HTTPException) as error:
        raise LitebertError(
            "LB-877", f"{URL} cannot be fetched", received=error, next=advice
        ) from error
    return data


def _require_published(data: bytes, source: str, *, advice: str) -> None:
    """Raise LB-878 unless these bytes have the published hash."""
    if base64.b64encode(hashlib.sha512(data).digest()).decode() != INTEGRITY:
        raise DamagedError(
            "LB-878",
            f"{source} is not the package onnxruntime-web {VERSION}",
            next=advice,
        )


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    assert file is not None
    return file.read()
