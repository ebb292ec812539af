"""What each step changes, and what happens beyond the trained depth (Figure 1 of the
paper).

    python -m benchmarks.study.layers [MODEL ...] --texts FILE [--depths 24,48,96]
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, islice
from pathlib import Path
from statistics import fmean
from typing import Annotated, Literal

import torch
from annotated_types import Ge
from pydantic import BaseModel
from torch import Tensor
from torch.autograd.functional import jvp
from torch.nn import functional as F

from benchmarks.study.study import Output, Study
from litebert.cli.command import command_of
from litebert.errors import say
from litebert.fast import accelerate
from litebert.fast.attention import Layout
from litebert.files import require_replaceable
from litebert.inference.model import Model
from litebert.nn import Albert, Batch
from litebert.reading.lines import read_lines
from litebert.reading.source import find_file
from litebert.report.figures import Figure, Line, Point, chart
from litebert.report.tables import Cell, Table

SEED = 12_345
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
    """The behavior of the iterates at a depth beyond the trained one; `fate_of` has the
    criteria.
    """

    depth: int
    verdict: Verdict
    residual: float  # mean over the last 8 steps
    period: int  # 2 to 8 steps, after which the states come closest to where they were
    return_residual: float  # their distance then


class Layers(BaseModel):
    """What was measured in one network."""

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
    """
    if output:
        require_replaceable(output, as_folder=True)  # before anything is measured
    texts_read = list(islice(_filled_lines(texts), limit))
    measured = list[Layers]()
    for path in models or (None,):
        model = Model.load(path)
        say(model.source)
        measured.append(measure_layers(model, texts_read, depths=sorted(depths)))
    records = dict[str, Layers]()
    for name, layers in zip(_names(measured), measured, strict=True):
        records[f"layers-{name}"] = layers
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


# ---- the measurements ----------------------------------------------------------------
#
# The paper compares the input and the output of each layer and finds that they "are
# oscillating rather than converging" (3.1). It gives neither its texts nor a criterion;
# these are our criteria.

# a state that moves by less than this share of its length in a step has converged
STILL = 0.01
# states oscillate if, after some period, they are back to within this share of a step
RETURN = 0.5
# iterates close in on a point if the steps have shrunk by this factor since half the
# depth
CLOSING = 0.5
MOST_PERIOD = 8
WINDOW = 8
# at a smaller depth, there are too few states to find a period
LEAST_DEPTH = MOST_PERIOD + WINDOW


def measure_layers(
    model: Model, texts: Sequence[str], *, depths: Sequence[int] = (24, 48, 96)
) -> Layers:
    """Measure each step of a model over the pieces of texts, without [CLS] and [SEP];
    classify it at `depths`.

    Beyond the trained depth, the block of the last step is applied again and again.
    With one block, this continues the plan; with several (groups, or no sharing), only
    the last can be iterated, because an equilibrium is the fixed point of one map.
    """
    encoded = [ids for ids in model.tokenizer.encode_ids(texts) if ids]
    if not encoded:
        raise SystemExit("there are no texts to measure the steps on")
    first = model.tokenizer.cls_id
    last = model.tokenizer.sep_id
    room = model.network.config.max_position_embeddings - 2
    batch = Batch.from_lists([[first, *ids[:room], last] for ids in encoded])
    counted = ~torch.isin(batch.ids, torch.tensor([first, last]))
    return layers_of(
        model.network.albert, batch, counted, source=model.source, depths=depths
    )


