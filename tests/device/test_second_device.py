"""Every path on a device that is not the CPU, tested without one (tests/device/fake.py):
no tensor is on the wrong device, and the host waits only where that is declared.
"""

import json
import re
from collections.abc import Callable, Sequence
from itertools import chain, product
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException

import litebert
from litebert.config import (
    AlbertConfig,
    DistilConfig,
    HeadConfig,
    OptimConfig,
    TrainConfig,
)
from litebert.device import Device, move_network
from litebert.distributed import ALONE, _connection_errors
from litebert.errors import as_litebert_error
from litebert.fast import (
    accelerate,
    attention,
    calibrate,
    checkpoint_gradients,
    is_int8,
    pack,
    to_int8,
)
from litebert.hub import packaged_model
from litebert.nn import AlbertForPretraining, AlbertForTask, Batch, pool_rows
from litebert.objectives import PretrainingBatch
from litebert.optim import build_optimizer, clip_gradients
from litebert.plugins import TASK_HEADS
from litebert.tasks.distillation import Distillation, Lesson
from litebert.tasks.finetuning import Finetuning
from litebert.tasks.heads import PretrainingWork
from litebert.tasks.kinds.family import Feature
from litebert.tasks.kinds.spans import score_spans
from litebert.tasks.kinds.text import SingleLabel
from litebert.tasks.pretraining import Pretraining
from litebert.tasks.teacher import Teacher
from litebert.tokenizer import Tokenizer
from litebert.train.log import RunLog
from litebert.train.session import Session
from litebert.train.step import training_step
from tests.device.fake import AMPERE, APPLE, PLACE, TURING, fake_gpu, to_fake

RAGGED = (19, 7, 7)  # 33 rows: rows of padding are added, which are zeros
EQUAL = (16, 16)
SIZES = {
    "vocab_size": 50,
    "embedding_size": 16,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}


def _config(dropout: float = 0.0, **changes: Any) -> AlbertConfig:
    dropouts = {
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
        "classifier_dropout_prob": dropout,
    }
    return AlbertConfig(**SIZES | dropouts | changes)


def _pretrained(config: AlbertConfig, dtype: torch.dtype) -> AlbertForPretraining:
    with torch.device("meta"):
        network = AlbertForPretraining(config, dtype=dtype)
    to_fake(network)
    return network.train()


def _batch(lengths: Sequence[int]) -> Batch:
    return Batch.from_lists([[5] * length for length in lengths]).to(PLACE)


def _on_device(values: Sequence[int]) -> Tensor:
    return torch.tensor(values).to(PLACE)


def _work(lengths: Sequence[int]) -> PretrainingWork:
    return PretrainingWork(
        batch=_batch(lengths),
        masked_positions=_on_device([1, 3, 5, 6]),
        masked_ids=_on_device([1, 2, 3, 4]),
        sentence_labels=_on_device([0] * len(lengths)),
        step_masked=4,
        step_labeled=len(lengths),
    )


def _take_step(
    network: AlbertForPretraining, optim: OptimConfig, lengths: Sequence[int]
) -> None:
    training_step(
        Pretraining(network, held_out=(), train=TrainConfig()),
        [_work(lengths), _work(lengths)],
        build_optimizer(optim, network.named_parameters()),
        step=0,
        learning_rate=0.1,
        clip_norm=1.0,
        seed=1,
        loss_scale=2.0,
    )


# ---- training ------------------------------------------------------------------------

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@pytest.mark.parametrize("described", [AMPERE, TURING, APPLE])
@pytest.mark.parametrize("lengths", [RAGGED, EQUAL])
def test_a_training_step_waits_once(
    monkeypatch: pytest.MonkeyPatch, described: Device, lengths: tuple[int, ...]
) -> None:
    for dtype, dropout in product(DTYPES, (0.0, 0.1)):
        with fake_gpu(monkeypatch, described) as waits:
            network = _pretrained(_config(dropout), dtype)
            _take_step(network, OptimConfig(), lengths)
        assert waits == ["training_step"], (dtype, dropout)


OPTIMIZERS = [
    OptimConfig(name=name, average_decay=average, bias_correction=is_corrected)
    for name in ("lamb", "adamw", "muon")
    for average, is_corrected in ((0.0, False), (0.99, True))
]
SHARINGS = [
    {"sharing": sharing, "num_hidden_groups": groups}
    for sharing, groups in (("all", 3), ("attention", 1), ("ffn", 1), ("none", 1))
]


