"""The outputs of the network itself on padded inputs, under the names of an exported network."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from litebert.interop.export.padded import INPUTS
from litebert.interop.export.readers import NUM_STARTS, allowed_positions
from litebert.interop.export.samples import Inputs
from litebert.nn import AlbertForPretraining, AlbertForTask, Batch, Network
from litebert.tasks.kinds.spans import score_spans

Outputs: TypeAlias = Mapping[str, NDArray[np.float32]]


@torch.inference_mode()
def ragged_outputs(
    network: Network, inputs: Inputs, names: Collection[str], *, starts: NDArray[np.generic] | None = None
) -> Outputs:
    """Return the outputs of the network itself under these names, -inf on padding.

    A conditional head scores the ends after `starts`, (batch, starts), or after its own best.
    """
    shape = inputs["input_ids"].shape
    ids, mask, segments = (torch.from_numpy(inputs[name]).reshape(-1, shape[-1]) for name in INPUTS)
    batch = Batch.from_padded(ids, mask, segments)
    if isinstance(network, AlbertForTask) and "start_top_index" in names:
        chosen = NUM_STARTS if starts is None else torch.from_numpy(np.asarray(starts))
        spans = score_spans(network, batch, allowed_positions(mask, segments), chosen)
        found = {"start_logits": spans.start, "end_logits": spans.end}
        found["no_answer_logits"] = spans.no_answer
        return {name: values.numpy() for name, values in found.items()}
    hidden = network.albert(batch)
    outputs = {}
    for name in names:
        values, is_per_token = _read(name, network, hidden, batch)
        laid_out = _on_rectangle(values, batch, width=shape[-1]) if is_per_token else values
        has_choices = len(shape) == 3
        outputs[name] = (laid_out.reshape(shape[:2]) if has_choices else laid_out).numpy()
    return outputs


def _read(name: str, network: Network, hidden: Tensor, batch: Batch) -> tuple[Tensor, bool]:
    """Return an output, and whether it has a row per token or one per sequence."""
    if name == "last_hidden_state":
        return hidden, True
    if name == "pooler_output":
        return network.albert.pool(hidden[batch.first_tokens]), False
    if isinstance(network, AlbertForPretraining):
        if name == "sop_logits":
            return network.sentence_order(network.albert.pool(hidden[batch.first_tokens])), False
        return network.masked_lm(hidden, network.albert.embedding.word.weight), True
    if network.head_config.record.reads_texts:
        return network.head(hidden.float(), batch), False
    if network.head_config.is_pooled:
        return network.head(network.albert.pool(hidden[batch.first_tokens])), False
    names, logits = network.head_config.record.logits, network.head(hidden)
    return (logits if len(names) == 1 else logits[:, names.index(name)]), True


def _on_rectangle(values: Tensor, batch: Batch, *, width: int) -> Tensor:
    is_token = batch.to_padded(torch.ones_like(batch.ids), width=width) > 0
    laid_out = batch.to_padded(values, width=width)
    laid_out[~is_token] = -torch.inf
    return laid_out
