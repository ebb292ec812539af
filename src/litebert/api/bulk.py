"""Many texts through one verb: rows in order, bad rows reported, resumed after a kill.

Answers go to `OUTPUT.unfinished`, whatever the format of the output: a line of JSON with the command, then one for
each row with a digest of what was answered. A rerun cuts off a half-written line, checks that the rows before are
the ones it reads now, and continues. At the end the rows are written in the output's own format, atomically.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from pydantic_core import to_jsonable_python

from litebert.errors import LitebertError, RequestError
from litebert.files import Json, LockedLog, hash_file, require_replaceable, write_stream
from litebert.inference.model import Model
from litebert.inference.verbs import Row, Verb
from litebert.reading.lines import STANDARD_INPUT, read_lines
from litebert.reading.source import COMPRESSIONS, TABLES, TEXTS, find_text
from litebert.tasks.own.columns import SYNONYMS, chosen_header
from litebert.tasks.own.table import open_table

CHUNK = 256
"""Rows that are answered, and written, together."""
FORMATS = (".jsonl", ".csv", ".npy")
Numbered: TypeAlias = tuple[int, "Row | LitebertError"]


@dataclass(frozen=True)
class Answered:
    """A row with its number in the input, and its answer, or why it has none."""

    number: int
    row: Row
    answer: Any

    def record(self, verb: Verb) -> dict[str, object]:
        """Return what is written for this row."""
        if isinstance(self.answer, LitebertError):
            return {"row": self.number, "error": self.answer.what}
        return {"row": self.number, "answer": to_jsonable_python(verb.plain(self.answer))}


# Rows


def is_file(words: Sequence[str]) -> bool:
    """Tell whether arguments are files, or "-" for standard input, rather than texts; a mixture is refused."""
    files = [word for word in words if word == "-" or (_has_kind(word) and Path(word).is_file())]
    if len(files) == len(words):
        return bool(words)
    texts = [word for word in words if word not in files]
    for word in texts:
        if _has_kind(word) and not any(map(str.isspace, word)):
            raise _no_file(Path(word))
    if files:
        raise RequestError(
            "LB-948",
            "files and texts cannot be mixed",
            received=f"the file {files[0]} and the text {texts[0]!r}",
            expected="files alone, or texts alone",
            next="use two commands",
        )
    return False


def rows_of(
    words: Sequence[str],
    columns: Sequence[str],
    verb: Verb,
    shared: Row | None = None,
    trained: Mapping[str, str] | None = None,
) -> Iterator[Numbered]:
    """Yield rows of files, or of standard input ("-"), numbered from 1 through all of them.

    A row of a text file is a line, blank ones are passed over; of a table, a record, not counting the names of its
    columns. `columns` are choices such as text=body, or body alone for the first role; `shared` are the parts that
    all rows without their own have; `trained` are the columns, by role, of the table that the model was trained on.
    """
    has_header = chosen_header(columns)
    chosen = dict(_chosen(choice, verb.roles) for choice in columns if chosen_header([choice]) is None)
    shared, before = shared or {}, 0
    needed = [role for role in verb.roles[: verb.num_needed] if role not in shared]
    for word in words:
        number = 0
        if word == "-" or _kind(word) == ".txt":
            if len(needed) > 1:
                raise RequestError(
                    "LB-947",
                    f"a line has a {needed[0]} and nothing else",
                    received=word,
                    expected=f"a table with the columns {' and '.join(needed)}",
                    next=f"litebert {verb.name} --help",
                )
            source = STANDARD_INPUT if word == "-" else find_text(word)
            for number, line in read_lines(source):
                if line.strip():
                    yield before + number, {**shared, verb.roles[0]: line}
        else:
            rows = _table_rows(Path(word), verb, chosen, needed, trained or {}, has_header=has_header)
            for number, row in enumerate(rows, 1):
                yield before + number, row if isinstance(row, LitebertError) else {**shared, **row}
        before += number


def _table_rows(
    path: Path,
    verb: Verb,
    chosen: Mapping[str, str],
    needed: Sequence[str],
    trained: Mapping[str, str],
    *,
    has_header: bool | None,
) -> Iterator[Row | LitebertError]:
    """Yield the columns of some roles in a table; those that nobody chose, and no answer needs, may be missing."""
    table = open_table(path, has_header=has_header)
    if has_header is None and not set(chosen.values()) <= set(table.columns):
        table = open_table(path, has_header=True)  # a chosen name is in a header
    usual = {role: name for name, role in SYNONYMS.items() if role not in table.columns}
    usual |= {role: name for role, name in trained.items() if role not in table.columns and name in table.columns}
    named = {role: chosen.get(role, usual.get(role, role)) for role in verb.roles}
    for role in dict.fromkeys([*needed, *chosen]):
        if named[role] not in table.columns:
            raise RequestError(
                "LB-944",
                f"{path} has no column {named[role]}",
                received=", ".join(map(str, table.columns))[:200],
                expected=f"a column named {role}, or the name of the one to use",
                next=f"add --column {role}=NAME",
            )
    there = {role: name for role, name in named.items() if name in table.columns}
    for number, row in table.scan():
        if isinstance(row, LitebertError):
            yield row
            continue
        values = {role: row.get(name) for role, name in there.items()}
        wrong = [role for role, value in values.items() if not isinstance(value, str)]
        if wrong:
            yield LitebertError(
                "LB-945",
                f"{table.place(number)} has no text",
                received=f"column {there[wrong[0]]} is empty or of another type",
                expected="a text",
                next="correct or delete the row",
            )
        else:
            yield {role: str(value) for role, value in values.items()}


def count_rows(words: Sequence[str]) -> int | None:
    """Estimate the rows of files by their lines; None where the lines cannot be counted."""
    if any(word == "-" or _kind(word) == ".parquet" or Path(word).suffix.lower() in COMPRESSIONS for word in words):
        return None
    total = 0
    for word in words:
        with open(word, "rb") as file:
            while piece := file.read(1 << 20):
                total += piece.count(b"\n")
        total -= _kind(word) in (".csv", ".tsv")
    return max(0, total)


def read_texts_of(path: Path, column: str) -> list[str]:
    """Return all texts of a file: its lines, or a column of a table."""
    if not is_file([str(path)]):
        raise _no_file(path)
    texts = []
    for _, row in rows_of([str(path)], [column], Verb("search", lambda *_: (), lambda *_: "")):
        if isinstance(row, LitebertError):
            raise row
        texts.append(row["text"])
    return texts


# Answers


def answered(
    rows: Iterable[Numbered], verb: Verb, answer: Callable[[list[Row]], Sequence[Any]]
) -> Iterator[list[Answered]]:
    """Yield answers in order, a chunk at a time; a row that cannot be answered has an error."""
    remaining = iter(rows)
    while chunk := list(islice(remaining, CHUNK)):
        checked = [(number, _checked(row, verb)) for number, row in chunk]
        good = [row for _, row in checked if not isinstance(row, LitebertError)]
        found = iter(_each(good, answer))
        yield [
            Answered(number, {}, row) if isinstance(row, LitebertError) else Answered(number, row, next(found))
            for number, row in checked
        ]


def _checked(row: Row | LitebertError, verb: Verb) -> Row | LitebertError:
    """Refuse a row whose first part is blank: any answer to it would be an accident."""
    if isinstance(row, LitebertError) or row[verb.roles[0]].strip():
        return row
    role = verb.roles[0]
    return LitebertError("LB-945", f"the {role} is blank", received="no text", expected="a text", next="delete the row")


def _each(rows: list[Row], answer: Callable[[list[Row]], Sequence[Any]]) -> Iterator[Any]:
    """Answer rows together; where one of them is refused, each by itself.

    What is wrong with the request is wrong with every row, and ends it.
    """
    try:
        yield from answer(rows) if rows else ()
    except RequestError:
        raise
    except LitebertError:
        for row in rows:
            try:
                yield answer([row])[0]
            except LitebertError as error:
                yield error


class AnswerFile:
    """The output of a bulk command while it is written; a second process that begins it is refused.

    `num_done` rows were answered before; `resume` passes over them.
    """

    def __init__(self, path: Path, verb: Verb, model: Model, command: Mapping[str, Json], *, force: bool) -> None:
        _require_format(path, verb)
        require_replaceable(path)
        self._path, self._verb, self._is_array = path, verb, path.suffix == ".npy"
        self._begun_by: dict[str, Json] = {"verb": verb.name, "model": _identity(model), **command}
        self._log = LockedLog(path.with_name(f"{path.name}.unfinished"))
        if force:
            self._log.clear()
        elif path.exists():
            self._log.remove()
            raise LitebertError(
                "LB-941",
                f"{path} exists",
                received=f"{path.stat().st_size:,} bytes",
                expected="a new file, or --force",
                next="choose another --output, or add --force",
            )
        self.num_done = max(0, self._log.num_lines - 1)
        begun_by = json.loads(next(self._log.lines())) if self.num_done else {}
        if self.num_done and {**begun_by, "pid": 0} != {**self._begun_by, "pid": 0}:
            raise self._begun_by_another("another model, verb or option")
        if self.num_done == 0:  # a command that failed before its first row binds no other
            self._log.clear()
            self._log.append([json.dumps({**self._begun_by, "pid": os.getpid()})])

    def resume(self, rows: Iterable[Numbered]) -> Iterator[Numbered]:
        """Return the rows that are left, after a check that those before are the ones that were answered."""
        remaining = iter(rows)
        for record in islice(self._records(), self.num_done):
            number, row = next(remaining, (0, {}))
            if (record["row"], record["of"]) != (number, _digest(row)):
                raise self._begun_by_another(f"an input whose row {record['row']} was another")
        return remaining

    def write(self, chunk: Sequence[Answered]) -> None:
        """Append answered rows."""
        lines = []
        for each in chunk:
            source = each.row or each.answer
            record = each.record(self._verb) | {"of": _digest(source)}
            if self._is_array and "answer" in record:  # 4 bytes a number instead of 20
                record["answer"] = base64.b64encode(np.asarray(each.answer, "<f4").tobytes()).decode()
            lines.append(json.dumps(record, ensure_ascii=False))
        self._log.append(lines)

    def finish(self) -> None:
        """Write all rows in the format of the output, and remove the unfinished file."""
        write = {".csv": self._csv, ".npy": self._npy}.get(self._path.suffix, self._jsonl)
        write_stream(self._path, write())
        self._log.remove()

    def close(self) -> None:
        """Let another process continue."""
        self._log.close()

    def _records(self) -> Iterator[dict[str, Any]]:
        return map(json.loads, islice(self._log.lines(), 1, None))

    def _jsonl(self) -> Iterator[bytes]:
        for record in self._records():
            del record["of"]
            yield (json.dumps(record, ensure_ascii=False) + "\n").encode()

    def _csv(self) -> Iterator[bytes]:
        """A column for each field of the answers, which all have the same ones; lists are JSON in one cell."""
        first = next((record for record in self._records() if "answer" in record), {})
        fields = [name for name in _flat(first) if name not in ("row", "of")]
        for record in chain([None], self._records()):
            line = io.StringIO()
            writer = csv.DictWriter(line, ["row", *fields, "error"], extrasaction="ignore", lineterminator="\n")
            if record is None:
                writer.writeheader()
            else:
                writer.writerow({name: _one_line(value) for name, value in _flat(record).items()})
            yield line.getvalue().encode()

    def _npy(self) -> Iterator[bytes]:
        """One float32 array, a vector per row; a row without an answer is NaN."""
        found = (base64.b64decode(record["answer"]) for record in self._records() if "answer" in record)
        missing = np.full(len(next(found, b"")) // 4, np.nan, dtype="<f4").tobytes()
        header, shape = io.BytesIO(), (self._log.num_lines - 1, len(missing) // 4)
        np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": shape})
        yield header.getvalue()
        for record in self._records():
            yield base64.b64decode(record["answer"]) if "answer" in record else missing

    def _begun_by_another(self, received: str) -> LitebertError:
        self._log.close()
        return LitebertError(
            "LB-942",
            f"{self._path}.unfinished was begun by another command",
            received=received,
            expected="the same command on the same rows, or --force to start again",
            next="choose another --output, or add --force",
        )


def _require_format(path: Path, verb: Verb) -> None:
    expected = "a name that ends in .jsonl or .csv, or in .npy for vectors"
    if not path.name or path.is_dir():
        next_step = f"--output {path / 'answers.jsonl'}"
        raise LitebertError(
            "LB-913", "answers go to a file, not to a folder", received=str(path), expected=expected, next=next_step
        )
    next_step = f"--output {path.with_suffix('.jsonl')}"
    if path.suffix in (".parquet", ".tsv", ".npz", *COMPRESSIONS):
        what = f"answers are not written as {path.suffix}"
        raise LitebertError("LB-914", what, received=str(path), expected=expected, next=next_step)
    if path.suffix == ".npy" and verb.name != "embed":
        what = "only vectors can be written as an array"
        raise LitebertError("LB-911", what, received=str(path), expected=expected, next=next_step)


def _identity(model: Model) -> str:
    """Return a hash of a model's files: a resume with other weights under the same name is refused."""
    folder = Path(model.source)
    files = sorted(path for path in folder.glob("*") if path.is_file() and path.suffix not in (".md", ".html"))
    digest = hashlib.blake2b(digest_size=16)
    for path in files:
        digest.update(f"{path.name} {hash_file(path)}\n".encode())
    return digest.hexdigest() if files else model.source


