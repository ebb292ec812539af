"""Folders of texts: a folder for each label, perhaps below one for each split."""

import os
from pathlib import Path

import pytest

from litebert.errors import LitebertError
from litebert.tasks.tables.dataset import table_dataset
from litebert.tasks.tables.layouts import hash_table, open_table
from tests.tables import REVIEWS, Write, read_pairs


def write_texts(folder: Path, pairs: list[tuple[str, str]]) -> Path:
    """Write each text into the folder of its label, as a numbered file."""
    for number, (text, label) in enumerate(pairs):
        (folder / label).mkdir(parents=True, exist_ok=True)
        (folder / label / f"{number}.txt").write_text(text, "utf-8")
    return folder


# ---- a folder for each label ---------------------------------------------------------


def test_a_folder_for_each_label_is_read(tmp_path: Path) -> None:
    folder = write_texts(tmp_path, REVIEWS * 2)
    assert sorted(read_pairs(folder)) == sorted(REVIEWS * 2)
    assert "8 texts in the folders of 2 labels" in table_dataset(folder).notes[0]


def test_files_beside_the_texts_are_not_read(tmp_path: Path) -> None:
    folder = write_texts(tmp_path, REVIEWS * 2)
    (folder / "README.txt").write_text("about", "utf-8")
    (folder / "good" / ".DS_Store").write_bytes(b"\0\x81")
    assert len(read_pairs(folder)) == 8


def test_a_run_holds_out_the_same_texts_again(tmp_path: Path) -> None:
    folder = write_texts(tmp_path, REVIEWS * 2)
    dataset = table_dataset(folder)
    held_out = dataset.read(folder, "dev")
    assert held_out
    assert (
        table_dataset(folder, settled=dataset.settled).read(folder, "dev") == held_out
    )


def test_a_text_is_named_by_its_file(tmp_path: Path) -> None:
    folder = write_texts(tmp_path, REVIEWS)
    examples = table_dataset(folder, folder).read(folder, "train")
    names = {"good/0.txt", "bad/1.txt", "good/2.txt", "bad/3.txt"}
    assert {example.id for example in examples} == names


def test_texts_are_not_held_out_of_a_folder_that_has_changed(tmp_path: Path) -> None:
    folder = write_texts(tmp_path, REVIEWS * 2)
    run = table_dataset(folder).settled
    (folder / "good" / "new.txt").write_text("one more", "utf-8")
    with pytest.raises(LitebertError, match="LB-890"):
        table_dataset(folder, settled=run).read(folder, "dev")


def test_names_that_are_not_utf8_are_read_and_hashed(tmp_path: Path) -> None:
    bad = os.fsdecode(b"b\xe9d")
    write_texts(tmp_path, [("A film.", "good"), ("A film.", bad)])
    rows = [row for _, row in open_table(tmp_path).rows()]
    assert {row["label"] for row in rows} == {"good", bad}
    assert len(hash_table(tmp_path)) == 64


# ---- a folder for each split ---------------------------------------------------------


@pytest.mark.parametrize(("split", "folder"), [("train", "train"), ("dev", "test")])
def test_folders_for_splits_stand_above_those_for_labels(
    split: str, folder: str, tmp_path: Path
) -> None:
    for name in ("train", "test"):
        write_texts(
            tmp_path / name, [(f"{name} {text}", label) for text, label in REVIEWS]
        )
    examples = table_dataset(tmp_path).read(tmp_path, split)
    assert {example.first.split()[0] for example in examples} == {folder}


def test_a_folder_of_files_for_splits_is_refused_with_the_command(
    tmp_path: Path,
) -> None:
    for name in ("train.csv", "validation.csv", "test.csv"):
        (tmp_path / name).write_text("text,label\na,b\n", "utf-8")
    with pytest.raises(LitebertError) as raised:
        open_table(tmp_path)
    train = tmp_path / "train.csv"
    dev = tmp_path / "validation.csv"
    assert raised.value.next == f"litebert finetune {train} --dev {dev}"


# ---- a folder without labels ---------------------------------------------------------


def test_texts_without_labels_can_be_answered(tmp_path: Path, write: Write) -> None:
    table = write("b.csv", "Review,Stars,Shop\nso good,a,x\nso bad,b,y\n")
    dataset = table_dataset(table, columns=("text=Review", "label=Stars"))
    folder = tmp_path / "new"
    folder.mkdir()
    (folder / "a.txt").write_text("one\n", "utf-8")
    (example,) = dataset.read(folder, "test")
    assert example.id == "a.txt"
    assert example.first == "one"


def test_texts_without_labels_cannot_be_trained_on(write: Write) -> None:
    folder = write("a.txt", "one\n").parent
    with pytest.raises(LitebertError, match=r"LB-861(.|\n)*like its label"):
        table_dataset(folder)


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LitebertError, match="LB-869"):
        open_table(tmp_path)
