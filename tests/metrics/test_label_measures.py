"""Measures of labels and scores equal scikit-learn's and scipy's wherever those are defined."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as sklearn

from litebert.metrics import classification_measures, multi_label_measures, regression_measures

FEW = settings(deadline=None, max_examples=60)


@st.composite
def labelled(draw: st.DrawFn, num_labels: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    size = draw(st.integers(1, 30))
    numbers = st.lists(st.integers(0, num_labels - 1), min_size=size, max_size=size)
    wanted, found = np.array(draw(numbers)), np.array(draw(numbers))
    return wanted, found, np.eye(num_labels)[found]


@FEW
@given(labelled(2) | labelled(4))
def test_labels_are_measured_as_scikit_learn_does(case: tuple[np.ndarray, ...]) -> None:
    wanted, found, probabilities = case
    varies = len(set(wanted)) > 1 and len(set(found)) > 1
    name, average = ("f1", "binary") if probabilities.shape[1] == 2 else ("macro_f1", "macro")
    assert classification_measures(wanted, probabilities) == pytest.approx(
        {
            "accuracy": sklearn.accuracy_score(wanted, found),
            name: sklearn.f1_score(wanted, found, average=average, zero_division=0),
            "matthews": sklearn.matthews_corrcoef(wanted, found) if varies else 0.0,
        }
    )


@FEW
@given(st.lists(st.tuples(*[st.booleans()] * 6), min_size=1, max_size=20))
def test_several_labels_are_measured_as_scikit_learn_does(rows: list[tuple[bool, ...]]) -> None:
    wanted, found = np.array(rows)[:, :3].astype(int), np.array(rows)[:, 3:].astype(int)
    assert multi_label_measures(wanted, found * 0.5) == pytest.approx(
        {
            "micro_f1": sklearn.f1_score(wanted, found, average="micro", zero_division=0),
            "macro_f1": sklearn.f1_score(wanted, found, average="macro", zero_division=0),
            "exact_match": sklearn.accuracy_score(wanted, found),
        }
    )


@FEW
@given(st.lists(st.tuples(st.integers(-3, 9), st.integers(-3, 9)), min_size=2, max_size=30))
def test_scores_are_measured_as_scipy_does(pairs: list[tuple[int, int]]) -> None:
    wanted, values = np.array(pairs, dtype=np.float64).T
    measured = regression_measures(wanted[:, None], values[:, None])
    varies = np.ptp(wanted) > 0 and np.ptp(values) > 0
    expected = {
        "pearson": stats.pearsonr(wanted, values).statistic if varies else 0.0,
        "spearman": stats.spearmanr(wanted, values).statistic if varies else 0.0,
        "mse": sklearn.mean_squared_error(wanted, values),
    }
    assert measured == pytest.approx(expected)


@pytest.mark.parametrize("values", [[0.1, 0.1, 0.1], [0.7]])
def test_a_correlation_with_what_never_varies_is_0(values: list[float]) -> None:
    measured = regression_measures(np.arange(len(values)) * 1.0, np.array(values))
    assert (measured["pearson"], measured["spearman"]) == (0.0, 0.0)