@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_every_optimizer_and_sharing_waits_once_a_step(
    monkeypatch: pytest.MonkeyPatch, is_checkpointed: bool
) -> None:
    cases = [(optim, {}) for optim in OPTIMIZERS]
    cases += [(OptimConfig(), sharing) for sharing in SHARINGS]
    for optim, sharing in cases:
        with fake_gpu(monkeypatch) as waits:
            network = _pretrained(_config(**sharing), torch.bfloat16)
            if is_checkpointed:
                checkpoint_gradients(network.albert)
            _take_step(network, optim, RAGGED)
        assert waits == ["training_step"], (optim, sharing)


KERNELS = [
    (AMPERE, torch.bfloat16, 0.0, RAGGED, "variable"),
    (AMPERE, torch.bfloat16, 0.1, RAGGED, "variable"),
    (AMPERE, torch.bfloat16, 0.1, EQUAL, "by_stack"),
    (AMPERE, torch.float32, 0.0, RAGGED, "padded"),
    (TURING, torch.float16, 0.1, RAGGED, "padded"),
    (TURING, torch.float16, 0.0, EQUAL, "by_stack"),
    (APPLE, torch.float32, 0.0, RAGGED, "padded"),
]


@pytest.mark.parametrize("case", KERNELS)
def test_each_device_takes_its_own_kernel(
    monkeypatch: pytest.MonkeyPatch, case: Any
) -> None:
    described, dtype, dropout, lengths, expected = case
    watched = {
        name: MagicMock(wraps=getattr(attention, name))
        for name in ("variable", "padded", "by_stack")
    }
    for name, kernel in watched.items():
        monkeypatch.setattr(attention, name, kernel)
    with fake_gpu(monkeypatch, described):
        # without queries: the last step would choose for itself
        network = _pretrained(_config(dropout), dtype)
        accelerate(network.albert)
        network.albert(_batch(lengths)).float().sum().backward()
    assert {name for name, kernel in watched.items() if kernel.called} == {expected}


