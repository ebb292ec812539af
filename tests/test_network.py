"""The network: its blocks, sizes, initial weights and depth (tests/folder compares its
outputs with transformers); and the head that reads text vectors: its inputs, and for
which models it is chosen.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from litebert.api.sizes import sizes_of
from litebert.config import PRESETS, AlbertConfig, FinetuneConfig, HeadConfig
from litebert.errors import LitebertError
from litebert.folder import (
    ModelFolder,
    SentenceVectors,
    write_folder,
)
from litebert.folder.vectors import write_sentence_transformers
from litebert.inference.finetuned import Finetuned, measure_split
from litebert.nn import Albert, AlbertForPretraining, AlbertForTask, Batch, depth_plan
from litebert.optim import build_optimizer
from litebert.runs import RunFolder
from litebert.settings import resolve, settings_from_words
from litebert.tokenizer import Tokenizer
from litebert.train.finetune import finetune
from litebert.train.preparation import Prepared, prepare

SIZES = {
    "vocab_size": 60,
    "embedding_size": 12,
    "hidden_size": 24,
    "num_hidden_layers": 4,
    "num_attention_heads": 3,
}
SMALL = AlbertConfig(**SIZES, intermediate_size=40, max_position_embeddings=32)


def test_every_preset_has_the_parameters_that_sizes_prints() -> None:
    for name, config in PRESETS.items():
        with torch.device("meta"):
            network = AlbertForPretraining(config)
        expected = sizes_of(config)
        counts = [
            sum(p.numel() for p in module.parameters())
            for module in (network, network.albert)
        ]
        assert counts == [expected.total, expected.body], name


PLANS = [
    ({}, "0000", "0000"),
    # int(i / layers * groups)
    ({"num_hidden_layers": 10, "num_hidden_groups": 3}, "0000111222", "0000111222"),
    ({"sharing": "attention"}, "0000", "0123"),
    ({"sharing": "ffn"}, "0123", "0000"),
    ({"sharing": "none"}, "0123", "0123"),
    ({"inner_group_num": 2, "num_hidden_groups": 2}, "01012323", "01012323"),
]


def test_plans_name_the_blocks_of_each_step() -> None:
    for changes, attention, feed_forward in PLANS:
        plan = depth_plan(SMALL.model_copy(update=changes))
        assert "".join(str(step.attention) for step in plan) == attention
        assert "".join(str(step.feed_forward) for step in plan) == feed_forward
    with pytest.raises(ValueError, match="transformers would split 18 layers"):
        AlbertConfig(num_hidden_layers=18, num_hidden_groups=14)


def test_weights_start_as_a_reproducible_normal_truncated_at_two_sigma() -> None:
    config = SMALL.model_copy(update={"vocab_size": 5_000})
    networks = [
        AlbertForPretraining(config, generator=torch.Generator().manual_seed(5))
        for _ in range(2)
    ]
    first, second = (network.state_dict() for network in networks)
    assert all(torch.equal(first[name], second[name]) for name in first)
    table = networks[0].albert.embedding.word.weight
    assert table.abs().max() <= 0.04
    assert table.std().item() == pytest.approx(0.0176, abs=2e-4)
    assert all(
        not p.any() for n, p in networks[0].named_parameters() if n.endswith("bias")
    )
    # E equal to H has no projection unless asked for
    for asked, has in ((False, False), (True, True)):
        square = SMALL.model_copy(
            update={"embedding_size": 24, "embedding_projection": asked}
        )
        assert (
            any("projection" in name for name, _ in Albert(square).named_parameters())
            is has
        )


def test_a_sequence_that_is_too_long_or_empty_is_refused() -> None:
    with pytest.raises(LitebertError, match="LB-451"):
        Albert(SMALL)(Batch.from_lists([[5] * 33]))
    with pytest.raises(LitebertError, match="LB-450"):
        Batch.from_lists([[2, 3], []])
    with pytest.raises(LitebertError, match="LB-450"):
        Batch.from_padded(
            torch.ones(2, 2, dtype=torch.int64), torch.tensor([[0, 0], [1, 1]])
        )


# The head that reads text vectors

OF_PAIRS = AlbertConfig(
    vocab_size=90,
    embedding_size=16,
    hidden_size=32,
    num_attention_heads=4,
    num_hidden_layers=2,
)
HEAD = HeadConfig(kind="vector-classification", labels=("no", "yes"))
DONE = [("slept", "slept"), ("walked", "slept"), ("sang", "sang"), ("sang", "walked")]
ROWS = [
    f"{who} {a}.,{who} {b}.,{'same' if a == b else 'other'}"
    for who in ("Anna", "Bert", "Clara")
    for a, b in DONE
]
Plan = Callable[..., Prepared]


def test_a_text_is_read_as_its_mean_and_a_pair_as_how_its_means_differ() -> None:
    network = AlbertForTask(
        OF_PAIRS, HEAD, generator=torch.Generator().manual_seed(1)
    ).eval()
    batch = Batch.from_lists(
        [[2, 7, 8, 3], [2, 7, 3, 9, 10, 3]], [[0] * 4, [0, 0, 0, 1, 1, 1]]
    )
    hidden = network.albert(batch)
    parts = (hidden[:4], hidden[4:7], hidden[7:], hidden[4:])
    text, a, b, both = (
        torch.nn.functional.layer_norm(rows.mean(0), (32,)) for rows in parts
    )
    wanted = torch.stack(
        [torch.cat([text, torch.zeros(64)]), torch.cat([both, (a - b).abs(), a * b])]
    )
    assert torch.allclose(network(batch), network.head.dense(wanted), atol=1e-5)


@pytest.fixture
def plan(corpus: Path, tmp_path: Path) -> Plan:
    """Return a function that prepares a run on pairs, by default from a model with text
    vectors.
    """
    pairs = tmp_path / "pairs.csv"
    start = tmp_path / "start"
    pairs.write_text("\n".join(["text,second,label", *ROWS]) + "\n")
    tokenizer = Tokenizer.load(corpus / "tokenizer")
    shape = OF_PAIRS.model_copy(update={"vocab_size": tokenizer.vocab_size})
    write_folder(
        ModelFolder(
            AlbertForPretraining(shape, generator=torch.Generator().manual_seed(2))
        ),
        start,
    )
    tokenizer.save(start)

    def prepared(*words: str, pooling: str | None = "mean") -> Prepared:
        if pooling:
            vectors = SentenceVectors(pooling, normalize=True)
            write_sentence_transformers(start, vectors, shape)
        settings = [
            "task.name=table",
            f"model.start={start}",
            "train.precision=fp32",
            "train.batch_size=8",
        ]
        settings += [f"data.train={pairs}", f"data.dev={pairs}", *words]
        return prepare(
            resolve(FinetuneConfig, settings_from_words(settings)), tmp_path / "run"
        )

    return prepared


STARTS = [
    ("mean", (), True),
    (None, (), False),
    ("cls", (), False),
    ("mean", ("model.pooling=cls",), False),
]
STARTS += [(None, ("model.pooling=mean",), True)]


@pytest.mark.parametrize(("pooling", "words", "is_mean"), STARTS)
def test_the_head_follows_the_pooling(
    plan: Plan, pooling: str | None, words: tuple[str, ...], is_mean: bool
) -> None:
    prepared = plan(*words, pooling=pooling)
    config = prepared.config
    assert (
        prepared.dataset.family.head.kind
        == ("vector" if is_mean else "sequence") + "-classification"
    )
    assert config.model.pooling == ("mean" if is_mean else "cls")
    # a head on means starts from a regression, so it needs no higher rate
    assert config.optim.bias_correction == (True if is_mean else None)
    assert config.optim.head_rate_scale == 1
    assert prepared.fits_head == is_mean


def test_a_run_with_a_vector_head_learns_it_faster_and_its_model_can_start_another(
    plan: Plan, tmp_path: Path
) -> None:
    prepared = plan(
        "train.steps=60", "optim.learning_rate=1e-3", "optim.head_rate_scale=3"
    )
    network = prepared.network()
    optim = prepared.config.optim
    groups = build_optimizer(
        optim, network.named_parameters(), head_scale=optim.head_rate_scale
    ).param_groups
    faster = {
        id(p) for group in groups if group["rate_scale"] == 3 for p in group["params"]
    }
    assert faster == {id(p) for p in network.head.parameters()}

    assert finetune(prepared.resolved, tmp_path / "run", is_quiet=True) == 0
    result = RunFolder(tmp_path / "run").outcome
    assert result.of_model.values["accuracy"] > result.baseline["accuracy"]
    opened = Finetuned.open(tmp_path / "run")
    measures, _, _ = measure_split([opened], tmp_path / "pairs.csv", "dev")
    assert measures == result.of_model.values
    next_run = plan(f"model.start={tmp_path / 'run' / 'model'}", pooling=None)
    assert next_run.dataset.family.head.kind == "vector-classification"
