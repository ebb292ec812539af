"""The output of a bulk command: a file with an answer for each row, resumed after a
kill.

Answers are first appended to `OUTPUT.unfinished`, whatever the output's format:

    {"litebert": "unfinished answers", "verb": ..., "model": ..., "pid": ...}
    5f3a9c0d12b4e678 {"row": 1, "answer": ..., "of": "3c5e..."}
    ...

The first line is the command. Each other line is a row's record, after a digest of its
bytes; `of` is a digest of the row itself. A rerun cuts the file at the first line that
is not whole, checks that the command and the rows before are the same (with --force, it
drops all after the first difference), and continues. At the end, all records are
written to the output in its format, atomically.
"""

import base64
import csv
import hashlib
import io
import json
import os
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import closing
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, Self, TypeAlias

import numpy as np

from litebert.answers import Classification
from litebert.cli.command import as_json
from litebert.cli.rows import ID, Numbered
from litebert.errors import LitebertError, disk_errors
from litebert.files import (
    Json,
    by_force,
    open_log,
    remove_log,
    require_new,
    write_stream,
)
from litebert.hub import hash_model
from litebert.inference.model import Model
from litebert.inference.verb import Row, Verb

Answered: TypeAlias = tuple[int, "Row | LitebertError", Any]
"""A row with its number in the input, and its answer, or the error that explains why
there is none.
"""
_FIRST_BYTES = b'{"litebert": "unfinished answers", '
_DIGEST_BYTES = 8  # of a line: 16 hexadecimal digits
_BESIDE_ANSWERS = ("text", "first", "second", "question")


class AnswerFile:
    """The output of a bulk command while it is being written; a second process that
    opens it is refused.

    `num_done` rows were answered before; `resume` skips them.
    """

    def __init__(
        self,
        path: Path,
        verb: Verb,
        model: Model,
        command: Mapping[str, Json],
        *,
        force: bool,
    ) -> None:
        self._path = path
        self._write = _writer_of(path, verb, model)
        self._force = force
        self._unfinished = path.with_name(f"{path.name}.unfinished")
        begun_by: dict[str, Json] = {
            "litebert": "unfinished answers",
            "verb": verb.name,
            "model": hash_model(Path(model.source)),
            **command,
        }
        # After the hashing, which takes time: another process may have written it.
        require_new(path, if_exists=by_force(force))
        self._log = open_log(self._unfinished, _FIRST_BYTES)
        self.num_done = self._continue(json.dumps(begun_by))
        self._is_empty = not self.num_done

    def _continue(self, command: str) -> int:
        """Cut off damaged records and return how many are left, or begin anew."""
        header, num_whole, end = _measure(self._log)
        is_same = header.startswith(command[:-1].encode())
        if num_whole and not is_same and not self._force:
            raise self._begun_by_another("another model, verb or option")
        if num_whole and is_same:
            self._log.truncate(end)
            return num_whole
        # a command that failed before its first row does not restrict the next one
        self._log.truncate(0)
        # the object of the command, with the process that has begun it
        first_line = f'{command[:-1]}, "pid": {os.getpid()}}}\n'
        self._append([first_line.encode()])
        return 0

    def _begun_by_another(self, received: str) -> LitebertError:
        self._log.close()
        return LitebertError(
            "LB-942",
            f"{self._unfinished} was begun by another command",
            received=received,
            next="choose another --output, or add --force",
        )

    def resume(self, rows: Iterable[Numbered]) -> Iterator[Numbered]:
        """Return the remaining rows, after checking that the rows before them are those
        that were answered.

        With `force`, the answers before the first row that differs are kept.
        """
        remaining = iter(rows)
        records = islice(_records(self._unfinished), self.num_done)
        for num_kept, record in enumerate(records):
            number, row = next(remaining, (0, {}))
            if (record["row"], record["of"]) == (number, _digest_of(row)):
                continue
            if not self._force:
                different = f"an input with another row {record['row']}"
                raise self._begun_by_another(different)
            lines = islice(_lines(self._unfinished), 1 + num_kept)
            self._log.truncate(sum(map(len, lines)))
            self.num_done = num_kept
            if number:  # this row was read to be compared
                return chain([(number, row)], remaining)
        return remaining

    def write(self, chunk: Sequence[Answered]) -> None:
        """Append answered rows."""
        lines = []
        for number, row, answer in chunk:
            record = record_of(number, row, answer) | {"of": _digest_of(row)}
            if self._path.suffix == ".csv":
                record["texts"] = _texts_of(row)
            # 4 bytes per number instead of 20
            if self._path.suffix == ".npy" and "answer" in record:
                vector = np.asarray(answer, "<f4").tobytes()
                record["answer"] = base64.b64encode(vector).decode()
            text = _encode(json.dumps(record, ensure_ascii=False))
            lines.append(_digest(text) + b" " + text)
        # before, because an interrupt may come between the two
        self._is_empty = False
        self._append(lines)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """If all rows are answered, write the output in its format, and remove the
        unfinished file; also if no row was answered, when nothing can be resumed.
        """
        # closing releases its lock, so that another process can continue; it also
        # writes what is left
        with disk_errors(self._unfinished), closing(self._log):
            if kind is None:
                contents = self._write(self._unfinished)
                write_stream(self._path, contents, if_exists=by_force(self._force))
            if kind is None or self._is_empty:
                remove_log(self._log, self._unfinished)

    def _append(self, lines: Sequence[bytes]) -> None:
        with disk_errors(self._unfinished):
            self._log.writelines(lines)
            self._log.flush()


