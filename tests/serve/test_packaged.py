"""`litebert serve` without a MODEL."""

import shutil
from importlib.resources import files
from pathlib import Path

import pytest


def test_without_a_model_the_packaged_one_is_served(run_server, folders, tmp_path, monkeypatch):
    """A copy of the package that has a model answers under the package's name."""
    package = tmp_path / "litebert"
    original = Path(str(files("litebert")))
    shutil.copytree(original, package, ignore=shutil.ignore_patterns("__pycache__", "model"))
    shutil.copytree(folders["base"], package / "model")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with run_server() as server:
        server.wait_for_line("litebert is ready")
        assert server.lines[0] == "no MODEL given: serving the packaged model as litebert\n"
        assert [one["id"] for one in server.ask("/v1/models").json["data"]] == ["litebert"]
        assert server.ask("/v1/embed", {"texts": ["a"]}).status == 200


def test_a_build_without_a_model_says_so(run_server) -> None:
    if (Path(str(files("litebert"))) / "model" / "config.json").is_file():
        pytest.skip("this build has a model")
    with run_server() as server:
        server.wait_for_line("LB-938")
        assert server.process.wait(60) == 1
