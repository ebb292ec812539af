"""Loading and saving: folders, files, settings beside them, and what is no tokenizer."""

from pathlib import Path

import pytest

from litebert import files
from litebert.errors import LitebertError
from litebert.tokenizer import Tokenizer


def test_a_saved_folder_loads_as_the_same_tokenizer(own: Tokenizer, own_model: bytes, tmp_path: Path) -> None:
    own.save(tmp_path / "new" / "folder")
    folder = tmp_path / "new" / "folder"
    assert (folder / "spiece.model").read_bytes() == own_model
    assert Tokenizer.load(folder).hash == own.hash
    assert Tokenizer.load(str(folder / "spiece.model")).hash == own.hash


def test_saving_leaves_other_files_alone(own: Tokenizer, tmp_path: Path) -> None:
    files.write_text(tmp_path / "config.json", "{}")
    own.save(tmp_path, max_length=128)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["config.json", "spiece.model", "tokenizer.json", "tokenizer_config.json"]
    config = files.read_json(tmp_path / "tokenizer_config.json", command="")
    assert config["model_max_length"] == 128


def test_any_model_file_name_will_do(own_model: bytes, tmp_path: Path) -> None:
    files.write_bytes(tmp_path / "30k-clean.model", own_model)
    assert Tokenizer.load(tmp_path / "30k-clean.model").vocab_size == 300


@pytest.mark.parametrize("case", [True, False])
def test_settings_beside_the_vocabulary_count(own_model: bytes, tmp_path: Path, case: bool) -> None:
    files.write_bytes(tmp_path / "spiece.model", own_model)
    files.write_json(tmp_path / "tokenizer_config.json", {"do_lower_case": case, "x": None})
    for path in (tmp_path, tmp_path / "spiece.model"):
        encoding = Tokenizer.load(path).encode("Jürgen")
        assert (Tokenizer.load(path).unk_id in encoding.ids) is not case


def test_a_setting_that_is_no_switch_is_refused(own_model: bytes, tmp_path: Path) -> None:
    files.write_bytes(tmp_path / "spiece.model", own_model)
    files.write_json(tmp_path / "tokenizer_config.json", {"do_lower_case": "yes"})
    with pytest.raises(LitebertError, match=r"LB-214.*\n.*yes\n.*true or false"):
        Tokenizer.load(tmp_path)


def test_a_run_has_the_vocabulary_of_its_model(own: Tokenizer, tmp_path: Path) -> None:
    own.save(tmp_path / "model")
    assert Tokenizer.load(tmp_path).hash == own.hash


@pytest.mark.parametrize("name", ["", "missing", "tokenizer.json"])
def test_what_is_no_tokenizer_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(LitebertError, match="LB-213"):
        Tokenizer.load(tmp_path / name)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LitebertError, match="LB-004"):
        Tokenizer.load(tmp_path / "spiece.model")
