"""A few steps of every kind of training: losses, gradient norms and measures beside
recorded ones, and equal bits when they are trained again.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import litebert as package
from litebert.fast import attention, linear

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
    "begun gently": {
        "early.mask_prob": 0.3,
        "early.depth": 1,
        "early.depth_share": 0.5,
    },
    "recomputed": {"train.gradient_checkpointing": True},
    "another seed": {"train.seed": 7},
}


@pytest.fixture
def in_float32() -> Iterator[None]:
    with golden.muon_in_float32():
        yield


@pytest.mark.usefixtures("in_float32")
@pytest.mark.parametrize("name", PRETRAINED)
def test_golden_losses_of_pretraining(desk: Desk, tmp_path: Path, name: str) -> None:
    computed = rows(desk.pretrain(tmp_path, **PRETRAINED[name]))
    assert computed == golden.expected("pretraining", name, computed)


FURTHER = {
    **{name: value for name, value in PRETRAINING.items() if "model." not in name},
    "optim.learning_rate": 0.001,  # the recipe of a continuation has lower rates
}


@pytest.mark.usefixtures("in_float32")
def test_golden_losses_of_a_continuation(desk: Desk, tmp_path: Path) -> None:
    run = package.pretrain(
        start=desk.base,
        corpus=desk.corpus,
        recipe="laptop",
        runs=tmp_path,
        name="further",
        settings=FURTHER,
        quiet=True,
    )
    computed = rows(run)
    assert computed == golden.expected("pretraining", "continued", computed)


def distil(desk: Desk, runs: Path, name: str, precision: str = "fp32") -> package.Run:
    settings = {
        **PRETRAINING,
        "train.precision": precision,
        "distil.texts": 4,
        "distil.text_length": 16,
    }
    return package.distil(
        desk.base,
        corpus=desk.corpus,
        runs=runs,
        name=name,
        settings=settings,
        quiet=True,
    )


@pytest.mark.parametrize("is_row_of_several", [False, True])
def test_wider_bounds_hold_for_the_fields_that_they_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_row_of_several: bool
) -> None:
    monkeypatch.setattr(golden, "FOLDER", tmp_path)
    monkeypatch.delenv("LITEBERT_WRITE_GOLDENS", raising=False)

    def value(row: golden.Row) -> list[golden.Row] | golden.Row:
        return [row, row] if is_row_of_several else row

    near = value({"loss": 2.0, "pearson": 0.51})
    far = value({"loss": 2.01, "pearson": 0.5})
    golden.record(tmp_path / "file.json", "name", value({"loss": 2.0, "pearson": 0.5}))
    expected = golden.expected("file", "name", near, wider={"pearson": 0.05})
    assert near == expected
    assert far != expected


DISTILLED = {
    "hidden_error": 0.005,
    "vector_error": 0.001,
    "sentence_order_loss": 0.0005,
    "gradient_norm": 0.5,
}
"""Bounds on measures that start near 0.4, 0.015, 0.7 and 9.

