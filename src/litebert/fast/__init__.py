"""The engine: fast training, packed and eight-bit weights for inference."""

from litebert.fast.int8 import calibrate, is_int8, to_int8
from litebert.fast.steps import accelerate, checkpoint_gradients, is_packed, pack, refuse_non_finite, use_backend

__all__ = ["accelerate", "calibrate", "checkpoint_gradients", "is_int8", "is_packed", "pack", "refuse_non_finite"]
__all__ += ["to_int8", "use_backend"]
