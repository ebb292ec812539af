"""Numbers: update rules beside the papers' formulas; measures as SQuAD's scripts and the answers of a run give them."""

from pathlib import Path

import numpy as np
import pytest
import torch

import litebert as package
from litebert import optim

from .shell import litebert
from .tiny import Desk

RATE, DECAY, BETA1, BETA2, EPSILON = 0.02, 0.01, 0.9, 0.999, 1e-6
SHAPES = {"dense.weight": (5, 3), "dense.bias": (5,), "norm.weight": (3,), "word.weight": (7, 2)}


def drawn(seed: int) -> dict[str, np.ndarray]:
    generator = np.random.Generator(np.random.PCG64(seed))
    return {name: generator.normal(size=shape) for name, shape in SHAPES.items()}


def is_decayed(name: str) -> bool:
    return "bias" not in name and "norm" not in name


def formula(kind: str, steps: int) -> dict[str, np.ndarray]:
    """Compute some steps of LAMB (You et al., algorithm 2, without bias correction, as upstream) or of AdamW."""
    values = drawn(0)
    first = {name: np.zeros_like(value) for name, value in values.items()}
    second = {name: np.zeros_like(value) for name, value in values.items()}
    for step in range(steps):
        for name, gradient in drawn(step + 1).items():
            first[name] = BETA1 * first[name] + (1 - BETA1) * gradient
            second[name] = BETA2 * second[name] + (1 - BETA2) * gradient**2
            update = first[name] / (np.sqrt(second[name]) + EPSILON)
            ratio = 1.0
            if is_decayed(name):
                update = update + DECAY * values[name]
                if kind == "Lamb":
                    ratio = np.linalg.norm(values[name]) / np.linalg.norm(update)
            values[name] = values[name] - RATE * ratio * update
    return values


@pytest.mark.parametrize("kind", ["Lamb", "AdamW"])
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_an_update_is_that_of_the_formula(kind: str, steps: int) -> None:
    parameters = {name: torch.nn.Parameter(torch.tensor(value)) for name, value in drawn(0).items()}
    groups = optim.parameter_groups(list(parameters.items()), weight_decay=DECAY)
    optimizer = getattr(package, kind)(groups, lr=RATE, betas=(BETA1, BETA2), eps=EPSILON)
    for step in range(steps):
        for name, gradient in drawn(step + 1).items():
            parameters[name].grad = torch.tensor(gradient)
        optimizer.step()
    for name, expected in formula(kind, steps).items():
        np.testing.assert_allclose(parameters[name].detach().numpy(), expected, rtol=1e-12, atol=1e-12)


def test_a_matrix_of_zeros_or_without_a_gradient_is_moved_as_upstream_does() -> None:
    zeros, still = torch.nn.Parameter(torch.zeros(3, 2)), torch.nn.Parameter(torch.ones(3, 2))
    optimizer = package.Lamb([zeros, still], lr=RATE, weight_decay=0.0)
    zeros.grad, still.grad = torch.ones(3, 2), torch.zeros(3, 2)
    optimizer.step()
    expected = -RATE * (1 - 0.9) / (np.sqrt(1 - 0.999) + 1e-6)  # the trust ratio is 1
    np.testing.assert_allclose(zeros.detach().numpy(), expected, rtol=1e-5)
    np.testing.assert_array_equal(still.detach().numpy(), 1)


# ---- measures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "exact", "f1"),
    [
        ("v1.1-bert-ensemble", 86.20624408703878, 92.19557978351129),
        ("v1.1-albert-base-pohanchi", 78.27814569536424, 86.90508361514442),
    ],
)
def test_published_predictions_have_their_official_scores(real_data: Path, file: str, exact: float, f1: float) -> None:
    squad = real_data / "squad"
    predictions = ("--predictions", squad / "predictions" / f"{file}.json.gz")
    done = litebert("evaluate", *predictions, "--data", squad / "dev-v1.1.json.gz", "--json")
    assert done.code == 0, done.stderr
    expected = {"exact": exact, "f1": f1, "total": 10_570, "unanswered": 0}
    assert done.json == {"predictions": pytest.approx(expected, rel=1e-14)}


MEASURED = {"reviews.csv": "accuracy", "tags.conll": "accuracy", "choices.csv": "accuracy", "spans.jsonl": "f1"}


@pytest.mark.parametrize("name", MEASURED)
def test_measures_of_a_run_are_those_of_its_answers(desk: Desk, name: str) -> None:
    run, data = getattr(desk, name.partition(".")[0]), desk.table(name)
    found = package.evaluate(run, data=data, quiet=True).measures["dev"]
    rows = package.predict(run, data=data, split="dev", quiet=True).rows["dev"]
    assert len(rows) == 20
    scale = 100 if MEASURED[name] == "f1" else 1
    assert found[MEASURED[name]] == pytest.approx(scale * np.mean([row.score for row in rows]), abs=1e-6)
