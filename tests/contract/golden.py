"""Numbers recorded in `golden/`, compared within bounds that hold on every CPU.

Machines differ in the last bits of a sum: by their vector instructions, by their number
of threads, by the kernels that were fastest when a process began. So no bit of a
recorded number is compared. What must have equal bits is computed twice on one machine.

To record again: `LITEBERT_WRITE_GOLDENS=1 OMP_NUM_THREADS=1 pytest -n 0 tests/contract
-k golden`. If a number changes, litebert computes something else: explain why in the
commit.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from .shell import near

FOLDER = Path(__file__).parent / "golden"
RELATIVE = 1e-4
"""Bound on the difference of two numbers, relative to the recorded one."""

Row = dict[str, object]


def expected(
    file: str,
    name: str,
    computed: list[Row] | Row,
    *,
    absolute: float = 0.0,
    wider: Mapping[str, float] | None = None,
) -> object:
    """Return what `golden/file.json` has under this name, to be compared with
    `computed`.

    Numbers may differ by 1e-4 of the recorded one or by `absolute`, whichever is more.
    `wider` gives some fields of an object, or of every row, an absolute bound of their
    own; the caller says why they need it.
    """
    path = FOLDER / f"{file}.json"
    if os.environ.get("LITEBERT_WRITE_GOLDENS"):
        record(path, name, computed)
    recorded = json.loads(path.read_text("utf-8"))[name]
    bounds = wider or {}
    if isinstance(recorded, dict):
        return near_row(recorded, absolute, bounds)
    return [near_row(row, absolute, bounds) for row in recorded]


def near_row(row: Row, absolute: float, wider: Mapping[str, float]) -> Row:
    """Return what compares equal to a row within the bounds of `expected`."""
    compared: Row = {}
    for field, value in row.items():
        if field in wider:
            compared[field] = pytest.approx(value, abs=wider[field], rel=0)
        else:
            compared[field] = near(value, RELATIVE, absolute)
    return compared


def record(path: Path, name: str, computed: list[Row] | Row) -> None:
    """Write one value among the others of its file: every row of a list, and every
    field of an object, on a line of its own.
    """
    values = json.loads(path.read_text("utf-8")) if path.exists() else {}
    values[name] = computed
    blocks = []
    for key in sorted(values):
        value = values[key]
        if isinstance(value, list):
            lines = [json.dumps(row, ensure_ascii=False) for row in value]
            block = "[\n" + ",\n".join(lines) + "\n]"
        else:
            lines = [
                f"{json.dumps(field)}: {json.dumps(value[field])}" for field in value
            ]
            block = "{\n" + ",\n".join(lines) + "\n}"
        blocks.append(f"{json.dumps(key)}: {block}")
    path.write_text("{\n" + ",\n".join(blocks) + "\n}\n", "utf-8")


@contextmanager
def muon_in_float32() -> Iterator[None]:
    """Let Muon orthogonalize in float32, as it does on a CPU without bf16.

    In bf16 its updates keep three digits, and which way the third is rounded depends on
    the make of CPU: gradient norms then differ by up to 4e-3. In float32 the norms of
    two makes agree to 2e-6.
    """
    import torch

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
        yield
