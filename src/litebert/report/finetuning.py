"""The report of a fine-tuning: results, published figures beside them, and answers.

For several seeds it has medians and their spread; answers are on the page of each seed.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from litebert.errors import format_count
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
from litebert.runs import LogRow, Result, RunFolder, read_answers

TRAINING = "training"  # the set of examples in run.json that is not held out
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


def _facts(run: RunFolder, results: Sequence[Result]) -> dict[str, str]:
    """Return what the page says above the results; an unknown fact is empty."""
    counts = _example_counts(run)
    training = counts.pop(TRAINING, "")
    held_out = [f"{split}: {count}" for split, count in counts.items()]
    batch_size = run.setting("train.batch_size")
    max_length = run.setting("task.max_length")
    optimizer = run.setting("optim.name")
    peak_rate = run.setting("optim.learning_rate")
    seeds = ", ".join(str(part.seed) for part in run.seeds)
    return {
        "Task": task_of(run),
        "Started from": start_of(run),
        "Network": _network_of(run.parts[0]),
        "New, not pretrained": ", ".join(_new_layers(results)),
        "Trained on": training,
        "Evaluated on": "; ".join(held_out),
        "Batch": f"{batch_size}, at most {max_length} pieces each",
        "Optimizer": f"{optimizer}, peak rate {peak_rate}",
        "Seed": seeds or str(run.settings.get("train.seed", "unknown")),
    }


def _example_counts(run: RunFolder) -> dict[str, str]:
    """Return how many examples each set in run.json has: those for training, and those
    of each held-out split.
    """
    suffix = " examples"
    counts = dict[str, str]()
    for name, number in run.file.data.items():
        if name.endswith(suffix):
            counts[name.removesuffix(suffix)] = f"{number:,} examples"
    return counts


def _network_of(part: RunFolder) -> str:
    """Return the shape of the network in a model's config.json."""
    layers = part.config.get("num_hidden_layers")
    width = part.config.get("hidden_size")
    if layers is None or width is None:
        return ""
    return f"{layers} layers of {width}"


def _new_layers(results: Sequence[Result]) -> list[str]:
    """Return the layers that no seed found in the model that it started from."""
    layers = set[str]()
    for result in results:
        for parameter in result.fresh:
            layer, _, _ = parameter.rpartition(".")
            layers.add(layer or parameter)
    return sorted(layers)


def _examples(run: RunFolder) -> tuple[list[str], str]:
    """Return how to use the model: commands, and the call of a method."""
    commands = [
        run.command(f"evaluate {shlex.quote(str(run.folder))}"),
        run.command(f"evaluate {shlex.quote(str(run.folder / 'best'))}"),
    ]
    if not run.has_model:
        return commands, "verbs"
    command, python = usage_of(run)
    return [*commands, command], python


def usage_of(run: RunFolder) -> tuple[str, str]:
    """Return the command and the call of a method that use the model of a run, on a
    text that it has not learned from.
    """
    from litebert.folder import read_head  # imports torch, which only a page needs

    head = read_head(run.folder / "model")
    if head is None or head.verb == "embed":  # vectors, which are compared
        verb = VERBS["similar"]
        return run.model_command(verb.in_shell), verb.in_python
    verb = VERBS[head.verb]
    if head.verb == "classify" and head.compares_texts:
        pair = {"texts": ["A text."], "pairs": ["Its pair."]}
        verb = replace(verb, example=pair)
    elif verb.example.keys() == {"texts"}:
        text = _short_text(run)
        if text is not None:
            verb = replace(verb, example={"texts": [text]})
    return run.model_command(verb.in_shell), verb.in_python


MOST_CHARACTERS = 60  # of a text in a command


def _short_text(run: RunFolder) -> str | None:
    """Return a text of a few words that the run was evaluated on; None if all are
    longer.
    """
    for rows in read_answers(run.folder).values():
        for row in rows:
            is_short = len(row.text) <= MOST_CHARACTERS
            is_plain = row.text.isprintable() and not row.text.startswith("-")
            if is_short and is_plain and len(row.text.split()) > 1:
                return row.text
    return None


# ---- curves --------------------------------------------------------------------------


def _figures(run: RunFolder, results: Sequence[Result]) -> list[Figure]:
    """Return the loss, and the key measure on each held-out set."""
    unlearned = results[0].baseline if results else {}
    figures = chart_of(
        run, "loss", "Training loss", "Lower is better.", "{:.3g}".format
    )
    for name in _measures_to_draw(run, results):
        rule = None
        if name in unlearned:
            rule = Rule("without learning", unlearned[name])
        figures += chart_of(
            run,
            name,
            f"Held-out {name}",
            "Higher is better.",
            format_cell,
            rule=rule,
        )
    if not run.seeds:
        figures += rate_charts(run)
    return figures


