"""Corpora in storage: a folder behind a file:// URL, and a small S3 server that fails
now and then.
"""

import re
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from litebert.config import PretrainConfig
from litebert.corpus import Corpus, build_corpus
from litebert.corpus.storage import corpus_push, local_corpus
from litebert.errors import DamagedError, LitebertError, ResourceError
from litebert.reading import source as storage
from litebert.reading.source import write_object
from litebert.settings import resolve, settings_from_words
from litebert.train.sources import open_loader
from tests.contract.shell import tree

OBJECTS: dict[str, bytes] = {}
FAULTS: list[str] = []  # of the next requests


class S3(BaseHTTPRequestHandler):
    """Store objects that are PUT and return those that are requested, with the faults
    above.
    """

    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = FAULTS.pop(0) if FAULTS else ""
        if fault == "hang":
            time.sleep(3)
        if fault in ("503", "hang"):
            self.send_error(503)
            return
        if self.command == "PUT":
            OBJECTS[self.path] = body
        whole = OBJECTS.get(self.path, b"") if self.command != "PUT" else b""
        # the rest, after a cut
        first, last = re.findall(
            r"\d+", self.headers.get("Range") or f"0-{len(whole) - 1}"
        )
        data = whole[int(first) : int(last) + 1]
        self.send_response(
            (206 if "Range" in self.headers else 200) if self.path in OBJECTS else 404
        )
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Content-Range", f"bytes {first}-{last}/{len(whole)}")
        self.send_header("Last-Modified", self.date_time_string())
        self.send_header("ETag", '"1"')
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data[: len(data) // 2] if fault == "cut" else data)
        self.close_connection = fault == "cut"

    do_GET = do_PUT = do_HEAD = answer

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture(params=["folder", "server"])
def bucket(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """Return the URL of an empty bucket."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    FAULTS.clear()
    if request.param == "folder":
        yield f"file://{tmp_path}/bucket"
        return
    monkeypatch.setattr(storage, "PAUSE", timedelta(milliseconds=10))
    monkeypatch.setattr(storage, "_TIMEOUT", "2s")
    with ThreadingHTTPServer(("127.0.0.1", 0), S3) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        credentials = {
            "ACCESS_KEY_ID": "x",
            "SECRET_ACCESS_KEY": "x",
            "REGION": "us-east-1",
        }
        for name, value in {
            **credentials,
            "ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
        }.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        storage._store.cache_clear()
        yield f"s3://bucket/{tmp_path.name}"
        server.shutdown()


def fail_with(bucket: str, faults: list[str]) -> None:
    """Make the next requests fail; a folder never fails."""
    FAULTS[:] = faults if bucket.startswith("s3") else []


@pytest.fixture
def sharded(bucket: str, stories: Path, corpus: Path, tmp_path: Path) -> Path:
    """Build a corpus of many small shards, also from a text in the bucket, and push it
    as `stories`.
    """
    write_object(f"{bucket}/stories.txt", stories.read_bytes())
    fail_with(bucket, ["503", "", "cut"])
    settings = {
        "sentences": "line",
        "held_out": 0.1,
        "shard_tokens": Corpus.open(corpus).manifest.counts.tokens // 8,
    }
    for name, source in (("remote", f"{bucket}/stories.txt"), ("sharded", stories)):
        build_corpus(
            [source],
            tokenizer=corpus / "tokenizer",
            output=tmp_path / name,
            workers=1,
            **settings,
        )
    assert arrays(tmp_path / "remote") == arrays(tmp_path / "sharded")
    fail_with(bucket, ["503", "", "503", "", "", "503"])
    corpus_push(tmp_path / "sharded", f"{bucket}/stories")
    assert not FAULTS
    return tmp_path / "sharded"


def arrays(folder: Path) -> dict[str, bytes]:
    return {
        name: content for name, content in tree(folder).items() if name.endswith(".npy")
    }


def test_a_corpus_is_fetched_as_it_was_pushed_and_only_once(
    bucket: str, sharded: Path
) -> None:
    fail_with(bucket, ["", "cut", "503", "", "cut", "", "503", "cut", "503"])
    fetched = local_corpus(f"{bucket}/stories")
    whole = Corpus.open(fetched, verify=True)
    assert not FAULTS
    assert whole.held_out() is not None
    assert arrays(fetched) == arrays(sharded)
    assert not (fetched / "arriving.json").exists()
    fail_with(bucket, ["503"] * 50)
    # nothing is asked of the storage again
    assert local_corpus(f"{bucket}/stories") == fetched
    if FAULTS:
        with pytest.raises(ResourceError, match="LB-270"):
            local_corpus(f"{bucket}/another")


def test_batches_of_a_fetched_corpus_are_those_of_the_local_one(
    bucket: str, sharded: Path
) -> None:
    fail_with(bucket, ["", "503", "", "cut", "hang", "", "cut", "503"] * 2)
    loaders = []
    for corpus in (local_corpus(f"{bucket}/stories"), sharded):
        words = [f"data.corpus={corpus}", "train.batch_size=16"]
        config = resolve(PretrainConfig, settings_from_words(words)).config
        loaders.append(open_loader(corpus, config=config))
    for step in (0, 1, 40):
        fetched, local = (loader.batch(step) for loader in loaders)
        assert fetched.ids.tolist() == local.ids.tolist()
        assert fetched.masked_ids.tolist() == local.masked_ids.tolist()


def test_a_fetch_that_failed_goes_on_where_it_stopped(
    bucket: str, sharded: Path
) -> None:
    name = f"{Corpus.open(sharded).manifest.shards[1].name}/tokens.npy"
    whole = (sharded / name).read_bytes()
    damaged = whole[:-1] + bytes([whole[-1] ^ 1])
    write_object(f"{bucket}/stories/{name}", damaged)
    with pytest.raises(DamagedError, match="LB-330"):
        local_corpus(f"{bucket}/stories")
    write_object(f"{bucket}/stories/{name}", whole)
    assert arrays(local_corpus(f"{bucket}/stories")) == arrays(sharded)


@pytest.mark.parametrize("bucket", ["folder"], indirect=True)
def test_a_disk_without_room_is_noticed_before_anything_large_is_fetched(
    bucket: str, sharded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = sum(map(len, arrays(sharded).values()))
    free = size - 1
    monkeypatch.setattr("litebert.corpus.storage.free_bytes", lambda _: free)
    with pytest.raises(ResourceError, match="LB-271"):
        local_corpus(f"{bucket}/stories")
    assert not list((sharded.parent / "cache").rglob("*.npy"))
    free = size * 2  # the headers of the arrays, too
    local_corpus(f"{bucket}/stories")


@pytest.mark.parametrize("bucket", ["folder"], indirect=True)
def test_what_cannot_be_fetched_or_pushed_is_refused(
    bucket: str, sharded: Path
) -> None:
    with pytest.raises(LitebertError, match="LB-273"):
        local_corpus(f"{bucket}/never")
    with pytest.raises(LitebertError, match="LB-619"):
        corpus_push(sharded.with_name("remote"), f"{bucket}/stories")
    for folder in ("backup", "./backup", "", "C:\\backup"):
        with pytest.raises(LitebertError, match="LB-275"):
            corpus_push(sharded, folder)
    for nonsense in ("://", "s3://", "nosuchscheme://a/b", "s3://[/x"):
        with pytest.raises(LitebertError, match="LB-303"):
            corpus_push(sharded, nonsense)
    for name in ("../outside", "/outside"):
        listing = (sharded.parent / "bucket/stories/files.txt").read_text()
        write_object(f"{bucket}/stories/files.txt", f"{listing}\n{name}".encode())
        with pytest.raises(LitebertError, match="LB-274"):
            local_corpus(f"{bucket}/stories")
        write_object(f"{bucket}/stories/files.txt", listing.encode())
