"""The data of a pretraining run: its corpora, their tokenizer, and loaders of their batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from litebert.config import EarlyConfig, ObjectiveConfig, PretrainConfig
from litebert.corpus import Corpus, Shard
from litebert.corpus.remote import local_corpus
from litebert.corpus.shards import MANIFEST
from litebert.errors import LitebertError
from litebert.files import Json, hash_file
from litebert.objectives import (
    Batches,
    Loader,
    PretrainingBatch,
    SentenceObjective,
    Vocabulary,
    evaluation_batches,
    sentence_objective,
)
from litebert.objectives.windows import WINDOW_PIECES, Mixed, Windowed, WindowOrder, estimated_samples, shares
from litebert.tokenizer import Tokenizer

SHORT_TEXTS = 0.3
"""Share of a student's plain texts that are shorter than `distil.text_length`."""


@dataclass(frozen=True)
class Sources:
    """The data of a run: training corpus, held-out corpus, their tokenizer, and more corpora by number."""

    corpus: Corpus
    held_out: Corpus
    tokenizer: Tokenizer
    others: tuple[tuple[int, Path], ...] = ()

    @classmethod
    def open(cls, config: PretrainConfig) -> Sources:
        """Open what `[data]` names; all corpora must have one tokenizer, and something must be held out."""
        sentence_objective(config.objective.sentence)  # checks that there is one of this name
        window = window_of(config)
        corpus = opened(local_corpus(config.data.corpus, window=window), window)
        named = config.data.eval_corpus
        held_out = Corpus.open(local_corpus(named)) if named else corpus.held_out()
        if held_out is None:
            raise LitebertError(
                "LB-510",
                f"there is nothing held out to evaluate on in {corpus.path}",
                next="add data.eval_corpus=FOLDER, or build the corpus again with --held-out 0.02",
            )
        require_one_tokenizer(corpus, held_out)
        held_out.tokenizer()  # checks that its copy of the tokenizer is the one that made the ids
        others = tuple(enumerate((local_corpus(name, window=window) for name in config.data.mix or ()), start=2))
        if others:
            shares_of(config, corpus.path)  # checks that they are complete, with one vocabulary
        return cls(corpus, held_out, corpus.tokenizer(), others)

    def described(self) -> dict[str, Json]:
        """Describe the data that a run depends on, for run.json."""
        return {
            "tokenizer": self.tokenizer.hash,
            "training tokens": self.corpus.num_tokens,
            "held-out tokens": self.held_out.num_tokens,
            "training corpus": hash_file(self.corpus.path / MANIFEST),
            "held-out corpus": hash_file(self.held_out.path / MANIFEST),
            **{f"corpus {number}": hash_file(path / MANIFEST) for number, path in self.others},
        }

    def evaluation(self, config: PretrainConfig) -> list[PretrainingBatch]:
        """Return the held-out batches, the same for every run with the same seed."""
        batches = evaluation_batches(
            self.held_out.shards,
            vocabulary=vocabulary_of(self.tokenizer),
            config=config.objective,
            batch_size=config.train.micro_batch_size or config.train.batch_size,
            seed=config.train.seed,
            num_sequences=config.train.eval_sequences,
            sentence=sentence_objective(config.objective.sentence),
        )
        return list(batches)

    def batches(self, config: PretrainConfig) -> Callable[[], Batches]:
        """Return what opens the loader of a run; worker processes get it, so it is small to pickle."""
        sentence = sentence_objective(config.objective.sentence)
        return partial(batches_of, self.corpus.path, config=config, sentence=sentence)


def plain_texts(config: PretrainConfig) -> PretrainConfig:
    """Return the configuration that draws plain texts from the corpus, by `distil.texts` and its lengths."""
    distil, train = config.distil, config.train
    lengths = {"max_seq_length": distil.text_length, "short_seq_prob": SHORT_TEXTS}
    changed = {
        "objective": ObjectiveConfig(sentence="none", **lengths),
        "train": train.model_copy(update={"batch_size": distil.texts, "micro_batch_size": None}),
        "data": config.data.model_copy(update={"mix": None}),
        "early": EarlyConfig(),
    }
    return config.model_copy(update=changed)


