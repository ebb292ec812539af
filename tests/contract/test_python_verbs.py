"""The verbs of a loaded model in Python: what they accept, what they return, and what
they refuse.
"""

import ast
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError, fields, is_dataclass
from functools import cache
from itertools import count, islice
from typing import get_args

import numpy as np
import pandas as pd
import pytest

import litebert
from litebert import LitebertError, Model
from litebert.answers import Coherence, Results, Tagged, Tagging
from litebert.errors import in_python
from litebert.inference.inputs import encode_blanks
from litebert.plugins import VERBS as RECORDS

from .tiny import Desk, Random
from .verbs import OF_TEXT, TEXTS, VERBS

Asked = tuple[str, Callable[[Model], object], set[str]]
OTHERS: dict[str, Asked] = {
    "regress": ("stars", lambda m: m.classify(TEXTS[0]), {"labels", "values"}),
    "coherence": ("base", lambda m: m.order(" ".join(TEXTS)), {"joins"}),
    "search": (
        "base",
        lambda m: m.search(TEXTS[0], TEXTS),
        {"number", "text", "score"},
    ),
    "explain": (
        "reviews",
        lambda m: m.explain("classify", TEXTS[0]),
        {"verb", "answer", "kind", "score", "blank", "error", "words"},
    ),
}
"""Calls that are not in the table of verbs: the run, the call, and the fields of an
answer.
"""


@pytest.fixture(scope="module")
def loaded(desk: Desk) -> Callable[[str], Model]:
    return cache(lambda run: litebert.load(getattr(desk, run)))


KINDS: dict[str, Callable[[list[str]], object]]
KINDS = {"list": list, "tuple": tuple, "array": np.array, "series": pd.Series}
KINDS["generator"] = lambda texts: (text for text in texts)
KINDS["array of objects"] = lambda texts: np.array(texts, dtype=object)


@pytest.mark.parametrize("name", OF_TEXT)
def test_one_text_gives_one_answer_and_any_kind_of_list_a_list(
    loaded: Callable[[str], Model], name: str
) -> None:
    ask = getattr(loaded(VERBS[name].run), name)
    texts = [row["text"] for row in VERBS[name].rows]
    several = ask(texts)
    alone = ask(texts[0])
    for kind in KINDS.values():
        found = ask(kind(texts))
        assert type(found) is type(several)
        assert np.array_equal(found, several) if name == "embed" else found == several
    assert (len(several), len(ask([]))) == (len(texts), 0)
    if name == "embed":
        assert (several.shape, alone.shape, several.dtype) == (
            (3, 32),
            (32,),
            np.float32,
        )
        assert ask([]).shape == (0, 32)
        return
    assert type(several[0]) is type(alone)
    assert "<t" in several._repr_html_() and len(several.to_pandas()) >= 2


ANSWERS = {
    name: (v.run, lambda m, v=v: v.ask(m, v.rows[0]), v.fields)
    for name, v in VERBS.items()
} | OTHERS


@pytest.mark.parametrize("name", sorted(ANSWERS.keys() - {"embed", "similar"}))
def test_an_answer_has_its_fields_and_converts_to_a_table(
    loaded: Callable[[str], Model], name: str
) -> None:
    run, ask, names = ANSWERS[name]
    found = ask(loaded(run))
    answers = list(found) if isinstance(found, tuple) else [found]
    assert answers and all(
        is_dataclass(each) and {field.name for field in fields(each)} == names
        for each in answers
    )
    assert all(len(each.to_pandas()) >= 1 for each in (found, *answers))
    assert repr(found)


def test_the_contract_has_every_verb_and_the_fields_of_its_answers() -> None:
    assert set(VERBS) == set(RECORDS) - set(RECORDS.from_plugins())
    for name, verb in VERBS.items():
        kind = RECORDS[name].answer_type
        kind = (get_args(kind) or [kind])[0]  # one of several, or of a list
        if is_dataclass(kind):
            assert {field.name for field in fields(kind)} == verb.fields, name


@pytest.mark.parametrize("name", RECORDS)
def test_the_example_of_a_verb_as_a_command_is_its_call_in_python(name: str) -> None:
    verb = RECORDS[name]
    shown = in_python(f"litebert {verb.in_shell}")
    call = f"litebert.load().{verb.in_python}"
    for texts in verb.example.values():
        if verb.takes_list and len(texts) == 1:  # the shell has no lists
            call = call.replace(f'["{texts[0]}"]', repr(texts[0]))
    assert ast.dump(ast.parse(shown)) == ast.dump(ast.parse(call))


VERBS_OF = {
    run: (verb, "embed")
    for run, verb in (("tags", "tag"), ("choices", "choose"), ("spans", "answer"))
}
VERBS_OF |= dict.fromkeys(("reviews", "stars"), ("classify", "embed")) | {
    "base": ("fill", "score", "order", "embed")
}


