"""A plan times what the run will compute."""

from pathlib import Path

import pytest

from litebert.objectives import NO_LABEL
from litebert.tasks.heads import PretrainingWork
from litebert.train import estimate
from litebert.train.completion import plan
from litebert.train.sources import Sources
from tests.train.conftest import Configure

Probes = list[PretrainingWork]


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> Probes:
    """Collect the sequences that are timed."""
    seen = Probes()
    measure = estimate.measure_needs

    def watched(task, config, small, large, **sizes):
        seen.extend((small, large))
        return measure(task, config, small, large, **sizes)

    monkeypatch.setattr(estimate, "measure_needs", watched)
    return seen


def test_a_plan_times_sequences_of_the_corpus(
    configure: Configure, tmp_path: Path, probes: Probes
) -> None:
    resolved = configure("objective.short_seq_prob=0.9", "objective.max_seq_length=256")
    config, needs = plan(resolved, tmp_path / "run")
    small, large = probes
    lengths = large.batch.lengths
    drawn = Sources.open(config).draw(config, len(lengths))
    assert large.batch.ids.tolist() == drawn.ids.tolist()
    assert large.masked_ids.tolist() == drawn.masked_ids.tolist()
    assert len(set(lengths)) > 1  # made-up ones have one length
    assert small.batch.lengths == lengths[: len(lengths) // 2]
    assert large.sentence_labels is not None
    assert set(large.sentence_labels.tolist()) <= {0, 1, NO_LABEL}
    assert needs.seconds_per_step > 0 and needs.memory_bytes > 0


def test_a_plan_without_a_corpus_times_sequences_of_the_mean_length(
    configure: Configure, tmp_path: Path, probes: Probes
) -> None:
    _, needs = plan(configure(), tmp_path / "run", vocab_size=200)
    small, large = probes
    # 48 tokens, but a tenth of the sequences are shorter
    assert set(large.batch.lengths) == {45}
    assert 2 * len(small.batch.lengths) == len(large.batch.lengths)
    assert needs.seconds_per_step > 0 and needs.memory_bytes > 0


def test_a_run_by_the_clock_times_sequences_of_the_corpus_too(
    configure: Configure, tmp_path: Path, probes: Probes
) -> None:
    resolved = configure(
        "train.minutes=0.05",
        "objective.short_seq_prob=0.9",
        "objective.max_seq_length=256",
    )
    config, needs = plan(resolved, tmp_path / "run")
    _, large = probes
    assert len(set(large.batch.lengths)) > 1
    assert config.train.steps is not None and config.train.steps > 1
    assert needs.seconds_per_step > 0
