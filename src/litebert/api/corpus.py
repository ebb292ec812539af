"""Build a vocabulary and a corpus from plain texts; describe corpora and mixes of them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from os import fspath
from pathlib import Path

from litebert.api.settings import Paths, paths
from litebert.config import DataConfig, PretrainConfig
from litebert.corpus import BuildProgress, build_corpus
from litebert.corpus.text import read_texts
from litebert.corpus.tools import QUANTILES, CorpusStats
from litebert.errors import LitebertError
from litebert.files import write_text
from litebert.hub import locate
from litebert.inference.model import count
from litebert.report.figures import CountsFigure, draw
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.train import train_tokenizer, write_tokenizer
from litebert.train.log import duration
from litebert.train.sources import shares_of


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

    The vocabulary has `vocab_size` pieces, or fewer if the texts are small.
    Training that continues from a model, `start`, uses that model's vocabulary.
    Returns the folder of the corpus.
    """
    from litebert.api.progress import Progress

    report = Progress("text", "", is_quiet=quiet)
    vocabulary, corpus = Path(folder) / "tokenizer", Path(folder) / "corpus"
    if start is not None:
        vocabulary = locate(fspath(start))
    elif not (vocabulary / "tokenizer_config.json").exists():
        report.say(f"training a vocabulary of {vocab_size:,} pieces")
        trained = train_vocabulary(texts, vocabulary, vocab_size=vocab_size, is_limit=True, column=column)
        if trained.vocab_size < vocab_size:
            report.say(f"the text has only {trained.vocab_size:,} pieces")
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
    is_limit: bool = False,
    column: str = "text",
    cased: bool = False,
) -> Tokenizer:
    """Train a SentencePiece vocabulary with the official settings and write it to `folder`.

    With `is_limit`, texts too small for `vocab_size` pieces get as many as they have.

    Raises:
        LitebertError: LB-105, the folder has another vocabulary, which stays; LB-221, LB-222,
            LB-932, the size does not fit.
    """
    count(vocab_size, "vocab_size")
    model = train_tokenizer(
        read_texts(paths(texts), column=column), vocab_size=vocab_size, is_limit=is_limit, lowercase=not cased
    )
    _require_no_other(Path(folder), model)
    return write_tokenizer(Path(folder), model, lowercase=not cased)


def _require_no_other(folder: Path, model: bytes) -> None:
    """Refuse to replace the vocabulary that a model or a corpus may need."""
    vocabulary = folder / "spiece.model"
    is_same = vocabulary.is_file() and vocabulary.read_bytes() == model
    if (folder / "tokenizer_config.json").exists() and not is_same:
        raise LitebertError(
            "LB-105",
            f"{folder} has another vocabulary",
            received="other texts, or another --vocab-size",
            expected="a new folder, or the command that trained this vocabulary",
            next="choose another --output",
        )


def describe(progress: BuildProgress) -> str:
    """Describe the progress of a build in one line."""
    seconds, is_done = progress.seconds_left, progress.parts_done == progress.num_parts
    left = "" if seconds is None or is_done else f"  left {duration(seconds)}"
    speed = f"  {progress.tokens_per_second:,.0f} tok/s" if progress.tokens_per_second >= 1 else ""
    return f"part {progress.parts_done}/{progress.num_parts}  {progress.tokens:,} tokens{speed}{left}"


@dataclass(frozen=True)
class Mixture:
    """The share of each corpus, and the settings of `pretrain` that draw them."""

    shares: dict[str, float]
    settings: list[str]


def mixture(corpora: Sequence[Path], *, weights: str | None = None, temperature: float = 1.0) -> Mixture:
    """Return how a mix of corpora is drawn.

    Raises:
        LitebertError: LB-269, the vocabularies differ; LB-279, the weights do not fit the corpora;
            LB-219, the temperature is out of range.
    """
    if not 0 < temperature <= 100:
        raise LitebertError(
            "LB-219",
            "--temperature is out of range",
            received=temperature,
            expected="a number above 0, at most 100",
            next="omit --temperature to draw by the weights",
        )
    first, *others = map(str, corpora)
    numbers = None if weights is None else _numbers(weights, len(corpora))
    data = DataConfig(corpus=first, mix=tuple(others), weights=numbers, temperature=temperature)
    shares = shares_of(PretrainConfig(data=data), corpora[0])
    settings = [first, f"data.mix={json.dumps(others)}"]
    if numbers:
        settings.append(f"data.weights={json.dumps(numbers)}")
    if temperature != 1:
        settings.append(f"data.temperature={temperature:g}")
    return Mixture({str(path): share for path, share in shares.items()}, settings)


def _numbers(text: str, count: int) -> tuple[float, ...]:
    try:
        numbers = tuple(float(word) for word in text.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) != count or not all(0 < number < math.inf for number in numbers):
        raise LitebertError(
            "LB-279",
            "--weights does not fit the corpora",
            received=text,
            expected=f"{count} numbers above 0, such as {','.join('1' * count)}",
            next="litebert corpus mix --help",
        )
    return numbers


def in_words(stats: CorpusStats) -> dict[str, str]:
    """Describe a corpus, one line per fact."""
    return {
        "documents": f"{stats.documents:,}, {stats.repeated_documents:,} of them repeat another",
        "sentences": f"{stats.sentences:,}, {stats.repeated_sentence_share:.2%} repeat another",
        "pieces": f"{stats.pieces:,}",
        "unknown pieces": f"{stats.unknown_share:.4%}",
        "vocabulary in use": f"{stats.used_share:.1%}",
        "pieces a sentence": _quantiles(stats.sentence_lengths),
        "pieces a document": _quantiles(stats.document_lengths),
    }


def draw_lengths(stats: CorpusStats, path: Path) -> None:
    """Draw how many sentences have each length in pieces."""
    title = "Sentences by length in pieces (the last bar: all longer ones)"
    write_text(path, draw(CountsFigure(title, _quantiles(stats.sentence_lengths), stats.histogram)))


def _quantiles(values: Sequence[int]) -> str:
    return ", ".join(f"{quantile:.0%} {value:,}" for quantile, value in zip(QUANTILES, values, strict=True))
