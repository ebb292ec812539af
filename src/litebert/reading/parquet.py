"""Rows of a Parquet file, in bounded memory, also if the file was made to be a bomb.

A few kilobytes can stand for gigabytes in three ways: pages that compress extremely well,
one long string that a dictionary repeats, and lists of billions of equal values. The
first and the last are announced in the file's footer, and refused before anything is
read. Of the second, the dictionary is looked at first; if it has long strings, the column
stays a dictionary, and a repeated string is in memory once. In lists and structures
pyarrow repeats it, up to 2 GiB, and the rows are then refused.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import IO, Any

from litebert.errors import DamagedError, LitebertError, missing_package
from litebert.files import format_bytes, parse_json
from litebert.reading.source import (
    BOMB_BYTES,
    BOMB_RATIO,
    Source,
    decompression_bomb,
    open_source,
)
from litebert.reading.tables import MAX_CELL, Row

# rows that are decoded at once: about so many bytes, and from so many to so many rows
BATCH_BYTES = 4 << 20
FEWEST_ROWS = 16
MOST_ROWS = 4_096
# a column with longer strings, in bytes, stays a dictionary; it is slower to read
LONG_STRING = 1 << 16
# the most bytes in the lists of one batch, and the most values in those of a row group
MAX_BATCH_BYTES = 256 << 20
MAX_LISTED_VALUES = 1 << 27
# What pyarrow raises for a value that Python does not have: a date after the year 9999
# or in an unknown time zone, bytes that are not UTF-8 (a ValueError)
UNREADABLE = (ValueError, OverflowError, LookupError, NotImplementedError)


def read_parquet(source: Source, columns: Sequence[str]) -> Iterator[Row]:
    """Yield each row with only these columns, in bounded memory.

    A column that nobody looks at is not converted to Python values. If the file lacks
    one of the columns, yield one row with all names and no values, so that an error can
    list the names.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise missing_package(
            "pyarrow", extra="data", needed_for="a .parquet input"
        ) from error
    num_rows = 0
    with closing(open_source(source)) as file:
        try:
            parquet: Any = pyarrow.parquet.ParquetFile(file, pre_buffer=False)
            names = parquet.schema_arrow.names
            used = [name for name in names if not columns or name in columns]
            _require_distinct(used, source.name)
            if not columns or not set(columns) <= set(names):
                yield dict.fromkeys(names)
                return
            for batch in _read_batches(source, file, parquet, list(columns)):
                cells = _Cells(source, batch, num_rows)
                for index in range(batch.num_rows):
                    yield _BatchRow(cells, index)
                num_rows += batch.num_rows
        except (pyarrow.ArrowException, OSError) as error:
            last_row = num_rows + (source.before or 0)
            raise DamagedError(
                "LB-317",
                f"{source.name} is damaged after row {last_row:,}",
                received=str(error),
                next="copy or write the file again",
            ) from error


