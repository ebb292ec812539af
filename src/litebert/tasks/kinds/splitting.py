"""How a text is divided into words that get tags, and entities written by character
become tags of words.

A model divides a text as the texts were that it was trained on; `HeadConfig.splitting`
has the name of the way.
"""

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple
from unicodedata import category

from litebert.config import Splitting
from litebert.tasks.tables.cells import label_of, list_of, number_of

# words with marks inside, such as don't and 3.5; every other character is one word
_RUNS = re.compile(r"\w+(?:[-'’.,]\w+)*|[^\w\s]")
_SPACED = re.compile(r"\S+")
_CHARACTER = re.compile(r"\S")
# scripts that write no spaces between words: Thai and Lao, kana, Han
_UNSPACED = "\u0e00-\u0eff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_UNSPACED_CHARACTER = re.compile(f"[{_UNSPACED}]")
_RUNS_OR_CHARACTERS = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+|[^\w\s]")
_UNSPACED_RUN = re.compile(f"[{_UNSPACED}]{{5,}}")
_JOINERS = "\u200c\u200d"  # as in Persian

_PATTERNS: Mapping[Splitting, re.Pattern[str]] = {
    "words": _RUNS,
    "spaces": _SPACED,
    "ideographs": _RUNS_OR_CHARACTERS,
    "characters": _CHARACTER,
}


def divide(text: str, splitting: Splitting) -> list[tuple[int, int]]:
    """Return the start and end of each word of a text.

    >>> divide("Ann's in 北京.", "ideographs")
    [(0, 3), (3, 4), (4, 5), (6, 8), (9, 10), (10, 11), (11, 12)]
    """
    # To `re`, marks (vowel signs of Hindi, accents in NFD) and joiners are no part of a
    # word: take them as letters.
    letters = list(text)
    for place, character in enumerate(text):
        if character in _JOINERS or category(character)[0] == "M":
            letters[place] = "x"
    pattern = _PATTERNS[splitting]
    return [match.span() for match in pattern.finditer("".join(letters))]


def splitting_of(sentences: Iterable[Sequence[str]]) -> Splitting:
    """Return how the words of a training file are divided.

    In texts that write no spaces, a word may be a character; in texts that were divided
    at spaces only, punctuation stays with its word.
    """
    num_characters = 0  # words that are a character of a script without spaces
    num_runs = 0  # longer words of such a script
    num_attached = 0  # words with a mark at their end
    num_marks = 0
    longest = 0
    for word in chain.from_iterable(sentences):
        length = len(word)
        longest = max(longest, length)
        if _UNSPACED_CHARACTER.match(word):
            if length == 1:
                num_characters += 1
            else:
                num_runs += 1
        elif word[-1:] in ".,!?;:":
            if length == 1:
                num_marks += 1
            elif length > 2:
                num_attached += 1

    if num_characters > 9 * num_runs:
        return "characters" if longest == 1 else "ideographs"
    return "spaces" if num_attached > num_marks else "words"


def has_undivided(text: str, splitting: Splitting) -> bool:
    """Return whether a text has a long run of a script without spaces, which is one word
    to a model that was not trained on characters.
    """
    return splitting in ("words", "spaces") and bool(_UNSPACED_RUN.search(text))


# ---- entities by character -----------------------------------------------------------

_STARTS = ("start", "start_offset", "begin", "from")
_ENDS = ("end", "end_offset", "stop", "to")
_LABELS = ("label", "labels", "type", "entity_group", "entity", "tag", "class", "name")


class Span(NamedTuple):
    """An entity: characters `start` to `end` of its text, and its label."""

    start: int
    end: int
    label: str


def spans_of(cell: object) -> list[Span] | None:
    """Return the entities in a cell, in any of the usual ways to write them; None if it
    has something else.

    >>> spans_of([[0, 4, "PER"]]) == spans_of([{"start": 0, "end": 4, "label": "PER"}])
    True
    """
    if isinstance(cell, Mapping) and isinstance(cell.get("entities"), list):
        return spans_of(cell["entities"])
    members = list_of(cell)
    if isinstance(cell, str) and (members is None or "(" in cell):
        members = _from_python(cell)
    if members is None:
        return None
    spans = list[Span]()
    for member in members:
        span = _span(member)
        if span is None:
            return None
        spans.append(span)
    return spans


def _from_python(text: str) -> list[Any] | None:
    """Return a list of tuples or objects that is written as in Python; None for any
    other text.
    """
    if not text.strip().startswith("["):
        return None
    try:
        members = ast.literal_eval(text.strip())  # values only: no code is run
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return members if isinstance(members, list) else None


def _span(member: object) -> Span | None:
    """Return one entity; None if it lacks a place or a label."""
    if isinstance(member, Mapping):
        start, end = _bounds(member)
        label = _first(member, _LABELS)
    elif isinstance(member, list | tuple) and len(member) == 3:
        start, end, label = member
    else:
        return None
    labels = [label]
    if isinstance(label, list | tuple):  # as Label Studio and Dataturks write it
        labels = [*label, None]
    name = label_of(labels[0])
    first = number_of(start)
    stop = number_of(end)
    if first is None or stop is None or name is None:
        return None
    return Span(int(first), int(stop), name)


def _bounds(member: Mapping[str, object]) -> tuple[object, object]:
    """Return the cells that say where an entity starts and ends; None for one that is
    missing.
    """
    points = member.get("points")
    if isinstance(points, list) and points and isinstance(points[0], Mapping):
        # Dataturks: "end" is the last character, not the one after it
        last = number_of(points[0].get("end")) or 0
        return points[0].get("start"), last + 1
    return _first(member, _STARTS), _first(member, _ENDS)


def _first(member: Mapping[str, object], names: Sequence[str]) -> object:
    return next((member[name] for name in names if name in member), None)


class TaggedWords(NamedTuple):
    """The words of a text and their tags; `num_inside` entities begin or end inside of a
    word, and `num_dropped` overlap a longer one or have no word.
    """

    words: list[str]
    tags: list[str]
    num_inside: int
    num_dropped: int


def tag_words(text: str, spans: Sequence[Span], splitting: Splitting) -> TaggedWords:
    """Tag the words of a text by its entities: B- at the first word of each, I- at the
    others.
    """
    places = divide(text, splitting)
    tags = ["O"] * len(places)
    num_inside = 0
    num_dropped = 0
    longest_first = sorted(spans, key=lambda span: (span.start - span.end, span.start))
    for span in longest_first:
        covered = _words_touched(places, span)
        if not covered or any(tags[number] != "O" for number in covered):
            num_dropped += 1
            continue
        for number in covered:
            tags[number] = f"I-{span.label}"
        first = covered[0]
        last = covered[-1]
        tags[first] = f"B-{span.label}"
        words_start, _ = places[first]
        _, words_end = places[last]
        if (words_start, words_end) != _without_spaces(text, span):
            num_inside += 1
    words = [text[start:end] for start, end in places]
    return TaggedWords(words, tags, num_inside, num_dropped)


def _words_touched(places: Sequence[tuple[int, int]], span: Span) -> list[int]:
    """Return the numbers of the words in which characters of an entity lie."""
    numbers = list[int]()
    for number, (start, end) in enumerate(places):
        if start < span.end and end > span.start:
            numbers.append(number)
    return numbers


def _without_spaces(text: str, span: Span) -> tuple[int, int]:
    """Return where an entity starts and ends, without white space at its ends."""
    marked = text[span.start : span.end]
    num_leading = len(marked) - len(marked.lstrip())
    start = span.start + num_leading
    return start, start + len(marked.strip())
