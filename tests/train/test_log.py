"""What a run reports of its speed and of the time that is left, by a clock that stands
still unless a test moves it.
"""

import json
from pathlib import Path

import pytest

from litebert.config import TrainConfig
from litebert.device import choose_device
from litebert.errors import format_duration
from litebert.train.log import RunLog
from litebert.train.session import Session

STEPS = 100
EVAL_EVERY = 50


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("time.monotonic", clock)
    return clock


@pytest.fixture
def log(tmp_path: Path, clock: Clock) -> RunLog:
    """Return the log of a run that begins now."""
    (tmp_path / "run.json").write_text("{}")
    train = TrainConfig(steps=STEPS, eval_every=EVAL_EVERY)
    log = RunLog(Session(tmp_path), train, choose_device("cpu"))
    log.begin(0, STEPS)
    return log


def report(log: RunLog, step: int, *, tokens: int) -> float:
    """Report a step; return the tokens per second in its row. `tokens` are those that
    this run has read since the last report; before it was resumed, there were 1,000.
    """
    in_all = tokens + 1_000
    log.tokens = tokens
    log.training(step, in_all, {"loss": 1.0}, {"learning_rate": 1e-3})
    assert log.tokens == 0
    text = (log.session.folder / "metrics.jsonl").read_text()
    row = json.loads(text.splitlines()[-1])
    assert (row["kind"], row["step"], row["tokens"]) == ("train", step, in_all)
    speed: float = row["tokens_per_second"]
    return speed


def test_the_speed_and_the_time_left_are_those_of_training_and_of_evaluations(
    log: RunLog, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    clock.now += 10
    assert report(log, 10, tokens=500) == 50
    assert f"left {format_duration(90 * 1.0)}  " in capsys.readouterr().err

    def evaluate() -> dict[str, float]:
        clock.now += 5
        return {"loss": 1.0}

    log.evaluation(10, evaluate)
    assert log.evaluation_seconds == 5
    clock.now += 20
    # the evaluation is no time of training
    assert report(log, 20, tokens=1_000) == 50
    # 1 second for a step before, now 2: smoothed; two evaluations follow
    seconds = 80 * (0.7 * 1 + 0.3 * 2) + 2 * 5
    assert f"left {format_duration(seconds)}  " in capsys.readouterr().err
    clock.now += 30
    report(log, EVAL_EVERY, tokens=1)
    # the one at this step is not among those that follow
    seconds = 50 * (0.7 * 1.3 + 0.3 * 1) + 5
    assert f"left {format_duration(seconds)}  " in capsys.readouterr().err


def test_a_run_by_the_clock_ends_with_its_time_or_with_its_fewest_steps(
    log: RunLog, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    log.evaluation_seconds = 7.0
    log.ends = clock.now + 60
    clock.now += 10
    report(log, 10, tokens=1)
    assert f"left {format_duration(50)}  " in capsys.readouterr().err
    clock.now += 50
    report(log, 60, tokens=1)
    assert f"left {format_duration(40)}  " in capsys.readouterr().err
    clock.now += 39
    report(log, 99, tokens=1)
    assert f"left {format_duration(1)}  " in capsys.readouterr().err
    # the last step has a line, however soon it follows
    clock.now += 1
    report(log, STEPS, tokens=1)
    assert "left <1s  " in capsys.readouterr().err


def test_lines_are_five_seconds_apart_and_every_report_has_a_row(
    log: RunLog, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = list[int]()
    for step in range(1, 13):
        clock.now += 1
        report(log, step, tokens=step)
        if "tok/s" in capsys.readouterr().err:
            shown.append(step)
    assert shown == [1, 6, 11]
