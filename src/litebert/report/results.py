"""The results of a run, over its seeds, and the reasons to doubt them."""

import math
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from litebert.config import OWN_FILES
from litebert.errors import format_count
from litebert.hub import PACKAGED, PACKAGED_NAME
from litebert.metrics import Spread
from litebert.origins import DEFAULT
from litebert.report.tables import format_share
from litebert.runs import LogRow, Result, RunFolder
from litebert.tokenizer.unknown import MOST_UNKNOWN, OTHER_VOCABULARY

MORE_HELD_OUT = "so few held-out rows tell nothing; raise --held-out"
"""The advice of a doubt that comes from little held-out text."""
FEW_PAIRS = 100  # two standard errors of their accuracy are 10 points
FEW_TOKENS = 2_000
"""Of so few held-out tokens, 300 are masked: at 5% right, as without learning, two
standard errors are 2.5 points, as much as `LITTLE_GAIN` asks for.
"""
LITTLE_GAIN = 1.5
"""A doubt is reported if the masked-LM accuracy is below this multiple of the accuracy
of always giving the commonest piece.
"""
WORSE = 0.01
"""A doubt is reported if the last held-out loss lies this far (nats) above the lowest."""

PRETRAINING_MEASURE = "masked_lm_accuracy"


def results_of(run: RunFolder) -> list[Result]:
    """Return the results of a run, or of each of its seeds; none if it has no
    evaluation yet.
    """
    if run.kind == "fine-tuning":
        outcomes = [part.outcome for part in run.parts]
        return [outcome for outcome in outcomes if outcome is not None]
    evaluated = [row for row in run.evaluations if PRETRAINING_MEASURE in row.values]
    if not evaluated:
        return []
    best = max(evaluated, key=lambda row: row.values[PRETRAINING_MEASURE])
    result = Result(
        task="",
        key_measure=PRETRAINING_MEASURE,
        last=evaluated[-1],
        best=best,
        num_evaluations=len(evaluated),
        fresh=(),
    )
    return [result]


def ends_of(results: Sequence[Result]) -> dict[str, dict[str, Spread]]:
    """Summarize the measures that all seeds have: "last" of the last steps, "best" of
    the best evaluations.
    """
    if not results:
        return {}
    last = [result.last.values for result in results]
    best = [result.best.values for result in results]
    return {"last": _spreads(last), "best": _spreads(best)}


def starts_of(results: Sequence[Result]) -> dict[str, Spread]:
    """Summarize what the vectors of the start model gave before training; empty if a
    seed did not use them.
    """
    starts = [result.first.values for result in results if result.first is not None]
    if not starts or len(starts) < len(results):
        return {}
    return _spreads(starts)


def _spreads(measures: Sequence[dict[str, float]]) -> dict[str, Spread]:
    """Summarize each measure that all seeds have."""
    spreads = dict[str, Spread]()
    for name in measures[0]:
        values = [seed[name] for seed in measures if name in seed]
        if len(values) == len(measures):
            spreads[name] = Spread.of(values)
    return spreads


def medians(results: Sequence[Result]) -> tuple[float | None, float | None]:
    """Return the medians of the key measure: over the last steps, and over the best
    evaluations.
    """
    if not results:
        return None, None
    key = results[0].key_measure
    ends = ends_of(results)
    last = ends["last"][key]
    best = ends["best"][key]
    return last.median, best.median


def start_of(run: RunFolder) -> str:
    """Return the name of the model that a run started from, or took only the shape
    of.
    """
    start = run.setting("model.start")
    if run.file.origin_of("model.start") == DEFAULT or start == PACKAGED_NAME:
        start = PACKAGED
    if run.settings.get("model.random") is True:
        return f"random weights, shaped as {start}"
    return start


def task_of(run: RunFolder) -> str:
    """Return the name of the task that a run was fine-tuned on; for a user's own file,
    the name of the file and what is predicted.
    """
    task = run.setting("task.name")
    if task != OWN_FILES:
        return task
    file = Path(run.setting("data.train")).name
    problem = run.file.data.get("problem")
    return f"{file} ({problem})" if problem else file


