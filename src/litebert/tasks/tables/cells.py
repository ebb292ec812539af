"""The content of a cell of a table: a text, a label, a number, a mark or a list."""

import json
import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import chain
from statistics import fmean

from litebert.tokenizer.text import replace_surrogates

# words for a missing value, in a column of numbers
MISSING = ("nan", "na", "n/a", "null", "none")
# what stands for "no label" among labels that are words: SNLI writes "-" where the
# annotators disagreed; "none" and "na" may be labels
NO_LABEL = ("-", "--", "–", "—", "?", "nan", "n/a", "#n/a", "null")

# ---- the content of a cell; None if it is empty --------------------------------------


def text_of(value: object) -> str | None:
    """Return a cell as text: 3.0 as 3, True as true; None for an empty cell, for NaN and
    for what is too large for a number, such as the 1e400 of JSON.
    """
    if isinstance(value, str):
        return replace_surrogates(value) or None
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        if value.is_integer():
            return str(int(value))
    if isinstance(value, int | float):
        return str(value).lower()
    return None


def name_of(value: object) -> str | None:
    """Return a cell as a name: without surrounding white space, accents composed
    (NFC).
    """
    return unicodedata.normalize("NFC", text_of(value) or "").strip() or None


_WHOLE = re.compile(r"([+-]?\d{1,15})\.0+")
_TRUTH = {"True": "true", "TRUE": "true", "False": "false", "FALSE": "false"}


def label_of(value: object) -> str | None:
    """Return a cell as a label, spelt in the same way whatever file it comes from.

    A column of whole numbers in which some are missing is written with fractions by
    many programs, and each has its own words for yes and no.

    >>> label_of("1.0"), label_of(1), label_of("TRUE"), label_of(" good ")
    ('1', '1', 'true', 'good')
    """
    name = name_of(value)
    if name is None:
        return None
    whole = _WHOLE.fullmatch(name)
    if whole:
        return str(int(whole[1]))
    return _TRUTH.get(name, name)


