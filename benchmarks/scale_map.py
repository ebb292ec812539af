"""The numbers of docs/scale.md.

    python -m benchmarks.scale_map TEXT              all of them, as JSON
    python -m benchmarks.scale_map TEXT --only build
    python -m benchmarks.scale_map --only sampler
    python -m benchmarks.scale_map --only computed   the tables without measurements, in Markdown

Measured here: text to pieces on one core, bytes per piece on disk, memory and start of the sampler,
the time of writing and verifying a checkpoint. Computed from these and from named assumptions: the
rest. Extrapolations are linear, and say so.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from sentencepiece import SentencePieceProcessor

from benchmarks.measure import table
from benchmarks.steps import forward_flops
from litebert.config import PRESETS, ObjectiveConfig
from litebert.corpus import Shard, build_corpus
from litebert.corpus.text import read_passages, sentence_chunks, text_settings
from litebert.nn import AlbertForPretraining
from litebert.objectives import Loader, Vocabulary, sentence_objective
from litebert.objectives.windows import WINDOW_PIECES, ShardSizes, Windowed, WindowOrder, estimated_samples
from litebert.optim import Lamb
from litebert.reading.source import find_texts
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.normalize import Normalizer
from litebert.tokenizer.train import train_tokenizer, write_tokenizer
from litebert.train.checkpoint import Checkpoints, RunProgress, verify

Result = TypeVar("Result")

TEXT_SIZES = {"16 GB": 16e9, "1 TB": 1e12, "10 TB": 10e12}
CORES = (2, 64, 1_024)
DOCUMENTS = (10_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000)
SHARD_DOCUMENTS = 134_000
SENTENCES_A_DOCUMENT, PIECES_A_SENTENCE = 20, 25
GPUS = (8, 64, 512)
GPU_FLOPS, UTILISATION = 990e12, 0.4
"""One H100 in bf16 without sparsity (data sheet), and the share of it that is assumed."""
NETWORK_BYTES = {"inside a node": 450e9, "400 Gbit/s between nodes": 50e9}
"""Bytes a second in one direction for each GPU."""
TOKENS_A_STEP = 4_096 * 512
SAVE_SECONDS = 5.0
"""What a checkpoint of xxlarge is taken to cost where the best time between two is computed."""
FAILURE_HOURS = 50_000
"""Mean time between failures of one GPU with its share of the node (Llama 3, arXiv 2407.21783: 419
unexpected interruptions of 16,384 GPUs in 54 days, one in about 50,000 GPU hours)."""


def build(text: Path) -> dict[str, float]:
    """Build a corpus of a text on one core; return its rates."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        lines = text.read_text(encoding="utf-8").splitlines()[:20_000]
        write_tokenizer(folder / "tokenizer", train_tokenizer(lines, vocab_size=8_000))
        begun, wall = time.process_time(), time.perf_counter()
        corpus = folder / "corpus"
        summary = build_corpus([text], tokenizer=folder / "tokenizer", output=corpus, workers=1)
        seconds, wall = time.process_time() - begun, time.perf_counter() - wall
        stored = sum(path.stat().st_size for path in corpus.rglob("*.npy"))
    return {
        "megabytes": text.stat().st_size / 1e6,
        "megabytes_a_core_second": text.stat().st_size / 1e6 / seconds,
        "wall_seconds": wall,
        "pieces_a_byte": summary.train.tokens / text.stat().st_size,
        "stored_bytes_a_piece": stored / summary.train.tokens,
    }


def build_parts(text: Path) -> dict[str, float]:
    """Return the CPU seconds of the parts of a build, each by itself."""
    settings = text_settings(sentences="segment", documents=None, column="text", language="en")
    (source,) = find_texts([text])
    passages, reading = _timed(lambda: list(read_passages(source, settings)))
    sentences, splitting = _timed(
        lambda: [s for each in passages for c in sentence_chunks(each.text, settings) for s in c]
    )
    with tempfile.TemporaryDirectory() as scratch:
        write_tokenizer(Path(scratch), train_tokenizer(sentences[:20_000], vocab_size=8_000))
        tokenizer = Tokenizer.load(scratch)
        native = SentencePieceProcessor(model_file=str(Path(scratch) / "spiece.model"))
    batches = [sentences[n : n + 2_000] for n in range(0, len(sentences), 2_000)]
    normalizer = Normalizer()
    ready, preparing = _timed(lambda: [[normalizer.normalize(s) for s in b] for b in batches])
    _, encoding = _timed(lambda: [tokenizer.encode_ids(b, num_threads=1) for b in batches])
    _, alone = _timed(lambda: [native.encode(b, out_type=int, num_threads=1) for b in ready])
    return {
        "reading": reading,
        "sentences": splitting,
        "preparing": preparing,
        "sentencepiece": alone,
        "parting_digits_from_commas": encoding - preparing - alone,
    }


