"""A model's name on the Hub becomes a folder here, or one clear error; a path stays a path."""

import json
import resource
import shutil
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner
from huggingface_hub import constants

from litebert.cli.hub import hub as command
from litebert.cli.json_types import schema_of
from litebert.errors import DamagedError, LitebertError, ResourceError
from litebert.folder import load_model
from litebert.hub import HubName, locate, model_files, packaged_model, pull

NAME = HubName("me/small")


def _closed_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def test_a_name_is_fetched_once_and_loads(hub, small_model: Path) -> None:
    hub.add("me/small", small_model)
    folder = locate("me/small")
    assert not load_model(folder).missing
    assert locate(Path("me/small")) == folder
    for file in small_model.iterdir():
        assert (folder / file.name).read_bytes() == file.read_bytes()
    assert sum(request.startswith("GET /me/small/resolve") for request in hub.requests) == 5


def test_only_the_files_of_a_model_are_fetched(hub, small_model: Path) -> None:
    files = hub.add("me/small", small_model).files
    files |= {"pytorch_model.bin": b"x", "tf_model.h5": b"x", "run.py": b"x"}
    files |= {"onnx/model.safetensors": b"x", "README.md": b"# small"}
    fetched = {path.name for path in pull(NAME).iterdir()}
    assert fetched == {path.name for path in small_model.iterdir()} | {"README.md"}


def test_the_files_of_sentence_transformers_come_along(hub, small_model: Path) -> None:
    files = hub.add("me/small", small_model).files
    files |= {"modules.json": b"[]", "1_Pooling/config.json": b"{}"}
    files |= {"2_Dense/model.safetensors": b"x", "onnx/config.json": b"{}"}
    fetched = model_files(pull(NAME))
    assert {"modules.json", "1_Pooling/config.json"} < set(fetched)
    assert not {"2_Dense/model.safetensors", "onnx/config.json"} & set(fetched)


@pytest.mark.parametrize("path", ["runs/mine", "mine/model", "mine/best", "models/base", "a/b.json"])
def test_a_path_that_is_absent_is_never_asked_of_the_hub(hub, path: str) -> None:
    with pytest.raises(LitebertError, match="LB-620"):
        locate(path)
    assert not hub.requests


def test_a_revision_is_what_it_was(hub, small_model: Path) -> None:
    repository = hub.add("me/small", small_model)
    first = repository.commit
    before = pull(NAME)
    repository.files["README.md"] = b"# changed"
    assert (pull(NAME) / "README.md").exists()
    assert locate(f"me/small@{first}") == before


def test_what_was_fetched_is_there_without_the_hub(hub, small_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add("me/small", small_model)
    folder = pull(NAME)
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{_closed_port()}")
    assert pull(NAME) == folder
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert pull(NAME) == folder
    with pytest.raises(LitebertError, match=r"LB-622[\s\S]*give the folder"):
        pull(HubName("me/other"))


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:{port}", "http://hub.invalid"])
def test_a_hub_out_of_reach_is_one_error(hub, monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", endpoint.format(port=_closed_port()))
    with pytest.raises(LitebertError, match=r"LB-623[\s\S]*give the folder"):
        pull(NAME, patience=10)


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("500", "LB-625"),
        ("429", "LB-625"),
        ("404", "LB-629"),
        ("418", "LB-633"),
        ("401", "LB-630"),
        ("403", "LB-630"),
        ("redirect loop", "LB-625"),
        ("silent", "LB-624"),
        ("slow", "LB-624"),
        ("cut off", "LB-624"),
    ],
)
def test_every_fault_of_the_hub_is_one_error(hub, small_model: Path, fault: str, code: str) -> None:
    hub.add("me/small", small_model)
    hub.fault = fault
    with pytest.raises(LitebertError, match=code) as caught:
        pull(NAME, patience=1.5)
    assert "me/small" in str(caught.value)
    assert "give the folder" in caught.value.next


@pytest.mark.parametrize("fault", ["short length", "other bytes"])
def test_what_arrives_damaged_is_thrown_away_and_fetched_again(hub, small_model: Path, fault: str) -> None:
    hub.add("me/small", small_model)
    hub.fault = fault
    with pytest.raises(DamagedError, match=r"LB-626[\s\S]*give the folder"):
        pull(NAME)
    hub.fault = ""
    weights = pull(NAME) / "model.safetensors"
    assert weights.read_bytes() == (small_model / "model.safetensors").read_bytes()


