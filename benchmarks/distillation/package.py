"""Write a run's model as the packaged one: `python benchmarks/distillation/package.py RUN OUT`.

Weights in bf16, the word table in float8, the tokenizer, and what sentence-transformers reads; the
card is written by hand. The sentence-order head is omitted where the run's last evaluation does
not tell it from a coin.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from litebert.files import read_json, write_json, write_text
from litebert.folder import load_model, save_model, write_sentence_transformers
from litebert.nn import AlbertForPretraining
from litebert.runs import read_metrics
from litebert.tokenizer import Tokenizer

LEAST_ORDER_ACCURACY = 0.6


def order_accuracy(run: Path) -> float:
    """Return the held-out accuracy of sentence order at the end of a run."""
    rows = [row for row in read_metrics(run) if row["kind"] == "eval"]
    return float(str(rows[-1]["sentence_order_accuracy"]))


def table_in_float8(path: Path) -> None:
    """Round the word table to float8: 3 bits of mantissa, half the bytes of all weights."""
    weights = load_file(path)
    name = "albert.embeddings.word_embeddings.weight"
    weights[name] = weights[name].to(torch.float8_e4m3fn)
    save_file(weights, path, metadata={"format": "pt"})


def main(run: Path, out: Path) -> None:
    """Write the folder; its JSON without indentation, since every byte is shipped."""
    source = run / "model"
    out.mkdir(parents=True)
    network = load_model(source).network
    assert isinstance(network, AlbertForPretraining)
    if order_accuracy(run) < LEAST_ORDER_ACCURACY:
        network.sentence_order.to("meta")  # what holds no numbers is not written
    save_model(network, out, dtype=torch.bfloat16)
    table_in_float8(out / "model.safetensors")
    Tokenizer.load(source).save(out)
    (out / "spiece.model").unlink()  # tokenizer.json holds the same pieces; transformers reads it
    write_sentence_transformers(out, pooling="mean", normalize=True)
    config = read_json(out / "config.json", command=f"ls {out}")
    write_json(out / "config.json", config | {"dtype": "float32"})  # computed so, stored in bf16
    pipeline = out / "tokenizer.json"
    compact = json.dumps(json.loads(pipeline.read_text("utf-8")), separators=(",", ":"))
    write_text(pipeline, compact)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    print(f"{out}: {size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
