"""The pages of trainings: a pretraining, a fine-tuning, and one with several seeds.

Each says what was reached beside what no learning reaches; last step and best evaluation stand side by side.
"""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import nsmallest
from importlib.resources import files as package_files

import numpy as np

from litebert.config import HEADS, kind_of_class
from litebert.metrics import Spread, calibration
from litebert.report.comparison import (
    comparability,
    named,
    network_of,
    percent,
    pretraining_findings,
    published_on_dev,
    sentence_task,
    share,
    spreads,
    start_of,
)
from litebert.report.figures import (
    MOST_EVALUATIONS,
    Figure,
    Line,
    Rule,
    chart,
    chart_of,
    curve_across,
    curve_of,
    rate_charts,
    reliability_figure,
)
from litebert.report.page import (
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
from litebert.report.tables import number
from litebert.runs import Answered, Run, read_answers

MOST_MEASURES = 2  # drawn as long as no key measure is known
MOST_LABELS, MOST_PAIRS = 12, 20
"""Above so many labels a matrix is unreadable; so many of the commonest confusions are listed instead."""
MOST_ERRORS, LONGEST_ID, LONGEST_ANSWER, LONGEST_TEXT = 20, 40, 120, 280
BETWEEN = " ¦ "
"""Stands between the two texts of a pair in files of answers."""
Answers = Mapping[str, Sequence[Answered]]

# ---- pretraining ----------------------------------------------------------------------------------------------------


def pretraining_page(run: Run) -> Page:
    """Return the page of a pretraining run."""
    setting, model = run.setting, shlex.quote(str(run.folder / "model"))
    embedding, length = setting("model.embedding_size"), setting("objective.max_seq_length")
    heads, sharing = setting("model.num_attention_heads"), setting("model.sharing")
    facts = {
        "Network": f"{network_of(run)}, {heads} heads, sharing {sharing}",
        "Embedding": f"{setting('model.vocab_size')} tokens x {embedding}",
        "Batch": f"{setting('train.batch_size')} sequences of at most {length} tokens",
        "Optimizer": f"{setting('optim.name')}, peak rate {setting('optim.learning_rate')}",
        **effort(run),
    }
    shell = [f'litebert fill "The cat sat on the [MASK]." --model {model}']
    if run.trains_sentences and run.settings.get("objective.sentence") != "next":
        shell.append(f'litebert order "He opened the door." "Nobody was there." --model {model}')
    shell.append(f'litebert embed "A sentence." --model {model}')
    use = next_steps(run, shell, 'fill("The cat sat on the [MASK].")')
    return page_of_run(run, run.name, facts, (_held_out(run), curves(_pretraining_charts(run), run), use), "")


def loss(value: float) -> str:
    """Write a loss in nats."""
    return f"{value:.3f}" if math.isfinite(value) else "not finite"


def perplexity(value: float) -> str:
    return f"{math.exp(value):,.1f}" if value < 100 else "not finite"


def _held_out(run: Run) -> Section:
    title = "Held-out results"
    if not run.evaluations:
        return Section(title, [paragraph("Nothing was evaluated yet.")])
    first, last, task = run.evaluations[0], run.evaluations[-1], sentence_task(run)
    words = paragraph(" ".join(f"{found[0].upper()}{found[1:]}." for found in pretraining_findings(run)))
    if first is last:
        return Section(title, [words, paragraph(f"Evaluated once so far, at step {first.step:,}.")])
    size = run.settings.get("model.vocab_size")
    vocabulary = size if isinstance(size, int) and size > 0 else math.nan
    baseline = share(last.values.get("masked_lm_baseline", math.nan))
    # label, name, format, and its value without any learning
    measures = (
        ("Masked-LM loss", "masked_lm_loss", loss, f"{loss(math.log(vocabulary))}, all tokens alike"),
        ("Masked-LM perplexity", "masked_lm_loss", perplexity, f"{vocabulary:,}, all tokens alike"),
        ("Masked-LM accuracy", "masked_lm_accuracy", share, f"{baseline}, always the commonest token"),
        (f"{task} loss", "sentence_order_loss", loss, f"{loss(math.log(2))}, chance"),
        (f"{task} accuracy", "sentence_order_accuracy", share, f"{share(0.5)}, chance"),
    )
    rows = [
        (label, write(first.values.get(name, math.nan)), write(last.values[name]), untrained)
        for label, name, write, untrained in measures
        if name in last.values
    ]
    headings = ("Measure", f"At step {first.step:,}", f"At step {last.step:,}", "Without learning")
    caption = "Loss in nats; measured on held-out documents, without dropout"
    return Section(title, [words, table(caption, headings, rows, style="results")])


def _pretraining_charts(run: Run) -> list[Figure]:
    # torch comes with them, which only a page needs
    from litebert.tasks.distillation import DISTILLATION_MEASURES
    from litebert.tasks.pretraining import pretraining_measures

    found, last = list[Figure](), run.evaluations[-1].values if run.evaluations else {}
    for each in (*pretraining_measures(), *DISTILLATION_MEASURES):
        if not each.title:
            continue
        # What is reached without any learning: a number, or a measure of its own.
        is_number = isinstance(each.chance, float)
        level = each.chance if isinstance(each.chance, float) else last.get(each.chance or "", math.nan)
        rules = (Rule("chance" if is_number else "commonest token", level),) if math.isfinite(level) else ()
        title, write = each.title.replace("Sentence order", sentence_task(run)), share if each.is_share else loss
        found += chart_of(run, each.name, title, each.caption, write, rules=rules, is_share=each.is_share)
    return [*found, *rate_charts(run)]


# ---- fine-tuning ----------------------------------------------------------------------------------------------------


def finetuning_page(run: Run) -> Page:
    """Return the page of a fine-tuning run."""
    result, answers = run.outcome, read_answers(run.folder)
    single = {split: rows for split, rows in answers.items() if _are_labels(rows, run.labels)}
    rules = {
        _accuracy_name(split, answers): (Rule("commonest label", _commonest(rows)[1]),)
        for split, rows in single.items()
    }
    drawn = chart_of(run, "loss", "Training loss", "Lower is better.", "{:.3g}".format)
    for name in _measures_drawn(run):
        drawn += chart_of(run, name, f"Held-out {name}", "Higher is better.", number, rules=rules.get(name, ()))
    columns = {"last step": result.last.measures, "best": result.best.measures} if result else {}
    sections = (
        _result(run, answers, single),
        *_published(run, columns),
        curves([*drawn, *rate_charts(run)], run),
        *_confusion(single, run.labels),
        *_calibration(single if run.labels else answers),  # no set of labels, no tags
        *_worst(answers),
        _use(run, answers),
    )
    folder = run.folder.resolve()
    name = f"{folder.parent.name}/{folder.name}" if folder.name.startswith("seed-") else folder.name
    return page_of_run(run, name, _facts(run), sections, ", result.json and answers")


def _facts(run: Run, seeds: str = "") -> dict[str, str]:
    setting, data, result = run.setting, run.file.data, None if seeds else run.outcome
    config = (run.seeds[0] if seeds else run).config
    shape = [config.get(name) for name in ("num_hidden_layers", "hidden_size")]
    counts = {
        n.removesuffix(" examples"): f"{count:,} examples" for n, count in data.items() if n.endswith(" examples")
    }
    values = {
        "Task": setting("task.name"),
        "Started from": start_of(run),
        "Network": "" if None in shape else f"{shape[0]} layers of {shape[1]}",
        "New, not pretrained": ", ".join(sorted({n.rpartition(".")[0] or n for n in result.fresh})) if result else "",
        "Trained on": counts.pop("training", ""),
        "Evaluated on": "; ".join(f"{split}: {count}" for split, count in counts.items()),
        "Batch": f"{setting('train.batch_size')}, at most {setting('task.max_length')} pieces each",
        "Optimizer": f"{setting('optim.name')}, peak rate {setting('optim.learning_rate')}",
        "Seed": seeds or str(run.settings.get("train.seed", "unknown")),
        **({} if seeds else effort(run)),
    }
    return values


def _measures_drawn(run: Run) -> list[str]:
    """Name the key measure on each held-out set, or the first measures of an unfinished run."""
    if run.outcome is None:
        return [*run.evaluations[-1].values][:MOST_MEASURES] if run.evaluations else []
    key, names = run.outcome.key_measure, (name.removesuffix(" examples") for name in run.file.data)
    splits = [name for name in names if key.startswith(f"{name}_")]  # the set that decides, where there are several
    base = key.removeprefix(f"{splits[0]}_") if splits else key
    return [name for name in run.outcome.last.measures if name == key or (splits and name.endswith(f"_{base}"))]


def _are_labels(rows: Sequence[Answered], labels: Sequence[str]) -> bool:
    """Say whether each answer is one of several labels: not text, not a number, not a set."""
    known = set(labels)
    return len(known) > 1 and all({row.expected, row.answer} <= known for row in rows)


def _commonest(rows: Sequence[Answered]) -> tuple[str, float]:
    """Return the label that most examples have, and their share."""
    label, count = Counter(row.expected for row in rows).most_common(1)[0]
    return label, count / len(rows)


def _accuracy_name(split: str, answers: Answers) -> str:
    """Name the accuracy of a held-out set: where there are several, it begins with the set's."""
    return f"{split}_accuracy" if len(answers) > 1 else "accuracy"


def _result(run: Run, answers: Answers, single: Answers) -> Section:
    if (result := run.outcome) is None:
        if not run.evaluations:
            return Section("Result", [paragraph("Nothing was evaluated yet.")])
        row = run.evaluations[-1]
        cells = [(name, number(value)) for name, value in row.values.items() if name != "step"]
        so_far = table("The last evaluation so far", ("Measure", f"At step {row.step:,}"), cells, style="numbers")
        said = "The run is not finished; its best evaluation is chosen when it is."
        return Section("Result", [paragraph(said), so_far])
    last, best = result.last, result.best
    lines = [
        "The last step is what training ended with (model/). The best evaluation is that with "
        f"the highest {result.key_measure} of {result.num_evaluations:,} (best/): it was chosen on the examples "
        "that it is measured on, which flatters it. Compare each with figures chosen likewise."
    ]
    for split, rows in answers.items():  # what an accuracy is worth, compared with no learning and with chance
        accuracy = last.measures.get(_accuracy_name(split, answers))
        if accuracy is None:
            continue
        error, unlearnt = 2 * math.sqrt(accuracy * (1 - accuracy) / len(rows)), ""  # two standard errors
        if split in single:
            label, most = _commonest(rows)
            gain = "" if accuracy > most else ": no gain over that"
            unlearnt = f"; always answering '{label}', its commonest label, gets {most:.1%}{gain}"
        lines.append(
            f"At the last step {accuracy:.1%} of {split} are right{unlearnt}. With {len(rows):,} "
            f"examples, differences below {100 * error:.1f} points may be chance (two standard errors)."
        )
    shown = [
        (
            f"{name}, key measure" if name == result.key_measure else name,
            number(value),
            number(best.measures.get(name, math.nan)),
        )
        for name, value in last.measures.items()
    ]
    headings = ("Measure", f"Last step, {last.step:,}", f"Best evaluation, step {best.step:,}")
    caption = "Measured on held-out examples, without dropout"
    return Section("Result", [*map(paragraph, lines), table(caption, headings, shown, style="numbers")])


def _published(run: Run, columns: Mapping[str, Mapping[str, float]]) -> list[Section]:
    """Return published figures beside the reader's own, given by column and measure, and what the recipe says."""
    blocks = list[Block]()
    if scores := published_on_dev(run.setting("task.name")):
        rows = []
        for score in scores:
            names = [(measures, named(score.measure, list(measures))) for measures in columns.values()]
            yours = [f"{percent(score.task, measures[name]):.1f}" if name else "" for measures, name in names]
            source = f"{score.table}, row {score.row}"
            rows.append((score.model, score.measure, f"{score.percent:.1f}", *yours, source))
        headings = ("Model", "Measure", "Published", *(f"Yours, {name}" for name in columns), "Source")
        caption = "Percent, on dev; tables of arXiv 1909.11942 v6, README of google-research/albert"
        blocks += [paragraph(comparability(run)), table(caption, headings, rows, style="numbers")]
    origins = run.file.origins.values()
    if recipe := min((origin.detail for origin in origins if origin.kind == "recipe"), default=None):
        path = package_files("litebert") / "recipes" / "finetune" / f"{recipe}.toml"
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        said = [line.lstrip("# ") for line in lines if line.startswith("#")]
        blocks.append(details(f"What the recipe {recipe} says", commands(said or ["It is not in this version."])))
    return [Section("Paper, recipe, yours", blocks)] if blocks else []


# ---- answers: which labels are mistaken, how sure the model is, what is worst ---------------------------------------


def _confusion(single: Answers, labels: Sequence[str]) -> list[Section]:
    """Return the confusions of each held-out set whose answers are single labels."""
    tables, words = list[Block](), ["What the last step answers: a row for each label that was right."]
    for split, rows in single.items():
        if len({row.answer for row in rows}) == 1:
            words.append(f"On {split}, it answers '{rows[0].answer}' to every text.")
        counts = Counter((row.expected, row.answer) for row in rows)
        if len(labels) > MOST_LABELS:
            wrong = [(*pair, f"{count:,}") for pair, count in counts.most_common() if pair[0] != pair[1]]
            caption = f"{split}: the {len(wrong[:MOST_PAIRS])} commonest of {len(wrong):,} confusions"
            tables.append(table(caption, ("Expected", "Answered", "Times"), wrong[:MOST_PAIRS]))
            continue
        totals, cells = Counter(row.expected for row in rows), []
        for wanted in labels:
            total, right = totals[wanted], counts[wanted, wanted]
            shares = [(f"{counts[wanted, found]:,}", counts[wanted, found] / max(1, total)) for found in labels]
            cells.append((wanted, *shares, f"{right / total:.1%}" if total else "none"))
        headings = ("Expected", *(f"answered {label}" for label in labels), "Right")
        tables.append(table(f"{split}, {len(rows):,} examples", headings, cells, style="shaded"))
    return [Section("Confusion", [*map(paragraph, words), *tables])] if tables else []


def _calibration(answers: Answers) -> list[Section]:
    """Return the calibration of each held-out set with one answer and a confidence for each row."""
    drawn, words = [], list[Block]()
    for split, rows in answers.items():
        sure = [row.confidence for row in rows if row.confidence is not None]
        if len(sure) < len(rows):
            continue
        # The answer is the first of two columns, so a label of 0 means that it is right.
        wrong = np.array([int(not row.is_right) for row in rows])
        measured = calibration(wrong, np.array([(confidence, 0.0) for confidence in sure]))
        said = f"the last step is {np.mean(sure):.1%} sure on average and {1 - wrong.mean():.1%} right."
        words.append(paragraph(f"On {split} it is {measured.error:.4f}: {said}"))
        caption = "Bars below the line: more confident than right."
        drawn.append(reliability_figure(f"Reliability on {split}", caption, measured))
    what = (
        "Of the answers given with 80% confidence, 80% should be right. The expected calibration "
        "error is how far the two are apart on average: 0 is perfect."
    )
    return [Section("Calibration", [paragraph(what), *words, figures(drawn)])] if drawn else []


def shortened(text: str, most: int) -> str:
    """Return a text on one line, without unprintable characters and cut if it is too long.

    >>> shortened("one\\n two\\x00 three", 9)
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
        cells = [
            (
                shortened(row.id, LONGEST_ID),
                "not told" if row.confidence is None else f"{row.confidence:.1%}",
                shortened(row.expected, LONGEST_ANSWER) or "(none)",
                shortened(row.answer, LONGEST_ANSWER) or "(none)",
                shortened(row.text, LONGEST_TEXT),
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
    return next_steps(run, shell, python)


# ---- several seeds --------------------------------------------------------------------------------------------------


def page_of_seeds(run: Run) -> Page:
    """Return the page of several seeds: their mean results and their spread."""
    seeds = ", ".join(str(each.seed) for each in run.seeds)
    results = [each.outcome for each in run.seeds if each.outcome]

    # Each seed by the key measure, then each measure over the seeds.
    by_seed, blocks = [], [paragraph("No seed is finished yet.")]
    for each in run.seeds:
        cells = [f"not finished, step {each.step:,}", "", "", ""]
        if result := each.outcome:
            kept = (result.last, result.best)
            cells = [text for e in kept for text in (f"{e.step:,}", number(e.measures[result.key_measure]))]
        by_seed.append((str(each.seed), *cells))
    medians: dict[str, dict[str, float]] = {}
    if results:
        last_steps, best_steps = spreads([r.last for r in results]), spreads([r.best for r in results])
        medians = {
            name: {measure: spread.median for measure, spread in found.items()}
            for name, found in {"median of last steps": last_steps, "median of best": best_steps}.items()
        }
        words = (
            "Last steps are what training ended with. Best evaluations are each seed's highest "
            f"{results[0].key_measure}: chosen on the examples that they are measured on, which "
            "flatters them. The two are never mixed; ± is the standard deviation over seeds."
        )

        def cells_of(spread: Spread) -> tuple[str, str]:
            return number(spread.median), f"{number(spread.mean)} ± {number(spread.spread)}"

        names = [name for name in last_steps if name in best_steps]
        rows = ((name, *cells_of(last_steps[name]), *cells_of(best_steps[name])) for name in names)
        measures = (f"{what}: {how}" for what in ("Last steps", "Best evaluations") for how in ("median", "mean"))
        caption = f"Over {len(results)} {'seeds' if len(results) > 1 else 'seed'}"
        blocks = [paragraph(words), table(caption, ("Measure", *measures), rows, style="numbers")]
    headings = ("Seed", "Last step", "key measure", "Best evaluation, step", "key measure")
    blocks.append(table("Each seed by the key measure", headings, by_seed, style="numbers"))

    losses = Line("training", "train", curve_across(curve_of(each.training, "loss") for each in run.seeds))
    drawn = chart("Training loss", "Lower is better.", [losses], "{:.3g}".format)
    for name in _measures_drawn(next((each for each in run.seeds if each.outcome), run.seeds[0])):
        points = curve_across(curve_of(each.evaluations, name, most_points=MOST_EVALUATIONS) for each in run.seeds)
        line = Line("held out", "held-out", points, has_markers=True)
        drawn += chart(f"Held-out {name}", "Higher is better.", [line], number)

    words = "Confusion, calibration and the worst errors are on the page of each seed:"
    sections = (
        Section("Result", blocks),
        *_published(run, medians),
        curves(drawn, run, bands="Lines are means of the seeds; bands show their lowest and highest."),
        Section("Each seed", [paragraph(words), commands([report_line(each.folder) for each in (*run.seeds, run)])]),
        settings_of(run, {"train.seed": seeds}),
        surroundings_of(run),
    )
    status = f"{len(results)} of {len(run.seeds)} seeds are finished."
    return Page(run.name, "Fine-tuning run, several seeds", sections, "its seed folders", status, _facts(run, seeds))
