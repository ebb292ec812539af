"""Check a finished corpus: damage, duplicates, overlap with the held-out part, length."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from pathlib import Path

import numpy as np

from litebert.corpus.findings import ADVICE
from litebert.corpus.manifest import HELD_OUT
from litebert.corpus.repeats import SeenDocuments
from litebert.corpus.shard import Shard
from litebert.corpus.shards import Corpus
from litebert.errors import DamagedError
from litebert.reading.findings import CheckReport, Findings
from litebert.tokenizer import Tokenizer

LONG_TOKENS = 512
EXAMPLE_TOKENS = 40
"""The length of an example, enough to recognise a text."""


def check_corpus(path: str | Path, *, verify_only: bool = False) -> CheckReport:
    """Verify every byte of a corpus and of its held-out part; report what would harm training.

    With `verify_only`, the texts themselves are not checked.

    Raises:
        LitebertError: There is no finished corpus.
    """
    found = Findings(ADVICE)
    try:
        corpus = Corpus.open(path, verify=True)
        held_out = corpus.held_out(verify=True)
        tokenizer = corpus.tokenizer()
    except DamagedError as error:
        what = error.what.replace(f"{path}/", "")  # the finding names the path already
        found.add("damaged", str(path), f"{what}: {error.received}", advice=error.next)
        return CheckReport(found.report(), {})
    if verify_only:
        parts = (corpus, held_out) if held_out else (corpus,)
        files = [file for part in parts for shard in part.shards for file in shard.files]
        sizes = sum(file.stored.size for file in files)
        return CheckReport((), {"files": len(files), "bytes": sizes})
    documents = _look(corpus, tokenizer, found)
    if repetition := documents.repetition():
        repeats = f"repeats {repetition.original}"
        found.add("duplicate document", repetition.where, repeats, times=repetition.count)
    if held_out and (shared := _look(held_out, tokenizer, found).overlap(documents)):
        where = f"{HELD_OUT}/{shared.where}"
        found.add("held-out overlap", where, f"also {shared.original}", times=shared.count)
    return CheckReport(found.report(), corpus.manifest.counts.model_dump())


def _look(corpus: Corpus, tokenizer: Tokenizer, found: Findings) -> SeenDocuments:
    """Collect the findings of a corpus; return the hashes of its documents."""
    documents = SeenDocuments()
    for shard in corpus.shards:
        documents.start_input(shard.path.name)
        starts = shard.sentences[shard.documents]
        for number, (start, stop) in enumerate(pairwise(starts)):
            tokens = shard.tokens[start:stop].tobytes()
            documents.add(hashlib.blake2b(tokens, digest_size=8).digest(), number)
        _look_at_lengths(shard, tokenizer, found)
        _look_at_unknown(shard, tokenizer, found)
    return documents


def _look_at_lengths(shard: Shard, tokenizer: Tokenizer, found: Findings) -> None:
    long = np.flatnonzero(np.diff(shard.sentences) > LONG_TOKENS)
    single = shard.documents[:-1][np.diff(shard.documents) == 1]
    for kind, sentences in (("long sentence", long), ("single-sentence document", single)):
        if len(sentences):
            start = int(shard.sentences[sentences[0]])
            example = _decoded(shard, start, tokenizer)
            found.add(kind, _place(shard, start), example, times=len(sentences))


def _look_at_unknown(shard: Shard, tokenizer: Tokenizer, found: Findings) -> None:
    unknown = np.flatnonzero(shard.tokens == tokenizer.unk_id)
    if len(unknown):
        first = int(unknown[0])
        example = f"{len(unknown) / len(shard.tokens):.2%} of {shard.path.name}: "
        example += _decoded(shard, max(0, first - EXAMPLE_TOKENS // 4), tokenizer)
        found.add("unknown token", _place(shard, first), example, times=len(unknown))


def _place(shard: Shard, token: int) -> str:
    sentence = np.searchsorted(shard.sentences, token, side="right") - 1
    document = np.searchsorted(shard.documents, sentence, side="right") - 1
    return f"{shard.path.name}:{document}"


def _decoded(shard: Shard, start: int, tokenizer: Tokenizer) -> str:
    return tokenizer.decode(shard.tokens[start : start + EXAMPLE_TOKENS].tolist())
