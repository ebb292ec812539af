"""Views inside a model: how hidden states move from layer to layer, and what each head
attends to.
"""

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor
from typing_extensions import TypedDict

from litebert.device import device_of
from litebert.errors import LitebertError
from litebert.inference.model import Model
from litebert.nn import Batch
from litebert.nn.model import attention_weights

# tokens of a text for which attention is shown; the rest is cut off
MAX_ATTENTION_TOKENS = 64


class Steps(TypedDict):
    """Distance and cosine between the input and the output of each step: means, and
    distances by token.
    """

    pieces: list[str]
    l2: list[float]
    cosine: list[float]
    by_token: list[list[float]]


class Attention(TypedDict):
    """For each head and query piece, its share of attention on each piece."""

    pieces: list[str]
    heads: list[list[list[float]]]


@torch.inference_mode()
def steps(model: Model, text: str) -> Steps:
    """Return how far the hidden states of a text move in each step: L2 distance and
    cosine (Figure 1).
    """
    pieces, states = _states(model, text, model.network.config.max_position_embeddings)
    distances = []
    cosines = []
    for before, after in pairwise(states):  # (tokens, hidden) each
        distances.append((after - before).norm(dim=-1))
        cosines.append(torch.cosine_similarity(before, after, dim=-1))
    by_step = torch.stack(distances)  # (steps, tokens)
    return {
        "pieces": pieces,
        "l2": by_step.mean(1).tolist(),
        "cosine": torch.stack(cosines).mean(1).tolist(),
        "by_token": by_step.T.tolist(),
    }


@torch.inference_mode()
def attention(model: Model, text: str, *, step: int = 1) -> Attention:
    """Return what each head attends to in one step, counted from 1: `heads` is (heads,
    query, key).
    """
    albert = model.network.albert
    if not 1 <= step <= albert.depth:
        raise LitebertError(
            "LB-974",
            "this model has no such step",
            expected=f"a step from 1 to {albert.depth}",
            next="GET /v1/models lists the steps of each model",
        )
    positions = model.network.config.max_position_embeddings
    longest = min(MAX_ATTENTION_TOKENS, positions)
    pieces, states = _states(model, text, longest)
    block = albert.attention[albert.plan[step - 1].attention]
    before = states[step - 1]  # (tokens, hidden)
    query = torch.unflatten(block.query(before), -1, block.heads)
    key = torch.unflatten(block.key(before), -1, block.heads)
    weights = attention_weights(query, key, block.visible)  # (heads, query, key)
    rounded = weights.cpu().double().round(decimals=4)
    return {"pieces": pieces, "heads": rounded.tolist()}


def _states(model: Model, text: str, longest: int) -> tuple[list[str], list[Tensor]]:
    """Return the pieces of a text, including [CLS] and [SEP], and their states before
    and after each step.
    """
    encoding = model.tokenizer.encode(text, frame=True)
    # [SEP] stays at the end of a text that is cut
    ids = [*encoding.ids[:-1][: longest - 1], encoding.ids[-1]]
    pieces = [*encoding.pieces[:-1][: longest - 1], encoding.pieces[-1]]
    batch = Batch.from_lists([ids]).to(device_of(model.network))
    states = [state.float() for state in model.network.albert.states(batch)]
    return pieces, states


INSIDE: dict[str, Callable[..., Steps | Attention]] = {
    "steps": steps,
    "attention": attention,
}
"""The views by the name of their route."""
