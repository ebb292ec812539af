"""A run by the clock on a busy machine: how its steps would take on a machine that is
first quiet, then busy, then quiet again.
"""

import json
from pathlib import Path

import pytest
import torch

from litebert.config import TrainConfig
from litebert.device import choose_device
from litebert.train import pace as watching
from litebert.train.log import RunLog
from litebert.train.pace import Pace
from litebert.train.session import Session


class Machine:
    """The seconds of a step for each number of threads, and the notes of its run."""

    def __init__(self, folder: Path, choices: tuple[int, ...]) -> None:
        self.folder = folder
        (folder / "run.json").write_text("{}")
        self.threads = torch.get_num_threads()
        log = RunLog(
            Session(folder), TrainConfig(), choose_device("cpu"), is_quiet=True
        )
        self.pace = Pace(log, choices, self.set_threads)
        self.set_threads(self.pace.threads)
        self.step = 0

    def set_threads(self, number: int) -> None:
        self.threads = number

    def run(self, steps: int, seconds: dict[int, float]) -> None:
        for _ in range(steps):
            self.step += 1
            self.pace.count(self.step, seconds[self.threads])

    @property
    def notes(self) -> list[str]:
        path = self.folder / "metrics.jsonl"
        if not path.exists():
            return []
        return [json.loads(line)["text"] for line in path.read_text().splitlines()]


MANY = torch.get_num_threads() + 1  # than those that the run began with
FEW = torch.get_num_threads()
QUIET = {FEW: 1.5, MANY: 1.0}
BUSY = {FEW: 4.0, MANY: 9.0}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path, (FEW, MANY))
    machine.pace.threads = MANY
    machine.set_threads(MANY)
    return machine


def test_a_run_changes_its_threads_when_its_pace_collapses_and_says_so_once(
    machine: Machine,
) -> None:
    machine.run(50, QUIET)
    assert machine.threads == MANY
    assert not machine.notes
    machine.run(30, BUSY)
    assert machine.threads == FEW
    (note,) = machine.notes
    assert f"{FEW} instead of {MANY} threads" in note
    assert "2.2 times as fast" in note
    # it looks from time to time whether the others have gone
    machine.run(watching.PATIENCE + 20, QUIET)
    assert machine.threads == MANY
    machine.run(30, BUSY)
    assert machine.threads == FEW
    assert len(machine.notes) == 1


def test_threads_stay_where_they_are_faster_or_were_set(
    machine: Machine, tmp_path: Path
) -> None:
    machine.run(30, QUIET)
    # everything is slower, and all threads are still the fastest
    machine.run(60, {FEW: 8.0, MANY: 5.0})
    assert machine.threads == MANY
    assert not machine.notes
    fixed = Machine(tmp_path, ())
    fixed.run(30, {FEW: 1.0})
    fixed.run(60, {FEW: 9.0})
    assert fixed.threads == FEW


def test_a_run_that_got_little_of_the_machine_says_so(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.run(10, QUIET)
    begun = machine.pace._begun
    begun_computing = machine.pace._begun_computing
    monkeypatch.setattr("time.monotonic", lambda: begun + 100.0)
    monkeypatch.setattr("time.process_time", lambda: begun_computing + 50.0 * MANY)
    machine.pace.conclude(10)
    assert not machine.notes
    monkeypatch.setattr("time.process_time", lambda: begun_computing + 10.0 * MANY)
    machine.pace.conclude(10)
    (note,) = machine.notes
    assert f"10% of the time of {MANY} processors" in note
    assert "only 10 steps" in note
