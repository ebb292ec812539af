"""Export a model as one ONNX file, each weight once, in float32 or true int8; or as a
page that runs in the browser.
"""

import base64
import gzip
import hashlib
import io
import json
import tarfile
import unicodedata
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np
import torch

from litebert.errors import DamagedError, LitebertError, missing_package
from litebert.files import Json, read_capped, require_new, staged_folder, write_bytes
from litebert.folder import SentenceVectors, read_head
from litebert.folder.model import head_of
from litebert.folder.vectors import read_sentence_vectors
from litebert.interop import ExportReport
from litebert.interop.export import program
from litebert.plugins import VERBS
from litebert.privacy import cache_folder
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.model_file import NORMAL, read_model
from litebert.tokenizer.text import character_runs
from litebert.tokenizer.tokenizer import read_vocabulary

try:
    import onnx
    import onnxscript  # noqa: F401  # torch.onnx uses it

    from litebert.fast.graphs import start_session
except ImportError as error:
    raise missing_package(
        error.name or "onnx", extra="onnx", needed_for="export to ONNX"
    ) from error

OPSET = 20  # the first with Gelu as a single operator
# largest protobuf message in bytes, less some for the graph
_FILE_LIMIT = 2**31 - 2**20
_GOOD_CORRELATION = 0.99


def export_onnx(
    folder: Path, output: Path, *, int8: bool = False, has_head: bool = True
) -> ExportReport:
    """Write a model folder as one ONNX file, with the tokenizer next to it.

    The outputs are those of the folder's head, or of the encoder only. The file is not
    written if onnxruntime computes wrong outputs with it on a few texts.
    """
    beside = program.require_free(output, suffix=".onnx", source=folder)
    data, report = _convert(
        program.open_source(folder, has_head=has_head), output, int8=int8
    )
    program.write_beside(beside, output, data)
    return report


def _convert(
    source: program.SourceModel, output: Path, *, int8: bool, bits: int = 8
) -> tuple[bytes, ExportReport]:
    graph = to_graph(source.padded)
    _describe_answers(graph, source)
    notes = tuple[str, ...]()
    data = graph.SerializeToString()
    parity = program.require_near(runner(data), source, output)
    if int8:
        small = quantize(graph, table_bits=bits)
        floats = {
            tensor.name
            for tensor in small.graph.initializer
            if tensor.data_type == onnx.TensorProto.FLOAT
        }
        products = [
            node for node in small.graph.node if node.op_type in ("MatMul", "Gemm")
        ]
        assert not any(floats.intersection(node.input) for node in products), (
            "a weight is left in float"
        )
        data = small.SerializeToString()
        parity = program.require_near(runner(data), source, output, is_int8=True)
        if not parity.correlation >= _GOOD_CORRELATION:
            notes = (
                (
                    "int8 changes these outputs visibly: evaluate the file on your own"
                    " data before use"
                ),
            )
    return data, ExportReport(
        output, source.padded.output_names, len(data), parity, notes
    )


def _describe_answers(graph: onnx.ModelProto, source: program.SourceModel) -> None:
    """Write into the file how its logits become answers: the names of the labels, and
    what to apply to them.
    """
    head = head_of(source.network)
    if head is None or head.task_kind is None or not source.has_head:
        return
    described = {
        "litebert.head": head.kind,
        "litebert.labels": json.dumps(list(head.labels), ensure_ascii=False),
        "litebert.activation": head.task_kind.activation,
    }
    onnx.helper.set_model_props(graph, described)


def runner(model: bytes) -> program.RunBatch:
    """Return a function that runs a graph in onnxruntime, with as many threads as
    torch.
    """
    session = start_session(model, torch.get_num_threads())
    names = [output.name for output in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(names, inputs), strict=True))


# --- the graph ------------------------------------------------------------------------


