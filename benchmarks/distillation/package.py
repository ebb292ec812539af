"""Write the packaged model: `python -m benchmarks.distillation.package RUN [RUN ...]
OUT [--weights 2,3]`.

With several runs it is their (weighted) mean; each must have started from the one
before. The matrices are in float8, the rest in bf16, the tokenizer is compact JSON, and
the files that sentence-transformers reads are included; the card is written by hand. If
the last run has not learned sentence order, its head is omitted, and the pooler, which
only that head had trained, is fitted to the vectors.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F

from litebert.cli.command import command_of
from litebert.config import ObjectiveConfig, PretrainConfig
from litebert.device import choose_device
from litebert.files import read_json, write_json, write_text
from litebert.folder import ModelFolder, SentenceVectors, read_folder, write_folder
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


def main(runs: tuple[Path, ...], out: Path, *, weights: tuple[int, ...] = ()) -> None:
    """Write the folder; its JSON without indentation, since every byte is shipped."""
    model = mean_of_runs(runs, weights)
    out.mkdir(parents=True)
    write_folder(model, out, dtype=torch.bfloat16)
    matrices_to_float8(out / "model.safetensors")
    # tokenizer.json holds the same pieces; transformers reads it
    (out / "spiece.model").unlink()
    shorten_vocabulary(out / "tokenizer.json")
    config = read_json(out / "config.json", command=f"ls {out}")
    # computed so, stored in bf16
    write_json(out / "config.json", config | {"dtype": "float32"})
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    print(f"{out}: {size:,} bytes")


def mean_of_runs(runs: Sequence[Path], weights: Sequence[int]) -> ModelFolder:
    """Return the mean of the runs' models, with a head and a pooler that were trained
    together, or with a fitted pooler alone.
    """
    # The last run first: its network has the head of sentence order, which its start
    # may lack. This head and the pooler that it trained are the last run's own; a mean
    # with a pooler fitted to vectors would be neither.
    parts = weights or [1] * len(runs)
    folders = list[Path]()
    for run_folder, number in zip(runs, parts, strict=True):
        folders += [run_folder / "model"] * number
    mean = mean_model(folders[::-1])
    network = mean.network
    last = read_folder(runs[-1] / "model").network
    assert isinstance(network, AlbertForPretraining)
    assert isinstance(last, AlbertForPretraining)
    network.albert.pooler = last.albert.pooler
    network.sentence_order = last.sentence_order
    run = RunFolder.open(runs[-1])
    if run.evaluations[-1].values["sentence_order_accuracy"] < LEAST_ORDER_ACCURACY:
        network.sentence_order.to("meta")  # tensors without data are not written
        mixed = run.settings.get("data.mix") or ()
        corpora = [str(run.settings["data.corpus"]), *mixed]
        print(f"pooler fitted, R2 {fit_pooler(network, corpora):.2f}")
    return replace(mean, vectors=SentenceVectors(normalize=True))


def matrices_to_float8(path: Path) -> None:
    """Store all matrices in float8: 3 bits of mantissa, half the bytes of bf16."""
    stored = load_file(path)
    for name, weight in stored.items():
        if weight.ndim == 2:
            stored[name] = weight.to(torch.float8_e4m3fn)
    write_weights(path, stored)


@torch.no_grad()
def fit_pooler(network: AlbertForPretraining, corpora: list[str]) -> float:
    """Fit the pooler of [CLS] to the mean-pooled vector by ridge regression; return its
    R2 on the texts that it was not fitted to.
    """
    x, wanted = states_and_vectors(network, corpora)  # (texts, hidden) each
    fitted = slice(None, -NUM_CHECKED)
    checked = slice(-NUM_CHECKED, None)
    y = wanted[fitted].clamp(-0.97, 0.97).atanh()
    centred = x[fitted] - x[fitted].mean(0)
    mean = y.mean(0)
    gram = centred.T @ centred  # (hidden, hidden)
    penalty = RIDGE * len(centred) * centred.var()
    gram += penalty * torch.eye(len(gram), dtype=gram.dtype)
    weight = torch.linalg.solve(gram, centred.T @ (y - mean))
    pooler = network.albert.pooler
    pooler.weight.copy_(weight.T)
    pooler.bias.copy_(mean - x[fitted].mean(0) @ weight)
    logits = F.linear(x, pooler.weight.double(), pooler.bias.double())
    errors = torch.tanh(logits)[checked] - wanted[checked]
    deviations = wanted[checked] - wanted[checked].mean(0)
    return float(1 - errors.square().sum() / deviations.square().sum())


def states_and_vectors(
    network: AlbertForPretraining, corpora: list[str]
) -> tuple[Tensor, Tensor]:
    """Return the states of [CLS] and the vectors, of length LENGTH, of texts of at most
    64 pieces, in random order: as many from each corpus.
    """
    objective = ObjectiveConfig(sentence="none", max_seq_length=64, short_seq_prob=0.8)
    states = list[Tensor]()
    vectors = list[Tensor]()
    for corpus in corpora:
        config = PretrainConfig.model_validate(
            {"data": {"corpus": corpus}, "objective": objective}
        )
        loader = open_loader(Path(corpus), config=config)
        for start in range(0, (NUM_TEXTS + NUM_CHECKED) // len(corpora), 100):
            masked = loader.batch_between(start, start + 100)
            masked.ids[masked.masked_positions] = masked.masked_ids
            (work,) = micro_batches(masked, None, choose_device("cpu"))
            *_, hidden = network.albert.states(work.batch)  # (tokens, hidden)
            pooled = pool_rows(hidden, work.batch, "mean").double()
            states.append(hidden[work.batch.first_tokens].double())
            vectors.append(F.normalize(pooled, dim=-1))
    num_texts = sum(map(len, states))
    order = torch.randperm(num_texts, generator=torch.Generator().manual_seed(1))
    return torch.cat(states)[order], LENGTH * torch.cat(vectors)[order]


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


if __name__ == "__main__":
    command_of(main, "package")()
