"""The page of a pretraining run."""

from __future__ import annotations

from litebert.report import sections
from litebert.report.markup import Html, commands, paragraph, section, table
from litebert.report.overview import Content, report_line, status
from litebert.report.pretraining.charts import charts_of, facts_of, python_lines, shell_lines
from litebert.report.pretraining.results import before_and_now, result_rows, verdict
from litebert.runs import Record


def content_of(record: Record) -> Content:
    """Return the content of the page of a pretraining run."""
    return Content(
        name=record.name,
        kind="Pretraining run",
        status=status(record),
        facts=facts_of(record),
        sections=(
            _results(record),
            sections.curves(charts_of(record), record),
            _next_steps(record),
            sections.settings(record),
            sections.surroundings(record),
            sections.notes(record),
        ),
        sources="run.json and metrics.jsonl",
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


def _next_steps(record: Record) -> Html:
    again = [report_line(record.folder)]
    if not record.has_model:
        words = "Rerun the litebert pretrain command that began this run to resume it; then:"
        return section("Resume", paragraph(words), commands(again))
    return section(
        "Use the model",
        paragraph("In the shell:"),
        commands(shell_lines(record)),
        paragraph("In Python:"),
        commands(python_lines(record)),
        paragraph("This page again:"),
        commands(again),
    )
