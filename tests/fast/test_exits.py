"""Fewer steps for all, or for those that need no more: what is skipped changes nothing else."""

import pytest
import torch

from litebert.config import AlbertConfig, HeadConfig
from litebert.errors import LitebertError
from litebert.fast import AlbertWithExits, calibrate, limit_depth, pack, patient_logits, to_int8
from litebert.fast.exits import SAME_SCORE, is_same_answer, logits_by_step
from litebert.fast.steps import Engine, engine_of
from litebert.nn import AlbertForTask, Batch

STEPS = 5
LENGTHS = (9, 4, 13, 1, 7, 4, 20, 11, 2, 16, 5, 3)
SINGLE, SEVERAL = "single_label_classification", "multi_label_classification"
LABELS = {SINGLE: ("a", "b", "c"), SEVERAL: ("a",), "regression": ("score",)}
IDS = torch.randint(1, 60, (sum(LENGTHS),), generator=torch.Generator().manual_seed(0))
BATCH = Batch.from_lists([each.tolist() for each in IDS.split(LENGTHS)])


def _network(problem: str = SINGLE, kind: str = "plain", *, has_exits: bool = True) -> AlbertForTask:
    """Return a network whose classifiers disagree on some sequences and agree on others."""
    head = HeadConfig(kind="sequence-classification", labels=LABELS[problem], problem_type=problem)
    sizes = {"vocab_size": 60, "embedding_size": 16, "hidden_size": 32, "num_attention_heads": 4}
    config = AlbertConfig(**sizes, intermediate_size=64, num_hidden_layers=STEPS, max_position_embeddings=32)
    dtype = torch.bfloat16 if kind == "bf16" else torch.float32
    network = (AlbertWithExits if has_exits else AlbertForTask)(config, head, dtype=dtype).eval()
    draws = torch.Generator().manual_seed(2)
    for name, parameter in network.named_parameters():
        if parameter.ndim > 1:
            std = 2.0 if "embedding" in name else 0.05 if "dense" in name else 0.4
            torch.nn.init.normal_(parameter, std=std, generator=draws)
    if kind == "int8":
        to_int8(network, calibrate(network.albert, [BATCH]))
    if kind != "plain":
        pack(network.albert)
    return network


def _stops(by_step: list[torch.Tensor], patience: int, problem: str = SINGLE) -> list[int]:
    """Return the step after which each sequence stops, by the words of the paper, one by one."""
    found = []
    for number in range(len(by_step[0])):
        counter = 0
        for step in range(1, len(by_step)):
            pair = (by_step[step - 1][number : number + 1], by_step[step][number : number + 1])
            counter = counter + 1 if is_same_answer(*pair, problem) else 0
            if counter == patience:
                break
        found.append(step)
    return found


def _at(by_step: list[torch.Tensor], stops: list[int]) -> torch.Tensor:
    return torch.stack([by_step[step][number] for number, step in enumerate(stops)])


@torch.no_grad()
def test_the_head_at_the_limit_or_the_only_one_answers_whatever_the_patience() -> None:
    network, single = _network(), _network(has_exits=False)
    by_step, states = logits_by_step(network, BATCH), list(single.albert.states(BATCH))
    assert len(by_step) == STEPS
    for depth in range(1, STEPS + 1):
        limit_depth(network, depth)
        torch.testing.assert_close(network(BATCH), by_step[depth - 1], rtol=0, atol=1e-5)
        torch.testing.assert_close(patient_logits(network, BATCH, depth + 1), network(BATCH), rtol=0, atol=1e-5)
        limit_depth(single, depth)
        expected = single.head(single.albert.pool(states[depth][BATCH.first_tokens]))
        torch.testing.assert_close(single(BATCH), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("problem", LABELS)
@pytest.mark.parametrize("patience", [1, 2, 3, STEPS - 1, 100])
@torch.no_grad()
def test_every_sequence_stops_where_the_paper_says(patience: int, problem: str) -> None:
    network = _network(problem)
    by_step = logits_by_step(network, BATCH)
    stops = _stops(by_step, patience, problem)
    expected = _at(by_step, stops)
    assert (len(set(stops)) > 1) == (patience < 4)  # some go on without the others
    torch.testing.assert_close(patient_logits(network, BATCH, patience), expected, rtol=0, atol=1e-5)
    pack(network.albert)
    torch.testing.assert_close(patient_logits(network, BATCH, patience), expected, rtol=0, atol=1e-5)
    for number in range(len(LENGTHS)):  # alone it is answered as in the batch
        rows = slice(*BATCH.offsets[number : number + 2].tolist())
        alone = patient_logits(network, Batch.from_lists([BATCH.ids[rows].tolist()]), patience)
        torch.testing.assert_close(expected[number : number + 1], alone, rtol=0, atol=1e-5)


@torch.no_grad()
def test_tokens_of_what_has_stopped_are_computed_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    network, seen = _network(), []
    stops = _stops(logits_by_step(network, BATCH), 1)
    steps = [
        lambda hidden, layout, step=step: (seen.append(layout), step(hidden, layout))[1]
        for step in engine_of(network.albert).steps(network.albert)
    ]
    monkeypatch.setattr(Engine, "steps", lambda *_: steps)
    patient_logits(network, BATCH, 1)
    for step, layout in enumerate(seen):
        assert layout.batch.lengths == tuple(n for n, stop in zip(LENGTHS, stops, strict=True) if stop >= step)
    assert len(seen) == max(stops) + 1


@pytest.mark.parametrize("kind", ["bf16", "int8"])
@torch.no_grad()
def test_half_precision_and_eight_bits_stop_too(kind: str) -> None:
    network = _network(kind=kind)
    by_step, found = logits_by_step(network, BATCH), patient_logits(network, BATCH, 2)
    assert found.dtype == torch.float32
    assert (found - _at(by_step, _stops(by_step, 2))).abs().median() < 0.02


def test_what_counts_as_the_same() -> None:
    before, after = torch.tensor([[1.0, 2.0], [1.0, -2.0]]), torch.tensor([[1.5, 1.6], [3.0, 4.0]])
    assert is_same_answer(before, after, SINGLE).tolist() == [True, False]
    assert is_same_answer(before, after, SEVERAL).tolist() == [True, False]
    scores = torch.tensor([[1.0], [1.0]])
    moved = scores + torch.tensor([[0.9 * SAME_SCORE], [-1.1 * SAME_SCORE]])
    assert is_same_answer(scores, moved, "regression").tolist() == [True, False]


def test_a_depth_or_patience_that_cannot_be_is_refused() -> None:
    for depth in (0, -1, STEPS + 1):
        with pytest.raises(LitebertError, match=rf"LB-452[\s\S]*1 to {STEPS}"):
            limit_depth(_network(), depth)
    with pytest.raises(LitebertError, match="LB-453"):
        patient_logits(_network(), BATCH, 0)
