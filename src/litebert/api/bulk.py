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
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from pydantic_core import to_jsonable_python

from litebert.errors import LitebertError, RequestError
from litebert.files import Json, LockedLog, hash_file, require_replaceable, write_stream
from litebert.inference.model import Model
from litebert.inference.verbs import Row, Verb
from litebert.reading.source import COMPRESSIONS, STANDARD_INPUT, TABLES, TEXTS, find_text, read_lines
from litebert.tasks.own.columns import HEADERS, SYNONYMS
from litebert.tasks.own.table import open_table

CHUNK = 256  # rows that are answered, and written, together
Numbered: TypeAlias = tuple[int, "Row | LitebertError"]
Answered: TypeAlias = tuple[int, "Row | LitebertError", Any]
"""A row with its number in the input, and its answer, or the error that says why it has none."""


# ---- rows -----------------------------------------------------------------------------------------------------------


def is_file(words: Sequence[str]) -> bool:
    """Tell whether arguments are files, or "-" for standard input, rather than texts; a mixture is refused."""
    there = []
    for word in words:
        has_kind = len(word) < 4_096 and "\0" not in word and _kind(word) in {*TEXTS, *TABLES}
        there.append(word == "-" or (has_kind and Path(word).is_file()))
        if has_kind and not there[-1] and not any(map(str.isspace, word)):
            raise _no_file(Path(word))
    if any(there) and not all(there):
        received = f"the file {words[there.index(True)]} and the text {words[there.index(False)]!r}"
        raise RequestError("LB-948", "files and texts cannot be mixed", received=received, next="use two commands")
    return any(there)


def _no_file(path: Path) -> LitebertError:
    return RequestError(
        "LB-943",
        f"{path} is not a file of texts",
        received="a file of another kind" if path.exists() else "no such file",
        expected=", ".join(sorted({*TEXTS, *TABLES})),
        next=f"ls {path.parent}; a text that looks like a file name goes to standard input (-)",
    )


def _kind(name: str) -> str:
    suffixes = (suffix.lower() for suffix in reversed(Path(name).suffixes))
    return next((suffix for suffix in suffixes if suffix not in COMPRESSIONS), "")


def count_rows(words: Sequence[str]) -> int | None:
    """Estimate the rows of files by their lines; None where the lines cannot be counted."""
    if any(word == "-" or _kind(word) == ".parquet" or Path(word).suffix.lower() in COMPRESSIONS for word in words):
        return None
    total = 0
    for word in words:
        with open(word, "rb") as file:
            total += sum(piece.count(b"\n") for piece in iter(lambda: file.read(1 << 20), b""))
        total -= _kind(word) in (".csv", ".tsv")
    return max(0, total)


