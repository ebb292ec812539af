"""The verbs of a model on texts, files of texts and standard input, made from `inference.verbs`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import click
from annotated_types import Ge

from litebert.answers import Explanation, Match, Shown
from litebert.cli.command import TextCommand, argument, help_of, option, options_of, show, show_json
from litebert.errors import LitebertError, RequestError, counted, say
from litebert.files import read_capped
from litebert.inference.model import PACKAGED, Model
from litebert.inference.verbs import CHOICES, VERBS, Row, Verb


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
        say(f"model: {found.source if self.model else PACKAGED}")
        found.remark = say
        for doubt in found.notes:
            say(f"note: {doubt}")
        return found


@dataclass(frozen=True)
class Bulk:
    """Which columns of files are read, and where answers go."""

    columns: Annotated[tuple[str, ...], "--column", "Column of a CSV, JSONL or Parquet file, [ROLE=]NAME."] = ()
    output: Annotated[Path | None, "A .jsonl or .csv file (vectors: also .npy); rerun to resume."] = None
    force: Annotated[bool, "Replace the output if it exists."] = False
    quiet: Annotated[bool, "No progress on stderr."] = False
    as_json: Annotated[bool, "--json", "Print JSON; for files, one per line."] = False


TYPED: dict[str, list[click.Parameter]] = {
    "order": [argument("first", str), argument("second", str | None, None)],
    "similar": [argument("first", str), argument("second", str | None, None)],
    "classify": [
        argument("texts", tuple[str, ...]),
        option("pairs", Annotated[tuple[str, ...], "--pair", "Second text, one for each TEXT."], ()),
    ],
    "answer": [
        argument("question", str),
        option("context", Annotated[str | None, "The text that contains the answer."], None),
        option("file", Annotated[Path | None, "A file that contains this text."], None),
    ],
    "choose": [
        argument("question", str),
        argument("choices", tuple[str, ...], ()),
        option("context", Annotated[str | None, "The text that the question is about."], None),
    ],
}
"""What is typed for a verb that takes other than texts."""

EXAMPLES: dict[str, str] = {
    "fill": """
litebert fill "The cat sat on the [MASK]."
litebert fill blanks.txt --output filled.jsonl""",
    "score": """
litebert score "The cat sat on the mat." "The mat sat on the cat."
litebert score reviews.csv --column text=body --output scores.jsonl""",
    "order": """
litebert order "He opened the door." "Nobody was there." --model runs/mine
litebert order pairs.csv --column first=before --column second=after --model runs/mine""",
    "embed": """
litebert embed "a cat" "a dog"
litebert embed reviews.csv --column body --output vectors.npy""",
    "similar": """
litebert similar "a cat" "a kitten"
litebert similar pairs.csv --column first=before --column second=after""",
    "classify": """
litebert classify "A fine film." "Dull." --model runs/sst2
litebert classify "It rains." --pair "It is wet." --model runs/rte --json
litebert classify reviews.csv --column body --model runs/sst2 --output answers.jsonl""",
    "tag": """
litebert tag "Ada Lovelace lived in London." --model runs/names
litebert tag "He left." "She stayed." --model runs/names --json""",
    "answer": """
litebert answer "Who left?" --context "Ada left at noon." --model runs/squad
litebert answer questions.csv --file report.txt --model runs/squad --output answers.jsonl""",
    "choose": """
