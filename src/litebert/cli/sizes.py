"""`litebert sizes`: what each preset weighs and costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from litebert.cli.output import show, show_json

if TYPE_CHECKING:
    from litebert.study import Sizes

_HEADINGS = ("preset", "body", "with heads", "paper", "MB fp32", "MB bf16", "MFLOP/token 128", "512", "formula", "cost")


@click.command()
@click.option("--preset", "names", multiple=True, metavar="P", help="Show this preset only.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, every figure by name.")
def sizes(*, names: tuple[str, ...], as_json: bool) -> None:
    """Show parameters, bytes and FLOPs of the presets.

    \b
    litebert sizes
    litebert sizes --preset base-v2 --preset bert-base --json

    FLOPs are those of one token's forward pass at lengths 128 and 512 (training: three times as
    many). The formula is V*E + E*H + L*(4H^2 + 2*4H^2) + H^2; its cost is that times the
    paper's 125,000 steps of 4,096 x 512 tokens. "paper" is Table 1, as printed.
    """
    from litebert.config import PRESETS, preset
    from litebert.study import sizes_of

    counted = {name: sizes_of(preset(name)) for name in names or PRESETS}
    if as_json:
        records = [{"preset": name, **each.to_json()} for name, each in counted.items()]
        show_json(records, indent=2)
    else:
        show(_aligned([_HEADINGS, *(_row(name, each) for name, each in counted.items())]))


def _row(name: str, counted: Sizes) -> tuple[str, ...]:
    from litebert.study.sizes import PAPER_PARAMETERS

    return (
        name,
        f"{counted.body:,}",
        f"{counted.total:,}",
        PAPER_PARAMETERS.get(name.removesuffix("-v1").removesuffix("-v2"), "-"),
        f"{counted.bytes_fp32 / 1e6:.1f}",
        f"{counted.bytes_bf16 / 1e6:.1f}",
        f"{counted.forward_flops_128 / 1e6:.1f}",
        f"{counted.forward_flops_512 / 1e6:.1f}",
        f"{counted.formula:,}",
        f"{counted.normalised_cost:.3e}",
    )


def _aligned(rows: list[tuple[str, ...]]) -> str:
    """Lay out a table: the first column to the left, figures to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if index else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
