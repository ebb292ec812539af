"""Prose out of the documentation of Python: what is kept, what is left out, and in which form."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "quickstart"


@pytest.fixture(scope="module")
def prose() -> Iterator[ModuleType]:
    """Give the script as a module, found by its worker processes too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        yield importlib.import_module("python_prose")


MARKUP = {
    "Read the ``key`` of a *lock* or a **door**.": "Read the key of a lock or a door.",
    "It opens a :class:`~house.door.Lock`, a house.door.Lock or nothing.": "It opens a Lock, a Lock or nothing.",
    "See `the manual <https://x.org>`_ or [the page](https://x.org).": "See the manual or the page.",
    "The rest is passed on as *args and **kwargs.": "The rest is passed on as args and kwargs.",
    "The proof is long. [1]_ It is not given here.": "The proof is long. It is not given here.",
    "A sentence runs\nover two lines.": "A sentence runs over two lines.",
}
NO_PROSE = [
    "Parameters\n----------\nkey : str\n    The name of the key is a word.",
    ":param key: The name of the key.\n    It is a word in English.",
    ">>> turn(key)\nThe lock is open to all of us.",
    "Do it like this::\n\n    The lock is open to all of us.",
    ".. code-block:: python\n\n    The lock is open to all of us.",
    "======  =====\nThe key of the lock.\n======  =====",
]
FRAGMENTS = [
    "lock of the door.",
    "Open the door.",
    "The lock (of the door is open.",
    "Ключ лежит на столе in the house.",
]


def test_markup_becomes_plain_words_and_what_is_no_prose_is_left_out(prose: ModuleType) -> None:
    assert {markup: " ".join(prose.find_sentences(markup)) for markup in MARKUP} == MARKUP
    first, last = "The lock is on the door.", "Nobody has the key of it."
    for block in NO_PROSE:
        assert list(prose.find_sentences(f"{first}\n\n{block}\n\nNotes\n-----\n{last}")) == [first, last]
    assert not any(map(prose.is_prose, FRAGMENTS))
    assert prose.is_prose("A well-known lock doesn't open by itself, e.g. at 12 or at night!")


MODULE = '''
"""The module is about a house."""
raise SystemExit("read, not run")
class Door:
    """The door is made of wood."""
    colour = 1
    """The colour of it is red."""
    def open(self):
        """The door is opened by this."""
        print("""The hall is what you see then.""")
try:
    add_docs(open, """The name of this is open.""" % ())
except OSError:
    pass
async def knock():
    """Somebody is at the door. \\ud800 It is late in the day."""
'''


def test_docstrings_of_a_module_come_in_their_order(prose: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "house.py"
    path.write_text(MODULE)
    assert prose.module_sentences(path) == [
        "The module is about a house.",
        "The door is made of wood.",
        "The colour of it is red.",
        "The door is opened by this.",
        "The name of this is open.",
        "Somebody is at the door.",
        "It is late in the day.",
    ]
    for broken in (b'print "two"', b'"""\xff"""', b'"""\0"""', b""):
        path.write_bytes(broken)
        assert prose.module_sentences(path) == []
