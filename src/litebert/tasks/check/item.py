"""An example of any kind as a check sees it: its texts, and what is said of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from litebert.config import HeadConfig
from litebert.tasks.kinds.choice import ChoiceExample
from litebert.tasks.kinds.classification import TextExample
from litebert.tasks.kinds.spans import SpanExample
from litebert.tasks.kinds.tagging import TagExample

Known = TextExample | TagExample | ChoiceExample | SpanExample


@dataclass(frozen=True, slots=True)
class Item:
    """The texts of an example, which are read together with one of `choices`, and its labels.

    `labels` are counted for the balance; `answer` is what equal texts must share, None where there
    is none; `main` is the text that may not be empty.
    """

    texts: tuple[str, ...]
    choices: tuple[str, ...]
    main: str
    labels: tuple[str, ...]
    answer: str | None


def item_of(example: Known, head: HeadConfig) -> Item:
    """Return what a check looks at.

    >>> head = HeadConfig(kind="sequence-classification", labels=("no", "yes"))
    >>> item_of(TextExample("1", "Fine.", None, 1), head).answer
    'yes'
    """
    if isinstance(example, TextExample):
        return _text(example, head)
    if isinstance(example, TagExample):
        text = " ".join(example.words)
        tags = _named(example.tags, head)
        return Item((text,), (), text, tags, None if example.tags is None else " ".join(tags))
    if isinstance(example, ChoiceExample):
        texts = (example.context, example.question)
        answer = None if example.label is None else example.choices[example.label]
        places = () if example.label is None else (f"choice {example.label + 1}",)
        return Item(texts, example.choices, "".join(texts), places, answer)
    texts = (example.question, example.context)
    if example.answers is None:
        return Item(texts, (), example.context, (), None)
    answer = " | ".join(one.text for one in example.answers)
    kind = "answered" if example.answers else "unanswerable"
    return Item(texts, (), example.context, (kind,), answer)


def _text(example: TextExample, head: HeadConfig) -> Item:
    texts = (example.first,) if example.second is None else (example.first, example.second)
    label = example.label
    if label is None:
        return Item(texts, (), example.first, (), None)
    if head.problem_type == "regression":
        return Item(texts, (), example.first, (), f"{label}")
    names = _named(label if isinstance(label, tuple) else (int(label),), head)
    return Item(texts, (), example.first, names, ", ".join(names))


def _named(labels: Sequence[int] | None, head: HeadConfig) -> tuple[str, ...]:
    return tuple(head.labels[label] for label in labels or ())
