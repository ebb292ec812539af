"""What every verb that answers shares: the model's option, and loading it with its notes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from litebert.predict import Model

model_option = click.option("--model", required=True, help="Model folder, or a name on the Hub.")


def loaded(model: str) -> Model:
    """Load a model; what its files leave in doubt goes to stderr."""
    from litebert.predict import Model

    found = Model.load(model)
    for note in found.notes:
        click.echo(f"note: {note}", err=True)
    return found
