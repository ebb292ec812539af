"""The harness that every family of tasks passes: save, train, evaluate, predict, report."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from litebert.config import AlbertConfig, OptimConfig, TrainConfig
from litebert.folder import load_model, save_model
from litebert.nn import AlbertForTask
from litebert.optim import build_optimizer
from litebert.tasks.finetuning import Finetuning, LabelledSet, answer
from litebert.tasks.kinds.family import Family
from litebert.tokenizer import Tokenizer, train_tokenizer
from litebert.train.loop import training_step

Write = Callable[[str, bytes | str], Path]
STORY = "Anna took a red ball to the river in the morning."


def tiny(tokenizer: Tokenizer) -> AlbertConfig:
    sizes = {"embedding_size": 8, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    return AlbertConfig(vocab_size=tokenizer.vocab_size, intermediate_size=32, **sizes)


@pytest.fixture(scope="session")
def small_tokenizer() -> Tokenizer:
    return Tokenizer.from_model(train_tokenizer(STORY.split() * 20, vocab_size=30))


def pass_harness(
    family: Family[Any, Any], examples: Sequence[Any], tokenizer: Tokenizer, folder: Path
) -> dict[str, float]:
    """Train, save, load, answer, measure and report; give the measures."""
    network = trained(family, examples, tokenizer)
    save_model(network, folder)
    loaded = load_model(folder).network
    assert isinstance(loaded, AlbertForTask)
    assert loaded.head_config == family.head
    features = family.features(examples, tokenizer, max_length=32, training=False)
    assert {feature.example for feature in features} == set(range(len(examples)))
    answers = answer(loaded, family, examples, features)
    measures = family.measures(examples, answers)
    assert all(isinstance(value, float) for value in measures.values())
    constant = family.constant(examples, examples)
    assert family.measures(examples, constant).keys() == measures.keys()
    rows = family.rows(examples, answers)
    assert [row.id for row in rows] == [example.id for example in examples]
    assert all(row.expected is not None and 0 <= (row.confidence or 0) <= 1 + 1e-9 for row in rows)
    averaged = [family.averaged([each, each]) for each in answers]
    assert [row.answer for row in family.rows(examples, averaged)] == [r.answer for r in rows]
    assert all(family.texts(example)[0] for example in examples)
    return measures


def trained(family: Family[Any, Any], examples: Sequence[Any], tokenizer: Tokenizer) -> AlbertForTask:
    """Train a tiny network for one step in two micro-batches, then evaluate it."""
    network = AlbertForTask(tiny(tokenizer), family.head, generator=torch.Generator().manual_seed(0))
    features = family.features(examples, tokenizer, max_length=32, training=True)
    encoded = family.features(examples, tokenizer, max_length=32, training=False)
    held_out = {"dev": LabelledSet(examples, encoded)}
    train = TrainConfig(steps=1, batch_size=4, micro_batch_size=2)
    task = Finetuning(network, family, features=features, held_out=held_out, train=train)
    optimizer = build_optimizer(OptimConfig(name="adamw"), network.named_parameters())
    before = [parameter.detach().clone() for parameter in network.parameters()]
    (works,) = task.batches(0, 1)
    training_step(task, works, optimizer, step=0, learning_rate=1e-3, clip_norm=1.0, seed=1)
    changed = zip(before, network.parameters(), strict=True)
    assert any(not torch.equal(old, new) for old, new in changed)
    assert task.evaluate()
    return network
