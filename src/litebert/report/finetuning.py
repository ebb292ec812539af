"""The page of a fine-tuning, and that of several seeds: last step and best evaluation side by side, never mixed."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import nsmallest

import numpy as np

from litebert.config import HEADS, kind_of_class
from litebert.files import Json
from litebert.metrics import Spread, calibration
from litebert.report.comparison import spreads
from litebert.report.figures import (
    MOST_EVALUATIONS,
    Chart,
    Line,
    ReliabilityFigure,
    Rule,
    chart_of,
    curve_across,
    curve_of,
    rate_charts,
)
from litebert.report.page import (
    NEIGHBOURS,
    Block,
    Page,
    Section,
    commands,
    curves,
    details,
    effort,
    figures,
    next_steps,
    page_of_run,
    paragraph,
    report_line,
    settings_of,
    surroundings_of,
    table,
)
from litebert.report.published import beside_yours, start_of
from litebert.report.tables import number
from litebert.runs import Answered, Result, Run, read_answers

MOST_MEASURES = 2
"""How many measures are drawn as long as no key measure is known."""
MOST_LABELS, MOST_PAIRS = 12, 20
"""Above so many labels a matrix is unreadable; so many of the commonest confusions are listed instead."""
MOST_ERRORS, LONGEST_ID, LONGEST_ANSWER, LONGEST_TEXT = 20, 40, 120, 280
BETWEEN = " ¦ "
"""Stands between the two texts of a pair in files of answers."""
Answers = Mapping[str, Sequence[Answered]]


def page(run: Run) -> Page:
    """Return the page of a fine-tuning run."""
    result, answers, labels = run.outcome, read_answers(run.folder), run.labels
    columns = {"last step": result.last.measures, "best": result.best.measures} if result else {}
    sections = (
        _results(run, answers, labels),
        *beside_yours(run, columns),
        curves(_charts(run, answers, labels), run, bands=NEIGHBOURS),
        *_confusion(answers, labels),
        *_calibration(answers, labels),
        *_worst(answers),
        _use(run, answers),
    )
    folder = run.folder.resolve()
    name = f"{folder.parent.name}/{folder.name}" if folder.name.startswith("seed-") else folder.name
    sources = "run.json, metrics.jsonl, result.json and answers"
    return page_of_run(run, _facts(run), sections, name=name, sources=sources)


# ---- overview and figures -------------------------------------------------------------------------------------------


def _facts(run: Run, seeds: str = "") -> dict[str, str]:
    setting, result = run.setting, None if seeds else run.outcome
    config = (run.seeds[0] if seeds else run).config
    shape = [config.get(name) for name in ("num_hidden_layers", "hidden_size")]
    fresh = sorted({name.rpartition(".")[0] or name for name in result.fresh}) if result else []

    def counted(value: Json) -> str:
        return f"{value:,} examples" if isinstance(value, int) else ""

    values = {
        "Task": setting("task.name"),
        "Started from": start_of(run),
        "Network": "" if None in shape else f"{shape[0]} layers of {shape[1]}",
        "New, not pretrained": ", ".join(fresh),
        "Trained on": counted(run.file.data.get("training examples")),
        "Evaluated on": "; ".join(f"{name}: {counted(run.file.data[f'{name} examples'])}" for name in _splits(run)),
        "Batch": f"{setting('train.batch_size')}, at most {setting('task.max_length')} pieces each",
        "Optimizer": f"{setting('optim.name')}, peak rate {setting('optim.learning_rate')}",
        "Seed": seeds or str(run.settings.get("train.seed", "unknown")),
        **({} if seeds else effort(run)),
    }
    return {name: value for name, value in values.items() if value}


def _splits(run: Run) -> list[str]:
    """Name the held-out sets of a run, the one that decides first."""
    counted = (name.removesuffix(" examples") for name in run.file.data if name.endswith(" examples"))
    return [name for name in counted if name != "training"]


def _measures_drawn(run: Run, result: Result | None) -> list[str]:
    """Name the key measure on each held-out set, or the first measures of an unfinished run."""
    if result is None:
        return [*run.evaluations[-1].values][:MOST_MEASURES] if run.evaluations else []
    splits = _splits(run)
    base = result.key_measure.removeprefix(f"{splits[0]}_") if splits else result.key_measure
    return [result.key_measure] if len(splits) < 2 else [f"{split}_{base}" for split in splits]


def _charts(run: Run, answers: Answers, labels: Sequence[str]) -> list[Chart]:
    rules = {
        accuracy_name(split, answers): (Rule("commonest label", commonest(rows)[1]),)
        for split, rows in answers.items()
        if are_labels(rows, labels)
    }
    held_out = [
        chart_of(run, name, f"Held-out {name}", "Higher is better.", number, rules=rules.get(name, ()))
        for name in _measures_drawn(run, run.outcome)
    ]
    loss = chart_of(run, "loss", "Training loss", "Lower is better.", "{:.3g}".format)
    return [loss, *held_out, *rate_charts(run)]


# ---- results --------------------------------------------------------------------------------------------------------


def are_labels(rows: Sequence[Answered], labels: Sequence[str]) -> bool:
    """Say whether each answer is one of several labels: not text, not a number, not a set."""
    known = set(labels)
    return len(known) > 1 and all({row.expected, row.answer} <= known for row in rows)


def commonest(rows: Sequence[Answered]) -> tuple[str, float]:
    """Return the label that most examples have, and their share."""
    label, count = Counter(row.expected for row in rows).most_common(1)[0]
    return label, count / len(rows)


def accuracy_name(split: str, answers: Answers) -> str:
    """Name the accuracy of a held-out set: where there are several, it begins with the set's."""
    return f"{split}_accuracy" if len(answers) > 1 else "accuracy"


