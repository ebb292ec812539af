"""The head that reads vectors of texts: what it is given, and from which model it is chosen."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from litebert.config import AlbertConfig, FinetuneConfig, HeadConfig
from litebert.errors import LitebertError
from litebert.folder import SentenceVectors, save_model, write_sentence_transformers
from litebert.inference.finetuned import Finetuned, measured
from litebert.interop.google import export_checkpoint
from litebert.nn import AlbertForPretraining, AlbertForTask, Batch
from litebert.optim import build_optimizer
from litebert.runs import Run
from litebert.settings import resolve, settings_from_words
from litebert.tokenizer import Tokenizer
from litebert.train.finetune import Prepared, finetune, prepare

SHAPE = AlbertConfig(vocab_size=90, embedding_size=16, hidden_size=32, num_attention_heads=4, num_hidden_layers=2)
HEAD = HeadConfig(kind="vector-classification", labels=("no", "yes"))
DONE = [("slept", "slept"), ("walked", "slept"), ("sang", "sang"), ("sang", "walked")]
ROWS = [f"{who} {a}.,{who} {b}.,{'same' if a == b else 'other'}" for who in ("Anna", "Bert", "Clara") for a, b in DONE]
Plan = Callable[..., Prepared]


def test_a_text_is_its_mean_and_a_pair_how_its_means_differ() -> None:
    network = AlbertForTask(SHAPE, HEAD, generator=torch.Generator().manual_seed(1)).eval()
    batch = Batch.from_lists([[2, 7, 8, 3], [2, 7, 3, 9, 10, 3]], [[0] * 4, [0, 0, 0, 1, 1, 1]])
    hidden = network.albert(batch)
    text, a, b, both = (
        torch.nn.functional.layer_norm(rows.mean(0), (32,))
        for rows in (hidden[:4], hidden[4:7], hidden[7:], hidden[4:])
    )
    wanted = torch.stack([torch.cat([text, torch.zeros(64)]), torch.cat([both, (a - b).abs(), a * b])])
    assert torch.allclose(network(batch), network.head.dense(wanted), atol=1e-5)


@pytest.fixture
def plan(corpus: Path, tmp_path: Path) -> Plan:
    """Return a function that prepares a run on pairs, from a model of text vectors or not."""
    pairs, start = tmp_path / "pairs.csv", tmp_path / "start"
    pairs.write_text("\n".join(["text,second,label", *ROWS]) + "\n")
    tokenizer = Tokenizer.load(corpus / "tokenizer")
    shape = SHAPE.model_copy(update={"vocab_size": tokenizer.vocab_size})
    save_model(AlbertForPretraining(shape, generator=torch.Generator().manual_seed(2)), start)
    tokenizer.save(start)

    def prepared(*words: str, pooling: str | None = "mean") -> Prepared:
        if pooling:
            write_sentence_transformers(start, SentenceVectors(pooling, normalize=True))
        given = ["task.name=table", f"model.start={start}", "train.precision=fp32", "train.batch_size=8"]
        given += [f"data.train={pairs}", f"data.dev={pairs}", *words]
        return prepare(resolve(FinetuneConfig, settings_from_words(given)), tmp_path / "run")

    return prepared


@pytest.mark.parametrize(
    ("pooling", "words", "is_mean"),
    [
        ("mean", (), True),
        (None, (), False),
        ("cls", (), False),
        ("mean", ("model.pooling=cls",), False),
        (None, ("model.pooling=mean",), True),
        ("mean", ("train.exits=true",), False),
    ],
)
def test_the_head_follows_the_vectors_of_the_start(
    plan: Plan, pooling: str | None, words: tuple[str, ...], is_mean: bool
) -> None:
    prepared = plan(*words, pooling=pooling)
    config = prepared.config
    assert prepared.dataset.family.head.kind == ("vector" if is_mean else "sequence") + "-classification"
    assert config.model.pooling == ("mean" if is_mean else "cls")
    assert (config.optim.bias_correction, config.optim.head_rate_scale) == ((True, 10) if is_mean else (None, 1))


def test_such_a_run_learns_its_head_faster_and_its_model_answers_and_is_the_start_of_another(
    plan: Plan, tmp_path: Path
) -> None:
    with pytest.raises(LitebertError, match="LB-518"):  # a head after every step has no mean
        plan("model.pooling=mean", "train.exits=true", pooling=None)
    prepared = plan("train.steps=60", "optim.learning_rate=1e-3", "optim.head_rate_scale=3")
    network, optim = prepared.network(), prepared.config.optim
    groups = build_optimizer(optim, network.named_parameters(), head_scale=optim.head_rate_scale).param_groups
    faster = {id(p) for group in groups if group["rate_scale"] == 3 for p in group["params"]}
    assert faster == {id(p) for p in network.head.parameters()}

    assert finetune(prepared.resolved, tmp_path / "run", is_quiet=True) == 0
    result = Run(tmp_path / "run").outcome
    assert result.last.values["accuracy"] > result.baseline["accuracy"]
    assert measured([Finetuned.open(tmp_path / "run")], tmp_path / "pairs.csv", "dev")[0] == result.last.values
    with pytest.raises(LitebertError, match="LB-709"):
        export_checkpoint(tmp_path / "run" / "model", tmp_path / "google")
    next_run = plan(f"model.start={tmp_path / 'run' / 'model'}", pooling=None)
    assert next_run.dataset.family.head.kind == "vector-classification"
