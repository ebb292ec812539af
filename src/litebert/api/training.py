"""Training as functions: `pretrain`, `distil`, `finetune`; and a check of a file before
fine-tuning.
"""

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from os import fsencode, fspath
from pathlib import Path
from typing import Annotated, Any, Required

from annotated_types import Ge

from litebert import runs as on_disk
from litebert.answers import Shown
from litebert.api import corpus as corpora
from litebert.api.frames import Frame, TablePath, as_file, write_frame
from litebert.api.plans import (
    describe_corpora,
    describe_texts,
    finetuning_plan,
    pretraining_plan,
)
from litebert.api.runs import Planned, Run, conclude
from litebert.api.settings import (
    Overrides,
    Quiet,
    RecipeKind,
    Runs,
    checked,
    flags,
    overrides,
    paths,
    recipe_settings,
)
from litebert.config import OWN_FILES, FinetuneConfig, PretrainConfig
from litebert.corpus.build import require_share
from litebert.corpus.shards import MANIFEST
from litebert.corpus.text import TextSettings, require_text
from litebert.errors import LitebertError, RequestError, say
from litebert.hub import locate, packaged_model
from litebert.inference.inputs import require_count
from litebert.origins import DEFAULT
from litebert.plugins import DATASETS
from litebert.reading.remote import is_url
from litebert.reading.source import Source, find_texts
from litebert.runs import claim, is_run, require_distinct, require_run_folder
from litebert.settings import Resolved, Setting, Settings, resolve
from litebert.tasks.check import DataReport, check_files
from litebert.tasks.tables.columns import ColumnChoices, column_words
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.text import Normalizer

# whatever needs torch is imported where it is used: `litebert pretrain --help` loads
# none

# The options of `pretrain` and `distil`, with their help in the shell.
FurtherStart = Annotated[
    str | Path | None,
    "--from",
    "Continue from this model: a folder, or a name on the Hub.",
]
StudentStart = Annotated[
    str | Path | None,
    "--from",
    "Continue from this student instead of the teacher's layers.",
]
Preset = Annotated[
    str | None, "Network: tiny, mini, small, base-v2, ... (litebert sizes)."
]
PretrainRecipe = Annotated[
    str | None, "A name, or a TOML file: laptop by default, further with --from."
]
DistilRecipe = Annotated[str, "A name, or a TOML file."]
TeacherModel = Annotated[
    str | Path,
    "An ALBERT, a BERT or a sentence-transformers model, or a file of vectors.",
]
CorpusFolder = Annotated[
    str | Path | None, "A corpus instead of texts: a folder, or a URL."
]
Minutes = Annotated[
    float | None,
    "Choose the steps so that training takes about this long on this machine.",
]
Name = Annotated[str, "Name of the run."]
VocabSize = Annotated[
    int | None,
    Ge(1),
    "Pieces of a vocabulary made from texts: 8,000 by default; fewer if these are small.",
]
StudentVocabSize = Annotated[
    int | None,
    Ge(1),
    "Pieces of a vocabulary made from texts: 10,000 by default; fewer if these are"
    " small.",
]
HeldOut = Annotated[float, "Share kept for evaluation."]
DryRun = Annotated[bool, "Print the plan and stop."]
LabelNames = Annotated[
    Sequence[str],
    "Names of your labels in order, O,B-PER,I-PER; also of labels 0, 1, 2 in the file.",
]


USUAL_PIECES = 8_000  # of a vocabulary that is made from texts
USUAL_PIECES_OF_STUDENT = 10_000


