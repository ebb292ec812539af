"""A pretraining run of a few seconds, hooks into its steps, and the results that must
be equal bit for bit.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from litebert.config import PretrainConfig
from litebert.files import hash_file
from litebert.settings import Resolved, resolve, settings_from_words
from litebert.train import loop
from tests.contract.tiny import SIZES, rows

PACE = (
    "objective.max_seq_length=48 optim.name=adamw optim.learning_rate=0.003"
    " train.steps=12 train.batch_size=8 train.eval_every=5 train.eval_sequences=16"
    " train.save_every=4 train.log_every=3 train.loader_workers=0"
)
SMALL = [*(f"model.{name}={size}" for name, size in SIZES.items()), *PACE.split()]

Configure = Callable[..., Resolved[PretrainConfig]]


@pytest.fixture(scope="session")
def configure(corpus: Path) -> Configure:
    return lambda *changes: resolve(
        PretrainConfig, settings_from_words([f"data.corpus={corpus}", *SMALL, *changes])
    )


Act = Callable[[int], object]
EachStep = Callable[[Act], None]


@pytest.fixture
def each_step(monkeypatch: pytest.MonkeyPatch) -> EachStep:
    """Return a function that makes every later step call an action with the number of
    the step.
    """
    original = loop.training_step

    def do(act: Act) -> None:
        def step(*args: object, **kwargs: object) -> object:
            act(kwargs["step"] + 1)
            return original(*args, **kwargs)

        monkeypatch.setattr(loop, "training_step", step)

    return do


def at(number: int, action: Callable[..., object], *arguments: object) -> Act:
    return lambda step: action(*arguments) if step == number else None


def checkpoints_of(run: Path) -> list[Path]:
    return sorted((run / "checkpoints").glob("step-*"))


def state_of(run: Path) -> dict[str, object]:
    """Return everything of a finished run that must be equal bit for bit."""
    files = [
        checkpoints_of(run)[-1] / name
        for name in ("model.safetensors", "optimizer.safetensors", "state.json")
    ]
    files += sorted(run.glob("*/model.safetensors"))
    return {
        "rows": rows(run),
        **{str(file.relative_to(run)): hash_file(file) for file in files},
    }


ASLEEP = """
import time
from pathlib import Path
from litebert.train.session import session
with session(Path('.')):
    print("ready", flush=True)
    while True:
        time.sleep(60)
"""


@pytest.fixture
def asleep(tmp_path: Path) -> "Iterator[subprocess.Popen[bytes]]":
    """Start a process that holds the test's folder as a run does."""
    with subprocess.Popen(
        [sys.executable, "-c", ASLEEP], stdout=subprocess.PIPE, cwd=tmp_path
    ) as child:
        assert child.stdout.readline() == b"ready\n"
        yield child
        child.kill()
