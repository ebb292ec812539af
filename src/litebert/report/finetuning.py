"""The report of a fine-tuning: results, published figures beside them, and answers.

For several seeds it has medians and their spread; answers are on the page of each seed.
"""

import shlex
from collections.abc import Mapping, Sequence

from litebert.metrics import Spread
from litebert.plugins import DATASETS, VERBS
from litebert.report.answers import answer_sections
from litebert.report.figures import Figure, Rule, chart_of, rate_charts
from litebert.report.page import Section
from litebert.report.parts import Parts, curves, sentences
from litebert.report.published import (
    comparability,
    find_measure,
    percent,
    published_on_dev,
)
from litebert.report.results import (
    doubts_of,
    ends_of,
    results_of,
    start_of,
    starts_of,
    task_of,
)
from litebert.report.tables import Cell, Table, format_cell
from litebert.runs import Result, RunFolder, read_answers

MOST_MEASURES = 2  # to draw while the key measure is not known yet


def finetuning_parts(run: RunFolder) -> Parts:
    """Return the parts of the page for one run, or for several seeds."""
    results = results_of(run)
    answers = read_answers(run.folder)  # for several seeds: none
    shell, python = _examples(run)
    sections = [
        _result(run, results),
        _published(run, results),
        curves(_figures(run, results), run),
        *answer_sections(run, answers),
    ]
    return Parts(_facts(run, results), sections, shell, python)


def _held_out_sets(run: RunFolder) -> list[str]:
    """Return the names of the sets of examples in run.json, "training" first."""
    suffix = " examples"
    names = [name for name in run.file.data if name.endswith(suffix)]
    return [name.removesuffix(suffix) for name in names]


def _facts(run: RunFolder, results: Sequence[Result]) -> dict[str, str]:
    setting = run.setting
    part = (run.seeds or (run,))[0]
    layers = part.config.get("num_hidden_layers")
    width = part.config.get("hidden_size")
    is_known = layers is not None and width is not None
    counts = dict[str, str]()
    for name in _held_out_sets(run):
        counts[name] = f"{run.file.data[f'{name} examples']:,} examples"
    training = counts.pop("training", "")
    held_out = [f"{split}: {count}" for split, count in counts.items()]
    fresh = set[str]()
    for result in results:
        fresh |= {name.rpartition(".")[0] or name for name in result.fresh}
    seeds = ", ".join(str(seed.seed) for seed in run.seeds)
    return {
        "Task": task_of(run),
        "Started from": start_of(run),
        "Network": f"{layers} layers of {width}" if is_known else "",
        "New, not pretrained": ", ".join(sorted(fresh)),
        "Trained on": training,
        "Evaluated on": "; ".join(held_out),
        "Batch": (
            f"{setting('train.batch_size')}, at most {setting('task.max_length')}"
            " pieces each"
        ),
        "Optimizer": (
            f"{setting('optim.name')}, peak rate {setting('optim.learning_rate')}"
        ),
        "Seed": seeds or str(run.settings.get("train.seed", "unknown")),
    }


def _examples(run: RunFolder) -> tuple[list[str], str]:
    """Return how to use the model: commands, and the call of a method."""
    commands = [
        f"litebert evaluate {shlex.quote(str(run.folder))}",
        f"litebert evaluate {shlex.quote(str(run.folder / 'best'))}",
    ]
    if not run.has_model:
        return commands, "verbs"
    command, python = usage_of(run)
    return [*commands, command], python


def usage_of(run: RunFolder) -> tuple[str, str]:
    """Return the command and the call of a method that use the model of a run."""
    from litebert.folder import read_head  # imports torch, which only a page needs

    folder = run.folder / "model"
    model = shlex.quote(str(folder))
    head = read_head(folder)
    if head is None:
        return f'litebert embed "A text." --model {model}', "verbs"
    words = VERBS[head.verb].in_shell
    python = VERBS[head.verb].in_python
    if head.verb == "classify" and head.compares_texts:
        words = 'classify "A text." --pair "Its pair."'
        python = 'classify(["A text."], ["Its pair."])'
    return f"litebert {words} --model {model}", python


# ---- curves --------------------------------------------------------------------------


def _figures(run: RunFolder, results: Sequence[Result]) -> list[Figure]:
    """Return the loss, and the key measure on each held-out set."""
    unlearned = results[0].baseline if results else {}
    figures = chart_of(
        run, "loss", "Training loss", "Lower is better.", "{:.3g}".format
    )
    for name in _measures_to_draw(run, results):
        rule = Rule("without learning", unlearned[name]) if name in unlearned else None
        title = f"Held-out {name}"
        figures += chart_of(
            run, name, title, "Higher is better.", format_cell, rule=rule
        )
    if not run.seeds:
        figures += rate_charts(run)
    return figures


def _measures_to_draw(run: RunFolder, results: Sequence[Result]) -> list[str]:
    """Return the key measure of every held-out set, or the first measures of an
    unfinished run.
    """
    if not results:
        evaluations = (run.seeds or (run,))[0].evaluations
        return list(evaluations[-1].values)[:MOST_MEASURES] if evaluations else []
    key = results[0].key_measure
    names = [key]
    for split in _held_out_sets(run):
        if not key.startswith(f"{split}_"):
            continue
        measure = key.removeprefix(f"{split}_")
        names = [
            name for name in results[0].last.values if name.endswith(f"_{measure}")
        ]
    return names


