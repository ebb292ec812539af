"""A name on the Hub becomes a local folder, or one clear error; what is published is
the model and a card.
"""

import json
import resource
import shlex
import shutil
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard, constants, get_session, hf_hub_download

from litebert.api.formats import hub_push
from litebert.config import HeadConfig
from litebert.errors import DamagedError, LitebertError, ResourceError
from litebert.folder import ModelFolder, read_config, read_folder, write_folder
from litebert.folder.card import model_card, write_card
from litebert.hub import (
    hash_model,
    locate,
    model_files,
    packaged_model,
    parse_name,
    pull,
    transfer,
)
from litebert.nn import AlbertForPretraining, AlbertForTask
from tests.conftest import blocks
from tests.contract.shell import assert_matches_schema, litebert
from tests.waiting import wait_until

NAME = "me/small"


# ---- fetching ------------------------------------------------------------------------


def test_a_name_is_fetched_once_and_loads_with_only_the_files_of_a_model(
    hub, small_model: Path
) -> None:
    files = hub.add("me/small", small_model).files
    known = {path.name for path in small_model.iterdir()}
    others = (
        "pytorch_model.bin",
        "tf_model.h5",
        "run.py",
        "onnx/model.safetensors",
        "2_Dense/pytorch_model.bin",
    )
    files |= dict.fromkeys(others, b"x") | {
        "README.md": b"#",
        "modules.json": b"[]",
        "1_Pooling/config.json": b"{}",
        "2_Dense/model.safetensors": b"y",
    }
    shown = litebert("hub", "pull", "me/small@main", "--json").json
    assert_matches_schema("hub pull", shown)
    folder = Path(shown["folder"])
    assert litebert("hub", "pull", "me/small").stdout == f"{folder}\n"
    assert (
        not read_folder(folder).missing
        and locate("me/small") == locate(Path("me/small")) == folder
    )
    assert set(model_files(folder)) == known | {
        "README.md",
        "modules.json",
        "1_Pooling/config.json",
        "2_Dense/model.safetensors",
    }
    assert all((folder / name).read_bytes() == files[name] for name in known)
    before = hash_model(folder)
    for name in ("README.md", "run.json", "1_Pooling/config.json"):
        (folder / name).write_bytes(b"other")
        assert (hash_model(folder) == before) == (name[0] != "1"), name
    assert (
        sum(request.startswith("GET /me/small/resolve") for request in hub.requests)
        == len(known) + 4
    )


