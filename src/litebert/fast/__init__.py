"""The engine: fast training, packed and eight-bit weights for inference, early exit."""

from litebert.fast.exits import AlbertWithExits, limit_depth, patient_logits
from litebert.fast.int8 import calibrate, is_int8, to_int8
from litebert.fast.steps import accelerate, checkpoint_gradients, is_packed, pack, refuse_non_finite, use_backend

__all__ = ["AlbertWithExits", "accelerate", "calibrate", "checkpoint_gradients", "is_int8", "is_packed"]
__all__ += ["limit_depth", "pack", "patient_logits", "refuse_non_finite", "to_int8", "use_backend"]
