"""The bodies of the routes: a verb's arguments and its result, named as in Python."""

from __future__ import annotations

from typing import Annotated, Generic, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator

from litebert.serve.limits import MAX_CHARACTERS, MAX_INPUTS, MAX_SCORED_CHARACTERS, MAX_TEXTS, MAX_TIMEOUT_MS, MAX_TOP
from litebert.serve.queueing import count_tokens

Text = Annotated[str, StringConstraints(max_length=MAX_CHARACTERS)]
Texts = Annotated[list[Text], Field(min_length=1, max_length=MAX_TEXTS)]
Inputs = Annotated[list[Text], Field(min_length=1, max_length=MAX_INPUTS)]
Top = Annotated[int, Field(ge=1, le=MAX_TOP)]
Name = Annotated[str, StringConstraints(max_length=200)]
Result = TypeVar("Result")


class Body(BaseModel):
    """What every request may set: the model (by default the first), and how long it waits."""

    model_config = ConfigDict(extra="forbid", strict=True)
    model: Name | None = None
    timeout_ms: Annotated[int, Field(ge=1, le=MAX_TIMEOUT_MS)] | None = None

    @property
    def arguments(self) -> dict[str, object]:
        """The arguments of the verb."""
        return self.model_dump(exclude={"model", "timeout_ms"})

    @property
    def texts_read(self) -> list[str]:
        """The texts that the model reads, for an estimate of the work."""
        return _strings(list(self.arguments.values()))


class FillBody(Body):
    """Fill every [MASK] of a text."""

    text: Annotated[Text, Field(examples=["The cat sat on the [MASK]."])]
    top: Top = 5


class OrderBody(Body):
    """Tell whether `first` comes before `second`; without `second`, where `first` breaks."""

    first: Annotated[Text, Field(examples=["She opened the door."])]
    second: Annotated[Text | None, Field(examples=["Then she went in."])] = None


class ScoreBody(Body):
    """Say how likely a text is, and each of its words."""

    text: Annotated[
        str, StringConstraints(max_length=MAX_SCORED_CHARACTERS), Field(examples=["The cat sat on the mat."])
    ]

    @property
    def texts_read(self) -> list[str]:
        """The text is read once for each of its tokens."""
        return [self.text] * count_tokens([self.text])


class ExplainBody(Body):
    """Say how much each word adds to an answer; unset, the answer is the one the model gives."""

    verb: Annotated[Literal["answer", "classify", "fill", "order", "similar"], Field(examples=["similar"])]
    texts: Annotated[
        list[Annotated[str, StringConstraints(max_length=MAX_SCORED_CHARACTERS)]],
        Field(min_length=1, max_length=2, examples=[["A cat.", "A kitten."]]),
    ]
    answer: Name | None = None

    @property
    def texts_read(self) -> list[str]:
        """The texts are read a hundred times."""
        return self.texts * 100


class EmbedBody(Body):
    """Turn texts into vectors; unset, pooling and normalisation are those of the model."""

    texts: Annotated[Texts, Field(examples=[["A fine film.", "A dull one."]])]
    pooling: Literal["mean", "max", "cls"] | None = None
    normalize: bool | None = None


class ClassifyBody(Body):
    """Say which label each text has, alone or with its pair."""

    texts: Annotated[Texts, Field(examples=[["A fine film.", "A dull one."]])]
    pairs: Texts | None = None

    @model_validator(mode="after")
    def _one_pair_per_text(self) -> ClassifyBody:
        if self.pairs is not None and len(self.pairs) != len(self.texts):
            raise ValueError("as many pairs as texts")
        return self


class TagBody(Body):
    """Tag every word of each text."""

    texts: Annotated[Texts, Field(examples=[["Ada lives in London."]])]


class ChooseBody(Body):
    """Choose the answer to a question about a context."""

    question: Annotated[Text, Field(examples=["Who left at noon?"])]
    choices: Annotated[list[Text], Field(min_length=2, max_length=MAX_TEXTS)]
    context: Text = ""

    @property
    def texts_read(self) -> list[str]:
        """Each choice is read with the question and the context."""
        return [f"{self.context} {self.question} {choice}" for choice in self.choices]


class AnswerBody(Body):
    """Answer a question with a span of a context."""

    question: Annotated[Text, Field(examples=["When did Ada leave?"])]
    context: Annotated[Text, Field(examples=["Ada left at noon."])]
    top: Top = 1


class StepsBody(Body):
    """Show how the hidden states of a text move from step to step."""

    text: Annotated[Text, Field(examples=["The cat sat on the mat."])]


class AttentionBody(Body):
    """Show what each head attends to in one step."""

    text: Annotated[Text, Field(examples=["The cat sat on the mat."])]
    step: Annotated[int, Field(ge=1, le=1_000, examples=[1])] = 1


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _bounded(texts: list[str]) -> list[str]:
    most = MAX_TEXTS * MAX_CHARACTERS
    if sum(map(len, texts)) > most:
        raise ValueError(f"at most {most:,} characters together")
    return texts


class EmbeddingsBody(BaseModel):
    """OpenAI's request for embeddings; token ids and `dimensions` are not supported."""

    model_config = ConfigDict(extra="forbid", strict=True)
    input: Annotated[
        Inputs,
        AfterValidator(_bounded),
        BeforeValidator(_listed, json_schema_input_type=Text | Inputs),
        Field(examples=["A fine film."]),
    ]
    model: Name
    encoding_format: Literal["float", "base64"] = "float"
    user: Name | None = None
    timeout_ms: Annotated[int, Field(ge=1, le=MAX_TIMEOUT_MS)] | None = None


class Out(BaseModel):
    """A part of an answer: it has these fields and no others."""

    model_config = ConfigDict(extra="forbid")


class Answer(BaseModel, Generic[Result]):
    """The model that answered, the version of its files, and the result of the verb."""

    model: str
    version: str
    result: Result


class StepsOut(Out):
    """Distance and cosine between the input and the output of each step: means, and by token."""

    pieces: list[str]
    l2: list[float]
    cosine: list[float]
    by_token: list[list[float]]


class AttentionOut(Out):
    """For each head and query piece, its share of attention on each piece."""

    pieces: list[str]
    heads: list[list[list[float]]]


class EmbeddingOut(Out):
    """One vector of length 1; base64 is of little-endian float32."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Usage(Out):
    """The number of tokens read."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsOut(Out):
    """OpenAI's list of embeddings."""

    object: Literal["list"]
    data: list[EmbeddingOut]
    model: str
    usage: Usage


class Problem(Out):
    """What is wrong, what is expected, what to do; `code` is stable (docs/errors.md)."""

    message: str
    type: str
    param: str | None
    code: str


class ProblemOut(Out):
    """Every error has this body."""

    error: Problem


def _strings(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [text for item in value for text in _strings(item)] if isinstance(value, list) else []