def _timed(work: Callable[[], Result]) -> tuple[Result, float]:
    """Return what some work gives, and the least CPU seconds of three times."""
    seconds = []
    for _ in range(3):
        begun = time.process_time()
        result = work()
        seconds.append(time.process_time() - begun)
    return result, min(seconds)


def sampler(num_documents: int) -> dict[str, float]:
    """Open the sampler of a corpus of so many documents, and draw a batch.

    Every shard shows the same arrays, which stand for files that are mapped: they are not counted.
    """
    config, sentence = ObjectiveConfig(), sentence_objective("order")
    documents = min(num_documents, SHARD_DOCUMENTS)
    shard, pieces = _shard(documents), documents * SENTENCES_A_DOCUMENT * PIECES_A_SENTENCE
    count = math.ceil(num_documents / documents)
    tracemalloc.start()
    begun = time.process_time()
    sizes = [ShardSizes(documents, documents * SENTENCES_A_DOCUMENT, pieces)] * count
    order = WindowOrder(estimated_samples(sizes, config, sentence), (pieces,) * count, WINDOW_PIECES, 1, "train")

    def open_loader(shards: Sequence[Shard], purpose: str, _early: int) -> Loader:
        return Loader(
            shards,
            vocabulary=Vocabulary(10, 2, 3, 4, np.ones(10, np.bool_)),
            config=config,
            batch_size=32,
            seed=1,
            purpose=purpose,
        )

    windowed = Windowed(order, lambda numbers: [shard] * len(numbers), open_loader, batch_size=32)
    windowed.batch(0)
    seconds = time.process_time() - begun
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {
        "documents": num_documents,
        "instances": windowed.epoch_size,
        "windows": len(order.windows(0)),
        "cpu_seconds_to_the_first_batch": seconds,
        "held_megabytes": held / 1e6,
        "peak_megabytes": peak / 1e6,
    }


def _shard(num_documents: int) -> Shard:
    sentences = num_documents * SENTENCES_A_DOCUMENT
    return Shard(
        np.broadcast_to(np.uint16(5), sentences * PIECES_A_SENTENCE),
        np.arange(sentences + 1, dtype=np.int64) * PIECES_A_SENTENCE,
        np.arange(num_documents + 1, dtype=np.int64) * SENTENCES_A_DOCUMENT,
        _Unchanged(),  # type: ignore[arg-type]
    )


class _Unchanged:
    """Stands in for the files of a shard that lies in memory."""

    def require_unchanged(self) -> None:
        """Find nothing changed."""


def checkpoint(name: str) -> dict[str, float]:
    """Write and verify a checkpoint of a preset on this disk."""
    network = AlbertForPretraining(PRESETS[name])
    optimizer = Lamb(network.parameters())
    with tempfile.TemporaryDirectory() as scratch:
        begun = time.perf_counter()
        path = Checkpoints(Path(scratch), keep=1).save(network, optimizer, RunProgress(step=1))
        seconds = time.perf_counter() - begun
        begun = time.perf_counter()
        verify(path)
        size = sum(file.stat().st_size for file in path.iterdir())
        return {"bytes": size, "seconds": seconds, "verify_seconds": time.perf_counter() - begun}


def steps(name: str) -> list[dict[str, float | str]]:
    """Return compute and network time of a step for each number of GPUs."""
    with torch.device("meta"):
        network = AlbertForPretraining(PRESETS[name])
    gradient_bytes = 4 * sum(p.numel() for p in network.parameters())
    flops = 3 * flops_of_a_token(name) * TOKENS_A_STEP
    rows: list[dict[str, float | str]] = []
    for gpus in GPUS:
        compute = flops / (gpus * GPU_FLOPS * UTILISATION)
        sent = 2 * (gpus - 1) / gpus * gradient_bytes
        speed = NETWORK_BYTES["inside a node" if gpus <= 8 else "400 Gbit/s between nodes"]
        rows.append(
            {
                "preset": name,
                "gpus": gpus,
                "compute_ms": 1e3 * compute,
                "sent_megabytes": sent / 1e6,
                "network_ms": 1e3 * sent / speed,
                "efficiency": compute / (compute + sent / speed),
            }
        )
    return rows


