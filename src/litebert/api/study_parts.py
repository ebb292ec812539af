"""Turn the results of studies into parts of a page: tables and charts beside the paper's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from litebert.errors import LitebertError
from litebert.files import Json, read_json
from litebert.report.figures import Chart, Line, Point, RowPoint, RowsFigure
from litebert.report.page import Part
from litebert.report.tables import Table
from litebert.study.ablation import GRIDS, Ablation
from litebert.study.claims import GIGABITS, ClaimResult, Costs
from litebert.study.depth import Depths
from litebert.study.layers import Layers, StepChange
from litebert.study.local import LocalAttention

COLORS = ("train", "held-out", "ink", "rule", "quiet")


def read_parts(folder: Path) -> list[Part]:
    """Return all studies whose metrics files are in a folder, the paper's first.

    Raises:
        LitebertError: LB-764, there is none.
    """

    def read(name: str) -> list[dict[str, Json]]:
        command = "litebert study --help"
        return [read_json(path, command=command) for path in sorted(folder.glob(f"{name}.json"))]

    parts = []
    if layers := read("layers-*"):
        parts.append(layers_part([Layers.model_validate(each) for each in layers]))
    for grid in GRIDS:
        parts += [ablation_part(Ablation.model_validate(each)) for each in read(grid)]
    parts += [costs_part(Costs.model_validate(each)) for each in read("cost")]
    parts += [attention_part(LocalAttention.model_validate(each)) for each in read("attention-*")]
    if depths := read("depth-*"):
        parts.append(depths_part([Depths.model_validate(each) for each in depths]))
    if not parts:
        raise LitebertError(
            "LB-764",
            f"there is no metrics file of a study in {folder}",
            received="no layers-*.json, NAME.json, cost.json, attention-*.json or depth-*.json",
            expected="the folder that --output of a study names",
            next="litebert study layers --help",
        )
    return parts


def layers_part(found: Sequence[Layers]) -> Part:
    """Return Figure 1: one line per model, within its depth and beyond it."""
    rows = [
        (
            each.source,
            step.step,
            step.block,
            step.step <= each.num_steps,
            round(step.l2, 3),
            round(step.angle, 2),
            round(step.norm, 3),
            round(step.residual, 4),
        )
        for each in found
        for step in (*each.steps, *each.beyond)
        if step.step <= each.num_steps or step.step in {fate.depth for fate in each.fates}
    ]
    fates = [
        (
            each.source,
            fate.depth,
            fate.verdict,
            round(fate.residual, 4),
            fate.period,
            round(fate.return_residual, 4),
            round(each.eigenvalue_at_depth.modulus, 3),
            round(each.eigenvalue_at_end.modulus, 3),
            round(each.eigenvalue_at_end.turn, 3),
        )
        for each in found
        for fate in each.fates
    ]
    step_headings = ("model", "step", "block", "trained", "L2", "angle", "norm", "residual")
    fate_headings = ("model", "depth", "verdict", "residual", "period", "return")
    eigen_headings = ("|eigenvalue|", "at the end", "turn")
    return Part(
        name="layers",
        title="Figure 1: what each step changes",
        paper="The distances of ALBERT-large oscillate and do not go to zero: no fixed point. "
        "Figure 1 prints no numbers and names no texts.",
        finding=" ".join(each.summary for each in found),
        tables=(
            Table((*fate_headings, *eigen_headings), tuple(fates), "Beyond the trained depth"),
            Table(step_headings, tuple(rows), "Each trained step, and the depths judged"),
        ),
        figures=(
            _steps_chart("L2 distance of input and output", found, lambda s: s.l2),
            _steps_chart("Angle of input and output, degrees", found, lambda s: s.angle),
            _beyond_chart("Residual beyond the trained depth", found),
        ),
    )


def ablation_part(found: Ablation) -> Part:
    """Return a table of the paper with our rows beside it."""
    names = ("mask_token_accuracy", "masked_lm_loss", "sentence_order_accuracy")
    crossed = ("nsp_accuracy", "nsp_commonest", "sop_accuracy", "sop_commonest")
    by_depth = sorted(
        {n for row in found.rows for t in row.trials for n in t.measures if "_at_" in n},
        key=lambda name: int(name.rpartition("_")[2]),
    )
    by_row = [{name for t in row.trials for name in t.probes} for row in found.rows]
    # A probe of one row alone belongs to another table that shares the row.
    probes = sorted({n for names in by_row for n in names if sum(n in x for x in by_row) > 1})
    # A row that other tables share may have measures that only they want.
    grid = GRIDS[found.name]
    wanted = (*names, *(crossed if grid.crosses_objectives else ()), *(by_depth if grid.measures_depths else ()))
    measures = [n for n in wanted if any(row.values(n) for row in found.rows)]
    headings = ["row", "paper", "seeds", *(f"{m}{x}" for m in measures for x in ("", " ±")), *probes]
    headings += ["tokens", "CPU s", "table", "body", "predicted CPU s", "predicted FLOPs"]
    rows = []
    for row in found.rows:
        cells: list[str | int | float | None] = [row.label, row.paper, len(row.trials)]
        for measure in measures:
            spread = row.spread(measure)
            cells += [None, None] if spread is None else [spread.mean, spread.spread]
        cells += [_mean(t.probes[name] for t in row.trials if name in t.probes) for name in probes]
        trials = row.trials
        cells += [
            sum(t.tokens for t in trials) // len(trials) if trials else None,
            _mean(t.cpu_seconds for t in trials),
            trials[0].table if trials else None,
            trials[0].body if trials else None,
            row.predicted_cpu_seconds,
            f"{row.predicted_flops:.2e}",
        ]
        rows.append(tuple(cells))
    points = tuple(
        RowPoint(row.label, tuple(values), row.paper) for row, values in zip(found.rows, found.compared, strict=True)
    )
    is_measured = any(row.trials for row in found.rows)
    return Part(
        name=found.name,
        title=f"{found.title} (paper: {found.source})",
        paper=f"figures are the paper's {found.paper_measure}; ours is {found.measure} on held-out "
        f"text, at scale {found.scale}.",
        finding=found.verdict,
        tables=(Table(tuple(headings), tuple(rows), found.title),),
        figures=(RowsFigure(found.title, "Bars: deviation between seeds.", points),) if is_measured else (),
    )


def costs_part(found: Costs) -> Part:
    """Return the claims of speed and cost, with the time that three network speeds add."""
    headings = ["networks", "paper", "training step", "low", "high", "inference", "low", "high"]
    headings += ["by FLOPs", "parameters", "beside", "gradient MB", "beside", "training GB", "beside"]
    headings += [f"at {speed} Gbit/s" for speed in GIGABITS]
    return Part(
        name="cost",
        title="Speed and cost (paper: Table 2, 4.3)",
        paper="ALBERT-large trains 1.7 times as fast as BERT-large, ALBERT-xxlarge 0.3 times, on "
        "many TPUs with their communication.",
        finding=" ".join(map(_claim_sentence, found.claims)),
        tables=(
            Table(
                tuple(headings),
                tuple(_claim_row(each) for each in found.claims),
                f"Speeds as multiples of the network beside; {found.tokens} tokens, sequences of "
                f"{found.seq_length}, {found.precision}, {found.threads} threads, "
                f"{found.rounds} interleaved rounds of CPU time",
                decimals=2,
            ),
        ),
    )


def attention_part(found: LocalAttention) -> Part:
    """Return what local attention costs and loses."""
    costs = tuple((x.length, x.full, x.local, x.full / x.local) for x in found.costs)
    losses = tuple((x.window or "full attention", x.loss) for x in found.losses)
    return Part(
        name="attention",
        title="Local attention",
        paper="sparse and block attention are named as a next step (section 5), without a figure.",
        finding=found.summary,
        tables=(
            Table(
                ("tokens", "full", "local", "full / local"),
                costs,
                "CPU microseconds a token of one sequence, forward pass",
                decimals=2,
            ),
            Table(("window", "masked-LM loss"), losses, "The same weights, not trained for it"),
        ),
    )


def depths_part(found: Sequence[Depths]) -> Part:
    """Return what models predict at every depth."""
    rows = tuple((each.source, x.depth, x.loss, x.accuracy, x.microseconds) for each in found for x in each.depths)
    return Part(
        name="depth",
        title="Elastic depth",
        paper="Table 11 trains every depth separately; no network is used at several depths.",
        finding=" ".join(each.summary for each in found),
        tables=(Table(("model", "depth", "loss", "accuracy", "µs a token"), rows, "By depth"),),
    )


def _mean(values: Iterable[float]) -> float | None:
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else None


def _steps_chart(title: str, found: Sequence[Layers], value: Callable[[StepChange], float]) -> Chart:
    return _chart(title, "Means over tokens.", [(e.source, e.steps) for e in found], value)


def _beyond_chart(title: str, found: Sequence[Layers]) -> Chart:
    lines = [(each.source, [*each.steps, *each.beyond]) for each in found]
    caption = "Share of its length by which a step moves a state."
    return _chart(title, caption, lines, lambda s: s.residual, is_logarithmic=True)


def _chart(
    title: str,
    caption: str,
    lines: Sequence[tuple[str, Sequence[StepChange]]],
    value: Callable[[StepChange], float],
    *,
    is_logarithmic: bool = False,
) -> Chart:
    return Chart(
        title,
        caption,
        tuple(
            Line(
                Path(source).name,
                COLORS[number % len(COLORS)],
                tuple(Point(s.step, value(s), value(s), value(s)) for s in steps),
            )
            for number, (source, steps) in enumerate(lines)
        ),
        "{:.3g}".format,
        is_logarithmic=is_logarithmic,
    )


def _claim_row(each: ClaimResult) -> tuple[str | int | float | None, ...]:
    train, infer = each.training_speed, each.inference_speed
    return (
        f"{each.name} / {each.beside}",
        each.paper_speed,
        *(train.median, train.low, train.high, infer.median, infer.low, infer.high),
        each.flops_speed,
        *each.parameters,
        *(size / 1e6 for size in each.gradient_bytes),
        *(size / 1e9 for size in each.training_bytes),
        *(each.speed_at(speed) for speed in GIGABITS),
    )


def _claim_sentence(each: ClaimResult) -> str:
    own, other = (size / 1e6 for size in each.gradient_bytes)
    speed = each.training_speed.median
    is_near = 0.8 <= speed / each.paper_speed <= 1.25
    return (
        f"{each.name}: a training step is {speed:.2f} times as fast as {each.beside}'s "
        f"(paper {each.paper_speed}: {'within' if is_near else 'not within'} 25 % of that, on "
        f"one process), inference {each.inference_speed.median:.2f} times; it sends {own:,.0f} MB "
        f"of gradients a step, not {other:,.0f} MB, and with the all-reduce of "
        f"{GIGABITS[0]} / {GIGABITS[1]} / {GIGABITS[2]} Gbit/s it is "
        f"{' / '.join(f'{each.speed_at(g):.2f}' for g in GIGABITS)} times as fast."
    )
