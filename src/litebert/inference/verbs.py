"""The verbs of a model as records: the one table from which shell, files and HTTP are made.

A row is a mapping from role to text, such as {"question": ..., "context": ...}. A verb answers rows together; its
options are the keyword arguments of the method of `Model` that has its name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from litebert.answers import Choice, Classification, Coherence, Order, Results, SpanFound
from litebert.errors import RequestError
from litebert.inference.model import Model, count

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Row: TypeAlias = Mapping[str, str]
CHOICES = tuple(f"choice{number}" for number in range(1, 10))


@dataclass(frozen=True)
class Verb:
    """How rows with these roles are answered, and how an answer is shown."""

    name: str
    answer: Callable[..., Sequence[Any]]  # (model, rows, options by name) -> an answer for each row
    line: Callable[[Row, Any], str]  # an answer for people
    roles: tuple[str, ...] = ("text",)  # the parts of a row
    num_needed: int = 1  # the first of them must be there
    plain: Callable[[Any], object] = lambda found: found  # what JSON can hold of an answer

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        """The keyword arguments of the method, with their types, defaults and help; not its callbacks."""
        parameters = inspect.signature(getattr(Model, self.name), eval_str=False).parameters.values()
        names = (*self.roles, "progress")
        return {each.name: each for each in parameters if each.kind is each.KEYWORD_ONLY and each.name not in names}


def _texts(rows: Sequence[Row]) -> list[str]:
    return [row["text"] for row in rows]


def _classify(model: Model, rows: Sequence[Row], **options: Any) -> Sequence[Classification]:
    """Rows without a second text are answered beside those with one."""
    found: dict[int, Classification] = {}
    for has_second in (False, True):
        numbers = [number for number, row in enumerate(rows) if ("second" in row) == has_second]
        seconds = [rows[number]["second"] for number in numbers] if has_second else None
        if numbers:
            answers = model.classify(_texts([rows[number] for number in numbers]), seconds, **options)
            found |= zip(numbers, answers, strict=True)
    return [found[number] for number in range(len(rows))]


def _similar(model: Model, rows: Sequence[Row], **options: Any) -> list[float]:
    """Return the cosine of each pair."""
    roles = ("first", "second")
    firsts, seconds = (model.embed([row[role] for row in rows], normalize=True, **options) for role in roles)
    return [float(cosine) for cosine in (firsts * seconds).sum(-1)]


def _order(model: Model, rows: Sequence[Row]) -> list[Order | Coherence]:
    """Pairs are answered together, a text alone by its own sentences."""
    from litebert.inference import answering

    pairs = [row for row in rows if "second" in row]
    firsts, seconds = (model.read([row[role] for row in pairs], "order") for role in ("first", "second"))
    found = iter(answering.order(model.able("order"), model.tokenizer, firsts, seconds))
    return [next(found) if "second" in row else model.order(row["first"]) for row in rows]


def _answer(model: Model, rows: Sequence[Row], *, top: int = 1) -> list[Results[SpanFound]]:
    from litebert.inference import answering

    questions, contexts = (model.read([row[role] for row in rows], "answer") for role in ("question", "context"))
    asked = [(question, [context]) for question, context in zip(questions, contexts, strict=True)]
    return answering.answer(model.able("answer"), model.tokenizer, asked, top=count(top, "top"))


def _choose(model: Model, rows: Sequence[Row]) -> list[Choice]:
    from litebert.inference import answering

    asked = [(row["question"], _choices(row), row.get("context", "")) for row in rows]
    if not all(choices for _, choices, _ in asked):
        raise RequestError(
            "LB-912",
            "there is nothing to choose from",
            received="a question alone",
            expected="two choices or more; in a file, in the columns choice1, choice2 ...",
            next='litebert choose "Who came?" Ada Nobody --context "Ada came." --model FOLDER',
        )
    model.read([question for question, _, _ in asked], "choose")
    return answering.choose(model.able("choose"), model.tokenizer, asked)


def _choices(row: Row) -> list[str]:
    return [row[name] for name in CHOICES if name in row]


# Lines for people


def _order_line(_: Row, found: Order | Coherence) -> str:
    if isinstance(found, Order):
        return f"{'in order' if found.is_in_order else 'swapped'}  (in order: {found.probability:.1%})"
    lines = ((each.probability, "break" if each.probability < 0.5 else "", each.second) for each in found.joins)
    return "\n".join(f"{probability:6.1%}  {verdict:<5}  {second}" for probability, verdict, second in lines)


def _labels_line(row: Row, found: Classification) -> str:
    values = "  ".join(f"{name} {value:.4g}" for name, value in found.values.items())
    return f"{', '.join(found.labels) or 'no label':<16}  {row['text'][:50]:<50}  {values}"


def _vector_line(row: Row, vector: NDArray[np.float32]) -> str:
    numbers = " ".join(f"{value:.3f}" for value in vector[:6])
    return f"{row['text'][:40]:<40}  {len(vector)} numbers: {numbers} …"


def _spans_line(row: Row, found: Results[SpanFound]) -> str:
    lines = (f"{each.probability:6.1%}  {each.text or '(no answer in this text)'}" for each in found)
    return "\n".join([row["question"], *lines])


def _choice_line(row: Row, found: Choice) -> str:
    lines = [row["question"]]
    for number, (choice, probability) in enumerate(zip(_choices(row), found.probabilities, strict=True)):
        lines.append(f"{'*' if number == found.index else ' '} {probability:6.1%}  {choice}")
    return "\n".join(lines)


VERBS: dict[str, Verb] = {
    each.name: each
    for each in (
        Verb(
            "fill",
            lambda model, rows, **options: model.fill(_texts(rows), **options),
            lambda _, found: "\n".join(f"{each.probability:6.1%}  {each.text}" for each in found),
        ),
        Verb(
            "score",
            lambda model, rows: model.score(_texts(rows)),
            lambda row, s: f"{s.log_likelihood:9.2f}  {s.perplexity:9.2f}  {row['text'][:70]}",
        ),
        Verb("order", _order, _order_line, ("first", "second"), plain=lambda found: getattr(found, "joins", found)),
        Verb(
            "embed",
            lambda model, rows, **options: list(model.embed(_texts(rows), **options)),
            _vector_line,
            plain=lambda vector: vector.tolist(),
        ),
        Verb("similar", _similar, lambda _, x: f"{x:.4f}", ("first", "second"), 2, lambda x: {"cosine": x}),
        Verb("classify", _classify, _labels_line, ("text", "second")),
        Verb(
            "tag",
            lambda model, rows: model.tag(_texts(rows)),
            lambda _, found: "  ".join(f"{each.word}/{each.tag}" for each in found),
        ),
        Verb("answer", _answer, _spans_line, ("question", "context"), 2),
        Verb("choose", _choose, _choice_line, ("question", "context", *CHOICES)),
    )
}
