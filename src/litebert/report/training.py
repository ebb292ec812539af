"""The pages of trainings: a pretraining, and a fine-tuning with one seed or several.

Each says what was reached beside what no learning reaches; last step and best evaluation stand side by side.
"""

from __future__ import annotations

import math
import shlex
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import nsmallest
from importlib.resources import files as package_files

import numpy as np
from pydantic import BaseModel

from litebert.config import (
    HEADS,
    DataConfig,
    FinetuneConfig,
    PretrainConfig,
    TaskConfig,
    describe,
    flattened,
    kind_of_class,
)
from litebert.config.schema import StartConfig
from litebert.files import Json
from litebert.metrics import calibration
from litebert.report import comparison
from litebert.report.comparison import published_on_dev, reached_by, share, spreads, start_of
from litebert.report.figures import Figure, Rule, chart_of, rate_charts, reliability_figure
from litebert.report.page import Block, Page, Section, commands, details, figures, paragraph, table
from litebert.report.tables import number, written
from litebert.runs import Answered, Kind, Result, Run, finite, read_answers

MOST_NOTES = 50
MOST_MEASURES = 2  # drawn as long as no key measure is known
MOST_LABELS, MOST_PAIRS = 12, 20
"""Above so many labels a matrix is unreadable; so many of the commonest confusions are listed instead."""
MOST_ERRORS, LONGEST_ID, LONGEST_ANSWER, LONGEST_TEXT = 20, 40, 120, 280
BETWEEN = " ¦ "
"""Stands between the two texts of a pair in files of answers."""
Answers = Mapping[str, Sequence[Answered]]

# ---- what every run has ---------------------------------------------------------------------------------------------

_EXAMPLES: dict[Kind, BaseModel] = {
    "pretraining": PretrainConfig(data=DataConfig(corpus="")),
    # model_construct does not validate: the defaults have no data, which validation would refuse.
    "fine-tuning": FinetuneConfig.model_construct(task=TaskConfig(name=""), model=StartConfig(start="")),
}
"""A configuration of each kind, with only the required settings set."""


def _page_of_run(run: Run, facts: Mapping[str, str], sections: Sequence[Section], sources: str) -> Page:
    several = ", several seeds" if run.seeds else ""
    folder, status = run.folder.resolve(), f"Finished after {run.step:,} steps."
    if run.seeds:
        status = f"{len(reached_by(run))} of {len(run.seeds)} seeds are finished."
    elif not run.has_model:
        reached = f"step {run.step:,} of {run.setting('train.steps')}. There is no model yet."
        status = f"Not finished: {reached if run.step else 'no training step was logged yet.'}"
    return Page(
        f"{folder.parent.name}/{folder.name}" if folder.name.startswith("seed-") else folder.name,
        f"{run.kind.capitalize()} run{several}",
        (*sections, _settings(run), _surroundings(run), *([] if run.seeds else [_notes(run)])),
        sources,
        status,
        facts if run.seeds else {**facts, **_effort(run)},
    )


def _report_line(run: Run) -> str:
    return f"litebert report {shlex.quote(str(run.folder))}"


def _next_steps(run: Run, shell: Sequence[str], python: str) -> Section:
    """Return the lines that use the model of a run, or resume it, and write its page again; `python` is a call."""
    if not run.has_model:
        verb = "pretrain" if run.kind == "pretraining" else "finetune"
        words = f"Rerun the litebert {verb} command that began this run to resume it; then:"
        return Section("Resume", [words, commands(_report_line(run))])
    code = ["import litebert", f"model = litebert.load({str(run.folder / 'model')!r})", f"print(model.{python})"]
    blocks = ["In the shell:", commands(*shell), "In Python:", commands(*code)]
    return Section("Use the model", [*blocks, "This page again:", commands(_report_line(run))])