def test_code_that_waits_or_mixes_devices_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The check of the checks: what the other tests rely on."""
    with fake_gpu(monkeypatch) as waits:
        network = _pretrained(_config(), torch.float32)
        Pretraining(network, held_out=(), train=TrainConfig()).loss(
            _work(RAGGED)
        ).total.backward()
        norm = clip_gradients(network.parameters(), 1.0)
        with pytest.raises(DataDependentOutputException):
            norm.item()
        with pytest.raises(DataDependentOutputException):
            bool(norm > 1)
        rows = _on_device([1, 2, 3])
        with pytest.raises(Exception, match=r"nonzero|data-dependent|dynamic"):
            rows[rows > 1]
        with pytest.raises(RuntimeError, match="devices"):
            rows + torch.arange(3)
        assert not waits
        norm.tolist()
    assert waits == ["a test"]


# ---- answers -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TASK_HEADS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_head_trains_and_answers_without_a_wait(
    monkeypatch: pytest.MonkeyPatch, kind: str, dtype: torch.dtype
) -> None:
    record = TASK_HEADS[kind]
    head = HeadConfig(kind=kind, labels=("a", "b") if record.has_labels else ())
    for is_training in (True, False):
        with (
            fake_gpu(monkeypatch) as waits,
            torch.set_grad_enabled(is_training),
        ):
            with torch.device("meta"):
                network = AlbertForTask(_config(0.1), head, dtype=dtype)
            to_fake(network.train(is_training))
            accelerate(network.albert)
            if not is_training:
                pack(network.albert)
            logits = _logits(network, is_training)
            if is_training:
                sum(tensor.float().sum() for tensor in logits).backward()
        assert not waits, (kind, is_training)


def _logits(network: AlbertForTask, is_training: bool) -> list[Tensor]:
    batch = _batch((19, 7, 7, 4))
    if network.head_config.kind.startswith("conditional"):
        starts = _on_device([1, 2, 2, 1]).view(4, 1) if is_training else 3
        scores = score_spans(network, batch, starts)
        return [tensor for tensor in scores if tensor.is_floating_point()]
    return [network(batch)]


@pytest.mark.parametrize("pooling", ["mean", "max", "cls"])
def test_vectors_are_pooled_without_a_wait_and_as_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch, pooling: str
) -> None:
    hidden = torch.randn(33, 8, generator=torch.Generator().manual_seed(1))
    batch = Batch.from_lists([[5] * length for length in RAGGED])
    expected = pool_rows(hidden, batch, pooling)
    with fake_gpu(monkeypatch) as waits:
        rows = torch.empty(33, 8, device=PLACE, requires_grad=True)
        pool_rows(rows, _batch(RAGGED), pooling).sum().backward()
        assert rows.grad is not None
    assert not waits
    # the same code, with numbers
    monkeypatch.setattr(
        "litebert.nn.batch.device_at", lambda _: Device(torch.device("cpu", 0))
    )
    monkeypatch.setattr(Device, "is_cpu", False)
    torch.testing.assert_close(pool_rows(hidden, batch, pooling), expected)


def test_an_evaluation_waits_for_its_sums_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held_out = PretrainingBatch(
        ids=np.arange(20) % 50,
        positions=np.r_[0:12, 0:8],
        segments=np.zeros(20, np.int64),
        offsets=np.array([0, 12, 20]),
        masked_positions=np.array([3, 15]),
        masked_ids=np.array([3, 15]),
        sentence_labels=np.array([0, 1]),
    )
    for dtype in DTYPES:
        with fake_gpu(monkeypatch) as waits:
            network = _pretrained(_config(), dtype)
            task = Pretraining(
                network,
                held_out=[held_out, held_out],
                train=TrainConfig(micro_batch_size=1),
                mask_id=3,
            )
            measures = task.evaluate()
        assert waits == ["evaluate", "evaluate"]  # the sums, and those at [MASK]
        assert "mask_token_loss" in measures


def test_a_student_learns_without_a_wait_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokenizer = Tokenizer.load(packaged_model())
    with fake_gpu(monkeypatch) as waits:
        student = _pretrained(_config(), torch.bfloat16)
        teacher = Teacher(
            _pretrained(_config(), torch.bfloat16).albert, tokenizer, tokenizer
        )
        task = Distillation(
            Pretraining(student, held_out=(), train=TrainConfig()),
            teacher=teacher,
            open_texts=MagicMock(),
            held_out_texts=(),
            distil=DistilConfig(teacher="teacher"),
        )
        kept = _on_device([1, 2, 9, 20])
        targets = [torch.empty(4, 32, device=PLACE) for _ in range(3)]
        pairs = Lesson(
            _batch(RAGGED), 0.5, ALONE, pairs=_work(RAGGED), kept=kept, targets=targets
        )
        vectors = torch.empty(3, 32, device=PLACE)
        texts = Lesson(
            _batch(RAGGED), 0.5, ALONE, kept=kept, targets=targets, vectors=vectors
        )
        for lesson in (pairs, texts):
            task.loss(lesson).total.backward()
    assert not waits


def test_an_eight_bit_model_computes_in_the_precision_of_the_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Eight-bit products are a CPU's: elsewhere only the weights are rounded."""
    network = AlbertForPretraining(_config(), dtype=torch.float32).eval()
    batch = Batch.from_lists([[5] * 19, [5] * 7])
    to_int8(network, calibrate(network.albert, [batch]))
    with fake_gpu(monkeypatch) as waits, torch.no_grad():
        to_fake(network)
        network.albert.dtype = torch.bfloat16
        pack(network.albert)
        assert is_int8(network.albert)
        hidden = network.albert(_batch(RAGGED))
    assert hidden.dtype == torch.bfloat16
    assert not waits


# ---- what a device is ----------------------------------------------------------------