litebert choose "The sky is _ ." blue green --context "A clear day." --model runs/race
litebert choose questions.csv --column choice1=A --column choice2=B --model runs/race""",
}


def verb_command(name: str) -> click.Command:
    """Return the command of a verb: what is typed, and the options of its method, of loading and of files."""
    verb, method = VERBS[name], getattr(Model, name)
    hints = get_type_hints(method, include_extras=True)
    params = [*TYPED.get(name, [argument("texts", tuple[str, ...])])]
    params += [option(each.name, hints[each.name], each.default) for each in verb.options.values()]
    params += [*options_of(Loading), *options_of(Bulk)]

    def run(**given: Any) -> None:
        loading = Loading(**{each.name: given.pop(each.name) for each in fields(Loading)})
        bulk = Bulk(**{each.name: given.pop(each.name) for each in fields(Bulk)})
        options = {each: given.pop(each) for each in verb.options}
        files, rows, shared = _typed(verb, **given)
        model = loading.load()
        answer = partial(verb.answer, model, **options)
        if rows and bulk.output is None:
            _show_answers(verb, model, rows, answer, as_json=bulk.as_json)
        else:
            command = {"options": options, "precision": loading.precision, "depth": loading.depth}
            _answer_rows(verb, files, rows, shared, model, answer, command, bulk)

    parts = [inspect.getdoc(method) or "", f"A file has the columns {', '.join(verb.roles[:4])}; - is standard input."]
    return TextCommand(name, callback=run, params=params, help=help_of("\n\n".join([*parts, EXAMPLES[name].strip()])))


def _typed(
    verb: Verb,
    texts: Sequence[str] = (),
    pairs: Sequence[str] = (),
    context: str | None = None,
    file: Path | None = None,
    choices: Sequence[str] = (),
    **parts: str | None,
) -> tuple[Sequence[str], list[Row], Row]:
    """Return the files that words name, or the rows that they are; and what rows of files have in common."""
    from litebert.api.bulk import is_file

    example, needed = EXAMPLES[verb.name].split("\n")[1], verb.roles[: verb.num_needed]
    if context is not None and file is not None:
        both = "a question needs one text that contains its answer"
        raise RequestError("LB-535", both, received="both --context and --file", next=example)
    context = context if file is None else _read(file)
    shared = {} if context is None else {"context": context}
    typed = {role: word for role, word in parts.items() if word is not None}
    words = [*texts, *typed.values(), *choices]
    files = words if is_file(words) else []
    if pairs and (files or len(pairs) != len(texts)):
        raise LitebertError(
            "LB-946",
            "texts and pairs do not match",
            received=f"{len(words)} texts or files and {len(pairs)} --pair",
            expected="one --pair for each typed text; of a file, a column: --column second=NAME",
            next=example,
        )
    if files:
        return files, [], shared
    rows = [{"text": text} for text in texts]
    for row, second in zip(rows, pairs, strict=False):
        row["second"] = second
    if typed:
        rows = [typed | dict(zip(CHOICES, choices, strict=False)) | shared]
    for row in rows:
        if wrong := [name for name in needed if name not in row or not row[needed[0]].strip()]:
            raise RequestError(
                "LB-947",
                f"{verb.name} needs a {wrong[0]}",
                received=" and ".join(words)[:200].strip() or "a blank",
                expected=f"{', '.join(needed)}: typed{' (--context TEXT or --file FILE)' * ('context' in needed)}, "
                "or columns of a file",
                next=example,
            )
    return [], list(rows), shared


def _read(file: Path) -> str:
    """Read the text that questions are about: strict UTF-8, not empty."""
    data = read_capped(file, 16 << 20, command=f"ls {file.parent}")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        found, advice = f"byte 0x{data[error.start]:02x} at {error.start:,}", f"iconv -f latin1 -t utf-8 {file}"
        raise LitebertError("LB-309", f"{file} is not UTF-8", received=found, next=advice) from error
    if not text.strip():
        raise LitebertError("LB-310", f"{file} is empty", expected="a text", next=f"ls -l {file}")
    return text


def _show_answers(
    verb: Verb, model: Model, rows: list[Row], answer: Callable[[list[Row]], Sequence[Any]], *, as_json: bool
) -> None:
    """Answer typed rows in the terminal."""
    if verb.name in ("embed", "classify"):
        seconds = [row["second"] for row in rows if "second" in row]
        if longer := model.too_long([row["text"] for row in rows], seconds or None):
            say(f"note: longer than the model reads at once: text {', '.join(str(each + 1) for each in longer)}")
    found = answer(rows)
    if as_json:
        shown = [verb.plain(each) for each in found]
        is_list = verb.name in ("score", "classify", "tag", "embed") or len(rows) > 1
        show_json(shown if is_list else shown[0])
        return
    for row, each in zip(rows, found, strict=True):
        line = verb.line(row, each)  # without the question, which stands above it
        show(line.partition("\n")[2] if verb.name in ("answer", "choose") else line)


def _answer_rows(
    verb: Verb,
    files: Sequence[str],
    typed: list[Row],
    shared: Row,
    model: Model,
    answer: Callable[[list[Row]], Sequence[Any]],
    command: dict[str, Any],
    bulk: Bulk,
) -> None:
    """Answer the rows of files, or typed ones, chunk by chunk; print or write them, and say which have no answer."""
    from litebert.api.bulk import AnswerFile, answer_rows, count_rows, record_of, rows_of
    from litebert.api.settings import Progress
    from litebert.inference.finetuned import run_of
    from litebert.runs import read_run

    rows: Iterator[tuple[int, Row | LitebertError]] = iter(enumerate(typed, 1))
    if files:
        recorded = None if (run := run_of(model.source)) is None else read_run(run)
        columns = recorded.data.get("columns") if recorded else None
        trained = dict(str(each).split("=", 1) for each in columns) if isinstance(columns, list) else {}
        rows = rows_of(files, bulk.columns, verb, shared, trained)
    total, file = len(typed) or count_rows(files), None
    num_rows, bad = 0, list[tuple[int, LitebertError]]()
    with ExitStack() as stack:
        if bulk.output is not None:
            if bulk.output.resolve() in [Path(name).resolve() for name in files]:
                what = f"the output {bulk.output} would replace the input"
                raise LitebertError("LB-949", what, next="choose another --output")
            file = AnswerFile(bulk.output, verb, model, {**command, "columns": list(bulk.columns)}, force=bulk.force)
            stack.callback(file.close)
            if file.num_done:
                say(f"resuming after {counted(file.num_done, 'row')}")
                total = None if total is None else max(0, total - file.num_done)
            rows = file.resume(rows)
        is_quiet = bulk.quiet or (file is None and sys.stdout.isatty())  # where rows are seen, they are the progress
        progress = stack.enter_context(Progress("rows", "answering", total=total, is_quiet=is_quiet))
        for chunk in answer_rows(rows, verb, answer):
            num_rows += len(chunk)
            bad += [(number, found) for number, _, found in chunk if isinstance(found, LitebertError)]
            if file is not None:
                file.write(chunk)
            else:
                for number, row, found in chunk:
                    if bulk.as_json:
                        show_json(record_of(verb, number, found))
                    elif not isinstance(row, LitebertError) and not isinstance(found, LitebertError):
                        show(verb.line(row, found))
            progress.advance(len(chunk))
        if file is not None:
            file.finish()
    for number, error in bad[:5]:
        say(f"row {number} skipped: {error.what}{f' ({error.received})' if error.received else ''}")
    if file is not None or bad:
        skipped = f", {len(bad):,} of them skipped" if bad else ""
        say(f"{counted(num_rows, 'row')}{skipped}{f': {bulk.output}' if bulk.output else ''}")


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
    from litebert.api.settings import Progress

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