def record_of(number: int, row: Row | LitebertError, answer: Any) -> dict[str, Any]:
    """Return the record to write for a row: its number and its id, if it has one, with
    its answer or its error.
    """
    record: dict[str, Any] = {"row": number}
    if isinstance(row, Mapping) and ID in row:
        record[ID] = row[ID]
    if isinstance(answer, LitebertError):
        return record | {"error": answer.what}
    return record | {"answer": as_json(answer)}


def _texts_of(row: Row | LitebertError) -> dict[str, str]:
    """Return what stands beside an answer in a table: the text or the texts of a row,
    or its question; contexts and choices are too long.
    """
    if isinstance(row, LitebertError):
        return {}
    return {role: row[role] for role in _BESIDE_ANSWERS if role in row}


# ---- the unfinished file -------------------------------------------------------------


def _measure(log: BinaryIO) -> tuple[bytes, int, int]:
    """Return the first line of a log, how many whole records follow it, and where the
    last of these ends, in bytes.
    """
    log.seek(0)
    header = log.readline()
    num_whole = 0
    end = len(header)
    for line in log:
        digest, _, text = line.partition(b" ")
        if digest != _digest(text) or not text.endswith(b"\n"):
            break
        num_whole += 1
        end += len(line)
    return header, num_whole, end


def _lines(unfinished: Path) -> Iterator[bytes]:
    with open(unfinished, "rb") as file:
        yield from file


def _records(unfinished: Path) -> Iterator[dict[str, Any]]:
    for line in islice(_lines(unfinished), 1, None):
        yield json.loads(line.partition(b" ")[2])


def _digest(text: bytes) -> bytes:
    digest = hashlib.blake2b(text, digest_size=_DIGEST_BYTES)
    return digest.hexdigest().encode()


def _digest_of(row: Row | LitebertError) -> str:
    if isinstance(row, LitebertError):
        return _short_digest(row.what)
    return _short_digest(json.dumps(dict(row), sort_keys=True))


def _short_digest(text: str) -> str:
    data = text.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=6).hexdigest()


# ---- the formats of the output -------------------------------------------------------

_Writer: TypeAlias = Callable[[Path], Iterator[bytes]]
"""Takes the unfinished file, yields the output."""


