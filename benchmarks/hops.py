"""How many of our functions a text passes on its way to an answer, and a batch through one step.

    python benchmarks/hops.py [--names]

Named functions count once each, however often they are called; comprehensions and lambdas do not.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType

import torch

import litebert
from litebert.config import TrainConfig
from litebert.nn import AlbertForPretraining, Batch
from litebert.optim import Lamb
from litebert.tasks.pretraining import Pretraining, PretrainingWork
from litebert.train.loop import training_step

HOME = str(Path(litebert.__file__).parent)


@contextmanager
def counted(hops: Counter[str]) -> Iterator[None]:
    """Count the calls of our functions within the block, by file and name."""

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(HOME) and "<" not in code.co_name:
            hops[f"{code.co_filename.removeprefix(HOME + '/')} {code.co_qualname}"] += 1

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


def one_step() -> Callable[[], object]:
    """Return a training step of a small network: masked words and sentence order, LAMB."""
    network = AlbertForPretraining(litebert.preset("tiny")).train()
    task = Pretraining(network, held_out=(), train=TrainConfig())
    batch = Batch.from_lists([[2, *range(10, 30), 3]] * 4)
    masked = torch.tensor([3, 27, 50, 71])
    work = PretrainingWork(batch, masked, batch.ids[masked], torch.tensor([0, 1, 0, 1]), 4, 4)
    return partial(
        training_step,
        task,
        [work],
        Lamb(network.parameters(), lr=1e-3),
        step=0,
        learning_rate=1e-3,
        clip_norm=1.0,
        seed=1,
    )


def main() -> None:
    """Print the counts, each after one call that warms up."""
    model = litebert.load()
    paths: dict[str, Callable[[], object]] = {
        'fill("a [MASK]")': partial(model.fill, "a [MASK]"),
        "a training step": one_step(),
    }
    for name, run in paths.items():
        run()
        hops = Counter[str]()
        with counted(hops):
            run()
        files = {hop.split()[0] for hop in hops}
        print(f"{name}: {len(hops)} functions in {len(files)} files")
        if "--names" in sys.argv:
            print("\n".join(f"  {number:>4}  {hop}" for hop, number in sorted(hops.items())))


if __name__ == "__main__":
    main()
