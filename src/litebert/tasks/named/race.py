"""RACE, examinations for middle and high schools (research use only), whole and in parts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from litebert.config.allowed import expected
from litebert.errors import LitebertError
from litebert.reading.lines import read_lines
from litebert.reading.source import Source, find_files
from litebert.reading.tables import RowPlace, parse_row
from litebert.tasks.dataset import Dataset
from litebert.tasks.kinds.choice import ChoiceExample, MultipleChoice
from litebert.tasks.kinds.classification import Scores

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

    The folder is RACE as it is distributed, with one file per passage or all in all.txt, or the
    parent of that; or it has a file such as dev-middle.jsonl for each split and group.

    Raises:
        LitebertError: LB-820, the files are missing; LB-827, a line is not a passage of RACE.
    """
    examples: list[ChoiceExample] = []
    for group in groups:
        inside = [f"{split}/{group}/{name}" for name in ("all.txt", "*.txt")]
        patterns = [*(f"RACE/{path}" for path in inside), *inside, f"{split}-{group}.jsonl"]
        for source in find_files(folder, patterns):
            examples += _examples(source, group)
    return examples


def submission(name: str, split: str, examples: Sequence[ChoiceExample], answers: Sequence[Scores]) -> dict[str, str]:
    """Write the letter of each answer by the id of its question."""
    letters = {example.id: LETTERS[answer.best] for example, answer in zip(examples, answers, strict=True)}
    return {f"{name}-{split}.json": json.dumps(letters, indent=2) + "\n"}


def _examples(source: Source, group: str) -> Iterator[ChoiceExample]:
    for number, line in read_lines(source):
        place = RowPlace(source, number)
        passage = _passage(line, place)
        rows = zip(passage.questions, passage.options, passage.answers, strict=True)
        for index, (question, options, answer) in enumerate(rows):
            yield ChoiceExample(
                id=f"{passage.id}-{index}",
                context=passage.article,
                question=question,
                choices=tuple(options),
                label=LETTERS.index(answer),
                group=group,
            )


def _passage(line: str, place: RowPlace) -> RacePassage:
    try:
        return RacePassage.model_validate(parse_row(line, place))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise LitebertError(
            "LB-827",
            f"{place}: not a passage of RACE" + (f" ({where})" if where else ""),
            received=line,
            expected=expected(error, RacePassage),
            next="get the file again, or take this line out",
        ) from error


def _dataset(name: str, groups: Sequence[str]) -> Dataset[ChoiceExample, Scores]:
    return Dataset(
        name=name,
        family=MultipleChoice(),
        read=partial(read_race, groups),
        key_measure="accuracy",
        submission=partial(submission, name),
    )


DATASETS = {
    "race": _dataset("race", ("middle", "high")),
    "race-middle": _dataset("race-middle", ("middle",)),
    "race-high": _dataset("race-high", ("high",)),
}
