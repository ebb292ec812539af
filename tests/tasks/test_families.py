"""Every family of tasks passes one harness; a family from outside passes it, too."""

import importlib
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import litebert
from litebert.config import HeadConfig, TeacherConfig, TrainConfig
from litebert.config.head import HEADS, PROBLEMS
from litebert.errors import LitebertError
from litebert.folder import save_model
from litebert.nn import AlbertForPretraining
from litebert.tasks.finetuning import Finetuning, doubts, taught
from litebert.tasks.kinds.choice import ChoiceExample, MultipleChoice
from litebert.tasks.kinds.family import AnswerRow, Family
from litebert.tasks.kinds.spans import ConditionalSpanAnswering, GoldAnswer, SpanAnswering, SpanExample
from litebert.tasks.kinds.tagging import TagExample, TokenClassification
from litebert.tasks.kinds.text import TextClassification, TextExample
from litebert.tasks.named import DATASETS, register
from litebert.tokenizer import Tokenizer

from .conftest import Harness, tiny, trained

ROOT = Path(__file__).parents[2]


def texts(*labels: Any) -> list[TextExample]:
    return [TextExample(str(n), f"ball {n}", "river", label) for n, label in enumerate(labels)]


def classifier(problem: Any, *labels: str) -> TextClassification:
    return TextClassification.of(HeadConfig(kind="sequence-classification", labels=labels, problem_type=problem))


