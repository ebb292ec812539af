"""Fine-tune a model on real tasks, and the same network from random weights as a
control.

    python -m benchmarks.tasks.run MODEL OUT NAME [--random] [--seeds 1,2] [--tasks a,b] [--rate 1e-4] [--rows 500]
    python -m benchmarks.tasks.run --table OUT

With --rows N, a task is a table of N rows of its training file to train on, and N
others to evaluate on. Needs LITEBERT_TEST_DATA (glue, nli, imdb, squad, race). OUT/NAME
gets a run for each task and seed; rerun the command to resume. The table has a row for
each task and measure, a column for each NAME.
"""  # noqa: E501

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

from benchmarks.measure import table as markdown_table
from benchmarks.texts import DATA, csv_text, labeled
from litebert.cli.command import command_of
from litebert.config import FinetuneConfig
from litebert.files import write_text
from litebert.metrics import Spread
from litebert.rng import random_bits
from litebert.runs import RunFolder
from litebert.settings import resolve, settings_from_words
from litebert.train.finetune import finetune

Rows: TypeAlias = list[dict[str, str]]

COMMON = [
    "task.max_length=128",
    "train.batch_size=32",
    "train.precision=auto",
    "train.log_every=50",
    "train.save_every=100000",
]
GLUE = f"data.folder={DATA / 'glue'}"
RACE = f"data.folder={DATA / 'race'}"
SQUAD = [
    f"data.folder={DATA / 'squad'}",
    "task.doc_stride=48",
    "train.steps=500",
    "train.eval_every=500",
]
TABLE = "task.name=table"  # the rows of `labeled`, as tables of our own
TASKS = {
    "cola": ["task.name=cola", GLUE],
    "rte": ["task.name=rte", GLUE],
    "mrpc": ["task.name=mrpc", GLUE],
    "stsb": ["task.name=stsb", GLUE],
    "sst2": ["task.name=sst2", GLUE, "train.steps=1000", "train.eval_every=1000"],
    "sick": [TABLE],
    "qnli": [TABLE],
    "snli": [TABLE],
    "imdb": [TABLE, "train.steps=150", "train.eval_every=150"],
    "race-middle": [
        "task.name=race-middle",
        RACE,
        "train.batch_size=16",
        "train.steps=150",
        "train.eval_every=150",
    ],
    "squad": ["task.name=squad", *SQUAD],
    "squad2": ["task.name=squad2", *SQUAD],
}
FEW = [
    TABLE,
    "task.max_length=64",
    "train.precision=fp32",
    "train.log_every=1000",
    # only after the last step
    "train.save_every=100000",
    "train.eval_every=1000000",
]
SHOWN = {
    "cola": ["matthews"],
    "stsb": ["pearson", "spearman"],
    "mrpc": ["accuracy", "f1"],
    "squad": ["exact", "f1"],
    "squad2": ["exact", "f1"],
}
"""The measures of a task; the others have accuracy."""


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
    common = [f"model.start={model}", f"model.random={str(random).lower()}"]
    if rate:
        common.append(f"optim.learning_rate={rate}")
    if epochs:
        common.append(f"train.epochs={epochs}")
    common += set
    for task in tasks.split(","):
        settings = settings_of(task, out / "data", rows)
        for seed in seeds:
            words = [*settings, *common, f"train.seed={seed}"]
            print(task, name, seed, file=sys.stderr)
            config = resolve(FinetuneConfig, settings_from_words(words))
            finetune(config, out / name / task / f"seed-{seed}")


# ---- the data ------------------------------------------------------------------------


def settings_of(task: str, folder: Path, num_rows: int | None) -> list[str]:
    """Return the settings of a task; write its rows if it is a table of our own."""
    if num_rows:
        kind = "regression" if task == "stsb" else "classification"
        tables = two_tables(few_rows(task, num_rows), folder, task)
        return [*COMMON, *FEW, *tables, f"data.problem={kind}"]
    settings = [*COMMON, *TASKS[task]]
    if TABLE in settings:
        settings += two_tables(all_rows(task), folder, task)
    return settings


def few_rows(task: str, num_rows: int) -> dict[str, Rows]:
    """Return rows to train on and as many to evaluate on, chosen by a hash."""
    drawn = sorted(labeled(task), key=_hash_of_both_texts)
    return {"train": drawn[:num_rows], "dev": drawn[num_rows : 2 * num_rows]}


def _hash_of_both_texts(row: dict[str, str]) -> int:
    return int(random_bits(1, row["a"] + row.get("b", ""), 0))


def all_rows(task: str) -> dict[str, Rows]:
    """Return all rows; a fifth of the first texts are to evaluate on."""
    parts: dict[str, Rows] = {"train": [], "dev": []}
    for row in labeled(task):
        is_held_out = int(random_bits(0, row["a"], 0)) % 5 == 0
        part = "dev" if is_held_out else "train"
        parts[part].append(row)
    return parts


def two_tables(parts: dict[str, Rows], folder: Path, name: str) -> list[str]:
    """Write the rows to train on and those to evaluate on; return the settings that
    name them.
    """
    settings = list[str]()
    for part, part_rows in parts.items():
        path = folder / f"{name}-{part}.csv"
        write_text(path, csv_text(part_rows))
        settings.append(f"data.{part}={path}")
    roles = ["text=a", "label=label"]
    if "b" in parts["train"][0]:
        roles.insert(1, "second=b")
    return [*settings, f"data.columns={json.dumps(roles)}"]


# ---- the table -----------------------------------------------------------------------


def results(out: Path) -> str:
    """Return a row for each task and measure, a column for each model: the last
    steps.
    """
    names = sorted(folder.name for folder in out.iterdir() if folder.name != "data")
    tasks = set[str]()
    for name in names:
        tasks |= {folder.name for folder in (out / name).iterdir()}
    lines = list[list[object]]()
    for task in sorted(tasks):
        runs = {name: finished_runs(out / name / task) for name in names}
        lines += _lines_of_task(task, runs)
    return markdown_table(
        ["task", "measure", "steps", "commonest label", *names], lines
    )


def finished_runs(folder: Path) -> list[RunFolder]:
    """Return the runs of all seeds that have a result."""
    paths = sorted(folder.glob("seed-*/result.json"))
    return [RunFolder(path.parent) for path in paths]


def _lines_of_task(task: str, runs: dict[str, list[RunFolder]]) -> list[list[object]]:
    first = next((seeds[0] for seeds in runs.values() if seeds), None)
    if first is None:
        return []
    lines = list[list[object]]()
    for measure in SHOWN.get(task, ["accuracy"]):
        commonest = first.outcome.baseline.get(measure, 0)
        cells = [_cell(seeds, measure) for seeds in runs.values()]
        steps = first.settings["train.steps"]
        lines.append([task, measure, steps, f"{100 * commonest:.1f}", *cells])
    return lines


def _cell(seeds: Sequence[RunFolder], measure: str) -> str:
    if not seeds:
        return "-"
    spread = Spread.of([run.outcome.last.values[measure] for run in seeds])
    scale = 1 if abs(spread.median) > 1 else 100  # SQuAD's are percents
    middle = f"{scale * spread.median:.1f}"
    if spread.number == 1:
        return middle
    return f"{middle} ± {scale * spread.spread:.1f} ({spread.number} seeds)"


if __name__ == "__main__":
    command_of(main, "run")()
