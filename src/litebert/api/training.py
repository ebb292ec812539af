"""Training as functions: `pretrain`, `distil`, `finetune`; and a check of a file before
fine-tuning.
"""

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from os import fspath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Required

from annotated_types import Ge

from litebert import cpu
from litebert import runs as on_disk
from litebert.answers import Shown
from litebert.api import corpus as corpora
from litebert.api.frames import Frame, TablePath, as_file, write_frame
from litebert.api.runs import Planned, Run, conclude
from litebert.api.settings import (
    Overrides,
    Quiet,
    Runs,
    checked,
    flags,
    overrides,
    paths,
    recipe_settings,
)
from litebert.config import FinetuneConfig, PretrainConfig, TrainConfig
from litebert.corpus.build import require_share
from litebert.corpus.text import TextSettings, require_text
from litebert.errors import LitebertError, format_count, format_duration, say
from litebert.files import format_bytes
from litebert.hub import PACKAGED, locate, packaged_model
from litebert.inference.inputs import require_count
from litebert.plugins import DATASETS
from litebert.reading.source import find_texts, is_url
from litebert.runs import claim, is_run, require_distinct, require_run_folder
from litebert.settings import DEFAULT, Setting, Settings, resolve
from litebert.tasks.check import DataReport, check_files
from litebert.tasks.own.columns import ColumnChoices, column_words
from litebert.tasks.own.table import OWN
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.text import Normalizer

# whatever needs torch is imported where it is used: `litebert pretrain --help` loads
# none
if TYPE_CHECKING:
    from litebert.train.estimate import Estimate
    from litebert.train.finetune import Prepared

# The options that `pretrain` and `distil` share, with their help in the shell.
CorpusFolder = Annotated[
    str | Path | None, "A corpus instead of texts: a folder, or a URL."
]
Minutes = Annotated[
    float | None,
    "Choose the steps so that training takes about this long on this machine.",
]
Name = Annotated[str, "Name of the run."]
VocabSize = Annotated[
    int, Ge(1), "Pieces of a vocabulary made from texts; fewer if these are small."
]
HeldOut = Annotated[float, "Share kept for evaluation."]
DryRun = Annotated[bool, "Print the plan and stop."]
LabelNames = Annotated[
    Sequence[str],
    "Names of your labels in order, O,B-PER,I-PER; also of labels 0, 1, 2 in the file.",
]


