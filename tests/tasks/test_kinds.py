"""Every kind of task passes one harness, and learns from a teacher if it can."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from litebert.config import HeadConfig, OptimConfig, TeacherConfig, TrainConfig
from litebert.errors import LitebertError
from litebert.folder import ModelFolder, read_folder, write_folder
from litebert.nn import AlbertForTask
from litebert.optim import build_optimizer
from litebert.tasks.finetuning import (
    Finetuning,
    FinetuningWork,
    LabeledSet,
    add_teacher_logits,
    answer,
)
from litebert.tasks.kinds.choice import ChoiceExample, MultipleChoice
from litebert.tasks.kinds.family import Family
from litebert.tasks.kinds.spans import (
    ConditionalSpanAnswering,
    GoldAnswer,
    SpanAnswering,
    SpanExample,
)
from litebert.tasks.kinds.tagging import TagExample, TokenClassification
from litebert.tasks.kinds.text import TextClassification, TextExample
from litebert.tokenizer import Tokenizer
from litebert.train.step import training_step
from tests.networks import config_for

MAX_LENGTH = 32

# ---- the kinds -----------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A kind of task, labeled examples, and a measure with its value for always giving
    the commonest answer.
    """

    family: Family[Any, Any]
    examples: Sequence[Any]
    measure: str
    of_commonest: float


def classifier(
    problem: Any, *labels: str, head: str = "sequence-classification"
) -> TextClassification:
    config = HeadConfig(kind=head, labels=labels, problem_type=problem)
    family: TextClassification = config.task_kind(config)
    return family


def text_examples(*labels: Any) -> list[TextExample]:
    examples = []
    for number, label in enumerate(labels):
        text = f"ball {number}"
        examples.append(TextExample(str(number), text, "river", label))
    return examples


def on_head(family: TextClassification, head: str) -> TextClassification:
    return replace(family, head=family.head.model_copy(update={"kind": head}))


FOUR = [str(number) for number in range(4)]
CONTEXT = "Anna took a red ball to the river. David found an old map in the house."
BALL = (GoldAnswer("red ball", 12),)

ONE_LABEL = classifier("single_label_classification", "no", "yes")
MARKS = classifier("multi_label_classification", "red", "old")
SCORE = classifier("regression", "score")
TAGS = TokenClassification(
    HeadConfig(kind="token-classification", labels=("O", "B-PER"))
)
LABELED = text_examples(0, 1, 1, 1)
MARKED = text_examples((0,), (0, 1), (), (0,))
SCORED = text_examples(0.5, 1.5, 2.0, 4.0)
TAGGED = [TagExample(id_, ("Anna", "took", "ball"), (1, 0, 0)) for id_ in FOUR]
CHOICES = [
    ChoiceExample(id_, CONTEXT, "Where?", ("river", "ball"), int(id_) % 2)
    for id_ in FOUR
]
ANSWERED = [SpanExample(id_, "What?", CONTEXT, BALL) for id_ in FOUR]
HALF_ANSWERED = [
    replace(ANSWERED[0], answers=()),
    ANSWERED[1],
    replace(ANSWERED[2], answers=()),
    ANSWERED[3],
]

KINDS = {
    "classification": Kind(ONE_LABEL, LABELED, "accuracy", 0.75),
    "weighted": Kind(
        replace(ONE_LABEL, class_weights=(1.0, 3.0)), LABELED, "accuracy", 0.75
    ),
    "vectors": Kind(
        on_head(ONE_LABEL, "vector-classification"), LABELED, "accuracy", 0.75
    ),
    "apart": Kind(on_head(ONE_LABEL, "pair-classification"), LABELED, "accuracy", 0.75),
    "vector score": Kind(
        on_head(SCORE, "vector-classification"), SCORED, "pearson", 0.0
    ),
    "multi-label": Kind(MARKS, MARKED, "exact_match", 0.5),
    "regression": Kind(SCORE, SCORED, "pearson", 0.0),
    "tagging": Kind(TAGS, TAGGED, "accuracy", 2 / 3),
    "choice": Kind(MultipleChoice(num_choices=2), CHOICES, "accuracy", 0.5),
    "spans": Kind(SpanAnswering(), ANSWERED, "exact", 0.0),
    "conditional spans": Kind(ConditionalSpanAnswering(), HALF_ANSWERED, "exact", 50.0),
}
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)

