"""What each route takes and gives: records that validate requests and describe both in
/openapi.json. The routes of verbs are made from the records of the verbs.
"""

import inspect
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, TypeVar, Union

from annotated_types import Le, Len, MaxLen
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic import create_model as make_record
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from litebert.answers import Explanation
from litebert.inference import verb as records
from litebert.inference.model import Top
from litebert.inference.verb import CHOICES, Form, Verb
from litebert.plugins import VERBS
from litebert.serve import guard as limits
from litebert.serve.batching import Job, count_tokens
from litebert.serve.guard import HttpError

Text = Annotated[str, MaxLen(limits.MAX_CHARACTERS)]
Short = Annotated[str, MaxLen(limits.MAX_SCORED_CHARACTERS)]
Name = Annotated[str, MaxLen(200)]
Result = TypeVar("Result")
# arguments that requests do not have
LEFT_OUT = ("progress", "max_length")


class RequestBody(BaseModel):
    """The fields that every request may set: the model (by default the first), and how
    long to wait.
    """

    model_config = ConfigDict(extra="forbid", strict=True)
    model: Name | None = None
    timeout_ms: Annotated[int, Field(ge=1, le=limits.MAX_TIMEOUT_MS)] | None = None


class Answer(BaseModel, Generic[Result]):
    """The model that answered, the version of its files, and the result of the verb."""

    model: str
    version: str
    result: Result


@dataclass(frozen=True)
class Route:
    """What a route takes and gives."""

    body: type[RequestBody]
    answer: Any  # a type


def verb_routes() -> dict[str, Route]:
    """Return what the routes of the verbs take and give, by the name of the verb."""
    routes = dict[str, Route]()
    for name, verb in VERBS.items():
        if not verb.use_of:
            routes[name] = Route(_body_of_verb(verb), _answer_of_verb(verb))
    routes["explain"] = Route(_explain_body(), Answer[Explanation])
    return routes


# ---- bodies and answers --------------------------------------------------------------


def _body_of_verb(verb: Verb) -> type[RequestBody]:
    """Return the body of a verb's route: the parameters of its function, with limits."""
    types = dict[str, Any]()
    text_type = Short if verb.is_slow else Text
    for name in verb.inputs:
        types[name] = _input_type(name, text_type)
    for name in verb.options:
        types[name] = verb.hints[name]
        if name == "top":
            types[name] = Annotated[Top, Le(limits.MAX_TOP)]
    _, *parameters = inspect.signature(verb.call).parameters.values()
    fields = dict[str, Any]()
    for parameter in parameters:
        if parameter.name in LEFT_OUT:
            continue
        kind = types[parameter.name]
        if parameter.default is None:
            kind = kind | None
        shown = Field()
        if parameter.name in verb.example:
            shown = Field(examples=[verb.example[parameter.name]])
        default = parameter.default
        if default is parameter.empty:
            default = ...  # required
        fields[parameter.name] = (Annotated[kind, shown], default)
    return make_record(
        f"{verb.name.capitalize()}Body",
        __base__=RequestBody,
        __doc__=verb.call.__doc__,
        **fields,
    )


def _input_type(name: str, text: Any) -> Any:
    """Return the type of a field that is read: a text, or several."""
    if name == "choices":
        return Annotated[list[text], Len(2, len(CHOICES))]
    if name in records.SEVERAL:
        return Annotated[list[text], Len(1, limits.MAX_TEXTS)]
    return text


def _answer_of_verb(verb: Verb) -> Any:
    """Return the type of a verb's answer: a list if its request has a list of texts."""
    result: Any = verb.answer_type
    if verb.takes_list:
        return Answer[list[result]]
    return Answer[result]


def _explain_body() -> type[RequestBody]:
    """Return the body of the route that explains: a verb of one or two texts."""
    explained = sorted(name for name, verb in VERBS.items() if verb.question)
    names: Any = Literal[tuple(explained)]
    texts = Annotated[list[Short], Len(1, 2)]
    fields: dict[str, Any] = {
        "verb": (Annotated[names, Field(examples=["similar"])], ...),
        "texts": (Annotated[texts, Field(examples=[["A cat.", "A kitten."]])], ...),
        "answer": (Name | None, None),
    }
    about = (
        "Return how much each word adds to an answer; the answer defaults to the one"
        " that the model gives."
    )
    return make_record("ExplainBody", __base__=RequestBody, __doc__=about, **fields)


# ---- jobs ----------------------------------------------------------------------------


