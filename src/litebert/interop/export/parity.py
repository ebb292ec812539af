"""How far the outputs of an exported network are from those of the network itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from litebert.errors import LitebertError
from litebert.interop.export.ragged import Outputs, ragged_outputs
from litebert.interop.export.samples import Inputs
from litebert.nn import Network

RunBatch: TypeAlias = Callable[[Inputs], Outputs]
EQUAL = 1e-4
"""Largest difference allowed between runtimes in float32, for numbers up to one."""
_BANNED = -1e29
"""A value below this means "never" and is not compared."""
_OVER_POSITIONS = ("start_logits", "end_logits", "no_answer_logits")
"""Outputs whose last axis is not one of features."""
_NOT_CHOICES = ("last_hidden_state", "pooler_output", "no_answer_logits")


@dataclass(frozen=True)
class Parity:
    """How near the outputs of an exported network are to those of the network itself.

    `max_difference` should be compared with `scale`, the largest absolute output. `correlation` is
    the lowest of all outputs, and correlates deviations from the mean over all tokens or texts,
    which is what distinguishes one text from another. `same_choice` is the share of equal first
    choices; None if nothing is chosen.
    """

    max_difference: float
    scale: float
    correlation: float
    same_choice: float | None


def compare(run: RunBatch, network: Network, batches: Iterable[Inputs]) -> Parity:
    """Compare a runtime with the ragged network on real tokens; padding is excluded."""
    sums: defaultdict[str, _Sums] = defaultdict(_Sums)
    differences, scales = [0.0], [0.0]
    same: list[NDArray[np.bool_]] = []
    for inputs in batches:
        outputs = run(inputs)
        starts = outputs.get("start_top_index")
        for name, expected in ragged_outputs(network, inputs, outputs, starts=starts).items():
            valid = ~(expected <= _BANNED)  # NaN is compared, and never equal
            width = 1 if name in _OVER_POSITIONS else expected.shape[-1]
            a, b = (x[valid].reshape(-1, width).astype(np.float64) for x in (expected, outputs[name]))
            sums[name].add(a, b)
            differences.append(float(np.abs(a - b).max(initial=0)))
            scales.append(float(np.abs(a).max(initial=0)))
            if name not in _NOT_CHOICES and expected.shape[-1] > 1:
                same.append(_first_choices(expected, valid) == _first_choices(outputs[name], valid))
    return Parity(
        max_difference=float(np.max(differences)),
        scale=float(np.max(scales)),
        correlation=float(np.min([each.correlation() for each in sums.values()])),
        same_choice=float(np.concatenate(same).mean()) if same else None,
    )


def require_equal(parity: Parity, *, what: str) -> None:
    """Refuse an exported network whose outputs are not those of the network itself.

    Raises:
        LitebertError: LB-755.
    """
    limit = EQUAL * max(1.0, parity.scale)
    if not parity.max_difference <= limit:
        raise LitebertError(
            "LB-755",
            f"{what} was not written: it does not give the network's numbers",
            received=f"outputs differ by up to {parity.max_difference:.2g}",
            expected=f"at most {limit:.2g}",
            next="pip install -U 'litebert[onnx]', or report this with the model's config.json",
        )


class _Sums:
    """Moments of two sets of rows, summed batch by batch, so that no outputs need to be kept."""

    def __init__(self) -> None:
        self.count = 0
        self.totals: NDArray[np.float64] = np.zeros((2, 1))
        self.products: NDArray[np.float64] = np.zeros((2, 2))

    def add(self, a: NDArray[np.float64], b: NDArray[np.float64]) -> None:
        self.count += len(a)
        self.totals = self.totals + np.stack([a.sum(0), b.sum(0)])
        flat = np.stack([a.ravel(), b.ravel()])
        self.products = self.products + flat @ flat.T

    def correlation(self) -> float:
        """Correlate deviations from the column means: 1 if both are constant, 0 if one is."""
        with np.errstate(invalid="ignore"):  # infinite outputs
            covariance = self.products - self.totals @ self.totals.T / max(self.count, 1)
            variances = covariance.diagonal()
            is_constant = variances <= 1e-12 * self.products.diagonal()
            if is_constant.any():
                return float(is_constant.all())
            return float(covariance[0, 1] / np.sqrt(variances.prod()))


def _first_choices(values: NDArray[np.float32], valid: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the argmax of every row that has a valid value."""
    choices = np.where(valid, values, -np.inf).argmax(-1)
    rows: NDArray[np.int64] = choices[valid.any(-1)]
    return rows