@pytest.mark.parametrize("run", VERBS_OF)
def test_a_model_names_its_verbs_and_refuses_others(
    loaded: Callable[[str], Model], run: str
) -> None:
    model = loaded(run)
    assert model.verbs == VERBS_OF[run]
    for name in VERBS.keys() - {*model.verbs, "similar"}:
        with pytest.raises(LitebertError) as caught:
            VERBS[name].ask(model, VERBS[name].rows[0])
        assert name in caught.value.what and caught.value.next


@pytest.mark.parametrize("text", ["", "   ", "\n"])
def test_a_text_without_a_word_breaks_no_verb(
    loaded: Callable[[str], Model], text: str
) -> None:
    assert loaded("tags").tag(text).words == ()
    assert loaded("spans").answer("Who?", text) == ()
    with pytest.raises(LitebertError, match="choices"):
        loaded("choices").choose(text or "Who?", [])
    assert np.isfinite(loaded("base").embed([text, "Anna"])).all()
    for verb, said in (("fill", "MASK"), ("score", "LB-945"), ("order", "LB-945")):
        with pytest.raises(LitebertError, match=said):
            getattr(loaded("base"), verb)(text)


@pytest.fixture(scope="module")
def model(random_model: Random) -> Model:
    return litebert.load(random_model("AlbertForPreTraining"))


def test_fill_ranks_words_by_the_probability_of_the_network(model: Model) -> None:
    text = "Anna walked to the [MASK]."
    fillings = model.fill(text, top=3)
    assert [f.text for f in fillings] == [
        f"Anna walked to the {f.words[0]}." for f in fillings
    ]
    probabilities = [f.probability for f in fillings]
    assert probabilities == sorted(probabilities, reverse=True)
    everything = model.fill(text, top=1_000)
    assert sum(f.probability for f in everything) == pytest.approx(1, abs=1e-4)
    # Each word is listed once: the probabilities of "▁x" and "x" are added up.
    pieces = (
        model.tokenizer.piece(place) for place in range(5, model.tokenizer.vocab_size)
    )
    assert sorted(f.words[0] for f in everything) == sorted(
        {piece.removeprefix("▁") for piece in pieces} - {""}
    )
    every_pair = model.fill("[MASK] walked to the [MASK].", top=10**6)
    two = model.fill("[MASK] walked to the [MASK].", top=50)
    assert len(every_pair) == len(everything) ** 2
    assert [filling.words for filling in two] == [
        filling.words for filling in every_pair[:50]
    ]
    assert not any("[MASK]" in filling.text for filling in two)
    beside = model.fill([text, "A [MASK] [MASK]."], top=3)[0]
    assert [each.text for each in beside] == [each.text for each in fillings]
    assert [each.probability for each in beside] == pytest.approx(
        probabilities, rel=1e-5
    )

    # more than the model reads
    before = "Anna walked to the garden. " * 40
    after = " Nobody knew it. " * 40
    best = model.fill(f"{before}Then [MASK] slept.{after}", top=3)[0]
    assert best.text == f"{before}Then {best.words[0]} slept.{after}"
    assert 0 < best.probability < 1 and best.offsets == (
        (len(before) + 5, len(before) + 11),
    )


@pytest.mark.parametrize(
    "text",
    ["to the {}.", "the {} .", "({})", "{}, {}'s\n{}\t-", "«{}» {}{}", "un{}able"],
)
def test_what_follows_a_blank_without_a_space_is_read_as_in_training(text: str) -> None:
    tokenizer = litebert.load().tokenizer
    whole = tokenizer.encode(text.replace("{}", "house")).ids
    expected = [
        tokenizer.mask_id if tokenizer.decode([id_]) == "house" else id_
        for id_ in whole
    ]
    assert encode_blanks(tokenizer, [text.replace("{}", "[MASK]")]) == [expected]


def test_embeddings_do_not_depend_on_the_rest_of_the_batch(model: Model) -> None:
    texts = ["Anna walked.", "Then Bert found three apples under a tree.", "", "No"]
    together = model.embed(texts)
    assert together.shape == (4, 32)
    for text, vector in zip(texts, together, strict=True):
        np.testing.assert_allclose(model.embed([text])[0], vector, atol=1e-5)
    assert not np.allclose(model.embed(texts, pooling="cls"), together)

    endless = model.embed_batches(
        (f"Anna {n}." for n in count()), batch_size=3, pooling="max"
    )
    first, second = islice(endless, 2)
    assert first.shape == second.shape == (3, 32)
    np.testing.assert_allclose(
        first[1], model.embed("Anna 1.", pooling="max"), atol=1e-5
    )


@pytest.mark.parametrize(
    "wrong",
    [3, None, [3], ["a", None], b"a", {"a"}, {"a": "b"}, pd.DataFrame({"text": ["a"]})],
)
def test_inputs_that_are_no_text_are_one_clear_error(
    model: Model, wrong: object
) -> None:
    for call in (model.embed, lambda texts: next(model.embed_batches(texts))):
        with pytest.raises(LitebertError, match="LB-611"):
            call(wrong)


