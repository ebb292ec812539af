"""The pages of trainings: a pretraining, and a fine-tuning with one seed or several.

Each says what was reached beside what no learning reaches; last step and best evaluation stand side by side.
"""

from __future__ import annotations

import math
import shlex
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np
from pydantic import BaseModel

from litebert.config import HEADS, DataConfig, FinetuneConfig, PretrainConfig, StartConfig, TaskConfig, kind_of_class
from litebert.files import Json, write_text
from litebert.metrics import calibration
from litebert.report import tables
from litebert.report.figures import Figure, Rule, chart_of, rate_charts, reliability_figure
from litebert.report.page import Block, Page, commands, details, figures, paragraph, table
from litebert.report.tables import number, share, written
from litebert.runs import AnswerRow, Result, Run, finite, read_answers
from litebert.settings import describe, flattened, named_in

REPORT_FILE = "report.html"
MOST_NOTES = 50
MOST_MEASURES = 2  # drawn as long as no key measure is known
MOST_LABELS, MOST_PAIRS = 12, 20
"""Above so many labels a matrix is unreadable; so many of the commonest confusions are listed instead."""
MOST_ERRORS, LONGEST_ID, LONGEST_ANSWER, LONGEST_TEXT = 20, 40, 120, 280
BETWEEN = " ¦ "
"""Stands between the two texts of a pair in files of answers."""
Answers = Mapping[str, Sequence[AnswerRow]]
Sections = dict[str, Sequence[Block]]


def write_report(folder: Path) -> Path:
    """Write `report.html` into the folder of a run, finished or not, or of several seeds, and return its path.

    The page depends on the files of the run alone: the same run gives the same bytes. It loads nothing.
    """
    run = Run.open(folder)
    page = _pretraining(run) if run.kind == "pretraining" else _finetuning(run)
    write_text(folder / REPORT_FILE, page.html())
    return folder / REPORT_FILE


# ---- what every run has ---------------------------------------------------------------------------------------------


def _page(run: Run, facts: dict[str, str], sections: Sections, shell: Sequence[str], python: str) -> Page:
    """Add to what a kind of run has: `shell` are lines that use its model, `python` is a call of it."""
    seeds = [each.seed for each in run.seeds]
    folder, status = run.folder.resolve(), f"Finished after {run.step:,} steps."
    report = f"litebert report {shlex.quote(str(run.folder))}"
    if seeds:
        status = f"{len(tables.reached_by(run))} of {len(seeds)} seeds are finished."
        words = "Confusion, calibration and the worst errors are on the page of each seed:"
        of_seeds = (f"litebert report {shlex.quote(str(each.folder))}" for each in run.seeds)
        sections["Each seed"] = [words, commands(*of_seeds, report)]
    elif run.has_model:
        code = ["import litebert", f"model = litebert.load({str(run.folder / 'model')!r})", f"print(model.{python})"]
        use = ["In the shell:", commands(*shell), "In Python:", commands(*code)]
        sections["Use the model"] = [*use, "This page again:", commands(report)]
    else:
        reached = f"step {run.step:,} of {run.setting('train.steps')}. There is no model yet."
        status = f"Not finished: {reached if run.step else 'no training step was logged yet.'}"
        verb = "pretrain" if run.kind == "pretraining" else "finetune"
        words = f"Rerun the litebert {verb} command that began this run to resume it; then:"
        sections["Resume"] = [words, commands(report)]

    # the settings that differ from their defaults, and all of them; model_construct does not ask for data
    example: BaseModel = PretrainConfig(data=DataConfig(corpus=""))
    if run.kind == "fine-tuning":
        example = FinetuneConfig.model_construct(task=TaskConfig(name=""), model=StartConfig(start=""))
    described = {setting.name: setting for setting in describe(type(example))}
    defaults = flattened(example) | {name: "required" for name, each in described.items() if each.default == "required"}
    rows = []
    for name, value in (run.settings | ({"train.seed": ", ".join(map(str, seeds))} if seeds else {})).items():
        meaning = described[name].description if name in described else "not a setting of this version"
        origin = written(run.file.origins.get(name, "unknown"))
        rows.append((name, written(value), written(defaults.get(name, "unknown")), origin, meaning))
    headings = ("Setting", "Value", "Default", "Set by", "Meaning")
    differing = [row for row in rows if row[1] != row[2]]
    every = table("All settings of the run", headings, rows, style="names")
    first = table("Settings that differ from their defaults", headings, differing, style="names")
    sections["Settings"] = [first, details(f"All {len(rows)} settings", every)]

    environment: dict[str, Json] = {"litebert": run.file.litebert, **run.file.environment}
    machine = [(name, "none" if value is None else written(value)) for name, value in environment.items()]
    data = [(n, f"{value:,}" if isinstance(value, int) else written(value)) for n, value in run.file.data.items()]
    sections["Environment and data"] = [
        table("Environment", ("Name", "Value"), machine, style="names"),
        table("Data, hashes are blake2b", ("Name", "Value"), data, style="names"),
    ]

    if not seeds:  # what happened, and what it took; an unknown figure is empty, and not shown
        from litebert.train.run import duration  # torch comes with it

        speeds, remarks = finite(run.training, "tokens_per_second"), [row for row in run.rows if row.kind == "note"]
        timed = [row.values for row in run.training if {"tokens", "tokens_per_second"} <= row.values.keys()]
        seconds = sum(row["tokens"] / row["tokens_per_second"] for row in timed if row["tokens_per_second"] > 0)
        total = len(remarks)
        facts |= {
            "Tokens seen": f"{run.tokens:,}" if run.tokens else "",
            "Time, evaluations not counted": duration(seconds) if seconds else "",
            "Median speed": f"{statistics.median(speeds):,.0f} tokens/s" if speeds else "",
            "Notes": f"{total:,}, listed below" if total else "",
        }
        sections["Notes"] = ["Nothing unusual was noted: no step was skipped."]
        if total:
            caption = f"{total:,} notes" if total <= MOST_NOTES else f"The last {MOST_NOTES} of {total:,} notes"
            happened = ((f"{note.step:,}", note.text) for note in remarks[-MOST_NOTES:])
            sections["Notes"] = [table(caption, ("Step", "What happened"), happened)]

    sources = "the run's run.json, metrics.jsonl"
    if run.kind == "fine-tuning":
        sources = "its seed folders" if seeds else f"{sources}, result.json and answers"
    name = f"{folder.parent.name}/{folder.name}" if folder.name.startswith("seed-") else folder.name
    kind = f"{run.kind.capitalize()} run{', several seeds' if seeds else ''}"
    return Page(name, kind, sections, sources, status, facts)


