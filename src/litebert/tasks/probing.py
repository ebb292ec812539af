"""The start of a new head: a linear regression on the vectors of the start model.

Fine-tuning from random heads first undoes what the vectors know. So the layer of the
head is fitted while the encoder stays as it is, and training goes on from there (linear
probing, then fine-tuning: Kumar et al. 2022, arXiv 2202.10054).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from litebert import rng
from litebert.folder import ModelFolder, start_from
from litebert.nn import Albert, AlbertForTask, Batch
from litebert.tasks.finetuning import outputs_of
from litebert.tasks.kinds.family import Family, Feature, Output, targets_of
from litebert.tasks.kinds.linear import Rows, in_own_span
from litebert.tasks.kinds.text import (
    Label,
    Regression,
    TextClassification,
    TextExample,
    label_of,
)
from litebert.tasks.kinds.text_heads import VectorHead

Item = TypeVar("Item")

# The data against the penalty. On rows of unit variance the best is from 0.001 to 0.1,
# depending on the task; tables of fewer than a hundred rows want more.
STRENGTHS = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 1.0)
NUM_FOLDS = 5
# More rows take more than a few seconds, and training sees all of them anyway.
MAX_ROWS = 4_000
# pairs that two ways to start are compared on
MAX_COMPARED = 1_000


@dataclass(frozen=True)
class Probe:
    """How a head was fitted."""

    num_rows: int
    strength: float


def fit_head(
    network: AlbertForTask, family: Family[Any, Any], features: Sequence[Feature]
) -> Probe:
    """Set the layer of a head on vectors to the regression of the targets; the encoder
    keeps its weights.
    """
    chosen = _evenly_spaced(features, MAX_ROWS)
    head = network.head
    assert isinstance(head, VectorHead), "other heads do not read vectors"
    assert isinstance(family, TextClassification)
    rows, targets, weights = _read_rows(network, chosen)
    # a single text leaves the columns of a pair at zero: they keep the weight 0
    is_used = rows.any(0)
    strength = choose_strength(family, rows[:, is_used], targets, weights)
    layer = family.linear(rows[:, is_used], targets, weights, strength)
    weight = np.zeros((len(layer.bias), rows.shape[1]))
    weight[:, is_used] = layer.weight
    with torch.no_grad():
        head.dense.weight.copy_(torch.from_numpy(weight))
        head.dense.bias.copy_(torch.from_numpy(layer.bias))
    network.train()
    return Probe(len(chosen), strength)


# ---- what ways to start are worth, before any training -------------------------------


class Trial:
    """The examples that ways to start are compared on, and the encoder of the start
    model, which is read once for all of them.
    """

    def __init__(
        self, start: ModelFolder, examples: Sequence[TextExample], max_length: int
    ) -> None:
        assert start.source is not None, "a start is read from a folder"
        self._config = start.config
        self._source = start.source
        self._tokenizer = start.require_tokenizer()
        self._examples = _evenly_spaced(examples, MAX_COMPARED)
        self._max_length = max_length
        self._encoder: Albert | None = None

    def head(self, family: TextClassification) -> float:
        """Return how well a regression on what the head reads answers rows that it was
        not fitted on.

        It is the Spearman correlation with scores, or the mean log-likelihood of
        labels: higher is better.
        """
        network = self._network(family)
        rows, targets, weights = _read_rows(network, self._features(family))
        strength = choose_strength(family, rows, targets, weights)
        outputs = cross_validate(family, rows, targets, weights, strength)
        if isinstance(family, Regression):
            return family.measured(self._labels, outputs)["spearman"]
        return -family.mean_loss(outputs, targets)

    def cosine(self, similarity: Regression) -> float:
        """Return the Spearman correlation of the cosine of the two vectors of each pair
        with its score.
        """
        network = self._network(similarity)
        pairs = self._features(similarity)
        cosines = np.array(outputs_of(network, similarity.outputs, pairs))
        return similarity.measured(self._labels, cosines)["spearman"]

    @property
    def _labels(self) -> list[Label]:
        return [label_of(example) for example in self._examples]

    def _features(self, family: TextClassification) -> list[Feature]:
        return family.features(
            self._examples,
            self._tokenizer,
            max_length=self._max_length,
            training=True,
        )

    def _network(self, family: TextClassification) -> AlbertForTask:
        """Return the encoder of the start with the head of a kind of task, whose layer
        is not computed.
        """
        if self._encoder is None:
            network = AlbertForTask(self._config, family.head)
            start_from(network, self._source)
            self._encoder = network.albert
            return network
        with torch.device("meta"):
            network = AlbertForTask(self._config, family.head)
        network.albert = self._encoder
        return network


def choose_strength(
    family: TextClassification, rows: Rows, targets: Output, weights: Rows
) -> float:
    """Return the strength with the lowest loss in cross-validation.

    The loss falls, then rises with the strength. Strong fits take the most iterations,
    so the search ends after two strengths in a row that are no better.
    """
    if len(rows) < 2:
        return STRENGTHS[len(STRENGTHS) // 2]
    coordinates = in_own_span(rows)
    best = STRENGTHS[0]
    lowest = math.inf
    num_worse = 0
    for strength in STRENGTHS:
        outputs = cross_validate(family, coordinates, targets, weights, strength)
        loss = family.mean_loss(outputs, targets)
        if loss < lowest:
            best = strength
            lowest = loss
            num_worse = 0
        else:
            num_worse += 1
        if num_worse == 2:
            break
    return best


def cross_validate(
    family: TextClassification,
    rows: Rows,
    targets: Output,
    weights: Rows,
    strength: float,
) -> Rows:
    """Return the outputs for each row, (rows, outputs), of a layer that was fitted on
    the other folds.
    """
    fold_of = draw_folds(targets)
    parts = dict[int, Rows]()
    for fold in range(fold_of.max() + 1):
        is_fitted = fold_of != fold
        layer = family.linear(
            rows[is_fitted], targets[is_fitted], weights[is_fitted], strength
        )
        parts[fold] = layer(rows[~is_fitted])
    outputs = np.zeros((len(rows), parts[0].shape[1]))
    for fold, part in parts.items():
        outputs[fold_of == fold] = part
    return outputs


def draw_folds(targets: Output) -> NDArray[np.int64]:
    """Return the fold of each row, (rows,): rows with the same targets, or with scores
    that are alike, are divided evenly between the folds.

    Among them the draw is random, and the same for every file of as many rows. By their
    place alone, a file whose labels take turns would have folds without some labels.
    """
    num_rows = len(targets)
    drawn = np.argsort(rng.random_bits(0, "folds", np.arange(num_rows)), kind="stable")
    # sorted by the targets, of which each is a column; equal ones stay as they were drawn
    order = drawn[np.lexsort(targets[drawn].T)]
    fold_of = np.empty(num_rows, dtype=np.int64)
    fold_of[order] = np.arange(num_rows) % min(NUM_FOLDS, num_rows)
    return fold_of


def _read_rows(
    network: AlbertForTask, features: Sequence[Feature]
) -> tuple[Rows, Output, Rows]:
    """Return what the head reads of each feature, (rows, width), with its targets,
    (rows, targets), and its weight, (rows,).
    """
    rows = np.array(outputs_of(network, _rows_read, features), dtype=np.float64)
    targets = targets_of(features).numpy().reshape(len(features), -1)
    weights = np.array([feature.weight for feature in features], dtype=np.float64)
    return rows, targets, weights


def _rows_read(network: AlbertForTask, batch: Batch) -> list[Output]:
    head = network.head
    assert isinstance(head, VectorHead)
    rows = head.rows(network.albert(batch).float(), batch)
    return list(rows.cpu().numpy())


def _evenly_spaced(items: Sequence[Item], limit: int) -> list[Item]:
    places = np.linspace(0, len(items) - 1, min(limit, len(items)))
    return [items[place] for place in places.round().astype(int)]
