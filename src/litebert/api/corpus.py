"""From plain texts to what pretraining needs: a vocabulary and a corpus."""

from __future__ import annotations

from pathlib import Path

from litebert.api.settings import Paths, paths
from litebert.corpus import BuildProgress, build_corpus
from litebert.corpus.read import read_texts
from litebert.hub import locate
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.train import train_tokenizer, write_tokenizer
from litebert.train.log import duration


def build_from_texts(
    texts: Paths,
    folder: str | Path,
    *,
    vocab_size: int = 8_000,
    start: str | Path | None = None,
    sentences: str = "segment",
    documents: str = "blank-line",
    column: str = "text",
    held_out: float = 0.02,
    quiet: bool = False,
) -> Path:
    """Train a vocabulary and build a corpus in `folder`, each unless it exists.

    Training that continues from a model, `start`, uses that model's vocabulary.
    Returns the folder of the corpus.
    """
    from litebert.api.progress import Progress

    report = Progress("text", "", is_quiet=quiet)
    vocabulary, corpus = Path(folder) / "tokenizer", Path(folder) / "corpus"
    if start is not None:
        vocabulary = locate(start)
    elif not (vocabulary / "tokenizer_config.json").exists():
        report.say(f"training a vocabulary of {vocab_size:,} pieces")
        train_vocabulary(texts, vocabulary, vocab_size=vocab_size, column=column)
    report.say("building the corpus")
    build_corpus(
        paths(texts),
        tokenizer=vocabulary,
        output=corpus,
        sentences=sentences,
        documents=documents,
        column=column,
        held_out=held_out,
        report=None if quiet else lambda progress: report.say(describe(progress)),
    )
    return corpus


def train_vocabulary(
    texts: Paths,
    folder: str | Path,
    *,
    vocab_size: int = 30_000,
    column: str = "text",
    cased: bool = False,
) -> Tokenizer:
    """Train a SentencePiece vocabulary with the official settings and write it to `folder`."""
    model = train_tokenizer(
        read_texts(paths(texts), column=column), vocab_size=vocab_size, lowercase=not cased
    )
    return write_tokenizer(Path(folder), model, lowercase=not cased)


def describe(progress: BuildProgress) -> str:
    """Say in a line how far a build is."""
    seconds, is_done = progress.seconds_left, progress.parts_done == progress.num_parts
    left = "" if seconds is None or is_done else f"  left {duration(seconds)}"
    return (
        f"part {progress.parts_done}/{progress.num_parts}  {progress.tokens:,} tokens  "
        f"{progress.tokens_per_second:,.0f} tok/s{left}"
    )