def to_graph(network: program.PaddedNetwork) -> onnx.ModelProto:
    """Export with dynamic axes for batch and length, storing each weight once."""
    size = 4 * sum(parameter.numel() for parameter in network.parameters())
    if size > _FILE_LIMIT:
        what = "the weights do not fit in one ONNX file"
        advice = "litebert export program has no such limit"
        received = f"{size:,} bytes"
        expected = f"at most {_FILE_LIMIT:,}"
        raise LitebertError(
            "LB-474", what, received=received, expected=expected, next=advice
        )
    with program.quiet():
        traced = torch.onnx.export(
            program.trace(network),
            dynamo=True,
            opset_version=OPSET,
            dynamic_shapes=program.dynamic_shapes(network),
            input_names=list(program.INPUTS),
            output_names=list(network.output_names),
            verbose=False,
        )
    assert traced is not None
    model = traced.model_proto
    # The exporter's metadata is long and contains paths of this machine.
    model.producer_name = "litebert"
    model.producer_version = ""
    graph = model.graph
    del graph.value_info[:], graph.metadata_props[:], model.metadata_props[:]
    for part in (*graph.node, *graph.initializer, *graph.input, *graph.output):
        del part.metadata_props[:]
        part.doc_string = ""
    onnx.checker.check_model(model, full_check=True)
    return model


# --- int8: weights with one scale per column; activations are quantized dynamically

_LAST_AXIS = "int8.last_axis"


def quantize(model: onnx.ModelProto, *, table_bits: int = 8) -> onnx.ModelProto:
    """Return the graph with every weight product and every table lookup in int8, each
    weight stored once.

    One scale per row of the word table is also one per column of the masked-LM output
    layer, so the two share one table. With `table_bits` below 8, tables use only that
    many bits, so that the file compresses better.

    A product becomes DynamicQuantizeLinear, MatMulInteger and a rescaling, which
    onnxruntime fuses into one operator. Weights are symmetric, activations asymmetric.
    All activations of a product share one scale, so the outputs of a row depend
    slightly on its neighbors in the batch.
    """
    graph = model.graph
    floats = {
        t.name: t for t in graph.initializer if t.data_type == onnx.TensorProto.FLOAT
    }
    transposed = {
        n.output[0]: n.input[0]
        for n in graph.node
        if n.op_type == "Transpose" and n.input[0] in floats
    }
    # for each weight, the axis of its inputs, which shares one scale
    axes: dict[str, int] = {}
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in floats:
            axes[node.input[1]] = 0
        elif node.op_type == "MatMul" and node.input[1] in transposed:
            axes[transposed[node.input[1]]] = 1
        elif node.op_type == "Gather" and node.input[0] in floats:
            axes[node.input[0]] = 1

    # by output, so that an input is quantized once
    nodes: dict[str, onnx.NodeProto] = {}

    def add(kind: str, inputs: list[str], *outputs: str, **settings: Any) -> None:
        nodes[outputs[0]] = onnx.helper.make_node(kind, inputs, outputs, **settings)

    for node in graph.node:
        out = node.output[0]
        if (
            node.op_type == "MatMul"
            and (weight := transposed.get(node.input[1], node.input[1])) in axes
        ):
            x = node.input[0]
            add("DynamicQuantizeLinear", [x], f"{x}.uint8", f"{x}.scale", f"{x}.zero")
            add(
                "MatMulInteger",
                [f"{x}.uint8", f"{node.input[1]}.int8", f"{x}.zero"],
                f"{out}.int32",
            )
            add("Cast", [f"{out}.int32"], f"{out}.float", to=onnx.TensorProto.FLOAT)
            add("Mul", [f"{x}.scale", f"{weight}.scale"], f"{out}.scale")
            add("Mul", [f"{out}.float", f"{out}.scale"], out)
        elif node.op_type == "Gather" and (table := node.input[0]) in axes:
            add("Gather", [f"{table}.int8", node.input[1]], f"{out}.int8")
            add("Gather", [f"{table}.scale", node.input[1]], f"{out}.scale")
            add("Unsqueeze", [f"{out}.scale", _LAST_AXIS], f"{out}.scales")
            add("Cast", [f"{out}.int8"], f"{out}.float", to=onnx.TensorProto.FLOAT)
            add("Mul", [f"{out}.float", f"{out}.scales"], out)
        elif node.op_type == "Transpose" and node.input[0] in axes:
            add("Transpose", [f"{node.input[0]}.int8"], f"{out}.int8", perm=[1, 0])
        else:
            nodes[out] = node

    used = {name for node in nodes.values() for name in node.input}
    constants = [tensor for tensor in graph.initializer if tensor.name in used]
    for name, axis in axes.items():
        weight = onnx.numpy_helper.to_array(floats[name])
        bits = table_bits if axis else 8
        largest = np.abs(weight).max(axis=axis, keepdims=True)
        scale = np.maximum(largest, np.finfo(np.float32).tiny) / (2 ** (bits - 1) - 1)
        constants.append(
            onnx.numpy_helper.from_array(
                np.rint(weight / scale).astype(np.int8), f"{name}.int8"
            )
        )
        constants.append(
            onnx.numpy_helper.from_array(scale.squeeze(axis), f"{name}.scale")
        )
    constants.append(onnx.numpy_helper.from_array(np.array([-1]), _LAST_AXIS))
    result = onnx.helper.make_model(
        onnx.helper.make_graph(
            list(nodes.values()), graph.name, graph.input, graph.output, constants
        ),
        opset_imports=model.opset_import,
        ir_version=model.ir_version,
        producer_name=model.producer_name,
    )
    result.metadata_props.extend(model.metadata_props)
    onnx.checker.check_model(result, full_check=True)
    return result


