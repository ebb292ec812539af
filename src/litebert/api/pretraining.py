"""Pretraining as a function: from texts, or from a corpus, to a run with a model and a report."""

from __future__ import annotations

from dataclasses import dataclass
from os import fspath
from pathlib import Path

from litebert.api.corpus import build_from_texts
from litebert.api.plan import RunPlan, needs_in_numbers, needs_in_words, processes_in_words
from litebert.api.progress import Progress
from litebert.api.recipes import recipe_settings
from litebert.api.run import Run, concluded
from litebert.api.settings import Overrides, Paths, flags, overrides, paths, require_types, run_folder
from litebert.config import Origin, PretrainConfig, Resolved, resolve
from litebert.corpus.build import require_share
from litebert.corpus.text import require_text, text_settings
from litebert.distributed.world import World, joined, world_size
from litebert.errors import LitebertError
from litebert.hub import locate
from litebert.inference.model import count
from litebert.reading.source import find_texts, is_url
from litebert.runs import RunFile, read_run
from litebert.terminal import counted, say
from litebert.tokenizer import Tokenizer
from litebert.train.estimate import Estimate, most_tokens
from litebert.train.log import Listener, TensorBoard, duration
from litebert.train.pretrain import plan
from litebert.train.pretrain import pretrain as train_model
from litebert.train.run import choose_device


@dataclass(frozen=True, kw_only=True)
class PretrainJob:
    """One pretraining, checked when it is made; `plan` tells what `run` will do.

    Raises:
        LitebertError: A setting, a name or an input cannot be used.
    """

    texts: Paths = ()
    corpus: str | Path | None = None
    start: str | Path | None = None
    teacher: str | Path | None = None
    preset: str | None = None
    recipe: str | None = None
    minutes: float | None = None
    name: str = "albert"
    runs: str | Path = "runs"
    vocab_size: int = 8_000
    sentences: str = "segment"
    documents: str = "blank-line"
    column: str = "text"
    held_out: float = 0.02
    settings: Overrides = ()
    tensorboard: bool = False

    def __post_init__(self) -> None:
        """Check everything that can be checked before any work."""
        require_types(PretrainJob, vars(self))
        _require_one_source(paths(self.texts), self.corpus)
        if self.corpus is None:
            sources = find_texts(paths(self.texts))
            settings = text_settings(sentences=self.sentences, documents=self.documents, column=self.column)
            if self.held_out and not any(is_url(source.location) for source in sources):
                require_text(sources, settings)
        count(self.vocab_size, "vocab_size")
        require_share(self.held_out)
        self._require_one_length()
        _ = self.resolved

    def _require_one_length(self) -> None:
        if self.minutes is not None and "train.steps" in overrides(self.settings):
            raise LitebertError(
                "LB-106",
                "the run has two lengths",
                received=f"--minutes {self.minutes:g} and train.steps",
                expected="one of the two: --minutes chooses the steps",
                next="omit --minutes, or train.steps",
            )

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return run_folder(self.runs, self.name)

    @property
    def resolved(self) -> Resolved[PretrainConfig]:
        """The settings of the run with the origin of each."""
        given = flags(
            {
                "data.corpus": str(self.corpus or self.folder / "corpus"),
                "start.model": None if self.start is None else fspath(self.start),
                "distil.teacher": None if self.teacher is None else fspath(self.teacher),
                "model.preset": self.preset,
                "train.minutes": self.minutes,
            }
        )
        recipe = recipe_settings("pretrain", self.recipe or self._default_recipe())
        return resolve(PretrainConfig, recipe, given, overrides(self.settings))

    def _default_recipe(self) -> str:
        """Return the recipe for a start from nothing, or for a model that is trained further."""
        if self.start is None:
            return "laptop"
        recorded = read_run(self.folder) or RunFile()  # one that an earlier version began resumes with its own
        return "laptop" if Origin("recipe", "laptop") in recorded.origins.values() else "further"

    def plan(self) -> RunPlan:
        """Say what the run will do and need; writes nothing, trains no vocabulary."""
        return self._described(*self._planned())

    @property
    def _has_corpus(self) -> bool:
        return (self.folder / "corpus" / "corpus.json").is_file()

    def _planned(self) -> tuple[PretrainConfig, Estimate]:
        """Measure what the run will need."""
        say("measuring a few steps on this machine")
        if self.corpus is not None or self._has_corpus:
            return plan(self.resolved, self.folder)
        start = None if self.start is None else Tokenizer.load(locate(fspath(self.start)))
        size = self.vocab_size if start is None else start.vocab_size
        return plan(self.resolved, self.folder, vocab_size=size)

    def _described(self, config: PretrainConfig, needs: Estimate) -> RunPlan:
        train, model = config.train, config.model
        tokens = train.steps * most_tokens(config)
        lines = {
            "model": f"H {model.hidden_size} x {model.num_hidden_layers} layers, "
            f"E {model.embedding_size}, vocabulary {model.vocab_size:,}",
            "parameters": f"{needs.num_parameters:,}",
            "data": self._data(),
            "objective": f"masked LM {config.objective.mask_prob:.0%}, sentence {config.objective.sentence}",
            "steps": f"{train.steps:,} of {train.batch_size:,} sequences",
            "tokens": f"{tokens / 1e6:,.1f} M at most",
            **needs_in_words(needs, train.steps),
            **self._time(train.minutes),
            **processes_in_words(needs, world_size(), train.batch_size),
            "results": str(self.folder),
        }
        return RunPlan(lines, {**needs_in_numbers(needs, train.steps), "tokens": tokens})

    def _time(self, minutes: float | None) -> dict[str, str]:
        """Say what `minutes` count, and what comes before and after."""
        if minutes is None:
            return {}
        makes_corpus = self.corpus is None and not self._has_corpus
        made = "the corpus is made" if self.start else "the vocabulary and the corpus are made"
        before = f"; before it {made}" if makes_corpus else ""
        return {"time": f"{duration(60 * minutes)} of training{before}; after it the model and its report are written"}

    def run(self, *, quiet: bool = False) -> Run:
        """Build what is missing, train or resume, and write the report.

        Started by torchrun, each process calls this: the first one writes, all train.
        """
        with joined(choose_device(self.resolved.config.train.device)) as world:
            return self._run(world, quiet=quiet or not world.is_first)

    def _run(self, world: World, *, quiet: bool) -> Run:
        if self.teacher is not None:
            locate(fspath(self.teacher))  # before a vocabulary is trained for nothing
        was_finished = Run(self.folder).is_finished
        planned = None
        if not was_finished and not quiet:
            config, needs = self._planned()
            planned = config.train
            say(str(self._described(config, needs)))
        if self.corpus is None:
            has_all = was_finished and self._has_corpus
            world.from_first(lambda: None if has_all else self._built(quiet=quiet))
        listeners: tuple[Listener, ...] = ()
        if self.tensorboard and world.is_first:
            listeners = (TensorBoard(self.folder / "tensorboard"),)
        outcome = train_model(
            self.resolved, self.folder, is_quiet=quiet, listeners=listeners, planned=planned, world=world
        )
        run = Run(self.folder, outcome.exit_code)
        if not world.is_first:
            return run
        return concluded(run, Progress("", "", is_quiet=quiet).say, was_finished=was_finished)

    def _built(self, *, quiet: bool) -> str:
        """Build vocabulary and corpus from the texts, each unless it exists."""
        corpus = build_from_texts(
            self.texts,
            self.folder,
            vocab_size=self.vocab_size,
            start=self.start,
            sentences=self.sentences,
            documents=self.documents,
            column=self.column,
            held_out=self.held_out,
            quiet=quiet,
        )
        return str(corpus)

    def _data(self) -> str:
        if self.corpus is not None:
            return str(self.corpus)
        sources = find_texts(paths(self.texts))
        megabytes = sum(source.size for source in sources) / 1e6
        ends = "blank lines" if self.documents == "blank-line" else "the end of each file"
        held_out = f"{self.held_out:.1%} of them held out, at least one or the end of the only one"
        return f"{counted(len(sources), 'file')}, {megabytes:,.1f} MB; documents end at {ends}; {held_out}"


