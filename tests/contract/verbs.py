"""The verbs of a model in one table: the run that offers each, its inputs, and the
fields of its answer.
"""

from collections.abc import Callable
from typing import NamedTuple

from litebert import Model

Row = dict[str, str]
TEXTS = [
    "Anna walked to the house.",
    "Bert found a red ball.",
    "Nobody at the river knew.",
]
BLANKS = ["Anna walked to [MASK] house.", "Bert found a [MASK] ball."]


class Verb(NamedTuple):
    """A verb's inputs as rows of a file, as typed words and as a call; its answer's
    fields; a part of its output.
    """

    run: str
    rows: list[Row]
    typed: list[list[str]]
    ask: Callable[[Model, Row], object]
    fields: set[str]
    shown: str


def of_texts(
    name: str, run: str, fields: set[str], shown: str, texts: list[str] = TEXTS
) -> Verb:
    rows = [{"text": text} for text in texts]
    return Verb(
        run,
        rows,
        [[text] for text in texts],
        lambda m, r: getattr(m, name)(r["text"]),
        fields,
        shown,
    )


PAIRS = [{"first": TEXTS[0], "second": text} for text in TEXTS[1:]]
TYPED = [[TEXTS[0], text] for text in TEXTS[1:]]
# the choices of each row, not of one number
WHO = [["Ada", "Bert"], [*"abcdefghijk"], ["Ada", "Bert", "Carl"]]
VERBS = {
    "fill": of_texts(
        "fill", "base", {"text", "words", "probability", "offsets"}, "house.", BLANKS
    ),
    "score": of_texts(
        "score", "base", {"text", "log_likelihood", "perplexity", "words"}, TEXTS[0]
    ),
    "order": Verb(
        "base",
        PAIRS,
        TYPED,
        lambda m, r: m.order(r["first"], r["second"]),
        {"is_in_order", "probability"},
        "in order",
    ),
    "similar": Verb(
        "base",
        PAIRS,
        TYPED,
        lambda m, r: m.similar(r["first"], r["second"]),
        {"cosine"},
        "0.",
    ),
    "embed": of_texts("embed", "base", set(), "32 numbers"),
    "classify": of_texts("classify", "reviews", {"labels", "values"}, "good"),
    "tag": of_texts("tag", "tags", {"words", "entities"}, "/O"),
    "answer": Verb(
        "spans",
        [{"question": "Who left?", "context": text} for text in TEXTS],
        [["Who left?", "--context", text] for text in TEXTS],
        lambda m, r: m.answer(r["question"], r["context"]),
        {"text", "start", "stop", "probability", "document", "no_answer"},
        "%",
    ),
    "choose": Verb(
        "choices",
        [
            {
                "question": "Who?",
                "context": "A.",
                **{f"choice{n}": w for n, w in enumerate(each, 1)},
            }
            for each in WHO
        ],
        [["Who?", *each, "--context", "A."] for each in WHO],
        lambda m, r: m.choose(
            r["question"],
            [r[name] for name in r if "choice" in name],
            context=r["context"],
        ),
        {"index", "text", "probabilities"},
        "Bert",
    ),
}
OF_TEXT = [name for name, verb in VERBS.items() if list(verb.rows[0]) == ["text"]]
