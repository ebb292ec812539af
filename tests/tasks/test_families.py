"""Every family of tasks passes one harness; a family from outside passes it, too."""

import importlib
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import litebert
from litebert.config import HeadConfig, TeacherConfig
from litebert.config.head import HEADS, PROBLEMS
from litebert.errors import LitebertError
from litebert.folder import save_model
from litebert.nn import AlbertForPretraining
from litebert.tasks.finetuning import doubts, taught, taught_losses
from litebert.tasks.kinds.choice import ChoiceExample, MultipleChoice
from litebert.tasks.kinds.family import AnswerRow, Family, joined, targets_of
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


def lesson(name: str, tokenizer: Tokenizer, *, has_state: bool = False) -> tuple[Tensor, Tensor, Callable[..., Tensor]]:
    """Give the teacher's outputs, the losses against labels, and a function: the losses by a TeacherConfig."""
    family, examples, *_ = FAMILIES[name]
    network = trained(family, examples, tokenizer).eval()
    plain = family.features(examples, tokenizer, max_length=32, training=True)
    size = network.config.hidden_size if has_state else None
    own = taught(family, plain, examples, network, tokenizer, max_length=32, state_size=size)
    batch, targets = joined(own), targets_of(own)
    wanted = torch.from_numpy(np.concatenate([feature.teacher for feature in own]))

    def losses(outputs: Tensor, **settings: float) -> Tensor:
        return taught_losses(family, TeacherConfig(**settings), network, batch, targets, outputs)

    return wanted, family.losses(network, batch, targets), losses


@pytest.mark.parametrize("name", ["classification", "multi-label", "regression", "choice"])
def test_teacher_mixes_its_share_into_the_loss(name: str, small_tokenizer: Tokenizer) -> None:
    wanted, of_labels, losses = lesson(name, small_tokenizer)
    assert torch.allclose(losses(wanted, weight=0.0), of_labels)
    near, far = (losses(outputs, weight=1.0, temperature=3.0).mean() for outputs in (wanted, -wanted))
    assert near < far


@pytest.mark.parametrize(("name", "size"), [("classification", 16), ("vectors", 48)])
def test_teacher_gives_what_its_head_reads_too(name: str, size: int, small_tokenizer: Tokenizer) -> None:
    wanted, of_labels, losses = lesson(name, small_tokenizer, has_state=True)
    rows = wanted.view(len(of_labels), -1)
    without = losses(rows[:, :-size])
    assert torch.allclose(losses(wanted, hidden=2.0), without, atol=1e-5)
    far = torch.cat([rows[:, :-size], -rows[:, -size:]], dim=1)  # a squared error of four times the size
    assert torch.allclose(losses(far, hidden=2.0), without + 8.0, atol=1e-3)


@pytest.mark.parametrize(
    ("teacher", "student", "state_size"),
    [
        ("choice", "choice", 16),  # a kind without states
        ("classification", "classification", 7),  # another width
        ("classification", "regression", None),
        ("classification", "spans", None),
    ],
)
def test_a_teacher_that_does_not_fit_is_refused(
    teacher: str, student: str, state_size: int | None, small_tokenizer: Tokenizer
) -> None:
    network, (family, examples, *_) = trained(*FAMILIES[teacher][:2], small_tokenizer), FAMILIES[student]
    with pytest.raises(LitebertError, match="LB-884"):
        taught(family, [], examples, network, small_tokenizer, max_length=32, state_size=state_size)
