"""In operation: models are replaced, the server is stopped; the nginx, systemd and
Docker examples work.
"""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from tests.conftest import ROOT, blocks
from tests.contract.served import Reply, Server, serve
from tests.waiting import exit_code

EMBED = ("/v1/embed", {"texts": ["Anna walked home."] * 8})


@pytest.fixture(scope="module")
def folder(make_model: Callable[..., Path], tmp_path_factory) -> Path:
    return Path(
        shutil.copytree(make_model(), tmp_path_factory.mktemp("rate=1") / "mortal")
    )


@pytest.fixture(scope="module")
def mortal(folder: Path) -> Iterator[Server]:
    with serve(folder) as started:
        started.wait_for("mortal is ready")
        yield started


def _rounded(reply) -> list[float]:
    """Return a few numbers, rounded so that they do not depend on the batch."""
    return [round(value, 3) for value in reply.json["result"][0][:3]]


@pytest.mark.parametrize("pairs", [2, pytest.param(25, marks=pytest.mark.slow)])
def test_models_are_replaced_under_load_without_an_error(
    mortal, folder, make_model, pairs: int
) -> None:
    first = _rounded(mortal.ask(*EMBED))
    original = (folder / "model.safetensors").read_bytes()
    others = [(make_model(seed=2) / "model.safetensors").read_bytes(), original]
    replies = list[Reply]()
    is_over = threading.Event()

    def ask() -> None:
        with closing(mortal.connect()) as link:
            while not is_over.is_set():
                replies.append(mortal.ask(*EMBED, link=link))

    with ThreadPoolExecutor(3) as pool:
        clients = [pool.submit(ask) for _ in range(3)]
        try:
            for weights in others * pairs:
                seen = len(mortal.lines)
                (folder / "new").write_bytes(weights)
                (folder / "new").replace(folder / "model.safetensors")
                os.kill(mortal.process.pid, signal.SIGHUP)
                mortal.wait_for("reloaded", seen=seen)
        finally:
            is_over.set()
    assert [client.result() for client in clients] == [None] * 3
    assert Counter(reply.status for reply in replies).keys() == {200}
    answers = {}
    for reply in replies:
        answers.setdefault(reply.json["version"], set()).add(str(_rounded(reply)))
    assert [len(results) for results in answers.values()] == [
        1,
        1,
    ], "a version has one answer"
    assert _rounded(mortal.ask(*EMBED)) == first


def test_a_reload_that_fails_keeps_the_running_model(mortal, folder: Path) -> None:
    weights = (folder / "model.safetensors").read_bytes()
    seen = len(mortal.lines)
    (folder / "model.safetensors").write_bytes(b"damaged")
    os.kill(mortal.process.pid, signal.SIGHUP)
    mortal.wait_for("the running model stays", seen=seen)
    (folder / "model.safetensors").write_bytes(weights)
    assert mortal.ask(*EMBED).status == 200


@pytest.mark.slow
def test_requests_that_outlast_the_stop_are_refused_and_the_exit_code_is_zero() -> None:
    # a second or more with the packaged model
    heavy = {"texts": ["word " * 1_990] * 32}
    with serve("--batch-tokens", 1) as server, ThreadPoolExecutor(48) as pool:
        server.wait_for("litebert is ready")
        asked = [pool.submit(server.ask, "/v1/embed", heavy) for _ in range(48)]
        server.wait_until(lambda: server.metric("litebert_queue_requests") > 40)
        server.process.send_signal(signal.SIGTERM)
        assert {future.result().status for future in asked} == {200, 503}
        assert exit_code(server.process) == 0


def test_a_damaged_model_is_one_clear_error_at_the_start(
    folder: Path, tmp_path: Path
) -> None:
    damaged = Path(shutil.copytree(folder, tmp_path / "damaged"))
    os.truncate(
        damaged / "model.safetensors",
        (damaged / "model.safetensors").stat().st_size // 2,
    )
    with serve(damaged) as server:
        assert exit_code(server.process) == 3
        server.wait_for("LB-6")
        assert not [line for line in server.lines if "Traceback" in line]


