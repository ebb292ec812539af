"""litebert corpus: text to shards, and what is wrong with either."""

from __future__ import annotations

from pathlib import Path

import click

from litebert.cli.output import note, show, show_json, stop
from litebert.errors import DamagedError


@click.group()
def corpus() -> None:
    """Build a corpus from text; check a text or a corpus.

    \b
    litebert corpus build my-text.txt --tokenizer vocabularies/mine --output corpora/mine
    litebert corpus check my-text.txt
    """


@corpus.command("build")
@click.argument("inputs", nargs=-1, required=True)
@click.option("--tokenizer", required=True, type=click.Path(path_type=Path))
@click.option("--output", required=True, type=click.Path(path_type=Path), help="Folder to write.")
@click.option(
    "--sentences",
    type=click.Choice(["segment", "line"]),
    default="segment",
    show_default=True,
    help="Find sentences in free text, or take one a line (blank line: document end).",
)
@click.option(
    "--documents", type=click.Choice(["file", "blank-line"]), help="Ends of .txt documents."
)
@click.option(
    "--column", default="text", show_default=True, help="Text column; chapters.text walks in."
)
@click.option("--language", default="en", show_default=True, help="Language of the sentences.")
@click.option("--held-out", default=0.01, show_default=True, help="Share kept for evaluation.")
@click.option("--workers", type=int, help="Processes; default: all cores.")
@click.option("--cluster", is_flag=True, help="Map over a Ray cluster instead.")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def build(
    inputs: tuple[str, ...],
    tokenizer: Path,
    output: Path,
    sentences: str,
    documents: str | None,
    column: str,
    language: str,
    held_out: float,
    workers: int | None,
    cluster: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Tokenise INPUTS (.txt, .jsonl, .parquet, also .gz or .zst). Rerun the command to resume.

    \b
    litebert corpus build my-text.txt --tokenizer vocabularies/mine --output corpora/mine
    litebert corpus build wiki.parquet --tokenizer models/mine --output corpora/wiki --held-out 0.02
    """
    from litebert.api.corpus import describe
    from litebert.corpus import build_corpus

    summary = build_corpus(
        inputs,
        tokenizer=tokenizer,
        output=output,
        sentences=sentences,
        documents=documents,
        column=column,
        language=language,
        held_out=held_out,
        workers=workers,
        cluster=cluster,
        report=None if quiet else lambda progress: note(describe(progress)),
    )
    if as_json:
        counts = {
            "train": summary.train.model_dump(),
            "held_out": summary.held_out.model_dump() if summary.held_out else None,
        }
        show_json({"path": str(summary.path), **counts})
        return
    for name, part in (("train", summary.train), ("held out", summary.held_out)):
        if part:
            show(
                f"{name:<9} {part.documents:,} documents, {part.sentences:,} sentences, "
                f"{part.tokens:,} tokens"
            )


@corpus.command("check")
@click.argument("inputs", nargs=-1, required=True)
@click.option("--tokenizer", type=click.Path(path_type=Path), help="Also count unknown tokens.")
@click.option("--sentences", type=click.Choice(["segment", "line"]), default="segment")
@click.option("--documents", type=click.Choice(["file", "blank-line"]))
@click.option("--column", default="text", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(
    inputs: tuple[str, ...],
    tokenizer: Path | None,
    sentences: str,
    documents: str | None,
    column: str,
    as_json: bool,
) -> None:
    """Say what is wrong with a text, or with one corpus folder, and what to do.

    The exit code is 3 where something is damaged or cannot be read.

    \b
    litebert corpus check my-text.txt --tokenizer vocabularies/mine
    litebert corpus check corpora/mine --json
    """
    from litebert.corpus import check_corpus, check_text

    is_corpus = len(inputs) == 1 and (Path(inputs[0]) / "corpus.json").exists()
    if is_corpus:
        report = check_corpus(Path(inputs[0]))
    else:
        report = check_text(
            inputs, tokenizer=tokenizer, sentences=sentences, documents=documents, column=column
        )
    if as_json:
        show_json(report.to_json(), indent=2)
    else:
        show(str(report))
    stop(DamagedError.exit_code if report.has_errors else 0)
