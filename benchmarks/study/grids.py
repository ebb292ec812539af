"""The paper's tables: rows as settings (grids.toml), our results, and whether the
paper's ordering is reproduced.

Nothing here trains or needs torch; for training, see `trials`.
"""

import math
import tomllib
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import combinations
from pathlib import Path
from statistics import fmean, variance
from typing import Literal

from pydantic import BaseModel

from litebert.config import PretrainConfig
from litebert.flops import forward_flops
from litebert.settings import resolve, settings_from_words

Words = tuple[str, ...]

MEASURE = "mask_token_accuracy"
"""The measure that compares rows. Only positions with [MASK] count: at others, the
answer may be visible.
"""
ALWAYS_SHOWN = (MEASURE, "masked_lm_loss", "sentence_order_accuracy")
CROSSED = ("nsp_accuracy", "nsp_commonest", "sop_accuracy", "sop_commonest")
"""Measures of a table in which rows are evaluated on both sentence objectives."""
CLEAR = 2.0  # in standard errors; a smaller difference does not count

# ---- scales and tables, as described in grids.toml --------------------------------


class Scale(BaseModel, frozen=True, extra="forbid"):
    """The sizes of the networks in a study, and the length of their training."""

    # hidden size, layers, head size, by name of the paper's shape
    shapes: dict[str, tuple[int, int, int]]
    embedding_sizes: dict[int, int]  # by the paper's size
    usual_embedding: int  # for all other tables; 0 makes it equal to H
    steps: int
    training: Words


