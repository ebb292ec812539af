"""Tables for the terminal, with the same numbers as JSON, CSV or Markdown; and tables
of the results of runs.

Runs are listed, compared with each other and with published figures, with any reasons
not to trust them.
"""

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Required, TypeAlias

from litebert.config import PRESETS
from litebert.errors import LitebertError
from litebert.files import Json
from litebert.metrics import Spread
from litebert.runs import Result, Run, is_run
from litebert.settings import name_in
from litebert.tokenizer.tokenizer import MOST_UNKNOWN, OTHER_VOCABULARY

if TYPE_CHECKING:
    from litebert.tasks.named import PublishedScore

Cell: TypeAlias = str | int | float | bool | None

LONGEST_VALUE = 300  # characters of a setting
# levels of folders to search: `litebert glue` writes runs two levels deep, or three
# with seeds
DEEPEST = 3
DECIMALS = 4  # measures are rounded once, so that every format has the same numbers
# nats that a held-out loss may lie above the lowest one without a doubt being reported
WORSE = 0.01
NEAREST = ("base-v2", "base-v1", "xxlarge-v1")
"""The model cited if the run's own has no published figures: the smallest that has
some.
"""


@dataclass(frozen=True)
class Table:
    """Rows under headings; unknown values are None.

    A command that prints a table writes its notes to stderr, and ends with its exit
    code. On a page, the first column has the row headings, and `style` is a class in
    page.css.

    >>> print(Table(("run", "f1"), (("one", 0.5), ("two", None))))
    run      f1
    one  0.5000
    two       -
    >>> print(Table(("run", "f1"), (("a|b", 0.5),)).as_markdown())
    | run | f1 |
    |:--|--:|
    | a\\|b | 0.5000 |
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    style: str = ""
    decimals: int = DECIMALS
    notes: tuple[str, ...] = ()
    exit_code: int = 0
    formats: ClassVar = ("json", "csv", "markdown")

    def words(self) -> list[list[str]]:
        """Return the rows as text: measures have decimals, counts have none."""
        return [
            [format_cell(cell, decimals=self.decimals) for cell in row]
            for row in self.rows
        ]

    def _is_number(self, column: int) -> bool:
        """Return whether a column has only numbers, which are aligned to the right."""
        kinds = {type(row[column]) for row in self.rows} - {type(None)}
        return bool(kinds) and not kinds & {str, bool}

    def __str__(self) -> str:
        lines = [self.headings, *self.words()]
        sides = []
        for number, column in enumerate(zip(*lines, strict=True)):
            sides.append(
                f"{'>' if self._is_number(number) else '<'}{max(map(len, column))}"
            )
        text = ["  ".join(map(format, line, sides)).rstrip() for line in lines]
        return "\n".join([self.title, *text] if self.title else text)

    def as_markdown(self) -> str:
        rules = (
            "--:" if self._is_number(number) else ":--"
            for number in range(len(self.headings))
        )
        cells = [
            [" ".join(text.replace("|", "\\|").split()) for text in row]
            for row in self.words()
        ]
        lines = [f"| {' | '.join(row)} |" for row in (self.headings, *cells)]
        lines.insert(1, f"|{'|'.join(rules)}|")
        return "\n".join([f"**{self.title}**", "", *lines] if self.title else lines)

    def as_csv(self) -> str:
        """Return CSV with a header line; unknown values are empty."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(self.headings)
        writer.writerows(
            [format_cell(cell) if isinstance(cell, bool) else cell for cell in row]
            for row in self.rows
        )
        return buffer.getvalue().rstrip("\n")

    def as_json(self) -> list[dict[str, Cell]]:
        return [dict(zip(self.headings, row, strict=True)) for row in self.rows]


def format_cell(cell: Cell, *, decimals: int = DECIMALS) -> str:
    """Return a cell as text; counts have no decimals.

    >>> [format_cell(cell) for cell in (0.68382, 10570.0, 20, float("nan"), None, True)]
    ['0.6838', '10,570', '20', 'not finite', '-', 'yes']
    """
    if cell is None or isinstance(cell, str):
        return "-" if cell is None else cell
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if not math.isfinite(cell):
        return "not finite"
    is_count = isinstance(cell, int) or (abs(cell) > 100 and cell.is_integer())
    return f"{cell:,.0f}" if is_count else f"{cell:,.{decimals}f}"