def number_of(value: object) -> float | None:
    """Return a cell as a number that is finite in float32, in which the network
    computes.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    # Python reads 1_000 as a number; in data, it is none
    if isinstance(value, str) and "_" in value:
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if abs(number) < 3.4e38 else None  # false for NaN, too


def is_number(value: object) -> bool:
    """Return whether a cell has a number, and nothing else."""
    return number_of(value) is not None


_STARS = re.compile(r"(★+)☆*").fullmatch
# 4.0 out of 5 stars, 4/5, 4 stars
_RATING = re.compile(
    r"(?P<number>\d{1,3}([.,]\d+)?) ?"
    r"((/|of|out of) ?(?P<best>\d{1,3})( stars| points)?|stars?|points?)",
    re.IGNORECASE,
).fullmatch


def rating_of(value: object) -> float | None:
    """Return the number of stars or points that a cell gives, in words or signs.

    >>> rating_of("4.0 out of 5 stars"), rating_of("4/5"), rating_of("★★☆☆☆")
    (4.0, 4.0, 2.0)
    """
    name = name_of(value) or ""
    stars = _STARS(name)
    if stars is not None:
        return float(len(stars[1]))
    rating = _RATING(name)
    if rating is None:
        return None
    number = float(rating["number"].replace(",", "."))
    # 5/2 is a date or a fraction
    if rating["best"] and number > float(rating["best"]):
        return None
    return number


def scale_of(value: object) -> int | None:
    """Return the best rating that a cell names; None if it names none.

    >>> scale_of("4/5"), scale_of("8 out of 10"), scale_of("4 stars")
    (5, 10, None)
    """
    rating = _RATING(name_of(value) or "")
    if rating is None or not rating["best"]:
        return None
    return int(rating["best"])


_MARKS = {"false": 0.0, "true": 1.0, "no": 0.0, "yes": 1.0}


def mark_of(value: object) -> float | None:
    """Return 1 if a cell says that a label is given, 0 if it does not (or is empty);
    another value says neither.
    """
    mark = (label_of(value) or "0").lower()
    return _MARKS.get(mark, number_of(mark))


SPLITS = {
    "train": ("train", "training", "trn"),
    "dev": (
        "dev",
        "development",
        "val",
        "valid",
        "validation",
        "eval",
        "evaluation",
        "trial",
    ),
    "test": (
        "test",
        "testing",
        "tst",
        "publictest",
        "privatetest",
        "public",
        "private",
    ),
}
"""The usual names of what a row is used for."""


def split_of(value: object) -> str | None:
    """Return which split a cell names: train, dev, test, or None of them."""
    name = (name_of(value) or "").lower()
    for split, names in SPLITS.items():
        if name in names:
            return split
    return None


def list_of(value: object) -> list[object] | None:
    """Return a cell as a list: from a list, or from text as JSON, Python or numpy write
    one.

    >>> list_of('["a", "b"]'), list_of("['a' 'b']"), list_of("[1 2]")
    (['a', 'b'], ['a', 'b'], ['1', '2'])
    """
    if isinstance(value, (list, tuple)):
        return list(value)
    if not isinstance(value, str):
        return None
    text = value.strip()
    if not (text.startswith("[") and text.endswith("]")):
        return None
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return _members_of(text[1:-1])
    return parsed if isinstance(parsed, list) else None


# a text between single or double quotes, in which a backslash escapes the next character
_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"")
_BETWEEN_MEMBERS = re.compile(r"[\s,]+")


def _members_of(inside: str) -> list[object] | None:
    """Return the members of a list that is not JSON, given the text between its
    brackets: quoted texts, as in Python, or words without quotes, as in numpy.
    """
    if "'" not in inside and '"' not in inside:
        return [word for word in _BETWEEN_MEMBERS.split(inside) if word]
    outside = _QUOTED.sub("", inside)
    if not re.fullmatch(r"[\s,]*", outside):
        return None
    members = list[object]()
    for single, double in _QUOTED.findall(inside):
        members.append(re.sub(r"\\(.)", r"\1", single or double))
    return members


# ---- what the cells of a column look like --------------------------------------------

_TEXT_CHARACTERS = 10  # the mean length of texts, at least
FEWEST_WORDS = 3  # of a sentence, in the mean


def strings_of(cells: Iterable[object]) -> list[str]:
    """Return the texts among cells that are not numbers."""
    strings = list[str]()
    for cell in cells:
        text = text_of(cell) if isinstance(cell, str) else None
        if text is not None and not is_number(text):
            strings.append(text)
    return strings


def have_words(cells: Sequence[object]) -> bool:
    """Return whether most cells have several words."""
    texts = strings_of(cells)
    if not texts or len(texts) * 2 < len(cells):
        return False
    # Chinese and Japanese have no spaces between words
    num_worded = sum(" " in text or not text.isascii() for text in texts)
    mean_length = fmean(len(text) for text in texts)
    return num_worded * 2 > len(texts) and mean_length >= _TEXT_CHARACTERS


def are_varied(cells: Sequence[object]) -> bool:
    """Return whether most texts stand in one cell only."""
    texts = strings_of(cells)
    return len(set(texts)) * 2 > len(texts)


def are_labels(cells: Sequence[object]) -> bool:
    """Return whether there are few distinct values, or fractions, or nothing but
    lists of labels.
    """
    labels = [label for label in map(label_of, cells) if label is not None]
    if not labels:
        members = list(chain.from_iterable(list_of(cell) or () for cell in cells))
        have_names = None not in map(label_of, members)
        return has_list(cells) and have_names and not have_words(members)
    num_distinct = len(set(labels))
    if num_distinct < 2:
        return False
    numbers = [number_of(label) for label in labels]
    if None in numbers:  # names
        return num_distinct <= max(2, len(labels) // 2)
    has_fractions = any(number and number % 1 for number in numbers)
    return has_fractions or num_distinct * 2 <= len(labels)


# 1/31/2024 14:00, or a short text with a year and the number of a day or an hour, such
# as Mon Apr 06 22:19:45 PDT 2009
_DATE = re.compile(
    r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}([ T].*)?"
    r"|(?=.{,40}$)(?=.*\b\d{1,2}\b).*\b(19|20)\d\d\b.*"
).fullmatch


def are_dates(cells: Sequence[object]) -> bool:
    """Return whether all cells that are not empty are dates.

    >>> are_dates(["01 31, 2018", "2 May 2019"]), are_dates(["in 2018", "2019"])
    (True, False)
    """
    texts = [text for text in map(text_of, cells) if text]
    return bool(texts) and all(_DATE(text.strip()) for text in texts)


SEPARATORS = "|;,"  # between the labels of one cell, the likeliest first
MOST_WORDS = 2  # of joined labels, in the mean


def are_joined_labels(cells: Sequence[object]) -> bool:
    """Return whether cells join labels: few short texts come again and again between
    marks.

    >>> are_joined_labels(["drama", "war; drama", "drama; war", "war", "war; drama"])
    True
    """
    texts = strings_of(cells)
    for mark in SEPARATORS:
        pieces = chain.from_iterable(text.split(mark) for text in texts)
        parts = list(map(str.strip, pieces))
        are_several = len(parts) * 2 > len(texts) * 3  # 1.5 in a cell, on average
        are_repeated = len(set(parts)) * 4 <= len(parts)
        if are_several and are_repeated and mean_words(parts) <= MOST_WORDS:
            return True
    return False


def mean_words(cells: Sequence[object]) -> float:
    """Return how many words texts have on average."""
    texts = strings_of(cells)
    return fmean(len(text.split()) for text in texts) if texts else 0.0


def has_list(cells: Sequence[object]) -> bool:
    """Return whether any cell is a list, or a list written as text."""
    return any(list_of(cell) is not None for cell in cells)
