"""Inputs looked up before work begins."""

import sys
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest

from litebert.corpus.text import TextSettings, read_passages, text_settings
from litebert.errors import LitebertError
from litebert.reading import source as sources
from litebert.reading.source import find_file, find_text, find_texts

Write = Callable[[str, bytes | str], Path]


REFUSED = [
    *((name, "LB-304") for name in ("a.csv", "a", "a.gz", "a.parquet.gz", "a.txt.bz2")),
    ("a.json", r"LB-304(?s:.*)did you mean \.jsonl\?"),
    *((name, "cannot be read") for name in ("nowhere.txt", "two\nlines.txt", "a\0b.txt")),
    ("folder.txt", "(?s:.*)it is a folder(?s:.*)name the files"),
    ("empty.txt", "has no text"),
]


@pytest.mark.parametrize(("name", "told"), REFUSED)
def test_what_is_no_text_is_refused(write: Write, tmp_path: Path, name: str, told: str) -> None:
    (tmp_path / "folder.txt").mkdir()
    write("empty.txt", "")
    if name.startswith("a") and "\0" not in name:
        write(name, "{}")
    with pytest.raises(LitebertError, match=told):
        find_text(str(tmp_path / name))
    with pytest.raises(LitebertError, match="there is no input"):
        find_texts([])


MISSING = [("a.txt.zst", "zstandard", "data"), ("a.parquet", "pyarrow", "data"), ("memory://a", "fsspec", "cluster")]


@pytest.mark.parametrize(("name", "package", "extra"), MISSING)
def test_missing_package_names_its_extra(
    write: Write, monkeypatch: pytest.MonkeyPatch, name: str, package: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(LitebertError, match=package) as caught:
        list(read_passages(find_text(name if "://" in name else str(write(name, b"x"))), TextSettings()))
    assert caught.value.next == f"pip install 'litebert[{extra}]'"


def test_url_is_read_like_a_file() -> None:
    with fsspec.open("memory://stories/a.txt", "wb") as file:
        file.write(b"One.\n\nTwo.\n")
    found = find_text("memory://stories/a.txt")
    assert found.size == 11
    assert [passage.text for passage in read_passages(found, TextSettings(sentences="line"))] == ["One.", "Two."]
    for url in ("memory://nowhere.txt", "nosuchscheme://bucket/a.txt"):
        with pytest.raises(LitebertError, match="cannot be read"):
            find_text(url)


CHOICES = [("sentences", "lines"), ("documents", "page"), ("language", "English"), ("column", "a..b"), ("column", "")]


@pytest.mark.parametrize(("choice", "value"), CHOICES)
def test_choice_that_does_not_exist_is_refused(choice: str, value: str) -> None:
    with pytest.raises(LitebertError, match=f"LB-300: --{choice}"):
        text_settings(**{choice: value})


def test_folder_in_the_place_of_a_named_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder.json").mkdir()
    monkeypatch.chdir(tmp_path)
    for name in ("", ".", "..", "folder.json"):
        with pytest.raises(LitebertError, match=r"LB-303[\s\S]*it is a folder"):
            find_file(Path(name))


@pytest.mark.parametrize(("error", "attempts"), [(TypeError("a bug"), 1), (OSError("the network"), sources.ATTEMPTS)])
def test_what_repeating_cannot_mend_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch, error: Exception, attempts: int
) -> None:
    tried = []

    class Store:
        def size(self, url: str) -> int:
            tried.append(url)
            raise error

    monkeypatch.setattr(sources, "PAUSE_SECONDS", 0)
    monkeypatch.setattr(sources, "filesystem", lambda url: Store())
    with pytest.raises((LitebertError, TypeError)):
        find_text("s3://bucket/a.txt")
    assert len(tried) == attempts
