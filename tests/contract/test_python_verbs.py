"""Every verb of a loaded model in Python: what it accepts, what it returns, and what it
refuses.
"""

import ast
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest

import litebert
from litebert import LitebertError, Model
from litebert.answers import Results
from litebert.errors import in_python
from litebert.plugins import VERBS as RECORDS

from .tiny import Desk
from .verbs import OF_TEXT, TEXTS, VERBS

Load = Callable[[str], Model]


@pytest.fixture(scope="module")
def loaded(desk: Desk) -> Load:
    """Return a function that loads the model of a run, once."""
    return cache(lambda run: litebert.load(getattr(desk, run)))


def field_names(record: Any) -> set[str]:
    return {field.name for field in fields(record)}


# ---- inputs --------------------------------------------------------------------------

KINDS_OF_LIST: dict[str, Callable[[list[str]], object]] = {
    "list": list,
    "tuple": tuple,
    "array": np.array,
    "array of objects": lambda texts: np.array(texts, dtype=object),
    "series": pd.Series,
    "generator": lambda texts: (text for text in texts),
}


@pytest.mark.parametrize("kind", KINDS_OF_LIST)
@pytest.mark.parametrize("name", OF_TEXT)
def test_any_kind_of_list_gets_the_answers_of_a_list(
    loaded: Load, name: str, kind: str
) -> None:
    ask = getattr(loaded(VERBS[name].run), name)
    texts = [row["text"] for row in VERBS[name].rows]
    answers = ask(KINDS_OF_LIST[kind](texts))
    expected = ask(texts)
    assert len(expected) == len(texts)
    assert type(answers) is type(expected)
    if name == "embed":
        np.testing.assert_array_equal(answers, expected)
    else:
        assert answers == expected


@pytest.mark.parametrize("name", sorted({*OF_TEXT} - {"embed"}))
def test_one_text_gets_one_answer_and_no_texts_none(loaded: Load, name: str) -> None:
    ask = getattr(loaded(VERBS[name].run), name)
    text = VERBS[name].rows[0]["text"]
    (answer,) = ask([text])
    assert type(ask(text)) is type(answer)
    assert len(ask([])) == 0


def test_vectors_have_a_row_for_each_text(loaded: Load) -> None:
    embed = loaded("base").embed
    assert embed(TEXTS).shape == (3, 32)
    assert embed(TEXTS).dtype == np.float32
    assert embed(TEXTS[0]).shape == (32,)
    assert embed([]).shape == (0, 32)


@pytest.mark.parametrize(
    "value",
    [3, None, [3], ["a", None], b"a", {"a"}, {"a": "b"}, pd.DataFrame({"text": ["a"]})],
    ids=lambda value: type(value).__name__,
)
def test_inputs_that_are_no_text_are_one_clear_error(
    loaded: Load, value: object
) -> None:
    model = loaded("base")
    with pytest.raises(LitebertError, match="LB-611"):
        model.embed(value)
    with pytest.raises(LitebertError, match="LB-611"):
        next(model.embed_batches(value))


BLANK_TEXTS = pytest.mark.parametrize("text", ["", "   ", "\n"], ids=repr)


@BLANK_TEXTS
def test_a_text_without_a_word_has_no_tags_and_no_answers(
    loaded: Load, text: str
) -> None:
    assert loaded("tags").tag(text).words == ()
    assert loaded("spans").answer("Who?", text) == ()


@BLANK_TEXTS
def test_a_text_without_a_word_has_a_vector(loaded: Load, text: str) -> None:
    assert np.isfinite(loaded("base").embed([text, "Anna"])).all()


@BLANK_TEXTS
@pytest.mark.parametrize(
    ("name", "message"), [("fill", "MASK"), ("score", "LB-945"), ("order", "LB-945")]
)
def test_a_text_without_a_word_is_refused_where_words_are_needed(
    loaded: Load, text: str, name: str, message: str
) -> None:
    with pytest.raises(LitebertError, match=message):
        getattr(loaded("base"), name)(text)


def test_a_question_without_choices_is_refused(loaded: Load) -> None:
    with pytest.raises(LitebertError, match="choices"):
        loaded("choices").choose("Who?", [])


