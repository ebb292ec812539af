"""Tools beside the build: filter documents, merge corpora, count what a corpus has."""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Required

import numpy as np

from litebert import files
from litebert.corpus import shards as disk
from litebert.corpus.build import locked
from litebert.corpus.corpus import Corpus
from litebert.corpus.text import TextSettings, read_documents, wrong_value
from litebert.errors import LitebertError, missing_package
from litebert.reading.source import find_texts
from litebert.rng import Ints

SHINGLE_WORDS = 5
NUM_HASHES, NUM_BANDS = 128, 16
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


# ---- filter ---------------------------------------------------------------------------------------------------------


def corpus_filter(
    *inputs: Annotated[str, Required],
    output: Annotated[Path, "A .jsonl file."],
    near_duplicates: Annotated[float, "Omit documents this near to an earlier one."] = 0.8,
    force: Annotated[bool, "Replace the file if it exists."] = False,
    documents: Annotated[Literal["blank-line", "file"], "Where documents of .txt files end."] = "blank-line",
    column: Annotated[str, "Text column of JSONL or Parquet files."] = "text",
) -> str:
    """Write the documents worth keeping to a .jsonl file, which `corpus build` reads.

    The first of several near duplicates is kept: documents that share at least this share of their word 5-grams.

    litebert corpus filter raw.jsonl --output clean.jsonl
    litebert corpus filter stories.jsonl --near-duplicates 0.5 --output unlike.jsonl
    """
    files.require_new(output, force=force)
    try:
        from rensa import RMinHash, RMinHashLSH
    except ImportError as error:
        raise missing_package("rensa", extra="data", needed_for="near duplicates") from error
    if not 0 < near_duplicates <= 1:
        raise wrong_value("near-duplicates", near_duplicates, "above 0, at most 1; 0.8 is 80 % of the words' 5-grams")
    # MinHash (Broder 1997): 128 hashes of 4 bytes are kept of each document, and looked up in 16 bands.
    index: Any = RMinHashLSH(near_duplicates, NUM_HASHES, NUM_BANDS)
    kept, num_near = list[RMinHash](), 0

    def lines() -> Iterator[bytes]:
        nonlocal num_near
        for source in find_texts(inputs):
            for passages in read_documents(source, TextSettings(documents=documents, column=column)):
                text = "\n".join(passage.text for passage in passages)
                words, sketch = text.lower().split(), RMinHash(num_perm=NUM_HASHES, seed=1)
                starts = range(max(1, len(words) - SHINGLE_WORDS + 1))
                sketch.update([" ".join(words[start : start + SHINGLE_WORDS]) for start in starts])
                if any(sketch.jaccard(kept[number]) >= near_duplicates for number in index.query(sketch)):
                    num_near += 1
                    continue
                index.insert(len(kept), sketch)
                kept.append(sketch)
                yield json.dumps({"text": text}, ensure_ascii=False).encode() + b"\n"

    files.write_stream(output, lines())
    return f"{len(kept):,} documents kept, {num_near:,} near duplicates omitted"


# ---- merge ----------------------------------------------------------------------------------------------------------


def corpus_merge(*corpora: Annotated[Path, Required], output: Annotated[Path, "Folder to write."]) -> str:
    """Join corpora that were built alike into one; no text is read again.

    Shards are hard links if the disk allows it, otherwise copies.

    litebert corpus merge corpora/2024-* --output corpora/2024
    litebert corpus merge corpora/one corpora/two --output corpora/both
    """
    opened = [Corpus.open(folder) for folder in corpora]
    first = opened[0].manifest.plan
    for corpus in opened[1:]:
        alike = ("tokenizer_hash", "vocab_size", "sentences", "documents", "column", "language", "held_out")
        if differing := [name for name in alike if getattr(corpus.manifest.plan, name) != getattr(first, name)]:
            what, received = "corpora that were built differently cannot be merged", f"another {', '.join(differing)}"
            advice = "litebert pretrain data.mix=..., which only needs one vocabulary"
            raise LitebertError("LB-275", what, received=f"{corpus.path}: {received}", next=advice)
    files.require_new(output)
    held_out = [part for corpus in opened if (part := corpus.held_out()) is not None]
    with locked(output.parent):
        files.remove_unfinished(output.parent, output.name)
        with files.staged_folder(output) as staged:
            counts = _merge(opened, staged)
            if held_out:
                _merge(held_out, staged / disk.HELD_OUT)
    return f"{output}  {counts.documents:,} documents, {counts.tokens:,} tokens"


