"""Lines of a text with its label before it: `__label__good A fine film.` of fastText,
`4 A fine film.` of SST, `DESC:def What is a film ?` of TREC.
"""

import re
from collections.abc import Iterator, Sequence

from litebert.reading.lines import read_lines
from litebert.reading.source import Source
from litebert.reading.tables import Row, Scanned

MARK = "__label__"
_MOST_BARE = 0.05  # the share of lines without a label, at most


# a label that begins a line without a mark: a number, or capitals as in TREC, NUM:date
_CODE = re.compile(r"\d{1,3}|[A-Z]{2,}(?::[A-Za-z]+)?")
_MOST_CODES = 100
_FEWEST_LINES = 8


def are_labeled(lines: Sequence[str]) -> bool:
    """Return whether lines have labels as fastText writes them, or begin with one of a
    few codes.
    """
    written = [line for line in lines if line.strip()]
    num_bare = sum(MARK not in line for line in written)
    if num_bare <= _MOST_BARE * len(written):
        return bool(written)
    return len(written) >= _FEWEST_LINES and _have_codes(written)


def _have_codes(lines: Sequence[str]) -> bool:
    """Return whether each line begins with a code, and the codes repeat."""
    codes = set[str]()
    for line in lines:
        code, *words = line.split()
        if not words or not _CODE.fullmatch(code):
            return False
        codes.add(code)
    most = min(_MOST_CODES, len(lines) // 2)
    return 1 < len(codes) <= most


def scan_labeled(source: Source, *, has_marks: bool) -> Iterator[Scanned]:
    """Yield each line that is not blank as a text and its label, or a list of labels;
    like fastText, take a marked label anywhere in a line.
    """
    for number, line in read_lines(source):
        if not line.strip():
            continue
        if has_marks:
            yield number, _marked(line)
        else:
            label, _, text = line.strip().partition(" ")
            yield number, {"label": label, "text": text.strip()}


def _marked(line: str) -> Row:
    labels = list[str]()
    words = list[str]()
    for word in line.split():
        if word.startswith(MARK):
            labels.append(word.removeprefix(MARK))
        else:
            words.append(word)
    label: object = labels
    if len(labels) < 2:
        label = "".join(labels)
    return {"label": label, "text": " ".join(words)}
