"""What training achieved on held-out text: before, now, and without any training."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from litebert.runs import LogRow, Record

CHANCE = 0.5
"""Share of sentence pairs that guessing gets right; its loss is ln 2."""
WORSE = 0.01
"""How much a held-out loss may lie above the lowest one before that is worth a word, in nats."""


@dataclass(frozen=True)
class Measure:
    """A number of an evaluation, its format, and its value without any learning."""

    label: str
    name: str
    written: Callable[[float], str]
    untrained: str


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


def sentence_task(record: Record) -> str:
    """Return the paper's name of the second objective."""
    is_next = record.settings.get("objective.sentence") == "next"
    return "Next sentence" if is_next else "Sentence order"


def before_and_now(record: Record) -> tuple[LogRow, LogRow] | None:
    """Return the first and the last evaluation, if there are two."""
    if len(record.evaluations) < 2:
        return None
    return record.evaluations[0], record.evaluations[-1]


def result_rows(record: Record, first: LogRow, last: LogRow) -> list[tuple[str, str, str, str]]:
    """Return (measure, before, now, without learning) for the measures that were taken."""
    return [
        (
            measure.label,
            measure.written(first.values.get(measure.name, math.nan)),
            measure.written(last.values[measure.name]),
            measure.untrained,
        )
        for measure in _measures(record, last)
        if measure.name in last.values
    ]


def verdict(record: Record, last: LogRow) -> list[str]:
    """Say in plain words what the last evaluation means, and which gains are none."""
    sentences = []
    if (accuracy := last.values.get("masked_lm_accuracy")) is not None:
        sentences.append(_masked_words(last, accuracy))
    if (accuracy := last.values.get("sentence_order_accuracy")) is not None:
        sentences.append(_sentence_words(record, accuracy))
    elif not record.trains_sentences:
        setting = record.setting("objective.sentence")
        sentences.append(f"No sentence objective was trained (objective.sentence = {setting}).")
    best = _lowest_loss(record)
    if best and best.step != last.step:
        lowest = loss(best.values["masked_lm_loss"])
        sentences.append(f"The held-out masked-LM loss was lowest, {lowest}, at step {best.step:,}.")
    return sentences


def doubts(record: Record) -> tuple[str, ...]:
    """Return reasons not to trust what a pretraining has reached, in a few words each."""
    if not record.evaluations:
        return ()
    last, found = record.evaluations[-1], list[str]()
    best, now = _lowest_loss(record), last.values.get("masked_lm_loss", math.nan)
    if best and best.step < last.step and now > best.values["masked_lm_loss"] + WORSE:
        lowest = loss(best.values["masked_lm_loss"])
        found.append(f"the held-out loss is {loss(now)}; it was lowest, {lowest}, at step {best.step:,}")
    accuracy, baseline = (last.values.get(f"masked_lm_{name}", math.nan) for name in ("accuracy", "baseline"))
    if round(accuracy, 3) <= round(baseline, 3):
        found.append(f"{share(accuracy)} of masked words are right, always giving the commonest gets {share(baseline)}")
    order = last.values.get("sentence_order_accuracy", math.nan)
    if _is_chance(record, order):
        found.append(f"{sentence_task(record).lower()}: {share(order)} right, no better than chance")
    return tuple(found)


def _is_chance(record: Record, accuracy: float) -> bool:
    """Whether an accuracy is within two standard errors of a coin that is tossed once per sequence."""
    sequences = record.settings.get("train.eval_sequences")
    if not isinstance(sequences, int) or sequences < 1:
        return False
    return abs(accuracy - CHANCE) < 2 * math.sqrt(CHANCE * (1 - CHANCE) / sequences)


def _masked_words(last: LogRow, accuracy: float) -> str:
    baseline = last.values.get("masked_lm_baseline")
    sentence = f"At step {last.step:,} the model names {share(accuracy)} of the masked tokens"
    if baseline is None:
        return f"{sentence}."
    gain = "" if round(accuracy, 3) > round(baseline, 3) else ": no gain over that"
    return f"{sentence}; always answering the commonest token gets {share(baseline)}{gain}."


def _sentence_words(record: Record, accuracy: float) -> str:
    sentence = f"{sentence_task(record)}: {share(accuracy)} right, where chance gets {share(CHANCE)}"
    if not _is_chance(record, accuracy):
        return f"{sentence}."
    return f"{sentence}: no better than chance on {record.settings['train.eval_sequences']:,} sequences."


def _lowest_loss(record: Record) -> LogRow | None:
    measured = [row for row in record.evaluations if math.isfinite(row.values.get("masked_lm_loss", math.nan))]
    return min(measured, key=lambda row: row.values["masked_lm_loss"], default=None)


def _measures(record: Record, last: LogRow) -> list[Measure]:
    task = sentence_task(record)
    size = record.settings.get("model.vocab_size")
    vocabulary = size if isinstance(size, int) and size > 0 else math.nan
    even_loss = f"{loss(math.log(vocabulary))}, all tokens alike"
    even_perplexity = f"{vocabulary:,}, all tokens alike"
    baseline = last.values.get("masked_lm_baseline", math.nan)
    commonest = f"{share(baseline)}, always the commonest token"
    coin_loss = f"{loss(-math.log(CHANCE))}, chance"
    return [
        Measure("Masked-LM loss", "masked_lm_loss", loss, even_loss),
        Measure("Masked-LM perplexity", "masked_lm_loss", perplexity, even_perplexity),
        Measure("Masked-LM accuracy", "masked_lm_accuracy", share, commonest),
        Measure(f"{task} loss", "sentence_order_loss", loss, coin_loss),
        Measure(f"{task} accuracy", "sentence_order_accuracy", share, f"{share(CHANCE)}, chance"),
    ]
