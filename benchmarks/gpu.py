"""Measure litebert beside transformers on one CUDA device, in some minutes.

    python -m pip install --target vendored pydantic jaxtyping sentencepiece sentencex protobuf
    PYTHONPATH=vendored:src python -m benchmarks.gpu --out gpu

It needs Python 3.11, torch 2.10 or newer and numpy, and the packages of the first line (without the network: `pip
download` them elsewhere, then `--no-index --find-links FOLDER`); litebert is read from src/. Where transformers is
missing, its rows are left out by name.

It writes gpu.json and gpu.md. Everything is bf16 with random weights and random tokens; rivals take turns, each beside
the GEMM that shares are taken of. FLOPs are counted with all layers unrolled and all tokens in all layers, so work that
is skipped exactly counts as done. A section that fails or exceeds its time is left out with its reason.

    python -m benchmarks.gpu --device cpu --preset tiny --smoke --out smoke

runs every path that needs no CUDA device; its figures mean nothing.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import os
import platform
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np
import torch

from benchmarks.loader import VOCAB_SIZE, open_loader
from benchmarks.measure import table, take_turns
from benchmarks.steps import forward_flops, our_step, our_work, step_flops, their_network, their_step, without_dropout
from benchmarks.texts import Texts, made_up
from litebert.config import AlbertConfig, TrainConfig, preset
from litebert.fast import checkpoint_gradients, pack
from litebert.nn import AlbertForPretraining, Batch
from litebert.objectives import prefetch
from litebert.tasks.pretraining import Pretraining, micro_batches

OURS, THEIRS, COMPILED = "litebert", "transformers, sdpa, autocast", "transformers, compiled"
GEMM = "GEMM in the same turns"
Row = dict[str, object]


class Run(NamedTuple):
    """What is timed, with tokens and operations of one call."""

    call: Callable[[], object]
    tokens: int = 0
    flops: float = 0.0


@dataclass
class Bench:
    """The device, the network, how much is computed (`tokens` a step), and the figures so far."""

    device: torch.device
    config: AlbertConfig
    tokens: int
    is_smoke: bool
    has_transformers: bool
    rows: list[Row] = field(default_factory=list)
    section: str = ""

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    def wait(self) -> None:
        if self.is_cuda:
            torch.cuda.synchronize()

    def note(self, kind: str, name: str, **fields: object) -> None:
        self.rows.append({"kind": kind, "section": self.section, "name": name, **fields})

    def figure(self, name: str, value: float, unit: str = "", *, share: float | None = None) -> None:
        """Note a figure; `share` is the part of the GEMM's rate that it reaches."""
        self.note("figure", name, value=value, unit=unit, share=share)

    def target(self, name: str, value: float, unit: str = "", *, least: float = 0, most: float = 0) -> None:
        self.note("target", name, value=value, unit=unit, least=least, most=most)

    def network(self) -> AlbertForPretraining:
        """Return the network in bf16, the same random weights at every call."""
        generator = torch.Generator().manual_seed(1)
        return AlbertForPretraining(self.config, dtype=torch.bfloat16, generator=generator).to(self.device).train()

    def fixed(self, length: int, tokens: int = 0) -> Texts:
        return made_up([length] * max(1, (tokens or self.tokens) // length), vocab_size=self.config.vocab_size)

    def ragged(self, mean: float, longest: int, tokens: int = 0) -> Texts:
        """Return made-up sequences of log-normal lengths, exactly `tokens` in all: the last one is cut."""
        tokens = tokens or self.tokens
        drawn = np.random.Generator(np.random.Philox(1)).lognormal(np.log(mean) - 0.18, 0.6, size=tokens // 4 + 1)
        lengths = np.clip(np.rint(drawn), 4, longest).astype(int)
        ends = lengths.cumsum()
        count = int(np.searchsorted(ends, tokens)) + 1
        lengths = lengths[:count]
        lengths[-1] -= ends[count - 1] - tokens
        return made_up(sorted(lengths.tolist(), reverse=True), vocab_size=self.config.vocab_size)

    def rival(self, name: str) -> bool:
        """Tell whether transformers is there; note what is left out without it."""
        if not self.has_transformers:
            self.note("left out", name, why="transformers is not installed", is_failure=False)
        return self.has_transformers

    def their_network(self, dtype: torch.dtype = torch.float32) -> torch.nn.Module:
        return their_network(self.config, self.network().cpu()).to(self.device, dtype)

    def in_turns(self, runs: Mapping[str, Run]) -> dict[str, float]:
        """Return the median seconds of one call of each; turns of about 0.3 s, the device waited for at both ends."""

        def turn(run: Run, count: int) -> None:
            for _ in range(count):
                run.call()
            self.wait()

        for run in runs.values():
            turn(run, 1 if self.is_smoke else 3)  # kernels and compilers start
        counts = dict.fromkeys(runs, 1)
        if not self.is_smoke:
            first = take_turns({n: partial(turn, r, 1) for n, r in runs.items()}, rounds=1, clock=time.perf_counter)
            counts = {name: max(1, round(0.3 / seconds[0])) for name, seconds in first.items()}
        calls = {name: partial(turn, run, counts[name]) for name, run in runs.items()}
        taken = take_turns(calls, rounds=1 if self.is_smoke else 5, clock=time.perf_counter)
        return {name: float(np.median(seconds)) / counts[name] for name, seconds in taken.items()}

    def rates(self, runs: Mapping[str, Run]) -> dict[str, tuple[float, float]]:
        """Time runs beside the GEMM; note and return tokens a second and the share of the GEMM of each."""
        size = 512 if self.is_smoke else 8_192
        gemm = self.product(size, size, size)
        taken = self.in_turns({GEMM: gemm, **runs})
        peak = gemm.flops / taken.pop(GEMM)
        self.figure(GEMM, peak / 1e12, "TFLOP/s")
        found = {n: (runs[n].tokens / seconds, runs[n].flops / seconds / peak) for n, seconds in taken.items()}
        for name, (tokens, share) in found.items():
            self.figure(name, tokens, "tokens/s", share=share)
        return found

    def product(self, rows: int, inner: int, columns: int) -> Run:
        left, right = (torch.randn(a, b, device=self.device).bfloat16() for a, b in ((rows, inner), (inner, columns)))
        return Run(lambda: left @ right, flops=2.0 * rows * inner * columns)

    def our_run(self, texts: Texts, *, is_checkpointed: bool = False) -> Run:
        network = self.network()
        if is_checkpointed:
            checkpoint_gradients(network.albert)
        return Run(our_step(network, texts, by_trainer=False), texts.num_tokens, step_flops(self.config, texts))

    def their_run(self, texts: Texts, *, is_compiled: bool = False) -> Run:
        network = self.their_network()
        forward = torch.compile(network, backend="inductor" if self.is_cuda else "eager") if is_compiled else None
        return Run(their_step(network, texts, forward=forward), texts.num_tokens, step_flops(self.config, texts))


def ceilings(bench: Bench) -> None:
    """Measure products of random matrices, square and in the network's shapes, and a copy."""
    hidden, wide, rows = bench.config.hidden_size, bench.config.intermediate_size, bench.tokens
    size = 512 if bench.is_smoke else 8_192  # of the square one
    shapes = ((size, size, size), (rows, hidden, 3 * hidden), (rows, hidden, wide), (rows, wide, hidden))
    products = {f"bf16 GEMM {' x '.join(map(str, shape))}": bench.product(*shape) for shape in shapes}
    for name, taken in bench.in_turns(products).items():
        bench.figure(name, products[name].flops / taken / 1e12, "TFLOP/s")
    source = torch.zeros(1 << 20 if bench.is_smoke else 4 << 30, device=bench.device, dtype=torch.uint8)
    copy = Run(partial(torch.empty_like(source).copy_, source))
    bench.figure("copy, read and written", 2 * len(source) / bench.in_turns({"": copy})[""] / 1e12, "TB/s")


def equal_losses(bench: Bench) -> None:
    tokens, ours = min(bench.tokens, 8_192), bench.network()
    for kind, texts in {"128": bench.fixed(128, tokens), "ragged": bench.ragged(38, 128, tokens)}.items():
        with torch.no_grad():
            task = Pretraining(ours, held_out=(), train=TrainConfig())
            plain = task.loss(our_work(texts, bench.device)).total.item()
        bench.figure(f"loss of litebert, {kind}", plain)
        if bench.rival(f"{THEIRS}, {kind}"):
            theirs = bench.their_network()
            other = without_dropout(theirs, their_step(theirs, texts))
            bench.target(f"transformers, {kind}: losses apart", abs(other - plain), most=1e-2)


def pretraining(bench: Bench, length: int) -> None:
    texts = bench.fixed(length)
    runs = {OURS: bench.our_run(texts)}
    if bench.rival(THEIRS):
        runs |= {THEIRS: bench.their_run(texts), COMPILED: bench.their_run(texts, is_compiled=True)}
    rates = bench.rates(runs)
    bench.target("share of the GEMM", rates[OURS][1], least=0.45)
    for name, least in ((THEIRS, 3), (COMPILED, 1.5)):
        if name in rates:
            bench.target(f"times {name}", rates[OURS][0] / rates[name][0], "x", least=least)


def ragged_lengths(bench: Bench) -> None:
    """Compare ragged steps with steps of equal lengths, and with padding to the longest."""
    for mix, mean, longest in (("pairs, mean about 38", 38, 128), ("reviews, mean about 170", 170, 512)):
        texts, equal = bench.ragged(mean, longest), f"{OURS}, all {longest}"
        runs = {equal: bench.our_run(bench.fixed(longest)), f"{OURS}, {mix}": bench.our_run(texts)}
        padded = f"{THEIRS}, {mix}, padded"
        if bench.rival(padded):
            every = 8 if bench.is_cuda else 1  # a rectangle has several times the tokens
            runs[padded] = bench.their_run(Texts(texts.ids[::every], texts.segments[::every]))
        rates = bench.rates(runs)
        bench.target(f"{mix}: times all {longest}", rates[f"{OURS}, {mix}"][0] / rates[equal][0], "x", least=0.95)


def inference(bench: Bench) -> None:
    """Compare hidden states of every token: throughput at length 128, and milliseconds of small batches."""
    ours = bench.network().eval()
    theirs = bench.their_network(torch.bfloat16).eval().albert if bench.rival(THEIRS) else None
    if bench.is_cuda:
        pack(ours.albert)

    def calls(texts: Texts) -> dict[str, Callable[[], torch.Tensor]]:
        batch = Batch.from_lists(texts.ids, texts.segments).to(bench.device)
        found = {OURS: torch.no_grad()(partial(ours.albert, batch))}
        if theirs is not None:
            inputs = {name: torch.from_numpy(v).to(bench.device) for name, v in texts.padded().items()}
            states = lambda: theirs(**inputs).last_hidden_state.flatten(0, 1)  # noqa: E731
            found["transformers, sdpa, bf16"] = torch.no_grad()(states)
        return found

    first, *others = [call().float() for call in calls(bench.fixed(128, 1_024)).values()]
    for other in others:
        bench.target("hidden states apart", ((other - first).norm() / first.norm()).item(), most=2e-2)
    texts = bench.fixed(128)
    flops = forward_flops(bench.config, texts.lengths)
    rates = bench.rates({name: Run(call, texts.num_tokens, flops) for name, call in calls(texts).items()})
    if bench.is_cuda:
        bench.target("inference at 128", rates[OURS][0] / 1e6, "M tokens/s", least=2)
    for count, length in ((1, 16), (1, 128), (8, 128)):
        small = calls(bench.fixed(length, count * length))
        waited = {name: Run(lambda call=call: (call(), bench.wait())) for name, call in small.items()}
        for name, taken in bench.in_turns(waited).items():
            bench.figure(f"{count} x {length}, {name}", taken * 1e3, "ms")


def memory(bench: Bench) -> None:
    """Measure bytes a token as the slope of the peak over two sizes."""
    if not bench.is_cuda:
        bench.note("left out", "peak memory a token", why="needs a CUDA device", is_failure=False)
        return

    def peak(make: Callable[[Texts], Run], tokens: int) -> int:
        run = make(bench.fixed(128, tokens))
        run.call()  # moments stay
        bench.wait()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run.call()
        bench.wait()
        return torch.cuda.max_memory_allocated() - before

    makers = {OURS: bench.our_run, f"{OURS}, checkpointed": partial(bench.our_run, is_checkpointed=True)}
    if bench.rival(THEIRS):
        makers[THEIRS] = bench.their_run
    slopes = {}
    for name, make in makers.items():
        small, large = (peak(make, bench.tokens // part) for part in (8, 4))
        slopes[name] = (large - small) / (bench.tokens // 4 - bench.tokens // 8) / 1e3
        bench.figure(name, slopes[name], "KB a token")
    bench.target("memory without checkpointing", slopes[OURS], "KB a token", most=320)


def feeding(bench: Bench) -> None:
    """Compare steps fed by worker processes with steps whose batches were ready."""
    bench.config = bench.config.model_copy(update={"vocab_size": VOCAB_SIZE})
    steps, warm = (2, 1) if bench.is_smoke else (24, 8)
    workers = max(1, min(8, (os.cpu_count() or 2) - 2))
    network = bench.network()
    task = Pretraining(network, held_out=(), train=TrainConfig())
    for length in (128, 512):
        opener = partial(open_loader, length, max(2, bench.tokens // length))
        loader = opener()
        count, start = 1 if bench.is_smoke else 4, time.process_time()
        batches = [loader.batch(number) for number in range(count)]
        made = sum(len(batch.ids) for batch in batches) / (time.process_time() - start)
        bench.figure(f"loader at {length}, one core", made, "tokens/s")

        def rate(source: object) -> float:
            tokens, start = 0, 0.0
            for number, batch in zip(range(steps), source, strict=False):
                if number == warm:
                    bench.wait()
                    start = time.perf_counter()
                for work in micro_batches(batch, None, bench.device):
                    task.loss(work).total.backward()
                network.zero_grad(set_to_none=True)
                tokens += len(batch.ids) if number >= warm else 0
            bench.wait()
            return tokens / (time.perf_counter() - start)

        ready, fed = rate(cycle(batches)), rate(prefetch(opener, range(steps), workers=workers))
        bench.figure(f"steps at {length}, batches ready", ready, "tokens/s")
        bench.figure(f"steps at {length}, fed by {workers} processes", fed, "tokens/s")
        bench.figure(f"cores that feed one device at {length}", ready / made)
        bench.target(f"fed to ready at {length}", fed / ready, "x", least=0.95)


SECTIONS: dict[str, Callable[[Bench], None]] = {
    "ceilings": ceilings,
    "equal losses": equal_losses,
    "pretraining at 128": partial(pretraining, length=128),
    "pretraining at 512": partial(pretraining, length=512),
    "ragged lengths": ragged_lengths,
    "inference": inference,
    "memory": memory,
    "loader": feeding,
}


def measure(bench: Bench, sections: Sequence[str], minutes: float) -> None:
    """Measure section after section; one that fails or is too slow is noted, and the next is begun."""

    def ring(*_: object) -> NoReturn:
        raise TimeoutError("the time was over")

    signal.signal(signal.SIGALRM, ring)
    until = time.monotonic() + 60 * minutes
    for number, bench.section in enumerate(sections):
        left = (until - time.monotonic()) / (len(sections) - number) * 2  # of what is left, twice an even share
        try:
            signal.setitimer(signal.ITIMER_REAL, max(0.001, min(left, until - time.monotonic())))
            SECTIONS[bench.section](bench)
        except Exception as error:  # noqa: BLE001 whatever it is, it is reported by name
            where = traceback.extract_tb(error.__traceback__)[-1]
            why = f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno}: {str(error)[:300]}"
            bench.note("left out", bench.section, why=why, is_failure=True)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        gc.collect()
        if bench.is_cuda:
            torch.cuda.empty_cache()


def markdown(machine: Row, rows: Sequence[Row]) -> str:

    def shown(row: Row) -> str:
        value = float(str(row["value"]))
        return f"{value:,.0f} {row['unit']}" if abs(value) >= 1_000 else f"{value:.4g} {row['unit']}".strip()

    def of(kind: str) -> list[Row]:
        return [row for row in rows if row["kind"] == kind]

    targets = []
    for row in of("target"):
        value, least, most = (float(str(row[key])) for key in ("value", "least", "most"))
        wanted, is_met = (f">= {least:g}", value >= least) if least else (f"<= {most:g}", value <= most)
        targets.append([row["section"], row["name"], shown(row), wanted, "yes" if is_met else "NO"])
    blocks = ["# litebert on a GPU", "\n".join(f"- {name}: {value}" for name, value in machine.items())]
    blocks.append(table(["section", "target", "measured", "wanted", "met"], targets))
    for section in dict.fromkeys(row["section"] for row in of("figure")):
        found = [row for row in of("figure") if row["section"] == section]
        shares = ["" if row["share"] is None else f"{100 * float(str(row['share'])):.1f} %" for row in found]
        lines = [[row["name"], shown(row), share] for row, share in zip(found, shares, strict=True)]
        blocks += [f"## {section}", table(["what", "measured", "of the GEMM"], lines)]
    left_out = "\n".join(f"- {row['section']}: {row['name']}: {row['why']}" for row in of("left out"))
    return "\n\n".join([*blocks, "## Left out", left_out]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("gpu"), help="path of the .json and .md")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--preset", default="base-v2")
    parser.add_argument("--tokens", type=int, default=0, help="of a pretraining step; 0: by memory")
    parser.add_argument("--minutes", type=float, default=8, help="for all sections together")
    parser.add_argument("--sections", nargs="+", default=list(SECTIONS), choices=list(SECTIONS))
    parser.add_argument("--without-transformers", action="store_true")
    parser.add_argument("--smoke", action="store_true", help="one round of little: does it run?")
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    device, tokens, name = torch.device(options.device), options.tokens, platform.machine()
    if device.type == "cuda":
        size = torch.cuda.get_device_properties(device).total_memory
        tokens = tokens or (65_536 if size > 130e9 else 32_768 if size > 70e9 else 8_192)
        name = torch.cuda.get_device_name(device)
    config = preset(options.preset).model_copy(update={"vocab_size": 2_000} if options.smoke else {})
    has_rival = not options.without_transformers and importlib.util.find_spec("transformers") is not None
    bench = Bench(device, config, tokens or 256, options.smoke, has_rival)
    measure(bench, options.sections, options.minutes)
    machine: Row = {"device": name, "python": platform.python_version(), "torch": torch.__version__}
    machine |= {"cuda": torch.version.cuda, "preset": options.preset, "tokens": bench.tokens, "cores": os.cpu_count()}
    found, page = [{"kind": "machine", **machine}, *bench.rows], markdown(machine, bench.rows)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    options.out.with_suffix(".md").write_text(page, encoding="utf-8")
    print(page)
    return 0 if any(row["kind"] == "figure" for row in bench.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
