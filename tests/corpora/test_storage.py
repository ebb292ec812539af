"""Corpora on a real S3 server (moto) behind a proxy that fails; `make test-storage`."""

import os
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from litebert.config import PretrainConfig, resolve, settings_from_words
from litebert.corpus import Corpus, build_corpus, remote
from litebert.corpus.remote import local_corpus, push_corpus
from litebert.errors import DamagedError, ResourceError
from litebert.files import hash_file
from litebert.objectives import Loader
from litebert.objectives.windows import Windowed
from litebert.reading import source as storage
from litebert.train.sources import loader_for

SERVER = os.environ.get("LITEBERT_MOTO_SERVER")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(SERVER is None, reason="no moto: set LITEBERT_MOTO_SERVER")]
BUCKET = "s3://bucket"


class Proxy(ThreadingHTTPServer):
    """Pass requests on; `faults` says what to do with the next ones instead."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream, self.faults, self.requests = f"http://127.0.0.1:{port}", list[str](), 0

    def next_fault(self) -> str:
        self.requests += 1
        return self.faults.pop(0) if self.faults else ""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.server.next_fault()
        if fault == "hang":
            time.sleep(3)
        if fault in ("503", "hang"):
            self.send_error(503)
            return
        headers = {k: v for k, v in self.headers.items() if k.lower() != "host"}
        headers.setdefault("Content-Type", "application/octet-stream")  # or urllib says: a form
        request = urllib.request.Request(self.server.upstream + self.path, body or None, headers, method=self.command)
        try:
            with urllib.request.urlopen(request) as answer:
                status, answered, data = answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            status, answered, data = error.code, error.headers, error.read()
        self.send_response_only(status)
        for name, value in answered.items():
            if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                self.send_header(name, value)
        length = answered["Content-Length"] if self.command == "HEAD" else str(len(data))
        self.send_header("Content-Length", length or "0")
        self.end_headers()
        if fault == "cut":
            data = data[: len(data) // 2]
            self.close_connection = True
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _pass

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def moto() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert SERVER is not None
    command = [SERVER, "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        limit = time.monotonic() + 120
        while True:
            try:
                request = urllib.request.Request(f"http://127.0.0.1:{port}/bucket", method="PUT")
                urllib.request.urlopen(request).close()
                break
            except OSError:
                assert time.monotonic() < limit
                time.sleep(0.2)
        yield port
        process.kill()


@pytest.fixture
def proxy(moto: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    monkeypatch.setattr(storage, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(storage, "_TIMEOUT", "2s")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    with Proxy(moto) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        storage._object_store.cache_clear()
        yield server
        server.shutdown()


def _hashes(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*.npy"))
    return {str(path.relative_to(folder)): hash_file(path) for path in files}


def test_a_corpus_survives_errors_timeouts_and_cut_bodies(proxy: Proxy, corpus: Path) -> None:
    proxy.faults = ["503", "", "503", "", "", "hang"]
    push_corpus(corpus, f"{BUCKET}/stories")
    proxy.faults = ["", "cut", "503", "", "cut", "", "hang", "cut", "503"]
    found = local_corpus(f"{BUCKET}/stories")
    assert Corpus.open(found, verify=True).num_tokens == Corpus.open(corpus).num_tokens
    assert not proxy.faults
    assert _hashes(found) == _hashes(corpus)
    before = proxy.requests
    assert local_corpus(f"{BUCKET}/stories") == found
    assert proxy.requests == before
    proxy.faults = ["503"] * 50
    with pytest.raises(ResourceError, match="LB-270"):
        local_corpus(f"{BUCKET}/never")


@pytest.fixture
def sharded(proxy: Proxy, stories: Path, corpus: Path, tmp_path: Path) -> Path:
    """Give a corpus of many small shards."""
    (tmp_path / "long.txt").write_text(stories.read_text() * 6)
    storage.write_object(f"{BUCKET}/long.txt", tmp_path / "long.txt")
    settings = {"sentences": "line", "held_out": 0.1, "shard_tokens": Corpus.open(corpus).num_tokens // 2, "workers": 1}
    settings["tokenizer"] = corpus / "tokenizer"
    build_corpus([tmp_path / "long.txt"], output=tmp_path / "sharded", **settings)
    proxy.faults = ["503", "", "cut", "hang"]
    build_corpus([f"{BUCKET}/long.txt"], output=tmp_path / "remote", **settings)  # is built like a local text
    assert _hashes(tmp_path / "remote") == _hashes(tmp_path / "sharded")
    proxy.faults = []
    return tmp_path / "sharded"


def _loader(corpus: Path, window: int) -> Loader | Windowed:
    words = [f"data.corpus={corpus}", f"data.window={window}", "train.batch_size=16"]
    config = resolve(PretrainConfig, settings_from_words(words)).config
    return loader_for(corpus, config=config)


def test_a_streamed_corpus_gives_the_batches_of_a_local_one_within_its_bound(
    proxy: Proxy, sharded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    push_corpus(sharded, f"{BUCKET}/sharded")
    opened = Corpus.open(sharded)
    shards = opened.manifest.shards
    window = 2 * max(record.counts.tokens for record in shards)
    assert len(shards) > 8
    size = sum(path.stat().st_size for path in sharded.glob("shard-*/*.npy"))
    limit = 0.75 * size
    monkeypatch.setenv("LITEBERT_CORPUS_CACHE_GB", str(limit / 1e9))
    with pytest.raises(ResourceError, match="LB-271"):
        Corpus.open(local_corpus(f"{BUCKET}/sharded"))
    proxy.faults = ["", "503", "", "cut", "hang", "", "cut", "503"] * 2
    found = local_corpus(f"{BUCKET}/sharded")
    assert not list(found.glob("shard-*"))
    ours, theirs = _loader(found, window), _loader(sharded, window)
    for step in range(2 * theirs.epoch_size // 16):
        batch, expected = ours.batch(step), theirs.batch(step)
        assert batch.masked_ids.tolist() == expected.masked_ids.tolist()
        assert batch.ids.tolist() == expected.ids.tolist()
        assert remote._size(found) <= limit
    assert not proxy.faults
    with pytest.raises(ResourceError, match="LB-271"):
        Corpus.open(found)


def test_a_damaged_shard_of_a_streamed_corpus_is_noticed(proxy: Proxy, sharded: Path) -> None:
    push_corpus(sharded, f"{BUCKET}/streamed-damaged")
    found = local_corpus(f"{BUCKET}/streamed-damaged")
    corpus = Corpus.without_shards(found)
    name = f"{corpus.manifest.shards[1].name}/tokens.npy"
    data = bytearray((sharded / name).read_bytes())
    data[-1] ^= 1
    url = f"{BUCKET}/streamed-damaged/{name}"
    storage.filesystem(BUCKET).pipe_file(url, bytes(data))
    assert len(corpus.open_shards([0])) == 1
    with pytest.raises(DamagedError, match="LB-330"):
        corpus.open_shards([1])
    storage.filesystem(BUCKET).pipe_file(url, (sharded / name).read_bytes())
    assert len(corpus.open_shards([0, 1])) == 2
    assert Corpus.open(found).num_tokens == corpus.num_tokens