The student starts from a least-squares fit to the teacher, and its vectors from nearly
the teacher's: what is left of their difference depends on the last bits of the fit.
Between two makes of CPU these measures differ by 0.001, 0.0002, 0.0001 and 0.13.
"""


@pytest.mark.usefixtures("in_float32")
def test_golden_losses_of_a_distillation(desk: Desk, tmp_path: Path) -> None:
    computed = rows(distil(desk, tmp_path, "student"))
    recorded = golden.expected("pretraining", "distilled", computed, wider=DISTILLED)
    assert computed == recorded


FINETUNED: dict[str, tuple[str, dict[str, object]]] = {
    "labels": ("reviews.csv", {}),
    "pairs": ("pairs.csv", {}),
    "several labels": ("topics.jsonl", {}),
    "scores": ("ratings.csv", {"data.held_out": 0.3}),
    "tags": ("tags.conll", {}),
    "choices": ("choices.csv", {}),
    "spans": ("spans.jsonl", {}),
    "weighted": ("reviews.csv", {"task.class_weights": [1, 3]}),
    "in parts, with lamb": (
        "reviews.csv",
        {"optim.name": "lamb", "train.micro_batch_size": 2},
    ),
}


CORRELATIONS = {"pearson": 0.05, "spearman": 0.1}
"""Six steps predict nearly the same score for every row: the ranks of two such scores,
and with them the correlations, depend on the last bits.
"""


@pytest.mark.usefixtures("in_float32")
@pytest.mark.parametrize("name", FINETUNED)
def test_golden_losses_of_fine_tuning(desk: Desk, tmp_path: Path, name: str) -> None:
    file, settings = FINETUNED[name]
    computed = rows(desk.finetune(tmp_path, file, FINETUNING | settings))
    recorded = golden.expected("finetuning", name, computed, wider=CORRELATIONS)
    assert computed == recorded


def taught(desk: Desk, runs: Path, name: str) -> package.Run:
    """Fine-tune a teacher, and a student on its answers."""
    other = {**FINETUNING, "train.seed": 3}
    teacher = desk.finetune(runs, settings=other, name=f"{name}-teacher")
    return desk.finetune(runs, teacher=teacher.folder, name=name)


@pytest.mark.usefixtures("in_float32")
def test_golden_losses_with_a_teacher(desk: Desk, tmp_path: Path) -> None:
    computed = rows(taught(desk, tmp_path, "student"))
    assert computed == golden.expected("finetuning", "taught", computed)


# ---- bits: a second run on the same machine, in the precisions of this machine

TRAINED = {
    "muon": lambda desk, runs, name: desk.pretrain(runs, name),
    "muon in bf16": lambda desk, runs, name: desk.pretrain(
        runs, name, **{"train.precision": "bf16"}
    ),
    "lamb": lambda desk, runs, name: desk.pretrain(
        runs, name, **PRETRAINED["as the paper"]
    ),
    "two groups": lambda desk, runs, name: desk.pretrain(
        runs, name, **PRETRAINED["two groups of two blocks"]
    ),
    "distilled": distil,
    "labels": lambda desk, runs, name: desk.finetune(runs, name=name),
    "spans": lambda desk, runs, name: desk.finetune(runs, "spans.jsonl", name=name),
    "taught": taught,
}


@pytest.mark.parametrize("kind", TRAINED)
def test_the_same_training_has_the_same_bits_again(
    desk: Desk, tmp_path: Path, kind: str
) -> None:
    first = TRAINED[kind](desk, tmp_path, "first")
    again = TRAINED[kind](desk, tmp_path, "again")
    assert rows(first) == rows(again)
    assert weights(first) == weights(again)


CHOICES = (linear.packing_pays, linear._likes_pieces, attention._choose_kernel)
"""What a process finds out once, by taking time."""


@pytest.fixture
def forget_choices() -> Iterator[Callable[[], None]]:
    def forget() -> None:
        for choice in CHOICES:
            choice.cache_clear()

    yield forget
    forget()


IN_BF16 = {
    "a pretraining": TRAINED["muon in bf16"],
    "a distillation": lambda desk, runs, name: distil(desk, runs, name, "bf16"),
    "a fine-tuning": lambda desk, runs, name: desk.finetune(
        runs, settings={**FINETUNING, "train.precision": "bf16"}, name=name
    ),
}
"""Trainings that evaluate, or have a teacher, in bf16, in which kernels round
differently.
"""


@pytest.mark.parametrize("kind", IN_BF16)
def test_kernels_that_are_chosen_by_time_change_no_bit_of_a_training(
    desk: Desk,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    forget_choices: Callable[[], None],
    kind: str,
) -> None:
    """A busy machine may choose others than a quiet one, before or after a kill."""
    runs = []
    for fastest in (0, 1):

        def time_each(
            *choices: object, fastest: int = fastest, **_: int
        ) -> list[float]:
            seconds = [9.0] * len(choices)
            seconds[fastest] = 1.0
            return seconds

        for module in (linear, attention):
            monkeypatch.setattr(module, "time_each", time_each)
        forget_choices()
        runs.append(IN_BF16[kind](desk, tmp_path, f"choice-{fastest}"))
    first, other = runs
    assert rows(first) == rows(other)
    assert weights(first) == weights(other)


def test_another_seed_gives_other_weights(desk: Desk, tmp_path: Path) -> None:
    first = desk.pretrain(tmp_path, "first", **{"train.seed": 5})
    other = desk.pretrain(tmp_path, "other", **{"train.seed": 6})
    assert rows(first) != rows(other)
    assert weights(first) != weights(other)


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
    both = desk.finetune(tmp_path, settings=settings, seeds=[3, 4], name="both")
    four = desk.finetune(tmp_path, settings={**settings, "train.seed": 4}, name="four")
    assert [run.settings["train.seed"] for run in both.seeds] == [3, 4]
    assert weights(both.seeds[1]) == weights(four) != weights(both.seeds[0])
    assert {row["seed"] for row in both.metrics} == {3, 4}
    assert both.is_finished
    assert both.report.is_file()
    assert all("accuracy" in text for text in (str(both.result), both._repr_html_()))
    # of another median
    with pytest.raises(
        package.LitebertError, match=r"LB-505[\s\S]*train\.steps: 2 -> 3\n"
    ):
        desk.finetune(
            tmp_path, settings={**settings, "train.steps": 3}, seeds=[5], name="both"
        )
    # as if another trained this
    (both.seeds[0].folder / "model" / "config.json").rename(tmp_path / "config.json")
    more = desk.finetune(tmp_path, settings=settings, seeds=[4, 6], name="both")
    assert "over 2 seeds: median; mean ± deviation" in str(more)
    assert "seed-3 is not finished" in more.notes[0]
    with pytest.raises(package.LitebertError, match=r"both already has[\s\S]*name="):
        desk.finetune(tmp_path, settings=settings, name="both")
    for verb in (package.load, package.evaluate, package.predict):
        with pytest.raises(package.LitebertError, match=r"LB-657[\s\S]*both/seed-3"):
            verb(both)
