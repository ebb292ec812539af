"""A Hub on this machine: enough of its protocol for the real huggingface_hub, faults included."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from huggingface_hub import constants


@dataclass
class Repository:
    """The files of one repository, all on one branch."""

    files: dict[str, bytes] = field(default_factory=dict)
    private: bool = False
    messages: list[str] = field(default_factory=list)
    branches: set[str] = field(default_factory=lambda: {"main"})

    @property
    def commit(self) -> str:
        return hashlib.sha1(repr(sorted(self.files.items())).encode()).hexdigest()


@dataclass
class LoopbackHub:
    """What the server knows, and what it does wrong: `fault` is a word of `_Handler`."""

    repositories: dict[str, Repository] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    fault: str = ""
    url: str = ""
    over: threading.Event = field(default_factory=threading.Event)

    def add(self, name: str, folder: Path) -> Repository:
        """Put a folder's files into a repository."""
        self.repositories[name] = Repository({path.name: path.read_bytes() for path in folder.iterdir()})
        return self.repositories[name]


class _Refused(Exception):
    """An answer with another status than 200, and the Hub's word for it."""


class _Handler(BaseHTTPRequestHandler):
    """Each route is a method that gets the groups of its pattern and the body, and returns JSON."""

    protocol_version = "HTTP/1.1"
    hub: LoopbackHub

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        path, fault = unquote(urlsplit(self.path).path), self.hub.fault
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.hub.requests.append(f"{self.command} {path}")
        if fault == "silent":
            self.hub.over.wait(20)
            return
        try:
            if fault.isdigit():
                raise _Refused(int(fault), "")
            if fault == "redirect loop":
                raise _Refused(302, "")
            for pattern, answer in _ROUTES:
                if match := re.fullmatch(pattern, f"{self.command} {path}"):
                    value, status, word = answer(self, *match.groups(), body), 200, ""
                    break
            else:
                raise _Refused(404, "")
        except _Refused as refused:
            status, word, value = (*refused.args, {"error": "refused"})[:3]
        if value is not None:
            data = json.dumps(value).encode()
            headers = {"Content-Length": str(len(data)), "X-Error-Code": word}
            self._begin(status, headers | ({"Location": self.path} if status == 302 else {}))
            self.wfile.write(b"" if self.command == "HEAD" else data)

    do_HEAD = do_POST = do_GET

    def _begin(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, text in headers.items():
            if text:
                self.send_header(name, text)
        self.end_headers()

    def _repository(self, name: str, revision: str) -> Repository:
        repository = self.hub.repositories.get(name)
        if repository is None or (repository.private and not self.headers.get("Authorization")):
            raise _Refused(401, "RepoNotFound")
        if revision not in (*repository.branches, repository.commit):
            raise _Refused(404, "RevisionNotFound")
        return repository

    def info(self, name: str, _: str | None, revision: str | None, body: bytes) -> object:
        repository = self._repository(name, revision or "main")
        files = [{"rfilename": path} for path in repository.files]
        return {"id": name, "sha": repository.commit, "private": repository.private, "siblings": files}

    def tree(self, name: str, revision: str, body: bytes) -> object:
        return [_entry(path, data) for path, data in self._repository(name, revision).files.items()]

    def file(self, name: str, revision: str, path: str, body: bytes) -> None:
        repository = self._repository(name, revision)
        if path not in repository.files:
            raise _Refused(404, "EntryNotFound")
        data = repository.files[path]
        fault = self.hub.fault if self.command == "GET" and path == "model.safetensors" else ""
        size = len(data) // 2 if fault == "short length" else len(data)
        etag = str(_entry(path, data)["etag"])
        self._begin(200, {"ETag": f'"{etag}"', "X-Repo-Commit": repository.commit, "Content-Length": str(size)})
        if self.command == "HEAD":
            return
        if fault == "other bytes":
            data = data[::-1]
        elif fault == "cut off":  # always at one place, whatever is asked for
            data, self.close_connection = data[: size // 2], True
        elif fault == "short length":
            data = data[:size]
        elif fault == "slow":
            self.hub.over.wait(5)
        self.wfile.write(data)

    def create(self, body: bytes) -> object:
        asked = json.loads(body)
        name = f"{asked['organization']}/{asked['name']}"
        url = {"url": f"{self.hub.url}/{name}"}
        if name in self.hub.repositories:
            raise _Refused(409, "", url)
        private = asked.get("visibility") == "private" or asked.get("private") is True
        self.hub.repositories[name] = Repository(private=private)
        return url

    def branch(self, name: str, branch: str, body: bytes) -> object:
        self.hub.repositories[name].branches.add(branch)
        return {}

    def preupload(self, name: str, revision: str, body: bytes) -> object:
        files = json.loads(body)["files"]
        return {"files": [each | {"uploadMode": "regular", "shouldIgnore": False} for each in files]}

    def commit(self, name: str, revision: str, body: bytes) -> object:
        repository = self._repository(name, revision)
        for entry in map(json.loads, body.splitlines()):
            value = entry["value"]
            if entry["key"] == "header":
                repository.messages.append(value["summary"])
            else:
                repository.files[value["path"]] = base64.b64decode(value["content"])
        url = f"{self.hub.url}/{name}/commit/{repository.commit}"
        return {"commitUrl": url, "commitOid": repository.commit, "success": True}


_NAME = r"([\w.-]+/[\w.-]+)"
_ROUTES = [
    (rf"GET /api/models/{_NAME}(/revision/(.+))?", _Handler.info),
    (rf"GET /api/models/{_NAME}/tree/([^/]+)", _Handler.tree),
    (rf"(?:HEAD|GET) /{_NAME}/resolve/([^/]+)/(.+)", _Handler.file),
    (r"POST /api/repos/create", _Handler.create),
    (rf"POST /api/models/{_NAME}/branch/(.+)", _Handler.branch),
    (r"POST /api/validate-yaml", lambda _handler, _body: {"errors": [], "warnings": []}),
    (rf"POST /api/models/{_NAME}/preupload/(.+)", _Handler.preupload),
    (rf"POST /api/models/{_NAME}/commit/(.+)", _Handler.commit),
]


def _entry(path: str, data: bytes) -> dict[str, object]:
    """Describe a file as the Hub does: small ones by git's hash, large ones by SHA-256."""
    oid = hashlib.sha1(f"blob {len(data)}\0".encode() + data).hexdigest()
    entry: dict[str, object] = {"type": "file", "path": path, "size": len(data), "oid": oid}
    if not path.endswith(".safetensors"):
        return entry | {"etag": oid}
    sha256 = hashlib.sha256(data).hexdigest()
    return entry | {"etag": sha256, "lfs": {"oid": sha256, "size": len(data), "pointerSize": 134}}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackHub]:
    """Run a Hub on loopback, with an empty cache of its own."""
    hub = LoopbackHub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.delenv("HF_TOKEN", raising=False)
    # huggingface_hub reads its variables once, when it is imported, which another test may have done.
    for name, value in {
        "ENDPOINT": hub.url,
        "HUGGINGFACE_CO_URL_TEMPLATE": f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}",
        "HF_HUB_CACHE": str(tmp_path / "hf"),
        "HF_TOKEN_PATH": str(tmp_path / "no token"),
        "HF_HUB_OFFLINE": False,
    }.items():
        monkeypatch.setattr(constants, name, value)
    yield hub
    hub.over.set()
    server.shutdown()
    thread.join()
    server.server_close()
