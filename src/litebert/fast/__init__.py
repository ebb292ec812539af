"""The engine: fast training, packed and eight-bit weights for inference, early exit."""

from litebert.fast.calibration import calibrate, to_int8
from litebert.fast.exits import AlbertWithExits, limit_depth, patient_logits
from litebert.fast.finite import refuse_non_finite
from litebert.fast.int8 import is_int8
from litebert.fast.precision import DTYPES
from litebert.fast.steps import accelerate, blocks, checkpoint_gradients, is_packed, pack, use_backend

__all__ = [
    "DTYPES",
    "AlbertWithExits",
    "accelerate",
    "blocks",
    "calibrate",
    "checkpoint_gradients",
    "is_int8",
    "is_packed",
    "limit_depth",
    "pack",
    "patient_logits",
    "refuse_non_finite",
    "to_int8",
    "use_backend",
]
