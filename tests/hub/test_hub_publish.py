"""What is published is the model and a card of facts; nothing is sent that was not asked for."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from huggingface_hub import ModelCard

from litebert.cli.hub import hub as command
from litebert.config import HeadConfig
from litebert.errors import DamagedError, LitebertError
from litebert.folder import load_model, save_model
from litebert.hub import locate
from litebert.hub.card import model_card, plan_publication, write_card
from litebert.nn import AlbertForPretraining, AlbertForTask

HEADS = [
    HeadConfig(kind="sequence-classification", labels=("no", "yes")),
    HeadConfig(kind="token-classification", labels=("O", "B", "I")),
    HeadConfig(kind="question-answering"),
    HeadConfig(kind="conditional-question-answering"),
    HeadConfig(kind="multiple-choice"),
]


@pytest.fixture
def folder(small_model: Path, tmp_path: Path) -> Path:
    """Give a model folder that also holds what is nobody's business."""
    shutil.copytree(small_model, tmp_path / "model")
    (tmp_path / "model" / "secret.txt").write_text("private")
    (tmp_path / "model" / "optimizer.pt").write_bytes(b"0")
    return tmp_path / "model"


@pytest.fixture
def run(folder: Path) -> Path:
    """Make the folder that of a run, as pretraining leaves it."""
    recorded = {
        "litebert": "0.1.0",
        "settings": {"optim.learning_rate": 0.001, "data.corpus": "/home/me", "train.seed": 1},
        "origins": {"optim.learning_rate": "flag", "data.corpus": "flag", "train.seed": "default"},
        "data": {"training corpus": "c0ffee"},
    }
    rows = [
        {"kind": "eval", "step": 0, "masked_lm_loss": 9.5},
        {"kind": "train", "step": 7, "masked_lm_loss": 8.5},
        {"kind": "eval", "step": 8, "masked_lm_loss": 7.25},
    ]
    (folder.parent / "run.json").write_text(json.dumps(recorded))
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    (folder.parent / "metrics.jsonl").write_text(text)
    return folder.parent