def format_share(value: float) -> str:
    return f"{value:.1%}" if math.isfinite(value) else "not finite"


def format_value(value: Json) -> str:
    """Return a setting as written in a recipe; a long one is truncated.

    >>> [format_value(value) for value in (20_000, 1e-12, "lamb", True, None)]
    ['20000', '1e-12', 'lamb', 'true', 'unset']
    """
    if value is None:
        return "unset"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


# ---- results of runs, and doubts about them ------------------------------------------


def results_of(run: Run) -> list[Result]:
    """Return the results of a run, or of each of its seeds; none if it has no
    evaluation yet.
    """
    if run.kind == "fine-tuning":
        return [each.outcome for each in run.seeds or (run,) if each.outcome]
    measure = "masked_lm_accuracy"
    steps = [row for row in run.evaluations if measure in row.values]
    if not steps:
        return []
    best = max(steps, key=lambda row: row.values[measure])
    return [
        Result(
            task="",
            key_measure=measure,
            last=steps[-1],
            best=best,
            num_evaluations=len(steps),
            fresh=(),
        )
    ]


def ends_of(results: Sequence[Result]) -> dict[str, dict[str, Spread]]:
    """Summarise the measures that all seeds have, of the last steps and of the best
    evaluations.
    """
    ends: dict[str, dict[str, Spread]] = {}
    for end in ("last", "best") if results else ():
        measures = [getattr(each, end).values for each in results]
        names = [name for name in measures[0] if all(name in each for each in measures)]
        ends[end] = {
            name: Spread.of([each[name] for each in measures]) for name in names
        }
    return ends


def medians(results: Sequence[Result]) -> list[float | None]:
    """Return the medians of the key measure, over the last steps and over the best
    evaluations.
    """
    return [
        measures[results[0].key_measure].median
        for measures in ends_of(results).values()
    ] or [None, None]


def start_of(run: Run) -> str:
    """Return the name of the model that a run started from, or took only the shape
    of.
    """
    is_random = run.settings.get("model.random") is True
    return f"{'random weights, shaped as ' if is_random else ''}{run.setting('model.start')}"


def network_of(run: Run) -> str:
    preset = name_in(run.file.origins.get("model.hidden_size"), "preset")
    shape = (
        f"{run.setting('model.num_hidden_layers')} layers of"
        f" {run.setting('model.hidden_size')}"
    )
    return f"{preset}: {shape}" if preset else shape


def sentence_task(run: Run) -> str:
    return (
        "Next sentence"
        if run.settings.get("objective.sentence") == "next"
        else "Sentence order"
    )


def doubts_of(run: Run) -> list[str]:
    """Return reasons not to trust the results of a run, as clauses; for several seeds,
    those of any seed.
    """
    if run.kind == "fine-tuning":
        return list(
            dict.fromkeys(
                doubt for result in results_of(run) for doubt in result.doubts
            )
        )
    if not run.evaluations:
        return []
    last = run.evaluations[-1]
    found = list[str]()
    if (
        isinstance(share := run.file.data.get("unknown share"), float)
        and share > MOST_UNKNOWN
    ):
        found.append(
            f"{share:.1%} of the tokens, so also of the answers, are unknown;"
            f" {OTHER_VOCABULARY}"
        )
    accuracy, baseline = (
        last.values.get(f"masked_lm_{name}", math.nan)
        for name in ("accuracy", "baseline")
    )
    if round(accuracy, 3) <= round(baseline, 3):
        said = (
            f"the model predicts {format_share(accuracy)} of the masked tokens; always"
            " giving the commonest gets "
        )
        found.append(f"{said}{format_share(baseline)}: no gain over that")
    # Two standard errors of a coin tossed once per sequence: 2 sqrt(p (1 - p) / n), p =
    # 1/2.
    order = last.values.get("sentence_order_accuracy", math.nan)
    size = run.settings.get("train.eval_sequences")
    if isinstance(size, int) and size > 0 and abs(order - 0.5) < 1 / math.sqrt(size):
        found.append(
            f"{sentence_task(run)}: {format_share(order)} right, no better than chance"
            f" on {size:,} sequences"
        )
    losses = [
        (row.values.get("masked_lm_loss", math.inf), row.step)
        for row in run.evaluations
    ]
    (lowest, step), reached = min(losses), losses[-1][0]
    if lowest + WORSE < reached < math.inf:
        found.append(
            f"the held-out masked-LM loss is {reached:.3f}; it was lowest,"
            f" {lowest:.3f}, at step {step:,}"
        )
    return found


