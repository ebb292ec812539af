"""Evaluate fine-tuned and pretrained models, answer whole splits, and run all of
GLUE.
"""

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal, Required

from annotated_types import Ge
from typing_extensions import TypedDict

from litebert.api.frames import Frame, TablePath, as_file
from litebert.api.runs import Run
from litebert.api.settings import (
    Overrides,
    Paths,
    Quiet,
    Runs,
    checked,
    paths,
    progress,
)
from litebert.api.training import finetune
from litebert.config import (
    DeviceName,
    ObjectiveConfig,
    Precision,
    PretrainConfig,
    TrainConfig,
)
from litebert.corpus import Corpus, build_corpus
from litebert.errors import LitebertError, RequestError, format_count, no_such_name, say
from litebert.files import require_new, staged_folder, write_bytes, write_text
from litebert.hub import locate
from litebert.objectives import CorpusLoader, LoaderSettings
from litebert.reading.source import find_files
from litebert.report.tables import Table
from litebert.tasks.own.columns import ColumnChoices, column_words
from litebert.tasks.own.layouts import is_table
from litebert.tokenizer import Tokenizer
from litebert.train.sources import Sources

# whatever needs torch is imported where it is used: `litebert evaluate --help` loads
# none
if TYPE_CHECKING:
    from litebert.folder import ModelFolder
    from litebert.inference.finetuned import Finetuned
    from litebert.nn import AlbertForPretraining
    from litebert.objectives.sequences import PretrainingBatch
    from litebert.runs import AnswerRow
    from litebert.tasks.kinds.family import Dataset

