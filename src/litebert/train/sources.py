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
from litebert.corpus.corpus import WINDOWS_HELD, local_corpus
from litebert.corpus.shards import MANIFEST
from litebert.errors import LitebertError
from litebert.files import Json, hash_file
from litebert.objectives import (
    Loader,
    PretrainingBatch,
    Samples,
    Sampling,
    SentenceObjective,
)
from litebert.objectives.sampling import (
    WINDOW_PIECES,
    Mixed,
    Windowed,
    estimated_samples,
    shares,
)
from litebert.objectives.sequences import sentence_objective
from litebert.objectives.taught import (
    TaughtSamples,
    TaughtTexts,
    holds_vectors,
)
from litebert.plugins import SENTENCE_OBJECTIVES
from litebert.tokenizer import Tokenizer

# share of a student's plain texts that are shorter than `distil.text_length`
SHORT_TEXTS = 0.3


@dataclass(frozen=True)
class Sources:
    """The data of a run: training corpus, held-out corpus, their tokenizer, the other
    corpora of a mix, and texts with a teacher's vectors.
    """

    corpus: Corpus
    held_out: Corpus
    tokenizer: Tokenizer
    others: tuple[Path, ...] = ()
    taught: TaughtTexts | None = None  # texts with vectors, if these are the teacher

    @classmethod
    def open(cls, config: PretrainConfig) -> "Sources":
        """Open the corpora named in `[data]`; they must share a tokenizer, and
        something must be held out.
        """
        data = config.data
        corpus = open_corpus(local_corpus(data.corpus), config)
        held_out = (
            Corpus.open(local_corpus(data.eval_corpus))
            if data.eval_corpus
            else corpus.held_out()
        )
        check_data(config, corpus.path, holds_out=held_out is not None)
        assert held_out is not None
        require_one_tokenizer(corpus, held_out)
        # checks that its copy of the tokenizer is the one that made the ids
        held_out.tokenizer()
        # checks that they are complete, with one vocabulary
        mixed = shares_of(config, corpus.path) if data.mix else {}
        return cls(
            corpus,
            held_out,
            corpus.tokenizer(),
            others=tuple(mixed)[1:],
            taught=open_taught(config),
        )

    def describe(self) -> dict[str, Json]:
        """Describe the data that a run depends on, for run.json."""
        counts = self.corpus.manifest.counts
        return {
            "tokenizer": self.tokenizer.hash,
            "training tokens": counts.tokens,
            "held-out tokens": self.held_out.manifest.counts.tokens,
            "unknown share": round(counts.unknown_tokens / max(1, counts.tokens), 4),
            "training corpus": hash_file(self.corpus.path / MANIFEST),
            "held-out corpus": hash_file(self.held_out.path / MANIFEST),
            **{
                f"corpus {n}": hash_file(path / MANIFEST)
                for n, path in enumerate(self.others, start=2)
            },
        }

    def teaches_order(self, config: PretrainConfig) -> bool:
        """Return whether the sentence objective has labels: some document must have two
        sentences.
        """
        counts = [
            Corpus.without_shards(path).manifest.counts
            for path in (self.corpus.path, *self.others)
        ]
        has_pairs = any(
            each.documents > each.single_sentence_documents for each in counts
        )
        has_head = "sentence_order" in config.objective.chosen_heads
        sentence = sentence_objective(config.objective.sentence)
        return has_head and has_pairs and sentence.has_labels

    def evaluation(self, config: PretrainConfig) -> list[PretrainingBatch]:
        """Return the held-out batches, the same for every run with the same seed."""
        train = config.train
        batch_size = train.micro_batch_size or train.batch_size
        given = Sampling(
            self.tokenizer,
            config.objective,
            batch_size,
            train.seed,
            purpose="evaluation",
        )
        return list(Loader(self.held_out.shards, given).once(train.eval_sequences))

    def mean_length(self, config: PretrainConfig) -> float:
        """Estimate the mean length of the run's sequences, in tokens, from the sizes of
        its corpora.
        """
        mean = 0.0
        objective = config.objective
        parts = (
            shares_of(config, self.corpus.path)
            if config.data.mix
            else {self.corpus.path: 1.0}
        )
        for path, share in parts.items():
            shards = [
                record.counts for record in Corpus.without_shards(path).manifest.shards
            ]
            of_text = sum(each.tokens for each in shards) / max(
                1, sum(estimated_samples(shards, objective))
            )
            # with [CLS] and two [SEP]
            mean += share * min(objective.max_seq_length, of_text + 3)
        return mean

    def taught_texts(self, config: PretrainConfig) -> Callable[[], TaughtSamples]:
        """Return a function that opens the texts with vectors, as `batches` does for
        the corpus.
        """
        return partial(open_taught_samples, self.corpus.path, config=config)

    def batches(self, config: PretrainConfig) -> Callable[[], Samples]:
        """Return a function that opens the loader of a run; it is sent to worker
        processes, so it pickles small.
        """
        sentence = sentence_objective(config.objective.sentence)
        return partial(batches_of, self.corpus.path, config=config, sentence=sentence)


def open_corpus(path: Path, config: PretrainConfig) -> Corpus:
    """Open a corpus; if it is larger than a window, its shards are opened only when
    they are read.
    """
    corpus = Corpus.without_shards(path)
    return (
        corpus
        if corpus.manifest.counts.tokens > (config.data.window or WINDOW_PIECES)
        else Corpus.open(path)
    )


