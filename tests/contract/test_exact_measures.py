"""Measures: SQuAD's as the official scripts compute them, GLUE's as scikit-learn and SciPy do."""

import json
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
    assert done.json == {
        "predictions": {
            "exact": pytest.approx(exact, rel=1e-14),
            "f1": pytest.approx(f1, rel=1e-14),
            "total": 10_570,
            "unanswered": 0,
        }
    }


CONTEXT = "Anna left the old house at noon. Bert came in the evening."
QUESTIONS: dict[str, tuple[str, list[str], str, float]] = {
    "a": ("Who left?", ["Anna"], "Anna", 0.1),  # right
    "b": ("What did Anna leave?", ["the old house", "house"], "an old, House!", 0.2),  # right, by what is stripped
    "c": ("When did Bert come?", ["in the evening", "evening"], "the evening of May", 0.3),  # F1 of 1/3: 1/2
    "d": ("Who slept?", [], "", 0.9),  # right: there is no answer
    "e": ("Who danced?", [], "Bert", 0.8),  # wrong
    "f": ("Where was Bert?", ["house"], "", 0.7),  # wrong
}


def test_measures_of_squad_2_are_those_computed_by_hand(tmp_path: Path) -> None:
    asked = [
        {
            "id": number,
            "question": question,
            "is_impossible": not answers,
            "answers": [{"text": answer, "answer_start": CONTEXT.index(answer)} for answer in answers],
        }
        for number, (question, answers, _, _) in QUESTIONS.items()
    ]
    articles = [{"title": "t", "paragraphs": [{"context": CONTEXT, "qas": asked}]}]
    (tmp_path / "dev.json").write_text(json.dumps({"version": "v2.0", "data": articles}))
    (tmp_path / "found.json").write_text(json.dumps({number: found for number, (_, _, found, _) in QUESTIONS.items()}))
    (tmp_path / "odds.json").write_text(json.dumps({number: odds for number, (*_, odds) in QUESTIONS.items()}))
    words = ("evaluate", "--predictions", tmp_path / "found.json", "--data", tmp_path / "dev.json", "--json")
    done = litebert(*words, "--null-odds", tmp_path / "odds.json")
    assert done.code == 0, done.stderr
    found = done.json["predictions"]
    expected = {
        "exact": 100 * 3 / 6,
        "f1": 100 * 3.5 / 6,
        "total": 6,
        "has_answer_exact": 100 * 2 / 4,
        "has_answer_f1": 100 * 2.5 / 4,
        "has_answer_total": 4,
        "no_answer_exact": 50,
        "no_answer_f1": 50,
        "no_answer_total": 2,
        "best_exact": 100 * 4 / 6,  # nothing is answered from odds of .8 on
        "best_f1": 100 * 4.5 / 6,
    }
    assert {name: found.get(name) for name in expected} == pytest.approx(expected), found


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
    settings = {
        **FINETUNING,
        "train.steps": 2,
        "train.eval_every": 1_000,
        "task.max_length": 16,
        "optim.learning_rate": 1e-5,
    }
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
