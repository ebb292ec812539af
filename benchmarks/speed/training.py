"""A pretraining step, and an epoch of fine-tuning on SST-2's first sentences, compared
with transformers.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.speed.rows import Contender, Row, compare
from benchmarks.steps import (
    CLIP_NORM,
    DTYPES,
    RATE,
    forward_flops,
    our_step,
    step_flops,
    their_step,
    without_dropout,
)
from benchmarks.texts import MAX_LENGTH, VOCABULARY, Texts, made_up, sst2
from litebert.config import AlbertConfig, OptimConfig, TrainConfig
from litebert.folder import (
    ModelFolder,
    read_config,
    read_folder,
    start_from,
    write_folder,
)
from litebert.nn import AlbertForTask
from litebert.optim import build_optimizer
from litebert.tasks.finetuning import Finetuning
from litebert.tasks.kinds.family import Feature, collate
from litebert.tasks.kinds.text import TextExample
from litebert.tasks.named.glue import DATASETS
from litebert.tokenizer import Tokenizer
from litebert.train.step import training_step

BATCH_SIZE = 32
Examples = list[tuple[Feature, int]]


def pretraining(root: Path, *, is_quick: bool, names: Sequence[str]) -> list[Row]:
    """Time masked words, sentence order, clipping and AdamW at both lengths; a quick
    run takes the shorter one.
    """
    config = read_config(root / "model")
    rows = list[Row]()
    rectangles = [(8, 128)] if is_quick else [(8, 128), (8, 512)]
    for count, length in rectangles:
        texts = made_up([length] * count)
        rows += compare(
            f"pretraining {count} x {length}",
            [_pretraining_step(root, name, texts) for name in names],
            num_tokens=texts.num_tokens,
            flops=step_flops(config, texts),
            rounds=1 if is_quick else 2,
            seconds=20,
            most=6,
        )
    return rows


def _pretraining_step(root: Path, name: str, texts: Texts) -> Contender:
    program, precision = name.split()
    if program == "litebert":
        return _ours(root, name, precision, texts)
    return _theirs(root, name, precision, texts)


def _ours(root: Path, name: str, precision: str, texts: Texts) -> Contender:
    network = read_folder(root / "model", dtype=DTYPES[precision]).network
    step = our_step(network, texts)
    return Contender(name, step, lambda: step.loss().detach().numpy(), warm=step)


def _theirs(root: Path, name: str, precision: str, texts: Texts) -> Contender:
    from transformers import AlbertForPreTraining

    model = AlbertForPreTraining.from_pretrained(root / "model").train()
    step = their_step(model, texts, precision=precision)

    def loss() -> np.float32:
        return np.float32(without_dropout(model, step))

    return Contender(name, step, loss, warm=step)


def finetuning(root: Path, *, is_quick: bool, names: Sequence[str]) -> list[Row]:
    """Time an epoch of 8 steps, or 3 in a quick run, after one step that is not
    timed.
    """
    if not VOCABULARY.is_file():
        print("no SST-2: set LITEBERT_TEST_DATA")
        return []
    config = read_config(root / "model")
    if not (root / "classifier").exists():
        _write_classifier(root, config)
    num_steps = 3 if is_quick else 8
    examples = _examples(root, num_steps * BATCH_SIZE)
    contenders = list[Contender]()
    for name in names:
        program, _ = name.split()
        contenders.append(EPOCHS[program](root, name, examples))
    lengths = [feature.num_tokens for feature, _ in examples]
    return compare(
        f"fine-tuning {len(examples)}",
        contenders,
        num_tokens=sum(lengths),
        flops=3 * forward_flops(config, lengths),
        rounds=1 if torch.get_num_threads() == 1 else 2,
    )


def _write_classifier(root: Path, config: AlbertConfig) -> None:
    """Write one head for all, so that all start from the same numbers."""
    head = DATASETS["sst2"].family.head
    generator = torch.Generator().manual_seed(1)
    network = AlbertForTask(config, head, generator=generator)
    start_from(network, root / "model")
    write_folder(ModelFolder(network), root / "classifier")
    Tokenizer.load(root / "model").save(root / "classifier")


def _examples(root: Path, number: int) -> Examples:
    """Return the first texts of SST-2 with their labels."""
    texts = list[TextExample]()
    labels = list[int]()
    for text, label in itertools.islice(sst2(), number):
        texts.append(TextExample(str(len(texts)), text, None, label))
        labels.append(label)
    tokenizer = Tokenizer.load(root / "classifier")
    features = DATASETS["sst2"].family.features(
        texts, tokenizer, max_length=MAX_LENGTH, training=True
    )
    return list(zip(features, labels, strict=True))


def our_epoch(root: Path, name: str, examples: Examples) -> Contender:
    """Return the steps of `litebert finetune`, without its evaluations and
    checkpoints.
    """
    _, precision = name.split()
    network = read_folder(root / "classifier", dtype=DTYPES[precision]).network
    features = [feature for feature, _ in examples]
    family = DATASETS["sst2"].family
    task = Finetuning(
        network,
        family,
        features=features,
        held_out={},
        train=TrainConfig(batch_size=BATCH_SIZE),
    )
    optimizer = build_optimizer(
        OptimConfig(name="adamw", learning_rate=RATE), network.named_parameters()
    )

    def steps(number: int) -> None:
        network.train()
        for step, works in enumerate(task.batches(0, number)):
            training_step(
                task,
                works,
                optimizer,
                step=step,
                learning_rate=RATE,
                clip_norm=CLIP_NORM,
                seed=1,
            )

    @torch.inference_mode()
    def logits() -> Any:
        return network.eval()(collate(features[:BATCH_SIZE])).float().numpy()

    return Contender(
        name,
        lambda: steps(math.ceil(len(features) / BATCH_SIZE)),
        logits,
        warm=lambda: steps(1),
    )


def their_epoch(root: Path, name: str, examples: Examples) -> Contender:
    """Return the Trainer with its defaults and a tokenizer: it pads to a batch's
    longest text.
    """
    import transformers

    model = transformers.AlbertForSequenceClassification.from_pretrained(
        root / "classifier"
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(root / "classifier")
    arguments = transformers.TrainingArguments(
        str(root / "trainer"),
        bf16=name.endswith("bf16"),
        per_device_train_batch_size=BATCH_SIZE,
        num_train_epochs=1,
        learning_rate=RATE,
        use_cpu=True,
        # quiet
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    rows = list[dict[str, Any]]()
    for feature, label in examples:
        ids = feature.ids[0]
        segments = feature.segments[0]
        rows.append({"input_ids": ids, "token_type_ids": segments, "labels": label})
    trainer = transformers.Trainer(
        model, arguments, train_dataset=rows, processing_class=tokenizer
    )

    def steps(number: int) -> None:
        arguments.max_steps = number
        trainer.train()

    @torch.inference_mode()
    def logits() -> Any:
        inputs = transformers.DataCollatorWithPadding(tokenizer)(rows[:BATCH_SIZE])
        with torch.autocast("cpu", torch.bfloat16, enabled=arguments.bf16):
            return model.eval()(**inputs).logits.float().numpy()

    return Contender(name, lambda: steps(-1), logits, warm=lambda: steps(1))


EPOCHS: dict[str, Callable[[Path, str, Examples], Contender]] = {
    "transformers": their_epoch,
    "litebert": our_epoch,
}
