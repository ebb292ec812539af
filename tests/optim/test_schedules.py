"""Learning rates over a run: each schedule's formula, its peak and its end."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert import optim
from litebert.config import OptimConfig


def schedule(
    name: str,
    warmup: float,
    total_steps: int,
    decay_share: float = 0.2,
    peak: float = 1.0,
) -> optim.Schedule:
    config = OptimConfig(
        schedule=name, learning_rate=peak, warmup_steps=warmup, decay_share=decay_share
    )
    return optim.build_schedule(config, total_steps=total_steps)


# ---- every schedule ------------------------------------------------------------------

TOTAL_STEPS = st.integers(2, 400)
WARMUP_SHARES = st.floats(0, 0.99)


@pytest.mark.parametrize("name", ["official", "linear", "wsd"])
@settings(max_examples=40, deadline=None)
@given(TOTAL_STEPS, WARMUP_SHARES, st.floats(0.01, 1.0))
def test_a_rate_lies_between_zero_and_the_peak_and_ends_at_zero(
    name: str, total_steps: int, warmup_share: float, decay_share: float
) -> None:
    warmup_steps = int(warmup_share * total_steps)
    rate = schedule(name, warmup_steps, total_steps, decay_share)
    rates = [rate(step) for step in range(total_steps + 1)]
    assert min(rates[1:-1], default=1) > 0
    assert max(rates) <= 1
    assert rates[-1] == 0
    assert rate(2 * total_steps) == 0


# ---- official ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (0, 0.0),
        (3_124, 0.0017594368),
        (3_125, 0.0017160000),
        (62_500, 0.00088),
        (125_000, 0.0),
    ],
)
def test_the_official_schedule_has_upstreams_values(step: int, expected: float) -> None:
    rate = schedule("official", 3_125, 125_000, peak=0.00176)
    assert rate(step) == pytest.approx(expected, abs=1e-15)


# ---- linear --------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(TOTAL_STEPS, WARMUP_SHARES)
def test_a_linear_rate_reaches_the_peak_and_has_no_jump(
    total_steps: int, warmup_share: float
) -> None:
    warmup_steps = int(warmup_share * total_steps)
    rate = schedule("linear", warmup_steps, total_steps)
    assert rate(warmup_steps) == 1

    rates = [rate(step) for step in range(total_steps + 1)]
    changes = [abs(after - before) for before, after in itertools.pairwise(rates)]
    shorter_slope = min(max(1, warmup_steps), total_steps - warmup_steps)
    assert max(changes) <= 1 / shorter_slope + 1e-12


# ---- warmup, stable, decay -----------------------------------------------------------


def test_wsd_stays_at_the_peak_between_warmup_and_decay() -> None:
    rate = schedule("wsd", 10, 100)
    assert {rate(step) for step in range(10, 81)} == {1.0}


def test_wsd_falls_as_one_minus_the_root_of_the_decay() -> None:
    rate = schedule("wsd", 10, 100)
    fall = [rate(80 + step) for step in range(21)]
    assert fall == pytest.approx([1 - math.sqrt(step / 20) for step in range(21)])


def test_wsd_before_its_decay_does_not_depend_on_the_length_of_the_run() -> None:
    short = schedule("wsd", 10, 100)
    long = schedule("wsd", 10, 1_000)
    assert [short(step) for step in range(81)] == [long(step) for step in range(81)]


def test_a_long_decay_of_wsd_waits_for_the_warmup() -> None:
    rate = schedule("wsd", 6, 10, decay_share=1.0)
    expected = [5 / 6, 1.0, 1 - math.sqrt(1 / 4)]
    assert [rate(5), rate(6), rate(7)] == pytest.approx(expected)


# ---- the length of the warmup --------------------------------------------------------


@pytest.mark.parametrize(
    ("warmup", "total_steps", "peak_step"),
    [
        pytest.param(0.025, 125_000, 3_125, id="share"),
        pytest.param(0.1, 40, 4, id="share of few"),
        pytest.param(0.999, 10, 9, id="nearly all"),
        pytest.param(1, 10, 1, id="one step"),
        pytest.param(0, 4, 0, id="none"),
        pytest.param(0.5, 1, 0, id="share of one step"),
        pytest.param(9, 1, 0, id="longer than the run"),
    ],
)
def test_a_warmup_below_one_is_a_share_and_leaves_a_full_step(
    warmup: float, total_steps: int, peak_step: int
) -> None:
    rate = schedule("linear", warmup, total_steps)
    assert all(rate(step) < 1 for step in range(peak_step))
    assert rate(peak_step) == 1


def test_a_run_by_the_clock_shortens_a_warmup_that_is_longer_than_it() -> None:
    config = OptimConfig(warmup_steps=3_125)
    rate = optim.build_schedule(config, total_steps=9, is_by_clock=True)
    assert rate(1) == 1.76e-3
