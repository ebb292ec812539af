"""The numbers of docs/study.md are those of the metrics files."""

from pathlib import Path

from litebert.study import Costs, Layers
from litebert.study.findings import read_findings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "study.md").read_text("utf-8")
MEASURED = ROOT / "benchmarks" / "study"


def test_the_sentences_about_figure_1_hold() -> None:
    found = {layers.source: layers for layers in read_findings(Layers, MEASURED, "layers-*")}
    assert set(found) == {"packaged", "books-wiki-mini", "minilm-bert", "pl-bert"}
    assert all(layers.eigenvalue_at_depth.modulus > 1 for layers in found.values())
    large = found["pl-bert"]
    assert min(step.residual for step in large.beyond) > 1 / 3
    assert {fate.period for fate in large.fates} == {4, 5}


def test_the_table_of_costs_is_that_of_its_metrics() -> None:
    (found,) = read_findings(Costs, MEASURED, "cost")
    for claim in found.claims:
        own, other = (size / 1e6 for size in claim.gradient_bytes)
        cells = [
            f"{claim.name} / {claim.beside}",
            f"{claim.paper_speed}",
            f"{claim.training_speed.median:.2f}",
            f"{claim.inference_speed.median:.2f}",
            f"{claim.flops_speed:.2f}",
            f"{own:,.0f} / {other:,.0f}",
            *(f"{claim.speed_at(speed):.2f}" for speed in (1, 10, 100)),
        ]
        assert f"| {' | '.join(cells)} |" in PAGE