# --- the page -------------------------------------------------------------------------

PAGE = Path(__file__).parent / "page"
SHARED = [
    Path(__file__).parents[2] / "serve" / "page" / name
    for name in ("charts.js", "icon.svg", "look.css")
]
VERSION = "1.30.0"
URL = f"https://registry.npmjs.org/onnxruntime-web/-/onnxruntime-web-{VERSION}.tgz"
INTEGRITY = "q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ=="  # noqa: E501
"""SHA-512 of the package, as the npm registry publishes it."""
_PACKAGE_LIMIT = 64 << 20
_SECONDS = 60
# bits of the word table, over half of a small network: fewer bits compress better
_TABLE_BITS = 7
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
    require_new(output, force=None)
    table = vocabulary_table(folder, Tokenizer.load(folder))
    script, binary = read_runtime(runtime)
    head = read_head(folder)
    has_head = head is None or VERBS[head.verb].exported != ""
    source = program.open_source(folder, has_head=has_head, has_states=True)
    model, report = _convert(source, output, int8=True, bits=_TABLE_BITS)
    by_output = {verb.exported: name for name, verb in VERBS.items()}
    verbs = [by_output[name] for name in report.outputs if name in by_output]
    verbs.append("search")
    place = folder.resolve()
    vectors = read_sentence_vectors(folder) or SentenceVectors()
    _require_simple(vectors, folder)
    # names that no server takes for already compressed, as some take .gz
    compressed = {
        "model.bin": model,
        "runtime.bin": binary,
        "tokenizer.bin": json.dumps(table, ensure_ascii=False).encode(),
    }
    files = {name: gzip.compress(data, 9, mtime=0) for name, data in compressed.items()}
    settings: dict[str, Json] = {
        # of the run or the package
        "name": place.parent.name if place.name == "model" else place.name,
        "verbs": [*verbs],
        "pooling": vectors.pooling,
        "max_length": vectors.max_length,
        "prompt": vectors.prompt(),
        "positions": source.network.config.max_position_embeddings,
        "sizes": {name: len(data) for name, data in files.items()},
    }
    if head is not None and has_head:
        settings["labels"] = list(head.labels)
        settings["compares_texts"] = head.compares_texts
        settings["activation"] = head.task_kind.activation
    files |= {
        "onnxruntime.js": script,
        "settings.json": json.dumps(settings, indent=1).encode(),
    }
    files |= {
        path.name: path.read_bytes() for path in (*sorted(PAGE.iterdir()), *SHARED)
    }
    with staged_folder(output, force=None) as staged:
        for name, data in (files | {"README.txt": _NOTICE.encode()}).items():
            write_bytes(staged / name, data)
    notes = (*report.notes, f"try it: python -m http.server --directory {output}")
    return ExportReport(
        output, tuple(verbs), sum(map(len, files.values())), report.parity, notes
    )


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
            next="litebert serve answers with every kind of model",
        )


