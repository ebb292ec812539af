"""Questions on short contexts, which tests of SQuAD learn, answer and write to files."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path

from litebert.files import Json, write_json
from litebert.tasks.kinds.spans import GoldAnswer, SpanExample

PEOPLE = ("Jürgen", "Anna", "Old Marta", "Émile", "The captain", "Sister Clara")
PLACES = ("Århus", "Porto", "Galway")


def _questions(number: int, person: str, place: str) -> list[SpanExample]:
    """Return four questions on a voyage, of which the last has no answer."""
    lanterns = f"{137 * number % 4000 + 1000:,}"
    context = (
        f"On Monday {person} sailed to {place} with {lanterns} lanterns. It rained. "
        f" Nobody waited at the “{place}” harbour, and the lanterns stayed aboard."
    )
    examples = list[SpanExample]()
    for question, text in (
        ("Who sailed?", person),
        ("Where to?", place),
        ("How many?", lanterns),
    ):
        answer = GoldAnswer(text, context.index(text))
        examples.append(
            SpanExample(f"v{number}-{question}", question, context, (answer,))
        )
    examples.append(SpanExample(f"v{number}-Why?", "Why?", context, ()))
    return examples


VOYAGES = list[SpanExample]()
for _number, (_person, _place) in enumerate(product(PEOPLE, PLACES)):
    VOYAGES.extend(_questions(_number, _person, _place))


def write_squad(path: Path, examples: Sequence[SpanExample], **changes: Json) -> Path:
    """Write a file in SQuAD's layout, one paragraph per question; `changes` sets fields
    of each, None omits one.
    """
    articles: list[Json] = []
    for example in examples:
        answers: Json = [
            {"text": answer.text, "answer_start": answer.start}
            for answer in example.answers or ()
        ]
        fields: dict[str, Json] = {
            "id": example.id,
            "question": example.question,
            "answers": answers,
            "is_impossible": example.is_impossible,
        }
        fields |= changes
        question: Json = {
            name: value for name, value in fields.items() if value is not None
        }
        paragraph: Json = {"context": example.context, "qas": [question]}
        articles.append({"title": "Voyages", "paragraphs": [paragraph]})
    write_json(path, {"data": articles})
    return path
