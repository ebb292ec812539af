"""Linear layers fitted by regression: what a head is worth before any training.

The rows are what the layer of a head reads, (rows, width). All of them are scaled to
unit variance by the head, so no column is scaled here. Each function takes a `strength`,
the weight of the data against the penalty on the weights: scikit-learn's `C`.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float64]

# Newton-like steps of the logistic regression; it needs about ten
MAX_ITERATIONS = 300


@dataclass(frozen=True)
class LinearLayer:
    """Logits or scores are `rows @ weight.T + bias`."""

    weight: Rows  # (outputs, width)
    bias: Rows  # (outputs,)

    def __call__(self, rows: Rows) -> Rows:
        """Return the outputs for each row, (rows, outputs)."""
        return rows @ self.weight.T + self.bias


def in_own_span(rows: Rows) -> Rows:
    """Return the rows in an orthonormal basis of the space that they span,
    (rows, width), so that there are no more columns than rows.

    A penalty on the squared norm of the weights gives the same outputs in any such
    basis. With 1,536 columns for a pair and a few hundred rows, fits are several times
    as fast.
    """
    if rows.shape[0] >= rows.shape[1]:
        return rows
    # rows.T = Q R, so row i is Q times column i of R
    _, triangle = np.linalg.qr(rows.T)
    return np.asarray(triangle.T)


def fit_softmax(
    rows: Rows,
    labels: NDArray[np.int64],
    weights: Rows,
    strength: float,
    *,
    num_labels: int,
) -> LinearLayer:
    """Fit one label a row by logistic regression.

    A label that no row has gets the logit of half a row, so that it stays possible.
    """
    from sklearn.linear_model import LogisticRegression

    present = np.unique(labels)
    weight = np.zeros((num_labels, rows.shape[1]))
    bias = np.full(num_labels, np.log(0.5 / len(rows)))
    if len(present) == 1:
        bias[present] = 0.0
        return LinearLayer(weight, bias)
    model = LogisticRegression(C=strength, max_iter=MAX_ITERATIONS)
    model.fit(rows, labels, sample_weight=weights)
    if len(present) == 2:
        # One row of numbers tells two labels apart; each label gets half of it.
        half_weight = model.coef_ / 2  # (1, width)
        half_bias = model.intercept_ / 2  # (1,)
        weight[present] = np.concatenate([-half_weight, half_weight])
        bias[present] = np.concatenate([-half_bias, half_bias])
    else:
        weight[present] = model.coef_
        bias[present] = model.intercept_
    return LinearLayer(weight, bias)


def fit_sigmoids(
    rows: Rows, marks: NDArray[np.int64], weights: Rows, strength: float
) -> LinearLayer:
    """Fit any number of labels a row, a logistic regression for each; `marks` is
    (rows, labels) of 0 and 1.
    """
    new_weights = list[Rows]()
    new_biases = list[Rows]()
    for column in marks.T:  # (rows,)
        layer = fit_softmax(rows, column, weights, strength, num_labels=2)
        # sigmoid(x) is the softmax of (0, x)
        new_weights.append(layer.weight[1] - layer.weight[0])
        new_biases.append(layer.bias[1] - layer.bias[0])
    return LinearLayer(np.stack(new_weights), np.stack(new_biases))


def fit_scores(rows: Rows, scores: Rows, weights: Rows, strength: float) -> LinearLayer:
    """Fit a score a row by ridge regression, with the scores scaled to unit variance so
    that one strength means the same for every scale.
    """
    from sklearn.linear_model import Ridge

    scale = scores.std() or 1.0
    model = Ridge(alpha=1 / strength)
    model.fit(rows, scores / scale, sample_weight=weights)
    weight = scale * model.coef_.reshape(1, -1)  # (1, width)
    bias = scale * np.reshape(model.intercept_, 1)
    return LinearLayer(weight, bias)
