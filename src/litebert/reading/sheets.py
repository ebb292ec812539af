"""The program that reads a spreadsheet, for `spreadsheet`: `python -m
litebert.reading.sheets < table.xlsx`.

It writes a line of JSON for each row that is not blank, [sheet, number, cells], and at
the end one with what went wrong, "" for nothing.
"""

import json
import sys
from collections.abc import Iterator
from datetime import date, datetime, time
from typing import IO, Any

from litebert.system import limit_memory

MAX_MEMORY = 4 << 30
"""In bytes: a sheet of a million rows and ten columns of texts takes about 2 GiB."""


def main() -> None:
    limit_memory(MAX_MEMORY)
    try:
        for row in _rows_of_book(sys.stdin.buffer):
            print(json.dumps(row))
        reason = ""
    except BaseException as error:  # noqa: BLE001  a panic of the library is no Exception
        reason = f"{type(error).__name__}: {error}"
    print(json.dumps(reason))


def _rows_of_book(file: IO[bytes]) -> Iterator[tuple[str, int, list[object]]]:
    import python_calamine

    book: Any = python_calamine.CalamineWorkbook.from_filelike(file)
    for metadata in book.sheets_metadata:
        is_shown = metadata.visible == python_calamine.SheetVisibleEnum.Visible
        is_table = metadata.typ == python_calamine.SheetTypeEnum.WorkSheet
        if is_shown and is_table:
            sheet = book.get_sheet_by_name(metadata.name)
            for number, cells in _rows(sheet):
                yield metadata.name, number, cells


def _rows(sheet: Any) -> Iterator[tuple[int, list[object]]]:
    """Yield the rows of a sheet from its first cell with content on, with their numbers;
    blank ones are left out.
    """
    if sheet.start is None:
        return
    # The sheet is read at once: if it fits into memory here, it also does in the
    # process that uses the rows.
    for number, cells in enumerate(sheet.to_python(), sheet.start[0] + 1):
        values = [_value(cell) for cell in cells]
        if any(value is not None for value in values):
            yield number, values


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


if __name__ == "__main__":
    main()
