"""What each choice of our pretraining recipes is worth: one change at a time, several
seeds.

    python -m benchmarks.pretraining.ablation --corpus corpora/wiki --presets tiny --pieces 800000

Finished runs are not repeated, so the command can be stopped and rerun. The tables go
to standard output; `benchmarks/pretraining/RESULTS.md` has the last ones.
"""

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
COMMON = [
    "objective.max_seq_length=128",
    "objective.short_seq_prob=0",
    "optim.warmup_steps=0.1",
    "train.log_every=100",
]
COMMON += [
    "train.eval_at_start=false",
    "train.eval_sequences=512",
    "train.precision=bf16",
    "train.loader_workers=0",
]
MEASURES = {"mask_token_loss": "[MASK] loss", "mask_token_accuracy": "[MASK] accuracy"}
MEASURES |= {"sentence_order_accuracy": "sentence order"}


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
    common = [f"data.corpus={corpus}", f"train.batch_size={batch}", *COMMON]
    common += [
        f"train.{name}={steps}" for name in ("steps", "eval_every", "save_every")
    ]
    for preset in presets.split(","):
        lines = []
        for number in variants or range(len(VARIANTS)):
            name, changed = list(VARIANTS.items())[number]
            found = []
            for seed in seeds:
                folder = runs / f"{preset}-{pieces}-{number}-{seed}"
                words = [
                    *common,
                    f"model.preset={preset}",
                    f"train.seed={seed}",
                    *changed,
                ]
                pretrain(
                    resolve(PretrainConfig, settings_from_words(words)),
                    folder,
                    is_quiet=True,
                )
                found.append(RunFolder(folder).evaluations[-1].values)
            spreads = {
                measure: Spread.of([values[measure] for values in found])
                for measure in MEASURES
            }
            cells = [
                (
                    f"{100 * s.mean:.1f} ± {100 * s.spread:.1f}"
                    if "accuracy" in m
                    else f"{s.mean:.3f} ± {s.spread:.3f}"
                )
                for m, s in spreads.items()
            ]
            lines.append([name, *cells])
        print(
            f"\n{preset}, {pieces:,} pieces, {batch} x 128, seeds"
            f" {', '.join(map(str, seeds))}\n"
        )
        print(table(["variant", *MEASURES.values()], lines), flush=True)


if __name__ == "__main__":
    command_of(main, "ablation")()
