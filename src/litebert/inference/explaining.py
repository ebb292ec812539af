"""Why an answer is what it is: how much each word of the texts adds to its score."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from litebert.answers import Explanation, WordAttribution
from litebert.errors import no_such_name
from litebert.inference.attribution import attributed
from litebert.inference.questions import QUESTIONS
from litebert.inference.traced import Framed, by_word

if TYPE_CHECKING:
    from litebert.inference.model import Model


def explain(model: Model, verb: str, texts: Sequence[str], answer: str | None) -> Explanation:
    """Attribute the score of an answer to the words of its texts.

    Raises:
        LitebertError: LB-873, there is no such verb; LB-874, it takes another number of texts;
            LB-875, the model cannot give this answer.
    """
    if verb not in QUESTIONS:
        raise no_such_name(
            "LB-873",
            "answers of this verb cannot be explained",
            verb,
            QUESTIONS,
            next='model.explain("similar", "a cat", "a kitten")',
        )
    question = QUESTIONS[verb](model, texts, answer)
    mask_id = model.tokenizer.mask_id
    found = attributed(model.network, question.sequences, question.score, mask_id=mask_id)
    return Explanation(
        verb=verb,
        answer=question.answer,
        kind=question.kind,
        score=found.score,
        blank=found.blank,
        error=found.error,
        words=tuple(_words(question.sequences, found.values)),
    )


def _words(sequences: Sequence[Framed], values: Sequence[float]) -> Iterator[WordAttribution]:
    """Add up the values of the pieces of each word, text by text."""
    start = 0
    for sequence in sequences:
        for part, begin in zip(sequence.parts, sequence.begins, strict=True):
            first = start + begin
            for each in by_word(part.text, part.offsets, values[first : first + len(part.ids)]):
                yield WordAttribution(each.word, part.name, each.start, each.end, each.value)
        start += len(sequence.ids)
