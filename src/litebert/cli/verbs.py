"""The verbs of a model as commands, for texts, files of texts and standard input.

Each command is made from the record of its verb (`litebert.inference.verb`): this
module knows no verb by name.
"""

import inspect
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice, tee
from pathlib import Path
from typing import Annotated, Any, Required, TypeAlias, get_args

import click
from annotated_types import Ge

from litebert.answers import Explanation, Match, Shown
from litebert.api.settings import Quiet, progress
from litebert.cli.answer_file import Answered, AnswerFile, record_of
from litebert.cli.command import (
    TextCommand,
    argument,
    argument_or_option,
    help_of,
    option,
    options_of,
    show,
    show_json,
    take,
    take_argument_or_option,
    take_record,
)
from litebert.cli.rows import (
    Numbered,
    Reading,
    count_rows,
    find_source,
    find_sources,
    no_text,
)
from litebert.config import DeviceName, InferencePrecision
from litebert.errors import LitebertError, RequestError, format_count, say
from litebert.files import Json
from litebert.hub import PACKAGED
from litebert.inference.model import Model
from litebert.inference.verb import CHOICES, Row, Verb
from litebert.plugins import VERBS
from litebert.reading.lines import read_lines
from litebert.reading.source import Source, find_file
from litebert.runs import RunFolder
from litebert.tasks.tables.columns import chosen_columns

CHUNK = 256  # rows that are answered, and written, together
MAX_OPTIONAL = 3  # columns that help names, such as those of choices
MAX_SHOWN = 5  # rows without an answer that stderr lists
Answering: TypeAlias = Callable[[Iterable[Row]], Iterable[Any]]


@dataclass(frozen=True)
class Loading:
    """Options for loading a model."""

    model: Annotated[
        str | None,
        "Folder, run, or name on the Hub; by default the packaged model.",
    ] = None
    device: DeviceName = "auto"
    precision: InferencePrecision = None

    def load(self) -> Model:
        """Load the model; print its name, and notes on what its files leave uncertain,
        on stderr.
        """
        model = Model.load(
            self.model,
            device=self.device,
            precision=self.precision,
        )
        name = PACKAGED if self.model is None else model.source
        say(f"model: {name}")
        model.remark = say
        for doubt in model.notes:
            say(f"note: {doubt}")
        return model


@dataclass(frozen=True)
class Bulk:
    """Options for files: which columns to read, and where to write answers."""

    columns: Annotated[
        tuple[str, ...],
        "--column",
        "Column of a CSV, JSONL or Parquet file, [ROLE=]NAME.",
    ] = ()
    output: Annotated[
        Path | None,
        "A .jsonl or .csv file (vectors: also .npy); repeat an interrupted command to"
        " go on.",
    ] = None
    force: Annotated[bool, "Replace the output if it exists."] = False
    quiet: Quiet = False
    as_json: Annotated[bool, "--json", "Print JSON; for files, one per line."] = False


# ---- the command of a verb -----------------------------------------------------------


def verb_command(verb_name: str) -> click.Command:
    """Return the command of a verb: its texts, and the options of its function, of
    loading and of files.
    """
    verb: Verb = VERBS[verb_name]
    params = _arguments(verb)
    for name, parameter in verb.options.items():
        params.append(option(name, verb.hints[name], parameter.default))
    params += [*options_of(Loading), *options_of(Bulk)]

    def run(**values: Any) -> None:
        if "context_option" in values:
            context = take_argument_or_option("context", values, is_needed=False)
            values["context"] = context
        loading = take_record(Loading, values)
        bulk = take_record(Bulk, values)
        options = take(values, verb.options)
        _run(verb, loading, bulk, options, values)

    return TextCommand(verb.name, callback=run, params=params, help=_help(verb))


