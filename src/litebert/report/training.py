"""The report of a training run: pretraining, or fine-tuning with one or several seeds.

It compares results with the baseline of no learning, and shows last step and best
evaluation side by side.
"""

import math
import shlex
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
from pydantic_core import to_jsonable_python

from litebert.config import HEADS, FinetuneConfig, PretrainConfig, kind_of_class
from litebert.errors import format_duration
from litebert.files import Json, write_text
from litebert.report import tables
from litebert.report.page import (
    Figure,
    Page,
    Section,
    chart_of,
    rate_charts,
    reliability_figure,
)
from litebert.report.tables import Cell, Table, format_cell, format_share, format_value
from litebert.runs import AnswerRow, Result, Run, read_answers
from litebert.settings import fields_of

REPORT_FILE = "report.html"
MOST_NOTES = 50
MOST_MEASURES = 2  # to draw while the key measure is not known yet
# with more labels than this, the commonest confusions replace the matrix
MOST_LABELS = 12
MOST_PAIRS = 20
MOST_ERRORS = 20
LONGEST_ID = 40
LONGEST_ANSWER = 120
LONGEST_TEXT = 280
NUM_BINS = 15  # Guo et al. 2017, "On Calibration of Modern Neural Networks", section 5
BETWEEN = " ¦ "  # separates the two texts of a pair in files of answers
Answers: TypeAlias = Mapping[str, Sequence[AnswerRow]]
Told: TypeAlias = tuple[dict[str, str], list[Section], list[str], str]
"""The parts of a page for one kind of run: facts, sections, and how to use its model in
the shell and in Python.
"""


def write_report(folder: Path) -> Path:
    """Write `report.html` into the folder of a run, finished or not, or of several
    seeds, and return its path.

    The page depends only on the files of the run: the same run gives the same bytes. It
    loads nothing else.
    """
    run = Run.open(folder)
    facts, sections, shell, python = (
        _pretraining(run) if run.kind == "pretraining" else _finetuning(run)
    )
    seeds = [each.seed for each in run.seeds]
    report = f"litebert report {shlex.quote(str(run.folder))}"

    # progress, and what to do next
    if seeds:
        status = f"{len(tables.results_of(run))} of {len(seeds)} seeds are finished."
        pages = [
            f"litebert report {shlex.quote(str(each.folder))}" for each in run.seeds
        ]
        words = (
            "Confusion, calibration and the worst errors are on the page of each seed:"
        )
        sections.append(Section("Each seed", commands={words: [*pages, report]}))
    elif run.has_model:
        status = f"Finished after {run.step:,} steps."
        code = [
            "import litebert",
            f"model = litebert.load({str(run.folder / 'model')!r})",
            f"print(model.{python})",
        ]
        use = {"In the shell:": shell, "In Python:": code, "This page again:": [report]}
        sections.append(Section("Use the model", commands=use))
    else:
        reached = (
            f"step {run.step:,} of {run.setting('train.steps')}. There is no model yet."
        )
        status = (
            "Not finished:"
            f" {reached if run.step else 'no training step was logged yet.'}"
        )
        verb = "pretrain" if run.kind == "pretraining" else "finetune"
        words = (
            f"Rerun the litebert {verb} command that began this run to resume it; then:"
        )
        sections.append(Section("Resume", commands={words: [report]}))

    # the settings that differ from their defaults, and all of them
    fields = fields_of(PretrainConfig if run.kind == "pretraining" else FinetuneConfig)
    settings = list[tuple[str, ...]]()
    for name, value in (
        run.settings | ({"train.seed": ", ".join(map(str, seeds))} if seeds else {})
    ).items():
        default = "unknown"
        meaning = "not a setting of this version"
        if field := fields.get(name):
            default = (
                "required"
                if field.is_required()
                else format_value(to_jsonable_python(field.default))
            )
            meaning = field.description or ""
        settings.append(
            (
                name,
                format_value(value),
                default,
                run.file.origins.get(name, "unknown"),
                meaning,
            )
        )
    headings = ("Setting", "Value", "Default", "Set by", "Meaning")
    differing = [row for row in settings if row[1] != row[2]]
    first = Table(
        headings, differing, "Settings that differ from their defaults", "names"
    )
    every = Table(headings, settings, f"All {len(settings)} settings", "names")
    sections.append(Section("Settings", tables=[first], folded=[every]))

    told: dict[str, Json] = {
        "litebert": run.file.litebert,
        **run.file.environment,
        **run.file.data,
    }
    cells = [
        (name, value if isinstance(value, int | None) else format_value(value))
        for name, value in told.items()
    ]
    both = Table(
        ("Name", "Value"),
        cells,
        "Versions, machine and data; hashes are blake2b",
        "names",
    )
    sections.append(Section("Environment and data", tables=[both]))

    if not seeds:  # events, and resources used; an unknown figure is empty
        speeds = [
            row.values["tokens_per_second"]
            for row in run.training
            if "tokens_per_second" in row.values
        ]
        timed = [
            row.values
            for row in run.training
            if row.values.get("tokens_per_second", 0) > 0
        ]
        seconds = sum(row.get("tokens", 0) / row["tokens_per_second"] for row in timed)
        notes = [(row.step, row.text) for row in run.rows if row.kind == "note"]
        facts |= {
            "Tokens seen": f"{run.tokens:,}" if run.tokens else "",
            "Time, without evaluations": format_duration(seconds) if seconds else "",
            "Median speed": (
                f"{statistics.median(speeds):,.0f} tokens/s" if speeds else ""
            ),
            "Notes": f"{len(notes):,}, listed below" if notes else "",
        }
        kept = notes[-MOST_NOTES:]
        happened = Table(
            ("Step", "What happened"),
            kept,
            f"The last {len(kept)} of {len(notes):,} notes",
        )
        nothing = "Nothing unusual was noted: no step was skipped."
        sections.append(
            Section("Notes", tables=[happened])
            if notes
            else Section("Notes", [nothing])
        )

    place = run.folder.resolve()
    name = (
        f"{place.parent.name}/{place.name}"
        if place.name.startswith("seed-")
        else place.name
    )
    kind = f"{run.kind.capitalize()} run{', several seeds' if seeds else ''}"
    write_text(
        folder / REPORT_FILE,
        Page(name, kind, sections, "the files of the run", status, facts).html(),
    )
    return folder / REPORT_FILE


