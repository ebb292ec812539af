"""Why an answer is what it is: how much each word of the texts adds to its score."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from litebert.errors import no_such_name
from litebert.inference.attribution import attributed
from litebert.inference.questions import QUESTIONS
from litebert.inference.results import data_frame
from litebert.inference.traced import Framed, by_word

if TYPE_CHECKING:
    from pandas import DataFrame

    from litebert.inference.model import Model


@dataclass(frozen=True)
class WordAttribution:
    """What a word adds to the score; it is `start` to `end` of the text that `part` names."""

    word: str
    part: str
    start: int
    end: int
    attribution: float


@dataclass(frozen=True)
class Explanation:
    """An answer with what each word adds to its score.

    `kind` is what the score is: a log-probability in nats, a cosine, a number. The attributions
    add up to `score` - `blank`, where `blank` is the score with every word masked; `error` is by
    how much they miss that.
    """

    verb: str
    answer: str
    kind: str
    score: float
    blank: float
    error: float
    words: tuple[WordAttribution, ...]

    def __repr__(self) -> str:
        """Write the answer, then a line per word with a bar."""
        largest = max((abs(each.attribution) for each in self.words), default=0.0) or 1.0
        lines = [
            f"  {each.attribution:+8.3f}  {'█' * round(12 * abs(each.attribution) / largest):<12}"
            f"  {each.word}"
            for each in self.words
        ]
        head = f"{self.verb}: {self.answer} ({self.kind} {self.score:.3f}, {self.blank:.3f} blank)"
        return "\n".join([head, *lines])

    def to_pandas(self) -> DataFrame:
        """Return a row per word.

        Raises:
            LitebertError: LB-929, pandas is not installed.
        """
        return data_frame([vars(each) for each in self.words])

    def _repr_html_(self) -> str:
        """Return the words in a notebook: blue adds to the score, red takes from it."""
        largest = max((abs(each.attribution) for each in self.words), default=0.0) or 1.0
        spans = [
            f'<span style="background:rgba({"30,100,220" if each.attribution > 0 else "220,60,40"},'
            f'{0.6 * abs(each.attribution) / largest:.2f})" title="{each.attribution:+.3f}">'
            f"{escape(each.word)}</span>"
            for each in self.words
        ]
        return f"<p><b>{escape(self.answer)}</b> {self.score:.3f}</p><p>{' '.join(spans)}</p>"


def explain(model: Model, verb: str, texts: Sequence[str], answer: str | None) -> Explanation:
    """Attribute the score of an answer to the words of its texts.

    Raises:
        LitebertError: LB-873, there is no such verb; LB-874, it takes other texts; LB-875, no such
            answer.
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