Models = Annotated[
    Paths,
    "Runs or model folders; RUN means its last step, RUN/best its best evaluation.",
]
TaskName = Annotated[
    str | None, "Name of the task, for a model folder without its run."
]
Columns = Annotated[
    ColumnChoices, "--column", "ROLE=NAME, columns of your file: text=review, ..."
]
Activations = Annotated[
    Precision | None, "Precision of activations; by default, that of the training."
]


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Measures by split and name.

    `baseline` has the same measures for the answer `constant` to everything: the
    commonest label, or the closest thing to it in this kind of task; empty for a
    pretrained model. `doubts` are reasons not to trust a result.
    """

    measures: dict[str, dict[str, float]]
    baseline: dict[str, dict[str, float]] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()
    constant: str = "the most common label"

    def as_json(self) -> dict[str, dict[str, float]]:
        return self.measures

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(f"warning {doubt}" for doubt in self.doubts)

    def __repr__(self) -> str:
        lines = []
        for split, values in self.measures.items():
            constant = self.baseline.get(split, {})
            what = self.constant.removeprefix("the ")
            for name, value in values.items():
                beside = f"  ({what} {constant[name]:.4f})" if name in constant else ""
                lines.append(f"{split:<16} {name:<24} {value:.4f}{beside}")
        return "\n".join(lines)


# What can be evaluated, and the options that each uses besides those of all.
FINE_TUNED = "a fine-tuned model"
PRETRAINED = "a pretrained model"
WITHOUT_TUNING = "a measure without fine-tuning"
PREDICTIONS = "a prediction file"
OPTIONS = {
    FINE_TUNED: ("split", "task", "columns", "device", "precision"),
    PRETRAINED: ("columns", "device", "precision"),
    WITHOUT_TUNING: ("on", "limit", "device", "precision"),
    PREDICTIONS: ("predictions", "null_odds"),
}
OF_ALL = ("models", "data", "quiet")
# sequences of texts on which a pretrained model is measured
MAX_SEQUENCES = 1_024


@checked
def evaluate(
    models: Models = (),
    *,
    data: Annotated[
        TablePath | None,
        "Folder or file of examples; for a pretrained model, of text.",
    ] = None,
    on: Annotated[
        Literal["blimp", "sts", "retrieval"] | None,
        "Measure a model without fine-tuning.",
    ] = None,
    limit: Annotated[
        int | None, Ge(1), "With --on: maximum rows to use (BLiMP: of each paradigm)."
    ] = None,
    split: Annotated[str | None, "Any split of the task; dev by default."] = None,
    task: TaskName = None,
    columns: Columns = (),
    device: DeviceName = "auto",
    precision: Activations = None,
    predictions: Annotated[
        str | Path | None, "Score this file instead of a model."
    ] = None,
    null_odds: Annotated[
        str | Path | None, "SQuAD 2.0: the file null_odds.json."
    ] = None,
    quiet: Quiet = False,
) -> Evaluation:
    """Evaluate a model, given its run or its folder; the answers of several fine-tuned
    runs are averaged.

    A pretrained model is evaluated on masked LM and sentence order, with the texts of
    --data (at most 1,024 sequences) or the held-out data of its run; with --on, on a
    task that needs no fine-tuning: minimal pairs (BLiMP), scored sentence pairs, or
    questions and their paragraphs in SQuAD's layout.

    litebert evaluate runs/mrpc --data glue
    litebert evaluate runs/mine --data my-text.txt
    litebert evaluate models/mine --on sts --data STS-B/dev.tsv
    litebert evaluate --predictions predictions.json --data dev-v1.1.json
    """
    arguments = dict(locals())
    chosen = paths(models)
    _require_one_thing(chosen, predictions, on)
    run = Run.of(chosen[0]) if chosen else None
    if run is None and chosen:
        locate(chosen[0])  # raises if there is no such model
    kind = _kind_of(run, arguments, len(chosen))
    _refuse_unused(arguments, kind, run)
    if data is None and (on or run is None):
        raise LitebertError(
            "LB-526",
            f"{kind} needs data to measure on: --data",
            next="litebert evaluate --help",
        )
    words = column_words(columns)
    with as_file(data) as file:
        if kind == PRETRAINED:
            return _evaluate_pretrained(chosen[0], file, words, device, precision)
        if kind == FINE_TUNED:
            return _evaluate_finetuned(
                chosen,
                file,
                split,
                quiet,
                task=task,
                columns=words,
                device=device,
                precision=precision,
            )
        assert file is not None, "checked above"
        if predictions is not None:
            return _score_predictions(file, predictions, null_odds)
        assert on is not None
        return _measure_untuned(on, chosen[0], file, limit, device, precision)


def _require_one_thing(
    models: Sequence[str], predictions: str | Path | None, on: str | None
) -> None:
    """Raise unless there are models or a file of predictions; without fine-tuning, one
    model.
    """
    is_one = (predictions is None) == bool(models)
    if is_one and (on is None or len(models) == 1):
        return
    received = format_count(len(models), "model")
    if predictions is not None:
        received += f" and the predictions {predictions}"
    raise LitebertError(
        "LB-525",
        "give one model, or --predictions FILE",
        received=received,
        expected="a run or several; with --on, a single one",
        next="litebert evaluate --help",
    )


def _kind_of(run: Run | None, arguments: Mapping[str, Any], num_models: int) -> str:
    """Return what is to be evaluated; a model folder without its run is a fine-tuned
    one if its task is named, or there are rows that show it.
    """
    if arguments["predictions"] is not None:
        return PREDICTIONS
    if arguments["on"] is not None:
        return WITHOUT_TUNING
    if num_models > 1:
        return FINE_TUNED
    if run is not None:
        return PRETRAINED if run.kind == "pretraining" else FINE_TUNED
    if arguments["task"] is not None:
        return FINE_TUNED
    from litebert.folder.config import read_head

    (model,) = paths(arguments["models"])
    head = read_head(locate(model))
    if head is None:
        return PRETRAINED
    data = arguments["data"]
    if data is not None and (isinstance(data, Frame) or is_table(data)):
        return FINE_TUNED
    raise LitebertError(
        "LB-613",
        f"{model} is a fine-tuned model, but no file in it names its task",
        received=str(head),
        expected="labelled rows of your own (--data FILE), or a named task and its data",
        next=f"litebert evaluate {quote(model)} --task mrpc --data FOLDER",
    )


def _refuse_unused(arguments: Mapping[str, Any], kind: str, run: Run | None) -> None:
    """Raise for an option that has no effect; the task of a run is known."""
    used = {*OF_ALL, *OPTIONS[kind]}
    if run is not None:
        used.discard("task")
    for name, value in arguments.items():
        if name in used or value in (None, (), [], "auto"):
            continue
        flag = "--column" if name == "columns" else f"--{name.replace('_', '-')}"
        raise RequestError(
            "LB-916",
            f"{flag} has no effect on {kind}",
            received=f"{flag} for {kind}",
            next=f"omit {flag}",
        )


# ---- what can be evaluated -----------------------------------------------------------


def _score_predictions(
    data: str, predictions: str | Path, null_odds: str | Path | None
) -> Evaluation:
    """Score a file of predictions, as the official scripts of SQuAD do."""
    from litebert.tasks.named.questions import score_predictions

    measures = score_predictions(Path(data), Path(predictions), null_odds=null_odds)
    return Evaluation({"predictions": measures})


def _measure_untuned(
    measure: str,
    path: str,
    data: str,
    limit: int | None,
    device: str,
    precision: Precision | None,
) -> Evaluation:
    """Measure a model on a task that needs no fine-tuning."""
    from litebert.inference.measures import MEASURES
    from litebert.inference.model import Model

    model = Model.load(path, device=device, precision=precision)
    return Evaluation({measure: MEASURES[measure](model, Path(data), limit=limit)})


def _evaluate_finetuned(
    models: Sequence[str],
    data: str | None,
    split: str | None,
    quiet: bool,
    **how: Any,
) -> Evaluation:
    """Measure one fine-tuned model, or the mean of the answers of several, on a split,
    or on all development splits.
    """
    from litebert.inference.finetuned import data_of, measure_split
    from litebert.tasks.doubts import doubts

    measures = dict[str, dict[str, float]]()
    baseline = dict[str, dict[str, float]]()
    reasons = list[str]()
    with progress("examples evaluated", is_quiet=quiet) as advance:
        opened = _open_models(models, quiet, advance, data=data, **how)
        folder = data_of(models[0]) if data is None else Path(data)
        dataset = opened[0].dataset
        family = dataset.family
        splits = dataset.dev_splits if split is None else [split]
        for name in splits:
            measures[name], examples, answers = measure_split(opened, folder, name)
            constant = family.constant(examples, examples)
            baseline[name] = family.measures(examples, constant)
            reasons += doubts(
                dataset.key_measure,
                measures[name],
                baseline[name],
                {name: family.rows(examples, answers)},
                family.baseline,
            )
    return Evaluation(measures, baseline, tuple(reasons), family.baseline)


def _open_models(
    models: Sequence[str], quiet: bool, advance: Callable[[int], None], **how: Any
) -> "list[Finetuned]":
    from litebert.inference.finetuned import Finetuned

    opened = [Finetuned.open(path, progress=advance, **how) for path in models]
    if not quiet:
        say(f"precision: {opened[0].precision}")
    return opened


def _evaluate_pretrained(
    path: str,
    data: str | None,
    columns: Sequence[str],
    device_name: str,
    precision: Precision | None,
) -> Evaluation:
    """Measure masked LM and sentence order, on texts or on the held-out data of a
    run.
    """
    from litebert.device import choose_device, move_network
    from litebert.fast import refuse_non_finite
    from litebert.folder import fill_gaps, read_folder
    from litebert.inference.finetuned import precision_of, recorded_config
    from litebert.tasks.pretraining import Pretraining

    run = Run.of(path)
    config = None if run is None else recorded_config(PretrainConfig, run)
    device = choose_device(device_name)
    dtype = device.dtype(precision or precision_of(config))
    folder = locate(path)
    model = read_folder(folder, dtype=dtype)
    network = _require_pretrained(folder, model)
    lacks_order = bool(model.missing)
    fill_gaps(model)  # the logits of a missing head are computed, but not measured
    move_network(network, device)
    refuse_non_finite(network)

    train = TrainConfig()
    if config is not None:
        train = TrainConfig(micro_batch_size=config.train.micro_batch_size)
    doubts: tuple[str, ...] = ()
    if data is None:
        assert config is not None, "checked by `evaluate`: there is a run, or data"
        name = "held out"
        held_out = Sources.open(config).evaluation(config)
    else:
        name = "texts"
        objective = _objective_for(network, config, lacks_order=lacks_order)
        held_out, num_sequences = _sequences_of(data, columns, folder, objective)
        if num_sequences > MAX_SEQUENCES:
            doubts = (
                f"only {MAX_SEQUENCES:,} of {num_sequences:,} sequences were measured,"
                " drawn at random",
            )
    measures = Pretraining(network, held_out=held_out, train=train).evaluate()
    return Evaluation({name: measures}, doubts=doubts)


def _objective_for(
    network: "AlbertForPretraining",
    config: PretrainConfig | None,
    *,
    lacks_order: bool,
) -> ObjectiveConfig:
    """Return how texts become sequences: as in the training, or else as long as the
    model reads, up to 512 tokens.
    """
    if config is None:
        longest = min(network.config.max_position_embeddings, 512)
        objective = ObjectiveConfig(max_seq_length=longest)
    else:
        objective = config.objective
    if lacks_order:
        return objective.model_copy(update={"sentence": "none"})
    return objective


def _require_pretrained(folder: Path, model: "ModelFolder") -> "AlbertForPretraining":
    """Return the network of a model with a masked-LM head, which may lack that of
    sentence order.
    """
    from litebert.nn import AlbertForPretraining

    of_order = ("sentence_order.", "albert.pooler.")
    lacking = {name for name in model.missing if not name.startswith(of_order)}
    if not lacking and isinstance(model.network, AlbertForPretraining):
        return model.network
    raise LitebertError(
        "LB-927",
        f"{folder} lacks the masked-LM head",
        received=", ".join(sorted(model.missing)[:5]) or "another head",
        next="choose a pretrained model; for a fine-tuned one, name its run, or add"
        " --task mrpc or whichever it is",
    )


def _sequences_of(
    data: str,
    columns: Sequence[str],
    folder: Path,
    objective: ObjectiveConfig,
) -> "tuple[list[PretrainingBatch], int]":
    """Return batches of texts, and how many sequences the texts have.

    The sequences and masks are the same for every model with the same vocabulary.
    """
    from litebert.tasks.own.columns import chosen_columns

    words = [word if "=" in word else f"text={word}" for word in columns]
    (column,) = chosen_columns(words).all("text") or ("text",)
    with tempfile.TemporaryDirectory() as scratch:
        built = build_corpus(
            [data],
            tokenizer=folder,
            output=f"{scratch}/corpus",
            column=column,
            workers=1,
        )
        settings = LoaderSettings(
            Tokenizer.load(folder),
            objective,
            batch_size=32,
            seed=12_345,
            purpose="evaluation",
        )
        loader = CorpusLoader(Corpus.open(built.path).shards, settings)
        return list(loader.once(MAX_SEQUENCES)), loader.epoch_size


# ---- predictions ---------------------------------------------------------------------


MAX_BLANK_SHOWN = 10  # rows without an answer that a note lists


class PredictionFile(TypedDict):
    file: str
    split: str
    examples: int


@dataclass(frozen=True)
class Predictions:
    """Answers by split, in the order of the examples, and the files to submit to a
    leaderboard, by name.
    """

    rows: "dict[str, tuple[AnswerRow, ...]]"
    files: dict[str, str]
    split_of: dict[str, str]
    folder: Path = Path()

    def as_json(self) -> list[PredictionFile]:
        files = list[PredictionFile]()
        for name, split in self.split_of.items():
            path = str(self.folder / name)
            num_examples = len(self.rows[split])
            files.append({"file": path, "split": split, "examples": num_examples})
        return files

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the rows without an answer."""
        notes = list[str]()
        for split, rows in self.rows.items():
            blank = [row.id for row in rows if row.is_blank]
            if blank:
                ids = ", ".join(blank[:MAX_BLANK_SHOWN])
                more = ", …" if len(blank) > MAX_BLANK_SHOWN else ""
                number = format_count(len(blank), "row")
                notes.append(
                    f"{split}: {number} without a text or an answer: {ids}{more}"
                )
        return tuple(notes)

    def _count_answers(self, split: str) -> str:
        number = sum(not row.is_blank for row in self.rows[split])
        return format_count(number, "answer")

    def __str__(self) -> str:
        lines = list[str]()
        for file in self.as_json():
            split = file["split"]
            lines.append(f"{file['file']}  {self._count_answers(split)} ({split})")
        return "\n".join(lines)

    def __repr__(self) -> str:
        splits = [f"{split}: {self._count_answers(split)}" for split in self.rows]
        return f"Predictions({', '.join(splits)})"