@checked
def pretrain(
    texts: corpora.Texts = (),
    *,
    corpus: CorpusFolder = None,
    start: Annotated[
        str | Path | None,
        "--from",
        "Continue from this model: a folder, or a name on the Hub.",
    ] = None,
    preset: Annotated[
        str | None, "Network: tiny, mini, small, base-v2, ... (litebert sizes)."
    ] = None,
    recipe: Annotated[
        str | None, "A name, or a TOML file: laptop by default, further with --from."
    ] = None,
    minutes: Minutes = None,
    name: Name = "albert",
    runs: Runs = "runs",
    vocab_size: VocabSize = 8_000,
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
    from litebert.corpus.storage import local_corpus
    from litebert.device import choose_device
    from litebert.distributed import join_world
    from litebert.train import pretrain as pretraining
    from litebert.train.estimate import tokens_of_step
    from litebert.train.sources import check_data, open_corpora, shares_of

    # checks that are possible before any work
    folder = _run_folder(runs, name)
    inputs = paths(texts)
    size = require_count(vocab_size, "vocab_size")
    start = None if start is None else fspath(start)
    if bool(inputs) == (corpus is not None):
        what = "pretraining needs either texts or a corpus"
        received = f"{len(inputs)} texts and --corpus {corpus}"
        raise LitebertError(
            "LB-523", what, received=received, next="litebert pretrain --help"
        )
    require_share(held_out)
    sources = find_texts(inputs) if inputs else ()
    text = TextSettings(sentences, documents, column, language)
    if sources and held_out and not any(is_url(source.location) for source in sources):
        require_text(sources, text)
    chosen = overrides(settings)
    given = flags(
        {"data.corpus": str(corpus or folder / "corpus"), "model.preset": preset}
    )
    given |= flags({"start.model": start, "train.minutes": minutes})
    _require_one_length(given | chosen, "train.minutes")
    recipe = recipe or ("further" if start else "laptop")
    resolved = resolve(
        PretrainConfig, recipe_settings("pretrain", recipe), given, chosen
    )
    has_corpus = corpus is not None or (folder / "corpus" / "corpus.json").is_file()
    check_data(
        resolved.config, folder / "corpus", holds_out=corpus is not None or held_out > 0
    )
    pretraining.shape_of(resolved)  # raises for a start or a teacher that does not fit

    def plan() -> tuple[PretrainConfig, Shown[Planned]]:
        if not quiet:
            say("measuring a few steps on this machine")
        known = (
            None
            if has_corpus
            else size
            if start is None
            else Tokenizer.load(locate(start)).vocab_size
        )
        config, needs = pretraining.plan(resolved, folder, vocab_size=known)
        train = config.train
        model = config.model
        data = str(corpus)
        tokens = train.steps * tokens_of_step(config)
        if corpus is None:
            number = format_count(len(sources), "file")
            size_in_all = sum(source.size for source in sources)
            data = (
                f"{number}, {format_bytes(size_in_all)}; {held_out:.1%} of the"
                " documents are held out"
            )
        elif config.data.mix:
            corpora = open_corpora(config, local_corpus(config.data.corpus))
            parts = zip(shares_of(corpora, config), corpora, strict=True)
            data = ", ".join(f"{share:.1%} {corpus.path}" for share, corpus in parts)
        shape = (
            f"H {model.hidden_size} x {model.num_hidden_layers} layers, E"
            f" {model.embedding_size}"
        )
        # a small text has fewer pieces
        at_most = "" if has_corpus or start else "at most "
        lines = {
            "model": f"{shape}, vocabulary {at_most}{model.vocab_size:,}",
            "parameters": f"{at_most}{needs.num_parameters:,}",
            "data": data,
            "objective": (
                f"masked LM {config.objective.mask_prob:.0%}, sentence"
                f" {config.objective.sentence}"
            ),
            "steps": f"{train.steps:,} of {train.batch_size:,} sequences",
            "tokens": f"{tokens:,} at most",
        }
        if train.minutes is not None:
            before = "" if has_corpus else ", after the corpus is made"
            lines["time"] = f"{format_duration(60 * train.minutes)} of training{before}"
        return config, _plan_of(lines, needs, train, folder, tokens=tokens)

    def build() -> None:
        """Train a vocabulary, unless training starts from a model, and build the
        corpus; keep what already exists.
        """
        claim(folder)
        speak = (lambda _: None) if quiet or was_finished else say
        vocabulary = folder / "tokenizer" if start is None else locate(start)
        rules = Normalizer(True, keep_accents)
        train = partial(
            corpora.train_vocabulary,
            texts,
            vocabulary,
            rules,
            size,
            column=column,
            is_limit=True,
        )
        # not after a build that was stopped: the texts may be others
        is_kept = has_corpus and vocabulary.exists()
        if start is None and not is_kept:
            speak(f"training a vocabulary of {size:,} pieces")
            if (number := train().vocab_size) < size:
                speak(f"the text has only {number:,} pieces")
        speak("building the corpus")
        given: Any = {
            "tokenizer": str(vocabulary),
            "output": folder / "corpus",
            "held_out": held_out,
            **asdict(text),
        }
        speak(str(corpora.corpus_build(texts, **given, quiet=quiet or was_finished)))
        known = Tokenizer.load(vocabulary)
        if (
            start is None
            and is_kept
            and (known.vocab_size, known.normalizer) != (size, rules)
        ):
            # refuses other options: the text is the same, and a small one gives the
            # same pieces again
            train()

    if dry_run:
        return Run(folder, plan=plan()[1])
    device = choose_device(resolved.config.train.device)
    with join_world(device.sums_by) as world:
        quiet = quiet or not world.is_first
        was_finished = on_disk.Run(folder).is_finished
        if not was_finished and not quiet:
            config, planned = plan()
            resolved = resolved.fill_measured(
                resolved.config.model_copy(update={"train": config.train})
            )
            say(planned.text)
        if corpus is None:  # of a finished run, too: the texts may be other ones
            world.from_first(build)
        code = pretraining.pretrain(resolved, folder, is_quiet=quiet, world=world)
        run = Run(folder, code, is_here=world.is_first)
        if world.is_first:
            conclude(run, quiet=quiet, was_finished=was_finished)
        return run


@checked
def distil(
    teacher: Annotated[
        str | Path,
        "An ALBERT, a BERT or a sentence-transformers model, or a file of vectors.",
    ],
    texts: corpora.Texts = (),
    *,
    corpus: CorpusFolder = None,
    start: Annotated[
        str | Path | None,
        "--from",
        "Continue from this student instead of the teacher's layers.",
    ] = None,
    recipe: Annotated[str, "A name, or a TOML file."] = "distil",
    minutes: Minutes = None,
    name: Name = "student",
    runs: Runs = "runs",
    vocab_size: VocabSize = 10_000,
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
    given = dict(locals())
    del given["teacher"]
    return pretrain(
        **{
            **given,
            "settings": flags({"distil.teacher": teacher}) | overrides(settings),
        }
    )


def _run_folder(runs: str | Path, name: str) -> Path:
    parts = Path(name).parts
    if not parts or Path(name).is_absolute() or ".." in parts or not name.isprintable():
        what = f"this is not a name for a folder below {runs}"
        raise LitebertError(
            "LB-920",
            what,
            received=name,
            next="choose another name, such as mine or mine/first",
        )
    folder = Path(runs) / name
    require_run_folder(folder)
    on_disk.Run(folder).require_plugins()  # of a run that is to be resumed
    return folder


def _require_one_length(chosen: Settings, one: str, other: str = "train.steps") -> None:
    lengths = {name: chosen[name].value for name in (one, other) if name in chosen}
    if len(lengths) == 2 and all(lengths.values()):  # 0 steps, or null, set nothing
        received = " and ".join(f"{name}={value}" for name, value in lengths.items())
        what = "the length of the run is set twice"
        advice = f"omit {one}, or {other}"
        raise LitebertError("LB-106", what, received=received, next=advice)


def _plan_of(
    lines: Mapping[str, str],
    needs: "Estimate",
    train: TrainConfig,
    folder: Path,
    notes: Sequence[str] = (),
    **more: int,
) -> Shown[Planned]:
    from litebert.distributed import world_size

    seconds = train.steps * needs.seconds_per_step
    size = world_size()
    batch_size = train.batch_size
    facts = {
        "threads": _threads_of(train),
        "memory": _memory_of(needs, train),
        "disk": f"{needs.disk_bytes / 2**30:.2f} GiB",
        "time": f"{format_duration(seconds)} on this machine, without evaluations",
        **lines,
    }
    if size > 1:
        gradients = 4 * needs.num_parameters  # bytes
        # by each process, in a ring all-reduce (Patarasuk and Yuan, 2009)
        sent = 2 * (size - 1) / size * gradients
        share = f"{batch_size / size:,.4g} of {batch_size:,} sequences of a step"
        held = f"all weights, gradients and moments ({4 * gradients / 1e6:,.0f} MB)"
        facts["processes"] = (
            f"{size}; each holds {held} and {share}, and sends {sent / 1e6:,.1f} MB a"
            " step"
        )
    rows = [
        *facts.items(),
        ("results", str(folder)),
        *(("note", note) for note in notes),
    ]
    width = max(len(name) for name, _ in rows)
    values: Any = {**asdict(needs), "steps": train.steps, "seconds": seconds, **more}
    return Shown(values, "\n".join(f"{name:<{width}}  {text}" for name, text in rows))


def _threads_of(train: TrainConfig) -> str:
    import torch

    number = train.threads or torch.get_num_threads()
    return cpu.explain_threads(number)


def _memory_of(needs: "Estimate", train: TrainConfig) -> str:
    """Say how much memory a run will need, and whether this process may use so much."""
    from litebert.device import choose_device

    needed = f"{needs.memory_bytes / 2**30:.2f} GiB"
    usable = cpu.usable_memory()
    is_enough = needs.memory_bytes < usable or not usable
    if is_enough or not choose_device(train.device).is_cpu:
        return needed
    owner = "this machine has"
    if cpu.find_memory_limit() is not None:
        owner = "this container may use"
    return (
        f"{needed}; {owner} {usable / 2**30:.2f} GiB: set a smaller"
        " train.micro_batch_size"
    )


@checked
def finetune(
    task: Annotated[TablePath, "A named task, or your own file of examples."],
    *,
    model: Annotated[
        str | Path | None, "A model folder, a run, or a name on the Hub."
    ] = None,
    data: Annotated[str | Path | None, "Folder of a named task."] = None,
    dev: Annotated[
        TablePath | None, "Your own evaluation file, for a TASK that is a file."
    ] = None,
    columns: Annotated[
        ColumnChoices, "--column", "ROLE=NAME: text=review, label=stars, ..."
    ] = (),
    problem: Annotated[
        str | None, "Kind of your own task, if the guess is wrong."
    ] = None,
    label_names: LabelNames = (),
    recipe: Annotated[
        str | None, "A name, or a TOML file; by default, the task's recipe."
    ] = None,
    epochs: Annotated[float | None, "Passes over the data."] = None,
    minutes: Annotated[float | None, "Train for about this long instead."] = None,
    name: Annotated[
        str | None, "Name of the run; by default, that of the task."
    ] = None,
    runs: Runs = "runs",
    seeds: Annotated[
        Sequence[int], "Several runs, 1,2,3, with median, mean and spread."
    ] = (),
    random: Annotated[bool, "Start from random weights, as a control."] = False,
    teacher: Annotated[
        str | Path | None, "Also learn from a run fine-tuned on this task."
    ] = None,
    settings: Overrides = (),
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> Run:
    """Fine-tune a model on a named task, or on your own CSV, JSONL or Parquet file;
    repeat the command to resume.

    Without a model, training starts from the packaged one.

    In Python, the file may be a DataFrame, which is written to a file beside the run,
    and `run.seeds` has a run for each seed.

    litebert finetune reviews.csv --model models/mine --column text=body --epochs 2
    litebert finetune mrpc --model models/mine --data glue
    """
    from litebert.device import choose_device
    from litebert.distributed import join_world
    from litebert.tasks.named import require_task
    from litebert.train import finetune as fine_tuning

    own = _own_file(task)
    kind = OWN if own else str(task)
    default_name = own.absolute().name.split(".")[0] if own else kind
    folder = _run_folder(runs, name or default_name)
    beside = folder.parent
    if dry_run:
        beside = Path(tempfile.gettempdir()) / f"litebert-{os.getpid()}"
    frames: dict[Path, Frame] = {}
    if isinstance(task, Frame):
        own = beside / f"{folder.name}.jsonl"
        frames[own] = task
    if isinstance(dev, Frame):
        frames[beside / f"{folder.name}-dev.jsonl"] = dev
        dev = beside / f"{folder.name}-dev.jsonl"
    require_task(kind)
    require_distinct(seeds)
    given = flags(
        {"model.start": model, "model.random": random or None, "teacher.run": teacher}
    )
    given |= flags(
        {"data.folder": data, "data.train": own, "data.dev": dev, "task.name": kind}
    )
    given |= flags(
        {
            "data.columns": list(column_words(columns)) or None,
            "data.problem": problem,
            "data.labels": _listed(label_names) or None,
            "train.epochs": epochs,
            "train.minutes": minutes,
        }
    )
    of_recipe = recipe_settings("finetune", recipe or kind)
    given = given | overrides(settings)
    for layer in (of_recipe, given):
        _require_one_length(layer, "train.epochs")
    _require_one_length(given, "train.minutes")
    _require_one_length(given, "train.minutes", "train.epochs")
    if "train.epochs" in given:  # they override the steps of the recipe, too
        given = flags({"train.steps": 0}) | given
    chosen = (
        {"model.start": Setting(str(packaged_model()), DEFAULT)} | of_recipe | given
    )
    if not {"data.folder", "data.train"} & chosen.keys():
        expected = "the folder of a named task, or your own file instead of its name"
        advice = f"litebert finetune {kind} --data FOLDER"
        raise LitebertError(
            "LB-531",
            f"the data of {kind} is missing: --data",
            expected=expected,
            next=advice,
        )
    if is_run(folder) if seeds else on_disk.Run(folder).seeds:
        what = (
            f"{folder} already has"
            f" {'a run without --seeds' if seeds else 'the runs of several seeds'}"
        )
        raise LitebertError("LB-918", what, next="choose another --name")
    resolved = resolve(FinetuneConfig, chosen)
    seeded = {
        folder / f"seed-{seed}": resolve(
            FinetuneConfig, chosen | flags({"train.seed": seed})
        )
        for seed in seeds
    }
    trained = seeded or {folder: resolved}

    def plan() -> "tuple[Prepared, Shown[Planned]]":
        prepared, needs = fine_tuning.plan_finetuning(resolved, folder)
        train = prepared.config.train
        optim = prepared.config.optim
        shape = prepared.network_config
        key = prepared.key_measure
        task = prepared.dataset
        begun = (
            PACKAGED
            if resolved.origins["model.start"] == DEFAULT
            else resolved.config.model.start
        )
        rate = (
            f"{optim.learning_rate:g}"
            f" ({prepared.resolved.origins['optim.learning_rate']})"
        )
        of_head = f", of the head {optim.head_rate_scale:g} times that" * (
            optim.head_rate_scale != 1
        )
        without = (
            f"{key} {prepared.baseline[key]:.4f} (always {task.family.baseline})"
            if key in prepared.baseline
            else "unknown"
        )
        lines = {
            "model": (
                f"{begun}, H {shape.hidden_size} x {shape.num_hidden_layers} layers"
            ),
            "task": f"{task.name}, {task.family.head.kind}",
            "parameters": f"{needs.num_parameters:,}",
            "examples": (
                f"{prepared.data['training examples']:,} in {len(prepared.features):,}"
                " sequences or windows"
            ),
            **{
                f"  {name}": f"{len(held.examples):,}"
                for name, held in prepared.held_out.items()
            },
            "steps": _describe_steps(train),
            "rate": f"{rate}{of_head}",
            "baseline": without,
            "tokens": f"{prepared.mean_tokens * train.batch_size:,.0f} a step",
        }
        return prepared, _plan_of(lines, needs, train, folder, task.notes)

    for path, frame in frames.items():
        write_frame(frame, path)
    if dry_run:
        try:
            return Run(folder, plan=plan()[1])
        finally:
            if frames:
                shutil.rmtree(beside)
    device = choose_device(resolved.config.train.device)
    with join_world(device.sums_by) as world:
        quiet = quiet or not world.is_first
        was_finished = all(on_disk.Run(each).is_finished for each in trained)
        prepared = None
        code = 0
        if not was_finished and not quiet:
            first, described = plan()
            say(described.text)
            prepared = None if seeds else first
        how: Any = {
            "prepared": prepared,
            "group": folder if seeds else None,
            "is_quiet": quiet,
            "world": world,
        }
        for each, settled in trained.items():
            # after a signal, the remaining seeds wait for the next call
            code = code or fine_tuning.finetune(settled, each, **how)
        run = Run(folder, code, is_here=world.is_first)
        if world.is_first:
            conclude(run, quiet=quiet, was_finished=was_finished)
        return run


def _own_file(task: TablePath) -> Path | None:
    """Return the user's own file, or folder, that a task names; None if it is the name
    of a task.
    """
    if isinstance(task, Frame):
        return Path(OWN)
    path = Path(task)
    is_named = str(task) in DATASETS
    return path if path.suffix or (path.exists() and not is_named) else None


def _listed(names: Sequence[str]) -> list[str]:
    """Return names that are listed, or written in one text with commas."""
    texts = [names] if isinstance(names, str) else names
    return [name for text in texts for name in text.split(",") if name]


def _describe_steps(train: TrainConfig) -> str:
    steps = f"{train.steps:,} steps"
    if train.minutes is not None:
        steps = f"as many steps as fit {format_duration(60 * train.minutes)}"
    return (
        f"{steps}, of {train.batch_size} examples, evaluated every {train.eval_every:,}"
    )


# ---- before fine-tuning --------------------------------------------------------------


def data_check(
    *files: Annotated[TablePath, Required],
    columns: Annotated[
        ColumnChoices, "--column", "ROLE=NAME: text=review, label=stars, ..."
    ] = (),
    problem: Annotated[
        str | None, "Kind of your own task, if the guess is wrong."
    ] = None,
    label_names: LabelNames = (),
    model: Annotated[
        str | None,
        "Count pieces with its vocabulary; by default, the packaged model's.",
    ] = None,
) -> DataReport:
    """Report what a file of examples contains and what is wrong with it.

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
