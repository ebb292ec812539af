"""The head that reads vectors of texts: what it is given, and from which model it is chosen."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from litebert.config import AlbertConfig, FinetuneConfig, HeadConfig, resolve, settings_from_words
from litebert.errors import LitebertError
from litebert.folder import save_model, write_sentence_transformers
from litebert.inference.finetuned import Finetuned, measured
from litebert.interop.google import export_checkpoint
from litebert.nn import AlbertForPretraining, AlbertForTask, Batch
from litebert.optim import build_optimizer
from litebert.runs import read_result
from litebert.tokenizer import Tokenizer
from litebert.train.finetune import Prepared, finetune, prepare, rate_scales

SHAPE = AlbertConfig(vocab_size=90, embedding_size=16, hidden_size=32, num_attention_heads=4, num_hidden_layers=2)
HEAD = HeadConfig(kind="vector-classification", labels=("no", "yes"))
PAIRS = [(f"{who} {what}.", f"{who} {other}.") for who in ("Anna", "Bert", "Clara", "Dora")
         for what, other in (("slept", "slept"), ("walked", "slept"), ("sang", "sang"),
                             ("sang", "walked"))]  # fmt: skip


def test_a_text_is_its_mean_and_a_pair_how_its_means_differ() -> None:
    network = AlbertForTask(SHAPE, HEAD, generator=torch.Generator().manual_seed(1)).eval()
    one, pair = [2, 7, 8, 3], [2, 7, 3, 9, 10, 3]
    batch = Batch.from_lists([one, pair], [[0] * 4, [0, 0, 0, 1, 1, 1]])
    hidden = network.albert(batch)

    def unit(rows: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.layer_norm(rows.mean(0), (32,))

    text, a, b = unit(hidden[:4]), unit(hidden[4:7]), unit(hidden[7:])
    wanted = torch.stack([torch.cat([text, torch.zeros(64)]), torch.cat([unit(hidden[4:]), (a - b).abs(), a * b])])
    assert torch.allclose(network(batch), network.head.dense(wanted), atol=1e-5)


@pytest.fixture
def plan(corpus: Path, tmp_path: Path) -> Callable[..., Prepared]:
    """Return a function that prepares a run on pairs, from a model of text vectors or not."""
    rows = [f"{a},{b},{'same' if a == b else 'other'}" for a, b in PAIRS]
    (tmp_path / "pairs.csv").write_text("\n".join(["text,second,label", *rows]) + "\n")
    tokenizer = Tokenizer.load(corpus / "tokenizer")
    shape = SHAPE.model_copy(update={"vocab_size": tokenizer.vocab_size})
    start = tmp_path / "start"
    network = AlbertForPretraining(shape, generator=torch.Generator().manual_seed(2))
    save_model(network, start)
    tokenizer.save(start)

    def prepared(*words: str, pooling: str | None = "mean") -> Prepared:
        if pooling:
            write_sentence_transformers(start, pooling=pooling)
        pairs = tmp_path / "pairs.csv"
        given = ["task.name=table", f"model.start={start}", "train.precision=fp32", "train.batch_size=8"]
        given += [f"data.train={pairs}", f"data.dev={pairs}", *words]
        return prepare(resolve(FinetuneConfig, settings_from_words(given)), tmp_path / "run")

    return prepared


@pytest.mark.parametrize(
    ("pooling", "words", "kind"),
    [
        ("mean", (), "vector-classification"),
        (None, (), "sequence-classification"),
        ("cls", (), "sequence-classification"),
        ("mean", ("model.pooling=cls",), "sequence-classification"),
        (None, ("model.pooling=mean",), "vector-classification"),
        ("mean", ("train.exits=true",), "sequence-classification"),
    ],
)
def test_the_head_follows_the_vectors_of_the_start(
    plan: Callable[..., Prepared], pooling: str | None, words: tuple[str, ...], kind: str
) -> None:
    prepared = plan(*words, pooling=pooling)
    assert prepared.dataset.family.head.kind == kind
    recorded = "mean" if kind == "vector-classification" else "cls"
    assert prepared.config.model.pooling == recorded
    assert prepared.config.optim.bias_correction == (True if recorded == "mean" else None)
    assert prepared.config.optim.head_rate_scale == (10 if recorded == "mean" else 1)
    with pytest.raises(LitebertError, match="LB-546"):  # a head after every step has no mean
        plan("model.pooling=mean", "train.exits=true", pooling=None)


def test_the_head_alone_learns_faster(plan: Callable[..., Prepared]) -> None:
    prepared = plan()
    network = AlbertForTask(prepared.network_config, prepared.dataset.family.head)
    optim = prepared.config.optim
    scales = rate_scales(network, decay=optim.layer_decay, head=optim.head_rate_scale)
    optimizer = build_optimizer(optim, network.named_parameters(), rate_scales=scales)
    faster = [g for g in optimizer.param_groups if g["rate_scale"] == optim.head_rate_scale]
    assert {id(p) for g in faster for p in g["params"]} == {id(p) for p in network.head.parameters()}
    assert {g["rate_scale"] for g in optimizer.param_groups} == {1, 10}
    typed = plan("optim.head_rate_scale=3")
    assert typed.config.optim.head_rate_scale == 3
    assert typed.resolved.origins["optim.head_rate_scale"].is_typed


def test_such_a_run_learns_and_its_model_answers_and_is_the_start_of_another(
    plan: Callable[..., Prepared], tmp_path: Path
) -> None:
    prepared = plan("train.steps=60", "optim.learning_rate=1e-3")
    assert finetune(prepared.resolved, tmp_path / "run", is_quiet=True).exit_code == 0
    result = read_result(tmp_path / "run")
    assert result.last.measures["accuracy"] > result.baseline["accuracy"]
    again = Finetuned.open(tmp_path / "run")
    measures, *_ = measured([again], tmp_path / "pairs.csv", "dev")
    assert measures == result.last.measures
    with pytest.raises(LitebertError, match="LB-709"):
        export_checkpoint(tmp_path / "run" / "model", tmp_path / "google")
    next_run = plan(f"model.start={tmp_path / 'run' / 'model'}", pooling=None)
    assert next_run.dataset.family.head.kind == "vector-classification"
