"""Statistics of a corpus: sizes, lengths, unknown pieces, repeated documents."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from litebert.corpus.shards import Corpus

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


@dataclass(frozen=True)
class CorpusStats:
    """Counts, lengths in pieces at `QUANTILES`, shares, and how often each length occurs."""

    documents: int
    sentences: int
    pieces: int
    unknown_share: float
    used_share: float
    repeated_documents: int
    repeated_sentence_share: float
    sentence_lengths: tuple[int, ...]
    document_lengths: tuple[int, ...]
    histogram: tuple[int, ...]


def corpus_stats(corpus: Corpus) -> CorpusStats:
    """Return the statistics of a corpus, reading every shard once.

    `used_share` is the share of the vocabulary that occurs; `histogram` counts sentences by their
    length in pieces, with all longer ones in the last entry. Documents are repeated if all their
    pieces are equal.
    """
    used = np.zeros(corpus.vocab_size, dtype=bool)
    lengths = [np.empty(0, np.int64)]
    document_lengths = [np.empty(0, np.int64)]
    documents, sentences = set[bytes](), set[bytes]()
    for shard in corpus.shards:
        used[np.unique(shard.tokens)] = True
        starts = np.asarray(shard.sentences)
        lengths.append(np.diff(starts))
        document_lengths.append(np.diff(starts[np.asarray(shard.documents)]))
        documents.update(_hashes(shard.tokens, starts[np.asarray(shard.documents)]))
        sentences.update(_hashes(shard.tokens, starts))
    by_sentence, by_document = np.concatenate(lengths), np.concatenate(document_lengths)
    counts = corpus.manifest.counts
    return CorpusStats(
        documents=len(by_document),
        sentences=len(by_sentence),
        pieces=corpus.num_tokens,
        unknown_share=counts.unknown_tokens / max(1, counts.tokens),
        used_share=float(used.mean()),
        repeated_documents=len(by_document) - len(documents),
        repeated_sentence_share=1 - len(sentences) / max(1, len(by_sentence)),
        sentence_lengths=_quantiles(by_sentence),
        document_lengths=_quantiles(by_document),
        histogram=tuple(np.bincount(np.minimum(by_sentence, 128), minlength=129).tolist()),
    )


def _hashes(tokens: NDArray[np.unsignedinteger], starts: NDArray[np.int64]) -> set[bytes]:
    pairs = pairwise(starts.tolist())
    return {blake2b(tokens[start:stop].tobytes(), digest_size=8).digest() for start, stop in pairs}


def _quantiles(values: NDArray[np.int64]) -> tuple[int, ...]:
    return tuple(int(value) for value in np.quantile(values, QUANTILES, method="lower"))