def test_a_batch_is_copied_from_pinned_memory_only_where_that_is_safe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An asynchronous copy of a temporary may read memory that has been reused."""
    calls = list[Any]()
    monkeypatch.setattr(
        Tensor, "pin_memory", lambda tensor: calls.append("pinned") or tensor
    )
    original: Callable[..., Tensor] = Tensor.to

    def to(tensor: Tensor, *args: Any, **options: Any) -> Tensor:
        calls.append(options.get("non_blocking", False))
        return original(tensor, "cpu")

    monkeypatch.setattr(Tensor, "to", to)
    meta = torch.device("meta")
    Device(meta, copies_pinned=True).copy(torch.zeros(1))
    assert calls == ["pinned", True]
    calls.clear()
    Device(meta).copy(torch.zeros(1))
    assert calls == [False]


def test_precision_follows_the_hardware() -> None:
    cpu = Device(torch.device("cpu"))
    assert [cpu.precision(name) for name in (None, "bf16")] == ["fp32", "bf16"]
    assert [AMPERE.precision(name) for name in (None, "auto", "fp32")] == [
        "bf16",
        "bf16",
        "fp32",
    ]
    assert TURING.precision(None) == "fp32"
    assert cpu.precision("auto") in ("fp32", "bf16")


def test_float32_is_exact_and_half_precision_lets_the_products_left_be_fast() -> None:
    before = torch.get_float32_matmul_precision()
    for dtype, expected in ((torch.float32, "highest"), (torch.bfloat16, "high")):
        with AMPERE.computing(dtype):
            assert torch.get_float32_matmul_precision() == expected
    with Device(torch.device("cpu")).computing(torch.bfloat16):
        assert torch.get_float32_matmul_precision() == before
    assert torch.get_float32_matmul_precision() == before


@pytest.mark.parametrize(
    ("name", "flops"),
    [
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA L40S", 362e12),
        ("NVIDIA L4", 121e12),
        ("NVIDIA GeForce RTX 4090", 165e12),
        ("Tesla T4", 65e12),
        ("NVIDIA GeForce GTX 1080", None),
    ],
)
def test_the_peak_is_that_of_the_data_sheet_or_unknown(
    name: str, flops: float | None
) -> None:
    assert Device(PLACE, name).peak_flops == flops


def test_a_probe_on_a_gpu_is_what_will_run() -> None:
    assert AMPERE.probe_size(1e9, 256) == 256
    assert Device(torch.device("cpu")).probe_size(1e9, 256) == 200
    assert Device(torch.device("cpu")).probe_size(1e15, 256) == 1


def test_a_parameter_without_values_stays_without() -> None:
    with torch.device("meta"):
        layer = nn.Linear(2, 2)
    move_network(layer, Device(torch.device("cpu")))
    assert layer.weight.is_meta


def test_only_the_policy_asks_for_the_kind_of_a_device() -> None:
    """Elsewhere `is_cuda` once meant "not a CPU", and left out every other device."""
    asks = re.compile(r"\.is_cuda|torch\.(cuda|mps)\.|device\.type\b|\.pin_memory\(")
    source = Path(litebert.__file__).parent
    lines = [
        f"{path.relative_to(source)}: {line.strip()}"
        for path in sorted(source.rglob("*.py"))
        for line in path.read_text("utf-8").splitlines()
        if asks.search(line) and path.name != "device.py"
    ]
    assert not lines


def test_fine_tuning_prepares_a_step_ahead_and_the_same_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    features = [
        Feature(([5] * length,), ([0] * length,), np.array([length % 2]), length)
        for length in range(3, 23)
    ]
    network = AlbertForTask(
        _config(), HeadConfig(kind="sequence-classification", labels=("a", "b"))
    )
    task = Finetuning(
        network,
        SingleLabel(network.head_config),
        features,
        held_out={},
        train=TrainConfig(batch_size=4, micro_batch_size=2),
    )
    plain = list(task.batches(3, 9))
    monkeypatch.setattr(Device, "is_cpu", False)
    ahead = list(task.batches(3, 9))
    assert [len(works) for works in ahead] == [2] * 6
    for one, other in zip(chain(*plain), chain(*ahead), strict=True):
        assert torch.equal(one.batch.ids, other.batch.ids)
        assert torch.equal(one.targets, other.targets)
        assert one.step_weight == other.step_weight


def test_the_log_has_the_utilisation_where_the_peak_is_known(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text("{}", encoding="utf-8")
    for name, is_known in (("NVIDIA H100 80GB HBM3", True), ("fake", False)):
        device = Device(torch.device("cpu"), name)
        log = RunLog(
            Session(run), TrainConfig(), device, is_quiet=True, flops_per_token=1e9
        )
        log.tokens = 1_000
        log.training(1, 1_000, {"loss": 1.0}, {"learning_rate": 0.1})
        row = json.loads((run / "metrics.jsonl").read_text("utf-8").splitlines()[-1])
        assert ("mfu" in row) is is_known
        if is_known:
            share = row["tokens_per_second"] * 1e9 / 989e12
            assert row["mfu"] == pytest.approx(share, abs=1e-4)


def test_a_gpu_that_is_out_of_memory_is_named_and_no_process_is_blamed() -> None:
    error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
    named = as_litebert_error(error)
    assert named is not None
    assert named.code == "LB-007"
    assert named.what == "the GPU is out of memory"
    with pytest.raises(torch.OutOfMemoryError), _connection_errors():
        raise error
