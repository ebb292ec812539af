"""What gpu.py times: networks of both libraries, made-up sequences, whole steps, and a clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from litebert.config import AlbertConfig, OptimConfig, TrainConfig, preset
from litebert.fast import accelerate
from litebert.fast.attention import Layout
from litebert.fast.steps import Mixing, Widening, block
from litebert.fast.steps import Run as Steps
from litebert.nn import Albert, AlbertForPretraining, Batch
from litebert.optim import build_optimizer, clip_gradients
from litebert.tasks.pretraining import Pretraining, PretrainingWork

MASKED_SHARE, WARM_UPS = 0.15, 3
TURN = 0.3
"""Seconds that a rival works before it is the next one's turn."""
OPTIM = OptimConfig(learning_rate=1e-5)
Call = Callable[[], object]
Made = TypeVar("Made")


@dataclass(frozen=True)
class Setting:
    """Where and how large: `tokens` are those of one pretraining step."""

    device: torch.device
    config: AlbertConfig
    tokens: int
    is_smoke: bool

    @classmethod
    def of(cls, device: str, name: str, tokens: int, *, is_smoke: bool) -> Setting:
        """Take the tokens asked for, or as many as suit the memory of the device."""
        where, config = torch.device(device), preset(name)
        if is_smoke:
            config = config.model_copy(update={"vocab_size": 2_000})
        return cls(where, config, tokens or _suitable(where), is_smoke)

    @property
    def is_cuda(self) -> bool:
        """Whether there are CUDA graphs, flash attention and a count of memory."""
        return self.device.type == "cuda"

    def wait(self) -> None:
        """Wait for the device."""
        if self.is_cuda:
            torch.cuda.synchronize()


def _suitable(device: torch.device) -> int:
    if device.type != "cuda":
        return 256
    size = torch.cuda.get_device_properties(device).total_memory
    return 65_536 if size > 130e9 else 32_768 if size > 70e9 else 8_192


@dataclass(frozen=True)
class Sequences:
    """Made-up sequences end to end on the host; `masked` index the flat tokens."""

    lengths: tuple[int, ...]
    ids: Tensor
    masked: Tensor

    @classmethod
    def of(cls, lengths: Iterable[int], vocab_size: int) -> Sequences:
        """Draw ids, and choose 15 % of the positions."""
        sizes = tuple(sorted(lengths, reverse=True))
        generator = torch.Generator().manual_seed(1)
        ids = torch.randint(5, vocab_size, (sum(sizes),), generator=generator)
        chosen = torch.randperm(len(ids), generator=generator)[: round(MASKED_SHARE * len(ids))]
        return cls(sizes, ids, chosen.sort().values)

    @property
    def num_tokens(self) -> int:
        """Count the real tokens."""
        return len(self.ids)

    def batch(self, device: torch.device) -> Batch:
        """Return them as litebert reads them."""
        return Batch.from_flat(self.ids, torch.zeros_like(self.ids), self.lengths).to(device)

    def rectangle(self, device: torch.device) -> dict[str, Tensor]:
        """Return them as transformers reads them; a mask only where something is padded."""
        width = self.lengths[0]
        is_token = torch.arange(width) < torch.tensor(self.lengths)[:, None]
        ids = torch.zeros(is_token.shape, dtype=torch.int64).masked_scatter(is_token, self.ids)
        inputs = {"input_ids": ids, "token_type_ids": torch.zeros_like(ids)}
        if not is_token.all():
            inputs["attention_mask"] = is_token.long()
        return {name: values.to(device) for name, values in inputs.items()}

    def labels(self, device: torch.device) -> Tensor:
        """Return the rectangle of what to predict, -100 elsewhere."""
        wanted = torch.full_like(self.ids, -100)
        wanted[self.masked] = self.ids[self.masked]
        is_token = torch.arange(self.lengths[0]) < torch.tensor(self.lengths)[:, None]
        padded = torch.full(is_token.shape, -100, dtype=torch.int64)
        return padded.masked_scatter(is_token, wanted).to(device)


