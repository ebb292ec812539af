"""Read the rows of a .parquet input, one top-level column at a time; imports pyarrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import chain
from typing import IO, Protocol, cast

from litebert.errors import DamagedError, missing_package
from litebert.reading.rows import Row
from litebert.reading.source import Source, open_source

ROWS_AT_ONCE = 16


class _ParquetBatch(Protocol):
    def to_pylist(self) -> list[Row]: ...


class _ParquetFile(Protocol):
    """The part of pyarrow.parquet.ParquetFile that we use."""

    @property
    def schema_arrow(self) -> _ParquetSchema: ...
    @property
    def metadata(self) -> _ParquetMetadata: ...
    def iter_batches(self, *, batch_size: int, columns: list[str], use_threads: bool) -> Iterator[_ParquetBatch]: ...


class _ParquetMetadata(Protocol):
    num_rows: int


class _ParquetSchema(Protocol):
    names: list[str]


def read_rows(source: Source, column: str) -> Iterator[Row]:
    """Yield each row with only the top-level column of a dotted name, in bounded memory.

    If the file has no such column, yield one row with all names and no values, so that an error
    can list the names.

    Raises:
        DamagedError: LB-317, LB-342, the file cannot be read after the row that is named.
    """
    num_rows = 0
    with closing(open_source(source)) as file, _errors(source) as done:
        parquet = _open(file)
        top = column.split(".")[0]
        if top not in parquet.schema_arrow.names:
            yield dict.fromkeys(parquet.schema_arrow.names)
            return
        batches = parquet.iter_batches(batch_size=ROWS_AT_ONCE, columns=[top], use_threads=False)
        for batch in batches:
            for row in batch.to_pylist():
                num_rows += 1
                done[0] = num_rows
                yield row
            if source.on_read is not None:
                source.on_read(source.size * num_rows // parquet.metadata.num_rows)


def scan_columns(source: Source, columns: Sequence[str]) -> Iterator[tuple[int, Row]]:
    """Yield each row, numbered from 1, with some top-level columns; each is read separately."""
    cells = [read_rows(source, name) for name in columns]
    for number, row in enumerate(zip(*cells, strict=True), 1):
        yield number, dict(chain.from_iterable(part.items() for part in row))


def _open(file: IO[bytes]) -> _ParquetFile:
    import pyarrow.parquet

    return cast(_ParquetFile, pyarrow.parquet.ParquetFile(file, pre_buffer=False))


@contextmanager
def _errors(source: Source) -> Iterator[list[int]]:
    try:
        import pyarrow
    except ImportError as error:
        raise missing_package("pyarrow", extra="data", needed_for="a .parquet input") from error
    done = [0]
    try:
        yield done
    except UnicodeDecodeError as error:
        raise DamagedError(
            "LB-342",
            f"{source.name}, row {done[0] + 1:,} or one of the next {ROWS_AT_ONCE}: not UTF-8",
            received=f"byte 0x{error.object[error.start]:02x}",
            expected="strings in UTF-8",
            next="write the file again with a Parquet library, from text that was decoded",
        ) from error
    except (pyarrow.ArrowException, OSError) as error:
        raise DamagedError(
            "LB-317",
            f"{source.name} is damaged after row {done[0]:,}",
            received=str(error),
            expected="a complete parquet file",
            next="copy or write the file again",
        ) from error
