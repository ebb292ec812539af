"""The verbs of a model on texts, files of texts and standard input, made from `inference.verbs`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
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
    own = [option(each.name, hints[each.name], each.default) for each in verb.options.values()]
    params: list[click.Parameter] = [*TYPED.get(name, [argument("texts", tuple[str, ...])]), *own]
    params += [*options_of(Loading), *options_of(Bulk)]

    def run(**given: Any) -> None:
        loading = Loading(**{each: given.pop(each) for each in Loading.__dataclass_fields__})
        bulk = Bulk(**{each: given.pop(each) for each in Bulk.__dataclass_fields__})
        options = {each: given.pop(each) for each in verb.options}
        run_verb(verb, *_typed(verb, given), loading, options, bulk)

    parts = [inspect.getdoc(method) or "", f"A file has the columns {', '.join(verb.roles[:4])}; - is standard input."]
    return TextCommand(name, callback=run, params=params, help=help_of("\n\n".join([*parts, EXAMPLES[name].strip()])))


def _typed(verb: Verb, given: Mapping[str, Any]) -> tuple[list[str], list[Row], Row]:
    """Return the files that words name, or the rows that they are; and what rows of files have in common."""
    from litebert.api.bulk import is_file

    shared, file = {}, given.get("file")
    if (context := given.get("context")) is not None and file is not None:
        both = "a question needs one text that contains its answer"
        raise RequestError("LB-535", both, received="both --context and --file", next=_example(verb))
    if file is not None:
        context = _read(file)
    if context is not None:
        shared["context"] = context
    if "texts" in given:
        words, pairs = list(given["texts"]), given.get("pairs", ())
        rows: list[dict[str, str]] = [{"text": text} for text in words]
    else:
        first = [given[name] for name in ("first", "second", "question") if given.get(name) is not None]
        words, pairs = [*first, *given.get("choices", ())], ()
        names = ("question", *CHOICES) if "question" in given else verb.roles
        rows = [{**dict(zip(names, words, strict=False)), **shared}]
    files = words if is_file(words) else []
    if pairs and (files or len(pairs) != len(words)):
        raise LitebertError(
            "LB-946",
            "texts and pairs do not match",
            received=f"{len(words)} texts or files and {len(pairs)} --pair",
            expected="one --pair for each typed text; of a file, a column: --column second=NAME",
            next=_example(verb),
        )
    if files:
        return files, [], shared
    for row, second in zip(rows, pairs, strict=False):
        row["second"] = second
    needed = verb.roles[: verb.num_needed]
    for row in rows:
        wrong = [name for name in needed if name not in row or (name == needed[0] and not row[name].strip())]
        if wrong:
            raise RequestError(
                "LB-947",
                f"{verb.name} needs a {wrong[0]}",
                received=" and ".join(words)[:200].strip() or "a blank",
                expected=f"{', '.join(needed)}: typed{' (--context TEXT or --file FILE)' * ('context' in needed)}, "
                "or columns of a file",
                next=_example(verb),
            )
    return [], list(rows), shared


def _example(verb: Verb) -> str:
    return EXAMPLES[verb.name].split("\n")[1]


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


def run_verb(
    verb: Verb,
    files: Sequence[str],
    typed: Sequence[Row],
    shared: Row,
    loading: Loading,
    options: Mapping[str, Any],
    bulk: Bulk,
) -> None:
    """Answer typed rows, or those of files chunk by chunk; print them or write them, and say which had no answer."""
    from litebert.api.bulk import Answered, AnswerFile, answered, count_rows, rows_of
    from litebert.api.settings import Progress
    from litebert.inference.finetuned import run_of
    from litebert.runs import read_run

    for flag, beside, is_idle in (
        ("--column", "a file", bulk.columns and not files),
        ("--force", "--output", bulk.force and not bulk.output),
    ):
        if is_idle:
            what, received = f"{flag} has nothing to act on", f"{flag} without {beside}"
            raise RequestError("LB-916", what, received=received, next=f"omit {flag}")
    model = loading.load()
    answer = partial(verb.answer, model, **options)

    # typed texts, answered in the terminal
    if typed and bulk.output is None:
        if verb.name in ("embed", "classify"):
            seconds = [row["second"] for row in typed] if all("second" in row for row in typed) else None
            if longer := model.too_long([row["text"] for row in typed], seconds):
                numbers = ", ".join(str(number + 1) for number in longer)
                say(f"note: longer than the model reads at once: text {numbers}")
        found = answer(typed)
        if bulk.as_json:
            is_list = verb.name in ("score", "classify", "tag", "embed") or len(typed) > 1
            shown = [verb.plain(each) for each in found]
            show_json(shown if is_list else shown[0])
            return
        for row, each in zip(typed, found, strict=True):
            line = verb.line(row, each)  # without the question, which stands above it
            show(line.partition("\n")[2] if verb.name in ("answer", "choose") else line)
        return

    # rows of files, and answers that go to a file
    rows: Iterator[tuple[int, Row | LitebertError]] = iter(enumerate(typed, 1))
    if files:
        recorded = None if (run := run_of(model.source)) is None else read_run(run)
        columns = recorded.data.get("columns") if recorded else None
        trained = dict(str(each).split("=", 1) for each in columns) if isinstance(columns, list) else {}
        rows = rows_of(files, bulk.columns, verb, shared, trained)
    file, num_rows, bad = None, 0, list[Answered]()
    if bulk.output is not None:
        if bulk.output.resolve() in [Path(name).resolve() for name in files]:
            what = f"the output {bulk.output} would replace the input"
            raise LitebertError("LB-949", what, next="choose another --output")
        command: dict[str, Any] = {"options": dict(options), "columns": list(bulk.columns)}
        command |= {"precision": loading.precision, "depth": loading.depth}
        file = AnswerFile(bulk.output, verb, model, command, force=bulk.force)
        if file.num_done:
            say(f"resuming after {counted(file.num_done, 'row')}")
    total = len(typed) or count_rows(files)
    left = None if total is None else max(0, total - (file.num_done if file else 0))
    try:
        rows = rows if file is None else file.resume(rows)
        is_quiet = bulk.quiet or (file is None and sys.stdout.isatty())  # where rows are seen, they are the progress
        with Progress("rows", "answering", total=left, is_quiet=is_quiet) as progress:
            for chunk in answered(rows, verb, answer):
                num_rows += len(chunk)
                bad += [each for each in chunk if isinstance(each.answer, LitebertError)]
                if file is not None:
                    file.write(chunk)
                elif bulk.as_json:
                    for each in chunk:
                        show_json(each.record(verb))
                else:
                    for each in chunk:
                        if not isinstance(each.answer, LitebertError):
                            show(verb.line(each.row, each.answer))
                progress.advance(len(chunk))
        if file is not None:
            file.finish()
    finally:
        if file is not None:
            file.close()
    for each in islice(bad, 5):
        received = f" ({each.answer.received})" if each.answer.received else ""
        say(f"row {each.number} skipped: {each.answer.what}{received}")
    if file is not None or bad:
        place = f": {bulk.output}" if bulk.output else ""
        skipped = f", {len(bad):,} of them skipped" if bad else ""
        say(f"{counted(num_rows, 'row')}{skipped}{place}")


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
