"""Fine-tune a model on real tasks, and the same network from random weights as a
control.

    python -m benchmarks.tasks.run MODEL OUT NAME [--random] [--seeds 1,2] [--tasks a,b] [--rate 1e-4] [--rows 500]
    python -m benchmarks.tasks.run --table OUT

With --rows N, a task is a table of N rows of its training file to train on, and N
others to evaluate on. Needs LITEBERT_TEST_DATA (glue, nli, imdb, squad, race). OUT/NAME
gets a run for each task and seed; rerun the command to resume. The table has a row for
each task and measure, a column for each NAME.
"""  # noqa: E501

import csv
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from benchmarks.measure import table
from benchmarks.texts import DATA, labeled
from litebert.cli.command import command_of
from litebert.config import FinetuneConfig
from litebert.files import write_text
from litebert.metrics import Spread
from litebert.rng import random_bits
from litebert.runs import RunFolder
from litebert.settings import resolve, settings_from_words
from litebert.train.finetune import finetune

COMMON = [
    "task.max_length=128",
    "train.batch_size=32",
    "train.precision=auto",
    "train.log_every=50",
]
COMMON += ["train.save_every=100000"]
TASKS = {
    name: [f"task.name={name}", f"data.folder={DATA / 'glue'}"]
    for name in ("cola", "rte", "mrpc", "stsb", "sst2")
}
TASKS["sst2"] += ["train.steps=1000", "train.eval_every=1000"]
TASKS |= {name: ["task.name=table"] for name in ("sick", "qnli", "snli")}
TASKS["imdb"] = ["task.name=table", "train.steps=150", "train.eval_every=150"]
TASKS["race-middle"] = [
    "task.name=race-middle",
    f"data.folder={DATA / 'race'}",
    "train.batch_size=16",
]
TASKS["race-middle"] += ["train.steps=150", "train.eval_every=150"]
SQUAD = [
    f"data.folder={DATA / 'squad'}",
    "task.doc_stride=48",
    "train.steps=500",
    "train.eval_every=500",
]
TASKS |= {name: [f"task.name={name}", *SQUAD] for name in ("squad", "squad2")}
FEW = [
    "task.name=table",
    "task.max_length=64",
    "train.precision=fp32",
    "train.log_every=1000",
]
# only after the last step
FEW += ["train.save_every=100000", "train.eval_every=1000000"]
SHOWN = {
    "cola": ["matthews"],
    "stsb": ["pearson", "spearman"],
    "mrpc": ["accuracy", "f1"],
}
SHOWN |= {"squad": ["exact", "f1"], "squad2": ["exact", "f1"]}


def two_tables(
    parts: dict[str, list[dict[str, str]]], folder: Path, name: str
) -> list[str]:
    """Write the rows to train on and those to evaluate on; return the settings that
    name them.
    """
    for part, rows in parts.items():
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
        write_text(folder / f"{name}-{part}.csv", text.getvalue())
    roles = [
        "text=a",
        *(["second=b"] if "b" in parts["train"][0] else []),
        "label=label",
    ]
    files = [f"data.{part}={folder / name}-{part}.csv" for part in parts]
    return [*files, f"data.columns={json.dumps(roles)}"]


def results(out: Path) -> str:
    """Return a row for each task and measure, a column for each model: the last
    steps.
    """
    names = sorted(folder.name for folder in out.iterdir() if folder.name != "data")
    lines = []
    for task in sorted(
        {folder.name for name in names for folder in (out / name).iterdir()}
    ):
        found = {
            n: [
                RunFolder(p.parent)
                for p in sorted((out / n / task).glob("seed-*/result.json"))
            ]
            for n in names
        }
        runs = [run for each in found.values() for run in each]
        for measure in SHOWN.get(task, ["accuracy"]) if runs else ():
            least = f"{100 * runs[0].outcome.baseline.get(measure, 0):.1f}"
            cells = [
                _cell([run.outcome.last.values[measure] for run in found[name]])
                for name in names
            ]
            lines.append(
                [task, measure, runs[0].settings["train.steps"], least, *cells]
            )
    return table(["task", "measure", "steps", "commonest label", *names], lines)


def _cell(values: Sequence[float]) -> str:
    if not values:
        return "-"
    spread = Spread.of(values)
    scale = 1 if abs(spread.median) > 1 else 100
    seeds = (
        ""
        if len(values) == 1
        else f" ± {scale * spread.spread:.1f} ({len(values)} seeds)"
    )
    return f"{scale * spread.median:.1f}{seeds}"


def main(
    model: str = "",
    out: Path = Path(),
    name: str = "",
    *,
    random: bool = False,
    seeds: tuple[int, ...] = (1,),
    tasks: str = ",".join(TASKS),
    rate: Annotated[
        float | None, "Learning rate; the task's default if omitted."
    ] = None,
    epochs: Annotated[int | None, "The task's default if omitted."] = None,
    rows: Annotated[
        int | None,
        "Train on this many rows of sst2, imdb, cola, mrpc, rte, sick, snli or stsb.",
    ] = None,
    set: Annotated[tuple[str, ...], "Another setting, as KEY=VALUE."] = (),
    table: Annotated[Path | None, "Print the table of this folder."] = None,
) -> None:
    """Run each task with each seed; of our own tables, a fifth, chosen by a hash of the
    text, is held out.
    """
    if table:
        print(results(table))
        return
    given = (
        [f"optim.learning_rate={rate}"] * bool(rate)
        + [f"train.epochs={epochs}"] * bool(epochs)
        + [*set]
    )
    for task in tasks.split(","):
        fixed = [*COMMON, *TASKS[task]]
        if rows:
            drawn = sorted(
                labeled(task),
                key=lambda row: int(random_bits(1, row["a"] + row.get("b", ""), 0)),
            )
            parts = {"train": drawn[:rows], "dev": drawn[rows : 2 * rows]}
            kind = "regression" if task == "stsb" else "classification"
            fixed = [
                *FEW,
                *two_tables(parts, out / "data", task),
                f"data.problem={kind}",
            ]
        elif "task.name=table" in fixed:
            parts = {"train": [], "dev": []}
            for row in labeled(task):
                parts[
                    "train" if int(random_bits(0, row["a"], 0)) % 5 else "dev"
                ].append(row)
            fixed += two_tables(parts, out / "data", task)
        for seed in seeds:
            words = [*fixed, f"model.start={model}", f"train.seed={seed}", *given]
            words.append(f"model.random={str(random).lower()}")
            print(task, name, seed, file=sys.stderr)
            finetune(
                resolve(FinetuneConfig, settings_from_words(words)),
                out / name / task / f"seed-{seed}",
            )


if __name__ == "__main__":
    command_of(main, "run")()