def _arguments(verb: Verb) -> list[click.Parameter]:
    """Return the parameters for what a verb reads; all but the first may be missing,
    since the first may name a file.
    """
    params: list[click.Parameter] = []
    for name in verb.inputs:
        if name in ("text", "texts"):
            params.append(argument("texts", tuple[str, ...]))
        elif name == "pairs":
            meaning = "Second text, one for each TEXT."
            seconds = Annotated[tuple[str, ...], "--pair", meaning]
            params.append(option(name, seconds, ()))
        elif name == "choices":
            params.append(argument(name, tuple[str, ...], ()))
        elif name == "context":
            notes = get_args(verb.hints[name])[1:]
            if name in verb.needed:
                params += argument_or_option(name, Annotated[str, *notes])
                of_file = Annotated[Path | None, "A file that contains this text."]
                params.append(option("file", of_file, None))
            else:
                params.append(option(name, Annotated[str | None, *notes], None))
        elif params:
            params.append(argument(name, str | None, None))
        else:
            params.append(argument(name, str))
    return params


def _help(verb: Verb) -> str:
    """Return the help of a verb: what it does, the columns of a file, examples."""
    about = verb.help or inspect.cleandoc(verb.call.__doc__ or verb.summary)
    columns = f"Columns of a file: {', '.join(verb.needed)}"
    optional = [role for role in verb.roles if role not in verb.needed]
    if optional:
        columns += f"; optional: {', '.join(optional[:MAX_OPTIONAL])}"
    columns += ". Use - for standard input."
    examples = [f"litebert {command}" for command in commands_of(verb)]
    return "\n\n".join([help_of(about), columns, help_of("\n".join(examples))])


def commands_of(verb: Verb) -> tuple[str, ...]:
    """Return the examples of a verb for the shell, without `litebert`."""
    return verb.commands or (verb.in_shell,)


# ---- answering -----------------------------------------------------------------------


def _run(
    verb: Verb,
    loading: Loading,
    bulk: Bulk,
    options: dict[str, Any],
    words: dict[str, Any],
) -> None:
    """Answer typed texts in the terminal; answer rows of files, or texts with --output,
    one after the other.
    """
    asked = _read_words(verb, words)
    if bulk.columns and not asked.sources:
        raise RequestError(
            "LB-916",
            "--column has no effect without a file",
            received=" ".join(bulk.columns),
            next="omit --column",
        )
    model = loading.load()
    model.require(verb)  # before a file is read
    answering = partial(verb.answer, model, **options)
    if asked.sources or bulk.output is not None:
        _answer_rows(verb, model, asked, answering, bulk, options)
    else:
        _answer_typed(verb, model, asked.rows, answering, as_json=bulk.as_json)


def _answer_typed(
    verb: Verb,
    model: Model,
    rows: Sequence[Row],
    answering: Answering,
    *,
    as_json: bool,
) -> None:
    """Print the answers to typed texts; JSON is one value."""
    if verb.is_cut and verb.takes_list:
        _note_cut(model, rows)
    answers = answering(rows)
    if as_json:
        listed = list(answers)
        is_list = verb.takes_list or verb.lists_one or len(listed) > 1
        value = listed if is_list else listed[0]
        show_json(value)
        return
    for row, answer in zip(rows, answers, strict=True):
        show(verb.line(row, answer))


def _note_cut(model: Model, rows: Sequence[Row]) -> None:
    """Say which typed texts are longer than the model can read."""
    texts = [row["text"] for row in rows]
    seconds = [row["second"] for row in rows if "second" in row]
    too_long = model.too_long(texts, seconds or None)
    if too_long:
        numbers = ", ".join(str(number + 1) for number in too_long)
        say(f"note: longer than the model can read: text {numbers}")


def _answer_rows(
    verb: Verb,
    model: Model,
    asked: "Asked",
    answering: Answering,
    bulk: Bulk,
    options: dict[str, Any],
) -> None:
    """Answer rows, and print the answers or write them to the output."""
    total: int | None = len(asked.rows)
    if asked.sources:
        total = count_rows(asked.sources)
    numbered = _numbered_rows(verb, model, asked, bulk.columns)
    _require_other_output(bulk.output, asked.sources)
    # printed rows show the progress
    is_quiet = bulk.quiet or (bulk.output is None and sys.stdout.isatty())
    tally = _Tally()
    with ExitStack() as stack:
        write: Callable[[Sequence[Answered]], None]
        answered: Iterator[list[Answered]]
        if bulk.output is None:
            write = partial(_print_rows, verb, as_json=bulk.as_json)
            answered = answer_rows(numbered, verb, answering)
        else:
            command: dict[str, Json] = {
                "options": options,
                "precision": model.precision,
                "columns": list(bulk.columns),
            }
            file = AnswerFile(bulk.output, verb, model, command, force=bulk.force)
            stack.enter_context(file)
            write = file.write
            answered = _answer_remaining(numbered, verb, answering, file)
            tally.num_before = file.num_done
        if tally.num_before:
            say(f"resuming after {format_count(tally.num_before, 'row')}")
        if total is not None:
            total = max(0, total - tally.num_before)
        advance = stack.enter_context(
            progress("rows answered", total=total, is_quiet=is_quiet)
        )
        for chunk in answered:
            write(chunk)
            tally.add(chunk)
            advance(len(chunk))
    tally.tell(verb, bulk.output)