def _curves(drawn: Sequence[Figure], run: Run) -> Section:
    lines = "the seeds" if run.seeds else "neighbouring log lines"
    words = f"Lines are means of {lines}; bands show their lowest and highest."
    words = (
        f"{words} A log line is the mean of {run.settings.get('train.log_every')}"
        " training steps."
    )
    return Section("Curves", [words if drawn else "No step was logged yet."], drawn)


def _sentences(clauses: Sequence[str]) -> list[str]:
    return [f"{each[0].upper()}{each[1:]}." for each in clauses]


def _pretraining(run: Run) -> Told:
    # imports torch, which only a page needs
    from litebert.tasks.pretraining import pretraining_measures

    # each measure as a curve, and in a table of the first and the last evaluation
    ends = {
        row.step: row.values for row in (*run.evaluations[:1], *run.evaluations[-1:])
    }
    last = run.evaluations[-1].values if run.evaluations else {}
    vocabulary = run.settings.get("model.vocab_size")
    drawn = list[Figure]()
    rows = list[tuple[str, ...]]()
    for each in pretraining_measures():
        if not each.title:
            continue
        # The level without any learning: a number, or the name of another measure.
        is_number = isinstance(each.chance, float)
        level = (
            each.chance
            if isinstance(each.chance, float)
            else last.get(each.chance or "", math.nan)
        )
        rule = (
            ("chance" if is_number else "commonest token", level)
            if math.isfinite(level)
            else None
        )
        title = each.title.replace("Sentence order", tables.sentence_task(run))
        write = format_share if each.is_share else format_cell
        drawn += chart_of(run, each.name, title, each.caption, write, rule=rule)
        unlearnt = f"{write(level)}, {rule[0]}" if rule else "-"
        if each.name == "masked_lm_loss" and isinstance(vocabulary, int):
            unlearnt = f"{write(math.log(vocabulary))}, uniform guess"
        if any(each.name in values for values in ends.values()):
            reached = (
                write(values.get(each.name, math.nan)) for values in ends.values()
            )
            rows.append((title, *reached, unlearnt))
    headings = ("Measure", *(f"At step {step:,}" for step in ends), "Without learning")
    measured = Table(
        headings,
        rows,
        "Losses in nats; measured on held-out documents, without dropout",
        "results",
    )
    results = Section(
        "Held-out results", _sentences(tables.doubts_of(run)), tables=[measured]
    )
    sections = [
        results if rows else Section("Held-out results", ["Nothing was evaluated yet."])
    ]
    sections.append(_curves([*drawn, *rate_charts(run)], run))

    setting = run.setting
    model = shlex.quote(str(run.folder / "model"))
    network = f"{tables.network_of(run)}, {setting('model.num_attention_heads')} heads"
    length = setting("objective.max_seq_length")
    facts = {
        "Network": f"{network}, sharing {setting('model.sharing')}",
        "Embedding": (
            f"{setting('model.vocab_size')} tokens x {setting('model.embedding_size')}"
        ),
        "Batch": f"{setting('train.batch_size')} sequences of at most {length} tokens",
        "Optimizer": (
            f"{setting('optim.name')}, peak rate {setting('optim.learning_rate')}"
        ),
    }
    shell = [f'litebert fill "The cat sat on the [MASK]." --model {model}']
    if (
        "sentence_order_accuracy" in last
        and run.settings.get("objective.sentence") != "next"
    ):
        shell.append(
            f'litebert order "He opened the door." "Nobody was there." --model {model}'
        )
    shell.append(f'litebert embed "A sentence." --model {model}')
    return facts, sections, shell, 'fill("The cat sat on the [MASK].")'


