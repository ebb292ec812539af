"""litebert distil: train a small model to give the vectors of a teacher."""

from __future__ import annotations

from pathlib import Path

import click

from litebert.cli.ending import show_plan, show_run
from litebert.cli.output import stop
from litebert.cli.pretrain import training_options
from litebert.cli.texts import AtLeast


@click.command()
@click.argument("teacher")
@click.argument("words", nargs=-1, metavar="[TEXT]... [KEY=VALUE]...")
@click.option("--corpus", help="A corpus instead of texts: a folder, or a URL.")
@click.option("--from", "start", help="Continue from this student instead of the teacher's layers.")
@click.option("--recipe", default="distil", show_default=True, help="A name, or a TOML file.")
@click.option("--name", default="student", show_default=True, help="Name of the run.")
@click.option(
    "--vocab-size",
    default=10_000,
    show_default=True,
    type=AtLeast(1),
    help="Pieces, with TEXT; fewer if the text is small.",
)
@training_options
def distil(
    teacher: str,
    words: tuple[str, ...],
    corpus: str | None,
    start: str | None,
    recipe: str,
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
    """Distil TEACHER into an ALBERT, with masked LM and sentence order. Rerun to resume.

    \b
    litebert distil all-MiniLM-L6-v2 my-text.txt --minutes 60 --name mine
    litebert distil models/teacher --corpus corpora/wiki model.num_hidden_groups=2
    """
    from litebert.api.pretraining import PretrainJob

    job = PretrainJob(
        texts=[word for word in words if "=" not in word],
        corpus=corpus,
        start=start,
        teacher=teacher,
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
    show_run(run, f'litebert embed "A text." --model {model}', as_json=as_json)
