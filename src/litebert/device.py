"""Where networks compute, and how: one value, chosen once, when a model is opened or a
run begins.

    device = choose_device("auto")      # the GPU if there is one
    network.to(device.place)
    network(batch.to(device))           # copied in the way that suits the device

What depends on the machine is a field or a method here: precision, attention kernels,
copies, determinism, the sizes of batches and probes, memory. No code outside this
module asks for the kind of a device.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from typing import TypeAlias

import torch
from torch import Tensor, nn

from litebert.config import Precision
from litebert.errors import LitebertError, no_such_name
from litebert.launch import launched_as
from litebert.system import peak_memory_bytes

DTYPES: dict[str, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
"""The dtype of activations for each precision."""

# The most tokens that are computed together in inference. A CPU gains nothing from
# more; a GPU of 100 TFLOP/s finishes 8,192 tokens of base in some 20 ms.
CPU_TOKENS = 8_192
GPU_TOKENS = 65_536
# FLOPs of a probe on a CPU: some seconds on the slowest cores
CPU_PROBE_FLOPS = 2e11

# Dense bf16 (Volta and Turing: fp16) products with float32 sums, in FLOP/s, as the
# vendor's data sheets state them. The first entry whose words are all in the device's
# name counts, so the more special names come first.
PEAK_FLOPS: dict[tuple[str, ...], float] = {
    ("B200",): 2.25e15,
    ("H200",): 989e12,
    ("H100", "NVL"): 835e12,
    ("H100", "PCIe"): 756e12,
    ("H100",): 989e12,
    ("A100",): 312e12,
    ("L40S",): 362e12,
    ("L4",): 121e12,
    ("A10G",): 125e12,
    ("RTX", "4090"): 165e12,
    ("RTX", "3090"): 71e12,
    ("V100",): 125e12,
    ("T4",): 65e12,
}


@dataclass(frozen=True)
class Device:
    """A device, what its hardware can do, and how much it is given at once."""

    place: torch.device  # where tensors are: cpu, cuda:0, mps:0
    name: str = "CPU"  # of the hardware
    has_bf16: bool = False  # a GPU that multiplies bf16 several times as fast as fp32
    has_flash: bool = False  # variable-length flash attention, in half precision
    has_float64: bool = True
    # Pinned memory can be copied while the host goes on. Elsewhere an asynchronous copy
    # of a temporary may read memory that has been reused: on Apple's GPUs it does.
    copies_pinned: bool = False
    tokens_at_once: int = CPU_TOKENS

    @property
    def is_cpu(self) -> bool:
        """Whether the host computes itself, so that reading a value costs no wait."""
        return self.place.type == "cpu"

    # ---- precision ---------------------------------------------------------------

    def precision(self, name: str | None) -> Precision:
        """Return the precision of activations: the one that is named; "auto" for the
        faster of fp32 and bf16; without a name, bf16 on a GPU that has it, else fp32.
        """
        if name is None:
            return "bf16" if self.has_bf16 else "fp32"
        if name == "auto":
            return self._faster_precision()
        if name not in DTYPES:
            raise no_such_name(
                "LB-933",
                "there is no such precision",
                str(name),
                DTYPES,
                next='precision="fp32"',
            )
        return name  # type: ignore[return-value]

    def dtype(self, name: str | None) -> torch.dtype:
        """Return the dtype of activations in a precision (see `precision`)."""
        return DTYPES[self.precision(name)]

    def _faster_precision(self) -> Precision:
        """Time one matrix product in both precisions: depending on the processor, bf16
        is much faster or much slower.
        """
        if self.has_bf16:
            return "bf16"
        left = torch.ones(1_024, 512, device=self.place)
        right = torch.ones(512, 512, device=self.place)
        in_fp32 = partial(torch.mm, left, right)
        in_bf16 = partial(torch.mm, left.bfloat16(), right.bfloat16())
        times_fp32 = []
        times_bf16 = []
        for _ in range(20):  # interleaved: both meet the same other load
            times_fp32.append(self.time(in_fp32))
            times_bf16.append(self.time(in_bf16))
        return "bf16" if min(times_bf16) < 0.8 * min(times_fp32) else "fp32"

    @property
    def product_dtype(self) -> torch.dtype:
        """The dtype for products of float32 matrices where a few digits are enough."""
        has_bf16 = self.has_bf16
        if self.is_cpu:
            has_bf16 = torch.cpu._is_avx512_bf16_supported()
        return torch.bfloat16 if has_bf16 else torch.float32

    @property
    def sum_dtype(self) -> torch.dtype:
        """The dtype for sums of many numbers: float64, which Apple's GPUs lack."""
        return torch.float64 if self.has_float64 else torch.float32

    def has_flash_for(self, dtype: torch.dtype, head_size: int) -> bool:
        """Return whether flash attention takes these rows without padding."""
        is_half = dtype in (torch.float16, torch.bfloat16)
        return self.has_flash and is_half and head_size % 8 == 0 and head_size <= 256

    @contextmanager
    def computing(
        self, dtype: torch.dtype, *, is_deterministic: bool = False
    ) -> Iterator[None]:
        """Train with activations of `dtype` within the block.

        With half precision, a GPU multiplies what is left in float32 (the embedding's
        projection, the pooler) in TF32; with float32, all products are exact. With
        `is_deterministic`, a GPU uses only kernels that give the same bits each time.
        """
        precision_before = torch.get_float32_matmul_precision()
        was_deterministic = torch.are_deterministic_algorithms_enabled()
        if not self.is_cpu:
            precision = "highest" if dtype == torch.float32 else "high"
            torch.set_float32_matmul_precision(precision)
        is_changed = is_deterministic and not self.is_cpu
        if is_changed:
            # read by cuBLAS when it starts: with it, streams do not share a workspace
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            torch.use_deterministic_algorithms(True)
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(precision_before)
            # only then: this call imports the compiler, which takes a second
            if is_changed:
                torch.use_deterministic_algorithms(was_deterministic)

    # ---- copies and waits --------------------------------------------------------

    def copy(self, tensor: Tensor) -> Tensor:
        """Return a tensor on this device: the tensor itself if it is already there."""
        if tensor.device == self.place:
            return tensor
        if self.copies_pinned and tensor.device.type == "cpu":
            # The host goes on meanwhile. The allocator keeps pinned memory until the
            # copy is done.
            return tensor.pin_memory().to(self.place, non_blocking=True)
        return tensor.to(self.place)

    def indices(self, is_wanted: Tensor, count: int) -> Tensor:
        """Return where a mask is true, ascending: of shape (count,), for a mask of shape
        (entries,).

        The caller knows how many entries are true. `nonzero` does not, so the host
        would have to wait until a GPU has counted them.
        """
        if self.is_cpu:
            return is_wanted.nonzero().flatten()
        # a stable sort puts the true entries first and keeps their order
        order = is_wanted.to(torch.int32).argsort(descending=True, stable=True)
        return order[:count]

    def synchronize(self) -> None:
        """Wait until all work is done."""
        if not self.is_cpu:
            torch.accelerator.synchronize(self.place)

    def time(self, work: Callable[[], object]) -> float:
        """Return the seconds that `work` takes, until its results exist."""
        start = time.perf_counter()
        work()
        self.synchronize()
        return time.perf_counter() - start

    # ---- sizes and memory --------------------------------------------------------

    def probe_size(self, flops_each: float, most: int) -> int:
        """Return how many sequences of so many FLOPs to measure, at most `most`.

        A CPU is as fast for few as for many, so a probe takes some seconds at most. A
        GPU is not: there a probe has the size of what will run.
        """
        if not self.is_cpu:
            return max(1, most)
        num_affordable = int(CPU_PROBE_FLOPS / flops_each)
        return max(1, min(most, num_affordable))

    @property
    def distributed_backend(self) -> str:
        """What torch.distributed adds up tensors with: gradients on the device, counts
        on the host.
        """
        return "cpu:gloo,cuda:nccl" if self.place.type == "cuda" else "gloo"

    @property
    def peak_flops(self) -> float | None:
        """The most FLOP/s in half precision by the data sheet, if it is known."""
        words = self.name.split()
        for needed, flops in PEAK_FLOPS.items():
            if all(_has_word(words, word) for word in needed):
                return flops
        return None

    def allocated_bytes(self) -> int:
        """Return the memory that tensors take now; on a CPU, which does not count it,
        the peak of the process.
        """
        if self.place.type == "cuda":
            return torch.cuda.memory_allocated(self.place)
        if self.place.type == "mps":
            return torch.mps.current_allocated_memory()
        return self.peak_bytes()

    def peak_bytes(self) -> int:
        """Return the most memory that was taken so far: of an NVIDIA GPU by tensors, on
        a CPU by the process.
        """
        if self.place.type == "cuda":
            return torch.cuda.max_memory_allocated(self.place)
        if self.place.type == "mps":
            # Apple's driver keeps no peak: what it holds now, free blocks included
            return torch.mps.driver_allocated_memory()
        return peak_memory_bytes()


