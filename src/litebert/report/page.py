"""The page: what a reader asks first comes first, every setting is at hand further down."""

from __future__ import annotations

import litebert
from litebert.report.charts import charts_of
from litebert.report.figure import draw
from litebert.report.markup import (
    Html,
    commands,
    details,
    document,
    facts,
    figure,
    figures,
    heading,
    joined,
    paragraph,
    section,
    table,
)
from litebert.report.next_steps import python_lines, report_line, shell_lines
from litebert.report.overview import facts_of, status
from litebert.report.record import Record, Row
from litebert.report.results import before_and_now, result_rows, verdict
from litebert.report.settings import SettingRow, data_rows, environment_rows, setting_rows
from litebert.report.theme import style_sheet

MOST_NOTES = 50


def page_of(record: Record) -> str:
    """Return the report of a run as one HTML page."""
    parts = [
        _results(record),
        _curves(record),
        _next_steps(record),
        _settings(record),
        _surroundings(record),
        _notes(record),
    ]
    return document(
        f"{record.name} - litebert report",
        style=style_sheet(),
        header=_header(record),
        main=joined(parts),
        footer=paragraph(
            f"Written by litebert {litebert.__version__} from the run's run.json and "
            "metrics.jsonl. This page is one file and loads nothing.",
            kind="quiet",
        ),
    )


def _header(record: Record) -> Html:
    return joined(
        [
            paragraph("Pretraining run", kind="quiet"),
            heading(record.name),
            paragraph(status(record), kind="status"),
            facts(facts_of(record)),
        ]
    )


def _results(record: Record) -> Html:
    title = "Held-out results"
    if not record.evaluations:
        return section(title, paragraph("Nothing was evaluated yet."))
    words = paragraph(" ".join(verdict(record, record.evaluations[-1])))
    pair = before_and_now(record)
    if pair is None:
        step = record.evaluations[0].step
        return section(title, words, paragraph(f"Evaluated once so far, at step {step:,}."))
    first, last = pair
    headings = ("Measure", f"At step {first.step:,}", f"At step {last.step:,}", "Without learning")
    caption = "Loss in nats; measured on held-out documents, without dropout"
    rows = result_rows(record, first, last)
    return section(title, words, table(caption, headings, rows, kind="results"))


def _curves(record: Record) -> Html:
    charts = charts_of(record)
    if not charts:
        return section("Curves", paragraph("No step was logged yet."))
    bands = "Lines are means of neighbouring log lines; bands show their lowest and highest. "
    told = bands if any(chart.has_bands for chart in charts) else ""
    every = record.settings.get("train.log_every")
    drawn = (figure(chart.title, draw(chart), chart.caption) for chart in charts)
    return section(
        "Curves",
        paragraph(f"{told}A log line is the mean of {every} training steps.", kind="quiet"),
        figures(drawn),
    )


def _next_steps(record: Record) -> Html:
    again = [report_line(record)]
    if not record.has_model:
        words = "The litebert pretrain command that began this run goes on where it stopped; then:"
        return section("Go on", paragraph(words), commands(again))
    return section(
        "Use the model",
        paragraph("In the shell:"),
        commands(shell_lines(record)),
        paragraph("In Python:"),
        commands(python_lines(record)),
        paragraph("This page again:"),
        commands(again),
    )


def _settings(record: Record) -> Html:
    headings = ("Setting", "Value", "Default", "Set by", "Meaning")
    rows = setting_rows(record)
    changed = (_setting_cells(row) for row in rows if row.is_changed)
    every = table("All settings of the run", headings, map(_setting_cells, rows), kind="names")
    return section(
        "Settings",
        table("Settings that differ from their defaults", headings, changed, kind="names"),
        details(f"All {len(rows)} settings", every),
    )


def _setting_cells(row: SettingRow) -> tuple[str, ...]:
    return row.name, row.value, row.default, row.origin, row.meaning


def _surroundings(record: Record) -> Html:
    return section(
        "Environment and data",
        table("Environment", ("Name", "Value"), environment_rows(record), kind="names"),
        table("Data, hashes are blake2b", ("Name", "Value"), data_rows(record), kind="names"),
    )


def _notes(record: Record) -> Html:
    if not record.notes:
        return section("Notes", paragraph("Nothing unusual was noted: no step was skipped."))
    shown = record.notes[-MOST_NOTES:]
    caption = (
        f"{len(record.notes):,} notes"
        if len(shown) == len(record.notes)
        else f"The last {len(shown)} of {len(record.notes):,} notes"
    )
    return section("Notes", table(caption, ("Step", "What happened"), map(_note_row, shown)))


def _note_row(note: Row) -> tuple[str, str]:
    return f"{note.step:,}", note.text
