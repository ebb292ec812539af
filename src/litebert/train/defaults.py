"""The settings of a fine-tuning that users leave open: what suits the size of the
network and of the data, and this machine.

The recipes use the values of the paper, for networks of its sizes and amount of
pretraining. With those, smaller networks never do better than the most common label. The
values here were chosen from runs on small data: benchmarks/tasks/RESULTS.md, "500 rows".
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from litebert.config import FinetuneConfig, FinetuneTrainConfig
from litebert.files import Json
from litebert.optim import build_schedule
from litebert.origins import SUITED
from litebert.runs import RunFolder
from litebert.settings import Resolved
from litebert.train.run import settled_precision
from litebert.train.start import Reading

# hidden size of the smallest published network (Table 1); recipes are for this size and
# up
PUBLISHED_SIZE = 768
WARMUP = 0.1  # share of the steps
MIN_EPOCHS = 3
MAX_EPOCHS = 20


@dataclass(frozen=True)
class SmallDefaults:
    """Settings that suit small networks."""

    hidden_size: int  # of the network that they were measured with
    learning_rate: float
    num_steps: int  # the fewest that train it
    others: Mapping[str, Json] = field(default_factory=dict)


# For a head on [CLS]. At 1e-3, and at 3e-4 with more steps, all examples got the same
# answer.
ON_CLS = SmallDefaults(256, 1e-4, 150)
# For a head on the mean of the tokens. With twice the steps, results on pairs are worse.
# The encoder is pretrained and that head is not: with ten times the rate for the head,
# MRPC reaches 67.8 instead of 66.4, where always answering the most common label gets
# 65.6.
ON_MEAN = SmallDefaults(
    384, 2e-4, 75, {"optim.bias_correction": True, "optim.head_rate_scale": 10.0}
)
# A head that starts from a regression has nothing to catch up with. With three epochs of
# 500 rows instead of five, SICK and SST-2 stay within a point, and CoLA loses 5.5.
ON_MEAN_FITTED = replace(
    ON_MEAN, others={"optim.bias_correction": True, "optim.head_rate_scale": 1.0}
)
# For vectors whose cosines are trained: three epochs of 500 pairs. At 1e-4, 500 pairs of
# STS-B are best after one epoch and lose up to a point after it; 3e-5 is slower.
OF_VECTORS = SmallDefaults(384, 5e-5, 47, {"optim.bias_correction": True})


def small_defaults(
    reading: Reading, *, fits_head: bool, trains_vectors: bool
) -> SmallDefaults:
    """Return the defaults for what is trained: vectors, or a head that reads [CLS] or
    the mean of the tokens.
    """
    if trains_vectors:
        return OF_VECTORS
    if reading == "cls":
        return ON_CLS
    return ON_MEAN_FITTED if fits_head else ON_MEAN


def adapt_defaults(
    resolved: Resolved[FinetuneConfig],
    defaults: SmallDefaults,
    *,
    hidden_size: int,
    num_features: int,
) -> Resolved[FinetuneConfig]:
    """Set rate, warm-up and epochs for a network smaller than the published ones.

    They override recipes and schema defaults, but not files or flags. The rate falls as
    the network grows, and is never above the measured one. Small data get more epochs,
    so that there are enough steps.
    """
    if hidden_size >= PUBLISHED_SIZE:
        return resolved
    free = set[str]()  # the settings that users have left open
    for name, origin in resolved.origins.items():
        if origin.kind in ("default", "recipe"):
            free.add(name)

    config = resolved.config
    suited: dict[str, Json] = {
        "optim.learning_rate": (
            defaults.learning_rate * min(1.0, defaults.hidden_size / hidden_size)
        ),
        "optim.warmup_steps": WARMUP,
        **defaults.others,
    }
    if {"train.epochs", "train.steps"} <= free:
        num_examples = defaults.num_steps * config.train.batch_size
        epochs = math.ceil(num_examples / num_features)
        suited["train.epochs"] = min(max(epochs, MIN_EPOCHS), MAX_EPOCHS)
        suited["train.steps"] = 0  # as many as the epochs have

    origins = dict(resolved.origins)
    for name, value in suited.items():
        if name not in free:
            continue
        section, _, key = name.partition(".")
        changed = getattr(config, section).model_copy(update={key: value})
        config = config.model_copy(update={section: changed})
        origins[name] = SUITED
    return Resolved(config, origins)


def settle_defaults(
    resolved: Resolved[FinetuneConfig],
    folder: Path,
    *,
    hidden_size: int,
    num_features: int,
    num_held_out: int,
    reading: Reading,
    fits_head: bool,
    trains_vectors: bool,
) -> Resolved[FinetuneConfig]:
    """Choose what the settings leave open: the defaults that suit network and data,
    then steps, evaluations and this machine's precision.

    `num_features` are the sequences to train on, and `num_held_out` those of an
    evaluation.
    """
    suited = adapt_defaults(
        resolved,
        small_defaults(reading, fits_head=fits_head, trains_vectors=trains_vectors),
        hidden_size=hidden_size,
        num_features=num_features,
    )
    config = suited.config
    train = config.train
    steps = _steps_of(train, num_features)
    # raises for a warm-up that is too long, before any work
    build_schedule(config.optim, total_steps=steps)
    # Once an epoch, but an evaluation must not cost more than a third of the training
    # before it: answering a row takes a third of training on it.
    least_trained = max(num_features, num_held_out)
    eval_every = min(math.ceil(least_trained / train.batch_size), steps)
    settled: dict[str, Json] = {
        "steps": steps,
        "eval_every": train.eval_every or eval_every,
        "precision": settled_precision(train, RunFolder(folder).settings),
        # such a start gives answers, which training must improve
        "eval_at_start": train.eval_at_start or fits_head or trains_vectors,
    }
    return suited.fill_measured(
        config.model_copy(
            update={
                "model": config.model.model_copy(update={"pooling": reading}),
                "train": train.model_copy(update=settled),
            }
        )
    )


def _steps_of(train: FinetuneTrainConfig, num_features: int) -> int:
    """Return the steps of a run: as they are set, or those of its epochs."""
    if train.steps:
        return train.steps
    return max(1, round(train.epochs * num_features / train.batch_size))