CONTEXT = "Anna took a red ball to the river."
BALL = (GoldAnswer("red ball", 12),)
TAGGED = [TagExample(str(n), ("Anna", "took", "ball"), (1, 0, 0)) for n in range(4)]
CHOICES = [ChoiceExample(str(n), CONTEXT, "Where?", ("river", "ball"), n % 2) for n in range(4)]
LABELS, SCORE = classifier("single_label_classification", "no", "yes"), classifier("regression", "score")
MARKS = classifier("multi_label_classification", "red", "old")
TAGS = TokenClassification(HeadConfig(kind="token-classification", labels=("O", "B-PER")))
SCORED = [TextExample(str(n), "Anna", "a red ball", n / 2) for n in range(4)]
ASKED = [SpanExample(str(n), "What?", CONTEXT, BALL if n % 2 else ()) for n in range(4)]
ANSWERED = [replace(example, answers=BALL) for example in ASKED]
# A family, labelled examples, and what answering the commonest of these measures
FAMILIES: dict[str, tuple[Family[Any, Any], Sequence[Any], str, float]] = {
    "classification": (LABELS, texts(0, 1, 1, 1), "accuracy", 0.75),
    "vectors": (LABELS.on_vectors(), texts(0, 1, 1, 1), "accuracy", 0.75),
    "vector score": (SCORE.on_vectors(), SCORED, "pearson", 0.0),
    "multi-label": (MARKS, texts((0,), (0, 1), (), (0,)), "exact_match", 0.5),
    "regression": (SCORE, texts(0.5, 1.5, 2.0, 4.0), "pearson", 0.0),
    "tagging": (TAGS, TAGGED, "accuracy", 2 / 3),
    "choice": (MultipleChoice(num_choices=2), CHOICES, "accuracy", 0.5),
    "spans": (SpanAnswering(), ANSWERED, "exact", 0.0),
    "conditional spans": (ConditionalSpanAnswering(), ASKED, "exact", 50.0),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_passes_the_harness_and_its_baseline_gives_what_is_commonest(
    name: str, passes_harness: Harness
) -> None:
    family, examples, measure, value = FAMILIES[name]
    assert passes_harness(family, examples)
    measures = family.measures(examples, family.constant(examples, examples))
    assert measures[measure] == pytest.approx(value)


def test_a_result_that_is_worth_nothing_is_doubted() -> None:
    rows = [AnswerRow(str(n), f"ball {n}", expected, "yes", 0.9, 1.0) for n, expected in enumerate("ab")]
    alike = [replace(row, text="ball") for row in rows]
    assert not doubts("accuracy", {}, {}, {"dev": alike})  # equal texts must have equal answers
    found = doubts("accuracy", {"accuracy": 0.5}, {"accuracy": 0.5}, {"dev": rows})
    assert [line.split()[0] for line in found] == ["accuracy", "accuracy", "every"]
    assert "0.5000 on 2 rows" in found[1]
    told = [AnswerRow(str(n), "ball", "ab"[n % 2], "ab"[n % 3 % 2], 0.9, 1.0) for n in range(1_000)]
    (doubt,) = doubts("accuracy", {"accuracy": 0.51}, {"accuracy": 0.5}, {"dev": told})
    assert "below 3.2 points may be chance" in doubt
    assert not doubts("accuracy", {"accuracy": 0.6}, {"accuracy": 0.5}, {"dev": told})


@pytest.fixture(scope="module")
def blocks() -> list[str]:
    """Give the code of the how-to page."""
    page = (ROOT / "docs/extending/task.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", page, re.DOTALL)


def test_family_of_the_how_to_passes_the_harness_and_trains(
    blocks: list[str],
    passes_harness: Harness,
    small_tokenizer: Tokenizer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "stars", "litebert": litebert, "print": str}
    names |= {"model": tmp_path / "model", "data": tmp_path}
    save_model(AlbertForPretraining(tiny(small_tokenizer)), tmp_path / "model")
    small_tokenizer.save(tmp_path / "model")
    for split in ("train", "dev"):
        (tmp_path / f"{split}.tsv").write_text("5\ta red ball\n1\tno ball\n" * 4, encoding="utf-8")
    with monkeypatch.context() as undone:
        undone.setattr("litebert.tasks.named.DATASETS", dict(DATASETS))
        exec(blocks[0], names)
        try:
            examples = [names["Rated"](str(n), f"ball {n}", 1 + n % 3) for n in range(6)]
            assert "distance" in passes_harness(names["OrderedLabels"](), examples)
            exec(blocks[1], names)
            assert "distance" in names["run"].result["last"]
        finally:
            del HEADS["ordered"]


def test_labels_of_the_how_to_are_a_class_and_a_line(
    blocks: list[str], small_tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "ordinal.py").write_text(blocks[2], encoding="utf-8")
    try:
        importlib.import_module("ordinal")
        family = classifier("ordinal", "bad", "fair", "good")
        examples = texts(0, 1, 2, 2)
        save_model(trained(family, examples, small_tokenizer), tmp_path / "model")
        small_tokenizer.save(tmp_path / "model")
        model = litebert.load(tmp_path / "model")
        found = model.classify("ball", "river")
        assert sum(found.values.values()) == pytest.approx(1.0)
        score = model.explain("classify", "ball", "river").score
        assert score == pytest.approx(np.log(found.values[found.labels[0]]), abs=1e-4)
        assert family.measures(examples, family.constant(examples, examples))["accuracy"] == 0.5
    finally:
        PROBLEMS.pop("ordinal", None)
        sys.modules.pop("ordinal", None)


def test_two_data_sets_of_one_name_are_refused() -> None:
    register(DATASETS["sst2"])  # the same one again does nothing
    with pytest.raises(LitebertError, match="LB-882"):
        register(replace(DATASETS["sst2"], key_measure="f1"))


# Learning from a teacher, here the network itself


@pytest.mark.parametrize("name", ["classification", "multi-label", "regression", "choice"])
def test_teacher_mixes_its_share_into_the_loss(name: str, small_tokenizer: Tokenizer) -> None:
    family, examples, *_ = FAMILIES[name]
    network = trained(family, examples, small_tokenizer).eval()
    plain = family.features(examples, small_tokenizer, max_length=32, training=True)
    own = taught(family, plain, examples, network, small_tokenizer, max_length=32)
    task = Finetuning(network, family, own, {}, TrainConfig(batch_size=len(own), steps=1))
    ((work,),) = task.batches(0, 1)
    assert work.wanted is not None
    alone, task.teacher = task.loss(work).total, TeacherConfig(weight=0.0)
    torch.testing.assert_close(task.loss(work).total, alone)
    task.teacher = TeacherConfig(weight=1.0, temperature=3.0)
    assert task.loss(work).total < task.loss(replace(work, wanted=-work.wanted)).total


@pytest.mark.parametrize("student", ["regression", "spans", "choice"])
def test_a_teacher_that_does_not_fit_is_refused(student: str, small_tokenizer: Tokenizer) -> None:
    network, (family, examples, *_) = trained(*FAMILIES["classification"][:2], small_tokenizer), FAMILIES[student]
    with pytest.raises(LitebertError, match="LB-884"):
        taught(family, [], examples, network, small_tokenizer, max_length=32)
