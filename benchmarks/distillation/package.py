"""Write the packaged model: `python -m benchmarks.distillation.package RUN [RUN ...]
OUT [--weights 2 --weights 3]`.

With several runs it is their (weighted) mean; each must have started from the one
before. The matrices are in float8, the rest in bf16, the tokenizer is compact JSON, and
the files that sentence-transformers reads are included; the card is written by hand. If
the last run has not learned sentence order, its head is omitted, and the pooler, which
only that head had trained, is fitted to the vectors.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch.nn import functional as F

from litebert.cli.command import command_of
from litebert.config import ObjectiveConfig, PretrainConfig
from litebert.device import choose_device
from litebert.files import read_json, write_json, write_text
from litebert.folder import SentenceVectors, read_folder, write_folder
from litebert.folder.weights import write_weights
from litebert.nn import AlbertForPretraining, pool_rows
from litebert.runs import RunFolder
from litebert.tasks.pretraining import micro_batches
from litebert.tokenizer.model_file import ends_in_number_comma
from litebert.train.checkpoint import mean_model
from litebert.train.sources import open_loader

LEAST_ORDER_ACCURACY = 0.6
NUM_TEXTS = 4_000
NUM_CHECKED = 400
LENGTH = 8.0
"""Length of the vectors that the pooler is fitted to: its 384 numbers are then about
.4, below tanh's 1.
"""
RIDGE = 1e-2


@torch.no_grad()
def fit_pooler(network: AlbertForPretraining, corpora: list[str]) -> float:
    """Fit the pooler of [CLS] to the mean-pooled vector by ridge regression; return its
    R2.

    Each corpus gives the same number of texts of at most 64 pieces; R2 is measured on
    the last ones.
    """
    objective = ObjectiveConfig(sentence="none", max_seq_length=64, short_seq_prob=0.8)
    states = []
    vectors = []
    for corpus in corpora:
        config = PretrainConfig.model_validate(
            {"data": {"corpus": corpus}, "objective": objective}
        )
        loader = open_loader(Path(corpus), config=config)
        for start in range(0, (NUM_TEXTS + NUM_CHECKED) // len(corpora), 100):
            masked = loader.batch_between(start, start + 100)
            masked.ids[masked.masked_positions] = masked.masked_ids
            (work,) = micro_batches(masked, None, choose_device("cpu"))
            *_, hidden = network.albert.states(work.batch)
            states.append(hidden[work.batch.first_tokens].double())
            vectors.append(
                F.normalize(pool_rows(hidden, work.batch, "mean").double(), dim=-1)
            )
    order = torch.randperm(
        sum(map(len, states)), generator=torch.Generator().manual_seed(1)
    )
    x = torch.cat(states)[order]
    wanted = LENGTH * torch.cat(vectors)[order]
    fitted = slice(None, -NUM_CHECKED)
    y = wanted[fitted].clamp(-0.97, 0.97).atanh()
    centred = x[fitted] - x[fitted].mean(0)
    mean = y.mean(0)
    gram = centred.T @ centred
    gram += (
        RIDGE * len(centred) * centred.var() * torch.eye(len(gram), dtype=gram.dtype)
    )
    weight = torch.linalg.solve(gram, centred.T @ (y - mean))
    pooler = network.albert.pooler
    pooler.weight.copy_(weight.T)
    pooler.bias.copy_(mean - x[fitted].mean(0) @ weight)
    found = torch.tanh(F.linear(x, pooler.weight.double(), pooler.bias.double()))[
        -NUM_CHECKED:
    ]
    wanted = wanted[-NUM_CHECKED:]
    return float(
        1 - (found - wanted).square().sum() / (wanted - wanted.mean(0)).square().sum()
    )


def shorten_vocabulary(path: Path) -> None:
    """Rewrite a tokenizer.json without indentation, escapes, and digits beyond the
    precision of 32 bits.

    Scores that encode a rule keep all digits, by which the reader recognizes them:
    lowered ones, and ones of more bits.
    """
    pipeline = json.loads(path.read_text("utf-8"))
    for row in pipeline["model"]["vocab"]:
        text, score = row
        if float(np.float32(score)) == score and not ends_in_number_comma(text):
            row[1] = float(str(np.float32(score)))
    write_text(path, json.dumps(pipeline, ensure_ascii=False, separators=(",", ":")))


def main(runs: tuple[Path, ...], out: Path, *, weights: tuple[float, ...] = ()) -> None:
    """Write the folder; its JSON without indentation, since every byte is shipped."""
    run = RunFolder.open(runs[-1])
    out.mkdir(parents=True)
    # The last run first: its network has the head of sentence order, which its start
    # may lack. This head and the pooler that it trained are the last run's own; a mean
    # with a pooler fitted to vectors would be neither.
    mean = mean_model([run / "model" for run in reversed(runs)], weights[::-1])
    network = mean.network
    last = read_folder(runs[-1] / "model")
    assert isinstance(network, AlbertForPretraining) and isinstance(
        last.network, AlbertForPretraining
    )
    network.albert.pooler = last.network.albert.pooler
    network.sentence_order = last.network.sentence_order
    if run.evaluations[-1].values["sentence_order_accuracy"] < LEAST_ORDER_ACCURACY:
        network.sentence_order.to("meta")  # tensors without data are not written
        corpora = [
            str(run.settings["data.corpus"]),
            *(run.settings.get("data.mix") or ()),
        ]
        print(f"pooler fitted, R2 {fit_pooler(network, corpora):.2f}")
    model = replace(mean, vectors=SentenceVectors(normalize=True))
    write_folder(model, out, dtype=torch.bfloat16)
    # All matrices in float8: 3 bits of mantissa, half the bytes of bf16.
    path = out / "model.safetensors"
    stored = {
        name: w.to(torch.float8_e4m3fn) if w.ndim == 2 else w
        for name, w in load_file(path).items()
    }
    write_weights(path, stored)
    # tokenizer.json holds the same pieces; transformers reads it
    (out / "spiece.model").unlink()
    config = read_json(out / "config.json", command=f"ls {out}")
    # computed so, stored in bf16
    write_json(out / "config.json", config | {"dtype": "float32"})
    shorten_vocabulary(out / "tokenizer.json")
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    print(f"{out}: {size:,} bytes")


if __name__ == "__main__":
    command_of(main, "package")()
