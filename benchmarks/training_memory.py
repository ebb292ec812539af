"""Memory of one pretraining step: python -m benchmarks.training_memory [--presets base xxlarge].

Each measurement is a process of its own: it builds the network and a made-up batch of sequences of 512 tokens, notes
what it holds, then takes one whole step (forward, backward, update). Shown is the peak resident memory (VmHWM) of that
step above what was held before, in GB. transformers' AlbertForPreTraining has no gradient checkpointing, so it is
shown without.

One and two sequences are measured first. Where their slope says that the whole batch fits --limit and --seconds, it is
measured as well; if not, the figure is extrapolated, and marked ~.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import NamedTuple

from benchmarks.measure import machine, memory, peak_bytes, table

LENGTH, GB = 512, 1e9
PRESETS = ("tiny", "mini", "small", "base", "large", "xlarge", "xxlarge")
RIVALS = ("litebert", "litebert checkpointed", "transformers")


class Measured(NamedTuple):
    """Bytes held before the step, bytes above these at the peak of each phase, and seconds for the step."""

    held: float
    backward: float
    update: float
    seconds: float


def measure(preset: str, rival: str, precision: str, sequences: int, limit: float) -> Measured:
    """Take one step in this process, which may not pass `limit` GB."""
    from benchmarks.steps import DTYPES, our_step, their_network, their_step
    from benchmarks.texts import made_up
    from litebert.config import preset as preset_of
    from litebert.fast import checkpoint_gradients
    from litebert.nn import AlbertForPretraining

    resource.setrlimit(resource.RLIMIT_DATA, (int(limit * GB), int(limit * GB)))
    config = preset_of(preset)
    texts = made_up([LENGTH] * sequences, vocab_size=config.vocab_size)
    if rival == "transformers":
        step = their_step(their_network(config), texts, precision=precision)
    else:
        network = AlbertForPretraining(config, dtype=DTYPES[precision])
        if rival == "litebert checkpointed":
            checkpoint_gradients(network.albert)
        step = our_step(network, texts, optimizer="lamb")
    held, start = 1e6 * memory()["Rss"], time.perf_counter()
    peaks = [peak_bytes(phase) - held for phase in (step.backward, step.update)]
    return Measured(held, *peaks, time.perf_counter() - start)


def figure(preset: str, rival: str, precision: str, options: argparse.Namespace) -> tuple[float, bool]:
    """Return the peak of a whole batch, and whether it was affordable to measure it."""

    def apart(sequences: int) -> Measured:
        case = [preset, rival, precision, str(sequences), str(options.limit)]
        command = [sys.executable, "-m", __spec__.name, "--measure", *case]
        return Measured(*json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout))

    one, two = apart(1), apart(2)
    backward = two.backward + (options.sequences - 2) * max(0, two.backward - one.backward)
    peak = max(backward, two.update)
    is_large = peak + two.held > options.limit * GB * 0.9
    if is_large or two.seconds * options.sequences / 2 > options.seconds:
        return peak, False
    whole = apart(options.sequences)
    return max(whole.backward, whole.update), True


def main(options: argparse.Namespace) -> None:
    """Print a row for each preset and precision."""
    print(f"{machine()}\n{options.sequences} x {LENGTH} tokens, GB\n")
    lines = []
    for preset in options.presets:
        for precision in options.precisions:
            found = {rival: figure(preset, rival, precision, options) for rival in options.rivals}
            cells = [f"{'' if is_measured else '~'}{peak / GB:.2f}" for peak, is_measured in found.values()]
            ours, theirs = found.get("litebert checkpointed"), found.get("transformers")
            lines.append([preset, precision, *cells, f"{ours[0] / theirs[0]:.2f}" if ours and theirs else ""])
            print(*lines[-1], file=sys.stderr, flush=True)
    print(table(["preset", "precision", *options.rivals, "checkpointed to theirs"], lines))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--presets", nargs="+", default=PRESETS)
    parser.add_argument("--precisions", nargs="+", default=["fp32", "bf16"])
    parser.add_argument("--rivals", nargs="+", default=RIVALS, choices=RIVALS)
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--limit", type=float, default=12, help="GB no process may pass")
    parser.add_argument("--seconds", type=float, default=120, help="longest step of a whole batch")
    parser.add_argument("--measure", nargs=5, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        *names, count, limit = asked.measure
        print(json.dumps(measure(*names, int(count), float(limit))))
    else:
        main(asked)
