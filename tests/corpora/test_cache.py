"""A corpus in storage, here in fsspec's memory: pushed, fetched, streamed, kept within the bound of the cache."""

from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from litebert.corpus import Corpus, build_corpus
from litebert.corpus.remote import local_corpus, push_corpus
from litebert.errors import DamagedError, LitebertError, ResourceError
from litebert.files import hash_file
from litebert.reading import source as storage

URL = "memory://bucket/stories"


@pytest.fixture
def sharded(stories: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a corpus of many small shards, pushed; the storage is empty afterwards."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(storage, "PAUSE_SECONDS", 0.001)
    folder = tmp_path / "sharded"
    size = Corpus.open(corpus).num_tokens // 8
    settings = {"sentences": "line", "held_out": 0.1, "shard_tokens": size, "workers": 1}
    build_corpus([stories], tokenizer=corpus / "tokenizer", output=folder, **settings)  # type: ignore[arg-type]
    push_corpus(folder, URL)
    yield folder
    fsspec.filesystem("memory").rm("/bucket", recursive=True)


def hashes(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): hash_file(path) for path in folder.rglob("*") if path.is_file()}


def damage(name: str) -> None:
    data = bytearray(fsspec.filesystem("memory").cat_file(f"{URL}/{name}"))
    data[-1] ^= 1
    fsspec.filesystem("memory").pipe_file(f"{URL}/{name}", bytes(data))


def test_a_corpus_comes_back_as_it_was_pushed(sharded: Path) -> None:
    found = local_corpus(URL)
    assert hashes(found) == hashes(sharded)
    assert local_corpus(URL) == found
    with pytest.raises(LitebertError, match="LB-273"):
        local_corpus("memory://bucket/never")


def test_other_bytes_are_noticed(sharded: Path) -> None:
    damage(f"{Corpus.open(sharded).shards[1].path.name}/tokens.npy")
    with pytest.raises(DamagedError, match="LB-272"):
        local_corpus(URL)


def test_shards_of_a_streamed_corpus_come_when_they_are_read_and_go_to_make_room(
    sharded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = Corpus.open(sharded).manifest.shards
    size = sum(path.stat().st_size for path in sharded.rglob("*.npy"))
    limit = 0.75 * size
    monkeypatch.setenv("LITEBERT_CORPUS_CACHE_GB", str(limit / 1e9))
    with pytest.raises(ResourceError, match="LB-271"):
        local_corpus(URL)
    found = local_corpus(URL, window=1)
    assert not list(found.glob("shard-*"))
    corpus = Corpus.without_shards(found)
    for number in range(len(records)):
        corpus.open_shards([number])
        assert sum(path.stat().st_size for path in found.rglob("*.npy")) <= limit
    assert 1 < len(list(found.glob("shard-*"))) < len(records)


@pytest.mark.parametrize("given", ["x", "-1", "nan", "inf"])
def test_a_cache_without_a_size_is_refused(sharded: Path, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("LITEBERT_CORPUS_CACHE_GB", given)
    with pytest.raises(LitebertError, match="LITEBERT_CORPUS_CACHE_GB"):
        local_corpus(URL)


def test_an_error_of_the_program_is_not_tried_again() -> None:
    attempts = []

    def wrong() -> None:
        attempts.append(1)
        raise TypeError("a mistake")

    with pytest.raises(TypeError):
        storage._tried(wrong, URL)
    assert len(attempts) == 1