def _merge(corpora: Sequence[Corpus], folder: Path) -> disk.Counts:
    shutil.copytree(corpora[0].path / disk.TOKENIZER, folder / disk.TOKENIZER)
    manifests, first_part = list[disk.Manifest](), 0
    for corpus in corpora:  # the parts of each corpus are numbered after those of the one before
        renamed, part = list[disk.ShardRecord](), 0
        for record in corpus.manifest.shards:
            part, index = map(int, record.name.split("-")[1:])
            renamed.append(record.model_copy(update={"name": f"shard-{first_part + part:05d}-{index:04d}"}))
            target = folder / renamed[-1].name
            shutil.copytree(corpus.path / record.name, target, copy_function=_link)
            (target / disk.SHARD).unlink()
            disk.write_record(target / disk.SHARD, renamed[-1])
        manifests.append(corpus.manifest.model_copy(update={"shards": tuple(renamed)}))
        first_part += part + 1
    plans = [manifest.plan for manifest in manifests]
    inputs = tuple(each for plan in plans for each in plan.inputs)
    plan = plans[0].model_copy(update={"inputs": inputs, "shard_tokens": max(plan.shard_tokens for plan in plans)})
    merged = disk.join(manifests, plan)
    disk.write_record(folder / disk.MANIFEST, merged)
    return merged.counts


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another disk, or one without links
        shutil.copy2(source, target)


# ---- count ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CorpusStats:
    """Counts, shares, and lengths in pieces at `QUANTILES`."""

    documents: int
    sentences: int
    pieces: int
    unknown_share: float
    used_share: float  # of the vocabulary, that occurs
    sentence_lengths: tuple[int, ...]
    document_lengths: tuple[int, ...]

    def __str__(self) -> str:
        of_sentences, of_documents = (
            ", ".join(f"{quantile:.0%} {length:,}" for quantile, length in zip(QUANTILES, lengths, strict=True))
            for lengths in (self.sentence_lengths, self.document_lengths)
        )
        facts = {
            "documents": f"{self.documents:,}",
            "sentences": f"{self.sentences:,}",
            "pieces": f"{self.pieces:,}",
            "unknown pieces": f"{self.unknown_share:.4%}",
            "vocabulary in use": f"{self.used_share:.1%}",
            "pieces a sentence": of_sentences,
            "pieces a document": of_documents,
        }
        return "\n".join(f"{name:<20} {text}" for name, text in facts.items())


def corpus_stats(corpus: Path) -> CorpusStats:
    """Count documents, sentences, pieces, lengths and unknown pieces of a corpus.

    litebert corpus stats corpora/wiki
    litebert corpus stats corpora/wiki --json
    """
    opened = Corpus.open(corpus)
    counts, used = opened.manifest.counts, np.zeros(opened.manifest.plan.vocab_size, dtype=bool)
    for shard in opened.shards:
        used[np.unique(shard.tokens)] = True

    def at_quantiles(lengths: Sequence[Ints]) -> tuple[int, ...]:
        return tuple(np.quantile(np.concatenate(lengths), QUANTILES, method="lower").tolist())

    return CorpusStats(
        counts.documents,
        counts.sentences,
        counts.tokens,
        unknown_share=counts.unknown_tokens / counts.tokens,
        used_share=float(used.mean()),
        sentence_lengths=at_quantiles([np.diff(shard.sentences) for shard in opened.shards]),
        document_lengths=at_quantiles([np.diff(shard.sentences[shard.documents]) for shard in opened.shards]),
    )