def batches_of(corpus: Path, *, config: PretrainConfig, sentence: SentenceObjective) -> Batches:
    """Open the loader of a run: of one corpus, or of the mix."""
    if not config.data.mix:
        return loader_for(corpus, config=config, sentence=sentence)
    parts = shares_of(config, corpus)
    loaders = [
        loader_for(
            path, config=config, sentence=sentence, purpose=f"train-of-{number}" if number else "train", share=share
        )
        for number, (path, share) in enumerate(parts.items())
    ]
    return Mixed(loaders, [*parts.values()], batch_size=config.train.batch_size, seed=config.train.seed)


def shares_of(config: PretrainConfig, corpus: Path) -> dict[Path, float]:
    """Return the corpora of the mix with their shares; their vocabularies must be the same."""
    data, window = config.data, window_of(config)
    others = (local_corpus(name, window=window) for name in data.mix or ())
    corpora = [opened(path, window) for path in (corpus, *others)]
    for each in corpora[1:]:
        require_one_tokenizer(corpora[0], each)
    sizes = [each.num_tokens for each in corpora]
    found = shares(sizes, weights=data.weights, temperature=data.temperature or 1.0)
    return dict(zip((each.path for each in corpora), found, strict=True))


def require_one_tokenizer(first: Corpus, second: Corpus) -> None:
    """Refuse two corpora whose ids come from different tokenizers."""
    if first.tokenizer_hash != second.tokenizer_hash:
        raise LitebertError(
            "LB-511",
            "the corpora of a run must be made with one tokenizer: these have different vocabularies",
            received=f"{first.path} and {second.path}",
            next=f"build {second.path} again with --tokenizer {first.path}/tokenizer",
        )


def loader_for(
    corpus: Path, *, config: PretrainConfig, sentence: SentenceObjective, purpose: str = "train", share: float = 1.0
) -> Loader | Windowed:
    """Open the loader of one corpus, of which a mix takes a `share` of its samples."""
    train, early, window = config.train, config.early, window_of(config)
    found = opened(corpus, window)
    # early masking lasts for a share of the run's steps; a loader of a mix sees a part of its samples
    early_samples = round(round(early.mask_share * train.steps) * train.batch_size * share)
    vocabulary = vocabulary_of(found.tokenizer())

    def open_loader(shards: Sequence[Shard], purpose: str, early_samples: int) -> Loader:
        return Loader(
            shards,
            vocabulary=vocabulary,
            config=config.objective,
            batch_size=train.batch_size,
            seed=train.seed,
            purpose=purpose,
            sentence=sentence,
            early_mask_prob=early.mask_prob,
            early_samples=early_samples,
        )

    # one that fits a window is shuffled whole; a larger one window by window, with the shards of one open at a time
    if found.num_tokens <= window:
        return open_loader(found.shards, purpose, early_samples)
    counts = [record.counts for record in found.manifest.shards]
    samples = estimated_samples(counts, config.objective, sentence)
    order = WindowOrder(samples, tuple(each.tokens for each in counts), window, train.seed, purpose)
    return Windowed(order, found.open_shards, open_loader, batch_size=train.batch_size, early_samples=early_samples)


def window_of(config: PretrainConfig) -> int:
    """Return how many pieces are shuffled together; see `objectives.windows`."""
    return config.data.window or WINDOW_PIECES


def opened(path: Path, window: int) -> Corpus:
    """Open a corpus; if it is larger than a window, its shards are opened when they are read."""
    corpus = Corpus.without_shards(path)
    return corpus if corpus.num_tokens > window else Corpus.open(path)


def vocabulary_of(tokenizer: Tokenizer) -> Vocabulary:
    """Return what the objectives need to know of a tokenizer."""
    t = tokenizer
    return Vocabulary(t.vocab_size, cls_id=t.cls_id, sep_id=t.sep_id, mask_id=t.mask_id, starts_word=t.starts_word)