def rows_of(
    words: Sequence[str], columns: Sequence[str], verb: Verb, shared: Row | None = None, trained: Row | None = None
) -> Iterator[Numbered]:
    """Yield rows of files, or of standard input ("-"), numbered from 1 through all of them.

    A row of a text file is a line, blank ones are passed over; of a table, a record, not counting the names of its
    columns. `columns` are choices such as text=body, or body alone for the first role; `shared` are the parts that
    all rows without their own have; `trained` are the columns, by role, of the table that the model was trained on.
    """
    roles, chosen = verb.roles, dict[str, str]()
    has_header = next((HEADERS[choice] for choice in columns if choice in HEADERS), None)
    for choice in columns:
        if choice in HEADERS:
            continue
        role, _, name = choice.partition("=") if "=" in choice else (roles[0], "", choice)
        role = SYNONYMS.get(role, role)
        if role not in roles or not name:
            raise RequestError(
                "LB-915",
                "this does not choose a column",
                received=choice,
                expected=f"NAME, or ROLE=NAME with a role of {', '.join(roles)}; or header=no",
                next=f"--column {roles[0]}=NAME",
            )
        chosen[role] = name
    shared, before = shared or {}, 0
    usual = [(role, name) for name, role in SYNONYMS.items()] + list((trained or {}).items())
    for word in words:
        table = None
        if word != "-" and _kind(word) != ".txt":
            table = open_table(Path(word), has_header=has_header)
            if has_header is None and not set(chosen.values()) <= set(table.columns):
                table = open_table(Path(word), has_header=True)  # a chosen name is in a header
        there = [roles[0]] if table is None else table.columns
        # a column is the chosen one, one with the name of the role, that of the training, or one with a usual name
        names = {role: role for role in roles}
        names |= {role: name for role, name in usual if role in roles and role not in there and name in there}
        names |= {} if table is None else chosen
        needed = [role for role in roles[: verb.num_needed] if role not in shared]
        for role in (*needed, *(chosen if table else ())):
            if names[role] not in there:
                raise RequestError(
                    "LB-944",
                    f"{word} has no column {names[role]}",
                    received=", ".join(map(str, there))[:200] + " alone, a line each" * (table is None),
                    expected=f"a table with a column named {role}, or the name of the one to use",
                    next=f"add --column {role}=NAME",
                )
        number = 0
        if table is None:
            for number, line in read_lines(STANDARD_INPUT if word == "-" else find_text(word)):
                if line.strip():
                    yield before + number, {**shared, roles[0]: line}
        else:
            for number, (place, row) in enumerate(table.scan(), 1):
                if isinstance(row, LitebertError):
                    yield before + number, row
                    continue
                values = {role: row.get(name) for role, name in names.items() if name in there}
                texts = {role: value for role, value in values.items() if isinstance(value, str)}
                empty = next((names[role] for role in values if role not in texts), None)
                what = f"{table.place(place)} has no text in column {empty}"
                yield before + number, {**shared, **texts} if empty is None else _no_text(what)
        before += number


def _no_text(what: str) -> LitebertError:
    return LitebertError("LB-945", what, next="correct or delete the row")


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


# ---- answers --------------------------------------------------------------------------------------------------------


def answer_rows(
    rows: Iterable[Numbered], verb: Verb, answer: Callable[[list[Row]], Sequence[Any]]
) -> Iterator[list[Answered]]:
    """Yield answers in order, a chunk at a time; a row that cannot be answered has an error."""
    remaining = iter(rows)
    while chunk := list(islice(remaining, CHUNK)):
        good: dict[int, Row] = {}
        found: dict[int, Any] = {}
        for number, row in chunk:
            if isinstance(row, LitebertError):
                found[number] = row
            elif row[verb.roles[0]].strip():
                good[number] = row
            else:  # any answer would be an accident
                found[number] = _no_text(f"the {verb.roles[0]} is blank")
        try:
            found |= zip(good, answer(list(good.values())) if good else (), strict=True)
        except RequestError:  # what is wrong with the request is wrong with every row
            raise
        except LitebertError:  # one of the rows is refused: each by itself
            for number, row in good.items():
                try:
                    found[number] = answer([row])[0]
                except LitebertError as error:
                    found[number] = error
        yield [(number, row, found[number]) for number, row in chunk]


def record_of(verb: Verb, number: int, answer: Any) -> dict[str, Any]:
    """Return what is written for a row: its number with its answer, or with what is wrong."""
    if isinstance(answer, LitebertError):
        return {"row": number, "error": answer.what}
    return {"row": number, "answer": to_jsonable_python(verb.plain(answer))}


