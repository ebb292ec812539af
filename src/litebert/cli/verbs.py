"""The verbs of a model on texts, files of texts and standard input, made from
`inference.verbs`.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, TypeAlias, get_type_hints

import click
from annotated_types import Ge

from litebert.answers import Explanation, Match, Shown
from litebert.api.settings import Quiet, progress
from litebert.cli.answer_file import Answered, AnswerFile, Numbered, record_of
from litebert.cli.command import (
    TextCommand,
    argument,
    choose_given,
    either,
    help_of,
    option,
    options_of,
    show,
    show_json,
)
from litebert.config import DeviceName, InferencePrecision
from litebert.errors import LitebertError, RequestError, format_count, say
from litebert.hub import PACKAGED
from litebert.inference.model import Model
from litebert.inference.verbs import CHOICES, Row, Verb
from litebert.plugins import VERBS
from litebert.reading import source as inputs
from litebert.reading.source import Source
from litebert.runs import Run
from litebert.tasks.own.columns import HEADERS, SYNONYMS
from litebert.tasks.own.layouts import DELIMITED, SUFFIXES, note_encoding, open_table

CHUNK = 256  # rows that are answered, and written, together
Answering: TypeAlias = Callable[[list[Row]], Sequence[Any]]


@dataclass(frozen=True)
class Loading:
    """Options for loading a model."""

    model: Annotated[
        str | None,
        "Folder, run, or name on the Hub; by default the packaged model (for fill,"
        " score, order, embed).",
    ] = None
    device: DeviceName = "auto"
    precision: InferencePrecision = None
    depth: Annotated[
        int | None,
        "Apply only this many steps; for models trained with train.exits=true.",
    ] = None

    def load(self) -> Model:
        """Load the model; print its name, and notes on what its files leave uncertain,
        on stderr.
        """
        found = Model.load(
            self.model,
            device=self.device,
            precision=self.precision,
            depth=self.depth,
        )
        say(f"model: {PACKAGED if self.model is None else found.source}")
        found.remark = say
        for doubt in found.notes:
            say(f"note: {doubt}")
        return found


@dataclass(frozen=True)
class Bulk:
    """Options for files: which columns to read, and where to write answers."""

    columns: Annotated[
        tuple[str, ...],
        "--column",
        "Column of a CSV, JSONL or Parquet file, [ROLE=]NAME.",
    ] = ()
    output: Annotated[
        Path | None, "A .jsonl or .csv file (vectors: also .npy); rerun to resume."
    ] = None
    force: Annotated[bool, "Replace the output if it exists."] = False
    quiet: Quiet = False
    as_json: Annotated[bool, "--json", "Print JSON; for files, one per line."] = False


TYPED: dict[str, list[click.Parameter]] = {
    **{
        name: [argument("first", str), argument("second", str | None, None)]
        for name in ("order", "similar")
    },
    "classify": [
        argument("texts", tuple[str, ...]),
        option(
            "pairs",
            Annotated[tuple[str, ...], "--pair", "Second text, one for each TEXT."],
            (),
        ),
    ],
    "answer": [
        argument("question", str),
        *either("context", Annotated[str, "The text that contains the answer."]),
        option("file", Annotated[Path | None, "A file that contains this text."], None),
    ],
    "choose": [
        argument("question", str),
        argument("choices", tuple[str, ...], ()),
        option(
            "context",
            Annotated[str | None, "The text that the question is about."],
            None,
        ),
    ],
}
"""The arguments of the verbs that take more than a list of texts."""

EXAMPLES: dict[str, str] = {
    "fill": (
        """
litebert fill "The cat sat on the [MASK]."
litebert fill blanks.txt --output filled.jsonl"""
    ),
    "score": (
        """
litebert score "The cat sat on the mat." "The mat sat on the cat."
litebert score reviews.csv --column text=body --output scores.jsonl"""
    ),
    "order": (
        """
litebert order "He opened the door." "Nobody was there." --model runs/mine
litebert order pairs.csv --column first=before --column second=after --model runs/mine"""
    ),
    "embed": (
        """
litebert embed "a cat" "a dog"
litebert embed reviews.csv --column body --output vectors.npy"""
    ),
    "similar": (
        """
litebert similar "a cat" "a kitten"
litebert similar pairs.csv --column first=before --column second=after"""
    ),
    "classify": (
        """
