"""The paper's tables: rows as settings (ablation.toml), our results, and whether the
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
from litebert.settings import resolve, settings_from_words
from litebert.study import forward_flops

Words = tuple[str, ...]

MEASURE = "mask_token_accuracy"
"""The measure that compares rows. Only positions with [MASK] count: at others, the
answer may be visible.
"""
ALWAYS_SHOWN = (MEASURE, "masked_lm_loss", "sentence_order_accuracy")
CROSSED = ("nsp_accuracy", "nsp_commonest", "sop_accuracy", "sop_commonest")
"""Measures of a table in which rows are evaluated on both sentence objectives."""
CLEAR = 2.0  # in standard errors; a smaller difference does not count

# ---- scales and tables, as described in ablation.toml --------------------------------


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
        full = self.layers or scale.shapes[self.shape][1]
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
        found = {
            row.label: row
            for row in self.rows
            if row.num_layers(scale) % row.groups == 0
        }
        if not self.equals_compute:
            return found
        # The output layer is left out: the vocabulary has only the special pieces.
        words = {
            label: (*scale.training, *row.words(scale), "model.vocab_size=6")
            for label, row in found.items()
        }
        flops = {label: training_flops(each) for label, each in words.items()}
        middle = math.exp(fmean(map(math.log, flops.values())))
        return {
            label: row.model_copy(update={"steps": middle / flops[label]})
            for label, row in found.items()
        }


class _File(BaseModel, frozen=True, extra="forbid"):
    scales: dict[str, Scale]
    tables: dict[str, Grid]


@cache
def read_grids() -> _File:
    """Return the scales and the tables of ablation.toml."""
    return _File.model_validate(
        tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    )


def config_of(words: Sequence[str]) -> PretrainConfig:
    """Return the configuration with these settings; the corpus may be among them."""
    return resolve(
        PretrainConfig, settings_from_words(["data.corpus=none", *words])
    ).config


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
        found = [trial.measures | trial.probes for trial in self.trials]
        return [each[name] for each in found if name in each]


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
            more = differences([row.values(MEASURE) for row in self.rows])
            beside = ", ".join(
                f"{self.rows[other].label}"
                f" {'above' if by > 0 else 'below' if by else 'undecided'}"
                for (one, other), by in more.items()
                if one == 0
            )
            said = (
                f"By {MEASURE}, compared with {self.rows[0].label}: {beside} (scale"
                f" {self.scale})."
            )
            return f"The paper has no figures for this table. {said}"
        verdicts = []
        # rows are compared within their part
        for part in dict.fromkeys(row.part for row in self.rows):
            rows = [row for row in self.rows if row.part == part]
            found = ordering(
                [row.paper for row in rows], [row.values(MEASURE) for row in rows]
            )
            verdicts.append(
                f"The paper's ordering{f', {part}:' if part else ' is'} {found}."
            )
        seeds = sorted({len(row.trials) for row in trained})
        num_seeds = f"{'-'.join(map(str, seeds))} {'seed' if seeds == [1] else 'seeds'}"
        left_out = ", ".join(row.label for row in self.rows if not row.trials)
        missing = f" Not trained: {left_out}." if left_out else ""
        return f"{' '.join(verdicts)} Scale {self.scale}, {num_seeds} a row.{missing}"

    @property
    def columns(self) -> list[str]:
        """The measures and probes to show: those of at least two rows, since one may
        have some from another table.
        """
        counts = Counter(
            n
            for row in self.rows
            for n in {n for t in row.trials for n in (*t.measures, *t.probes)}
        )
        probes = {
            name for row in self.rows for trial in row.trials for name in trial.probes
        }
        return [
            n
            for n in (*ALWAYS_SHOWN, *CROSSED, *sorted(probes))
            if counts[n] > (n not in ALWAYS_SHOWN)
        ]


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
    counts = [
        sum(x > 0 for x in agreements),
        sum(x < 0 for x in agreements),
        agreements.count(0),
    ]
    same, reverse, unclear = counts
    verdict = "partly reproduced" if same > reverse else "not reproduced"
    if not agreements:
        verdict = "nothing to compare"
    elif len(agreements) in counts:
        verdict = ("reproduced", "reversed", "undecided")[counts.index(len(agreements))]
    told = f"{same} in the paper's order, {reverse} the other way, {unclear} undecided"
    return f"{verdict}: of {len(agreements)} pairs of rows {told}"


def differences(ours: Sequence[Sequence[float]]) -> dict[tuple[int, int], float]:
    """Return for each pair of measured rows by how much the second mean is larger, or 0
    if the seeds do not decide.

    The deviation between seeds is pooled over the rows. A row with only one seed is
    never above or below another.

    >>> differences([[1.0, 1.1], [2.0, 2.1], [1.1, 1.2], []])
    {(0, 1): 1.0, (0, 2): 0.0, (1, 2): -0.9}
    """
    repeated = [row for row in ours if len(row) > 1]
    degrees = sum(len(row) - 1 for row in repeated)
    noise = math.sqrt(
        sum(variance(row) * (len(row) - 1) for row in repeated) / max(1, degrees)
    )
    found = {}
    for (one, first), (other, second) in combinations(enumerate(ours), 2):
        if first and second:
            difference = fmean(second) - fmean(first)
            # of the difference of two means
            error = noise * math.sqrt(1 / len(first) + 1 / len(second))
            is_clear = len(first) > 1 < len(second) and abs(difference) > CLEAR * error
            found[one, other] = round(difference, 12) if is_clear else 0.0
    return found