# ---- what litebert asks of every kind ------------------------------------------------


def assert_is_complete(
    family: Family[Any, Any],
    examples: Sequence[Any],
    tokenizer: Tokenizer,
    folder: Path,
) -> None:
    """Check what litebert asks of a kind of task: train one step, save and load the
    head, answer, measure, and write rows.
    """
    network = trained(family, examples, tokenizer)
    write_folder(ModelFolder(network), folder)
    loaded = read_folder(folder).network
    assert isinstance(loaded, AlbertForTask)
    assert loaded.head_config == family.head

    answers = answer(loaded, tokenizer, family, examples, max_length=MAX_LENGTH)
    assert_measures_are_numbers(family, examples, answers)
    assert_rows_are_complete(family, examples, answers)
    assert_mean_of_equal_answers_is_the_answer(family, examples, answers)
    for example in examples:
        assert family.texts(example)[0]


def trained(
    family: Family[Any, Any], examples: Sequence[Any], tokenizer: Tokenizer
) -> AlbertForTask:
    """Train a network for one step of two micro-batches, and evaluate it."""
    generator = torch.Generator().manual_seed(0)
    network = AlbertForTask(config_for(tokenizer), family.head, generator=generator)
    features = family.features(
        examples, tokenizer, max_length=MAX_LENGTH, training=True
    )
    held_out = family.features(
        examples, tokenizer, max_length=MAX_LENGTH, training=False
    )
    assert {feature.example for feature in held_out} == set(range(len(examples)))
    task = Finetuning(
        network,
        family,
        features=features,
        held_out={"dev": LabeledSet(examples, held_out)},
        train=TrainConfig(steps=1, batch_size=4, micro_batch_size=2),
    )

    before = [parameter.detach().clone() for parameter in network.parameters()]
    optimizer = build_optimizer(OptimConfig(name="adamw"), network.named_parameters())
    (works,) = task.batches(0, 1)
    training_step(
        task, works, optimizer, step=0, learning_rate=1e-3, clip_norm=1.0, seed=1
    )
    pairs = zip(before, network.parameters(), strict=True)
    assert any(not torch.equal(old, new) for old, new in pairs)
    assert task.evaluate()
    return network


def assert_measures_are_numbers(
    family: Family[Any, Any], examples: Sequence[Any], answers: Sequence[Any]
) -> None:
    measures = family.measures(examples, answers)
    assert measures
    assert all(isinstance(value, float) for value in measures.values())
    constant = family.constant(examples, examples)
    assert family.measures(examples, constant).keys() == measures.keys()


def assert_rows_are_complete(
    family: Family[Any, Any], examples: Sequence[Any], answers: Sequence[Any]
) -> None:
    rows = family.rows(examples, answers)
    assert [row.id for row in rows] == [example.id for example in examples]
    for row in rows:
        assert row.expected is not None
        assert 0 <= (row.confidence or 0) <= 1 + 1e-9


def assert_mean_of_equal_answers_is_the_answer(
    family: Family[Any, Any], examples: Sequence[Any], answers: Sequence[Any]
) -> None:
    means = [family.averaged([scores, scores]) for scores in answers]
    averaged = family.rows(examples, means)
    rows = family.rows(examples, answers)
    assert [row.answer for row in averaged] == [row.answer for row in rows]


