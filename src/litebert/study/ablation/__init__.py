"""The paper's tables as commands: rows of settings, trained at a scale, beside its figures."""

from litebert.study.ablation.grids import GRIDS, SCALES
from litebert.study.ablation.study import Ablation, AblationRow, Ordering, Plan, ablate, ordering, read_ablation
from litebert.study.ablation.trial import Probe, Trial

__all__ = [
    "GRIDS",
    "SCALES",
    "Ablation",
    "AblationRow",
    "Ordering",
    "Plan",
    "Probe",
    "Trial",
    "ablate",
    "ordering",
    "read_ablation",
]
