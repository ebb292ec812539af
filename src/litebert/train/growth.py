"""A larger network that starts from the weights of a smaller one."""

from __future__ import annotations

import math
import re
from pathlib import Path

import torch

from litebert.config import AlbertConfig
from litebert.errors import LitebertError
from litebert.folder import load_model
from litebert.nn import AlbertForPretraining
from litebert.tokenizer import Tokenizer
from litebert.train.run import write_model

_RANDOM = tuple(f"{part}.weight" for part in ("query", "key", "value", "intermediate", "pooler"))
"""Weights whose new parts are random; all other new parts are 0, so that nothing changes yet."""
_BLOCKS = ("albert.attention.", "albert.feed_forward.")


def grow(
    source: Path,
    output: Path,
    *,
    num_hidden_layers: int | None = None,
    hidden_size: int | None = None,
    intermediate_size: int | None = None,
    num_hidden_groups: int | None = None,
    seed: int = 12_345,
) -> AlbertConfig:
    """Write a larger network with the weights of a smaller one; sizes not given stay the same.

    More layers cost no parameter: the shared block is applied more often. New groups start as
    copies of the block that they replace, and a wider feed-forward layer with zeros: both compute
    the same function. New hidden dimensions become new heads of the same size; layer norms are
    rescaled, and the function is nearly the same.

    Raises:
        LitebertError: LB-266, the model is not complete; LB-267, it cannot grow to this shape.
    """
    loaded = load_model(source)
    small, before = loaded.network, loaded.network.config
    if not isinstance(small, AlbertForPretraining) or loaded.missing:
        raise LitebertError(
            "LB-266",
            f"{source} cannot grow",
            received="a fine-tuned model, or one without all pretraining heads",
            expected="a complete model of litebert pretrain",
            next="choose its pretrained model",
        )
    target = {
        "num_hidden_layers": num_hidden_layers or before.num_hidden_layers,
        "hidden_size": hidden_size or before.hidden_size,
        "intermediate_size": intermediate_size or before.intermediate_size,
        "num_hidden_groups": num_hidden_groups or before.num_hidden_groups,
    }
    _require_larger(before, target)
    heads = target["hidden_size"] // before.head_size
    config = AlbertConfig.model_validate(before.model_dump() | target | {"num_attention_heads": heads})
    large = AlbertForPretraining(config, generator=torch.Generator().manual_seed(seed))
    _copy(small, large)
    write_model(output, large, Tokenizer.load(source))
    return config


def _require_larger(before: AlbertConfig, target: dict[str, int]) -> None:
    smaller = [name for name, value in target.items() if value < getattr(before, name)]
    is_whole = target["hidden_size"] % before.head_size == 0
    grows_deep = target["num_hidden_layers"] > before.num_hidden_layers
    groups = target["num_hidden_groups"]
    is_divided = groups % before.num_hidden_groups == 0 and target["num_hidden_layers"] % groups == 0
    is_shared = before.sharing == "all" or not (grows_deep or groups > before.num_hidden_groups)
    if smaller or not (is_whole and is_divided and is_shared):
        raise LitebertError(
            "LB-267",
            "a network cannot grow to this shape",
            received=", ".join(f"{name} {value:,}" for name, value in target.items()) + f", sharing {before.sharing}",
            expected=f"nothing smaller, hidden_size a multiple of {before.head_size}, groups a "
            "multiple of today's that divides the layers, and more layers or groups only where "
            "all share",
            next="litebert grow --help",
        )


@torch.no_grad()
def _copy(small: AlbertForPretraining, large: AlbertForPretraining) -> None:
    """Copy each small parameter into the leading corner of the large one."""
    # with zeros in the new dimensions, the variance over all of them is smaller by this ratio
    ratio = small.config.hidden_size / large.config.hidden_size
    theirs = small.state_dict()
    for name, parameter in large.state_dict().items():
        old = theirs[_origin(name, small.config, large.config)]
        if not name.endswith(_RANDOM) or name.startswith("sentence_order."):
            parameter.zero_()
        if name.startswith(_BLOCKS) and name.endswith("norm.weight"):
            old = old * math.sqrt(ratio)  # keeps the normalised values of the old dimensions
        parameter[tuple(slice(size) for size in old.shape)].copy_(old)


def _origin(name: str, small: AlbertConfig, large: AlbertConfig) -> str:
    """Return the small parameter that a large one starts from: that of the block it replaces."""
    match = re.fullmatch(r"(albert\.(?:attention|feed_forward)\.)(\d+)(\..*)", name)
    if match is None:
        return name
    group, inner = divmod(int(match[2]), large.inner_group_num)
    group = group * small.num_hidden_groups // large.num_hidden_groups
    return f"{match[1]}{group * small.inner_group_num + inner}{match[3]}"
