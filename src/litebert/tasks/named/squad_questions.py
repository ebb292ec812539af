"""Read the questions of SQuAD's files, 1.1 and 2.0, and check them against their contexts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter

from litebert.errors import LitebertError
from litebert.reading.source import Source, find_file
from litebert.reading.tables import read_layout
from litebert.tasks.kinds.spans.example import GoldAnswer, SpanExample, require_bounded_context


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


@dataclass(frozen=True)
class SquadFile:
    """The questions of a file, and whether some may have no answer (SQuAD 2.0)."""

    examples: list[SpanExample]
    is_version_2: bool


def read_squad(source: Source) -> SquadFile:
    """Read a file of SQuAD 1.1 or 2.0.

    Raises:
        DamagedError: LB-800, the file is not JSON.
        LitebertError: LB-801, a field is missing or of another type; LB-802, an answer is not where
            its start says; LB-803, two questions have the same id; LB-805, a question has answers
            and is_impossible; LB-811, a context is too long.
    """
    file = read_layout(source, _SQUAD, what="SQuAD")
    paragraphs = [(article, part) for article in file.data for part in article.paragraphs]
    examples = [
        _example(question, part.context, article.title, source.name)
        for article, part in paragraphs
        for question in part.qas
    ]
    _require_distinct(examples, source.name)
    marks = (question.is_impossible for _, part in paragraphs for question in part.qas)
    is_version_2 = str(file.version).removeprefix("v").startswith("2")
    return SquadFile(examples, is_version_2 or any(mark is not None for mark in marks))


def with_unanswerable(examples: Sequence[SpanExample], path: Path) -> list[SpanExample]:
    """Add questions without an answer to the contexts they belong to.

    The file is a JSON object: hex SHA-1 of a context in UTF-8 -> its questions, each with `id` and
    `question`. They follow the other questions on their context; contexts that are not among the
    examples are ignored. If only the file's questions are in lower case, a cased vocabulary gives
    away which questions have no answer.

    Raises:
        LitebertError: LB-804, the file has no question on any of these contexts; what `read_squad`
            raises.
    """
    source = find_file(path)
    added = read_layout(source, _UNANSWERABLE, what="questions by the SHA-1 of their context")
    merged: list[SpanExample] = []
    for context, questions in _by_context(examples):
        key = hashlib.sha1(context.encode("utf-8", "surrogatepass"), usedforsecurity=False)
        title = questions[0].title
        extra = added.get(key.hexdigest(), ())
        merged += questions
        merged += (SpanExample(one.id, one.question, context, (), title) for one in extra)
    if len(merged) == len(examples):
        raise LitebertError(
            "LB-804",
            f"{source.name} has no question on any context of the data",
            received=f"{len(added):,} contexts, none of them among these",
            expected="hex SHA-1 of contexts in UTF-8 as keys",
            next="use the file that was made for this version of the data",
        )
    _require_distinct(merged, source.name)
    return merged


def _by_context(examples: Iterable[SpanExample]) -> Iterator[tuple[str, list[SpanExample]]]:
    """Yield each context with its questions, in the order of the contexts."""
    groups: dict[str, list[SpanExample]] = {}
    for example in examples:
        groups.setdefault(example.context, []).append(example)
    return iter(groups.items())


def _example(question: _SquadQuestion, context: str, title: str, name: str) -> SpanExample:
    answers = tuple(GoldAnswer(one.text, one.answer_start) for one in question.answers or ())
    where = f"{name}, question {question.id}"
    require_bounded_context(context, where)
    for answer in answers:
        _require_placed(answer, context, where)
    if answers and question.is_impossible:
        raise LitebertError(
            "LB-805",
            f"{where} has an answer and says it has none",
            received=f"is_impossible and {answers[0].text!r}",
            expected="is_impossible with no answers, or answers without it",
            next="correct one of the two",
        )
    is_empty_list = question.answers is not None and question.is_impossible is None
    is_labelled = bool(answers or question.is_impossible or is_empty_list)
    gold = answers if is_labelled else None
    return SpanExample(question.id, question.question, context, gold, title)


def _require_placed(answer: GoldAnswer, context: str, where: str) -> None:
    stop = answer.start + len(answer.text)
    stands = context[answer.start : stop] if answer.start >= 0 else ""
    if not answer.text.strip() or stands != answer.text:
        raise LitebertError(
            "LB-802",
            f"{where}: the answer is not where answer_start says",
            received=f"{answer.text!r} at {answer.start:,}, where {stands!r} stands",
            expected=f"a part of the context, which has {len(context):,} characters (not bytes)",
            next="correct answer_start: the position of the answer's first character, from 0",
        )


def _require_distinct(examples: Sequence[SpanExample], name: str) -> None:
    seen: set[str] = set()
    for example in examples:
        if example.id in seen:
            raise LitebertError(
                "LB-803",
                f"{name}: two questions have the same id",
                received=example.id,
                expected="a unique id for each question, because predictions are listed by id",
                next="give one of them another id",
            )
        seen.add(example.id)
