"""Answer files, written a chunk at a time and resumed after a kill: JSONL, CSV, npy."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
from pydantic import BaseModel

from litebert.errors import LitebertError
from litebert.files import (
    Json,
    append_bytes,
    cut_off,
    read_json,
    require_absent,
    require_replaceable,
    write_json,
    write_stream,
)
from litebert.reading.source import COMPRESSIONS

_PIECE = 1 << 20
_OTHER_FORMATS = (".parquet", ".tsv", ".npz", *COMPRESSIONS)


class AnswerFile:
    """A JSONL file with a line per row: its number and its answer, or why it has none.

    Rows go to NAME.unfinished; `finish` renames it. When the command is rerun after a kill, a
    half-written line is cut off and the rest is kept.

    Raises:
        LitebertError: LB-008, the path is not a file; LB-941, the file exists; LB-942, another
            command began it.
    """

    def __init__(self, path: Path, command: Mapping[str, str], *, force: bool) -> None:
        self._path, self._unfinished = path, path.with_name(f"{path.name}.unfinished")
        self._command = path.with_name(f"{path.name}.unfinished.json")
        require_replaceable(path)
        if force:
            self._unfinished.unlink(missing_ok=True)
            self._command.unlink(missing_ok=True)
        else:
            require_absent(
                "LB-941",
                f"{path} exists",
                path,
                expected="a new file, or --force",
                next="choose another --output, or add --force",
            )
        ours: dict[str, Json] = {**command}
        # A command that failed before its first row binds no other.
        began = self._command.exists() and self._unfinished.exists()
        if began and read_json(self._command, command=f"ls {path.parent}") != ours:
            raise LitebertError(
                "LB-942",
                f"{self._unfinished} was begun by another command",
                received="another model, input, verb or option",
                expected="the same command, or --force to start again",
                next="choose another --output, or add --force",
            )
        write_json(self._command, ours)
        self.num_done = self._whole_rows()

    def write(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Append rows, each with its number as `row` and an `answer` or an `error`."""
        if rows:
            append_bytes(self._unfinished, self._encoded(rows))

    def finish(self) -> None:
        """Rename the file to its final name."""
        if not self._unfinished.exists():
            write_stream(self._unfinished, ())
        self._unfinished.replace(self._path)
        self._command.unlink(missing_ok=True)

    def _encoded(self, rows: Sequence[Mapping[str, object]]) -> bytes:
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()

    def _whole_rows(self) -> int:
        """Count the complete lines; cut off a half-written last one."""
        if not self._unfinished.exists():
            return 0
        number, is_whole = 0, True
        with open(self._unfinished, "rb") as file:
            for line in file:
                is_whole = line.endswith(b"\n")
                number += is_whole
        if not is_whole:
            with open(self._unfinished, "rb") as file:
                write_stream(self._unfinished, (line for line in file if line.endswith(b"\n")))
        return number


class CsvAnswers(AnswerFile):
    """A CSV file with a column for each field of the answers; lists are JSON in one cell."""

    _NAMES: ClassVar[tuple[str, str]] = ("row", "error")

    def _encoded(self, rows: Sequence[Mapping[str, object]]) -> bytes:
        """Take the columns from the first answer; all others have the same ones."""
        lines = io.StringIO()
        flat = [_flat(row) for row in rows]
        names = self._columns(flat)
        writer = csv.DictWriter(lines, names, extrasaction="ignore", lineterminator="\n")
        if not self._unfinished.exists():
            writer.writeheader()
        for row in flat:
            writer.writerow({name: _one_line(value) for name, value in row.items()})
        return lines.getvalue().encode()

    def _columns(self, rows: Sequence[Mapping[str, object]]) -> list[str]:
        if self._unfinished.exists():
            with open(self._unfinished, encoding="utf-8", newline="") as file:
                return next(csv.reader(file))
        fields = dict.fromkeys(name for row in rows for name in row if name not in self._NAMES)
        return ["row", *fields, "error"]

    def _whole_rows(self) -> int:
        return max(0, super()._whole_rows() - 1)