def _has_word(words: Sequence[str], start: str) -> bool:
    """Return whether a word of a device's name is this one, or begins with it and a
    hyphen ("A100-SXM4-80GB").
    """
    return any(word == start or word.startswith(f"{start}-") for word in words)


# ---- which device, and what is known about it ----------------------------------------


def choose_device(name: str = "auto") -> Device:
    """Return the device of a name: auto, cpu, cuda, cuda:N or mps; `auto` is CUDA if
    there is a GPU.

    With several processes, each uses its own GPU, by its rank on the machine.
    """
    chosen = _resolve_name(name)
    try:
        if chosen == "mps" and launched_as().size > 1:
            raise RuntimeError("several processes cannot share one Apple GPU")
        # the tensor's own device has a number: cuda:0 for cuda
        place = torch.zeros(1, device=torch.device(chosen)).device
        if place.type == "cuda" and launched_as().size > 1:
            torch.cuda.set_device(place)  # where nccl sums
        return device_at(place)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise LitebertError(
            "LB-507",
            "this device cannot be used",
            received=f"device {chosen}: {_reason(error)}",
            expected="auto, cpu, cuda, cuda:N or mps, as this machine has it",
            next="choose auto: the GPU if there is one, otherwise the CPU",
        ) from error


def _reason(error: Exception) -> str:
    """Return why torch refuses a device, without the kinds of devices that it lists."""
    first_line = str(error).splitlines()[0]
    if first_line.startswith("Expected one of "):
        return "there is no such kind of device"
    return first_line


