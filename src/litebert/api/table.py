"""Rows of measures as a table: a pandas DataFrame where pandas is installed, else our own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeAlias, Union

from litebert.files import Json
from litebert.report.table import Cell, Table

if TYPE_CHECKING:
    from pandas import DataFrame

Row: TypeAlias = Mapping[str, Json]
Frame: TypeAlias = Union["DataFrame", Table]


def frame(rows: Sequence[Row]) -> Frame:
    """Return rows under the names that any of them has, in the order in which they appear.

    >>> frame([{"step": 1, "loss": 2.0}, {"step": 2, "accuracy": 0.5}]).shape
    (2, 3)
    """
    if find_spec("pandas") is None:
        return table(rows)
    from pandas import DataFrame

    return DataFrame(list(rows))


def table(rows: Sequence[Row]) -> Table:
    """Return rows as our own table; what a row lacks is None.

    >>> print(table([{"step": 1, "loss": 2.0}, {"step": 2}]).as_text())
    step    loss
       1  2.0000
       2       -
    """
    names = tuple(dict.fromkeys(name for row in rows for name in row))
    return Table(names, tuple(tuple(_cell(row.get(name)) for name in names) for row in rows))


def _cell(value: Json) -> Cell:
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
