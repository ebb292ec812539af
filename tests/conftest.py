"""Fixtures that all tests share: the real data, a text, a corpus, a small model, and
the desk with its runs.
"""

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from litebert.corpus import build_corpus
from litebert.plugins import REGISTRIES
from litebert.reading.source import Source, find_input
from litebert.tokenizer import Tokenizer, train_tokenizer

from .contract.tiny import desk as desk
from .contract.tiny import random_model as random_model

ROOT = Path(__file__).parents[1]

# A suite that was started in the background (`make test &`) ignores Ctrl-C, and so
# would the commands that it starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep litebert's cache out of the developer's home; matplotlib's, which takes long
    to make, stays there.
    """
    os.environ.setdefault("MPLCONFIGDIR", str(Path.home() / ".cache" / "matplotlib"))
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Return the folder of real data; without it skip the test, or fail in CI."""
    folder = Path(
        os.environ.get("LITEBERT_TEST_DATA", ROOT / "../shared/data")
    ).resolve()
    if not folder.is_dir():
        reason = f"real data not found: set LITEBERT_TEST_DATA (looked in {folder})"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return folder


@pytest.fixture(scope="session")
def official(real_data: Path) -> Tokenizer:
    """Return the tokenizer of the published models."""
    return Tokenizer.load(real_data / "tokenizer" / "spiece.model")


@pytest.fixture(autouse=True)
def _without_plugins_of_others() -> Iterator[None]:
    """Remove what a test has added to the registries."""
    before = [set(registry.from_plugins()) for registry in REGISTRIES]
    yield
    for registry, names in zip(REGISTRIES, before, strict=True):
        for name in registry.from_plugins().keys() - names:
            registry.remove(name)


def blocks(page: Path | str, language: str = "python") -> list[str]:
    """Return the code blocks in one language of a page, or of its text."""
    text = page if isinstance(page, str) else (ROOT / page).read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def made_by_page(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, module: str = ""
) -> dict[str, object]:
    """Run the last block of a how-to page, and return its names; a block before it is
    written as a module.
    """
    *files, use = blocks(Path(f"docs/extending/{name}.md"))
    for file in files:
        (folder / f"{module}.py").write_text(file)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, module, raising=False)
    names: dict[str, object] = {}
    exec(use, names)
    return names


PEOPLE = ["Anna", "Bert", "Clara", "David", "Emma", "Felix", "Greta", "Henry"]
PLACES = [
    "house",
    "garden",
    "market",
    "river",
    "forest",
    "school",
    "station",
    "harbour",
]
THINGS = ["a red ball", "an old map", "three apples", "a small boat", "a blue letter"]
STORY = """In the morning {who} walked to the {where}.
There {who} found {what} under a tree.
Nobody at the {where} knew where it came from.
So {who} took {what} home before noon.
After lunch {who} showed it to the neighbours, who laughed.
In the evening {who} brought it back to the {where}.
# each sentence refers to the one before
At night the {where} was quiet again, and {who} slept well."""


@pytest.fixture(scope="session")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a text of 200 short stories: one sentence per line, a blank line between
    documents.
    """
    path = tmp_path_factory.mktemp("text") / "stories.txt"
    documents = (
        STORY.format(who=PEOPLE[n % 8], where=PLACES[n // 8 % 8], what=THINGS[n % 5])
        for n in range(200)
    )
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def corpus(stories: Path) -> Path:
    """Build a corpus of the stories with its own vocabulary and a held-out split."""
    vocabulary = stories.parent / "tokenizer"
    folder = stories.parent / "corpus"
    lines = stories.read_text(encoding="utf-8").splitlines()
    Tokenizer.from_model(train_tokenizer(lines, vocab_size=90)).save(vocabulary)
    build_corpus(
        [stories],
        tokenizer=vocabulary,
        output=folder,
        sentences="line",
        held_out=0.2,
        workers=1,
    )
    return folder


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, bytes | str], Path]:
    """Return a function that writes an input file."""

    def write_file(name: str, content: bytes | str) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write_file


@pytest.fixture
def source(
    write: Callable[[str, bytes | str], Path],
) -> Callable[[str, bytes | str], Source]:
    """Return a function that writes an input file and opens it as a source."""
    return lambda name, content: find_input(str(write(name, content)))


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a folder with a model of a few thousand parameters and its tokenizer."""
    import torch

    from litebert.folder import ModelFolder, write_folder
    from litebert.nn import AlbertForPretraining
    from tests.networks import config_for

    lines = [
        "the cat sat on the mat",
        "a dog ran after the cat",
        "the mat was red and blue",
    ] * 9
    folder = tmp_path_factory.mktemp("model") / "small"
    tokenizer = Tokenizer.from_model(train_tokenizer(lines, vocab_size=36))
    tokenizer.save(folder)
    write_folder(
        ModelFolder(
            AlbertForPretraining(
                config_for(tokenizer), generator=torch.Generator().manual_seed(1)
            )
        ),
        folder,
    )
    return folder
