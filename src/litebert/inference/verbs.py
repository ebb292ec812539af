"""The verbs of a model as records: the single table behind the shell, files and HTTP.

A row is a mapping from role to text, such as {"question": ..., "context": ...}. A verb
answers many rows together; its options are the keyword arguments of the `Model` method
of the same name.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from litebert.answers import (
    Choice,
    Classification,
    Coherence,
    Order,
    Results,
    SpanFound,
    Tagging,
)
from litebert.inference.inputs import compare
from litebert.inference.model import Model
from litebert.plugins import VERBS

Row: TypeAlias = Mapping[str, str]
# of one question, at most
CHOICES = tuple(f"choice{number}" for number in range(1, 33))


@dataclass(frozen=True)
class Verb:
    """How to answer rows with these roles, and how to show an answer."""

    name: str
    # what follows `litebert` in a shell and `model.` in Python, for a model's card
    examples: tuple[str, str]
    # (model, rows, options by name) -> an answer for each row
    answer: Callable[..., Sequence[Any]]
    line: Callable[[Row, Any], str]  # an answer for people
    roles: tuple[str, ...] = ("text",)  # the parts of a row
    num_needed: int = 1  # how many of the first roles are required
    # an answer as JSON can hold it
    plain: Callable[[Any], object] = lambda found: found
    # the pretraining head that it needs; "": it needs none, or that of a task
    head: str = ""
    purpose: str = ""  # what that head does, in a card

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        """The keyword arguments of the method, except callbacks, with their types,
        defaults and help.
        """
        parameters = inspect.signature(
            getattr(Model, self.name), eval_str=False
        ).parameters.values()
        names = (*self.roles, "progress")
        return {
            each.name: each
            for each in parameters
            if each.kind is each.KEYWORD_ONLY and each.name not in names
        }


def _column(rows: Sequence[Row], role: str = "text") -> list[str]:
    return [row.get(role, "") for row in rows]


def _choices(row: Row) -> list[str]:
    return [row[name] for name in CHOICES if name in row]


def _method(verb: str) -> Callable[..., list[Any]]:
    return lambda model, rows, **options: list(
        getattr(model, verb)(_column(rows), **options)
    )


def _similar(model: Model, rows: Sequence[Row]) -> list[float]:
    firsts, seconds = (model.embed(_column(rows, role)) for role in ("first", "second"))
    kind = model.vectors.similarity
    pairs = zip(firsts, seconds, strict=True)
    return [float(compare(a[None], b[None], kind)[0, 0]) for a, b in pairs]


def _order(model: Model, rows: Sequence[Row]) -> list[Order | Coherence]:
    """Answer pairs together; split a single text into its sentences."""
    pairs = [row for row in rows if "second" in row]
    found = iter(model.order_pairs(_column(pairs, "first"), _column(pairs, "second")))
    return [
        next(found) if "second" in row else model.order(row["first"]) for row in rows
    ]


def _classify(model: Model, rows: Sequence[Row]) -> Sequence[Classification]:
    # an empty second text counts as none
    return model.classify(_column(rows), _column(rows, "second"))


def _answer(
    model: Model, rows: Sequence[Row], **options: Any
) -> list[Results[SpanFound]]:
    return model.answer_all(
        [(row["question"], [row["context"]]) for row in rows], **options
    )


def _choose(model: Model, rows: Sequence[Row]) -> list[Choice]:
    return model.choose_all(
        [(row["question"], _choices(row), row.get("context", "")) for row in rows]
    )


# Lines for people


def _order_line(_: Row, found: Order | Coherence) -> str:
    if isinstance(found, Order):
        return (
            f"{'in order' if found.is_in_order else 'swapped'}  (in order:"
            f" {found.probability:.1%})"
        )
    lines = (
        (each.probability, "break" if each.probability < 0.5 else "", each.second)
        for each in found.joins
    )
    return "\n".join(
        f"{probability:6.1%}  {verdict:<5}  {second}"
        for probability, verdict, second in lines
    )


def _labels_line(row: Row, found: Classification) -> str:
    values = "  ".join(f"{name} {value:.4g}" for name, value in found.values.items())
    return (
        f"{', '.join(found.labels) or 'no label':<16} "
        f" {' '.join(row['text'].split())[:50]:<50}  {values}"
    )


def _tags_line(_: Row, found: Tagging) -> str:
    words = "  ".join(f"{tagged.word}/{tagged.tag}" for tagged in found.words)
    entities = [f"{entity.text} ({entity.label})" for entity in found.entities]
    return "\n".join([words, *(f"  {entity}" for entity in entities)])


def _vector_line(row: Row, vector: Sequence[float]) -> str:
    numbers = " ".join(f"{value:.3f}" for value in vector[:6])
    return (
        f"{' '.join(row['text'].split())[:40]:<40}  {len(vector)} numbers: {numbers} …"
    )


def _spans_line(row: Row, found: Results[SpanFound]) -> str:
    lines = [
        f"{each.probability:6.1%}  {each.text or '(no answer in this text)'}"
        for each in found
    ]
    return "\n".join([row["question"], *(lines or ["(no answer in this text)"])])


def _choice_line(row: Row, found: Choice) -> str:
    marks = [
        "*" if number == found.index else " "
        for number in range(len(found.probabilities))
    ]
    columns = zip(marks, found.probabilities, _choices(row), strict=True)
    return "\n".join(
        [
            row["question"],
            *(f"{mark} {share:6.1%}  {choice}" for mark, share, choice in columns),
        ]
    )


_TEXTS = ('"A first text." "Another one."', '(["A first text.", "Another one."])')
_TABLE = (
    Verb(
        name="fill",
        examples=(
            'fill "The cat sat on the [MASK]."',
            'fill("The cat sat on the [MASK].")',
        ),
        answer=_method("fill"),
        line=lambda _, found: "\n".join(
            f"{filling.probability:6.1%}  {filling.text}" for filling in found
        ),
        head="masked_lm",
        purpose="fills [MASK]",
    ),
    Verb(
        name="score",
        examples=(
            'score "The cat sat on the mat."',
            'score("The cat sat on the mat.")',
        ),
        answer=_method("score"),
        line=lambda _, s: (
            f"{s.log_likelihood:9.2f}  {s.perplexity:9.2f}  {s.text[:70]}"
        ),
        head="masked_lm",
    ),
    Verb(
        name="order",
        examples=(
            'order "He opened the door." "Nobody was there."',
            'order("He opened the door.", "Nobody was there.")',
        ),
        answer=_order,
        line=_order_line,
        roles=("first", "second"),
        plain=lambda found: getattr(found, "joins", found),
        head="sentence_order",
        purpose="judges sentence order",
    ),
    Verb(
        name="embed",
        examples=(f"embed {_TEXTS[0]}", f"embed{_TEXTS[1]}"),
        answer=_method("embed"),
        line=_vector_line,
        plain=lambda vector: vector.tolist(),
    ),
    Verb(
        name="similar",
        examples=('similar "a cat" "a kitten"', 'similar("a cat", "a kitten")'),
        answer=_similar,
        line=lambda _, cosine: f"{cosine:.4f}",
        roles=("first", "second"),
        num_needed=2,
        plain=lambda cosine: {"cosine": cosine},
    ),
    Verb(
        name="classify",
        examples=(f"classify {_TEXTS[0]}", f"classify{_TEXTS[1]}"),
        answer=_classify,
        line=_labels_line,
        roles=("text", "second"),
    ),
    Verb(
        name="tag",
        examples=(
            'tag "The words of this text are tagged."',
            'tag(["The words of this text are tagged."])',
        ),
        answer=_method("tag"),
        line=_tags_line,
    ),
    Verb(
        name="answer",
        examples=(
            'answer "Who sat?" --context "The cat sat on the mat."',
            'answer("Who sat?", "The cat sat on the mat.")',
        ),
        answer=_answer,
        line=_spans_line,
        roles=("question", "context"),
        num_needed=2,
    ),
    Verb(
        name="choose",
        examples=(
            'choose "Who sat there?" "the cat" nobody',
            'choose("Who sat there?", ["the cat", "nobody"])',
        ),
        answer=_choose,
        line=_choice_line,
        roles=("question", "context", *CHOICES),
    ),
)
for _verb in _TABLE:
    VERBS.add(_verb.name, _verb)
