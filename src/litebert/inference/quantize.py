"""An eight-bit copy of a model, calibrated on texts like those that it will read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TypeAlias

import torch

from litebert.errors import LitebertError
from litebert.fast import calibrate, is_int8, pack, to_int8
from litebert.files import require_absent, staged_folder
from litebert.folder import load_model, save_model
from litebert.hub import locate
from litebert.inference.finetuned import Finetuned, measured
from litebert.inference.pretrained import framed
from litebert.nn import Batch, Network
from litebert.tasks.finetuning import by_length
from litebert.tasks.kinds.family import joined
from litebert.tokenizer import Tokenizer

NUM_EXAMPLES = 512
"""Texts, or examples, to calibrate on; every sixteenth is held out to measure the error."""
_HELD_OUT = 16
Measures: TypeAlias = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Quantized:
    """The size of a quantized model in bytes, and its error on held-out texts.

    `error` is the norm of the difference of the last hidden states, relative to the norm of the
    original; `before` and `after` are the measures of each development split, if requested.
    """

    num_examples: int
    bytes_before: int
    bytes_after: int
    error: float
    before: Measures = field(default_factory=dict)
    after: Measures = field(default_factory=dict)


def quantize_with_texts(model: str | Path, output: Path, texts: Iterable[str]) -> Quantized:
    """Write an eight-bit copy of a model, calibrated on the first NUM_EXAMPLES texts.

    Raises:
        LitebertError: LB-618, there are too few texts; LB-619, `output` exists.
    """
    _require_new(output)
    folder = locate(model)
    network, tokenizer = load_model(folder).network, Tokenizer.load(folder)
    encoded = [ids for ids in tokenizer.encode_ids(list(islice(texts, NUM_EXAMPLES))) if ids]
    longest = network.config.max_position_embeddings

    def batch(numbers: Sequence[int]) -> Batch:
        return framed(network, tokenizer, [encoded[number] for number in numbers])

    lengths = [min(len(ids) + 2, longest) for ids in encoded]
    return _quantize(network, tokenizer, folder, output, lengths, batch)


def quantize_run(
    run: str | Path, output: Path, data: Path, *, task: str | None = None, evaluate: bool = False
) -> Quantized:
    """Write an eight-bit copy of a run's model, calibrated on training examples of its task.

    `task` is needed only for a model folder without its run. With `evaluate`, the model is measured
    on the development splits before and after.

    Raises:
        LitebertError: LB-617, the model is in eight bits already; LB-618, there are too few
            examples; LB-619, `output` exists.
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

    lengths = [feature.num_tokens for feature in features]
    before = _measures(opened, data) if evaluate else {}
    found = _quantize(opened.network, opened.tokenizer, opened.folder, output, lengths, batch)
    return replace(found, before=before, after=_measures(opened, data) if evaluate else {})


def _measures(opened: Finetuned, data: Path) -> Measures:
    return {split: measured([opened], data, split)[0] for split in opened.dataset.dev_splits}


def _quantize(
    network: Network,
    tokenizer: Tokenizer,
    folder: Path,
    output: Path,
    lengths: Sequence[int],
    batch: Callable[[Sequence[int]], Batch],
) -> Quantized:
    """Calibrate on most examples, measure on the rest, write the folder."""
    if len(lengths) < _HELD_OUT:
        raise LitebertError(
            "LB-618",
            "there is too little to calibrate on",
            received=f"{len(lengths)} texts",
            expected=f"a few hundred, at least {_HELD_OUT}",
            next="give more texts, like those that the model will read",
        )
    kept = range(0, len(lengths), _HELD_OUT)
    used = [number for number in range(len(lengths)) if number % _HELD_OUT]
    albert, held_out = network.albert, [batch([number]) for number in kept]
    with torch.no_grad():
        exact = torch.cat([albert(one) for one in held_out])
        batches = (
            batch([used[number] for number in numbers]) for numbers in by_length([lengths[number] for number in used])
        )
        to_int8(network, calibrate(albert, batches))
        pack(albert)
        rounded = torch.cat([albert(one) for one in held_out])
    with staged_folder(output) as staged:
        save_model(network, staged)
        tokenizer.save(staged, max_length=network.config.max_position_embeddings)
    return Quantized(
        num_examples=len(used),
        bytes_before=_num_bytes(folder),
        bytes_after=_num_bytes(output),
        error=float((rounded - exact).norm() / exact.norm()),
    )


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


def _num_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))
