"""Curves that stay small, figures that leave matplotlib as it was."""

from collections.abc import Callable
from pathlib import Path

import matplotlib
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.report import write_report
from litebert.report.figures import curve_of
from litebert.runs import LogRow

MakeRun = Callable[..., Path]
NUMBERS = st.floats(-1e300, 1e300) | st.sampled_from([float("nan"), float("inf")])


@settings(max_examples=100, deadline=None)
@given(values=st.lists(NUMBERS, max_size=60), most_points=st.integers(1, 20))
def test_a_curve_is_short_and_hides_no_extreme(values: list[float], most_points: int) -> None:
    rows = [LogRow("train", step, {"loss": value}) for step, value in enumerate(values)]
    kept = [value for value in values if abs(value) < float("inf")]

    points = curve_of(rows, "loss", most_points=most_points)

    assert len(points) <= most_points
    assert bool(points) == bool(kept)
    assert [point.step for point in points] == sorted({point.step for point in points})
    assert min((p.low for p in points), default=0) == min(kept, default=0)
    assert max((p.high for p in points), default=0) == max(kept, default=0)


def test_few_values_are_drawn_as_they_are() -> None:
    rows = [LogRow("eval", step, {"loss": 1.0 / step}) for step in range(1, 121)]

    points = curve_of(rows, "loss", most_points=120)

    assert [(p.step, p.mean) for p in points] == [(row.step, row.values["loss"]) for row in rows]


def test_drawing_leaves_the_settings_of_matplotlib_alone(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(matplotlib.rcParams, "lines.linewidth", 7.5)
    before = dict(matplotlib.rcParams)

    write_report(make_run())

    assert dict(matplotlib.rcParams) == before


def test_the_settings_of_a_user_do_not_change_the_page(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run()
    plain = write_report(run).read_bytes()
    monkeypatch.setitem(matplotlib.rcParams, "axes.facecolor", "#ff00ff")
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "path")

    assert write_report(run).read_bytes() == plain
