"""Write a run's model as the packaged one: `python benchmarks/distillation/package.py RUN OUT`.

Weights in bf16, the tokenizer, and what sentence-transformers reads; the card is written by hand.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from litebert.files import write_text
from litebert.folder import load_model, save_model, write_sentence_transformers
from litebert.tokenizer import Tokenizer


def main(run: Path, out: Path) -> None:
    """Write the folder; its JSON without indentation, since every byte is shipped."""
    source = run / "model"
    out.mkdir(parents=True)
    save_model(load_model(source).network, out, dtype=torch.bfloat16)
    Tokenizer.load(source).save(out)
    write_sentence_transformers(out, pooling="mean", normalize=True)
    pipeline = out / "tokenizer.json"
    compact = json.dumps(json.loads(pipeline.read_text("utf-8")), separators=(",", ":"))
    write_text(pipeline, compact)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    print(f"{out}: {size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
