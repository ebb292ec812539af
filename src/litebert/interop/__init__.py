"""Reports of conversions: of imports, exports and quantization, as text for people and
as JSON.

They do not need torch, so that the help of these commands does not load it.
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ModelImport:
    """What was read and written; `missing` lists parameters, `unused` lists variables
    by their names in the source.
    """

    source: str
    output: str
    architecture: str
    num_parameters: int
    missing: tuple[str, ...]
    unused: tuple[str, ...]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        lines = [
            f"{self.output}: {self.architecture}, {self.num_parameters:,} parameters"
        ]
        lines += [f"missing: {name}" for name in self.missing]
        lines += [f"not used: {name}" for name in self.unused]
        return "\n".join(lines)


@dataclass(frozen=True)
class Parity:
    """How close the outputs of an exported network are to those of the network
    itself.
    """

    max_difference: float
    scale: float  # the largest absolute output
    # the lowest of all outputs, of deviations from the mean, which distinguish texts
    correlation: float

    def __str__(self) -> str:
        return (
            f"differs by up to {self.max_difference:.1e} from the network, whose values"
            f" reach {self.scale:.1e}, correlation {self.correlation:.5f}"
        )


@dataclass(frozen=True)
class ExportReport:
    """What was written (a file with its outputs, or a page with its verbs), its bytes
    to fetch, and how exact it is.
    """

    output: Path
    outputs: tuple[str, ...]
    bytes: int
    parity: Parity
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return (
            f"{self.output}: {self.bytes / 1e6:.1f} MB, gives"
            f" {', '.join(self.outputs)}\n{self.parity}"
        )


# relative error of hidden states in eight bits above which answers may change
MUCH = 0.1


@dataclass(frozen=True)
class Quantized:
    """The size of a quantized model in bytes, and its error on held-out texts."""

    output: str
    num_examples: int
    bytes_before: int  # on disk
    bytes_after: int
    bytes_in_float32: int  # of the weights before, whatever they were stored in
    # the norm of the difference of the last hidden states, relative to that of the
    # original
    error: float

    def __str__(self) -> str:
        return (
            f"{self.output}: {self.bytes_after:,} bytes, {self.bytes_before:,} before,"
            f" {self.bytes_in_float32:,} in float32; hidden states differ by"
            f" {self.error:.1%} on held-out texts (calibrated on {self.num_examples})"
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings if the copy is not smaller, or if its answers may change."""
        notes = list[str]()
        if self.bytes_after >= self.bytes_before:
            notes.append(
                "warning the copy is not smaller: the model is stored in fewer bits than"
                " float32 already. Eight bits can still be faster"
            )
        if self.error > MUCH:
            notes.append(
                f"warning hidden states differ by more than {MUCH:.0%}: evaluate this"
                " copy before you use it, or calibrate with more texts like those it"
                " will read"
            )
        return tuple(notes)
