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
    rows = list[dict[str, Any]]()
    for program, precisions in PROGRAMS.items():
        for precision in precisions:
            command = [str(root), program, precision]
            values = [
                *_first_answers(command, number=1 if is_quick else 3),
                _megabytes_started(command),
                _megabytes_forked(command),
            ]
            rows.append({"name": f"{program} {precision}", "values": values})
            print(rows[-1], flush=True)
    return rows


def _first_answers(command: list[str], *, number: int) -> list[float]:
    """Return the least seconds, and the mean megabytes, of some processes."""
    answers = list[dict[str, float]]()
    for _ in range(number):
        worker = Worker(command)
        answers.append(worker.tell("answer"))
        worker.end()
    return [
        min(answer["seconds"] for answer in answers),
        min(answer["processor_seconds"] for answer in answers),
        fmean(answer["Rss"] for answer in answers),
        fmean(answer["Anonymous"] for answer in answers),
    ]


def _megabytes_started(command: list[str]) -> float:
    """Return what four processes take together that are started separately."""
    workers = [Worker(command) for _ in range(WORKERS)]
    before = sum(worker.megabytes for worker in workers)
    for worker in workers:
        worker.tell("answer")
    after = sum(worker.megabytes for worker in workers)
    for worker in workers:
        worker.end()
    return after - before


def _megabytes_forked(command: list[str]) -> float:
    """Return what four processes take that are forked from one that has answered."""
    worker = Worker(command)
    worker.tell("answer")
    megabytes = worker.tell("fork")["Pss"] - worker.at_start["Pss"]
    worker.end()
    return megabytes


class Worker:
    """A process that has done its imports and waits for commands."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.speed.cold", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.at_start = json.loads(self.process.stdout.readline())

    @property
    def megabytes(self) -> float:
        return memory(self.process.pid)["Pss"]

    def tell(self, word: str) -> dict[str, float]:
        print(word, file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def end(self) -> None:
        self.process.communicate()


# ---- in such a process ---------------------------------------------------------------


def main(root: Path, program: str, precision: str) -> None:
    load = loader(program)
    before = memory()
    print(json.dumps(before), flush=True)
    answer = None
    for line in sys.stdin:
        if line.strip() == "fork":
            print(json.dumps({"Pss": _forked(answer)}), flush=True)
            continue
        start = time.perf_counter()
        start_processor = time.process_time()
        if answer is None:
            answer = load(root, precision)
        answer()
        seconds = time.perf_counter() - start
        processor_seconds = time.process_time() - start_processor
        now = memory()
        taken = {
            "seconds": seconds,
            "processor_seconds": processor_seconds,
            "Rss": now["Rss"] - before["Rss"],
            "Anonymous": now["Anonymous"] - before["Anonymous"],
        }
        print(json.dumps(taken), flush=True)


def loader(program: str) -> Callable[[Path, str], Callable[[], object]]:
    """Import a program; return a function that loads a model and returns the call that
    answers.
    """
    if program == "litebert":
        import litebert.folder.model  # noqa: F401 torch and all else that loading imports
        from litebert.inference.model import Model

        def load_ours(root: Path, precision: str) -> Callable[[], object]:
            if precision == "int8":  # a property of the folder
                model = Model.load(root / "int8")
            else:
                model = Model.load(root / "model", precision=precision)
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
