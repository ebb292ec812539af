"""The head that reads text vectors: its inputs, for which models it is chosen, and how
it is trained.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from litebert.config import AlbertConfig, FinetuneConfig, HeadConfig
from litebert.folder import ModelFolder, SentenceVectors, write_folder
from litebert.folder.vector_files import write_sentence_transformers
from litebert.inference.finetuned import Finetuned, measure_split
from litebert.nn import AlbertForPretraining, AlbertForTask, Batch
from litebert.optim import build_optimizer
from litebert.runs import RunFolder
from litebert.settings import resolve, settings_from_words
from litebert.tokenizer import Tokenizer
from litebert.train.finetune import finetune
from litebert.train.preparation import Prepared, prepare
from tests.tables import csv_text

SHAPE = AlbertConfig(
    vocab_size=90,
    embedding_size=16,
    hidden_size=32,
    num_attention_heads=4,
    num_hidden_layers=2,
)

# ---- what the head reads -------------------------------------------------------------


def mean_of(states: Tensor) -> Tensor:
    """Return the normed mean of a text's hidden states, (tokens, 32) to (32,)."""
    return torch.nn.functional.layer_norm(states.mean(0), (32,))


@pytest.fixture
def network() -> AlbertForTask:
    head = HeadConfig(kind="vector-classification", labels=("no", "yes"))
    generator = torch.Generator().manual_seed(1)
    return AlbertForTask(SHAPE, head, generator=generator).eval()


def test_a_text_is_read_as_its_mean(network: AlbertForTask) -> None:
    batch = Batch.from_lists([[2, 7, 8, 3]])
    mean = mean_of(network.albert(batch))
    features = torch.cat([mean, torch.zeros(64)])
    expected = network.head.dense(features[None])
    torch.testing.assert_close(network(batch), expected, rtol=0, atol=1e-5)


def test_a_pair_is_read_as_its_mean_and_how_its_two_means_differ(
    network: AlbertForTask,
) -> None:
    batch = Batch.from_lists([[2, 7, 3, 9, 10, 3]], [[0, 0, 0, 1, 1, 1]])
    states = network.albert(batch)
    first = mean_of(states[:3])
    second = mean_of(states[3:])
    features = torch.cat([mean_of(states), (first - second).abs(), first * second])
    expected = network.head.dense(features[None])
    torch.testing.assert_close(network(batch), expected, rtol=0, atol=1e-5)


# ---- when it is chosen, and how it is trained ----------------------------------------

PAIRS_OF_VERBS = (
    ("slept", "slept", "same"),
    ("walked", "slept", "other"),
    ("sang", "sang", "same"),
    ("sang", "walked", "other"),
)
Plan = Callable[..., Prepared]


def pairs_of_sentences() -> str:
    """Return a table of twelve pairs, labeled by whether they say the same."""
    rows = [("text", "second", "label")]
    for name in ("Anna", "Bert", "Clara"):
        for first, second, label in PAIRS_OF_VERBS:
            rows.append((f"{name} {first}.", f"{name} {second}.", label))
    return csv_text(rows)


@pytest.fixture
def plan(corpus: Path, tmp_path: Path) -> Plan:
    """Return a function that prepares a run on pairs, by default from a model with text
    vectors.
    """
    pairs = tmp_path / "pairs.csv"
    pairs.write_text(pairs_of_sentences(), "utf-8")

    start = tmp_path / "start"
    tokenizer = Tokenizer.load(corpus / "tokenizer")
    shape = SHAPE.model_copy(update={"vocab_size": tokenizer.vocab_size})
    generator = torch.Generator().manual_seed(2)
    pretrained = AlbertForPretraining(shape, generator=generator)
    write_folder(ModelFolder(pretrained), start)
    tokenizer.save(start)

    def prepared(*words: str, pooling: str | None = "mean") -> Prepared:
        if pooling is not None:
            vectors = SentenceVectors(pooling, normalize=True)
            write_sentence_transformers(start, vectors, shape)
        settings = [
            "task.name=table",
            f"data.train={pairs}",
            f"data.dev={pairs}",
            f"model.start={start}",
            "train.precision=fp32",
            "train.batch_size=8",
            *words,
        ]
        resolved = resolve(FinetuneConfig, settings_from_words(settings))
        return prepare(resolved, tmp_path / "run")

    return prepared


@pytest.mark.parametrize(
    ("pooling", "words"),
    [
        pytest.param("mean", (), id="of the start"),
        pytest.param(None, ("model.pooling=mean",), id="asked for"),
    ],
)
def test_a_model_whose_vectors_are_means_gets_the_head_that_reads_them(
    plan: Plan, pooling: str | None, words: tuple[str, ...]
) -> None:
    prepared = plan(*words, pooling=pooling)
    assert prepared.dataset.family.head.kind == "vector-classification"
    assert prepared.config.model.pooling == "mean"
    # it starts from a regression, so it needs no higher rate
    assert prepared.fits_head
    assert prepared.config.optim.bias_correction is True
    assert prepared.config.optim.head_rate_scale == 1


@pytest.mark.parametrize(
    ("pooling", "words"),
    [
        pytest.param(None, (), id="no vectors"),
        pytest.param("cls", (), id="other vectors"),
        pytest.param("mean", ("model.pooling=cls",), id="asked for"),
    ],
)
def test_every_other_model_gets_the_head_on_the_first_token(
    plan: Plan, pooling: str | None, words: tuple[str, ...]
) -> None:
    prepared = plan(*words, pooling=pooling)
    assert prepared.dataset.family.head.kind == "sequence-classification"
    assert prepared.config.model.pooling == "cls"
    assert not prepared.fits_head
    assert prepared.config.optim.bias_correction is None
    assert prepared.config.optim.head_rate_scale == 1


def test_the_rate_of_the_head_is_scaled_for_the_head_alone(plan: Plan) -> None:
    prepared = plan("optim.head_rate_scale=3")
    network = prepared.network()
    optimizer = build_optimizer(
        prepared.config.optim,
        network.named_parameters(),
        head_scale=prepared.config.optim.head_rate_scale,
    )
    faster = set[int]()
    for group in optimizer.param_groups:
        if group["rate_scale"] == 3:
            faster.update(map(id, group["params"]))
    assert faster == set(map(id, network.head.parameters()))


LEARNING = ("train.steps=60", "optim.learning_rate=1e-3", "optim.head_rate_scale=3")


def test_a_head_that_reads_vectors_learns_and_its_model_starts_another_run(
    plan: Plan, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert finetune(plan(*LEARNING).resolved, run, is_quiet=True) == 0
    outcome = RunFolder(run).outcome
    measures = outcome.of_model.values
    assert measures["accuracy"] > outcome.baseline["accuracy"]

    opened = Finetuned.open(run)
    measures_again, _, _ = measure_split([opened], tmp_path / "pairs.csv", "dev")
    assert measures_again == measures

    next_run = plan(f"model.start={run / 'model'}", pooling=None)
    assert next_run.dataset.family.head.kind == "vector-classification"