# ---- fine-tuning ---------------------------------------------------------------------


def _finetuning(run: Run) -> Told:
    """Return the parts of the page for one run, or for several seeds: medians and
    spread.
    """
    parts = run.seeds or (run,)
    results = tables.results_of(run)
    setting = run.setting
    # for several seeds, these are on the page of each
    answers = read_answers(run.folder)
    sets = [
        name.removesuffix(" examples")
        for name in run.file.data
        if name.endswith(" examples")
    ]

    # the loss, and the key measure on each held-out set, or the first measures of an
    # unfinished run
    measured = (
        [*parts[0].evaluations[-1].values][:MOST_MEASURES]
        if parts[0].evaluations
        else []
    )
    if results:
        key = results[0].key_measure
        base = next(
            (
                key.removeprefix(f"{each}_")
                for each in sets
                if key.startswith(f"{each}_")
            ),
            None,
        )
        measured = [
            name
            for name in results[0].last.values
            if name == key or (base and name.endswith(f"_{base}"))
        ]
    unlearnt = results[0].baseline if results else {}
    drawn = chart_of(run, "loss", "Training loss", "Lower is better.", "{:.3g}".format)
    for name in measured:
        rule = ("without learning", unlearnt[name]) if name in unlearnt else None
        drawn += chart_of(
            run, name, f"Held-out {name}", "Higher is better.", format_cell, rule=rule
        )
    drawn += [] if run.seeds else rate_charts(run)
    sections = [
        _result(run, results),
        _published(run, results),
        _curves(drawn, run),
        *_answer_sections(run, answers),
    ]

    shape = [parts[0].config.get(name) for name in ("num_hidden_layers", "hidden_size")]
    counts = {name: f"{run.file.data[f'{name} examples']:,} examples" for name in sets}
    fresh = {
        name.rpartition(".")[0] or name for result in results for name in result.fresh
    }
    facts = {
        "Task": setting("task.name"),
        "Started from": tables.start_of(run),
        "Network": "" if None in shape else f"{shape[0]} layers of {shape[1]}",
        "New, not pretrained": ", ".join(sorted(fresh)),
        "Trained on": counts.pop("training", ""),
        "Evaluated on": "; ".join(
            f"{split}: {count}" for split, count in counts.items()
        ),
        "Batch": (
            f"{setting('train.batch_size')}, at most {setting('task.max_length')}"
            " pieces each"
        ),
        "Optimizer": (
            f"{setting('optim.name')}, peak rate {setting('optim.learning_rate')}"
        ),
        "Seed": (
            ", ".join(str(each.seed) for each in run.seeds)
            or str(run.settings.get("train.seed", "unknown"))
        ),
    }

    # how to use the model: the example of its head
    classes = run.config.get("architectures")
    kind = (
        kind_of_class(str(classes[0]))
        if isinstance(classes, list) and classes
        else None
    )
    place = shlex.quote(str(run.folder))
    python = "verbs"
    shell = [
        f"litebert evaluate {place}",
        f"litebert evaluate {shlex.quote(str(run.folder / 'best'))}",
    ]
    if kind:
        words, python = HEADS[kind].examples
        texts = [row.text for some in answers.values() for row in some]
        if (
            HEADS[kind].verb == "classify"
            and texts
            and all(BETWEEN in text for text in texts)
        ):
            words = 'classify "A text." --pair "Its pair."'
            python = 'classify(["A text."], ["Its pair."])'
        shell += (
            [f"litebert {words} --model {shlex.quote(str(run.folder / 'model'))}"]
            if words
            else []
        )
    return facts, sections, shell, python


