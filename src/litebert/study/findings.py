"""What the studies of a model find: the record in the JSON file, its conclusion, its tables and figures; no torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Literal, TypeVar

from pydantic import BaseModel

from litebert.errors import LitebertError
from litebert.files import read_json
from litebert.report.figures import Figure, Line, Point, chart
from litebert.report.page import Part
from litebert.report.tables import Cell, Table
from litebert.study.ablation import Ablation, ablation_part, described

GIGABITS = (1, 10, 100)
COLORS = ("train", "held-out", "ink", "rule", "quiet")
Verdict = Literal["converges", "closes in", "oscillates", "wanders"]
Record = TypeVar("Record", bound=BaseModel)

# ---- Figure 1 of the paper: what each step changes ------------------------------------------------------------------


class StepChange(BaseModel):
    """Input and output of one step: means over the tokens of the texts."""

    step: int
    block: int  # the one that the step applies, numbered by first use
    l2: float  # distance of input and output
    angle: float  # in degrees
    norm: float  # length of the output
    residual: float  # the distance as a share of the length of the input


class Fate(BaseModel):
    """Where the iterates stand at a depth beyond the trained one; `models.fate_of` has the criteria."""

    depth: int
    verdict: Verdict
    residual: float  # mean over the last 8 steps
    period: int  # of 2 to 8 steps, after which the states come closest to where they were
    return_residual: float  # how close they come


class Eigenvalue(BaseModel):
    """The dominant eigenvalue of a step's Jacobian: below a modulus of 1 the step is locally a contraction."""

    modulus: float


class Layers(BaseModel):
    """What `litebert study layers` found in one network."""

    source: str
    num_steps: int
    num_tokens: int
    steps: list[StepChange]
    beyond: list[StepChange]
    fates: list[Fate]
    eigenvalue_at_depth: Eigenvalue
    eigenvalue_at_end: Eigenvalue

    @property
    def summary(self) -> str:
        """Say in one sentence what happens beyond the trained depth."""
        blocks = self.steps[-1].block
        repeated = "its shared step" if blocks == 1 else f"the last of its {blocks} blocks"
        if 1 < blocks == self.num_steps:
            repeated = "its last step"
        fates = ", ".join(f"{fate.verdict} at step {fate.depth}" for fate in self.fates)
        at_end, at_depth = (each.modulus for each in (self.eigenvalue_at_end, self.eigenvalue_at_depth))
        return (
            f"{self.source}, trained with {self.num_steps} steps: applying {repeated} further, it {fates}. In the end "
            f"a step moves a state by {self.fates[-1].residual:.1%} of its length; the dominant eigenvalue has modulus "
            f"{at_end:.2f} there and {at_depth:.2f} at the trained depth."
        )


def layers_part(found: Sequence[Layers]) -> Part:
    fates, steps = list[tuple[Cell, ...]](), list[tuple[Cell, ...]]()
    for each in found:
        moduli = [round(value.modulus, 3) for value in (each.eigenvalue_at_depth, each.eigenvalue_at_end)]
        for fate in each.fates:
            moved = (round(fate.residual, 4), fate.period, round(fate.return_residual, 4))
            fates.append((each.source, fate.depth, fate.verdict, *moved, *moduli))
        judged = [step for step in each.beyond if step.step in {fate.depth for fate in each.fates}]
        for step in (*each.steps, *judged):
            sizes = (round(step.l2, 3), round(step.angle, 2), round(step.norm, 3), round(step.residual, 4))
            steps.append((each.source, step.step, step.block, step.step <= each.num_steps, *sizes))

    def drawn(title: str, caption: str, value: Callable[[StepChange], float], *, beyond: bool = False) -> list[Figure]:
        lines = []
        for each, color in zip(found, cycle(COLORS), strict=False):
            shown = [*each.steps, *each.beyond] if beyond else each.steps
            points = [Point(step.step, value(step), value(step), value(step)) for step in shown]
            lines.append(Line(Path(each.source).name, color, points))
        return chart(title, caption, lines, "{:.3g}".format, is_logarithmic=beyond)

    fate_headings = ("model", "depth", "verdict", "residual", "period", "return", "|eigenvalue|", "at the end")
    step_headings = ("model", "step", "block", "trained", "L2", "angle", "norm", "residual")
    moved_by = "Share of its length by which a step moves a state."
    return Part(
        name="layers",
        title="Figure 1: what each step changes",
        paper="The distances of ALBERT-large oscillate and do not go to zero: no fixed point. Figure 1 prints no "
        "numbers and names no texts.",
        finding=" ".join(each.summary for each in found),
        tables=(
            Table(fate_headings, tuple(fates), "Beyond the trained depth"),
            Table(step_headings, tuple(steps), "Each trained step, and the depths judged"),
        ),
        figures=(
            *drawn("L2 distance of input and output", "Means over tokens.", lambda step: step.l2),
            *drawn("Angle of input and output, degrees", "Means over tokens.", lambda step: step.angle),
            *drawn("Residual beyond the trained depth", moved_by, lambda step: step.residual, beyond=True),
        ),
    )