@torch.no_grad()
def layers_of(
    albert: Albert, batch: Batch, counted: Tensor, *, source: str, depths: Sequence[int]
) -> Layers:
    """Measure an encoder on a batch; `counted` (tokens,) is true for tokens that enter
    the means.
    """
    trained = len(albert.plan)
    blocks = list(dict.fromkeys(albert.plan))
    if not depths or max(depths) <= trained or min(depths) < LEAST_DEPTH:
        raise SystemExit(
            f"give depths from {LEAST_DEPTH} on, at least one of them above {trained},"
            " the trained depth"
        )
    layout = Layout(batch)
    steps = accelerate(albert).steps(albert, None)
    state = next(albert.states(batch))
    at_depth = end = state.float()  # (tokens, hidden); the engine may pad its rows
    changes = list[StepChange]()
    fates = list[Fate]()
    recent = [end[counted]]
    for number in range(1, max(depths) + 1):
        place = min(number, trained) - 1  # beyond the plan, the last step again
        state = steps[place](state, layout)
        end = state[: len(batch.ids)].float()
        before = recent[-1]
        after = end[counted]
        distance = (after - before).norm(dim=-1)  # (tokens,), like the angle
        angle = (
            F.cosine_similarity(before, after, dim=-1).clamp(-1, 1).arccos().rad2deg()
        )
        change = StepChange(
            step=number,
            block=1 + blocks.index(albert.plan[place]),
            l2=float(distance.mean()),
            angle=float(angle.mean()),
            norm=float(after.norm(dim=-1).mean()),
            residual=float((distance / before.norm(dim=-1)).mean()),
        )
        changes.append(change)
        recent = [*recent[-LEAST_DEPTH:], after]
        if number in depths and number > trained:
            fates.append(fate_of([change.residual for change in changes], recent))
        if number == trained:
            at_depth = end
    return Layers(
        source=source,
        num_steps=trained,
        num_tokens=int(counted.sum()),
        steps=changes[:trained],
        beyond=changes[trained:],
        fates=fates,
        eigenvalue_at_depth=dominant_eigenvalue(albert, batch, at_depth),
        eigenvalue_at_end=dominant_eigenvalue(albert, batch, end),
    )


def fate_of(residuals: Sequence[float], recent: Sequence[Tensor]) -> Fate:
    """Classify the last iterates: converged, periodic, slowing down, or none of
    these.
    """

    def change_over(lag: int) -> float:
        """Return how far the last states are from those `lag` steps before, relative to
        their size.
        """
        shares = list[float]()
        earlier = recent[-WINDOW - lag : -lag]
        for before, after in zip(earlier, recent[-WINDOW:], strict=True):
            moved = (after - before).norm(dim=-1) / before.norm(dim=-1)  # (tokens,)
            shares.append(float(moved.mean()))
        return fmean(shares)

    depth = len(residuals)
    residual = change_over(1)
    by_lag = {lag: change_over(lag) for lag in range(2, MOST_PERIOD + 1)}
    near = RETURN * residual
    returning = [lag for lag, distance in by_lag.items() if distance < near]
    period = returning[0] if returning else min(by_lag, key=by_lag.__getitem__)
    half_way = fmean(residuals[max(0, depth // 2 - WINDOW) : depth // 2])
    verdict: Verdict = "wanders"
    if residual < STILL:
        verdict = "converges"
    elif returning:
        verdict = "oscillates"
    elif residual < CLOSING * half_way:
        verdict = "closes in"
    return Fate(
        depth=depth,
        verdict=verdict,
        residual=residual,
        period=period,
        return_residual=by_lag[period],
    )


@torch.enable_grad()
def dominant_eigenvalue(
    albert: Albert, batch: Batch, state: Tensor, *, power_steps: int = 40
) -> float:
    """Return its modulus by iterating v -> J v / |J v| at a state of the first
    sequence, all of its tokens together.

    It is the geometric mean of the growth |J v| / |v| over the second half of the
    iterations, because a complex pair makes the growth oscillate. Plain blocks are
    used: a product with the Jacobian differentiates twice, which fused blocks do not
    support.
    """
    length = batch.lengths[0]
    last = albert.plan[-1]
    alone = Batch.from_lists(
        [batch.ids[:length].tolist()], [batch.segments[:length].tolist()]
    )
    attend = albert.attention[last.attention]
    transform = albert.feed_forward[last.feed_forward]
    point = state[:length].detach().float()  # (tokens, hidden)

    def step(x: Tensor) -> Tensor:
        after: Tensor = transform(attend(x, alone))
        return after

    direction = torch.randn(point.shape, generator=torch.Generator().manual_seed(SEED))
    direction = direction / direction.norm()
    growths = []
    for _ in range(power_steps):
        image: Tensor = jvp(step, point, direction)[1]
        growth = image.norm()
        growths.append(math.log(max(float(growth), 1e-30)))
        direction = image / growth
    return math.exp(fmean(growths[len(growths) // 2 :]))


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


if __name__ == "__main__":
    command_of(study_layers, "layers")()