def _results(run: Run, answers: Answers, labels: Sequence[str]) -> Section:
    result = run.outcome
    if result is None:
        if not run.evaluations:
            return Section("Result", [paragraph("Nothing was evaluated yet.")])
        row = run.evaluations[-1]
        cells = [(name, number(value)) for name, value in row.values.items() if name != "step"]
        headings = ("Measure", f"At step {row.step:,}")
        so_far = table("The last evaluation so far", headings, cells, style="numbers")
        said = "The run is not finished; its best evaluation is chosen when it is."
        return Section("Result", [paragraph(said), so_far])
    last, best = result.last, result.best
    lines = [
        "The last step is what training ended with (model/). The best evaluation is that with "
        f"the highest {result.key_measure} of {result.num_evaluations:,} (best/): it was chosen on the examples "
        "that it is measured on, which flatters it. Compare each with figures chosen likewise."
    ]
    for split, rows in answers.items():  # what an accuracy is worth, compared with no learning and with chance
        accuracy = last.measures.get(accuracy_name(split, answers))
        if accuracy is None:
            continue
        error, unlearnt = 2 * math.sqrt(accuracy * (1 - accuracy) / len(rows)), ""
        if are_labels(rows, labels):
            label, share = commonest(rows)
            gain = "" if accuracy > share else ": no gain over that"
            unlearnt = f"; always answering '{label}', its commonest label, gets {share:.1%}{gain}"
        lines.append(
            f"At the last step {accuracy:.1%} of {split} are right{unlearnt}. With {len(rows):,} "
            f"examples, differences below {100 * error:.1f} points may be chance (two standard errors)."
        )
    rows_shown = []
    for name, value in last.measures.items():
        title = f"{name}, key measure" if name == result.key_measure else name
        rows_shown.append((title, number(value), number(best.measures.get(name, math.nan))))
    shown = ("Measure", f"Last step, {last.step:,}", f"Best evaluation, step {best.step:,}")
    caption = "Measured on held-out examples, without dropout"
    return Section("Result", [*map(paragraph, lines), table(caption, shown, rows_shown, style="numbers")])


# ---- answers: which labels are mistaken, how sure the model is, what is worst ---------------------------------------


def _confusion(answers: Answers, labels: Sequence[str]) -> list[Section]:
    """Return the confusions of each held-out set whose answers are single labels."""
    tables, words = list[Block](), ["What the last step answers: a row for each label that was right."]
    for split, rows in answers.items():
        if not are_labels(rows, labels):
            continue
        if len({row.answer for row in rows}) == 1:
            words.append(f"On {split}, it answers '{rows[0].answer}' to every text.")
        counts = Counter((row.expected, row.answer) for row in rows)
        if len(labels) > MOST_LABELS:
            wrong = [(*pair, f"{count:,}") for pair, count in counts.most_common() if pair[0] != pair[1]]
            shown = wrong[:MOST_PAIRS]
            caption = f"{split}: the {len(shown)} commonest of {len(wrong):,} confusions"
            tables.append(table(caption, ("Expected", "Answered", "Times"), shown))
            continue
        totals, cells = Counter(row.expected for row in rows), []
        for wanted in labels:
            total, right = totals[wanted], counts[wanted, wanted]
            shares = [(f"{counts[wanted, found]:,}", counts[wanted, found] / max(1, total)) for found in labels]
            cells.append((wanted, *shares, (f"{right / total:.1%}" if total else "none", 0.0)))
        headings = ("Expected", *(f"answered {label}" for label in labels), "Right")
        tables.append(table(f"{split}, {len(rows):,} examples", headings, cells, style="shaded"))
    return [Section("Confusion", [*map(paragraph, words), *tables])] if tables else []


