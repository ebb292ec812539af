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
from itertools import product
from typing import Annotated, NamedTuple

from benchmarks.measure import apart, machine, memory, peak_bytes, table
from litebert.cli.command import command_of

LENGTH = 512
GB = 1e9
PRESETS = "tiny,mini,small,base,large,xlarge,xxlarge"
OURS = "litebert"
CHECKPOINTED = "litebert checkpointed"
THEIRS = "transformers"
RIVALS = (OURS, CHECKPOINTED, THEIRS)


class Measured(NamedTuple):
    """Bytes held before the step, bytes above these at the peak of each phase, and
    seconds for the step.
    """

    held: float
    backward: float
    update: float
    seconds: float


class Peak(NamedTuple):
    """The most bytes of a step above those held before, measured or extrapolated."""

    size: float
    is_measured: bool

    def __str__(self) -> str:
        mark = "" if self.is_measured else "~"
        return f"{mark}{self.size / GB:.2f}"


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
    lines = list[list[object]]()
    for preset, precision in product(presets.split(","), precisions.split(",")):
        peaks = dict[str, Peak]()
        for rival in RIVALS:
            case = (preset, rival, precision)
            peaks[rival] = peak_of(case, sequences, limit, seconds)
        ratio = peaks[CHECKPOINTED].size / peaks[THEIRS].size
        lines.append([preset, precision, *peaks.values(), f"{ratio:.2f}"])
        print(*lines[-1], file=sys.stderr, flush=True)
    print(table(["preset", "precision", *RIVALS, "checkpointed to theirs"], lines))


def peak_of(
    case: tuple[str, str, str], sequences: int, limit: float, seconds: float
) -> Peak:
    """Extrapolate from one and two sequences; measure the whole batch if it fits."""
    one = Measured(*apart(measure, *case, 1, limit))
    two = Measured(*apart(measure, *case, 2, limit))
    slope = max(0, two.backward - one.backward)  # bytes a sequence
    predicted = max(two.backward + (sequences - 2) * slope, two.update)
    fits_memory = predicted + two.held <= 0.9 * limit * GB
    fits_time = two.seconds * sequences / 2 <= seconds
    if not (fits_memory and fits_time):
        return Peak(predicted, is_measured=False)
    whole = Measured(*apart(measure, *case, sequences, limit))
    return Peak(max(whole.backward, whole.update), is_measured=True)


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
    if rival == THEIRS:
        step = their_step(their_network(config), texts, precision=precision)
    else:
        network = AlbertForPretraining(config, dtype=DTYPES[precision])
        if rival == CHECKPOINTED:
            checkpoint_gradients(network.albert)
        step = our_step(network, texts, optimizer="lamb")
    held = 1e6 * memory()["Rss"]
    start = time.perf_counter()
    backward = peak_bytes(step.backward) - held
    update = peak_bytes(step.update) - held
    return Measured(held, backward, update, time.perf_counter() - start)


if __name__ == "__main__":
    command_of(main, "training_memory")()
