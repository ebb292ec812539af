"""Prose out of the documentation of Python: what is kept, what is left out, and in which form."""

import importlib
import re
import subprocess
import sys
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


@pytest.mark.parametrize(
    ("markup", "plain"),
    [
        ("Read the ``key`` of a *lock* or a **door**.", "Read the key of a lock or a door."),
        ("A :class:`Lock` is closed by `close`.", "A Lock is closed by close."),
        ("It returns a :class:`~house.door.Lock` again.", "It returns a Lock again."),
        ("It opens a file, a house.door.Lock or nothing at all.", "It opens a file, a Lock or nothing at all."),
        ("See `the manual <https://x.org>`_ for more.", "See the manual for more."),
        ("See [the manual](https://x.org) for [`~door.Lock`].", "See the manual for Lock."),
        ("The rest is passed on as *args and **kwargs.", "The rest is passed on as args and kwargs."),
        ("Call turn() to open the door.", "Call turn to open the door."),
        ("The proof is long. [1]_ It is not given here.", "The proof is long. It is not given here."),
        ("A sentence runs\nover two lines.", "A sentence runs over two lines."),
    ],
)
def test_markup_becomes_plain_words(prose: ModuleType, markup: str, plain: str) -> None:
    assert " ".join(prose.find_sentences(markup)) == plain


@pytest.mark.parametrize(
    "block",
    [
        "Parameters\n----------\nkey : str\n    The name of the key is a word.",
        "Returns\n=======\nThe lock that was found in the house.",
        "Args:\n    key (str): The name of the key.\n        It is a word in English.",
        "    key : str, optional\n        The name of the key is a word.",
        ":param key: The name of the key.\n    It is a word in English.",
        ">>> turn(key)\nThe lock is open to all of us.",
        "```\nThe lock is open to all of us.\n```",
        "Do it like this::\n\n    The lock is open to all of us.",
        ".. code-block:: python\n\n    The lock is open to all of us.",
        "References\n----------\n.. [1] A. Smith, The lock of the door, 1999.",
        "======  =====\nThe key of the lock.\n======  =====",
        "More can be read at https://example.org/lock on the web.",
    ],
)
def test_what_is_not_prose_is_left_out(prose: ModuleType, block: str) -> None:
    text = f"The lock is on the door.\n\n{block}\n\nNotes\n-----\nNobody has the key of it."
    expected = ["The lock is on the door.", "Nobody has the key of it."]
    assert list(prose.find_sentences(text)) == expected


def test_items_of_a_list_and_notes_are_paragraphs(prose: ModuleType) -> None:
    text = "- The first key is\n  for me.\n- The second one is lost.\n\n.. note:: It is not mine."
    assert list(prose.find_sentences(text)) == [
        "The first key is for me.",
        "The second one is lost.",
        "It is not mine.",
    ]


@pytest.mark.parametrize(
    "fragment",
    [
        "lock of the door.",
        "The lock of the door",
        "The lock of the door:",
        "The lock of the ...",
        "Open the door.",
        "Nouns verbs adjectives adverbs.",
        "The lock (of the door is open.",
        "The value of x = 3 is odd.",
        "Is the num_keys of the FooLock in get_bar?",
        "The " + "very " * 100 + "long road.",
        "The key of aaaaaaaaaabbbbbbbbbbccccccccccd is lost.",
        "TODO is what the rest of it says.",
        "Ключ лежит на столе in the house.",
    ],
)
def test_fragments_are_no_prose(prose: ModuleType, fragment: str) -> None:
    assert not prose.is_prose(fragment)


@pytest.mark.parametrize(
    "sentence",
    [
        "The lock is on the door.",
        '"No key is lost," he said (twice).',
        "A well-known lock doesn't open by itself, e.g. at 12 or at night!",
        "Is there a key for the HTTP door of the old house?",
    ],
)
def test_english_is_prose(prose: ModuleType, sentence: str) -> None:
    assert prose.is_prose(sentence)


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


@pytest.mark.parametrize("content", [b'"""The door is made of wood."""\nprint "two"', b'"""\xff"""', b'"""\0"""', b""])
def test_file_that_does_not_parse_has_no_prose(prose: ModuleType, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.py"
    path.write_bytes(content)
    assert prose.module_sentences(path) == []
    assert prose.module_sentences(tmp_path / "gone.py") == []
    assert prose.module_sentences(tmp_path) == []


def test_documents_are_sorted_and_nothing_comes_twice(prose: ModuleType, tmp_path: Path) -> None:
    def write(name: str, *sentences: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'"""{" ".join(sentences)}"""')

    house = [f"The {room} is behind the {part}." for room in ("hall", "attic") for part in ("door", "stair")]
    garden = [f"The {plant} grows in the {place}." for plant in ("rose", "oak") for place in ("sun", "rain")]
    write("b/house.py", *house, *house)
    write("a/garden.py", *garden, "This is made by Alice.")
    write("c/copy.py", *house[:2], *garden, "This is made by Bob.")
    write("d/short.py", "The cellar is dark.", "The cellar is wet.", "The cellar is cold.")
    write("tests/ignored.py", *(f"The {room} is tested in the night." for room in "abcdef"))

    documents = list(prose.read_prose([tmp_path]))
    num_topics = len(list(prose.read_prose([])))
    assert documents[num_topics:] == [[*garden, "This is made by Alice."], house]


def test_language_topics_are_there_without_any_package(prose: ModuleType) -> None:
    documents = list(prose.read_prose([]))
    assert len(documents) > 40
    assert sum(map(len, documents)) > 1_000


@pytest.mark.slow
def test_script_writes_the_official_format(prose: ModuleType, tmp_path: Path) -> None:
    texts = []
    for name in ("first.txt", "second.txt"):
        script = [sys.executable, "-W", "error", str(FOLDER / "python_prose.py")]
        done = subprocess.run([*script, str(tmp_path / name)], capture_output=True, check=True)
        assert re.search(rb"MB, [\d,]+ documents, [\d,]+ sentences, [\d,]+ words", done.stderr)
        texts.append((tmp_path / name).read_text("utf-8"))
    assert texts[0] == texts[1]
    documents = [document.split("\n") for document in texts[0].removesuffix("\n").split("\n\n")]
    sentences = [sentence for document in documents for sentence in document]
    assert len(documents) > 1_000
    assert min(map(len, documents)) >= 4
    assert all(map(prose.is_prose, sentences))
    assert len(set(sentences)) == len(sentences)
