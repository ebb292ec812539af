"""Parquet files, read in bounded memory, also if a file was made to be a bomb.

A few kilobytes can stand for gigabytes in three ways: pages that compress extremely well,
one long string that a dictionary repeats, and lists of billions of equal values. The
first and the last are announced in the file's footer, and refused before anything is
read. Of the second, the dictionary is looked at first; if it has long strings, the column
stays a dictionary, and a repeated string is in memory once. In lists and structures
pyarrow repeats it, up to 2 GiB, and the rows are then refused.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import IO, Any

from litebert.errors import DamagedError, LitebertError, missing_package
from litebert.files import parse_json
from litebert.reading.arrow import Batch, too_large
from litebert.reading.pieces import (
    BOMB_BYTES,
    BOMB_RATIO,
    decompression_bomb,
    open_source,
)
from litebert.reading.source import Source
from litebert.reading.tables import Row

# rows that are decoded at once: about so many bytes, and from so many to so many rows
BATCH_BYTES = 4 << 20
FEWEST_ROWS = 16
MOST_ROWS = 4_096
# a column with longer strings, in bytes, stays a dictionary; it is slower to read
LONG_STRING = 1 << 16
# the most values in the lists of a row group
MAX_LISTED_VALUES = 1 << 27


# ---- opening -------------------------------------------------------------------------


@contextmanager
def open_parquet(source: Source) -> Iterator["ParquetFile"]:
    """Open a Parquet file and read its footer; the file is closed after the block."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise missing_package(
            "pyarrow", extra="data", needed_for="a .parquet input"
        ) from error
    with closing(open_source(source)) as file:
        try:
            reader = pyarrow.parquet.ParquetFile(file, pre_buffer=False)
            schema = reader.schema_arrow
        except (pyarrow.ArrowException, OSError) as error:
            raise _damaged(source, 0, error) from error
        yield ParquetFile(source, schema.names, schema.metadata or {}, file, reader)


def _damaged(source: Source, num_rows: int, error: Exception) -> DamagedError:
    """Return the error for a file of which only so many rows can be read."""
    last_row = num_rows + (source.before or 0)
    return DamagedError(
        "LB-317",
        f"{source.name} is damaged after row {last_row:,}",
        received=str(error),
        next="copy or write the file again",
    )


@dataclass(frozen=True)
class ParquetFile:
    """An open Parquet file."""

    source: Source
    columns: Sequence[str]  # the names of all columns
    metadata: dict[bytes, bytes]  # what programs write beside the schema
    file: IO[bytes]
    reader: Any  # pyarrow's ParquetFile

    def class_names(self) -> dict[str, list[str]]:
        """Return the names of the labels of each column of numbers that has some, as
        the library `datasets` writes them beside the schema (`ClassLabel`).
        """
        try:
            described: Any = parse_json(self.metadata[b"huggingface"].decode())
            features = described["info"]["features"].items()
        except (KeyError, ValueError, AttributeError, TypeError):
            return {}
        names = dict[str, list[str]]()
        for column, feature in features:
            # for a list of labels, the type of its members
            while isinstance(feature, dict) and "feature" in feature:
                feature = feature["feature"]
            if isinstance(feature, dict) and feature.get("_type") == "ClassLabel":
                names[column] = [str(name) for name in feature.get("names", ())]
        return names

    def group_lengths(self) -> list[int]:
        """Return the number of rows in each row group."""
        metadata = self.reader.metadata
        groups = range(metadata.num_row_groups)
        return [metadata.row_group(group).num_rows for group in groups]

    def rows(self, columns: Sequence[str]) -> Iterator[Row]:
        """Yield each row with only these columns, in bounded memory."""
        import pyarrow

        require_distinct(self, columns)
        num_rows = 0
        try:
            for table in _read_batches(self, list(columns)):
                yield from Batch(self.source, table, num_rows).rows()
                num_rows += table.num_rows
        except (pyarrow.ArrowException, OSError) as error:
            raise _damaged(self.source, num_rows, error) from error


# ---- checks --------------------------------------------------------------------------


def require_distinct(parquet: ParquetFile, columns: Sequence[str]) -> None:
    """Refuse a file in which two of these columns have the same name."""
    counts = Counter(parquet.columns)
    repeated = [name for name in counts if name in columns and counts[name] > 1]
    if repeated:
        raise LitebertError(
            "LB-842",
            f"{parquet.source.name}: two columns have the same name",
            received=", ".join(repeated),
            expected="a name for each column",
            next="write the file again with other names",
        )