def _curves(drawn: Sequence[Figure], run: Run) -> list[Block]:
    if not drawn:
        return ["No step was logged yet."]
    lines = "the seeds" if run.seeds else "neighbouring log lines"
    words = f"Lines are means of {lines}; bands show their lowest and highest."
    words = f"{words} A log line is the mean of {run.settings.get('train.log_every')} training steps."
    return [paragraph(words, style="quiet"), figures(drawn)]


# ---- pretraining ----------------------------------------------------------------------------------------------------


def _pretraining(run: Run) -> Page:
    # torch comes with them, which only a page needs
    from litebert.tasks.distillation import DISTILLATION_MEASURES
    from litebert.tasks.pretraining import pretraining_measures

    setting, model, task = run.setting, shlex.quote(str(run.folder / "model")), tables.sentence_task(run)
    last = run.evaluations[-1].values if run.evaluations else {}
    drawn = list[Figure]()
    for each in (*pretraining_measures(), *DISTILLATION_MEASURES):
        if not each.title:
            continue
        # What is reached without any learning: a number, or a measure of its own.
        is_number = isinstance(each.chance, float)
        level = each.chance if isinstance(each.chance, float) else last.get(each.chance or "", math.nan)
        rule = ("chance" if is_number else "commonest token", level) if math.isfinite(level) else None
        title, write = each.title.replace("Sentence order", task), share if each.is_share else loss
        drawn += chart_of(run, each.name, title, each.caption, write, rule=rule, is_share=each.is_share)
    network = f"{tables.network_of(run)}, {setting('model.num_attention_heads')} heads"
    length = setting("objective.max_seq_length")
    facts = {
        "Network": f"{network}, sharing {setting('model.sharing')}",
        "Embedding": f"{setting('model.vocab_size')} tokens x {setting('model.embedding_size')}",
        "Batch": f"{setting('train.batch_size')} sequences of at most {length} tokens",
        "Optimizer": f"{setting('optim.name')}, peak rate {setting('optim.learning_rate')}",
    }
    shell = [f'litebert fill "The cat sat on the [MASK]." --model {model}']
    if run.trains_sentences and run.settings.get("objective.sentence") != "next":
        shell.append(f'litebert order "He opened the door." "Nobody was there." --model {model}')
    shell.append(f'litebert embed "A sentence." --model {model}')
    curves = _curves([*drawn, *rate_charts(run)], run)
    sections: Sections = {"Held-out results": _held_out(run, task), "Curves": curves}
    return _page(run, facts, sections, shell, 'fill("The cat sat on the [MASK].")')