def _resolve_name(name: str) -> str:
    """Return torch's name for a device. `auto` becomes a GPU if there is one; `cuda`
    becomes the GPU of this process if there are several.
    """
    kind = name
    if name == "auto":
        kind = "cuda" if torch.cuda.is_available() else "cpu"
    if kind == "cuda" and launched_as().size > 1:
        return f"cuda:{os.environ.get('LOCAL_RANK') or 0}"
    return kind


def _cpu(place: torch.device) -> Device:
    return Device(place)


def _cuda(place: torch.device) -> Device:
    # Ampere (8.0) brought bf16, TF32 and what flash attention needs.
    is_ampere = torch.cuda.get_device_capability(place) >= (8, 0)
    return Device(
        place,
        torch.cuda.get_device_name(place),
        has_bf16=is_ampere,
        has_flash=is_ampere and torch.version.hip is None,
        copies_pinned=True,
        tokens_at_once=GPU_TOKENS,
    )


def _mps(place: torch.device) -> Device:
    return Device(place, "Apple GPU", has_float64=False, tokens_at_once=GPU_TOKENS)


def _other(place: torch.device) -> Device:
    return Device(place, place.type, tokens_at_once=GPU_TOKENS)


Describe: TypeAlias = Callable[[torch.device], Device]
KINDS: dict[str, Describe] = {"cpu": _cpu, "cuda": _cuda, "mps": _mps}
"""What is known about each kind of device, by torch's name for it; any other gets the
plain kernels that every device has.
"""


@lru_cache
def device_at(place: torch.device) -> Device:
    """Return the device of a tensor, `device_at(tensor.device)`."""
    return KINDS.get(place.type, _other)(place)


def device_of(network: nn.Module) -> Device:
    """Return the device of a network's weights."""
    for tensor in chain(network.parameters(), network.buffers()):
        if not tensor.is_meta:  # a parameter without values, which its file lacked
            return device_at(tensor.device)
    return device_at(torch.device("meta"))


def move_network(network: nn.Module, device: Device) -> None:
    """Move a network in place; parameters without values stay without."""
    for module in network.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if not parameter.is_meta:
                moved = nn.Parameter(device.copy(parameter.detach()))
                setattr(module, name, moved.requires_grad_(parameter.requires_grad))
        for name, buffer in module.named_buffers(recurse=False):
            if not buffer.is_meta:
                setattr(module, name, device.copy(buffer))