def _answer_splits(
    models: "Sequence[Finetuned]",
    dataset: "Dataset[Any, Any]",
    data: Path,
    splits: Sequence[str],
) -> Predictions:
    from litebert.inference.finetuned import ensemble_answers

    predictions = Predictions({}, {}, {})
    for split in splits:
        examples = dataset.read(data, split)
        answers = ensemble_answers(models, examples)
        predictions.rows[split] = tuple(dataset.family.rows(examples, answers))
        for name, text in dataset.submission(split, examples, answers).items():
            predictions.files[name] = text
            predictions.split_of[name] = split
    return predictions


@checked
def predict(
    models: Models,
    *,
    data: Annotated[TablePath | None, "Folder or file of examples."] = None,
    split: Annotated[
        str | None, "Split to answer; by default, the task's test data."
    ] = None,
    task: TaskName = None,
    columns: Columns = (),
    device: DeviceName = "auto",
    precision: Activations = None,
    output: Annotated[str | Path | None, "Folder to write.", Required] = None,
    force: Annotated[bool, "Replace existing answers."] = False,
    quiet: Quiet = False,
) -> Predictions:
    """Answer every example of a split, or of your own file, in the format of a
    leaderboard.

    Several runs are averaged. The answers are written to the output.

    In Python, they are also in `rows`, `output` may be left out, and `data` may be a
    DataFrame.

    litebert predict runs/mrpc --data glue --output submission
    litebert predict runs/seed-1 runs/seed-2 --data squad --split dev --output answers
    """
    chosen = paths(models)
    if not chosen:
        raise LitebertError("LB-534", "no model was given", next="litebert runs list")
    if output is not None and (not force or Path(output).is_file()):
        require_new(Path(output), force=None if force else False)
    with (
        as_file(data) as file,
        progress("examples predicted", is_quiet=quiet) as advance,
    ):
        opened = _open_models(
            chosen,
            quiet,
            advance,
            task=task,
            columns=column_words(columns),
            device=device,
            precision=precision,
        )
        dataset = opened[0].dataset
        folder = _examples_to_answer(chosen[0], dataset.name, file)
        splits = dataset.test_splits if split is None else [split]
        predictions = _answer_splits(opened, dataset, folder, splits)
    if not predictions.files:
        raise LitebertError(
            "LB-527",
            f"{dataset.name} has no split without labels",
            expected=f"one of {', '.join(dataset.dev_splits)}",
            next=f"add --split {dataset.dev_splits[0]}",
        )
    if output is None:
        return predictions
    place = Path(output)
    require_new(place, force=force, known_files=predictions.files)
    with staged_folder(place, force=force, known_files=predictions.files) as staged:
        for name, text in predictions.files.items():
            write_text(staged / name, text)
    return replace(predictions, folder=place)


