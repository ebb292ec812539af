"""The answers of the verbs in Python, in JSON and over HTTP: frozen dataclasses, shown
as tables in notebooks.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from html import escape
from importlib.util import find_spec
from textwrap import indent
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    SupportsIndex,
    TypeVar,
    get_args,
    overload,
)

from typing_extensions import TypedDict

from litebert.errors import LitebertError

if TYPE_CHECKING:
    from pandas import DataFrame

Item = TypeVar("Item")
_SHOWN_RESULTS = 20  # of a list of answers, in a notebook


@dataclass(frozen=True)
class Shown(Generic[Item]):
    """What a command prints: text for people, a value for `--json` and notes on stderr;
    and its exit code.
    """

    value: Item
    text: str
    notes: tuple[str, ...] = ()
    exit_code: int = 0

    def as_json(self) -> Item:
        return self.value

    def __str__(self) -> str:
        return self.text


class Results(tuple[Item, ...]):
    """Several answers, in order.

    >>> Results([1, 2])
    Results of 2:
      1
      2
    >>> Results([Results([1])])
    Results of 1:
      Results of 1:
        1
    """

    __slots__ = ()

    @overload
    def __getitem__(self, place: SupportsIndex, /) -> Item: ...
    @overload
    def __getitem__(self, place: slice, /) -> "Results[Item]": ...
    def __getitem__(self, place: SupportsIndex | slice, /) -> "Item | Results[Item]":
        if isinstance(place, slice):
            return Results(super().__getitem__(place))
        return super().__getitem__(place)

    def __repr__(self) -> str:
        lines = [f"Results of {len(self):,}:"]
        for item in self[:_SHOWN_RESULTS]:
            lines.append(indent(repr(item), "  "))
        num_more = len(self) - _SHOWN_RESULTS
        if num_more > 0:
            lines.append(f"  ... and {num_more:,} more")
        return "\n".join(lines)

    def to_pandas(self) -> "DataFrame":
        """Return a DataFrame with a row per answer; several answers to one text are
        several rows.
        """
        return _data_frame(self)

    def _repr_html_(self) -> str | None:
        if find_spec("pandas") is None:
            return None
        return str(self[:_SHOWN_RESULTS].to_pandas().to_html(max_rows=_SHOWN_RESULTS))


class Tabular:
    """An answer that converts to a table of one row, or of one row per part, such as
    each word.
    """

    __slots__ = ()
    # JSON schemas allow no other fields
    __pydantic_config__: ClassVar = {"extra": "forbid"}

    def to_pandas(self) -> "DataFrame":
        """Return the answer as a DataFrame."""
        assert is_dataclass(self)
        for field in fields(self):
            has_parts = any(map(is_dataclass, get_args(field.type)))
            if has_parts:
                return _data_frame(getattr(self, field.name))
        return _data_frame([self])


def _data_frame(answers: Sequence[Any]) -> "DataFrame":
    """Return answers as rows; mappings become columns such as `values.positive`, nested
    answers get a `text_number`.
    """
    try:
        from pandas import concat, json_normalize
    except ImportError as error:
        raise LitebertError(
            "LB-929", "a DataFrame needs pandas", next="pip install pandas"
        ) from error
    answers_of_texts = answers
    if answers and isinstance(answers[0], Tagging):
        answers_of_texts = [Results(tagging.words) for tagging in answers]
    if answers_of_texts and isinstance(answers_of_texts[0], Results):
        frames: dict[int, DataFrame] = {}
        for number, of_text in enumerate(answers_of_texts):
            if of_text:
                frames[number] = _data_frame(of_text)
        if not frames:
            frames[0] = json_normalize([])
        numbered = concat(frames, names=["text_number"])
        return numbered.reset_index(0).reset_index(drop=True)
    rows = list[dict[str, object]]()
    for answer in answers:
        if isinstance(answer, Tabular):
            rows.append(asdict(answer))  # type: ignore[call-overload]
        elif isinstance(answer, dict):
            rows.append(answer)
        else:
            rows.append({"value": answer})
    return json_normalize(rows)


@dataclass(frozen=True)
class Filling(Tabular):
    """One way to fill the blanks of a text; `offsets` are the start and end of each
    [MASK] in the text as given.
    """

    text: str
    words: tuple[str, ...]
    probability: float
    offsets: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Order(Tabular):
    """Whether two sentences are in order; `probability` is that of the order as
    given.
    """

    is_in_order: bool
    probability: float


class Cosine(TypedDict):  # how similar two texts are
    cosine: float


@dataclass(frozen=True)
class Join(Tabular):
    """Two neighboring sentences, the second from character `start` on, and the
    probability that they are in order.
    """

    first: str
    second: str
    start: int
    probability: float


@dataclass(frozen=True)
class Coherence(Tabular):
    """Every pair of neighboring sentences in a text, from the first to the last."""

    joins: tuple[Join, ...]

    def as_json(self) -> tuple[Join, ...]:
        """Return what `--json` prints."""
        return self.joins

    @property
    def breaks(self) -> tuple[Join, ...]:
        """The joins whose sentences are more likely swapped than in order, worst
        first.
        """
        broken = [join for join in self.joins if join.probability < 0.5]
        return tuple(sorted(broken, key=lambda join: join.probability))


@dataclass(frozen=True)
class WordScore(Tabular):
    """A word of the text, `start` to `end`, and the log-probability of its pieces."""

    word: str
    start: int
    end: int
    log_probability: float


@dataclass(frozen=True)
class Score(Tabular):
    """The pseudo-log-likelihood of a text, in nats; `perplexity` is per piece."""

    text: str
    log_likelihood: float
    perplexity: float
    words: tuple[WordScore, ...]


@dataclass(frozen=True)
class Classification(Tabular):
    """The label of a text (several or none for a multi-label model) and the value of
    each label.

    Values are probabilities; a regression model has a single value, its score.
    """

    labels: tuple[str, ...]
    values: dict[str, float]


@dataclass(frozen=True)
class Tagged(Tabular):
    """A word, `start` to `end` in the text, and its tag."""

    word: str
    tag: str
    start: int
    end: int


@dataclass(frozen=True)
class Entity(Tabular):
    """A name of one or several words, `start` to `end` in the text, and its kind."""

    text: str
    label: str
    start: int
    end: int


@dataclass(frozen=True)
class Tagging(Tabular):
    """The words of a text with their tags, and the entities that the tags mark, if they
    do.
    """

    words: tuple[Tagged, ...]
    entities: tuple[Entity, ...]


@dataclass(frozen=True)
class Choice(Tabular):
    """The best of several choices: its index, its text, and the probability of each
    choice.
    """

    index: int
    text: str
    probabilities: tuple[float, ...]


@dataclass(frozen=True)
class SpanFound(Tabular):
    """Characters `start` to `stop` of a context; an empty text means no answer.

    `document` is the index of the context, if there are several; `no_answer` is the
    probability that none of them has an answer, or None if the model does not estimate
    it.
    """

    text: str
    start: int
    stop: int
    probability: float
    document: int
    no_answer: float | None


@dataclass(frozen=True)
class Match(Tabular):
    """A text, its number among those searched, from 0, and its cosine similarity to the
    query.
    """

    number: int
    text: str
    score: float


@dataclass(frozen=True)
class WordAttribution(Tabular):
    """What a word adds to the score; it is at `start` to `end` in the text that `part`
    names.
    """

    word: str
    part: str
    start: int
    end: int
    attribution: float


@dataclass(frozen=True)
class Explanation(Tabular):
    """An answer with what each word adds to its score.

    `kind` names the score: a log-probability in nats, a cosine, a number. The
    attributions add up to `score` - `blank`, where `blank` is the score with every word
    masked; `error` is the amount by which they miss it.
    """

    verb: str
    answer: str
    kind: str
    score: float
    blank: float
    error: float
    words: tuple[WordAttribution, ...]

    def __repr__(self) -> str:
        score = f"{self.kind} {self.score:.3f}"
        blank = f"{self.blank:.3f} blank"
        lines = [f"{self.verb}: {self.answer} ({score}, {blank})"]
        for word, share in self._shares():
            amount = f"{word.attribution:+8.3f}"
            bar = "█" * round(12 * share)
            lines.append(f"  {amount}  {bar:<12}  {word.word}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        spans = list[str]()
        for word, share in self._shares():
            color = "30,100,220" if word.attribution > 0 else "220,60,40"
            style = f"background:rgba({color},{0.6 * share:.2f})"
            title = f"{word.attribution:+.3f}"
            spans.append(
                f'<span style="{style}" title="{title}">{escape(word.word)}</span>'
            )
        return (
            f"<p><b>{escape(self.answer)}</b>"
            f" {self.score:.3f}</p><p>{' '.join(spans)}</p>"
        )

    def _shares(self) -> list[tuple[WordAttribution, float]]:
        """Return each word with the size of its attribution, relative to the largest."""
        sizes = [abs(word.attribution) for word in self.words]
        largest = max(sizes, default=0.0) or 1.0
        shares = [size / largest for size in sizes]
        return list(zip(self.words, shares, strict=True))
