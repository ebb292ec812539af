"""A user's own questions, with the texts that answer them."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import zip_longest
from typing import ClassVar, NamedTuple, Self

from litebert.errors import format_count
from litebert.reading.tables import Row
from litebert.tasks.kinds.spans.answers import SpanAnswer
from litebert.tasks.kinds.spans.families import ConditionalSpanAnswering, SpanAnswering
from litebert.tasks.kinds.spans.windows import SpanExample, gold_answers
from litebert.tasks.tables.cells import list_of, number_of, text_of
from litebert.tasks.tables.columns import Columns, Role
from litebert.tasks.tables.guess import ColumnGuess
from litebert.tasks.tables.rows import RowReading, TrainingRows


class SpanRows(RowReading[SpanExample, SpanAnswer]):
    """Questions that a span of a context answers or, as in SQuAD 2.0, none does;
    `labels` has a name for "no answer" if some have none.
    """

    what: ClassVar[str] = "spans"
    roles: ClassVar[tuple[Role, ...]] = (
        "question",
        "context",
        "answers",
        "start",
        "id",
    )
    learned: ClassVar[tuple[Role, ...]] = ("answers", "start")

    @classmethod
    def are_like(cls, guess: ColumnGuess) -> bool:
        if not guess.usual("question") or not guess.usual("context"):
            return False
        answers = guess.usual("answers")
        if guess.usual("start"):
            return True
        if not answers:
            return False
        cells = guess.cells(answers[0])
        if "answer_start" in str(cells):
            return True
        contexts = guess.cells(guess.usual("context")[0])
        return _stand_in(cells, contexts)

    @classmethod
    def guess(cls, guess: ColumnGuess) -> None:
        guess.find_usual(cls.roles)
        for role in ("question", "context"):
            if not guess.assigned[role]:
                guess.require_one(role, [])

    @classmethod
    def settle(cls, training: TrainingRows) -> tuple[Self, str]:
        counts = _count_rows(training)
        if not counts[UNANSWERED]:
            reading = cls(training.columns, "question-answering")
            return reading, "questions; all are answered" + _doubts(counts)
        reading = cls(training.columns, "question-answering", ("unanswerable",))
        number = counts[UNANSWERED]
        return reading, f"questions; {number:,} without an answer" + _doubts(counts)

    @cached_property
    def family(self) -> SpanAnswering:
        return ConditionalSpanAnswering() if self.labels else SpanAnswering()

    def example(
        self, id: str, row: Row, place: str, *, is_labeled: bool
    ) -> SpanExample:
        """Turn a row into an example; an empty list of answers means that the question
        has no answer.
        """
        question = self.text(row, "question", place)
        context = self.text(row, "context", place)
        if not is_labeled:
            return SpanExample(id, question, context, None)
        located = list[tuple[str, float | None]]()
        for text, start in _answers(row, self.columns):
            located.append((text, locate_answer(context, text, start).start))
        answers = gold_answers(context, located, place)
        return SpanExample(id, question, context, answers)

    def lacks_label(self, _: Row) -> bool:
        """Return False: a question without an answer is labeled as unanswerable."""
        return False

    def group(self, example: SpanExample) -> tuple[str, str]:
        return example.context, str(example.is_impossible)


def _stand_in(answers: Sequence[object], contexts: Sequence[object]) -> bool:
    """Return whether more than two different answers stand in their contexts, and
    nearly all do.
    """
    pairs = zip(map(text_of, answers), map(text_of, contexts), strict=True)
    filled = [(text, context) for text, context in pairs if text and context]
    standing = [text for text, context in filled if text in context]
    return len(set(standing)) > 2 and len(standing) >= 0.9 * len(filled)


UNANSWERED = "without an answer"
ELSEWHERE = "elsewhere"
SEVERAL_PLACES = "several places"


def _count_rows(training: TrainingRows) -> Counter[str]:
    """Count questions without an answer, and answers by what is doubtful about their
    place.
    """
    counts = Counter[str]()
    for row in training.rows():
        answers = _answers(row, training.columns)
        if not answers:
            counts[UNANSWERED] += 1
        context = text_of(training.columns.cell(row, "context")) or ""
        for text, start in answers:
            counts[locate_answer(context, text, start).doubt] += 1
    return counts


def _doubts(counts: Counter[str]) -> str:
    note = ""
    if counts[SEVERAL_PLACES]:
        number = format_count(counts[SEVERAL_PLACES], "answer")
        note += (
            f"; warning: {number} without a start in several places of the context: the"
            " first is taken"
        )
    if counts[ELSEWHERE]:
        number = format_count(counts[ELSEWHERE], "answer")
        note += f"; {number} not where the start says: found by the text"
    return note


class Located(NamedTuple):
    """Where an answer of a user's own begins in its context, and what is doubtful about
    it: "" or one of the two names above. An answer that is not there keeps its start.
    """

    start: float | None
    doubt: str = ""


def locate_answer(context: str, text: str, start: float | None) -> Located:
    """Find an answer in its context: where its start says, or else by its text.

    Programs that count in units of UTF-16, in bytes or with other line ends give starts
    that are not ours; then the nearest place counts that is a whole word, if there is
    one. Without a start, the first such place counts.

    >>> locate_answer("The 40 rooms cost 4 euros.", "4", None)
    Located(start=18, doubt='')
    """
    is_there = False
    if start is not None and start >= 0:
        is_there = context.startswith(text, int(start))
    if is_there or not text.strip():
        return Located(start)
    word = re.escape(text)
    places = _places_of(rf"(?<!\w){word}(?!\w)", context)
    if not places:  # a part of a word, or of a text without spaces
        places = _places_of(word, context)
    if not places:
        return Located(start)
    if start is None:
        doubt = SEVERAL_PLACES if len(places) > 1 else ""
        return Located(places[0], doubt)
    expected = start
    for place in places:
        if start in _starts_elsewhere(context[:place]):
            expected = place
    nearest = min(places, key=lambda place: abs(place - expected))
    return Located(nearest, ELSEWHERE)


def _places_of(pattern: str, context: str) -> list[int]:
    return [match.start() for match in re.finditer(pattern, context)]


def _starts_elsewhere(before: str) -> tuple[int, int]:
    """Return the start of what follows this text as other programs count it: in units of
    UTF-16, and in bytes of UTF-8.
    """
    return len(before.encode("utf-16-le")) // 2, len(before.encode())


def _answers(row: Row, columns: Columns) -> list[tuple[str, float | None]]:
    """Return the right answers in a row, each with the character where it starts, if
    the row has it.
    """
    answers = list[tuple[str, float | None]]()
    for text_cell, start_cell in _answer_cells(row, columns):
        text = text_of(text_cell)
        if text is not None:
            answers.append((text, number_of(start_cell)))
    return answers


def _answer_cells(row: Row, columns: Columns) -> list[tuple[object, object]]:
    """Return the text and the start of each answer as a row has them: in SQuAD's object
    of two lists, in a list of objects, or in two columns, of one answer or of several.
    """
    text: object = columns.cell(row, "answers")
    start: object = columns.cell(row, "start")
    answers = _as_object(text)
    if answers is not None:
        text = answers.get("text")
        start = answers.get("answer_start")
    members = list_of(text)
    texts = [text] if members is None else members
    objects = [member for member in texts if isinstance(member, Mapping)]
    if objects:
        return [(member.get("text"), member.get("answer_start")) for member in objects]
    starts = list_of(start) or [start]
    return list(zip_longest(texts, starts[: len(texts)]))


def _as_object(cell: object) -> Mapping[str, object] | None:
    """Return an object, or one that is written as JSON; None for anything else."""
    value = cell
    if isinstance(cell, str) and cell.lstrip().startswith("{"):
        with suppress(ValueError, RecursionError):  # a text may begin with a brace, too
            value = json.loads(cell)
    return value if isinstance(value, Mapping) else None