class _VectorShape(BaseModel):
    size: int


class NpyAnswers(AnswerFile):
    """The vectors of `embed` as one float32 array; a row without an answer is NaN."""

    def _encoded(self, rows: Sequence[Mapping[str, object]]) -> bytes:
        size = next((len(_vector(row)) for row in rows if "answer" in row), self._size())
        block = np.full((len(rows), size), np.nan, dtype="<f4")
        for number, row in enumerate(rows):
            if "answer" in row:
                block[number] = _vector(row)
        if not self._size():
            write_json(self._shape, {"size": size})
        return block.tobytes()

    def finish(self) -> None:
        """Put the header before the numbers."""
        header = io.BytesIO()
        shape = {"descr": "<f4", "fortran_order": False, "shape": (self._whole_rows(), self._size())}
        np.lib.format.write_array_header_1_0(header, shape)
        write_stream(self._path, (header.getvalue(), *self._pieces()))
        for path in (self._unfinished, self._command, self._shape):
            path.unlink(missing_ok=True)

    @property
    def _shape(self) -> Path:
        return self._path.with_name(f"{self._path.name}.unfinished.shape.json")

    def _size(self) -> int:
        """Return the length of a vector; 0 before there is one."""
        if not self._shape.exists():
            return 0
        table = read_json(self._shape, command=f"ls {self._path.parent}")
        return _VectorShape.model_validate(table).size

    def _pieces(self) -> Iterator[bytes]:
        if not self._unfinished.exists():
            return
        with open(self._unfinished, "rb") as file:
            while piece := file.read(_PIECE):
                yield piece

    def _whole_rows(self) -> int:
        if not self._unfinished.exists() or not self._size():
            return 0
        number, rest = divmod(self._unfinished.stat().st_size, 4 * self._size())
        if rest:
            cut_off(self._unfinished, number * 4 * self._size())
        return number


def answer_file(path: Path, command: Mapping[str, str], *, force: bool) -> AnswerFile:
    """Open a file of answers; its suffix selects the format, JSONL by default.

    Raises:
        LitebertError: LB-913, the path is a folder; LB-914, the format is not written; LB-911, the
            answers are not vectors, so they cannot be an array; those of `AnswerFile`.
    """
    if not path.name or path.is_dir():
        raise LitebertError(
            "LB-913",
            "answers go to a file, not to a folder",
            received=str(path),
            expected="a name that ends in .jsonl or .csv, or in .npy for vectors",
            next=f"--output {path / 'answers.jsonl'}",
        )
    if path.suffix in _OTHER_FORMATS:
        raise LitebertError(
            "LB-914",
            f"answers are not written as {path.suffix}",
            received=str(path),
            expected="a name that ends in .jsonl or .csv, or in .npy for vectors",
            next=f"--output {path.with_suffix('.jsonl')}",
        )
    if path.suffix == ".npy" and command["command"] != "embed":
        raise LitebertError(
            "LB-911",
            "only vectors can be written as an array",
            received=str(path),
            expected="a name that ends in .jsonl or .csv",
            next=f"--output {path.with_suffix('.jsonl')}",
        )
    kinds = {".csv": CsvAnswers, ".npy": NpyAnswers}
    return kinds.get(path.suffix, AnswerFile)(path, command, force=force)


def _vector(row: Mapping[str, object]) -> Sequence[float]:
    answer = row["answer"]
    assert isinstance(answer, Sequence)
    return answer


def _flat(row: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Return nested tables as columns of one name: `values.positive`."""
    flat: dict[str, object] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, "" if name == "answer" else f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _one_line(value: object) -> object:
    """Return a cell without line breaks, so that rows are lines; lists as JSON."""
    if isinstance(value, list | tuple):
        return json.dumps(value, ensure_ascii=False)
    return " ".join(value.splitlines()) if isinstance(value, str) else value
