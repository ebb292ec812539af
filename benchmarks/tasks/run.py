"""Fine-tune a model on real tasks, and the same network from random weights as control.

python benchmarks/tasks/run.py MODEL OUT NAME [--random] [--seeds 1,2] [--tasks a,b] [--rate 1e-4]

Needs LITEBERT_TEST_DATA (glue, nli, imdb, squad, race). OUT/NAME gets a run for each task and seed;
rerun the command to resume. `python benchmarks/tasks/results.py OUT` makes the table.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from litebert.config import FinetuneConfig, resolve, settings_from_words
from litebert.files import write_text
from litebert.rng import hashed
from litebert.train.finetune import finetune

DATA = Path(os.environ["LITEBERT_TEST_DATA"])
COMMON = (
    "task.max_length=128",
    "train.batch_size=32",
    "train.precision=auto",
    "train.log_every=50",
    "train.save_every=100000",
)
Rows = list[dict[str, str]]


@dataclass(frozen=True)
class Benchmark:
    """One row of the table: settings of the run, and the data it makes if it needs any."""

    words: tuple[str, ...]
    prepare: Callable[[Path], tuple[str, ...]] | None = None


def main() -> None:
    """Run what the command line names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("out", type=Path)
    parser.add_argument("name")
    parser.add_argument("--random", action="store_true")
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--tasks", default=",".join(BENCHMARKS))
    parser.add_argument("--rate", help="learning rate; the default of the task without it")
    given = parser.parse_args()
    for name in given.tasks.split(","):
        benchmark = BENCHMARKS[name]
        data = benchmark.prepare(given.out / "data") if benchmark.prepare else ()
        for seed in given.seeds.split(","):
            words = [*COMMON, *benchmark.words, *data, f"model.start={given.model}"]
            words += [f"train.seed={seed}", f"model.random={str(given.random).lower()}"]
            words += [f"optim.learning_rate={given.rate}"] if given.rate else []
            resolved = resolve(FinetuneConfig, settings_from_words(words))
            print(name, given.name, seed, file=sys.stderr)
            finetune(resolved, given.out / given.name / name / f"seed-{seed}")


def _glue(name: str, *words: str) -> Benchmark:
    return Benchmark((f"task.name={name}", f"data.folder={DATA / 'glue'}", *words))


def _own(name: str, *words: str) -> Benchmark:
    return Benchmark(("task.name=table", *words), PREPARED[name])


def _sick(folder: Path) -> tuple[str, ...]:
    with gzip.open(DATA / "nli/SICK.txt.gz", "rt", encoding="utf-8") as lines:
        rows = [
            {"a": r["sentence_A"], "b": r["sentence_B"], "label": r["entailment_judgment"]}
            for r in csv.DictReader(lines, delimiter="\t")
        ]
    return _split(rows, folder, "sick")


def _snli(folder: Path) -> tuple[str, ...]:
    rows = [
        {"a": r["premise"], "b": r["hypothesis"], "label": r["label"]}
        for r in _json_lines(DATA / "nli/snli_dev.jsonl.gz")
    ]
    return _split(rows, folder, "snli")


def _qnli(folder: Path) -> tuple[str, ...]:
    with gzip.open(DATA / "glue/QNLI/dev.tsv.gz", "rt", encoding="utf-8") as lines:
        rows = [
            {"a": r["question"], "b": r["sentence"], "label": r["label"]}
            for r in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        ]
    return _split(rows, folder, "qnli")


def _imdb(folder: Path) -> tuple[str, ...]:
    rows = [
        {"a": str(row["text"]), "label": side}
        for side in ("neg", "pos")
        for row in _json_lines(DATA / f"imdb/train-{side}.jsonl.gz")
    ]
    return _split(rows, folder, "imdb")


def _split(rows: Rows, folder: Path, name: str) -> tuple[str, ...]:
    """Write rows as two files: those whose text a hash chooses, a fifth, are evaluated on."""
    bits = [int(hashed(0, row["a"], 0)) % 5 for row in rows]
    for part, is_wanted in (("train", lambda bit: bit > 0), ("dev", lambda bit: bit == 0)):
        chosen = [row for row, bit in zip(rows, bits, strict=True) if is_wanted(bit)]
        write_text(folder / f"{name}-{part}.csv", _csv(chosen))
    roles = ["text=a", *(["second=b"] if "b" in rows[0] else []), "label=label"]
    return (
        f"data.train={folder / name}-train.csv",
        f"data.dev={folder / name}-dev.csv",
        f"data.columns={json.dumps(roles)}",
    )


def _csv(rows: Rows) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _json_lines(path: Path) -> Iterable[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


PREPARED = {"sick": _sick, "snli": _snli, "qnli": _qnli, "imdb": _imdb}
BENCHMARKS = {
    "cola": _glue("cola"),
    "rte": _glue("rte"),
    "mrpc": _glue("mrpc"),
    "stsb": _glue("stsb"),
    "sick": _own("sick"),
    "qnli": _own("qnli"),
    "snli": _own("snli"),
    "sst2": _glue("sst2", "train.steps=1000", "train.eval_every=1000"),
    "imdb": _own("imdb", "train.steps=150", "train.eval_every=150"),
    "race-middle": Benchmark(
        (
            "task.name=race-middle",
            f"data.folder={DATA / 'race'}",
            "train.batch_size=16",
            "train.steps=150",
            "train.eval_every=150",
        )
    ),
    "squad": Benchmark(
        (
            "task.name=squad",
            f"data.folder={DATA / 'squad'}",
            "task.doc_stride=48",
            "train.steps=500",
            "train.eval_every=500",
        )
    ),
    "squad2": Benchmark(
        (
            "task.name=squad2",
            f"data.folder={DATA / 'squad'}",
            "task.doc_stride=48",
            "train.steps=500",
            "train.eval_every=500",
        )
    ),
}

if __name__ == "__main__":
    main()
