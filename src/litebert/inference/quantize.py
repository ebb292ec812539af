"""An eight-bit copy of a model, calibrated on texts like those that it will read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from os import PathLike, fspath
from pathlib import Path
from typing import TypeAlias

import torch

from litebert.errors import LitebertError
from litebert.fast import calibrate, pack, to_int8
from litebert.files import require_new, staged_folder
from litebert.folder.model import load_model, save_model
from litebert.folder.weights import INT8_FILE, weights_path
from litebert.hub.transfer import locate
from litebert.inference.finetuned import Finetuned, measured
from litebert.interop.reports import Quantized
from litebert.nn import Batch, Network
from litebert.nn.batch import by_length
from litebert.tasks.kinds.family import frame_ids
from litebert.tokenizer import Tokenizer

NUM_EXAMPLES = 512
"""Texts, or examples, to calibrate on."""
HELD_OUT_EVERY = 16
"""One in so many is held out to measure the error."""
Example: TypeAlias = tuple[Sequence[Sequence[int]], Sequence[Sequence[int]]]
"""Ids and segments of the sequences of an example; a question with choices has several."""


def quantize_with_texts(model: str | PathLike[str], output: Path, texts: Iterable[str]) -> Quantized:
    """Write an eight-bit copy of a model, calibrated on the first NUM_EXAMPLES texts."""
    require_new(output, force=None)
    folder = _float_model(model)
    network, tokenizer = load_model(folder).network, Tokenizer.load(folder)
    encoded = [ids for ids in tokenizer.encode_ids(list(islice(texts, NUM_EXAMPLES))) if ids]
    longest = network.config.max_position_embeddings
    framed = [frame_ids(tokenizer, ids, None, max_length=longest) for ids in encoded]
    return _quantize(network, tokenizer, folder, output, [([ids], [segments]) for ids, segments in framed])


def quantize_run(
    run: str | PathLike[str], output: Path, data: Path, *, task: str | None = None, evaluate: bool = False
) -> Quantized:
    """Write an eight-bit copy of a run's model, calibrated on training examples of its task.

    `task` is needed only for a model folder without its run. With `evaluate`, the model is measured on the development
    splits before and after.
    """
    require_new(output, force=None)
    folder = _float_model(run)
    opened = Finetuned.open(run, task=task, precision="fp32")  # int8 is packed beside fp32
    dataset, longest = opened.dataset, opened.network.config.max_position_embeddings
    examples = dataset.read(data, dataset.train_split)
    features = dataset.family.features(
        examples[:: max(1, len(examples) // NUM_EXAMPLES)][:NUM_EXAMPLES],
        opened.tokenizer,
        max_length=min(opened.task.max_length, longest),
        training=False,
    )
    splits = dataset.dev_splits if evaluate else ()
    before = {split: measured([opened], data, split)[0] for split in splits}
    sequences = [(feature.ids, feature.segments) for feature in features]
    found = _quantize(opened.network, opened.tokenizer, folder, output, sequences)
    after = {split: measured([opened], data, split)[0] for split in splits}
    return replace(found, before=before, after=after)


def _float_model(model: str | PathLike[str]) -> Path:
    folder = locate(fspath(model))
    if weights_path(folder).name == INT8_FILE:
        raise LitebertError(
            "LB-617",
            f"{folder} is in eight bits already",
            expected="a model with float weights",
            next="use it as it is",
        )
    return folder


def _quantize(
    network: Network, tokenizer: Tokenizer, folder: Path, output: Path, examples: Sequence[Example]
) -> Quantized:
    """Calibrate on most examples, measure on the rest, write the folder."""
    if len(examples) < HELD_OUT_EVERY:
        raise LitebertError(
            "LB-618",
            "there is too little to calibrate on",
            received=f"{len(examples)} texts",
            expected=f"a few hundred, at least {HELD_OUT_EVERY}",
            next="give more texts, like those that the model will read",
        )
    used = [number for number in range(len(examples)) if number % HELD_OUT_EVERY]
    held_out = [_batch([example]) for example in examples[::HELD_OUT_EVERY]]
    groups = by_length([sum(map(len, examples[number][0])) for number in used])
    albert = network.albert
    with torch.no_grad():
        exact = torch.cat([albert(one) for one in held_out])
        calibration = calibrate(albert, (_batch([examples[used[n]] for n in group]) for group in groups))
        to_int8(network, calibration)
        pack(albert)
        rounded = torch.cat([albert(one) for one in held_out])
    with staged_folder(output) as staged:
        save_model(network, staged)
        tokenizer.save(staged, max_length=network.config.max_position_embeddings)
    before, after = (sum(path.stat().st_size for path in each.glob("*.safetensors")) for each in (folder, output))
    error = float((rounded - exact).norm() / exact.norm())
    return Quantized(str(output), len(used), before, after, error)


def _batch(examples: Sequence[Example]) -> Batch:
    return Batch.from_lists(
        [ids for example in examples for ids in example[0]], [types for example in examples for types in example[1]]
    )
