"""Read the files of a GLUE task, as packed by its authors or by the Hugging Face Hub."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TypeAlias

from litebert.errors import LitebertError
from litebert.reading.lines import read_lines
from litebert.reading.source import Source, find_files
from litebert.reading.tables import Row, RowPlace, parse_row, scan_columns
from litebert.tasks.kinds.classification import TextExample
from litebert.tasks.named.glue_tasks import GlueTask

PlacedRows: TypeAlias = Iterator[tuple[RowPlace, Row]]

ID_COLUMNS = ("index", "id", "idx")
"""The column with a row's number; without one, rows are counted from 0."""

HIGHEST_SCORE = 5
"""The highest score of STS-B; the lowest is 0."""


def read_glue(task: GlueTask, folder: Path, split: str) -> list[TextExample]:
    """Read one split from the folder of all tasks or from the task's own; texts are unchanged.

    Raises:
        LitebertError: LB-821, the task has no such split; LB-820, its file is missing; LB-822 to
            LB-825, the file is of another task, or a row is invalid.
    """
    if split not in task.splits:
        raise LitebertError(
            "LB-821",
            f"{task.name} has no split {split}",
            received=split,
            expected=f"one of {', '.join(task.splits)}",
            next=f"litebert recipes show {'mnli' if task.name == 'ax' else task.name}",
        )
    sources = find_files(folder, task.patterns(split))
    return list(chain.from_iterable(_examples(task, source, split) for source in sources))


def _examples(task: GlueTask, source: Source, split: str) -> Iterator[TextExample]:
    is_tsv, is_test = source.kind == ".tsv", split.startswith("test")
    texts = task.texts if is_tsv else task.hub_texts or task.texts
    label = task.label if is_tsv else "label"
    wanted = texts if is_test else (*texts, label)
    rows = (
        _lines(task, source, wanted, header=() if is_test else task.header)
        if is_tsv
        else _hub_rows(task, source, wanted)
    )
    for count, (place, row) in enumerate(rows):
        first, second = (_text(row, name, place) for name in (texts[0], texts[-1]))
        yield TextExample(
            id=str(next((row[name] for name in ID_COLUMNS if name in row), count)),
            first=first,
            second=second if len(texts) == 2 else None,
            label=None if is_test else _label(task, row[label], place),
        )


def _lines(task: GlueTask, source: Source, wanted: Sequence[str], *, header: tuple[str, ...]) -> PlacedRows:
    """Yield the rows of one of the authors' files: tabs between cells, and quotes are literal."""
    lines = read_lines(source)
    if not header:
        number, first = next(lines, (1, ""))
        header = tuple(first.split("\t"))
        _require_columns(task, header, wanted, RowPlace(source, number))
    for number, line in lines:
        cells = line.split("\t")
        if len(cells) < len(header) and task.skips_short_lines:
            continue
        if len(cells) != len(header):
            raise LitebertError(
                "LB-823",
                f"{RowPlace(source, number)}: {task.name} has another number of columns",
                received=f"{len(cells)}: {line}",
                expected=f"{len(header)}, with a tab between: {', '.join(header)}",
                next="get the file again, or take this line out",
            )
        yield RowPlace(source, number), dict(zip(header, cells, strict=True))


def _hub_rows(task: GlueTask, source: Source, wanted: Sequence[str]) -> PlacedRows:
    """Yield the rows of a .parquet or .jsonl file as the Hub has them."""
    is_parquet = source.kind == ".parquet"
    wanted = (*wanted, "idx") if is_parquet else wanted
    rows = scan_columns(source, wanted) if is_parquet else _json_rows(source)
    for number, row in rows:
        place = RowPlace(source, number)
        _require_columns(task, tuple(row), wanted, place)
        yield place, row


def _json_rows(source: Source) -> Iterator[tuple[int, Row]]:
    for number, line in read_lines(source):
        yield number, parse_row(line, RowPlace(source, number))


def _require_columns(task: GlueTask, columns: Sequence[str], wanted: Sequence[str], place: RowPlace) -> None:
    if not set(wanted) <= set(columns):
        raise LitebertError(
            "LB-822",
            f"{place}: these are not the columns of {task.name}",
            received=", ".join(columns),
            expected=f"among them {', '.join(wanted)}",
            next=f"give the folder that holds {task.folder}, or the files of {task.name} itself",
        )


def _text(row: Row, name: str, place: RowPlace) -> str:
    value = row[name]
    if isinstance(value, str):
        return value
    raise LitebertError(
        "LB-824",
        f"{place}: {name} is not text",
        received=str(value),
        expected="a string",
        next="get the file again, or take this row out",
    )


def _label(task: GlueTask, value: object, place: RowPlace) -> int | float:
    is_tsv = place.source.kind == ".tsv"
    label = _number(task, value, is_tsv=is_tsv) if task.labels else _score(value)
    if label is not None:
        return label
    names = task.spellings if is_tsv else task.labels
    raise LitebertError(
        "LB-825",
        f"{place}: not a label of {task.name}",
        received=str(value),
        expected=f"one of {', '.join(names)}" if names else f"a score from 0 to {HIGHEST_SCORE}",
        next="get the file again, or take this row out",
    )


def _number(task: GlueTask, value: object, *, is_tsv: bool) -> int | None:
    """Return the number of a label: the authors' spelling in any case, or the Hub's name or number.

    No other spelling is accepted in the authors' files: those of RTE have the columns of WNLI, but
    words where WNLI has digits.
    """
    names = task.spellings if is_tsv else task.labels
    if isinstance(value, str):
        return names.index(value.lower()) if value.lower() in names else None
    hub_names = task.hub_labels or names
    if isinstance(value, int) and 0 <= value < len(hub_names):
        return names.index(hub_names[value])
    return None


def _score(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    with suppress(ValueError, OverflowError):
        score = float(value)
        return score if 0 <= score <= HIGHEST_SCORE else None
    return None