def _numbered_rows(
    verb: Verb, model: Model, asked: "Asked", columns: Sequence[str]
) -> Iterator[Numbered]:
    """Yield the rows of files, or typed ones."""
    if not asked.sources:
        return iter(enumerate(asked.rows, 1))
    reading = Reading(
        verb.roles,
        model.needed(verb),
        columns=columns,
        shared=asked.shared,
        trained=_trained_columns(model),
    )
    return reading.rows(asked.sources)


def _trained_columns(model: Model) -> dict[str, str]:
    """Return the columns, by role, of the table that the model was trained on."""
    run = RunFolder.of(model.source)
    columns = None if run is None else run.file.data.get("columns")
    if not isinstance(columns, list):
        return {}
    chosen = chosen_columns(map(str, columns))
    trained = {role: names[0] for role, names in chosen.names.items()}
    choices = chosen.all("choices")
    if len(choices) > 1:  # a column for each choice
        trained |= zip(CHOICES, choices, strict=False)
    return trained


def _require_other_output(output: Path | None, sources: Sequence[Source]) -> None:
    """Raise if the output is one of the inputs."""
    if output is None:
        return
    places = [Path(source.location).resolve() for source in sources]
    if output.resolve() in places:
        raise LitebertError(
            "LB-949",
            f"the output {output} would replace the input",
            next="choose another --output",
        )


@dataclass
class _Tally:
    """How many rows were answered, and those that could not be."""

    num_before: int = 0  # answered by an earlier command, which this one continues
    num_rows: int = 0
    num_bad: int = 0
    first_bad: list[tuple[int, LitebertError]] = field(default_factory=list)

    def add(self, chunk: Sequence[Answered]) -> None:
        self.num_rows += len(chunk)
        for number, _, answer in chunk:
            if isinstance(answer, LitebertError):
                self.num_bad += 1
                if len(self.first_bad) < MAX_SHOWN:
                    self.first_bad.append((number, answer))

    def tell(self, verb: Verb, output: Path | None) -> None:
        """Say what happened; raise if no row has an answer."""
        for number, error in self.first_bad:
            received = f" ({error.received})" if error.received else ""
            say(f"row {number} skipped: {error.what}{received}")
        summary = format_count(self.num_rows, "row")
        if self.num_bad:
            summary += f", {self.num_bad:,} of them skipped"
        if output is not None:
            summary += f": {output}"
        if output is not None or self.num_bad:
            say(summary)
        if self.num_bad and self.num_bad == self.num_rows and not self.num_before:
            _, error = self.first_bad[0]
            raise LitebertError(
                "LB-940",
                "no row has an answer",
                received=error.what,
                next="correct the rows, or choose another column: --column"
                f" {verb.roles[0]}=NAME",
            )


def _print_rows(verb: Verb, chunk: Sequence[Answered], *, as_json: bool) -> None:
    """Print answered rows; JSON is one value per row."""
    for number, row, answer in chunk:
        if as_json:
            show_json(record_of(number, row, answer))
            continue
        # errors are said on stderr
        if isinstance(row, LitebertError) or isinstance(answer, LitebertError):
            continue
        if verb.title:
            show(row[verb.title])
        show(verb.line(row, answer))


