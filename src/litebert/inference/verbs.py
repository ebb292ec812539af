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
    """How rows with these roles are answered, and how an answer is shown.

    `roles` are the parts of a row, of which the first `num_needed` must be there; `answer` takes the model, the rows
    and the verb's options; `line` writes an answer for people; `plain` makes what JSON can hold of it.
    """

    name: str
    answer: Callable[..., Sequence[Any]]
    line: Callable[[Row, Any], str]
    roles: tuple[str, ...] = ("text",)
    num_needed: int = 1
    plain: Callable[[Any], object] = lambda found: found

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        """The keyword arguments of the method, with their types, defaults and help; not its callbacks."""
        parameters = inspect.signature(getattr(Model, self.name), eval_str=False).parameters.values()
        return {
            each.name: each
            for each in parameters
            if each.kind is each.KEYWORD_ONLY and each.name != "progress" and each.name not in self.roles
        }


def _classify(model: Model, rows: Sequence[Row], **options: Any) -> Sequence[Classification]:
    """Rows without a second text are answered beside those with one."""
    found: dict[int, Classification] = {}
    for has_second in (False, True):
        numbers = [number for number, row in enumerate(rows) if ("second" in row) == has_second]
        texts = [rows[number]["text"] for number in numbers]
        seconds = [rows[number]["second"] for number in numbers] if has_second else None
        if numbers:
            found |= zip(numbers, model.classify(texts, seconds, **options), strict=True)
    return [found[number] for number in range(len(rows))]


def _similar(model: Model, rows: Sequence[Row], **options: Any) -> list[float]:
    """Return the cosine of each pair."""
    roles = ("first", "second")
    firsts, seconds = (model.embed([row[role] for row in rows], normalize=True, **options) for role in roles)
    return [float(cosine) for cosine in (firsts * seconds).sum(-1)]


def _order(model: Model, rows: Sequence[Row]) -> list[Order | Coherence]:
    """Pairs are answered together, a text alone by its own sentences."""
    from litebert.inference import pretrained

    pairs = [row for row in rows if "second" in row]
    firsts, seconds = (model.read([row[role] for row in pairs], "order") for role in ("first", "second"))
    found = iter(pretrained.order(model.able("order"), model.tokenizer, firsts, seconds))
    return [next(found) if "second" in row else model.order(row["first"]) for row in rows]


def _answer(model: Model, rows: Sequence[Row], *, top: int = 1) -> list[Results[SpanFound]]:
    from litebert.inference import downstream

    questions, contexts = (model.read([row[role] for row in rows], "answer") for role in ("question", "context"))
    asked = [(question, [context]) for question, context in zip(questions, contexts, strict=True)]
    return downstream.answer(model.able("answer"), model.tokenizer, asked, top=count(top, "top"))


def _choose(model: Model, rows: Sequence[Row]) -> list[Choice]:
    from litebert.inference import downstream

    asked = []
    for row in rows:
        choices = [row[name] for name in CHOICES if name in row]
        if not choices:
            raise RequestError(
                "LB-912",
                "there is nothing to choose from",
                received="a question alone",
                expected="two choices or more; in a file, in the columns choice1, choice2 ...",
                next='litebert choose "Who came?" Ada Nobody --context "Ada came." --model FOLDER',
            )
        asked.append((row["question"], choices, row.get("context", "")))
    model.read([question for question, _, _ in asked], "choose")
    return downstream.choose(model.able("choose"), model.tokenizer, asked)


# Lines for people


def _order_line(_: Row, found: Order | Coherence) -> str:
    if isinstance(found, Order):
        return f"{'in order' if found.is_in_order else 'swapped'}  (in order: {found.probability:.1%})"
    return "\n".join(
        f"{join.probability:6.1%}  {'break' if join.probability < 0.5 else '':<5}  {join.second}"
        for join in found.joins
    )


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
    choices = [row[name] for name in CHOICES if name in row]
    lines = (
        f"{'*' if number == found.index else ' '} {probability:6.1%}  {choice}"
        for number, (choice, probability) in enumerate(zip(choices, found.probabilities, strict=True))
    )
    return "\n".join([row["question"], *lines])


VERBS: dict[str, Verb] = {
    each.name: each
    for each in (
        Verb(
            "fill",
            lambda model, rows, **options: model.fill([row["text"] for row in rows], **options),
            lambda _, found: "\n".join(f"{each.probability:6.1%}  {each.text}" for each in found),
        ),
        Verb(
            "score",
            lambda model, rows: model.score([row["text"] for row in rows]),
            lambda row, s: f"{s.log_likelihood:9.2f}  {s.perplexity:9.2f}  {row['text'][:70]}",
        ),
        Verb("order", _order, _order_line, ("first", "second"), plain=lambda found: getattr(found, "joins", found)),
        Verb(
            "embed",
            lambda model, rows, **options: list(model.embed([row["text"] for row in rows], **options)),
            _vector_line,
            plain=lambda vector: vector.tolist(),
        ),
        Verb("similar", _similar, lambda _, x: f"{x:.4f}", ("first", "second"), 2, lambda x: {"cosine": x}),
        Verb("classify", _classify, _labels_line, ("text", "second")),
        Verb(
            "tag",
            lambda model, rows: model.tag([row["text"] for row in rows]),
            lambda _, found: "  ".join(f"{each.word}/{each.tag}" for each in found),
        ),
        Verb("answer", _answer, _spans_line, ("question", "context"), 2),
        Verb("choose", _choose, _choice_line, ("question", "context", *CHOICES)),
    )
}
