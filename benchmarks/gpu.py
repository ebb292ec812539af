"""Measure litebert and transformers on one CUDA device, in a few minutes.

    python -m pip install --target vendored pydantic jaxtyping sentencepiece sentencex protobuf
    PYTHONPATH=vendored:src python -m benchmarks.gpu --out gpu

It needs Python 3.11, torch 2.10 or newer and numpy, and the packages of the first line
(without the network: `pip download` them elsewhere, then `--no-index --find-links
FOLDER`); litebert is read from src/. If transformers is missing, its rows are left out.

It writes gpu.json and gpu.md. Everything is bf16 with random weights and random tokens;
rivals take turns, together with the GEMM to which shares refer. FLOPs are counted with
all layers unrolled and all tokens in all layers, so work that is skipped exactly counts
as done. A section that fails is left out, and the reason is printed.

    python -m benchmarks.gpu --device cpu --preset tiny --smoke --out smoke

runs every path that needs no CUDA device; its figures mean nothing.
"""

import argparse
import gc
import json
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import torch

from benchmarks.measure import installed, table, take_turns
from benchmarks.steps import (
    forward_flops,
    our_step,
    our_work,
    step_flops,
    their_network,
    their_step,
    without_dropout,
)
from benchmarks.texts import Texts, made_up
from litebert.config import AlbertConfig, TrainConfig, preset
from litebert.device import choose_device, device_at
from litebert.fast import attention, checkpoint_gradients, compile_steps, pack
from litebert.nn import AlbertForPretraining, Batch
from litebert.tasks.pretraining import Pretraining

OURS = "litebert"
THEIRS = "transformers, sdpa, autocast"
COMPILED = "transformers, compiled"
GEMM = "GEMM in the same turns"


class Run(NamedTuple):
    """A timed call, with its tokens and operations."""

    call: Callable[[], object]
    tokens: int = 0
    flops: float = 0.0


