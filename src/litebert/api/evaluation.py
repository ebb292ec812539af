"""Evaluate: fine-tuned and pretrained models, models without fine-tuning, and files of
predictions.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge

from litebert.api.frames import Frame, TablePath, as_file
from litebert.api.runs import Run
from litebert.api.settings import Paths, Quiet, checked, paths, progress
from litebert.config import (
    DeviceName,
    ObjectiveConfig,
    Precision,
    PretrainConfig,
    TrainConfig,
)
from litebert.corpus import Corpus, build_corpus
from litebert.errors import LitebertError, RequestError, format_count, say
from litebert.hub import locate
from litebert.objectives import CorpusLoader, LoaderSettings
from litebert.report.tables import Cell, Table
from litebert.tasks.tables.columns import ColumnChoices, column_words
from litebert.tasks.tables.layouts import is_labeled_table
from litebert.tokenizer import Tokenizer
from litebert.train.sources import Sources

# whatever needs torch is imported where it is used: `litebert evaluate --help` loads
# none
if TYPE_CHECKING:
    from litebert.folder import ModelFolder
    from litebert.inference.finetuned import Finetuned
    from litebert.nn import AlbertForPretraining
    from litebert.objectives.sequences import PretrainingBatch

# The options of `evaluate` with their help in the shell; the first four are also those of
# `predict`.
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
Data = Annotated[
    TablePath | None, "Folder or file of examples; for a pretrained model, of text."
]
UntunedMeasure = Annotated[
    Literal["blimp", "sts", "retrieval"] | None, "Measure a model without fine-tuning."
]
MaxRows = Annotated[
    int | None, Ge(1), "With --on: maximum rows to use (BLiMP: of each paradigm)."
]
Split = Annotated[str | None, "Any split of the task; dev by default."]
PredictionsPath = Annotated[str | Path | None, "Score this file instead of a model."]
NullOddsPath = Annotated[str | Path | None, "SQuAD 2.0: the file null_odds.json."]


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
        headings = ["split", "measure", "value"]
        if self.baseline:
            headings.append(self.constant.removeprefix("the "))
        rows = list[list[Cell]]()
        for split, values in self.measures.items():
            constant = self.baseline.get(split, {})
            for name, value in values.items():
                cells: list[Cell] = [split, name, value, constant.get(name)]
                rows.append(cells[: len(headings)])
        return str(Table(headings, rows))


# What can be evaluated, and the options that each uses besides models, data and quiet.
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
# sequences of texts on which a pretrained model is measured
MAX_SEQUENCES = 1_024


@checked
def evaluate(
    models: Models = (),
    *,
    data: Data = None,
    on: UntunedMeasure = None,
    limit: MaxRows = None,
    split: Split = None,
    task: TaskName = None,
    columns: Columns = (),
    device: DeviceName = "auto",
    precision: Activations = None,
    predictions: PredictionsPath = None,
    null_odds: NullOddsPath = None,
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
    names = paths(models)
    _require_one_thing(names, predictions, on)
    run = _run_of(names)
    if predictions is not None:
        kind = PREDICTIONS
    elif on is not None:
        kind = WITHOUT_TUNING
    else:
        kind = _kind_of_models(names, run, task, data)
    options = {
        "on": on,
        "limit": limit,
        "split": split,
        "task": task,
        "columns": columns,
        "device": device,
        "precision": precision,
        "predictions": predictions,
        "null_odds": null_odds,
    }
    _refuse_unused(options, kind, run)
    # the run of a model names its data, which `on` does not use
    if data is None and (on is not None or run is None):
        raise LitebertError(
            "LB-526",
            f"{kind} needs data to measure on: --data",
            next="litebert evaluate --help",
        )

    words = column_words(columns)
    with as_file(data) as file:
        if kind == PRETRAINED:
            return _evaluate_pretrained(names[0], file, words, device, precision)
        if kind == FINE_TUNED:
            with progress("examples evaluated", is_quiet=quiet) as advance:
                opened = open_models(
                    names,
                    data=file,
                    task=task,
                    columns=words,
                    device=device,
                    precision=precision,
                    advance=advance,
                    is_quiet=quiet,
                )
                return _evaluate_finetuned(opened, names[0], file, split)
        assert file is not None, "checked above"
        if predictions is not None:
            return _score_predictions(file, predictions, null_odds)
        assert on is not None
        return _measure_untuned(on, names[0], file, limit, device, precision)


def _run_of(models: Sequence[str]) -> Run | None:
    """Return the run of the first model, if it has one; raise if there is no such
    model.
    """
    if not models:
        return None
    run = Run.of(models[0])
    if run is None:
        locate(models[0])  # it raises
    return run


def _require_one_thing(
    models: Sequence[str], predictions: str | Path | None, on: str | None
) -> None:
    """Raise unless there are either models or a file of predictions; a measure without
    fine-tuning takes one model.
    """
    has_either = bool(models) != (predictions is not None)
    if has_either and (on is None or len(models) == 1):
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


def _kind_of_models(
    models: Sequence[str],
    run: Run | None,
    task: str | None,
    data: TablePath | None,
) -> str:
    """Return whether models are pretrained or fine-tuned, by their run if they have one.

    A model folder without its run is a fine-tuned one if its task is named, or there
    are rows that show it.
    """
    from litebert.folder.config import read_head

    model = models[0]
    if run is not None:
        is_pretrained = run.kind == "pretraining"
    else:
        is_pretrained = task is None and read_head(locate(model)) is None
    if is_pretrained:
        _require_single(models)
        return PRETRAINED
    if run is not None or task is not None or len(models) > 1:
        return FINE_TUNED
    if data is not None and (isinstance(data, Frame) or is_labeled_table(data)):
        return FINE_TUNED
    raise LitebertError(
        "LB-613",
        f"{model} is a fine-tuned model, but no file in it names its task",
        received=str(read_head(locate(model))),
        expected="labeled rows of your own (--data FILE), or a named task and its data",
        next=f"litebert evaluate {quote(model)} --task mrpc --data FOLDER",
    )


def _require_single(models: Sequence[str]) -> None:
    """Raise for several pretrained models, whose answers are not averaged."""
    if len(models) == 1:
        return
    raise LitebertError(
        "LB-525",
        "pretrained models are evaluated one at a time",
        received=", ".join(models),
        expected="one of them; or several fine-tuned models, which are averaged",
        next=f"litebert evaluate {quote(models[0])} --data my-text.txt",
    )


def _refuse_unused(options: Mapping[str, Any], kind: str, run: Run | None) -> None:
    """Raise for an option that has no effect; the task of a run is known."""
    used = set(OPTIONS[kind])
    if run is not None:
        used.discard("task")
    for name, value in options.items():
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


def open_models(
    models: Sequence[str],
    *,
    data: str | None = None,
    task: str | None,
    columns: Sequence[str],
    device: str,
    precision: Precision | None,
    advance: Callable[[int], None],
    is_quiet: bool,
) -> "list[Finetuned]":
    """Open fine-tuned models, and say in which precision they answer; they call
    `advance` with the number of examples that were answered.
    """
    from litebert.inference.finetuned import Finetuned

    opened = list[Finetuned]()
    for path in models:
        model = Finetuned.open(
            path,
            task=task,
            data=data,
            columns=columns,
            device=device,
            precision=precision,
            progress=advance,
        )
        opened.append(model)
    if not is_quiet:
        say(f"precision: {opened[0].precision}")
    return opened


def _evaluate_finetuned(
    models: "Sequence[Finetuned]", path: str, data: str | None, split: str | None
) -> Evaluation:
    """Measure one fine-tuned model, or the mean of the answers of several, on a split,
    or on all development splits; by default, of the data of the run at `path`.
    """
    from litebert.inference.finetuned import data_of, measure_split
    from litebert.tasks.doubts import doubts

    measures = dict[str, dict[str, float]]()
    baseline = dict[str, dict[str, float]]()
    reasons = list[str]()
    folder = data_of(path) if data is None else Path(data)
    dataset = models[0].dataset
    family = dataset.family
    splits = dataset.dev_splits if split is None else [split]
    for name in splits:
        measures[name], examples, answers = measure_split(models, folder, name)
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
    """Return the network of a model with a masked-LM head; the head of sentence order
    may be missing.
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
    from litebert.tasks.tables.columns import chosen_columns

    words = list[str]()
    for name in columns:
        has_role = "=" in name
        word = name if has_role else f"text={name}"
        words.append(word)
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
