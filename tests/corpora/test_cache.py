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
    build_corpus([stories], tokenizer=corpus / "tokenizer", output=folder, **settings)
    push_corpus(folder, URL)
    yield folder
    fsspec.filesystem("memory").rm("/bucket", recursive=True)


def hashes(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): hash_file(path) for path in folder.rglob("*") if path.is_file()}


def test_a_corpus_comes_back_as_it_was_pushed_and_goes_to_make_room(
    sharded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = local_corpus(URL)
    whole = Corpus.open(found)
    assert whole.held_out() is not None
    assert {name: each for name, each in hashes(found).items() if name != "origin.txt"} == hashes(sharded)
    assert local_corpus(URL) == found
    size = sum(path.stat().st_size for path in sharded.rglob("*.npy"))
    push_corpus(sharded, f"{URL}-again")
    monkeypatch.setenv("LITEBERT_CORPUS_CACHE_GB", str(1.5 * size / 1e9))
    Corpus.open(local_corpus(f"{URL}-again"))  # makes room for itself
    assert len(list(found.glob("shard-*"))) < len(whole.shards)
    with pytest.raises(DamagedError, match="LB-340"):
        [shard.require_unchanged() for shard in whole.shards]


def test_shards_of_a_streamed_corpus_come_when_they_are_read_and_go_to_make_room(
    sharded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = Corpus.open(sharded).manifest.shards
    size = sum(path.stat().st_size for path in sharded.rglob("*.npy"))
    limit = 0.75 * size
    monkeypatch.setenv("LITEBERT_CORPUS_CACHE_GB", str(limit / 1e9))
    found = local_corpus(URL)
    with pytest.raises(ResourceError, match="LB-271"):
        Corpus.open(found)
    assert not list(found.glob("shard-*"))
    corpus = Corpus.without_shards(found)
    with pytest.raises(ResourceError, match="LB-271"):
        corpus.open_shards([0, 1, 2], windows=3)
    for number in range(len(records)):
        corpus.open_shards([number], windows=3)
        assert sum(path.stat().st_size for path in found.rglob("*.npy")) <= limit
    assert 1 < len(list(found.glob("shard-*"))) < len(records)


UNFETCHED = [(URL, "bytes", "LB-330"), ("memory://bucket/never", "", "LB-273")]
UNFETCHED += [(URL, size, "LITEBERT_CORPUS_CACHE_GB") for size in ("x", "-1", "nan", "inf")]  # LB-271 names it, too


@pytest.mark.parametrize(("url", "change", "told"), UNFETCHED)
def test_what_cannot_be_fetched_is_refused(
    sharded: Path, monkeypatch: pytest.MonkeyPatch, url: str, change: str, told: str
) -> None:
    if change == "bytes":
        name = f"{URL}/{Corpus.open(sharded).shards[1].path.name}/tokens.npy"
        data = bytearray(fsspec.filesystem("memory").cat_file(name))
        data[-1] ^= 1
        fsspec.filesystem("memory").pipe_file(name, bytes(data))
    elif change:
        monkeypatch.setenv("LITEBERT_CORPUS_CACHE_GB", change)
    with pytest.raises(LitebertError, match=told):
        Corpus.open(local_corpus(url))
