"""An eight-bit copy of a model, calibrated on texts like those that it will read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from os import PathLike, fspath
from pathlib import Path
from typing import TypeAlias

import torch

from litebert.errors import LitebertError
from litebert.fast import calibrate, is_int8, pack, to_int8
from litebert.files import require_absent, staged_folder
from litebert.folder import load_model, save_model
from litebert.hub import locate
from litebert.inference.finetuned import Finetuned, measured
from litebert.inference.pretrained import frame
from litebert.nn import Batch, Network
from litebert.tasks.finetuning import by_length
from litebert.tasks.kinds.family import joined
from litebert.tokenizer import Tokenizer

NUM_EXAMPLES = 512
"""Texts, or examples, to calibrate on."""
HELD_OUT_EVERY = 16
"""One in so many is held out to measure the error."""
Measures: TypeAlias = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Quantized:
    """The size of a quantized model in bytes, and its error on held-out texts.

    `error` is the norm of the difference of the last hidden states, relative to the norm of the original; `before` and
    `after` are the measures of each development split, if requested.
    """

    num_examples: int
    bytes_before: int
    bytes_after: int
    error: float
    before: Measures = field(default_factory=dict)
    after: Measures = field(default_factory=dict)


def quantize_with_texts(model: str | PathLike[str], output: Path, texts: Iterable[str]) -> Quantized:
    """Write an eight-bit copy of a model, calibrated on the first NUM_EXAMPLES texts."""
    _require_new(output)
    folder = locate(fspath(model))
    network, tokenizer = load_model(folder).network, Tokenizer.load(folder)
    _require_float(network, folder)
    encoded = [ids for ids in tokenizer.encode_ids(list(islice(texts, NUM_EXAMPLES))) if ids]
    lengths = [min(len(ids) + 2, network.config.max_position_embeddings) for ids in encoded]

    def batch(numbers: Sequence[int]) -> Batch:
        return frame(network, tokenizer, [encoded[number] for number in numbers])

    return _quantize(network, tokenizer, folder, output, lengths, batch)


def quantize_run(
    run: str | PathLike[str], output: Path, data: Path, *, task: str | None = None, evaluate: bool = False
) -> Quantized:
    """Write an eight-bit copy of a run's model, calibrated on training examples of its task.

    `task` is needed only for a model folder without its run. With `evaluate`, the model is measured on the development
    splits before and after.
    """
    _require_new(output)
    opened = Finetuned.open(run, task=task, precision="fp32")  # int8 is packed beside fp32
    _require_float(opened.network, opened.folder)
    dataset, longest = opened.dataset, opened.network.config.max_position_embeddings
    examples = dataset.read(data, dataset.train_split)
    features = dataset.family.features(
        examples[:: max(1, len(examples) // NUM_EXAMPLES)][:NUM_EXAMPLES],
        opened.tokenizer,
        max_length=min(opened.task.max_length, longest),
        training=False,
    )

    def batch(numbers: Sequence[int]) -> Batch:
        return joined([features[number] for number in numbers])

    def measures() -> Measures:
        splits = dataset.dev_splits if evaluate else ()
        return {split: measured([opened], data, split)[0] for split in splits}

    before, lengths = measures(), [feature.num_tokens for feature in features]
    found = _quantize(opened.network, opened.tokenizer, opened.folder, output, lengths, batch)
    return replace(found, before=before, after=measures())


def _quantize(
    network: Network,
    tokenizer: Tokenizer,
    folder: Path,
    output: Path,
    lengths: Sequence[int],
    batch: Callable[[Sequence[int]], Batch],
) -> Quantized:
    """Calibrate on most examples, measure on the rest, write the folder."""
    if len(lengths) < HELD_OUT_EVERY:
        raise LitebertError(
            "LB-618",
            "there is too little to calibrate on",
            received=f"{len(lengths)} texts",
            expected=f"a few hundred, at least {HELD_OUT_EVERY}",
            next="give more texts, like those that the model will read",
        )
    used = [number for number in range(len(lengths)) if number % HELD_OUT_EVERY]
    albert = network.albert
    held_out = [batch([number]) for number in range(0, len(lengths), HELD_OUT_EVERY)]
    groups = by_length([lengths[number] for number in used])
    with torch.no_grad():
        exact = torch.cat([albert(one) for one in held_out])
        calibration = calibrate(albert, (batch([used[n] for n in group]) for group in groups))
        to_int8(network, calibration)
        pack(albert)
        rounded = torch.cat([albert(one) for one in held_out])
    with staged_folder(output) as staged:
        save_model(network, staged)
        tokenizer.save(staged, max_length=network.config.max_position_embeddings)
    bytes_before, bytes_after = (
        sum(path.stat().st_size for path in each.glob("*.safetensors")) for each in (folder, output)
    )
    error = float((rounded - exact).norm() / exact.norm())
    return Quantized(len(used), bytes_before, bytes_after, error)


def _require_new(output: Path) -> None:
    require_absent(
        "LB-619",
        f"{output} exists already",
        output,
        expected="a folder that does not exist yet",
        next="choose another folder",
    )


def _require_float(network: Network, folder: Path) -> None:
    if is_int8(network.albert):
        raise LitebertError(
            "LB-617",
            f"{folder} is in eight bits already",
            received="int8 weights",
            expected="a model with float weights",
            next="use it as it is",
        )