def flops_of_a_token(name: str) -> float:
    """Return the FLOPs of a token's forward pass at 512 pieces, the projection of embeddings not counted."""
    model = PRESETS[name]
    projection = 2 * model.embedding_size * model.hidden_size
    return forward_flops(model, [512]) / 512 + 0.15 * forward_flops(model, [], 1) - projection


def save_interval(gpus: int, save_seconds: float, restart_seconds: float = 120) -> dict[str, float]:
    """Return the best time between checkpoints and what failures cost (Young 1974, Daly 2006).

    >>> round(save_interval(512, 1.0)["interval_seconds"])
    838
    """
    mean_time = FAILURE_HOURS * 3_600 / gpus
    half = save_seconds / (2 * mean_time)
    daly = math.sqrt(2 * save_seconds * mean_time) * (1 + math.sqrt(half) / 3 + half / 9)
    interval = daly - save_seconds
    lost = (interval / 2 + restart_seconds) / mean_time + save_seconds / (interval + save_seconds)
    return {"gpus": gpus, "hours_between_failures": mean_time / 3_600, "interval_seconds": interval, "lost_share": lost}


def everything(text: Path) -> dict[str, object]:
    """Measure and compute all numbers."""
    torch.set_num_threads(1)
    rates = build(text)
    checkpoints = {name: checkpoint(name) for name in ("base-v2", "xxlarge-v2")}
    hours = {
        size: {cores: number / 1e6 / rates["megabytes_a_core_second"] / cores / 3_600 for cores in CORES}
        for size, number in TEXT_SIZES.items()
    }
    disk = {
        size: number * rates["pieces_a_byte"] * rates["stored_bytes_a_piece"] for size, number in TEXT_SIZES.items()
    }
    return {
        "build": rates,
        "build_parts": build_parts(text),
        "build_hours": hours,
        "disk_bytes": disk,
        "sampler": [sampler(number) for number in DOCUMENTS],
        "checkpoints": checkpoints,
        "steps": [row for name in ("base-v2", "xxlarge-v2") for row in steps(name)],
        "intervals": [save_interval(gpus, SAVE_SECONDS) for gpus in GPUS],
        "peak_memory_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
    }


def computed_tables() -> str:
    """Return the tables of docs/scale.md that follow from the assumptions above alone."""
    lines = []
    for row in (row for name in ("base-v2", "xxlarge-v2") for row in steps(name)):
        compute, network = (_duration(float(row[f"{x}_ms"])) for x in ("compute", "network"))
        sent, share = (f"{float(row['sent_megabytes']):,.0f} MB", f"{100 * float(row['efficiency']):.0f} %")
        lines.append([row["preset"], row["gpus"], compute, sent, network, share])
    header = ["network", "GPUs", "compute a step", "each GPU sends", "network", "share of the time that computes"]
    times = table(header, lines)
    lines = []
    for gpus in GPUS:
        found = save_interval(gpus, SAVE_SECONDS)
        every = found["interval_seconds"]
        shown = f"{every / 3_600:.1f} h" if every >= 3_600 else f"{every / 60:.0f} min"
        lines.append([gpus, f"{found['hours_between_failures']:,.0f}", shown, f"{100 * found['lost_share']:.1f} %"])
    failures = table(["GPUs", "hours between failures", "save every", "share of the time lost"], lines)
    return f"{times}\n\n{failures}"


def _duration(milliseconds: float) -> str:
    if milliseconds >= 1_000:
        return f"{milliseconds / 1_000:.1f} s"
    return f"{milliseconds:.1f} ms" if milliseconds < 10 else f"{milliseconds:.0f} ms"


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", type=Path, nargs="?")
    parser.add_argument("--only", choices=("build", "sampler", "computed"))
    asked = parser.parse_args()
    if asked.only == "computed":
        print(computed_tables())
    elif asked.only == "sampler":
        print(json.dumps([sampler(number) for number in DOCUMENTS], indent=2))
    elif asked.only == "build" and asked.text is not None:
        print(json.dumps([build(asked.text), build_parts(asked.text)], indent=2))
    elif asked.text is not None:
        print(json.dumps(everything(asked.text), indent=2))
    else:
        parser.error("give a TEXT, or --only sampler or computed")


if __name__ == "__main__":
    main()