def _examples_to_answer(run: str, task: str, file: str | None) -> Path:
    """Return the file or folder with the examples; never the file that a run was
    trained on, unless it is given.
    """
    from litebert.inference.finetuned import data_of
    from litebert.tasks.named import OWN

    if file is not None:
        return Path(file)
    if task != OWN:
        return data_of(run)
    raise LitebertError(
        "LB-923",
        "there are no examples to answer: give a file with --data",
        next=f"litebert predict {run} --data FILE --output FOLDER",
    )


# ---- GLUE ----------------------------------------------------------------------------


@dataclass(frozen=True)
class GlueRuns(Table):
    """The table of all tasks with the paper's figures, their runs, and the archive to
    submit.
    """

    runs: dict[str, Run] = field(default_factory=dict)
    archive: Path | None = None


@checked
def glue(
    *,
    model: Annotated[
        str | Path,
        "Pretrained model: a folder, or a name on the Hub; litebert is the packaged"
        " one.",
    ],
    data: Annotated[str | Path, "Folder with a subfolder per task."],
    tasks: Annotated[
        str | Sequence[str], "Tasks, such as mrpc,rte; by default, all in the folder."
    ] = (),
    seeds: Annotated[Sequence[int], "Several runs of each task: 1,2,3."] = (),
    name: Annotated[str, "Runs are NAME/TASK."] = "glue",
    runs: Runs = "runs",
    submission: Annotated[
        str | Path | None, "Folder for the answers to the test sets."
    ] = None,
    settings: Overrides = (),
    quiet: Quiet = False,
) -> GlueRuns:
    """Fine-tune a model on the tasks of GLUE, each with its recipe, and print the
    table.

    Each task is a run; rerun the command to resume. All files are checked first. Test
    answers average all seeds.

    litebert glue --model models/mine --data glue --submission submission --markdown
    litebert glue --model models/mine --data glue --seeds 1,2,3 --submission out
    """
    from litebert.report.published import glue_table

    folder = Path(data)
    chosen = _choose_tasks(tasks, folder)
    if submission is not None:
        _require_test_data(chosen, folder)

    trained = dict[str, Run]()
    for task in chosen:
        if not quiet:
            say(f"{task}: {Path(runs) / name / task}")
        run = finetune(
            task,
            model=model,
            data=data,
            name=f"{name}/{task}",
            runs=runs,
            seeds=seeds,
            settings=settings,
            quiet=quiet,
        )
        trained[task] = run
        if run.exit_code:
            return GlueRuns((), (), exit_code=run.exit_code, runs=trained)

    table = glue_table(trained)
    results = GlueRuns(
        table.headings, table.rows, decimals=2, notes=table.notes, runs=trained
    )
    if submission is None:
        return results
    archive = _write_submission(trained, folder, Path(submission))
    notes = (*results.notes, f"test answers: {archive}")
    return replace(results, archive=archive, notes=notes)


