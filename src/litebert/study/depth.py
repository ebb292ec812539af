"""Elastic depth: how well a model predicts at every depth, and what a token costs there."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median

from pydantic import BaseModel

from litebert.inference.model import Model
from litebert.nn import AlbertForPretraining
from litebert.study.masked import masked_texts


class AtDepth(BaseModel):
    """One depth: masked-LM measures, and CPU microseconds a token (median of the rounds)."""

    depth: int
    loss: float
    accuracy: float
    microseconds: float


class Depths(BaseModel):
    """What `litebert study depth` found."""

    source: str
    num_masked: int
    depths: list[AtDepth]

    @property
    def summary(self) -> str:
        """Say in one sentence what half of the depth costs and gives."""
        last, half = self.depths[-1], self.depths[(len(self.depths) + 1) // 2 - 1]
        best = min(self.depths, key=lambda each: each.loss)
        return (
            f"{self.source}: at depth {half.depth} of {last.depth} the masked-LM loss is "
            f"{half.loss:.3f}, at full depth {last.loss:.3f}, for "
            f"{half.microseconds / last.microseconds:.2f} of its time; "
            f"it is lowest at depth {best.depth}."
        )


def measure_depths(model: Model, texts: Sequence[str], *, longest: int = 128, rounds: int = 3) -> Depths:
    """Measure the masked-LM head of a model on the hidden states after each of its steps.

    Raises:
        LitebertError: LB-763, the model has no masked-LM head, or the texts are too short.
    """
    texts_with_masks = masked_texts(model, texts, longest=longest)
    network = model.network
    assert isinstance(network, AlbertForPretraining)
    full = network.albert.depth
    found = []
    try:
        for depth in range(1, full + 1):
            network.albert.depth = depth
            seconds = []
            for _ in range(rounds):
                begun = time.process_time()
                loss, accuracy = texts_with_masks.measure(network)
                seconds.append(time.process_time() - begun)
            micro = 1e6 * median(seconds) / len(texts_with_masks.batch.ids)
            found.append(AtDepth(depth=depth, loss=loss, accuracy=accuracy, microseconds=round(micro, 2)))
    finally:
        network.albert.depth = full
    return Depths(source=model.source, num_masked=len(texts_with_masks.targets), depths=found)
