"""Files of examples: how tests write them, and what litebert reads from them."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from litebert.tasks.tables.dataset import table_dataset

# the fixture `write`: a name and a content become a file
Write = Callable[[str, bytes | str], Path]

# texts with their labels; one has a comma, one a character beyond Latin-1
REVIEWS = [
    ("A fine film, really.", "good"),
    ("So dull I left early.", "bad"),
    ("I’d see it again.", "good"),
    ("No.", "bad"),
]


def jsonl(rows: Iterable[object]) -> str:
    """Return the text of a file of JSON with a row a line."""
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    return "".join(lines)


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Return the text of a file of CSV; cells are quoted where they must be."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def numbered_reviews(number: int = 40) -> str:
    """Return a table of so many texts, every second one of which is labeled pos."""
    rows: list[Sequence[object]] = [("text", "label")]
    for row in range(number):
        rows.append((f"ball {row}", ("neg", "pos")[row % 2]))
    return csv_text(rows)


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """Return the texts and the labels of all examples, as training reads them."""
    dataset = table_dataset(path, path)
    names = dataset.family.head.labels
    examples = dataset.read(path, "train")
    return [(example.first, names[example.label]) for example in examples]