def _choose_tasks(tasks: str | Sequence[str], folder: Path) -> list[str]:
    """Return the tasks that are named, or all in a folder; raise unless the files of
    each are there.
    """
    from litebert.tasks.named.glue import GLUE_TASKS

    trainable = {task.name: task for task in GLUE_TASKS if "train" in task.splits}
    named = list[str]()
    for word in [tasks] if isinstance(tasks, str) else tasks:
        named += [part.strip() for part in word.split(",") if part.strip()]
    for name in named:
        if name not in trainable:
            raise no_such_name(
                "LB-529",
                "GLUE has no task of this name to train",
                name,
                trainable,
                next="litebert glue ... --tasks mrpc,rte",
            )
    present = list[str]()
    for name, task in trainable.items():
        if (folder / task.folder).is_dir() or (folder / name).is_dir():
            present.append(name)
    chosen = list(dict.fromkeys(named)) or present
    if not chosen:
        folders = ", ".join(task.folder for task in trainable.values())
        raise LitebertError(
            "LB-530",
            f"{folder} has no task of GLUE",
            expected=f"some of {folders}",
            next=f"ls {folder}",
        )
    # A missing file stops the command before the first task is trained.
    for name in chosen:
        for split in trainable[name].splits:
            if not split.startswith("test"):
                find_files(folder, trainable[name].patterns(split))
    return chosen


