"""litebert classify: the label, the labels or the score of texts."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from litebert.cli.loading import (
    depth_option,
    loaded,
    model_option,
    patience_option,
    precision_option,
)

if TYPE_CHECKING:
    from litebert.config import Precision


@click.command()
@click.argument("texts", nargs=-1, required=True)
@click.option("--pair", "pairs", multiple=True, help="Second text, one for each TEXT.")
@model_option
@precision_option
@depth_option
@patience_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one object a text.")
def classify(
    texts: tuple[str, ...],
    pairs: tuple[str, ...],
    model: str | None,
    precision: Precision,
    depth: int | None,
    patience: int | None,
    as_json: bool,
) -> None:
    """Say which label each text has.

    \b
    litebert classify "A fine film." "Dull." --model runs/sst2/model
    litebert classify "It rains." --pair "It is wet." --model runs/rte/model --json
    """
    asked = loaded(model, precision, depth=depth)
    found = asked.classify(texts, list(pairs) or None, patience=patience)
    if as_json:
        click.echo(json.dumps([asdict(each) for each in found], ensure_ascii=False))
        return
    for text, each in zip(texts, found, strict=True):
        values = "  ".join(f"{name} {value:.4g}" for name, value in each.values.items())
        click.echo(f"{', '.join(each.labels) or 'no label':<16}  {text[:50]:<50}  {values}")
