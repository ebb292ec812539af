"""DataFrames of pandas and polars, wherever a file of examples is taken.

A table is written as JSON lines, and then read as any other file is.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

from litebert.errors import LitebertError
from litebert.files import write_text


@runtime_checkable
class Frame(Protocol):
    """What the DataFrames of pandas and of polars have."""

    columns: Any

    def to_dict(self) -> Any: ...


TablePath: TypeAlias = str | Path | Frame


def _rows_of(frame: Frame) -> str:
    """Return a table as JSON lines; what is missing is null."""
    table: Any = frame
    if hasattr(table, "write_ndjson"):  # polars
        return str(table.write_ndjson())
    try:
        rows = table.to_json(
            orient="records",
            lines=True,
            force_ascii=False,
            double_precision=15,
            date_format="iso",
            default_handler=str,  # of intervals, periods, complex numbers
        )
    except ValueError as error:  # such as two columns of one name
        raise LitebertError(
            "LB-544",
            "the DataFrame cannot be written as rows",
            received=str(error),
            next="rename its columns, or give a file",
        ) from error
    return str(rows)


def write_frame(frame: Frame, path: Path) -> Path:
    """Write a table that a run is trained on, to a file that stays beside the run."""
    rows = _rows_of(frame)
    if path.exists() and path.read_text("utf-8") != rows:
        raise LitebertError(
            "LB-545",
            f"{path} has the rows of another DataFrame",
            expected="the DataFrame that this run was begun with",
            next='choose another name: litebert.finetune(frame, name="second")',
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, rows)
    return path


@contextmanager
def as_file(table: TablePath | None) -> Iterator[str | None]:
    """Yield the path of a file, or of a temporary one with the rows of a DataFrame."""
    if table is None:
        yield None
        return
    if isinstance(table, str | PathLike):
        yield fspath(table)
        return
    with tempfile.TemporaryDirectory() as folder:
        yield str(write_frame(table, Path(folder) / "table.jsonl"))
