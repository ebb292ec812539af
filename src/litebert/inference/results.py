"""Answers as frozen values: readable when printed, a table in a notebook or in pandas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeVar

from litebert.errors import LitebertError

if TYPE_CHECKING:
    from pandas import DataFrame

Item = TypeVar("Item")


class Results(tuple[Item, ...]):
    """Several answers, in order.

    >>> Results([1, 2])
    Results of 2:
      1
      2
    """

    __slots__ = ()

    def __repr__(self) -> str:
        """Write a line an answer, the first 20 of them."""
        lines = [f"  {item!r}" for item in self[:20]]
        more = [f"  ... and {len(self) - 20:,} more"] if len(self) > 20 else []
        return "\n".join([f"Results of {len(self):,}:", *lines, *more])

    def to_pandas(self) -> DataFrame:
        """Return a row an answer; a list of answers for each text has a row for each of them.

        Raises:
            LitebertError: LB-929, pandas is not installed.
        """
        return data_frame(rows_of(self))

    def _repr_html_(self) -> str:
        rows = rows_of(self[:20])
        names = list(dict.fromkeys(name for row in rows for name in row))
        head = "".join(f"<th>{escape(name)}</th>" for name in names)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(str(row.get(n, '')))}</td>" for n in names) + "</tr>"
            for row in rows
        )
        return f"<table><tr>{head}</tr>{body}</table>"


class Tabular:
    """One answer as a table: a row, or a row for each of its parts, such as words."""

    __slots__ = ()

    def to_pandas(self) -> DataFrame:
        """Return the table.

        Raises:
            LitebertError: LB-929, pandas is not installed.
        """
        assert is_dataclass(self)
        values = [getattr(self, field.name) for field in fields(self)]
        parts = [each for each in values if isinstance(each, tuple) and _is_of_records(each)]
        return data_frame(rows_of(parts[0] if parts else [self]))


def _is_of_records(values: tuple[object, ...]) -> bool:
    return bool(values) and all(map(is_dataclass, values))


def rows_of(results: Sequence[object]) -> list[dict[str, object]]:
    """Return answers as rows of plain values; nested ones get the number of their text."""
    rows: list[dict[str, object]] = []
    for number, item in enumerate(results):
        if isinstance(item, Results):
            rows += [{"text_number": number, **_row(each)} for each in item]
        else:
            rows.append(_row(item))
    return rows


def data_frame(rows: Sequence[Mapping[str, object]]) -> DataFrame:
    """Return rows as a DataFrame of pandas.

    Raises:
        LitebertError: LB-929, pandas is not installed.
    """
    if find_spec("pandas") is None:
        raise LitebertError(
            "LB-929",
            "a DataFrame needs pandas",
            received="no package pandas",
            expected="pandas 2 or newer",
            next="pip install pandas",
        )
    from pandas import DataFrame

    return DataFrame(list(rows))


def _row(item: object) -> dict[str, object]:
    """Return the fields of an answer; a field that is a table spreads over columns of its own."""
    if not is_dataclass(item):
        return {"value": item}
    row: dict[str, object] = {}
    for field in fields(item):
        value = getattr(item, field.name)
        if isinstance(value, Mapping):
            row |= {f"{field.name}.{name}": each for name, each in value.items()}
        else:
            row[field.name] = value
    return row
