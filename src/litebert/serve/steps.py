"""How hidden states move through the steps of the shared block: the paper's Figure 1, one text."""

from __future__ import annotations

from itertools import pairwise
from typing import cast

import torch

from litebert.files import Json
from litebert.inference import Model
from litebert.nn import Batch


@torch.inference_mode()
def steps(model: Model, text: str) -> Json:
    """Return L2 distance and cosine between the input and the output of each step.

    `l2` and `cosine` have one mean over tokens a step; `by_token` has the distances of each token.
    """
    encoding = model.tokenizer.encode(text, frame=True)
    last = model.network.config.max_position_embeddings - 1
    ids = [*encoding.ids[:-1][:last], encoding.ids[-1]]
    pieces = [*encoding.pieces[:-1][:last], encoding.pieces[-1]]
    batch = Batch.from_lists([ids]).to(next(model.network.parameters()).device)
    states = [state.float() for state in model.network.albert.states(batch)]
    pairs = list(pairwise(states))
    distances = torch.stack([(after - before).norm(dim=-1) for before, after in pairs])
    cosines = torch.stack([torch.cosine_similarity(*pair, dim=-1) for pair in pairs])
    return {
        "pieces": cast(list[Json], pieces),
        "l2": distances.mean(1).tolist(),
        "cosine": cosines.mean(1).tolist(),
        "by_token": distances.T.tolist(),
    }
