"""Sections on pretraining: ceilings, steps of equal and of ragged lengths, memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from litebert.fast import checkpoint_gradients
from litebert.nn import AlbertForPretraining
from on_gpu.notes import Bench
from on_gpu.work import (
    Run,
    Sequences,
    Setting,
    compile_blocks,
    fixed,
    in_turns,
    our_loss,
    our_network,
    our_run,
    our_work,
    product,
    ragged,
    their_inputs,
    their_loss,
    their_network,
    their_run,
    yardstick,
)

OURS, COMPILED = "litebert", "litebert, blocks compiled"
THEIRS, THEIRS_COMPILED = "transformers, sdpa, autocast", "transformers, compiled"
HALF = "transformers, sdpa, autocast, half the tokens"
COMPILE_SECONDS = 50
"""Time that compiling transformers' whole network may well take."""


def ceilings(bench: Bench) -> None:
    """Measure products of random matrices, square and in the network's shapes, and a copy."""
    setting, config = bench.setting, bench.setting.config
    hidden, wide, rows = config.hidden_size, config.intermediate_size, setting.tokens
    products = {
        "8192 x 8192 x 8192": yardstick(setting),
        f"{rows} x {hidden} x {3 * hidden} (query, key, value)": product(setting, rows, hidden, 3 * hidden),
        f"{rows} x {hidden} x {wide} (intermediate)": product(setting, rows, hidden, wide),
        f"{rows} x {wide} x {hidden} (output)": product(setting, rows, wide, hidden),
    }
    for name, taken in in_turns(products, setting).items():
        bench.figure(f"bf16 GEMM {name}", products[name].flops / taken / 1e12, "TFLOP/s")
    size = 1 << 20 if setting.is_smoke else 4 << 30
    source = torch.randint(0, 255, (size,), device=setting.device, dtype=torch.uint8)
    target = torch.empty_like(source)
    taken = in_turns({"copy": Run(lambda: target.copy_(source))}, setting)["copy"]
    bench.figure("copy, bytes read and written", 2 * size / taken / 1e12, "TB/s")