def _tasks_to_submit(trained: Iterable[str]) -> dict[str, str]:
    """Return the tasks whose test data are answered, each with the task that its models
    were trained on: the diagnostics `ax` have no training data of their own.
    """
    tasks = {task: task for task in trained}
    if "mnli" in tasks:
        tasks["ax"] = "mnli"
    return tasks


def _require_test_data(trained: Sequence[str], folder: Path) -> None:
    """Read all test data, so that an error stops the command before the first task is
    trained.
    """
    from litebert.tasks.named.glue import DATASETS, glue_zip

    files = dict[str, str]()
    for task in _tasks_to_submit(trained):
        dataset = DATASETS[task]
        for split in dataset.test_splits:
            dataset.read(folder, split)
            files |= dict.fromkeys(dataset.submission(split, [], []), "")
    glue_zip(files)  # raises if the leaderboard needs other files


def _write_submission(trained: Mapping[str, Run], folder: Path, output: Path) -> Path:
    """Answer all test data, with all seeds together, and return the archive that the
    leaderboard takes.
    """
    from litebert.inference.finetuned import Finetuned
    from litebert.tasks.named.glue import DATASETS, glue_zip

    files = dict[str, str]()
    for task, source in _tasks_to_submit(trained).items():
        models = [Finetuned.open(part.folder) for part in trained[source].parts]
        dataset = DATASETS[task]
        splits = dataset.test_splits
        files |= _answer_splits(models, dataset, folder, splits).files
    for name, text in files.items():
        write_text(output / name, text)
    archive = output / "glue.zip"
    write_bytes(archive, glue_zip(files))
    return archive
