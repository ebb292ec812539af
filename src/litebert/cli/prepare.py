"""From plain texts to what pretraining needs: a vocabulary and a corpus in the run's folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from litebert.cli.corpus import show_progress
from litebert.corpus import build_corpus
from litebert.corpus.read import read_texts
from litebert.folder import locate
from litebert.tokenizer.train import train_tokenizer, write_tokenizer


def corpus_from_texts(
    texts: Sequence[str],
    folder: Path,
    *,
    vocab_size: int,
    start: str | None,
    sentences: str,
    documents: str,
    column: str,
    held_out: float,
    is_quiet: bool,
) -> Path:
    """Train a vocabulary and build a corpus, each unless it is there; return the corpus.

    Training that goes on from a model takes that model's vocabulary.
    """
    vocabulary, corpus = folder / "tokenizer", folder / "corpus"
    if start is not None:
        vocabulary = locate(start)
    elif not (vocabulary / "tokenizer_config.json").exists():
        _say(f"training a vocabulary of {vocab_size:,} pieces", is_quiet=is_quiet)
        model = train_tokenizer(read_texts(texts, column=column), vocab_size=vocab_size)
        write_tokenizer(vocabulary, model)
    _say("building the corpus", is_quiet=is_quiet)
    build_corpus(
        texts,
        tokenizer=vocabulary,
        output=corpus,
        sentences=sentences,
        documents=documents,
        column=column,
        held_out=held_out,
        report=None if is_quiet else show_progress,
    )
    return corpus


def _say(text: str, *, is_quiet: bool) -> None:
    if not is_quiet:
        click.echo(text, err=True)