def _calibration(answers: Answers, labels: Sequence[str]) -> list[Section]:
    """Return the calibration of each held-out set with one answer and a confidence for each row."""
    drawn, words, tables = [], list[Block](), list[Block]()
    for split, rows in answers.items():
        known = [(row.confidence, row.is_right) for row in rows if row.confidence is not None]
        # no set of labels, no tags
        if len(known) < len(rows) or (labels and not are_labels(rows, labels)):
            continue
        # The answer is the first of two columns, so a label of 0 means that it is right.
        columns = np.array([(confidence, 0.0) for confidence, _ in known])
        measured = calibration(np.array([0 if is_right else 1 for _, is_right in known]), columns)
        sums = [(part.count, part.count * part.confidence, part.count * part.accuracy) for part in measured.bins]
        total, sure, right = map(sum, zip(*sums, strict=True))
        words.append(
            paragraph(
                f"On {split} it is {measured.error:.4f}: the last step is {sure / total:.1%} sure on average "
                f"and {right / total:.1%} right."
            )
        )
        caption = "Bars below the line: more confident than right."
        drawn.append(ReliabilityFigure(f"Reliability on {split}", caption, measured))
        cells = (
            (f"{part.low:.1%} to {part.high:.1%}", f"{part.count:,}", f"{part.confidence:.1%}", f"{part.accuracy:.1%}")
            for part in measured.bins
        )
        headings = ("Confidence", "Answers", "Mean confidence", "Right")
        tables.append(table(f"Bins of {split} that have answers", headings, cells, style="numbers"))
    if not drawn:
        return []
    what = (
        "Of the answers given with 80% confidence, 80% should be right. The expected calibration "
        "error is how far the two are apart on average: 0 is perfect."
    )
    return [Section("Calibration", [paragraph(what), *words, figures(drawn), details("The bins in numbers", *tables)])]


def shortened(text: str, *, most: int) -> str:
    """Return a text on one line, without unprintable characters and cut if it is too long.

    >>> shortened("one\\n two\\x00 three", most=9)
    'one two\\ufffd …'
    """
    line = "".join(letter if letter.isprintable() else "\ufffd" for letter in " ".join(text.split()))
    if len(line) <= most:
        return line
    kept, space, _ = line[: most + 1].rpartition(" ")
    # Some scripts have no spaces, and a word may be very long.
    return f"{kept if space and len(kept) > most // 2 else line[:most]} …"


def _worst(answers: Answers) -> list[Section]:
    """Return the worst errors of each held-out set, with their texts."""
    if not answers:
        return []

    def rank(row: Answered) -> tuple[float, str]:
        """How wrong, times how confident (1 if unknown), the worst first."""
        return (row.score - 1) * (1.0 if row.confidence is None else row.confidence), row.id

    blocks = [paragraph("What the last step gets wrong: what it was surest of, or farthest off, comes first.")]
    for split, rows in answers.items():
        wrong = [row for row in rows if not row.is_right]
        if not wrong:
            blocks.append(paragraph(f"{split}: nothing is wrong."))
            continue
        shown = nsmallest(MOST_ERRORS, wrong, key=rank)
        caption = f"{split}: the worst {len(shown)} of {len(wrong):,} errors in {len(rows):,}"
        if all(row.confidence is None for row in shown):
            caption = f"{split}: the {len(shown)} of {len(rows):,} answers that are farthest off"
        cells = [
            (
                shortened(row.id, most=LONGEST_ID),
                "not told" if row.confidence is None else f"{row.confidence:.1%}",
                shortened(row.expected, most=LONGEST_ANSWER) or "(none)",
                shortened(row.answer, most=LONGEST_ANSWER) or "(none)",
                shortened(row.text, most=LONGEST_TEXT),
            )
            for row in shown
        ]
        blocks.append(table(caption, ("Id", "Sure", "Expected", "Answered", "Text"), cells, style="texts"))
    return [Section("Worst errors", blocks)]


