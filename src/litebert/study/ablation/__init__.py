"""The paper's tables as commands: rows of settings, trained at a scale, beside its figures."""

from litebert.study.ablation.grid import SCALES
from litebert.study.ablation.grids import GRIDS
from litebert.study.ablation.ordering import Ordering, ordering
from litebert.study.ablation.probes import Probe
from litebert.study.ablation.study import Ablation, AblationRow, Plan, ablate, read_ablation
from litebert.study.ablation.trial import Trial

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
