"""Clipping by global norm, as tf.clip_by_global_norm does it for finite gradients."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import Parameter

from litebert.optim import clip_gradients

NUMBERS = st.floats(-1e3, 1e3, allow_subnormal=False)


def with_gradient(values: list[float], dtype: torch.dtype = torch.float64) -> Parameter:
    parameter = Parameter(torch.zeros(len(values), dtype=dtype))
    parameter.grad = torch.tensor(values, dtype=dtype)
    return parameter


@settings(max_examples=50, deadline=None)
@given(rows=st.lists(st.lists(NUMBERS, min_size=1, max_size=4), min_size=1, max_size=4), max_norm=st.floats(0.01, 100))
def test_gradients_shrink_by_one_common_factor_to_the_limit(rows: list[list[float]], max_norm: float) -> None:
    parameters = [with_gradient(row) for row in rows]
    norm = math.sqrt(math.fsum(value**2 for row in rows for value in row))
    factor = min(1.0, max_norm / norm) if norm else 1.0

    returned = clip_gradients(parameters, max_norm)

    assert returned.item() == pytest.approx(norm, rel=1e-12)
    for parameter, row in zip(parameters, rows, strict=True):
        wanted = [factor * value for value in row]
        assert parameter.grad.tolist() == pytest.approx(wanted, rel=1e-12, abs=1e-300)


def test_gradients_within_the_limit_keep_their_exact_bits() -> None:
    parameter = with_gradient([0.1, 0.2, 0.3], torch.float32)
    before = parameter.grad.clone()

    clip_gradients([parameter], 1.0)

    assert torch.equal(parameter.grad, before)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_non_finite_gradient_shows_in_the_norm_and_nothing_is_touched(bad: float) -> None:
    parameters = [with_gradient([3.0, 4.0]), with_gradient([bad, 1.0])]
    before = [parameter.grad.clone() for parameter in parameters]

    norm = clip_gradients(parameters, 1.0)

    assert not norm.isfinite()
    for parameter, kept in zip(parameters, before, strict=True):
        torch.testing.assert_close(parameter.grad, kept, rtol=0, atol=0, equal_nan=True)


def test_parameters_without_gradient_have_norm_zero() -> None:
    assert clip_gradients([Parameter(torch.ones(2))], 1.0).item() == 0.0


def test_clipping_reads_nothing_on_the_host() -> None:
    weight = Parameter(torch.empty(3, device="meta"))
    weight.grad = torch.empty(3, device="meta")

    assert clip_gradients(iter([weight]), 1.0).is_meta
