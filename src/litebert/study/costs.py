"""`litebert study cost`: the paper's claims about speed and cost (Table 2, 4.3)."""

from statistics import median
from typing import Annotated, Literal

from annotated_types import Ge, Le
from pydantic import BaseModel

from litebert.config import preset
from litebert.files import require_replaceable
from litebert.report.tables import Cell, Table
from litebert.study.study import Output, Study

GIGABITS = (1, 10, 100)  # a second, of the networks that are computed


class ClaimResult(BaseModel):
    """One claim as measured here; pairs are (this network, the one beside it), speeds
    are relative to the latter.
    """

    name: str
    beside: str
    paper_speed: float
    training_speeds: list[float]  # of each round
    inference_speeds: list[float]
    flops_speed: float
    parameters: tuple[int, int]
    training_seconds: tuple[float, float]  # CPU seconds of one process

    def speed_at(self, gigabits: int) -> float:
        """Return the ratio of speeds of a data-parallel step: the measured one, and a
        ring all-reduce over a network of this many Gbit/s.
        """
        bits_a_second = gigabits * 1e9
        seconds = list[float]()
        for computed, number in zip(
            self.training_seconds, self.parameters, strict=True
        ):
            # A ring all-reduce sends the gradients about twice, in float32.
            sent = 2 * 32 * number
            seconds.append(computed + sent / bits_a_second)
        this_network, other = seconds
        return other / this_network


class Costs(BaseModel):
    """What `litebert study cost` measured."""

    tokens: int
    seq_length: int
    rounds: int
    precision: str
    threads: int
    claims: list[ClaimResult]


def study_cost(
    *,
    tokens: Annotated[int, Ge(8), "Tokens per step."] = 64,
    seq_length: Annotated[int, Ge(8), Le(512), "Tokens per sequence."] = 64,
    rounds: Annotated[
        int, Ge(1), "Measurements of each time; the median is reported."
    ] = 3,
    precision: Literal["fp32", "bf16"] = "fp32",
    output: Output = None,
) -> Study[Costs]:
    """Time a training step and inference of ALBERT-large, ALBERT-xxlarge and
    BERT-large.

    The networks have random weights; BERT-large alone needs 5 GB. The times of
    data-parallel training are computed: the measured step plus a ring all-reduce of its
    gradients.

    litebert study cost
    litebert study cost --precision bf16 --tokens 512 --rounds 5
    """
    if output:
        require_replaceable(output, as_folder=True)  # before anything is measured
    from litebert.study.models import measure_costs

    # Table 2, 4.3
    claims = {
        "ALBERT-large": (preset("large-v2"), 1.7),
        "ALBERT-xxlarge": (preset("xxlarge-v2"), 0.3),
    }
    costs = measure_costs(
        claims,
        ("BERT-large", preset("bert-large")),
        tokens=tokens,
        seq_length=seq_length,
        rounds=rounds,
        precision=precision,
    )
    return report_costs(costs).write(output, {"cost": costs})


def report_costs(costs: Costs) -> Study[Costs]:
    """Return the measured speeds beside the paper's, a row per claim."""
    headings = (
        "networks",
        "paper",
        "training step",
        "low",
        "high",
        "inference",
        "low",
        "high",
        "by FLOPs",
        "gradient MB",
        "beside",
        *(f"at {gigabits} Gbit/s" for gigabits in GIGABITS),
    )
    title = (
        f"Speeds relative to the second network; {costs.tokens} tokens, sequences of"
        f" {costs.seq_length}, {costs.precision}, {costs.threads} threads,"
        f" {costs.rounds} interleaved rounds of CPU time"
    )
    rows = [_row_of(claim) for claim in costs.claims]
    return Study(
        costs,
        name="cost",
        title="Speed and cost (paper: Table 2, 4.3)",
        paper=(
            "ALBERT-large trains 1.7 times as fast as BERT-large, ALBERT-xxlarge 0.3"
            " times, on many TPUs, including communication."
        ),
        finding=" ".join(_in_words(claim) for claim in costs.claims),
        tables=[Table(headings, rows, title, decimals=2)],
    )


def _row_of(claim: ClaimResult) -> list[Cell]:
    cells: list[Cell] = [f"{claim.name} / {claim.beside}", claim.paper_speed]
    for speeds in (claim.training_speeds, claim.inference_speeds):
        cells += [median(speeds), min(speeds), max(speeds)]
    cells.append(claim.flops_speed)
    cells += [4 * number / 1e6 for number in claim.parameters]
    cells += [claim.speed_at(gigabits) for gigabits in GIGABITS]
    return cells


def _in_words(claim: ClaimResult) -> str:
    return (
        f"{claim.name}: a training step is {median(claim.training_speeds):.2f} times as"
        f" fast as {claim.beside}'s on one process (paper {claim.paper_speed}),"
        f" inference {median(claim.inference_speeds):.2f} times."
    )