@pytest.mark.parametrize(("name", "code"), [("me/none", "LB-629"), ("me/small@v9", "LB-631")])
def test_a_wrong_name_or_revision_is_said(hub, small_model: Path, name: str, code: str) -> None:
    hub.add("me/small", small_model)
    with pytest.raises(LitebertError, match=code):
        locate(name)


def test_pickled_weights_name_the_command_that_reads_them(
    hub, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = hub.add("me/small", small_model).files
    files["pytorch_model.bin"] = files.pop("model.safetensors")
    with pytest.raises(LitebertError, match=r"LB-634[\s\S]*pytorch_model\.bin") as caught:
        locate("me/small")
    assert caught.value.next.startswith("litebert import huggingface me/small --output")
    folder = locate("me/small", legacy_pickle=True)
    assert (folder / "pytorch_model.bin").is_file()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert locate("me/small", legacy_pickle=True) == folder


def test_a_cache_that_cannot_be_written_is_said(
    hub, small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("me/small", small_model)
    (tmp_path / "file").touch()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "file" / "hub"))
    with pytest.raises(LitebertError, match=r"LB-628[\s\S]*HF_HOME"):
        pull(NAME)


def test_a_full_disk_is_said(hub, small_model: Path) -> None:
    hub.add("me/small", small_model)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
        with pytest.raises(ResourceError, match=r"LB-627[\s\S]*HF_HOME"):
            pull(NAME)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_without_the_package_the_extra_is_named(small_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(LitebertError, match=r"LB-621[\s\S]*litebert\[hub\]"):
        locate("me/small")
    assert locate(small_model) == small_model


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("runs/mien", "did you mean mine"),
        ("runs/mine/modle", "did you mean model"),
        ("runs/mine/model/config.json", "received: a file"),
        ("rusn", "did you mean runs"),
        ("/nowhere/at/all", "a folder; or a name on the Hub"),
        ("../elsewhere", "a folder; or a name on the Hub"),
        ("a text instead of a path. " * 300, "too long"),
        ("a\0b", "received: nothing"),
    ],
)
def test_a_misspelt_path_never_asks_the_hub(
    hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, said: str
) -> None:
    model = tmp_path / "runs/mine/model"
    model.mkdir(parents=True)
    (model / "config.json").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LitebertError, match=rf"LB-620[\s\S]*{said}"):
        locate(path)
    assert hub.requests == []


@pytest.mark.parametrize("text", ["name", "a/b/c", "a b/c", "/a/b", "a/", "a/b@", "~/x", "a/b@c d"])
def test_what_is_no_name_is_none(text: str) -> None:
    assert HubName.parse(text) is None


def test_pull_prints_a_folder_or_copies_it(hub, small_model: Path, tmp_path: Path) -> None:
    hub.add("me/small", small_model)
    (pull(NAME) / "elsewhere").mkdir()
    output = tmp_path / "copy"
    words = ["pull", "me/small", "--revision", "main", "--output", str(output), "--json"]
    shown = CliRunner().invoke(command, words, catch_exceptions=False)
    assert json.loads(shown.output) == {"folder": str(output)}
    jsonschema.validate(json.loads(shown.output), schema_of("hub pull"))
    assert not any(path.is_symlink() for path in output.iterdir())
    copied = {path.name: path.read_bytes() for path in output.iterdir()}
    assert copied == hub.repositories["me/small"].files
    assert isinstance(CliRunner().invoke(command, words).exception, LitebertError)  # it is there
    shown = CliRunner().invoke(command, ["pull", "me/small"], catch_exceptions=False)
    assert (Path(shown.output.strip()) / "model.safetensors").is_file()


def test_a_name_that_the_hub_would_not_have_is_no_fault_of_the_package(hub) -> None:
    with pytest.raises(LitebertError, match="LB-636") as caught:
        locate("me/a--b")
    assert "pip install" not in caught.value.next


def test_ctrl_c_ends_a_transfer_at_once(hub, small_model: Path) -> None:
    hub.add("me/small", small_model)
    hub.fault = "slow"
    threading.Timer(1, signal.pthread_kill, [threading.get_ident(), signal.SIGINT]).start()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        pull(NAME)
    assert time.monotonic() - begun < 10


def test_the_packaged_model_has_a_name_and_a_folder_of_that_name_goes_first(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert locate("litebert") == packaged_model()
    shutil.copytree(small_model, "litebert")
    assert locate("litebert") == Path("litebert")


def test_a_build_without_a_model_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("litebert.hub.location.files", lambda _: tmp_path)
    with pytest.raises(LitebertError, match="LB-938"):
        packaged_model()
