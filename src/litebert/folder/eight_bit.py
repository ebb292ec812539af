"""Checks of the tensors of an eight-bit model, which supports inference only."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from torch import Tensor

from litebert.errors import DamagedError, LitebertError

_PARTS = ("quantized", "scale")
_RANGES = "albert.ranges"


def is_eight_bit(names: Iterable[str]) -> bool:
    """Tell whether tensors of these names belong to an eight-bit model."""
    return any(name.endswith(".quantized") for name in names)


def not_float(source: Path) -> LitebertError:
    """Return the error for training, converting or exporting such a model."""
    return LitebertError(
        "LB-663",
        f"{source} is an eight-bit model, which supports inference only",
        received="int8 weights",
        expected="float weights to train, convert or export",
        next="use the float model that it was made from",
    )


def require_sound(tensors: dict[str, Tensor], source: Path) -> None:
    """Check that layers are complete, scales positive and ranges plausible.

    Dtypes, shapes and NaN are checked as for any model.

    Raises:
        DamagedError: LB-665, half of a layer is missing; LB-666, a scale or a range is impossible.
    """
    for name, tensor in tensors.items():
        layer, _, part = name.rpartition(".")
        other = f"{layer}.{_PARTS[1 - _PARTS.index(part)]}" if part in _PARTS else name
        if other not in tensors:
            raise DamagedError(
                "LB-665",
                f"{source} has one half of an eight-bit layer",
                received=f"{name} without {other}",
                expected="both",
                next="litebert quantize makes the folder again",
            )
        is_wrong = bool((tensor <= 0).any()) if part == "scale" else _crosses(name, tensor)
        if is_wrong:
            raise DamagedError(
                "LB-666",
                f"{source}: {name} has numbers that no calibration gives",
                received=f"from {float(tensor.min()):.4g} to {float(tensor.max()):.4g}",
                expected="scales above zero; ranges that begin at or below zero and end above it",
                next="litebert quantize makes the folder again",
            )


def _crosses(name: str, tensor: Tensor) -> bool:
    """Tell whether a range does not contain zero; shapes are checked elsewhere."""
    if name != _RANGES or tensor.shape[-1:] != (2,):
        return False
    return bool((tensor[..., 0] > 0).any() or (tensor[..., 1] < 0).any())