def network_of(run: RunFolder) -> str:
    """Return the shape of a network that was pretrained, and the preset it came from."""
    layers = run.setting("model.num_hidden_layers")
    shape = f"{layers} layers of {run.setting('model.hidden_size')}"
    origin = run.file.origin_of("model.hidden_size")
    if origin is None or origin.kind != "preset":
        return shape
    return f"{origin.name}: {shape}"


def sentence_task(run: RunFolder) -> str:
    is_next = run.settings.get("objective.sentence") == "next"
    return "Next sentence" if is_next else "Sentence order"


# ---- doubts --------------------------------------------------------------------------


def doubts_of(run: RunFolder) -> list[str]:
    """Return reasons not to trust the results of a run, as clauses; for several seeds,
    the reasons of all seeds.
    """
    if run.kind == "fine-tuning":
        doubts = chain.from_iterable(result.doubts for result in results_of(run))
        return list(dict.fromkeys(doubts))  # once, though several seeds may have it
    if not run.evaluations:
        return []
    last = run.evaluations[-1]
    checks = (
        _doubt_of_vocabulary(run),
        _doubt_of_words(run, last),
        _doubt_of_order(run, last),
        _doubt_of_overtraining(run.evaluations),
    )
    return [doubt for doubt in checks if doubt is not None]


def _doubt_of_vocabulary(run: RunFolder) -> str | None:
    share = run.file.data.get("unknown share")
    if not isinstance(share, float) or share <= MOST_UNKNOWN:
        return None
    return (
        f"{share:.1%} of the tokens, so also of the answers, are unknown;"
        f" {OTHER_VOCABULARY}"
    )


def _doubt_of_words(run: RunFolder, last: LogRow) -> str | None:
    accuracy = last.values.get("masked_lm_accuracy", math.nan)
    baseline = last.values.get("masked_lm_baseline", math.nan)
    if not accuracy < LITTLE_GAIN * baseline:  # or if one is unknown
        return None
    num_tokens = run.file.data.get("held-out tokens")
    reason = "it has learned next to nothing"
    if isinstance(num_tokens, int) and num_tokens < FEW_TOKENS:
        reason = MORE_HELD_OUT
    return (
        f"the model predicts {format_share(accuracy)} of the masked tokens; always"
        f" giving the most common one gets {format_share(baseline)}: {reason}"
    )


def _doubt_of_order(run: RunFolder, last: LogRow) -> str | None:
    num_pairs = round(last.values.get("sentence_order_pairs", 0))
    if not num_pairs:
        return None
    # Two standard errors of a coin tossed once per pair are 2 sqrt(p (1 - p) / n),
    # with p = 1/2.
    two_errors = 1 / math.sqrt(num_pairs)
    accuracy = last.values.get("sentence_order_accuracy", math.nan)
    is_chance = abs(accuracy - 0.5) < two_errors  # false if it is unknown
    if not is_chance:
        return None
    doubt = (
        f"{sentence_task(run)}: {format_share(accuracy)} right, no better than chance"
        f" on {format_count(num_pairs, 'pair')}"
    )
    return f"{doubt}: {MORE_HELD_OUT}" if num_pairs < FEW_PAIRS else doubt


def is_worse_than_start(run: RunFolder) -> bool:
    """Return whether pretraining only raised the held-out loss of its start."""
    if run.kind != "pretraining" or not run.evaluations:
        return False
    first = run.evaluations[0]
    if first.step:  # it began from random weights
        return False
    losses = _held_out_losses(run.evaluations)
    has_risen = losses[0] + WORSE < losses[-1] < math.inf
    return has_risen and min(losses) == losses[0]


def _held_out_losses(evaluations: Sequence[LogRow]) -> list[float]:
    """Return the masked-LM loss of each evaluation; infinity if it has none."""
    return [row.values.get("masked_lm_loss", math.inf) for row in evaluations]


def _doubt_of_overtraining(evaluations: Sequence[LogRow]) -> str | None:
    losses = _held_out_losses(evaluations)
    lowest = min(losses)
    last = losses[-1]
    if not lowest + WORSE < last < math.inf:
        return None
    step = evaluations[losses.index(lowest)].step
    return (
        f"the held-out masked-LM loss is {last:.3f}; it was lowest, {lowest:.3f}, at"
        f" step {step:,}"
    )
