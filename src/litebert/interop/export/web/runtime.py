"""onnxruntime-web, from its npm package: fetched once, checked against its published hash."""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from litebert.errors import DamagedError, LitebertError
from litebert.files import read_capped, write_bytes

VERSION = "1.30.0"
URL = f"https://registry.npmjs.org/onnxruntime-web/-/onnxruntime-web-{VERSION}.tgz"
INTEGRITY = "q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ=="
"""SHA-512 of the package, as the npm registry publishes it."""
_LIMIT = 64 << 20
_SECONDS = 60
_SCRIPT = "package/dist/ort.wasm.bundle.min.mjs"
_BINARY = "package/dist/ort-wasm-simd-threaded.wasm"


@dataclass(frozen=True)
class Runtime:
    """The two files that a page needs."""

    script: bytes
    binary: bytes


def read_runtime(package: Path | None) -> Runtime:
    """Read the npm package at `package`; with None, download it or take it from the cache.

    Raises:
        LitebertError: LB-877, it cannot be fetched; LB-878, it is another package or version.
    """
    data = _fetched() if package is None else read_capped(package, _LIMIT, command=f"ls {package}")
    if base64.b64encode(hashlib.sha512(data).digest()).decode() != INTEGRITY:
        raise DamagedError(
            "LB-878",
            f"this is not the package onnxruntime-web {VERSION}",
            received=f"{package or URL}, {len(data):,} bytes",
            expected="the file whose hash the npm registry publishes",
            next=f"npm pack onnxruntime-web@{VERSION}",
        )
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        script, binary = (archive.extractfile(name) for name in (_SCRIPT, _BINARY))
        assert script is not None
        assert binary is not None
        return Runtime(script.read(), binary.read())


def _fetched() -> bytes:
    """Return the package from the cache of this user, or from the registry."""
    kept = Path.home() / ".cache" / "litebert" / f"onnxruntime-web-{VERSION}.tgz"
    if kept.is_file():
        return read_capped(kept, _LIMIT, command=f"rm {kept}")
    try:
        with urllib.request.urlopen(URL, timeout=_SECONDS) as answer:
            data: bytes = answer.read(_LIMIT)
    except OSError as error:
        raise LitebertError(
            "LB-877",
            "onnxruntime-web cannot be fetched",
            received=f"{URL}: {error}",
            expected="a connection to the npm registry, or --runtime with a local copy",
            next=f"npm pack onnxruntime-web@{VERSION}, then add --runtime onnxruntime-web-{VERSION}.tgz",
        ) from error
    write_bytes(kept, data)
    return data
