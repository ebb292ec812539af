"""Build networks without numbers: shapes alone, to be filled from a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


@contextmanager
def without_numbers() -> Iterator[None]:
    """Within the block, build modules on the meta device and skip their initialisation.

    Drawing numbers on the meta device, only to discard them, would load torch's compiler.
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
        """Skip the functions of torch.nn.init."""
        kwargs = kwargs or {}
        if getattr(function, "__module__", "") == "torch.nn.init":
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return function(*args, **kwargs)
