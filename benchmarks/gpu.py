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
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import torch

from benchmarks.measure import Call, installed, seconds_of, table, take_turns
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


@dataclass(frozen=True)
class Figure:
    """A line of the results."""

    section: str
    name: str
    value: float
    unit: str
    share: float | None  # of the GEMM's rate

    @property
    def cells(self) -> list[str]:
        shown = f"{self.value:.4g}"
        if abs(self.value) >= 1_000:
            shown = f"{self.value:,.0f}"
        share = "" if self.share is None else f"{100 * self.share:.1f} %"
        return [self.name, f"{shown} {self.unit}".strip(), share]


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
    rows: list["Figure"] = field(default_factory=list)
    section: str = ""

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    def wait(self) -> None:
        if self.is_cuda:
            torch.cuda.synchronize()

    def finish(self, call: Call) -> None:
        """Make a call, and wait until its result is there."""
        call()
        self.wait()

    def figure(
        self, name: str, value: float, unit: str = "", *, share: float | None = None
    ) -> None:
        """Record a figure; `share` is the fraction of the GEMM's rate that it
        reaches.
        """
        self.rows.append(Figure(self.section, name, value, unit, share))

    def network(self) -> AlbertForPretraining:
        """Return the network in bf16, the same random weights at every call."""
        network = AlbertForPretraining(
            self.config,
            dtype=torch.bfloat16,
            generator=torch.Generator().manual_seed(1),
        )
        return network.to(self.device).train()

    def their_network(self, dtype: torch.dtype = torch.float32) -> torch.nn.Module:
        return their_network(self.config, self.network().cpu()).to(self.device, dtype)

    def fixed(self, length: int, tokens: int = 0) -> Texts:
        """Return made-up sequences of one length, by default a whole step."""
        number = max(1, (tokens or self.tokens) // length)
        return made_up([length] * number, vocab_size=self.config.vocab_size)

    def ragged(self, mean: float, longest: int, tokens: int = 0) -> Texts:
        """Return made-up sequences of log-normal lengths, exactly `tokens` in all: the
        last one is cut.
        """
        total = tokens or self.tokens
        draw = np.random.Generator(np.random.Philox(1))
        # at least 4 tokens each: so many are enough
        drawn = draw.lognormal(np.log(mean) - 0.18, 0.6, size=total // 4 + 1)
        lengths = np.clip(np.rint(drawn), 4, longest).astype(int)
        ends = lengths.cumsum()
        count = int(np.searchsorted(ends, total)) + 1
        chosen = lengths[:count]
        chosen[-1] -= ends[count - 1] - total
        longest_first = sorted(chosen.tolist(), reverse=True)
        return made_up(longest_first, vocab_size=self.config.vocab_size)

    def in_turns(self, runs: Mapping[str, Run]) -> dict[str, float]:
        """Return the median seconds per call of each run, in turns of about 0.3 s that
        begin and end synchronized.
        """
        warm_ups = 1 if self.is_smoke else 3  # of kernels and compilers
        for run in runs.values():
            self._turn(run, warm_ups)
        counts = dict[str, int]()  # calls in a turn
        for name, run in runs.items():
            seconds = seconds_of(partial(self._turn, run, 1), time.perf_counter)
            counts[name] = 1 if self.is_smoke else max(1, round(0.3 / seconds))
        turns = dict[str, Call]()
        for name, run in runs.items():
            turns[name] = partial(self._turn, run, counts[name])
        rounds = 1 if self.is_smoke else 5
        taken = take_turns(turns, rounds=rounds, clock=time.perf_counter)
        medians = dict[str, float]()
        for name, seconds_of_turns in taken.items():
            medians[name] = float(np.median(seconds_of_turns)) / counts[name]
        return medians

    def _turn(self, run: Run, count: int) -> None:
        for _ in range(count):
            run.call()
        self.wait()

    def rates(self, runs: Mapping[str, Run]) -> None:
        """Record tokens per second, shares of the GEMM in the same turns, and speedups
        of the first over the others.
        """
        size = 512 if self.is_smoke else 8_192
        left = torch.randn(size, size, device=self.device).bfloat16()
        right = torch.randn(size, size, device=self.device).bfloat16()
        taken = self.in_turns({GEMM: Run(lambda: left @ right), **runs})
        peak = 2 * size**3 / taken.pop(GEMM)
        self.figure(GEMM, peak / 1e12, "TFLOP/s")
        by_data_sheet = device_at(self.device).peak_flops
        first = next(iter(runs))
        first_rate = runs[first].tokens / taken[first]
        for name, seconds in taken.items():
            rate = runs[name].tokens / seconds
            flops = runs[name].flops / seconds
            self.figure(name, rate, "tokens/s", share=flops / peak)
            if by_data_sheet:
                self.figure(f"MFU, {name}", flops / by_data_sheet)
            if name != first:
                self.figure(f"times {name}", first_rate / rate, "x")

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
        forward = None
        if is_compiled:
            backend = "inductor" if self.is_cuda else "eager"
            forward = torch.compile(network, backend=backend)
        step = their_step(network, texts, forward=forward)
        return Run(step, texts.num_tokens, step_flops(self.config, texts))


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
    batches = {
        "128": bench.fixed(128, tokens),
        "ragged": bench.ragged(38, 128, tokens),
    }
    for kind, texts in batches.items():
        with torch.no_grad():
            task = Pretraining(ours, held_out=(), train=TrainConfig())
            our_loss = task.loss(our_work(texts, bench.device)).total.item()
        bench.figure(f"loss of litebert, {kind}", our_loss)
        if bench.has_transformers:
            theirs = bench.their_network()
            their_loss = without_dropout(theirs, their_step(theirs, texts))
            bench.figure(f"losses apart, {kind}", abs(their_loss - our_loss))
    if bench.has_transformers:
        calls = encoders(bench, bench.fixed(128, 1_024)).values()
        our_states, their_states = (call().float() for call in calls)
        apart = (their_states - our_states).norm() / our_states.norm()
        bench.figure("hidden states apart", apart.item())


def pretraining(bench: Bench, length: int) -> None:
    texts = bench.fixed(length)
    runs = {OURS: bench.our_run(texts)}
    if bench.is_cuda or not bench.is_smoke:  # a compiler takes minutes on a CPU
        runs[f"{OURS}, compiled"] = bench.our_run(texts, is_compiled=True)
    if bench.has_transformers:
        runs[THEIRS] = bench.their_run(texts)
        runs[COMPILED] = bench.their_run(texts, is_compiled=True)
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
            fewer = Texts(texts.ids[::every], texts.segments[::every])
            runs[f"{THEIRS}, {mix}, padded"] = bench.their_run(fewer)
        bench.rates(runs)


def encoders(bench: Bench, texts: Texts) -> dict[str, Callable[[], torch.Tensor]]:
    """Return the calls that compute the hidden states of every token, in both
    libraries.
    """
    ours = bench.network().eval()
    batch = Batch.from_lists(texts.ids, texts.segments).to(bench.device)
    if bench.is_cuda:
        pack(ours.albert)
    calls = {OURS: torch.no_grad()(partial(ours.albert, batch))}
    if not bench.has_transformers:
        return calls
    theirs = bench.their_network(torch.bfloat16).eval().albert
    inputs = dict[str, torch.Tensor]()
    for name, values in texts.padded().items():
        inputs[name] = torch.from_numpy(values).to(bench.device)

    @torch.no_grad()
    def their_states() -> torch.Tensor:
        return theirs(**inputs).last_hidden_state.flatten(0, 1)  # (tokens, hidden)

    calls["transformers, sdpa, bf16"] = their_states
    return calls


def inference(bench: Bench) -> None:
    """Measure throughput at lengths 128 and 512, and milliseconds of small batches."""
    for length in (128, 512):
        texts = bench.fixed(length)
        flops = forward_flops(bench.config, texts.lengths)
        runs = dict[str, Run]()
        for name, call in encoders(bench, texts).items():
            runs[f"{name}, {length}"] = Run(call, texts.num_tokens, flops)
        bench.rates(runs)
    for count, length in ((1, 16), (1, 128), (8, 128)):
        runs = dict[str, Run]()
        for name, call in encoders(bench, bench.fixed(length, count * length)).items():
            runs[name] = Run(partial(bench.finish, call))
        for name, seconds in bench.in_turns(runs).items():
            bench.figure(f"{count} x {length}, {name}", seconds * 1e3, "ms")


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
        few = bench.tokens // 8
        more = bench.tokens // 4
        peak_of_few = peak(make, few)
        peak_of_more = peak(make, more)
        slope = (peak_of_more - peak_of_few) / (more - few)  # bytes a token
        bench.figure(name, slope / 1e3, "KB a token")


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
    failures = dict[str, str]()
    for name in sections:
        bench.section = name
        try:
            SECTIONS[name](bench)
        except Exception as error:  # noqa: BLE001 whatever it is, it is reported by name
            failures[name] = _reason(error)
        gc.collect()
        if bench.is_cuda:
            torch.cuda.empty_cache()
    return failures


def _reason(error: Exception) -> str:
    where = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(where.filename).name}:{where.lineno}"
    return f"{type(error).__name__} at {place}: {str(error)[:300]}"


# ---- the page ------------------------------------------------------------------------


def markdown(
    machine: Mapping[str, object],
    rows: Sequence[Figure],
    failures: Mapping[str, str],
) -> str:
    facts = [f"- {name}: {value}" for name, value in machine.items()]
    blocks = ["# litebert on a GPU", "\n".join(facts)]
    for section in dict.fromkeys(row.section for row in rows):
        lines = [row.cells for row in rows if row.section == section]
        blocks += [f"## {section}", table(["what", "measured", "of the GEMM"], lines)]
    blocks += [f"Left out, {section}: {why}" for section, why in failures.items()]
    return "\n\n".join(blocks) + "\n"


def main() -> int:
    options = _parser().parse_args()
    bench = _bench(options)
    with device_at(bench.device).computing(torch.bfloat16):
        failures = measure(bench, options.sections)
    machine = {
        "device": platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "preset": options.preset,
        "tokens": bench.tokens,
        "cores": os.cpu_count(),
    }
    if bench.is_cuda:
        machine["device"] = torch.cuda.get_device_name(bench.device)
    page = markdown(machine, bench.rows, failures)
    figures = [asdict(row) for row in bench.rows]
    record = {"machine": machine, "figures": figures, "failures": failures}
    text = json.dumps(record, indent=1) + "\n"
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.with_suffix(".json").write_text(text, encoding="utf-8")
    options.out.with_suffix(".md").write_text(page, encoding="utf-8")
    print(page)
    return 0 if bench.rows else 1


def _parser() -> argparse.ArgumentParser:
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
    return parser


def _bench(options: argparse.Namespace) -> Bench:
    device = choose_device(options.device).place
    config = preset(options.preset)
    if options.smoke:
        config = config.model_copy(update={"vocab_size": 2_000})
    return Bench(
        device,
        config,
        tokens=options.tokens or _tokens_by_memory(device),
        is_smoke=options.smoke,
        has_transformers=installed("transformers") is not None,
    )


def _tokens_by_memory(device: torch.device) -> int:
    """Return the tokens of a step that a device has room for."""
    if device.type != "cuda":
        return 256
    size = torch.cuda.get_device_properties(device).total_memory
    if size > 130e9:
        return 65_536
    if size > 70e9:
        return 32_768
    return 8_192


if __name__ == "__main__":
    sys.exit(main())
