"""Write a safetensors file tensor by tensor, so that no more than one is in memory."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from litebert.files import Json, write_stream
from litebert.interop.google.pieces import pieces

Shapes = Mapping[str, tuple[int, ...]]


def write_tensors(path: Path, shapes: Shapes, value: Callable[[str], NDArray[np.float32]]) -> None:
    """Write a float32 tensor of each name; `value` makes each when it is written."""
    write_stream(path, _chunks(shapes, value))


def _chunks(shapes: Shapes, value: Callable[[str], NDArray[np.float32]]) -> Iterator[bytes]:
    header: dict[str, Json] = {"__metadata__": {"format": "pt"}}
    begin = 0
    for name, shape in shapes.items():
        end = begin + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at multiples of eight bytes
    yield len(text).to_bytes(8, "little") + text
    for name, shape in shapes.items():
        tensor = value(name)
        assert tensor.shape == shape, name
        yield from pieces(tensor, "float32")