def _writer_of(path: Path, verb: Verb, model: Model) -> _Writer:
    """Return what writes the format of an output, by the end of its name."""
    repeated: tuple[str, ...] = ()
    if verb.answer_type is Classification and _gives_scores(model):
        # the heading of the score has its name, which is the only label of each row
        repeated = ("labels",)
    formats: dict[str, _Writer] = {
        ".jsonl": _jsonl,
        ".csv": partial(_csv, without=repeated),
    }
    if verb.answer_type == list[float]:
        formats[".npy"] = _npy
    if path.suffix not in formats or path.is_dir():
        raise LitebertError(
            "LB-914",
            f"answers of {verb.name} cannot be written to {path}",
            expected=f"a file, not a folder, that ends in {' or '.join(formats)}",
            next="--output answers.jsonl",
        )
    return formats[path.suffix]


def _gives_scores(model: Model) -> bool:
    """Return whether answers are numbers on the scale of the training data."""
    head = getattr(model.network, "head_config", None)
    return head is not None and getattr(head.task_kind, "is_number", False)


def _jsonl(unfinished: Path) -> Iterator[bytes]:
    for record in _records(unfinished):
        del record["of"]
        yield _encode(json.dumps(record, ensure_ascii=False))


def _csv(unfinished: Path, *, without: Collection[str]) -> Iterator[bytes]:
    """Yield a CSV file with the number, the id and the texts of each row, and a column
    for each field of any answer, `without` some.
    """
    fields = dict.fromkeys(("row", ID, *_BESIDE_ANSWERS), False)
    for record in _records(unfinished):
        fields |= dict.fromkeys(_flatten(record), True)
    used = [name for name, is_used in fields.items() if is_used]
    omitted = ("of", "error", *without)
    names = [name for name in used if name not in omitted] + ["error"]
    headings = dict[str, object](zip(names, names, strict=True))
    for row in chain([headings], map(_flatten, _records(unfinished))):
        line = io.StringIO()
        writer = csv.DictWriter(line, names, extrasaction="ignore", lineterminator="")
        writer.writerow(row)
        yield _encode(line.getvalue())


def _npy(unfinished: Path) -> Iterator[bytes]:
    """Yield one float32 array with a vector per row; a row without an answer is NaN."""
    num_rows = 0
    size = 0  # bytes of a vector
    for record in _records(unfinished):
        num_rows += 1
        if not size and "answer" in record:
            size = len(base64.b64decode(record["answer"]))
    header = io.BytesIO()
    table = {"descr": "<f4", "fortran_order": False, "shape": (num_rows, size // 4)}
    np.lib.format.write_array_header_1_0(header, table)
    yield header.getvalue()
    missing = np.full(size // 4, np.nan, dtype="<f4").tobytes()
    for record in _records(unfinished):
        if "answer" in record:
            yield base64.b64decode(record["answer"])
        else:
            yield missing


def _encode(line: str) -> bytes:
    """Return a line in UTF-8; a lone surrogate, which JSON can represent, becomes
    JSON's escape for it.
    """
    return f"{line}\n".encode("utf-8", "backslashreplace")


def _flatten(record: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Return nested tables as columns with dotted names, `values.positive`; no line
    breaks, longer lists as JSON.
    """
    flat: dict[str, object] = {}
    for name, value in record.items():
        column = f"{prefix}{name}"
        if isinstance(value, Mapping):
            is_outer = name in ("answer", "texts")
            inner_prefix = "" if is_outer else f"{column}."
            flat |= _flatten(value, inner_prefix)
        elif isinstance(value, list | tuple):
            flat[column] = _cell_of_list(value)
        elif isinstance(value, str):
            flat[column] = " ".join(value.splitlines())
        else:
            flat[column] = value
    return flat


def _cell_of_list(values: Sequence[object]) -> str:
    if len(values) == 1 and isinstance(values[0], str):  # such as a text's only label
        return values[0]
    return json.dumps(values, ensure_ascii=False)
