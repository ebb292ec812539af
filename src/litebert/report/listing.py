"""`runs list` and `runs compare`: the runs in a folder, and how runs differ."""

import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
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
        received = "a file" if runs.exists() else "no such folder"
        raise LitebertError(
            "LB-655",
            f"there are no runs in {runs}",
            received=received,
            next="litebert runs list --runs FOLDER",
        )
    rows = list[list[Cell]]()
    digests = list[list[Cell]]()
    notes = list[str]()
    errors = list[LitebertError]()
    for run in _runs_below(runs, DEEPEST):
        try:
            cells = _cells_of(run, runs)
            digests.append(_digest_of(run, cells))
        except LitebertError as error:  # the other runs are listed
            errors.append(error)
            continue
        rows.append([cells[column] for column in COLUMNS])
        if cells["doubts"]:
            notes.append(_on_a_line(f"warning {cells['name']}: {cells['doubts']}"))
    if notes:
        notes.append("the report of a run has its doubts in full: litebert report RUN")
    notes += map(str, errors)
    exit_code = 0
    if errors:
        exit_code = errors[-1].exit_code
    if not rows:
        notes.append(f"no runs in {runs}")
    digest = Table(("name", "trained", "steps", "measure", "last", "best"), digests)
    return Table(COLUMNS, rows, digest=digest, notes=tuple(notes), exit_code=exit_code)


def _on_a_line(text: str) -> str:
    """Return a text cut to the width of the terminal."""
    width = shutil.get_terminal_size().columns
    return textwrap.shorten(text, width, placeholder=" …")


def _runs_below(folder: Path, depth: int) -> Iterator[RunFolder]:
    for path in sorted(folder.iterdir()):
        if not path.is_dir():
            continue
        run = RunFolder(path)
        if is_run(path) or run.seeds:
            yield run
        elif depth > 1:
            yield from _runs_below(path, depth - 1)


def _cells_of(run: RunFolder, runs: Path) -> dict[str, Cell]:
    """Return what is known of a run, by the names in `COLUMNS`."""
    cells = dict.fromkeys(COLUMNS, None) | {
        "name": str(run.folder.relative_to(runs)),
        "kind": run.kind,
        "seeds": len(run.parts),
        "step": min(part.step for part in run.parts),
        "of": _planned_steps(run),
        "finished": run.is_finished,
        "doubts": _joined_doubts(run),
    }
    if run.kind == "fine-tuning":
        cells["task"] = run.setting("task.name")
        cells["model"] = start_of(run)
    else:
        cells["model"] = network_of(run)
    results = results_of(run)
    last, best = medians(results)
    if last is not None and best is not None:
        cells["measure"] = results[0].key_measure
        cells["last"] = round(last, DECIMALS)
        cells["best"] = round(best, DECIMALS)
    return cells


def _planned_steps(run: RunFolder) -> int | None:
    """Return how many steps were asked for; None with a limit of time, where their
    number is an estimate.
    """
    steps = run.settings.get("train.steps")
    is_timed = run.settings.get("train.minutes") is not None
    if is_timed or not isinstance(steps, int):
        return None
    return steps


def _joined_doubts(run: RunFolder) -> str | None:
    return "; ".join(doubts_of(run)) or None


def _digest_of(run: RunFolder, cells: Mapping[str, Cell]) -> list[Cell]:
    """Return the row of a run as a terminal shows it."""
    trained = str(cells["model"])
    if run.kind == "fine-tuning":
        trained = f"{task_of(run)} from {trained}"
    if len(run.parts) > 1:
        trained += f", {len(run.parts)} seeds"
    steps = format_cell(cells["step"])
    planned = cells["of"]
    if not run.is_finished and planned:
        steps += f" of {format_cell(planned)}"
    elif not run.is_finished:
        steps += ", not finished"
    return [
        cells["name"],
        trained,
        steps,
        cells["measure"],
        cells["last"],
        cells["best"],
    ]


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
    headings = ("of", "name", *opened)
    rows = [*_differing_facts(columns), *_measures(columns)]
    doubts = [_joined_doubts(run) for run in columns]
    if not any(doubts):
        return Table(headings, rows)
    # long sentences, which are below the table in a terminal
    notes = list[str]()
    for name, doubt in zip(opened, doubts, strict=True):
        if doubt:
            notes.append(f"warning {name}: {doubt}")
    complete = [*rows, ("doubts", "", *doubts)]
    digest = Table(headings, rows)
    return Table(headings, complete, digest=digest, notes=tuple(notes))


def _differing_facts(runs: Sequence[RunFolder]) -> Iterator[tuple[Cell, ...]]:
    """Yield the settings, data and environment that are not the same in all runs."""
    facts = [_facts_of(run) for run in runs]
    for kind, name in _keys(facts):
        texts = [facts_of_run.get((kind, name)) for facts_of_run in facts]
        if len(set(texts)) == 1:
            continue
        cells = list[Cell]()
        for run, text in zip(runs, texts, strict=True):
            origin = None
            if kind == "setting":
                origin = run.file.origins.get(name)
            if text and origin:
                cells.append(f"{text} ({origin})")
            else:
                cells.append(text)
        yield (kind, name, *cells)


def _facts_of(run: RunFolder) -> dict[Named, str]:
    """Return the settings, data and environment of a run, as text; of several seeds,
    all seeds.
    """
    settings: dict[str, Json] = dict(run.settings)
    if run.seeds:
        settings["train.seed"] = [part.seed for part in run.seeds]
    environment: dict[str, Json] = {
        "litebert": run.file.litebert,
        **run.file.environment,
    }
    kinds: dict[str, dict[str, Json]] = {
        "setting": settings,
        "data": run.file.data,
        "environment": environment,
    }
    facts = dict[Named, str]()
    for kind, values in kinds.items():
        for name, value in values.items():
            facts[kind, name] = format_value(value)
    return facts


def _measures(runs: Sequence[RunFolder]) -> Iterator[tuple[Cell, ...]]:
    """Yield a row per measure: first those of the last steps, then those of the best
    evaluations.
    """
    measures = [_measures_of(run) for run in runs]
    keys = sorted(_keys(measures), key=lambda key: not key[0].startswith("last"))
    for key in keys:
        cells = [measures_of_run.get(key) for measures_of_run in measures]
        yield (*key, *cells)


def _measures_of(run: RunFolder) -> dict[Named, Cell]:
    """Return the steps and measures of a run, of the last steps and the best
    evaluations; for several seeds, also their means and deviations.
    """
    results = results_of(run)
    steps = {
        "last": [result.last.step for result in results],
        "best": [result.best.step for result in results],
    }
    measures = dict[Named, Cell]()
    for end, spreads in ends_of(results).items():
        with_step = {"step": Spread.of(steps[end]), **spreads}
        for name, spread in with_step.items():
            measures[end, name] = _rounded(spread.median)
            if spread.number > 1:
                mean_of = f"{end}, mean of {spread.number}"
                measures[mean_of, name] = _rounded(spread.mean)
                measures[f"{end}, deviation", name] = _rounded(spread.spread)
    return measures


def _keys(columns: Sequence[Mapping[Named, object]]) -> list[Named]:
    """Return the keys of all columns, in order, each once."""
    return list(dict.fromkeys(chain.from_iterable(columns)))


def _rounded(value: float) -> float:
    is_count = abs(value) > 1 and float(value).is_integer()
    if is_count:
        return int(value)
    return round(float(value), DECIMALS)
