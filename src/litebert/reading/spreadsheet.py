"""The rows of a spreadsheet: Excel (.xlsx, .xls) and OpenDocument (.ods)."""

import zipfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Any

from litebert.errors import DamagedError, LitebertError, missing_package
from litebert.reading.source import (
    BOMB_BYTES,
    BOMB_RATIO,
    Source,
    decompression_bomb,
    no_content,
    open_source,
)

Cells = Sequence[object]


@dataclass(frozen=True)
class Sheet:
    """One sheet of a file: its rows with their numbers, without blank ones, and the
    names of the other sheets that have rows.
    """

    name: str
    rows: Sequence[tuple[int, Cells]]
    others: tuple[str, ...]


def read_sheet(source: Source) -> Sheet:
    """Read the first sheet with several rows, into memory; or the first with any."""
    sheets = [(name, rows) for name, rows in _read_sheets(source) if rows]
    if not sheets:
        raise no_content(source.name)
    tables = [sheet for sheet in sheets if len(sheet[1]) > 1]
    name, rows = (tables or sheets)[0]
    others = [other for other, _ in sheets if other != name]
    return Sheet(name, rows, tuple(others))


def _read_sheets(source: Source) -> Iterator[tuple[str, list[tuple[int, Cells]]]]:
    try:
        import python_calamine
    except ImportError as error:
        raise missing_package(
            "python-calamine", extra="data", needed_for=f"a {source.kind} input"
        ) from error
    with closing(open_source(source)) as file:
        _require_no_bomb(source, file)
        try:
            book: Any = python_calamine.CalamineWorkbook.from_filelike(file)
            for metadata in book.sheets_metadata:
                is_shown = metadata.visible == python_calamine.SheetVisibleEnum.Visible
                is_table = metadata.typ == python_calamine.SheetTypeEnum.WorkSheet
                if is_shown and is_table:
                    sheet = book.get_sheet_by_name(metadata.name)
                    yield metadata.name, _rows(sheet)
        except (python_calamine.CalamineError, OSError) as error:
            raise _damaged(source, error) from error


def _damaged(source: Source, error: Exception) -> LitebertError:
    return DamagedError(
        "LB-318",
        f"{source.name} cannot be read as a spreadsheet",
        received=str(error),
        next="open it in the program that it comes from, and save it as .xlsx or .csv",
    )


def _require_no_bomb(source: Source, file: Any) -> None:
    """Refuse a file that becomes far too large; .xls is not compressed."""
    if not zipfile.is_zipfile(file):
        file.seek(0)
        return
    file.seek(0)
    with zipfile.ZipFile(file) as archive:
        size = sum(member.file_size for member in archive.infolist())
    if size > BOMB_BYTES and size > BOMB_RATIO * source.size:
        raise decompression_bomb(source, size, source.size)
    file.seek(0)


def _rows(sheet: Any) -> list[tuple[int, Cells]]:
    """Return the rows of a sheet from its first cell with content on, with their
    numbers; blank ones are left out.
    """
    if sheet.start is None:
        return []
    rows = list[tuple[int, Cells]]()
    for number, cells in enumerate(sheet.to_python(), sheet.start[0] + 1):
        values = [_value(cell) for cell in cells]
        if any(value is not None for value in values):
            rows.append((number, values))
    return rows


def _value(cell: object) -> object:
    """Return a cell as a text, a number or a truth; dates as ISO 8601 writes them."""
    if cell == "":
        return None
    if isinstance(cell, datetime) and cell.time() == time():
        return cell.date().isoformat()
    if isinstance(cell, date | time):
        return cell.isoformat()
    if isinstance(cell, str | int | float):
        return cell
    return str(cell)
