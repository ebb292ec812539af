"""What local attention and repeated positions cost at 512 pieces, before and after training on.

    python -m benchmarks.study.longer_positions MODEL CORPUS OUTPUT [TRAINED [STEPS]]

MODEL is a folder with a masked-LM head (or `packaged`), CORPUS was built with its vocabulary.
TRAINED is the longest sequence of the model's own training: the rows of the position table that are
repeated. Writes benchmarks/study/longer-positions.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

import litebert
from litebert.config import PretrainConfig, resolve, settings_from_words
from litebert.files import Json, write_json
from litebert.runs import read_metrics
from litebert.study.masked import write_lengthened
from litebert.train.pretrain import pretrain

LENGTH, WINDOW = 512, 64
SEEDS = (1, 2)


def main(model: str, corpus: Path, output: Path, trained: int | None = None, steps: int = 20) -> None:
    """Measure and write."""
    torch.set_num_threads(1)
    loaded = litebert.load(None if model == "packaged" else model)
    rows: list[Json] = []
    for window in (None, WINDOW):
        folder = output / f"window-{window}"
        if not folder.exists():
            write_lengthened(loaded, folder, LENGTH, window, trained=trained)
        for seed in SEEDS:
            before, after = _trained(folder, corpus, output / f"run-{window}-{seed}", steps, seed)
            row = {"attention": f"window {window}" if window else "full", "seed": seed}
            rows.append({**row, "before": before, "after": after})
    found: dict[str, Json] = {"model": loaded.source, "length": LENGTH, "steps": steps}
    found |= {"repeated rows": trained, "masked-LM loss": rows}
    write_json(Path(__file__).parent / "longer-positions.json", found)
    print(json.dumps(found, indent=2))


def _trained(start: Path, corpus: Path, run: Path, steps: int, seed: int) -> tuple[float, float]:
    """Train on at full length; return the held-out loss before and after."""
    words = [f"data.corpus={corpus}", f"start.model={start}", f"train.seed={seed}"]
    words += [f"objective.max_seq_length={LENGTH}", f"train.steps={steps}", "train.batch_size=8"]
    words += [f"train.eval_every={steps}", "train.eval_sequences=32", "train.micro_batch_size=4"]
    words += [f"train.save_every={steps}", "train.precision=bf16", "train.loader_workers=0"]
    words += ["optim.name=adamw", "optim.bias_correction=true", "optim.learning_rate=3e-4"]
    pretrain(resolve(PretrainConfig, settings_from_words(words)), run, is_quiet=True)
    losses = [row["masked_lm_loss"] for row in read_metrics(run) if row["kind"] == "eval"]
    return float(str(losses[0])), float(str(losses[-1]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("corpus", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("trained", type=int, nargs="?")
    parser.add_argument("steps", type=int, nargs="?", default=20)
    main(**vars(parser.parse_args()))
