"""Write the static folder: a page, its scripts, the model in eight bits, and its tokenizer."""

from __future__ import annotations

import base64
import gzip
import json
import sys
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from litebert.errors import LitebertError
from litebert.files import Json, require_absent, staged_folder, write_bytes
from litebert.folder import SentenceVectors, head_of, load_model, read_sentence_vectors
from litebert.interop.export.onnx import export_onnx
from litebert.interop.export.parity import Parity
from litebert.interop.export.source import ENCODER_ONLY
from litebert.interop.export.web.runtime import VERSION, read_runtime
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.fromjson import read_vocabulary
from litebert.tokenizer.location import vocabulary_file
from litebert.tokenizer.modelfile import NORMAL, read_model

PAGE = Path(__file__).parent / "page"
_VERBS = {"prediction_logits": "fill", "logits": "classify"}
"""What the page can do with an output of the network."""
_TABLE_BITS = 7
"""Bits of the word table, which is over half of a small network: fewer bits compress better."""
_NOTICE = f"""\
A page in which a model of litebert answers, with no server behind it.

Try it: python -m http.server, then open http://127.0.0.1:8000/

onnxruntime.js and onnxruntime.wasm.gz are onnxruntime-web {VERSION} (Microsoft, MIT licence).
"""


@dataclass(frozen=True)
class WebReport:
    """What was written: bytes by file, the verbs of the page, and how exact eight bits are.

    `transfer` is what a browser fetches for the first answer.
    """

    output: Path
    verbs: tuple[str, ...]
    files: dict[str, int]
    parity: Parity

    @property
    def transfer(self) -> int:
        """Bytes that a browser fetches."""
        return sum(size for name, size in self.files.items() if name != "README.txt")


def export_web(folder: Path, output: Path, *, runtime: Path | None = None) -> WebReport:
    """Write a folder that any static server can serve; `runtime` is a local npm package.

    The page fills blanks if the model has a masked-LM head, classifies if it was fine-tuned for
    that, and always searches by vectors. Large files are compressed; the page unpacks them.

    Raises:
        LitebertError: LB-910, the output exists; LB-877, LB-878, no runtime; LB-879, no
            SentencePiece vocabulary; what `export_onnx` raises.
    """
    require_absent(
        "LB-910", f"{output} exists", output, expected="a folder that is not there yet", next="choose another folder"
    )
    tokenizer = Tokenizer.load(folder)
    table = vocabulary(folder, tokenizer)
    found = read_runtime(runtime)
    head = head_of(load_model(folder).network)
    has_head = head is None or head.record.verb in _VERBS.values()
    with TemporaryDirectory() as scratch:
        report = export_onnx(
            folder,
            Path(scratch) / "model.onnx",
            int8=True,
            head=None if has_head else ENCODER_ONLY,
            has_latency=False,
            has_states=True,
            table_bits=_TABLE_BITS,
        )
        model = report.output.read_bytes()
    verbs = (*(_VERBS[name] for name in report.outputs if name in _VERBS), "search")
    settings: dict[str, Json] = {"name": _name(folder.resolve()), "verbs": list(verbs)}
    settings |= _vectors(read_sentence_vectors(folder) or SentenceVectors())
    settings["positions"] = load_model(folder).network.config.max_position_embeddings
    if head is not None and has_head:
        settings |= {"labels": list(head.labels), "problem": head.problem_type}
    compressed = {
        "model.onnx.gz": model,
        "onnxruntime.wasm.gz": found.binary,
        "tokenizer.json.gz": json.dumps(table, ensure_ascii=False).encode(),
    }
    files = {name: gzip.compress(data, 9, mtime=0) for name, data in compressed.items()}
    settings["sizes"] = {name: len(data) for name, data in files.items()}
    files["onnxruntime.js"] = found.script
    files["settings.json"] = json.dumps(settings, indent=1).encode()
    files["README.txt"] = _NOTICE.encode()
    files |= {path.name: path.read_bytes() for path in sorted(PAGE.iterdir())}
    with staged_folder(output) as staged:
        for name, data in files.items():
            write_bytes(staged / name, data)
    parity = next(row.parity for row in reversed(report.rows) if row.parity)
    return WebReport(output, verbs, {name: len(data) for name, data in files.items()}, parity)


def _name(folder: Path) -> str:
    """Return the name of a folder; for a folder called model, that of the run or package."""
    return folder.parent.name if folder.name == "model" else folder.name


def _vectors(vectors: SentenceVectors) -> dict[str, Json]:
    return {"pooling": vectors.pooling, "max_length": vectors.max_length, "prompt": vectors.prompt}


def vocabulary(folder: Path, tokenizer: Tokenizer) -> dict[str, Json]:
    """Return the tokenizer of a folder as a table for `tokenizer.js`.

    Raises:
        LitebertError: LB-879, its vocabulary is not a SentencePiece model.
    """
    found = read_vocabulary(folder)
    if found.suffix != ".model":
        raise LitebertError(
            "LB-879",
            "a web page can read only a SentencePiece vocabulary",
            received=str(vocabulary_file(folder)),
            expected="a folder with spiece.model, or its tokenizer.json",
            next="litebert serve answers with every kind of model",
        )
    model, settings = read_model(found.data, str(folder)), found.settings
    kinds = [piece.kind for piece in model.pieces]
    return {
        "pieces": [piece.text for piece in model.pieces],
        # The shortest decimals that give the same float32 again.
        "scores": [float(str(np.float32(piece.score))) for piece in model.pieces],
        "kinds": {str(n): kind for n, kind in enumerate(kinds) if kind != NORMAL},
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
