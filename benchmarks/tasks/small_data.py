"""Fine-tune on 500 rows of each of eight tasks: the runs that the defaults rest on.

    python -m benchmarks.tasks.small_data MODEL OUT [--rates 1e-4,3e-4] [--epochs 5,15] [--seeds 1]
    python -m benchmarks.tasks.small_data --table OUT

Needs LITEBERT_TEST_DATA (glue, nli, imdb). Each run adds a line to OUT/results.jsonl; a run that has its line is not
repeated. Without --rates the defaults of `finetune` are measured.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Annotated

from benchmarks.measure import table as markdown
from benchmarks.tasks.run import two_tables
from benchmarks.texts import labelled
from litebert.cli.command import command_of
from litebert.config import FinetuneConfig, resolve, settings_from_words
from litebert.files import append_line
from litebert.rng import hashed
from litebert.runs import Run
from litebert.train.finetune import finetune

NUM_ROWS = 500
TASKS = ("sst2", "imdb", "cola", "mrpc", "rte", "sick", "snli", "stsb")
FIXED = ["task.name=table", "task.max_length=64", "train.precision=fp32"]
FIXED += ["train.save_every=100000", "train.log_every=1000", "train.eval_every=1000000"]  # the last step alone


def measure(key: str, name: str, model: str, out: Path, words: list[str]) -> None:
    """Train once on 500 rows, measure on 500 others, keep the numbers, delete the run."""
    rows = sorted(labelled(name), key=lambda row: int(hashed(1, row["a"] + row.get("b", ""), 0)))
    parts = {"train": rows[:NUM_ROWS], "dev": rows[NUM_ROWS : 2 * NUM_ROWS]}
    common = Counter(row["label"] for row in parts["train"]).most_common(1)[0][0]
    is_regression = name == "stsb"
    baseline = 0.0 if is_regression else fmean(row["label"] == common for row in parts["dev"])
    fixed = [*FIXED, f"model.start={model}", *two_tables(parts, out / "data", name)]
    fixed += [f"data.problem={'regression' if is_regression else 'classification'}"]
    shutil.rmtree(out / "run", ignore_errors=True)
    finetune(resolve(FinetuneConfig, settings_from_words([*fixed, *words])), out / "run", is_quiet=True)
    run = Run(out / "run")
    line = {"key": key, "task": name, "measure": run.outcome.key_measure, "baseline": baseline}
    line["last"] = run.outcome.last.measures[run.outcome.key_measure]
    settings = {"steps": "train.steps", "rate": "optim.learning_rate", "epochs": "train.epochs"}
    line |= {short: run.settings[long] for short, long in settings.items()}
    append_line(out / "results.jsonl", json.dumps(line))
    print(json.dumps(line), file=sys.stderr, flush=True)


def finished(out: Path) -> list[dict[str, str]]:
    path = out / "results.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def results(out: Path) -> str:
    """Return a row a setting, a column a task; the mean over seeds."""
    values: dict[str, dict[str, list[float]]] = {}
    baselines: dict[str, float] = {}
    for line in finished(out):
        setting = " ".join(word for word in line["key"].split()[1:] if not word.startswith("seed="))
        values.setdefault(setting, {}).setdefault(line["task"], []).append(float(line["last"]))
        baselines[line["task"]] = float(line["baseline"])
    lines = [["commonest label", *(f"{share:.3f}" for share in baselines.values())]]
    for setting, found in values.items():
        lines.append([setting, *(f"{fmean(found[name]):.3f}" if name in found else "" for name in baselines)])
    return markdown(["setting", *baselines], lines)


def main(
    model: str = "",
    out: Path = Path(),
    *,
    rates: str = "",
    epochs: str = "",
    seeds: str = "1",
    tasks: str = ",".join(TASKS),
    set: Annotated[tuple[str, ...], "Another setting, as KEY=VALUE."] = (),
    table: Annotated[Path | None, "Print the table of this folder."] = None,
) -> None:
    """Measure each task at each rate, number of epochs and seed; lists are separated by commas."""
    if table:
        print(results(table))
        return
    for seed, epoch, rate, name in product(*(words.split(",") for words in (seeds, epochs, rates, tasks))):
        words = [f"rate={rate or 'default'}", f"epochs={epoch or 'default'}", f"seed={seed}", *set]
        settings = [f"optim.learning_rate={rate}"] * bool(rate) + [*set]
        settings += [f"train.epochs={epoch}"] * bool(epoch) + [f"train.seed={seed}"]
        key = " ".join([name, *words])
        if key not in {line["key"] for line in finished(out)}:
            measure(key, name, model, out, settings)


if __name__ == "__main__":
    command_of(main, "small_data")()
