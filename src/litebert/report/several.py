"""The page of several seeds of one fine-tuning: their mean results and their spread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from litebert.metrics import Spread
from litebert.report import sections
from litebert.report.chart import MOST_EVALUATIONS, Chart, Line, Point, curve_of
from litebert.report.finetuning import paper
from litebert.report.finetuning.overview import facts_of, measures_drawn
from litebert.report.markup import Html, commands, paragraph, section, table
from litebert.report.overview import Content, report_line
from litebert.report.seeds import Seeds, curve_across, spreads
from litebert.report.table import number
from litebert.runs import Record

_BANDS = "Lines are means of the seeds; bands show their lowest and highest."


def content_of(seeds: Seeds) -> Content:
    """Return the content of the page of several seeds."""
    record = _shared(seeds)
    return Content(
        name=seeds.name,
        kind="Fine-tuning run, several seeds",
        status=f"{len(seeds.results)} of {len(seeds.runs)} seeds are finished.",
        facts=_facts(record),
        sections=(
            _summary(seeds),
            *paper.beside_yours(record, _medians(seeds)),
            sections.curves(_charts(seeds), record, bands=_BANDS),
            _pages(seeds),
            sections.settings(record),
            sections.surroundings(record),
        ),
        sources="seed folders",
    )


def _shared(seeds: Seeds) -> Record:
    """Return the record of the first seed with the seeds of all."""
    every = ", ".join(map(str, seeds.runs))
    return replace(seeds.first, settings={**seeds.first.settings, "train.seed": every})


def _facts(record: Record) -> Mapping[str, str]:
    """Return the main figures, without those of one seed alone: its time, tokens and notes."""
    return facts_of(replace(record, training=(), notes=()), None)


def _summary(seeds: Seeds) -> Html:
    if not seeds.results:
        return section("Result", paragraph("No seed is finished yet."), _each(seeds))
    results = list(seeds.results.values())
    last = spreads([result.last for result in results])
    best = spreads([result.best for result in results])
    words = (
        "Last steps are what training ended with. Best evaluations are each seed's highest "
        f"{results[0].key_measure}: chosen on the examples that they are measured on, which "
        "flatters them. The two are never mixed; ± is the standard deviation over seeds."
    )
    headings = (
        "Measure",
        *("Last steps: median", "Last steps: mean"),
        *("Best evaluations: median", "Best evaluations: mean"),
    )
    rows = ((name, *_spread(last[name]), *_spread(best[name])) for name in last if name in best)
    caption = f"Over {len(results)} {'seeds' if len(results) > 1 else 'seed'}"
    summary = table(caption, headings, rows, kind="numbers")
    return section("Result", paragraph(words), summary, _each(seeds))


def _spread(spread: Spread) -> tuple[str, str]:
    return number(spread.median), f"{number(spread.mean)} ± {number(spread.spread)}"


def _each(seeds: Seeds) -> Html:
    """Return the key measure of each seed."""
    rows = []
    for seed, run in seeds.runs.items():
        if (result := seeds.results.get(seed)) is None:
            rows.append((str(seed), f"not finished, step {run.step:,}", "", "", ""))
            continue
        key = result.key_measure
        last, best = result.last, result.best
        cells = (f"{last.step:,}", number(last.measures[key]))
        rows.append((str(seed), *cells, f"{best.step:,}", number(best.measures[key])))
    headings = ("Seed", "Last step", "key measure", "Best evaluation, step", "key measure")
    return table("Each seed by the key measure", headings, rows, kind="numbers")


def _medians(seeds: Seeds) -> dict[str, dict[str, float]]:
    results = list(seeds.results.values())
    if not results:
        return {}
    chosen = {
        "median of last steps": [result.last for result in results],
        "median of best": [result.best for result in results],
    }
    return {
        name: {measure: spread.median for measure, spread in spreads(each).items()} for name, each in chosen.items()
    }


def _charts(seeds: Seeds) -> list[Chart]:
    records = list(seeds.runs.values())
    losses = curve_across([curve_of(record.training, "loss") for record in records])
    charts = [Chart("Training loss", "Lower is better.", _line(losses), "{:.3g}".format)]
    result = next(iter(seeds.results.values()), None)
    for name in measures_drawn(seeds.first, result):
        curves = [curve_of(r.evaluations, name, most_points=MOST_EVALUATIONS) for r in records]
        line = _line(curve_across(curves), is_held_out=True)
        charts.append(Chart(f"Held-out {name}", "Higher is better.", line, number))
    return charts


def _line(points: tuple[Point, ...], *, is_held_out: bool = False) -> tuple[Line, ...]:
    label, color = ("held out", "held-out") if is_held_out else ("training", "train")
    return (Line(label, color, points, has_markers=is_held_out),) if points else ()


def _pages(seeds: Seeds) -> Html:
    lines = [report_line(run.folder) for run in seeds.runs.values()]
    words = "Confusion, calibration and the worst errors are on the page of each seed:"
    return section("Each seed", paragraph(words), commands([*lines, report_line(seeds.folder)]))
