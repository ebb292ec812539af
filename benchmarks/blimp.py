"""BLiMP (Warstadt et al., 2020): the share of minimal pairs in which a model finds the
good sentence likelier, overall and by field.

    python -m benchmarks.blimp MODEL blimp.jsonl [--limit 20]

Sentences are compared by pseudo-log-likelihood (Salazar et al., 2020). All paradigms
(`UID`) have the same weight; `--limit` keeps only the first pairs of each.
"""

import json
from collections import defaultdict
from itertools import chain
from pathlib import Path
from statistics import mean
from typing import Any

import litebert
from litebert.cli.command import command_of


def main(model: str, data: Path, *, limit: int | None = None) -> str:
    """Print the shares of a model."""
    paradigms: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for line in data.read_text("utf-8").splitlines():
        row = json.loads(line)
        # BLiMP has two spellings of one field
        field = row["field"].replace("/", "_")
        paradigms[field, row["UID"]].append(row)

    loaded = litebert.load(model)
    shares_by_field: dict[str, list[float]] = defaultdict(list)
    for (field, _), rows in sorted(paradigms.items()):
        share = share_of_good(loaded, rows[:limit])
        shares_by_field[field].append(share)

    # Over the paradigms, not over the fields: fields differ in their number of paradigms.
    lines = [f"all  {mean(chain.from_iterable(shares_by_field.values())):.4f}"]
    for field, shares in shares_by_field.items():
        lines.append(f"{field}  {mean(shares):.4f}")
    return "\n".join(lines)


def share_of_good(model: litebert.Model, rows: list[dict[str, Any]]) -> float:
    """Return the share of minimal pairs in which the good sentence is likelier."""
    good = model.score([row["sentence_good"] for row in rows])
    bad = model.score([row["sentence_bad"] for row in rows])
    pairs = zip(good, bad, strict=True)
    return mean(first.log_likelihood > second.log_likelihood for first, second in pairs)


if __name__ == "__main__":
    command_of(main, "blimp")()
