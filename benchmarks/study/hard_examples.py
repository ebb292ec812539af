"""Hard example mining in fine-tuning against uniform sampling, at equal compute.

    python -m benchmarks.study.hard_examples MODEL TRAIN DEV OUTPUT [STEPS]

A choice among n examples adds n forward passes to the 3 of a step, so that row has 3 / (3 + n) of
the steps. TRAIN and DEV are tables of texts and labels (for the committed figures 4,000 sentences
of SST-2 and its dev set), 3 seeds. Writes benchmarks/study/hard-examples.json.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import fmean, stdev

import torch

from litebert.config import FinetuneConfig, resolve, settings_from_words
from litebert.files import Json, write_json
from litebert.hub import packaged_model
from litebert.runs import read_result
from litebert.train.finetune import finetune

SEEDS = (1, 2, 3)


def main(model: str, train: Path, dev: Path, output: Path, steps: int = 120) -> None:
    """Measure and write."""
    torch.set_num_threads(1)
    start = packaged_model() if model == "packaged" else Path(model)
    rows: list[Json] = []
    for pool in (1, 2, 4):
        number = steps if pool == 1 else round(steps * 3 / (3 + pool))
        values, seconds = [], []
        for seed in SEEDS:
            begun = time.process_time()
            values.append(_accuracy(start, (train, dev), output / f"pool-{pool}-{seed}", pool, number, seed))
            seconds.append(time.process_time() - begun)
        row: dict[str, Json] = {"pool": pool, "steps": number, "accuracy": list(values)}
        row |= {"mean": fmean(values), "deviation": stdev(values), "CPU s": fmean(seconds)}
        rows.append(row)
    found: dict[str, Json] = {"model": model, "rows": rows}
    write_json(Path(__file__).parent / "hard-examples.json", found)
    print(json.dumps(found, indent=2))


def _accuracy(start: Path, data: tuple[Path, Path], run: Path, pool: int, steps: int, seed: int) -> float:
    words = ["task.name=table", f"data.train={data[0]}", f"data.dev={data[1]}"]
    words += [f"model.start={start}", "task.max_length=64"]
    words += [f"mining.pool={pool}", f"train.steps={steps}", f"train.eval_every={steps}"]
    words += [f"train.save_every={steps}", f"train.seed={seed}", "train.batch_size=16"]
    words += ["optim.learning_rate=3e-4", "train.precision=bf16", "train.loader_workers=0"]
    finetune(resolve(FinetuneConfig, settings_from_words(words)), run, is_quiet=True)
    result = read_result(run)
    assert result is not None
    return result.last.measures["accuracy"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("train", type=Path)
    parser.add_argument("dev", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("steps", type=int, nargs="?", default=120)
    main(**vars(parser.parse_args()))