def pretrain(
    texts: Paths = (),
    *,
    corpus: str | Path | None = None,
    start: str | Path | None = None,
    preset: str | None = None,
    recipe: str | None = None,
    minutes: float | None = None,
    name: str = "albert",
    runs: str | Path = "runs",
    vocab_size: int = 8_000,
    sentences: str = "segment",
    documents: str = "blank-line",
    column: str = "text",
    held_out: float = 0.02,
    settings: Overrides = (),
    tensorboard: bool = False,
    quiet: bool = False,
) -> Run:
    """Pretrain an ALBERT from text files, or from a corpus; call it again to resume.

    `start` continues from a model, by the recipe `further` instead of `laptop`; `settings` override
    the recipe, as in `settings={"train.steps": 1000}`; `runs`/`name` is the folder of the run.

    Raises:
        LitebertError: A setting or an input cannot be used, or the disk is too small; this is
            checked before any work.
    """
    return PretrainJob(
        texts=texts,
        corpus=corpus,
        start=start,
        preset=preset,
        recipe=recipe,
        minutes=minutes,
        name=name,
        runs=runs,
        vocab_size=vocab_size,
        sentences=sentences,
        documents=documents,
        column=column,
        held_out=held_out,
        settings=settings,
        tensorboard=tensorboard,
    ).run(quiet=quiet)


def distil(
    teacher: str | Path,
    texts: Paths = (),
    *,
    corpus: str | Path | None = None,
    start: str | Path | None = None,
    recipe: str = "distil",
    minutes: float | None = None,
    name: str = "student",
    runs: str | Path = "runs",
    vocab_size: int = 10_000,
    sentences: str = "segment",
    documents: str = "blank-line",
    column: str = "text",
    held_out: float = 0.02,
    settings: Overrides = (),
    tensorboard: bool = False,
    quiet: bool = False,
) -> Run:
    """Distil an encoder into an ALBERT that also fills blanks and orders sentences.

    `teacher` is a model folder or a name on the Hub: an ALBERT, a BERT, a sentence-transformers
    folder. The student starts from its layers and learns from its hidden states and text vectors,
    with a vocabulary of its own. Everything else is as in `pretrain`; call it again to resume.

    Raises:
        LitebertError: A setting or an input cannot be used, or the disk is too small; this is
            checked before any work.
    """
    return PretrainJob(
        texts=texts,
        corpus=corpus,
        start=start,
        teacher=teacher,
        recipe=recipe,
        minutes=minutes,
        name=name,
        runs=runs,
        vocab_size=vocab_size,
        sentences=sentences,
        documents=documents,
        column=column,
        held_out=held_out,
        settings=settings,
        tensorboard=tensorboard,
    ).run(quiet=quiet)


def _require_one_source(texts: list[str], corpus: str | Path | None) -> None:
    if bool(texts) == (corpus is not None):
        raise LitebertError(
            "LB-523",
            "pretraining needs texts or a corpus, one of the two",
            received=f"{len(texts)} texts and --corpus {corpus}",
            expected="litebert pretrain TEXT... or litebert pretrain --corpus FOLDER",
            next="litebert pretrain --help",
        )
