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
    """The files of one repository, the same on all branches."""

    files: dict[str, bytes] = field(default_factory=dict)
    private: bool = False
    messages: list[str] = field(default_factory=list)
    branches: set[str] = field(default_factory=lambda: {"main"})

    @property
    def commit(self) -> str:
        return hashlib.sha1(repr(sorted(self.files.items())).encode()).hexdigest()


@dataclass
class LoopbackHub:
    """What the server knows, and what it does wrong: `fault` is a status or a word of `_Handler`."""

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
    """Each route is a method that gets the groups of its pattern and returns JSON, unless it has answered."""

    protocol_version = "HTTP/1.1"
    hub: LoopbackHub

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        request, fault = f"{self.command} {unquote(urlsplit(self.path).path)}", self.hub.fault
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.hub.requests.append(request)
        if fault == "silent":
            self.hub.over.wait(20)
            return
        status, word = 200, ""
        try:
            if fault.isdigit() or fault == "redirect loop":
                raise _Refused(int(fault) if fault.isdigit() else 302, "")
            found = ((answer, re.fullmatch(pattern, request)) for pattern, answer in _ROUTES)
            answer, match = next((pair for pair in found if pair[1]), (None, None))
            if answer is None:
                raise _Refused(404, "")
            value = answer(self, *match.groups())
        except _Refused as refused:
            (status, word), value = refused.args, {"error": "refused"}
        if value is not None:
            data = json.dumps(value).encode()
            headers = {"Content-Length": len(data), "X-Error-Code": word}
            self._begin(status, headers | ({"Location": self.path} if status == 302 else {}))
            self.wfile.write(b"" if self.command == "HEAD" else data)

    do_HEAD = do_POST = do_GET

    def _begin(self, status: int, headers: dict[str, object]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if value != "":
                self.send_header(name, str(value))
        self.end_headers()

    def _repository(self, name: str, revision: str) -> Repository:
        repository = self.hub.repositories.get(name)
        if repository is None or (repository.private and not self.headers.get("Authorization")):
            raise _Refused(401, "RepoNotFound")
        if revision not in (*repository.branches, repository.commit):
            raise _Refused(404, "RevisionNotFound")
        return repository

    def info(self, name: str, _: str | None, revision: str | None) -> object:
        repository = self._repository(name, revision or "main")
        files = [{"rfilename": path} for path in repository.files]
        return {"id": name, "sha": repository.commit, "private": repository.private, "siblings": files}

    def tree(self, name: str, revision: str) -> object:
        return [_entry(path, data) for path, data in self._repository(name, revision).files.items()]

    def file(self, name: str, revision: str, path: str) -> None:
        repository = self._repository(name, revision)
        if path not in repository.files:
            raise _Refused(404, "EntryNotFound")
        data = repository.files[path]
        fault = self.hub.fault if self.command == "GET" and path == "model.safetensors" else ""
        half, etag = data[: len(data) // 2], _entry(path, data)["etag"]
        size = len(half if fault == "short length" else data)
        self._begin(200, {"ETag": f'"{etag}"', "X-Repo-Commit": repository.commit, "Content-Length": size})
        if fault == "cut off":  # always at one place, whatever is asked for
            self.close_connection = True
        sent = {"other bytes": data[::-1], "cut off": half, "short length": half}.get(fault, data)
        self.wfile.write(b"" if self.command == "HEAD" else sent)

    def create(self) -> object:
        asked = json.loads(self.body)
        name = f"{asked['organization']}/{asked['name']}"
        private = asked.get("visibility") == "private" or asked.get("private") is True
        self.hub.repositories.setdefault(name, Repository(private=private))
        return {"url": f"{self.hub.url}/{name}"}

    def branch(self, name: str, branch: str) -> object:
        self.hub.repositories[name].branches.add(branch)
        return {}

    def preupload(self, name: str, revision: str) -> object:
        files = json.loads(self.body)["files"]
        return {"files": [each | {"uploadMode": "regular", "shouldIgnore": False} for each in files]}

    def commit(self, name: str, revision: str) -> object:
        repository = self._repository(name, revision)
        for entry in map(json.loads, self.body.splitlines()):
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
    (r"POST /api/validate-yaml", lambda _: {"errors": [], "warnings": []}),
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
    hub.url = f"http://127.0.0.1:{server.server_port}"
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
