"""Sections on inference: throughput at length 128, and latency of small batches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from litebert.fast import pack
from litebert.nn import AlbertForPretraining
from on_gpu.notes import Bench
from on_gpu.training import COMPILE_SECONDS, THEIRS_COMPILED
from on_gpu.work import (
    Call,
    Run,
    Sequences,
    Setting,
    captured,
    compile_blocks,
    fixed,
    forward_flops,
    in_turns,
    our_network,
    their_network,
)

PLAIN, GRAPH = "litebert", "litebert, CUDA graph"
COMPILED_GRAPH = "litebert, blocks compiled, CUDA graph"
THEIRS, THEIRS_GRAPH = "transformers, sdpa, bf16", "transformers, sdpa, bf16, CUDA graph"


def throughput(bench: Bench) -> None:
    """Compare hidden states of every token at length 128."""
    setting = bench.setting
    sequences = fixed(setting, setting.tokens, 128)
    runs = _ours(bench, sequences)
    theirs = bench.theirs(THEIRS, lambda: _run(setting, _their_call(setting, sequences), sequences))
    _differences(bench, sequences)
    rates = bench.rates({**runs, **theirs})
    best = max(runs, key=lambda name: rates[name].tokens)
    if setting.is_cuda:
        bench.target(f"inference at 128 ({best})", rates[best].tokens / 1e6, "M tokens/s", least=2)
    for name in theirs:
        bench.figure(f"{best}: times {name}", rates[best].tokens / rates[name].tokens, "x")
    rival = bench.theirs(
        THEIRS_COMPILED,
        lambda: _run(setting, _their_call(setting, sequences, mode="default"), sequences),
        needs=COMPILE_SECONDS / 2,
    )
    if rival:
        rates = bench.rates({best: runs[best], **rival})
        ratio = rates[best].tokens / rates[THEIRS_COMPILED].tokens
        bench.figure(f"{best}: times {THEIRS_COMPILED}", ratio, "x")


def latency(bench: Bench) -> None:
    """Compare the milliseconds of one small batch, waited for."""
    setting = bench.setting
    for count, length in ((1, 16), (1, 128), (8, 128)):
        shape = f"{count} x {length}"
        sequences = Sequences.of([length] * count, setting.config.vocab_size)
        runs = {f"{shape}, {n}": r for n, r in _ours(bench, sequences).items()}
        for name, make in {
            THEIRS: lambda: _their_call(setting, sequences),  # noqa: B023 made at once
            THEIRS_GRAPH: lambda: captured(_their_call(setting, sequences)),  # noqa: B023
        }.items():
            if name == THEIRS_GRAPH and not setting.is_cuda:
                continue
            made = bench.theirs(name, lambda: _run(setting, make(), sequences))  # noqa: B023
            runs |= {f"{shape}, {n}": r for n, r in made.items()}
        waited = {n: Run(partial(_waited, r.call, setting)) for n, r in runs.items()}
        for name, taken in in_turns(waited, setting).items():
            bench.figure(name, taken * 1e3, "ms")


def _ours(bench: Bench, sequences: Sequences) -> dict[str, Run]:
    """Warm up litebert plain, captured, and captured with compiled blocks."""
    setting = bench.setting
    plain, compiled = our_network(setting), compile_blocks(our_network(setting))
    calls = {n: _our_call(n, setting, sequences) for n in (plain, compiled)}
    return (
        bench.warmed(PLAIN, lambda: _run(setting, calls[plain], sequences))
        | bench.on_cuda(GRAPH, lambda: _run(setting, captured(calls[plain]), sequences))
        | bench.on_cuda(COMPILED_GRAPH, lambda: _run(setting, _captured_warm(calls[compiled]), sequences))
    )


def _captured_warm(call: Call) -> Call:
    """Compile before capture begins."""
    call()
    return captured(call)


def _run(setting: Setting, call: Call, sequences: Sequences) -> Run:
    flops = forward_flops(setting.config, sequences, has_head=False)
    return Run(call, sequences.num_tokens, flops)


def _our_call(network: AlbertForPretraining, setting: Setting, sequences: Sequences) -> Callable[[], Tensor]:
    """Return a call for all hidden states, with weights cast once."""
    batch = sequences.batch(setting.device)
    network.eval()
    if setting.is_cuda:  # what is packed for a CPU cannot be compiled
        pack(network.albert)
    return torch.no_grad()(partial(network.albert, batch))


def _their_call(setting: Setting, sequences: Sequences, mode: str | None = None) -> Callable[[], Tensor]:
    encoder: nn.Module = their_network(setting, our_network(setting)).albert
    encoder.eval().to(torch.bfloat16)
    inputs = sequences.rectangle(setting.device)
    forward: Callable[..., object] = encoder
    if mode:
        backend = "inductor" if setting.is_cuda else "eager"
        forward = torch.compile(encoder, backend=backend)

    @torch.no_grad()
    def call() -> Tensor:
        return forward(**inputs).last_hidden_state

    return call


def _differences(bench: Bench, sequences: Sequences) -> None:
    """Compare hidden states with those of the graph, of compiled blocks and of transformers."""
    setting = bench.setting
    part = Sequences.of(sequences.lengths[:8], setting.config.vocab_size)
    plain_call = _our_call(our_network(setting), setting, part)
    compiled = _our_call(compile_blocks(our_network(setting)), setting, part)
    plain = plain_call()
    others: dict[str, Callable[[], Tensor]] = {"blocks compiled": compiled}
    if setting.is_cuda:
        others["CUDA graph"] = lambda: captured(plain_call)()
    if bench.has_transformers:
        others["transformers in bf16"] = lambda: _their_call(setting, part)().flatten(0, 1)
    for name, call in others.items():
        made = bench.attempt(name, call)
        if made is not None:
            apart = (made - plain).float().norm() / plain.float().norm()
            bench.target(f"{name}: hidden states apart", apart.item(), "", most=2e-2)


def _waited(call: Call, setting: Setting) -> None:
    call()
    setting.wait()
