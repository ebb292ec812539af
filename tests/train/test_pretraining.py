"""Pretraining: it learns, refuses impossible settings, starts from given weights, and
mixes corpora.
"""

import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import litebert
from litebert.corpus import Corpus, build_corpus
from litebert.errors import LitebertError
from litebert.folder import read_folder
from litebert.objectives.loading import CYCLE, MixLoader, counts_in_cycle
from litebert.runs import RunFolder, is_run, read_metrics
from litebert.tokenizer import Tokenizer, train_tokenizer
from litebert.train.checkpoint import RunProgress, average_checkpoints
from litebert.train.clock import MIN_STEPS, Clock
from litebert.train.completion import plan
from litebert.train.pretrain import pretrain
from litebert.train.sources import Sources, open_loader

from .conftest import Configure, EachStep, checkpoints_of


def _evaluations(run: Path) -> list[dict[str, float]]:
    return [row for row in read_metrics(run) if row["kind"] == "eval"]


@pytest.fixture(scope="module")
def trained(configure: Configure, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("long") / "run"
    pretrain(
        configure("train.save_every=2", "train.keep_every=6", "train.keep_best=true"),
        run,
        is_quiet=True,
    )
    return run


def test_pretraining_learns_words_and_order(
    tmp_path: Path, configure: Configure
) -> None:
    longer = (
        "train.steps=400 train.batch_size=16 train.eval_sequences=64"
        " train.eval_every=400 train.save_every=400 model.embedding_size=64"
        " model.hidden_size=64 model.intermediate_size=128 model.hidden_dropout_prob=0"
        " model.attention_probs_dropout_prob=0 optim.learning_rate=0.002"
        " optim.warmup_steps=0.2"
    )
    pretrain(configure(*longer.split()), tmp_path, is_quiet=True)
    before, after = _evaluations(tmp_path)
    assert after["masked_lm_accuracy"] > 1.5 * after["masked_lm_baseline"]
    assert (
        after["masked_lm_loss"] < before["masked_lm_loss"] - 1
        and after["sentence_order_accuracy"] > 0.8
    )


def test_bf16_trains_and_idle_heads_stay_out(
    stories: Path, corpus: Path, tmp_path: Path, configure: Configure
) -> None:
    (alone := tmp_path / "alone.txt").write_text(
        stories.read_text().replace("\n", "\n\n")
    )
    build_corpus(
        [alone],
        tokenizer=corpus / "tokenizer",
        output=tmp_path / "corpus",
        held_out=0.2,
        workers=1,
    )
    for word in ("objective.sentence=none", f"data.corpus={tmp_path / 'corpus'}"):
        run = tmp_path / word[:4]
        pretrain(
            configure(word, "train.precision=bf16", "train.keep_best=true"),
            run,
            is_quiet=True,
        )
        losses = [row["masked_lm_loss"] for row in _evaluations(run)]
        assert losses[-1] < losses[0]
        for model in (run / "model", run / "best", checkpoints_of(run)[-1]):
            assert litebert.load(model).verbs == ("fill", "score", "embed")


REFUSED = {
    "train.device=cuda:99": "LB-507",
    "data.eval_corpus=nowhere": "LB-3",
    "model.vocab_size=91": r"LB-515(?s:.*)the pieces of",
    "data.corpus=ALL": "LB-510",  # nothing is held out
    "objective.sentence=nxt": r"LB-107(?s:.*)did you mean next",
    "start.model=MODEL model.hidden_size=64": "LB-515",
    "start.optimizer=true": r"LB-104(?s:.*)start.model",
    "start.new_vocabulary=true": r"LB-104(?s:.*)start.model",
    "start.model=MODEL start.optimizer=true": "LB-516",
    "start.model=CHECKPOINT start.optimizer=true optim.name=muon": (
        r"LB-516(?s:.*)does not fit"
    ),
    "start.model=MODEL objective.max_seq_length=4096": "LB-519",
    "distil.teacher=MODEL train.micro_batch_size=2": r"LB-104(?s:.*)must be null",
    "distil.teacher=MODEL early.depth=1": r"LB-104(?s:.*)must be null",
}


@pytest.mark.parametrize("changes", REFUSED)
def test_impossible_settings_are_refused_before_work(
    tmp_path: Path,
    stories: Path,
    corpus: Path,
    trained: Path,
    configure: Configure,
    changes: str,
) -> None:
    if "ALL" in changes:
        build_corpus(
            [stories],
            tokenizer=corpus / "tokenizer",
            output=tmp_path / "ALL",
            sentences="line",
            workers=1,
        )
    words = (
        changes.replace("ALL", str(tmp_path / "ALL"))
        .replace("MODEL", str(trained / "model"))
        .replace("CHECKPOINT", str(checkpoints_of(trained)[-1]))
        .split()
    )
    with pytest.raises(LitebertError, match=REFUSED[changes]):
        pretrain(configure(*words), tmp_path / "run", is_quiet=True)
    # so that the corrected command may use the same name
    assert not is_run(tmp_path / "run")


def test_minutes_become_steps_once_and_a_run_uses_its_plans_measurement(
    tmp_path: Path, configure: Configure
) -> None:
    resolved = configure("train.minutes=0.05")
    planned, _ = plan(resolved, tmp_path)
    # More threads than any measurement chooses: the plan alone can have set them.
    train = planned.train.model_copy(update={"threads": torch.get_num_threads() + 1})
    measured = resolved.fill_measured(
        resolved.config.model_copy(update={"train": train})
    )
    assert pretrain(measured, tmp_path, is_quiet=True) == 0
    recorded = RunFolder(tmp_path).settings
    assert (recorded["train.threads"], recorded["train.steps"]) == (
        train.threads,
        train.steps,
    )
    assert train.steps >= 20
    before = (tmp_path / "metrics.jsonl").read_bytes()
    assert (
        pretrain(resolved, tmp_path, is_quiet=True) == 0
        and (tmp_path / "metrics.jsonl").read_bytes() == before
    )


def timed_run(
    planned: int, *, busy_from: int, seconds: float = 300.0, stop: int = 0
) -> tuple[list[float], float]:
    """Simulate a run with a time limit, resumed after step `stop`; return each step's
    position and the time spent.

    A step takes 0.5 s, from step `busy_from` on 2 s; the evaluation at the end takes 1
    s.
    """
    spent, places, progress, now = 0.0, list[float](), RunProgress(), lambda: spent
    clock = Clock(seconds, planned, ends=seconds, now=now)
    while progress.steps_left(planned):
        places.append(progress.position)
        spent += 2.0 if progress.step >= busy_from else 0.5
        progress.step = progress.step + 1
        progress.position = progress.position + progress.stride
        if progress.steps_left(planned):
            clock.adjust(progress, 1.0)
        if progress.step == stop:
            progress = RunProgress.model_validate_json(progress.model_dump_json())
            spent += 1_000  # between two processes no time is counted
            clock = Clock(
                seconds, planned, ends=spent + seconds - progress.seconds, now=now
            )
    return places, spent - (1_000 if stop else 0) + 1.0


@pytest.mark.parametrize("busy_from", [10_000, 300, 100, 0])
@pytest.mark.parametrize("planned", [150, 600, 5_000])
@pytest.mark.parametrize("stop", [0, 120])
def test_a_timed_run_ends_on_time_and_its_schedule_never_goes_back(
    busy_from: int, planned: int, stop: int
) -> None:
    places, spent = timed_run(planned, busy_from=busy_from, stop=stop)
    assert spent == pytest.approx(300, rel=0.1) and places == sorted(places)
    assert (places[0], places[-1]) == (0, pytest.approx(planned - 1, rel=0.02))


def test_a_timed_run_takes_some_steps_even_if_the_time_is_up() -> None:
    assert len(timed_run(400, busy_from=0, seconds=1.0)[0]) == MIN_STEPS


def test_a_timed_run_that_is_resumed_has_only_the_time_that_is_left(
    tmp_path: Path,
    configure: Configure,
    each_step: EachStep,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # five minutes pass at once
    left = list[float]()

    def later() -> float:
        return time.monotonic() + 300

    clock_of_run = Clock.of_run

    def observed(*arguments: Any) -> Clock:
        clock = clock_of_run(*arguments)
        assert clock is not None
        left.append(clock.ends - time.monotonic())
        clock.now = later
        return clock

    resolved = configure("train.minutes=10")
    train = resolved.config.train.model_copy(update={"steps": 900, "threads": 1})
    measured = resolved.fill_measured(
        resolved.config.model_copy(update={"train": train})
    )
    monkeypatch.setattr(Clock, "of_run", observed)
    each_step(lambda step: step % 3 or signal.raise_signal(signal.SIGTERM))
    assert [pretrain(measured, tmp_path, is_quiet=True) for _ in "ab"] == [
        128 + signal.SIGTERM
    ] * 2
    assert left[0] > 400 > 300 > left[1]


def test_the_result_holds_the_average_and_the_checkpoint_the_weights(
    tmp_path: Path, configure: Configure
) -> None:
    pretrain(configure("optim.average_decay=0.9"), tmp_path, is_quiet=True)
    state, weights = (
        load_file(checkpoints_of(tmp_path)[-1] / f"{n}.safetensors")
        for n in ("optimizer", "model")
    )
    result = load_file(tmp_path / "model/model.safetensors")
    name = "albert.encoder.embedding_hidden_mapping_in.weight"
    assert torch.equal(
        result[name], state["albert.embedding.projection.weight/average"]
    )
    assert not torch.equal(weights[name], result[name])


def test_the_newest_checkpoints_every_sixth_and_the_best_are_kept_and_averaged(
    trained: Path, tmp_path: Path
) -> None:
    kept = checkpoints_of(trained)
    assert [path.name[-2:] for path in kept] == ["06", "10", "12"]
    for model in (trained / "best", kept[1]):
        assert litebert.load(model).fill("In the [MASK] Anna walked.")
    assert average_checkpoints(trained, tmp_path / "mean", last=2) == [10, 12]
    one, two, mean = (
        read_folder(path).network.state_dict()
        for path in (*kept[1:], tmp_path / "mean")
    )
    for name, tensor in mean.items():
        assert torch.allclose(tensor, (one[name] + two[name]) / 2, atol=1e-7)
    assert average_checkpoints(trained, tmp_path / "one") == [12]
    with pytest.raises(LitebertError, match="LB-265"):
        average_checkpoints(trained, tmp_path / "many", last=4)


def test_training_starts_from_given_weights_and_on_request_from_the_optimizer_state(
    trained: Path, tmp_path: Path, configure: Configure
) -> None:
    start = checkpoints_of(trained)[-1]
    name = "albert.pooler.weight/adam_m"
    before = load_file(start / "optimizer.safetensors")[name]
    moments = {}
    for goes_on in ("true", "false"):
        words = [
            f"start.model={start}",
            f"start.optimizer={goes_on}",
            "train.steps=1",
            "train.save_every=1",
        ]
        pretrain(configure(*words), tmp_path / goes_on, is_quiet=True)
        begun = _evaluations(tmp_path / goes_on)[0]
        last = _evaluations(trained)[-1]
        assert begun["masked_lm_loss"] == pytest.approx(
            last["masked_lm_loss"], abs=1e-6
        )
        moments[goes_on] = load_file(
            checkpoints_of(tmp_path / goes_on)[-1] / "optimizer.safetensors"
        )[name]
    assert torch.dist(moments["true"], 0.9 * before) < torch.dist(
        moments["false"], 0.9 * before
    )
    pretrain(
        configure(f"start.model={trained / 'best'}", "train.steps=1"),
        tmp_path / "best",
        is_quiet=True,
    )
    accuracy, *_ = (
        row["masked_lm_accuracy"] for row in _evaluations(tmp_path / "best")
    )
    assert accuracy == pytest.approx(
        max(row["masked_lm_accuracy"] for row in _evaluations(trained))
    )


def test_pieces_that_two_vocabularies_share_keep_their_vectors(
    trained: Path, stories: Path, tmp_path: Path, configure: Configure
) -> None:
    lines = stories.read_text().replace("river", "valley").splitlines()
    Tokenizer.from_model(train_tokenizer(lines, vocab_size=85)).save(tmp_path / "other")
    settings = {
        "tokenizer": tmp_path / "other",
        "sentences": "line",
        "held_out": 0.2,
        "workers": 1,
    }
    build_corpus([stories], output=tmp_path / "corpus", **settings)
    words = [f"data.corpus={tmp_path / 'corpus'}", f"start.model={trained / 'model'}"]
    with pytest.raises(LitebertError, match="LB-514"):
        pretrain(configure(*words), tmp_path / "refused", is_quiet=True)
    further = configure(
        *words, "start.new_vocabulary=true", "train.steps=1", "optim.learning_rate=1e-9"
    )
    pretrain(further, tmp_path / "run", is_quiet=True)
    folders = (trained / "model", tmp_path / "run" / "model")
    former, new = map(Tokenizer.load, folders)
    old, table = (
        read_folder(folder).network.albert.embedding.word.weight for folder in folders
    )
    shared = set(former.pieces) & set(new.pieces)
    assert 60 < len(shared) < new.vocab_size
    for number, (piece, text) in enumerate(zip(new.pieces, new.texts, strict=True)):
        pieces = [former.id(piece)] if piece in shared else former.encode(text).ids
        assert torch.allclose(table[number], old[pieces].mean(0), atol=1e-6)


def test_the_first_steps_may_mask_another_share_of_the_tokens(
    configure: Configure, corpus: Path
) -> None:
    early = ("early.mask_prob=0.4", "early.mask_share=0.25", "train.steps=12")
    loader = open_loader(corpus, config=configure(*early).config)
    batches = [loader.batch(step) for step in range(12)]
    shares = [len(batch.masked_ids) / len(batch.ids) for batch in batches]
    assert shares[:3] == pytest.approx([0.4] * 3, abs=0.03)
    assert shares[3:] == pytest.approx([0.15] * 9, abs=0.03)


def test_each_of_the_corpora_gives_every_sample_once_and_exactly_its_share(
    corpus: Path, configure: Configure
) -> None:
    mix = MixLoader([], [5, 3, 2], batch_size=4, seed=1)
    corpora, numbers = mix.places(0, 2 * CYCLE)
    assert np.bincount(corpora).tolist() == [10_000, 6_000, 4_000]
    for number, count in enumerate((10_000, 6_000, 4_000)):
        assert numbers[corpora == number].tolist() == list(range(count)), (
            "in order: an epoch is planned once"
        )
    with pytest.raises(LitebertError, match="LB-268"):
        counts_in_cycle([1e9, 1.0])
    data = (
        f'data.mix=["{corpus / "held-out"}"]',
        "data.weights=[2, 1]",
        f"data.eval_corpus={corpus}",
    )
    config = configure(*data, "train.batch_size=7").config
    first, again = (open_loader(corpus, config=config) for _ in range(2))
    whole = first.batch(5)
    parts = [first.batch(5, rank=rank, world_size=3) for rank in range(3)]
    assert np.array_equal(np.concatenate([part.ids for part in parts]), whole.ids)
    assert np.array_equal(again.batch(5).ids, whole.ids)
    lengths = np.concatenate([np.diff(first.batch(step).offsets) for step in range(60)])
    sources = Sources.open(config)
    assert sources.mean_length(config) == pytest.approx(lengths.mean(), rel=0.2)
    assert (
        sources.describe()["held-out tokens"]
        == Corpus.open(corpus).manifest.counts.tokens
    )