# ---- speed and cost -------------------------------------------------------------------------------------------------


class Timed(BaseModel):
    """Speeds relative to the network beside it: the median over rounds, the lowest, the highest."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, ratios: Sequence[float]) -> Timed:
        return cls(median=median(ratios), low=min(ratios), high=max(ratios))


class ClaimResult(BaseModel):
    """One claim as measured here; times are CPU seconds of one process, pairs are (own, that beside)."""

    name: str
    beside: str
    paper_speed: float
    training_speed: Timed
    inference_speed: Timed
    flops_speed: float
    parameters: tuple[int, int]
    gradient_bytes: tuple[int, int]  # the float32 gradients of a data-parallel step
    training_seconds: tuple[float, float]

    def speed_at(self, gigabits: int) -> float:
        """Return the ratio of speeds of a step followed by a ring all-reduce, which sends the gradients about twice."""
        own, other = (
            seconds + 2 * 8 * size / (gigabits * 1e9)  # a byte has 8 bits
            for seconds, size in zip(self.training_seconds, self.gradient_bytes, strict=True)
        )
        return other / own

    @property
    def summary(self) -> str:
        """Say in one sentence whether the claim holds here."""
        own, other = (size / 1e6 for size in self.gradient_bytes)
        speed, at = self.training_speed.median, " / ".join(f"{self.speed_at(speed):.2f}" for speed in GIGABITS)
        is_near = 0.8 <= speed / self.paper_speed <= 1.25
        return (
            f"{self.name}: a training step is {speed:.2f} times as fast as {self.beside}'s (paper {self.paper_speed}: "
            f"{'within' if is_near else 'not within'} 25 % of that, on one process), inference "
            f"{self.inference_speed.median:.2f} times; it sends {own:,.0f} MB of gradients a step, not {other:,.0f} "
            f"MB, and with the all-reduce of {' / '.join(map(str, GIGABITS))} Gbit/s it is {at} times as fast."
        )


class Costs(BaseModel):
    """What `litebert study cost` measured."""

    tokens: int
    seq_length: int
    rounds: int
    precision: str
    threads: int
    claims: list[ClaimResult]


def costs_part(found: Costs) -> Part:
    headings = ["networks", "paper", "training step", "low", "high", "inference", "low", "high", "by FLOPs"]
    headings += ["parameters", "beside", "gradient MB", "beside", "training GB", "beside"]
    headings += [f"at {speed} Gbit/s" for speed in GIGABITS]
    rows = list[tuple[Cell, ...]]()
    for each in found.claims:
        speeds = [x for timed in (each.training_speed, each.inference_speed) for x in timed.model_dump().values()]
        # weights, gradients and two moments are four times the gradients
        sizes = [size / 1e6 for size in each.gradient_bytes] + [4 * size / 1e9 for size in each.gradient_bytes]
        own = (f"{each.name} / {each.beside}", each.paper_speed, *speeds, each.flops_speed, *each.parameters)
        rows.append((*own, *sizes, *map(each.speed_at, GIGABITS)))
    title = (
        f"Speeds as multiples of the network beside; {found.tokens} tokens, sequences of {found.seq_length}, "
        f"{found.precision}, {found.threads} threads, {found.rounds} interleaved rounds of CPU time"
    )
    return Part(
        name="cost",
        title="Speed and cost (paper: Table 2, 4.3)",
        paper="ALBERT-large trains 1.7 times as fast as BERT-large, ALBERT-xxlarge 0.3 times, on many TPUs with their "
        "communication.",
        finding=" ".join(each.summary for each in found.claims),
        tables=(Table(tuple(headings), tuple(rows), title, decimals=2),),
    )


# ---- all studies of a folder ----------------------------------------------------------------------------------------


def read_findings(record: type[Record], folder: Path, name: str) -> list[Record]:
    """Return the records in the metrics files of this name, which may have a *."""
    paths = sorted(folder.glob(f"{name}.json"))
    return [record.model_validate(read_json(path, command="litebert study --help")) for path in paths]


def read_parts(folder: Path) -> list[Part]:
    """Return all studies whose metrics files are in a folder, the paper's first."""
    layers = read_findings(Layers, folder, "layers-*")
    parts = [layers_part(layers)] if layers else []
    parts += [ablation_part(each) for name in described().tables for each in read_findings(Ablation, folder, name)]
    parts += map(costs_part, read_findings(Costs, folder, "cost"))
    if not parts:
        what, expected = f"there is no metrics file of a study in {folder}", "the folder that --output of a study names"
        raise LitebertError("LB-764", what, expected=expected, next="litebert study layers --help")
    return parts