def job_of(name: str, body: RequestBody) -> Job:
    """Return the job of a request: the rows for the verb, its options, an estimate of
    its tokens.
    """
    fields = body.model_dump(exclude={"model", "timeout_ms"})
    if name == "explain":
        texts = fields.pop("texts")
        rows = [{"text": text} for text in texts]
        return Job(name, rows, fields, 100 * count_tokens(texts))  # many passes
    verb: Verb = VERBS[name]
    arguments = {field: fields.pop(field) for field in verb.inputs}
    pairs = arguments.get("pairs")
    if pairs and len(pairs) != len(arguments["texts"]):
        raise invalid("pairs is not valid", "as many pairs as texts", "pairs")
    rows = verb.rows(arguments)
    return Job(name, rows, fields, sum(_count_tokens(verb, row) for row in rows))


def _count_tokens(verb: Verb, row: records.Row) -> int:
    """Estimate the tokens that the network reads for a row."""
    choices = records.choices_of(row)
    if choices:  # each is read with the question and the context
        context = f"{row.get('context', '')} {row['question']}"
        return count_tokens(f"{context} {choice}" for choice in choices)
    num_tokens = count_tokens([" ".join(row.values())])
    return num_tokens * num_tokens if verb.is_slow else num_tokens


# ---- OpenAI's embeddings route, for existing clients ---------------------------------


def _as_texts(value: object) -> object:
    """Return one text as a list; refuse token ids, which clients send that have
    tokenized for another model.
    """
    if isinstance(value, str):
        return [value]
    first = value[0] if isinstance(value, list) and value else None
    if isinstance(first, int | list):
        raise PydanticCustomError("token_ids", "token ids")
    return value


Inputs = Annotated[list[Text], Len(1, limits.MAX_INPUTS)]


class EmbeddingsBody(RequestBody):
    """Return vectors of length 1 for texts, as OpenAI does; with `dimensions`, of so
    many first numbers.

    Clients add fields that other services read (user, input_type): they have no effect.
    """

    model_config = ConfigDict(extra="ignore", strict=True)
    input: Annotated[
        Inputs,
        BeforeValidator(
            _as_texts,
            json_schema_input_type=Union[Text, Inputs],  # noqa: UP007
        ),
        Field(examples=["A fine film."]),
    ]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Field(ge=1)] | None = None


class Embedding(TypedDict):
    """One vector of length 1; base64 encodes little-endian float32."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Usage(TypedDict):
    prompt_tokens: int
    total_tokens: int


class Embeddings(TypedDict):
    """OpenAI's list of embeddings."""

    object: Literal["list"]
    model: str
    version: str
    usage: Usage
    data: list[Embedding]


# ---- the forms of the page -----------------------------------------------------------


def forms() -> dict[str, Any]:
    """Return what the page shows of each verb."""
    shown = dict[str, Any]()
    for name, verb in VERBS.items():
        if verb.use_of:
            continue
        form = verb.form or _plain_form(verb)
        fields = []
        for field, described in form.fields.items():
            fields.append(
                {
                    "name": field,
                    "label": described.label,
                    "rows": described.num_lines,
                    "optional": described.is_optional,
                    "isList": _is_list(field),
                }
            )
        shown[name] = {
            "title": form.title,
            "lead": form.lead,
            "fields": fields,
            "examples": list(form.examples),
            "isCut": verb.is_cut,
            "takesList": verb.takes_list,
        }
    return shown


def _plain_form(verb: Verb) -> Form:
    """Return the form of a verb that has none of its own."""
    fields = dict[str, records.Field]()
    example = dict[str, str]()
    for name, parameter in verb.inputs.items():
        is_optional = parameter.default is not parameter.empty
        label = name.capitalize()
        if _is_list(name):
            label += ", one per line"
        fields[name] = records.Field(label, 4, is_optional)
        value = verb.example.get(name, "")
        example[name] = value if isinstance(value, str) else "\n".join(value)
    lead = f"{verb.summary[0].upper()}{verb.summary[1:]}."
    return Form(verb.name.capitalize(), lead, fields, [example])


def _is_list(name: str) -> bool:
    return name in records.SEVERAL or name == "choices"


# ---- errors --------------------------------------------------------------------------


_SHOW_FIELDS = "/docs shows every field and an example"


def invalid(
    what: str, expected: str, field: str = "", next_step: str = _SHOW_FIELDS
) -> HttpError:
    """Return the error for an invalid field."""
    return HttpError(
        "LB-954", what, status=422, expected=expected, next=next_step, param=field
    )
