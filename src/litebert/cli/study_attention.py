"""litebert study attention: local attention, compared with full attention and a dense mask."""

from __future__ import annotations

from pathlib import Path

import click

from litebert.cli.ending import show_study
from litebert.cli.output import Format, with_formats, with_outputs
from litebert.errors import LitebertError
from litebert.files import require_new


@click.command()
@click.argument("model", required=False)
@click.option("--texts", required=True, type=click.Path(path_type=Path), help="One text per line.")
@click.option("--window", default=64, show_default=True, type=click.IntRange(1, 65_536))
@click.option("--lengths", default="512,1024,2048,4096,8192", show_default=True, help="To time.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
@click.option("--longest", default=512, show_default=True, type=click.IntRange(8), help="For loss.")
@click.option(
    "--write-model",
    type=click.Path(path_type=Path),
    help="Write it with local attention and the "
    "longest length as positions; its position table is repeated. Continue training from it.",
)
@click.option(
    "--trained-length",
    type=click.IntRange(1),
    help="With --write-model: longest sequence of its training. Unset: all positions.",
)
@with_outputs
@with_formats
def attention(
    model: str | None,
    texts: Path,
    window: int,
    lengths: str,
    rounds: int,
    longest: int,
    write_model: Path | None,
    trained_length: int | None,
    output: Path | None,
    html: Path | None,
    written_as: Format,
) -> None:
    """Say whether local attention is exact, what a token costs, and what the loss becomes.

    \b
    litebert study attention --texts my-text.txt
    litebert study attention runs/mine --texts my-text.txt --window 32 --write-model models/long
    """
    from litebert.api.study import study_texts, write_lengthened, write_study
    from litebert.api.study_parts import attention_part
    from litebert.inference import Model
    from litebert.study.local import measure_local_attention

    numbers = lengths_of(lengths)
    if write_model is not None:
        require_new(write_model)
    loaded = Model.load(model)
    found = measure_local_attention(
        loaded, study_texts(texts), window=window, lengths=numbers, rounds=rounds, longest=longest
    )
    part = attention_part(found)
    written = write_study([part], metrics={f"attention-{Path(found.source).name}": found}, output=output, html=html)
    if write_model is not None:
        written.append(write_lengthened(loaded, write_model, max(numbers), window, trained=trained_length))
    show_study(part, found, written, written_as)


def lengths_of(text: str) -> list[int]:
    """Read lengths with commas between them."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or not all(word.isdigit() and int(word) for word in words):
        raise LitebertError(
            "LB-766",
            "these are not lengths",
            received=text,
            expected="whole numbers of tokens with commas between them",
            next="--lengths 512,1024",
        )
    return [int(word) for word in words]
