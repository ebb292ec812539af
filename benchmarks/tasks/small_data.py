"""Fine-tune on 500 rows of each of eight tasks: the runs that the defaults rest on.

python benchmarks/tasks/small_data.py MODEL OUT [--rates 1e-4,3e-4] [--epochs 5,15] [--seeds 1]

Needs LITEBERT_TEST_DATA (glue, nli, imdb). Each run adds a line to OUT/results.jsonl; a run that
has its line is not repeated. Without --rates the defaults of `finetune` are measured.
`python benchmarks/tasks/small_data.py --table OUT` prints the table.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from run import DATA, Rows, _csv, _json_lines  # the neighbour in this folder

from litebert.config import FinetuneConfig, resolve, settings_from_words
from litebert.files import write_text
from litebert.rng import hashed
from litebert.train.finetune import finetune

NUM_ROWS = 500
REGRESSION = ("stsb",)
Columns = tuple[str, ...]

GLUE: dict[str, tuple[str, Columns, str]] = {
    "cola": ("CoLA", ("sentence",), "label"),
    "sst2": ("SST-2", ("sentence",), "label"),
    "mrpc": ("MRPC", ("#1 String", "#2 String"), "Quality"),
    "rte": ("RTE", ("sentence1", "sentence2"), "label"),
    "stsb": ("STS-B", ("sentence1", "sentence2"), "score"),
}
NLI = {
    "sick": ("SICK.txt.gz", "sentence_A", "sentence_B", "entailment_judgment"),
    "snli": ("snli_dev.jsonl.gz", "premise", "hypothesis", "label"),
}
TASKS = ("sst2", "imdb", "cola", "mrpc", "rte", "sick", "snli", "stsb")


def main() -> None:
    """Run what the command line names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--rates", default="")
    parser.add_argument("--epochs", default="")
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--set", nargs="*", default=[])
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    if given.table:
        print(table(Path(given.model)))
        return
    names, seeds = given.tasks.split(","), given.seeds.split(",")
    grid = product(seeds, given.epochs.split(","), given.rates.split(","), names)
    for seed, epochs, rate, name in grid:
        key = f"{name} rate={rate or 'default'} epochs={epochs or 'default'} seed={seed}"
        key += "".join(f" {word}" for word in given.set)
        words = [f"optim.learning_rate={rate}"] * bool(rate) + given.set
        words += [f"train.epochs={epochs}"] * bool(epochs) + [f"train.seed={seed}"]
        if key not in {line["key"] for line in finished(given.out)}:
            measure(key, name, given.model, given.out, words)


def measure(key: str, name: str, model: str, out: Path, words: list[str]) -> None:
    """Train once, keep the numbers, delete the run."""
    baseline, data = prepared(name, out / "data")
    fixed = ["task.name=table", "task.max_length=64", f"model.start={model}", *data]
    steady = ["train.precision=fp32", "train.save_every=100000", "train.log_every=1000"]
    steady += ["train.eval_every=1000000"]  # the last step alone is measured
    resolved = resolve(FinetuneConfig, settings_from_words([*fixed, *steady, *words]))
    folder = out / "run"
    shutil.rmtree(folder, ignore_errors=True)
    finetune(resolved, folder, is_quiet=True)
    result = json.loads((folder / "result.json").read_text())
    run = json.loads((folder / "run.json").read_text())["settings"]
    line = {"key": key, "task": name, "measure": result["key_measure"], "baseline": baseline}
    line |= {"last": result["last"][result["key_measure"]], "steps": run["train.steps"]}
    line |= {"rate": run["optim.learning_rate"], "epochs": run["train.epochs"]}
    before = (out / "results.jsonl").read_text() if (out / "results.jsonl").exists() else ""
    write_text(out / "results.jsonl", before + json.dumps(line) + "\n")
    print(json.dumps(line), file=sys.stderr, flush=True)


def finished(out: Path) -> list[dict[str, str]]:
    """Read the lines of the runs that are done."""
    path = out / "results.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def prepared(name: str, folder: Path) -> tuple[float, tuple[str, ...]]:
    """Write 500 rows to train on and 500 others; return what the commonest label gets on these."""
    rows = sorted(read(name), key=lambda row: int(hashed(1, row["a"] + row.get("b", ""), 0)))
    parts = {"train": rows[:NUM_ROWS], "dev": rows[NUM_ROWS : 2 * NUM_ROWS]}
    for part, chosen in parts.items():
        write_text(folder / f"{name}-{part}.csv", _csv(chosen))
    common = Counter(row["label"] for row in parts["train"]).most_common(1)[0][0]
    share = sum(row["label"] == common for row in parts["dev"]) / len(parts["dev"])
    roles = ["text=a", *(["second=b"] if "b" in rows[0] else []), "label=label"]
    words = (
        f"data.train={folder / name}-train.csv",
        f"data.dev={folder / name}-dev.csv",
        f"data.columns={json.dumps(roles)}",
        f"data.problem={'regression' if name in REGRESSION else 'classification'}",
    )
    return 0.0 if name in REGRESSION else share, words


def read(name: str) -> Rows:
    """Read the labelled rows of a task."""
    if name in GLUE:
        return list(_glue_rows(*GLUE[name]))
    if name == "imdb":
        sides = (("neg", "train-neg"), ("pos", "train-pos"))
        return [
            {"a": str(row["text"]), "label": side}
            for side, file in sides
            for row in _json_lines(DATA / f"imdb/{file}.jsonl.gz")
        ]
    file, first, second, label = NLI[name]
    rows = _tabbed(DATA / "nli" / file) if file.endswith(".txt.gz") else _json_lines(DATA / "nli" / file)
    return [{"a": r[first], "b": r[second], "label": r[label]} for r in rows]


def _glue_rows(folder: str, texts: Columns, label: str) -> Iterator[dict[str, str]]:
    header = ("source", "label", "original", "sentence") if folder == "CoLA" else ()
    for row in _tabbed(DATA / "glue" / folder / "train.tsv.gz", header):
        named = dict(zip(("a", "b"), (row[text] for text in texts), strict=False))
        yield {**named, "label": row[label]}


def _tabbed(path: Path, header: Columns = ()) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = (line.rstrip("\r\n").split("\t") for line in lines)
        names = header or tuple(next(rows))
        yield from (dict(zip(names, row, strict=True)) for row in rows if len(row) == len(names))


def table(out: Path) -> str:
    """Return Markdown: a row a setting, a column a task; the mean over seeds."""
    values: dict[tuple[str, str], list[float]] = {}
    baselines: dict[str, float] = {}
    for line in finished(out):
        setting = " ".join(word for word in line["key"].split()[1:] if not word.startswith("seed="))
        values.setdefault((setting, line["task"]), []).append(float(line["last"]))
        baselines[line["task"]] = float(line["baseline"])
    settings = list(dict.fromkeys(setting for setting, _ in values))
    rows = [f"| setting | {' | '.join(baselines)} |", "|---" * (len(baselines) + 1) + "|"]
    rows.append("| commonest label | " + " | ".join(f"{v:.3f}" for v in baselines.values()) + " |")
    for setting in settings:
        cells = (values.get((setting, name), []) for name in baselines)
        shown = (f"{sum(cell) / len(cell):.3f}" if cell else "" for cell in cells)
        rows.append(f"| {setting} | {' | '.join(shown)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
