"""The data of a pretraining run: its corpora, their tokenizer, and loaders of their
batches.

Nothing here needs torch, so that the processes that prepare batches start quickly.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from litebert.config import EarlyConfig, ObjectiveConfig, PretrainConfig
from litebert.corpus import Corpus
from litebert.corpus.shards import MANIFEST, read_manifest
from litebert.corpus.storage import local_corpus
from litebert.errors import LitebertError
from litebert.files import Json, hash_file
from litebert.objectives import (
    CorpusLoader,
    Loader,
    LoaderSettings,
    PretrainingBatch,
    SentenceObjective,
)
from litebert.objectives.loading import MixLoader, mean_length, shares
from litebert.objectives.sentences import sentence_objective
from litebert.objectives.taught import TaughtLoader, TaughtTexts, holds_vectors
from litebert.plugins import SENTENCE_OBJECTIVES
from litebert.tokenizer import Tokenizer

# share of a student's plain texts that are shorter than `distil.text_length`
SHORT_TEXTS = 0.3


# ---- the corpora ---------------------------------------------------------------------


@dataclass(frozen=True)
class Sources:
    """The data of a run."""

    corpora: tuple[Corpus, ...]  # to train on: the first one, and those of a mix
    held_out: Corpus
    tokenizer: Tokenizer  # of all of them
    taught: TaughtTexts | None = None  # texts with vectors, if these are the teacher

    @classmethod
    def open(cls, config: PretrainConfig) -> "Sources":
        """Open the corpora named in `[data]`; they must share a tokenizer, and
        something must be held out.
        """
        corpora = open_corpora(config, local_corpus(config.data.corpus))
        held_out = _held_out(config, corpora[0])
        check_data(config, corpora[0].path, holds_out=held_out is not None)
        assert held_out is not None
        require_one_tokenizer(corpora[0], held_out)
        # Not for the tokenizer: this checks that the copy in the folder is the one that
        # made the ids.
        held_out.tokenizer()
        tokenizer = corpora[0].tokenizer()
        return cls(corpora, held_out, tokenizer, open_taught(config))

    @property
    def corpus(self) -> Corpus:
        """The corpus that is named first."""
        return self.corpora[0]

    def describe(self) -> dict[str, Json]:
        """Describe the data that a run depends on, for run.json."""
        counts = self.corpus.manifest.counts
        # A manifest has the hashes of all shards, so its own stands for the corpus. The
        # counts are for people who read run.json.
        facts: dict[str, Json] = {
            "tokenizer": self.tokenizer.hash,
            "training tokens": counts.tokens,
            "held-out tokens": self.held_out.manifest.counts.tokens,
            "unknown share": round(counts.unknown_tokens / max(1, counts.tokens), 4),
            "training corpus": hash_file(self.corpus.path / MANIFEST),
            "held-out corpus": hash_file(self.held_out.path / MANIFEST),
        }
        for number, corpus in enumerate(self.corpora[1:], start=2):
            facts[f"corpus {number}"] = hash_file(corpus.path / MANIFEST)
        return facts

    def teaches_order(self, config: PretrainConfig) -> bool:
        """Return whether the sentence objective has labels: some document must have two
        sentences.
        """
        sentence = sentence_objective(config.objective.sentence)
        if "sentence_order" not in config.objective.chosen_heads:
            return False
        # A document of one sentence has nothing to swap, and gets no label.
        counts = [corpus.manifest.counts for corpus in self.corpora]
        has_pairs = any(c.documents > c.single_sentence_documents for c in counts)
        return has_pairs and sentence.has_labels

    def evaluation(self, config: PretrainConfig) -> list[PretrainingBatch]:
        """Return the held-out batches, the same for every run with the same seed."""
        train = config.train
        # as many at once as training has in memory
        batch_size = train.micro_batch_size or train.batch_size
        loader = self._held_out_loader(config, batch_size)
        return list(loader.once(train.eval_sequences))

    def draw(self, config: PretrainConfig, num_sequences: int) -> PretrainingBatch:
        """Return one batch of that many held-out sequences, made as those of the run
        are; fewer if the held-out documents have no more.
        """
        loader = self._held_out_loader(config, num_sequences)
        return next(iter(loader.once(num_sequences)))

    def _held_out_loader(self, config: PretrainConfig, batch_size: int) -> CorpusLoader:
        settings = LoaderSettings(
            self.tokenizer,
            config.objective,
            batch_size=batch_size,
            seed=config.train.seed,
            purpose="evaluation",
        )
        return CorpusLoader(self.held_out.shards, settings)

    def mean_length(self, config: PretrainConfig) -> float:
        """Estimate the mean length of the run's sequences, in tokens."""
        # a mix has the same shares in every batch, so means add up by them
        mean = 0.0
        corpus_shares = shares_of(self.corpora, config)
        for corpus, share in zip(self.corpora, corpus_shares, strict=True):
            mean += share * mean_length(corpus.shards, config.objective)
        return mean

    def taught_texts(self, config: PretrainConfig) -> Callable[[], TaughtLoader]:
        """Return a function that opens the texts with vectors, as `batches` does for
        the corpus.
        """
        return partial(open_taught_loader, self.corpus.path, config=config)

    def batches(self, config: PretrainConfig) -> Callable[[], Loader]:
        """Return a function that opens the loader of a run; it is sent to worker
        processes, so it pickles small.
        """
        sentence = sentence_objective(config.objective.sentence)
        return partial(open_loader, self.corpus.path, config=config, sentence=sentence)


