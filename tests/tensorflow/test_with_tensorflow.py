"""Real TensorFlow and litebert read what the other wrote, bit for bit (damage: tests/interop/google)."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from litebert.config import AlbertConfig
from litebert.folder import save_model
from litebert.interop.bundle import read_bundle
from litebert.interop.google import export_checkpoint
from litebert.nn import AlbertForPretraining

pytestmark = pytest.mark.tensorflow
Run = Callable[..., None]
SHAPE = {"vocab_size": 3_000, "embedding_size": 32, "hidden_size": 64, "num_attention_heads": 4}


@pytest.fixture(scope="module")
def theirs(with_tensorflow: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give checkpoints that TensorFlow wrote just now."""
    folder = tmp_path_factory.mktemp("theirs") / "checkpoints"
    with_tensorflow("make_fixtures.py", folder)
    return folder


def _prefix(folder: Path) -> Path:
    index = next(folder.rglob("*.index"))
    return index.with_name(index.name.removesuffix(".index"))


def test_what_tensorflow_writes_is_read_bit_for_bit(theirs: Path) -> None:
    for expected in sorted(theirs.glob("*/expected.npz")):
        bundle = read_bundle(_prefix(expected.parent))
        with np.load(expected, allow_pickle=False) as numbers:
            assert set(numbers) == set(bundle.entries)
            for name in bundle.entries:
                assert np.array_equal(bundle.read(name).double(), numbers[name]), (expected, name)


def test_the_committed_checkpoints_are_those_that_the_script_writes(theirs: Path) -> None:
    committed = Path(__file__).parents[1] / "interop" / "google" / "fixtures"
    for path in sorted(committed.rglob("*.data-*")):
        fresh = theirs / path.relative_to(committed)
        if path.parent.name != "objects":  # TF2 writes the names of its own objects into it
            assert fresh.read_bytes() == path.read_bytes(), path


def test_what_we_write_tensorflow_restores_bit_for_bit(with_tensorflow: Run, tmp_path: Path) -> None:
    network = AlbertForPretraining(AlbertConfig(**SHAPE, intermediate_size=256, num_hidden_layers=6, sharing="none"))
    save_model(network, tmp_path / "model")
    prefix = tmp_path / "out" / "model.ckpt-best"
    export_checkpoint(tmp_path / "model", prefix)
    with_tensorflow("read_checkpoint.py", prefix, tmp_path / "read.npz")
    ours = read_bundle(prefix)
    with np.load(tmp_path / "read.npz", allow_pickle=False) as read:
        assert {name for name in read if not name.endswith(":dtype")} == set(ours.entries)
        for name in ours.entries:
            assert np.array_equal(read[name], ours.read(name)), name
            assert f"torch.{read[f'{name}:dtype']}" == str(ours.dtype(name))
