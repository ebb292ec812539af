"""What verbs on texts share: arguments, standard input or files in; lines, JSON or JSONL out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import click

from litebert.cli.output import Command, note, show, show_json
from litebert.errors import LitebertError
from litebert.terminal import counted

if TYPE_CHECKING:
    from litebert.api.answer_file import AnswerFile
    from litebert.api.bulk import BulkOptions, NumberedAnswer
    from litebert.inference import Model

Answer = TypeVar("Answer")
SHOWN_ERRORS = 5
_NO_MATTER = ("output", "force", "quiet", "as_json")
"""Options that do not change what is written."""


def bulk_options(command: Command) -> Command:
    """Add the options of bulk work to a command, which receives them as the argument `bulk`."""

    @wraps(command)
    def called(
        *args: object,
        column: tuple[str, ...],
        output: Path | None,
        force: bool,
        quiet: bool,
        as_json: bool,
        **values: object,
    ) -> object:
        from litebert.api.bulk import BulkOptions

        bulk = BulkOptions(column, output, force, quiet, as_json)
        return command(*args, bulk=bulk, **values)

    options = (
        click.option("--json", "as_json", is_flag=True, help="Print JSON; for files, one per line."),
        click.option("--quiet", is_flag=True, help="No progress on stderr."),
        click.option("--force", is_flag=True, help="Replace the output if it exists."),
        click.option(
            "--output",
            type=click.Path(path_type=Path),
            help="A .jsonl or .csv file (vectors: also .npy); rerun to resume.",
        ),
        click.option("--column", multiple=True, metavar="[ROLE=]NAME", help="Column of a CSV, JSONL or Parquet file."),
    )
    decorated: Any = called
    for option in options:
        decorated = option(decorated)
    given: Command = decorated
    return given


@dataclass(frozen=True)
class Verb(Generic[Answer]):
    """How rows with these roles are answered, and how an answer is shown: as a line, or as JSON."""

    answer: Callable[[Model, list[dict[str, str]]], Sequence[Answer]]
    line: Callable[[dict[str, str], Answer], str]
    as_json: Callable[[Answer], object]
    roles: Sequence[str] = ("text",)


def run_verb(
    words: Sequence[str], verb: Verb[Answer], load: Callable[[], Model], bulk: BulkOptions, pairs: Sequence[str] = ()
) -> None:
    """Answer texts, files of texts, or standard input, and print or write the answers."""
    from litebert.api.bulk import is_file

    if is_file(words):
        run_rows(words, verb, load, bulk)
        return
    given = [{verb.roles[0]: word} for word in words]
    if pairs:
        for row, second in zip(given, pairs, strict=True):
            row[verb.roles[1]] = second
    if bulk.output:
        run_rows(words, verb, load, bulk, given)
        return
    network = load()
    if longer := network.too_long(words, list(pairs) or None):
        numbers = ", ".join(str(number + 1) for number in longer)
        note(f"note: longer than the model reads at once: text {numbers}")
    found = verb.answer(network, given)
    if bulk.as_json:
        show_json([verb.as_json(each) for each in found])
        return
    for row, each in zip(given, found, strict=True):
        show(verb.line(row, each))


def run_rows(
    words: Sequence[str],
    verb: Verb[Answer],
    load: Callable[[], Model],
    bulk: BulkOptions,
    typed: Sequence[dict[str, str]] = (),
) -> None:
    """Answer rows in order, chunk by chunk; report at the end which had no answer.

    The rows are those of the files that `words` name, or else the `typed` ones.
    """
    from litebert.api.bulk import answered, count_rows, rows_of
    from litebert.api.progress import Progress

    network = load()
    rows = enumerate(typed, 1) if typed else rows_of(words, bulk.columns, verb.roles)
    file = None if bulk.output is None else _output(() if typed else words, bulk, network)
    bad: list[LitebertError] = []
    number = 0
    num_done = file.num_done if file else 0
    total = len(typed) or count_rows(words)
    left = None if total is None else max(0, total - num_done)
    with Progress("rows", "answering", total=left, is_quiet=bulk.quiet) as progress:
        remaining = islice(rows, num_done, None)
        for chunk in answered(remaining, lambda some: verb.answer(network, some)):
            bad += [each.answer for each in chunk if isinstance(each.answer, LitebertError)]
            if file is not None:
                file.write([_record(each, verb) for each in chunk])
            else:
                _show(chunk, verb, in_json=bulk.as_json)
            number += len(chunk)
            progress.advance(len(chunk))
    for error in bad[:SHOWN_ERRORS]:
        note(f"skipped: {error.what} ({error.received})")
    if file is not None:
        file.finish()
    if file is not None or bad:
        place = f": {bulk.output}" if bulk.output else ""
        skipped = f", {len(bad):,} of them skipped" if bad else ""
        note(f"{counted(number, 'row')}{skipped}{place}")


def _output(inputs: Sequence[str], bulk: BulkOptions, model: Model) -> AnswerFile:
    """Open the output; the command is resumed only with the same arguments and options."""
    from litebert.api.answer_file import answer_file

    assert bulk.output is not None
    if bulk.output.resolve() in [Path(name).resolve() for name in inputs]:
        raise LitebertError(
            "LB-949",
            "the output would replace the input",
            received=str(bulk.output),
            expected="a name that is not an input's",
            next="choose another --output",
        )
    context = click.get_current_context()
    given = {name: str(value) for name, value in context.params.items() if name not in _NO_MATTER}
    command = {**given, "command": str(context.info_name), "model": model.source}
    file = answer_file(bulk.output, command, force=bulk.force)
    if file.num_done:
        note(f"resuming after {counted(file.num_done, 'row')}")
    return file


def _record(each: NumberedAnswer[Answer], verb: Verb[Answer]) -> dict[str, object]:
    if isinstance(each.answer, LitebertError):
        return {"row": each.number, "error": each.answer.what}
    return {"row": each.number, "answer": verb.as_json(each.answer)}


def _show(chunk: Sequence[NumberedAnswer[Answer]], verb: Verb[Answer], *, in_json: bool) -> None:
    for each in chunk:
        if in_json:
            show_json(_record(each, verb))
        elif not isinstance(each.answer, LitebertError):
            show(verb.line(each.values, each.answer))
