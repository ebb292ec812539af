"""A pretraining step beside transformers': masked words, sentence order, clipping, AdamW."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from benchmarks.speed import yardstick
from benchmarks.speed.rivals import DTYPES
from benchmarks.speed.rows import Contender, Row, compare
from benchmarks.speed.texts import Texts, rectangle
from benchmarks.speed.timing import Turns
from litebert.config import OptimConfig, TrainConfig
from litebert.folder import load_model, read_config
from litebert.nn import Batch
from litebert.optim import build_optimizer
from litebert.tasks.pretraining import Pretraining, PretrainingWork
from litebert.train.loop import training_step

RECTANGLES = ((8, 128), (8, 512))
MASK_PROB, RATE, CLIP_NORM = 0.15, 2e-5, 1.0


def measure(root: Path, threads: int, *, is_quick: bool, names: Sequence[str]) -> list[Row]:
    """Time the step at both lengths; a quick run takes the shorter one."""
    config, rows = read_config(root / "model"), list[Row]()
    for shape in RECTANGLES[:1] if is_quick else RECTANGLES:
        texts = rectangle(*shape)
        number = round(MASK_PROB * texts.num_tokens)
        chosen = np.random.default_rng(1).choice(texts.num_tokens, number, replace=False)
        masked = torch.from_numpy(np.sort(chosen))
        rows += compare(
            f"pretraining {shape[0]} x {shape[1]}",
            [STEPS[name.split()[0]](root, name, texts, masked) for name in names],
            Turns(threads, seconds=20.0, least=1 if is_quick else 2, most=6),
            num_tokens=texts.num_tokens,
            flops=yardstick.step_flops(config, texts.lengths, len(masked)),
        )
    print(*rows, sep="\n", flush=True)
    return rows


def with_litebert(root: Path, name: str, texts: Texts, masked: Tensor) -> Contender:
    """litebert's own step."""
    network = load_model(root / "model", dtype=DTYPES[name.split()[1]]).network.train()
    batch = Batch.from_lists(texts.ids, texts.segments)
    labels = torch.arange(len(texts.ids)) % 2
    counts = len(masked), len(texts.ids)
    work = PretrainingWork(batch, masked, batch.ids[masked], labels, *counts)
    task = Pretraining(network, open_loader=_no_loader, held_out=(), train=TrainConfig())
    config = OptimConfig(name="adamw", learning_rate=RATE)
    optimizer = build_optimizer(config, network.named_parameters())

    def step() -> None:
        training_step(task, [work], optimizer, step=0, learning_rate=RATE, clip_norm=CLIP_NORM, seed=1)

    return Contender(name, step, lambda: task.loss(work).total.detach().numpy(), warm=step)


def with_transformers(root: Path, name: str, texts: Texts, masked: Tensor) -> Contender:
    """`AlbertForPreTraining`, bf16 by autocast, and torch's fused AdamW, as its Trainer does."""
    from transformers import AlbertForPreTraining

    model = AlbertForPreTraining.from_pretrained(root / "model").train()
    inputs = {key: torch.from_numpy(values) for key, values in texts.padded().items()}
    labels = torch.full((texts.num_tokens,), -100)
    labels[masked] = inputs["input_ids"].flatten()[masked]
    inputs["labels"] = labels.view_as(inputs["input_ids"])
    inputs["sentence_order_label"] = torch.arange(len(texts.ids)) % 2
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, fused=True)

    def loss() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16) if name.endswith("bf16") else nullcontext():
            return model(**inputs).loss

    def step() -> None:
        loss().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
        optimizer.step()
        optimizer.zero_grad()

    def loss_without_dropout() -> Any:  # transformers' sentence-order head has some
        model.eval()
        value = loss().detach().float().numpy()
        model.train()
        return value

    return Contender(name, step, loss_without_dropout, warm=step)


def _no_loader() -> NoReturn:
    raise AssertionError("the batch is made here")


STEPS: dict[str, Callable[[Path, str, Texts, Tensor], Contender]] = {
    "transformers": with_transformers,
    "litebert": with_litebert,
}
