"""Keep the model of a run's best evaluation, apart from that of its last step."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

from litebert.files import Json
from litebert.nn import Network
from litebert.tokenizer import Tokenizer
from litebert.train.interrupt import Interruption
from litebert.train.run import write_model


@dataclass
class BestModel:
    """Write the network to `folder` whenever the key measure improves; see train.log.Listener.

    Ties keep the earlier step. With `patience`, that many evaluations in a row without improvement
    stop the run, as a signal does.
    """

    folder: Path
    key_measure: str
    network: Network
    tokenizer: Tokenizer
    interruption: Interruption
    patience: int | None = None
    value: float | None = None
    step: int = 0
    _since: int = field(default=0)

    def row(self, row: dict[str, Json]) -> None:
        """Write the model if this row of metrics.jsonl is the best evaluation so far."""
        if self._improves(row):
            write_model(self.folder, self.network, self.tokenizer)

    def recall(self, rows: list[dict[str, Json]]) -> None:
        """Take the rows of a resumed run, whose best model is in the folder already."""
        for row in rows:
            self._improves(row)

    @property
    def is_requested(self) -> bool:
        """Whether the run should stop after this step."""
        has_stalled = self.patience is not None and self._since >= self.patience
        return has_stalled or self.interruption.is_requested

    def _improves(self, row: dict[str, Json]) -> bool:
        if row.get("kind") != "eval":
            return False
        value, step = row.get(self.key_measure), row["step"]
        assert isinstance(step, int)
        number = float(value) if isinstance(value, int | float) else math.nan
        is_better = math.isfinite(number) and (self.value is None or number > self.value)
        if is_better:
            self.value, self.step, self._since = number, step, 0
        else:
            self._since += 1
        return is_better
