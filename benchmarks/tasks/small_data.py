"""Fine-tune on 500 rows of each of eight tasks: the runs that the defaults rest on.

    python -m benchmarks.tasks.small_data MODEL OUT [--rates 1e-4,3e-4] [--epochs 5,15] [--seeds 1]
    python -m benchmarks.tasks.small_data --table OUT

Needs LITEBERT_TEST_DATA (glue, nli, imdb). Each run adds a line to OUT/results.jsonl; a run that has its line is not
repeated. Without --rates the defaults of `finetune` are measured.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections import Counter
from itertools import product
from pathlib import Path
from statistics import fmean

from benchmarks.measure import table
from benchmarks.tasks.run import two_tables
from benchmarks.texts import labelled
from litebert.config import FinetuneConfig, resolve, settings_from_words
from litebert.files import append_line
from litebert.rng import hashed
from litebert.runs import read_result, recorded_setting
from litebert.train.finetune import finetune

NUM_ROWS = 500
TASKS = ("sst2", "imdb", "cola", "mrpc", "rte", "sick", "snli", "stsb")


def measure(key: str, name: str, model: str, out: Path, words: list[str]) -> None:
    """Train once on 500 rows, measure on 500 others, keep the numbers, delete the run."""
    rows = sorted(labelled(name), key=lambda row: int(hashed(1, row["a"] + row.get("b", ""), 0)))
    parts = {"train": rows[:NUM_ROWS], "dev": rows[NUM_ROWS : 2 * NUM_ROWS]}
    common = Counter(row["label"] for row in parts["train"]).most_common(1)[0][0]
    is_regression = name == "stsb"
    baseline = 0.0 if is_regression else fmean(row["label"] == common for row in parts["dev"])
    fixed = ["task.name=table", "task.max_length=64", f"model.start={model}", *two_tables(parts, out / "data", name)]
    fixed += [f"data.problem={'regression' if is_regression else 'classification'}", "train.precision=fp32"]
    fixed += ["train.save_every=100000", "train.log_every=1000", "train.eval_every=1000000"]  # the last step alone
    folder = out / "run"
    shutil.rmtree(folder, ignore_errors=True)
    finetune(resolve(FinetuneConfig, settings_from_words([*fixed, *words])), folder, is_quiet=True)
    result = read_result(folder)
    line = {"key": key, "task": name, "measure": result.key_measure, "baseline": baseline}
    line["last"] = result.last.measures[result.key_measure]
    settings = {"steps": "train.steps", "rate": "optim.learning_rate", "epochs": "train.epochs"}
    line |= {short: recorded_setting(folder, long) for short, long in settings.items()}
    append_line(out / "results.jsonl", json.dumps(line))
    print(json.dumps(line), file=sys.stderr, flush=True)


def finished(out: Path) -> list[dict[str, str]]:
    """Read the lines of the runs that are done."""
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
    return table(["setting", *baselines], lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--rates", default="")
    parser.add_argument("--epochs", default="")
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--set", nargs="*", default=[])
    parser.add_argument("--table", action="store_true", help="print the table of the folder given")
    given = parser.parse_args()
    if given.table:
        sys.exit(print(results(Path(given.model))))
    for seed, epochs, rate, name in product(
        *(words.split(",") for words in (given.seeds, given.epochs, given.rates, given.tasks))
    ):
        key = f"{name} rate={rate or 'default'} epochs={epochs or 'default'} seed={seed}"
        key += "".join(f" {word}" for word in given.set)
        words = [f"optim.learning_rate={rate}"] * bool(rate) + given.set
        words += [f"train.epochs={epochs}"] * bool(epochs) + [f"train.seed={seed}"]
        if key not in {line["key"] for line in finished(given.out)}:
            measure(key, name, given.model, given.out, words)