class AnswerFile:
    """The output of a bulk command while it is written; a second process that begins it is refused.

    `num_done` rows were answered before; `resume` passes over them.
    """

    def __init__(self, path: Path, verb: Verb, model: Model, command: Mapping[str, Json], *, force: bool) -> None:
        others = {".parquet", ".tsv", ".npz", *COMPRESSIONS} | ({".npy"} if verb.name != "embed" else set())
        is_folder = not path.name or path.is_dir()
        if is_folder or path.suffix in others:
            raise LitebertError(
                "LB-914",
                f"answers of {verb.name} cannot be written to a {'folder' if is_folder else path.suffix}",
                received=str(path),
                expected="a file that ends in .jsonl or .csv, or in .npy for vectors",
                next=f"--output {path / 'answers.jsonl' if is_folder else path.with_suffix('.jsonl')}",
            )
        require_replaceable(path)
        self._path, self._verb = path, verb
        # the weights count, not their name; cards and reports do not
        files = [p for p in Path(model.source).glob("*") if p.is_file() and p.suffix not in (".md", ".html")]
        hashes = "".join(f"{path.name} {hash_file(path)}\n" for path in sorted(files)) or model.source
        begun_by: dict[str, Json] = {"verb": verb.name, "model": _digest(hashes, 16), **command}
        self._log = LockedLog(path.with_name(f"{path.name}.unfinished"))
        if force:
            self._log.clear()
        elif path.exists():
            self._log.remove()
            raise LitebertError("LB-941", f"{path} exists", next="choose another --output, or add --force")
        self.num_done = max(0, self._log.num_lines - 1)
        if self.num_done and {**json.loads(next(self._log.lines())), "pid": 0} != {**begun_by, "pid": 0}:
            raise self._begun_by_another("another model, verb or option")
        if self.num_done == 0:  # a command that failed before its first row binds no other
            self._log.clear()
            self._log.append([json.dumps({**begun_by, "pid": os.getpid()})])

    def _begun_by_another(self, received: str) -> LitebertError:
        self._log.close()
        what, advice = f"{self._log.path} was begun by another command", "choose another --output, or add --force"
        return LitebertError("LB-942", what, received=received, next=advice)

    def resume(self, rows: Iterable[Numbered]) -> Iterator[Numbered]:
        """Return the rows that are left, after a check that those before are the ones that were answered."""
        remaining = iter(rows)
        for record in islice(self._records(), self.num_done):
            number, row = next(remaining, (0, {}))
            if (record["row"], record["of"]) != (number, _digest_of(row)):
                raise self._begun_by_another(f"an input whose row {record['row']} was another")
        return remaining

    def write(self, chunk: Sequence[Answered]) -> None:
        """Append answered rows."""
        lines = []
        for number, row, answer in chunk:
            record = record_of(self._verb, number, answer) | {"of": _digest_of(row)}
            if self._path.suffix == ".npy" and "answer" in record:  # 4 bytes a number instead of 20
                record["answer"] = base64.b64encode(np.asarray(answer, "<f4").tobytes()).decode()
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
        """A column for each field of the answers, which all have the same ones."""
        first = next((record for record in self._records() if "answer" in record), {})
        names = ["row", *(name for name in _flat(first) if name not in ("row", "of")), "error"]
        for record in chain([dict(zip(names, names, strict=True))], self._records()):
            line = io.StringIO()
            csv.DictWriter(line, names, extrasaction="ignore", lineterminator="\n").writerow(_flat(record))
            yield line.getvalue().encode()

    def _npy(self) -> Iterator[bytes]:
        """One float32 array, a vector per row; a row without an answer is NaN."""
        found = (base64.b64decode(record["answer"]) for record in self._records() if "answer" in record)
        missing = np.full(len(next(found, b"")) // 4, np.nan, dtype="<f4").tobytes()
        header, shape = io.BytesIO(), (self._log.num_lines - 1, len(missing) // 4)  # (rows, hidden)
        np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": shape})
        yield header.getvalue()
        for record in self._records():
            yield base64.b64decode(record["answer"]) if "answer" in record else missing


def _digest(text: str, size: int = 6) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).hexdigest()


def _digest_of(row: Row | LitebertError) -> str:
    return _digest(row.what if isinstance(row, LitebertError) else json.dumps(dict(row), sort_keys=True))


def _flat(record: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Return nested tables as columns of one name, `values.positive`; cells without line breaks, lists as JSON."""
    flat: dict[str, object] = {}
    for name, value in record.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, "" if name == "answer" else f"{prefix}{name}.")
        elif isinstance(value, list | tuple):
            flat[f"{prefix}{name}"] = json.dumps(value, ensure_ascii=False)
        else:
            flat[f"{prefix}{name}"] = " ".join(value.splitlines()) if isinstance(value, str) else value
    return flat
