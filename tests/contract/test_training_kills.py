"""A training that is killed anywhere and restarted ends with the same bits as an
uninterrupted one.
"""

import shutil
from pathlib import Path

import pytest

import litebert as package
from tests.kills import killed

from .shell import damage
from .tiny import FINETUNING, PRETRAINING, Desk, reproducible_rows, weights

PARTS = {"pretrain": [0.15, 0.35, 0.5, 0.65, 0.8, 0.95], "finetune": [0.3, 0.6, 0.9]}
"""Where a training is killed, as fractions of its file operations."""


PACE = {"train.steps": 8, "train.save_every": 2, "train.eval_every": 4}


def call_of(verb: str, desk: Desk) -> dict[str, object]:
    if verb == "pretrain":
        settings = {
            **PRETRAINING,
            **PACE,
            "optim.name": "muon",
            "optim.average_decay": 0.5,
        }
        return {"corpus": str(desk.corpus), "settings": settings}
    return {
        "task": str(desk.table("reviews.csv")),
        "model": str(desk.base),
        "settings": {**FINETUNING, **PACE},
    }


@pytest.mark.parametrize("verb", PARTS)
def test_a_killed_training_resumes_to_the_same_bits(
    desk: Desk, tmp_path: Path, verb: str
) -> None:
    arguments = call_of(verb, desk)
    whole = tmp_path / "whole"
    assert (
        killed(
            "train", verb=verb, arguments=arguments, runs=tmp_path, parts=PARTS[verb]
        )
        > 50
    )
    for part in PARTS[verb]:
        run = getattr(package, verb)(
            **arguments, runs=tmp_path, name=f"killed-{part}", quiet=True
        )
        assert run.is_finished
        assert weights(run) == weights(whole)
        assert reproducible_rows(run) == reproducible_rows(whole)
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
    assert reproducible_rows(again) == reproducible_rows(whole)
