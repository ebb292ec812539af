"""The rows of a spreadsheet: Excel (.xlsx, .xls) and OpenDocument (.ods).

The library that reads them holds a sheet as one block of cells, and ends its process if
that block does not fit into memory: one cell far from the others is enough. So it runs in
a process of its own, `sheets`, whose memory is limited.
"""

import importlib.util
import json
import os
import sys
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.spawn import get_executable
from subprocess import DEVNULL, PIPE, Popen
from typing import IO

from litebert.errors import DamagedError, missing_package
from litebert.files import format_bytes
from litebert.reading.pieces import (
    BOMB_BYTES,
    BOMB_RATIO,
    decompression_bomb,
    open_source,
)
from litebert.reading.sheets import MAX_MEMORY
from litebert.reading.source import Source, no_content

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
    """Read the first sheet with a table, into memory; or else the first with several
    rows, or with any.
    """
    _require_calamine(source)
    sheets = dict[str, list[tuple[int, Cells]]]()
    with closing(open_source(source)) as file:
        _require_no_bomb(source, file)
        for name, number, cells in _read_apart(source, file):
            sheets.setdefault(name, []).append((number, cells))
    if not sheets:
        raise no_content(source.name)
    lists = [name for name, rows in sheets.items() if len(rows) > 1]
    tables = [name for name in lists if _is_table(sheets[name])]
    first = (tables or lists or list(sheets))[0]
    others = [name for name in sheets if name != first]
    return Sheet(first, sheets[first], tuple(others))


def _is_table(rows: Sequence[tuple[int, Cells]]) -> bool:
    """Return whether several rows have several cells; a page about the file has one in
    most.
    """
    num_divided = 0
    for _, cells in rows:
        num_filled = sum(cell is not None for cell in cells)
        if num_filled > 1:
            num_divided += 1
    return num_divided > 1


def _require_calamine(source: Source) -> None:
    if importlib.util.find_spec("python_calamine") is None:
        raise missing_package(
            "python-calamine", extra="data", needed_for=f"a {source.kind} input"
        )


def _require_no_bomb(source: Source, file: IO[bytes]) -> None:
    """Refuse a file that becomes far too large; .xls is not compressed."""
    try:
        with zipfile.ZipFile(file) as archive:
            size = sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, NotImplementedError, ValueError):
        size = 0  # whoever reads it says what is wrong
    if size > BOMB_BYTES and size > BOMB_RATIO * source.size:
        raise decompression_bomb(source, size, source.size)


def _read_apart(
    source: Source, file: IO[bytes]
) -> Iterator[tuple[str, int, list[object]]]:
    """Yield (sheet, number of the row, cells), read by a process that may fail."""
    file.seek(0)
    command = [get_executable(), "-m", "litebert.reading.sheets"]
    paths = os.pathsep.join(sys.path)
    process = Popen(
        command,
        stdin=file,
        stdout=PIPE,
        stderr=DEVNULL,
        env={**os.environ, "PYTHONPATH": paths},
    )
    with process:
        reason = f"it fails to open, or needs over {format_bytes(MAX_MEMORY)} of memory"
        try:
            for line in process.stdout or ():
                message = json.loads(line)
                if isinstance(message, list):
                    name, number, cells = message
                    yield name, number, cells
                else:
                    reason = message
        finally:
            process.kill()
    if reason:
        raise DamagedError(
            "LB-318",
            f"{source.name} cannot be read as a spreadsheet",
            received=reason,
            next="open it in the program that it comes from, and save it as .csv",
        )
