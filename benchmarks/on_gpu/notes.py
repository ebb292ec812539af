"""What a worker of gpu.py writes down: figures, and what was left out and why, a line each."""

from __future__ import annotations

import gc
import json
import os
import platform
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch

from on_gpu.work import WARM_UPS, Run, Setting, in_turns, yardstick

Made = TypeVar("Made")
GEMM = "GEMM in the same turns"


def has_transformers(*, wanted: bool) -> bool:
    """Tell whether the rival is asked for and there."""
    return wanted and util.find_spec("transformers") is not None


class Rate(NamedTuple):
    """Tokens a second, and the share of the GEMM's rate."""

    tokens: float
    share: float


@dataclass
class Bench:
    """The notebook of one worker: rows are whole lines, so that what is measured stays."""

    setting: Setting
    rows: Path
    has_transformers: bool
    section: str = ""
    until: float = 0.0

    @property
    def seconds_left(self) -> float:
        """Return what is left of the section's time."""
        return self.until - time.time()

    def machine(self, preset: str) -> None:
        """Note where this is."""
        device = self.setting.device
        name = torch.cuda.get_device_name(device) if self.setting.is_cuda else platform.machine()
        theirs = metadata.version("transformers") if self.has_transformers else "none"
        self.note(
            "machine",
            device=name,
            python=platform.python_version(),
            torch=torch.__version__,
            cuda=torch.version.cuda,
            transformers=theirs,
            preset=preset,
            tokens=self.setting.tokens,
            cores=os.cpu_count(),
        )

    def begin(self, section: str, seconds: float) -> None:
        """Begin a section, which has so much time, with the memory of those before given back."""
        gc.collect()
        if self.setting.is_cuda:
            torch.cuda.empty_cache()
        self.section, self.until = section, time.time() + seconds
        self.note("begin", until=self.until)

    def note(self, kind: str, **fields: object) -> None:
        """Append one line."""
        row = {"kind": kind, "section": self.section, "time": time.time(), **fields}
        with self.rows.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def figure(self, name: str, value: float, unit: str, *, share: float | None = None, note: str = "") -> None:
        """Note a figure; `share` is the part of the GEMM's rate that it reaches."""
        self.note("figure", name=name, value=value, unit=unit, share=share, note=note)

    def target(self, name: str, value: float, unit: str, *, least: float = 0, most: float = 0) -> None:
        """Note a figure that has a target."""
        self.note("target", name=name, value=value, unit=unit, least=least, most=most)

    def left_out(self, name: str, why: str, *, is_failure: bool = False) -> None:
        """Note what was not measured."""
        self.note("left out", name=name, why=why, is_failure=is_failure)

    def attempt(self, name: str, make: Callable[[], Made]) -> Made | None:
        """Return what is made, or note why it failed: the others are still to be measured."""
        try:
            return make()
        except Exception as error:  # noqa: BLE001 whatever it is, it is reported by name
            reason = " ".join(str(error).split())[:300]
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(where.filename).name}:{where.lineno}"
            self.left_out(name, f"{type(error).__name__} at {place}: {reason}", is_failure=True)
        if self.setting.is_cuda:
            torch.cuda.synchronize()  # raises where the device is lost: the section ends
            torch.cuda.empty_cache()
        return None

    def warmed(self, name: str, make: Callable[[], Run]) -> dict[str, Run]:
        """Return a run by its name after some calls; nothing where it failed."""

        def make_and_warm() -> Run:
            run = make()
            for _ in range(1 if self.setting.is_smoke else WARM_UPS):
                run.call()
            self.setting.wait()
            return run

        start = time.perf_counter()
        run = self.attempt(name, make_and_warm)
        if run is None:
            return {}
        self.note("warm-up", name=name, seconds=time.perf_counter() - start)
        return {name: run}

    def theirs(self, name: str, make: Callable[[], Run], *, needs: float = 0) -> dict[str, Run]:
        """Warm up a rival; it is left out without transformers, or without `needs` seconds."""
        if not self.has_transformers:
            self.left_out(name, "transformers is not installed")
        elif self.seconds_left < needs:
            self.left_out(name, f"needs {needs:.0f} s, {self.seconds_left:.0f} s are left")
        else:
            return self.warmed(name, make)
        return {}

    def on_cuda(self, name: str, make: Callable[[], Run]) -> dict[str, Run]:
        """Warm up what needs a CUDA device."""
        if self.setting.is_cuda:
            return self.warmed(name, make)
        self.left_out(name, "needs a CUDA device")
        return {}

    def rates(self, runs: Mapping[str, Run]) -> dict[str, Rate]:
        """Time runs in turns with the GEMM; note and return what each reaches."""
        gemm = yardstick(self.setting)
        taken = in_turns({GEMM: gemm, **runs}, self.setting)
        peak = gemm.flops / taken.pop(GEMM)
        self.figure(GEMM, peak / 1e12, "TFLOP/s")
        rates = {}
        for name, seconds in taken.items():
            run = runs[name]
            rates[name] = Rate(run.tokens / seconds, run.flops / seconds / peak)
            note = f"{seconds * 1e3:,.2f} ms for {run.tokens:,} tokens"
            if run.skipped:
                done = 100 * (run.flops - run.skipped) / seconds / peak
                note += f"; {done:.1f} % without what it skips"
            self.figure(name, rates[name].tokens, "tokens/s", share=rates[name].share, note=note)
        return rates