def pretraining(bench: Bench, *, length: int) -> None:
    """Compare whole steps on equal tokens; transformers compiled comes last, it may take long."""
    setting = bench.setting
    sequences = fixed(setting, setting.tokens, length)
    ours = our_network(setting)
    eager = bench.warmed(OURS, lambda: our_run(ours, setting, sequences))
    compiled = bench.warmed(COMPILED, lambda: _ours_compiled(setting, sequences))
    theirs = bench.theirs(THEIRS, lambda: _theirs(setting, ours, sequences))
    if bench.has_transformers and not theirs:
        half = fixed(setting, setting.tokens // 2, length)
        theirs = bench.theirs(HALF, lambda: _theirs(setting, ours, half))
    rates = bench.rates({**eager, **compiled, **theirs})
    best_name = max(eager | compiled, key=lambda name: rates[name].tokens)
    best, reached = (eager | compiled)[best_name], rates[best_name]
    bench.target(f"share of the GEMM, {best_name}", reached.share, "", least=0.45)
    for name in theirs:
        bench.target(f"times {name}", reached.tokens / rates[name].tokens, "x", least=3)
    rival = bench.theirs(
        THEIRS_COMPILED, lambda: _theirs(setting, ours, sequences, compiled=True), needs=COMPILE_SECONDS
    )
    if rival:
        rates = bench.rates({best_name: best, **rival})
        ratio = rates[best_name].tokens / rates[THEIRS_COMPILED].tokens
        bench.target(f"times {THEIRS_COMPILED}", ratio, "x", least=1.5)


def equal_losses(bench: Bench) -> None:
    """Compare losses of the same weights and tokens, equal lengths and ragged."""
    setting = bench.setting
    ours, compiled = our_network(setting), compile_blocks(our_network(setting))
    for kind, draw in {
        "128": partial(fixed, setting, length=128),
        "ragged": partial(ragged, setting, mean=38, longest=128),
    }.items():
        work = our_work(draw(setting.tokens), setting.device)
        plain = our_loss(ours, work).item()
        bench.figure(f"loss of litebert, {kind}", plain, "")
        other = bench.attempt(COMPILED, lambda work=work: our_loss(compiled, work).item())
        if other is not None:
            apart = abs(other - plain)
            bench.target(f"blocks compiled, {kind}: losses apart", apart, "", most=1e-2)
        if not bench.has_transformers:
            bench.left_out(f"{THEIRS}, {kind}", "transformers is not installed")
            continue
        part = draw(min(setting.tokens, 8_192))
        plain = our_loss(ours, our_work(part, setting.device)).item()
        theirs = bench.attempt(THEIRS, partial(_their_loss, setting, ours, part))
        if theirs is not None:
            apart = abs(theirs - plain)
            bench.target(f"transformers, {kind}: losses apart", apart, "", most=1e-2)


def _their_loss(setting: Setting, ours: AlbertForPretraining, sequences: Sequences) -> float:
    inputs = their_inputs(sequences, setting.device)
    with torch.no_grad():
        return their_loss(their_network(setting, ours), inputs, setting.device).item()


def ragged_lengths(bench: Bench) -> None:
    """Compare ragged steps with steps of equal lengths, and with padding to the longest."""
    setting = bench.setting
    ours, compiled = our_network(setting), compile_blocks(our_network(setting))
    mixes = {
        "pairs, mean about 38": (ragged(setting, setting.tokens, mean=38, longest=128), 128),
        "reviews, mean about 170": (ragged(setting, setting.tokens, mean=170, longest=512), 512),
    }
    for mix, (sequences, length) in mixes.items():
        runs: dict[str, Run] = {}
        for name, network in {OURS: ours, COMPILED: compiled}.items():
            for kind, chosen in {f"all {length}": fixed(setting, setting.tokens, length), mix: sequences}.items():
                make = partial(our_run, network, setting, chosen)
                runs |= bench.warmed(f"{name}, {kind}", make)
        every = 8 if setting.is_cuda else 1  # a rectangle has several times the tokens
        part = Sequences.of(sequences.lengths[::every], setting.config.vocab_size)
        padded = partial(_theirs, setting, ours, part)
        runs |= bench.theirs(f"{THEIRS}, {mix}, padded", padded)
        rates = bench.rates(runs)
        for name in (OURS, COMPILED):
            if f"{name}, {mix}" in rates and f"{name}, all {length}" in rates:
                ratio = rates[f"{name}, {mix}"].tokens / rates[f"{name}, all {length}"].tokens
                bench.target(f"{name}, {mix}: times all {length}", ratio, "x", least=0.95)


def memory(bench: Bench) -> None:
    """Measure bytes a token as the slope of the peak over two sizes."""
    setting = bench.setting
    if not setting.is_cuda:
        bench.left_out("peak memory a token", "needs a CUDA device")
        return
    ours = our_network(setting)
    checkpointed = our_network(setting)
    checkpoint_gradients(checkpointed.albert)
    makers: dict[str, Callable[[Sequences], Run]] = {
        OURS: partial(our_run, ours, setting),
        f"{OURS}, checkpointed": partial(our_run, checkpointed, setting),
    }
    if bench.has_transformers:
        makers[THEIRS] = partial(_theirs, setting, ours)
    makers[COMPILED] = partial(_ours_compiled, setting)
    slopes = {}
    for name, make in makers.items():
        slope = bench.attempt(name, partial(_bytes_per_token, setting, make))
        if slope is not None:
            slopes[name] = slope
            bench.figure(name, slope / 1e3, "KB a token")
    if OURS in slopes:
        bench.target("memory without checkpointing", slopes[OURS] / 1e3, "KB a token", most=320)
        if THEIRS in slopes:
            ratio = slopes[THEIRS] / slopes[OURS]
            bench.target("transformers' memory a token to ours", ratio, "x", least=2)


def _bytes_per_token(setting: Setting, make: Callable[[Sequences], Run]) -> float:
    sizes = (setting.tokens // 8, setting.tokens // 4)
    small, large = (_peak(make(fixed(setting, size, 128))) for size in sizes)
    return (large - small) / (sizes[1] - sizes[0])


def _peak(run: Run) -> int:
    run.call()  # moments and compiled kernels stay
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run.call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def _ours_compiled(setting: Setting, sequences: Sequences) -> Run:
    return our_run(compile_blocks(our_network(setting)), setting, sequences)


def _theirs(setting: Setting, ours: AlbertForPretraining, sequences: Sequences, *, compiled: bool = False) -> Run:
    return their_run(their_network(setting, ours), setting, sequences, compiled=compiled)
