"""A run by the clock ends when the time is up, however fast the machine is."""

from pathlib import Path

import pytest

from litebert.config import TrainConfig
from litebert.train.loop import MIN_STEPS, Pace


class Machine:
    """A clock that a test advances."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def _run(pace: Pace, machine: Machine, *, busy_from: int, step: int = 0, until: int = -1) -> int:
    """Train with steps of 0.5 s that take four times as long from one step on."""
    while not pace.is_last(step) and step != until:
        machine.seconds += 2.0 if step >= busy_from else 0.5
        step += 1
        pace.look(step, 1.0)
    return step


@pytest.mark.parametrize("busy_from", [10_000, 300, 100, 0])
@pytest.mark.parametrize("planned", [150, 600, 5_000])
def test_the_end_comes_with_the_time(tmp_path: Path, busy_from: int, planned: int) -> None:
    machine = Machine()
    pace = Pace(tmp_path, 300.0, planned, begun=0.0, now=machine)
    _run(pace, machine, busy_from=busy_from)
    assert machine.seconds + 1.0 == pytest.approx(300, rel=0.1)


def test_the_schedule_is_walked_to_its_end_and_never_back(tmp_path: Path) -> None:
    machine = Machine()
    pace = Pace(tmp_path, 300.0, 1_000, begun=0.0, now=machine)
    end = _run(pace, machine, busy_from=200)
    positions = [pace.position(step) for step in range(end)]
    assert positions == sorted(positions)
    assert positions[0] == 0
    assert positions[-1] >= 0.98 * 999


def test_a_resumed_run_repeats_what_was_decided(tmp_path: Path) -> None:
    machine = Machine()
    pace = Pace(tmp_path, 300.0, 1_000, begun=0.0, now=machine)
    stopped = _run(pace, machine, busy_from=200, until=250)
    pace.record()
    decided = [pace.position(step) for step in range(pace.clock.knots[-1].step)]
    again = Pace.open(tmp_path, TrainConfig(minutes=5, steps=1_000), begun=machine.seconds)
    again.now = machine
    assert [again.position(step) for step in range(len(decided))] == decided
    assert machine.seconds - again.begun == pytest.approx(machine.seconds)
    _run(again, machine, busy_from=200, step=stopped - 40)
    assert again.clock.knots[: len(pace.clock.knots)] == pace.clock.knots
    assert machine.seconds == pytest.approx(300, rel=0.1)


def test_a_run_takes_some_steps_even_when_the_time_is_up(tmp_path: Path) -> None:
    machine = Machine()
    pace = Pace(tmp_path, 1.0, 400, begun=0.0, now=machine)
    assert _run(pace, machine, busy_from=0) == MIN_STEPS