def _use(run: Run, answers: Answers) -> Section:
    """Return the commands that use a finished run, or resume it."""
    classes = run.config.get("architectures")
    kind = kind_of_class(str(classes[0])) if isinstance(classes, list) and classes else None
    place, model = shlex.quote(str(run.folder)), shlex.quote(str(run.folder / "model"))
    shell, python = [f"litebert evaluate {place}", f"litebert evaluate {place} --best"], "verbs"
    if kind:
        words, python = HEADS[kind].shell_example, HEADS[kind].python_example
        rows = [row for some in answers.values() for row in some]
        if HEADS[kind].verb == "classify" and rows and all(BETWEEN in row.text for row in rows):
            words, python = 'classify "A text." --pair "Its pair."', 'classify(["A text."], ["Its pair."])'
        shell += [f"litebert {words} --model {model}"] if words else []
    said = "In the shell: the last step measured again, the best evaluation, a use of its head."
    return next_steps(run, shell, python, said=said)


# ---- several seeds --------------------------------------------------------------------------------------------------


def page_of_seeds(run: Run) -> Page:
    """Return the page of several seeds: their mean results and their spread."""
    seeds = ", ".join(str(each.seed) for each in run.seeds)
    results = [each.outcome for each in run.seeds if each.outcome]
    kept = {"median of last steps": [r.last for r in results], "median of best": [r.best for r in results]}
    medians = {name: {m: s.median for m, s in spreads(each).items()} for name, each in kept.items() if each}
    words = "Confusion, calibration and the worst errors are on the page of each seed:"
    lines = [report_line(each.folder) for each in (*run.seeds, run)]
    bands = "Lines are means of the seeds; bands show their lowest and highest."
    sections = (
        _summary(run, results),
        *beside_yours(run, medians),
        curves(_charts_of_seeds(run, results), run, bands=bands),
        Section("Each seed", [paragraph(words), commands(lines)]),
        settings_of(run, {"train.seed": seeds}),
        surroundings_of(run),
    )
    kind, status = "Fine-tuning run, several seeds", f"{len(results)} of {len(run.seeds)} seeds are finished."
    return Page(run.name, kind, sections, "the run's seed folders", status, _facts(run, seeds))


def _summary(run: Run, results: Sequence[Result]) -> Section:
    rows = []
    for each in run.seeds:
        cells = [f"not finished, step {each.step:,}", "", "", ""]
        if result := each.outcome:
            kept = (result.last, result.best)
            cells = [text for e in kept for text in (f"{e.step:,}", number(e.measures[result.key_measure]))]
        rows.append((str(each.seed), *cells))
    headings = ("Seed", "Last step", "key measure", "Best evaluation, step", "key measure")
    by_seed = table("Each seed by the key measure", headings, rows, style="numbers")
    if not results:
        return Section("Result", [paragraph("No seed is finished yet."), by_seed])
    last_steps, best_steps = spreads([r.last for r in results]), spreads([r.best for r in results])
    words = (
        "Last steps are what training ended with. Best evaluations are each seed's highest "
        f"{results[0].key_measure}: chosen on the examples that they are measured on, which "
        "flatters them. The two are never mixed; ± is the standard deviation over seeds."
    )

    def cells_of(spread: Spread) -> tuple[str, str]:
        return number(spread.median), f"{number(spread.mean)} ± {number(spread.spread)}"

    names = [name for name in last_steps if name in best_steps]
    shown = ((name, *cells_of(last_steps[name]), *cells_of(best_steps[name])) for name in names)
    measures = (f"{what}: {how}" for what in ("Last steps", "Best evaluations") for how in ("median", "mean"))
    caption = f"Over {len(results)} {'seeds' if len(results) > 1 else 'seed'}"
    over_seeds = table(caption, ("Measure", *measures), shown, style="numbers")
    return Section("Result", [paragraph(words), over_seeds, by_seed])


def _charts_of_seeds(run: Run, results: Sequence[Result]) -> list[Chart]:
    losses = curve_across([curve_of(each.training, "loss") for each in run.seeds])
    lines = (Line("training", "train", losses),) if losses else ()
    charts = [Chart("Training loss", "Lower is better.", lines, "{:.3g}".format)]
    for name in _measures_drawn(run.seeds[0], results[0] if results else None):
        points = curve_across([curve_of(s.evaluations, name, most_points=MOST_EVALUATIONS) for s in run.seeds])
        lines = (Line("held out", "held-out", points, has_markers=True),) if points else ()
        charts.append(Chart(f"Held-out {name}", "Higher is better.", lines, number))
    return charts
