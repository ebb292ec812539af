"""The engine: fast training, and packed or eight-bit weights for inference."""

from litebert.fast.calibration import calibrate
from litebert.fast.engine import (
    accelerate,
    checkpoint_gradients,
    compile_steps,
    is_packed,
    pack,
    refuse_non_finite,
)
from litebert.fast.int8 import Int8Calibration, is_int8, to_int8

__all__ = [
    "Int8Calibration",
    "accelerate",
    "calibrate",
    "checkpoint_gradients",
    "compile_steps",
    "is_int8",
    "is_packed",
    "pack",
    "refuse_non_finite",
    "to_int8",
]
