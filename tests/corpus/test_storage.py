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
from litebert.reading import remote
from litebert.reading.remote import write_object
from litebert.settings import resolve, settings_from_words
from litebert.train.sources import open_loader
from tests.contract.shell import tree

# ---- a small S3 server ---------------------------------------------------------------

OBJECTS: dict[str, bytes] = {}
FAULTS: list[str] = []
"""Of the next requests: `503`, `hang` (until the client gives up), `cut` (half of the
object), or none.
"""


class S3(BaseHTTPRequestHandler):
    """Store objects that are PUT and return those that are requested, with the faults
    above.
    """

    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self._next_fault()
        if not self._is_refused(fault):
            OBJECTS[self.path] = body
            self._send_head(200, 0)

    def do_GET(self) -> None:
        fault = self._next_fault()
        if self._is_refused(fault):
            return
        whole = OBJECTS.get(self.path)
        if whole is None:
            self._send_head(404, 0)
            return
        data = self._send_head_of(whole)
        if self.command == "GET":
            self.wfile.write(data[: len(data) // 2] if fault == "cut" else data)

    do_HEAD = do_GET

    def _next_fault(self) -> str:
        fault = FAULTS.pop(0) if FAULTS else ""
        self.close_connection = fault == "cut"
        return fault

    def _is_refused(self, fault: str) -> bool:
        """Answer with an error, at once or late, if this is the fault."""
        if fault == "hang":
            time.sleep(3)
        if fault in ("503", "hang"):
            self.send_error(503)
            return True
        return False

    def _send_head_of(self, whole: bytes) -> bytes:
        """Send the head of an answer; return the bytes that were asked for: all or,
        after a cut, the rest.
        """
        asked = self.headers.get("Range")
        if asked is None:
            self._send_head(200, len(whole))
            return whole
        first, last = map(int, re.findall(r"\d+", asked))
        data = whole[first : last + 1]
        self._send_head(206, len(data), f"bytes {first}-{last}/{len(whole)}")
        return data

    def _send_head(self, status: int, length: int, content_range: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        if content_range:
            self.send_header("Content-Range", content_range)
        self.send_header("Last-Modified", self.date_time_string())
        self.send_header("ETag", '"1"')
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


# ---- a bucket and a corpus in it -----------------------------------------------------

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "x",
    "AWS_SECRET_ACCESS_KEY": "x",
    "AWS_REGION": "us-east-1",
}


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
    monkeypatch.setattr(remote, "PAUSE", timedelta(milliseconds=10))
    monkeypatch.setattr(remote, "_TIMEOUT", "2s")
    with ThreadingHTTPServer(("127.0.0.1", 0), S3) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": url}.items():
            monkeypatch.setenv(name, value)
        remote._store.cache_clear()
        yield f"s3://bucket/{tmp_path.name}"
        server.shutdown()


def fail_with(bucket: str, faults: list[str]) -> None:
    """Make the next requests fail; a folder never fails."""
    FAULTS[:] = faults if bucket.startswith("s3") else []


@pytest.fixture
def sharded(bucket: str, stories: Path, corpus: Path, tmp_path: Path) -> Path:
    """Build a corpus of many small shards and push it as `stories`."""
    folder = tmp_path / "sharded"
    build_shards(str(stories), folder, corpus)
    fail_with(bucket, ["503", "", "503", "", "", "503"])
    corpus_push(folder, f"{bucket}/stories")
    assert not FAULTS
    return folder


def build_shards(source: str, folder: Path, corpus: Path) -> None:
    """Build a corpus of eight times as many shards as another one."""
    build_corpus(
        [source],
        tokenizer=corpus / "tokenizer",
        output=folder,
        sentences="line",
        held_out=0.1,
        shard_tokens=Corpus.open(corpus).manifest.counts.tokens // 8,
        workers=1,
    )


def arrays(folder: Path) -> dict[str, bytes]:
    return {
        name: content for name, content in tree(folder).items() if name.endswith(".npy")
    }


# ---- texts that are read from a bucket -----------------------------------------------


def test_a_corpus_of_a_text_in_a_bucket_is_that_of_the_local_text(
    bucket: str, sharded: Path, stories: Path, corpus: Path, tmp_path: Path
) -> None:
    write_object(f"{bucket}/stories.txt", stories.read_bytes())
    fail_with(bucket, ["503", "", "cut"])
    build_shards(f"{bucket}/stories.txt", tmp_path / "remote", corpus)
    assert not FAULTS
    assert arrays(tmp_path / "remote") == arrays(sharded)


# ---- fetching ------------------------------------------------------------------------


def test_a_corpus_is_fetched_as_it_was_pushed(bucket: str, sharded: Path) -> None:
    fail_with(bucket, ["", "cut", "503", "", "cut", "", "503", "cut", "503"])
    fetched = local_corpus(f"{bucket}/stories")
    assert not FAULTS
    assert arrays(fetched) == arrays(sharded)
    assert not (fetched / "arriving.json").exists()
    assert Corpus.open(fetched, verify=True).held_out() is not None


@pytest.mark.usefixtures("sharded")
def test_a_corpus_is_fetched_only_once(bucket: str) -> None:
    fetched = local_corpus(f"{bucket}/stories")
    fail_with(bucket, ["503"] * 50)
    assert local_corpus(f"{bucket}/stories") == fetched


@pytest.mark.parametrize("bucket", ["server"], indirect=True)
def test_a_server_that_always_fails_is_given_up(bucket: str) -> None:
    fail_with(bucket, ["503"] * 50)
    with pytest.raises(ResourceError, match="LB-270"):
        local_corpus(f"{bucket}/stories")


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
        fetched, local = [loader.batch(step) for loader in loaders]
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


# ---- what is refused -----------------------------------------------------------------

FOLDER_ALONE = pytest.mark.parametrize("bucket", ["folder"], indirect=True)


@FOLDER_ALONE
def test_a_corpus_that_was_never_pushed_is_not_found(bucket: str) -> None:
    with pytest.raises(LitebertError, match="LB-273"):
        local_corpus(f"{bucket}/never")


@FOLDER_ALONE
def test_another_corpus_is_not_pushed_over_the_first(
    bucket: str, sharded: Path, stories: Path, corpus: Path, tmp_path: Path
) -> None:
    """The other one has the same numbers, from a file of another name."""
    renamed = tmp_path / "renamed.txt"
    renamed.write_bytes(stories.read_bytes())
    other = tmp_path / "other"
    build_shards(str(renamed), other, corpus)
    assert arrays(other) == arrays(sharded)
    with pytest.raises(LitebertError, match="LB-619"):
        corpus_push(other, f"{bucket}/stories")


@FOLDER_ALONE
@pytest.mark.parametrize("folder", ["backup", "./backup", "", "C:\\backup"])
def test_a_corpus_is_not_pushed_to_a_path(sharded: Path, folder: str) -> None:
    with pytest.raises(LitebertError, match="LB-275"):
        corpus_push(sharded, folder)


@FOLDER_ALONE
@pytest.mark.parametrize("url", ["://", "s3://", "nosuchscheme://a/b", "s3://[/x"])
def test_a_corpus_is_not_pushed_to_an_impossible_url(sharded: Path, url: str) -> None:
    with pytest.raises(LitebertError, match="LB-303"):
        corpus_push(sharded, url)


@FOLDER_ALONE
@pytest.mark.parametrize("name", ["../outside", "/outside"])
def test_a_listing_cannot_write_outside_the_corpus(
    bucket: str, sharded: Path, name: str
) -> None:
    listing = (sharded.parent / "bucket/stories/files.txt").read_text()
    write_object(f"{bucket}/stories/files.txt", f"{listing}\n{name}".encode())
    with pytest.raises(LitebertError, match="LB-274"):
        local_corpus(f"{bucket}/stories")