def _require_no_bomb(parquet: ParquetFile, groups: range, columns: list[str]) -> int:
    """Refuse a file that becomes far too large; return the bytes of these columns after
    decompression.

    What the footer announces is also what the reader allocates.
    """
    total = 0
    for number in groups:
        group = parquet.reader.metadata.row_group(number)
        for place in range(group.num_columns):
            column = group.column(place)
            if column.path_in_schema.partition(".")[0] not in columns:
                continue
            stored = column.total_compressed_size
            size = column.total_uncompressed_size
            if size > BOMB_BYTES and size > BOMB_RATIO * stored:
                raise decompression_bomb(parquet.source, size, stored)
            is_list = parquet.reader.schema.column(place).max_repetition_level > 0
            if is_list and column.num_values > MAX_LISTED_VALUES:
                raise too_large(
                    f"{parquet.source.name}: the lists of column"
                    f" {column.path_in_schema}",
                    f"{column.num_values:,} values in one row group",
                    f"at most {MAX_LISTED_VALUES:,}",
                )
            total += size
    return total


# ---- reading -------------------------------------------------------------------------


def _read_batches(parquet: ParquetFile, columns: list[str]) -> Iterator[Any]:
    """Yield these columns in batches of about BATCH_BYTES, row group by row group."""
    import pyarrow.parquet

    source = parquet.source
    lengths = parquet.group_lengths()
    groups = source.part or range(len(lengths))
    num_bytes = _require_no_bomb(parquet, groups, columns)
    num_rows = sum(lengths[group] for group in groups)
    num_fitting = BATCH_BYTES * num_rows // max(1, num_bytes)
    batch_size = min(max(num_fitting, FEWEST_ROWS), MOST_ROWS)
    # a long string that many rows repeat is in memory once as a dictionary
    with_dictionaries: Any = pyarrow.parquet.ParquetFile(
        parquet.file, pre_buffer=False, read_dictionary=_string_columns(parquet.reader)
    )
    num_read = 0
    for group in groups:
        reader = parquet.reader
        if _has_long_strings(with_dictionaries, group, columns):
            reader = with_dictionaries
        for batch in reader.iter_batches(
            batch_size, row_groups=[group], columns=columns, use_threads=False
        ):
            yield batch
            num_read += batch.num_rows
            if source.on_read is not None:
                source.on_read(source.size * num_read // num_rows)


def _string_columns(reader: Any) -> list[str]:
    """Return the columns of strings; pyarrow has no dictionaries in lists and structures."""
    columns = list[str]()
    for place in range(len(reader.schema)):
        leaf = reader.schema.column(place)
        is_inside_another = leaf.path != leaf.name
        if leaf.physical_type == "BYTE_ARRAY" and not is_inside_another:
            columns.append(leaf.path)
    return columns


def _has_long_strings(with_dictionaries: Any, group: int, columns: list[str]) -> bool:
    """Return whether the dictionary of a column has a long string; it comes as a whole
    with the first row.
    """
    import pyarrow
    import pyarrow.compute

    rows = with_dictionaries.iter_batches(1, [group], columns, use_threads=False)
    first_row = next(rows, None)
    if first_row is None:
        return False
    for array in first_row.columns:
        if pyarrow.types.is_dictionary(array.type):
            lengths = pyarrow.compute.binary_length(array.dictionary)
            longest = pyarrow.compute.max(lengths).as_py() or 0
            if longest > LONG_STRING:
                return True
    return False


# ---- parts ---------------------------------------------------------------------------


def split_row_groups(source: Source, part_bytes: int) -> list[Source]:
    """Divide a Parquet file between row groups, into parts of about this many bytes.

    A file that cannot be read stays whole: whoever reads it says what is wrong.
    """
    try:
        with open_parquet(source) as parquet:
            lengths = parquet.group_lengths()
    except LitebertError:
        return [source]
    bytes_per_row = source.size / max(1, sum(lengths))
    parts = list[Source]()
    first_group = 0
    first_row = 0
    end = 0  # the row where the current row group ends
    for group, length in enumerate(lengths):
        end += length
        size = round(end * bytes_per_row) - round(first_row * bytes_per_row)
        is_last = group + 1 == len(lengths)
        if size < part_bytes and not is_last:
            continue
        part = range(first_group, group + 1)
        parts.append(replace(source, size=size, part=part, before=first_row))
        first_group = group + 1
        first_row = end
    return parts if len(parts) > 1 else [source]