def _measures_to_draw(run: RunFolder, results: Sequence[Result]) -> list[str]:
    """Return the key measure of every held-out set, or the first measures of an
    unfinished run.
    """
    if not results:
        evaluations = run.parts[0].evaluations
        if not evaluations:
            return []
        return list(evaluations[-1].values)[:MOST_MEASURES]
    key = results[0].key_measure
    splits = [split for split in _example_counts(run) if key.startswith(f"{split}_")]
    if not splits:
        return [key]
    # each held-out set has this measure, after its own name
    suffix = key.removeprefix(splits[-1])
    return [name for name in results[0].last.values if name.endswith(suffix)]


# ---- results -------------------------------------------------------------------------


def _result(run: RunFolder, results: Sequence[Result]) -> Section:
    """Return the section on the measures: of the finished seeds, or else of the last
    evaluation so far.
    """
    tables = list[Table]()
    if results:
        words = [_on_last_and_best(results[0]), *sentences(doubts_of(run))]
        tables.append(result_table(run, results))
    elif run.evaluations:
        words = ["The run is not finished; its best evaluation is chosen at the end."]
        tables.append(_table_so_far(run.evaluations[-1]))
    elif run.seeds:
        words = ["No seed is finished yet."]
    else:
        words = ["Nothing was evaluated yet."]
    if run.seeds:
        tables.append(_seed_table(run))
    return Section("Result", words, tables=tables)


def _table_so_far(row: LogRow) -> Table:
    headings = ("Measure", f"At step {row.step:,}")
    return Table(headings, list(row.values.items()), "The last evaluation so far")


def _on_last_and_best(result: Result) -> str:
    in_model = ""
    in_best = "best/ and model/"
    if result.kept == "last":
        in_model = " (model/)"
        in_best = "best/"
    return (
        f"The last step is where training ended{in_model}. The best evaluation is the"
        f" one with the highest {result.key_measure} of {result.num_evaluations:,}"
        f" ({in_best}): it was chosen on the same examples that it is measured on, which"
        " flatters it. Compare it only with the best evaluations of other runs, and the"
        " last step with their last steps."
    )


def result_table(run: RunFolder, results: Sequence[Result]) -> Table:
    """Return last step and best evaluation beside the baseline, a row per measure; and
    what the vectors of the start model gave before any training, if it was measured.
    """
    first = results[0]
    ends = ends_of(results)
    starts = starts_of(results)
    caption = "Measured on held-out examples, without dropout"
    headings = [
        "Measure",
        f"Last step, {first.last.step:,}",
        f"Best evaluation, step {first.best.step:,}",
    ]
    if run.seeds:
        number = format_count(len(results), "seed")
        caption += f", over {number}: median; mean ± deviation"
        headings = ["Measure", "Last steps", "Best evaluations"]
    if starts:
        headings.append("At the start")
    headings.append("Without learning")

    rows = list[list[Cell]]()
    for name, last in ends["last"].items():
        row: list[Cell] = [name]
        if name == first.key_measure:
            row = [f"{name}, key measure"]
        row.append(_spread_cell(run, last))
        row.append(_spread_cell(run, ends["best"].get(name)))
        if starts:
            row.append(_spread_cell(run, starts.get(name)))
        row.append(first.baseline.get(name))
        rows.append(row)
    return Table(headings, rows, caption)


def _spread_cell(run: RunFolder, spread: Spread | None) -> str | None:
    if spread is None:
        return None
    median = format_cell(spread.median)
    if not run.seeds:
        return median
    return f"{median}; {format_cell(spread.mean)} ± {format_cell(spread.spread)}"


def _seed_table(run: RunFolder) -> Table:
    """Return a table with the last and the best evaluation of each seed."""
    rows = list[list[Cell]]()
    for part in run.seeds:
        row: list[Cell] = [str(part.seed)]
        result = part.outcome
        if result is None:
            row += [f"not finished, step {part.step:,}", None, None, None]
        else:
            for end in (result.last, result.best):
                row += [end.step, end.values[result.key_measure]]
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
        source = f"{score.table}, row {score.row}"
        if score.split != "dev":
            source += f", on {score.split}"
        row: list[Cell] = [score.model, score.measure, f"{score.percent:.1f}"]
        row += [_own_percent(task, score.measure, spreads) for spreads in ends.values()]
        row.append(source)
        rows.append(row)
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
    if name is None:
        return None
    return f"{percent(task, spreads[name].median):.1f}"
