"""How many of our functions a text passes on its way to an answer, and a batch through one step.

    python -m benchmarks.hops [--names]

Named functions count once each, however often they are called; comprehensions and lambdas do not.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType

import litebert
from benchmarks.steps import our_step
from benchmarks.texts import made_up
from litebert.nn import AlbertForPretraining

HOME = str(Path(litebert.__file__).parent)


def passed(call: Callable[[], object]) -> Counter[str]:
    """Count the calls of our functions, by file and name."""
    hops = Counter[str]()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(HOME) and "<" not in code.co_name:
            hops[f"{code.co_filename.removeprefix(HOME + '/')} {code.co_qualname}"] += 1

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return hops


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--names", action="store_true", help="print each function and its calls")
    is_asked = parser.parse_args().names
    step = our_step(
        AlbertForPretraining(litebert.preset("tiny")), made_up([22] * 4, vocab_size=2_000), optimizer="lamb"
    )
    for name, call in {'fill("a [MASK]")': partial(litebert.load().fill, "a [MASK]"), "a training step": step}.items():
        call()  # warms up
        hops = passed(call)
        print(f"{name}: {len(hops)} functions in {len({hop.split()[0] for hop in hops})} files")
        if is_asked:
            print("\n".join(f"  {number:>4}  {hop}" for hop, number in sorted(hops.items())))
