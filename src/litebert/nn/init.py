"""How weights begin: a normal of std .02 cut at two sigma, biases zero (modeling.py L442)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode


@contextmanager
def without_numbers() -> Iterator[None]:
    """Build modules with shapes alone, on no device, while this is entered.

    On the meta device alone, drawing numbers that nobody keeps would load torch's compiler.
    """
    with torch.device("meta"), _LeaveOutInit():
        yield


class _LeaveOutInit(TorchFunctionMode):
    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Leave out whatever torch.nn.init does."""
        kwargs = kwargs or {}
        if getattr(function, "__module__", "") == "torch.nn.init":
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return function(*args, **kwargs)


def initialise(module: nn.Module, *, std: float, generator: torch.Generator | None = None) -> None:
    """Set kernels and tables to a truncated normal that is not rescaled (real std .88 of `std`)."""
    for name, parameter in module.named_parameters():
        if parameter.is_meta:
            continue
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif parameter.ndim == 1:
            nn.init.ones_(parameter)
        else:
            nn.init.trunc_normal_(parameter, 0.0, std, -2 * std, 2 * std, generator)
