"""litebert reads what real TensorFlow wrote, bit for bit (damage: tests/interop/google)."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from litebert.interop.bundle import read_bundle

pytestmark = pytest.mark.tensorflow
FIXTURES = Path(__file__).parents[1] / "interop" / "google" / "fixtures"
# TensorFlow's, of an environment of its own
PYTHON = os.environ.get("LITEBERT_TENSORFLOW_PYTHON", sys.executable)


def _run(*words: Path) -> None:
    """Run checkpoints.py with TensorFlow's Python; skip if it has no TensorFlow."""
    code = "import importlib.util as u, sys; sys.exit(not u.find_spec('tensorflow'))"
    if subprocess.run([PYTHON, "-c", code], check=False).returncode:
        pytest.skip(
            f"tensorflow is not installed for {PYTHON}: set LITEBERT_TENSORFLOW_PYTHON"
        )
    command = [
        PYTHON,
        str(Path(__file__).with_name("checkpoints.py")),
        *map(str, words),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]


def test_fixtures_are_what_tensorflow_writes_and_are_read_bit_for_bit(
    tmp_path: Path,
) -> None:
    _run(tmp_path / "theirs")
    for path in sorted(FIXTURES.rglob("*.data-*")):
        # TF2 writes the names of its own objects into it
        if path.parent.name != "objects":
            assert (
                tmp_path / "theirs" / path.relative_to(FIXTURES)
            ).read_bytes() == path.read_bytes(), path
    for expected in sorted(tmp_path.rglob("expected.npz")):
        (index,) = expected.parent.rglob("*.index")
        bundle = read_bundle(index.with_suffix(""))
        with np.load(expected, allow_pickle=False) as numbers:
            assert set(numbers) == set(bundle.entries)
            for name in bundle.entries:
                assert np.array_equal(bundle.read(name).double(), numbers[name]), (
                    expected,
                    name,
                )
