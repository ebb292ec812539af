"""Questions on texts: SQuAD 1.1 and 2.0, their official files of answers and scores;
RACE, whole and in parts.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

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
from litebert.tasks.kinds.spans.answers import ProposedSpan
from litebert.tasks.kinds.text import Scores

LETTERS = "ABCD"  # of the options of RACE


# ---- what files contain --------------------------------------------------------------


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
        num_questions = len(self.questions)
        num_options = len(self.options)
        num_answers = len(self.answers)
        if not num_questions == num_options == num_answers:
            raise ValueError(
                "as many questions as options and answers, not"
                f" {num_questions}, {num_options} and {num_answers}"
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
        raise LitebertError(
            "LB-801",
            f"{place}: not {what}",
            received=error.errors()[0]["input"],
            expected=describe_invalid(error),
            next="correct it, or choose the file that was meant",
        ) from error


# ---- SQuAD: questions ----------------------------------------------------------------


def read_squad(source: Source) -> tuple[list[SpanExample], bool]:
    """Return the questions of a file, and whether some may have no answer (SQuAD 2.0).

    Each answer must be where its start says, and ids must be unique.
    """
    examples = list[SpanExample]()
    is_version_2 = False
    for number, row in scan_json(source):
        place = source.place(number)
        question = validate(_QUESTION, row, place, "a question of SQuAD")
        examples.append(_squad_example(question, source.name))
        is_version_2 = is_version_2 or question.is_impossible is not None
    for key, count in Counter(example.id for example in examples).items():
        if count > 1:
            raise LitebertError(
                "LB-803",
                f"{source.name}: {count} questions have the same id",
                received=key,
                next="answers are listed by id: give each question its own",
            )
    return examples, is_version_2


def _squad_example(question: _Question, file: str) -> SpanExample:
    """Return a question with its answers: None if they are unknown, none if it has no
    answer.
    """
    spots = [(answer.text, answer.answer_start) for answer in question.answers or ()]
    where = f"{file}, question {question.id}"
    answers = spans.gold_answers(question.context, spots, where)
    # An empty list means "no answer", unless is_impossible=false says that the answer
    # is merely unknown.
    has_none = question.is_impossible
    if has_none is None:
        has_none = question.answers is not None
    known = answers if answers or has_none else None
    return SpanExample(question.id, question.question, question.context, known)


def read_split(version: str, folder: Path, split: str) -> list[SpanExample]:
    """Read the questions of train or dev from train-v1.1.json and so on, plain or
    compressed, or of a single file.
    """
    if folder.is_file():
        source = find_file(folder)
    else:
        source = find_files(folder, [f"{split}-v{version}.json"])[0]
    examples, _ = read_squad(source)
    return examples


# ---- SQuAD: what the official scripts write and print --------------------------------


def submission(
    _: str, examples: Sequence[SpanExample], answers: Sequence[SpanAnswer]
) -> dict[str, str]:
    """Write predictions.json, nbest_predictions.json and, for 2.0, null_odds.json."""
    texts = dict[str, str]()
    n_best = dict[str, list[dict[str, object]]]()
    nulls = dict[str, float]()
    tuned = spans.tune_threshold(examples, answers)
    for example, answer in zip(examples, tuned, strict=True):
        texts[example.id] = answer.text
        n_best[example.id] = [_n_best_entry(span) for span in answer.n_best]
        if answer.null_score is not None:
            nulls[example.id] = answer.null_score
    files = {
        "predictions.json": _as_json(texts),
        "nbest_predictions.json": _as_json(n_best),
    }
    if len(nulls) == len(texts):
        files["null_odds.json"] = _as_json(nulls)
    return files


def _n_best_entry(span: ProposedSpan) -> dict[str, object]:
    return {
        "text": span.text,
        "probability": span.probability,
        "start_log_prob": span.start_score,
        "end_log_prob": span.end_score,
    }


def _as_json(content: object) -> str:
    return json.dumps(content, indent=4) + "\n"


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
        raise LitebertError(
            "LB-810",
            f"no question in {source.name} has is_impossible, so they are scored as"
            " SQuAD 1.1, without null scores",
            next="omit --null-odds",
        )
    gold = spans.gold(examples)
    rows = read_json(find_file(predictions))
    texts = validate(_TEXTS, rows, str(predictions), "question id to answer")
    _require_same_questions(predictions, texts, source, gold)
    missing = [key for key in gold if key not in texts]
    if missing:
        _say_missing(missing, len(gold), is_version_2=is_version_2)

    nulls = None
    if null_odds is not None:
        nulls = _read_null_odds(Path(null_odds), gold.keys() & texts.keys())
    of_version_2 = partial(squad2_measures, null_scores=nulls)
    measure = of_version_2 if is_version_2 else squad1_measures
    measures = measure(gold, texts)
    if nulls is not None:
        measures |= threshold_measures(gold, texts, nulls)
    return measures | {"unanswered": len(missing)}


def _require_same_questions(
    predictions: Path, texts: Mapping[str, str], source: Source, gold: Mapping[str, Any]
) -> None:
    """Raise if predictions are about none of the questions of a file."""
    if not gold.keys().isdisjoint(texts):
        return
    raise LitebertError(
        "LB-809",
        f"{predictions} answers none of the questions in {source.name} that have a"
        " known answer",
        received=f"ids such as {next(iter(texts), 'none')}",
        expected=f"ids such as {next(iter(gold), 'none')}",
        next="choose the file of questions that the predictions were made for",
    )


def _say_missing(missing: Sequence[str], total: int, *, is_version_2: bool) -> None:
    consequence = "are left out" if is_version_2 else "count as wrong"
    shown = ", ".join(missing[:3])
    if len(missing) > 3:
        shown += ", …"
    say(
        f"{len(missing):,} of {total:,} questions have no prediction and"
        f" {consequence}: {shown}"
    )


def _read_null_odds(file: Path, answered: Set[str]) -> dict[str, float]:
    """Return the null score of each question; all that are answered must have one."""
    rows = read_json(find_file(file))
    nulls = validate(_NUMBERS, rows, str(file), "question id to number")
    lacking = sorted(answered - nulls.keys())
    if not lacking:
        return nulls
    raise LitebertError(
        "LB-810",
        f"{file} lacks the scores of questions that are answered",
        received=f"no null score for {lacking[0]}",
        next="write both files in one go, or omit --null-odds",
    )


# ---- RACE: examinations for middle and high schools (research use only) --------------


def read_race(groups: Sequence[str], folder: Path, split: str) -> list[ChoiceExample]:
    """Read the questions of one split, group after group.

    The folder is RACE as it is distributed, with one file per passage or all in
    all.txt, or the parent of that; or it has a file such as dev-middle.jsonl for each
    split and group.
    """
    examples = list[ChoiceExample]()
    for group in groups:
        for source in find_files(folder, _race_files(split, group)):
            for number, row in scan_json_lines(source):
                place = source.place(number)
                passage = validate(_PASSAGE, row, place, "a passage of RACE")
                examples += _race_examples(passage, group)
    return examples


def _race_files(split: str, group: str) -> list[str]:
    inside = [f"{split}/{group}/all.txt", f"{split}/{group}/*.txt"]
    below = [f"RACE/{path}" for path in inside]
    return [*below, *inside, f"{split}-{group}.jsonl"]


def _race_examples(passage: _Passage, group: str) -> Iterator[ChoiceExample]:
    rows = zip(passage.questions, passage.options, passage.answers, strict=True)
    for number, (question, options, answer) in enumerate(rows):
        yield ChoiceExample(
            f"{passage.id}-{number}",
            passage.article,
            question,
            tuple(options),
            LETTERS.index(answer),
            group,
        )


def race_submission(
    name: str, split: str, examples: Sequence[ChoiceExample], answers: Sequence[Scores]
) -> dict[str, str]:
    """Write the letter of each answer by the id of its question."""
    letters = dict[str, str]()
    for example, answer in zip(examples, answers, strict=True):
        letters[example.id] = LETTERS[answer.best]
    return {f"{name}-{split}.json": json.dumps(letters, indent=2) + "\n"}


# ---- the data sets -------------------------------------------------------------------


def _squad(name: str, version: str, family: SpanAnswering) -> Dataset[Any, Any]:
    return Dataset(
        name,
        family,
        partial(read_split, version),
        family.key_measure,
        submission,
        test_splits=(),
    )


def _race(name: str, *groups: str) -> Dataset[Any, Any]:
    return Dataset(
        name,
        MultipleChoice(),
        partial(read_race, groups),
        "accuracy",
        partial(race_submission, name),
    )


SQUAD = {
    "squad": _squad("squad", "1.1", SpanAnswering()),
    "squad2": _squad("squad2", "2.0", ConditionalSpanAnswering()),
}
RACE = {
    "race": _race("race", "middle", "high"),
    "race-middle": _race("race-middle", "middle"),
    "race-high": _race("race-high", "high"),
}
