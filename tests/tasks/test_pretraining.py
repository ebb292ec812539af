"""The task of pretraining: losses equal to those of transformers, in micro-batches of
any size, and what an evaluation counts.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AlbertForPreTraining

from litebert.config import AlbertConfig, TrainConfig
from litebert.device import choose_device
from litebert.folder import ModelFolder, write_folder
from litebert.folder.names import tensor_names
from litebert.nn import AlbertForPretraining
from litebert.objectives import NO_LABEL, PretrainingBatch
from litebert.tasks.pretraining import Pretraining, micro_batches
from litebert.tasks.task import Loss
from tests.networks import drawn

CONFIG = AlbertConfig(
    vocab_size=50,
    embedding_size=12,
    hidden_size=24,
    num_hidden_layers=3,
    num_attention_heads=3,
    intermediate_size=40,
)
# two sequences, of 6 and 8 pieces
BATCH = PretrainingBatch(
    ids=np.array([2, 7, 4, 3, 9, 3, 2, 4, 8, 3, 5, 6, 7, 3]),
    positions=np.array([0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 6, 7]),
    segments=np.array([0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1]),
    offsets=np.array([0, 6, 14]),
    masked_positions=np.array([2, 4, 7, 12]),
    masked_ids=np.array([30, 9, 31, 32]),
    sentence_labels=np.array([0, 1]),
)
NOTHING = np.empty(0, np.int64)
WITHOUT_MASKED = replace(BATCH, masked_positions=NOTHING, masked_ids=NOTHING)
IGNORED = -100  # the label that transformers does not count


@pytest.fixture
def network() -> AlbertForPretraining:
    network = drawn(AlbertForPretraining(CONFIG))
    assert isinstance(network, AlbertForPretraining)
    return network.train()


def task_on(network: AlbertForPretraining, batch: PretrainingBatch) -> Pretraining:
    return Pretraining(network, held_out=[batch], train=TrainConfig())


@pytest.fixture
def task(network: AlbertForPretraining) -> Pretraining:
    return task_on(network, BATCH)


def losses(
    task: Pretraining, batch: PretrainingBatch = BATCH, size: int | None = None
) -> list[Loss]:
    """Return the loss of each micro-batch of so many sequences."""
    return [
        task.loss(work) for work in micro_batches(batch, size, choose_device("cpu"))
    ]


# ---- the loss ------------------------------------------------------------------------


def padded_inputs(orders: Sequence[int]) -> dict[str, Tensor]:
    """Return the batch as transformers reads it: a row for each sequence, padded."""
    lengths = np.diff(BATCH.offsets)
    shape = (len(lengths), int(lengths.max()))
    inputs = {
        "input_ids": torch.zeros(shape, dtype=torch.int64),
        "token_type_ids": torch.zeros(shape, dtype=torch.int64),
        "attention_mask": torch.zeros(shape, dtype=torch.int64),
        "labels": torch.full(shape, IGNORED),
    }
    for row, length in enumerate(lengths):
        sequence = slice(BATCH.offsets[row], BATCH.offsets[row + 1])
        inputs["input_ids"][row, :length] = torch.from_numpy(BATCH.ids[sequence])
        segments = torch.from_numpy(BATCH.segments[sequence])
        inputs["token_type_ids"][row, :length] = segments
        inputs["attention_mask"][row, :length] = 1
    for position, label in zip(BATCH.masked_positions, BATCH.masked_ids, strict=True):
        row = int(position >= BATCH.offsets[1])
        inputs["labels"][row, position - BATCH.offsets[row]] = int(label)
    order_labels = [IGNORED if order == NO_LABEL else order for order in orders]
    return inputs | {"sentence_order_label": torch.tensor(order_labels)}


@pytest.mark.parametrize("orders", [[0, 1], [NO_LABEL, 1]])
def test_loss_and_gradients_equal_those_of_transformers(
    task: Pretraining, tmp_path: Path, orders: list[int]
) -> None:
    (loss,) = losses(task, replace(BATCH, sentence_labels=np.array(orders)))
    loss.total.backward()

    write_folder(ModelFolder(task.network), tmp_path)
    reference = AlbertForPreTraining.from_pretrained(tmp_path).eval()
    expected = reference(**padded_inputs(orders)).loss
    expected.backward()

    assert loss.total.item() == pytest.approx(expected.item(), abs=1e-4)
    gradients = {name: p.grad for name, p in reference.named_parameters()}
    for name, parameter in task.network.named_parameters():
        (reference_name,) = tensor_names(name, CONFIG)
        gradient = gradients[reference_name]
        if reference_name.endswith("word_embeddings.weight"):
            # transformers never trains the row of <pad>
            gradient[0] = parameter.grad[0]
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("size", [1, 2])
def test_shares_of_micro_batches_add_up(task: Pretraining, size: int) -> None:
    (whole,) = losses(task)
    parts = losses(task, size=size)
    torch.testing.assert_close(sum(loss.total for loss in parts), whole.total)
    torch.testing.assert_close(sum(loss.sums for loss in parts), whole.sums)


def test_a_micro_batch_without_masked_words_still_has_its_sentence_loss(
    task: Pretraining,
) -> None:
    (loss,) = losses(task, WITHOUT_MASKED)
    loss.total.backward()
    assert loss.total.isfinite()
    assert task.network.sentence_order.classifier.weight.grad.abs().sum() > 0


# ---- evaluation ----------------------------------------------------------------------


def test_an_evaluation_leaves_the_network_in_training(task: Pretraining) -> None:
    task.evaluate()
    assert task.network.training


def test_evaluation_reports_the_share_of_the_most_common_token(
    network: AlbertForPretraining,
) -> None:
    repeated = replace(BATCH, masked_ids=np.array([9, 30, 9, 9]))
    assert task_on(network, BATCH).evaluate()["masked_lm_baseline"] == 0.25
    assert task_on(network, repeated).evaluate()["masked_lm_baseline"] == 0.75


def test_without_masked_tokens_no_token_is_the_most_common(
    network: AlbertForPretraining,
) -> None:
    """As in a text of words that are longer than the share to mask."""
    assert task_on(network, WITHOUT_MASKED).evaluate()["masked_lm_baseline"] == 0


def test_evaluation_counts_the_pairs_that_have_an_order(
    network: AlbertForPretraining,
) -> None:
    # a document of one sentence has no order
    with_single = replace(BATCH, sentence_labels=np.array([NO_LABEL, 1]))
    assert task_on(network, BATCH).evaluate()["sentence_order_pairs"] == 2
    assert task_on(network, with_single).evaluate()["sentence_order_pairs"] == 1
