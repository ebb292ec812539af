"""Questions on texts: SQuAD 1.1 and 2.0, their official files of answers and scores;
RACE, whole and in parts.
"""

import json
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from litebert.errors import LitebertError, say
from litebert.metrics import squad1_measures, squad2_measures, threshold_measures
from litebert.reading.source import Source, find_file, find_files
from litebert.reading.tables import read_json, scan_json, scan_json_lines
from litebert.settings import describe_invalid
from litebert.tasks.kinds import spans
from litebert.tasks.kinds.choice import ChoiceExample, MultipleChoice
from litebert.tasks.kinds.family import Dataset
from litebert.tasks.kinds.spans import (
    ConditionalSpanAnswering,
    SpanAnswer,
    SpanAnswering,
    SpanExample,
)
from litebert.tasks.kinds.text import Scores

# What files contain: questions of SQuAD, passages of RACE; predictions

LETTERS = "ABCD"  # of the options of RACE


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)


class _Answer(_Part):
    text: str
    answer_start: int


class _Question(_Part):
    id: str
    question: str
    context: str
    answers: list[_Answer] | None = None
    is_impossible: bool | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.answers and self.is_impossible:
            raise ValueError("answers, or is_impossible, but not both")
        return self


class _Passage(_Part):
    """A line of a RACE file: a text with its questions."""

    id: str
    article: str
    questions: list[str]
    options: list[list[str]]
    answers: list[Literal["A", "B", "C", "D"]]

    @model_validator(mode="after")
    def _check(self) -> Self:
        sizes = len(self.questions), len(self.options), len(self.answers)
        if len({*sizes}) > 1:
            raise ValueError(
                "as many questions as options and answers, not {}, {} and {}".format(
                    *sizes
                )
            )
        for options, answer in zip(self.options, self.answers, strict=True):
            if not LETTERS.index(answer) < len(options) <= len(LETTERS):
                raise ValueError(
                    f"up to 4 options, {answer} among them, not {len(options)}"
                )
        return self


_QUESTION = TypeAdapter(_Question)
_PASSAGE = TypeAdapter(_Passage)
_TEXTS = TypeAdapter(dict[str, str])
_NUMBERS = TypeAdapter(dict[str, float])
Part = TypeVar("Part")


def validate(kind: TypeAdapter[Part], row: object, place: str, what: str) -> Part:
    """Return an object of a file after validation; errors name its place and call it
    `what`.
    """
    if isinstance(row, LitebertError):
        raise row
    try:
        return kind.validate_python(row)
    except ValidationError as error:
        given = error.errors()[0]["input"]
        advice = "correct it, or choose the file that was meant"
        fault = f"{place}: not {what}"
        raise LitebertError(
            "LB-801",
            fault,
            received=given,
            expected=describe_invalid(error),
            next=advice,
        ) from error


# SQuAD: the files


def read_squad(source: Source) -> tuple[list[SpanExample], bool]:
    """Return the questions of a file, and whether some may have no answer (SQuAD 2.0).

    Each answer must be where its start says, and ids must be unique.
    """
    examples = list[SpanExample]()
    is_version_2 = False
    for number, row in scan_json(source):
        one = validate(_QUESTION, row, source.place(number), "a question of SQuAD")
        found = [(answer.text, answer.answer_start) for answer in one.answers or ()]
        answers = spans.gold_answers(
            one.context, found, f"{source.name}, question {one.id}"
        )
        # An empty list means "no answer", unless is_impossible=false says that the
        # answer is merely unknown.
        is_empty_list = one.answers is not None and one.is_impossible is None
        known = answers if answers or one.is_impossible or is_empty_list else None
        examples.append(SpanExample(one.id, one.question, one.context, known))
        is_version_2 = is_version_2 or one.is_impossible is not None
    for key, count in Counter(example.id for example in examples).items():
        if count > 1:
            what = f"{source.name}: {count} questions have the same id"
            advice = "answers are listed by id: give each question its own"
            raise LitebertError("LB-803", what, received=key, next=advice)
    return examples, is_version_2


def read_split(version: str, folder: Path, split: str) -> list[SpanExample]:
    """Read the questions of train or dev from train-v1.1.json and so on, plain or
    compressed, or of a single file.
    """
    source = (
        find_file(folder)
        if folder.is_file()
        else find_files(folder, [f"{split}-v{version}.json"])[0]
    )
    return read_squad(source)[0]


# SQuAD: what the official scripts write and print


def submission(
    _: str, examples: Sequence[SpanExample], answers: Sequence[SpanAnswer]
) -> dict[str, str]:
    """Write predictions.json, nbest_predictions.json and, for 2.0, null_odds.json."""
    ids = [example.id for example in examples]
    answers = spans.tune_threshold(examples, answers)
    names = ("text", "probability", "start_log_prob", "end_log_prob")
    n_best = [
        [
            dict(
                zip(
                    names,
                    (x.text, x.probability, x.start_score, x.end_score),
                    strict=True,
                )
            )
            for x in answer.n_best
        ]
        for answer in answers
    ]
    files: dict[str, object] = {
        "predictions.json": {
            key: answer.text for key, answer in zip(ids, answers, strict=True)
        },
        "nbest_predictions.json": dict(zip(ids, n_best, strict=True)),
    }
    nulls = {key: answer.null_score for key, answer in zip(ids, answers, strict=True)}
    if None not in nulls.values():
        files["null_odds.json"] = nulls
    return {
        name: json.dumps(content, indent=4) + "\n" for name, content in files.items()
    }