@checked
def pretrain(
    texts: corpora.Texts = (),
    *,
    corpus: CorpusFolder = None,
    start: FurtherStart = None,
    preset: Preset = None,
    recipe: PretrainRecipe = None,
    minutes: Minutes = None,
    name: Name = "albert",
    runs: Runs = "runs",
    vocab_size: VocabSize = None,
    sentences: corpora.Sentences = "segment",
    documents: corpora.Documents = "blank-line",
    column: corpora.Column = "text",
    language: corpora.Language = "en",
    keep_accents: corpora.KeepAccents = False,
    held_out: HeldOut = 0.02,
    settings: Overrides = (),
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> Run:
    """Pretrain an ALBERT on texts, or on a corpus, and write a report; repeat the
    command to resume.

    A vocabulary and a corpus are made from the texts first. Settings such as
    train.steps=1000 override the recipe. Whatever can be checked is checked before any
    work begins. A dry run measures a few steps and writes nothing.

    In Python, settings are given as `settings={"train.steps": 1000}`, and the result of
    a dry run has a `plan`.

    litebert pretrain my-text.txt --preset mini --minutes 30 --name mine
    litebert pretrain --corpus corpora/wiki --recipe paper-base train.steps=1000
    """
    folder = _run_folder(runs, name)
    start_path = None if start is None else fspath(start)
    if start_path is not None:
        _require_no_vocabulary(start_path, vocab_size, keep_accents=keep_accents)
    num_pieces = USUAL_PIECES if vocab_size is None else vocab_size
    texts_of_run = _TextsOfRun(
        inputs=tuple(paths(texts)),
        folder=folder,
        start=start_path,
        vocab_size=require_count(num_pieces, "vocab_size"),
        text=TextSettings(sentences, documents, column, language),
        rules=Normalizer(True, keep_accents),
        held_out=held_out,
    )
    _require_texts_or_corpus(texts_of_run.inputs, corpus)
    texts_of_run.check()
    options = {
        "data.corpus": str(corpus or texts_of_run.corpus),
        "model.preset": preset,
        "start.model": start_path,
        "train.minutes": minutes,
    }
    usual_recipe = "further" if start_path else "laptop"
    of_recipe, typed = settings_of(
        "pretrain", recipe or usual_recipe, options, settings
    )
    resolved = resolve(PretrainConfig, of_recipe, typed)
    to_build = texts_of_run if corpus is None else None
    return _pretrain(resolved, folder, to_build, dry_run=dry_run, quiet=quiet)


def _pretrain(
    resolved: Resolved[PretrainConfig],
    folder: Path,
    texts: "_TextsOfRun | None",
    *,
    dry_run: bool,
    quiet: bool,
) -> Run:
    """Plan, build the corpus, train; without `texts`, there is a corpus already."""
    from litebert.device import choose_device
    from litebert.distributed import join_world
    from litebert.train.completion import shape_of
    from litebert.train.pretrain import pretrain as train
    from litebert.train.sources import check_data, open_taught

    holds_out = texts is None or texts.held_out > 0
    check_data(resolved.config, folder / "corpus", holds_out=holds_out)
    shape_of(resolved)  # raises for a start or a teacher that does not fit
    if dry_run or texts is not None:  # otherwise, training opens them next
        open_taught(resolved.config)  # raises for vectors that do not fit their texts
    if dry_run:
        _, planned = _plan_pretraining(resolved, folder, texts, quiet=quiet)
        return Run(folder, plan=planned)
    device = choose_device(resolved.config.train.device)
    with join_world(device.distributed_backend) as world:
        is_quiet = quiet or not world.is_first
        was_finished = on_disk.RunFolder(folder).is_finished
        settled = resolved
        if not was_finished and not is_quiet:
            # the plan measures what the run needs to know, such as its steps
            settled, planned = _plan_pretraining(resolved, folder, texts, quiet=False)
            say(planned.text)
        if texts is not None:  # of a finished run, too: the texts may be other ones
            silent = is_quiet or was_finished
            world.from_first(lambda: texts.build(quiet=silent))
        code = train(settled, folder, is_quiet=is_quiet, world=world)
        run = Run(folder, code, is_here=world.is_first)
        if world.is_first:
            conclude(run, quiet=is_quiet, was_finished=was_finished)
        return run


def _plan_pretraining(
    resolved: Resolved[PretrainConfig],
    folder: Path,
    texts: "_TextsOfRun | None",
    *,
    quiet: bool,
) -> tuple[Resolved[PretrainConfig], Shown[Planned]]:
    """Measure a few steps; return the settings with those that were measured, and the
    plan.
    """
    from litebert.train.completion import plan

    if not quiet:
        say("measuring a few steps on this machine")
    has_corpus = texts is None or texts.has_corpus
    vocab_size = None if texts is None or has_corpus else texts.expected_vocab_size
    config, needs = plan(resolved, folder, vocab_size=vocab_size)
    if texts is None:
        data = describe_corpora(config)
    else:
        data = describe_texts(texts.sources, texts.held_out)
        if not quiet:
            for doubt in texts.doubts():
                say(doubt)
    planned = pretraining_plan(
        config,
        needs,
        folder,
        data=data,
        is_vocabulary_known=has_corpus or resolved.config.start.model is not None,
        has_corpus=has_corpus,
    )
    measured = resolved.config.model_copy(update={"train": config.train})
    return resolved.fill_measured(measured), planned


def _require_texts_or_corpus(inputs: Sequence[str], corpus: object) -> None:
    if bool(inputs) != (corpus is not None):
        return
    raise LitebertError(
        "LB-523",
        "pretraining needs either texts or a corpus",
        received=f"{len(inputs)} texts and --corpus {corpus}",
        next="litebert pretrain --help",
    )


def _require_no_vocabulary(
    start: str, vocab_size: int | None, *, keep_accents: bool
) -> None:
    """Raise for options of a vocabulary, which a model that is continued has already."""
    options = {"--vocab-size": vocab_size is not None, "--keep-accents": keep_accents}
    for flag, is_chosen in options.items():
        if is_chosen:
            raise RequestError(
                "LB-916",
                f"{flag} has no effect on a run that continues a model: its vocabulary"
                " stays",
                received=f"--from {start} {flag}",
                next=f"omit {flag}; or omit --from, to make a vocabulary",
            )


MANY_FILES = 10
LARGEST_DOCUMENT = 1 << 20  # bytes; a larger file rather has several documents


@dataclass(frozen=True)
class _TextsOfRun:
    """The texts of a run, and how they become its vocabulary and its corpus."""

    inputs: tuple[str, ...]
    folder: Path  # of the run
    start: str | None  # the model that training starts from has a vocabulary
    vocab_size: int
    text: TextSettings
    rules: Normalizer
    held_out: float

    @property
    def corpus(self) -> Path:
        return self.folder / "corpus"

    @property
    def has_corpus(self) -> bool:
        return (self.corpus / MANIFEST).is_file()

    @property
    def sources(self) -> Sequence[Source]:
        return find_texts(self.inputs) if self.inputs else ()

    @property
    def expected_vocab_size(self) -> int:
        """The size of the vocabulary before it is made; a small text has fewer
        pieces.
        """
        if self.start is None:
            return self.vocab_size
        return Tokenizer.load(locate(self.start)).vocab_size

    def check(self) -> None:
        """Check what is possible before any work: there is a share to hold out, and
        text.
        """
        require_share(self.held_out)
        sources = self.sources
        is_local = not any(is_url(source.location) for source in sources)
        if sources and self.held_out and is_local:
            require_text(sources, self.text)

    def doubts(self) -> list[str]:
        """Say where the choices hardly fit the texts: the documents, the language, and
        marks that the vocabulary of the start model drops.
        """
        doubts = list[str]()
        if self._are_files_likely_documents():
            doubts.append(
                f"note: documents end at blank lines; if each of the"
                f" {len(self.sources):,} files is one document, add --documents file"
            )
        if self.start is None or not self.inputs:
            return doubts
        start = locate(self.start)
        if start == packaged_model() and self.text.language != "en":
            doubts.append(
                "warning: the packaged model and its vocabulary are English; --language"
                f" {self.text.language} changes only where sentences end. Omit --from"
                " to train a model of another language"
            )
        tokenizer = Tokenizer.load(start)
        dropped = corpora.marks_dropped(tokenizer, self.inputs, column=self.text.column)
        if dropped:
            doubts.append(
                f"warning: {dropped}; --keep-accents without --from keeps them"
            )
        return doubts

    def _are_files_likely_documents(self) -> bool:
        """Return whether there are many small text files, whose documents end at blank
        lines.
        """
        texts = [source for source in self.sources if source.kind == ".txt"]
        is_small = all(source.size <= LARGEST_DOCUMENT for source in texts)
        has_many = len(texts) >= MANY_FILES
        return has_many and is_small and self.text.documents == "blank-line"

    def build(self, *, quiet: bool) -> None:
        """Train a vocabulary, unless training starts from a model, and build the
        corpus; keep what already exists.
        """
        claim(self.folder)
        vocabulary = self.folder / "tokenizer"
        if self.start is not None:
            vocabulary = locate(self.start)
        # After a build that was stopped, this command may name other texts: then the
        # vocabulary is trained again.
        is_kept = self.has_corpus and vocabulary.exists()
        if self.start is None and not is_kept:
            self._train_vocabulary(vocabulary, quiet=quiet)
        if not quiet:
            say("building the corpus")
        summary = corpora.corpus_build(
            self.inputs,
            tokenizer=str(vocabulary),
            output=self.corpus,
            held_out=self.held_out,
            **asdict(self.text),
            quiet=quiet,
        )
        if not quiet:
            say(str(summary))
        if self.start is None and is_kept and self._has_other_rules(vocabulary):
            # The texts are the same as before, but the options differ. This raises,
            # unless they give the same pieces, as a small text does for any size.
            self._train_vocabulary(vocabulary, quiet=True)

    def _has_other_rules(self, vocabulary: Path) -> bool:
        kept = Tokenizer.load(vocabulary)
        return (kept.vocab_size, kept.normalizer) != (self.vocab_size, self.rules)

    def _train_vocabulary(self, folder: Path, *, quiet: bool) -> None:
        if not quiet:
            say(f"training a vocabulary of {self.vocab_size:,} pieces")
        tokenizer = corpora.train_vocabulary(
            self.inputs,
            folder,
            self.rules,
            self.vocab_size,
            column=self.text.column,
            is_limit=True,
        )
        if tokenizer.vocab_size < self.vocab_size and not quiet:
            say(f"the text has only {tokenizer.vocab_size:,} pieces")


@checked
def distil(
    teacher: TeacherModel,
    texts: corpora.Texts = (),
    *,
    corpus: CorpusFolder = None,
    start: StudentStart = None,
    recipe: DistilRecipe = "distil",
    minutes: Minutes = None,
    name: Name = "student",
    runs: Runs = "runs",
    vocab_size: StudentVocabSize = None,
    sentences: corpora.Sentences = "segment",
    documents: corpora.Documents = "blank-line",
    column: corpora.Column = "text",
    language: corpora.Language = "en",
    keep_accents: corpora.KeepAccents = False,
    held_out: HeldOut = 0.02,
    settings: Overrides = (),
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> Run:
    """Distil TEACHER into an ALBERT that also fills blanks and orders sentences; repeat
    the command to resume.

    The teacher is a model folder or a name on the Hub: an ALBERT, a BERT, a
    sentence-transformers folder. The student starts from its layers and learns from its
    hidden states and text vectors, but has its own vocabulary. Or the teacher is
    vectors.npy beside its texts, vectors.txt or vectors.jsonl, or a folder of such
    files.

    litebert distil sentence-transformers/all-MiniLM-L6-v2 my-text.txt --minutes 60 --name mine
    litebert distil models/teacher --corpus corpora/wiki model.num_hidden_groups=2
    """
    num_pieces = vocab_size
    if vocab_size is None and start is None:
        num_pieces = USUAL_PIECES_OF_STUDENT
    return pretrain(
        texts,
        corpus=corpus,
        start=start,
        recipe=recipe,
        minutes=minutes,
        name=name,
        runs=runs,
        vocab_size=num_pieces,
        sentences=sentences,
        documents=documents,
        column=column,
        language=language,
        keep_accents=keep_accents,
        held_out=held_out,
        settings=flags({"distil.teacher": teacher}) | overrides(settings),
        dry_run=dry_run,
        quiet=quiet,
    )


# ---- folders and settings of both ----------------------------------------------------

LONGEST_NAME = 200  # bytes; disks take 255, and files of a run may have longer names


def _run_folder(runs: str | Path, name: str) -> Path:
    path = Path(name)
    is_inside = bool(path.parts) and not path.is_absolute() and ".." not in path.parts
    if not is_inside or not name.isprintable():
        raise LitebertError(
            "LB-920",
            f"this is not a name for a folder below {runs}",
            received=name,
            next="choose another --name, such as mine or mine/first",
        )
    _require_short_parts(path)
    folder = Path(runs) / name
    require_run_folder(folder)
    on_disk.RunFolder(folder).require_plugins()  # of a run that is to be resumed
    return folder


def _require_short_parts(name: Path) -> None:
    longest = max(len(fsencode(part)) for part in name.parts)
    if longest > LONGEST_NAME:
        raise LitebertError(
            "LB-920",
            "the name of the run is too long for a folder",
            received=f"{longest} bytes",
            expected=f"at most {LONGEST_NAME}",
            next="choose a shorter --name",
        )


def settings_of(
    kind: RecipeKind, recipe: str, options: Mapping[str, Any], words: Overrides
) -> tuple[Settings, Settings]:
    """Return the settings of a recipe, and those that were typed: options, over which
    `words` such as train.steps=1000 win. The length of the run must be set once.
    """
    of_recipe = recipe_settings(kind, recipe)
    typed = flags(options) | overrides(words)
    _require_one_length(typed, "train.minutes", "train.steps")
    if kind == "finetune":
        _require_one_length(of_recipe, "train.epochs", "train.steps")
        _require_one_length(typed, "train.epochs", "train.steps")
        _require_one_length(typed, "train.minutes", "train.epochs")
    return of_recipe, typed


def _require_one_length(settings: Settings, first: str, second: str) -> None:
    lengths = dict[str, Any]()
    for name in (first, second):
        if name in settings and settings[name].value:  # 0 steps, or null, set nothing
            lengths[name] = settings[name].value
    if len(lengths) < 2:
        return
    raise LitebertError(
        "LB-106",
        "the length of the run is set twice",
        received=" and ".join(f"{name}={value}" for name, value in lengths.items()),
        next=f"omit {first}, or {second}",
    )


# ---- fine-tuning ---------------------------------------------------------------------

# The options of `finetune`, with their help in the shell.
TaskOrFile = Annotated[TablePath, "A named task, or your own file of examples."]
StartModel = Annotated[
    str | Path | None, "A model folder, a run, or a name on the Hub."
]
TaskFolder = Annotated[str | Path | None, "Folder of a named task."]
HeldOutFile = Annotated[
    TablePath | None, "Your own evaluation file, for a TASK that is a file."
]
TaskColumns = Annotated[
    ColumnChoices, "--column", "ROLE=NAME: text=review, label=stars, ..."
]
Problem = Annotated[str | None, "Kind of your own task, if the guess is wrong."]
TaskRecipe = Annotated[
    str | None, "A name, or a TOML file; by default, the task's recipe."
]
Epochs = Annotated[float | None, "Passes over the data."]
TaskMinutes = Annotated[float | None, "Train for about this long instead."]
TaskRunName = Annotated[str | None, "Name of the run; by default, that of the task."]
Seeds = Annotated[Sequence[int], "Several runs, 1,2,3, with median, mean and spread."]
RandomStart = Annotated[bool, "Start from random weights, as a control."]
TeacherRun = Annotated[
    str | Path | None, "Also learn from a run fine-tuned on this task."
]


@checked
def finetune(
    task: TaskOrFile,
    *,
    model: StartModel = None,
    data: TaskFolder = None,
    dev: HeldOutFile = None,
    columns: TaskColumns = (),
    problem: Problem = None,
    label_names: LabelNames = (),
    recipe: TaskRecipe = None,
    epochs: Epochs = None,
    minutes: TaskMinutes = None,
    name: TaskRunName = None,
    runs: Runs = "runs",
    seeds: Seeds = (),
    random: RandomStart = False,
    teacher: TeacherRun = None,
    settings: Overrides = (),
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> Run:
    """Fine-tune a model on a named task, or on your own table (.csv, .xlsx, .jsonl,
    .parquet, .conll, ...) or folder of texts; repeat the command to resume.

    Without a model, training starts from the packaged one.

    In Python, the file may be a DataFrame, which is written to a file beside the run,
    and `run.seeds` has a run for each seed.

    litebert finetune reviews.csv --model models/mine --column text=body --epochs 2
    litebert finetune mrpc --model models/mine --data glue
    """
    from litebert.tasks.named import require_task

    own_file = _own_file(task, is_named=data is not None)
    kind = OWN_FILES if own_file else str(task)
    default_name = own_file.absolute().name.split(".")[0] if own_file else kind
    folder = _run_folder(runs, name or default_name)
    frames = _FrameFiles.of_run(folder, is_temporary=dry_run)
    train_path = own_file
    if isinstance(task, Frame):
        train_path = frames.add(task, f"{folder.name}.jsonl")
    dev_path = dev
    if isinstance(dev, Frame):
        dev_path = frames.add(dev, f"{folder.name}-dev.jsonl")
    require_task(kind)
    require_distinct(seeds)
    options = {
        "model.start": model,
        "model.random": random or None,
        "teacher.run": teacher,
        "data.folder": data,
        "data.train": train_path,
        "data.dev": dev_path,
        "task.name": kind,
        "data.columns": list(column_words(columns)) or None,
        "data.problem": problem,
        "data.labels": _listed(label_names) or None,
        "train.epochs": epochs,
        "train.minutes": minutes,
    }
    chosen = _settings_of_finetuning(recipe or kind, options, settings)
    _require_data(chosen, kind)
    _require_same_kind_of_run(folder, has_seeds=bool(seeds))
    resolved = resolve(FinetuneConfig, chosen)
    parts = {folder: resolved}  # the run, or a run for each seed
    if seeds:
        parts = _runs_of_seeds(folder, chosen, seeds)
    try:
        frames.write()
        if dry_run:
            return _plan_finetuning(resolved, folder)
        return _finetune(resolved, folder, parts, quiet=quiet)
    finally:
        frames.clean(has_begun=any(on_disk.is_run(part) for part in parts))


def _settings_of_finetuning(
    recipe: str, options: Mapping[str, Any], words: Overrides
) -> Settings:
    """Return all settings that are not defaults; without a model, training starts from
    the packaged one.
    """
    of_recipe, typed = settings_of("finetune", recipe, options, words)
    packaged = {"model.start": Setting(str(packaged_model()), DEFAULT)}
    if "train.epochs" in typed:  # they override the steps of the recipe, too
        return packaged | of_recipe | flags({"train.steps": 0}) | typed
    return packaged | of_recipe | typed


def _own_file(task: TablePath, *, is_named: bool) -> Path | None:
    """Return the user's own file, or folder, that a task names; None if it is the name
    of a task, as one with a folder of data is even if a folder has this name.
    """
    if isinstance(task, Frame):
        return Path(OWN_FILES)
    path = Path(task)
    is_own = path.exists() and not is_named and str(task) not in DATASETS
    return path if path.suffix or is_own else None


def _listed(names: Sequence[str]) -> list[str]:
    """Return names that are listed, or written in one text with commas."""
    text = names if isinstance(names, str) else ",".join(names)
    return list(filter(None, text.split(",")))


@dataclass(frozen=True)
class _FrameFiles:
    """Data frames as files beside the run, which reads them again when it resumes; a
    dry run has them in a temporary folder.
    """

    folder: Path
    is_temporary: bool
    frames: dict[Path, Frame] = field(default_factory=dict)
    new_files: list[Path] = field(default_factory=list)

    @classmethod
    def of_run(cls, folder: Path, *, is_temporary: bool) -> "_FrameFiles":
        if is_temporary:
            temporary = Path(tempfile.gettempdir()) / f"litebert-{os.getpid()}"
            return cls(temporary, is_temporary)
        return cls(folder.parent, is_temporary)

    def add(self, frame: Frame, name: str) -> Path:
        """Return the path that a frame will have."""
        path = self.folder / name
        self.frames[path] = frame
        return path

    def write(self) -> None:
        for path, frame in self.frames.items():
            if not path.exists():
                self.new_files.append(path)
            write_frame(frame, path)

    def clean(self, *, has_begun: bool) -> None:
        """Remove temporary files, and those of a run that was refused before it began:
        a corrected DataFrame may take its name.
        """
        if self.is_temporary and self.folder.exists():
            shutil.rmtree(self.folder)
        elif not has_begun:
            for path in self.new_files:
                path.unlink(missing_ok=True)


def _runs_of_seeds(
    folder: Path, chosen: Settings, seeds: Sequence[int]
) -> dict[Path, Resolved[FinetuneConfig]]:
    parts = dict[Path, Resolved[FinetuneConfig]]()
    for seed in seeds:
        settings = chosen | flags({"train.seed": seed})
        parts[folder / f"seed-{seed}"] = resolve(FinetuneConfig, settings)
    return parts


def _plan_finetuning(resolved: Resolved[FinetuneConfig], folder: Path) -> Run:
    from litebert.train.preparation import plan_finetuning

    prepared, needs = plan_finetuning(resolved, folder)
    return Run(folder, plan=finetuning_plan(prepared, needs, folder))


def _finetune(
    resolved: Resolved[FinetuneConfig],
    folder: Path,
    parts: Mapping[Path, Resolved[FinetuneConfig]],
    *,
    quiet: bool,
) -> Run:
    """Show the plan, and train each part: the run itself, or a run for each seed."""
    from litebert.device import choose_device
    from litebert.distributed import join_world
    from litebert.train.finetune import finetune as train
    from litebert.train.preparation import plan_finetuning

    has_seeds = folder not in parts
    device = choose_device(resolved.config.train.device)
    with join_world(device.distributed_backend) as world:
        is_quiet = quiet or not world.is_first
        was_finished = all(on_disk.RunFolder(part).is_finished for part in parts)
        group = folder if has_seeds else None
        reusable = None  # what the plan has prepared, for a run of the same seed
        if not was_finished and not is_quiet:
            prepared, needs = plan_finetuning(resolved, folder)
            say(finetuning_plan(prepared, needs, folder).text)
            reusable = None if has_seeds else prepared
        code = 0
        for part, settled in parts.items():
            if code:  # after a signal, the remaining seeds wait for the next call
                break
            code = train(
                settled,
                part,
                prepared=reusable,
                group=group,
                is_quiet=is_quiet,
                world=world,
            )
        run = Run(folder, code, is_here=world.is_first)
        if world.is_first:
            conclude(run, quiet=is_quiet, was_finished=was_finished)
        return run


def _require_data(chosen: Settings, task: str) -> None:
    if "data.folder" in chosen or "data.train" in chosen:
        return
    raise LitebertError(
        "LB-531",
        f"the data of {task} is missing: --data",
        expected="the folder of a named task, or your own file instead of its name",
        next=f"litebert finetune {task} --data FOLDER",
    )


def _require_same_kind_of_run(folder: Path, *, has_seeds: bool) -> None:
    """Raise if the folder has one run and several seeds are wanted, or the reverse."""
    if has_seeds and is_run(folder):
        present = "a run without --seeds"
    elif not has_seeds and on_disk.RunFolder(folder).seeds:
        present = "the runs of several seeds"
    else:
        return
    raise LitebertError(
        "LB-918", f"{folder} already has {present}", next="choose another --name"
    )


# ---- before fine-tuning --------------------------------------------------------------


def data_check(
    *files: Annotated[TablePath, Required],
    columns: TaskColumns = (),
    problem: Problem = None,
    label_names: LabelNames = (),
    model: Annotated[
        str | None,
        "Count pieces with its vocabulary; by default, the packaged model's.",
    ] = None,
) -> DataReport:
    """Report what a file of examples contains and what is wrong with it: a table (.csv,
    .xlsx, .jsonl, .parquet, .conll, ...), or a folder of texts for each label.

    The first FILE is for training; the others, for evaluation, are compared with it.
    Exit code 3: it cannot train.

    litebert data check reviews.csv --column text=body --model models/mine
    litebert data check train.jsonl dev.jsonl test.jsonl --json
    """
    tokenizer = Tokenizer.load(corpora.vocabulary_path(model))
    with ExitStack() as stack:
        paths = [Path(str(stack.enter_context(as_file(file)))) for file in files]
        return check_files(
            paths[0],
            paths[1:],
            columns=column_words(columns),
            problem=problem,
            labels=tuple(_listed(label_names)),
            tokenizer=tokenizer,
        )
