"""SQuAD 1.1 and 2.0: questions on contexts, the files that the official scripts write, and scores of such files."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter

from litebert.errors import LitebertError, say
from litebert.metrics import squad1_measures, squad2_measures, threshold_measures
from litebert.reading.source import Source, find_file, find_files
from litebert.reading.tables import read_layout
from litebert.tasks.kinds.family import Dataset
from litebert.tasks.kinds.spans import (
    ConditionalSpanAnswering,
    SpanAnswer,
    SpanAnswering,
    SpanExample,
    given_texts,
    gold,
    gold_answers,
)

# The files


class _SquadPart(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)


class _SquadAnswer(_SquadPart):
    text: str
    answer_start: int


class _SquadQuestion(_SquadPart):
    id: str
    question: str
    answers: list[_SquadAnswer] | None = None
    is_impossible: bool | None = None


class _Paragraph(_SquadPart):
    context: str
    qas: list[_SquadQuestion]


class _Article(_SquadPart):
    title: str = ""
    paragraphs: list[_Paragraph]


class _SquadLayout(_SquadPart):
    version: str | float = ""
    data: list[_Article]


_SQUAD = TypeAdapter(_SquadLayout)
_UNANSWERABLE = TypeAdapter(dict[str, list[_SquadQuestion]])
_TEXTS, _NUMBERS = TypeAdapter(dict[str, str]), TypeAdapter(dict[str, float])


@dataclass(frozen=True)
class SquadFile:
    """The questions of a file, and whether some may have no answer (SQuAD 2.0)."""

    examples: list[SpanExample]
    is_version_2: bool


def read_squad(source: Source) -> SquadFile:
    """Read a file of SQuAD 1.1 or 2.0; each answer must stand where its start says, and ids must differ."""
    file = read_layout(source, _SQUAD, what="SQuAD")
    is_version_2 = str(file.version).removeprefix("v").startswith("2")
    examples = []
    for article in file.data:
        for paragraph in article.paragraphs:
            for question in paragraph.qas:
                examples.append(_example(question, paragraph.context, article.title, source.name))
                is_version_2 = is_version_2 or question.is_impossible is not None
    _require_distinct(examples, source.name)
    return SquadFile(examples, is_version_2)


def _example(question: _SquadQuestion, context: str, title: str, name: str) -> SpanExample:
    where = f"{name}, question {question.id}"
    answers = gold_answers(context, [(one.text, one.answer_start) for one in question.answers or ()], where)
    if answers and question.is_impossible:
        what, received = f"{where} has an answer and says it has none", f"is_impossible and {answers[0].text!r}"
        raise LitebertError("LB-805", what, received=received, next="correct one of the two")
    # An empty list means "no answer", unless is_impossible=false says that the answer is merely unknown.
    is_empty_list = question.answers is not None and question.is_impossible is None
    is_labelled = bool(answers or question.is_impossible or is_empty_list)
    return SpanExample(question.id, question.question, context, answers if is_labelled else None, title)


def _require_distinct(examples: Sequence[SpanExample], name: str) -> None:
    for key, number in Counter(example.id for example in examples).items():
        if number > 1:
            what, advice = f"{name}: {number} questions have the same id", "give each its own: answers are listed by id"
            raise LitebertError("LB-803", what, received=key, next=advice)


def with_unanswerable(examples: Sequence[SpanExample], path: Path) -> list[SpanExample]:
    """Add questions without an answer to the contexts they belong to.

    The file is a JSON object: hex SHA-1 of a context in UTF-8 -> its questions, each with `id` and `question`. They
    follow the other questions on their context; contexts that are not among the examples are ignored. If only the
    file's questions are in lower case, a cased vocabulary gives away which questions have no answer.
    """
    source = find_file(path)
    added = read_layout(source, _UNANSWERABLE, what="questions by the SHA-1 of their context")
    by_context: dict[str, list[SpanExample]] = {}
    for example in examples:
        by_context.setdefault(example.context, []).append(example)
    merged = []
    for context, questions in by_context.items():
        key = hashlib.sha1(context.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()
        title = questions[0].title
        merged += [*questions, *(SpanExample(one.id, one.question, context, (), title) for one in added.get(key, ()))]
    if len(merged) == len(examples):
        what, advice = f"{source.name} has no question on any context", "use the file made for this version of the data"
        raise LitebertError("LB-804", what, expected="hex SHA-1 of contexts in UTF-8 as keys", next=advice)
    _require_distinct(merged, source.name)
    return merged


# The splits


def read_split(version: str, folder: Path, split: str) -> list[SpanExample]:
    """Read the questions of one split: train or dev; or fit or tune, which are parts of train.

    Of the training articles about one in twenty is there to tune a threshold on (tune), the others are fit. `folder`
    has train-v1.1.json and so on, plain, compressed (.gz, .zst) or in parts (dev-v2.0.part1.json); or it is a single
    file. Training questions of 2.0 may also be split into train-v1.1.json and train-v2.0.unanswerable.json; see
    `with_unanswerable`.
    """
    if split in ("fit", "tune"):
        train = read_split(version, folder, "train")
        return [example for example in train if _is_held_out(example) == (split == "tune")]
    if folder.is_file():
        return read_squad(find_file(folder)).examples
    stem, unanswerable = f"{split}-v{version}", ".unanswerable.json"
    sources = find_files(folder, [f"{stem}.json", f"{stem}.part*.json", stem + unanswerable])
    if unanswerable in sources[0].name:
        return with_unanswerable(read_split("1.1", folder, split), Path(sources[0].name))
    return [example for source in sources for example in read_squad(source).examples]


def _is_held_out(example: SpanExample) -> bool:
    """Choose by article, so that no context is in both parts."""
    name = (example.title or example.context).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(name).digest()[0] % 20 == 0


# What the official scripts write and print


def submission(_: str, examples: Sequence[SpanExample], answers: Sequence[SpanAnswer]) -> dict[str, str]:
    """Write predictions.json, nbest_predictions.json and, for 2.0, null_odds.json."""
    ids = [example.id for example in examples]
    names = ("text", "probability", "start_log_prob", "end_log_prob")
    n_best = [
        [dict(zip(names, (x.text, x.probability, x.start_score, x.end_score), strict=True)) for x in answer.n_best]
        for answer in answers
    ]
    files: dict[str, object] = {
        "predictions.json": dict(zip(ids, given_texts(examples, answers), strict=True)),
        "nbest_predictions.json": dict(zip(ids, n_best, strict=True)),
    }
    nulls = {key: answer.null_score for key, answer in zip(ids, answers, strict=True)}
    if None not in nulls.values():
        files["null_odds.json"] = nulls
    return {name: json.dumps(content, indent=4) + "\n" for name, content in files.items()}


def score_predictions(dataset: Path, predictions: Path, *, null_odds: Path | None = None) -> dict[str, float]:
    """Score question id -> answer against a file of SQuAD 1.1 or 2.0; which one, the file says.

    Questions without a prediction are named on stderr and counted as `unanswered`. As officially, they are wrong in 1.1
    and left out in 2.0. `null_odds` (2.0) has question id -> null score.
    """
    source = find_file(dataset)
    file = read_squad(source)
    wanted = gold(file.examples)
    found = read_layout(find_file(predictions), _TEXTS, what="question id to answer")
    if not wanted:
        advice = f"litebert evaluate --predictions {predictions} --data dev-v1.1.json"
        raise LitebertError("LB-808", f"{source.name} does not tell the answers", next=advice)
    if wanted.keys().isdisjoint(found):
        received, expected = (f"ids such as {next(iter(ids), 'none')}" for ids in (found, wanted))
        what = f"{predictions} answers no question of {source.name}"
        advice = "choose the file of questions that the predictions were made for"
        raise LitebertError("LB-809", what, received=received, expected=expected, next=advice)
    missing = [key for key in wanted if key not in found]
    if missing:
        consequence = "are left out" if file.is_version_2 else "count as wrong"
        shown = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "")
        say(f"{len(missing):,} of {len(wanted):,} questions have no prediction and {consequence}: {shown}")
    if not file.is_version_2:
        return {**squad1_measures(wanted, found), "unanswered": len(missing)}
    if null_odds is None:
        return {**squad2_measures(wanted, found), "unanswered": len(missing)}
    nulls = read_layout(find_file(null_odds), _NUMBERS, what="question id to number")
    if lacking := [key for key in wanted if key in found and key not in nulls]:
        what = f"{null_odds} lacks questions that are answered"
        received, advice = f"no null score for {lacking[0]}", "write both files in one go, or omit --null-odds"
        raise LitebertError("LB-810", what, received=received, next=advice)
    measured = squad2_measures(wanted, found, nulls) | threshold_measures(wanted, found, nulls)
    return {**measured, "unanswered": len(missing)}


def _dataset(name: str, version: str, family: SpanAnswering) -> Dataset[SpanExample, SpanAnswer]:
    return Dataset(name, family, partial(read_split, version), "f1", submission, test_splits=())


DATASETS = {
    "squad": _dataset("squad", "1.1", SpanAnswering()),
    "squad2": _dataset("squad2", "2.0", ConditionalSpanAnswering()),
}
