"""The page of a fine-tuning run."""

from __future__ import annotations

from litebert.report import sections
from litebert.report.finetuning import confusion, next_steps, paper, reliability, worst
from litebert.report.finetuning.overview import charts_of, facts_of
from litebert.report.finetuning.results import results
from litebert.report.overview import Content, status
from litebert.runs import Record, read_result
from litebert.runs.answers import read_answers, read_labels


def content_of(record: Record) -> Content:
    """Return the content of the page of a fine-tuning run."""
    result = read_result(record.folder)
    answers = read_answers(record.folder)
    labels = read_labels(record.folder)
    return Content(
        name=_name(record),
        kind="Fine-tuning run",
        status=status(record),
        facts=facts_of(record, result),
        sections=(
            results(record, result, answers, labels),
            *paper.sections(record, result),
            sections.curves(charts_of(record, result, answers, labels), record),
            *confusion.sections(answers, labels),
            *reliability.sections(answers, labels),
            *worst.sections(answers),
            next_steps.section_of(record, answers),
            sections.settings(record),
            sections.surroundings(record),
            sections.notes(record),
        ),
        sources="run.json, metrics.jsonl, result.json and answers",
    )


def _name(record: Record) -> str:
    """Return the name of the run; for one seed of several, with the folder of all seeds."""
    folder = record.folder.resolve()
    return f"{folder.parent.name}/{folder.name}" if folder.name.startswith("seed-") else folder.name
