"""Eight-bit copies of models: calibrated on texts or examples, written, and compared with
the originals.
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import torch
from torch import nn

from litebert.errors import LitebertError
from litebert.fast import calibrate, pack, to_int8
from litebert.files import require_new, staged_folder
from litebert.folder import (
    INT8_FILE,
    ModelFolder,
    read_folder,
    weights_path,
    write_folder,
)
from litebert.hub import locate
from litebert.inference.finetuned import Finetuned
from litebert.interop import Quantized
from litebert.nn import Albert, Batch, group_by_length
from litebert.tasks.kinds.family import Feature, collate, frame_ids

_NUM_EXAMPLES = 512  # texts, or examples, for the calibration
_HELD_OUT_EVERY = 16  # one in this many is held out to measure the error


def quantize(
    model: str | PathLike[str],
    output: Path,
    *,
    texts: Iterable[str] = (),
    data: Path | None = None,
    task: str | None = None,
) -> Quantized:
    """Write an eight-bit copy of a model, calibrated on texts or, with `data`, on
    training examples of a run's task: they should be like what the model will read.

    `task` is needed only for a model folder without its run.
    """
    require_new(output)
    folder = locate(fspath(model))
    if weights_path(folder).name == INT8_FILE:
        raise LitebertError(
            "LB-617", f"{folder} is already in eight bits", next="use it as it is"
        )
    if data is None:
        source = read_folder(folder)
        source.require_vectors()
        features = _features_of_texts(source, texts)
    else:
        # The weights are rounded from float32, whatever they were trained in.
        finetuned = Finetuned.open(
            model, task=task, data=data, device="cpu", precision="fp32"
        )
        source = finetuned.model
        features = _features_of_task(finetuned, data)
    _require_enough(features)

    # Calibrate on most examples, measure the error on the others.
    held_out = features[::_HELD_OUT_EVERY]
    used = list[Feature]()
    for number, feature in enumerate(features):
        if number % _HELD_OUT_EVERY:
            used.append(feature)
    bytes_in_float32 = _bytes_in_float32(source.network)
    error = _to_eight_bits(source.network, _batches(used), _batches(held_out))
    with staged_folder(output, if_exists="refuse") as staged:
        write_folder(source, staged)
    return Quantized(
        output=str(output),
        num_examples=len(used),
        bytes_before=_bytes_on_disk(folder),
        bytes_after=_bytes_on_disk(output),
        bytes_in_float32=bytes_in_float32,
        error=error,
    )


def _features_of_texts(model: ModelFolder, texts: Iterable[str]) -> list[Feature]:
    """Encode the first texts that are not empty, each as far as the model reads."""
    tokenizer = model.require_tokenizer()
    longest = model.network.config.max_position_embeddings
    features = list[Feature]()
    for pieces in tokenizer.encode_ids(list(islice(texts, _NUM_EXAMPLES))):
        if pieces:
            ids, segments = frame_ids(tokenizer, pieces, None, max_length=longest)
            features.append(Feature((ids,), (segments,), None, len(features)))
    return features


def _features_of_task(finetuned: Finetuned, data: Path) -> list[Feature]:
    """Encode training examples, evenly spaced over the file."""
    examples = finetuned.dataset.read(data, "train")
    spacing = max(1, len(examples) // _NUM_EXAMPLES)
    positions = finetuned.network.config.max_position_embeddings
    return finetuned.dataset.family.features(
        examples[::spacing][:_NUM_EXAMPLES],
        finetuned.tokenizer,
        max_length=min(finetuned.task.max_length, positions),
        training=False,
    )


def _require_enough(features: Sequence[Feature]) -> None:
    """Raise unless there is something to calibrate on, and something to hold out."""
    if len(features) >= _HELD_OUT_EVERY:
        return
    raise LitebertError(
        "LB-618",
        f"{len(features)} texts are too few to calibrate on",
        expected=f"a few hundred, at least {_HELD_OUT_EVERY}",
        next="give more texts",
    )


def _batches(features: Sequence[Feature]) -> list[Batch]:
    """Return the batches of features of similar lengths."""
    lengths = [feature.num_tokens for feature in features]
    batches = list[Batch]()
    for group in group_by_length(lengths):
        batches.append(collate([features[number] for number in group]))
    return batches


@torch.no_grad()
def _to_eight_bits(
    network: Any, calibration: Sequence[Batch], held_out: Sequence[Batch]
) -> float:
    """Replace the weights in place; return the relative error of the last hidden states
    of held-out texts.
    """
    albert: Albert = network.albert
    exact = torch.cat([albert(batch) for batch in held_out])  # (tokens, hidden)
    to_int8(network, calibrate(albert, calibration))
    pack(albert)
    rounded = torch.cat([albert(batch) for batch in held_out])
    return float((rounded - exact).norm() / exact.norm())


def _bytes_in_float32(network: nn.Module) -> int:
    """Return the bytes that the weights of a model would take in float32."""
    num_weights = 0
    for weight in network.state_dict().values():
        if not weight.is_meta:
            num_weights += weight.numel()
    return 4 * num_weights


def _bytes_on_disk(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))