def vocabulary_table(folder: Path, tokenizer: Tokenizer) -> dict[str, Json]:
    """Return the tokenizer of a folder as a table for `tokenizer.js`."""
    found = read_vocabulary(folder)
    if found.suffix != ".model":
        what = f"a web page can read only a SentencePiece vocabulary, not {found.path}"
        raise LitebertError(
            "LB-879", what, next="litebert serve answers with every kind of model"
        )
    if tokenizer.added:
        raise LitebertError(
            "LB-879",
            "a web page cannot split added tokens off a text",
            received=", ".join(token.content for token in tokenizer.added[:5]),
            next="litebert serve answers with every kind of model",
        )
    model = read_model(found.data, str(folder))
    settings = found.settings
    return {
        "pieces": [piece.text for piece in model.pieces],
        # The shortest decimals that round-trip to the same float32.
        "scores": [float(str(np.float32(piece.score))) for piece in model.pieces],
        "kinds": {
            str(n): piece.kind
            for n, piece in enumerate(model.pieces)
            if piece.kind != NORMAL
        },
        "charsmap": base64.b64encode(model.charsmap).decode("ascii"),
        "lowercase": settings.lowercase,
        "keep_accents": settings.keep_accents,
        "special": dict(
            zip(
                ("pad", "unk", "cls", "sep", "mask"), tokenizer.special_ids, strict=True
            )
        ),
        "spaces": _class(str.isspace),
        "marks": _class(lambda character: unicodedata.combining(character) != 0),
        "digits": _class(str.isdigit),
    }


def _class(belongs: Callable[[str], bool]) -> str:
    """Return a JavaScript character class, without brackets, of the characters for
    which `belongs` is true.
    """
    runs = character_runs(belongs)
    return "".join(rf"\u{{{first:x}}}-\u{{{last:x}}}" for first, last in runs)


def read_runtime(package: Path | None) -> tuple[bytes, bytes]:
    """Return the script and binary of onnxruntime-web from the npm package at
    `package`.

    With None, it is taken from the user's cache, or downloaded. A file without the
    published hash is never kept.
    """
    kept = cache_folder() / f"onnxruntime-web-{VERSION}.tgz"
    path = package or kept
    again = f"npm pack onnxruntime-web@{VERSION}, then add --runtime FILE"
    is_fetched = package is None and not kept.is_file()
    if is_fetched:
        try:
            with urllib.request.urlopen(URL, timeout=_SECONDS) as answer:
                data: bytes = answer.read(_PACKAGE_LIMIT)
        except (OSError, HTTPException) as error:
            raise LitebertError(
                "LB-877", f"{URL} cannot be fetched", received=error, next=again
            ) from error
    else:
        data = read_capped(path, _PACKAGE_LIMIT, command=f"ls -l {path}")
    if base64.b64encode(hashlib.sha512(data).digest()).decode() != INTEGRITY:
        what = (
            f"{URL if is_fetched else path} is not the package onnxruntime-web"
            f" {VERSION}"
        )
        raise DamagedError(
            "LB-878", what, next=again if is_fetched or package else f"rm {path}"
        )
    if is_fetched:
        write_bytes(kept, data)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        names = (
            "package/dist/ort.wasm.bundle.min.mjs",
            "package/dist/ort-wasm-simd-threaded.wasm",
        )
        script, binary = (archive.extractfile(name) for name in names)
        assert script is not None and binary is not None
        return script.read(), binary.read()
