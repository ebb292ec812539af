"""Golden numbers in `golden/`: compared bit for bit on the machine that recorded them,
approximately elsewhere.

A few steps of training are recorded on two machines, with products in bf16 (of Muon and
of precision `auto`) and without, where they are emulated and round differently. To
record them again: `LITEBERT_WRITE_GOLDENS=1 OMP_NUM_THREADS=1 pytest -n 0
tests/contract -k golden`. If they change, litebert computes something else: explain why
in the commit.
"""

import json
import os
import platform
import re
from pathlib import Path

from .shell import near

FOLDER = Path(__file__).parent / "golden"
CPU = Path("/proc/cpuinfo")

Value = float | str | list["Value"] | dict[str, "Value"]


def machine() -> str:
    """Describe the hardware and the library on which the last bits of a sum depend."""
    import torch

    text = CPU.read_text().partition("\n\n")[0] if CPU.exists() else ""
    named = ("model name", "cpu family", "model")
    cpu = [
        value for name, value in re.findall(r"(.+?)\s*: (.+)", text) if name in named
    ]
    capability = torch.backends.cpu.get_cpu_capability()
    return (
        f"{', '.join(cpu) or platform.processor()}, {capability}, torch"
        f" {torch.__version__}"
    )


def laid_out(value: object, depth: int = 0) -> str:
    """Format JSON with one line per row."""
    if (
        depth > 2
        or not isinstance(value, dict | list)
        or (isinstance(value, list) and not isinstance(value[0], dict))
    ):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return "[\n" + ",\n".join(laid_out(each, 3) for each in value) + "\n]"
    lines = [
        f"{json.dumps(name)}: {laid_out(value[name], depth + 1)}"
        for name in sorted(value)
    ]
    return "{\n" + ",\n".join(lines) + "\n}"


def expected(
    file: str, name: str, found: Value, *, rel: float = 1e-5, is_exact: bool = True
) -> object:
    """Return the value recorded under this name in `golden/file.json`, to be compared
    with `found`.

    On the machine that recorded it all bits must be equal, unless `is_exact` is False;
    elsewhere, numbers within `rel`.
    """
    path = FOLDER / f"{file}-emulated.json"
    if not path.exists() or (CPU.exists() and "avx512_bf16" in CPU.read_text()):
        path = FOLDER / f"{file}.json"
    kept = (
        json.loads(path.read_text("utf-8"))
        if path.exists()
        else {"machine": machine(), "values": {}}
    )
    if os.environ.get("LITEBERT_WRITE_GOLDENS"):
        kept = {"machine": machine(), "values": {**kept["values"], name: found}}
        path.write_text(laid_out(kept) + "\n", "utf-8")
    value = kept["values"][name]
    if not is_exact or kept["machine"] != machine():
        return near(value, rel, rel)
    if not isinstance(value, list):
        return value
    # A CPU evaluates with the kernels that were fastest when the process began: their
    # last bits may differ.
    is_measured = [isinstance(row, dict) and row.get("kind") == "eval" for row in value]
    return [
        near(row, rel, rel) if own else row
        for row, own in zip(value, is_measured, strict=True)
    ]
