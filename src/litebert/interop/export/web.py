"""A model as static files with which it answers inside the browser: a page, its scripts, eight bits, the tokenizer."""

import base64
import gzip
import hashlib
import io
import json
import sys
import tarfile
import unicodedata
import urllib.request
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from litebert.errors import DamagedError, LitebertError
from litebert.files import Json, read_capped, require_new, staged_folder, write_bytes
from litebert.folder.config import SentenceVectors, read_sentence_vectors
from litebert.folder.model import head_of, load_model
from litebert.interop.export.onnx import export_onnx
from litebert.interop.reports import ExportReport
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.models import NORMAL, read_model
from litebert.tokenizer.tokenizer import read_vocabulary

PAGE = Path(__file__).parent / "page"
VERSION = "1.30.0"
URL = f"https://registry.npmjs.org/onnxruntime-web/-/onnxruntime-web-{VERSION}.tgz"
INTEGRITY = "q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ=="
"""SHA-512 of the package, as the npm registry publishes it."""
_PACKAGE_LIMIT, _SECONDS = 64 << 20, 60
_VERBS = {"prediction_logits": "fill", "logits": "classify"}  # what the page can do with an output of the network
_TABLE_BITS = 7  # of the word table, which is over half of a small network: fewer bits compress better
_NOTICE = f"""\
A page in which a model of litebert answers, with no server behind it.

Try it: python -m http.server, then open http://127.0.0.1:8000/

onnxruntime.js and onnxruntime.wasm.gz are onnxruntime-web {VERSION} (Microsoft, MIT licence).
"""


def export_web(folder: Path, output: Path, *, runtime: Path | None = None) -> ExportReport:
    """Write a folder that any static server can serve; `runtime` is a local npm package.

    The page fills blanks if the model has a masked-LM head, classifies if it was fine-tuned for that, and always
    searches by vectors. Large files are compressed; the page unpacks them.
    """
    require_new(output, force=None)
    table = vocabulary(folder, Tokenizer.load(folder))
    script, binary = read_runtime(runtime)
    network = load_model(folder).network
    head = head_of(network)
    has_head = head is None or head.record.verb in _VERBS.values()
    with TemporaryDirectory() as scratch:
        file = Path(scratch) / "model.onnx"
        report = export_onnx(folder, file, int8=True, has_head=has_head, has_states=True, table_bits=_TABLE_BITS)
        model = file.read_bytes()
    verbs = (*(_VERBS[name] for name in report.outputs if name in _VERBS), "search")
    place, vectors = folder.resolve(), read_sentence_vectors(folder) or SentenceVectors()
    compressed = {
        "model.onnx.gz": model,
        "onnxruntime.wasm.gz": binary,
        "tokenizer.json.gz": json.dumps(table, ensure_ascii=False).encode(),
    }
    files = {name: gzip.compress(data, 9, mtime=0) for name, data in compressed.items()}
    settings: dict[str, Json] = {
        "name": place.parent.name if place.name == "model" else place.name,  # that of the run or the package
        "verbs": list(verbs),
        "pooling": vectors.pooling,
        "max_length": vectors.max_length,
        "prompt": vectors.prompt,
        "positions": network.config.max_position_embeddings,
        **({"labels": list(head.labels), "problem": head.problem_type} if head is not None and has_head else {}),
        "sizes": {name: len(data) for name, data in files.items()},
    }
    files |= {"onnxruntime.js": script, "settings.json": json.dumps(settings, indent=1).encode()}
    files |= {path.name: path.read_bytes() for path in sorted(PAGE.iterdir())}
    with staged_folder(output) as staged:
        for name, data in (files | {"README.txt": _NOTICE.encode()}).items():
            write_bytes(staged / name, data)
    notes = (*report.notes, f"try it: python -m http.server --directory {output}")
    return ExportReport(output, verbs, sum(map(len, files.values())), report.parity, notes)


def vocabulary(folder: Path, tokenizer: Tokenizer) -> dict[str, Json]:
    """Return the tokenizer of a folder as a table for `tokenizer.js`."""
    found = read_vocabulary(folder)
    if found.suffix != ".model":
        what = f"a web page can read only a SentencePiece vocabulary, not {found.path}"
        raise LitebertError("LB-879", what, next="litebert serve answers with every kind of model")
    model, settings = read_model(found.data, str(folder)), found.settings
    return {
        "pieces": [piece.text for piece in model.pieces],
        # The shortest decimals that give the same float32 again.
        "scores": [float(str(np.float32(piece.score))) for piece in model.pieces],
        "kinds": {str(n): piece.kind for n, piece in enumerate(model.pieces) if piece.kind != NORMAL},
        "charsmap": base64.b64encode(model.charsmap).decode("ascii"),
        "lowercase": settings.lowercase,
        "keep_accents": settings.keep_accents,
        "special": dict(zip(("pad", "unk", "cls", "sep", "mask"), tokenizer.special_ids, strict=True)),
        "spaces": _class(str.isspace),
        "marks": _class(lambda character: unicodedata.combining(character) != 0),
        "digits": _class(str.isdigit),
    }


def _class(belongs: Callable[[str], bool]) -> str:
    """Return a JavaScript character class (without its brackets) of Python's characters."""
    codes = np.array([code for code in range(sys.maxunicode + 1) if belongs(chr(code))])
    runs = np.split(codes, np.flatnonzero(np.diff(codes) > 1) + 1)
    return "".join(rf"\u{{{run[0]:x}}}-\u{{{run[-1]:x}}}" for run in runs)


def read_runtime(package: Path | None) -> tuple[bytes, bytes]:
    """Return script and binary of onnxruntime-web from the npm package at `package`.

    With None it is taken from the cache of this user, or downloaded. What has not the published hash is never kept.
    """
    kept = Path.home() / ".cache" / "litebert" / f"onnxruntime-web-{VERSION}.tgz"
    path, again = package or kept, f"npm pack onnxruntime-web@{VERSION}, then add --runtime FILE"
    is_fetched = package is None and not kept.is_file()
    if is_fetched:
        try:
            with urllib.request.urlopen(URL, timeout=_SECONDS) as answer:
                data: bytes = answer.read(_PACKAGE_LIMIT)
        except OSError as error:
            raise LitebertError("LB-877", f"{URL} cannot be fetched", received=error, next=again) from error
    else:
        data = read_capped(path, _PACKAGE_LIMIT, command=f"ls -l {path}")
    if base64.b64encode(hashlib.sha512(data).digest()).decode() != INTEGRITY:
        what = f"{URL if is_fetched else path} is not the package onnxruntime-web {VERSION}"
        raise DamagedError("LB-878", what, next=again if is_fetched or package else f"rm {path}")
    if is_fetched:
        write_bytes(kept, data)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        names = ("package/dist/ort.wasm.bundle.min.mjs", "package/dist/ort-wasm-simd-threaded.wasm")
        script, binary = (archive.extractfile(name) for name in names)
        assert script is not None and binary is not None
        return script.read(), binary.read()