def _result(run: Run, results: Sequence[Result]) -> Section:
    words = ["No seed is finished yet." if run.seeds else "Nothing was evaluated yet."]
    shown = list[Table]()
    if results:
        ends = tables.ends_of(results)
        key = results[0].key_measure
        rows = list[list[Cell]]()
        for name, last in ends["last"].items():
            cells: list[Cell] = [f"{name}, key measure" if name == key else name]
            for found in (last, ends["best"].get(name)):
                several = (
                    f"; {format_cell(found.mean)} ± {format_cell(found.spread)}"
                    if found and run.seeds
                    else ""
                )
                cells.append(f"{format_cell(found.median)}{several}" if found else None)
            rows.append([*cells, results[0].baseline.get(name)])
        words = [
            (
                "The last step is where training ended (model/). The best evaluation"
                f" is the one with the highest {key} of {results[0].num_evaluations:,}"
                " (best/): it was chosen on the same examples that it is measured on,"
                " which flatters it. Compare each with figures chosen the same way."
            ),
            *_sentences(tables.doubts_of(run)),
        ]
        caption = "Measured on held-out examples, without dropout"
        headings = [
            f"Last step, {results[0].last.step:,}",
            f"Best evaluation, step {results[0].best.step:,}",
        ]
        if run.seeds:
            caption += (
                f", over {len(results)} {'seeds' if len(results) > 1 else 'seed'}:"
                " median; mean ± deviation"
            )
            headings = ["Last steps", "Best evaluations"]
        shown.append(Table(("Measure", *headings, "Without learning"), rows, caption))
    elif run.evaluations:
        row = run.evaluations[-1]
        words = ["The run is not finished; its best evaluation is chosen at the end."]
        shown.append(
            Table(
                ("Measure", f"At step {row.step:,}"),
                [*row.values.items()],
                "The last evaluation so far",
            )
        )
    if run.seeds:
        by_seed = list[list[Cell]]()
        for each in run.seeds:
            reached: list[Cell] = [
                f"not finished, step {each.step:,}",
                None,
                None,
                None,
            ]
            if result := each.outcome:
                reached = [
                    x
                    for end in (result.last, result.best)
                    for x in (end.step, end.values[result.key_measure])
                ]
            by_seed.append([str(each.seed), *reached])
        seed_headings = (
            "Seed",
            "Last step",
            "key measure",
            "Best evaluation, step",
            "key measure",
        )
        shown.append(Table(seed_headings, by_seed, "Each seed by the key measure"))
    return Section("Result", words, tables=shown)


def _published(run: Run, results: Sequence[Result]) -> Section:
    """Return published figures next to those of the run, which are medians over
    seeds.
    """
    yours = tables.ends_of(results)
    task = run.setting("task.name")
    rows = list[list[Cell]]()
    for score in tables.published_on_dev(task):
        cells: list[Cell] = [score.model, score.measure, f"{score.percent:.1f}"]
        for measures in yours.values():
            name = tables.find_measure(score.measure, list(measures))
            cells.append(
                f"{tables.percent(task, measures[name].median):.1f}" if name else None
            )
        rows.append([*cells, f"{score.table}, row {score.row}"])
    ends = {"last": "last step", "best": "best evaluation"}
    headings = (
        "Model",
        "Measure",
        "Published",
        *(f"Yours, {ends[end]}" for end in yours),
        "Source",
    )
    caption = (
        "Percent, on dev; tables of arXiv 1909.11942 v6, README of"
        " google-research/albert"
    )
    words, shown = (
        ([tables.comparability(run)], [Table(headings, rows, caption)])
        if rows
        else ([], [])
    )
    return Section("Published figures, and yours", words, tables=shown)


# ---- answers: which labels are confused, how confident the model is, the worst errors


