"""What to type next: ask the model, measure it again, or go on with the run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from litebert.files import read_json
from litebert.report.markup import Html, commands, paragraph, section
from litebert.report.overview import report_line
from litebert.runs import Record
from litebert.runs.answers import Answered


@dataclass(frozen=True)
class Asked:
    """One question to a model, in the shell and in Python."""

    shell: str
    python: str


_ANSWER = Asked(
    'answer "Who slept?" --context "Anna slept."', 'answer("Who slept?", "Anna slept.")'
)
_ASKED = {
    "AlbertForSequenceClassification": Asked('classify "A text."', 'classify(["A text."])'),
    "AlbertForTokenClassification": Asked('tag "Anna slept ."', 'tag(["Anna slept ."])'),
    "AlbertForMultipleChoice": Asked(
        'choose "Who slept?" Anna Bert --context "Anna slept."',
        'choose("Who slept?", ["Anna", "Bert"], context="Anna slept.")',
    ),
    "AlbertForQuestionAnswering": _ANSWER,
    "AlbertForConditionalQuestionAnswering": _ANSWER,
}
_PAIR = Asked('classify "A text." --pair "Its pair."', 'classify(["A text."], ["Its pair."])')
_BETWEEN = " ¦ "
"""Stands between the two texts of a pair in files of answers."""


def section_of(record: Record, answers: Mapping[str, Sequence[Answered]]) -> Html:
    """Return the commands that use a finished run, or go on with it."""
    again = [report_line(record.folder)]
    if not record.has_model:
        words = "The litebert finetune command that began this run goes on where it stopped; then:"
        return section("Go on", paragraph(words), commands(again))
    asked = _asked(record, answers)
    return section(
        "Use the model",
        paragraph("In the shell: the last step measured again, the best evaluation, a question."),
        commands(_shell_lines(record, asked)),
        paragraph("In Python:"),
        commands(_python_lines(record, asked)),
        paragraph("This page again:"),
        commands(again),
    )


def _shell_lines(record: Record, asked: Asked | None) -> list[str]:
    run, model = (shlex.quote(str(path)) for path in (record.folder, record.folder / "model"))
    measured = [f"litebert evaluate {run}", f"litebert evaluate {run} --best"]
    return [*measured, *([f"litebert {asked.shell} --model {model}"] if asked else [])]


def _python_lines(record: Record, asked: Asked | None) -> list[str]:
    loaded = ["import litebert", f"model = litebert.load({str(record.folder / 'model')!r})"]
    return [*loaded, f"print(model.{asked.python})" if asked else "print(model.verbs)"]


def _asked(record: Record, answers: Mapping[str, Sequence[Answered]]) -> Asked | None:
    """Return how a model with such a head is asked."""
    folder = record.folder / "model"
    kinds = read_json(folder / "config.json", command=f"ls {folder}").get("architectures")
    kind = str(kinds[0]) if isinstance(kinds, list) and kinds else ""
    rows = [row for some in answers.values() for row in some]
    is_pair = bool(rows) and all(_BETWEEN in row.text for row in rows)
    is_pair = is_pair and kind == "AlbertForSequenceClassification"
    return _PAIR if is_pair else _ASKED.get(kind)
