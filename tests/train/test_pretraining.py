"""Pretraining learns, reports, refuses what is not finite, and writes a model that works."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AlbertForPreTraining, AutoTokenizer

from litebert.config import PretrainConfig, Resolved
from litebert.corpus import build_corpus
from litebert.errors import LitebertError, NonFiniteError, ResourceError
from litebert.inference import Model
from litebert.runs import read_metrics, recorded_setting
from litebert.train.pretrain import plan, pretrain

Configure = Callable[..., Resolved[PretrainConfig]]


def test_pretraining_learns_words_and_order(tmp_path: Path, configure: Configure) -> None:
    longer = [
        "train.steps=400",
        "train.batch_size=16",
        "train.eval_sequences=64",
        "train.eval_every=400",
        "train.save_every=400",
        "model.embedding_size=64",
        "model.hidden_size=64",
        "model.intermediate_size=128",
        "optim.learning_rate=0.002",
        "optim.warmup_steps=0.2",
    ]
    quiet = ["model.hidden_dropout_prob=0", "model.attention_probs_dropout_prob=0"]
    pretrain(configure(*longer, *quiet), tmp_path, is_quiet=True)
    before, after = (row for row in read_metrics(tmp_path) if row["kind"] == "eval")
    assert after["masked_lm_accuracy"] > 1.5 * after["masked_lm_baseline"]
    assert after["masked_lm_loss"] < before["masked_lm_loss"] - 1
    assert after["sentence_order_accuracy"] > 0.8


def test_bf16_trains(tmp_path: Path, configure: Configure) -> None:
    pretrain(configure("train.precision=bf16"), tmp_path, is_quiet=True)
    losses = [row["masked_lm_loss"] for row in read_metrics(tmp_path) if row["kind"] == "eval"]
    assert losses[-1] < losses[0]


def test_the_result_loads_in_transformers_with_its_tokenizer(tmp_path: Path, configure: Configure) -> None:
    outcome = pretrain(configure(), tmp_path, is_quiet=True)
    assert outcome.model is not None
    ours = Model.load(outcome.model)
    theirs = AlbertForPreTraining.from_pretrained(outcome.model).eval()
    encoded = AutoTokenizer.from_pretrained(outcome.model)("Anna walked.", "Bert slept.")
    assert encoded["input_ids"] == ours.tokenizer.encode("Anna walked.", "Bert slept.").ids
    tensors = {name: torch.tensor([values]) for name, values in encoded.items()}
    with torch.no_grad():
        expected = theirs(**tensors).sop_logits.softmax(-1)[0, 0].item()
    answer = ours.order("Anna walked.", "Bert slept.").probability
    assert answer == pytest.approx(expected, abs=1e-5)


def test_steps_that_are_not_finite_change_nothing_and_then_stop_the_run(
    tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    from litebert.tasks.base import Loss
    from litebert.tasks.pretraining import Pretraining

    original = Pretraining.loss

    def poisoned(self: Pretraining, work: object) -> Loss:
        loss = original(self, work)
        return Loss(loss.total * float("nan"), loss.sums) if self.network.training else loss

    monkeypatch.setattr(Pretraining, "loss", poisoned)
    resolved = configure("train.max_skipped_steps=3")
    with pytest.raises(NonFiniteError, match="LB-503"):
        pretrain(resolved, tmp_path, is_quiet=True)
    notes = [row for row in read_metrics(tmp_path) if row["kind"] == "note"]
    assert [note["step"] for note in notes] == [1, 2, 3, 4]


def test_a_run_goes_on_after_single_steps_that_are_not_finite(
    tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    from litebert.tasks.base import Loss
    from litebert.tasks.pretraining import Pretraining

    original, count = Pretraining.loss, itertools.count()

    def sometimes_poisoned(self: Pretraining, work: object) -> Loss:
        loss = original(self, work)
        is_poisoned = self.network.training and next(count) in (1, 2, 5)
        factor = float("nan") if is_poisoned else 1.0
        return Loss(loss.total * factor, loss.sums * factor)

    monkeypatch.setattr(Pretraining, "loss", sometimes_poisoned)
    outcome = pretrain(configure("train.save_every=1", "train.log_every=1"), tmp_path, is_quiet=True)
    assert outcome.model is not None
    rows = read_metrics(tmp_path)
    assert [row["step"] for row in rows if row["kind"] == "note"] == [2, 3, 6]
    assert len([row for row in rows if row["kind"] == "train"]) == 12 - 3
    assert all(torch.isfinite(p).all() for p in Model.load(outcome.model).network.parameters())


def test_a_plan_says_what_a_run_needs_and_writes_nothing(tmp_path: Path, configure: Configure) -> None:
    config, needs = plan(configure(), tmp_path / "run")
    assert config.model.vocab_size == 90
    assert needs.num_parameters == sum(
        p.numel() for p in __import__("litebert").AlbertForPretraining(config.model).parameters()
    )
    assert needs.seconds_per_step > 0
    assert not (tmp_path / "run").exists()


def test_a_plan_saves_the_run_its_measuring(tmp_path: Path, configure: Configure) -> None:
    resolved = configure("train.minutes=0.05")
    planned, _ = plan(resolved, tmp_path / "run")
    # More threads than any measurement chooses: the plan alone can have set them.
    train = planned.train.model_copy(update={"threads": torch.get_num_threads() + 1})
    pretrain(resolved, tmp_path / "run", is_quiet=True, planned=train)
    assert recorded_setting(tmp_path / "run", "train.threads") == train.threads
    assert recorded_setting(tmp_path / "run", "train.steps") == train.steps


def test_minutes_become_steps_once_and_for_all(tmp_path: Path, configure: Configure) -> None:
    resolved = configure("train.minutes=0.05")
    first = pretrain(resolved, tmp_path, is_quiet=True)
    assert first.step >= 20
    assert pretrain(resolved, tmp_path, is_quiet=True).step == first.step


@pytest.mark.parametrize(
    ("change", "code"),
    [("train.device=cuda:99", "LB-507"), ("data.eval_corpus=nowhere", "LB-3"), ("model.vocab_size=91", "LB-512")],
)
def test_what_cannot_work_is_refused_before_work(tmp_path: Path, configure: Configure, change: str, code: str) -> None:
    with pytest.raises(LitebertError, match=code):
        pretrain(configure(change), tmp_path, is_quiet=True)
    assert not (tmp_path / "metrics.jsonl").exists()


def test_a_disk_too_full_for_the_checkpoints_is_refused_before_work(
    tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("litebert.train.checkpoint.free_bytes", lambda path: 1_000)
    with pytest.raises(ResourceError, match="LB-506"):
        pretrain(configure(), tmp_path, is_quiet=True)
    assert not (tmp_path / "metrics.jsonl").exists()


def test_tensorboard_gets_the_numbers_of_the_log(tmp_path: Path, configure: Configure) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from litebert.train.log import TensorBoard

    board = TensorBoard(tmp_path / "board")
    pretrain(configure(), tmp_path / "run", is_quiet=True, listeners=(board,))
    events = EventAccumulator(str(tmp_path / "board")).Reload()
    rows = [row for row in read_metrics(tmp_path / "run") if row["kind"] == "train"]
    losses = [event.value for event in events.Scalars("train/masked_lm_loss")]
    assert losses == pytest.approx([row["masked_lm_loss"] for row in rows])


def test_a_corpus_without_a_held_out_part_is_refused(
    tmp_path: Path, stories: Path, corpus: Path, configure: Configure
) -> None:
    build_corpus([stories], tokenizer=corpus / "tokenizer", output=tmp_path / "all", sentences="line", workers=1)
    with pytest.raises(LitebertError, match="LB-510"):
        pretrain(configure(f"data.corpus={tmp_path / 'all'}"), tmp_path / "run", is_quiet=True)
