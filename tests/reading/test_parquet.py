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
from litebert.reading.parquet import open_parquet
from litebert.reading.source import find_input
from litebert.tasks.tables.layouts import open_table
from tests.memory import run_in_child


def write(folder: Path, columns: dict[str, object], **options: object) -> Path:
    path = folder / "a.parquet"
    pq.write_table(pa.table(columns), path, **options)
    return path


def texts_of(path: Path) -> list[object]:
    source = find_input(str(path))
    with open_parquet(source) as file:
        return [row["text"] for row in file.rows(["text"])]


# ---- bombs ---------------------------------------------------------------------------

LENGTH_AND_MEMORY = """
from litebert.reading.parquet import open_parquet
from litebert.reading.source import find_input
with open_parquet(find_input(sys.argv[1])) as file:
    rows = list(file.rows(["text"]))
print(sum(len(row["text"]) for row in rows), peak_memory())
"""


def test_a_repeated_string_is_in_memory_once(tmp_path: Path) -> None:
    """A dictionary repeats a string of 8 MiB 4,096 times: 32 GiB, in a few kilobytes."""
    long_string = pa.array(["x" * (8 << 20)])
    numbers = pa.array([0] * 4_096)
    repeated = pa.DictionaryArray.from_arrays(numbers, long_string)
    path = write(tmp_path, {"text": repeated}, compression="zstd")
    assert path.stat().st_size < 100_000
    length, memory = map(int, run_in_child(LENGTH_AND_MEMORY, path))
    assert length == 4_096 << 23
    assert memory < 1 << 30


LARGEST_CELL = 16 << 20
FIFTY_MILLION = ["x" * 500_000] * 100  # characters


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        pytest.param(
            ["x" * (LARGEST_CELL + 1), "y"], "LB-311.*cells of column", id="a cell"
        ),
        pytest.param(
            [b"x" * (LARGEST_CELL + 1)],
            "LB-311.*cells of column",
            id="a cell of bytes",
        ),
        pytest.param(
            [FIFTY_MILLION] * 6,
            "LB-311.*lists of column",
            id="lists that repeat a string",
        ),
        pytest.param(
            [{"a": FIFTY_MILLION}] * 6,
            "LB-311.*lists of column",
            id="lists in structures",
        ),
    ],
)
def test_a_bomb_is_refused(tmp_path: Path, texts: list[object], message: str) -> None:
    path = write(tmp_path, {"text": texts}, compression="zstd")
    with pytest.raises(LitebertError, match=message):
        texts_of(path)


def test_a_page_that_is_unpacked_to_much_more_is_refused(tmp_path: Path) -> None:
    texts = ["x" * (12 << 20) + str(number) for number in range(8)]
    path = write(tmp_path, {"text": texts}, compression="zstd", use_dictionary=False)
    with pytest.raises(LitebertError, match="LB-307"):
        texts_of(path)


def test_lists_of_billions_of_equal_values_are_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = pa.ListArray.from_arrays([0, 1 << 20], np.zeros(1 << 20, np.int64))
    path = write(tmp_path, {"text": values})
    monkeypatch.setattr(parquet, "MAX_LISTED_VALUES", 1 << 19)
    with pytest.raises(LitebertError, match=r"LB-311[\s\S]*1,048,576 values"):
        texts_of(path)


# ---- values that Python lacks --------------------------------------------------------


@pytest.fixture(
    params=[
        pytest.param(
            pa.array([0, 2**31 - 1], pa.int32()).cast(pa.date32()),
            id="a date after 9999",
        ),
        pytest.param(
            pa.array([0, 2**62], pa.int64()).cast(pa.timestamp("us")),
            id="a time after 9999",
        ),
        pytest.param(
            pa.array([0, 1], pa.timestamp("us", "Nowhere/None")),
            id="an unknown zone",
        ),
    ]
)
def with_impossible_dates(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    columns = {"text": ["one", "two"], "when": request.param, "label": ["a", "b"]}
    return write(tmp_path, columns)


def test_a_value_that_python_lacks_does_not_matter_in_a_column_that_is_not_read(
    with_impossible_dates: Path,
) -> None:
    rows = [row for _, row in open_table(with_impossible_dates).rows()]
    assert [row["text"] for row in rows] == ["one", "two"]


def test_a_value_that_python_lacks_is_named_when_it_is_read(
    with_impossible_dates: Path,
) -> None:
    rows = [row for _, row in open_table(with_impossible_dates).rows()]
    with pytest.raises(LitebertError, match=r"LB-345.*row [12]: column when"):
        [row["when"] for row in rows]


# ---- honest files, and damaged ones --------------------------------------------------


def test_rows_have_the_values_of_pyarrow_in_every_batch(tmp_path: Path) -> None:
    numbers = range(10_000)
    columns = {
        "text": [f"text {n % 700}" if n % 11 else None for n in numbers],
        "tags": [[f"t{n % 5}", None][: n % 3] for n in numbers],
        "pair": [{"a": f"a{n}", "b": n} for n in numbers],
        "day": [date(2024, 1, 1 + n % 28) for n in numbers],
        "share": [n / 7 for n in numbers],
    }
    path = write(tmp_path, columns, row_group_size=3_001)
    with open_parquet(find_input(str(path))) as file:
        rows = [dict(row) for row in file.rows([*columns])]
    assert rows == pa.table(columns).to_pylist()


def words_with_a_damaged_one() -> pa.Array:
    """Return 101 words; the last is not UTF-8."""
    content = pa.array([b"fine"] * 100 + [b"caf\xe9"])
    return pa.StringArray.from_buffers(len(content), *content.buffers()[1:])


def test_an_unreadable_cell_is_named_by_its_row(tmp_path: Path) -> None:
    path = write(tmp_path, {"text": words_with_a_damaged_one()})
    with pytest.raises(DamagedError, match=r"LB-342.*row 101: not UTF-8"):
        texts_of(path)


def test_an_unreadable_word_of_a_list_is_named_by_its_row(tmp_path: Path) -> None:
    lists = pa.ListArray.from_arrays([0, 1, 101], words_with_a_damaged_one())
    path = write(tmp_path, {"text": lists})
    with pytest.raises(DamagedError, match=r"LB-342.*row 2: not UTF-8"):
        texts_of(path)
