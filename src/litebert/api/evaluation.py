"""Evaluation and prediction as functions: of fine-tuned models, ensembles, pretrained models, prediction files."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Required

from annotated_types import Ge
from typing_extensions import TypedDict

from litebert.api.settings import Paths, paths, require_types
from litebert.config import ObjectiveConfig, Precision, PretrainConfig, TrainConfig
from litebert.corpus import Corpus, build_corpus
from litebert.errors import LitebertError, RequestError
from litebert.files import require_new, write_text
from litebert.objectives import evaluation_batches
from litebert.report.tables import Frame, frame
from litebert.runs import read_run
from litebert.tokenizer import Tokenizer
from litebert.train.sources import Sources, vocabulary_of

if TYPE_CHECKING:  # what needs torch is imported where it is used, so that `litebert evaluate --help` loads none
    from litebert.tasks.kinds.family import AnswerRow

Models = Annotated[Paths, "Runs or model folders."]
Data = Annotated[str | Path | None, "Folder or file of examples, or a text file."]
TaskName = Annotated[str | None, "Name of the task, for a model folder without its run."]
Columns = Annotated[Sequence[str], "--column", "ROLE=NAME, columns of your file: text=review, ..."]
Best = Annotated[bool, "The run's best evaluation instead of its last step."]
Quiet = Annotated[bool, "No progress on stderr."]


@dataclass(frozen=True)
class Evaluation:
    """Measures by split and name, and the precision that they were computed in.

    `baseline` has the same measures for always giving `constant`, the commonest label or what is closest to one in this
    kind of task; `doubts` are reasons not to trust a result. Both are empty for a pretrained model.
    """

    measures: dict[str, dict[str, float]]
    precision: str = ""
    baseline: dict[str, dict[str, float]] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()
    constant: str = "the commonest label"

    def to_pandas(self) -> Frame:
        """Return a row per measure: a DataFrame where pandas is installed, else a Table."""
        return frame(
            [
                {"split": split, "measure": name, "value": value}
                for split, values in self.measures.items()
                for name, value in values.items()
            ]
        )

    def as_json(self) -> dict[str, dict[str, float]]:
        """Return what --json prints."""
        return self.measures

    @property
    def notes(self) -> tuple[str, ...]:
        """Reasons not to trust a result."""
        return tuple(f"warning {doubt}" for doubt in self.doubts)

    def __str__(self) -> str:
        """Write a line per measure, with its value for always giving the constant answer."""
        lines = []
        for split, values in self.measures.items():
            constant, what = self.baseline.get(split, {}), self.constant.removeprefix("the ")
            for name, value in values.items():
                beside = f"  ({what} {constant[name]:.4f})" if name in constant else ""
                lines.append(f"{split:<16} {name:<24} {value:.4f}{beside}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


USED_BY = {
    "a prediction file": ("predictions", "data", "null_odds"),
    "a measure without fine-tuning": ("models", "on", "data", "limit", "precision"),
    "a pretrained model": ("models", "data", "columns", "precision"),
    "a fine-tuned run": (*("models", "data", "split", "columns", "best", "clean", "precision", "depth", "patience"),),
    "a model folder without its run": (
        *("models", "data", "split", "task", "columns", "best", "clean", "precision", "depth", "patience"),
    ),
}
"""The options that act on what is evaluated; the others are refused."""


def evaluate(
    models: Models = (),
    *,
    data: Data = None,
    on: Annotated[
        Literal["blimp", "sts", "retrieval"] | None, "What a pretrained model knows without fine-tuning."
    ] = None,
    limit: Annotated[int | None, Ge(1), "With --on: most rows to use (BLiMP: of each paradigm)."] = None,
    split: Annotated[str | None, "Any split of the task; dev by default."] = None,
    task: TaskName = None,
    columns: Columns = (),
    best: Best = False,
    clean: Annotated[bool, "SQuAD 2.0: tune the threshold on part of train."] = False,
    precision: Annotated[Precision | None, "Precision of activations; by default that of the training."] = None,
    depth: Annotated[int | None, "Apply only this many steps; for models trained with train.exits=true."] = None,
    patience: Annotated[
        int | None, "Stop once this many consecutive classifiers agree; needs train.exits=true."
    ] = None,
    predictions: Annotated[str | Path | None, "Score this file instead of a model."] = None,
    null_odds: Annotated[str | Path | None, "SQuAD 2.0: the file null_odds.json."] = None,
    quiet: Quiet = False,
) -> Evaluation:
    """Measure a model, by its run or its folder; the answers of several fine-tuned runs are averaged.

    A pretrained model is measured by masked LM and sentence order, on the texts of `data` or on what its run held out;
    with `on`, by what it knows without fine-tuning: minimal pairs (BLiMP), scored sentence pairs, questions and their
    paragraphs in SQuAD's layout.

    litebert evaluate runs/mrpc --data glue
    litebert evaluate runs/mine --data my-text.txt
    litebert evaluate models/mine --on sts --data STS-B/dev.tsv
    litebert evaluate --predictions predictions.json --data dev-v1.1.json
    """
    given = dict(locals())
    from litebert.api.settings import Progress
    from litebert.inference.finetuned import Finetuned, data_of, measured, run_of, with_clean_threshold, with_patience
    from litebert.inference.model import Model
    from litebert.study.zero_shot import MEASURES
    from litebert.tasks.finetuning import doubts
    from litebert.tasks.named.squad import score_predictions

    require_types(evaluate, given)
    chosen = paths(models)
    if (predictions is None) == (not chosen):
        raise LitebertError(
            "LB-525",
            "evaluation needs runs or a prediction file, one of the two",
            received=f"{len(chosen)} runs and --predictions {predictions}",
            expected="litebert evaluate RUN..., or litebert evaluate --predictions FILE",
            next="litebert evaluate --help",
        )
    if predictions is not None:
        _require_use("a prediction file", given)
        odds = None if null_odds is None else Path(null_odds)
        found = _required(data, "LB-526", "a prediction file is scored against a data set", "dev-v1.1.json")
        return Evaluation({"predictions": score_predictions(found, Path(predictions), null_odds=odds)})
    if on is not None:
        _require_use("a measure without fine-tuning", given)
        if len(chosen) != 1:
            raise LitebertError(
                "LB-995",
                "--on measures one model",
                received=f"{len(chosen)} models",
                next="litebert evaluate RUN --on ...",
            )
        found = _required(data, "LB-996", f"--on {on} needs the data to measure on", "STS-B/dev.tsv")
        used = precision or "fp32"
        return Evaluation({on: MEASURES[on](Model.load(chosen[0], precision=used), found, limit=limit)}, used)
    if len(chosen) == 1 and task is None and _is_pretrained(chosen[0]):
        _require_use("a pretrained model", given)
        return _of_pretrained(chosen[0], data, columns, precision)
    _require_use("a fine-tuned run" if run_of(chosen[0]) else "a model folder without its run", given)
    with Progress("examples", "evaluating", is_quiet=quiet) as progress:
        opened = [
            Finetuned.open(
                path,
                kept="best" if best else "last",
                task=task,
                columns=columns,
                precision=precision,
                depth=depth,
                progress=progress.advance,
            )
            for path in chosen
        ]
        folder = Path(data) if data is not None else data_of(chosen[0])
        if clean:
            opened = with_clean_threshold(opened, folder)
        if patience is not None:
            opened = with_patience(opened, patience)
        first = opened[0]
        progress.say(f"precision: {first.precision}")
        family, key = first.dataset.family, first.dataset.key_measure
        measures, constant, doubtful = {}, {}, list[str]()
        for name in [split] if split else first.dataset.dev_splits:
            values, examples, answers = measured(opened, folder, name)
            always = family.constant(examples, examples)
            measures[name], constant[name] = values, {} if always is None else family.measures(examples, always)
            rows = {name: family.rows(examples, answers)}
            doubtful += doubts(key, values, constant[name], rows, family.baseline)
        return Evaluation(measures, first.precision, constant, tuple(doubtful), family.baseline)


def _require_use(what: str, given: Mapping[str, object]) -> None:
    """Refuse options that do not act on what is evaluated."""
    defaults = {name: each.default for name, each in inspect.signature(evaluate).parameters.items()}
    for name, value in given.items():
        if name not in (*USED_BY[what], "quiet") and value != defaults[name]:
            flag = "--column" if name == "columns" else f"--{name.replace('_', '-')}"
            acting = ", ".join(each for each, names in USED_BY.items() if name in names)
            raise RequestError(
                "LB-916",
                f"{flag} has nothing to act on",
                received=f"{flag} for {what}",
                expected=f"{flag} for {acting}",
                next=f"omit {flag}",
            )


def _required(data: str | Path | None, code: str, what: str, example: str) -> Path:
    if data is None:
        next_step = f"litebert evaluate ... --data {example}"
        raise LitebertError(code, what, received="no --data", expected=f"--data {example}, or another", next=next_step)
    return Path(data)


# ---- pretrained models ----------------------------------------------------------------------------------------------

NUM_SEQUENCES, BATCH_SIZE, SEED = 1_024, 32, 12_345
"""What is drawn from texts: the same sequences and masks for every model with one vocabulary."""


def _is_pretrained(path: str) -> bool:
    """Tell whether a run or a model folder has pretraining heads only."""
    from litebert.folder import read_head, read_weights
    from litebert.hub import locate
    from litebert.inference.finetuned import run_of

    if (run := run_of(path)) is not None:
        return _pretraining_of(run) is not None
    folder = locate(path)
    tensors = {name: tuple(tensor.shape) for name, tensor in read_weights(folder).items()}
    return read_head(folder, tensors=tensors) is None


def _pretraining_of(run: Path) -> PretrainConfig | None:
    """Return the settings of a pretraining run; None for a fine-tuning run."""
    from litebert.inference.finetuned import recorded_config

    recorded = read_run(run)
    if recorded is None or recorded.kind == "fine-tuning":
        return None
    return recorded_config(PretrainConfig, recorded.settings)


def _of_pretrained(
    path: str, data: str | Path | None, columns: Sequence[str], precision: Precision | None
) -> Evaluation:
    """Measure masked LM and sentence order; a model without a sentence-order head, masked LM alone."""
    from litebert.fast import refuse_non_finite
    from litebert.fast.steps import DTYPES
    from litebert.folder import load_model
    from litebert.hub import locate
    from litebert.inference.finetuned import run_of, trained_in
    from litebert.nn import AlbertForPretraining
    from litebert.tasks.pretraining import Pretraining

    run = run_of(path)
    config = None if run is None else _pretraining_of(run)
    folder = Path(path) / "model" if run == Path(path) else locate(path)
    if config is None and data is None:
        raise LitebertError(
            "LB-926",
            "a pretrained model is measured on texts",
            received=f"{path}, without its run and without --data",
            expected="a text that the model was not trained on",
            next=f"litebert evaluate {path} --data my-text.txt",
        )
    used = precision or trained_in(config)
    loaded = load_model(folder, dtype=DTYPES[used])
    of_order = {name for name in loaded.missing if name.startswith("sentence_order.")}
    if not isinstance(loaded.network, AlbertForPretraining) or loaded.missing - of_order:
        raise LitebertError(
            "LB-927",
            f"{folder} lacks the masked-LM head",
            received=", ".join(sorted(loaded.missing)[:5]) or "another head",
            expected="a masked-LM head, and a sentence-order head where order is to be measured",
            next="choose a model that litebert pretrained",
        )
    if of_order:  # its logits are computed, but nothing measures them
        loaded.network.sentence_order.to_empty(device="cpu").requires_grad_(False)
        for parameter in loaded.network.sentence_order.parameters():
            parameter.zero_()
    refuse_non_finite(loaded.network)
    if data is None:
        assert config is not None
        held_out = Sources.open(config).evaluation(config)
    else:  # as in the run's own evaluation, where there is a run
        longest = min(loaded.network.config.max_position_embeddings, 512)
        objective = ObjectiveConfig(max_seq_length=longest) if config is None else config.objective
        if of_order:
            objective = objective.model_copy(update={"sentence": "none"})
        column = dict(choice.split("=", 1) for choice in columns if "=" in choice).get("text", "text")
        with tempfile.TemporaryDirectory() as scratch:
            corpus = Path(scratch) / "corpus"
            build_corpus([str(data)], tokenizer=folder, output=corpus, documents="blank-line", column=column, workers=1)
            held_out = list(
                evaluation_batches(
                    Corpus.open(corpus).shards,
                    vocabulary=vocabulary_of(Tokenizer.load(folder)),
                    config=objective,
                    batch_size=BATCH_SIZE,
                    seed=SEED,
                    num_sequences=NUM_SEQUENCES,
                )
            )
    size = None if config is None else config.train.micro_batch_size
    task = Pretraining(loaded.network, held_out=held_out, train=TrainConfig(micro_batch_size=size))
    return Evaluation({"held out" if data is None else "texts": task.evaluate()}, used)


# ---- predictions ----------------------------------------------------------------------------------------------------


class PredictionFile(TypedDict):
    """A file of answers."""

    file: str
    split: str
    examples: int


@dataclass(frozen=True)
class Predictions:
    """Answers by split, in the order of the examples, and the files that a leaderboard wants."""

    rows: dict[str, tuple[AnswerRow, ...]]
    files: dict[str, str]
    split_of: dict[str, str]
    precision: str = ""
    folder: Path | None = None

    def write(self, folder: str | Path, *, force: bool = False) -> list[Path]:
        """Write the files to a new folder and return their paths; with `force`, over answers that are there."""
        require_new(Path(folder), force=force, own=self.files)
        for name, text in self.files.items():
            write_text(Path(folder) / name, text)
        return [Path(folder) / name for name in self.files]

    def to_pandas(self) -> Frame:
        """Return a row per answer: a DataFrame where pandas is installed, else a Table."""
        return frame([{"split": split, **asdict(row)} for split, rows in self.rows.items() for row in rows])

    def as_json(self) -> list[PredictionFile]:
        """Return what --json prints."""
        folder = self.folder or Path()
        return [
            {"file": str(folder / name), "split": split, "examples": len(self.rows[split])}
            for name, split in self.split_of.items()
        ]

    def __str__(self) -> str:
        """Write a line for each file."""
        return "\n".join(f"{each['file']}  {each['examples']:,} answers ({each['split']})" for each in self.as_json())

    def __repr__(self) -> str:
        """Count the answers of each split."""
        counts = ", ".join(f"{split}: {len(rows):,} answers" for split, rows in self.rows.items())
        return f"Predictions({counts})"

    def _repr_html_(self) -> str:
        shown = [row for rows in self.rows.values() for row in rows][:20]
        cells = "".join(
            f"<tr><td>{escape(row.id)}</td><td>{escape(row.text[:80])}</td><td>{escape(row.answer)}</td></tr>"
            for row in shown
        )
        return f"<p>{escape(repr(self))}</p><table>{cells}</table>"


def predict(
    models: Models,
    *,
    data: Data = None,
    split: Annotated[str | None, "Split to answer; by default the task's test data."] = None,
    task: TaskName = None,
    columns: Columns = (),
    best: Best = False,
    precision: Annotated[Precision | None, "Precision of activations; by default that of the training."] = None,
    output: Annotated[str | Path | None, "Folder to write.", Required] = None,
    force: Annotated[bool, "Replace answers that are there."] = False,
    quiet: Quiet = False,
) -> Predictions:
    """Answer every example of a split, or of your own file, in the form that a leaderboard wants.

    Several runs are averaged. In the shell an output is needed; in Python the answers are in `rows`, too.

    litebert predict runs/mrpc --data glue --output submission
    litebert predict runs/seed-1 runs/seed-2 --data squad --split dev --output answers
    """
    require_types(predict, locals())
    from litebert.api.settings import Progress
    from litebert.inference.finetuned import Finetuned, data_of, ensemble_answers
    from litebert.tasks.named import OWN

    chosen = paths(models)
    if not chosen:
        raise LitebertError("LB-534", "there is no model to ask", next="litebert runs list")
    if output is not None and not force:
        require_new(Path(output))
    with Progress("examples", "predicting", is_quiet=quiet) as progress:
        opened = [
            Finetuned.open(
                path,
                kept="best" if best else "last",
                task=task,
                columns=columns,
                precision=precision,
                progress=progress.advance,
            )
            for path in chosen
        ]
        dataset = opened[0].dataset
        if data is None and dataset.name == OWN:  # never the training file, unless it is named
            raise LitebertError(
                "LB-923",
                "there are no examples to answer",
                received="no --data, and a model trained on a file of your own",
                expected="the file to answer",
                next=f"litebert predict {chosen[0]} --data FILE --output FOLDER",
            )
        folder = Path(data) if data is not None else data_of(chosen[0])
        rows: dict[str, tuple[AnswerRow, ...]] = {}
        files: dict[str, Any] = {}
        split_of: dict[str, str] = {}
        for name in [split] if split else dataset.test_splits:
            examples = dataset.read(folder, name)
            answers = ensemble_answers(opened, examples)
            rows[name] = tuple(dataset.family.rows(examples, answers))
            made = dataset.submission(name, examples, answers)
            files |= made
            split_of |= dict.fromkeys(made, name)
        progress.say(f"precision: {opened[0].precision}")
    if not files:
        raise LitebertError(
            "LB-527",
            f"{dataset.name} has no split without labels",
            received="no --split",
            expected=f"one of {', '.join(dataset.dev_splits)}",
            next=f"litebert predict ... --split {dataset.dev_splits[0]}",
        )
    found = Predictions(rows, files, split_of, opened[0].precision, None if output is None else Path(output))
    if output is not None:
        found.write(output, force=force)
    return found
