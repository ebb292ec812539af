"""Train the rows of a table of the paper, and compare.

python -m benchmarks.study.ablation NAME --corpus FOLDER [--seeds 1,2,3]
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge

from benchmarks.study.grids import (
    MEASURE,
    Ablation,
    AblationRow,
    Variant,
    read_grids,
    training_flops,
)
from benchmarks.study.study import Study
from benchmarks.study.trials import Bench, measure_rate
from litebert.cli.command import command_of
from litebert.errors import say
from litebert.files import require_replaceable, write_json
from litebert.metrics import Spread
from litebert.report.figures import PALETTE, Figure
from litebert.report.tables import Cell, Table, format_cell
from litebert.runs import require_distinct

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def study_ablation(
    name: str,
    *,
    corpus: Annotated[Path, "Corpus folder."],
    output: Annotated[Path, "Folder for runs, metrics and figures."] = Path("study"),
    scale: Annotated[str, "tiny, or paper (full scale)."] = "tiny",
    seeds: Annotated[tuple[int, ...], "Seeds, separated by commas."] = (1, 2),
    rows: Annotated[
        tuple[str, ...], "--row", "Train only this row; may be repeated."
    ] = (),
    afford: Annotated[
        float,
        Ge(0),
        "CPU minutes that a row may take; longer rows are only predicted. 0: train"
        " none, inf: all.",
    ] = 10.0,
    probes: Annotated[
        tuple[str, ...],
        "--probe",
        "TASK=PATH: fine-tune each row at a fixed budget, on sst2, squad, race-middle,"
        " or your own file.",
    ] = (),
    more: Annotated[Path | None, "Second corpus, only for the table `data`."] = None,
) -> Study[Ablation]:
    """Train the rows of a table of the paper, and report whether its ordering is
    reproduced.

    NAME is embedding (Table 3), sharing (4), sentence (5), time (6), data (7), dropout
    (8), depth (11), width (12), ngram or groups; or masking, which the authors name
    as future work. A trained row is not trained again: rerun the command
    to resume.
    """
    require_replaceable(output, as_folder=True)
    tables = read_grids().tables
    scales = read_grids().scales
    _require_known("table", [name], tables)
    _require_known("scale", [scale], scales)
    table = tables[name]
    variants = table.variants(scales[scale])
    _require_known("row", rows, variants)
    _require_probes(probes)
    if more is None and any(variant.has_more_data for variant in variants.values()):
        raise SystemExit(
            "this table compares one corpus with two of the same vocabulary:"
            " give --more CORPUS"
        )
    require_distinct(seeds)
    second_corpus = more.absolute() if more else None
    bench = Bench(table, scale, corpus.absolute(), output / "runs", second_corpus)
    rate = measure_rate(bench.scale)
    ablation = Ablation(
        name=name,
        title=table.title,
        source=table.source,
        scale=scale,
        rows=[_predict(bench, variant, rate) for variant in variants.values()],
    )
    wanted = rows or tuple(variants)
    for seed in seeds:
        for row in ablation.rows:
            trial = bench.read_trial(variants[row.label], seed)
            is_affordable = row.predicted_flops / rate <= 60 * afford
            if row.label in wanted and is_affordable:
                if trial is None:
                    say(f"{name}, {row.label}, seed {seed}")
                trial = bench.trial(variants[row.label], seed, probes)
            if trial is not None:
                row.trials.append(trial)
            # after each row: training takes long
            write_json(output / f"{name}.json", ablation.model_dump(mode="json"))
    return report_ablation(ablation).write(output, {name: ablation})


def _require_known(kind: str, names: Sequence[str], known: Iterable[str]) -> None:
    """End the program for a name of a table, scale or row that does not exist."""
    for name in names:
        if name not in known:
            raise SystemExit(f"there is no {kind} {name}, only {', '.join(known)}")


def _require_probes(probes: Sequence[str]) -> None:
    """End the program unless each probe is TASK=PATH."""
    for probe in probes:
        task, _, path = probe.partition("=")
        if not task or not path:
            raise SystemExit(f"a probe is TASK=PATH, not {probe}")


def _predict(bench: Bench, variant: Variant, rate: float) -> AblationRow:
    """Return a row that is not trained yet, with its cost; `rate` is in FLOPs a
    second.
    """
    flops = training_flops(bench.words(variant, 0))
    return AblationRow(
        label=variant.label,
        part=variant.part,
        paper=variant.paper,
        predicted_flops=flops,
        predicted_cpu_seconds=float(f"{flops / rate:.3g}"),
    )


# ---- the table -----------------------------------------------------------------------


def report_ablation(ablation: Ablation) -> Study[Ablation]:
    """Return a table with the paper's figures next to ours, and its figure."""
    measures = ablation.columns
    measure_headings = list[str]()
    for measure in measures:
        measure_headings += [measure, f"{measure} ±"]
    headings = (
        "row",
        "paper",
        "seeds",
        *measure_headings,
        "tokens",
        "CPU s",
        "table",
        "body",
        "predicted CPU s",
        "predicted FLOPs",
    )
    rows = [_row_of(row, measures) for row in ablation.rows]
    return Study(
        ablation,
        name=ablation.name,
        finding=ablation.verdict,
        tables=[Table(headings, rows, ablation.title)],
        figures=_figures(ablation),
    )


def _row_of(row: AblationRow, measures: Sequence[str]) -> list[Cell]:
    cells: list[Cell] = [row.label, row.paper, len(row.trials)]
    for measure in measures:
        values = row.values(measure)
        if values:
            spread = Spread.of(values)
            cells += [spread.mean, spread.spread]
        else:
            cells += [None, None]
    if row.trials:
        tokens = fmean(trial.tokens for trial in row.trials)
        seconds = fmean(trial.cpu_seconds for trial in row.trials)
        cells += [int(tokens), seconds, row.trials[0].table, row.trials[0].body]
    else:
        cells += [None] * 4
    return [*cells, row.predicted_cpu_seconds, f"{row.predicted_flops:.2e}"]


def _figures(ablation: Ablation) -> list[Figure]:
    if not any(row.trials for row in ablation.rows):
        return []
    points = dict[str, list[float]]()
    for row in ablation.rows:
        label = f"{row.label} (paper {row.paper})" if row.paper else row.label
        points[label] = row.values(MEASURE)
    return [rows_figure(ablation.title, "Bars: deviation between seeds.", points)]


def rows_figure(
    title: str, caption: str, rows: Mapping[str, Sequence[float]]
) -> Figure:
    """Return a figure of rows from top to bottom, each with the mean and deviation of
    its values.
    """
    parts = list[str]()
    for label, values in rows.items():
        mean = fmean(values) if values else None
        parts.append(f"{label}: {format_cell(mean)}")
    fill = partial(_fill_rows, rows=rows)
    return Figure(title, caption, f"{title}: {'; '.join(parts)}.", fill)


def _fill_rows(axes: "Axes", *, rows: Mapping[str, Sequence[float]]) -> None:
    heights = range(len(rows), 0, -1)
    axes.set_yticks(heights, list(rows))
    for height, values in zip(heights, rows.values(), strict=True):
        if not values:
            continue
        axes.errorbar(
            fmean(values),
            height,
            xerr=stdev(values) if len(values) > 1 else 0.0,
            fmt="o",
            color=PALETTE["train"],
            markersize=4.0,
            capsize=2.0,
        )


if __name__ == "__main__":
    command_of(study_ablation, "ablation")()
