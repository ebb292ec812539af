"""The model may be replaced, the server told to stop: clients always get a clear answer."""

import os
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from tests.contract.served import Reply, Server, serve

EMBED = ("/v1/embed", {"texts": ["Anna walked home."] * 8})


@pytest.fixture(scope="module")
def folder(make_model: Callable[..., Path], tmp_path_factory) -> Path:
    return Path(shutil.copytree(make_model(), tmp_path_factory.mktemp("own") / "mortal"))


@pytest.fixture(scope="module")
def mortal(folder: Path) -> Iterator[Server]:
    with serve(folder) as started:
        started.wait_for("mortal is ready")
        yield started


def _rounded(reply) -> list[float]:
    """Return a few numbers to the digits that do not depend on the batch."""
    return [round(value, 3) for value in reply.json["result"][0][:3]]


@pytest.mark.parametrize("pairs", [2, pytest.param(25, marks=pytest.mark.slow)])
def test_models_are_changed_under_load_without_an_error(mortal, folder, make_model, pairs: int) -> None:
    first = _rounded(mortal.ask(*EMBED))
    original = (folder / "model.safetensors").read_bytes()
    others = [(make_model(seed=2) / "model.safetensors").read_bytes(), original]
    replies, is_over = list[Reply](), threading.Event()

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
    assert len(answers) == 2
    assert all(len(results) == 1 for results in answers.values()), "a version has one answer"
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
def test_what_outlasts_the_stop_is_refused_and_the_exit_code_is_zero(folder: Path) -> None:
    heavy = {"texts": ["word " * 1_990] * 32}
    with serve(folder, "--batch-tokens", 1) as server, ThreadPoolExecutor(48) as pool:
        server.wait_for("mortal is ready")
        asked = [pool.submit(server.ask, "/v1/embed", heavy) for _ in range(48)]
        server.wait_until(lambda: server.metric("litebert_queue_requests") > 40)
        server.process.send_signal(signal.SIGTERM)
        assert {each.result().status for each in asked} == {200, 503}
        assert server.process.wait(60) == 0


def test_a_damaged_model_is_one_clear_error_at_the_start(folder: Path, tmp_path: Path) -> None:
    damaged = Path(shutil.copytree(folder, tmp_path / "damaged"))
    weights = (damaged / "model.safetensors").read_bytes()
    (damaged / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    with serve(damaged) as server:
        assert server.process.wait(120) == 3
        server.wait_for("LB-6")
        assert not [line for line in server.lines if "Traceback" in line]