def loss(value: float) -> str:
    """Write a loss in nats."""
    return f"{value:.3f}" if math.isfinite(value) else "not finite"


def perplexity(value: float) -> str:
    return f"{math.exp(value):,.1f}" if value < 100 else "not finite"


def _held_out(run: Run, task: str) -> list[Block]:
    if not run.evaluations:
        return ["Nothing was evaluated yet."]
    first, last = run.evaluations[0], run.evaluations[-1]
    words = " ".join(f"{found[0].upper()}{found[1:]}." for found in tables.pretraining_findings(run))
    if first is last:
        return [words, f"Evaluated once so far, at step {first.step:,}."]
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
    return [words, table(caption, headings, rows, style="results")]


# ---- fine-tuning ----------------------------------------------------------------------------------------------------


def _finetuning(run: Run) -> Page:
    """Return the page of a fine-tuning run, or of several seeds: their mean results and their spread."""
    parts, results = run.seeds or (run,), tables.reached_by(run)
    answers, names = read_answers(run.folder), run.config.get("id2label")  # of several seeds, their own pages have them
    labels = [str(name) for name in names.values()] if isinstance(names, dict) else []
    # where each answer is one of several labels: not text, not a number, not a set of labels
    known = set(labels if len(labels) > 1 else ())
    single = {
        split: rows for split, rows in answers.items() if all({each.expected, each.answer} <= known for each in rows)
    }
    sets = [name.removesuffix(" examples") for name in run.file.data if name.endswith(" examples")]

    # the loss, and the key measure on each held-out set, or the first measures of an unfinished run
    worth, rules = _worth(answers, single, results[0].last.measures if results else {})
    measured = [*parts[0].evaluations[-1].values][:MOST_MEASURES] if parts[0].evaluations else []
    if results:
        key = results[0].key_measure
        base = next((key.removeprefix(f"{each}_") for each in sets if key.startswith(f"{each}_")), None)
        measured = [name for name in results[0].last.measures if name == key or (base and name.endswith(f"_{base}"))]
    drawn = chart_of(run, "loss", "Training loss", "Lower is better.", "{:.3g}".format)
    for name in measured:
        drawn += chart_of(run, name, f"Held-out {name}", "Higher is better.", number, rule=rules.get(name))
    drawn += [] if run.seeds else rate_charts(run)

    setting, shape = run.setting, [parts[0].config.get(name) for name in ("num_hidden_layers", "hidden_size")]
    counts = {name: f"{run.file.data[f'{name} examples']:,} examples" for name in sets}
    fresh = {name.rpartition(".")[0] or name for result in results for name in result.fresh}
    facts = {
        "Task": setting("task.name"),
        "Started from": tables.start_of(run),
        "Network": "" if None in shape else f"{shape[0]} layers of {shape[1]}",
        "New, not pretrained": ", ".join(sorted(fresh)),
        "Trained on": counts.pop("training", ""),
        "Evaluated on": "; ".join(f"{split}: {count}" for split, count in counts.items()),
        "Batch": f"{setting('train.batch_size')}, at most {setting('task.max_length')} pieces each",
        "Optimizer": f"{setting('optim.name')}, peak rate {setting('optim.learning_rate')}",
        "Seed": ", ".join(str(each.seed) for each in run.seeds) or str(run.settings.get("train.seed", "unknown")),
    }

    # how to ask the model: by the example of its head
    classes = run.config.get("architectures")
    kind = kind_of_class(str(classes[0])) if isinstance(classes, list) and classes else None
    place, python = shlex.quote(str(run.folder)), "verbs"
    shell = [f"litebert evaluate {place}", f"litebert evaluate {place} --best"]
    if kind:
        words, python = HEADS[kind].shell_example, HEADS[kind].python_example
        texts = [row.text for some in answers.values() for row in some]
        if HEADS[kind].verb == "classify" and texts and all(BETWEEN in text for text in texts):
            words, python = 'classify "A text." --pair "Its pair."', 'classify(["A text."], ["Its pair."])'
        shell += [f"litebert {words} --model {shlex.quote(str(run.folder / 'model'))}"] if words else []

    sections: Sections = {
        "Result": _result(run, results, worth),
        "Paper, recipe, yours": _published(run, results),
        "Curves": _curves(drawn, run),
        "Confusion": _confusion(single, labels),
        "Calibration": _calibration(single if labels else answers),  # no set of labels, no tags
        "Worst errors": _worst(answers),
    }
    return _page(run, facts, sections, shell, python)


