"""Scores of any file of predictions, as the official scripts print them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import TypeAdapter

from litebert.errors import LitebertError
from litebert.metrics import squad1_measures, squad2_measures, threshold_measures
from litebert.reading.source import find_file
from litebert.reading.tables import read_layout
from litebert.tasks.kinds.spans.threshold import gold
from litebert.tasks.named.squad_questions import read_squad
from litebert.terminal import say

_TEXTS = TypeAdapter(dict[str, str])
_NUMBERS = TypeAdapter(dict[str, float])


def score_predictions(dataset: Path, predictions: Path, *, null_odds: Path | None = None) -> dict[str, float]:
    """Score question id -> answer against a file of SQuAD 1.1 or 2.0; which one, the file says.

    Questions without a prediction are named on stderr and counted as `unanswered`. As officially,
    they are wrong in 1.1 and left out in 2.0. `null_odds` (2.0) has question id -> null score.

    Raises:
        DamagedError: LB-800, a file is no JSON.
        LitebertError: LB-801, a file has another layout; LB-808, the data set tells no answers;
            LB-809, no prediction is for it; LB-810, a null score is missing.
    """
    source = find_file(dataset)
    file = read_squad(source)
    wanted = gold([example for example in file.examples if example.answers is not None])
    found = read_layout(find_file(predictions), _TEXTS, what="question id to answer")
    _require_match(wanted, found, source.name, predictions)
    missing = [key for key in wanted if key not in found]
    if missing:
        _warn(missing, len(wanted), "are left out" if file.is_version_2 else "count as wrong")
    if not file.is_version_2:
        return {**squad1_measures(wanted, found), "unanswered": len(missing)}
    if null_odds is None:
        return {**squad2_measures(wanted, found), "unanswered": len(missing)}
    nulls = read_layout(find_file(null_odds), _NUMBERS, what="question id to number")
    _require_nulls(wanted, found, nulls, null_odds)
    return {
        **squad2_measures(wanted, found, nulls),
        **threshold_measures(wanted, found, nulls),
        "unanswered": len(missing),
    }


def _require_match(wanted: Mapping[str, object], found: Mapping[str, str], name: str, predictions: Path) -> None:
    if not wanted:
        raise LitebertError(
            "LB-808",
            f"{name} does not tell the answers",
            received="questions without answers",
            expected="a labelled file, such as dev-v1.1.json or dev-v2.0.json",
            next=f"litebert evaluate --predictions {predictions} --data dev-v1.1.json",
        )
    if wanted.keys().isdisjoint(found):
        raise LitebertError(
            "LB-809",
            f"{predictions} answers no question of {name}",
            received=f"ids such as {next(iter(found), 'none')}",
            expected=f"ids such as {next(iter(wanted))}",
            next="choose the file of questions that the predictions were made for",
        )


def _require_nulls(
    wanted: Mapping[str, object], found: Mapping[str, str], nulls: Mapping[str, float], null_odds: Path
) -> None:
    lacking = [key for key in wanted if key in found and key not in nulls]
    if lacking:
        raise LitebertError(
            "LB-810",
            f"{null_odds} lacks questions that are answered",
            received=f"{len(nulls):,} null scores, none for {lacking[0]}",
            expected="one for each prediction",
            next="write both files in one go, or omit --null-odds",
        )


def _warn(missing: list[str], number: int, consequence: str) -> None:
    shown = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "")
    message = f"{len(missing):,} of {number:,} questions have no prediction and {consequence}"
    say(f"{message}: {shown}")