def _answer_sections(run: Run, answers: Answers) -> list[Section]:
    names = run.config.get("id2label")
    labels = [str(name) for name in names.values()] if isinstance(names, dict) else []
    # splits in which each answer is one of several labels: not text, not a number, not
    # a set of labels
    known = set(labels if len(labels) > 1 else ())
    answered: Answers = {
        split: [row for row in rows if not row.is_blank]
        for split, rows in answers.items()
    }
    single = {
        split: rows
        for split, rows in answered.items()
        if all({each.expected, each.answer} <= known for each in rows)
    }

    matrices = list[Table]()
    for split, rows in single.items():
        counts = Counter((row.expected, row.answer) for row in rows)
        matrix = list[list[Cell]]()
        for wanted in labels:
            of_label = [counts[wanted, found] for found in labels]
            hits = (
                f"{counts[wanted, wanted] / sum(of_label):.1%}"
                if any(of_label)
                else "none"
            )
            matrix.append([wanted, *of_label, hits])
        headings = ("Expected", *(f"answered {label}" for label in labels), "Right")
        confusion = Table(
            headings, matrix, f"{split}, {len(rows):,} examples", "shaded"
        )
        if len(labels) > MOST_LABELS:
            wrong = [
                (*pair, count)
                for pair, count in counts.most_common()
                if pair[0] != pair[1]
            ]
            caption = (
                f"{split}: the {len(wrong[:MOST_PAIRS])} commonest of {len(wrong):,}"
                " confusions"
            )
            confusion = Table(
                ("Expected", "Answered", "Times"), wrong[:MOST_PAIRS], caption
            )
        matrices.append(confusion)
    words = (
        ["The answers of the last step, with a row for each correct label."]
        if single
        else []
    )
    confused = Section("Confusion", words, tables=matrices)

    said = list[str]()
    drawn = list[Figure]()
    # not sets of labels, not tags
    for split, rows in (single if labels else answered).items():
        confidences = [row.confidence for row in rows if row.confidence is not None]
        if not rows or len(confidences) < len(rows):
            continue
        sure = np.array(confidences)
        right = np.array([row.is_right for row in rows])
        # a bin includes its upper edge, not its lower one
        places = np.ceil(sure * NUM_BINS)
        in_bins = [places == place for place in np.unique(places)]
        bins = [
            (float(sure[each].mean()), float(right[each].mean()), int(each.sum()))
            for each in in_bins
        ]
        error = sum(
            count * abs(confidence - accuracy) for confidence, accuracy, count in bins
        ) / len(rows)
        of_all = (
            f"the last step is {sure.mean():.1%} sure on average and {right.mean():.1%}"
            " right."
        )
        said.append(f"On {split} it is {error:.4f}: {of_all}")
        drawn.append(reliability_figure(f"Reliability on {split}", bins))
    what = (
        "Of the answers given with 80% confidence, 80% should be right. The expected"
        " calibration error is how far the two are apart on average: 0 is perfect."
    )
    calibration = Section("Calibration", [what, *said] if said else [], drawn)

    def rank(row: AnswerRow) -> tuple[float, str]:
        """Return how wrong, times how confident (1 if unknown): sorts the worst
        first.
        """
        return ((row.score or 0.0) - 1) * (
            1.0 if row.confidence is None else row.confidence
        ), row.id

    worst = list[Table]()
    for split, rows in answers.items():
        wrong_rows = sorted((row for row in rows if not row.is_right), key=rank)
        cells = list[tuple[str, ...]]()
        for row in wrong_rows[:MOST_ERRORS]:
            confident = "unknown" if row.confidence is None else f"{row.confidence:.1%}"
            told = [
                shorten(text or "", LONGEST_ANSWER) or "(none)"
                for text in (row.expected, row.answer)
            ]
            cells.append(
                (
                    shorten(row.id, LONGEST_ID),
                    confident,
                    *told,
                    shorten(row.text, LONGEST_TEXT),
                )
            )
        caption = (
            f"{split}: the worst {len(cells)} of {len(wrong_rows):,} errors in"
            f" {len(rows):,}"
        )
        worst.append(
            Table(
                ("Id", "Sure", "Expected", "Answered", "Text"), cells, caption, "texts"
            )
        )
    words = [
        "The errors of the last step: the most confident, or the farthest off, come"
        " first."
    ]
    return [
        confused,
        calibration,
        Section("Worst errors", words if answers else [], tables=worst),
    ]


def shorten(text: str, most: int) -> str:
    """Return a text on one line, with unprintable characters replaced, and cut if it is
    too long.

    >>> shorten("one\\n two\\x00 three", 9)
    'one two\\ufffd …'
    """
    line = "".join(
        letter if letter.isprintable() else "\ufffd"
        for letter in " ".join(text.split())
    )
    return line if len(line) <= most else f"{line[:most]}…"
