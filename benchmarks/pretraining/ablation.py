"""What each choice of our pretraining recipes is worth: one change at a time, several seeds.

    python -m benchmarks.pretraining.ablation --corpus corpora/wiki --presets tiny --pieces 800000

A run that is finished is not repeated, so that the command can be stopped and given again. The
table goes to standard output; `benchmarks/pretraining/RESULTS.md` holds the last one.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

import click
import torch

from litebert.config import PretrainConfig, resolve, settings_from_words
from litebert.runs import read_metrics
from litebert.train.pretrain import pretrain

ADAMW = ["optim.name=adamw", "optim.learning_rate=0.0005", "model.hidden_act=gelu_new"]
CORRECTED = ["optim.name=adamw", "optim.learning_rate=0.001", "optim.beta2=0.98", "optim.bias_correction=true"]
MUON = ["optim.name=muon", "optim.learning_rate=0.003", "optim.muon_learning_rate=0.004", "optim.beta2=0.98"]
START = ["start.attention=local", "start.output_bias=unigram"]
MASKS = ["early.mask_prob=0.3", "early.mask_share=0.6"]
DEPTH = ["early.depth=2", "early.depth_share=0.3"]

VARIANTS: dict[str, list[str]] = {
    "AdamW 5e-4, uncorrected, tanh GELU (the recipe before)": ADAMW,
    "the recipe before, our start": [*ADAMW, *START],
    "AdamW 1e-3, corrected": CORRECTED,
    "AdamW 1e-3, corrected, our start": [*CORRECTED, *START],
    "Muon": MUON,
    "Muon, unigram bias": [*MUON, START[1]],
    "Muon, local attention": [*MUON, START[0]],
    "Muon, our start": [*MUON, *START],
    "+ masks 30 to 15 %": [*MUON, *START, *MASKS],
    "+ depth 2 at first": [*MUON, *START, *MASKS, *DEPTH],
    "+ average .99": [*MUON, *START, *MASKS, *DEPTH, "optim.average_decay=0.99"],
}
MEASURES = ("mask_token_loss", "mask_token_accuracy", "sentence_order_accuracy")


@click.command()
@click.option("--corpus", required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--presets", default="tiny", show_default=True, help="Separated by commas.")
@click.option("--seeds", default="1,2,3", show_default=True)
@click.option("--pieces", default=5_000_000, show_default=True, help="Pieces of each run.")
@click.option("--batch", default=16, show_default=True, help="Sequences of 128 in one step.")
@click.option("--runs", default="runs/ablation", show_default=True, type=click.Path(path_type=Path))
@click.option("--variants", default="", help="Numbers from 0, separated by commas; all without.")
def main(corpus: Path, presets: str, seeds: str, pieces: int, batch: int, runs: Path, variants: str) -> None:
    """Train every variant, and print the table."""
    torch.set_num_threads(1)
    names = list(VARIANTS)
    chosen = [names[int(n)] for n in variants.split(",")] if variants else names
    for preset in presets.split(","):
        print(f"\n{preset}, {pieces:,} pieces, {batch} x 128, seeds {seeds}\n")
        print("| variant | [MASK] loss | [MASK] accuracy | sentence order |\n|---|---|---|---|")
        for name in chosen:
            rows = []
            for seed in seeds.split(","):
                folder = runs / f"{preset}-{pieces}-{names.index(name)}-{seed}"
                words = [f"model.preset={preset}", f"train.seed={seed}", *VARIANTS[name]]
                rows.append(_trained(corpus, folder, words, pieces=pieces, batch=batch))
            print(f"| {name} | {' | '.join(_cell(m, rows) for m in MEASURES)} |", flush=True)


def _trained(corpus: Path, folder: Path, words: Sequence[str], *, pieces: int, batch: int) -> dict[str, float]:
    """Return the last evaluation of a run, trained now or before."""
    steps = pieces // (batch * 128)
    common = [f"data.corpus={corpus}", "objective.max_seq_length=128", "objective.short_seq_prob=0"]
    common += [
        "optim.warmup_steps=0.1",
        f"train.steps={steps}",
        f"train.batch_size={batch}",
        f"train.eval_every={steps}",
    ]
    common += [f"train.save_every={steps}", "train.eval_at_start=false", "train.eval_sequences=512"]
    common += ["train.precision=bf16", "train.loader_workers=0", "train.log_every=100"]
    pretrain(resolve(PretrainConfig, settings_from_words([*common, *words])), folder, is_quiet=True)
    last = [row for row in read_metrics(folder) if row["kind"] == "eval"][-1]
    return {name: float(str(last[name])) for name in MEASURES}


def _cell(measure: str, rows: Sequence[dict[str, float]]) -> str:
    values = [row[measure] for row in rows]
    mean, spread = statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0
    if measure.endswith("accuracy"):
        return f"{100 * mean:.1f} ± {100 * spread:.1f}"
    return f"{mean:.3f} ± {spread:.3f}"


if __name__ == "__main__":
    main()
