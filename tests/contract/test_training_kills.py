"""A training that is killed anywhere and restarted ends with the same bits as an
uninterrupted one.
"""

import shutil
from pathlib import Path

import pytest

import litebert as package
from tests.kills import killed

from .shell import damage
from .tiny import FINETUNING, PRETRAINING, Desk, rows, weights

PARTS = {
    "pretrain": [0.15, 0.35, 0.5, 0.65, 0.8, 0.95],
    "pretrain in bf16": [0.3, 0.5, 0.8],
    "finetune": [0.3, 0.6, 0.9],
}
"""Where a training is killed, as fractions of its file operations."""


PACE = {"train.steps": 8, "train.save_every": 2, "train.eval_every": 4}


def call_of(kind: str, desk: Desk) -> dict[str, object]:
    if kind.startswith("pretrain"):
        settings = {
            **PRETRAINING,
            **PACE,
            "train.precision": "bf16" if kind.endswith("bf16") else "fp32",
            "optim.name": "muon",
            "optim.average_decay": 0.5,
        }
        return {"corpus": str(desk.corpus), "settings": settings}
    return {
        "task": str(desk.table("reviews.csv")),
        "model": str(desk.base),
        "settings": {**FINETUNING, **PACE},
    }


@pytest.mark.parametrize("kind", PARTS)
def test_a_killed_training_resumes_to_the_same_bits(
    desk: Desk, tmp_path: Path, kind: str
) -> None:
    verb, *_ = kind.split()
    arguments = call_of(kind, desk)
    whole = tmp_path / "whole"
    num_operations = killed(
        "train", verb=verb, arguments=arguments, runs=tmp_path, parts=PARTS[kind]
    )
    assert num_operations > 50
    for part in PARTS[kind]:
        run = getattr(package, verb)(
            **arguments, runs=tmp_path, name=f"killed-{part}", quiet=True
        )
        assert run.is_finished
        assert weights(run) == weights(whole)
        assert rows(run) == rows(whole)
        assert sorted(path.name for path in run.folder.iterdir()) == sorted(
            path.name for path in whole.iterdir()
        )


@pytest.fixture(scope="module")
def whole(desk: Desk, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return package.pretrain(
        **call_of("pretrain", desk),
        runs=tmp_path_factory.mktemp("runs"),
        name="whole",
        quiet=True,
    ).folder


DAMAGED = {"model.safetensors": "flipped", "optimizer.safetensors": "cut"}
DAMAGED |= {"state.json": "emptied", "manifest.json": "removed"}


@pytest.mark.parametrize(("name", "how"), DAMAGED.items())
def test_a_damaged_checkpoint_is_skipped_and_named(
    desk: Desk, whole: Path, tmp_path: Path, capfd, name: str, how: str
) -> None:
    run = Path(shutil.copytree(whole, tmp_path / "runs" / "own"))
    shutil.rmtree(run / "model")
    before, last = sorted((run / "checkpoints").iterdir())
    damage(next(last.rglob(name)), how)
    # a damaged file is named even if progress is not shown
    is_quiet = name == "optimizer.safetensors"
    again = package.pretrain(
        **call_of("pretrain", desk), runs=run.parent, name=run.name, quiet=is_quiet
    )
    said = capfd.readouterr().err
    assert last.name in said and before.name not in said
    assert weights(again) == weights(whole)
    assert rows(again) == rows(whole)
