"""Every family of tasks, third-party ones included, passes one harness; choices and
tags are framed officially.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from litebert.config import (
    HeadConfig,
    OptimConfig,
    TeacherConfig,
    TrainConfig,
)
from litebert.errors import LitebertError
from litebert.folder import ModelFolder, read_folder, write_folder
from litebert.inference.model import Model
from litebert.nn import AlbertForTask, Batch
from litebert.optim import build_optimizer
from litebert.runs import AnswerRow
from litebert.tasks.doubts import doubts
from litebert.tasks.finetuning import (
    Finetuning,
    LabelledSet,
    add_teacher_logits,
    answer,
)
from litebert.tasks.kinds.choice import (
    ChoiceExample,
    MultipleChoice,
    question_texts,
)
from litebert.tasks.kinds.family import Family, collate, targets_of
from litebert.tasks.kinds.spans import (
    ConditionalSpanAnswering,
    GoldAnswer,
    SpanAnswering,
    SpanExample,
)
from litebert.tasks.kinds.tagging import (
    IGNORED,
    TagAnswer,
    TagExample,
    TokenClassification,
    encode_words,
)
from litebert.tasks.kinds.text import (
    Scores,
    TextClassification,
    TextExample,
)
from litebert.tasks.named import DATASETS
from litebert.tokenizer import Tokenizer, train_tokenizer
from litebert.train.loop import training_step
from tests.networks import config_for, drawn


def texts(*labels: Any) -> list[TextExample]:
    return [
        TextExample(str(n), f"ball {n}", "river", label)
        for n, label in enumerate(labels)
    ]


def classifier(problem: Any, *labels: str) -> TextClassification:
    head = HeadConfig(
        kind="sequence-classification", labels=labels, problem_type=problem
    )
    family: TextClassification = head.task_kind(head)
    return family


def on_vectors(family: TextClassification, reads: str = "vector") -> TextClassification:
    head = family.head.model_copy(update={"kind": f"{reads}-classification"})
    return replace(family, head=head)


CONTEXT = "Anna took a red ball to the river. David found an old map in the house."
BALL = (GoldAnswer("red ball", 12),)
TAGGED = [TagExample(str(n), ("Anna", "took", "ball"), (1, 0, 0)) for n in range(4)]
CHOICES = [
    ChoiceExample(str(n), CONTEXT, "Where?", ("river", "ball"), n % 2) for n in range(4)
]
LABELS = classifier("single_label_classification", "no", "yes")
SCORE = classifier("regression", "score")
MARKS = classifier("multi_label_classification", "red", "old")
TAGS = TokenClassification(
    HeadConfig(kind="token-classification", labels=("O", "B-PER"))
)
SCORED = [TextExample(str(n), "Anna", "a red ball", n / 2) for n in range(4)]
ASKED = [SpanExample(str(n), "What?", CONTEXT, BALL if n % 2 else ()) for n in range(4)]
ANSWERED = [replace(example, answers=BALL) for example in ASKED]
# A family, labelled examples, and a measure with its value for always giving the
# commonest answer
FAMILIES: dict[str, tuple[Family[Any, Any], Sequence[Any], str, float]] = {
    "classification": (LABELS, texts(0, 1, 1, 1), "accuracy", 0.75),
    "weighted": (
        replace(LABELS, class_weights=(1.0, 3.0)),
        texts(0, 1, 1, 1),
        "accuracy",
        0.75,
    ),
    "vectors": (on_vectors(LABELS), texts(0, 1, 1, 1), "accuracy", 0.75),
    "apart": (on_vectors(LABELS, "pair"), texts(0, 1, 1, 1), "accuracy", 0.75),
    "vector score": (on_vectors(SCORE), SCORED, "pearson", 0.0),
    "multi-label": (MARKS, texts((0,), (0, 1), (), (0,)), "exact_match", 0.5),
    "regression": (SCORE, texts(0.5, 1.5, 2.0, 4.0), "pearson", 0.0),
    "tagging": (TAGS, TAGGED, "accuracy", 2 / 3),
    "choice": (MultipleChoice(num_choices=2), CHOICES, "accuracy", 0.5),
    "spans": (SpanAnswering(), ANSWERED, "exact", 0.0),
    "conditional spans": (ConditionalSpanAnswering(), ASKED, "exact", 50.0),
}


@pytest.fixture(scope="module")
def small_tokenizer() -> Tokenizer:
    return Tokenizer.from_model(train_tokenizer([CONTEXT] * 20, vocab_size=36))


def harness(
    family: Family[Any, Any],
    examples: Sequence[Any],
    tokenizer: Tokenizer,
    folder: Path,
) -> dict[str, float]:
    network = trained(family, examples, tokenizer)
    write_folder(ModelFolder(network), folder)
    loaded = read_folder(folder).network
    assert isinstance(loaded, AlbertForTask) and loaded.head_config == family.head
    features = family.features(examples, tokenizer, max_length=32, training=False)
    assert {feature.example for feature in features} == set(range(len(examples)))
    answers = answer(loaded, tokenizer, family, examples, max_length=32)
    measures = family.measures(examples, answers)
    assert all(isinstance(value, float) for value in measures.values())
    constant = family.constant(examples, examples)
    assert family.measures(examples, constant).keys() == measures.keys()
    rows = family.rows(examples, answers)
    assert [row.id for row in rows] == [example.id for example in examples]
    assert all(
        row.expected is not None and 0 <= (row.confidence or 0) <= 1 + 1e-9
        for row in rows
    )
    averaged = [family.averaged([each, each]) for each in answers]
    assert [row.answer for row in family.rows(examples, averaged)] == [
        r.answer for r in rows
    ]
    assert all(family.texts(example)[0] for example in examples)
    return measures


def trained(
    family: Family[Any, Any], examples: Sequence[Any], tokenizer: Tokenizer
) -> AlbertForTask:
    network = AlbertForTask(
        config_for(tokenizer), family.head, generator=torch.Generator().manual_seed(0)
    )
    features = family.features(examples, tokenizer, max_length=32, training=True)
    encoded = family.features(examples, tokenizer, max_length=32, training=False)
    held_out = {"dev": LabelledSet(examples, encoded)}
    train = TrainConfig(steps=1, batch_size=4, micro_batch_size=2)
    task = Finetuning(
        network, family, features=features, held_out=held_out, train=train
    )
    optimizer = build_optimizer(OptimConfig(name="adamw"), network.named_parameters())
    before = [parameter.detach().clone() for parameter in network.parameters()]
    (works,) = task.batches(0, 1)
    training_step(
        task, works, optimizer, step=0, learning_rate=1e-3, clip_norm=1.0, seed=1
    )
    changed = zip(before, network.parameters(), strict=True)
    assert any(not torch.equal(old, new) for old, new in changed)
    assert task.evaluate()
    return network


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_passes_the_harness_and_its_baseline_gives_the_commonest_answer(
    name: str, small_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    family, examples, measure, value = FAMILIES[name]
    assert harness(family, examples, small_tokenizer, tmp_path)
    measures = family.measures(examples, family.constant(examples, examples))
    assert measures[measure] == pytest.approx(value)
    unknown = {
        field.name: None
        for field in fields(examples[0])
        if field.name in ("label", "tags", "answers")
    }
    with pytest.raises(LitebertError, match="LB-430"):
        family.measures(
            [replace(example, **unknown) for example in examples],
            family.constant(examples, examples),
        )


def test_a_result_no_better_than_chance_is_doubted() -> None:
    rows = [
        AnswerRow(str(n), f"ball {n}", expected, "yes", 0.9, 1.0)
        for n, expected in enumerate("ab")
    ]
    alike = [replace(row, text="ball") for row in rows]
    # equal texts must have equal answers
    assert not doubts("accuracy", {}, {}, {"dev": alike})
    found = doubts("accuracy", {"accuracy": 0.5}, {"accuracy": 0.5}, {"dev": rows})
    assert [line.split()[0] for line in found] == ["accuracy", "accuracy", "every"]
    assert "0.5000 on 2 rows" in found[1]
    assert doubts("accuracy", {"accuracy": 1.0}, {"accuracy": 0.5}, {"dev": rows[:1]})
    chance = [
        AnswerRow(str(n), "ball", "ab"[n % 2], "ab"[n % 3 % 2], 0.9, 1.0)
        for n in range(1_000)
    ]
    (doubt,) = doubts(
        "accuracy", {"accuracy": 0.51}, {"accuracy": 0.5}, {"dev": chance}
    )
    assert "below 3.2 points may be chance" in doubt
    assert not doubts("accuracy", {"accuracy": 0.6}, {"accuracy": 0.5}, {"dev": chance})


def test_a_correlation_on_few_rows_is_doubted() -> None:
    scores = [AnswerRow(str(n), f"{n}", f"{n}", f"{n}", None, 0.9) for n in range(400)]
    measured = {"spearman": 0.85}
    (doubt,) = doubts("spearman", measured, {}, {"dev": scores[:15]})
    # tanh(atanh(0.85) - 2 / sqrt(12)) and tanh(atanh(0.85) + 2 / sqrt(12))
    assert "0.8500 on 15 rows" in doubt
    assert "between 0.59 and 0.95" in doubt
    assert not doubts("spearman", measured, {}, {"dev": scores})


def test_two_data_sets_of_one_name_are_refused() -> None:
    DATASETS.add("sst2", DATASETS["sst2"])  # adding the same one again does nothing
    with pytest.raises(LitebertError, match="LB-109"):
        DATASETS.add("sst2", replace(DATASETS["sst2"], key_measure="f1"))


# ---- learning from a teacher, here the network itself --------------------------------


@pytest.mark.parametrize("name", ["weighted", "multi-label", "regression", "choice"])
def test_teacher_mixes_its_share_into_the_loss(
    name: str, small_tokenizer: Tokenizer
) -> None:
    family, examples, *_ = FAMILIES[name]
    network = trained(family, examples, small_tokenizer).eval()
    plain = family.features(examples, small_tokenizer, max_length=32, training=True)
    own = add_teacher_logits(
        family, plain, examples, network, small_tokenizer, max_length=32
    )
    task = Finetuning(
        network, family, own, {}, TrainConfig(batch_size=len(own), steps=1)
    )
    ((work,),) = task.batches(0, 1)
    assert work.wanted is not None
    alone = task.loss(work).total
    task.teacher = TeacherConfig(weight=0.0)
    torch.testing.assert_close(task.loss(work).total, alone)
    task.teacher = TeacherConfig(weight=1.0, temperature=3.0)
    off = replace(work, wanted=-work.wanted)
    assert task.loss(work).total < task.loss(off).total
    assert (
        task.loss(replace(off, weights=2 * work.weights)).total
        == 2 * task.loss(off).total
    )


@pytest.mark.parametrize("student", ["regression", "spans", "choice"])
def test_a_teacher_that_does_not_fit_is_refused(
    student: str, small_tokenizer: Tokenizer
) -> None:
    network, (family, examples, *_) = (
        trained(*FAMILIES["classification"][:2], small_tokenizer),
        FAMILIES[student],
    )
    with pytest.raises(LitebertError, match="LB-884"):
        add_teacher_logits(
            family, [], examples, network, small_tokenizer, max_length=32
        )


# ---- choices and tags ----------------------------------------------------------------

WORDS = (
    "anna took a red ball to the river. david found an old map in the house near a tree"
    " ? . who went to berlin with 1,905 ( old ) maps in one bag , zürich lies north of"
    " rome"
)
FEW = settings(deadline=None, max_examples=40)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_model(train_tokenizer(WORDS.split() * 9, vocab_size=54))


FOUR = ChoiceExample(
    "4", CONTEXT, "What did Anna take?", ("ball", "map", "tree", "house"), 0
)
TWO = ChoiceExample("2", CONTEXT, "Anna went to the _ .", ("house", "river"), 1)
THREE = ChoiceExample("3", "A tree.", "Who is near?", ("Anna", "David", "a tree"), 2)
ALL = [FOUR, TWO, THREE]


def test_questions_with_two_to_four_choices_have_the_loss_and_the_answers_of_each_alone(
    tokenizer: Tokenizer,
) -> None:
    made = drawn(AlbertForTask(config_for(tokenizer), MultipleChoice().head))
    alone = []
    for example in ALL:  # one choice at a time, without other questions in the batch
        family = MultipleChoice(num_choices=len(example.choices))
        (feature,) = family.features(
            [example], tokenizer, max_length=64, training=False
        )
        pairs = zip(feature.ids, feature.segments, strict=True)
        alone.append(
            torch.cat(
                [made(Batch.from_lists([ids], [kinds]))[0] for ids, kinds in pairs]
            )
        )
    losses = [
        F.cross_entropy(logits[None], torch.tensor([e.label]))
        for logits, e in zip(alone, ALL, strict=True)
    ]
    family = MultipleChoice()
    features = family.features(ALL, tokenizer, max_length=64, training=True)
    found = family.losses(made, collate(features), targets_of(features))
    torch.testing.assert_close(found, torch.stack(losses), rtol=1e-5, atol=1e-6)
    answers = answer(made, tokenizer, family, ALL, max_length=64)
    for logits, scores in zip(alone, answers, strict=True):
        np.testing.assert_allclose(
            scores.values, logits.softmax(0).detach().numpy(), rtol=1e-4
        )


@FEW
@given(words=st.integers(0, 60), asked=st.integers(0, 60), most=st.integers(1, 40))
@pytest.mark.parametrize("max_length", [8, 24, 512])
def test_framing_keeps_what_fits(
    tokenizer: Tokenizer, max_length: int, words: int, asked: int, most: int
) -> None:
    example = ChoiceExample("1", "map " * words, "river " * asked, ("ball",))
    family = MultipleChoice(max_qa_length=most, num_choices=1)
    (feature,) = family.features(
        [example], tokenizer, max_length=max_length, training=False
    )
    ids = feature.ids[0]
    segments = feature.segments[0]
    context, question = tokenizer.encode_ids(
        [example.context, *question_texts(example)]
    )
    kept = min(len(question), most, max_length - 3)
    room = min(len(context), max_length - 3 - kept)
    assert (ids[1 : 1 + room], ids[2 + room : -1]) == (context[:room], question[-kept:])
    assert segments == [0] * (room + 2) + [1] * (kept + 1)
    assert [n for n, token in enumerate(ids) if token == tokenizer.sep_id] == [
        room + 1,
        len(ids) - 1,
    ]


FILLED = [
    ("It is _ .", "red", "It is red ."),
    ("_ and _", "red", "red and red"),
    ("_", "_", "_"),
]
FILLED += [
    ("(_)", "  old  map ", "(old map)"),
    ("Where\uff3f", r"a\1b", r"Wherea\1b"),
    ("Why?", " red ", "Why? red"),
]


@pytest.mark.parametrize(("question", "choice", "expected"), FILLED)
def test_a_choice_fills_every_blank_or_follows_the_question(
    question: str, choice: str, expected: str
) -> None:
    assert question_texts(ChoiceExample("1", "", question, (choice,))) == [expected]


def test_accuracy_is_reported_by_group_where_there_are_several() -> None:
    groups = ("middle", "high", "high", "high")
    family = MultipleChoice()
    asked = [
        ChoiceExample(str(n), "", "", ("a", "b"), label=0, group=group)
        for n, group in enumerate(groups)
    ]
    answers = [Scores((0.6, 0.4))] * 2 + [Scores((0.4, 0.6)), Scores((0.6, 0.4))]
    third = pytest.approx(2 / 3)
    measured = {"accuracy": 0.75, "accuracy_high": third, "accuracy_middle": 1.0}
    assert family.measures(asked, answers) == measured
    assert family.measures(asked[1:], answers[1:]) == {"accuracy": third}


def test_rows_show_the_chosen_and_the_right_text() -> None:
    asked = [TWO, ChoiceExample("7", CONTEXT, "Who?", ("Anna", "David"))]
    rows = MultipleChoice().rows(asked, [Scores((0.9, 0.1)), Scores((0.3, 0.7))])
    found = [(row.expected, row.answer, row.confidence, row.score) for row in rows]
    assert found == [("river", "house", 0.9, 0.0), (None, "David", 0.7, None)]


# ---- tags ----------------------------------------------------------------------------

HEAD = HeadConfig(kind="token-classification", labels=("B-LOC", "B-PER", "O"))
FAMILY = TokenClassification(HEAD)
NORTH = "David lies north of Rome ( in a bag )"
SHORT = TagExample("1", ("Anna", "went", "to", "Berlin", "."), (1, 2, 2, 0, 2))
LONG = TagExample("2", tuple(NORTH.split()), (1, *[2] * 3, 0, *[2] * 5))


def test_tags_of_entities_are_measured_by_f1() -> None:
    for tags, measure in {
        "O B-a I-a": "f1",
        "O S-a B-a I-a E-a": "f1",
        "O U-a L-a": "f1",
        "O ORG": "f1",
        "NOUN VERB": "accuracy",
    }.items():
        assert (
            replace(
                FAMILY, head=HEAD.model_copy(update={"labels": tuple(tags.split())})
            ).key_measure
            == measure
        )


def test_words_have_the_ids_of_the_sentence_written_with_spaces(
    tokenizer: Tokenizer,
) -> None:
    words = ["Anna", "(", "1,905", ")", "went", ",", "to", "Zürich", "."]
    (pieces,) = encode_words(tokenizer, [words])
    assert [number for word in pieces for number in word] == tokenizer.encode(
        " ".join(words)
    ).ids
    assert len(pieces) == len(words)
    assert encode_words(tokenizer, [["anna", "", "\u200b", "david"]])[0][1] == [
        tokenizer.unk_id
    ]


@FEW
@given(words=st.lists(st.text(max_size=12), max_size=12))
def test_every_word_of_any_sentence_has_pieces(
    tokenizer: Tokenizer, words: list[str]
) -> None:
    (pieces,) = encode_words(tokenizer, [words])
    assert len(pieces) == len(words) and all(pieces)


def test_only_the_first_piece_of_each_word_has_a_target(tokenizer: Tokenizer) -> None:
    (feature,) = FAMILY.features([SHORT], tokenizer, max_length=99, training=True)
    pieces = [tokenizer.piece(number) for number in feature.ids[0]]
    at = np.flatnonzero(feature.target != IGNORED)
    assert [pieces[place][0] for place in at] == ["▁"] * 5
    assert (feature.target[at].tolist(), feature.weight) == ([1, 2, 2, 0, 2], 5)
    assert (feature.ids[0][0], feature.ids[0][-1]) == (
        tokenizer.cls_id,
        tokenizer.sep_id,
    )


def test_no_word_is_lost_when_a_sentence_is_cut(tokenizer: Tokenizer) -> None:
    made = drawn(AlbertForTask(config_for(tokenizer), HEAD))
    for max_length in (4, 8, 13, 99):
        examples = [SHORT, LONG, TagExample("3", ())]
        features = FAMILY.features(
            examples, tokenizer, max_length=max_length, training=False
        )
        answers = answer(made, tokenizer, FAMILY, examples, max_length=max_length)
        assert [len(tagged.best) for tagged in answers] == [5, 10, 0]
        assert max(feature.num_tokens for feature in features) <= max_length
    learnt = FAMILY.features([LONG], tokenizer, max_length=8, training=True)
    tags = [
        tag for feature in learnt for tag in feature.target.tolist() if tag != IGNORED
    ]
    assert (len(learnt) > 1, tuple(tags)) == (True, LONG.tags)


def test_rows_are_written_in_words() -> None:
    answered = TagAnswer(np.array([[0.1, 0.8, 0.1], [0.2, 0.2, 0.6]]))
    (row,) = FAMILY.rows([TagExample("7", ("Anna", "went"), (1, 1))], [answered])
    assert (row.id, row.text, row.expected, row.answer) == (
        "7",
        "Anna went",
        "B-PER B-PER",
        "B-PER O",
    )
    assert (row.confidence, row.score) == (pytest.approx(0.7), 0.5)
    # without words there are no numbers
    (row,) = FAMILY.rows([TagExample("7", ())], [TagAnswer(np.zeros((0, 3)))])
    assert (row.expected, row.answer, row.confidence, row.score) == (
        None,
        "",
        None,
        None,
    )


def test_a_text_that_is_too_long_is_read_in_windows(tokenizer: Tokenizer) -> None:
    family = replace(LABELS, reads_windows=True)
    words = " ".join([CONTEXT] * 4)
    pieces = tokenizer.encode_ids([words])[0]
    examples = [
        TextExample("short", "Anna took", None, 0),
        TextExample("long", words, None, 1),
        TextExample("pair", words, "Anna took a ball", 1),
        TextExample("other way", "Anna took a ball", words, 0),
    ]
    features = family.features(examples, tokenizer, max_length=30, training=False)
    by_example = [[f for f in features if f.example == n] for n in range(4)]
    assert len(by_example[0]) == 1 and all(len(part) > 2 for part in by_example[1:])
    assert max(feature.num_tokens for feature in features) == 30
    # every piece is read; the windows overlap by a quarter or more
    starts = list[int]()
    for feature in by_example[1]:
        inner = feature.ids[0][1:-1]
        later = range(starts[-1] + 1 if starts else 0, len(pieces))
        starts.append(next(n for n in later if pieces[n : n + 28] == inner))
    assert starts[0] == 0 and starts[-1] == len(pieces) - 28
    assert max(np.diff(starts)) <= 21
    second = tokenizer.encode_ids(["Anna took a ball"])[0]
    for feature in by_example[2]:
        assert feature.ids[0][-1 - len(second) : -1] == second
    for feature in by_example[3]:
        assert feature.ids[0][1 : 1 + len(second)] == second
    # training reads the beginning, and named tasks answer from it as published
    trained_on = family.features(examples, tokenizer, max_length=30, training=True)
    published = LABELS.features(examples, tokenizer, max_length=30, training=False)
    assert [f.ids for f in trained_on] == [f.ids for f in published]
    assert len(published) == 4 and published[1].ids[0][1:-1] == pieces[:28]
    outputs = [np.array([0.2, 0.8]), np.array([0.6, 0.4])]
    scores = family.answer(examples[1], by_example[1][:2], outputs)
    assert scores.values == pytest.approx((0.4, 0.6))


def test_a_label_at_the_end_of_a_long_text_is_read(tokenizer: Tokenizer) -> None:
    network = drawn(AlbertForTask(config_for(tokenizer), LABELS.head))
    model = Model(network.eval(), tokenizer)  # type: ignore[arg-type]
    longest = network.config.max_position_embeddings
    assert isinstance(longest, int)
    text = "Anna took " * longest
    alone = model.classify(text).values
    with_end = model.classify(text + "a red ball to the river. " * 9).values
    assert alone != with_end
