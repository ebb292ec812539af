"""From a model folder to the first answer, and the memory it takes, in processes of their own.

    python -m benchmarks.speed.cold ROOT litebert bf16      what one of these processes runs

Time and memory count from after the imports. Such a process does one thing for each line it reads,
`answer` (the first time it loads) or `fork` (four children answer, too), and writes what it took.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

from benchmarks.measure import memory
from benchmarks.texts import VOCABULARY

TEXT = "The first answer is the one that a user waits for."
WORKERS = 4
PROGRAMS = {"litebert": ("fp32", "bf16", "int8"), "transformers": ("fp32", "bf16")}
Facts: TypeAlias = dict[str, float]


def measure(root: Path, *, is_quick: bool) -> list[dict[str, Any]]:
    """Measure every program at every precision that is there.

    `values` are seconds to the first answer, by the wall and of a core, megabytes that it took (resident, and of these
    anonymous), and those of four processes together: started, and forked from one that has answered.
    """
    if not VOCABULARY.is_file():
        print("no vocabulary: set LITEBERT_TEST_DATA")
        return []
    found = []
    for program, precisions in PROGRAMS.items():
        for precision in precisions:
            answers = []
            for _ in range(1 if is_quick else 3):
                worker = Worker(root, program, precision)
                answers.append(worker.tell("answer"))
                worker.process.communicate()
            worker = Worker(root, program, precision)
            worker.tell("answer")
            forked = worker.tell("fork")["Pss"] - worker.at_start["Pss"]
            worker.process.communicate()
            workers = [Worker(root, program, precision) for _ in range(WORKERS)]
            before = sum(memory(worker.process.pid)["Pss"] for worker in workers)
            for worker in workers:
                worker.tell("answer")
            started = sum(memory(worker.process.pid)["Pss"] for worker in workers) - before
            for worker in workers:
                worker.process.communicate()
            values = [min(answer[name] for answer in answers) for name in ("seconds", "processor_seconds")]
            values += [fmean(answer[name] for answer in answers) for name in ("Rss", "Anonymous")]
            found.append({"name": f"{program} {precision}", "values": [*values, started, forked]})
            print(found[-1], flush=True)
    return found


class Worker:
    """A process that has done its imports and waits to be told."""

    def __init__(self, root: Path, program: str, precision: str) -> None:
        words = [sys.executable, "-m", "benchmarks.speed.cold", str(root), program, precision]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True)
        self.at_start = self._read()

    def tell(self, word: str) -> Facts:
        """Have something done and return what it took."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        return self._read()

    def _read(self) -> Facts:
        assert self.process.stdout is not None
        facts: Facts = json.loads(self.process.stdout.readline())
        return facts


def main() -> None:
    """Import, then do what is asked."""
    root, program, precision = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    load = {"litebert": _litebert, "transformers": _transformers}[program]()
    before = memory("self")
    print(json.dumps(before), flush=True)
    answer: Callable[[], object] | None = None
    for line in sys.stdin:
        if line.strip() == "fork":
            assert answer is not None
            print(json.dumps(_forked(answer)), flush=True)
            continue
        start, start_processor = time.perf_counter(), time.process_time()
        answer = answer or load(root, precision)
        answer()
        seconds, processor = time.perf_counter() - start, time.process_time() - start_processor
        now = memory("self")
        grown = {name: now[name] - before[name] for name in ("Rss", "Pss", "Anonymous")}
        taken = {"seconds": seconds, "processor_seconds": processor}
        print(json.dumps({**taken, **grown}), flush=True)


def _litebert() -> Callable[[Path, str], Callable[[], object]]:
    import litebert.inference

    def load(root: Path, precision: str) -> Callable[[], object]:
        if precision == "int8":
            model = litebert.load(root / "int8")
        else:
            model = litebert.load(root / "model", precision=precision)
        return lambda: model.embed([TEXT])

    return load


def _transformers() -> Callable[[Path, str], Callable[[], object]]:
    import torch
    from transformers import AlbertModel, AutoTokenizer

    def load(root: Path, precision: str) -> Callable[[], object]:
        dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
        model = AlbertModel.from_pretrained(root / "model", dtype=dtype).eval()
        tokenizer = AutoTokenizer.from_pretrained(root / "model")

        @torch.inference_mode()
        def answer() -> object:
            return model(**tokenizer([TEXT], return_tensors="pt")).last_hidden_state.mean(1)

        return answer

    return load


def _forked(answer: Callable[[], object]) -> Facts:
    """Return what this process and four forked children that have answered hold together."""
    children = []
    for _ in range(WORKERS):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            answer()
            os.write(write, b"done")
            time.sleep(600)
            os._exit(0)
        os.close(write)
        os.read(read, 4)
        children.append(child)
    total = sum(memory(pid)["Pss"] for pid in (os.getpid(), *children))
    for child in children:
        os.kill(child, 9)
        os.waitpid(child, 0)
    return {"Pss": total}


if __name__ == "__main__":
    main()
