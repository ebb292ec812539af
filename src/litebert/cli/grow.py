"""litebert grow: make a pretrained model larger, so that training continues from it."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--output", required=True, type=click.Path(path_type=Path), help="Model to write.")
@click.option("--layers", type=int, help="Times the shared layer is applied; costs no parameter.")
@click.option("--hidden", type=int, help="Width of the layers, a multiple of the size of a head.")
@click.option("--intermediate", type=int, help="Width of the feed-forward layers.")
@click.option("--groups", type=int, help="Blocks of weights that the layers share.")
def grow(
    model: Path, output: Path, layers: int | None, hidden: int | None, intermediate: int | None, groups: int | None
) -> None:
    """Make a pretrained model larger; `pretrain --from` then continues from it.

    \b
    litebert grow models/mine --layers 24 --output models/deep
    litebert grow models/mine --hidden 1024 --intermediate 4096 --output models/wide
    litebert grow models/mine --groups 2 --output models/two-blocks
    """
    from litebert.cli.output import show
    from litebert.hub import locate
    from litebert.train.growth import grow as enlarge

    config = enlarge(
        locate(model),
        output,
        num_hidden_layers=layers,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_groups=groups,
    )
    show(
        f"{output}  H {config.hidden_size} x {config.num_hidden_layers} layers, "
        f"{config.num_attention_heads} heads, I {config.intermediate_size}, "
        f"{config.num_hidden_groups} groups"
    )
