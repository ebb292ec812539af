"""Voyages written here, questions on them, and a small vocabulary that knows their words."""

import gzip
import json
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import pytest

from litebert.files import Json, write_bytes
from litebert.tasks.kinds.spans import GoldAnswer, SpanExample
from litebert.tokenizer import Tokenizer, train_tokenizer

WHO = ("Jürgen", "Anna", "Old Marta", "Émile", "The captain", "Sister Clara")
WHERE = ("Århus", "Porto", "Malmö", "Galway", "Tallinn")
WHAT = ("lanterns", "letters", "apples", "violins")
WriteSquad = Callable[..., Path]


@pytest.fixture(scope="session")
def voyages() -> list[SpanExample]:
    """Give 240 questions on 60 contexts; one in four has no answer there."""
    examples = []
    for number, (who, where, what) in enumerate(list(product(WHO, WHERE, WHAT))[::2]):
        day, count = ("Monday", "Tuesday", "Friday")[number % 3], f"{137 * number % 4000 + 1000:,}"
        context = (
            f"On {day} {who} sailed to {where} with {count} {what}. "
            f"It rained.  Nobody waited at the “{where}” harbour, and the {what} stayed aboard."
        )
        asked = {f"Who sailed to {where}?": who, "Where did the ship go?": where, f"How many {what}?": count}
        for index, (question, text) in enumerate(asked.items()):
            answers = (GoldAnswer(text, context.index(text)),)
            examples.append(SpanExample(f"v{number}-{index}", question, context, answers))
        examples.append(SpanExample(f"v{number}-3", "Who walked home?", context, ()))
    return examples


@pytest.fixture(scope="session")
def tokenizer(voyages: list[SpanExample]) -> Tokenizer:
    texts = [text for example in voyages for text in (example.context, example.question)]
    return Tokenizer.from_model(train_tokenizer(texts, vocab_size=140))


@pytest.fixture(scope="session")
def write_squad() -> WriteSquad:
    """Give a writer of files in SQuAD's layout, a paragraph a question; those that end in .gz are packed."""
    return _write


def _write(path: Path, examples: Sequence[SpanExample], *, version: str = "1.1") -> Path:
    articles: list[Json] = []
    for example in examples:
        question: dict[str, Json] = {"id": example.id, "question": example.question}
        if example.answers is not None:
            question["answers"] = [{"text": answer.text, "answer_start": answer.start} for answer in example.answers]
        if version.startswith("v2"):
            question["is_impossible"] = example.is_impossible
        paragraph: Json = {"context": example.context, "qas": [question]}
        articles.append({"title": "Voyages", "paragraphs": [paragraph]})
    data = json.dumps({"version": version, "data": articles}).encode()
    write_bytes(path, gzip.compress(data) if path.suffix == ".gz" else data)
    return path
