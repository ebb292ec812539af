"""Lines of fastText: a text with its labels before it, `__label__good __label__short A
fine film.`
"""

from collections.abc import Iterator, Sequence

from litebert.reading.source import Source, read_lines
from litebert.reading.tables import Scanned

_MARK = "__label__"
_MOST_BARE = 0.05  # the share of lines without a label, at most


def are_labelled(lines: Sequence[str]) -> bool:
    """Return whether lines have labels as fastText writes them."""
    written = [line for line in lines if line.strip()]
    num_bare = sum(_MARK not in line for line in written)
    return bool(written) and num_bare <= _MOST_BARE * len(written)


def scan_labelled(source: Source) -> Iterator[Scanned]:
    """Yield each line that is not blank as a text and its label, or a list of labels;
    like fastText, take a label anywhere in a line.
    """
    for number, line in read_lines(source):
        labels = list[str]()
        words = list[str]()
        for word in line.split():
            if word.startswith(_MARK):
                labels.append(word.removeprefix(_MARK))
            else:
                words.append(word)
        if not labels and not words:
            continue
        label: object = labels
        if len(labels) < 2:
            label = "".join(labels)
        yield number, {"label": label, "text": " ".join(words)}