def fixed(setting: Setting, tokens: int, length: int) -> Sequences:
    """Return sequences of one length."""
    return Sequences.of([length] * max(1, tokens // length), setting.config.vocab_size)


def ragged(setting: Setting, tokens: int, *, mean: float, longest: int, seed: int = 1) -> Sequences:
    """Return sequences of log-normal lengths, exactly `tokens` in all: the last one is cut."""
    return Sequences.of(drawn_lengths(tokens, mean=mean, longest=longest, seed=seed), setting.config.vocab_size)


def drawn_lengths(tokens: int, *, mean: float, longest: int, seed: int) -> list[int]:
    """Draw lengths that add up to `tokens`."""
    generator = np.random.Generator(np.random.Philox(seed))
    drawn = generator.lognormal(np.log(mean) - 0.18, 0.6, size=tokens // 4 + 1)
    lengths = np.clip(np.rint(drawn), 4, longest).astype(int)
    ends = lengths.cumsum()
    count = int(np.searchsorted(ends, tokens)) + 1
    chosen = lengths[:count].tolist()
    chosen[-1] -= int(ends[count - 1]) - tokens
    return chosen


def forward_flops(config: AlbertConfig, sequences: Sequences, *, has_head: bool) -> float:
    """Count multiplications and additions, layers unrolled, every token in every layer."""
    hidden, embed = config.hidden_size, config.embedding_size
    per_token = config.num_steps * 2 * (4 * hidden**2 + 2 * hidden * config.intermediate_size)
    attention = config.num_steps * 4 * hidden * sum(n * n for n in sequences.lengths)
    head = len(sequences.masked) * 2 * (hidden * embed + embed * config.vocab_size)
    total = sequences.num_tokens * (per_token + 2 * embed * hidden) + attention
    return total + head * has_head


def skipped_flops(config: AlbertConfig, sequences: Sequences) -> float:
    """Count what the last layer need not do for tokens that nothing reads (attention not seen)."""
    hidden, read = config.hidden_size, len(sequences.masked) + len(sequences.lengths)
    per_token = 2 * (hidden**2 + 2 * hidden * config.intermediate_size)
    return max(0, sequences.num_tokens - read) * per_token


@dataclass(frozen=True)
class Run:
    """Something to be timed, with tokens and operations of one call, and those it skips."""

    call: Call
    tokens: int = 0
    flops: float = 0.0
    skipped: float = 0.0


def our_network(setting: Setting) -> AlbertForPretraining:
    """Return the network in bf16, the same random weights at every call."""
    generator = torch.Generator().manual_seed(1)
    network = AlbertForPretraining(setting.config, dtype=torch.bfloat16, generator=generator)
    accelerate(network)
    return network.to(setting.device).train()


def compile_blocks(network: AlbertForPretraining) -> AlbertForPretraining:
    """Compile what lies around attention, whose kernel is chosen by all the lengths of a batch.

    The last step is left as it is where it computes only the rows that are read: each batch has another number of them,
    and every number would be compiled anew.
    """
    engine, compiled = network.albert.engine, _compiled_block(next(network.parameters()).device.type)

    def compiled_run(albert: Albert) -> Steps:
        run = engine(albert)
        return Steps(albert, [partial(_compiled_or_not, compiled, *step.args) for step in run.steps])

    network.albert.engine = compiled_run
    return network


def _compiled_or_not(
    compiled: Callable[..., Tensor], mixing: Mixing, widening: Widening, x: Tensor, layout: Layout
) -> Tensor:
    if layout.queries is not None:
        return block(mixing, widening, x, layout)
    kept = mixing._replace(attend=torch.compiler.disable(mixing.attend))
    return compiled(kept, widening, x, layout)


@cache
def _compiled_block(device_type: str) -> Callable[..., Tensor]:
    """Compile once for all networks: what a step is made of is new in each training step, but its code is the same."""
    torch._dynamo.config.recompile_limit = 64  # one for every number of tokens
    backend = "inductor" if device_type == "cuda" else "aot_eager"
    return torch.compile(block, dynamic=False, backend=backend)


def our_work(sequences: Sequences, device: torch.device) -> PretrainingWork:
    """Return a micro-batch that is a whole step."""
    count = len(sequences.lengths)
    return PretrainingWork(
        batch=sequences.batch(device),
        masked_positions=sequences.masked.to(device),
        masked_ids=sequences.ids[sequences.masked].to(device),
        sentence_labels=torch.zeros(count, dtype=torch.int64, device=device),
        step_masked=len(sequences.masked),
        step_sequences=count,
    )


def our_loss(network: AlbertForPretraining, work: PretrainingWork) -> Tensor:
    """Return the loss of a step, with the counts that the trainer keeps."""
    task = Pretraining(network, open_loader=_no_loader, held_out=(), train=TrainConfig())
    return task.loss(work).total


def our_step(network: AlbertForPretraining) -> Callable[[PretrainingWork], None]:
    """Return litebert's step as its trainer takes it, gradient norm looked at."""
    optimizer = build_optimizer(OPTIM, network.named_parameters())

    def step(work: PretrainingWork) -> None:
        our_loss(network, work).backward()
        clip_gradients(network.parameters(), OPTIM.clip_norm).item()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def our_run(network: AlbertForPretraining, setting: Setting, sequences: Sequences) -> Run:
    """Return one pretraining step of litebert on sequences that lie on the device."""
    work = our_work(sequences, setting.device)
    flops = 3 * forward_flops(setting.config, sequences, has_head=True)
    skipped = 3 * skipped_flops(setting.config, sequences)
    return Run(partial(our_step(network), work), sequences.num_tokens, flops, skipped)


def their_network(setting: Setting, ours: AlbertForPretraining) -> nn.Module:
    """Return transformers' network with our weights."""
    import transformers

    from litebert.folder.names import tensor_names

    config = setting.config
    shared = {name: getattr(config, name) for name in SHARED}
    theirs = transformers.AlbertForPreTraining(transformers.AlbertConfig(**shared, attn_implementation="sdpa"))
    weights = {
        name: values for parameter, values in ours.state_dict().items() for name in tensor_names(parameter, config)
    }
    unknown = theirs.load_state_dict(weights, strict=False).unexpected_keys
    assert not unknown, unknown
    if not config.projects_embeddings:  # as wide as the layers: transformers projects all the same
        nn.init.eye_(theirs.albert.encoder.embedding_hidden_mapping_in.weight)
        nn.init.zeros_(theirs.albert.encoder.embedding_hidden_mapping_in.bias)
    return theirs.to(setting.device).train()


SHARED = (
    "vocab_size",
    "embedding_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "max_position_embeddings",
    "layer_norm_eps",
)
"""Settings that both libraries call the same."""


def their_loss(network: Call, inputs: Mapping[str, Tensor], device: torch.device) -> Tensor:
    """Return the loss under bf16 autocast."""
    with torch.autocast(device.type, torch.bfloat16):
        output: Any = network(**inputs)
        return output.loss


def their_inputs(sequences: Sequences, device: torch.device) -> dict[str, Tensor]:
    """Return a batch with the labels of both objectives."""
    order = torch.zeros(len(sequences.lengths), dtype=torch.int64, device=device)
    labels = {"labels": sequences.labels(device), "sentence_order_label": order}
    return sequences.rectangle(device) | labels


def their_run(network: nn.Module, setting: Setting, sequences: Sequences, *, compiled: bool) -> Run:
    """Return one pretraining step as users of transformers take it: autocast, fused AdamW."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-5, fused=True)
    inputs = their_inputs(sequences, setting.device)
    forward = torch.compile(network, backend=_backend(setting)) if compiled else network

    def step() -> None:
        their_loss(forward, inputs, setting.device).backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    flops = 3 * forward_flops(setting.config, sequences, has_head=True)
    return Run(step, sequences.num_tokens, flops)


def _backend(setting: Setting) -> str:
    return "inductor" if setting.is_cuda else "eager"


def captured(call: Callable[[], Made]) -> Callable[[], Made]:
    """Record the kernels of a call in a CUDA graph; what it reads and returns stays in place."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UPS):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = call()

    def replay() -> Made:
        graph.replay()
        return made

    return replay


def product(setting: Setting, rows: int, inner: int, columns: int) -> Run:
    """Return a bf16 product of random matrices."""
    left = torch.randn(rows, inner, device=setting.device, dtype=torch.bfloat16)
    right = torch.randn(inner, columns, device=setting.device, dtype=torch.bfloat16)
    return Run(lambda: left @ right, flops=2.0 * rows * inner * columns)


def yardstick(setting: Setting) -> Run:
    """Return the product that shares are taken of: 8192 cubed."""
    size = 512 if setting.is_smoke else 8_192
    return product(setting, size, size, size)


def in_turns(runs: Mapping[str, Run], setting: Setting, *, rounds: int = 5) -> dict[str, float]:
    """Return the median seconds of one call of each, all taking turns of about `TURN`."""
    if setting.is_smoke:
        return {name: seconds(run.call, setting, 1) for name, run in runs.items()}
    counts = {n: max(1, round(TURN / seconds(r.call, setting, 1))) for n, r in runs.items()}
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            taken[name].append(seconds(run.call, setting, counts[name]))
    return {name: float(np.median(times)) for name, times in taken.items()}


def seconds(call: Call, setting: Setting, count: int) -> float:
    """Return the mean seconds of `count` calls in a row, the device waited for at both ends."""
    setting.wait()
    start = time.perf_counter()
    for _ in range(count):
        call()
    setting.wait()
    return (time.perf_counter() - start) / count


def _no_loader() -> Any:
    raise AssertionError("the batches are made up")
