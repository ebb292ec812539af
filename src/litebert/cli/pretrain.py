"""litebert pretrain: train a model on text or on a corpus, and write its folder and report."""

from __future__ import annotations

from pathlib import Path

import click

from litebert.cli.ending import show_plan, show_run
from litebert.cli.output import Command, stop
from litebert.cli.texts import AtLeast

_OPTIONS = (
    click.option("--minutes", type=float, help="Choose the steps so that training takes about this long here."),
    click.option("--runs", default="runs", show_default=True, type=click.Path(path_type=Path)),
    click.option(
        "--sentences",
        type=click.Choice(["segment", "line"]),
        default="segment",
        show_default=True,
        help="Find sentences in free text, or take one per line.",
    ),
    click.option(
        "--documents",
        type=click.Choice(["blank-line", "file"]),
        default="blank-line",
        show_default=True,
        help="Where documents of .txt files end.",
    ),
    click.option("--column", default="text", show_default=True, help="Text column of JSONL or Parquet files."),
    click.option("--held-out", default=0.02, show_default=True, help="Share kept for evaluation."),
    click.option("--tensorboard", is_flag=True, help="Also write TensorBoard files."),
    click.option("--dry-run", is_flag=True, help="Print the plan and stop."),
    click.option("--quiet", is_flag=True, help="No progress on stderr."),
    click.option("--json", "as_json", is_flag=True, help="Print the plan or the result as JSON."),
)


def training_options(command: Command) -> Command:
    """Add the options that all commands that train on text have."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command()
@click.argument("words", nargs=-1, metavar="[TEXT]... [KEY=VALUE]...")
@click.option("--corpus", help="A corpus instead of texts: a folder, or a URL.")
@click.option("--from", "start", help="Continue from this model: a folder, or a name on the Hub.")
@click.option("--preset", help="Network: tiny, mini, small, base-v2, ... (litebert sizes).")
@click.option("--recipe", help="A name, or a TOML file: laptop by default, further with --from.")
@click.option("--name", default="albert", show_default=True, help="Name of the run.")
@click.option(
    "--vocab-size",
    default=8_000,
    show_default=True,
    type=AtLeast(1),
    help="Pieces, with TEXT; fewer if the text is small.",
)
@training_options
def pretrain(
    words: tuple[str, ...],
    corpus: str | None,
    start: str | None,
    preset: str | None,
    recipe: str | None,
    minutes: float | None,
    name: str,
    runs: Path,
    vocab_size: int,
    sentences: str,
    documents: str,
    column: str,
    held_out: float,
    tensorboard: bool,
    dry_run: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Pretrain an ALBERT on text files, or on a corpus. Rerun the command to resume.

    \b
    litebert pretrain my-text.txt --preset mini --minutes 30 --name mine
    litebert pretrain --corpus corpora/wiki --recipe paper-base train.steps=1000
    litebert pretrain my-text.txt --from models/mine --minutes 30 --name mine-further
    """
    from litebert.api.pretraining import PretrainJob

    job = PretrainJob(
        texts=[word for word in words if "=" not in word],
        corpus=corpus,
        start=start,
        preset=preset,
        recipe=recipe,
        minutes=minutes,
        name=name,
        runs=runs,
        vocab_size=vocab_size,
        sentences=sentences,
        documents=documents,
        column=column,
        held_out=held_out,
        settings=[word for word in words if "=" in word],
        tensorboard=tensorboard,
    )
    if dry_run:
        show_plan(job.plan, as_json=as_json)
        return
    run = job.run(quiet=quiet)
    stop(run.exit_code)
    model = run.folder / "model"
    show_run(run, f'litebert fill "A [MASK] text." --model {model}', as_json=as_json)