def _worth(answers: Answers, single: Answers, measures: Mapping[str, float]) -> tuple[list[Block], dict[str, Rule]]:
    """Say what the accuracies of a run are worth, beside no learning and beside chance; by name, what needs none."""
    blocks, rules = list[Block](), dict[str, Rule]()
    for split, rows in answers.items():
        name, unlearnt = f"{split}_accuracy" if len(answers) > 1 else "accuracy", ""
        accuracy = measures.get(name, math.nan)
        if split in single:
            label, count = Counter(row.expected for row in rows).most_common(1)[0]
            rules[name] = ("commonest label", count / len(rows))
            gain = "" if accuracy > count / len(rows) else ": no gain over that"
            unlearnt = f"; always answering '{label}', its commonest label, gets {count / len(rows):.1%}{gain}"
        if name in measures:
            error = 2 * math.sqrt(accuracy * (1 - accuracy) / len(rows))  # two standard errors
            blocks.append(
                f"At the last step {accuracy:.1%} of {split} are right{unlearnt}. With {len(rows):,} "
                f"examples, differences below {100 * error:.1f} points may be chance (two standard errors)."
            )
    return blocks, rules


def _result(run: Run, results: Sequence[Result], worth: Sequence[Block]) -> list[Block]:
    blocks: list[Block] = ["No seed is finished yet." if run.seeds else "Nothing was evaluated yet."]
    if results:
        ends, key, shown = tables.ends_of(results), results[0].key_measure, []
        for name in ends["last"]:
            cells = [f"{name}, key measure" if name == key else name]
            for measures in ends.values():
                found = measures.get(name)
                several = f"; {number(found.mean)} ± {number(found.spread)}" if found and run.seeds else ""
                cells.append(f"{number(found.median) if found else 'not finite'}{several}")
            shown.append(cells)
        words = (
            "The last step is what training ended with (model/). The best evaluation is that with "
            f"the highest {key} of {results[0].num_evaluations:,} (best/): it was chosen on the examples "
            "that it is measured on, which flatters it. Compare each with figures chosen likewise."
        )
        caption = "Measured on held-out examples, without dropout"
        headings = [f"Last step, {results[0].last.step:,}", f"Best evaluation, step {results[0].best.step:,}"]
        if run.seeds:
            caption += f", over {len(results)} {'seeds' if len(results) > 1 else 'seed'}: median; mean ± deviation"
            headings = ["Last steps", "Best evaluations"]
        blocks = [words, *worth, table(caption, ("Measure", *headings), shown, style="numbers")]
    elif run.evaluations:
        row = run.evaluations[-1]
        so_far = [(name, number(value)) for name, value in row.values.items()]
        blocks = ["The run is not finished; its best evaluation is chosen when it is."]
        headings = ["Measure", f"At step {row.step:,}"]
        blocks.append(table("The last evaluation so far", headings, so_far, style="numbers"))
    if run.seeds:
        by_seed = []
        for each in run.seeds:
            cells = [f"not finished, step {each.step:,}", "", "", ""]
            if result := each.outcome:
                kept = (result.last, result.best)
                cells = [text for end in kept for text in (f"{end.step:,}", number(end.measures[result.key_measure]))]
            by_seed.append((str(each.seed), *cells))
        headings = ["Seed", "Last step", "key measure", "Best evaluation, step", "key measure"]
        blocks.append(table("Each seed by the key measure", headings, by_seed, style="numbers"))
    return blocks


def _published(run: Run, results: Sequence[Result]) -> list[Block]:
    """Return published figures beside the reader's own (medians over seeds), and what the recipe says."""
    blocks, yours, task = list[Block](), tables.ends_of(results), run.setting("task.name")
    if scores := tables.published_on_dev(task):
        rows = []
        for score in scores:
            cells = [f"{score.percent:.1f}"]
            for measures in yours.values():
                name = tables.named(score.measure, list(measures))
                cells.append(f"{tables.percent(task, measures[name].median):.1f}" if name else "")
            rows.append((score.model, score.measure, *cells, f"{score.table}, row {score.row}"))
        ends = {"last": "last step", "best": "best evaluation"}
        headings = ("Model", "Measure", "Published", *(f"Yours, {ends[end]}" for end in yours), "Source")
        caption = "Percent, on dev; tables of arXiv 1909.11942 v6, README of google-research/albert"
        blocks += [tables.comparability(run), table(caption, headings, rows, style="numbers")]
    if recipe := min(filter(None, (named_in(origin, "recipe") for origin in run.file.origins.values())), default=None):
        path = files("litebert") / "recipes" / "finetune" / f"{recipe}.toml"
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        said = [line.lstrip("# ") for line in lines if line.startswith("#")]
        blocks.append(details(f"What the recipe {recipe} says", commands(*said or ["It is not in this version."])))
    return blocks


