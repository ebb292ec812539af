"""The data of a pretraining run: its corpora, their tokenizer, and batches from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from litebert.config import Origin, PretrainConfig
from litebert.corpus import Corpus
from litebert.corpus.manifest import MANIFEST
from litebert.errors import LitebertError
from litebert.files import Json, hash_file
from litebert.objectives import (
    Loader,
    PretrainingBatch,
    SentenceObjective,
    Vocabulary,
    evaluation_batches,
    sentence_objective,
)
from litebert.tokenizer import Tokenizer


@dataclass(frozen=True)
class Sources:
    """The data of a run: training corpus, held-out corpus, and their tokenizer."""

    corpus: Corpus
    held_out: Corpus
    tokenizer: Tokenizer
    sentence: SentenceObjective

    @classmethod
    def open(cls, config: PretrainConfig) -> Sources:
        """Open what `[data]` names; evaluation must never read the training files."""
        sentence = sentence_objective(config.objective.sentence)
        corpus = Corpus.open(Path(config.data.corpus))
        named = config.data.eval_corpus
        held_out = Corpus.open(Path(named)) if named else corpus.held_out()
        if held_out is None:
            raise LitebertError(
                "LB-510",
                "there is nothing held out to evaluate on",
                received=f"{corpus.path} without a held-out part",
                expected="a corpus built with --held-out, or data.eval_corpus",
                next="litebert corpus build ... --held-out 0.02; or set data.eval_corpus",
            )
        if held_out.tokenizer_hash != corpus.tokenizer_hash:
            raise LitebertError(
                "LB-511",
                "training and evaluation corpus were made with different tokenizers",
                received=f"{corpus.path} and {held_out.path}",
                expected="one tokenizer for both",
                next=f"litebert corpus build ... --tokenizer {corpus.path}/tokenizer",
            )
        held_out.tokenizer()  # its copy, too, must be what made the ids
        return cls(corpus, held_out, corpus.tokenizer(), sentence)

    def require_vocabulary(self, size: int, origin: Origin) -> None:
        """Refuse a configured vocabulary size that is not the corpus's."""
        is_set = origin.kind not in ("default", "preset")
        if is_set and size != self.tokenizer.vocab_size:
            raise LitebertError(
                "LB-512",
                f"model.vocab_size is not that of the corpus (from {origin})",
                received=f"{size:,}",
                expected=f"{self.tokenizer.vocab_size:,}, the pieces of {self.corpus.path}",
                next="omit model.vocab_size: it follows from the corpus",
            )

    def described(self) -> dict[str, Json]:
        """Name what the numbers of a run depend on, for run.json."""
        return {
            "tokenizer": self.tokenizer.hash,
            "training tokens": self.corpus.num_tokens,
            "held-out tokens": self.held_out.num_tokens,
            "training corpus": hash_file(self.corpus.path / MANIFEST),
            "held-out corpus": hash_file(self.held_out.path / MANIFEST),
        }

    def evaluation(self, config: PretrainConfig) -> list[PretrainingBatch]:
        """Return the held-out batches, the same for every run with one seed."""
        return list(
            evaluation_batches(
                self.held_out.shards,
                vocabulary=vocabulary_of(self.tokenizer),
                config=config.objective,
                batch_size=config.train.micro_batch_size or config.train.batch_size,
                seed=config.train.seed,
                num_sequences=config.train.eval_sequences,
                sentence=self.sentence,
            )
        )


def loader_for(corpus: Path, *, config: PretrainConfig, sentence: SentenceObjective) -> Loader:
    """Open a corpus's loader; small enough to be sent to the processes that prepare batches."""
    train, early = config.train, config.early
    opened = Corpus.open(corpus)
    drawn = train.batch_size * config.mining.pool
    return Loader(
        opened.shards,
        vocabulary=vocabulary_of(opened.tokenizer()),
        config=config.objective,
        batch_size=drawn,
        seed=train.seed,
        sentence=sentence,
        early_mask_prob=early.mask_prob,
        early_samples=round(early.mask_share * train.steps) * drawn,
    )


def vocabulary_of(tokenizer: Tokenizer) -> Vocabulary:
    """Return what the objectives need to know of a tokenizer."""
    return Vocabulary(
        size=tokenizer.vocab_size,
        cls_id=tokenizer.cls_id,
        sep_id=tokenizer.sep_id,
        mask_id=tokenizer.mask_id,
        starts_word=tokenizer.starts_word,
    )
