"""The two commands as they are typed."""

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from litebert.cli.export import export
from litebert.cli.import_ import import_


def _typed(*words: str | Path) -> subprocess.CompletedProcess[str]:
    code = "import sys; from litebert.cli import main; main()"
    command = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_import_says_what_it_read_and_left(written: Path, tmp_path: Path) -> None:
    shown = CliRunner().invoke(
        import_, ["google", str(written / "pretraining"), "--output", str(tmp_path / "model")], catch_exceptions=False
    )
    assert shown.stdout.splitlines() == [
        "read   model.ckpt-best: 32 variables, 3,050 parameters in float32",
        "heads  masked LM, sentence order",
        f"wrote  {tmp_path / 'model'}",
        "note   the optimizer was omitted: --optimizer keeps it",
        "note   no tokenizer was found with the checkpoint: add one with --tokenizer FILE",
    ]


def test_both_commands_report_in_json(written: Path, vocabulary: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    flags = ["--labels", "no,maybe,yes", "--tokenizer", str(vocabulary), "--heads", "2", "--json"]
    words = ["google", str(written / "labels"), "--output", str(model), *flags]
    read = CliRunner().invoke(import_, words, catch_exceptions=False)
    report = json.loads(read.stdout)
    assert report["heads"] == ["sequence-classification"]
    assert report["tokenizer"] == "30k-clean.model"
    assert report["notes"] == []
    config = json.loads((model / "config.json").read_text())
    assert config["num_attention_heads"] == 2
    assert list(config["id2label"].values()) == ["no", "maybe", "yes"]
    words = ["google", str(model), str(tmp_path / "out"), "--shards", "2", "--json"]
    report = json.loads(CliRunner().invoke(export, words, catch_exceptions=False).stdout)
    assert {path.name for path in (tmp_path / "out").iterdir()} == set(report["files"])
    assert report["num_variables"] == 28


def test_export_says_what_it_wrote(written: Path, tmp_path: Path) -> None:
    runner = CliRunner()
    words = ["google", str(written / "pretraining"), "--output", str(tmp_path / "m"), "--optimizer"]
    assert "steps  7" in runner.invoke(import_, words, catch_exceptions=False).stdout
    words = ["google", str(tmp_path / "m"), str(tmp_path / "out"), "--optimizer"]
    lines = runner.invoke(export, words, catch_exceptions=False).stdout.splitlines()
    assert lines[0].endswith("model.ckpt-best: 97 variables, 3,050 parameters in float32")
    assert lines[1] == "steps  7, with the optimizer's moments"
    assert lines[2].startswith("files  albert_config.json, ")


def test_a_users_mistake_is_four_lines_and_a_hostile_archive_leaves_nothing(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "albert.tar.gz", "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("../../escaped"))
    done = _typed("import", "google", tmp_path / "albert.tar.gz", "--output", tmp_path / "model")
    assert done.returncode == 1
    assert done.stderr.startswith("LB-700: ")
    assert len(done.stderr.splitlines()) == 4
    assert done.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["albert.tar.gz"]


def test_a_damaged_checkpoint_has_its_own_exit_code(written: Path, tmp_path: Path) -> None:
    for path in (written / "labels").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    index = tmp_path / "model.ckpt-best.index"
    index.write_bytes(index.read_bytes()[:-1])
    done = _typed("import", "google", index, "--output", tmp_path / "model")
    assert done.returncode == 3
    assert done.stderr.startswith("LB-703: ")


@pytest.mark.parametrize("package", ["google_crc32c", "cramjam"])
def test_a_missing_package_names_the_extra(written: Path, tmp_path: Path, package: str) -> None:
    code = f"import sys; sys.modules['{package}'] = None; from litebert.cli import main; main()"
    words = ["import", "google", str(written / "labels"), "--output", str(tmp_path / "model")]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert done.returncode == 1
    assert "pip install 'litebert[google]'" in done.stderr
    assert len(done.stderr.splitlines()) == 4


@pytest.mark.parametrize(("group", "formats"), [(import_, {"google"}), (export, {"google"})])
def test_formats_are_found_and_misspelt_ones_are_guessed(group: object, formats: set[str]) -> None:
    shown = CliRunner().invoke(group, ["--help"]).output
    assert formats <= set(shown.split())
    missed = CliRunner().invoke(group, ["gogle"])
    assert missed.exit_code == 2
    assert "did you mean google?" in missed.output
