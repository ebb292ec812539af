"""What verbs share: the options that name a model, its loading, and the reading of seeds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from litebert.cli.output import Command, note
from litebert.errors import LitebertError

if TYPE_CHECKING:
    from litebert.config import Precision
    from litebert.inference import Model

Load: TypeAlias = "Callable[[], Model]"

model_option = click.option(
    "--model", help="A model folder, a run, or a name on the Hub; by default the packaged model."
)

vocabulary_option = click.option(
    "--tokenizer", help="A vocabulary or its folder, or a model; by default that of the packaged model."
)
column_option = click.option(
    "--column", multiple=True, metavar="ROLE=NAME", help="Columns of your file: text=review, ..."
)
depth_option = click.option(
    "--depth", type=int, help="Apply only this many steps; for models trained with train.exits=true."
)
patience_option = click.option(
    "--patience", type=int, help="Stop once this many consecutive classifiers agree; needs train.exits=true."
)
precision_option = click.option(
    "--precision",
    type=click.Choice(["fp32", "bf16"]),
    default="fp32",
    show_default=True,
    help="bf16 is several times faster where the machine has it, and within 1 %.",
)


def model_options(command: Command) -> Command:
    """Add --model and --precision to a command, which receives `load`, a function that loads it."""

    @wraps(command)
    def called(
        *args: object, model: str | None, precision: Precision, depth: int | None = None, **values: object
    ) -> object:
        return command(*args, load=partial(loaded, model, precision, depth=depth), **values)

    decorated: Any = model_option(precision_option(called))
    given: Command = decorated
    return given


def loaded(model: str | None, precision: Precision, *, depth: int | None = None) -> Model:
    """Load a model; print its name, and notes on what its files do not say, on stderr."""
    from litebert.inference import PACKAGED, Model

    found = Model.load(model, precision=precision, depth=depth)
    note(f"model: {found.source if model else PACKAGED}")
    found.remark = note
    for doubt in found.notes:
        note(f"note: {doubt}")
    return found


def vocabulary_path(tokenizer: str | None) -> Path:
    """Return the path of a vocabulary file or of a folder with one; by default that of the packaged model."""
    from litebert.hub import PACKAGED_NAME, locate

    path = Path(tokenizer or PACKAGED_NAME)
    return path if path.exists() or path.suffix in (".model", ".txt") else locate(path)


def seed_numbers(text: str) -> list[int]:
    """Read seeds with commas between them.

    Raises:
        LitebertError: LB-524, a part is not a whole number from 0.

    >>> seed_numbers("1,2, 3")
    [1, 2, 3]
    """
    try:
        seeds = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        seeds = [-1]
    if any(seed < 0 for seed in seeds):
        raise LitebertError(
            "LB-524",
            "these are not seeds",
            received=text,
            expected="whole numbers from 0 with commas between them",
            next="litebert finetune ... --seeds 1,2,3",
        )
    return seeds
