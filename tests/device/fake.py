"""A GPU without hardware: tensors with shapes and a device, but without values.

PyTorch's fake tensors on a private device run the real code: an operation on tensors of
two devices raises, as on a GPU, and so does whatever needs a value, because on a GPU
the host would wait for it. The two declared ways to wait, `tolist()` and `cpu()`, are
counted, and return made-up values.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_stack

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    FakeTensor,
    FakeTensorMode,
    unset_fake_temporarily,
)
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from litebert import device
from litebert.device import GPU_TOKENS, Device

PACKAGE = Path(device.__file__).parent
NAME = "npy"
_setup_privateuseone_for_python_backend(NAME)
PLACE = torch.device(f"{NAME}:0")
# checkpointing asks for it
torch.npy.get_amp_supported_dtype = lambda: [torch.bfloat16]  # type: ignore[attr-defined]
AMPERE = Device(PLACE, "fake", has_bf16=True, has_flash=True, tokens_at_once=GPU_TOKENS)
TURING = Device(PLACE, "fake", tokens_at_once=GPU_TOKENS)
APPLE = Device(PLACE, "fake", has_float64=False, tokens_at_once=GPU_TOKENS)


@contextmanager
def fake_gpu(
    monkeypatch: pytest.MonkeyPatch, described: Device = AMPERE
) -> Iterator[list[str]]:
    """Within the block, new tensors are fake; yield the functions of litebert that
    waited for the device.
    """
    waits: list[str] = []

    def made_up(tensor: Tensor) -> Tensor:
        """Return real values on the CPU; count a wait if they were on the device."""
        if tensor.device == PLACE:
            frames = [
                frame
                for frame in extract_stack()
                if Path(frame.filename).is_relative_to(PACKAGE)
            ]
            waits.append(frames[-1].name if frames else "a test")
        with unset_fake_temporarily():
            return torch.ones(tensor.shape, dtype=tensor.dtype)

    monkeypatch.setitem(device.KINDS, NAME, lambda _: described)
    device.device_at.cache_clear()
    monkeypatch.setattr(FakeTensor, "cpu", made_up, raising=False)
    monkeypatch.setattr(
        FakeTensor, "tolist", lambda tensor: made_up(tensor).tolist(), raising=False
    )
    # packed weights remember the addresses of the original ones
    monkeypatch.setattr(
        FakeTensor, "data_ptr", lambda tensor: id(tensor), raising=False
    )
    # the seed of a private device has nowhere to go
    monkeypatch.setattr(torch, "manual_seed", lambda _: None)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    from_numpy = torch.from_numpy
    monkeypatch.setattr(
        torch, "from_numpy", lambda array: mode.from_tensor(from_numpy(array))
    )
    # backward passes in this thread: another one has no fake mode to recompute steps in
    with mode, torch.autograd.set_multithreading_enabled(False):
        yield waits
    monkeypatch.setattr(torch, "from_numpy", from_numpy)
    device.device_at.cache_clear()


def to_fake(network: nn.Module) -> None:
    """Replace the weights of a network by fake ones of the same shapes."""
    for module in network.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            empty = torch.empty(parameter.shape, device=PLACE)
            setattr(module, name, nn.Parameter(empty))
        for name, buffer in list(module.named_buffers(recurse=False)):
            empty = torch.empty(buffer.shape, dtype=buffer.dtype, device=PLACE)
            setattr(module, name, empty)
