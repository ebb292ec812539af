"""The verbs of a pretrained model in Python, one after another: what their answers
mean.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError
from itertools import count, islice
from typing import Any

import numpy as np
import pytest

import litebert
from litebert import LitebertError, Model
from litebert.answers import Coherence, Join, Results, Tagged, Tagging
from litebert.inference.inputs import encode_blanks

from .tiny import Random

LONG_TEXT = "Anna walked to the garden. " * 100  # more than the model reads


@pytest.fixture(scope="module")
def model(random_model: Random) -> Model:
    return litebert.load(random_model("AlbertForPreTraining"))


# ---- fill ----------------------------------------------------------------------------

BLANK = "Anna walked to the [MASK]."
TWO_BLANKS = "[MASK] walked to the [MASK]."


def test_fill_puts_each_word_into_the_text(model: Model) -> None:
    for filling in model.fill(BLANK, top=3):
        (word,) = filling.words
        assert filling.text == f"Anna walked to the {word}."


def test_fill_ranks_words_by_probabilities_that_add_up_to_one(model: Model) -> None:
    probabilities = [filling.probability for filling in model.fill(BLANK, top=1_000)]
    assert probabilities == sorted(probabilities, reverse=True)
    assert sum(probabilities) == pytest.approx(1, abs=1e-4)


def test_fill_lists_each_word_once(model: Model) -> None:
    words = [filling.words[0] for filling in model.fill(BLANK, top=1_000)]
    # The pieces "▁x" and "x" are the same word; those before 5 are special.
    pieces = map(model.tokenizer.piece, range(5, model.tokenizer.vocab_size))
    expected = {piece.removeprefix("▁") for piece in pieces}
    assert sorted(words) == sorted(expected - {""})


def test_two_blanks_are_filled_with_the_likeliest_pairs(model: Model) -> None:
    num_words = len(model.fill(BLANK, top=1_000))
    all_pairs = model.fill(TWO_BLANKS, top=10**6)
    assert len(all_pairs) == num_words**2

    likeliest = model.fill(TWO_BLANKS, top=50)
    expected = [filling.words for filling in all_pairs[:50]]
    assert [filling.words for filling in likeliest] == expected
    assert not any("[MASK]" in filling.text for filling in likeliest)


def test_fillings_do_not_depend_on_the_other_texts(model: Model) -> None:
    alone = model.fill(BLANK, top=3)
    beside, _ = model.fill([BLANK, "A [MASK] [MASK]."], top=3)
    assert len(beside) == len(alone)
    for filling, expected in zip(beside, alone, strict=True):
        assert filling.text == expected.text
        assert filling.probability == pytest.approx(expected.probability, rel=1e-5)


def test_a_blank_in_a_long_text_is_filled_in_its_place(model: Model) -> None:
    before = "Anna walked to the garden. " * 40 + "Then "
    after = " slept." + " Nobody knew it. " * 40
    (filling,) = model.fill(f"{before}[MASK]{after}", top=1)
    assert filling.text == f"{before}{filling.words[0]}{after}"
    assert filling.offsets == ((len(before), len(before) + len("[MASK]")),)
    assert 0 < filling.probability < 1


@pytest.mark.parametrize(
    "form",
    ["to the {}.", "the {} .", "({})", "{}, {}'s\n{}\t-", "«{}» {}{}", "un{}able"],
)
def test_what_follows_a_blank_without_a_space_is_read_as_in_training(form: str) -> None:
    tokenizer = litebert.load().tokenizer
    expected = []
    for id_ in tokenizer.encode(form.replace("{}", "house")).ids:
        is_blank = tokenizer.decode([id_]) == "house"
        expected.append(tokenizer.mask_id if is_blank else id_)
    assert encode_blanks(tokenizer, [form.replace("{}", "[MASK]")]) == [expected]


# ---- vectors -------------------------------------------------------------------------


def test_vectors_do_not_depend_on_the_other_texts(model: Model) -> None:
    texts = ["Anna walked.", "Then Bert found three apples under a tree.", "", "No"]
    together = model.embed(texts)
    assert together.shape == (4, 32)
    for text, vector in zip(texts, together, strict=True):
        np.testing.assert_allclose(model.embed([text])[0], vector, atol=1e-5)


def test_another_pooling_gives_other_vectors(model: Model) -> None:
    texts = ["Anna walked.", "No"]
    assert not np.allclose(model.embed(texts, pooling="cls"), model.embed(texts))


def test_vectors_of_an_endless_stream_come_in_batches(model: Model) -> None:
    texts = (f"Anna {number}." for number in count())
    batches = model.embed_batches(texts, batch_size=3, pooling="max")
    first, second = islice(batches, 2)
    assert first.shape == second.shape == (3, 32)
    alone = model.embed("Anna 1.", pooling="max")
    np.testing.assert_allclose(first[1], alone, atol=1e-5)


def test_progress_counts_the_texts_of_each_batch(model: Model) -> None:
    sizes: list[int] = []
    texts = ["Anna slept.", "Bert slept.", "Nobody slept."]
    for _ in model.embed_batches(texts, batch_size=2, progress=sizes.append):
        pass
    assert sizes == [2, 1]


# ---- texts that are too long ---------------------------------------------------------


def test_texts_that_are_too_long_are_named(model: Model) -> None:
    assert model.too_long(["Anna.", LONG_TEXT]) == [1]


def test_a_text_that_is_too_long_is_still_answered(model: Model) -> None:
    assert np.isfinite(model.embed([LONG_TEXT])).all()
    assert 0 <= model.order(LONG_TEXT, "Bert slept.").probability <= 1


def test_a_text_is_cut_at_max_length(model: Model) -> None:
    garden = "Anna walked to the garden."
    house = "Anna walked to the house."
    # two pieces of each are read, which are the same
    first, second = model.embed([garden, house], max_length=4)
    np.testing.assert_allclose(first, second, atol=1e-6)
    assert not np.allclose(model.embed(garden), first, atol=1e-3)


# ---- order and search ----------------------------------------------------------------

THREE_SENTENCES = (
    "Anna walked to the garden. Bert slept. Nobody knew where it came from."
)


def test_the_joins_of_a_text_are_its_pairs_of_neighboring_sentences(
    model: Model,
) -> None:
    joins = model.order(THREE_SENTENCES).joins
    assert len(joins) == 2
    for join in joins:
        assert THREE_SENTENCES[join.start :].startswith(join.second)
        alone = model.order(join.first, join.second).probability
        assert join.probability == pytest.approx(alone, abs=1e-5)


def test_the_breaks_of_a_text_are_its_unlikely_joins_worst_first() -> None:
    likely = Join("One.", "Two.", 5, 0.5)
    unlikely = Join("Two.", "Three.", 10, 0.4)
    worst = Join("Three.", "Four.", 17, 0.1)
    assert Coherence((likely, unlikely, worst)).breaks == (worst, unlikely)


def test_a_half_of_a_character_is_replaced_in_a_join(model: Model) -> None:
    (join,) = model.order("Anna \ud800 left. Bert slept.").joins
    assert join.first == "Anna \ufffd left."


def test_search_ranks_texts_by_cosine(model: Model) -> None:
    texts = ["Anna walked.", "Bert found three apples.", "Nobody knew."]
    best, second = model.search(texts[1], texts, top=2)
    assert best.number == 1
    assert best.text == texts[1]
    assert best.score == pytest.approx(1, abs=1e-5)

    cosines = model.similar(texts[1], texts)
    assert isinstance(cosines, np.ndarray)
    assert second.score == pytest.approx(sorted(cosines[0])[-2])


def test_two_texts_have_one_cosine(model: Model) -> None:
    assert isinstance(model.similar("a", "b"), float)


# ---- threads -------------------------------------------------------------------------


def test_several_threads_get_the_answers_of_one(model: Model) -> None:
    texts = [f"Anna walked to the [MASK] {number} times." for number in range(24)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(model.fill, texts))
    assert answers == [model.fill(text) for text in texts]


# ---- answers as values ---------------------------------------------------------------


def test_answers_and_models_show_what_they_are(model: Model) -> None:
    answers = model.fill("Anna [MASK].", top=2)
    assert repr(answers).startswith("Results of 2:\n  Filling(text='Anna ")
    assert repr(model) == f"Model({model.source!r}, verbs: fill, score, order, embed)"


def test_an_answer_cannot_be_changed(model: Model) -> None:
    (answer,) = model.fill("Anna [MASK].", top=1)
    with pytest.raises(FrozenInstanceError):
        answer.text = "x"  # type: ignore[misc]


def test_a_slice_of_answers_converts_to_a_table(model: Model) -> None:
    answers = model.fill("Anna [MASK].", top=2)
    table = answers[1:].to_pandas()
    assert list(table["text"]) == [answers[1].text]
    assert list(table["probability"]) == [answers[1].probability]


def test_a_table_of_answers_to_several_texts_numbers_them(model: Model) -> None:
    table = model.fill(["Anna [MASK].", "[MASK]."], top=2).to_pandas()
    assert list(table["text_number"]) == [0, 0, 1, 1]


def test_a_table_of_tags_has_no_row_for_a_text_without_words() -> None:
    anna = Tagged("Anna", "NAME", 0, 4)
    table = Results([Tagging((), ()), Tagging((anna,), ())]).to_pandas()
    row = {"text_number": 1, "word": "Anna", "tag": "NAME", "start": 0, "end": 4}
    assert table.to_dict("records") == [row]
    assert table["start"].dtype == int


@pytest.mark.parametrize("nothing", [Results([Results()]), Coherence(())], ids=repr)
def test_no_answers_are_an_empty_table(nothing: Any) -> None:
    assert nothing.to_pandas().empty


def test_a_table_of_a_score_has_a_row_for_each_word(model: Model) -> None:
    table = model.score("Anna found a ball.").to_pandas()
    assert list(table["word"]) == ["Anna", "found", "a", "ball."]


# ---- what is refused -----------------------------------------------------------------

FAR_APART = "[MASK]" + " Anna walked." * 100 + " [MASK]."
REFUSED: dict[str, tuple[str, Callable[[Any], object]]] = {
    "no blank": ("LB-610", lambda model: model.fill("Anna walked home.")),
    "blanks too far apart": ("LB-934", lambda model: model.fill(FAR_APART)),
    "a list to order": ("LB-611", lambda model: model.order(["One.", "Two."])),
    "one sentence": ("LB-936", lambda model: model.order("One sentence.")),
    "two queries": ("LB-611", lambda model: model.search(["a", "b"], ["Anna."])),
    "a query that is no text": ("LB-611: search", lambda model: model.search(1, [""])),
    "the second of two texts": (
        r"LB-611[\s\S]*as text 2 of 2",
        lambda model: model.embed(["Anna.", None]),
    ),
    "an unknown prompt": (
        r"LB-678[\s\S]*this model has none",
        lambda model: model.embed("Anna.", prompt="query"),
    ),
    "nothing to search": ("LB-937", lambda model: model.search("a", [])),
    "no results": ("LB-932", lambda model: model.index(["Anna."]).search("a", top=-1)),
    "a length too small": ("LB-932", lambda model: model.embed("Anna.", max_length=2)),
    "an unknown precision": (
        "LB-933",
        lambda model: litebert.load(model.source, precision="fp8"),
    ),
}


def test_a_verb_that_a_model_lacks_names_those_that_it_has(model: Model) -> None:
    name = "save"
    with pytest.raises(AttributeError, match=r"no method save; this one has fill"):
        getattr(model, name)


@pytest.mark.parametrize(("code", "call"), REFUSED.values(), ids=REFUSED)
def test_impossible_calls_are_one_clear_error(
    model: Model, code: str, call: Callable[[Model], object]
) -> None:
    with pytest.raises(LitebertError, match=code):
        call(model)
