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
    uploads: dict[str, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    fault: str = ""
    url: str = ""
    over: threading.Event = field(default_factory=threading.Event)

    def add(self, name: str, folder: Path) -> Repository:
        """Put a folder's files into a repository."""
        files = {path.name: path.read_bytes() for path in folder.iterdir()}
        self.repositories[name] = Repository(files)
        return self.repositories[name]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: LoopbackHub

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.hub.requests.append(f"{self.command} {path}")
        if self._broken_on_purpose(path):
            return
        for pattern, answer in _ROUTES:
            if match := re.fullmatch(pattern, f"{self.command} {path}"):
                answer(self, *match.groups(), body=body)
                return
        self._json({"error": "no such address"}, status=404)

    do_HEAD = do_POST = do_PUT = do_GET

    def _broken_on_purpose(self, path: str) -> bool:
        fault = self.hub.fault
        if fault.isdigit():
            self._json({"error": "as asked"}, status=int(fault))
        elif fault == "silent" or (fault == "silent upload" and self.command == "PUT"):
            self.hub.over.wait(20)
        elif fault == "redirect loop":
            self.send_response(302)
            self.send_header("Location", self.path)
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            return False
        return True

    def _json(self, value: object, *, status: int = 200, **headers: str) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), text)
        self.end_headers()
        self.wfile.write(data)

    def _repository(self, name: str, revision: str = "main") -> Repository | None:
        repository = self.hub.repositories.get(name)
        if repository is None or (repository.private and not self.headers.get("Authorization")):
            self._json({"error": "not found"}, status=401, X_Error_Code="RepoNotFound")
            return None
        if revision not in (*repository.branches, repository.commit):
            self._json({"error": "no revision"}, status=404, X_Error_Code="RevisionNotFound")
            return None
        return repository

    def info(self, name: str, _: str | None, revision: str | None, *, body: bytes) -> None:
        if repository := self._repository(name, revision or "main"):
            files = [{"rfilename": path} for path in repository.files]
            self._json({"id": name, "sha": repository.commit, "private": repository.private, "siblings": files})

    def tree(self, name: str, revision: str, *, body: bytes) -> None:
        if repository := self._repository(name, revision):
            self._json([_entry(path, data) for path, data in repository.files.items()])

    def file(self, name: str, revision: str, path: str, *, body: bytes) -> None:
        repository = self._repository(name, revision)
        if repository is None:
            return
        if path not in repository.files:
            self._json({"error": "no file"}, status=404, X_Error_Code="EntryNotFound")
            return
        data = repository.files[path]
        etag = _entry(path, data)["etag"]
        is_faulty = self.command == "GET" and path == "model.safetensors"
        fault = self.hub.fault if is_faulty else ""
        size = len(data) // 2 if fault == "short length" else len(data)
        self.send_response(200)
        self.send_header("ETag", f'"{etag}"')
        self.send_header("X-Repo-Commit", repository.commit)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        if self.command == "HEAD":
            return
        if fault == "other bytes":
            data = data[::-1]
        elif fault in ("short length", "cut off"):
            data = data[: len(data) // 2]
        elif fault == "slow":
            for byte in data[:200]:
                if self.hub.over.wait(0.1):
                    return
                self.wfile.write(bytes([byte]))
        self.wfile.write(data)
        self.close_connection = fault == "cut off"

    def create(self, *, body: bytes) -> None:
        asked = json.loads(body)
        name = f"{asked['organization']}/{asked['name']}"
        status = 409 if name in self.hub.repositories else 200
        private = asked.get("visibility") == "private" or asked.get("private") is True
        self.hub.repositories.setdefault(name, Repository(private=private))
        self._json({"url": f"{self.hub.url}/{name}"}, status=status)

    def branch(self, name: str, branch: str, *, body: bytes) -> None:
        self.hub.repositories[name].branches.add(branch)
        self._json({})

    def validate(self, *, body: bytes) -> None:
        self._json({"errors": [], "warnings": []})

    def preupload(self, name: str, revision: str, *, body: bytes) -> None:
        files = json.loads(body)["files"]
        for each in files:
            each["uploadMode"] = "lfs" if each["path"].endswith(".safetensors") else "regular"
        self._json({"files": [{"shouldIgnore": False, **each} for each in files]})

    def batch(self, name: str, *, body: bytes) -> None:
        objects = json.loads(body)["objects"]
        for entry in objects:
            entry["actions"] = {"upload": {"href": f"{self.hub.url}/upload/{entry['oid']}"}}
        self._json({"transfer": "basic", "objects": objects})

    def upload(self, oid: str, *, body: bytes) -> None:
        self.hub.uploads[oid] = body
        self._json({})

    def commit(self, name: str, revision: str, *, body: bytes) -> None:
        repository = self._repository(name, revision)
        if repository is None:
            return
        for line in body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "header":
                repository.messages.append(value["summary"])
            elif entry["key"] == "lfsFile":
                repository.files[value["path"]] = self.hub.uploads[value["oid"]]
            else:
                repository.files[value["path"]] = base64.b64decode(value["content"])
        url = f"{self.hub.url}/{name}/commit/{repository.commit}"
        self._json({"commitUrl": url, "commitOid": repository.commit, "success": True})


_NAME = r"([\w.-]+/[\w.-]+)"
_ROUTES = [
    (rf"GET /api/models/{_NAME}(/revision/(.+))?", _Handler.info),
    (rf"GET /api/models/{_NAME}/tree/([^/]+)", _Handler.tree),
    (rf"(?:HEAD|GET) /{_NAME}/resolve/([^/]+)/(.+)", _Handler.file),
    (r"POST /api/repos/create", _Handler.create),
    (rf"POST /api/models/{_NAME}/branch/(.+)", _Handler.branch),
    (r"POST /api/validate-yaml", _Handler.validate),
    (rf"POST /api/models/{_NAME}/preupload/(.+)", _Handler.preupload),
    (rf"POST /{_NAME}\.git/info/lfs/objects/batch", _Handler.batch),
    (r"PUT /upload/(\w+)", _Handler.upload),
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
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.delenv("HF_TOKEN", raising=False)
    # huggingface_hub reads its variables once, when it is imported, which another test may have done.
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    )
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no token"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    yield hub
    hub.over.set()
    server.shutdown()
    thread.join()
    server.server_close()
