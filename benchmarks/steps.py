"""One pretraining step of the same network on the same tokens: litebert's, and
transformers' as its users run it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.texts import Texts
from litebert.config import AlbertConfig, OptimConfig, TrainConfig
from litebert.nn import AlbertForPretraining, Batch
from litebert.optim import build_optimizer, clip_gradients
from litebert.tasks.heads import PretrainingWork
from litebert.tasks.pretraining import Pretraining

MASKED_SHARE = 0.15
RATE = 2e-5
CLIP_NORM = 1.0
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Step:
    """Calling it takes the whole step; `loss` and `update` are its parts."""

    loss: Callable[[], Tensor]
    update: Callable[[], object]
    whole: Callable[[], object] | None = None

    def backward(self) -> None:
        self.loss().backward()

    def __call__(self) -> None:
        if self.whole:
            self.whole()
            return
        self.backward()
        self.update()


def masked_positions(texts: Texts) -> Tensor:
    """Return the same random share of the tokens at every call, in order: (masked,),
    indices into the flat tokens.
    """
    order = torch.randperm(texts.num_tokens, generator=torch.Generator().manual_seed(1))
    num_masked = round(MASKED_SHARE * texts.num_tokens)
    return order[:num_masked].sort().values


# ---- litebert ------------------------------------------------------------------------


def our_work(texts: Texts, device: torch.device | str = "cpu") -> PretrainingWork:
    """Return a batch that is a whole step: masked words and sentence order."""
    masked = masked_positions(texts)
    batch = Batch.from_lists(texts.ids, texts.segments)
    labels = torch.arange(len(texts.ids)) % 2
    return PretrainingWork(
        batch.to(device),
        masked_positions=masked.to(device),
        masked_ids=batch.ids[masked].to(device),
        sentence_labels=labels.to(device),
        step_masked=len(masked),
        step_labeled=len(texts.ids),
    )


def our_step(
    network: AlbertForPretraining,
    texts: Texts,
    *,
    optimizer: str = "adamw",
    by_trainer: bool = True,
) -> Step:
    """Return litebert's step as its trainer takes it, on the device of the network.

    The trainer itself needs packages that a stock GPU image lacks; without it, the
    parts are the same.
    """
    work = our_work(texts, next(network.parameters()).device)
    task = Pretraining(network.train(), held_out=(), train=TrainConfig())
    optim = OptimConfig.model_validate({"name": optimizer, "learning_rate": RATE})
    built = build_optimizer(optim, network.named_parameters())

    def update() -> None:
        clip_gradients(network.parameters(), CLIP_NORM).item()
        built.step()
        built.zero_grad(set_to_none=True)

    parts = Step(lambda: task.loss(work).total, update)
    if not by_trainer:
        return parts
    from litebert.train.step import training_step

    whole = partial(
        training_step,
        task,
        [work],
        built,
        step=0,
        learning_rate=RATE,
        clip_norm=CLIP_NORM,
        seed=1,
    )
    return replace(parts, whole=whole)


# ---- transformers --------------------------------------------------------------------

SHARED = (
    "vocab_size",
    "embedding_size",
    "hidden_size",
    "intermediate_size",
    "hidden_act",
    "layer_norm_eps",
    "num_hidden_layers",
    "num_attention_heads",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "max_position_embeddings",
)
"""Settings with the same name in both libraries."""


def their_network(
    config: AlbertConfig, ours: AlbertForPretraining | None = None
) -> nn.Module:
    """Return transformers' network, with our weights if they are given."""
    import transformers

    settings = {name: getattr(config, name) for name in SHARED}
    settings["attn_implementation"] = "sdpa"
    theirs = transformers.AlbertForPreTraining(transformers.AlbertConfig(**settings))
    if ours is not None:
        _copy_weights(ours, theirs, config)
    return theirs.train()


def _copy_weights(
    ours: AlbertForPretraining, theirs: nn.Module, config: AlbertConfig
) -> None:
    from litebert.folder.names import tensor_names

    weights = dict[str, Tensor]()
    for name, values in ours.state_dict().items():
        for their_name in tensor_names(name, config):
            weights[their_name] = values
    unknown = theirs.load_state_dict(weights, strict=False).unexpected_keys
    assert not unknown, unknown
    # as wide as the layers: transformers projects anyway
    if not config.projects_embeddings:
        projection = theirs.albert.encoder.embedding_hidden_mapping_in
        nn.init.eye_(projection.weight)
        nn.init.zeros_(projection.bias)


def their_step(
    network: nn.Module, texts: Texts, *, precision: str = "bf16", forward: Any = None
) -> Step:
    """Return the step of transformers' Trainer: autocast in bf16, torch's fused AdamW,
    a padded rectangle.

    `forward` is the compiled network, if there is one.
    """
    device = next(network.parameters()).device
    inputs = _their_inputs(texts, device)
    compute = network if forward is None else forward
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, fused=True)

    def loss() -> Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            return compute(**inputs).loss

    def update() -> None:
        torch.nn.utils.clip_grad_norm_(network.parameters(), CLIP_NORM)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return Step(loss, update)


def _their_inputs(texts: Texts, device: torch.device) -> dict[str, Tensor]:
    """Return the padded rectangle and the labels, those of `our_work`."""
    inputs = {name: torch.from_numpy(values) for name, values in texts.padded().items()}
    if texts.mask.all():
        del inputs["attention_mask"]  # nothing is padded
    flat = torch.cat([torch.tensor(ids) for ids in texts.ids])  # (tokens,)
    masked = masked_positions(texts)
    labels = torch.full_like(flat, -100)  # transformers' label of what is not counted
    labels[masked] = flat[masked]
    rectangle = torch.full(texts.mask.shape, -100)  # (sequences, longest)
    inputs["labels"] = rectangle.masked_scatter(torch.from_numpy(texts.mask), labels)
    inputs["sentence_order_label"] = torch.arange(len(texts.ids)) % 2
    return {name: values.to(device) for name, values in inputs.items()}


def without_dropout(network: nn.Module, step: Step) -> float:
    """Return the loss in evaluation mode: transformers' sentence-order head has
    dropout.
    """
    network.eval()
    with torch.no_grad():
        value = step.loss().float().item()
    network.train()
    return value


# ---- operations ----------------------------------------------------------------------
#
# Multiplications and additions of the products, layers unrolled. Never 6N: weights are
# shared.


def forward_flops(
    config: AlbertConfig, lengths: Sequence[int], num_masked: int = 0
) -> int:
    """Count the encoder's products for sequences of these lengths, and those of the
    masked-word head.
    """
    hidden = config.hidden_size
    embedding = config.embedding_size
    # the elements of a block's weights: attention, then the feed-forward block
    block = 4 * hidden * hidden + 2 * hidden * config.intermediate_size
    projection = 2 * embedding * hidden
    of_a_token = config.num_steps * 2 * block + projection
    # q k^T and the weighted sum of values
    pairs = sum(length * length for length in lengths)
    attention = config.num_steps * 4 * hidden * pairs
    head = 2 * num_masked * embedding * (hidden + config.vocab_size)
    return of_a_token * sum(lengths) + attention + head


def step_flops(config: AlbertConfig, texts: Texts) -> int:
    num_masked = round(MASKED_SHARE * texts.num_tokens)
    return 3 * forward_flops(config, texts.lengths, num_masked)
