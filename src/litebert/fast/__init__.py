"""The engine: fast training, and packed or eight-bit weights for inference."""

from litebert.fast.int8 import Int8Calibration, calibrate, is_int8, to_int8
from litebert.fast.steps import (
    DTYPES,
    accelerate,
    checkpoint_gradients,
    is_packed,
    pack,
    refuse_non_finite,
    sum_dtype,
)

__all__ = [
    "DTYPES",
    "Int8Calibration",
    "accelerate",
    "calibrate",
    "checkpoint_gradients",
    "is_int8",
    "is_packed",
    "pack",
    "refuse_non_finite",
    "sum_dtype",
    "to_int8",
]
