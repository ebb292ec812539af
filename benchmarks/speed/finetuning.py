"""An epoch of fine-tuning on SST-2's first sentences beside transformers' Trainer."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.speed import yardstick
from benchmarks.speed.pretraining import CLIP_NORM, RATE
from benchmarks.speed.rivals import DTYPES
from benchmarks.speed.rows import Contender, Row, compare
from benchmarks.speed.texts import MAX_LENGTH, VOCABULARY, sst2
from benchmarks.speed.timing import Turns
from litebert.config import OptimConfig, TrainConfig
from litebert.folder import load_model, read_config, save_model, start_from
from litebert.nn import AlbertForTask
from litebert.optim import build_optimizer
from litebert.tasks.finetuning import Finetuning
from litebert.tasks.kinds.family import Feature, joined
from litebert.tasks.kinds.text import TextExample
from litebert.tasks.named.glue import DATASETS
from litebert.tokenizer import Tokenizer
from litebert.train.loop import training_step

BATCH_SIZE = 32
Examples = list[tuple[Feature, int]]
"""What is trained on, with labels."""


def measure(root: Path, threads: int, *, is_quick: bool, names: Sequence[str]) -> list[Row]:
    """Time an epoch of 8 steps, of 3 in a quick run; one step before is not timed."""
    if not VOCABULARY.is_file():
        print("no SST-2: set LITEBERT_TEST_DATA")
        return []
    write_classifier(root)
    examples = read(root, (3 if is_quick else 8) * BATCH_SIZE)
    lengths = [feature.num_tokens for feature, _ in examples]
    contenders = [EPOCHS[name.split()[0]](root, name, examples) for name in names]
    rows = compare(
        f"fine-tuning {len(examples)}",
        contenders,
        Turns(threads, seconds=0.0, least=1 if threads == 1 else 2),
        num_tokens=sum(lengths),
        flops=3 * yardstick.forward_flops(read_config(root / "model"), lengths),
    )
    print(*rows, sep="\n", flush=True)
    return rows


def write_classifier(root: Path) -> None:
    """Put SST-2's head on the encoder, so that all start from the same numbers."""
    if (root / "classifier").exists():
        return
    generator = torch.Generator().manual_seed(1)
    network = AlbertForTask(read_config(root / "model"), DATASETS["sst2"].family.head, generator=generator)
    start_from(network, root / "model")
    save_model(network, root / "classifier")
    Tokenizer.load(root / "model").save(root / "classifier")


def read(root: Path, number: int) -> Examples:
    """Return the first sentences, tokenised."""
    rows = list(itertools.islice(sst2(), number))
    features = DATASETS["sst2"].family.features(
        [TextExample(str(index), text, None, label) for index, (text, label) in enumerate(rows)],
        Tokenizer.load(root / "classifier"),
        max_length=MAX_LENGTH,
        training=True,
    )
    return [(feature, label) for feature, (_, label) in zip(features, rows, strict=True)]


def with_litebert(root: Path, name: str, examples: Examples) -> Contender:
    """The steps of `litebert finetune`, without its evaluations and checkpoints."""
    network = load_model(root / "classifier", dtype=DTYPES[name.split()[1]]).network
    train = TrainConfig(batch_size=BATCH_SIZE)
    features = [feature for feature, _ in examples]
    family = DATASETS["sst2"].family
    task = Finetuning(network, family, features=features, held_out={}, train=train)
    config = OptimConfig(name="adamw", learning_rate=RATE)
    optimizer = build_optimizer(config, network.named_parameters())

    def steps(number: int) -> None:
        network.train()
        for step, works in enumerate(task.batches(0, number)):
            training_step(task, works, optimizer, step=step, learning_rate=RATE, clip_norm=CLIP_NORM, seed=1)

    @torch.inference_mode()
    def logits() -> Any:
        return network.eval()(joined(features[:BATCH_SIZE])).float().numpy()

    all_steps = math.ceil(len(features) / BATCH_SIZE)
    return Contender(name, lambda: steps(all_steps), logits, warm=lambda: steps(1))


def with_transformers(root: Path, name: str, examples: Examples) -> Contender:
    """The Trainer with its defaults, given its tokenizer: it pads to a batch's longest text."""
    from transformers import (
        AlbertForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
        TrainingArguments,
    )

    model = AlbertForSequenceClassification.from_pretrained(root / "classifier")
    tokenizer = AutoTokenizer.from_pretrained(root / "classifier")
    arguments = TrainingArguments(
        str(root / "trainer"),
        per_device_train_batch_size=BATCH_SIZE,
        num_train_epochs=1,
        learning_rate=RATE,
        bf16=name.endswith("bf16"),
        use_cpu=True,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    rows = [{"input_ids": f.ids[0], "token_type_ids": f.segments[0], "labels": label} for f, label in examples]
    trainer = Trainer(model, arguments, train_dataset=rows, processing_class=tokenizer)

    def steps(number: int) -> None:
        arguments.max_steps = number
        trainer.train()

    @torch.inference_mode()
    def logits() -> Any:
        inputs = DataCollatorWithPadding(tokenizer)(rows[:BATCH_SIZE])
        with torch.autocast("cpu", torch.bfloat16, enabled=arguments.bf16):
            return model.eval()(**inputs).logits.float().numpy()

    return Contender(name, lambda: steps(-1), logits, warm=lambda: steps(1))


EPOCHS: dict[str, Callable[[Path, str, Examples], Contender]] = {
    "transformers": with_transformers,
    "litebert": with_litebert,
}
