"""Parquet files from strangers: bombs, values that Python lacks, damage; and that honest
files are read in large batches.
"""

from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from litebert.errors import DamagedError, LitebertError
from litebert.reading import parquet
from litebert.reading.parquet import read_parquet
from litebert.reading.source import find_input
from litebert.tasks.own.layouts import open_table
from tests.memory import run_in_child


def write(folder: Path, columns: dict[str, object], **how: object) -> Path:
    path = folder / "a.parquet"
    pq.write_table(pa.table(columns), path, **how)
    return path


def texts(path: Path, column: str = "text") -> list[object]:
    return [row[column] for row in read_parquet(find_input(str(path)), [column])]


def test_a_repeated_string_is_in_memory_once(tmp_path: Path) -> None:
    """A dictionary repeats a string of 8 MiB 4,096 times: 32 GiB, in a few kilobytes."""
    long = pa.array(["x" * (8 << 20)])
    repeated = pa.DictionaryArray.from_arrays(pa.array([0] * 4_096), long)
    path = write(tmp_path, {"text": repeated}, compression="zstd")
    assert path.stat().st_size < 100_000
    code = f"""
from litebert.reading.parquet import read_parquet
from litebert.reading.source import find_input
rows = list(read_parquet(find_input({str(path)!r}), ["text"]))
print(sum(len(row["text"]) for row in rows), used())
"""
    length, most = map(int, run_in_child(code))
    assert length == 4_096 << 23
    assert most < 1 << 30


BOMBS = {
    "a page that compresses well": (
        {"text": ["x" * (12 << 20) + str(n) for n in range(8)]},
        {"compression": "zstd", "use_dictionary": False},
        "LB-307",
    ),
    "a cell": ({"text": ["x" * ((16 << 20) + 1), "y"]}, {}, "LB-311.*cells of column"),
    "a cell of bytes": (
        {"text": [b"x" * ((16 << 20) + 1)]},
        {},
        "LB-311.*cells of column",
    ),
    "lists that repeat a string": (
        {"text": [["x" * 500_000] * 100] * 6},
        {"compression": "zstd"},
        "LB-311.*lists of column",
    ),
    "lists in structures": (
        {"text": [{"a": ["x" * 500_000] * 100}] * 6},
        {"compression": "zstd"},
        "LB-311.*lists of column",
    ),
}


@pytest.mark.parametrize(("columns", "how", "said"), BOMBS.values(), ids=BOMBS)
def test_a_bomb_is_refused(
    tmp_path: Path, columns: dict[str, object], how: dict[str, object], said: str
) -> None:
    path = write(tmp_path, columns, **how)
    with pytest.raises(LitebertError, match=said):
        texts(path)


def test_lists_of_billions_of_equal_values_are_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = pa.ListArray.from_arrays([0, 1 << 20], np.zeros(1 << 20, np.int64))
    path = write(tmp_path, {"text": values})
    monkeypatch.setattr(parquet, "MAX_LISTED_VALUES", 1 << 19)
    with pytest.raises(LitebertError, match=r"LB-311[\s\S]*1,048,576 values"):
        texts(path)


# values of a column that have no Python value
ODD = {
    "a date after 9999": pa.array([0, 2**31 - 1], pa.int32()).cast(pa.date32()),
    "a time after 9999": pa.array([0, 2**62], pa.int64()).cast(pa.timestamp("us")),
    "a zone that is unknown": pa.array([0, 1], pa.timestamp("us", "Nowhere/None")),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_a_value_that_python_lacks_matters_only_in_a_column_that_is_used(
    tmp_path: Path, odd: pa.Array
) -> None:
    path = write(tmp_path, {"text": ["one", "two"], "when": odd, "label": ["a", "b"]})
    table = open_table(path)
    assert [row["text"] for _, row in table.rows()] == ["one", "two"]
    with pytest.raises(LitebertError, match=r"LB-345.*row [12]: column when"):
        [row["when"] for _, row in table.rows()]


def test_rows_have_the_values_of_pyarrow_in_every_batch(tmp_path: Path) -> None:
    count = 10_000
    columns = {
        "text": [f"text {n % 700}" if n % 11 else None for n in range(count)],
        "tags": [[f"t{n % 5}", None][: n % 3] for n in range(count)],
        "pair": [{"a": f"a{n}", "b": n} for n in range(count)],
        "day": [date(2024, 1, 1 + n % 28) for n in range(count)],
        "share": [n / 7 for n in range(count)],
    }
    path = write(tmp_path, columns, row_group_size=3_001)
    rows = [dict(row) for row in read_parquet(find_input(str(path)), [*columns])]
    assert rows == pa.table(columns).to_pylist()


def test_an_unreadable_cell_is_named_by_its_row(tmp_path: Path) -> None:
    words = pa.array([b"fine"] * 100 + [b"caf\xe9"])
    words = pa.StringArray.from_buffers(len(words), *words.buffers()[1:])
    with pytest.raises(DamagedError, match=r"LB-342.*row 101: not UTF-8"):
        texts(write(tmp_path, {"text": words}))
    lists = pa.ListArray.from_arrays([0, 1, 101], words)
    with pytest.raises(DamagedError, match=r"LB-342.*row 2: not UTF-8"):
        texts(write(tmp_path, {"text": lists}))