class Variant(BaseModel, frozen=True, extra="forbid"):
    """One row of a table: a network at the scale, settings, and the paper's figure if
    there is one.
    """

    label: str
    shape: Literal["base", "large"] = "base"
    width: int = 1
    layers: int | None = None
    halved: bool = False
    embedding: int | None = None
    settings: Words = ()
    groups: int = 1
    paper: float | None = None
    start: str | None = None
    steps: float = 1.0
    has_more_data: bool = False
    part: str = ""

    def num_layers(self, scale: Scale) -> int:
        _, usual, _ = scale.shapes[self.shape]
        full = self.layers or usual
        return max(1, full // 2) if self.halved else full

    def words(self, scale: Scale) -> Words:
        hidden_size, _, head_size = scale.shapes[self.shape]
        hidden = self.width * hidden_size
        embedding = scale.usual_embedding
        if self.embedding is not None:
            embedding = scale.embedding_sizes[self.embedding] if self.embedding else 0
        return (
            f"model.hidden_size={hidden}",
            f"model.num_hidden_layers={self.num_layers(scale)}",
            f"model.num_attention_heads={hidden // head_size}",
            f"model.intermediate_size={4 * hidden}",
            f"model.embedding_size={embedding or hidden}",
            *self.settings,
        )


class Grid(BaseModel, frozen=True, extra="forbid"):
    """One table of the paper."""

    title: str
    source: str
    rows: tuple[Variant, ...]
    # each row is also evaluated on next sentence and on sentence order
    crosses_objectives: bool = False
    equals_compute: bool = False  # all rows get the same FLOPs, their geometric mean

    def variants(self, scale: Scale) -> dict[str, Variant]:
        """Return the rows at a scale, by label."""
        rows = dict[str, Variant]()
        for row in self.rows:
            if row.num_layers(scale) % row.groups == 0:
                rows[row.label] = row
        if self.equals_compute:
            return self._at_equal_compute(rows, scale)
        return rows

    def _at_equal_compute(
        self, rows: dict[str, Variant], scale: Scale
    ) -> dict[str, Variant]:
        """Give each row as many steps as cost the geometric mean of all rows' FLOPs."""
        flops = dict[str, float]()
        for label, row in rows.items():
            # The output layer is left out: the vocabulary has only the special pieces.
            words = (*scale.training, *row.words(scale), "model.vocab_size=6")
            flops[label] = training_flops(words)
        middle = math.exp(fmean(math.log(cost) for cost in flops.values()))
        equal = dict[str, Variant]()
        for label, row in rows.items():
            equal[label] = row.model_copy(update={"steps": middle / flops[label]})
        return equal


class _File(BaseModel, frozen=True, extra="forbid"):
    scales: dict[str, Scale]
    tables: dict[str, Grid]


@cache
def read_grids() -> _File:
    """Return the scales and the tables of grids.toml."""
    text = Path(__file__).with_suffix(".toml").read_text("utf-8")
    return _File.model_validate(tomllib.loads(text))


def config_of(words: Sequence[str]) -> PretrainConfig:
    """Return the configuration with these settings; the corpus may be among them."""
    settings = settings_from_words(["data.corpus=none", *words])
    return resolve(PretrainConfig, settings).config


def training_flops(words: Sequence[str]) -> float:
    """Return the FLOPs of a training run; a backward pass costs as much as two forward
    passes.
    """
    config = config_of(words)
    length = config.objective.max_seq_length
    tokens = config.train.steps * config.train.batch_size * length
    return 3 * forward_flops(config.model, seq_length=length) * tokens


# ---- results -------------------------------------------------------------------------


class Trial(BaseModel):
    """The result of one training run; `table` counts the embeddings, `body` all other
    parameters.
    """

    label: str
    seed: int
    settings: list[str]
    steps: int
    tokens: int
    cpu_seconds: float
    table: int
    body: int
    measures: dict[str, float]
    probes: dict[str, float] = {}


class AblationRow(BaseModel):
    """One row: the results of each seed, or only the predicted cost."""

    label: str
    part: str = ""
    paper: float | None
    trials: list[Trial] = []
    predicted_flops: float
    predicted_cpu_seconds: float

    def values(self, name: str) -> list[float]:
        """Return a measure or probe from all seeds that have it."""
        trials = [trial.measures | trial.probes for trial in self.trials]
        return [values[name] for values in trials if name in values]


class Ablation(BaseModel):
    """A table of the paper with our rows, exactly as in NAME.json in the output
    folder.
    """

    name: str
    title: str
    source: str
    scale: str
    rows: list[AblationRow]

    @property
    def verdict(self) -> str:
        """What was and was not reproduced, in a few sentences."""
        trained = [row for row in self.rows if row.trials]
        if not trained:
            return "Nothing was trained: the costs are predictions."
        if all(row.paper is None for row in self.rows):
            return self._verdict_without_figures
        parts = dict.fromkeys(row.part for row in self.rows)
        orderings = " ".join(self._ordering_within(part) for part in parts)
        counts = sorted({len(row.trials) for row in trained})
        seeds = "1 seed" if counts == [1] else f"{'-'.join(map(str, counts))} seeds"
        untrained = ", ".join(row.label for row in self.rows if not row.trials)
        missing = f" Not trained: {untrained}." if untrained else ""
        return f"{orderings} Scale {self.scale}, {seeds} a row.{missing}"

    def _ordering_within(self, part: str) -> str:
        """Return a sentence on one part of the table: rows are compared within it."""
        rows = [row for row in self.rows if row.part == part]
        figures = [row.paper for row in rows]
        verdict = ordering(figures, [row.values(MEASURE) for row in rows])
        if part:
            return f"The paper's ordering, {part}: {verdict}."
        return f"The paper's ordering is {verdict}."

    @property
    def _verdict_without_figures(self) -> str:
        """Compare the first row with all others: the paper gives nothing to compare."""
        values = [row.values(MEASURE) for row in self.rows]
        comparisons = list[str]()
        for (first, other), difference in differences(values).items():
            if first != 0:
                continue
            side = "undecided"
            if difference:
                side = "above" if difference > 0 else "below"
            comparisons.append(f"{self.rows[other].label} {side}")
        return (
            f"The paper has no figures for this table. By {MEASURE}, compared with"
            f" {self.rows[0].label}: {', '.join(comparisons)} (scale {self.scale})."
        )

    @property
    def columns(self) -> list[str]:
        """The measures and probes to show: those of at least two rows, since one may
        have some from another table.
        """
        num_rows = Counter[str]()
        probes = set[str]()
        for row in self.rows:
            names = set[str]()
            for trial in row.trials:
                names |= {*trial.measures, *trial.probes}
                probes |= {*trial.probes}
            num_rows.update(names)
        columns = [name for name in ALWAYS_SHOWN if num_rows[name]]
        others = (*CROSSED, *sorted(probes))
        return columns + [name for name in others if num_rows[name] > 1]


# ---- whether our rows are in the paper's order, within the noise between seeds -------


def ordering(paper: Sequence[float | None], ours: Sequence[Sequence[float]]) -> str:
    """Return a clause on whether two columns have the same order; `ours` has the values
    of all seeds for each row.

    Rows without a figure, or with equal figures, are not compared.
    """
    agreements = []
    for (one, other), difference in differences(ours).items():
        figure = paper[one]
        second = paper[other]
        if figure is not None and second is not None and figure != second:
            agreements.append(difference * (second - figure))
    same = sum(agreement > 0 for agreement in agreements)
    reverse = sum(agreement < 0 for agreement in agreements)
    unclear = agreements.count(0)
    if not agreements:
        verdict = "nothing to compare"
    elif same == len(agreements):
        verdict = "reproduced"
    elif reverse == len(agreements):
        verdict = "reversed"
    elif unclear == len(agreements):
        verdict = "undecided"
    elif same > reverse:
        verdict = "partly reproduced"
    else:
        verdict = "not reproduced"
    return (
        f"{verdict}: of {len(agreements)} pairs of rows {same} in the paper's order,"
        f" {reverse} the other way, {unclear} undecided"
    )


def differences(ours: Sequence[Sequence[float]]) -> dict[tuple[int, int], float]:
    """Return for each pair of measured rows by how much the second mean is larger, or 0
    if the seeds do not decide.

    The deviation between seeds is pooled over the rows. A row with only one seed is
    never above or below another.

    >>> differences([[1.0, 1.1], [2.0, 2.1], [1.1, 1.2], []])
    {(0, 1): 1.0, (0, 2): 0.0, (1, 2): -0.9}
    """
    noise = _deviation_between_seeds(ours)
    decided = dict[tuple[int, int], float]()
    for (one, first), (other, second) in combinations(enumerate(ours), 2):
        if not first or not second:
            continue
        difference = fmean(second) - fmean(first)
        # of the difference of two means
        error = noise * math.sqrt(1 / len(first) + 1 / len(second))
        is_repeated = len(first) > 1 and len(second) > 1
        is_clear = is_repeated and abs(difference) > CLEAR * error
        decided[one, other] = round(difference, 12) if is_clear else 0.0
    return decided


def _deviation_between_seeds(ours: Sequence[Sequence[float]]) -> float:
    """Return the standard deviation between seeds, pooled over the rows."""
    repeated = [row for row in ours if len(row) > 1]
    degrees = sum(len(row) - 1 for row in repeated)
    squares = sum(variance(row) * (len(row) - 1) for row in repeated)
    return math.sqrt(squares / max(1, degrees))
