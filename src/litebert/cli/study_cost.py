"""litebert study cost: the paper's claims of speed and cost, measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from litebert.cli.ending import show_study
from litebert.cli.output import Format, note, with_formats, with_outputs

if TYPE_CHECKING:
    from litebert.config import Precision


@click.command()
@click.option("--tokens", default=64, show_default=True, type=click.IntRange(8), help="Tokens of a step.")
@click.option("--seq-length", default=64, show_default=True, type=click.IntRange(8, 512), help="Tokens of a sequence.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
@click.option("--precision", default="fp32", show_default=True, type=click.Choice(["fp32", "bf16"]))
@with_outputs
@with_formats
def cost(
    tokens: int,
    seq_length: int,
    rounds: int,
    precision: Precision,
    output: Path | None,
    html: Path | None,
    written_as: Format,
) -> None:
    """Time a training step and inference of ALBERT-large, ALBERT-xxlarge and BERT-large.

    The networks have random weights; BERT-large alone needs 5 GB. The times of data-parallel
    training are computed: the measured step, then the ring all-reduce of its gradients.

    \b
    litebert study cost
    litebert study cost --precision bf16 --tokens 512 --rounds 5 --json
    """
    from litebert.api.study import write_study
    from litebert.api.study_parts import costs_part
    from litebert.study.claims import measure_costs

    found = measure_costs(tokens=tokens, seq_length=seq_length, rounds=rounds, precision=precision, say=note)
    part = costs_part(found)
    written = write_study([part], metrics={"cost": found}, output=output, html=html)
    show_study(part, found, written, written_as)