def score_predictions(
    dataset: Path, predictions: Path, *, null_odds: str | Path | None = None
) -> dict[str, float]:
    """Score predictions (question id -> answer) against a file of SQuAD 1.1 or 2.0; the
    file shows which.

    Questions without a prediction are listed on stderr and counted as `unanswered`. As
    in the official scripts, they are wrong in 1.1 and left out in 2.0. `null_odds`
    (2.0) maps question id to null score.
    """
    source = find_file(dataset)
    examples, is_version_2 = read_squad(source)
    if null_odds is not None and not is_version_2:
        what = (
            f"no question in {source.name} has is_impossible, so they are scored as"
            " SQuAD 1.1, without null scores"
        )
        raise LitebertError("LB-810", what, next="omit --null-odds")
    wanted = spans.gold(examples)
    given = read_json(find_file(predictions))
    found = validate(_TEXTS, given, str(predictions), "question id to answer")
    if wanted.keys().isdisjoint(found):
        received, asked = (
            f"ids such as {next(iter(ids), 'none')}" for ids in (found, wanted)
        )
        what = (
            f"{predictions} answers none of the questions in {source.name} that have a"
            " known answer"
        )
        advice = "choose the file of questions that the predictions were made for"
        raise LitebertError(
            "LB-809", what, received=received, expected=asked, next=advice
        )
    if missing := [key for key in wanted if key not in found]:
        consequence = "are left out" if is_version_2 else "count as wrong"
        shown = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "")
        say(
            f"{len(missing):,} of {len(wanted):,} questions have no prediction and"
            f" {consequence}: {shown}"
        )
    unanswered = {"unanswered": len(missing)}
    if null_odds is None:
        measures = squad2_measures if is_version_2 else squad1_measures
        return measures(wanted, found) | unanswered
    nulls = validate(
        _NUMBERS,
        read_json(find_file(Path(null_odds))),
        str(null_odds),
        "question id to number",
    )
    if lacking := [key for key in wanted if key in found and key not in nulls]:
        what = f"{null_odds} lacks the scores of questions that are answered"
        received = f"no null score for {lacking[0]}"
        advice = "write both files in one go, or omit --null-odds"
        raise LitebertError("LB-810", what, received=received, next=advice)
    return (
        squad2_measures(wanted, found, nulls)
        | threshold_measures(wanted, found, nulls)
        | unanswered
    )


# RACE: examinations for middle and high schools (research use only)


def read_race(groups: Sequence[str], folder: Path, split: str) -> list[ChoiceExample]:
    """Read the questions of one split, group after group.

    The folder is RACE as it is distributed, with one file per passage or all in
    all.txt, or the parent of that; or it has a file such as dev-middle.jsonl for each
    split and group.
    """
    examples = []
    for group in groups:
        inside = [f"{split}/{group}/{name}" for name in ("all.txt", "*.txt")]
        for source in find_files(
            folder,
            [*(f"RACE/{path}" for path in inside), *inside, f"{split}-{group}.jsonl"],
        ):
            for number, row in scan_json_lines(source):
                passage = validate(
                    _PASSAGE, row, source.place(number), "a passage of RACE"
                )
                rows = zip(
                    passage.questions, passage.options, passage.answers, strict=True
                )
                for index, (question, options, answer) in enumerate(rows):
                    key = f"{passage.id}-{index}"
                    right = LETTERS.index(answer)
                    examples.append(
                        ChoiceExample(
                            key, passage.article, question, tuple(options), right, group
                        )
                    )
    return examples


def race_submission(
    name: str, split: str, examples: Sequence[ChoiceExample], answers: Sequence[Scores]
) -> dict[str, str]:
    """Write the letter of each answer by the id of its question."""
    letters = {
        example.id: LETTERS[answer.best]
        for example, answer in zip(examples, answers, strict=True)
    }
    return {f"{name}-{split}.json": json.dumps(letters, indent=2) + "\n"}


SQUAD = {
    name: Dataset(
        name,
        family,
        partial(read_split, version),
        family.key_measure,
        submission,
        test_splits=(),
    )
    for name, version, family in (
        ("squad", "1.1", SpanAnswering()),
        ("squad2", "2.0", ConditionalSpanAnswering()),
    )
}
RACE = {
    name: Dataset(
        name,
        MultipleChoice(),
        partial(read_race, groups),
        "accuracy",
        partial(race_submission, name),
    )
    for name, *groups in (
        ("race", "middle", "high"),
        ("race-middle", "middle"),
        ("race-high", "high"),
    )
}