def _digest(row: Row | LitebertError) -> str:
    shown = row.what if isinstance(row, LitebertError) else json.dumps(dict(row), sort_keys=True)
    return hashlib.blake2b(shown.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def _flat(record: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Return nested tables as columns of one name: `values.positive`."""
    flat: dict[str, object] = {}
    for name, value in record.items():
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


def _chosen(choice: str, roles: Sequence[str]) -> tuple[str, str]:
    """Read ROLE=NAME, or the NAME of the first role."""
    role, equals, name = choice.partition("=")
    if not equals:
        return roles[0], choice
    role = role if role in roles else SYNONYMS.get(role, role)
    if role not in roles or not name:
        raise RequestError(
            "LB-915",
            "this does not choose a column",
            received=choice,
            expected=f"NAME, or ROLE=NAME with a role of {', '.join(roles)}; or header=no",
            next=f"--column {roles[0]}=NAME",
        )
    return role, name


def _no_file(path: Path) -> LitebertError:
    return RequestError(
        "LB-943",
        f"{path} is not a file of texts",
        received="a file of another kind" if path.exists() else "no such file",
        expected=", ".join(sorted({*TEXTS, *TABLES})),
        next=f"ls {path.parent}; a text that looks like a file name goes to standard input (-)",
    )


def _kind(name: str) -> str:
    suffixes = Path(name).suffixes
    return next((s.lower() for s in reversed(suffixes) if s.lower() not in COMPRESSIONS), "")


def _has_kind(name: str) -> bool:
    return len(name) < 4_096 and "\0" not in name and _kind(name) in {*TEXTS, *TABLES}
