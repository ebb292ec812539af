"""litebert study ablation: a table of the paper, trained at a scale that suits the machine."""

from __future__ import annotations

from pathlib import Path

import click

from litebert.cli.ending import show_study
from litebert.cli.output import Format, note, with_formats, with_page


@click.command()
@click.argument("name", metavar="NAME")
@click.option("--corpus", required=True, type=click.Path(path_type=Path), help="Corpus folder.")
@click.option(
    "--output",
    default="study",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Folder of runs, metrics and figures.",
)
@click.option("--scale", default="tiny", show_default=True, help="tiny, or paper: full scale.")
@click.option("--seeds", default="1,2", show_default=True, help="Seeds, separated by commas.")
@click.option("--row", "rows", multiple=True, help="Train only this row; may be repeated.")
@click.option(
    "--afford",
    default=10.0,
    show_default=True,
    type=click.FloatRange(0),
    help="CPU minutes that a row may take; the cost of longer rows is predicted. 0: train none.",
)
@click.option("--all", "trains_all", is_flag=True, help="Train every row, whatever its cost.")
@click.option(
    "--probe",
    "probes",
    multiple=True,
    metavar="TASK=PATH",
    help="Fine-tune each row at a fixed budget: sst2, squad, race-middle, or a file of your own.",
)
@click.option("--more", type=click.Path(path_type=Path), help="Second corpus, for the table `data` alone.")
@with_page
@with_formats
def ablation(
    name: str,
    corpus: Path,
    output: Path,
    scale: str,
    seeds: str,
    rows: tuple[str, ...],
    afford: float,
    trains_all: bool,
    probes: tuple[str, ...],
    more: Path | None,
    html: Path | None,
    written_as: Format,
) -> None:
    """Train the rows of a table of the paper, and say whether its ordering is reproduced.

    NAME is embedding (Table 3), sharing (4), sentence (5), time (6), data (7), dropout (8), depth
    (11), width (12), ngram or groups; or an experiment that the authors name as future work:
    mining, masking, attention or elastic. A trained row is not trained
    again: rerun the command to resume.

    \b
    litebert study ablation sharing --corpus corpora/mine
    litebert study ablation sharing --corpus corpora/mine --probe sst2=data/glue --seeds 1,2,3
    litebert study ablation width --corpus corpora/mine --scale paper --afford 0
    """
    from litebert.api.study import write_study
    from litebert.api.study_parts import ablation_part
    from litebert.cli.loading import seed_numbers
    from litebert.study.ablation import Plan, Probe, ablate

    plan = Plan(
        seeds=tuple(seed_numbers(seeds)),
        most_cpu_seconds=None if trains_all else 60 * afford,
        only=rows,
        probes=tuple(map(Probe.parse, probes)),
        more=more.absolute() if more else None,
    )
    found = ablate(name, corpus, output, scale=scale, plan=plan, say=note)
    part = ablation_part(found)
    written = write_study([part], output=output, html=html)
    show_study(part, found, (output / f"{name}.json", *written), written_as)