def _effort(run: Run) -> dict[str, str]:
    """Return what training took; unknown figures are empty."""
    from litebert.train.run import duration  # torch comes with it

    speeds = finite(run.training, "tokens_per_second")
    return {
        "Tokens seen": f"{run.tokens:,}" if run.tokens else "",
        "Time, evaluations not counted": duration(run.seconds) if run.seconds else "",
        "Median speed": f"{statistics.median(speeds):,.0f} tokens/s" if speeds else "",
        "Notes": f"{len(run.remarks):,}, listed below" if run.remarks else "",
    }


def _curves(drawn: Sequence[Figure], run: Run) -> Section:
    if not drawn:
        return Section("Curves", ["No step was logged yet."])
    lines = "the seeds" if run.seeds else "neighbouring log lines"
    words = f"Lines are means of {lines}; bands show their lowest and highest."
    words = f"{words} A log line is the mean of {run.settings.get('train.log_every')} training steps."
    return Section("Curves", [paragraph(words, style="quiet"), figures(drawn)])


def _settings(run: Run) -> Section:
    example = _EXAMPLES[run.kind]
    described = {setting.name: setting for setting in describe(type(example))}
    defaults = flattened(example) | {name: "required" for name, each in described.items() if each.default == "required"}
    settings = {**run.settings, "train.seed": _seeds(run)} if run.seeds else run.settings
    rows = []
    for name, value in settings.items():
        meaning = described[name].description if name in described else "not a setting of this version"
        origin = written(str(run.file.origins.get(name, "unknown")))
        rows.append((name, written(value), written(defaults.get(name, "unknown")), origin, meaning))
    headings = ("Setting", "Value", "Default", "Set by", "Meaning")
    differing = [row for row in rows if row[1] != row[2]]
    every = table("All settings of the run", headings, rows, style="names")
    first = table("Settings that differ from their defaults", headings, differing, style="names")
    return Section("Settings", [first, details(f"All {len(rows)} settings", every)])


def _seeds(run: Run) -> str:
    return ", ".join(str(each.seed) for each in run.seeds) or str(run.settings.get("train.seed", "unknown"))


def _surroundings(run: Run) -> Section:
    environment: dict[str, Json] = {"litebert": run.file.litebert, **run.file.environment}
    machine = [(name, "none" if value is None else written(value)) for name, value in environment.items()]
    data = [(n, f"{value:,}" if isinstance(value, int) else written(value)) for n, value in run.file.data.items()]
    tables = {"Environment": machine, "Data, hashes are blake2b": data}
    blocks = [table(caption, ("Name", "Value"), rows, style="names") for caption, rows in tables.items()]
    return Section("Environment and data", blocks)


def _notes(run: Run) -> Section:
    if not run.remarks:
        return Section("Notes", ["Nothing unusual was noted: no step was skipped."])
    shown, total = run.remarks[-MOST_NOTES:], len(run.remarks)
    caption = f"{total:,} notes" if len(shown) == total else f"The last {len(shown)} of {total:,} notes"
    return Section("Notes", [table(caption, ("Step", "What happened"), ((f"{n.step:,}", n.text) for n in shown))])


# ---- pretraining ----------------------------------------------------------------------------------------------------


def pretraining_page(run: Run) -> Page:
    setting, model = run.setting, shlex.quote(str(run.folder / "model"))
    network = f"{comparison.network_of(run)}, {setting('model.num_attention_heads')} heads"
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
    use = _next_steps(run, shell, 'fill("The cat sat on the [MASK].")')
    sections = (_held_out(run), _curves(_pretraining_charts(run), run), use)
    return _page_of_run(run, facts, sections, "the run's run.json, metrics.jsonl")


def loss(value: float) -> str:
    """Write a loss in nats."""
    return f"{value:.3f}" if math.isfinite(value) else "not finite"


def perplexity(value: float) -> str:
    return f"{math.exp(value):,.1f}" if value < 100 else "not finite"


