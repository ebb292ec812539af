"""The verbs of a model on texts, files of texts and standard input, made from `inference.verbs`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import click
from annotated_types import Ge

from litebert.answers import Explanation, Match, Shown
from litebert.cli.command import (
    ABSENT,
    Field,
    TextCommand,
    argument_of,
    field_of,
    help_of,
    note,
    option_of,
    options_of,
    show,
    show_json,
)
from litebert.errors import LitebertError, RequestError, counted
from litebert.files import read_capped
from litebert.inference.model import PACKAGED, Model
from litebert.inference.verbs import CHOICES, VERBS, Row, Verb

SHOWN_ERRORS = 5


@dataclass(frozen=True)
class Loading:
    """How a model is loaded."""

    model: Annotated[str | None, "A model folder, a run, or a name on the Hub; by default the packaged model."] = None
    precision: Annotated[
        Literal["fp32", "bf16"], "bf16 is several times faster where the machine has it, and within 1 %."
    ] = "fp32"
    depth: Annotated[int | None, "Apply only this many steps; for models trained with train.exits=true."] = None

    def load(self) -> Model:
        """Load the model; print its name, and notes on what its files do not say, on stderr."""
        found = Model.load(self.model, precision=self.precision, depth=self.depth)
        note(f"model: {found.source if self.model else PACKAGED}")
        found.remark = note
        for doubt in found.notes:
            note(f"note: {doubt}")
        return found


@dataclass(frozen=True)
class Bulk:
    """Which columns of files are read, and where answers go."""

    columns: Annotated[tuple[str, ...], "Column of a CSV, JSONL or Parquet file, [ROLE=]NAME."] = ()
    output: Annotated[Path | None, "A .jsonl or .csv file (vectors: also .npy); rerun to resume."] = None
    force: Annotated[bool, "Replace the output if it exists."] = False
    quiet: Annotated[bool, "No progress on stderr."] = False
    as_json: Annotated[bool, "Print JSON; for files, one per line."] = False


FLAGS = {"columns": "--column", "as_json": "--json", "pairs": "--pair"}
WORDS: dict[str, tuple[Field, ...]] = {
    "order": (Field("first", str, ABSENT, "", False), Field("second", str, None, "", False)),
    "similar": (Field("first", str, ABSENT, "", False), Field("second", str, None, "", False)),
    "answer": (Field("question", str, ABSENT, "", False),),
    "choose": (Field("question", str, ABSENT, "", False), Field("choices", tuple[str, ...], (), "", False)),
}
"""The arguments of verbs that take other ones than texts."""
MORE: dict[str, tuple[Field, ...]] = {
    "classify": (Field("pairs", tuple[str, ...], (), "Second text, one for each TEXT.", False),),
    "answer": (
        Field("context", str, None, "The text that contains the answer.", False),
        Field("file", Path, None, "A file that contains this text.", False),
    ),
    "choose": (Field("context", str, "", "The text that the question is about.", False),),
}
"""Options beside those of the method."""

EXAMPLES: dict[str, tuple[str, ...]] = {
    "fill": ('litebert fill "The cat sat on the [MASK]."', "litebert fill blanks.txt --output filled.jsonl"),
    "score": (
        'litebert score "The cat sat on the mat." "The mat sat on the cat."',
        "litebert score reviews.csv --column text=body --output scores.jsonl",
    ),
    "order": (
        'litebert order "He opened the door." "Nobody was there." --model runs/mine',
        "litebert order pairs.csv --column first=before --column second=after --model runs/mine",
    ),
    "embed": ('litebert embed "a cat" "a dog"', "litebert embed reviews.csv --column body --output vectors.npy"),
    "similar": (
        'litebert similar "a cat" "a kitten"',
        "litebert similar pairs.csv --column first=before --column second=after",
    ),
    "classify": (
        'litebert classify "A fine film." "Dull." --model runs/sst2',
        'litebert classify "It rains." --pair "It is wet." --model runs/rte --json',
        "litebert classify reviews.csv --column body --model runs/sst2 --output answers.jsonl",
    ),
    "tag": (
        'litebert tag "Ada Lovelace lived in London." --model runs/names',
        'litebert tag "He left." "She stayed." --model runs/names --json',
    ),
    "answer": (
        'litebert answer "Who left?" --context "Ada left at noon." --model runs/squad',
        "litebert answer questions.csv --file report.txt --model runs/squad --output answers.jsonl",
    ),
    "choose": (
        'litebert choose "The sky is _ ." blue green --context "A clear day." --model runs/race',
        "litebert choose questions.csv --column choice1=A --column choice2=B --model runs/race",
    ),
}


def verb_command(name: str) -> click.Command:
    """Return the command of a verb: its words, the options of its method, of loading and of files."""
    verb = VERBS[name]
    hints = get_type_hints(getattr(Model, name), include_extras=True)
    words = WORDS.get(name, (Field("texts", tuple[str, ...], ABSENT, "", False),))
    own = [field_of(each.name, hints[each.name], each.default) for each in verb.options.values()]
    params: list[click.Parameter] = [argument_of(word) for word in words]
    params += [option_of(field, FLAGS) for field in (*MORE.get(name, ()), *own)]
    params += [*options_of(Loading, FLAGS), *options_of(Bulk, FLAGS)]
    option_names = [field.name for field in own]

    def run(**given: Any) -> None:
        loading = Loading(**{each: given.pop(each) for each in ("model", "precision", "depth")})
        bulk = Bulk(**{each: given.pop(each) for each in Bulk.__dataclass_fields__})
        options = {each: given.pop(each) for each in option_names}
        run_verb(verb, typed_rows(verb, given), loading, options, bulk)

    documentation = inspect.getdoc(getattr(Model, name)) or ""
    text = f"{documentation}\n\nA file has the columns {', '.join(verb.roles[:4])}; - is standard input."
    return TextCommand(name, callback=run, params=params, help=help_of(text, EXAMPLES[name]))


@dataclass(frozen=True)
class Given:
    """What was typed: the names of files, or rows of texts; `shared` are the parts that rows of files lack."""

    files: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    shared: Row | None = None


def typed_rows(verb: Verb, given: Mapping[str, Any]) -> Given:
    """Return what the words of a command stand for."""
    from litebert.api.bulk import is_file

    if verb.name in ("order", "similar"):
        words = [word for word in (given["first"], given["second"]) if word is not None]
        if is_file(words[:1] if len(words) == 1 else words):
            _require_one_file(words)
            return Given(files=tuple(words))
        if len(words) < verb.num_needed:
            raise _needs("LB-947", "there is nothing to compare the text with", words, verb)
        return Given(rows=(dict(zip(verb.roles, words, strict=False)),))
    if verb.name == "answer":
        context, file = given["context"], given["file"]
        if context is not None and file is not None:
            both = ["both --context", "--file"]
            raise _needs("LB-535", "a question needs one text that contains its answer", both, verb)
        if file is not None:
            context = _read(file)
        shared = {} if context is None else {"context": context}
        if is_file([given["question"]]):
            return Given(files=(given["question"],), shared=shared)
        if context is None:
            raise _needs("LB-535", "a question needs one text that contains its answer", [given["question"]], verb)
        return Given(rows=({"question": given["question"], "context": context},))
    if verb.name == "choose":
        choices, context = given["choices"], given["context"]
        shared = {"context": context} if context else {}
        if is_file([given["question"], *choices]):
            _require_one_file([given["question"], *choices])
            return Given(files=(given["question"],), shared=shared)
        row = {"question": given["question"], **dict(zip(CHOICES, choices, strict=False)), **shared}
        return Given(rows=(row,))
    texts, pairs = given["texts"], given.get("pairs", ())
    files = is_file(texts)
    if pairs and (files or len(pairs) != len(texts)):
        raise LitebertError(
            "LB-946",
            "texts and pairs do not match",
            received=f"{len(texts)} texts or files and {len(pairs)} --pair",
            expected="one --pair for each typed text; of a file, a column: --column second=NAME",
            next='litebert classify "It rains." --pair "It is wet." --model FOLDER',
        )
    if files:
        return Given(files=tuple(texts))
    rows: list[dict[str, str]] = [{"text": text} for text in texts]
    for row, second in zip(rows, pairs, strict=False):
        row["second"] = second
    return Given(rows=tuple(rows))


def run_verb(verb: Verb, given: Given, loading: Loading, options: Mapping[str, Any], bulk: Bulk) -> None:
    """Answer rows, chunk by chunk; print them or write them, and say at the end which had no answer."""
    from litebert.api.bulk import Answered, AnswerFile, answered, count_rows, rows_of
    from litebert.api.progress import Progress
    from litebert.inference.finetuned import run_of
    from litebert.runs import read_run

    _require_use(given, bulk)
    if given.rows and any(not row[verb.roles[0]].strip() for row in given.rows):
        raise _needs("LB-945", f"a {verb.roles[0]} is blank", [row[verb.roles[0]] for row in given.rows], verb)
    model = loading.load()
    if given.rows and bulk.output is None:
        if verb.name in ("embed", "classify"):
            _note_long_texts(model, given.rows)
        found = verb.answer(model, given.rows, **options)
        for row, each in zip(given.rows, found, strict=True):
            if not bulk.as_json:
                show(_typed_line(verb, row, each))
        if bulk.as_json:
            is_list = verb.name in ("score", "classify", "tag", "embed") or len(given.rows) > 1
            shown = [verb.plain(each) for each in found]
            show_json(shown if is_list else shown[0])
        return

    rows: Iterator[Any] = iter(enumerate(given.rows, 1))
    if given.files:
        recorded = None if (run := run_of(model.source)) is None else read_run(run)
        found_columns = recorded.data.get("columns") if recorded else None
        trained = dict(str(each).split("=", 1) for each in found_columns) if isinstance(found_columns, list) else {}
        rows = rows_of(given.files, bulk.columns, verb, given.shared, trained)
    file = None
    if bulk.output is not None:
        if bulk.output.resolve() in [Path(name).resolve() for name in given.files]:
            raise LitebertError(
                "LB-949",
                "the output would replace the input",
                received=str(bulk.output),
                expected="a name that is not an input's",
                next="choose another --output",
            )
        command: dict[str, Any] = {"options": dict(options), "columns": list(bulk.columns)}
        command |= {"precision": loading.precision, "depth": loading.depth}
        file = AnswerFile(bulk.output, verb, model, command, force=bulk.force)
        if file.num_done:
            note(f"resuming after {counted(file.num_done, 'row')}")
    number, bad = 0, list[Answered]()
    answer: Callable[[list[Row]], Sequence[Any]] = partial(verb.answer, model, **options)
    total = len(given.rows) or count_rows(given.files)
    left = None if total is None else max(0, total - (file.num_done if file else 0))
    try:
        rows = rows if file is None else file.resume(rows)
        with Progress("rows", "answering", total=left, is_quiet=bulk.quiet) as progress:
            for chunk in answered(rows, verb, answer):
                number += len(chunk)
                bad += [each for each in chunk if isinstance(each.answer, LitebertError)]
                if file is not None:
                    file.write(chunk)
                else:
                    _show(chunk, verb, as_json=bulk.as_json)
                progress.advance(len(chunk))
        if file is not None:
            file.finish()
    finally:
        if file is not None:
            file.close()
    for each in islice(bad, SHOWN_ERRORS):
        note(f"row {each.number} skipped: {each.answer.what} ({each.answer.received})")
    if file is not None or bad:
        place = f": {bulk.output}" if bulk.output else ""
        skipped = f", {len(bad):,} of them skipped" if bad else ""
        note(f"{counted(number, 'row')}{skipped}{place}")


def _show(chunk: Sequence[Any], verb: Verb, *, as_json: bool) -> None:
    for each in chunk:
        if as_json:
            show_json(each.record(verb))
        elif not isinstance(each.answer, LitebertError):
            show(verb.line(each.row, each.answer))


def _typed_line(verb: Verb, row: Row, found: Any) -> str:
    """Return an answer without the question, which stands above it in the shell."""
    line = verb.line(row, found)
    return line.partition("\n")[2] if verb.name in ("answer", "choose") else line


def _note_long_texts(model: Model, rows: Sequence[Row]) -> None:
    seconds = [row["second"] for row in rows] if all("second" in row for row in rows) else None
    if longer := model.too_long([row["text"] for row in rows], seconds):
        numbers = ", ".join(str(number + 1) for number in longer)
        note(f"note: longer than the model reads at once: text {numbers}")


def _require_use(given: Given, bulk: Bulk) -> None:
    """Refuse an option that cannot act."""
    idle = "--column" if bulk.columns and not given.files else "--force" if bulk.force and not bulk.output else ""
    if idle:
        raise RequestError(
            "LB-916",
            f"{idle} has nothing to act on",
            received=f"{idle} without {'a file' if idle == '--column' else '--output'}",
            expected="--column beside a file, --force beside --output",
            next=f"omit {idle}",
        )


def _require_one_file(words: Sequence[str]) -> None:
    if len(words) > 1:
        raise RequestError(
            "LB-948",
            "one file at a time",
            received=" and ".join(words[:3]),
            expected="a file whose columns are the parts of a row",
            next="use two commands",
        )


def _read(file: Path) -> str:
    """Read the text that questions are about: strict UTF-8, not empty."""
    data = read_capped(file, 16 << 20, command=f"ls {file.parent}")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise LitebertError(
            "LB-309",
            f"{file} is not UTF-8",
            received=f"byte 0x{data[error.start]:02x} at {error.start:,}",
            expected="UTF-8",
            next=f"iconv -f latin1 -t utf-8 {file}",
        ) from error
    if not text.strip():
        raise LitebertError("LB-310", f"{file} is empty", expected="a text", next=f"ls -l {file}")
    return text


def _needs(code: str, what: str, received: Sequence[str], verb: Verb) -> RequestError:
    needed = ", ".join(verb.roles[: verb.num_needed])
    shown = " and ".join(received)[:200] or "nothing"
    expected = f"{needed}: typed, or columns of a file"
    if verb.name == "answer":
        expected = "--context TEXT or --file FILE, or a file of questions with a column context"
    return RequestError(code, what, received=shown, expected=expected, next=EXAMPLES[verb.name][0])


def search(
    query: str,
    file: Path,
    *,
    column: Annotated[str, "Text column of a table."] = "text",
    top: Annotated[int, Ge(1), "Texts to show."] = 5,
    loading: Loading,
    quiet: Annotated[bool, "No progress on stderr."] = False,
) -> Shown[list[Match]]:
    """Find the texts of FILE that are nearest to QUERY.

    litebert search "a stormy night" stories.txt
    litebert search "late delivery" reviews.csv --column body --top 3 --json
    """
    from litebert.api.bulk import read_texts_of
    from litebert.api.progress import Progress

    model, texts = loading.load(), read_texts_of(file, column)
    with Progress("texts", "embedded", total=len(texts), is_quiet=quiet) as progress:
        index = model.index(texts, progress=progress.advance)
    found = list(index.search(query, top=top))
    return Shown(found, "\n".join(f"{match.score:7.4f}  {match.text[:100]}" for match in found))


def explain(
    verb: str,
    *texts: str,
    answer: Annotated[str | None, "The answer to explain; else the model's own."] = None,
    loading: Loading,
) -> Explanation:
    """Say how much each word of the texts adds to an answer.

    VERB is answer, choose, classify, fill, order or similar, and TEXTS are what it takes. The numbers add up to the
    score of the answer minus its score with every word masked (integrated gradients).

    litebert explain similar "A man plays a guitar." "Somebody makes music."
    litebert explain fill "The capital of France is [MASK]." --answer paris --json
    """
    return loading.load().explain(verb, *texts, answer=answer)