def _python(card: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", card, flags=re.DOTALL)


def _small(head: HeadConfig | None, small_model: Path, folder: Path, **changes: str) -> Path:
    """Write a model with another head, or another sharing, and the small model's tokenizer."""
    shutil.copytree(small_model, folder)
    config = load_model(small_model).network.config.model_copy(update=changes)
    generator = torch.Generator().manual_seed(1)
    save_model(
        AlbertForTask(config, head, generator=generator) if head else AlbertForPretraining(config, generator=generator),
        folder,
    )
    return folder


def test_a_published_model_is_the_one_in_the_folder(hub, folder: Path) -> None:
    words = ["push", str(folder), "me/new", "--message", "First", "--license", "mit", "--json"]
    shown = CliRunner().invoke(command, words, catch_exceptions=False)
    repository = hub.repositories["me/new"]
    assert json.loads(shown.stdout)["commit"].endswith(repository.commit)
    sent = {path: data for path, data in repository.files.items() if path != "README.md"}
    names = ["config.json", "model.safetensors", "spiece.model", "tokenizer.json"]
    assert sorted(sent) == [*names, "tokenizer_config.json"]
    assert all((folder / path).read_bytes() == data for path, data in sent.items())
    assert repository.messages == ["First"]
    assert not repository.private
    assert not (folder / "README.md").exists()
    assert not load_model(locate("me/new")).missing


def test_a_dry_run_sends_nothing(hub, folder: Path) -> None:
    words = ["push", str(folder), "me/new", "--dry-run"]
    shown = CliRunner().invoke(command, words, catch_exceptions=False)
    assert "model.safetensors" in shown.stdout
    assert 'litebert.load("me/new")' in shown.stdout
    assert "secret" not in shown.stdout
    plan = json.loads(CliRunner().invoke(command, [*words, "--json"]).stdout)
    assert plan["card"] == "made"
    assert plan["files"]["model.safetensors"] == (folder / "model.safetensors").stat().st_size
    assert hub.requests == []


def test_a_branch_is_made_and_private_is_private(hub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_of_a_user")
    words = ["push", str(folder), "me/new", "--private", "--revision", "draft"]
    CliRunner().invoke(command, words, catch_exceptions=False)
    assert hub.repositories["me/new"].private
    assert hub.repositories["me/new"].branches == {"main", "draft"}


def test_private_weights_are_not_sent_to_a_public_place(hub, folder: Path) -> None:
    hub.add("me/public", folder)
    before = hub.repositories["me/public"].commit
    with pytest.raises(LitebertError, match="LB-632"):
        plan_publication(folder, "me/public", private=True).send()
    assert hub.repositories["me/public"].commit == before
    assert hub.uploads == {}


@pytest.mark.parametrize(("fault", "code"), [("401", "LB-630"), ("500", "LB-625")])
def test_a_hub_that_refuses_is_one_error(hub, folder: Path, fault: str, code: str) -> None:
    hub.fault = fault
    with pytest.raises(LitebertError, match=rf"{code}[\s\S]*me/new"):
        plan_publication(folder, "me/new").send()


def test_an_upload_that_stalls_is_given_up(hub, folder: Path) -> None:
    hub.fault = "silent upload"
    with pytest.raises(LitebertError, match="LB-624"):
        plan_publication(folder, "me/new").send(patience=2)


def test_a_folder_that_holds_no_model_is_refused_before_anything_is_sent(hub, folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"0" * 100)
    with pytest.raises(DamagedError, match="LB-603"):
        plan_publication(folder, "me/new")
    with pytest.raises(LitebertError, match="LB-636"):
        plan_publication(folder, "new")
    assert hub.requests == []


def test_a_card_that_is_there_is_kept(hub, folder: Path) -> None:
    (folder / "README.md").write_text("---\nlicense: mit\n---\nMine.\n")
    plan_publication(folder, "me/new").send()
    assert hub.repositories["me/new"].files["README.md"] == (folder / "README.md").read_bytes()
    with pytest.raises(LitebertError, match="LB-637"):
        plan_publication(folder, "me/new", license="mit")


def test_a_card_tells_what_the_hub_and_people_need(folder: Path) -> None:
    text = model_card(folder, name="me/new", license="apache-2.0", languages=["en", "de"])
    assert ModelCard(text).data.to_dict() == {
        "license": "apache-2.0",
        "language": ["en", "de"],
        "library_name": "litebert",
        "pipeline_tag": "fill-mask",
        "tags": ["albert", "masked-lm", "sentence-order"],
    }
    network = load_model(folder).network
    assert f"{sum(p.numel() for p in network.parameters()):,} parameters" in text
    assert "## Training" not in text


def test_a_card_tells_the_run_but_no_paths(folder: Path, run: Path) -> None:
    text = model_card(folder)
    assert "| masked_lm_loss | 7.25 |" in text
    assert "step 8 of the run" in text
    assert "`c0ffee`" in text
    assert "optim.learning_rate" in text
    assert "/home/me" not in text
    assert "train.seed" not in text


def test_a_card_tells_the_measures_of_the_kept_model(folder: Path, run: Path) -> None:
    last, best = ({"step": 8, "accuracy": 0.75}, {"step": 4, "accuracy": 0.875})
    result = {"task": "mine", "key_measure": "accuracy", "last": last, "best": best}
    (run / "result.json").write_text(json.dumps(result | {"evaluations": 2, "fresh": []}))
    shutil.copytree(folder, run / "best")
    assert "| accuracy | 0.75 |" in model_card(folder)
    assert "| accuracy | 0.875 |" in model_card(run / "best")


def test_a_card_names_the_command_that_trains_the_model_again(folder: Path, run: Path) -> None:
    recorded = json.loads((run / "run.json").read_text())
    recorded["origins"] |= {"optim.learning_rate": "command line: optim.learning_rate=0.001"}
    recorded["origins"] |= {"model.hidden_size": "preset mini (recipe laptop)"}
    recorded["origins"] |= {"train.steps": "measured here", "optim.beta1": "recipe laptop"}
    recorded["settings"] |= {"train.steps": 70, "optim.beta1": 0.9, "model.hidden_size": 32}
    (run / "run.json").write_text(json.dumps(recorded))
    command = "litebert pretrain --corpus CORPUS --recipe laptop --name"
    assert f"{command} {run.name} optim.learning_rate=0.001 train.steps=70\n" in model_card(folder)


def test_a_card_that_litebert_wrote_is_written_anew(hub, folder: Path, run: Path) -> None:
    write_card(folder)
    assert "| masked_lm_loss | 7.25 |" in (folder / "README.md").read_text()
    plan = plan_publication(folder, "me/new", license="mit")
    assert not plan.is_card_kept and 'license: "mit"' in plan.card
    (folder / "README.md").write_text("my own words")
    assert plan_publication(folder, "me/new").card == "my own words"


def test_a_damaged_log_is_said(folder: Path, run: Path) -> None:
    (run / "metrics.jsonl").write_text('{"kind": "eval"\n')
    with pytest.raises(DamagedError, match="LB-651"):
        model_card(folder)


def test_a_card_marks_what_transformers_cannot_express(small_model: Path, tmp_path: Path) -> None:
    shared = _small(None, small_model, tmp_path / "shared", sharing="attention")
    assert "reads 3 separate layers" in model_card(shared)
    folder = _small(HEADS[3], small_model, tmp_path / "spans")
    assert "transformers has no such head" in model_card(folder)


@pytest.mark.parametrize("head", [None, *HEADS], ids=lambda h: h.kind if h else "pretraining")
def test_the_code_in_a_card_runs(head: HeadConfig | None, small_model: Path, tmp_path: Path) -> None:
    folder = _small(head, small_model, tmp_path / "model")
    ours, theirs = _python(model_card(folder))
    exec(ours, {})
    exec(theirs, {})
