"""What each choice of our pretraining recipes is worth: one change at a time, several
seeds.

    python -m benchmarks.pretraining.ablation --corpus corpora/wiki --presets tiny --pieces 800000

Finished runs are not repeated, so the command can be stopped and rerun. The tables go
to standard output; `benchmarks/pretraining/RESULTS.md` has the last ones.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import torch

from benchmarks.measure import table
from litebert.cli.command import command_of
from litebert.config import PretrainConfig
from litebert.metrics import Spread
from litebert.runs import RunFolder
from litebert.settings import resolve, settings_from_words
from litebert.train.pretrain import pretrain

ADAMW = ["optim.name=adamw", "optim.learning_rate=0.0005", "model.hidden_act=gelu_new"]
CORRECTED = [
    "optim.name=adamw",
    "optim.learning_rate=0.001",
    "optim.beta2=0.98",
    "optim.bias_correction=true",
]
MUON = [
    "optim.name=muon",
    "optim.learning_rate=0.003",
    "optim.muon_learning_rate=0.004",
    "optim.beta2=0.98",
]
LOCAL = "start.attention=local"
UNIGRAM = "start.output_bias=unigram"
START = [LOCAL, UNIGRAM]
MASKS = ["early.mask_prob=0.3", "early.mask_share=0.6"]
DEPTH = ["early.depth=2", "early.depth_share=0.3"]

VARIANTS: dict[str, list[str]] = {
    "AdamW 5e-4, uncorrected, tanh GELU (the recipe before)": ADAMW,
    "the recipe before, our start": [*ADAMW, *START],
    "AdamW 1e-3, corrected": CORRECTED,
    "AdamW 1e-3, corrected, our start": [*CORRECTED, *START],
    "Muon": MUON,
    "Muon, unigram bias": [*MUON, UNIGRAM],
    "Muon, local attention": [*MUON, LOCAL],
    "Muon, our start": [*MUON, *START],
    "+ masks 30 to 15 %": [*MUON, *START, *MASKS],
    "+ depth 2 at first": [*MUON, *START, *MASKS, *DEPTH],
    "+ average .99": [*MUON, *START, *MASKS, *DEPTH, "optim.average_decay=0.99"],
}
COMMON = [
    "objective.max_seq_length=128",
    "objective.short_seq_prob=0",
    "optim.warmup_steps=0.1",
    "train.log_every=100",
    "train.eval_at_start=false",
    "train.eval_sequences=512",
    "train.precision=bf16",
    "train.loader_workers=0",
]
MEASURES = {
    "mask_token_loss": "[MASK] loss",
    "mask_token_accuracy": "[MASK] accuracy",
    "sentence_order_accuracy": "sentence order",
}


def main(
    *,
    corpus: Path,
    presets: str = "tiny",
    seeds: tuple[int, ...] = (1, 2, 3),
    pieces: Annotated[int, "Pieces of each run."] = 5_000_000,
    batch: Annotated[int, "Sequences of 128 in one step."] = 16,
    runs: Path = Path("runs/ablation"),
    variants: Annotated[
        tuple[int, ...], "Numbers from 0, separated by commas; all if omitted."
    ] = (),
) -> None:
    """Train every variant, and print the tables."""
    torch.set_num_threads(1)
    steps = pieces // (batch * 128)
    common = [
        *COMMON,
        f"data.corpus={corpus}",
        f"train.batch_size={batch}",
        f"train.steps={steps}",
        f"train.eval_every={steps}",
        f"train.save_every={steps}",
    ]
    names = list(VARIANTS)
    for preset in presets.split(","):
        lines = list[list[str]]()
        for number in variants or range(len(VARIANTS)):
            name = names[number]
            words = [*common, f"model.preset={preset}", *VARIANTS[name]]
            evaluations = list[dict[str, float]]()
            for seed in seeds:
                folder = runs / f"{preset}-{pieces}-{number}-{seed}"
                evaluations.append(_last_evaluation(folder, words, seed))
            cells = [_cell(measure, evaluations) for measure in MEASURES]
            lines.append([name, *cells])
        print(f"\n{preset}, {pieces:,} pieces, {batch} x 128, seeds {_joined(seeds)}\n")
        print(table(["variant", *MEASURES.values()], lines), flush=True)


def _joined(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))


def _last_evaluation(folder: Path, words: list[str], seed: int) -> dict[str, float]:
    """Train, or find the finished run; return its last measures on held-out text."""
    settings = settings_from_words([*words, f"train.seed={seed}"])
    pretrain(resolve(PretrainConfig, settings), folder, is_quiet=True)
    return RunFolder(folder).evaluations[-1].values


def _cell(measure: str, evaluations: list[dict[str, float]]) -> str:
    spread = Spread.of([values[measure] for values in evaluations])
    if "accuracy" in measure:
        return f"{100 * spread.mean:.1f} ± {100 * spread.spread:.1f}"
    return f"{spread.mean:.3f} ± {spread.spread:.3f}"


if __name__ == "__main__":
    command_of(main, "ablation")()