# ---- typed texts, or files -----------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """What the words of a command ask: files, with the parts that all of their rows
    share, or typed rows.
    """

    sources: Sequence[Source] = ()
    shared: Row = field(default_factory=dict)
    rows: Sequence[Row] = ()


def _read_words(verb: Verb, words: dict[str, Any]) -> Asked:
    """Return what the arguments of a command ask."""
    arguments = {name: value for name, value in words.items() if value is not None}
    _take_context_from_file(verb, arguments)
    typed = list[str]()  # the words that may name files
    for name, value in arguments.items():
        if name in ("context", "pairs"):
            continue
        if isinstance(value, str):
            typed.append(value)
        else:
            typed += value
    sources = find_sources(typed)
    pairs = arguments.get("pairs", ())
    if pairs and (sources or len(pairs) != len(typed)):
        raise RequestError(
            "LB-946",
            "each typed text needs one --pair",
            received=f"{len(typed)} texts or files and {len(pairs)} --pair; for a"
            " file, use --column second=NAME instead",
            next=_example(verb),
        )
    if sources:
        shared = dict[str, str]()
        if "context" in arguments:
            shared["context"] = arguments["context"]
        return Asked(sources, shared)

    choices = arguments.get("choices", ())
    if len(choices) > len(CHOICES):
        raise RequestError(
            "LB-912",
            f"a question has {len(choices)} choices",
            expected=f"at most {len(CHOICES)}",
            next=_example(verb),
        )
    rows = verb.rows(arguments)
    for row in rows:
        _require_parts(verb, row, typed)
    return Asked(rows=rows)


def _take_context_from_file(verb: Verb, arguments: dict[str, Any]) -> None:
    """Replace --file by the context that the file contains."""
    if "file" not in arguments:
        return
    if "context" in arguments:
        raise RequestError(
            "LB-535",
            "a question needs one text that contains its answer",
            received="both --context and --file",
            next=_example(verb),
        )
    arguments["context"] = _read_text(arguments.pop("file"))


def _read_text(file: Path) -> str:
    """Return the text of a file."""
    lines = [line for _, line in read_lines(find_file(file))]
    text = "\n".join(lines)
    if not text.strip():
        raise LitebertError(
            "LB-310", f"{file} is empty", expected="a text", next=f"ls -l {file}"
        )
    return text


def _require_parts(verb: Verb, row: Row, typed: Sequence[str]) -> None:
    """Raise if a typed row lacks a part, or its first part is blank."""
    first = verb.needed[0]
    lacking = [role for role in verb.needed if role not in row]
    if not lacking and row[first].strip():
        return
    role = lacking[0] if lacking else first
    how = ""
    if "context" in verb.needed:
        how = " (CONTEXT, or --file FILE)"
    elif first == "first":
        how = " text"
    received = " and ".join(filter(str.strip, typed))[:200]
    raise RequestError(
        "LB-947",
        f"{verb.name} needs a {role}{how}",
        received=received or "a blank",
        next=_example(verb),
    )


def _example(verb: Verb) -> str:
    return f"litebert {commands_of(verb)[0]}"


# ---- the answers to rows -------------------------------------------------------------


def answer_rows(
    rows: Iterator[Numbered], verb: Verb, answering: Answering
) -> Iterator[list[Answered]]:
    """Yield answers in order, some rows at a time; a row that cannot be answered gets an
    error.
    """
    if verb.is_stream:
        return _answer_stream(rows, verb, answering)
    return _answer_chunks(rows, verb, answering)


def _error_of(verb: Verb, row: Row | LitebertError) -> LitebertError | None:
    """Return why a row cannot be answered; a blank text has no meaningful answer."""
    if isinstance(row, LitebertError):
        return row
    if not row[verb.roles[0]].strip():
        return no_text(f"the {verb.roles[0]} is blank")
    return None


def _answer_chunks(
    rows: Iterator[Numbered], verb: Verb, answering: Answering
) -> Iterator[list[Answered]]:
    """Answer many rows together."""
    while chunk := list(islice(rows, CHUNK)):
        errors = [_error_of(verb, row) for _, row in chunk]
        good = list[Row]()
        for (_, row), error in zip(chunk, errors, strict=True):
            if error is None and not isinstance(row, LitebertError):
                good.append(row)
        answers = iter(_answer_each(good, answering))
        answered = list[Answered]()
        for (number, row), error in zip(chunk, errors, strict=True):
            answered.append((number, row, error or next(answers)))
        yield answered


def _answer_each(rows: Sequence[Row], answering: Answering) -> list[Any]:
    """Return an answer, or an error, for each row."""
    if not rows:
        return []
    try:
        return list(answering(rows))
    except RequestError:  # the request is wrong, and so it is for every row
        raise
    except LitebertError:  # one of the rows is refused: answer each separately
        answers = list[Any]()
        for row in rows:
            try:
                answers += answering([row])
            except LitebertError as error:
                answers.append(error)
        return answers


def _answer_stream(
    rows: Iterator[Numbered], verb: Verb, answering: Answering
) -> Iterator[list[Answered]]:
    """Answer each row as soon as the verb does; the rows may be endless.

    The verb reads good rows and yields as many answers, in order; it may read ahead.
    """
    waiting = deque[Answered]()  # rows that were read; with their errors, or None

    def good_rows() -> Iterator[Row]:
        for number, row in rows:
            error = _error_of(verb, row)
            waiting.append((number, row, error))
            if error is None and not isinstance(row, LitebertError):
                yield row

    for answer in answering(good_rows()):
        answered = _pop_errors(waiting)
        if not waiting:
            raise TypeError(f"{verb.name} gives more answers than it has read rows")
        number, row, _ = waiting.popleft()
        yield [*answered, (number, row, answer)]
    answered = _pop_errors(waiting)
    if waiting:
        raise TypeError(f"{verb.name} has read {len(waiting)} rows without an answer")
    if answered:
        yield answered


def _pop_errors(waiting: deque[Answered]) -> list[Answered]:
    """Remove the rows at the front that cannot be answered, and return them."""
    errors = list[Answered]()
    while waiting and waiting[0][2] is not None:
        errors.append(waiting.popleft())
    return errors


def _answer_remaining(
    rows: Iterator[Numbered], verb: Verb, answering: Answering, file: AnswerFile
) -> Iterator[list[Answered]]:
    """Answer the rows that a file lacks; a stream reads the others again, since its
    answers may depend on them.
    """
    if not verb.is_stream:
        return answer_rows(file.resume(rows), verb, answering)
    compared, read_again = tee(rows)
    file.resume(compared)
    answered = chain.from_iterable(answer_rows(read_again, verb, answering))
    remaining = islice(answered, file.num_done, None)
    return ([row] for row in remaining)


# ---- two verbs that do not answer row by row -----------------------------------------


def search(
    query: str,
    *files: Annotated[Path, Required],
    column: Annotated[str | None, "Text column of a table."] = None,
    top: Annotated[int, Ge(1), "Texts to show."] = 5,
    loading: Loading,
    quiet: Quiet = False,
) -> Shown[list[Match]]:
    """Find the texts of FILES that are nearest to QUERY.

    litebert search "a stormy night" stories.txt novel.txt
    litebert search "late delivery" reviews.csv --column body --top 3 --json
    """
    model = loading.load()
    texts = list[str]()
    columns = [column] if column else []
    reading = Reading(["text"], ["text"], columns=columns)
    for _, row in reading.rows([find_source(str(file)) for file in files]):
        if isinstance(row, LitebertError):
            raise row
        texts.append(row["text"])
    with progress("texts embedded", total=len(texts), is_quiet=quiet) as advance:
        index = model.index(texts, progress=advance)
    matches = list(index.search(query, top=top))
    lines = [f"{match.score:7.4f}  {match.text[:100]}" for match in matches]
    return Shown(matches, "\n".join(lines))


def explain(
    verb: str,
    *texts: str,
    answer: Annotated[
        str | None, "The answer to explain; by default, the model's."
    ] = None,
    loading: Loading,
) -> Explanation:
    """Show how much each word of the texts adds to an answer.

    VERB is classify or similar, and TEXTS are its arguments. The numbers add up to the
    score of the answer minus its score with every word masked (integrated gradients).

    litebert explain similar "A man plays a guitar." "Somebody makes music."
    litebert explain classify "A fine film." --model runs/reviews --json
    """
    return loading.load().explain(verb, *texts, answer=answer)
