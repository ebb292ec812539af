"""Write the rows of metrics.jsonl for TensorBoard, too (extra: litebert[track])."""

from __future__ import annotations

from pathlib import Path

from litebert.errors import LitebertError
from litebert.files import Json


class TensorBoard:
    """Write every number of every row as a scalar `<kind>/<name>`."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise LitebertError(
                "LB-502",
                "TensorBoard is not installed",
                received=str(error),
                expected="the package tensorboard",
                next="pip install 'litebert[track]'",
            ) from error
        self._writer = SummaryWriter(str(folder))

    def row(self, row: dict[str, Json]) -> None:
        """Add the numbers of one row."""
        for name, value in row.items():
            if isinstance(value, float):
                tag = f"{row['kind']}/{name}"
                self._writer.add_scalar(tag, value, row["step"])
        self._writer.flush()
