"""Which column is what, and what problem that makes: guessed, chosen, or refused with a list."""

from collections.abc import Sequence

import pytest

from litebert.errors import LitebertError
from litebert.reading.tables import Row
from litebert.tasks.own.columns import Columns, chosen_columns, guess_columns
from litebert.tasks.own.examples import LabelColumn, in_order

LONG = ["It was a very fine day.", "Nobody came to see it.", "So we all went home.", "And slept well."]
OTHER = ["The day was fine.", "They did not come.", "At home we were.", "We were asleep, all of us."]
FEW = ["a", "b", "a", "b"]


def table(**columns: Sequence[object]) -> list[Row]:
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def guessed(rows: list[Row], *words: str) -> tuple[str, list[str]]:
    names = list(rows[0])
    shape, columns = guess_columns(names, rows, chosen_columns(words, names), None)
    return shape, list(columns.words())


SPANS = [{"text": ["fine"], "answer_start": [11]}] * 4
FOUR = [["a", "b", "c", "d"]] * 4
USUAL = {
    "sst": (table(sentence=LONG, label=FEW), "texts", "text=sentence label=label"),
    "nli": (
        table(pairID=[1, 2, 3, 4], gold_label=FEW, premise=LONG, hypothesis=OTHER),
        "texts",
        "text=premise second=hypothesis label=gold_label id=pairID",
    ),
    "qqp": (
        table(id=[1, 2, 3, 4], question1=LONG, question2=OTHER, is_duplicate=["0", "1", "1", "0"]),
        "texts",
        "text=question1 second=question2 label=is_duplicate id=id",
    ),
    "boolq": (
        table(question=OTHER, passage=LONG, answer=[True, False, True, True]),
        "texts",
        "text=question second=passage label=answer",
    ),
    "sick": (
        table(sentence_A=LONG, sentence_B=OTHER, relatedness_score=["4.5", "1.2", "3", "2"]),
        "texts",
        "text=sentence_A second=sentence_B label=relatedness_score",
    ),
    "amazon": (
        table(**{"Review Text": LONG, "Rating": ["5", "1", "5", "2"], "Date": OTHER}),
        "texts",
        "text=Review Text label=Rating",
    ),
    "conll": (
        table(id=["0", "1", "2", "3"], tokens=FOUR, pos_tags=FOUR, ner_tags=FOUR),
        "words",
        "tokens=tokens tags=ner_tags id=id",
    ),
    "words": (table(words=LONG, labels=OTHER), "words", "tokens=words tags=labels"),
    "squad": (
        table(id=FEW, title=LONG, context=LONG, question=OTHER, answers=SPANS),
        "spans",
        "question=question context=context answers=answers id=id",
    ),
    "flat squad": (
        table(question=OTHER, context=LONG, answer_text=FEW, answer_start=[1, 2, 3, 4]),
        "spans",
        "question=question context=context answers=answer_text start=answer_start",
    ),
    "race": (
        table(article=LONG, question=OTHER, options=FOUR, answer=["A", "B", "C", "D"]),
        "choices",
        "question=question context=article choices=options label=answer",
    ),
    "swag": (
        table(sent1=LONG, sent2=OTHER, ending0=FEW, ending1=LONG, ending2=OTHER, label=FEW),
        "choices",
        "question=sent2 context=sent1 choices=ending0,ending1,ending2 label=label",
    ),
    "piqa": (
        table(goal=LONG, sol1=OTHER, sol2=LONG, label=["0", "1", "1", "0"]),
        "choices",
        "question=goal choices=sol1,sol2 label=label",
    ),
    "siqa": (
        table(context=LONG, question=OTHER, answerA=FEW, answerB=LONG, answerC=OTHER, label=FEW),
        "choices",
        "question=question context=context choices=answerA,answerB,answerC label=label",
    ),
    "csqa": (
        table(
            id=["1", "2", "3", "4"],
            question=OTHER,
            choices=[{"label": ["A", "B"], "text": ["x", "y"]}] * 4,
            answerKey=["A", "B", "A", "B"],
        ),
        "choices",
        "question=question choices=choices label=answerKey id=id",
    ),
    "exam": (
        table(question=LONG, A=FEW, B=LONG, C=OTHER, D=FEW, answer=["A", "B", "C", "D"]),
        "choices",
        "question=question choices=A,B,C,D label=answer",
    ),
}


@pytest.mark.parametrize("name", USUAL)
def test_usual_names_are_understood(name: str) -> None:
    rows, shape, words = USUAL[name]
    assert guessed(rows) == (shape, _split(words, rows))


def _split(words: str, rows: list[Row]) -> list[str]:
    """Split at role=, as names may hold spaces."""
    parts: list[str] = []
    for word in words.split(" "):
        if "=" in word:
            parts.append(word)
        else:
            parts[-1] += f" {word}"
    return parts


def test_contents_tell_where_names_do_not() -> None:
    rows = table(kommentar=LONG, urteil=FEW)
    assert guessed(rows) == ("texts", ["text=kommentar", "label=urteil"])