@dataclass
class Bench:
    """The device, the network, how much is computed (`tokens` per step), and the
    figures so far by section.
    """

    device: torch.device
    config: AlbertConfig
    tokens: int
    is_smoke: bool
    has_transformers: bool
    rows: list[dict[str, object]] = field(default_factory=list)
    section: str = ""

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    def wait(self) -> None:
        if self.is_cuda:
            torch.cuda.synchronize()

    def figure(
        self, name: str, value: float, unit: str = "", *, share: float | None = None
    ) -> None:
        """Record a figure; `share` is the fraction of the GEMM's rate that it
        reaches.
        """
        self.rows.append(
            {
                "section": self.section,
                "name": name,
                "value": value,
                "unit": unit,
                "share": share,
            }
        )

    def network(self) -> AlbertForPretraining:
        """Return the network in bf16, the same random weights at every call."""
        generator = torch.Generator().manual_seed(1)
        return (
            AlbertForPretraining(self.config, dtype=torch.bfloat16, generator=generator)
            .to(self.device)
            .train()
        )

    def their_network(self, dtype: torch.dtype = torch.float32) -> torch.nn.Module:
        return their_network(self.config, self.network().cpu()).to(self.device, dtype)

    def fixed(self, length: int, tokens: int = 0) -> Texts:
        return made_up(
            [length] * max(1, (tokens or self.tokens) // length),
            vocab_size=self.config.vocab_size,
        )

    def ragged(self, mean: float, longest: int, tokens: int = 0) -> Texts:
        """Return made-up sequences of log-normal lengths, exactly `tokens` in all: the
        last one is cut.
        """
        tokens = tokens or self.tokens
        drawn = np.random.Generator(np.random.Philox(1)).lognormal(
            np.log(mean) - 0.18, 0.6, size=tokens // 4 + 1
        )
        lengths = np.clip(np.rint(drawn), 4, longest).astype(int)
        ends = lengths.cumsum()
        count = int(np.searchsorted(ends, tokens)) + 1
        lengths = lengths[:count]
        lengths[-1] -= ends[count - 1] - tokens
        return made_up(
            sorted(lengths.tolist(), reverse=True), vocab_size=self.config.vocab_size
        )

    def in_turns(self, runs: Mapping[str, Run]) -> dict[str, float]:
        """Return the median seconds per call of each run, in turns of about 0.3 s that
        begin and end synchronised.
        """

        def turn(run: Run, count: int) -> None:
            for _ in range(count):
                run.call()
            self.wait()

        for run in runs.values():
            turn(run, 1 if self.is_smoke else 3)  # warms up kernels and compilers
        first = take_turns(
            {n: partial(turn, r, 1) for n, r in runs.items()},
            rounds=1,
            clock=time.perf_counter,
        )
        counts = {
            name: 1 if self.is_smoke else max(1, round(0.3 / seconds[0]))
            for name, seconds in first.items()
        }
        calls = {name: partial(turn, run, counts[name]) for name, run in runs.items()}
        taken = take_turns(
            calls, rounds=1 if self.is_smoke else 5, clock=time.perf_counter
        )
        return {
            name: float(np.median(seconds)) / counts[name]
            for name, seconds in taken.items()
        }

    def rates(self, runs: Mapping[str, Run]) -> None:
        """Record tokens per second, shares of the GEMM in the same turns, and speedups
        of the first over the others.
        """
        size = 512 if self.is_smoke else 8_192
        left, right = (
            torch.randn(size, size, device=self.device).bfloat16() for _ in range(2)
        )
        taken = self.in_turns({GEMM: Run(lambda: left @ right), **runs})
        peak = 2 * size**3 / taken.pop(GEMM)
        self.figure(GEMM, peak / 1e12, "TFLOP/s")
        first = next(iter(runs))
        for name, seconds in taken.items():
            rate = runs[name].tokens / seconds
            flops = runs[name].flops / seconds
            self.figure(name, rate, "tokens/s", share=flops / peak)
            by_data_sheet = device_at(self.device).peak_flops
            if by_data_sheet:
                self.figure(f"MFU, {name}", flops / by_data_sheet)
            if name != first:
                self.figure(
                    f"times {name}", runs[first].tokens / taken[first] / rate, "x"
                )

    def our_run(
        self,
        texts: Texts,
        *,
        is_checkpointed: bool = False,
        is_compiled: bool = False,
        is_padded: bool = False,
    ) -> Run:
        network = self.network()
        if is_checkpointed:
            checkpoint_gradients(network.albert)
        if is_compiled:
            compile_steps(network.albert)
        step = our_step(network, texts, by_trainer=False)
        call = with_padding(step) if is_padded else step
        return Run(call, texts.num_tokens, step_flops(self.config, texts))

    def their_run(self, texts: Texts, *, is_compiled: bool = False) -> Run:
        network = self.their_network()
        forward = (
            torch.compile(network, backend="inductor" if self.is_cuda else "eager")
            if is_compiled
            else None
        )
        return Run(
            their_step(network, texts, forward=forward),
            texts.num_tokens,
            step_flops(self.config, texts),
        )


def with_padding(step: Callable[[], object]) -> Callable[[], object]:
    """Return a step whose attention pads, as on GPUs without flash attention."""

    def call() -> object:
        with patch.object(attention, "variable", attention.padded):
            return step()

    return call


def equal_losses(bench: Bench) -> None:
    """Compare the losses of both libraries, and their hidden states, with the same
    weights on the same tokens.
    """
    tokens = min(bench.tokens, 8_192)
    ours = bench.network()
    for kind, texts in {
        "128": bench.fixed(128, tokens),
        "ragged": bench.ragged(38, 128, tokens),
    }.items():
        with torch.no_grad():
            task = Pretraining(ours, held_out=(), train=TrainConfig())
            plain = task.loss(our_work(texts, bench.device)).total.item()
        bench.figure(f"loss of litebert, {kind}", plain)
        if bench.has_transformers:
            theirs = bench.their_network()
            other = without_dropout(theirs, their_step(theirs, texts))
            bench.figure(f"losses apart, {kind}", abs(other - plain))
    if bench.has_transformers:
        first, other = (
            call().float() for call in encoders(bench, bench.fixed(128, 1_024)).values()
        )
        bench.figure(
            "hidden states apart", ((other - first).norm() / first.norm()).item()
        )


def pretraining(bench: Bench, length: int) -> None:
    texts = bench.fixed(length)
    runs = {OURS: bench.our_run(texts)}
    if bench.is_cuda or not bench.is_smoke:  # a compiler takes minutes on a CPU
        runs[f"{OURS}, compiled"] = bench.our_run(texts, is_compiled=True)
    if bench.has_transformers:
        runs |= {
            THEIRS: bench.their_run(texts),
            COMPILED: bench.their_run(texts, is_compiled=True),
        }
    bench.rates(runs)


def ragged_lengths(bench: Bench) -> None:
    """Compare ragged steps with steps of equal lengths, and with padding to the
    longest.
    """
    for mix, mean, longest in (
        ("pairs, mean about 38", 38, 128),
        ("reviews, mean about 170", 170, 512),
    ):
        texts = bench.ragged(mean, longest)
        runs = {
            f"{OURS}, {mix}": bench.our_run(texts),
            f"{OURS}, {mix}, padded attention": bench.our_run(texts, is_padded=True),
            f"{OURS}, all {longest}": bench.our_run(bench.fixed(longest)),
        }
        if bench.has_transformers:
            # a rectangle has several times the tokens
            every = 8 if bench.is_cuda else 1
            runs[f"{THEIRS}, {mix}, padded"] = bench.their_run(
                Texts(texts.ids[::every], texts.segments[::every])
            )
        bench.rates(runs)


def encoders(bench: Bench, texts: Texts) -> dict[str, Callable[[], torch.Tensor]]:
    """Return the calls that compute the hidden states of every token, in both
    libraries.
    """
    ours = bench.network().eval()
    batch = Batch.from_lists(texts.ids, texts.segments).to(bench.device)
    if bench.is_cuda:
        pack(ours.albert)
    found = {OURS: torch.no_grad()(partial(ours.albert, batch))}
    if bench.has_transformers:
        theirs = bench.their_network(torch.bfloat16).eval().albert
        inputs = {
            name: torch.from_numpy(values).to(bench.device)
            for name, values in texts.padded().items()
        }
        states = lambda: theirs(**inputs).last_hidden_state.flatten(0, 1)  # noqa: E731
        found["transformers, sdpa, bf16"] = torch.no_grad()(states)
    return found


def inference(bench: Bench) -> None:
    """Measure throughput at lengths 128 and 512, and milliseconds of small batches."""
    for length in (128, 512):
        texts = bench.fixed(length)
        flops = forward_flops(bench.config, texts.lengths)
        bench.rates(
            {
                f"{name}, {length}": Run(call, texts.num_tokens, flops)
                for name, call in encoders(bench, texts).items()
            }
        )
    for count, length in ((1, 16), (1, 128), (8, 128)):
        small = encoders(bench, bench.fixed(length, count * length))
        waited = {
            name: Run(lambda call=call: (call(), bench.wait()))
            for name, call in small.items()
        }
        for name, taken in bench.in_turns(waited).items():
            bench.figure(f"{count} x {length}, {name}", taken * 1e3, "ms")


def memory(bench: Bench) -> None:
    """Measure bytes per token as the slope of the peak over two sizes; this needs a
    CUDA device.
    """

    def peak(make: Callable[[Texts], Run], tokens: int) -> int:
        run = make(bench.fixed(128, tokens))
        run.call()  # moments stay
        bench.wait()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run.call()
        bench.wait()
        return torch.cuda.max_memory_allocated() - before

    makers = {
        OURS: bench.our_run,
        f"{OURS}, checkpointed": partial(bench.our_run, is_checkpointed=True),
    }
    if bench.has_transformers:
        makers[THEIRS] = bench.their_run
    for name, make in makers.items():
        small, large = (peak(make, bench.tokens // part) for part in (8, 4))
        bench.figure(
            name,
            (large - small) / (bench.tokens // 4 - bench.tokens // 8) / 1e3,
            "KB a token",
        )


SECTIONS: dict[str, Callable[[Bench], None]] = {
    "equal losses": equal_losses,
    "pretraining at 128": partial(pretraining, length=128),
    "pretraining at 512": partial(pretraining, length=512),
    "ragged lengths": ragged_lengths,
    "inference": inference,
    "memory": memory,
}


def measure(bench: Bench, sections: Sequence[str]) -> dict[str, str]:
    """Measure section after section; return the reasons of those that failed."""
    failures = {}
    for bench.section in sections:
        try:
            SECTIONS[bench.section](bench)
        except Exception as error:  # noqa: BLE001 whatever it is, it is reported by name
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(where.filename).name}:{where.lineno}"
            failures[bench.section] = (
                f"{type(error).__name__} at {place}: {str(error)[:300]}"
            )
        gc.collect()
        if bench.is_cuda:
            torch.cuda.empty_cache()
    return failures


def markdown(
    machine: Mapping[str, object],
    rows: Sequence[Mapping[str, object]],
    failures: Mapping[str, str],
) -> str:
    blocks = [
        "# litebert on a GPU",
        "\n".join(f"- {name}: {value}" for name, value in machine.items()),
    ]
    for section in dict.fromkeys(row["section"] for row in rows):
        lines = []
        for row in (row for row in rows if row["section"] == section):
            value = float(str(row["value"]))
            share = row["share"]
            shown = f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"
            part = "" if share is None else f"{100 * float(str(share)):.1f} %"
            lines.append([row["name"], f"{shown} {row['unit']}".strip(), part])
        blocks += [f"## {section}", table(["what", "measured", "of the GEMM"], lines)]
    blocks += [f"Left out, {section}: {why}" for section, why in failures.items()]
    return "\n\n".join(blocks) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument(
        "--out", type=Path, default=Path("gpu"), help="path of the .json and .md"
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--preset", default="base-v2")
    parser.add_argument(
        "--tokens",
        type=int,
        default=0,
        help="tokens of a pretraining step; 0: by memory",
    )
    parser.add_argument(
        "--sections", nargs="+", default=list(SECTIONS), choices=list(SECTIONS)
    )
    parser.add_argument(
        "--smoke", action="store_true", help="one small round, to check that it runs"
    )
    options = parser.parse_args()
    device = choose_device(options.device).place
    tokens = options.tokens
    name = platform.machine()
    if device.type == "cuda":
        size = torch.cuda.get_device_properties(device).total_memory
        tokens = tokens or (
            65_536 if size > 130e9 else 32_768 if size > 70e9 else 8_192
        )
        name = torch.cuda.get_device_name(device)
    config = preset(options.preset).model_copy(
        update={"vocab_size": 2_000} if options.smoke else {}
    )
    bench = Bench(
        device,
        config,
        tokens or 256,
        options.smoke,
        installed("transformers") is not None,
    )
    with device_at(device).computing(torch.bfloat16):
        failures = measure(bench, options.sections)
    machine = {
        "device": name,
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    machine |= {
        "cuda": torch.version.cuda,
        "preset": options.preset,
        "tokens": bench.tokens,
        "cores": os.cpu_count(),
    }
    page = markdown(machine, bench.rows, failures)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    found = {"machine": machine, "figures": bench.rows, "failures": failures}
    options.out.with_suffix(".json").write_text(
        json.dumps(found, indent=1) + "\n", encoding="utf-8"
    )
    options.out.with_suffix(".md").write_text(page, encoding="utf-8")
    print(page)
    return 0 if bench.rows else 1


if __name__ == "__main__":
    sys.exit(main())
