"""Pretraining: loss and gradients are those of transformers, also in pieces; some heads begin by reading neighbours."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from transformers import AlbertForPreTraining

from litebert.config import AlbertConfig, TrainConfig, preset
from litebert.folder import save_model
from litebert.folder.names import tensor_names
from litebert.nn import Albert, AlbertForPretraining, Batch
from litebert.objectives import PretrainingBatch
from litebert.tasks import pretraining
from litebert.tasks.pretraining import OFFSETS, Loss, Pretraining, masked_loss, micro_batches, num_local_heads

CONFIG = AlbertConfig(
    vocab_size=50, embedding_size=12, hidden_size=24, num_hidden_layers=3, num_attention_heads=3, intermediate_size=40
)
BATCH = PretrainingBatch(
    ids=np.array([2, 7, 4, 3, 9, 3, 2, 4, 8, 3, 5, 6, 7, 3]),
    positions=np.array([0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 6, 7]),
    segments=np.array([0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1]),
    offsets=np.array([0, 6, 14]),
    masked_positions=np.array([2, 4, 7, 12]),
    masked_ids=np.array([30, 9, 31, 32]),
    sentence_labels=np.array([0, 1]),
)


@pytest.fixture
def task() -> Pretraining:
    network = AlbertForPretraining(CONFIG)
    generator = torch.Generator().manual_seed(0)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.2, generator=generator)
    return Pretraining(network, held_out=[BATCH], train=TrainConfig())


def losses(task: Pretraining, batch: PretrainingBatch = BATCH, size: int | None = None) -> list[Loss]:
    return [task.loss(work) for work in micro_batches(batch, size, torch.device("cpu"))]


def test_loss_and_gradients_equal_those_of_transformers(task: Pretraining, tmp_path: Path) -> None:
    (loss,) = losses(task)
    loss.total.backward()
    save_model(task.network, tmp_path)
    theirs = AlbertForPreTraining.from_pretrained(tmp_path).eval()
    ids, segments, mask = torch.zeros(3, 2, 8, dtype=torch.int64).unbind(0)
    labels = torch.full((2, 8), -100)
    for row, (start, stop) in enumerate([(0, 6), (6, 14)]):
        ids[row, : stop - start] = torch.from_numpy(BATCH.ids[start:stop])
        segments[row, : stop - start] = torch.from_numpy(BATCH.segments[start:stop])
        mask[row, : stop - start] = 1
    for position, label in zip(BATCH.masked_positions, BATCH.masked_ids, strict=True):
        labels[int(position >= 6), position - 6 * int(position >= 6)] = int(label)
    given = {"attention_mask": mask, "token_type_ids": segments, "labels": labels}
    expected = theirs(ids, **given, sentence_order_label=torch.from_numpy(BATCH.sentence_labels)).loss
    expected.backward()
    assert loss.total.item() == pytest.approx(expected.item(), abs=1e-4)
    gradients = {name: p.grad for name, p in theirs.named_parameters()}
    for name, parameter in task.network.named_parameters():
        (their_name,) = tensor_names(name, CONFIG)
        if their_name.endswith("word_embeddings.weight"):
            gradients[their_name][0] = parameter.grad[0]  # transformers never trains the row of <pad>
        torch.testing.assert_close(parameter.grad, gradients[their_name], rtol=1e-3, atol=1e-5)


def test_shares_of_micro_batches_add_up(task: Pretraining) -> None:
    (whole,) = losses(task)
    for size in (1, 2):
        parts = losses(task, size=size)
        torch.testing.assert_close(sum(loss.total for loss in parts), whole.total)
        torch.testing.assert_close(sum(loss.sums for loss in parts), whole.sums)


def test_a_micro_batch_without_masked_words_still_has_its_sentence_loss(task: Pretraining) -> None:
    unmasked = replace(BATCH, masked_positions=BATCH.masked_positions[:0], masked_ids=BATCH.masked_ids[:0])
    (loss,) = losses(task, unmasked)
    loss.total.backward()
    assert loss.total.isfinite()
    assert task.network.sentence_order.classifier.weight.grad.abs().sum() > 0


def test_evaluation_reports_the_share_of_the_commonest_token(task: Pretraining) -> None:
    assert task.evaluate()["masked_lm_baseline"] == 0.25
    assert task.network.training


# The loss in pieces is the loss of the whole, and so is its gradient


def drawn(rows: int, vocab: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows)
    return 3 * torch.randn(rows, vocab, generator=generator), torch.randint(vocab, (rows,), generator=generator)


@pytest.mark.parametrize("rows", [1, 32, 33, 100])
def test_bf16_loss_and_gradient_are_those_of_a_float32_copy(rows: int) -> None:
    numbers, labels = drawn(rows, 500)
    assert torch.equal(masked_loss(numbers, labels), F.cross_entropy(numbers, labels, reduction="sum"))
    ours, theirs = (numbers.bfloat16().requires_grad_() for _ in range(2))
    loss = masked_loss(ours, labels) / rows
    expected = F.cross_entropy(theirs.float(), labels, reduction="sum") / rows
    loss.backward()
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=2e-2, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_correct_answers_are_counted_as_argmax_does_ties_included(dtype: torch.dtype) -> None:
    logits, labels = drawn(300, 8)
    logits = (logits / 2).round().to(dtype)  # many equal logits
    assert pretraining._correct(logits, labels) == (logits.argmax(-1) == labels).sum()
    assert pretraining._correct(logits[:0], labels[:0]) == 0


# Some heads begin by looking at their neighbours, whatever the words are


def begun(config: AlbertConfig, seed: int = 1) -> Albert:
    albert = Albert(config, generator=torch.Generator().manual_seed(0))
    pretraining.attend_locally(albert, seed=seed)
    return albert


@pytest.mark.parametrize("name", ["tiny", "mini", "small"])
def test_each_local_head_looks_at_its_offset(name: str) -> None:
    config = preset(name).model_copy(update={"vocab_size": 500})
    albert = begun(config)
    ids = torch.randint(5, 500, (64,), generator=torch.Generator().manual_seed(3))
    hidden = next(albert.states(Batch.from_lists([ids.tolist()])))[:64]
    block = albert.attention[0]
    shape = (64, config.num_attention_heads, config.head_size)
    query, key = (p(hidden).view(shape).transpose(0, 1) for p in (block.query, block.key))
    attention = (query @ key.transpose(1, 2) * config.head_size**-0.5).softmax(-1)
    for head, offset in enumerate(OFFSETS[: num_local_heads(config.num_attention_heads)]):
        at_offset = attention[head].diagonal(offset)[8:48]
        assert at_offset.median() > 0.5, (name, head, offset)
    free = attention[num_local_heads(config.num_attention_heads) :]
    assert free.max() < 0.2


SHAPES = [{"embedding_size": 64}, {"embedding_size": 128}, {"sharing": "none"}]
SHAPES += [{"num_attention_heads": 1}, {"num_attention_heads": 32}]


@pytest.mark.parametrize("changes", SHAPES, ids=str)
def test_any_shape_can_begin_so_and_the_seed_says_how(changes: dict[str, object]) -> None:
    sizes = {"vocab_size": 50, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = AlbertConfig(**sizes, intermediate_size=64).model_copy(update=changes)
    ours, again, other = (begun(config, seed).state_dict() for seed in (1, 1, 2))
    assert all(tensor.isfinite().all() and torch.equal(tensor, again[name]) for name, tensor in ours.items())
    assert not torch.equal(ours["embedding.position.weight"], other["embedding.position.weight"])