def _held_out(run: Run) -> Section:
    title = "Held-out results"
    if not run.evaluations:
        return Section(title, ["Nothing was evaluated yet."])
    first, last, task = run.evaluations[0], run.evaluations[-1], comparison.sentence_task(run)
    words = " ".join(f"{found[0].upper()}{found[1:]}." for found in comparison.pretraining_findings(run))
    if first is last:
        return Section(title, [words, f"Evaluated once so far, at step {first.step:,}."])
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
        rule = Rule("chance" if is_number else "commonest token", level) if math.isfinite(level) else None
        title = each.title.replace("Sentence order", comparison.sentence_task(run))
        write = share if each.is_share else loss
        found += chart_of(run, each.name, title, each.caption, write, rule=rule, is_share=each.is_share)
    return [*found, *rate_charts(run)]


# ---- fine-tuning ----------------------------------------------------------------------------------------------------


def finetuning_page(run: Run) -> Page:
    """Return the page of a fine-tuning run, or of several seeds: their mean results and their spread."""
    parts, results = run.seeds or (run,), reached_by(run)
    answers, known = read_answers(run.folder), set(run.labels)  # of several seeds, their own pages have them
    # where each answer is one of several labels: not text, not a number, not a set of labels
    single = {
        split: rows
        for split, rows in answers.items()
        if len(known) > 1 and all({row.expected, row.answer} <= known for row in rows)
    }
    rules = {_accuracy_of(n, answers): Rule("commonest label", _commonest(rows)[1]) for n, rows in single.items()}
    drawn = chart_of(run, "loss", "Training loss", "Lower is better.", "{:.3g}".format)
    for name in _measures_drawn(next((each for each in parts if each.outcome), parts[0])):
        drawn += chart_of(run, name, f"Held-out {name}", "Higher is better.", number, rule=rules.get(name))
    words = "Confusion, calibration and the worst errors are on the page of each seed:"
    each_seed = Section("Each seed", [words, commands(*map(_report_line, (*run.seeds, run)))])
    sections = (
        Section("Result", _result_of_seeds(run, results) if run.seeds else _result(run, answers, single)),
        *_published(run, results),
        _curves(drawn if run.seeds else [*drawn, *rate_charts(run)], run),
        *_confusion(single, run.labels),
        *_calibration(single if run.labels else answers),  # no set of labels, no tags
        *_worst(answers),
        each_seed if run.seeds else _use(run, answers),
    )
    setting, shape = run.setting, [parts[0].config.get(name) for name in ("num_hidden_layers", "hidden_size")]
    sets = {n.removesuffix(" examples"): count for n, count in run.file.data.items() if n.endswith(" examples")}
    counts = {name: f"{count:,} examples" for name, count in sets.items()}
    fresh = {name.rpartition(".")[0] or name for result in results for name in result.fresh}
    facts = {
        "Task": setting("task.name"),
        "Started from": start_of(run),
        "Network": "" if None in shape else f"{shape[0]} layers of {shape[1]}",
        "New, not pretrained": ", ".join(sorted(fresh)),
        "Trained on": counts.pop("training", ""),
        "Evaluated on": "; ".join(f"{split}: {count}" for split, count in counts.items()),
        "Batch": f"{setting('train.batch_size')}, at most {setting('task.max_length')} pieces each",
        "Optimizer": f"{setting('optim.name')}, peak rate {setting('optim.learning_rate')}",
        "Seed": _seeds(run),
    }
    files = "its seed folders" if run.seeds else "the run's run.json, metrics.jsonl, result.json and answers"
    return _page_of_run(run, facts, sections, files)


def _measures_drawn(run: Run) -> list[str]:
    """Name the key measure on each held-out set, or the first measures of an unfinished run."""
    if run.outcome is None:
        return [*run.evaluations[-1].values][:MOST_MEASURES] if run.evaluations else []
    key, names = run.outcome.key_measure, (name.removesuffix(" examples") for name in run.file.data)
    splits = [name for name in names if key.startswith(f"{name}_")]  # the set that decides, where there are several
    base = key.removeprefix(f"{splits[0]}_") if splits else key
    return [name for name in run.outcome.last.measures if name == key or (splits and name.endswith(f"_{base}"))]


