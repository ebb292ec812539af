"""What studies print at their end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from litebert.cli.output import Format, note, printed, show, show_json

if TYPE_CHECKING:
    from pydantic import BaseModel

    from litebert.report.page import Part
    from litebert.study.depth import Depths
    from litebert.study.layers import Layers


def show_study(
    part: Part, found: BaseModel | list[Layers] | list[Depths], written: Sequence[Path], written_as: Format
) -> None:
    """Print the tables of a study; its conclusion and the files that it wrote go to stderr."""
    if written_as == "json":
        show_json(found, indent=2)
    else:
        show(printed(part.tables[:1] if written_as == "csv" else part.tables, written_as))
    note(part.finding)
    for path in written:
        note(str(path))
