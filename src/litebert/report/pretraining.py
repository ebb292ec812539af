"""The page of a pretraining run: what training achieved on held-out text, before, now, and without any training."""

from __future__ import annotations

import math
import shlex

from litebert.report.figures import Chart, Rule, chart_of, rate_charts
from litebert.report.page import NEIGHBOURS, Page, Section, curves, effort, next_steps, page_of_run, paragraph, table
from litebert.runs import LogRow, Run

CHANCE = 0.5
"""Share of sentence pairs that guessing gets right; its loss is ln 2."""
WORSE = 0.01
"""How much a held-out loss may lie above the lowest one before that is worth a word, in nats."""


def loss(value: float) -> str:
    """Write a loss in nats."""
    return f"{value:.3f}" if math.isfinite(value) else "not finite"


def share(value: float) -> str:
    """Write an accuracy.

    >>> share(0.4123)
    '41.2%'
    """
    return f"{value:.1%}" if math.isfinite(value) else "not finite"


def perplexity(value: float) -> str:
    """Write the exponential of a loss.

    >>> perplexity(3.0), perplexity(10.0), perplexity(1e9)
    ('20.1', '22,026', 'not finite')
    """
    if not value < 100:
        return "not finite"
    return f"{math.exp(value):,.{0 if value > math.log(1_000) else 1}f}"


def page(run: Run) -> Page:
    """Return the page of a pretraining run."""
    setting, model = run.setting, shlex.quote(str(run.folder / "model"))
    embedding, length = setting("model.embedding_size"), setting("objective.max_seq_length")
    facts = {
        "Network": f"{network_of(run)}, {setting('model.num_attention_heads')} heads, "
        f"sharing {setting('model.sharing')}",
        "Embedding": f"{setting('model.vocab_size')} tokens x {embedding}",
        "Batch": f"{setting('train.batch_size')} sequences of at most {length} tokens",
        "Optimizer": f"{setting('optim.name')}, peak rate {setting('optim.learning_rate')}",
        **effort(run),
    }
    shell = [f'litebert fill "The cat sat on the [MASK]." --model {model}']
    if run.trains_sentences and run.settings.get("objective.sentence") != "next":
        shell.append(f'litebert order "He opened the door." "Nobody was there." --model {model}')
    shell.append(f'litebert embed "A sentence." --model {model}')
    use = next_steps(run, shell, 'fill("The cat sat on the [MASK].")', said="In the shell:")
    sections = (_results(run), curves(charts(run), run, bands=NEIGHBOURS), use)
    return page_of_run(run, facts, sections, name=run.name, sources="run.json and metrics.jsonl")


def network_of(run: Run) -> str:
    """Return the preset and the shape of a network in a few words."""
    origin = run.file.origins.get("model.hidden_size")
    preset = f"{origin.detail}: " if origin and origin.kind == "preset" else ""
    return f"{preset}{run.setting('model.num_hidden_layers')} layers of {run.setting('model.hidden_size')}"


def _results(run: Run) -> Section:
    title = "Held-out results"
    if not run.evaluations:
        return Section(title, [paragraph("Nothing was evaluated yet.")])
    first, last = run.evaluations[0], run.evaluations[-1]
    words = paragraph(" ".join(verdict(run, last)))
    if first is last:
        return Section(title, [words, paragraph(f"Evaluated once so far, at step {first.step:,}.")])
    size = run.settings.get("model.vocab_size")
    vocabulary = size if isinstance(size, int) and size > 0 else math.nan
    baseline = share(last.values.get("masked_lm_baseline", math.nan))
    task = _sentence_task(run)
    # label, name, format, and its value without any learning
    measures = (
        ("Masked-LM loss", "masked_lm_loss", loss, f"{loss(math.log(vocabulary))}, all tokens alike"),
        ("Masked-LM perplexity", "masked_lm_loss", perplexity, f"{vocabulary:,}, all tokens alike"),
        ("Masked-LM accuracy", "masked_lm_accuracy", share, f"{baseline}, always the commonest token"),
        (f"{task} loss", "sentence_order_loss", loss, f"{loss(-math.log(CHANCE))}, chance"),
        (f"{task} accuracy", "sentence_order_accuracy", share, f"{share(CHANCE)}, chance"),
    )
    rows = [
        (label, write(first.values.get(name, math.nan)), write(last.values[name]), untrained)
        for label, name, write, untrained in measures
        if name in last.values
    ]
    headings = ("Measure", f"At step {first.step:,}", f"At step {last.step:,}", "Without learning")
    caption = "Loss in nats; measured on held-out documents, without dropout"
    return Section(title, [words, table(caption, headings, rows, style="results")])


