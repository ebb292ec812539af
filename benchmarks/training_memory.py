"""Memory of one pretraining step: python -m benchmarks.training_memory [--presets
base,xxlarge].

Each measurement runs in its own process, with a made-up batch of sequences of 512
tokens. The figure is the peak resident memory (VmHWM) of one whole step (forward,
backward, update) above the memory held before, in GB. transformers'
AlbertForPreTraining has no gradient checkpointing, so it is shown without.

One and two sequences are measured first. If their slope predicts that the whole batch
fits --limit and --seconds, it is measured as well; otherwise the figure is
extrapolated, and marked ~.
"""

import resource
import sys
import time
from typing import Annotated, NamedTuple

from benchmarks.measure import apart, machine, memory, peak_bytes, table
from litebert.cli.command import command_of

LENGTH = 512
GB = 1e9
PRESETS = "tiny,mini,small,base,large,xlarge,xxlarge"
RIVALS = ("litebert", "litebert checkpointed", "transformers")


class Measured(NamedTuple):
    """Bytes held before the step, bytes above these at the peak of each phase, and
    seconds for the step.
    """

    held: float
    backward: float
    update: float
    seconds: float


def measure(
    preset: str, rival: str, precision: str, sequences: int, limit: float
) -> Measured:
    """Take one step in this process, which may not use more than `limit` GB."""
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
    held = 1e6 * memory()["Rss"]
    start = time.perf_counter()
    peaks = [peak_bytes(phase) - held for phase in (step.backward, step.update)]
    return Measured(held, *peaks, time.perf_counter() - start)


def main(
    *,
    presets: str = PRESETS,
    precisions: str = "fp32,bf16",
    sequences: int = 8,
    limit: Annotated[float, "GB that no process may exceed."] = 12,
    seconds: Annotated[float, "Longest step of a whole batch."] = 120,
) -> None:
    """Print a row for each preset and precision."""
    print(f"{machine()}\n{sequences} x {LENGTH} tokens, GB\n")
    lines = []
    for preset, precision in (
        (p, x) for p in presets.split(",") for x in precisions.split(",")
    ):
        peaks = []
        cells = []
        for rival in RIVALS:
            one, two = (
                Measured(*apart(measure, preset, rival, precision, n, limit))
                for n in (1, 2)
            )
            backward = two.backward + (sequences - 2) * max(
                0, two.backward - one.backward
            )
            peak = max(backward, two.update)
            mark = "~"
            if (
                peak + two.held <= limit * GB * 0.9
                and two.seconds * sequences / 2 <= seconds
            ):
                whole = Measured(
                    *apart(measure, preset, rival, precision, sequences, limit)
                )
                peak = max(whole.backward, whole.update)
                mark = ""
            peaks.append(peak)
            cells.append(f"{mark}{peak / GB:.2f}")
        lines.append([preset, precision, *cells, f"{peaks[1] / peaks[2]:.2f}"])
        print(*lines[-1], file=sys.stderr, flush=True)
    print(table(["preset", "precision", *RIVALS, "checkpointed to theirs"], lines))


if __name__ == "__main__":
    command_of(main, "training_memory")()
