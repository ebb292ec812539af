"""Section on the loader: masked pairs a second, and a network that is fed by it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle

from loader import VOCAB_SIZE

from litebert.objectives import Loader, prefetch
from litebert.tasks.pretraining import PretrainingWork, micro_batches
from on_gpu.corpus import open_loader
from on_gpu.notes import Bench
from on_gpu.work import our_network, our_step

STEPS = 24


def feeding(bench: Bench) -> None:
    """Compare steps fed by worker processes with steps whose batches were ready."""
    setting = bench.setting
    config = setting.config.model_copy(update={"vocab_size": VOCAB_SIZE})
    step = our_step(our_network(replace(setting, config=config)))
    for length in (128, 512):
        opener = partial(open_loader, length, max(2, setting.tokens // length))
        loader = opener()
        count = 1 if setting.is_smoke else 4
        start = time.process_time()
        batches = [loader.batch(number) for number in range(count)]
        spent = time.process_time() - start
        made = sum(len(batch.ids) for batch in batches) / spent
        bench.figure(f"loader at {length}, one core", made, "tokens/s")
        ready = [work for batch in batches for work in micro_batches(batch, None, setting.device)]
        steps = 2 if setting.is_smoke else STEPS
        eaten = _rate(bench, step, _repeated(ready, steps))
        bench.figure(f"steps at {length}, batches ready", eaten, "tokens/s")
        workers = max(1, min(8, (os.cpu_count() or 2) - 2))
        fed = _rate(bench, step, _loaded(bench, opener, steps, workers))
        bench.figure(f"steps at {length}, fed by {workers} processes", fed, "tokens/s")
        bench.figure(f"cores that feed one device at {length}", eaten / made, "")
        bench.target(f"fed to ready at {length}", fed / eaten, "x", least=0.95)


def _repeated(works: Sequence[PretrainingWork], steps: int) -> Iterator[PretrainingWork]:
    turns = cycle(works)
    return (next(turns) for _ in range(steps))


def _loaded(bench: Bench, opener: Callable[[], Loader], steps: int, workers: int) -> Iterator[PretrainingWork]:
    for batch in prefetch(opener, range(steps), workers=workers):
        yield from micro_batches(batch, None, bench.setting.device)


def _rate(bench: Bench, step: Callable[[PretrainingWork], None], works: Iterator[PretrainingWork]) -> float:
    """Return tokens a second after the first third, in which kernels and processes start."""
    warm = 1 if bench.setting.is_smoke else STEPS // 3
    tokens, start = 0, 0.0
    for number, work in enumerate(works):
        if number == warm:
            bench.setting.wait()
            start = time.perf_counter()
        step(work)
        tokens += sum(work.batch.lengths) if number >= warm else 0
    bench.setting.wait()
    return tokens / (time.perf_counter() - start)