def test_the_joins_of_a_text_are_its_pairs_of_neighbouring_sentences(
    model: Model,
) -> None:
    text = "Anna walked to the garden. Bert slept. Nobody knew where it came from."
    found = model.order(text)
    assert [text[join.start :].startswith(join.second) for join in found.joins] == [
        True,
        True,
    ]
    for join in found.joins:
        alone = model.order(join.first, join.second).probability
        assert join.probability == pytest.approx(alone, abs=1e-5)
    assert all(join.probability < 0.5 for join in found.breaks)
    assert (
        model.order("Anna \ud800 left. Bert slept.").joins[0].first
        == "Anna \ufffd left."
    )


def test_search_ranks_texts_by_cosine(model: Model) -> None:
    texts = ["Anna walked.", "Bert found three apples.", "Nobody knew."]
    found = model.search(texts[1], texts, top=2)
    assert (found[0].number, found[0].text, found[0].score) == (
        1,
        texts[1],
        pytest.approx(1, abs=1e-5),
    )
    cosines = model.similar(texts[1], texts)
    assert isinstance(cosines, np.ndarray)
    assert isinstance(model.similar("a", "b"), float)
    assert [match.score for match in found] == pytest.approx(
        sorted(cosines[0], reverse=True)[:2]
    )


def test_a_text_is_cut_at_what_the_model_reads_or_at_max_length(model: Model) -> None:
    long = "Anna walked to the garden. " * 100
    assert model.too_long(["Anna.", long]) == [1]
    assert model.embed([long]).shape == (1, 32)
    assert 0 <= model.order(long, "Bert slept.").probability <= 1
    done: list[int] = []
    texts = ["Anna walked to the garden.", "Anna slept.", "Anna walked to the house."]
    first, second = model.embed_batches(
        texts, batch_size=2, max_length=4, progress=done.append
    )
    assert done == [2, 1]
    # only two pieces of each are read, which are the same
    np.testing.assert_allclose(first[0], second[0], atol=1e-6)
    assert not np.allclose(model.embed(texts[0]), first[0], atol=1e-3)


def test_several_threads_get_the_answers_of_one(model: Model) -> None:
    texts = [f"Anna walked to the [MASK] {n} times." for n in range(24)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(model.fill, texts)) == [model.fill(text) for text in texts]


def test_answers_are_frozen_readable_and_convertible_to_tables(model: Model) -> None:
    found = model.fill("Anna [MASK].", top=2)
    assert repr(found).startswith("Results of 2:\n  Filling(text='Anna ")
    assert repr(model) == f"Model({model.source!r}, verbs: fill, score, order, embed)"
    assert list(found[1:].to_pandas()["text"]) == [found[1].text]
    assert list(found.to_pandas()["probability"]) == [
        each.probability for each in found
    ]
    assert list(
        model.fill(["Anna [MASK].", "[MASK]."], top=2).to_pandas()["text_number"]
    ) == [0, 0, 1, 1]
    # a blank text has no words
    some = Results([Tagging((), ()), Tagging((Tagged("Anna", "NAME", 0, 4),), ())])
    row = {"text_number": 1, "word": "Anna", "tag": "NAME", "start": 0, "end": 4}
    assert some.to_pandas().to_dict("records") == [row]
    assert some.to_pandas()["start"].dtype == int
    assert all(
        nothing.to_pandas().empty for nothing in (Results([Results()]), Coherence(()))
    )
    assert list(model.score("Anna found a ball.").to_pandas()["word"]) == [
        "Anna",
        "found",
        "a",
        "ball.",
    ]
    with pytest.raises(FrozenInstanceError):
        found[0].text = "x"  # type: ignore[misc]


REFUSED: dict[str, tuple[str, Callable[[Model], object]]] = {
    "no blank": ("LB-610", lambda model: model.fill("Anna walked home.")),
    "blanks too far apart": (
        "LB-934",
        lambda model: model.fill("[MASK]" + " Anna walked." * 100 + " [MASK]."),
    ),
    "a list to order": ("LB-611", lambda model: model.order(["One.", "Two."])),  # type: ignore[call-overload]
    "one sentence": ("LB-936", lambda model: model.order("One sentence.")),
    "two queries": ("LB-611", lambda model: model.search(["a", "b"], ["Anna."])),  # type: ignore[arg-type]
    "nothing to search": ("LB-937", lambda model: model.search("a", [])),
    "no results": ("LB-932", lambda model: model.index(["Anna."]).search("a", top=-1)),
    "a length too small": ("LB-932", lambda model: model.embed("Anna.", max_length=2)),
    "a precision": (
        "LB-933",
        lambda model: litebert.load(model.source, precision="fp8"),
    ),  # type: ignore[arg-type]
}


@pytest.mark.parametrize(("code", "call"), REFUSED.values(), ids=REFUSED)
def test_impossible_calls_are_one_clear_error(
    model: Model, code: str, call: Callable[[Model], object]
) -> None:
    with pytest.raises(LitebertError, match=code):
        call(model)