def test_a_fetched_model_is_available_without_the_hub(
    hub, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = hub.add("me/small", small_model)
    first = repository.commit
    before = pull(NAME)
    repository.files["README.md"] = b"# changed"
    folder = pull(NAME)
    assert (folder / "README.md").exists()
    assert locate(f"me/small@{first}") == before  # the first revision is unchanged
    for name, value in (("ENDPOINT", _closed_port()), ("HF_HUB_OFFLINE", True)):
        monkeypatch.setattr(constants, name, value)
        assert pull(NAME) == folder
        with pytest.raises(LitebertError, match=r"LB-623[\s\S]*give the folder"):
            pull("me/other")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(LitebertError, match=r"LB-621[\s\S]*litebert\[hub\]"):
        locate("me/small")
    assert locate(small_model) == small_model


FAULTS = {
    **dict.fromkeys(("500", "429", "redirect loop", "cut off"), "LB-623"),
    **dict.fromkeys(("silent", "byte by byte"), "LB-623"),
    **dict.fromkeys(("404", "418", "403"), "LB-629"),
    **dict.fromkeys(("short length", "other bytes"), "LB-626"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_of_the_hub_is_one_error(
    hub, small_model: Path, fault: str, monkeypatch
) -> None:
    hub.add("me/small", small_model)
    hub.fault = fault
    monkeypatch.setattr(transfer, "PATIENCE", 1.5)
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda _: None)
    with pytest.raises(
        LitebertError, match=rf"{FAULTS[fault]}[\s\S]*me/small[\s\S]*give the folder"
    ) as caught:
        pull(NAME)
    assert isinstance(caught.value, DamagedError) == (FAULTS[fault] == "LB-626")
    hub.fault = ""  # what is damaged was thrown away, and is fetched again
    assert (pull(NAME) / "model.safetensors").read_bytes() == (
        small_model / "model.safetensors"
    ).read_bytes()


@pytest.mark.parametrize("fault", ["silent", "byte by byte", "500", "401", "closed"])
def test_a_model_in_the_cache_is_used_while_the_hub_does_not_answer(
    fault: str, hub, small_model: Path, monkeypatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commit = hub.add("me/small", small_model).commit
    folder = pull(NAME)
    monkeypatch.setattr(transfer, "PATIENCE_WITH_COPY", 0.5)
    if fault == "closed":
        monkeypatch.setattr(constants, "ENDPOINT", _closed_port())
    hub.fault = fault
    hub.requests.clear()
    capsys.readouterr()

    # a commit never changes, so nothing is asked
    assert pull(NAME, commit) == folder
    assert hub.requests == []
    assert capsys.readouterr().err == ""

    # a branch may have changed: the Hub is asked once
    assert pull(NAME) == folder
    assert len(hub.requests) == (0 if fault == "closed" else 1)
    note = capsys.readouterr().err
    assert note.count("\n") == 1
    assert f"fetched before, commit {commit[:8]}" in note


def _closed_port() -> str:
    """Return an address that refuses connections."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_a_copy_that_lacks_a_file_is_completed_and_never_used_as_it_is(
    hub, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = hub.add("me/small", small_model).commit
    folder = pull(NAME)
    (folder / "tokenizer.json").unlink()
    monkeypatch.setattr(transfer, "PATIENCE", 0.5)
    hub.fault = "silent"
    for revision in (None, commit):
        with pytest.raises(LitebertError, match="LB-623"):
            pull(NAME, revision)
    hub.fault = ""
    assert pull(NAME, commit) == folder
    assert (folder / "tokenizer.json").is_file()


def test_a_copy_that_another_library_began_is_completed_if_the_hub_answers(
    hub, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = hub.add("me/small", small_model).commit
    for name in ("config.json", "model.safetensors"):
        weights = hf_hub_download(NAME, name)
    folder = Path(weights).parent
    monkeypatch.setattr(transfer, "PATIENCE_WITH_COPY", 0.5)
    hub.fault = "silent"
    assert pull(NAME) == folder
    assert not (folder / "tokenizer.json").exists()
    hub.fault = ""
    assert pull(NAME, commit) == folder
    assert (folder / "tokenizer.json").is_file()


def test_a_branch_that_moved_is_fetched_again_and_one_that_did_not_is_asked_once(
    hub, small_model: Path
) -> None:
    repository = hub.add("me/small", small_model)
    folder = pull(NAME)
    hub.requests.clear()
    assert pull(NAME) == folder
    assert hub.requests == ["GET /api/models/me/small"]
    repository.files["README.md"] = b"# changed"
    moved = pull(NAME)
    assert moved != folder
    assert (moved / "README.md").read_bytes() == b"# changed"


def test_pulls_that_overlap_leave_the_session_as_it_was(hub, small_model: Path) -> None:
    names = ["me/first", "me/second"]
    for name in names:
        hub.add(name, small_model)
    before = get_session().event_hooks["request"]
    hub.held.update(names)
    with ThreadPoolExecutor() as pool:
        pulls = []
        for name in names:
            pulls.append(pool.submit(pull, name))
            # the next begins when this one waits for its answer
            wait_until(lambda name=name: any(name in seen for seen in hub.requests))
        # the first that began ends first
        for name, pulled in zip(names, pulls, strict=True):
            hub.held.remove(name)
            assert (pulled.result(timeout=60) / "model.safetensors").is_file()
    assert get_session().event_hooks["request"] == before


def test_a_wrong_name_or_revision_and_pickled_weights_are_reported(
    hub, small_model: Path
) -> None:
    files = hub.add("me/small", small_model).files
    for name in ("me/none", "me/small@v9", "me/a--b"):
        with pytest.raises(LitebertError, match="LB-629"):
            locate(name)
    files["pytorch_model.bin"] = files.pop("model.safetensors")
    with pytest.raises(
        LitebertError,
        match=r"LB-634[\s\S]*pytorch_model\.bin[\s\S]*import huggingface me/small",
    ):
        locate("me/small")
    assert (locate("me/small", legacy_pickle=True) / "pytorch_model.bin").is_file()


def test_a_cache_that_cannot_be_written_is_reported(
    hub, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("me/small", small_model)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
        with pytest.raises(ResourceError, match="LB-001"):
            pull(NAME)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", __file__ + "/hub")
    with pytest.raises(LitebertError, match=r"LB-255[\s\S]*test_hub\.py/hub"):
        pull(NAME)


ABSENT = {  # paths, and a part of the message
    "runs/mien": "did you mean mine",
    "runs/mine/modle": "did you mean model",
    "runs/mine/model/config.json": "received: a file",
    "rusn": "did you mean runs",
    "/nowhere/at/all": "a model folder, or a name on the Hub",
    "../elsewhere": "a model folder, or a name on the Hub",
    "a text instead of a path. " * 300: "too long",
    "a\0b": "received: no such folder",
    **dict.fromkeys(
        ("runs/yours", "mine/model", "mine/best", "models/base", "a/b.json"), ""
    ),
}


def test_a_missing_path_causes_no_request_to_the_hub(
    hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs/mine/model").mkdir(parents=True)
    (tmp_path / "runs/mine/model/config.json").touch()
    monkeypatch.chdir(tmp_path)
    for path, said in ABSENT.items():
        with pytest.raises(LitebertError, match=rf"LB-620[\s\S]*{said}"):
            locate(path)
    assert hub.requests == []
    for text in ("name", "a/b/c", "a b/c", "/a/b", "a/", "a/b@", "~/x", "a/b@c d"):
        with pytest.raises(LitebertError, match="LB-636"):
            parse_name(text)


def test_a_name_without_its_owner_is_told_the_owner(hub) -> None:
    with pytest.raises(LitebertError, match=r"LB-620[\s\S]*OWNER/NAME") as raised:
        locate("bert-base-uncased")
    assert raised.value.next == "--model google-bert/bert-base-uncased"
    with pytest.raises(LitebertError) as raised:
        locate("albert-base-v2")
    assert raised.value.next == "--model albert/albert-base-v2"
    assert hub.requests == []


def test_the_packaged_model_has_a_name_and_a_folder_of_that_name_takes_precedence(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert locate("litebert") == packaged_model()
    shutil.copytree(small_model, "litebert")
    assert locate("litebert") == Path("litebert")


# One verb for each way to a model: verbs that answer a typed text share one, as do
# those that train or convert.
VERBS = {
    "embed": "embed 'the cat sat' --model {model} --pooling mean",
    "evaluate text": "evaluate {model} --data {texts}/documents.jsonl",
    "export onnx": "export onnx {model} new/model.onnx",
    "hub push": "hub push {model} me/new --dry-run",
    "pretrain": (
        "pretrain {texts}/texts.txt --from {model} objective.max_seq_length=64"
        " --dry-run"
    ),
    "finetune": "finetune {texts}/rows.csv --model {model} --dry-run",
    "tokenizer encode": "tokenizer encode 'the cat' --tokenizer {model}",
    "corpus build": (
        "corpus build {texts}/texts.txt --tokenizer {model} --output new --held-out 0"
        " --sentences line"
    ),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_takes_a_name_on_the_hub_or_a_run(
    verb: str, hub, small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sentences = [
        "the cat sat on the mat",
        "a dog ran after the cat",
        "the mat was red and blue",
    ]
    Path("texts.txt").write_text("\n\n".join(["\n".join(sentences)] * 30) + "\n")
    Path("documents.jsonl").write_text(
        (json.dumps({"text": ". ".join(sentences) + "."}) + "\n") * 30
    )
    Path("rows.csv").write_text(
        "text,label\n" + "".join(f"{t},{n % 2}\n" for n, t in enumerate(sentences * 20))
    )
    hub.add("me/small", small_model)
    shutil.copytree(small_model, "run/model")
    Path("run/run.json").write_text(
        json.dumps({"settings": {"data.corpus": "c"}, "origins": {}, "data": {}})
    )
    typed = VERBS[verb].format(
        model="run" if verb == "hub push" else "me/small", texts="."
    )
    assert litebert(*shlex.split(typed)).ok


# ---- publishing ----------------------------------------------------------------------


@pytest.fixture
def folder(small_model: Path, tmp_path: Path) -> Path:
    """Return a model folder that also holds private files."""
    folder = shutil.copytree(small_model, tmp_path / "model")
    for name in ("secret.txt", "optimizer.pt", "optimizer.safetensors"):
        (folder / name).touch()
    return folder


def test_a_published_model_is_the_one_in_the_folder(
    hub, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dry = ("hub", "push", folder, "me/new", "--dry-run")
    shown = litebert(*dry).stdout
    plan = litebert(*dry, "--json").json
    assert (
        "model.safetensors" in shown
        and 'litebert.load("me/new")' in shown
        and "secret" not in shown
    )
    assert plan["card"] == "made" and hub.requests == []
    assert (
        plan["files"]["model.safetensors"]
        == (folder / "model.safetensors").stat().st_size
    )
    shown = litebert("hub", "push", folder, "me/new", "--license", "mit", "--json")
    repository = hub.repositories["me/new"]
    assert shown.json["commit"].endswith(repository.commit)
    sent = {
        path: data for path, data in repository.files.items() if path != "README.md"
    }
    names = [
        "config.json",
        "model.safetensors",
        "spiece.model",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    assert sorted(sent) == names and all(
        (folder / path).read_bytes() == data for path, data in sent.items()
    )
    assert (repository.messages, repository.private) == (["Upload model"], False)
    assert (
        not (folder / "README.md").exists()
        and not read_folder(locate("me/new")).missing
    )
    monkeypatch.setenv("HF_TOKEN", "hf_of_a_user")
    assert litebert("hub", "push", folder, "me/draft@draft", "--private").ok
    draft = hub.repositories["me/draft"]
    assert draft.private and draft.branches == {"main", "draft"}


def test_pushes_that_should_not_be_sent_are_refused(hub, folder: Path) -> None:
    before = hub.add("me/public", folder).commit
    with pytest.raises(LitebertError, match="LB-632"):
        hub_push(folder, "me/public", private=True)
    assert hub.repositories["me/public"].commit == before
    hub.requests.clear()
    with pytest.raises(LitebertError, match="LB-636"):
        hub_push(folder, "new")
    hub.fault = "401"
    with pytest.raises(LitebertError, match=r"LB-629[\s\S]*me/new"):
        hub_push(folder, "me/new")
    hub.requests.clear()
    (folder / "model.safetensors").write_bytes(b"0" * 100)
    with pytest.raises(DamagedError, match="LB-603"):
        hub_push(folder, "me/new")
    assert hub.requests == []


# ---- the card ------------------------------------------------------------------------


def test_a_card_shows_the_run_and_the_command_but_no_paths(
    hub, small_model: Path, folder: Path
) -> None:
    card = model_card(
        small_model, name="me/new", license="apache-2.0", languages=["en", "de"]
    )
    header = {
        "license": "apache-2.0",
        "language": ["en", "de"],
        "library_name": "litebert",
    }
    header |= {
        "pipeline_tag": "fill-mask",
        "tags": ["albert", "masked-lm", "sentence-order"],
    }
    assert ModelCard(card).data.to_dict() == header
    assert (
        f"{sum(p.numel() for p in read_folder(folder).network.parameters()):,}"
        " parameters" in card
    )
    assert "## Training" not in card

    # The folder of a run, as pretraining leaves it: setting, value, origin
    place = folder.parent
    rows = [("eval", 0, 9.5), ("train", 7, 8.5), ("eval", 8, 7.25)]
    settings = {
        "optim.learning_rate": (0.001, "command line: optim.learning_rate=0.001"),
        **dict.fromkeys(
            ("data.corpus", "start.model", "distil.teacher", "teacher.run"),
            ("/home/me", "flag"),
        ),
        "data.mix": (["/home/me/other"], "flag"),
        "data.weights": ([3, 1], "flag"),
        "train.seed": (1, "default"),
        "model.hidden_size": (32, "preset mini (recipe laptop)"),
        "train.steps": (70, "measured here"),
        "optim.beta1": (0.9, "recipe laptop"),
    }
    values, origins = (
        {name: pair[n] for name, pair in settings.items()} for n in (0, 1)
    )
    recorded = {
        "litebert": "0.1.0",
        "settings": values,
        "origins": origins,
        "data": {"training corpus": "c0ffee"},
    }
    (place / "run.json").write_text(json.dumps(recorded))
    lines = (
        json.dumps({"kind": kind, "step": step, "masked_lm_loss": loss})
        for kind, step, loss in rows
    )
    (place / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    text = model_card(folder)
    command = "litebert distil TEACHER --corpus CORPUS --from MODEL --teacher RUN"
    assert all(
        part in text
        for part in ("| masked_lm_loss | 7.25 |", "step 8 of the run", "`c0ffee`")
    )
    assert "/home/me" not in text and "train.seed" not in text
    words = """'data.mix=["CORPUS"]' 'data.weights=[3, 1]' optim.learning_rate=0.001 train.steps=70"""  # noqa: E501
    assert f"{command} --recipe laptop --name {place.name} {words}\n" in text

    # Our own card is written again, a card of the user's is sent unchanged.
    write_card(folder)
    planned = hub_push(folder, "me/new", license="mit", dry_run=True)
    assert planned.value["card"] == "made" and 'license: "mit"' in planned.text
    (folder / "README.md").write_text("---\nlicense: mit\n---\nMine.\n")
    hub_push(folder, "me/new")
    assert (
        hub.repositories["me/new"].files["README.md"]
        == (folder / "README.md").read_bytes()
    )
    with pytest.raises(LitebertError, match="LB-637"):
        hub_push(folder, "me/new", license="mit")

    result = {
        "task": "mine",
        "key_measure": "accuracy",
        "evaluations": 2,
        "fresh": [],
        "doubts": ["it is odd"],
    }
    result |= {
        "last": {"step": 8, "accuracy": 0.75},
        "best": {"step": 4, "accuracy": 0.875},
    }
    for baseline, shown in (({}, "0.75 |"), ({"accuracy": 0.5}, "0.75 | 0.5 |")):
        (place / "result.json").write_text(json.dumps(result | {"baseline": baseline}))
        assert f"| accuracy | {shown}\n" in model_card(
            folder
        ) and "**Warning**: it is odd.\n" in model_card(folder)
    shutil.copytree(folder, place / "best")
    assert "| accuracy | 0.875 | 0.5 |\n" in model_card(place / "best")


LABELS = {
    "sequence-classification": ("no", "yes"),
    "token-classification": ("O", "B", "I"),
}
CONDITIONAL = "conditional-question-answering"


@pytest.mark.parametrize(
    "kind", ["", *LABELS, "question-answering", CONDITIONAL, "multiple-choice"]
)
def test_the_code_in_a_card_runs_and_names_what_transformers_lacks(
    kind: str, folder: Path
) -> None:
    config = read_config(folder)
    draws = torch.Generator().manual_seed(1)
    if kind:
        head = HeadConfig(kind=kind, labels=LABELS.get(kind, ()))
        write_folder(ModelFolder(AlbertForTask(config, head, generator=draws)), folder)
    else:
        partial = config.model_copy(update={"sharing": "attention"})
        write_folder(
            ModelFolder(AlbertForPretraining(partial, generator=draws)), folder
        )
    text = model_card(folder)
    assert ("reads 3 separate layers" in text) == (not kind)
    assert ("transformers has no such head" in text) == (kind == CONDITIONAL)
    for code in blocks(text):
        exec(code, {})
