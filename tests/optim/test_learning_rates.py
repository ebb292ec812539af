"""The three schedules: upstream's values with its jump, and two without."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.config import OptimConfig
from litebert.errors import LitebertError
from litebert.optim import Schedule, build_schedule, linear, official, wsd

PLANS = st.integers(2, 400).flatmap(lambda total: st.tuples(st.integers(0, total - 1), st.just(total)))
NAMES = ["official", "linear", "wsd"]


def schedule(name: str, warmup_steps: float, total_steps: int, decay_share: float = 0.2) -> Schedule:
    config = OptimConfig(schedule=name, learning_rate=1.0, warmup_steps=warmup_steps, decay_share=decay_share)
    return build_schedule(config, total_steps=total_steps)


@pytest.mark.parametrize(
    ("step", "rate"), [(0, 0.0), (3_124, 0.0017594368), (3_125, 0.0017160000), (62_500, 0.00088), (125_000, 0.0)]
)
def test_the_official_schedule_has_upstreams_values(step: int, rate: float) -> None:
    found = official(step, peak=0.00176, warmup_steps=3_125, total_steps=125_000)
    assert found == pytest.approx(rate, abs=1e-15)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(plan=PLANS, decay_share=st.floats(0.01, 1.0))
def test_a_rate_lies_between_zero_and_the_peak_and_ends_at_zero(
    name: str, plan: tuple[int, int], decay_share: float
) -> None:
    warmup_steps, total_steps = plan
    rate = schedule(name, warmup_steps, total_steps, decay_share)
    assert all(0 <= rate(step) <= 1 for step in range(total_steps + 1))
    assert all(rate(step) > 0 for step in range(1, total_steps))
    assert rate(total_steps) == rate(2 * total_steps) == 0


@settings(max_examples=40, deadline=None)
@given(plan=PLANS)
def test_the_linear_schedule_reaches_the_peak_and_has_no_jump(plan: tuple[int, int]) -> None:
    warmup_steps, total_steps = plan
    rate = schedule("linear", warmup_steps, total_steps)
    steepest = 1 / min(max(1, warmup_steps), total_steps - warmup_steps)
    changes = [abs(rate(step + 1) - rate(step)) for step in range(total_steps)]
    assert rate(warmup_steps) == 1
    assert max(changes) <= steepest + 1e-12


def test_wsd_stays_at_the_peak_and_then_falls_as_one_minus_root() -> None:
    rate = schedule("wsd", warmup_steps=10, total_steps=100, decay_share=0.2)
    assert {rate(step) for step in range(10, 81)} == {1.0}
    fall = [rate(80 + step) for step in range(21)]
    assert fall == pytest.approx([1 - math.sqrt(step / 20) for step in range(21)])
    long = schedule("wsd", warmup_steps=10, total_steps=1_000)
    assert [rate(step) for step in range(81)] == [long(step) for step in range(81)]
    late = [wsd(step, peak=1.0, warmup_steps=6, total_steps=10, decay_share=1.0) for step in (5, 6, 7)]
    assert late == pytest.approx([5 / 6, 1.0, 1 - math.sqrt(1 / 4)])  # a long decay waits for the warmup


def test_a_schedule_without_warmup_begins_at_the_peak() -> None:
    assert linear(0, peak=0.3, warmup_steps=0, total_steps=4) == 0.3
    assert official(0, peak=0.3, warmup_steps=0, total_steps=4) == 0.3


@pytest.mark.parametrize(
    ("asked", "total_steps", "peak_step"),
    [(0.025, 125_000, 3_125), (0.1, 40, 4), (0.999, 10, 9), (1, 10, 1), (0.5, 1, 0), (9, 1, 0)],
)
def test_a_warmup_below_one_is_a_share_and_leaves_a_step_at_full_rate(
    asked: float, total_steps: int, peak_step: int
) -> None:
    rate = schedule("linear", asked, total_steps)
    assert rate(peak_step) == 1
    assert all(rate(step) < 1 for step in range(peak_step))


@pytest.mark.parametrize("name", NAMES)
def test_a_warmup_as_long_as_the_training_is_refused(name: str) -> None:
    with pytest.raises(LitebertError, match=r"LB-426(?s:.*)optim\.warmup_steps=50, 50 steps"):
        schedule(name, warmup_steps=50, total_steps=50)