def open_taught(config: PretrainConfig) -> TaughtTexts | None:
    """Open the texts with a teacher's vectors, if the teacher is such files."""
    named = config.distil.teacher
    if named is None or not holds_vectors(named):
        return None
    return TaughtTexts(named, num_held_out=config.train.eval_sequences)


def open_taught_samples(corpus: Path, *, config: PretrainConfig) -> TaughtSamples:
    """Open the samples of a student that learns known vectors, with the corpus's
    vocabulary.
    """
    texts = open_taught(config)
    assert texts is not None, "the run has a teacher that is a file"
    return TaughtSamples(
        texts,
        Corpus.without_shards(corpus).tokenizer(),
        batch_size=config.distil.texts,
        seed=config.train.seed,
        longest=config.distil.text_length,
    )


def check_data(config: PretrainConfig, corpus: object, *, holds_out: bool) -> None:
    """Check what does not depend on the contents of a corpus, which may not be built
    yet.
    """
    # raises if there is none of this name
    sentence_objective(config.objective.sentence)
    for path in (*(config.data.mix or ()), *filter(None, [config.data.eval_corpus])):
        Corpus.without_shards(local_corpus(path))
    if not holds_out and not config.data.eval_corpus:
        what = f"there is nothing held out to evaluate on in {corpus}"
        advice = (
            "add data.eval_corpus=FOLDER, or build the corpus again with --held-out"
            " 0.02"
        )
        raise LitebertError("LB-510", what, next=advice)


def require_one_tokenizer(first: Corpus, second: Corpus) -> None:
    """Raise if the ids of two corpora come from different tokenizers."""
    if first.manifest.plan.tokenizer_hash != second.manifest.plan.tokenizer_hash:
        what = (
            "the corpora of a run must be made with one tokenizer: these have different"
            " vocabularies"
        )
        advice = f"build {second.path} again with --tokenizer {first.path}/tokenizer"
        raise LitebertError(
            "LB-511", what, received=f"{first.path} and {second.path}", next=advice
        )


def shares_of(config: PretrainConfig, corpus: Path) -> dict[Path, float]:
    """Return the corpora of the mix with their shares; their vocabularies must be the
    same.
    """
    data = config.data
    corpora = [
        open_corpus(path, config)
        for path in (corpus, *map(local_corpus, data.mix or ()))
    ]
    for each in corpora[1:]:
        require_one_tokenizer(corpora[0], each)
    sizes = [each.manifest.counts.tokens for each in corpora]
    found = shares(sizes, weights=data.weights, temperature=data.temperature or 1.0)
    return dict(zip((each.path for each in corpora), found, strict=True))


def plain_text_config(config: PretrainConfig) -> PretrainConfig:
    """Return the configuration that draws `distil.texts` plain texts of
    `distil.text_length` from the corpus.
    """
    distil = config.distil
    objective = ObjectiveConfig(
        sentence="none", max_seq_length=distil.text_length, short_seq_prob=SHORT_TEXTS
    )
    train = config.train.model_copy(
        update={"batch_size": distil.texts, "micro_batch_size": None}
    )
    data = config.data.model_copy(update={"mix": None})
    changed = {
        "objective": objective,
        "train": train,
        "data": data,
        "early": EarlyConfig(),
    }
    return config.model_copy(update=changed)


def batches_of(
    corpus: Path, *, config: PretrainConfig, sentence: SentenceObjective | None = None
) -> Samples:
    """Open the samples of a run: of one corpus, or of the mix.

    `sentence` is its sentence objective: a worker process lacks one that was registered
    in the training process.
    """
    if sentence and config.objective.sentence not in SENTENCE_OBJECTIVES:
        SENTENCE_OBJECTIVES.add(config.objective.sentence, sentence)
    if not config.data.mix:
        return loader_for(corpus, config=config)
    parts = shares_of(config, corpus)
    loaders = list[Samples]()
    for number, (path, share) in enumerate(parts.items()):
        purpose = f"train-of-{number}" if number else "train"
        loaders.append(loader_for(path, config=config, purpose=purpose, share=share))
    return Mixed(
        loaders,
        [*parts.values()],
        batch_size=config.train.batch_size,
        seed=config.train.seed,
    )


def loader_for(
    path: Path, *, config: PretrainConfig, purpose: str = "train", share: float = 1.0
) -> Loader | Windowed:
    """Open the samples of one corpus, which has this `share` of a mix."""
    train = config.train
    early = config.early
    corpus = open_corpus(path, config)
    given = Sampling(
        corpus.tokenizer(),
        config.objective,
        train.batch_size,
        train.seed,
        purpose,
        early_mask_prob=early.mask_prob,
        early_samples=round(
            round(early.mask_share * train.steps) * train.batch_size * share
        ),
    )
    # a corpus that fits a window is shuffled as a whole; a larger one window by window,
    # with few of its shards open
    window = config.data.window or WINDOW_PIECES
    if corpus.manifest.counts.tokens <= window:
        return Loader(corpus.shards, given)
    counts = [record.counts for record in corpus.manifest.shards]
    return Windowed(
        counts,
        partial(corpus.open_shards, windows=WINDOWS_HELD),
        given,
        window_pieces=window,
    )