def _commonest(rows: Sequence[Answered]) -> tuple[str, float]:
    """Return the label that most examples have, and their share."""
    label, count = Counter(row.expected for row in rows).most_common(1)[0]
    return label, count / len(rows)


def _accuracy_of(split: str, answers: Answers) -> str:
    """Name the accuracy of a held-out set: where there are several, it begins with the set's."""
    return f"{split}_accuracy" if len(answers) > 1 else "accuracy"


def _result(run: Run, answers: Answers, single: Answers) -> list[Block]:
    if (result := run.outcome) is None:
        if not run.evaluations:
            return ["Nothing was evaluated yet."]
        row = run.evaluations[-1]
        cells = [(name, number(value)) for name, value in row.values.items() if name != "step"]
        so_far = table("The last evaluation so far", ("Measure", f"At step {row.step:,}"), cells, style="numbers")
        return ["The run is not finished; its best evaluation is chosen when it is.", so_far]
    last, best = result.last, result.best
    blocks: list[Block] = [
        "The last step is what training ended with (model/). The best evaluation is that with "
        f"the highest {result.key_measure} of {result.num_evaluations:,} (best/): it was chosen on the examples "
        "that it is measured on, which flatters it. Compare each with figures chosen likewise."
    ]
    for split, rows in answers.items():  # what an accuracy is worth, compared with no learning and with chance
        accuracy = last.measures.get(_accuracy_of(split, answers))
        if accuracy is None:
            continue
        error, unlearnt = 2 * math.sqrt(accuracy * (1 - accuracy) / len(rows)), ""  # two standard errors
        if split in single:
            label, most = _commonest(rows)
            gain = "" if accuracy > most else ": no gain over that"
            unlearnt = f"; always answering '{label}', its commonest label, gets {most:.1%}{gain}"
        blocks.append(
            f"At the last step {accuracy:.1%} of {split} are right{unlearnt}. With {len(rows):,} "
            f"examples, differences below {100 * error:.1f} points may be chance (two standard errors)."
        )
    shown = []
    for name, value in last.measures.items():
        label = f"{name}, key measure" if name == result.key_measure else name
        shown.append((label, number(value), number(best.measures.get(name, math.nan))))
    headings = ("Measure", f"Last step, {last.step:,}", f"Best evaluation, step {best.step:,}")
    return [*blocks, table("Measured on held-out examples, without dropout", headings, shown, style="numbers")]


def _result_of_seeds(run: Run, results: Sequence[Result]) -> list[Block]:
    blocks: list[Block] = ["No seed is finished yet."]
    if results:
        ends, rows = [spreads([each.last for each in results]), spreads([each.best for each in results])], []
        for name in ends[0]:
            found = (end[name] for end in ends)
            pairs = ((number(each.median), f"{number(each.mean)} ± {number(each.spread)}") for each in found)
            rows.append((name, *(text for pair in pairs for text in pair)))
        words = (
            "Last steps are what training ended with. Best evaluations are each seed's highest "
            f"{results[0].key_measure}: chosen on the examples that they are measured on, which "
            "flatters them. The two are never mixed; ± is the standard deviation over seeds."
        )
        measures = (f"{what}: {how}" for what in ("Last steps", "Best evaluations") for how in ("median", "mean"))
        caption = f"Over {len(results)} {'seeds' if len(results) > 1 else 'seed'}"
        blocks = [words, table(caption, ("Measure", *measures), rows, style="numbers")]
    by_seed = []
    for each in run.seeds:
        cells = [f"not finished, step {each.step:,}", "", "", ""]
        if result := each.outcome:
            kept = (result.last, result.best)
            cells = [text for end in kept for text in (f"{end.step:,}", number(end.measures[result.key_measure]))]
        by_seed.append((str(each.seed), *cells))
    headings = ("Seed", "Last step", "key measure", "Best evaluation, step", "key measure")
    return [*blocks, table("Each seed by the key measure", headings, by_seed, style="numbers")]