# ---- answers: which labels are mistaken, how sure the model is, what is worst ---------------------------------------


def _confusion(single: Answers, labels: Sequence[str]) -> list[Block]:
    matrices, words = list[Block](), ["What the last step answers: a row for each label that was right."]
    for split, rows in single.items():
        if len({row.answer for row in rows}) == 1:
            words.append(f"On {split}, it answers '{rows[0].answer}' to every text.")
        counts = Counter((row.expected, row.answer) for row in rows)
        if len(labels) > MOST_LABELS:
            wrong = [(*pair, f"{count:,}") for pair, count in counts.most_common() if pair[0] != pair[1]]
            caption = f"{split}: the {len(wrong[:MOST_PAIRS])} commonest of {len(wrong):,} confusions"
            matrices.append(table(caption, ("Expected", "Answered", "Times"), wrong[:MOST_PAIRS]))
            continue
        cells = []
        for wanted in labels:
            total = sum(counts[wanted, found] for found in labels)
            shares = [(f"{counts[wanted, found]:,}", counts[wanted, found] / max(1, total)) for found in labels]
            cells.append((wanted, *shares, f"{counts[wanted, wanted] / total:.1%}" if total else "none"))
        headings = ("Expected", *(f"answered {label}" for label in labels), "Right")
        matrices.append(table(f"{split}, {len(rows):,} examples", headings, cells, style="shaded"))
    return [*words, *matrices] if matrices else []


def _calibration(answers: Answers) -> list[Block]:
    drawn, words = list[Figure](), list[Block]()
    for split, rows in answers.items():
        sure = [row.confidence for row in rows if row.confidence is not None]
        if len(sure) < len(rows):
            continue
        # The answer is the first of two columns, so a label of 0 means that it is right.
        wrong = np.array([int(not row.is_right) for row in rows])
        measured = calibration(wrong, np.array([(confidence, 0.0) for confidence in sure]))
        said = f"the last step is {np.mean(sure):.1%} sure on average and {1 - wrong.mean():.1%} right."
        words.append(f"On {split} it is {measured.error:.4f}: {said}")
        caption = "Bars below the line: more confident than right."
        drawn.append(reliability_figure(f"Reliability on {split}", caption, measured))
    what = (
        "Of the answers given with 80% confidence, 80% should be right. The expected calibration "
        "error is how far the two are apart on average: 0 is perfect."
    )
    return [what, *words, figures(drawn)] if drawn else []


def _worst(answers: Answers) -> list[Block]:
    def rank(row: AnswerRow) -> tuple[float, str]:
        """How wrong, times how confident (1 if unknown), the worst first."""
        return ((row.score or 0.0) - 1) * (1.0 if row.confidence is None else row.confidence), row.id

    blocks: list[Block] = ["What the last step gets wrong: what it was surest of, or farthest off, comes first."]
    for split, rows in answers.items():
        wrong = [row for row in rows if not row.is_right]
        if not wrong:
            blocks.append(f"{split}: nothing is wrong.")
            continue
        cells = []
        for row in sorted(wrong, key=rank)[:MOST_ERRORS]:
            sure = "not told" if row.confidence is None else f"{row.confidence:.1%}"
            said = [shortened(text or "", LONGEST_ANSWER) or "(none)" for text in (row.expected, row.answer)]
            cells.append((shortened(row.id, LONGEST_ID), sure, *said, shortened(row.text, LONGEST_TEXT)))
        caption = f"{split}: the worst {len(cells)} of {len(wrong):,} errors in {len(rows):,}"
        blocks.append(table(caption, ("Id", "Sure", "Expected", "Answered", "Text"), cells, style="texts"))
    return blocks if answers else []


def shortened(text: str, most: int) -> str:
    """Return a text on one line, without unprintable characters and cut if it is too long.

    >>> shortened("one\\n two\\x00 three", 9)
    'one two\\ufffd …'
    """
    line = "".join(letter if letter.isprintable() else "\ufffd" for letter in " ".join(text.split()))
    return line if len(line) <= most else f"{line[:most]}…"