@every_kind
def test_every_kind_does_what_litebert_asks_of_it(
    kind: Kind, words_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    assert_is_complete(kind.family, kind.examples, words_tokenizer, tmp_path)


@every_kind
def test_the_baseline_of_a_kind_gives_the_commonest_answer(kind: Kind) -> None:
    baseline = kind.family.constant(kind.examples, kind.examples)
    measures = kind.family.measures(kind.examples, baseline)
    assert measures[kind.measure] == pytest.approx(kind.of_commonest)


@every_kind
def test_examples_without_labels_are_not_measured(kind: Kind) -> None:
    names = {field.name for field in fields(kind.examples[0])}
    (label,) = names & {"label", "tags", "answers"}
    unlabeled = [replace(example, **{label: None}) for example in kind.examples]
    baseline = kind.family.constant(kind.examples, kind.examples)
    with pytest.raises(LitebertError, match="LB-430"):
        kind.family.measures(unlabeled, baseline)


# ---- learning from a teacher ---------------------------------------------------------

TAUGHT = ["weighted", "multi-label", "regression", "choice"]


def taught_by_itself(
    kind: Kind, tokenizer: Tokenizer, teacher: TeacherConfig | None
) -> tuple[Finetuning[Any, Any], FinetuningWork]:
    """Return a fine-tuning whose teacher is the network itself, and its batch."""
    network = trained(kind.family, kind.examples, tokenizer).eval()
    features = kind.family.features(
        kind.examples, tokenizer, max_length=MAX_LENGTH, training=True
    )
    with_logits = add_teacher_logits(
        kind.family,
        features,
        kind.examples,
        network,
        tokenizer,
        max_length=MAX_LENGTH,
    )
    train = TrainConfig(batch_size=len(with_logits), steps=1)
    task = Finetuning(network, kind.family, with_logits, {}, train)
    task.teacher = teacher
    ((work,),) = task.batches(0, 1)
    assert work.teacher_logits is not None
    return task, work


@pytest.mark.parametrize("name", TAUGHT)
def test_a_teacher_of_weight_zero_changes_no_loss(
    name: str, words_tokenizer: Tokenizer
) -> None:
    task, work = taught_by_itself(KINDS[name], words_tokenizer, None)
    alone = task.loss(work).total
    task.teacher = TeacherConfig(weight=0.0)
    torch.testing.assert_close(task.loss(work).total, alone)


@pytest.mark.parametrize("name", TAUGHT)
def test_a_student_that_contradicts_its_teacher_has_the_higher_loss(
    name: str, words_tokenizer: Tokenizer
) -> None:
    teacher = TeacherConfig(weight=1.0, temperature=3.0)
    task, work = taught_by_itself(KINDS[name], words_tokenizer, teacher)
    contradicted = replace(work, teacher_logits=-work.teacher_logits)
    assert task.loss(work).total < task.loss(contradicted).total


@pytest.mark.parametrize("name", TAUGHT)
def test_weights_of_examples_count_with_a_teacher(
    name: str, words_tokenizer: Tokenizer
) -> None:
    teacher = TeacherConfig(weight=1.0, temperature=3.0)
    task, work = taught_by_itself(KINDS[name], words_tokenizer, teacher)
    contradicted = replace(work, teacher_logits=-work.teacher_logits)
    weighted = replace(contradicted, weights=2 * work.weights)
    once = task.loss(contradicted).total
    torch.testing.assert_close(task.loss(weighted).total, 2 * once)


@pytest.mark.parametrize("student", ["regression", "spans", "choice"])
def test_a_teacher_of_another_task_is_refused(
    student: str, words_tokenizer: Tokenizer
) -> None:
    kind = KINDS[student]
    teacher = trained(ONE_LABEL, LABELED, words_tokenizer)
    with pytest.raises(LitebertError, match="LB-884"):
        add_teacher_logits(
            kind.family,
            [],
            kind.examples,
            teacher,
            words_tokenizer,
            max_length=MAX_LENGTH,
        )
