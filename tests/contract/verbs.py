"""The verbs of a model in one table: the run that offers each, its inputs, and the
fields of its answer.
"""

from collections.abc import Callable
from dataclasses import dataclass

from litebert import Model

Row = dict[str, str]

TEXTS = [
    "Anna walked to the house.",
    "Bert found a red ball.",
    "Nobody at the river knew.",
]


@dataclass(frozen=True)
class Verb:
    """The inputs of a verb in three forms, and what is seen of its answer."""

    # of the desk
    run: str
    rows: list[Row]
    # the same inputs as words of the shell
    typed: list[list[str]]
    # the call in Python for a row
    ask: Callable[[Model, Row], object]
    fields: set[str]
    # a part of what the shell prints
    shown: str

    @property
    def takes_texts(self) -> bool:
        """Return whether each row is one text."""
        return self.rows[0].keys() == {"text"}


def of_texts(
    name: str, run: str, fields: set[str], shown: str, texts: list[str] = TEXTS
) -> Verb:
    """Describe a verb that takes one text a row."""
    return Verb(
        run,
        rows=[{"text": text} for text in texts],
        typed=[[text] for text in texts],
        ask=lambda model, row: getattr(model, name)(row["text"]),
        fields=fields,
        shown=shown,
    )


def of_pairs(name: str, fields: set[str], shown: str) -> Verb:
    """Describe a verb of the pretrained model that takes two texts a row."""
    first, *others = TEXTS
    return Verb(
        "base",
        rows=[{"first": first, "second": second} for second in others],
        typed=[[first, second] for second in others],
        ask=lambda model, row: getattr(model, name)(row["first"], row["second"]),
        fields=fields,
        shown=shown,
    )


def answer() -> Verb:
    question = "Who left?"
    return Verb(
        "spans",
        rows=[{"question": question, "context": text} for text in TEXTS],
        typed=[[question, "--context", text] for text in TEXTS],
        ask=lambda model, row: model.answer(row["question"], row["context"]),
        fields={"text", "start", "stop", "probability", "document", "no_answer"},
        shown="%",
    )


def choose() -> Verb:
    """Describe questions with different numbers of choices."""
    rows = list[Row]()
    typed = list[list[str]]()
    for choices in (["Ada", "Bert"], list("abcdefghijk"), ["Ada", "Bert", "Carl"]):
        row = {"question": "Who?", "context": "A."}
        for number, choice in enumerate(choices, 1):
            row[f"choice{number}"] = choice
        rows.append(row)
        typed.append(["Who?", *choices, "--context", "A."])

    def ask(model: Model, row: Row) -> object:
        choices = [text for role, text in row.items() if role.startswith("choice")]
        return model.choose(row["question"], choices, context=row["context"])

    fields = {"index", "text", "probabilities"}
    return Verb("choices", rows, typed, ask, fields, shown="Bert")


BLANKS = ["Anna walked to [MASK] house.", "Bert found a [MASK] ball."]
FILLING = {"text", "words", "probability", "offsets"}
SCORE = {"text", "log_likelihood", "perplexity", "words"}

VERBS = {
    "fill": of_texts("fill", "base", FILLING, "house.", BLANKS),
    "score": of_texts("score", "base", SCORE, TEXTS[0]),
    "order": of_pairs("order", {"is_in_order", "probability"}, "in order"),
    "similar": of_pairs("similar", {"cosine"}, "0."),
    "embed": of_texts("embed", "base", set(), "32 numbers"),
    "classify": of_texts("classify", "reviews", {"labels", "values"}, "good"),
    "tag": of_texts("tag", "tags", {"words", "entities"}, "/O"),
    "answer": answer(),
    "choose": choose(),
}
OF_TEXT = [name for name, verb in VERBS.items() if verb.takes_texts]