# ---- answers -------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """A call of a model of the desk, and the fields of an answer to it."""

    run: str
    ask: Callable[[Model], object]
    fields: set[str]


CALLS = {
    "regress": Call("stars", lambda m: m.classify(TEXTS[0]), {"labels", "values"}),
    "coherence": Call("base", lambda m: m.order(" ".join(TEXTS)), {"joins"}),
    "search": Call(
        "base", lambda m: m.search(TEXTS[0], TEXTS), {"number", "text", "score"}
    ),
    "explain": Call(
        "reviews",
        lambda m: m.explain("classify", TEXTS[0]),
        {"verb", "answer", "kind", "score", "blank", "error", "words"},
    ),
}
for name, verb in VERBS.items():
    if name not in ("embed", "similar"):  # numbers, not records
        CALLS[name] = Call(
            verb.run, lambda m, verb=verb: verb.ask(m, verb.rows[0]), verb.fields
        )


@pytest.mark.parametrize("name", CALLS)
def test_an_answer_has_its_fields(loaded: Load, name: str) -> None:
    call = CALLS[name]
    answer = call.ask(loaded(call.run))
    records = list(answer) if isinstance(answer, tuple) else [answer]
    assert records
    for record in records:
        assert is_dataclass(record)
        assert field_names(record) == call.fields


@pytest.mark.parametrize("name", CALLS)
def test_an_answer_converts_to_a_table_and_to_text(loaded: Load, name: str) -> None:
    call = CALLS[name]
    answer: Any = call.ask(loaded(call.run))
    assert not answer.to_pandas().empty
    assert repr(answer)


@pytest.mark.parametrize("name", sorted({*OF_TEXT} - {"embed"}))
def test_several_answers_are_one_table(loaded: Load, name: str) -> None:
    ask = getattr(loaded(VERBS[name].run), name)
    answers = ask([row["text"] for row in VERBS[name].rows])
    assert isinstance(answers, Results)
    assert len(answers.to_pandas()) >= 2
    assert "<t" in answers._repr_html_()


# ---- the table of verbs --------------------------------------------------------------


def test_the_table_of_these_tests_has_every_verb() -> None:
    assert VERBS.keys() == RECORDS.keys() - RECORDS.from_plugins().keys()


@pytest.mark.parametrize("name", VERBS)
def test_the_type_of_an_answer_has_the_fields_of_the_contract(name: str) -> None:
    answer_type = RECORDS[name].answer_type
    # one of several types, or of a list
    first, *_ = get_args(answer_type) or [answer_type]
    if is_dataclass(first):
        assert field_names(first) == VERBS[name].fields


@pytest.mark.parametrize("name", RECORDS)
def test_the_example_of_a_verb_as_a_command_is_its_call_in_python(name: str) -> None:
    verb = RECORDS[name]
    translated = in_python(f"litebert {verb.in_shell}")
    call = f"litebert.load().{verb.in_python}"
    for texts in verb.example.values():
        if verb.takes_list and len(texts) == 1:  # the shell has no lists
            call = call.replace(f'["{texts[0]}"]', repr(texts[0]))
    assert ast.dump(ast.parse(translated)) == ast.dump(ast.parse(call))


VERBS_OF_RUN = {
    "base": ("fill", "score", "order", "embed"),
    "reviews": ("classify", "embed"),
    "stars": ("classify", "embed"),
    "tags": ("tag", "embed"),
    "choices": ("choose", "embed"),
    "spans": ("answer", "embed"),
}


@pytest.mark.parametrize("run", VERBS_OF_RUN)
def test_a_model_names_its_verbs(loaded: Load, run: str) -> None:
    assert loaded(run).verbs == VERBS_OF_RUN[run]


@pytest.mark.parametrize("run", VERBS_OF_RUN)
def test_a_model_refuses_the_verbs_that_it_does_not_name(
    loaded: Load, run: str
) -> None:
    model = loaded(run)
    # every model has vectors, and compares them
    for name in VERBS.keys() - {*model.verbs, "similar"}:
        with pytest.raises(LitebertError) as raised:
            VERBS[name].ask(model, VERBS[name].rows[0])
        assert name in raised.value.what
        assert raised.value.next
