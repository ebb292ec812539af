"""Probabilities that people can use: the temperature of a fine-tuned head.

Training makes a network surer than it is right, or a strong penalty less sure. Dividing
its logits by one number, the temperature, changes no answer, and mends most of that (Guo
et al. 2017, arXiv 1706.04599). It is fitted on held-out rows and put into the weights of
the head, so that every program that computes the logits has it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from litebert.nn import AlbertForTask, LinearHead
from litebert.runs import Calibration
from litebert.tasks.kinds.family import Family
from litebert.tasks.kinds.text import Scores, TextClassification
from litebert.tasks.kinds.text_heads import VectorHead

# On fewer rows a temperature is as likely to harm as to help.
FEWEST_ROWS = 50
LOWEST = 0.1
HIGHEST = 10.0
# the nearest that a probability comes to 0 or 1
SMALLEST = 1e-12

Logits = NDArray[np.float64]  # (rows, labels)


def calibrate(
    network: AlbertForTask,
    family: Family[Any, Any],
    examples: Sequence[Any],
    answers: Sequence[Any],
) -> Calibration | None:
    """Divide the layer of a head by the temperature that suits answers to held-out
    examples; return what that changes, or None if nothing was gained.
    """
    head = network.head
    if not isinstance(family, TextClassification) or family.is_number:
        return None
    if not isinstance(head, LinearHead | VectorHead):
        return None
    if len(examples) < FEWEST_ROWS:
        return None
    logits = logits_of(family, answers)
    targets = np.stack([family.target(example) for example in examples])
    calibration = measure(family, logits, targets)
    if calibration.loss_after >= calibration.loss_before:
        return None
    with torch.no_grad():
        head.dense.weight.div_(calibration.temperature)
        head.dense.bias.div_(calibration.temperature)
    return calibration


def measure(
    family: TextClassification, logits: Logits, targets: NDArray[np.generic]
) -> Calibration:
    """Fit the temperature on all rows; what it changes is measured on each half of the
    rows with the temperature of the other half.
    """
    halves = np.arange(len(logits)) % 2
    outputs = np.zeros_like(logits)
    for half in (0, 1):
        is_fitted = halves != half
        temperature = fit(family, logits[is_fitted], targets[is_fitted])
        outputs[~is_fitted] = logits[~is_fitted] / temperature
    return Calibration(
        temperature=fit(family, logits, targets),
        num_rows=len(logits),
        loss_before=family.mean_loss(logits, targets),
        loss_after=family.mean_loss(outputs, targets),
    )


def fit(
    family: TextClassification, logits: Logits, targets: NDArray[np.generic]
) -> float:
    """Return the temperature with the lowest loss."""
    from scipy.optimize import minimize_scalar

    def loss(logarithm: float) -> float:
        return family.mean_loss(logits / np.exp(logarithm), targets)

    bounds = (np.log(LOWEST), np.log(HIGHEST))
    lowest = minimize_scalar(loss, bounds=bounds, method="bounded")
    return float(np.exp(lowest.x))


def logits_of(family: TextClassification, answers: Sequence[Scores]) -> Logits:
    """Return logits that give the probabilities of the answers, (rows, labels)."""
    values = np.array([answer.values for answer in answers])
    chances = values.clip(SMALLEST, 1 - SMALLEST)
    logits: Logits = np.log(chances)
    if family.activation == "sigmoid":
        logits -= np.log1p(-chances)
    return logits


def tempered(
    family: Family[Any, Any], answers: Sequence[Any], calibration: Calibration | None
) -> Sequence[Any]:
    """Return the answers of the network after its calibration."""
    if calibration is None:
        return answers
    assert isinstance(family, TextClassification)
    temperature = calibration.temperature
    logits = torch.from_numpy(logits_of(family, answers) / temperature)
    return [Scores(tuple(row)) for row in family.values(logits).tolist()]
