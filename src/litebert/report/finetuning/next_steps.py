"""The next commands: use the model, measure it again, or resume the run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from litebert.config import HEADS, kind_of_class
from litebert.files import read_json
from litebert.report.markup import Html, commands, paragraph, section
from litebert.report.overview import report_line
from litebert.runs import Record
from litebert.runs.answers import Answered


@dataclass(frozen=True)
class UsageExample:
    """One use of a model, in the shell and in Python."""

    shell: str
    python: str


_PAIR = UsageExample('classify "A text." --pair "Its pair."', 'classify(["A text."], ["Its pair."])')
_BETWEEN = " ¦ "
"""Stands between the two texts of a pair in files of answers."""


def section_of(record: Record, answers: Mapping[str, Sequence[Answered]]) -> Html:
    """Return the commands that use a finished run, or resume it."""
    again = [report_line(record.folder)]
    if not record.has_model:
        words = "Rerun the litebert finetune command that began this run to resume it; then:"
        return section("Resume", paragraph(words), commands(again))
    example = _example(record, answers)
    return section(
        "Use the model",
        paragraph("In the shell: the last step measured again, the best evaluation, a use of its head."),
        commands(_shell_lines(record, example)),
        paragraph("In Python:"),
        commands(_python_lines(record, example)),
        paragraph("This page again:"),
        commands(again),
    )


def _shell_lines(record: Record, example: UsageExample | None) -> list[str]:
    run, model = (shlex.quote(str(path)) for path in (record.folder, record.folder / "model"))
    measured = [f"litebert evaluate {run}", f"litebert evaluate {run} --best"]
    return [*measured, *([f"litebert {example.shell} --model {model}"] if example else [])]


def _python_lines(record: Record, example: UsageExample | None) -> list[str]:
    loaded = ["import litebert", f"model = litebert.load({str(record.folder / 'model')!r})"]
    return [*loaded, f"print(model.{example.python})" if example else "print(model.verbs)"]


def _example(record: Record, answers: Mapping[str, Sequence[Answered]]) -> UsageExample | None:
    """Return how the head of a model is used."""
    folder = record.folder / "model"
    classes = read_json(folder / "config.json", command=f"ls {folder}").get("architectures")
    kind = kind_of_class(str(classes[0])) if isinstance(classes, list) and classes else None
    rows = [row for some in answers.values() for row in some]
    is_pair = kind and HEADS[kind].verb == "classify"
    if is_pair and rows and all(_BETWEEN in row.text for row in rows):
        return _PAIR
    return UsageExample(HEADS[kind].shell_example, HEADS[kind].python_example) if kind else None
