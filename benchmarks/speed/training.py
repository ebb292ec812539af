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
from litebert.config import OptimConfig, TrainConfig
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
    for count, length in ((8, 128), (8, 512))[: 1 if is_quick else 2]:
        texts = made_up([length] * count)
        contenders = [
            (_ours if name.startswith("litebert") else _theirs)(root, name, texts)
            for name in names
        ]
        given = {"num_tokens": texts.num_tokens, "flops": step_flops(config, texts)}
        rounds = 1 if is_quick else 2
        rows += compare(
            f"pretraining {count} x {length}",
            contenders,
            **given,
            rounds=rounds,
            seconds=20,
            most=6,
        )
    return rows


def _ours(root: Path, name: str, texts: Texts) -> Contender:
    step = our_step(
        read_folder(root / "model", dtype=DTYPES[name.split()[1]]).network, texts
    )
    return Contender(name, step, lambda: step.loss().detach().numpy(), warm=step)


def _theirs(root: Path, name: str, texts: Texts) -> Contender:
    from transformers import AlbertForPreTraining

    model = AlbertForPreTraining.from_pretrained(root / "model").train()
    step = their_step(model, texts, precision=name.split()[1])
    return Contender(
        name, step, lambda: np.float32(without_dropout(model, step)), warm=step
    )


def finetuning(root: Path, *, is_quick: bool, names: Sequence[str]) -> list[Row]:
    """Time an epoch of 8 steps, or 3 in a quick run, after one step that is not
    timed.
    """
    if not VOCABULARY.is_file():
        print("no SST-2: set LITEBERT_TEST_DATA")
        return []
    family = DATASETS["sst2"].family
    config = read_config(root / "model")
    # one head for all, so that all start from the same numbers
    if not (root / "classifier").exists():
        network = AlbertForTask(
            config, family.head, generator=torch.Generator().manual_seed(1)
        )
        start_from(network, root / "model")
        write_folder(ModelFolder(network), root / "classifier")
        Tokenizer.load(root / "model").save(root / "classifier")
    rows = list(itertools.islice(sst2(), (3 if is_quick else 8) * BATCH_SIZE))
    texts = [
        TextExample(str(index), text, None, label)
        for index, (text, label) in enumerate(rows)
    ]
    tokenizer = Tokenizer.load(root / "classifier")
    features = family.features(texts, tokenizer, max_length=MAX_LENGTH, training=True)
    examples = [
        (feature, label) for feature, (_, label) in zip(features, rows, strict=True)
    ]
    lengths = [feature.num_tokens for feature in features]
    return compare(
        f"fine-tuning {len(examples)}",
        [EPOCHS[name.split()[0]](root, name, examples) for name in names],
        num_tokens=sum(lengths),
        flops=3 * forward_flops(config, lengths),
        rounds=1 if torch.get_num_threads() == 1 else 2,
    )


def our_epoch(root: Path, name: str, examples: Examples) -> Contender:
    """Return the steps of `litebert finetune`, without its evaluations and
    checkpoints.
    """
    network = read_folder(root / "classifier", dtype=DTYPES[name.split()[1]]).network
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
    quiet = {
        "save_strategy": "no",
        "logging_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
    }
    given = {
        "per_device_train_batch_size": BATCH_SIZE,
        "num_train_epochs": 1,
        "learning_rate": RATE,
        "use_cpu": True,
    }
    arguments = transformers.TrainingArguments(
        str(root / "trainer"), bf16=name.endswith("bf16"), **given, **quiet
    )
    rows = [
        {"input_ids": f.ids[0], "token_type_ids": f.segments[0], "labels": label}
        for f, label in examples
    ]
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
