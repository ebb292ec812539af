"""Time from a model folder to the first answer, and the memory it takes, in separate
processes.

    python -m benchmarks.speed.cold ROOT litebert bf16      what one of these processes runs

Time and memory count from after the imports. Such a process reads one command per line,
`answer` (the first time, it also loads) or `fork` (four children answer, too), and
prints what it took.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.measure import memory
from benchmarks.texts import VOCABULARY

TEXT = "The first answer is the one that a user waits for."
WORKERS = 4
PROGRAMS = {"litebert": ("fp32", "bf16", "int8"), "transformers": ("fp32", "bf16")}


def measure(root: Path, *, is_quick: bool) -> list[dict[str, Any]]:
    """Measure every program at each of its precisions.

    `values` are the seconds to the first answer (wall time, CPU time), the megabytes it
    took (resident, anonymous), and those of four processes together: started
    separately, and forked from one that has answered.
    """
    if not VOCABULARY.is_file():
        print("no vocabulary: set LITEBERT_TEST_DATA")
        return []
    found = []
    for program, precision in (
        (program, each)
        for program, precisions in PROGRAMS.items()
        for each in precisions
    ):
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
        before = sum(memory(each.process.pid)["Pss"] for each in workers)
        for each in workers:
            each.tell("answer")
        started = sum(memory(each.process.pid)["Pss"] for each in workers) - before
        for each in workers:
            each.process.communicate()
        values = [
            min(answer[name] for answer in answers)
            for name in ("seconds", "processor_seconds")
        ]
        values += [
            fmean(answer[name] for answer in answers) for name in ("Rss", "Anonymous")
        ]
        found.append(
            {"name": f"{program} {precision}", "values": [*values, started, forked]}
        )
        print(found[-1], flush=True)
    return found


class Worker:
    """A process that has done its imports and waits for commands."""

    def __init__(self, root: Path, program: str, precision: str) -> None:
        words = [
            sys.executable,
            "-m",
            "benchmarks.speed.cold",
            str(root),
            program,
            precision,
        ]
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.at_start = json.loads(self.process.stdout.readline())

    def tell(self, word: str) -> dict[str, float]:
        print(word, file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())


def main(root: Path, program: str, precision: str) -> None:
    load = loader(program)
    before = memory()
    answer = None
    print(json.dumps(before), flush=True)
    for line in sys.stdin:
        if line.strip() == "fork":
            print(json.dumps({"Pss": _forked(answer)}), flush=True)
            continue
        start = time.perf_counter()
        start_processor = time.process_time()
        answer = answer or load(root, precision)
        answer()
        taken = {
            "seconds": time.perf_counter() - start,
            "processor_seconds": time.process_time() - start_processor,
        }
        now = memory()
        print(
            json.dumps(
                {
                    **taken,
                    **{name: now[name] - before[name] for name in ("Rss", "Anonymous")},
                }
            ),
            flush=True,
        )


def loader(program: str) -> Callable[[Path, str], Callable[[], object]]:
    """Import a program; return a function that loads a model and returns the call that
    answers.
    """
    if program == "litebert":
        import litebert.folder.model  # noqa: F401 torch and all else that loading imports
        from litebert.inference.model import Model

        def load_ours(root: Path, precision: str) -> Callable[[], object]:
            is_int8 = precision == "int8"  # a property of the folder
            model = (
                Model.load(root / "int8")
                if is_int8
                else Model.load(root / "model", precision=precision)
            )
            return lambda: model.embed([TEXT])

        return load_ours
    import torch
    from transformers import AlbertModel, AutoTokenizer

    def load_theirs(root: Path, precision: str) -> Callable[[], object]:
        dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
        model = AlbertModel.from_pretrained(root / "model", dtype=dtype).eval()
        tokenizer = AutoTokenizer.from_pretrained(root / "model")

        @torch.inference_mode()
        def embed() -> torch.Tensor:
            encoded = tokenizer([TEXT], return_tensors="pt")
            return model(**encoded).last_hidden_state.mean(1)

        return embed

    return load_theirs


def _forked(answer: Callable[[], object]) -> float:
    """Return what this process and four forked children that have answered hold
    together.
    """
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
    total = sum(memory(process)["Pss"] for process in (os.getpid(), *children))
    for child in children:
        os.kill(child, 9)
        os.waitpid(child, 0)
    return total


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
