"""The sections that every run has: its curves, settings, environment, data and notes."""

from __future__ import annotations

from collections.abc import Sequence

from litebert.report.chart import Chart
from litebert.report.figure import draw
from litebert.report.markup import Html, details, figure, figures, paragraph, section, table
from litebert.report.settings import SettingRow, data_rows, environment_rows, setting_rows
from litebert.runs import Record

MOST_NOTES = 50


def curves(charts: Sequence[Chart], record: Record, *, bands: str = "") -> Html:
    """Return the figures that have data; `bands` explains the bands around their lines."""
    drawn = [chart for chart in charts if chart.lines]
    if not drawn:
        return section("Curves", paragraph("No step was logged yet."))
    neighbours = "Lines are means of neighbouring log lines; bands show their lowest and highest."
    prefix = f"{bands or neighbours} " if any(chart.has_bands for chart in drawn) else ""
    every = record.settings.get("train.log_every")
    words = f"{prefix}A log line is the mean of {every} training steps."
    shown = (figure(chart.title, draw(chart), chart.caption) for chart in drawn)
    return section("Curves", paragraph(words, kind="quiet"), figures(shown))


def settings(record: Record) -> Html:
    """Return the settings that differ from their defaults, and a folded table of all settings."""
    headings = ("Setting", "Value", "Default", "Set by", "Meaning")
    rows = setting_rows(record)
    changed = (_setting_cells(row) for row in rows if row.is_changed)
    every = table("All settings of the run", headings, map(_setting_cells, rows), kind="names")
    return section(
        "Settings",
        table("Settings that differ from their defaults", headings, changed, kind="names"),
        details(f"All {len(rows)} settings", every),
    )


def surroundings(record: Record) -> Html:
    """Return the machine and the data of the run."""
    return section(
        "Environment and data",
        table("Environment", ("Name", "Value"), environment_rows(record), kind="names"),
        table("Data, hashes are blake2b", ("Name", "Value"), data_rows(record), kind="names"),
    )


def notes(record: Record) -> Html:
    """Return the notes of the run, or the last of them if there are many."""
    if not record.notes:
        return section("Notes", paragraph("Nothing unusual was noted: no step was skipped."))
    shown = record.notes[-MOST_NOTES:]
    caption = (
        f"{len(record.notes):,} notes"
        if len(shown) == len(record.notes)
        else f"The last {len(shown)} of {len(record.notes):,} notes"
    )
    return section(
        "Notes", table(caption, ("Step", "What happened"), ((f"{note.step:,}", note.text) for note in shown))
    )


def _setting_cells(row: SettingRow) -> tuple[str, ...]:
    return row.name, row.value, row.default, row.origin, row.meaning
