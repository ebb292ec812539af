"""What notebooks and terminals show of answers, and the tables that are made of them."""

import sys

import pytest

from litebert.answers import (
    Classification,
    Coherence,
    Explanation,
    Filling,
    Join,
    Results,
    Tagged,
    Tagging,
    WordAttribution,
)
from litebert.errors import LitebertError


def test_results_show_the_first_twenty_answers() -> None:
    lines = repr(Results(range(20))).splitlines()
    assert lines == ["Results of 20:", *(f"  {number}" for number in range(20))]
    longer = repr(Results(range(1_021))).splitlines()
    assert longer[0] == "Results of 1,021:"
    assert longer[1:] == [*lines[1:], "  ... and 1,001 more"]


def test_a_part_of_results_is_results_and_an_answer_is_an_answer() -> None:
    results = Results(["a", "b", "c"])
    assert results[1] == "b"
    assert isinstance(results[1:], Results)
    assert results[1:] == ("b", "c")


def test_the_breaks_of_a_text_are_the_unlikely_joins_the_worst_first() -> None:
    joins = []
    for start, probability in enumerate((0.4, 0.9, 0.1, 0.5)):
        joins.append(Join("one", "two", start, probability))
    breaks = Coherence(tuple(joins)).breaks
    assert [join.probability for join in breaks] == [0.1, 0.4]


# ---- explanations --------------------------------------------------------------------


def explanation(*attributions: float) -> Explanation:
    words = []
    for place, attribution in enumerate(attributions):
        word = WordAttribution(f"<{place}>", "text", place, place + 1, attribution)
        words.append(word)
    return Explanation(
        verb="classify",
        answer="good & bad",
        kind="log-probability",
        score=-0.25,
        blank=-1.5,
        error=0.0,
        words=tuple(words),
    )


def test_an_explanation_shows_a_bar_for_each_word() -> None:
    assert repr(explanation(2.0, -1.0, 0.0)).splitlines() == [
        "classify: good & bad (log-probability -0.250, -1.500 blank)",
        "    +2.000  ████████████  <0>",
        "    -1.000  ██████        <1>",
        "    +0.000                <2>",
    ]


def test_a_notebook_shows_words_for_and_against_in_two_colors() -> None:
    html = explanation(1.0, -0.5)._repr_html_()
    assert "<b>good &amp; bad</b> -0.250" in html
    strong = 'rgba(30,100,220,0.60)" title="+1.000">&lt;0&gt;</span>'
    weak = 'rgba(220,60,40,0.30)" title="-0.500">&lt;1&gt;</span>'
    assert strong in html
    assert weak in html


def test_words_that_add_nothing_are_shown_without_a_bar_or_color() -> None:
    nothing = explanation(0.0, 0.0)
    assert "█" not in repr(nothing)
    assert nothing._repr_html_().count("0.00)") == 2


# ---- tables --------------------------------------------------------------------------


def test_answers_become_rows_with_a_column_for_each_value() -> None:
    results = Results(
        [
            Classification(("good",), {"good": 0.75, "bad": 0.25}),
            Classification(("bad",), {"good": 0.5, "bad": 0.5}),
        ]
    )
    frame = results.to_pandas()
    assert frame["values.good"].tolist() == [0.75, 0.5]
    assert frame["labels"].tolist() == [("good",), ("bad",)]
    assert Results([{"step": 1}, {"step": 2}]).to_pandas()["step"].tolist() == [1, 2]
    assert Results([0.5, 1.0]).to_pandas()["value"].tolist() == [0.5, 1.0]


def test_several_answers_to_a_text_are_rows_with_the_number_of_the_text() -> None:
    fillings = [Filling(text, (text,), 0.5, ((0, 1),)) for text in "abc"]
    frame = Results([Results(fillings[:2]), Results(), Results(fillings[2:])])
    table = frame.to_pandas()
    assert table["text_number"].tolist() == [0, 0, 2]
    assert table["text"].tolist() == ["a", "b", "c"]
    assert table.index.tolist() == [0, 1, 2]
    assert len(Results([Results(), Results()]).to_pandas()) == 0


def test_a_tagging_becomes_a_row_for_each_word() -> None:
    words = (Tagged("Anna", "B-PER", 0, 4), Tagged("sings", "O", 5, 10))
    tagging = Tagging(words, ())
    assert tagging.to_pandas()["tag"].tolist() == ["B-PER", "O"]
    table = Results([tagging, tagging]).to_pandas()
    assert table["text_number"].tolist() == [0, 0, 1, 1]
    assert table["word"].tolist() == ["Anna", "sings"] * 2


def test_a_notebook_shows_the_first_twenty_answers_as_a_table() -> None:
    html = Results(range(1_000, 1_021))._repr_html_()
    assert html is not None
    assert "<td>1019</td>" in html
    assert "<td>1020</td>" not in html


def test_without_pandas_a_notebook_shows_text_and_a_table_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    results = Results([1])
    assert results._repr_html_() is None
    with pytest.raises(LitebertError, match=r"LB-929(?s:.*)pip install pandas"):
        results.to_pandas()
