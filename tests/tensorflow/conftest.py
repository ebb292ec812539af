"""Tests beside real TensorFlow, which lives in an environment of its own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
collect_ignore = ["make_fixtures.py", "read_checkpoint.py"]
"""Scripts for TensorFlow's Python, which pytest has no business importing."""


@pytest.fixture(scope="session")
def with_tensorflow() -> Callable[..., None]:
    """Give a function that runs a script here with TensorFlow's Python; skip where there is none.

    LITEBERT_TENSORFLOW_PYTHON names that Python; unset, it is this one.
    """
    python = os.environ.get("LITEBERT_TENSORFLOW_PYTHON", sys.executable)
    code = "import importlib.util as u, sys; sys.exit(not u.find_spec('tensorflow'))"
    if subprocess.run([python, "-c", code], check=False).returncode:
        pytest.skip(f"tensorflow is not installed for {python}: set LITEBERT_TENSORFLOW_PYTHON")

    def run(script: str, *words: str | Path) -> None:
        command = [python, str(HERE / script), *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3_000:]

    return run
