"""The data of a pretraining run: its corpora, their tokenizer, and batches from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from litebert.config import Origin, PretrainConfig
from litebert.corpus import Corpus
from litebert.corpus.manifest import MANIFEST
from litebert.corpus.remote import local_corpus
from litebert.errors import LitebertError
from litebert.files import Json, hash_file
from litebert.objectives import (
    Batches,
    Loader,
    Mixed,
    PretrainingBatch,
    SentenceObjective,
    Staged,
    Vocabulary,
    evaluation_batches,
    sentence_objective,
    shares,
)
from litebert.tokenizer import Tokenizer


@dataclass(frozen=True)
class Sources:
    """The data of a run: training corpus, held-out corpus, and their tokenizer."""

    corpus: Corpus
    held_out: Corpus
    tokenizer: Tokenizer
    sentence: SentenceObjective
    others: tuple[tuple[int, Path], ...] = ()

    @classmethod
    def open(cls, config: PretrainConfig) -> Sources:
        """Open what `[data]` names; evaluation must never read the training files."""
        sentence = sentence_objective(config.objective.sentence)
        corpus = Corpus.open(local_corpus(config.data.corpus))
        named = config.data.eval_corpus
        held_out = Corpus.open(local_corpus(named)) if named else corpus.held_out()
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
        others = tuple(enumerate(map(local_corpus, config.data.mix or ()), start=2))
        if others:
            shares_of(config, corpus.path)  # whole, and of one vocabulary
        return cls(corpus, held_out, corpus.tokenizer(), sentence, others)

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
            **{f"corpus {number}": hash_file(path / MANIFEST) for number, path in self.others},
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


def batches_of(corpus: Path, *, config: PretrainConfig, sentence: SentenceObjective) -> Batches:
    """Open what makes the batches of a run, in stages where it has some.

    Its arguments are small enough to be sent to the processes that prepare batches.
    """
    if not config.ramp.shares:
        return mixed_for(corpus, config=config, sentence=sentence)
    stages, starts = stages_of(config), [0]
    for share in config.ramp.shares:
        starts.append(starts[-1] + max(1, round(share * config.train.steps)))
    opens = [
        partial(
            mixed_for,
            corpus,
            config=stage,
            sentence=sentence,
            purpose=f"train-{number}" if number < len(stages) - 1 else "train",
            first_step=start,
        )
        for number, (stage, start) in enumerate(zip(stages, starts, strict=True))
    ]
    return Staged(starts, opens)


def stages_of(config: PretrainConfig) -> list[PretrainConfig]:
    """Return the configuration of each stage; that of the last one is the run's own."""
    ramp, stages = config.ramp, []
    for number in range(len(ramp.shares or ())):
        length = (ramp.seq_lengths or {number: config.objective.max_seq_length})[number]
        size = (ramp.batch_sizes or {number: config.train.batch_size})[number]
        objective = config.objective.model_copy(update={"max_seq_length": length})
        train = config.train.model_copy(update={"batch_size": size})
        stages.append(config.model_copy(update={"objective": objective, "train": train}))
    return [*stages, config]


def mixed_for(
    corpus: Path,
    *,
    config: PretrainConfig,
    sentence: SentenceObjective,
    purpose: str = "train",
    first_step: int = 0,
) -> Batches:
    """Open the loader of a corpus, or of the mix that it is a part of."""
    open_loader = partial(loader_for, config=config, sentence=sentence, first_step=first_step)
    if not config.data.mix:
        return open_loader(corpus, purpose=purpose)
    parts = shares_of(config, corpus)
    loaders = [
        open_loader(path, purpose=f"{purpose}-of-{number}" if number else purpose, share=share)
        for number, (path, share) in enumerate(parts.items())
    ]
    drawn = config.train.batch_size * config.mining.pool
    return Mixed(loaders, list(parts.values()), batch_size=drawn, seed=config.train.seed)


def shares_of(config: PretrainConfig, corpus: Path) -> dict[Path, float]:
    """Return the corpora of the mix with their shares; all must have one vocabulary."""
    data = config.data
    opened = [Corpus.open(path) for path in (corpus, *map(local_corpus, data.mix or ()))]
    for each in opened[1:]:
        if each.tokenizer_hash != opened[0].tokenizer_hash:
            raise LitebertError(
                "LB-269",
                "corpora with different vocabularies cannot be mixed",
                received=f"{opened[0].path} and {each.path}",
                expected="one vocabulary for all",
                next=f"litebert corpus build ... --tokenizer {opened[0].path}/tokenizer",
            )
    sizes = [each.num_tokens for each in opened]
    found = shares(sizes, weights=data.weights, temperature=data.temperature or 1.0)
    return dict(zip((each.path for each in opened), found, strict=True))


def loader_for(
    corpus: Path,
    *,
    config: PretrainConfig,
    sentence: SentenceObjective,
    purpose: str = "train",
    first_step: int = 0,
    share: float = 1.0,
) -> Loader:
    """Open a corpus's loader, whose step 0 is the run's `first_step`; `share` is that in a mix."""
    train, early = config.train, config.early
    early_steps = max(0, round(early.mask_share * train.steps) - first_step)
    opened = Corpus.open(corpus)
    drawn = train.batch_size * config.mining.pool
    return Loader(
        opened.shards,
        vocabulary=vocabulary_of(opened.tokenizer()),
        config=config.objective,
        batch_size=drawn,
        seed=train.seed,
        purpose=purpose,
        sentence=sentence,
        early_mask_prob=early.mask_prob,
        early_samples=round(early_steps * drawn * share),
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
