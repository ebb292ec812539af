"""litebert pretrain: from text, or from a corpus, to a model folder and a report."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from litebert.errors import LitebertError

if TYPE_CHECKING:
    from litebert.config import PretrainConfig, Resolved
    from litebert.train import Estimate


@click.command()
@click.argument("words", nargs=-1, metavar="[TEXT]... [KEY=VALUE]...")
@click.option("--corpus", type=click.Path(path_type=Path), help="A corpus instead of texts.")
@click.option("--from", "start", help="Go on from this model: a folder, or a name on the Hub.")
@click.option("--preset", help="Network: tiny, mini, small, base-v2, ... (litebert sizes).")
@click.option("--recipe", default="laptop", show_default=True, help="A name, or a TOML file.")
@click.option("--minutes", type=float, help="Choose the steps to take about this long here.")
@click.option("--name", default="albert", show_default=True, help="Name of the run.")
@click.option("--runs", default="runs", show_default=True, type=click.Path(path_type=Path))
@click.option("--vocab-size", default=8_000, show_default=True, help="Pieces, with TEXT.")
@click.option("--sentences", type=click.Choice(["segment", "line"]), default="segment")
@click.option(
    "--documents",
    type=click.Choice(["blank-line", "file"]),
    default="blank-line",
    show_default=True,
    help="Where documents of .txt files end.",
)
@click.option("--column", default="text", show_default=True, help="Text column of JSONL, Parquet.")
@click.option("--held-out", default=0.02, show_default=True, help="Share kept for evaluation.")
@click.option("--tensorboard", is_flag=True, help="Also write TensorBoard files.")
@click.option("--dry-run", is_flag=True, help="Print the plan and stop.")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan or the result as JSON.")
def pretrain(
    words: tuple[str, ...],
    corpus: Path | None,
    start: str | None,
    preset: str | None,
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
    """Pretrain an ALBERT. The same command again goes on where it stopped.

    \b
    litebert pretrain my-text.txt --preset mini --minutes 30 --name mine
    litebert pretrain --corpus corpora/wiki --recipe paper-base train.steps=1000
    litebert pretrain my-text.txt --from models/mine --minutes 30 --name mine-further
    """
    from litebert.cli.prepare import corpus_from_texts
    from litebert.train import plan

    folder = runs / name
    texts = [word for word in words if "=" not in word]
    _require_one_source(texts, corpus)
    if corpus is None:
        corpus = corpus_from_texts(
            texts,
            folder,
            vocab_size=vocab_size,
            start=start,
            sentences=sentences,
            documents=documents,
            column=column,
            held_out=held_out,
            is_quiet=quiet,
        )
    overrides = [word for word in words if "=" in word]
    flags = {
        "data.corpus": str(corpus),
        "start.model": start,
        "model.preset": preset,
        "train.minutes": minutes,
    }
    resolved = _resolved(recipe, flags, overrides)
    if dry_run:
        config, needs = plan(resolved, folder)
        _print_plan(config, needs, as_json=as_json)
        return
    _train(resolved, folder, is_quiet=quiet, with_tensorboard=tensorboard, as_json=as_json)


def _require_one_source(texts: list[str], corpus: Path | None) -> None:
    if bool(texts) == (corpus is not None):
        raise LitebertError(
            "LB-523",
            "pretraining needs texts or a corpus, one of the two",
            received=f"{len(texts)} texts and --corpus {corpus}",
            expected="litebert pretrain TEXT... or litebert pretrain --corpus FOLDER",
            next="litebert pretrain --help",
        )


def _resolved(
    recipe: str, flags: dict[str, str | float | None], overrides: list[str]
) -> Resolved[PretrainConfig]:
    from litebert.cli.recipes import recipe_settings
    from litebert.config import Origin, PretrainConfig, Setting, resolve, settings_from_words

    typed = Origin("flag")
    given = {key: Setting(value, typed) for key, value in flags.items() if value is not None}
    return resolve(
        PretrainConfig, recipe_settings("pretrain", recipe), given, settings_from_words(overrides)
    )


def _print_plan(config: PretrainConfig, needs: Estimate, *, as_json: bool) -> None:
    from litebert.train import duration

    train, model = config.train, config.model
    tokens = train.steps * train.batch_size * config.objective.max_seq_length
    rows = {
        "model": f"H {model.hidden_size} x {model.num_hidden_layers} layers, "
        f"E {model.embedding_size}, vocabulary {model.vocab_size:,}",
        "parameters": f"{needs.num_parameters:,}",
        "objective": f"masked LM {config.objective.mask_prob:.0%} + {config.objective.sentence}",
        "steps": f"{train.steps:,} of {train.batch_size:,} sequences",
        "tokens": f"{tokens / 1e6:,.1f} M at most",
        "memory": f"{needs.memory_bytes / 2**30:.2f} GiB",
        "disk": f"{needs.disk_bytes / 2**30:.2f} GiB",
        "time": f"{duration(needs.seconds(train.steps))} on this machine",
    }
    if as_json:
        extra = {"steps": train.steps, "tokens": tokens, "seconds": needs.seconds(train.steps)}
        click.echo(json.dumps({**asdict(needs), **extra}, indent=2))
        return
    for name, value in rows.items():
        click.echo(f"{name:<11} {value}")


def _train(
    resolved: Resolved[PretrainConfig],
    folder: Path,
    *,
    is_quiet: bool,
    with_tensorboard: bool,
    as_json: bool,
) -> None:
    from litebert.report import write_report
    from litebert.train import pretrain as train_model
    from litebert.train.track import TensorBoard

    listeners = (TensorBoard(folder / "tensorboard"),) if with_tensorboard else ()
    outcome = train_model(resolved, folder, is_quiet=is_quiet, listeners=listeners)
    if outcome.model is None:
        click.echo(f"stopped at step {outcome.step}; the same command goes on", err=True)
        sys.exit(outcome.exit_code)
    try:
        report = str(write_report(folder))
    except LitebertError as error:  # the model is there; only its picture is not
        click.echo(str(error), err=True)
        report = None
    if as_json:
        click.echo(json.dumps({"model": str(outcome.model), "report": report}))
        return
    click.echo(f"model   {outcome.model}\nreport  {report or 'not written'}")
