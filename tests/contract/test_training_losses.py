"""Golden losses, gradients and measures of a few steps of every kind of training, exact
to the bit.
"""

import json
from pathlib import Path

import pytest

import litebert as package

from . import golden
from .tiny import FINETUNING, PACE, PRETRAINING, Desk, rows, weights

PRETRAINED: dict[str, dict[str, object]] = {
    "as the paper": {
        "optim.name": "lamb",
        "model.hidden_act": "gelu_new",
        "start.attention": "random",
    },
    "adamw in parts": {
        "optim.name": "adamw",
        "train.micro_batch_size": 4,
        "optim.schedule": "official",
    },
    "muon": {"optim.name": "muon", "optim.learning_rate": 0.003},
    "an average that stays": {
        "optim.average_decay": 0.5,
        "optim.schedule": "wsd",
        "optim.bias_correction": True,
    },
    "single pieces": {
        "objective.ngram": 1,
        "objective.whole_word": False,
        "objective.mask_prob": 0.3,
    },
    "long runs of words": {
        "objective.favor_shorter_ngram": False,
        "objective.max_predictions": 5,
    },
    "next sentences": {"objective.sentence": "next"},
    "order as upstream": {
        "objective.sentence": "order-official",
        "objective.short_seq_per": "document",
    },
    "words alone": {"objective.sentence": "none"},
    "nothing shared": {"model.sharing": "none"},
    "attention shared": {"model.sharing": "attention"},
    "feed-forward shared": {"model.sharing": "ffn"},
    "two groups of two blocks": {
        "model.num_hidden_groups": 2,
        "model.inner_group_num": 2,
    },
    "wide embeddings": {"model.embedding_size": 32},
    "local attention": {"model.attention": "local", "model.attention_window": 4},
    "begun gently": {
        "early.mask_prob": 0.3,
        "early.depth": 1,
        "early.depth_share": 0.5,
    },
    "recomputed": {"train.gradient_checkpointing": True},
    "another seed": {"train.seed": 7},
}


@pytest.mark.parametrize("name", PRETRAINED)
def test_golden_losses_of_pretraining(desk: Desk, tmp_path: Path, name: str) -> None:
    found = rows(desk.pretrain(tmp_path, **PRETRAINED[name]))
    assert found == golden.expected("pretraining", name, found)


def test_the_same_training_has_the_same_bits_again_and_another_seed_has_others(
    desk: Desk, tmp_path: Path
) -> None:
    first, again = (
        desk.pretrain(tmp_path, name, **{"train.seed": 5})
        for name in ("first", "again")
    )
    other = desk.pretrain(tmp_path, "other", **{"train.seed": 6})
    assert rows(first) == rows(again) != rows(other)
    assert weights(first) == weights(again) != weights(other)


def test_golden_losses_of_a_continuation_and_of_a_distillation(
    desk: Desk, tmp_path: Path
) -> None:
    given = {"corpus": desk.corpus, "runs": tmp_path, "quiet": True}
    settings = {
        name: value
        for name, value in PRETRAINING.items()
        if not name.startswith("model.")
    }
    settings |= {"optim.learning_rate": 0.001}
    # the default recipe of a continuation has lower rates
    run = package.pretrain(
        start=desk.base, recipe="laptop", name="further", settings=settings, **given
    )
    found = rows(run)
    assert found == golden.expected("pretraining", "continued", found)

    settings = {**PRETRAINING, "distil.texts": 4, "distil.text_length": 16}
    found = rows(package.distil(desk.base, name="student", settings=settings, **given))
    # the student starts from a least-squares fit to the teacher, in which the last bits
    # count
    assert found == golden.expected("pretraining", "distilled", found, rel=2e-3)


FINETUNED: dict[str, tuple[str, dict[str, object]]] = {
    "labels": ("reviews.csv", {}),
    "pairs": ("pairs.csv", {}),
    "several labels": ("topics.jsonl", {}),
    "scores": ("ratings.csv", {"data.held_out": 0.3}),
    "tags": ("tags.conll", {}),
    "choices": ("choices.csv", {}),
    "spans": ("spans.jsonl", {}),
    "exits": ("reviews.csv", {"train.exits": True}),
    "weighted": ("reviews.csv", {"task.class_weights": [1, 3]}),
    "in parts, with lamb": (
        "reviews.csv",
        {"optim.name": "lamb", "train.micro_batch_size": 2},
    ),
}


@pytest.mark.parametrize("name", FINETUNED)
def test_golden_losses_of_fine_tuning(desk: Desk, tmp_path: Path, name: str) -> None:
    file, settings = FINETUNED[name]
    found = rows(desk.finetune(tmp_path, file, FINETUNING | settings))
    # six steps predict nearly the same score for every row, so their correlations
    # depend on the last bits
    assert found == golden.expected(
        "finetuning", name, found, rel=5e-2 if name == "scores" else 1e-5
    )


def test_golden_losses_with_a_teacher(desk: Desk, tmp_path: Path) -> None:
    teacher = desk.finetune(
        tmp_path, given={**FINETUNING, "train.seed": 3}, name="teacher"
    )
    student = desk.finetune(tmp_path, teacher=teacher.folder, name="student")
    found = rows(student)
    assert found == golden.expected("finetuning", "taught", found)


def test_a_run_object_agrees_with_its_files(desk: Desk) -> None:
    run = package.Run.open(desk.base)
    assert (run.name, run.kind, run.is_finished, run.exit_code, run.seeds) == (
        "base",
        "pretraining",
        True,
        0,
        (),
    )
    assert run.settings["train.steps"] == PACE["train.steps"]
    last = json.loads((desk.base / "metrics.jsonl").read_text("utf-8").splitlines()[-1])
    assert run.result == last and len(run.metrics) == len(rows(run))
    assert run.report.is_file() and repr(run).endswith("pretraining, finished)")
    assert set(run.model().verbs) == {"fill", "score", "order", "embed"}


def test_several_seeds_are_one_run_and_each_equals_a_run_of_that_seed(
    desk: Desk, tmp_path: Path
) -> None:
    settings = {**FINETUNING, "train.steps": 2}
    both = desk.finetune(tmp_path, given=settings, seeds=[3, 4], name="both")
    four = desk.finetune(tmp_path, given={**settings, "train.seed": 4}, name="four")
    assert [run.settings["train.seed"] for run in both.seeds] == [3, 4]
    assert weights(both.seeds[1]) == weights(four) != weights(both.seeds[0])
    assert (set(both.metrics["seed"]), both.is_finished, both.report.is_file()) == (
        {3, 4},
        True,
        True,
    )
    assert all("accuracy" in text for text in (str(both.result), both._repr_html_()))
    # of another median
    with pytest.raises(
        package.LitebertError, match=r"LB-505[\s\S]*train\.steps: 2 -> 3\n"
    ):
        desk.finetune(
            tmp_path, given={**settings, "train.steps": 3}, seeds=[5], name="both"
        )
    # as if another trained this
    (both.seeds[0].folder / "model" / "config.json").rename(tmp_path / "config.json")
    more = desk.finetune(tmp_path, given=settings, seeds=[4, 6], name="both")
    assert "  seeds 4, 6" in str(more) and "seed-3 is not finished" in more.notes[0]
    with pytest.raises(package.LitebertError, match=r"both already has[\s\S]*--name"):
        desk.finetune(tmp_path, given=settings, name="both")
    for verb in (package.load, package.evaluate, package.predict):
        with pytest.raises(package.LitebertError, match=r"LB-657[\s\S]*both/seed-3"):
            verb(both)
