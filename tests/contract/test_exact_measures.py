"""Measures: SQuAD's as the official scripts compute them, GLUE's as scikit-learn and SciPy do."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

import litebert as package

from .shell import litebert
from .tiny import FINETUNING, Desk, Random


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


def numbers(values: list[str | None]) -> np.ndarray:
    return np.array([float(value or "nan") for value in values])


@pytest.fixture(scope="module")
def scattered(random_model: Random) -> Path:
    """Give a model whose answers differ from text to text."""
    return random_model("AlbertModel")


@pytest.mark.parametrize("task", ["cola", "mrpc", "rte", "stsb", "wnli"])
def test_measures_of_glue_are_those_of_the_libraries(
    scattered: Path, real_data: Path, tmp_path: Path, task: str
) -> None:
    settings = {**FINETUNING, "train.steps": 2, "train.eval_every": 1_000}
    settings |= {"task.max_length": 16, "optim.learning_rate": 1e-5}
    run = package.finetune(task, data=real_data / "glue", model=scattered, runs=tmp_path, settings=settings, quiet=True)
    found = package.evaluate(run.folder, quiet=True).measures["dev"]
    rows = package.predict(run.folder, split="dev", quiet=True).rows["dev"]
    asked, said = [row.expected for row in rows], [row.answer for row in rows]
    if task == "stsb":
        pairs = numbers(asked), numbers(said)
        expected = {"pearson": stats.pearsonr(*pairs)[0], "spearman": stats.spearmanr(*pairs)[0]}
        assert {name: found[name] for name in expected} == pytest.approx(expected, abs=5e-3)
        return
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(asked, said))
    if task == "cola":
        assert found["matthews"] == pytest.approx(metrics.matthews_corrcoef(asked, said))
    if task == "mrpc":
        paraphrase = max(set(asked), key=asked.count)  # two pairs in three are
        assert found["f1"] == pytest.approx(metrics.f1_score(asked, said, pos_label=paraphrase))
    assert run.result["last"]["accuracy"] == found["accuracy"]


MEASURED = {"reviews.csv": "accuracy", "tags.conll": "accuracy", "choices.csv": "accuracy", "spans.jsonl": "f1"}


@pytest.mark.parametrize("name", MEASURED)
def test_measures_of_a_run_are_those_of_its_answers(desk: Desk, name: str) -> None:
    run, data = getattr(desk, name.partition(".")[0]), desk.table(name)
    found = package.evaluate(run, data=data, quiet=True).measures["dev"]
    rows = package.predict(run, data=data, split="dev", quiet=True).rows["dev"]
    assert len(rows) == 20
    scale = 100 if MEASURED[name] == "f1" else 1
    assert found[MEASURED[name]] == pytest.approx(scale * np.mean([row.score for row in rows]), abs=1e-6)
