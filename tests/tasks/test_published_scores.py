"""The published scores are typed as they stand: the papers' own averages come out of them."""

import re
from importlib.resources import files

import pytest

from litebert.config import HeadConfig
from litebert.tasks.kinds.text import Scores, TextClassification, TextExample
from litebert.tasks.named import all_published, glue, published

# the column Avg of Table 2, Table 13 and the README (both measures of a SQuAD averaged first)
AVERAGES = {
    ("Table 2", "bert-base"): 82.3,
    ("Table 2", "bert-large"): 85.2,
    ("Table 2", "base-v1"): 80.1,
    ("Table 2", "large-v1"): 82.4,
    ("Table 2", "xlarge-v1"): 85.5,
    ("Table 2", "xxlarge-v1, 24 layers, 125k steps"): 88.7,
    ("Table 13", "xxlarge-v1, 125k steps"): 88.7,
    ("README L33-44", "base-v2"): 82.3,
    ("README L33-44", "large-v2"): 85.7,
    ("README L33-44", "xlarge-v2"): 87.9,
    ("README L33-44", "xxlarge-v2"): 90.9,
    ("README L33-44", "xxlarge-v1"): 91.0,
}


@pytest.mark.parametrize(("table", "model"), AVERAGES)
def test_the_five_tasks_of_a_row_average_as_published(table: str, model: str) -> None:
    row = [score for score in all_published() if (score.table, score.model) == (table, model)]
    tasks = sorted({score.task for score in row})
    assert tasks == ["mnli", "race", "squad", "squad2", "sst2"]
    means = [sum(values) / len(values) for values in ([s.percent for s in row if s.task == task] for task in tasks)]
    assert sum(means) / 5 == pytest.approx(AVERAGES[table, model], abs=0.11)


def test_a_task_is_asked_for_by_name_and_model() -> None:
    found = published("squad2", model="base-v2")
    assert {(s.measure, s.percent, s.split) for s in found} == {("f1", 82.1, "dev"), ("exact", 79.3, "dev")}
    assert {s.table for s in published("cola")} == {"Table 9"}
    assert published("ax") == []


def test_glue_measures_bear_the_names_that_evaluation_gives_them() -> None:
    asked = [TextExample("0", "a", label=0), TextExample("1", "a", label=1)]
    answers = [Scores((0.9, 0.1)), Scores((0.2, 0.8))]
    head = HeadConfig(kind="sequence-classification", labels=("no", "yes"))
    names = set(TextClassification.of(head).measures(asked, answers)) | {"pearson"}
    measures = {s.measure for s in all_published() if s.task in glue.DATASETS}
    assert measures == {"accuracy", "matthews", "pearson"}
    assert measures <= names
    assert {s.task for s in all_published() if s.table == "Table 9"} == {*glue.DATASETS} - {"wnli", "ax"}


@pytest.mark.parametrize("task", ["cola", "stsb", "sst2", "mnli", "qnli", "qqp", "rte", "mrpc"])
def test_the_score_that_a_recipe_expects_is_the_published_one(task: str) -> None:
    head = (files("litebert") / "recipes" / "finetune" / f"{task}.toml").read_text("utf-8")
    expected = re.search(r"(\d\d\.\d)[^.]*xxlarge\s\(Table 9", head)
    (score,) = [s for s in published(task, model="xxlarge-v1") if s.table == "Table 9"]
    assert expected is not None
    assert float(expected[1]) == score.percent
