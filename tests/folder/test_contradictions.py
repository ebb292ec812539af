"""Contradictions in a model folder that can be seen are said when it is loaded."""

import json
import shutil
from pathlib import Path

import pytest

from litebert.folder import read_folder
from tests.contract.tiny import Desk, Random


@pytest.fixture
def folder(desk: Desk, tmp_path: Path) -> Path:
    """Copy a model that is fine-tuned on two labels."""
    return Path(shutil.copytree(desk.reviews / "model", tmp_path / "model"))


def test_a_folder_that_litebert_wrote_has_no_note(folder: Path) -> None:
    assert read_folder(folder).notes == ()


LABELS = {
    "swapped": ({"bad": 1, "good": 0}, "id2label has 'bad' for 0, and label2id 1"),
    "missing": ({"bad": 0}, "id2label has 'good' for 1, and label2id nothing"),
    "of another task": ({"a": 0, "b": 1}, "label2id nothing"),
    "nonsense": ({"bad": [], "good": None}, "contradicts itself"),
}


@pytest.mark.parametrize(("numbers", "said"), LABELS.values(), ids=LABELS)
def test_labels_that_contradict_each_other_are_said(
    folder: Path, numbers: dict[str, object], said: str
) -> None:
    config = json.loads((folder / "config.json").read_text("utf-8"))
    assert config["id2label"] == {"0": "bad", "1": "good"}
    (folder / "config.json").write_text(json.dumps({**config, "label2id": numbers}))
    (note,) = read_folder(folder).notes
    assert said in note


def test_another_vocabulary_beside_the_one_that_is_used_is_said(
    random_model: Random,
) -> None:
    folder = random_model("AlbertForMaskedLM")
    assert (folder / "spiece.model").is_file()
    before = read_folder(folder).notes
    path = folder / "tokenizer.json"
    table = json.loads(path.read_text("utf-8"))
    vocabulary = table["model"]["vocab"]
    vocabulary[20], vocabulary[21] = vocabulary[21], vocabulary[20]
    path.write_text(json.dumps(table), "utf-8")
    *others, note = read_folder(folder).notes
    assert tuple(others) == before
    assert "the vocabularies of this folder differ: in tokenizer.json, piece 20" in note


@pytest.mark.parametrize("content", ["{}", '{"model": {"vocab": [1]}}'])
def test_an_unreadable_second_vocabulary_is_said(
    random_model: Random, content: str
) -> None:
    folder = random_model("AlbertForMaskedLM")
    (folder / "tokenizer.json").write_text(content, "utf-8")
    assert "tokenizer.json cannot be read" in read_folder(folder).notes[-1]