def test_sigterm_ends_a_server_that_is_still_loading(
    folder: Path, tmp_path: Path
) -> None:
    slow = Path(shutil.copytree(folder, tmp_path / "slow"))
    os.mkfifo(slow / "more.safetensors")  # reading it waits for a writer
    with serve(slow) as server:
        assert server.ask("/ready").status == 503
        server.process.send_signal(signal.SIGTERM)
        assert exit_code(server.process) == 0


# The examples of docs/serving.md and the Dockerfile, with the addresses and paths of
# this machine

PAGE = Path("docs/serving.md")


def test_nginx_forwards_requests_and_keeps_the_metrics_private(tmp_path: Path) -> None:
    if not (nginx := shutil.which("nginx")):
        pytest.skip("nginx is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        outer = free.getsockname()[1]
    with serve() as server:
        block = blocks(PAGE, "nginx")[0].replace(
            "127.0.0.1:8000", f"127.0.0.1:{server.port}"
        )
        # without the reader's certificate
        block = block.replace("443 ssl", f"127.0.0.1:{outer}")
        kinds = " ".join(
            f"{kind}_temp_path {kind};"
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        config = (
            f"pid pid; error_log error.log; events {{}} http {{ access_log off; {kinds}"
            f" {block} }}"
        )
        (tmp_path / "nginx.conf").write_text(config)

        def status(path: str, body: object = None) -> int:
            with closing(http.client.HTTPConnection("127.0.0.1", outer)) as link:
                try:
                    return server.ask(path, body, link=link).status
                except OSError:
                    return 0

        start = [
            nginx,
            "-p",
            tmp_path,
            "-c",
            "nginx.conf",
            "-e",
            "error.log",
            "-g",
            "daemon off;",
        ]
        with subprocess.Popen(start) as running:
            try:
                server.wait_until(lambda: status("/ready") == 200)
                assert status("/v1/fill", {"text": "The cat sat on the [MASK]."}) == 200
                assert [status("/"), status("/metrics")] == [200, 403]
                assert status("/v1/fill", " " * 3_000_000) == 413
            finally:
                running.terminate()


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    if not (systemd := shutil.which("systemd-analyze")):
        pytest.skip("systemd is not installed")
    litebert = shutil.which("litebert") or str(
        Path(sys.executable).with_name("litebert")
    )
    unit = tmp_path / "litebert.service"
    unit.write_text(
        blocks(PAGE, "ini")[0].replace("/opt/litebert/bin/litebert", litebert)
    )
    done = subprocess.run([systemd, "verify", unit], capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, ""), done
    unit.write_text(unit.read_text().replace("Restart=always", "Restart=sometimes"))
    assert (
        "sometimes"
        in subprocess.run(
            [systemd, "verify", unit], capture_output=True, text=True
        ).stderr
    )


def test_the_command_of_the_dockerfile_answers_its_health_check_and_ends_on_sigterm() -> (
    None
):
    """What it installs is tested by tests/test_wheel.py; no container runtime is needed
    here.
    """
    text = (ROOT / "Dockerfile").read_text("utf-8")
    check, start = (
        json.loads(words)
        for words in re.findall(r"(?m)^(?:HEALTHCHECK|ENTRYPOINT) .*?(\[.*\])$", text)
    )
    assert start[:2] == ["litebert", "serve"]
    with serve(*start[2:]) as server:
        server.wait_for("litebert is ready")
        assert (
            server.lines[0]
            == "no MODEL given: serving the packaged model as litebert\n"
        )
        check[0], check[2] = sys.executable, check[2].replace("8000", str(server.port))
        assert subprocess.run(check).returncode == 0
        check[2] = check[2].replace("/ready", "/nothing")
        assert subprocess.run(check, capture_output=True).returncode == 1
    assert server.process.returncode == 0
