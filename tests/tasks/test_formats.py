"""Formats of files: each is recognized, and read for what it means; the help and the
docs list all of them.
"""

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import litebert
from litebert.api.training import data_check
from litebert.errors import LitebertError
from litebert.tasks.tables.dataset import table_dataset
from litebert.tasks.tables.layouts import FOLDER, LAYOUTS, SUFFIXES, open_table
from tests.conftest import ROOT
from tests.tables import REVIEWS, Write, read_pairs

PAIRS = REVIEWS * 2


def lines_of(form: str) -> str:
    """Return a line for each pair, with its text and its label put into the form."""
    return "".join(form.format(text=text, label=label) for text, label in PAIRS)


# ---- lines of text -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param(
            "SMSSpamCollection",
            lines_of("{label}\t{text}\n"),
            id="tabs, and a name without an extension",
        ),
        pytest.param("train.txt", lines_of("{text};{label}\n"), id="semicolons"),
        pytest.param(
            "a.txt", "text,label\n" + lines_of('"{text}",{label}\n'), id="a header"
        ),
        pytest.param(
            "a.tab", "text\tlabel\n" + lines_of("{text}\t{label}\n"), id="tab"
        ),
        pytest.param("a.dat", lines_of("{label}|{text}\n"), id="bars"),
        pytest.param(
            "fast.txt",
            lines_of("__label__{label} {text}\n"),
            id="fastText, label first",
        ),
        pytest.param(
            "a.train", lines_of("{text} __label__{label}\n"), id="fastText, label last"
        ),
    ],
)
def test_lines_are_recognized_by_their_shape(
    name: str, content: str, write: Write
) -> None:
    assert read_pairs(write(name, content)) == PAIRS


def test_several_labels_of_fasttext_are_several_labels(write: Write) -> None:
    lines = "__label__a __label__b one text\n__label__a another\n__label__b third\n"
    dataset = table_dataset(write("a.txt", lines * 4))
    assert dataset.settled["problem"] == "multi-label"
    assert dataset.family.head.labels == ("a", "b")


@pytest.mark.parametrize("name", ["a.txt", "prose"])
def test_prose_is_no_table(name: str, write: Write) -> None:
    prose = "It was, as he said, late; we left.\nThey stayed, and we, too, slept.\n"
    with pytest.raises(LitebertError, match=r"LB-304(.|\n)*spreadsheet"):
        open_table(write(name, prose * 10))


# ---- Parquet with the names of its labels --------------------------------------------

TAGS = {"names": ["O", "B-PER"], "_type": "ClassLabel"}
FEATURES = {
    "tokens": {"feature": {"_type": "Value"}, "_type": "Sequence"},
    "tags": {"feature": TAGS, "_type": "Sequence"},
    "topic": {"names": ["sport", "news"], "_type": "ClassLabel"},
}


@pytest.fixture
def parquet_with_names(tmp_path: Path) -> Path:
    """Write numbers of tags and topics, whose names the metadata have, as the library
    datasets does.
    """
    pa = pytest.importorskip("pyarrow")
    parquet: Any = pytest.importorskip("pyarrow.parquet")
    table = pa.table(
        {
            "tokens": [["Anna", "left"]] * 4,
            "tags": [[1, 0]] * 4,
            "topic": [0, 1, 0, -1],
        }
    )
    metadata = json.dumps({"info": {"features": FEATURES}}).encode()
    path = tmp_path / "a.parquet"
    parquet.write_table(table.replace_schema_metadata({b"huggingface": metadata}), path)
    return path


def test_numbers_of_parquet_become_the_names_of_its_metadata(
    parquet_with_names: Path,
) -> None:
    rows = [row for _, row in open_table(parquet_with_names).rows()]
    # -1 stands for a label that is not known
    assert [row["topic"] for row in rows] == ["sport", "news", "sport", None]
    assert rows[0]["tags"] == ["B-PER", "O"]


def test_a_model_trained_on_parquet_has_the_names_of_its_metadata(
    parquet_with_names: Path,
) -> None:
    dataset = table_dataset(parquet_with_names, parquet_with_names)
    assert dataset.family.head.labels == ("B-PER", "O")


# ---- what is listed ------------------------------------------------------------------


@pytest.mark.parametrize("function", [litebert.finetune, data_check])
def test_help_names_formats_that_are_read(function: Callable[..., object]) -> None:
    about_files = str(function.__doc__).split("...")[0]
    suffixes = set(re.findall(r"\.[a-z]+(?=[, ])", about_files))
    assert len(suffixes) >= 5
    assert suffixes <= set(SUFFIXES)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_docs_list_every_format(suffix: str) -> None:
    page = (ROOT / "docs" / "tasks.md").read_text("utf-8")
    assert f"`{suffix}`" in page


def test_every_format_has_one_layout() -> None:
    layouts_of = Counter[str]()
    for layout in LAYOUTS:
        layouts_of.update(layout.suffixes)
    assert set(layouts_of) == {*SUFFIXES, FOLDER}
    assert set(layouts_of.values()) == {1}
