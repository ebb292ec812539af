"""What conversions tell: the reports of imports, exports and quantization, as text for people and as JSON.

They need no torch, so that the help of these commands loads none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class GoogleImport:
    """What was read from Google's checkpoint and written: `missing` parameters and `unused` variables by name."""

    checkpoint: str
    folder: str
    num_variables: int
    num_parameters: int
    dtypes: tuple[str, ...]
    heads: tuple[str, ...]
    tokenizer: str | None
    optimizer_step: int | None
    missing: tuple[str, ...]
    unused: tuple[str, ...]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        size = f"{self.num_variables} variables, {self.num_parameters:,} parameters in {' and '.join(self.dtypes)}"
        heads = f"heads  {', '.join(self.heads) or 'none'}"
        return "\n".join([f"read   {self.checkpoint}: {size}", heads, *_steps(self), f"wrote  {self.folder}"])


@dataclass(frozen=True)
class GoogleExport:
    """What was written for Google's code; `files` are in the folder of `prefix`."""

    prefix: str
    files: tuple[str, ...]
    num_variables: int
    num_parameters: int
    optimizer_step: int | None
    notes: tuple[str, ...]

    def __str__(self) -> str:
        size = f"{self.num_variables} variables, {self.num_parameters:,} parameters in float32"
        return "\n".join([f"wrote  {self.prefix}: {size}", *_steps(self), f"files  {', '.join(self.files)}"])


def _steps(report: GoogleImport | GoogleExport) -> list[str]:
    step = report.optimizer_step
    return [] if step is None else [f"steps  {step:,}, with the optimizer's moments"]


@dataclass(frozen=True)
class HuggingFaceImport:
    """What was read and written: tensors that were missing or not used, by name, and notes."""

    source: Path
    output: Path
    architecture: str
    num_parameters: int
    missing: tuple[str, ...]
    unused: tuple[str, ...]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"{self.output}: {self.architecture}, {self.num_parameters:,} parameters"]
        lines += [f"missing: {name}" for name in self.missing]
        return "\n".join([*lines, *(f"not used: {name}" for name in self.unused)])


@dataclass(frozen=True)
class Parity:
    """How near the outputs of an exported network are to those of the network itself."""

    max_difference: float
    scale: float  # the largest absolute output
    correlation: float  # the lowest of all outputs, of deviations from the mean: what tells one text from another
    same_choice: float | None  # the share of equal first choices, where something is chosen


@dataclass(frozen=True)
class OnnxRow:
    """A row of the table: a runtime, its file, how exact it is and how long a batch takes."""

    name: str
    bytes: int
    ratio: float
    parity: Parity | None  # none for the network itself
    milliseconds: dict[str, float]  # by shape, if measured


@dataclass(frozen=True)
class Products:
    """How many products have a constant operand, by the arithmetic that computes them."""

    floating: int
    integer: int


@dataclass(frozen=True)
class OnnxReport:
    """What was written, what it takes and gives, and how it compares."""

    output: Path
    head: str
    opset: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    products: Products
    rows: tuple[OnnxRow, ...]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        shapes = list(self.rows[0].milliseconds)
        table = [("", "MB", "of weights", "max diff", "correlation", "same choice", *(f"{each} ms" for each in shapes))]
        for row in self.rows:
            near = ["-", "-", "-"]
            if (found := row.parity) is not None:
                same = "-" if found.same_choice is None else f"{found.same_choice:.1%}"
                near = [f"{found.max_difference:.1e}", f"{found.correlation:.5f}", same]
            times = (f"{value:.1f}" for value in row.milliseconds.values())
            table.append((row.name, f"{row.bytes / 1e6:.1f}", f"{row.ratio:.0%}", *near, *times))
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in table]
        products = f"{self.products.floating} products with weights in float, {self.products.integer} in int8"
        outputs = f"gives {', '.join(self.outputs)}; opset {self.opset}; {products}"
        return "\n".join([f"{self.output} ({self.head})", outputs, "", *lines])


@dataclass(frozen=True)
class ProgramReport:
    """What was written, its inputs and outputs, and how far it is from the ragged network."""

    output: Path
    head: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    bytes: int
    max_difference: float

    def __str__(self) -> str:
        size, gives = f"{self.bytes / 1e6:.1f} MB", ", ".join(self.outputs)
        return f"{self.output} ({self.head}): {size}, gives {gives}; max difference {self.max_difference:.1e}"


@dataclass(frozen=True)
class WebReport:
    """What was written: bytes by file, the verbs of the page, how exact eight bits are, and what a browser fetches."""

    output: Path
    verbs: tuple[str, ...]
    files: dict[str, int]
    parity: Parity
    transfer: int

    def __str__(self) -> str:
        lines = [f"{size:>12,}  {name}" for name, size in sorted(self.files.items(), key=lambda item: -item[1])]
        lines.append(f"{self.transfer:>12,}  bytes that a browser fetches; {', '.join(self.verbs)}")
        lines.append(f"int8 against the network: correlation {self.parity.correlation:.4f}")
        return "\n".join([*lines, f"try it: python -m http.server --directory {self.output}"])


MUCH = 0.1  # relative error of the hidden states of eight bits above which answers may change


@dataclass(frozen=True)
class Quantized:
    """The size of a quantized model in bytes, and its error on held-out texts."""

    output: str
    num_examples: int
    bytes_before: int
    bytes_after: int
    error: float  # the norm of the difference of the last hidden states, relative to that of the original
    before: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # measures by development split, if asked
    after: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [
            f"{self.output}: {self.bytes_after:,} bytes, {self.bytes_before:,} before; hidden states differ by "
            f"{self.error:.1%} on held-out texts (calibrated on {self.num_examples})"
        ]
        for split, measures in self.before.items():
            for name, before in measures.items():
                lines.append(f"{split:<16} {name:<24} {before:.4f} -> {self.after[split][name]:.4f}")
        return "\n".join(lines)

    @property
    def notes(self) -> tuple[str, ...]:
        """A warning where answers may change."""
        if self.error <= MUCH:
            return ()
        measured = "compare the measures above" if self.before else "measure it with --evaluate"
        return (
            f"warning hidden states differ by more than {MUCH:.0%}: {measured} before you use this copy, or calibrate "
            "with more texts like those it will read",
        )