# ---- listing the runs in a folder, and comparing runs --------------------------------


def runs_list(*, runs: Annotated[Path, "Folder of the runs."] = Path("runs")) -> Table:
    """List the runs in a folder: what was trained, for how long, and with which
    results.

    `last` is the last step, `best` the best evaluation; for several seeds, these are
    medians.

    litebert runs list
    litebert runs list --runs experiments --csv
    """
    if not runs.is_dir():
        found = "a file" if runs.exists() else "no such folder"
        advice = "litebert runs list --runs FOLDER"
        raise LitebertError(
            "LB-655", f"there are no runs in {runs}", received=found, next=advice
        )
    rows = list[tuple[Cell, ...]]()
    errors = list[LitebertError]()
    for run in _runs_below(runs, DEEPEST):
        parts = run.seeds or (run,)
        try:
            is_finetuning = run.kind == "fine-tuning"
            trained = (
                (run.setting("task.name"), start_of(run))
                if is_finetuning
                else (None, network_of(run))
            )
            # its steps are an estimate
            is_timed = run.settings.get("train.minutes") is not None
            steps = None if is_timed else run.settings.get("train.steps")
            progress = (
                min(each.step for each in parts),
                steps if isinstance(steps, int) else None,
            )
            reached = results_of(run)
            ends = (
                None if value is None else round(value, DECIMALS)
                for value in medians(reached)
            )
            measured = (
                run.is_finished,
                reached[0].key_measure if reached else None,
                *ends,
            )
            name = str(run.folder.relative_to(runs))
            doubts = "; ".join(doubts_of(run)) or None
            rows.append(
                (name, run.kind, *trained, len(parts), *progress, *measured, doubts)
            )
        except LitebertError as error:
            errors.append(error)
    headings = (
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
    notes = tuple(map(str, errors)) + (() if rows else (f"no runs in {runs}",))
    return Table(
        headings, rows, notes=notes, exit_code=errors[-1].exit_code if errors else 0
    )


def _runs_below(folder: Path, depth: int) -> Iterator[Run]:
    for run in map(Run, sorted(path for path in folder.iterdir() if path.is_dir())):
        if is_run(run.folder) or run.seeds:
            yield run
        elif depth > 1:
            yield from _runs_below(run.folder, depth - 1)


def runs_compare(*runs: Annotated[Path, Required]) -> Table:
    """Show how runs differ, with a column per run: settings with their origins, then
    measures.

    A folder with the runs of several seeds counts as one run, with the medians of its
    measures; means and deviations follow below.

    litebert runs compare runs/mrpc runs/mrpc-further
    litebert runs compare runs/one runs/two --markdown
    """
    opened = {str(folder): Run.open(folder) for folder in runs}
    if len(opened) < 2:
        received = " ".join(map(str, runs)) or "none"
        raise LitebertError(
            "LB-528",
            "comparing needs two runs or more",
            received=received,
            next="litebert runs list",
        )
    # by kind and name
    facts = list[dict[tuple[str, str], str]]()
    measures = list[dict[tuple[str, str], Cell]]()
    for run in opened.values():
        seeds: dict[str, Json] = (
            {"train.seed": [each.seed for each in run.seeds]} if run.seeds else {}
        )
        environment = {"litebert": run.file.litebert, **run.file.environment}
        kinds = {
            "setting": {**run.settings, **seeds},
            "data": run.file.data,
            "environment": environment,
        }
        facts.append(
            {
                (kind, name): format_value(x)
                for kind, named in kinds.items()
                for name, x in named.items()
            }
        )
        reached = results_of(run)
        measured = dict[tuple[str, str], Cell]()
        for kind, spread_of in ends_of(reached).items():
            step = Spread.of([getattr(each, kind).step for each in reached])
            for name, spread in {"step": step, **spread_of}.items():
                measured[kind, name] = _round(spread.median)
                if spread.number > 1:
                    measured[f"{kind}, mean of {spread.number}", name] = _round(
                        spread.mean
                    )
                    measured[f"{kind}, deviation", name] = _round(spread.spread)
        measures.append(measured)
    rows = list[tuple[Cell, ...]]()
    for key in dict.fromkeys(key for each in facts for key in each):
        if len({each.get(key) for each in facts}) > 1:
            origins = [
                run.file.origins.get(key[1]) if key[0] == "setting" else None
                for run in opened.values()
            ]
            cells = zip((each.get(key) for each in facts), origins, strict=True)
            rows.append(
                (
                    *key,
                    *(
                        f"{text} ({origin})" if text and origin else text
                        for text, origin in cells
                    ),
                )
            )
    # all rows of last steps come before those of best evaluations
    keys = dict.fromkeys(key for each in measures for key in each)
    rows += [
        (*key, *(each.get(key) for each in measures))
        for key in sorted(keys, key=lambda of: of[0][:4] != "last")
    ]
    doubts = ["; ".join(doubts_of(run)) or None for run in opened.values()]
    if any(doubts):
        rows.append(("doubts", "", *doubts))
    return Table(("of", "name", *opened), rows)


def _round(value: float) -> float:
    is_count = abs(value) > 1 and float(value).is_integer()
    return int(value) if is_count else round(float(value), DECIMALS)


# ---- comparison with published figures; GLUE -----------------------------------------


def published_on_dev(task: str) -> "list[PublishedScore]":
    from litebert.tasks.named import published_scores  # imports torch

    return [
        score
        for score in published_scores()
        if (score.task, score.split) == (task, "dev")
    ]


def preset_of(run: Run) -> str | None:
    """Return the published model that a run started from, recognised by its name."""
    name = Path(run.setting("model.start")).name.lower().removeprefix("albert-")
    return (
        name
        if name in PRESETS and run.settings.get("model.random") is not True
        else None
    )


def comparability(run: Run) -> str:
    """Return a sentence on whether there are figures for exactly the model that the run
    started from.
    """
    preset = preset_of(run)
    task = run.setting("task.name")
    if preset and any(score.model == preset for score in published_on_dev(task)):
        advice = (
            "compare your figures with its figures, as far as the settings are those of"
            " the paper."
        )
        return (
            f"Judging by its name, the run started from the published {preset}:"
            f" {advice}"
        )
    model = f"{start_of(run)}, which is not one of the published models"
    if preset:
        model = f"the published {preset}, which has no figure on {task}"
    return (
        f"The run started from {model}: the figures show what others reach, and are not"
        " comparable with yours."
    )


def percent(task: str, value: float) -> float:
    """Return a measure in percent, as in papers; those of SQuAD's official script
    already are.

    >>> percent("mrpc", 0.68), percent("squad", 68.0)
    (68.0, 68.0)
    """
    return value if task.startswith("squad") else 100 * value


def find_measure(measure: str, names: Sequence[str]) -> str | None:
    """Find a measure among names; either may start with the name of a held-out set.

    >>> find_measure("accuracy", ["dev_matched_accuracy", "dev_mismatched_accuracy"])
    'dev_matched_accuracy'
    """
    fits = (
        name
        for name in names
        if name.endswith(f"_{measure}") or measure.endswith(f"_{name}")
    )
    return measure if measure in names else next(fits, None)


def glue_table(runs: Mapping[str, Run]) -> Table:
    """Return a table of finished tasks, in percent (for several seeds, medians), with
    notes on how to read it.
    """
    rows = list[tuple[Cell, ...]]()
    for task, run in runs.items():
        reached = results_of(run)
        measure = reached[0].key_measure
        yours = [
            None if value is None else round(percent(task, value), 2)
            for value in medians(reached)
        ]
        # the published score of the model itself, or else of the smallest ALBERT that
        # has one
        by_model = {
            s.model: s
            for s in reversed(published_on_dev(task))
            if find_measure(measure, [s.measure])
        }
        score = next(
            (
                by_model[model]
                for model in (preset_of(run), *NEAREST)
                if model in by_model
            ),
            None,
        )
        cited = (
            (score.percent, score.model, f"{score.table}, row {score.row}")
            if score
            else (None, None, None)
        )
        rows.append((task, measure, *yours, len(reached), *cited))
    headings = (
        "task",
        "measure",
        "last",
        "best",
        "seeds",
        "published",
        "model",
        "source",
    )
    notes = (
        (
            "Percent on dev. last: the last step; best: the best evaluation, which was"
            " chosen on dev itself. For several seeds, both are medians."
        ),
        *dict.fromkeys(comparability(run) for run in runs.values()),
    )
    return Table(headings, rows, decimals=2, notes=notes)
