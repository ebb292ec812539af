"""Rows of an Arrow batch as mappings, whose cells become Python values when they are
looked up.

A column that nobody looks at is never converted, and does no harm if it cannot be.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from litebert.errors import DamagedError, LitebertError
from litebert.files import format_bytes
from litebert.reading.source import Source
from litebert.reading.tables import MAX_CELL

# the most bytes in the lists of one batch
MAX_BATCH_BYTES = 256 << 20
# What pyarrow raises for a value that Python does not have: a date after the year 9999
# or in an unknown time zone, bytes that are not UTF-8 (a ValueError)
UNREADABLE = (ValueError, OverflowError, LookupError, NotImplementedError)


class BatchRow(Mapping[str, object]):
    """A row of a batch."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: "Batch", index: int) -> None:
        self._batch = batch
        self._index = index

    def __getitem__(self, name: str) -> object:
        return self._batch.column(name)[self._index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._batch.names)

    def __len__(self) -> int:
        return len(self._batch.names)

    def __repr__(self) -> str:
        return repr(dict(self))


class Batch:
    """An Arrow batch; each column is converted at its first use.

    `num_before` is the number of rows in the batches before this one.
    """

    def __init__(self, source: Source, table: Any, num_before: int) -> None:
        self.names: list[str] = table.schema.names
        self._source = source
        self._table = table
        self._num_before = num_before
        self._columns = dict[str, list[object]]()

    def rows(self) -> Iterator[BatchRow]:
        """Yield the rows."""
        for index in range(self._table.num_rows):
            yield BatchRow(self, index)

    def column(self, name: str) -> list[object]:
        """Return the cells of a column; KeyError if there is none."""
        if name not in self._columns:
            place = self._table.schema.get_field_index(name)
            if place < 0:
                raise KeyError(name)
            self._columns[name] = self._convert(name, self._table.column(place))
        return self._columns[name]

    # ---- conversion ----

    def _convert(self, name: str, array: Any) -> list[object]:
        """Return the cells of a column as values of Python, if they fit into memory."""
        import pyarrow

        if pyarrow.types.is_dictionary(array.type):
            return self._convert_dictionary(name, array)
        if pyarrow.types.is_string(array.type) or pyarrow.types.is_binary(array.type):
            self._require_short_cells(name, array)
        self._require_short_lists(name, array)
        try:
            cells: list[object] = array.to_pylist()
        except UNREADABLE:
            raise self._unreadable_cell(name, array) from None
        return cells

    def _convert_dictionary(self, name: str, array: Any) -> list[object]:
        """Return the cells of a column of strings, in which equal cells are one string
        in memory.
        """
        self._require_short_cells(name, array.dictionary)
        try:
            strings = dict(enumerate(array.dictionary.to_pylist()))
        except UnicodeDecodeError:
            raise self._unreadable_cell(name, array) from None
        places = array.indices.to_pylist()  # None for an empty cell
        return [strings.get(place) for place in places]

    # ---- what is refused ----

    def _require_short_cells(self, name: str, strings: Any) -> None:
        import pyarrow.compute

        longest = pyarrow.compute.max(pyarrow.compute.binary_length(strings)).as_py()
        if longest is not None and longest > MAX_CELL:
            raise too_large(
                f"{self._place_of(0)}: cells of column {name} here or in the next rows",
                format_bytes(longest),
                f"at most {format_bytes(MAX_CELL)}",
            )

    def _require_short_lists(self, name: str, array: Any) -> None:
        if array.nbytes > MAX_BATCH_BYTES:
            raise too_large(
                f"{self._place_of(0)}: the lists of column {name} here and in the next"
                " rows",
                format_bytes(array.nbytes),
                f"at most {format_bytes(MAX_BATCH_BYTES)}",
            )

    def _unreadable_cell(self, name: str, array: Any) -> LitebertError:
        """Return the error of the first cell that has no Python value."""
        for index in range(len(array)):
            place = self._place_of(index)
            try:
                array[index].as_py()
            except UnicodeDecodeError as error:
                return DamagedError(
                    "LB-342",
                    f"{place}: not UTF-8",
                    received=f"byte 0x{error.object[error.start]:02x}",
                    next="write it again, from correctly decoded text",
                )
            except UNREADABLE as error:
                # such as a date after the year 9999
                return LitebertError(
                    "LB-345",
                    f"{place}: column {name} has a value that Python cannot represent",
                    received=f"{array.type}: {error}",
                    next="correct this value, or write the column as text",
                )
        raise AssertionError("each cell alone can be converted")

    def _place_of(self, index: int) -> str:
        """Name the place of a row in its file."""
        return self._source.place(self._num_before + index + 1)


def too_large(what: str, received: str, expected: str) -> LitebertError:
    """Return the error for cells that would need too much memory."""
    return LitebertError(
        "LB-311",
        f"{what} are too large",
        received=received,
        expected=expected,
        next="check where the file comes from, or write it with smaller cells",
    )