litebert classify "A fine film." "Dull." --model runs/sst2
litebert classify "It rains." --pair "It is wet." --model runs/rte --json
litebert classify reviews.csv --column body --model runs/sst2 --output answers.jsonl"""
    ),
    "tag": (
        """
litebert tag "Ada Lovelace lived in London." --model runs/names
litebert tag "He left." "She stayed." --model runs/names --json"""
    ),
    "answer": (
        """
litebert answer "Who left?" "Ada left at noon." --model runs/squad
litebert answer questions.csv --file report.txt --model runs/squad --output answers.jsonl"""
    ),
    "choose": (
        """
litebert choose "The sky is _ ." blue green --context "A clear day." --model runs/race
litebert choose questions.csv --column choice1=A --column choice2=B --model runs/race"""
    ),
}


def verb_command(name: str) -> click.Command:
    """Return the command of a verb: its arguments, and the options of its method, of
    loading and of files.
    """
    verb = VERBS[name]
    method = getattr(Model, name)
    hints = get_type_hints(method, include_extras=True)
    params = [*TYPED.get(name, [argument("texts", tuple[str, ...])])]
    params += [
        option(each.name, hints[each.name], each.default)
        for each in verb.options.values()
    ]
    params += [*options_of(Loading), *options_of(Bulk)]

    def run(**given: Any) -> None:
        if "context_option" in given:
            given["context"] = choose_given("context", given, is_needed=False)
        loading = Loading(
            **{each.name: given.pop(each.name) for each in fields(Loading)}
        )
        bulk = Bulk(**{each.name: given.pop(each.name) for each in fields(Bulk)})
        _answer(
            verb, loading, bulk, {each: given.pop(each) for each in verb.options}, given
        )

    columns = f"Columns of a file: {', '.join(verb.roles[: verb.num_needed])}"
    if len(verb.roles) > verb.num_needed:
        columns += f"; optional: {', '.join(verb.roles[verb.num_needed : 4])}"
    columns += ". Use - for standard input."
    text = "\n\n".join(
        [help_of(method.__doc__ or ""), columns, help_of(EXAMPLES[name])]
    )
    return TextCommand(name, callback=run, params=params, help=text)


def _answer(
    verb: Verb,
    loading: Loading,
    bulk: Bulk,
    options: dict[str, Any],
    typed: dict[str, Any],
) -> None:
    """Answer typed texts in the terminal; answer rows of files, or texts with --output,
    in chunks.
    """
    sources, rows, shared = _read_words(verb, typed)
    if bulk.columns and not sources:
        flag = "--column"
        received = " ".join(bulk.columns)
        raise RequestError(
            "LB-916",
            f"{flag} has no effect without a file",
            received=received,
            next=f"omit {flag}",
        )
    model = loading.load()
    answer = partial(verb.answer, model, **options)
    if rows and bulk.output is None:
        _answer_typed(verb, model, rows, answer, as_json=bulk.as_json)
        return

    total: int | None = len(rows)
    numbered: Iterator[Numbered] = iter(enumerate(rows, 1))
    if sources:
        run = Run.of(model.source)
        # of the table that the model was trained on
        columns = run.file.data.get("columns") if run else None
        trained = (
            dict(str(each).split("=", 1) for each in columns)
            if isinstance(columns, list)
            else {}
        )
        total = _count_rows(sources)
        numbered = rows_of(sources, bulk.columns, verb, shared, trained)
    if bulk.output and bulk.output.resolve() in [
        Path(source.location).resolve() for source in sources
    ]:
        what = f"the output {bulk.output} would replace the input"
        raise LitebertError("LB-949", what, next="choose another --output")
    num_before = 0
    num_rows = 0
    bad = list[tuple[int, LitebertError]]()
    write: Callable[[Sequence[Answered]], None]
    with ExitStack() as stack:
        if bulk.output is None:
            write = partial(_print_rows, verb, as_json=bulk.as_json)
            # printed rows show the progress
            is_quiet = bulk.quiet or sys.stdout.isatty()
        else:
            command = {
                "options": options,
                "precision": model.precision,
                "depth": loading.depth,
            }
            opened = AnswerFile(
                bulk.output,
                verb,
                model,
                {**command, "columns": list(bulk.columns)},
                force=bulk.force,
            )
            file = stack.enter_context(opened)
            numbered = file.resume(numbered)
            write = file.write
            is_quiet = bulk.quiet
            if num_before := file.num_done:
                say(f"resuming after {format_count(num_before, 'row')}")
                total = None if total is None else max(0, total - num_before)
        advance = stack.enter_context(
            progress("rows answered", total=total, is_quiet=is_quiet)
        )
        for chunk in answer_rows(numbered, verb, answer):
            write(chunk)
            num_rows += len(chunk)
            bad += [
                (number, found)
                for number, _, found in chunk
                if isinstance(found, LitebertError)
            ]
            advance(len(chunk))
    for number, error in bad[:5]:
        say(
            f"row {number} skipped:"
            f" {error.what}{f' ({error.received})' if error.received else ''}"
        )
    if bulk.output or bad:
        skipped = f", {len(bad):,} of them skipped" if bad else ""
        say(
            f"{format_count(num_rows, 'row')}{skipped}{f': {bulk.output}' if bulk.output else ''}"
        )
    if bad and len(bad) == num_rows and not num_before:
        advice = (
            f"correct the rows, or choose another column: --column {verb.roles[0]}=NAME"
        )
        raise LitebertError(
            "LB-940", "no row has an answer", received=bad[0][1].what, next=advice
        )


def _answer_typed(
    verb: Verb, model: Model, rows: list[Row], answer: Answering, *, as_json: bool
) -> None:
    """Print the answers to typed texts; JSON is one value."""
    if verb.name in ("embed", "classify"):
        seconds = [row["second"] for row in rows if "second" in row]
        if longer := model.too_long([row["text"] for row in rows], seconds or None):
            say(
                "note: longer than the model can read: text"
                f" {', '.join(str(each + 1) for each in longer)}"
            )
    found = answer(rows)
    if as_json:
        shown = [verb.plain(each) for each in found]
        is_list = verb.name in ("score", "classify", "tag", "embed") or len(rows) > 1
        show_json(shown if is_list else shown[0])
        return
    for row, each in zip(rows, found, strict=True):
        line = verb.line(row, each)  # without the question, which is in the command
        show(line.partition("\n")[2] if verb.name in ("answer", "choose") else line)


def _print_rows(verb: Verb, chunk: Sequence[Answered], *, as_json: bool) -> None:
    """Print answered rows; JSON is one value per row."""
    for number, row, found in chunk:
        if as_json:
            show_json(record_of(verb, number, found))
        elif not isinstance(row, LitebertError) and not isinstance(
            found, LitebertError
        ):
            show(verb.line(row, found))


# ---- arguments: typed texts, or files ------------------------------------------------


def _read_words(
    verb: Verb, given: dict[str, Any]
) -> tuple[list[Source], list[Row], Row]:
    """Return the files named by the arguments, or the typed rows; and the parts that
    all rows of files share.
    """
    texts, pairs, choices = (
        given.pop(name, ()) for name in ("texts", "pairs", "choices")
    )
    context, file = (given.pop(name, None) for name in ("context", "file"))
    typed = {role: word for role, word in given.items() if word is not None}
    example = EXAMPLES[verb.name].split("\n")[1]
    needed = verb.roles[: verb.num_needed]
    if context is not None and file is not None:
        both = "a question needs one text that contains its answer"
        raise RequestError(
            "LB-535", both, received="both --context and --file", next=example
        )
    if file is not None:
        context = "\n".join(
            line for _, line in inputs.read_lines(inputs.find_file(file))
        )
        if not context.strip():
            raise LitebertError(
                "LB-310", f"{file} is empty", expected="a text", next=f"ls -l {file}"
            )
    shared = {} if context is None else {"context": context}
    words = [*texts, *typed.values(), *choices]
    sources = find_sources(words)
    if pairs and (sources or len(pairs) != len(texts)):
        received = (
            f"{len(words)} texts or files and {len(pairs)} --pair; for a file, use"
            " --column second=NAME instead"
        )
        raise LitebertError(
            "LB-946",
            "each typed text needs one --pair",
            received=received,
            next=example,
        )
    if sources:
        return sources, [], shared
    rows = [{"text": text} for text in texts]
    for row, second in zip(rows, pairs, strict=False):
        row["second"] = second
    if len(choices) > len(CHOICES):
        what = f"a question has {len(choices)} choices"
        expected = f"at most {len(CHOICES)}"
        raise RequestError("LB-912", what, expected=expected, next=example)
    if typed:
        rows = [typed | dict(zip(CHOICES, choices, strict=False)) | shared]
    for row in rows:
        if wrong := [
            name for name in needed if name not in row or not row[needed[0]].strip()
        ]:
            how = (
                " (CONTEXT, or --file FILE)"
                if "context" in needed
                else " text" * (needed[0] == "first")
            )
            received = " and ".join(filter(str.strip, words))[:200] or "a blank"
            raise RequestError(
                "LB-947",
                f"{verb.name} needs a {wrong[0]}{how}",
                received=received,
                next=example,
            )
    return [], list(rows), shared


ROWS = (".txt", *SUFFIXES)  # the kinds of files with rows to answer


def find_sources(words: Sequence[str]) -> list[Source]:
    """Return the files that words name, "-" for standard input, or none if they are
    texts; raise for a mixture.
    """
    there = list(map(_names_a_file, words))
    if any(there) and not all(there):
        received = (
            f"the file {words[there.index(True)]} and the text"
            f" {words[there.index(False)]!r}"
        )
        raise RequestError(
            "LB-948",
            "files and texts cannot be mixed",
            received=received,
            next="use two commands",
        )
    return [_find(word) for word in words] if any(there) else []


def _names_a_file(word: str) -> bool:
    """Return whether a word is the name of a file, compressed or not; a text of several
    words may end like one.
    """
    kind = word.lower().removesuffix(".gz").removesuffix(".zst")
    return word == "-" or (
        kind.endswith(ROWS) and (word.split() == [word] or os.path.isfile(word))  # noqa: PTH113
    )


def _find(word: str) -> Source:
    return inputs.STANDARD_INPUT if word == "-" else inputs.find_input(word, ROWS)


# ---- the rows of files ---------------------------------------------------------------


def _count_rows(sources: Sequence[Source]) -> int | None:
    """Estimate the number of rows in files by their lines; return None if the lines
    cannot be counted.
    """
    if any(
        each is inputs.STANDARD_INPUT or each.kind in inputs.COMPACT or each.compression
        for each in sources
    ):
        return None
    num_lines = sum(
        piece.count(b"\n") for each in sources for piece in inputs.read_pieces(each)
    )
    return max(0, num_lines - sum(each.kind in DELIMITED for each in sources))


def rows_of(
    sources: Sequence[Source],
    columns: Sequence[str],
    verb: Verb,
    shared: Row,
    trained: Mapping[str, str],
) -> Iterator[Numbered]:
    """Yield the rows of files, numbered from 1 across all files.

    A row is a line of a text file, where blank lines are skipped, or a record of a
    table, not counting its header. `columns` are choices such as text=body, or just
    body for the first role. `shared` are parts for all rows that lack them. `trained`
    are the columns, by role, of the table that the model was trained on.
    """
    roles = verb.roles
    chosen = dict[str, str]()
    has_header = None
    for choice in columns:
        if choice in HEADERS:
            has_header = HEADERS[choice]
            continue
        role, _, name = (
            choice.partition("=") if "=" in choice else (roles[0], "", choice)
        )
        role = SYNONYMS.get(role, role)
        if role not in roles or not name:
            known = ", ".join(roles[:4]) + ", …" * (len(roles) > 4)
            what = f"{choice} does not choose a column"
            wanted = f"NAME, header=no, or ROLE=NAME of {known}"
            raise RequestError(
                "LB-915", what, expected=wanted, next=f"--column {roles[0]}=NAME"
            )
        chosen[role] = name
    before = number = 0
    for source in sources:
        table = None
        if source.kind != ".txt":
            table = open_table(source.name, has_header=has_header)
            if has_header is None and not set(chosen.values()) <= set(table.columns):
                # a chosen name must be in a header
                table = open_table(source.name, has_header=True)
        elif source is not inputs.STANDARD_INPUT:
            source = inputs.recognize_encoding(source)
        note_encoding(table.source if table else source)
        there = table.columns if table else (roles[0],)
        # a role's column: the chosen one, that of the training, the one with the name
        # of the role, or a synonym
        usual = [
            *((role, name) for name, role in SYNONYMS.items() if role not in there),
            *trained.items(),
        ]
        names = {role: role for role in roles} | {
            role: name for role, name in usual if role in roles and name in there
        }
        if table:
            names |= chosen
        needed = [role for role in roles[: verb.num_needed] if role not in shared]
        for role in (*needed, *chosen) if table else needed:
            if names[role] not in there:
                what = f"{source.name} has no column {names[role]}"
                do = "correct" if role in chosen else "add"
                received = ", ".join(map(str, there))[:200] + " only, one per line" * (
                    table is None
                )
                raise RequestError(
                    "LB-944", what, received=received, next=f"{do} --column {role}=NAME"
                )
        for number, (place, row) in enumerate(
            table.scan() if table else inputs.read_lines(source), before + 1
        ):
            if isinstance(row, str):
                if row.strip():
                    yield number, {**shared, roles[0]: row}
            elif isinstance(row, LitebertError):
                yield number, row
            else:
                cells = {
                    role: row.get(name) for role, name in names.items() if name in there
                }
                # a part that is not needed may be empty, such as the third of two
                # choices
                filled = {
                    role: cell
                    for role, cell in cells.items()
                    if role in needed or cell not in (None, "")
                }
                texts = {
                    role: cell for role, cell in filled.items() if isinstance(cell, str)
                }
                empty = next(
                    (names[role] for role in filled if role not in texts), None
                )
                what = f"{source.place(place)} has no text in column {empty}"
                yield number, {**shared, **texts} if empty is None else _no_text(what)
        before = number


def _no_text(what: str) -> LitebertError:
    return LitebertError("LB-945", what, next="correct or delete the row")


# ---- answers -------------------------------------------------------------------------


def answer_rows(
    rows: Iterable[Numbered], verb: Verb, answer: Answering
) -> Iterator[list[Answered]]:
    """Yield answers in order, a chunk at a time; a row that cannot be answered gets an
    error.
    """
    remaining = iter(rows)
    while chunk := list(islice(remaining, CHUNK)):
        good: dict[int, Row] = {}
        found: dict[int, Any] = {}
        for number, row in chunk:
            if isinstance(row, LitebertError):
                found[number] = row
            elif row[verb.roles[0]].strip():
                good[number] = row
            else:  # an answer would be meaningless
                found[number] = _no_text(f"the {verb.roles[0]} is blank")
        try:
            found |= zip(good, answer(list(good.values())) if good else (), strict=True)
        except RequestError:  # the request is wrong, and so it is for every row
            raise
        except LitebertError:  # one of the rows is refused: answer each separately
            for number, row in good.items():
                try:
                    found[number] = answer([row])[0]
                except LitebertError as error:
                    found[number] = error
        yield [(number, row, found[number]) for number, row in chunk]


# ---- two verbs that do not answer row by row -----------------------------------------


def search(
    query: str,
    file: Path,
    *,
    column: Annotated[str, "Text column of a table."] = "text",
    top: Annotated[int, Ge(1), "Texts to show."] = 5,
    loading: Loading,
    quiet: Quiet = False,
) -> Shown[list[Match]]:
    """Find the texts of FILE that are nearest to QUERY.

    litebert search "a stormy night" stories.txt
    litebert search "late delivery" reviews.csv --column body --top 3 --json
    """
    model = loading.load()
    texts = list[str]()
    for _, row in rows_of(
        [_find(str(file))],
        [column],
        Verb("search", ("", ""), lambda *_: (), lambda *_: ""),
        {},
        {},
    ):
        if isinstance(row, LitebertError):
            raise row
        texts.append(row["text"])
    with progress("texts embedded", total=len(texts), is_quiet=quiet) as advance:
        index = model.index(texts, progress=advance)
    found = list(index.search(query, top=top))
    return Shown(
        found, "\n".join(f"{match.score:7.4f}  {match.text[:100]}" for match in found)
    )


def explain(
    verb: str,
    *texts: str,
    answer: Annotated[
        str | None, "The answer to explain; by default, the model's."
    ] = None,
    loading: Loading,
) -> Explanation:
    """Show how much each word of the texts adds to an answer.

    VERB is answer, choose, classify, fill, order or similar, and TEXTS are its
    arguments. The numbers add up to the score of the answer minus its score with every
    word masked (integrated gradients).

    litebert explain similar "A man plays a guitar." "Somebody makes music."
    litebert explain fill "The capital of France is [MASK]." --answer paris --json
    """
    return loading.load().explain(verb, *texts, answer=answer)
