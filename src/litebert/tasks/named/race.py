"""RACE, examinations for middle and high schools (research use only), whole and in parts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from litebert.config.load import expected
from litebert.errors import LitebertError
from litebert.reading.source import find_files, read_lines
from litebert.reading.tables import parse_row
from litebert.tasks.kinds.choice import ChoiceExample, MultipleChoice
from litebert.tasks.kinds.family import Dataset
from litebert.tasks.kinds.text import Scores

LETTERS = "ABCD"


class RacePassage(BaseModel):
    """A line of a RACE file: a text with its questions."""

    model_config = ConfigDict(frozen=True, strict=True)

    id: str
    article: str
    questions: list[str]
    options: list[list[str]]
    answers: list[Literal["A", "B", "C", "D"]]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not len(self.questions) == len(self.options) == len(self.answers):
            raise ValueError(
                f"as many options and answers as questions: {len(self.questions)} questions, "
                f"{len(self.options)} options, {len(self.answers)} answers"
            )
        for options, answer in zip(self.options, self.answers, strict=True):
            if not LETTERS.index(answer) < len(options) <= len(LETTERS):
                raise ValueError(f"up to 4 options, {answer} among them, not {len(options)}")
        return self


def read_race(groups: Sequence[str], folder: Path, split: str) -> list[ChoiceExample]:
    """Read the questions of one split, group after group.

    The folder is RACE as it is distributed, with one file per passage or all in all.txt, or the parent of that; or it
    has a file such as dev-middle.jsonl for each split and group.
    """
    examples = []
    for group in groups:
        inside = [f"{split}/{group}/{name}" for name in ("all.txt", "*.txt")]
        for source in find_files(folder, [*(f"RACE/{path}" for path in inside), *inside, f"{split}-{group}.jsonl"]):
            for number, line in read_lines(source):
                passage = _passage(line, source.place(number))
                rows = zip(passage.questions, passage.options, passage.answers, strict=True)
                examples += [
                    ChoiceExample(
                        id=f"{passage.id}-{index}",
                        context=passage.article,
                        question=question,
                        choices=tuple(options),
                        label=LETTERS.index(answer),
                        group=group,
                    )
                    for index, (question, options, answer) in enumerate(rows)
                ]
    return examples


def _passage(line: str, place: str) -> RacePassage:
    try:
        return RacePassage.model_validate(parse_row(line, place))
    except ValidationError as error:
        where = ".".join(map(str, error.errors(include_url=False)[0]["loc"]))
        what, advice = f"{place}: not a passage of RACE" + (f" ({where})" if where else ""), "take this line out"
        wanted = expected(error)
        raise LitebertError("LB-827", what, received=line, expected=wanted, next=advice) from error


def submission(name: str, split: str, examples: Sequence[ChoiceExample], answers: Sequence[Scores]) -> dict[str, str]:
    """Write the letter of each answer by the id of its question."""
    letters = {example.id: LETTERS[answer.best] for example, answer in zip(examples, answers, strict=True)}
    return {f"{name}-{split}.json": json.dumps(letters, indent=2) + "\n"}


DATASETS = {
    name: Dataset(name, MultipleChoice(), partial(read_race, groups), "accuracy", partial(submission, name))
    for name, groups in {"race": ("middle", "high"), "race-middle": ("middle",), "race-high": ("high",)}.items()
}
