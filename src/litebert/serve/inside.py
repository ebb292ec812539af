"""Look inside a model: how hidden states move from step to step, what each head attends to."""

from __future__ import annotations

from itertools import pairwise
from typing import cast

import torch

from litebert.errors import LitebertError
from litebert.fast.steps import blocks
from litebert.files import Json
from litebert.inference import Model
from litebert.nn import Batch
from litebert.nn.model import AttentionBlock

MAX_ATTENTION_TOKENS = 64
"""The longest text whose attention is shown; the rest is cut off."""


@torch.inference_mode()
def steps(model: Model, text: str) -> Json:
    """Return L2 distance and cosine between the input and the output of each step (Figure 1).

    `l2` and `cosine` have one mean over tokens per step; `by_token` has each token's distances.
    """
    batch, pieces = _framed(model, text, model.network.config.max_position_embeddings)
    states = [state.float() for state in model.network.albert.states(batch)]
    pairs = list(pairwise(states))
    distances = torch.stack([(after - before).norm(dim=-1) for before, after in pairs])
    cosines = torch.stack([torch.cosine_similarity(*pair, dim=-1) for pair in pairs])
    return {
        "pieces": pieces,
        "l2": distances.mean(1).tolist(),
        "cosine": cosines.mean(1).tolist(),
        "by_token": distances.T.tolist(),
    }


@torch.inference_mode()
def attention(model: Model, text: str, *, step: int) -> Json:
    """Return the attention of each head in one step, counted from 1: `heads` by query by key.

    Raises:
        LitebertError: LB-974, the model has fewer steps.
    """
    albert = model.network.albert
    if not 1 <= step <= albert.depth:
        raise LitebertError(
            "LB-974",
            "this model has fewer steps",
            received=step,
            expected=f"a step from 1 to {albert.depth}",
            next="GET /v1/models says how many steps each model has",
        )
    longest = min(MAX_ATTENTION_TOKENS, model.network.config.max_position_embeddings)
    batch, pieces = _framed(model, text, longest)
    hidden = list(albert.states(batch))[step - 1].float()
    block = list(blocks(albert, AttentionBlock))[albert.plan[step - 1].attention]
    query, key = (torch.unflatten(layer(hidden), -1, block.heads) for layer in (block.query, block.key))
    scores = torch.einsum("qhd,khd->hqk", query, key) * query.shape[-1] ** -0.5
    if block.visible is not None:
        place = torch.arange(len(pieces), device=scores.device)
        scores = scores.masked_fill(~block.visible(place[:, None], place), -torch.inf)
    shares = scores.softmax(-1).double().round(decimals=4)
    return {"pieces": pieces, "heads": shares.tolist()}


def _framed(model: Model, text: str, longest: int) -> tuple[Batch, list[Json]]:
    """Return a framed text, cut to `longest` tokens, and its pieces."""
    encoding = model.tokenizer.encode(text, frame=True)
    ids = [*encoding.ids[:-1][: longest - 1], encoding.ids[-1]]
    pieces = [*encoding.pieces[:-1][: longest - 1], encoding.pieces[-1]]
    device = next(model.network.parameters()).device
    return Batch.from_lists([ids]).to(device), cast(list[Json], pieces)
