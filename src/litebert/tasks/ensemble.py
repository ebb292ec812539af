"""Check that runs may be averaged: none may have trained on rows that others hold out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from litebert.errors import LitebertError
from litebert.tasks.dataset import Dataset
from litebert.tasks.own import TableDataset


def require_same_data(datasets: Mapping[str, Dataset[Any, Any]], data: Path) -> None:
    """Check that runs on a user's own files can be averaged: they must hold out the same rows.

    Raises:
        LitebertError: LB-880, they read different columns; LB-881, only some of them were trained
            on `data`.
    """
    own = {name: each for name, each in datasets.items() if isinstance(each, TableDataset)}
    columns = {name: " ".join(dataset.columns) for name, dataset in own.items()}
    if len({*columns.values()}) > 1:
        raise LitebertError(
            "LB-880",
            "runs that read different columns cannot be averaged",
            received="; ".join(f"{name}: {words}" for name, words in columns.items()),
            expected="runs with the same columns",
            next="evaluate them one by one, or add --column ROLE=NAME for all",
        )
    trained_on = {name: dataset.train for name, dataset in own.items() if dataset.train}
    held_out_by = [name for name, path in trained_on.items() if path.absolute() == data.absolute()]
    if held_out_by and len(held_out_by) < len(datasets):
        raise LitebertError(
            "LB-881",
            f"these runs do not hold out the same rows of {data}",
            received="; ".join(f"{name}: trained on {path}" for name, path in trained_on.items()),
            expected="a file that none of them was trained on, or the training file of all",
            next="add --data FILE",
        )