def test_columns_without_names_are_told_by_contents() -> None:
    rows = [{"1": label, "2": text} for label, text in zip(FEW, LONG, strict=True)]
    assert guessed(rows) == ("texts", ["text=2", "label=1"])


def test_numbers_that_are_not_whole_look_like_labels() -> None:
    rows = table(kommentar=LONG, wert=["0.5", "2.25", "1.0", "4.75"], nummer=["1", "2", "3", "4"])
    assert guessed(rows) == ("texts", ["text=kommentar", "label=wert"])


def test_two_possible_texts_are_refused_with_flags_for_both() -> None:
    with pytest.raises(LitebertError, match="LB-854") as caught:
        guessed(table(eins=LONG, zwei=OTHER, urteil=FEW))
    assert "eins and zwei could be it" in caught.value.what
    assert caught.value.received == "columns eins, zwei, urteil"
    assert caught.value.next == "--column text=eins --column second=zwei"


def test_two_possible_labels_are_refused_with_the_list() -> None:
    with pytest.raises(LitebertError, match="one and two could be it") as caught:
        guessed(table(text=LONG, one=FEW, two=FEW))
    assert caught.value.next == "--column label=one"


def test_name_with_a_space_is_quoted_in_the_advice() -> None:
    with pytest.raises(LitebertError) as caught:
        guessed(table(text=LONG, **{"my label": FEW, "your label": FEW}))
    assert caught.value.next == "--column 'label=my label'"


def test_choice_wins_over_every_guess() -> None:
    rows = table(sentence=LONG, notes=OTHER, label=FEW, mine=["x", "y", "x", "y"])
    assert guessed(rows, "text=notes", "label=mine") == ("texts", ["text=notes", "label=mine"])


def test_chosen_text_has_no_pair_that_was_not_chosen() -> None:
    rows = table(premise=LONG, hypothesis=OTHER, label=FEW)
    assert guessed(rows, "text=premise") == ("texts", ["text=premise", "label=label"])


def test_chosen_role_says_what_the_rows_are() -> None:
    rows = table(satz=LONG, marken=OTHER, label=FEW)
    assert guessed(rows, "tokens=satz", "tags=marken")[0] == "words"


def test_several_columns_share_a_role_with_commas() -> None:
    rows = table(text=LONG, toxic=FEW, rude=FEW)
    assert guessed(rows, "label=toxic,rude")[1] == ["text=text", "label=toxic,rude"]


def test_choice_that_the_rows_have_no_use_for_is_refused() -> None:
    rows = table(words=LONG, ner=OTHER)
    with pytest.raises(LitebertError, match="LB-841: these rows have no label") as caught:
        guessed(rows, "tokens=words", "label=ner")
    assert "one of tokens, tags, id" in caught.value.expected


@pytest.mark.parametrize("word", ["text", "=a", "text=", "texts=a", "color=a"])
def test_choice_that_is_no_role_is_refused(word: str) -> None:
    with pytest.raises(LitebertError, match="LB-850"):
        chosen_columns([word], ["a"])


def test_choice_of_a_missing_column_names_the_near_one() -> None:
    with pytest.raises(LitebertError, match="LB-851") as caught:
        chosen_columns(["text=reveiw"], ["review", "label"])
    assert "did you mean review?" in caught.value.next


def test_words_of_columns_are_read_back() -> None:
    columns = Columns({"question": ("q",), "choices": ("a", "b")})
    assert chosen_columns(columns.words(), None) == columns


@pytest.mark.parametrize(
    ("name", "cells", "problem"),
    [
        ("label", ["0", "1", "1", "0"], "classification"),
        ("label", [0.0, 1.0, 1.0, 0.0], "classification"),
        ("stars", ["1", "2", "3", "4", "5"] * 9, "classification"),
        ("label", ["pos", "neg"], "classification"),
        ("score", ["0.5", "3.25", "4"], "regression"),
        ("intent", [str(n % 77) for n in range(500)], "classification"),
        ("similarity", [str(n % 77) for n in range(500)], "regression"),
        ("year", [str(n) for n in range(400)], "regression"),
        ("tags", [["a"], ["a", "b"], []], "multi-label"),
        ("tags", ['["a", "b"]', "[]"], "multi-label"),
    ],
)
def test_labels_decide_the_problem(name: str, cells: list[object], problem: str) -> None:
    assert LabelColumn.count(name, [{name: cell} for cell in cells]).problem == problem


@pytest.mark.parametrize(
    ("labels", "ordered"),
    [
        (["b", "a", "B"], ("B", "a", "b")),
        (["10", "9", "1"], ("1", "9", "10")),
        (["-1", "0.5", "0"], ("-1", "0", "0.5")),
        (["10", "9", "x"], ("10", "9", "x")),
    ],
)
def test_labels_stand_in_an_order_of_their_own(labels: list[str], ordered: tuple[str, ...]) -> None:
    assert in_order(labels) == in_order(reversed(labels)) == ordered
