"""The standard measures, by their usual definitions and names; from scikit-learn and scipy."""

from litebert.metrics.calibration import Calibration, ReliabilityBin, calibration
from litebert.metrics.labels import classification_measures, multi_label_measures, regression_measures
from litebert.metrics.no_answer import squad2_measures, threshold_measures
from litebert.metrics.spans import squad1_measures
from litebert.metrics.tags import tagging_measures

__all__ = [
    "Calibration",
    "ReliabilityBin",
    "calibration",
    "classification_measures",
    "multi_label_measures",
    "regression_measures",
    "squad1_measures",
    "squad2_measures",
    "tagging_measures",
    "threshold_measures",
]
