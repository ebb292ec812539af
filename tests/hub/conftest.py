"""A local Hub with enough of the protocol for the real huggingface_hub, faults
included.
"""

import asyncio
import base64
import hashlib
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import uvicorn
from huggingface_hub import constants
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route


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
    """The repositories, and the fault of the server: a status, or a word that `answer`
    or `file` handles.
    """

    repositories: dict[str, Repository] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    fault: str = ""
    # repositories whose requests wait
    held: set[str] = field(default_factory=set)
    url: str = ""

    def add(self, name: str, folder: Path) -> Repository:
        """Put a folder's files into a repository."""
        self.repositories[name] = Repository(
            {path.name: path.read_bytes() for path in folder.iterdir()}
        )
        return self.repositories[name]

    async def answer(self, request: Request, route) -> Response:
        self.requests.append(f"{request.method} {request.url.path}")
        while self.fault == "silent" or any(
            name in request.url.path for name in self.held
        ):
            await asyncio.sleep(0.05)
        if self.fault == "byte by byte":
            return StreamingResponse(_byte_by_byte())
        if self.fault.isdigit() or self.fault == "redirect loop":
            status = int(self.fault) if self.fault.isdigit() else 302
            return Response(
                status_code=status,
                headers={"Location": request.url.path} if status == 302 else {},
            )
        return await route(request)

    def find(self, request: Request) -> Repository:
        repository = self.repositories.get(
            "{owner}/{name}".format(**request.path_params)
        )
        if repository is None or (
            repository.private and "Authorization" not in request.headers
        ):
            raise HTTPException(401, headers={"X-Error-Code": "RepoNotFound"})
        if request.path_params.get("revision", "main") not in (
            *repository.branches,
            repository.commit,
        ):
            raise HTTPException(404, headers={"X-Error-Code": "RevisionNotFound"})
        return repository

    async def info(self, request: Request) -> Response:
        repository = self.find(request)
        files = [{"rfilename": path} for path in repository.files]
        about = {
            "id": "{owner}/{name}".format(**request.path_params),
            "private": repository.private,
        }
        return JSONResponse(about | {"sha": repository.commit, "siblings": files})

    async def tree(self, request: Request) -> Response:
        return JSONResponse(
            [_entry(path, data) for path, data in self.find(request).files.items()]
        )

    async def file(self, request: Request) -> Response:
        repository = self.find(request)
        path = request.path_params["path"]
        if path not in repository.files:
            raise HTTPException(404, headers={"X-Error-Code": "EntryNotFound"})
        data = repository.files[path]
        fault = (
            self.fault
            if request.method == "GET" and path == "model.safetensors"
            else ""
        )
        # "cut off" ends there, whatever range is requested
        half = data[: len(data) // 2]
        wrong = {"cut off": half, "short length": half, "other bytes": data[::-1]}
        sent = wrong.get(fault, data)
        headers = {
            "ETag": f'"{_entry(path, data)["etag"]}"',
            "X-Repo-Commit": repository.commit,
        }
        return Response(
            sent,
            headers=headers
            | {"Content-Length": str(len(data if fault == "cut off" else sent))},
        )

    async def create(self, request: Request) -> Response:
        asked = await request.json()
        name = f"{asked['organization']}/{asked['name']}"
        private = asked.get("visibility") == "private"
        self.repositories.setdefault(name, Repository(private=private))
        return JSONResponse({"url": f"{self.url}/{name}"})

    async def branch(self, request: Request) -> Response:
        self.find(request).branches.add(request.path_params["branch"])
        return JSONResponse({})

    async def validate(self, request: Request) -> Response:
        return JSONResponse({"errors": [], "warnings": []})

    async def preupload(self, request: Request) -> Response:
        files = (await request.json())["files"]
        return JSONResponse(
            {
                "files": [
                    file | {"uploadMode": "regular", "shouldIgnore": False}
                    for file in files
                ]
            }
        )

    async def commit(self, request: Request) -> Response:
        repository = self.find(request)
        for entry in map(json.loads, (await request.body()).splitlines()):
            value = entry["value"]
            if entry["key"] == "header":
                repository.messages.append(value["summary"])
            else:
                repository.files[value["path"]] = base64.b64decode(value["content"])
        url = "{}/{owner}/{name}/commit/{}".format(
            self.url, repository.commit, **request.path_params
        )
        return JSONResponse(
            {"commitUrl": url, "commitOid": repository.commit, "success": True}
        )


async def _byte_by_byte() -> AsyncIterator[bytes]:
    """Send an answer that never ends, one byte at a time."""
    while True:
        yield b" "
        await asyncio.sleep(0.05)


def _entry(path: str, data: bytes) -> dict[str, object]:
    """Describe a file as the Hub does: small ones by git's hash, large ones by
    SHA-256.
    """
    oid = hashlib.sha1(f"blob {len(data)}\0".encode() + data).hexdigest()
    entry: dict[str, object] = {
        "type": "file",
        "path": path,
        "size": len(data),
        "oid": oid,
    }
    if not path.endswith(".safetensors"):
        return entry | {"etag": oid}
    sha256 = hashlib.sha256(data).hexdigest()
    return entry | {
        "etag": sha256,
        "lfs": {"oid": sha256, "size": len(data), "pointerSize": 134},
    }


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackHub]:
    """Run a Hub on loopback, with an empty cache of its own."""
    hub = LoopbackHub()
    listener = socket.create_server(("127.0.0.1", 0))
    api = "/api/models/{owner}/{name}"
    hub.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    routes = {
        api: hub.info,
        f"{api}/revision/{{revision}}": hub.info,
        f"{api}/tree/{{revision}}": hub.tree,
        "/{owner}/{name}/resolve/{revision}/{path:path}": hub.file,
        "/api/repos/create": hub.create,
        f"{api}/branch/{{branch}}": hub.branch,
        "/api/validate-yaml": hub.validate,
        f"{api}/preupload/{{revision}}": hub.preupload,
        f"{api}/commit/{{revision}}": hub.commit,
    }
    app = Starlette(
        routes=[
            Route(path, answer, methods=["GET", "POST"])
            for path, answer in routes.items()
        ]
    )
    app.add_middleware(BaseHTTPMiddleware, dispatch=hub.answer)
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical"))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    monkeypatch.delenv("HF_TOKEN", raising=False)
    # huggingface_hub reads its variables once, when it is imported, which another test
    # may have done.
    for name, value in {
        "ENDPOINT": hub.url,
        "HUGGINGFACE_CO_URL_TEMPLATE": (
            f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        ),
        "HF_HUB_CACHE": str(tmp_path / "hf"),
        "HF_TOKEN_PATH": str(tmp_path / "no token"),
        "HF_HUB_OFFLINE": False,
    }.items():
        monkeypatch.setattr(constants, name, value)
    yield hub
    hub.fault = ""
    hub.held.clear()
    server.should_exit = True
    server.force_exit = True
    thread.join()
