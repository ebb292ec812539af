"""What all tests share: where the real data lies, and what its absence means."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Give the folder of real data; skip by name in a clone without it, fail in CI."""
    folder = Path(os.environ.get("LITEBERT_TEST_DATA", ROOT / "../shared/data")).resolve()
    if not folder.is_dir():
        reason = f"real data not found: set LITEBERT_TEST_DATA (looked in {folder})"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return folder