# ---- results -------------------------------------------------------------------------


def _result(run: RunFolder, results: Sequence[Result]) -> Section:
    tables = list[Table]()
    if results:
        words = [_on_last_and_best(results[0]), *sentences(doubts_of(run))]
        tables.append(_result_table(run, results))
    elif run.evaluations:
        words = ["The run is not finished; its best evaluation is chosen at the end."]
        row = run.evaluations[-1]
        headings = ("Measure", f"At step {row.step:,}")
        values = list(row.values.items())
        tables.append(Table(headings, values, "The last evaluation so far"))
    elif run.seeds:
        words = ["No seed is finished yet."]
    else:
        words = ["Nothing was evaluated yet."]
    if run.seeds:
        tables.append(_seed_table(run))
    return Section("Result", words, tables=tables)


def _on_last_and_best(result: Result) -> str:
    in_model = " (model/)" if result.kept == "last" else ""
    in_best = "best/" if result.kept == "last" else "best/ and model/"
    return (
        f"The last step is where training ended{in_model}. The best evaluation is the"
        f" one with the highest {result.key_measure} of {result.num_evaluations:,}"
        f" ({in_best}): it was chosen on the same examples that it is measured on, which"
        " flatters it. Compare each with figures chosen the same way."
    )


def _result_table(run: RunFolder, results: Sequence[Result]) -> Table:
    """Return last step and best evaluation beside the baseline, a row per measure; and
    the regression on the vectors, if training started from one.
    """
    first = results[0]
    ends = ends_of(results)
    starts = starts_of(results)
    rows = list[list[Cell]]()
    for name, last in ends["last"].items():
        label = f"{name}, key measure" if name == first.key_measure else name
        best = ends["best"].get(name)
        row: list[Cell] = [label, _spread_cell(run, last), _spread_cell(run, best)]
        if starts:
            row.append(_spread_cell(run, starts.get(name)))
        rows.append([*row, first.baseline.get(name)])
    caption = "Measured on held-out examples, without dropout"
    headings: tuple[str, ...] = (
        f"Last step, {first.last.step:,}",
        f"Best evaluation, step {first.best.step:,}",
    )
    if run.seeds:
        number = f"{len(results)} {'seeds' if len(results) > 1 else 'seed'}"
        caption = f"{caption}, over {number}: median; mean ± deviation"
        headings = ("Last steps", "Best evaluations")
    if starts:
        headings = (*headings, "Start, a regression on the vectors")
    return Table(("Measure", *headings, "Without learning"), rows, caption)


def _spread_cell(run: RunFolder, spread: Spread | None) -> str | None:
    if spread is None:
        return None
    median = format_cell(spread.median)
    if not run.seeds:
        return median
    return f"{median}; {format_cell(spread.mean)} ± {format_cell(spread.spread)}"


def _seed_table(run: RunFolder) -> Table:
    rows = list[list[Cell]]()
    for part in run.seeds:
        row: list[Cell] = [str(part.seed)]
        if result := part.outcome:
            for end in (result.last, result.best):
                row += [end.step, end.values[result.key_measure]]
        else:
            row += [f"not finished, step {part.step:,}", None, None, None]
        rows.append(row)
    headings = (
        "Seed",
        "Last step",
        "key measure",
        "Best evaluation, step",
        "key measure",
    )
    return Table(headings, rows, "Each seed by the key measure")


# ---- published figures ---------------------------------------------------------------


def _published(run: RunFolder, results: Sequence[Result]) -> Section:
    """Return published figures next to those of the run, which are medians over
    seeds.
    """
    title = "Published figures, and yours"
    task = run.setting("task.name")
    ends = ends_of(results)
    rows = list[list[Cell]]()
    for score in published_on_dev(task):
        row: list[Cell] = [score.model, score.measure, f"{score.percent:.1f}"]
        row += [_own_percent(task, score.measure, spreads) for spreads in ends.values()]
        split = "" if score.split == "dev" else f", on {score.split}"
        rows.append([*row, f"{score.table}, row {score.row}{split}"])
    if not rows:
        return Section(title)
    names = {"last": "last step", "best": "best evaluation"}
    own_headings = [f"Yours, {names[end]}" for end in ends]
    headings = ("Model", "Measure", "Published", *own_headings, "Source")
    caption = (
        "Percent, on dev; tables of arXiv 1909.11942 v6, README of"
        " google-research/albert"
    )
    if DATASETS.plugin_of(task):
        caption = "Percent, on dev unless the source says otherwise"
    table = Table(headings, rows, caption)
    return Section(title, [comparability(run)], tables=[table])


def _own_percent(task: str, measure: str, spreads: Mapping[str, Spread]) -> str | None:
    name = find_measure(measure, list(spreads))
    return f"{percent(task, spreads[name].median):.1f}" if name else None
