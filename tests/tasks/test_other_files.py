"""Other files are read as the training file was, from the settings that a run recorded,
without the training file.
"""

from pathlib import Path
from typing import Any, TypeAlias

import pytest

from litebert.errors import LitebertError
from litebert.tasks.kinds.family import Dataset
from litebert.tasks.kinds.text import TextExample
from litebert.tasks.tables.dataset import require_same_data, table_dataset
from tests.tables import Write, csv_text, numbered_reviews

AnyDataset: TypeAlias = Dataset[Any, Any]
GONE = Path("gone.csv")  # the training file of a run that was moved


@pytest.fixture
def dataset(write: Write) -> AnyDataset:
    """Return the data set of a training file and one to evaluate on."""
    train = write("train.csv", numbered_reviews(20))
    return table_dataset(train, write("dev.csv", numbered_reviews(6)))


def test_a_file_to_evaluate_on_leaves_all_rows_to_train_on(
    dataset: AnyDataset, tmp_path: Path
) -> None:
    assert len(dataset.read(tmp_path / "train.csv", "train")) == 20
    assert len(dataset.read(tmp_path / "train.csv", "dev")) == 6
    assert len(dataset.read(tmp_path / "dev.csv", "dev")) == 6


def test_settings_suffice_without_the_training_file(
    dataset: AnyDataset, tmp_path: Path
) -> None:
    recalled = table_dataset(GONE, settled=dataset.settled)
    assert recalled.family == dataset.family
    dev = tmp_path / "dev.csv"
    assert recalled.read(dev, "dev") == dataset.read(dev, "dev")


def test_a_label_that_the_training_file_lacks_is_refused(
    dataset: AnyDataset, write: Write
) -> None:
    path = write("odd.csv", "text,label\nso,pos\nno,negg\n")
    message = r"odd\.csv, line 3: the training data has no label"
    with pytest.raises(LitebertError, match=message) as caught:
        dataset.read(path, "dev")
    assert "did you mean neg?" in caught.value.next


def test_labels_are_needed_to_evaluate_but_not_to_predict(
    dataset: AnyDataset, write: Write
) -> None:
    path = write("new.csv", "text\nso, and so\nwell\n")
    assert dataset.read(path, "test") == [
        TextExample("2", "so, and so"),
        TextExample("3", "well"),
    ]
    message = r"LB-896: .*new\.csv has no labels"
    with pytest.raises(LitebertError, match=message) as caught:
        dataset.read(path, "dev")
    assert caught.value.next.startswith("use predict ")


def test_a_column_of_another_name_can_be_chosen(
    dataset: AnyDataset, write: Write
) -> None:
    path = write("txt.csv", "txt,label\na b,pos\n")
    message = r"LB-851: there is no column text in .*txt\.csv"
    with pytest.raises(LitebertError, match=message):
        dataset.read(path, "test")
    renamed = table_dataset(GONE, columns=("text=txt",), settled=dataset.settled)
    assert len(renamed.read(path, "dev")) == 1


def test_there_are_three_splits(dataset: AnyDataset, tmp_path: Path) -> None:
    with pytest.raises(LitebertError, match="LB-867"):
        dataset.read(tmp_path / "train.csv", "validation")


# ---- headers -------------------------------------------------------------------------


def test_a_file_with_a_header_can_follow_one_without(write: Write) -> None:
    rows = "a fine film,pos\na dull film,neg\n" * 9
    dataset = table_dataset(write("bare.csv", rows))
    assert dataset.settled["columns"] == ["text=1", "label=2", "header=no"]
    path = write("new.csv", "text,label\nan odd film,pos\n")
    assert len(dataset.read(path, "test")) == 2


def test_a_name_with_a_comma_is_recalled(write: Write) -> None:
    header = 'satz,"Note, 1-5"\n'
    rows = "eine gute Zeit,ja\nkeine gute Zeit,nein\n" * 9
    columns = ("label=Note, 1-5",)
    dataset = table_dataset(write("named.csv", header + rows), columns=columns)
    unlabeled = write("unlabeled.csv", "satz\ngut\n")
    assert dataset.read(unlabeled, "test") == [TextExample("2", "gut")]

    labeled = write("labeled.csv", header + "gut,nein\n")
    for typed in ((), columns):
        recalled = table_dataset(GONE, columns=typed, settled=dataset.settled)
        assert recalled.read(labeled, "dev") == [TextExample("2", "gut", None, 1)]


@pytest.mark.parametrize("split", ["dev", "test"])
def test_a_second_file_without_names_is_told_which_columns_to_give(
    write: Write, split: str
) -> None:
    dataset = table_dataset(write("train.csv", numbered_reviews()))
    _, _, rows = numbered_reviews().partition("\n")
    bare = write("bare.csv", rows)
    with pytest.raises(LitebertError, match=r"LB-897: .*no names of col") as caught:
        dataset.read(bare, split)
    advice = "--column text=1 --column label=2 --column header=no"
    assert caught.value.next == advice

    columns = [word for word in advice.split() if "=" in word]
    advised = table_dataset(GONE, columns=columns, settled=dataset.settled)
    assert len(advised.read(bare, "dev")) == 40


def test_a_second_file_with_other_names_lacks_a_column(write: Write) -> None:
    dataset = table_dataset(write("train.csv", numbered_reviews()))
    _, _, rows = numbered_reviews().partition("\n")
    path = write("other.csv", f"review,verdict\n{rows}")
    with pytest.raises(LitebertError, match="LB-851"):
        dataset.read(path, "test")


# ---- runs that are averaged ----------------------------------------------------------


@pytest.fixture
def titled(write: Write) -> Path:
    rows: list[tuple[object, ...]] = [("text", "title", "label")]
    for number in range(20):
        rows.append((f"row {number}", f"line {number}", number % 2))
    return write("titled.csv", csv_text(rows))


def test_only_runs_of_the_same_columns_are_averaged(titled: Path) -> None:
    run = table_dataset(titled, columns=("text=text",))
    again = table_dataset(titled, columns=("text=text",))
    require_same_data({"run": run, "again": again}, titled)
    of_titles = table_dataset(titled, columns=("text=title",))
    with pytest.raises(LitebertError, match="LB-880"):
        require_same_data({"run": run, "titles": of_titles}, titled)


def test_runs_of_two_files_are_averaged_on_a_third_only(
    titled: Path, write: Write
) -> None:
    longer = write("longer.csv", titled.read_text() + "one,more,0\n")
    runs = {
        "run": table_dataset(titled, columns=("text=text",)),
        "longer": table_dataset(longer, columns=("text=text",)),
    }
    require_same_data(runs, write("new.csv", "text,title,label\na,b,1\n"))
    with pytest.raises(LitebertError, match="LB-880"):
        require_same_data(runs, titled)
