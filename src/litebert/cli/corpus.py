"""litebert corpus: build a corpus from text, check either, and combine several corpora."""

from __future__ import annotations

from pathlib import Path

import click

from litebert.cli.loading import vocabulary_path
from litebert.cli.output import note, show, show_json, stop
from litebert.errors import DamagedError, LitebertError


@click.group()
def corpus() -> None:
    """Build a corpus from text; check, count, merge, mix and push corpora; filter texts.

    \b
    litebert corpus build stories.jsonl --tokenizer vocabularies/mine --output corpora/mine
    litebert corpus check my-text.txt
    """


@corpus.command("build")
@click.argument("inputs", nargs=-1, required=True)
@click.option("--tokenizer", required=True, help="A vocabulary or its folder, or a model.")
@click.option("--output", required=True, type=click.Path(path_type=Path), help="Folder to write.")
@click.option(
    "--sentences",
    type=click.Choice(["segment", "line"]),
    default="segment",
    show_default=True,
    help="Find sentences in free text, or take one per line.",
)
@click.option(
    "--documents",
    type=click.Choice(["blank-line", "file"]),
    default="blank-line",
    show_default=True,
    help="Where documents of .txt files end.",
)
@click.option("--column", default="text", show_default=True, help="Text column; chapters.text reads into objects.")
@click.option("--language", default="en", show_default=True, help="Language of the sentences.")
@click.option(
    "--held-out", default=0.01, show_default=True, help="Share of documents kept for evaluation, at least one."
)
@click.option("--workers", type=int, help="Processes; default: all cores.")
@click.option("--cluster", is_flag=True, help="Map over a Ray cluster instead.")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def build(
    inputs: tuple[str, ...],
    tokenizer: str,
    output: Path,
    sentences: str,
    documents: str,
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
    litebert corpus build stories.jsonl --tokenizer vocabularies/mine --output corpora/mine
    litebert corpus build wiki.parquet --tokenizer models/mine --output corpora/wiki --held-out 0.02
    """
    from litebert.api.corpus import describe
    from litebert.corpus import build_corpus

    summary = build_corpus(
        inputs,
        tokenizer=vocabulary_path(tokenizer),
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
        parts = {"train": summary.train, "held_out": summary.held_out}
        show_json({"path": summary.path, **parts})
        return
    for name, part in (("train", summary.train), ("held out", summary.held_out)):
        if part:
            show(f"{name:<9} {part.documents:,} documents, {part.sentences:,} sentences, {part.tokens:,} tokens")


@corpus.command("check")
@click.argument("inputs", nargs=-1, required=True)
@click.option("--tokenizer", help="Also count unknown tokens.")
@click.option("--sentences", type=click.Choice(["segment", "line"]), default="segment")
@click.option("--documents", type=click.Choice(["blank-line", "file"]), default="blank-line", show_default=True)
@click.option("--column", default="text", show_default=True)
@click.option("--verify", is_flag=True, help="Only compare every file of a corpus with its hash.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(
    inputs: tuple[str, ...],
    tokenizer: str | None,
    sentences: str,
    documents: str,
    column: str,
    verify: bool,
    as_json: bool,
) -> None:
    """Say what is wrong with texts, or with one corpus folder, and what to do about it.

    The exit code is 3 if something is damaged or cannot be read.

    \b
    litebert corpus check my-text.txt --tokenizer vocabularies/mine
    litebert corpus check corpora/mine --json
    litebert corpus check corpora/mine --verify
    """
    from litebert.corpus import check_corpus, check_text
    from litebert.corpus.manifest import MANIFEST, PLAN

    folder = Path(inputs[0])
    is_corpus = len(inputs) == 1 and any((folder / name).exists() for name in (MANIFEST, PLAN))
    if is_corpus:
        report = check_corpus(folder, verify_only=verify)
    elif verify:
        raise LitebertError(
            "LB-218",
            "only a corpus has hashes to verify",
            received=", ".join(inputs),
            expected="one folder made by litebert corpus build",
            next="omit --verify to check texts",
        )
    else:
        report = check_text(
            inputs,
            tokenizer=None if tokenizer is None else vocabulary_path(tokenizer),
            sentences=sentences,
            documents=documents,
            column=column,
        )
    if as_json:
        show_json(report, indent=2)
    else:
        show(str(report))
    stop(DamagedError.exit_code if report.has_errors else 0)


@corpus.command("merge")
@click.argument("corpora", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--output", required=True, type=click.Path(path_type=Path), help="Folder to write.")
def merge(corpora: tuple[Path, ...], output: Path) -> None:
    """Join corpora that were built alike into one; no text is read again.

    \b
    litebert corpus merge corpora/one corpora/two --output corpora/both
    litebert corpus merge corpora/2024-* --output corpora/2024
    """
    from litebert.corpus.tools import merge_corpora

    counts = merge_corpora(corpora, output)
    show(f"{output}  {counts.documents:,} documents, {counts.tokens:,} tokens")


@corpus.command("mix")
@click.argument("corpora", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--weights", help="One weight per corpus, such as 2,1; default: their tokens.")
@click.option("--temperature", default=1.0, show_default=True, help="Above 1 favours small ones.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def mix(corpora: tuple[Path, ...], weights: str | None, temperature: float, as_json: bool) -> None:
    """Print the shares of several corpora in a mix, and the settings that draw them.

    \b
    litebert corpus mix corpora/wiki corpora/news --temperature 2
    litebert corpus mix corpora/wiki corpora/news --weights 3,1
    """
    from litebert.api.corpus import mixture

    found = mixture(corpora, weights=weights, temperature=temperature)
    if as_json:
        show_json({"shares": found.shares, "settings": found.settings})
        return
    for name, share in found.shares.items():
        show(f"{share:>7.2%}  {name}")
    note("next    litebert pretrain --corpus " + " ".join(found.settings))


@corpus.command("stats")
@click.argument("folder", metavar="CORPUS", type=click.Path(path_type=Path))
@click.option("--plot", type=click.Path(path_type=Path), help="Also plot the lengths, as an SVG file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def stats(folder: Path, plot: Path | None, as_json: bool) -> None:
    """Count documents, sentences, pieces, lengths, unknown pieces and repeats of a corpus.

    \b
    litebert corpus stats corpora/wiki
    litebert corpus stats corpora/wiki --plot lengths.svg --json
    """
    from litebert.api.corpus import draw_lengths, in_words
    from litebert.corpus import Corpus
    from litebert.corpus.tools import corpus_stats

    found = corpus_stats(Corpus.open(folder))
    if as_json:
        show_json(found)
    else:
        for name, text in in_words(found).items():
            show(f"{name:<20} {text}")
    if plot:
        draw_lengths(found, plot)


@corpus.command("filter")
@click.argument("inputs", nargs=-1, required=True)
@click.option("--output", required=True, type=click.Path(path_type=Path), help="A .jsonl file.")
@click.option("--near-duplicates", type=float, help="Omit documents this near to an earlier one.")
@click.option("--keep", metavar="MODULE:FUNCTION", help="Keep texts that this function accepts.")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@click.option("--documents", type=click.Choice(["blank-line", "file"]), default="blank-line", show_default=True)
@click.option("--column", default="text", show_default=True)
def filter_texts(
    inputs: tuple[str, ...],
    output: Path,
    near_duplicates: float | None,
    keep: str | None,
    force: bool,
    documents: str,
    column: str,
) -> None:
    """Write the documents worth keeping to a .jsonl file, which `corpus build` reads.

    \b
    litebert corpus filter raw.jsonl --near-duplicates 0.8 --output clean.jsonl
    litebert corpus filter raw.txt --keep my_filters:is_english --output english.jsonl
    """
    from litebert.corpus.text import text_settings
    from litebert.corpus.tools import filter_documents, load_keep

    counts = filter_documents(
        inputs,
        output,
        settings=text_settings(documents=documents, column=column),
        near_duplicates=near_duplicates,
        keep=None if keep is None else load_keep(keep),
        force=force,
    )
    show(
        f"{counts.kept:,} documents kept, {counts.near_duplicates:,} near duplicates and "
        f"{counts.refused:,} others omitted"
    )


@corpus.command("push")
@click.argument("folder", metavar="CORPUS", type=click.Path(path_type=Path))
@click.argument("url")
def push(folder: Path, url: str) -> None:
    """Upload a corpus to object storage, from which `pretrain --corpus URL` reads it.

    \b
    litebert corpus push corpora/wiki s3://bucket/wiki
    litebert corpus push corpora/wiki gs://bucket/wiki
    AWS_ENDPOINT_URL=http://localhost:9000 litebert corpus push corpora/wiki s3://bucket/wiki
    """
    from litebert.corpus.remote import push_corpus
    from litebert.files import readable_bytes

    show(f"{url}  {readable_bytes(push_corpus(folder, url.rstrip('/')))}")
