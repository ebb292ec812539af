"""The numbers of docs/study.md are those of the metrics files."""

import re
from pathlib import Path

import pytest

from litebert.files import read_json
from litebert.metrics.spread import Spread
from litebert.study import Ablation, Costs, Layers, read_ablation
from litebert.study.ablation.ordering import differences
from litebert.study.depth import Depths
from litebert.study.local import LocalAttention

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "study.md").read_text("utf-8")
ROWS = {
    "packaged model": "packaged",
    "books-wiki-mini": "books-wiki-mini",
    "MiniLM": "minilm-bert",
    "PL-BERT": "pl-bert",
}


def _layers(name: str) -> Layers:
    path = ROOT / "benchmarks" / "study" / f"layers-{name}.json"
    return Layers.model_validate(read_json(path, command="python benchmarks/study/layers.py"))


@pytest.mark.parametrize("row", ROWS)
def test_the_row_of_a_network_is_that_of_its_metrics(row: str) -> None:
    (line,) = re.findall(rf"^\| {re.escape(row)}.*\|$", PAGE, re.MULTILINE)
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    found = _layers(ROWS[row])
    assert cells[1:] == [
        str(found.num_steps),
        *(fate.verdict for fate in found.fates),
        f"{100 * found.fates[-1].residual:.1f} %",
        f"{found.eigenvalue_at_depth.modulus:.2f}",
        f"{found.eigenvalue_at_end.modulus:.2f}",
    ]
    assert ("shared" in cells[0]) == found.is_shared


def test_the_sentences_about_figure_1_hold() -> None:
    assert all(_layers(name).eigenvalue_at_depth.modulus > 1 for name in ROWS.values())
    large = _layers("pl-bert")
    assert min(step.residual for step in large.beyond) > 1 / 3
    assert {fate.period for fate in large.fates} == {4, 5}


def _measured(name: str) -> dict[str, object]:
    return read_json(ROOT / "benchmarks" / "study" / name, command="litebert study --help")


def test_the_table_of_depths_is_that_of_its_metrics() -> None:
    found = Depths.model_validate(_measured("depth-books-wiki-mini.json"))
    for each in found.depths:
        row = f"| {each.depth} | {each.loss:.3f} | {100 * each.accuracy:.1f} % "
        assert f"{row}| {each.microseconds:.0f} |" in PAGE


def test_the_table_of_local_attention_is_that_of_its_metrics() -> None:
    found = LocalAttention.model_validate(_measured("attention-books-wiki-mini.json"))
    for cost in found.costs:
        assert f"| {cost.length:,} | {cost.full:.0f} | {cost.local:.0f} |" in PAGE
    first, last = found.costs[0], found.costs[-1]
    assert f"{last.local / first.local:.2f} times as much" in PAGE
    assert f"{last.full / first.full:.2f} times with full attention" in PAGE
    assert f"at most {max(found.training_difference, found.packed_difference):.1e}" in PAGE
    full, *others = found.losses
    for each in others:
        assert f"{each.loss - full.loss:+.3f} with a window of {each.window}" in PAGE


def test_the_table_of_costs_is_that_of_its_metrics() -> None:
    found = Costs.model_validate(_measured("cost.json"))
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


def _table(name: str) -> Ablation:
    return read_ablation(ROOT / "benchmarks" / "study" / f"{name}.json")


def test_each_sentence_objective_is_answered_as_a_constant_would() -> None:
    none, nsp, sop = (row.trials for row in _table("sentence").rows)
    assert [trial.seed for trial in (*none, *nsp, *sop)] == [1, 1, 1]
    for trial, own, other in ((nsp[0], "nsp", "sop"), (sop[0], "sop", "nsp")):
        accuracy, commonest = (trial.measures[f"{own}_{x}"] for x in ("accuracy", "commonest"))
        assert commonest - 0.01 < accuracy <= commonest
        for value in (accuracy, commonest, trial.measures[f"{other}_accuracy"]):
            assert f"{100 * value:.1f} %" in PAGE


def _percents(values: list[float]) -> str:
    return ", ".join(f"{100 * value:.1f}" for value in values)


def _mean(values: list[float]) -> str:
    found = Spread.of(values)
    spread = f" ± {100 * found.spread:.1f}" if found.number > 1 else ""
    return f"{100 * found.mean:.1f}{spread}"


@pytest.mark.parametrize("name", ["depth", "width", "mining", "masking"])
def test_the_rows_of_a_trained_table_are_those_of_its_metrics(name: str) -> None:
    found = _table(name)
    for row in found.rows:
        if values := row.values(found.measure):
            paper = "" if row.paper is None else f"{row.paper} | "
            mean = f"{_mean(values)} | " if len(values) > 1 else ""
            assert f"| {paper}{_percents(values)} | {mean}".rstrip() in PAGE


def test_the_table_of_elastic_depth_is_that_of_its_metrics() -> None:
    for row in _table("elastic").rows:
        names = sorted(n for n in row.trials[0].measures if "_at_" in n)
        cells = [_mean(row.values(name)) for name in names]
        numbers = (len(row.trials), row.trials[0].steps, *cells)
        assert f"| {' | '.join(map(str, numbers))} |" in PAGE


def test_table_4_is_that_of_its_metrics() -> None:
    found = _table("sharing")
    for wide, narrow in zip(found.rows[:4], found.rows[4:], strict=True):
        means = (_mean(row.values(found.measure)) for row in (wide, narrow))
        cells = (f"{wide.paper} / {narrow.paper}", *means, f"{wide.trials[0].body / 1e3:.0f}")
        assert f"| {' | '.join(cells)} |" in PAGE


@pytest.mark.parametrize("name", ["depth", "width"])
def test_the_page_has_the_verdict_on_the_papers_ordering(name: str) -> None:
    assert str(_table(name).ordering) in " ".join(PAGE.split())


@pytest.mark.parametrize("name", ["mining", "masking", "elastic"])
def test_the_page_says_which_rows_differ(name: str) -> None:
    found = _table(name)
    told = differences([row.values(found.measure) for row in found.rows])
    for row, each in zip(found.rows[1:], told, strict=True):
        assert f"{row.label}: {each}" in " ".join(PAGE.split())