def _published(run: Run, results: Sequence[Result]) -> list[Section]:
    """Return published figures beside the reader's own (medians over seeds), and what the recipe says."""
    blocks, yours = list[Block](), dict[str, dict[str, float]]()
    for name, steps in (("last step", [r.last for r in results]), ("best", [r.best for r in results])):
        if steps:
            column = f"median of {name}{'s' * (name == 'last step')}" if run.seeds else name
            yours[column] = {measure: spread.median for measure, spread in spreads(steps).items()}
    if scores := published_on_dev(run.setting("task.name")):
        rows = []
        for score in scores:
            names = [(measures, comparison.named(score.measure, list(measures))) for measures in yours.values()]
            cells = [f"{comparison.percent(score.task, measures[n]):.1f}" if n else "" for measures, n in names]
            source = f"{score.table}, row {score.row}"
            rows.append((score.model, score.measure, f"{score.percent:.1f}", *cells, source))
        headings = ("Model", "Measure", "Published", *(f"Yours, {name}" for name in yours), "Source")
        caption = "Percent, on dev; tables of arXiv 1909.11942 v6, README of google-research/albert"
        blocks += [comparison.comparability(run), table(caption, headings, rows, style="numbers")]
    origins = run.file.origins.values()
    if recipe := min((origin.detail for origin in origins if origin.kind == "recipe"), default=None):
        path = package_files("litebert") / "recipes" / "finetune" / f"{recipe}.toml"
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        said = [line.lstrip("# ") for line in lines if line.startswith("#")]
        blocks.append(details(f"What the recipe {recipe} says", commands(*said or ["It is not in this version."])))
    return [Section("Paper, recipe, yours", blocks)] if blocks else []


# ---- answers: which labels are mistaken, how sure the model is, what is worst ---------------------------------------


def _confusion(single: Answers, labels: Sequence[str]) -> list[Section]:
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
        cells = []
        for wanted in labels:
            total = sum(counts[wanted, found] for found in labels)
            shares = [(f"{counts[wanted, found]:,}", counts[wanted, found] / max(1, total)) for found in labels]
            cells.append((wanted, *shares, f"{counts[wanted, wanted] / total:.1%}" if total else "none"))
        headings = ("Expected", *(f"answered {label}" for label in labels), "Right")
        tables.append(table(f"{split}, {len(rows):,} examples", headings, cells, style="shaded"))
    return [Section("Confusion", [*words, *tables])] if tables else []


def _calibration(answers: Answers) -> list[Section]:
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
    return [Section("Calibration", [what, *words, figures(drawn)])] if drawn else []


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
    if not answers:
        return []

    def rank(row: Answered) -> tuple[float, str]:
        """How wrong, times how confident (1 if unknown), the worst first."""
        return (row.score - 1) * (1.0 if row.confidence is None else row.confidence), row.id

    blocks: list[Block] = ["What the last step gets wrong: what it was surest of, or farthest off, comes first."]
    for split, rows in answers.items():
        wrong = [row for row in rows if not row.is_right]
        if not wrong:
            blocks.append(f"{split}: nothing is wrong.")
            continue
        cells = []
        for row in nsmallest(MOST_ERRORS, wrong, key=rank):
            sure = "not told" if row.confidence is None else f"{row.confidence:.1%}"
            said = [shortened(text, LONGEST_ANSWER) or "(none)" for text in (row.expected, row.answer)]
            cells.append((shortened(row.id, LONGEST_ID), sure, *said, shortened(row.text, LONGEST_TEXT)))
        caption = f"{split}: the worst {len(cells)} of {len(wrong):,} errors in {len(rows):,}"
        blocks.append(table(caption, ("Id", "Sure", "Expected", "Answered", "Text"), cells, style="texts"))
    return [Section("Worst errors", blocks)]


def _use(run: Run, answers: Answers) -> Section:
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
    return _next_steps(run, shell, python)