def _read_batches(
    source: Source, file: IO[bytes], parquet: Any, columns: list[str]
) -> Iterator[Any]:
    """Yield these columns in batches of about BATCH_BYTES, row group by row group."""
    import pyarrow.parquet

    groups = source.part or range(parquet.num_row_groups)
    size = _require_no_bomb(source, parquet, groups, set(columns))
    total = sum(parquet.metadata.row_group(group).num_rows for group in groups)
    num_fitting = BATCH_BYTES * total // max(1, size)
    # a long string that many rows repeat is in memory once as a dictionary
    with_dictionaries: Any = pyarrow.parquet.ParquetFile(
        file, pre_buffer=False, read_dictionary=_strings(parquet)
    )
    num_read = 0
    for group in groups:
        reader = parquet
        if _has_long_strings(with_dictionaries, group, columns):
            reader = with_dictionaries
        for batch in reader.iter_batches(
            batch_size=min(max(num_fitting, FEWEST_ROWS), MOST_ROWS),
            row_groups=[group],
            columns=columns,
            use_threads=False,
        ):
            yield batch
            num_read += batch.num_rows
            if source.on_read is not None:
                source.on_read(source.size * num_read // total)


def read_class_names(source: Source) -> dict[str, list[str]]:
    """Return the names of the labels of each column of numbers that has some, as the
    library `datasets` writes them beside the schema (`ClassLabel`).
    """
    import pyarrow
    import pyarrow.parquet

    with closing(open_source(source)) as file:
        try:
            metadata = pyarrow.parquet.read_schema(file).metadata or {}
        except (pyarrow.ArrowException, OSError):
            return {}  # reading the rows says what is wrong
    try:
        described: Any = parse_json(metadata.get(b"huggingface", b"{}").decode())
        features = described.get("info", {}).get("features", {})
    except (ValueError, AttributeError):
        return {}
    names = dict[str, list[str]]()
    for column, feature in features.items():
        # for a list of labels, the type of its members
        while isinstance(feature, dict) and "feature" in feature:
            feature = feature["feature"]
        if isinstance(feature, dict) and feature.get("_type") == "ClassLabel":
            names[column] = [str(name) for name in feature.get("names", ())]
    return names


def _require_distinct(names: Sequence[str], file: str) -> None:
    counts = Counter(names)
    repeated = [name for name, number in counts.items() if number > 1]
    if repeated:
        raise LitebertError(
            "LB-842",
            f"{file}: two columns have the same name",
            received=", ".join(repeated),
            expected="a name for each column",
            next="write the file again with other names",
        )


def split_row_groups(source: Source, part_bytes: int) -> list[Source]:
    """Divide a Parquet file between row groups, into parts of about this many bytes.

    A file that cannot be read stays whole: whoever reads it says what is wrong.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        return [source]
    try:
        with closing(open_source(source)) as file:
            metadata: Any = pyarrow.parquet.ParquetFile(file).metadata
            groups = map(metadata.row_group, range(metadata.num_row_groups))
            rows = [group.num_rows for group in groups]  # in each group
    except (pyarrow.ArrowException, OSError):
        return [source]
    bytes_per_row = source.size / max(1, sum(rows))
    parts = list[Source]()
    first_group = 0
    first_row = 0
    end = 0  # the row where the current row group ends
    for group, number in enumerate(rows):
        end += number
        size = round(end * bytes_per_row) - round(first_row * bytes_per_row)
        is_last = group + 1 == len(rows)
        if size < part_bytes and not is_last:
            continue
        part = range(first_group, group + 1)
        parts.append(replace(source, size=size, part=part, before=first_row))
        first_group = group + 1
        first_row = end
    return parts if len(parts) > 1 else [source]


def _strings(parquet: Any) -> list[str]:
    """Return the columns of strings; pyarrow has no dictionaries in lists and structures."""
    columns = list[str]()
    for place in range(len(parquet.schema)):
        leaf = parquet.schema.column(place)
        is_inside_another = leaf.path != leaf.name
        if leaf.physical_type == "BYTE_ARRAY" and not is_inside_another:
            columns.append(leaf.path)
    return columns


def _has_long_strings(parquet: Any, group: int, columns: list[str]) -> bool:
    """Return whether the dictionary of a column has a long string; it comes as a whole
    with the first row.
    """
    import pyarrow
    import pyarrow.compute

    first = next(parquet.iter_batches(1, [group], columns, use_threads=False), None)
    arrays = [] if first is None else first.columns
    for array in arrays:
        if pyarrow.types.is_dictionary(array.type):
            lengths = pyarrow.compute.binary_length(array.dictionary)
            longest = pyarrow.compute.max(lengths).as_py() or 0
            if longest > LONG_STRING:
                return True
    return False


def _require_no_bomb(
    source: Source, parquet: Any, groups: range, columns: set[str]
) -> int:
    """Refuse a file that becomes far too large; return the bytes of these columns after
    decompression.

    What the footer announces is also what the reader allocates.
    """
    total = 0
    for number in groups:
        group = parquet.metadata.row_group(number)
        for place in range(group.num_columns):
            column = group.column(place)
            if column.path_in_schema.partition(".")[0] not in columns:
                continue
            stored = column.total_compressed_size
            size = column.total_uncompressed_size
            if size > BOMB_BYTES and size > BOMB_RATIO * stored:
                raise decompression_bomb(source, size, stored)
            is_list = parquet.schema.column(place).max_repetition_level > 0
            if is_list and column.num_values > MAX_LISTED_VALUES:
                raise _too_large(
                    f"{source.name}: the lists of column {column.path_in_schema}",
                    f"{column.num_values:,} values in one row group",
                    f"at most {MAX_LISTED_VALUES:,}",
                )
            total += size
    return total


def _too_large(what: str, received: str, expected: str) -> LitebertError:
    return LitebertError(
        "LB-311",
        f"{what} are too large",
        received=received,
        expected=expected,
        next="check where the file comes from, or write it with smaller cells",
    )


class _BatchRow(Mapping[str, object]):
    """A row of a batch, whose cells are converted when they are looked up."""

    __slots__ = ("_cells", "_index")

    def __init__(self, cells: "_Cells", index: int) -> None:
        self._cells = cells
        self._index = index

    def __getitem__(self, name: str) -> object:
        return self._cells.column(name)[self._index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._cells.batch.schema.names)

    def __len__(self) -> int:
        return int(self._cells.batch.num_columns)

    def __repr__(self) -> str:
        return repr(dict(self))


class _Cells:
    """The columns of a batch as Python values, each converted at its first use."""

    def __init__(self, source: Source, batch: Any, num_before: int) -> None:
        self.batch = batch
        self._source = source
        self._num_before = num_before  # rows of the batches before this one
        self._columns = dict[str, list[object]]()

    def column(self, name: str) -> list[object]:
        """Return the cells of a column; KeyError if there is none."""
        if name not in self._columns:
            place = self.batch.schema.get_field_index(name)
            if place < 0:
                raise KeyError(name)
            self._columns[name] = self._convert(name, self.batch.column(place))
        return self._columns[name]

    def _convert(self, name: str, array: Any) -> list[object]:
        """Return the cells of a column as values of Python, if they fit into memory."""
        import pyarrow

        if pyarrow.types.is_dictionary(array.type):
            return self._convert_dictionary(name, array)
        if pyarrow.types.is_string(array.type) or pyarrow.types.is_binary(array.type):
            self._require_short_cells(name, array)
        if array.nbytes > MAX_BATCH_BYTES:
            raise _too_large(
                f"{self._source.place(self._num_before + 1)}: the lists of column"
                f" {name} here and in the next rows",
                format_bytes(array.nbytes),
                f"at most {format_bytes(MAX_BATCH_BYTES)}",
            )
        try:
            values: list[object] = array.to_pylist()
        except UNREADABLE:
            raise self._unreadable_cell(name, array) from None
        return values

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

    def _require_short_cells(self, name: str, strings: Any) -> None:
        import pyarrow.compute

        longest = pyarrow.compute.max(pyarrow.compute.binary_length(strings)).as_py()
        if longest is not None and longest > MAX_CELL:
            raise _too_large(
                f"{self._source.place(self._num_before + 1)}: cells of column {name}"
                " here or in the next rows",
                format_bytes(longest),
                f"at most {format_bytes(MAX_CELL)}",
            )

    def _unreadable_cell(self, name: str, array: Any) -> LitebertError:
        """Return the error of the first cell that has no Python value."""
        for index in range(len(array)):
            place = self._source.place(self._num_before + index + 1)
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
