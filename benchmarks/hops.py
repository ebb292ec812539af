"""Count litebert's functions that a text passes on its way to an answer, and a batch on its way through one step.

    python -m benchmarks.hops [--names]

Named functions count once each, however often they are called; comprehensions and lambdas do not.
"""

import sys
from collections import Counter
from functools import partial
from pathlib import Path
from types import FrameType

import litebert
from benchmarks.steps import our_step
from benchmarks.texts import made_up
from litebert.nn import AlbertForPretraining

HOME = str(Path(litebert.__file__).parent)

if __name__ == "__main__":
    tiny, texts = AlbertForPretraining(litebert.preset("tiny")), made_up([22] * 4, vocab_size=2_000)
    calls = {'fill("a [MASK]")': partial(litebert.load().fill, "a [MASK]")}
    calls["a training step"] = our_step(tiny, texts, optimizer="lamb")
    for name, call in calls.items():
        hops = Counter[str]()

        def note(frame: FrameType, event: str, _: object, hops: Counter[str] = hops) -> None:
            code = frame.f_code
            if event == "call" and code.co_filename.startswith(HOME) and "<" not in code.co_name:
                hops[f"{code.co_filename.removeprefix(HOME + '/')} {code.co_qualname}"] += 1

        call()  # warms up
        sys.setprofile(note)
        call()
        sys.setprofile(None)
        print(f"{name}: {len(hops)} functions in {len({hop.split()[0] for hop in hops})} files")
        if "--names" in sys.argv:
            print("\n".join(f"  {number:>4}  {hop}" for hop, number in sorted(hops.items())))
