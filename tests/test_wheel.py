"""The wheel in a bare environment: it answers, and names each extra that is not
installed.

Slow: it installs torch. `make test-wheel` runs it.
"""

import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.wheel]
ROOT = Path(__file__).parents[1]
CONSTRAINTS = ["-c", str(ROOT / "constraints.txt")]
EXTRAS = {
    "wordpiece": "tokenizer encode a --tokenizer vocab.txt",
    "data": "tokenizer train text.parquet --output v",
    "hub": "hub pull albert/albert-base-v2",
    "google": "import google nowhere --output new",
    "onnx": "export onnx MODEL model.onnx",
    "serve": "serve --port 0",
    "cluster": (
        "corpus build text.txt --tokenizer MODEL --output c --sentences line --cluster"
    ),
}
"""A command that needs each extra."""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel and install it, without extras, into a new environment."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    _run([*pip, "wheel", "-q", "--no-deps", "-w", folder, ROOT])
    venv.create(folder / "bare", with_pip=True)
    python = folder / "bare" / "bin" / "python"
    (wheel,) = folder.glob("litebert-*.whl")
    _run([python, "-m", "pip", "install", "-q", *CONSTRAINTS, wheel])
    return python


def test_the_wheel_works_in_a_bare_environment(python: Path, tmp_path: Path) -> None:
    shown = _litebert(
        python, tmp_path, ["fill", "The cat sat on the [MASK].", "--top", "1"]
    )
    assert shown.returncode == 0, shown.stderr
    assert "%" in shown.stdout
    assert _litebert(python, tmp_path, ["-V"]).stdout.startswith("litebert")
    assert _litebert(python, tmp_path, ["doctor"]).returncode == 0


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_missing_extra_is_named(python: Path, tmp_path: Path, extra: str) -> None:
    (tmp_path / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    )
    (tmp_path / "text.txt").write_text("One sentence.\nAnother one.\n\nA third.\n")
    (tmp_path / "text.parquet").write_bytes(b"PAR1")
    package = [python, "-c", "import litebert; print(litebert.__path__[0])"]
    model = Path(_run(package).strip()) / "model"
    words = [str(model) if word == "MODEL" else word for word in EXTRAS[extra].split()]
    done = _litebert(python, tmp_path, words)
    assert done.returncode == 1, done
    assert f"litebert[{extra}]" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def _litebert(
    python: Path, folder: Path, words: Sequence[str]
) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    return subprocess.run(
        [python.with_name("litebert"), *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


def _run(command: Sequence[str | Path]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
