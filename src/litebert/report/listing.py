"""`runs list` and `runs compare`: the runs in a folder, and how runs differ."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Required, TypeAlias

from litebert.errors import LitebertError
from litebert.files import Json
from litebert.metrics import Spread
from litebert.report.results import (
    doubts_of,
    ends_of,
    medians,
    network_of,
    results_of,
    start_of,
    task_of,
)
from litebert.report.tables import DECIMALS, Cell, Table, format_cell, format_value
from litebert.runs import RunFolder, is_run

DEEPEST = 3
"""Levels of folders to search: `litebert glue` writes runs two levels deep, or three
with seeds.
"""

COLUMNS = (
    "name",
    "kind",
    "task",
    "model",
    "seeds",
    "step",
    "of",
    "finished",
    "measure",
    "last",
    "best",
    "doubts",
)

Named: TypeAlias = tuple[str, str]
"""What a row of a comparison is about: its kind ("setting", "last") and its name."""


def runs_list(*, runs: Annotated[Path, "Folder of the runs."] = Path("runs")) -> Table:
    """List the runs in a folder: what was trained, for how long, and with which
    results.

    `last` is the last step, `best` the best evaluation; for several seeds, these are
    medians.

    litebert runs list
    litebert runs list --runs experiments --csv
    """
    if not runs.is_dir():
        raise LitebertError(
            "LB-655",
            f"there are no runs in {runs}",
            received="a file" if runs.exists() else "no such folder",
            next="litebert runs list --runs FOLDER",
        )
    rows = list[dict[str, Cell]]()
    errors = list[LitebertError]()
    for run in _runs_below(runs, DEEPEST):
        try:
            rows.append(_row_of(run, runs))
        except LitebertError as error:
            errors.append(error)
    notes = [f"warning {row['name']}: {row['doubts']}" for row in rows if row["doubts"]]
    notes += map(str, errors)
    if not rows:
        notes.append(f"no runs in {runs}")
    return Table(
        COLUMNS,
        [[row[column] for column in COLUMNS] for row in rows],
        digest=Table(
            ("name", "trained", "steps", "measure", "last", "best"),
            [_digest_of(row) for row in rows],
        ),
        notes=tuple(notes),
        exit_code=errors[-1].exit_code if errors else 0,
    )


def _runs_below(folder: Path, depth: int) -> Iterator[RunFolder]:
    for path in sorted(folder.iterdir()):
        if not path.is_dir():
            continue
        run = RunFolder(path)
        if is_run(path) or run.seeds:
            yield run
        elif depth > 1:
            yield from _runs_below(path, depth - 1)


def _row_of(run: RunFolder, runs: Path) -> dict[str, Cell]:
    parts = run.seeds or (run,)
    task = run.setting("task.name") if run.kind == "fine-tuning" else None
    model = network_of(run) if task is None else start_of(run)
    # With a limit of time, the number of steps is an estimate.
    is_timed = run.settings.get("train.minutes") is not None
    steps = None if is_timed else run.settings.get("train.steps")
    results = results_of(run)
    last, best = medians(results)
    trained = model if task is None else f"{task_of(run)} from {model}"
    if len(parts) > 1:
        trained += f", {len(parts)} seeds"
    return {
        "trained": trained,  # only in the digest
        "name": str(run.folder.relative_to(runs)),
        "kind": run.kind,
        "task": task,
        "model": model,
        "seeds": len(parts),
        "step": min(part.step for part in parts),
        "of": steps if isinstance(steps, int) else None,
        "finished": run.is_finished,
        "measure": results[0].key_measure if results else None,
        "last": None if last is None else round(last, DECIMALS),
        "best": None if best is None else round(best, DECIMALS),
        "doubts": "; ".join(doubts_of(run)) or None,
    }


def _digest_of(row: dict[str, Cell]) -> tuple[Cell, ...]:
    """Return the row of a run as a terminal shows it."""
    steps = format_cell(row["step"])
    if not row["finished"]:
        steps += f" of {format_cell(row['of'])}" if row["of"] else ", not finished"
    cells = (row[name] for name in ("measure", "last", "best"))
    return row["name"], row["trained"], steps, *cells


# ---- comparing -----------------------------------------------------------------------


def runs_compare(*runs: Annotated[Path, Required]) -> Table:
    """Show how runs differ, with a column per run: settings with their origins, then
    measures.

    A folder with the runs of several seeds counts as one run, with the medians of its
    measures; means and deviations follow below.

    litebert runs compare runs/mrpc runs/mrpc-further
    litebert runs compare runs/one runs/two --markdown
    """
    opened = {str(folder): RunFolder.open(folder) for folder in runs}
    if len(opened) < 2:
        raise LitebertError(
            "LB-528",
            "comparing needs two runs or more",
            received=" ".join(map(str, runs)) or "none",
            next="litebert runs list",
        )
    columns = list(opened.values())
    rows = [*_differing_facts(columns), *_measures(columns)]
    doubts = ["; ".join(doubts_of(run)) or None for run in columns]
    if any(doubts):
        rows.append(("doubts", "", *doubts))
    return Table(("of", "name", *opened), rows)


def _differing_facts(runs: Sequence[RunFolder]) -> Iterator[tuple[Cell, ...]]:
    """Yield the settings, data and environment that are not the same in all runs."""
    facts = [_facts_of(run) for run in runs]
    for kind, name in _keys(facts):
        texts = [fact.get((kind, name)) for fact in facts]
        if len(set(texts)) == 1:
            continue
        cells = list[Cell]()
        for run, text in zip(runs, texts, strict=True):
            origin = run.file.origins.get(name) if kind == "setting" else None
            cells.append(f"{text} ({origin})" if text and origin else text)
        yield (kind, name, *cells)


def _facts_of(run: RunFolder) -> dict[Named, str]:
    settings: dict[str, Json] = dict(run.settings)
    if run.seeds:
        settings["train.seed"] = [part.seed for part in run.seeds]
    environment: dict[str, Json] = {
        "litebert": run.file.litebert,
        **run.file.environment,
    }
    facts = {("setting", name): format_value(x) for name, x in settings.items()}
    facts |= {("data", name): format_value(x) for name, x in run.file.data.items()}
    facts |= {("environment", name): format_value(x) for name, x in environment.items()}
    return facts


def _measures(runs: Sequence[RunFolder]) -> Iterator[tuple[Cell, ...]]:
    """Yield a row per measure: all of last steps before those of best evaluations."""
    measures = [_measures_of(run) for run in runs]
    keys = sorted(_keys(measures), key=lambda key: not key[0].startswith("last"))
    for key in keys:
        yield (*key, *(measure.get(key) for measure in measures))


def _measures_of(run: RunFolder) -> dict[Named, Cell]:
    results = results_of(run)
    measures = dict[Named, Cell]()
    for end, spreads in ends_of(results).items():
        step = Spread.of([getattr(result, end).step for result in results])
        for name, spread in {"step": step, **spreads}.items():
            measures[end, name] = _rounded(spread.median)
            if spread.number > 1:
                measures[f"{end}, mean of {spread.number}", name] = _rounded(
                    spread.mean
                )
                measures[f"{end}, deviation", name] = _rounded(spread.spread)
    return measures


def _keys(columns: Sequence[Mapping[Named, object]]) -> list[Named]:
    """Return the keys of all columns, in order, each once."""
    return list(dict.fromkeys(key for column in columns for key in column))


def _rounded(value: float) -> float:
    is_count = abs(value) > 1 and float(value).is_integer()
    return int(value) if is_count else round(float(value), DECIMALS)