def open_corpora(config: PretrainConfig, first: Path) -> tuple[Corpus, ...]:
    """Open the training corpora of a run; their vocabularies must be the same."""
    # one on object storage is fetched into the cache
    others = [local_corpus(path) for path in config.data.mix or ()]
    corpora = tuple(Corpus.open(path) for path in (first, *others))
    # Ids of different vocabularies would mean different pieces in one network.
    for corpus in corpora[1:]:
        require_one_tokenizer(corpora[0], corpus)
    return corpora


def _held_out(config: PretrainConfig, first: Corpus) -> Corpus | None:
    """Return the corpus that is named to evaluate on, or else the held-out part of the
    first one: adding to a mix does not change what is measured.
    """
    if config.data.eval_corpus:
        return Corpus.open(local_corpus(config.data.eval_corpus))
    return first.held_out()


def open_taught(config: PretrainConfig) -> TaughtTexts | None:
    """Open the texts with a teacher's vectors, if the teacher is such files."""
    teacher = config.distil.teacher
    if teacher is None or not holds_vectors(teacher):
        return None
    return TaughtTexts(teacher, num_held_out=config.train.eval_sequences)


def shares_of(corpora: tuple[Corpus, ...], config: PretrainConfig) -> list[float]:
    """Return the share of each corpus of the mix."""
    # In proportion to their tokens by default; a temperature above 1 favors small ones.
    sizes = [corpus.manifest.counts.tokens for corpus in corpora]
    data = config.data
    temperature = data.temperature or 1.0
    return shares(sizes, weights=data.weights, temperature=temperature)


def check_data(config: PretrainConfig, corpus: object, *, holds_out: bool) -> None:
    """Check what does not depend on the contents of a corpus, which may not be built
    yet.
    """
    # raises if there is none of this name
    sentence_objective(config.objective.sentence)
    named = list(config.data.mix or ())
    if config.data.eval_corpus:
        named.append(config.data.eval_corpus)
    for path in named:
        read_manifest(local_corpus(path))
    if holds_out or config.data.eval_corpus:
        return
    raise LitebertError(
        "LB-510",
        f"there is nothing held out to evaluate on in {corpus}",
        next=(
            "add data.eval_corpus=FOLDER, or build the corpus again with --held-out"
            " 0.02"
        ),
    )


def require_one_tokenizer(first: Corpus, second: Corpus) -> None:
    """Raise if the ids of two corpora come from different tokenizers."""
    if first.manifest.plan.tokenizer_hash == second.manifest.plan.tokenizer_hash:
        return
    raise LitebertError(
        "LB-511",
        "the corpora of a run must be made with one tokenizer: these have different"
        " vocabularies",
        received=f"{first.path} and {second.path}",
        next=f"build {second.path} again with --tokenizer {first.path}/tokenizer",
    )


# ---- loaders, also opened by worker processes ----------------------------------------


def open_loader(
    path: Path, *, config: PretrainConfig, sentence: SentenceObjective | None = None
) -> Loader:
    """Open the loader of a run: of one corpus, or of the mix.

    `sentence` is its sentence objective: a worker process lacks one that was registered
    in the training process.
    """
    if sentence and config.objective.sentence not in SENTENCE_OBJECTIVES:
        SENTENCE_OBJECTIVES.add(config.objective.sentence, sentence)
    corpora = open_corpora(config, path)
    corpus_shares = shares_of(corpora, config)
    # Each corpus draws for itself, so that adding one does not change the sequences of
    # the others.
    loaders = list[Loader]()
    for number, (corpus, share) in enumerate(zip(corpora, corpus_shares, strict=True)):
        purpose = f"train-of-{number}" if number else "train"
        settings = _training_settings(corpus, config, purpose, share)
        loaders.append(CorpusLoader(corpus.shards, settings))
    if len(loaders) == 1:
        return loaders[0]
    train = config.train
    return MixLoader(
        loaders, corpus_shares, batch_size=train.batch_size, seed=train.seed
    )


def _training_settings(
    corpus: Corpus, config: PretrainConfig, purpose: str, share: float
) -> LoaderSettings:
    """Return the settings of one corpus, which has this `share` of the sequences."""
    train = config.train
    early = config.early
    # The first steps may mask another share of the tokens (30 % throughout was as good in
    # short runs, docs/choices.md). Loaders count sequences.
    # Of a mix, each loader counts only its own share of them.
    early_steps = round(early.mask_share * train.steps)
    return LoaderSettings(
        corpus.tokenizer(),
        config.objective,
        train.batch_size,
        train.seed,
        purpose,
        early_mask_prob=early.mask_prob,
        early_sequences=round(early_steps * train.batch_size * share),
    )


def open_taught_loader(path: Path, *, config: PretrainConfig) -> TaughtLoader:
    """Open the texts of a student that learns known vectors, with the corpus's
    vocabulary.
    """
    texts = open_taught(config)
    assert texts is not None, "the run has a teacher that is a file"
    return TaughtLoader(
        texts,
        Corpus.open(path).tokenizer(),
        batch_size=config.distil.texts,
        seed=config.train.seed,
        longest=config.distil.text_length,
    )


def plain_text_config(config: PretrainConfig) -> PretrainConfig:
    """Return the configuration that draws `distil.texts` plain texts of
    `distil.text_length` from the corpus.
    """
    distil = config.distil
    # Single texts, as people embed them: without a second segment, and of the first
    # corpus alone, from the first step on.
    objective = ObjectiveConfig(
        sentence="none", max_seq_length=distil.text_length, short_seq_prob=SHORT_TEXTS
    )
    train = config.train.model_copy(
        update={"batch_size": distil.texts, "micro_batch_size": None}
    )
    data = config.data.model_copy(
        update={"mix": None, "weights": None, "temperature": None}
    )
    return config.model_copy(
        update={
            "objective": objective,
            "train": train,
            "data": data,
            "early": EarlyConfig(),
        }
    )
