"""`litebert study layers`: what each step changes, and what happens beyond the trained
depth (Figure 1 of the paper).
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge
from pydantic import BaseModel

from litebert.errors import say
from litebert.files import require_replaceable
from litebert.reading.source import find_file, read_lines
from litebert.report.figures import Figure, Line, Point, chart
from litebert.report.tables import Cell, Table
from litebert.study.study import Output, Study

COLORS = ("train", "held-out", "ink", "rule", "quiet")
Verdict = Literal["converges", "closes in", "oscillates", "wanders"]


class StepChange(BaseModel):
    """Input and output of one step compared: means over the tokens of the texts."""

    step: int
    block: int  # the block that the step applies, numbered by first use
    l2: float  # distance of input and output
    angle: float  # in degrees
    norm: float  # length of the output
    residual: float  # the distance as a share of the length of the input


class Fate(BaseModel):
    """The behaviour of the iterates at a depth beyond the trained one; `models.fate_of`
    has the criteria.
    """

    depth: int
    verdict: Verdict
    residual: float  # mean over the last 8 steps
    period: int  # 2 to 8 steps, after which the states come closest to where they were
    return_residual: float  # their distance then


class Layers(BaseModel):
    """What `litebert study layers` found in one network."""

    source: str
    num_steps: int
    num_tokens: int
    steps: list[StepChange]
    beyond: list[StepChange]
    fates: list[Fate]
    # The modulus of the dominant eigenvalue of a step's Jacobian: below 1 the step is
    # locally a contraction.
    eigenvalue_at_depth: float
    eigenvalue_at_end: float

    @property
    def summary(self) -> str:
        """What happens beyond the trained depth, in two sentences."""
        fates = ", ".join(f"{fate.verdict} at step {fate.depth}" for fate in self.fates)
        return (
            f"{self.source}, trained with {self.num_steps} steps: applying"
            f" {self._repeated} further, it {fates}. In the end a step moves a state by"
            f" {self.fates[-1].residual:.1%} of its length; the dominant eigenvalue has"
            f" modulus {self.eigenvalue_at_end:.2f} there and"
            f" {self.eigenvalue_at_depth:.2f} at the trained depth."
        )

    @property
    def _repeated(self) -> str:
        """What is applied again and again, in words."""
        blocks = self.steps[-1].block
        if blocks == 1:
            return "its shared step"
        if blocks == self.num_steps:
            return "its last step"
        return f"the last of its {blocks} blocks"


def study_layers(
    *models: str | Path,
    texts: Annotated[Path, "A file with one text per line."],
    limit: Annotated[int, Ge(1), "Maximum texts to read."] = 32,
    depths: Annotated[tuple[int, ...], "Depths to report."] = (24, 48, 96),
    output: Output = None,
) -> Study[list[Layers]]:
    """Compare the input and the output of every step, and go on applying the last step.

    This reports at each depth whether the states converge (a step moves them by less
    than 1 %), oscillate (they return within 8 steps), close in (steps shrink by half),
    or wander. Without a model, the packaged model is measured.

    litebert study layers --texts my-text.txt
    litebert study layers runs/mine models/bert --texts my-text.txt --depths 24,48,96 --output study
    """
    if output:
        require_replaceable(output, as_folder=True)  # before anything is measured
    from litebert.inference import Model
    from litebert.study.models import measure_layers

    texts_read = list(islice(_filled_lines(texts), limit))
    measured = list[Layers]()
    for path in models or (None,):
        model = Model.load(path)
        say(model.source)
        measured.append(measure_layers(model, texts_read, depths=sorted(depths)))
    records = {
        f"layers-{name}": layers
        for name, layers in zip(_names(measured), measured, strict=True)
    }
    return report_layers(measured).write(output, records)


def _filled_lines(path: Path) -> Iterator[str]:
    for _, line in read_lines(find_file(path)):
        if line.strip():
            yield line


def _names(models: Sequence[Layers]) -> list[str]:
    """Name models by the ends of their paths, long enough that they differ and none is
    only `model` or `best`.
    """
    paths = [Path(model.source).absolute().parts[1:] for model in models]
    for length in range(1, max(map(len, paths))):
        names = ["-".join(path[-length:]) for path in paths]
        differ = len(set(names)) == len(set(paths))
        if differ and not {"model", "best"} & set(names):
            return names
    return ["-".join(path) for path in paths]


# ---- tables and figures --------------------------------------------------------------


def report_layers(models: Sequence[Layers]) -> Study[list[Layers]]:
    """Return what was measured as two tables and three figures."""
    moved_by = "How far a step moves a state, as a share of its length."
    figures = [
        *_curves(
            models,
            "L2 distance of input and output",
            "Means over tokens.",
            lambda step: step.l2,
        ),
        *_curves(
            models,
            "Angle of input and output, degrees",
            "Means over tokens.",
            lambda step: step.angle,
        ),
        *_curves(
            models,
            "Residual beyond the trained depth",
            moved_by,
            lambda step: step.residual,
            goes_beyond=True,
        ),
    ]
    return Study(
        list(models),
        name="layers",
        title="Figure 1: what each step changes",
        paper=(
            "The distances of ALBERT-large oscillate and do not go to zero: no fixed"
            " point. Figure 1 gives no numbers and names no texts."
        ),
        finding=" ".join(model.summary for model in models),
        tables=[_fate_table(models), _step_table(models)],
        figures=figures,
    )


def _fate_table(models: Sequence[Layers]) -> Table:
    rows = list[list[Cell]]()
    for model in models:
        moduli = (model.eigenvalue_at_depth, model.eigenvalue_at_end)
        for fate in model.fates:
            rows.append([model.source, *fate.model_dump().values(), *moduli])
    headings = (
        "model",
        "depth",
        "verdict",
        "residual",
        "period",
        "return",
        "|eigenvalue|",
        "at the end",
    )
    return Table(headings, rows, "Beyond the trained depth")


def _step_table(models: Sequence[Layers]) -> Table:
    rows = list[list[Cell]]()
    for model in models:
        depths = {fate.depth for fate in model.fates}
        judged = [step for step in model.beyond if step.step in depths]
        for step in (*model.steps, *judged):
            rows.append([model.source, *step.model_dump().values()])
    headings = ("model", "step", "block", "L2", "angle", "norm", "residual")
    return Table(headings, rows, "Each trained step, and the depths judged")


def _curves(
    models: Sequence[Layers],
    title: str,
    caption: str,
    value_of: Callable[[StepChange], float],
    *,
    goes_beyond: bool = False,
) -> list[Figure]:
    """Draw a value by step, a line per model; beyond the trained depth on a logarithmic
    axis.
    """
    lines = list[Line]()
    for name, model, color in zip(_names(models), models, cycle(COLORS), strict=False):
        steps = [*model.steps, *model.beyond] if goes_beyond else model.steps
        points = list[Point]()
        for step in steps:
            value = value_of(step)
            points.append(Point(step.step, value, value, value))
        lines.append(Line(name, color, points))
    write = "{:.3g}".format
    return chart(title, caption, lines, write, is_logarithmic=goes_beyond)
