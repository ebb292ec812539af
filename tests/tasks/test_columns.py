"""The columns of a table: the role of each is guessed or chosen, labels decide the kind
of problem, and notes tell both.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from litebert.errors import LitebertError
from litebert.tasks.check import check_files
from litebert.tasks.kinds.text_rows import TextRows
from litebert.tasks.tables.columns import Columns, chosen_columns
from litebert.tasks.tables.dataset import table_dataset
from litebert.tasks.tables.rows import TrainingRows, guess_columns
from litebert.tasks.tables.settling import problems
from tests.tables import Write, csv_text, jsonl

# ---- roles ---------------------------------------------------------------------------

KINDS: dict[str, Sequence[object]] = {
    "long": [
        "It was a very fine day.",
        "Nobody came to see it.",
        "So we all went home.",
        "And slept well.",
    ],
    "other": [
        "The day was fine.",
        "They did not come.",
        "At home we were.",
        "We were asleep, all of us.",
    ],
    "few": ["a", "b", "a", "b"],
    "truth": [True, False, True, False],
    "number": [1, 2, 3, 4],
    "digit": ["5", "1", "5", "2"],
    "fraction": ["0.5", "2.25", "1.0", "4.75"],
    "letter": ["A", "B", "C", "D"],
    "letter2": ["A", "B", "A", "A"],
    "date": ["2024-01-01", "2024-01-02", "2024-01-01", "2024-01-02"],
    "name": ["Anna Brown", "Bert Blue", "Carl Carlson", "Dora Doe"],
    "list": [["a", "b", "c", "d"]] * 4,
    "named": [{"label": ["A", "B"], "text": ["x", "y"]}] * 4,
    "span": [{"text": ["fine"], "answer_start": [11]}] * 4,
}


def guessed(columns: str, *words: str) -> str:
    """Guess the roles of columns of four rows, such as "name:kind other:kind", of which
    the words choose some.
    """
    kinds = dict(column.split(":") for column in columns.split())
    names = list(kinds)
    rows = list[dict[str, object]]()
    for number in range(4):
        rows.append({name: KINDS[kind][number] for name, kind in kinds.items()})
    chosen = chosen_columns(words, names)
    readings = list(dict.fromkeys(problems().values()))
    reading, assigned = guess_columns(names, rows, chosen, readings, TextRows)
    return " ".join([f"{reading.what}:", *assigned.words()])


# The columns and what is guessed for them; the roles after a bar are chosen, not guessed
GUESSES = """
sentence:long label:few -> texts: text=sentence label=label
ID:few gold_label:few premise:long hypothesis:other -> texts: text=premise second=hypothesis label=gold_label id=ID
question:other passage:long answer:truth -> texts: text=question second=passage label=answer
sentence_A:long sentence_B:other relatedness_score:fraction -> texts: text=sentence_A second=sentence_B label=relatedness_score
Review-Text:long Rating:digit Date:other -> texts: text=Review-Text label=Rating
id:number tokens:list pos_tags:list ner_tags:list -> words: tokens=tokens tags=ner_tags id=id
words:long labels:other -> words: tokens=words tags=labels
id:few title:long context:long question:other answers:span -> spans: question=question context=context answers=answers id=id
question:other context:long answer_text:few answer_start:number -> spans: question=question context=context answers=answer_text start=answer_start
article:long question:other options:list answer:letter -> choices: question=question context=article choices=options label=answer
sent1:long sent2:other ending0:few ending1:long ending2:other label:few -> choices: question=sent2 context=sent1 choices=ending0,ending1,ending2 label=label
goal:long sol1:other sol2:long label:few -> choices: question=goal choices=sol1,sol2 label=label
id:number question:other choices:named answerKey:letter -> choices: question=question choices=choices label=answerKey id=id
question:long A:few B:long C:other D:few answer:letter -> choices: question=question choices=A,B,C,D label=answer
kommentar:long urteil:few -> texts: text=kommentar label=urteil
1:few 2:long -> texts: text=2 label=1
kommentar:long wert:fraction nummer:number -> texts: text=kommentar label=wert
frage:long output:other -> pairs of texts that belong together: text=frage second=output
sentence:long notes:other label:few mine:letter -> texts: text=notes label=mine | text label
premise:long hypothesis:other label:few -> texts: text=premise label=label | text
satz:long marken:other label:few -> words: tokens=satz tags=marken | tokens tags
eins:long zwei:other urteil:few -> texts: text=eins second=zwei label=urteil
Größe:few Anfrage:long Abteilung:letter2 -> texts: text=Anfrage label=Abteilung
Date:date Customer-comment:long Tags:few Rating(1-5):digit -> texts: text=Customer-comment label=Rating(1-5)
left-text:long right-text:other closeness:fraction -> texts: text=left-text second=right-text label=closeness
Name:name Feedback:long SentimentLabel:few -> texts: text=Feedback label=SentimentLabel
text:long toxic:few rude:few -> texts: text=text label=toxic,rude | label
"""  # noqa: E501


@pytest.mark.parametrize("line", GUESSES.strip().splitlines())
def test_the_roles_of_columns_are_guessed(line: str) -> None:
    columns, _, result = line.partition(" -> ")
    expected, _, roles = result.partition(" | ")
    chosen = list[str]()
    for word in expected.split():
        role, _, _ = word.partition("=")
        if role in roles.split():
            chosen.append(word)
    assert guessed(columns, *chosen) == expected


@pytest.mark.parametrize(
    ("columns", "words", "what", "advice"),
    [
        pytest.param(
            "text:long one:few two:few",
            "",
            "LB-854.*one and two could be it",
            "--column label=two",
            id="two labels",
        ),
        pytest.param(
            "text:long one:truth two:truth",
            "",
            "LB-854.*one and two could be it",
            "--column label=one,two",
            id="two marks",
        ),
        pytest.param(
            "text:long $one:few $two:few",
            "",
            "LB-854",
            "--column 'label=$two'",
            id="names to quote in a shell",
        ),
        pytest.param(
            "words:long ner:other",
            "tokens=words label=ner",
            "LB-841: these rows have no label",
            "omit",
            id="a role of another problem",
        ),
        pytest.param(
            "review:long label:few",
            "text=reveiw",
            "LB-851",
            "did you mean review?",
            id="a misspelt column",
        ),
        pytest.param("a:long", "text", "LB-850", "--column text=NAME", id="no column"),
        pytest.param("a:long", "=a", "LB-850", "--column text=NAME", id="no role"),
        pytest.param("a:long", "text=", "LB-850", "--column text=NAME", id="no name"),
        pytest.param("a:long", "color=a", "LB-850", "--column text=NAME", id="color"),
    ],
)
def test_columns_that_are_unclear_are_refused(
    columns: str, words: str, what: str, advice: str
) -> None:
    with pytest.raises(LitebertError, match=what) as caught:
        guessed(columns, *words.split())
    assert advice in caught.value.next


# ---- the kind of problem -------------------------------------------------------------


def settled(name: str, cells: Sequence[Any]) -> tuple[str, str]:
    """Return the kind of problem that labels decide on, and what is said of it."""
    rows = [{name: cell} for cell in cells]
    columns = Columns({"label": (name,)})
    reading, about = TextRows.settle(TrainingRows("a.csv", lambda: rows, columns))
    return reading.problem, about


@pytest.mark.parametrize(
    ("name", "cells", "problem"),
    [
        ("label", ["0", "1", "1", "0"], "classification"),
        ("label", [0.0, 1.0, 1.0, 0.0], "classification"),
        ("label", [["a"], ["b"]], "classification"),
        ("stars", ["1", "2", "3", "4", "5"] * 9, "classification"),
        ("intent", [str(n % 77) for n in range(500)], "classification"),
        ("score", ["0.5", "3.25", "4"], "regression"),
        ("similarity", [str(n % 77) for n in range(500)], "regression"),
        ("year", [str(n) for n in range(400)], "regression"),
        ("tags", [["a"], ["a", "b"], []], "multi-label"),
        ("tags", ['["a", "b"]', "[]"], "multi-label"),
    ],
)
def test_labels_decide_the_kind_of_problem(
    name: str, cells: list[Any], problem: str
) -> None:
    decided, about = settled(name, cells)
    assert decided == problem
    assert "warning" not in about


def test_numbers_that_may_be_thousands_are_warned_of() -> None:
    """As Germans write them."""
    problem, about = settled("wert", ["994", "1.018", "1.250"])
    assert problem == "regression"
    assert "warning: 1.018" in about


@pytest.mark.parametrize("other", ["4,9", "98%", "1,5 %"])
def test_numbers_in_two_notations_that_become_classes_are_warned_of(other: str) -> None:
    problem, about = settled("closeness", ["0.7", other, "0.2", other] * 15)
    assert problem == "classification"
    assert f"warning: they look like numbers in mixed notations, 0.7 and {other}" in (
        about
    )
    assert "--problem regression" in about


@pytest.mark.parametrize("cells", [["1", "2", "1,2"], ["1", "2", "v3"], ["4,9", "x"]])
def test_labels_that_are_no_numbers_are_not_warned_of(cells: list[str]) -> None:
    _, about = settled("topic", cells * 20)
    assert "warning: they look like numbers" not in about


# ---- notes ---------------------------------------------------------------------------


def test_guesses_are_listed_in_the_notes(write: Write) -> None:
    rows = ["1999;so good;5", "2001;so bad;1"] * 9
    path = write("my.csv", "\n".join(["when;review;stars", *rows]))
    assert table_dataset(path).notes == (
        f"{path}: semicolons between cells, names in the first line",
        "columns: text=review label=stars; not used: when",
        "problem: classification; 2 labels: 1 (9), 5 (9)",
        "evaluated on: about 10 % of the rows; rows with equal texts stay together",
    )


def test_a_column_of_texts_that_is_not_used_is_warned_of_unless_one_was_chosen(
    write: Write,
) -> None:
    rows = list[dict[str, str]]()
    for number in range(20):
        dream = f"He dreams of {number}."
        rows.append({"a": "A man is asleep.", "b": dream, "label": "yn"[number % 2]})
    del rows[0]["b"]  # a column need not be in the first row
    path = write("pairs.jsonl", jsonl(rows))
    warning = (
        "warning: not used, though it looks like text: a; for pairs: --column text=a"
        " --column second=b"
    )
    assert warning in table_dataset(path).notes
    for columns in (["text=b"], ["text=a", "second=b"]):
        notes = " ".join(table_dataset(path, columns=columns).notes)
        assert "warning" not in notes


def test_notes_stay_on_a_line_whatever_files_columns_and_labels_are_called(
    write: Write,
) -> None:
    rows = [("text", "label"), *[("good", "a\nb"), ("bad", "c")] * 20]
    path = write("my\nfile.csv", csv_text(rows))
    notes = table_dataset(path).notes
    assert "\n" not in "".join(notes)
    assert notes[0].partition(": ")[0].endswith(r"my\nfile.csv")
    assert r"a\nb (20)" in " ".join(notes)
    lines = str(check_files(path)).splitlines()
    assert any(line.endswith(r"my\nfile.csv: 40 rows") for line in lines)


# ---- ratings -------------------------------------------------------------------------

STARS = "★★★★★☆☆☆☆☆"


def rated(stars: int, form: str) -> str:
    """Return a rating of 1 to 5 stars in a form; "signs" has a sign for each star."""
    if form == "signs":
        return STARS[5 - stars : 10 - stars]
    return form.format(stars)


@pytest.mark.parametrize(
    "form", ["{}.0 out of 5 stars", "{} stars", "{}/5", "{}", "signs"]
)
def test_ratings_are_classes_with_a_note_or_scores(write: Write, form: str) -> None:
    ratings = [number % 5 + 1 for number in range(60)]
    rows: list[tuple[str, str]] = [("text", "rating")]
    for number, stars in enumerate(ratings):
        rows.append((f"a film of its year {number}", rated(stars, form)))
    path = write("films.csv", csv_text(rows))
    as_classes = " ".join(table_dataset(path).notes)
    assert "5 labels" in as_classes
    assert "their order is not used: --problem regression" in as_classes

    scored = table_dataset(path, path, problem="regression")
    assert [example.label for example in scored.read(path, "train")] == ratings


def note_on_ratings(write: Write, other: str) -> str:
    """Return what is said of ratings "4/5", and of as many others."""
    rows = [("text", "rating"), *[("so good", "4/5")] * 20, *[("so so", other)] * 20]
    path = write("films.csv", csv_text(rows))
    notes = table_dataset(path, problem="regression").notes
    (note,) = [note for note in notes if note.startswith("problem")]
    return note


@pytest.mark.parametrize(
    ("other", "warning"),
    [
        ("8/10", "warning: 4/5 and 8/10 are read as 4 and 8; write all ratings on one"),
        ("7 out of 10 points", "warning: 4/5 and 7 out of 10 points are read as 4 and"),
    ],
)
def test_ratings_on_two_scales_are_warned_of(
    write: Write, other: str, warning: str
) -> None:
    assert warning in note_on_ratings(write, other)


@pytest.mark.parametrize("other", ["2.5 of 5 stars", "3 stars", "3"])
def test_ratings_on_one_scale_may_be_written_differently(
    write: Write, other: str
) -> None:
    assert "warning" not in note_on_ratings(write, other)


@pytest.mark.parametrize("cell", ["1,018", "7/5", "3 apples", "2024/12/31", "/5"])
def test_what_is_no_rating_is_no_score(write: Write, cell: str) -> None:
    lines = ["text;rating", *["so good;4/5"] * 20, f"bad;{cell}"]
    path = write("films.csv", "\n".join(lines))
    with pytest.raises(LitebertError, match=r"LB-859.*line 22"):
        table_dataset(path, path, problem="regression").read(path, "train")