def verdict(run: Run, last: LogRow) -> list[str]:
    """Say in plain words what the last evaluation means, and which gains are none."""
    sentences = []
    if (accuracy := last.values.get("masked_lm_accuracy")) is not None:
        sentence = f"At step {last.step:,} the model names {share(accuracy)} of the masked tokens"
        if (baseline := last.values.get("masked_lm_baseline")) is not None:
            gain = "" if round(accuracy, 3) > round(baseline, 3) else ": no gain over that"
            sentence += f"; always answering the commonest token gets {share(baseline)}{gain}"
        sentences.append(f"{sentence}.")
    if (accuracy := last.values.get("sentence_order_accuracy")) is not None:
        sentence = f"{_sentence_task(run)}: {share(accuracy)} right, where chance gets {share(CHANCE)}"
        if _is_chance(run, accuracy):
            sentence += f": no better than chance on {run.settings['train.eval_sequences']:,} sequences"
        sentences.append(f"{sentence}.")
    elif not run.trains_sentences:
        setting = run.setting("objective.sentence")
        sentences.append(f"No sentence objective was trained (objective.sentence = {setting}).")
    lowest, step = _lowest_loss(run)
    if step is not None and step != last.step:
        sentences.append(f"The held-out masked-LM loss was lowest, {loss(lowest)}, at step {step:,}.")
    return sentences


def doubts(run: Run) -> tuple[str, ...]:
    """Return reasons not to trust what a pretraining has reached, in a few words each."""
    if not run.evaluations:
        return ()
    last, found = run.evaluations[-1], list[str]()
    now, accuracy, baseline, order = (
        last.values.get(name, math.nan)
        for name in ("masked_lm_loss", "masked_lm_accuracy", "masked_lm_baseline", "sentence_order_accuracy")
    )
    lowest, step = _lowest_loss(run)
    if step is not None and step < last.step and now > lowest + WORSE:
        found.append(f"the held-out loss is {loss(now)}; it was lowest, {loss(lowest)}, at step {step:,}")
    if round(accuracy, 3) <= round(baseline, 3):
        found.append(f"{share(accuracy)} of masked words are right, always giving the commonest gets {share(baseline)}")
    if _is_chance(run, order):
        found.append(f"{_sentence_task(run).lower()}: {share(order)} right, no better than chance")
    return tuple(found)


def _sentence_task(run: Run) -> str:
    """Return the paper's name of the second objective."""
    return "Next sentence" if run.settings.get("objective.sentence") == "next" else "Sentence order"


def _is_chance(run: Run, accuracy: float) -> bool:
    """Whether an accuracy is within two standard errors of a coin that is tossed once per sequence."""
    sequences = run.settings.get("train.eval_sequences")
    if not isinstance(sequences, int) or sequences < 1:
        return False
    return abs(accuracy - CHANCE) < 2 * math.sqrt(CHANCE * (1 - CHANCE) / sequences)


def _lowest_loss(run: Run) -> tuple[float, int | None]:
    """Return the lowest masked-LM loss that was measured, and its step; no step if there is none."""
    losses = [(row.values.get("masked_lm_loss", math.nan), row.step) for row in run.evaluations]
    measured = [each for each in losses if math.isfinite(each[0])]
    return min(measured, key=lambda each: each[0], default=(math.nan, None))


def charts(run: Run) -> list[Chart]:
    """Return the figures of all measures, and of what any training has."""
    # torch comes with them, which only a page needs
    from litebert.tasks.distillation import DISTILLATION_MEASURES
    from litebert.tasks.pretraining import pretraining_measures

    found, last = [], run.evaluations[-1].values if run.evaluations else {}
    for each in (*pretraining_measures(), *DISTILLATION_MEASURES):
        if not each.title:
            continue
        # What is reached without any learning: a number, or a measure of its own.
        is_number = isinstance(each.chance, float)
        level = each.chance if isinstance(each.chance, float) else last.get(each.chance or "", math.nan)
        rules = (Rule("chance" if is_number else "commonest token", level),) if math.isfinite(level) else ()
        title, write = each.title.replace("Sentence order", _sentence_task(run)), share if each.is_share else loss
        found.append(chart_of(run, each.name, title, each.caption, write, rules=rules, is_share=each.is_share))
    return [*found, *rate_charts(run)]
