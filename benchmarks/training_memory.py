"""Memory of one pretraining step: python benchmarks/training_memory.py [--presets base xxlarge].

Each measurement is a process of its own: it builds the network and a made-up batch of sequences of
512 tokens, notes what it holds, then takes one whole step (forward, backward, update). Shown is the
peak resident memory (VmHWM) of that step above what was held before, in GB; the weights are held
before. transformers' AlbertForPreTraining has no gradient checkpointing, so it is shown without.

One and two sequences are measured first. Where their slope says that the whole batch fits
--limit and --seconds, it is measured as well; if not, the figure is extrapolated, and marked ~.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

LENGTH, MASKED_SHARE = 512, 0.15
PRESETS = ("tiny", "mini", "small", "base", "large", "xlarge", "xxlarge")
RIVALS = ("litebert", "litebert checkpointed", "transformers")
GB = 1e9


@dataclass(frozen=True)
class Case:
    """One measurement."""

    preset: str
    rival: str
    precision: str
    sequences: int


@dataclass(frozen=True)
class Measured:
    """Bytes above those held before, at the peak of each phase, and seconds for the step."""

    held: int
    backward: int
    update: int
    seconds: float

    @property
    def peak(self) -> int:
        """The peak of the whole step."""
        return max(self.backward, self.update)


@dataclass(frozen=True)
class Figure:
    """A peak for the whole batch: measured, or extrapolated from one and two sequences."""

    peak: float
    is_measured: bool

    def __str__(self) -> str:
        return f"{'' if self.is_measured else '~'}{self.peak / GB:.2f}"


def main() -> None:
    """Print a Markdown table, a row for each preset and precision."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--presets", nargs="+", default=list(PRESETS))
    parser.add_argument("--precisions", nargs="+", default=["fp32", "bf16"])
    parser.add_argument("--rivals", nargs="+", default=list(RIVALS), choices=RIVALS)
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--limit", type=float, default=12, help="GB no process may pass")
    parser.add_argument("--seconds", type=float, default=120, help="longest step of a whole batch")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(asdict(measure(Case(**json.loads(options.measure)), options.limit))))
        return
    print(f"Python {platform.python_version()}, {options.sequences} x {LENGTH} tokens, GB\n")
    print("| preset | precision | " + " | ".join(options.rivals) + " | checkpointed to theirs |")
    print("|---|---|" + "---|" * (len(options.rivals) + 1))
    for preset in options.presets:
        for precision in options.precisions:
            figures = {r: figure(preset, r, precision, options) for r in options.rivals}
            ours, theirs = figures.get("litebert checkpointed"), figures.get("transformers")
            ratio = f"{ours.peak / theirs.peak:.2f}" if ours and theirs else ""
            cells = " | ".join(str(each) for each in figures.values())
            print(f"| {preset} | {precision} | {cells} | {ratio} |", flush=True)


def figure(preset: str, rival: str, precision: str, options: argparse.Namespace) -> Figure:
    """Measure one and two sequences, and all of them where that is affordable."""
    one, two = (run(Case(preset, rival, precision, n), options.limit) for n in (1, 2))
    further = options.sequences - 2
    backward = two.backward + further * max(0, two.backward - one.backward)
    peak = max(backward, two.update)
    if peak + two.held > options.limit * GB * 0.9 or two.seconds * options.sequences / 2 > options.seconds:
        return Figure(peak, is_measured=False)
    whole = run(Case(preset, rival, precision, options.sequences), options.limit)
    return Figure(whole.peak, is_measured=True)


def run(case: Case, limit: float) -> Measured:
    """Measure in a process of its own; say on stderr what it gave."""
    command = [sys.executable, __file__, "--limit", str(limit)]
    command += ["--measure", json.dumps(asdict(case))]
    shown = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    measured = Measured(**json.loads(shown))
    phases = f"backward {measured.backward / GB:.2f}, update {measured.update / GB:.2f} GB"
    name = f"{case.preset} {case.rival} {case.precision} x {case.sequences}"
    print(f"{name}: {phases}, {measured.seconds:.1f} s", file=sys.stderr, flush=True)
    return measured


def measure(case: Case, limit: float) -> Measured:
    """Take one step in this process, which may not pass `limit` GB."""
    resource.setrlimit(resource.RLIMIT_DATA, (int(limit * GB), int(limit * GB)))
    prepare = their_step if case.rival == "transformers" else our_step
    backward, update = prepare(case)
    held = memory("VmRSS")
    start = time.perf_counter()
    peaks = [peak_of(phase) - held for phase in (backward, update)]
    return Measured(held, *peaks, seconds=time.perf_counter() - start)


Step = tuple[Callable[[], None], Callable[[], None]]
"""Forward and backward; then the update."""


def our_step(case: Case) -> Step:
    """Build litebert's step as its trainer takes it."""
    import torch

    from litebert.config import OptimConfig, preset
    from litebert.fast import checkpoint_gradients
    from litebert.nn import AlbertForPretraining, Batch
    from litebert.optim import build_optimizer, clip_gradients
    from litebert.tasks.pretraining import Pretraining, PretrainingWork

    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[case.precision]
    network = AlbertForPretraining(preset(case.preset), dtype=dtype).train()
    if case.rival == "litebert checkpointed":
        checkpoint_gradients(network.albert)
    optimizer = build_optimizer(OptimConfig(), network.named_parameters())
    ids, masked, labels = made_up(case.sequences, network.config.vocab_size)
    flat = ids.flatten()
    lengths = [LENGTH] * case.sequences
    batch = Batch.from_flat(flat, torch.zeros_like(flat), lengths)
    work = PretrainingWork(batch, masked, flat[masked], labels, len(masked), case.sequences)
    task = Pretraining(network, open_loader=None, held_out=(), train=None)  # type: ignore[arg-type]

    def update() -> None:
        clip_gradients(network.parameters(), 1.0)
        optimizer.step()

    return lambda: task.loss(work).total.backward(), update


def their_step(case: Case) -> Step:
    """Build transformers' step: bf16 is autocast, the optimizer its Trainer's default."""
    import torch
    import transformers

    from litebert.config import preset

    config = preset(case.preset)
    shared = {name: getattr(config, name) for name in SHARED}
    network = transformers.AlbertForPreTraining(transformers.AlbertConfig(**shared, attn_implementation="sdpa")).train()
    optimizer = torch.optim.AdamW(network.parameters(), fused=True)
    ids, masked, order = made_up(case.sequences, config.vocab_size)
    labels = torch.full_like(ids, -100).flatten()
    labels[masked] = ids.flatten()[masked]
    is_half = case.precision == "bf16"

    def backward() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=is_half):
            output = network(ids, labels=labels.view_as(ids), sentence_order_label=order)
        output.loss.backward()

    def update() -> None:
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()

    return backward, update


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
)
"""Settings that both call the same."""


def made_up(sequences: int, vocab_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return random ids, masked positions among the flat tokens, and sentence-order labels."""
    import torch

    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(5, vocab_size, (sequences, LENGTH), generator=generator)
    positions = torch.randperm(ids.numel(), generator=generator)
    masked = positions[: round(MASKED_SHARE * ids.numel())].sort().values
    return ids, masked, torch.zeros(sequences, dtype=torch.int64)


def peak_of(work: Callable[[], None]) -> int:
    """Return the highest resident memory while it works."""
    Path("/proc/self/clear_refs").write_text("5")  # sets VmHWM back to VmRSS
    work()
    return memory("VmHWM")


def memory(name: str) -> int:
    """Return a field of /proc/self/status in bytes."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if name in line)) * 1024


if __name__ == "__main__":
    main()
