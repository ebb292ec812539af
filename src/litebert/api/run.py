"""A run as a Python object: its measures as a table, its report, its model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NotRequired, cast

from pydantic import JsonValue
from typing_extensions import TypedDict

from litebert.errors import LitebertError
from litebert.files import Json, as_path, read_json
from litebert.inference import Model
from litebert.report import write_report
from litebert.report.page import REPORT_FILE
from litebert.report.pretraining.results import doubts
from litebert.report.seeds import seed_folders, spreads
from litebert.report.table import Frame, TableRow, frame
from litebert.runs import RESULT_FILE, Result, RunFile, is_run, read_metrics, read_record, read_result, read_run
from litebert.runs.run import Kind
from litebert.terminal import say

if TYPE_CHECKING:
    from litebert.config import Precision


class Planned(TypedDict):
    """What a run will need: `tokens` is the largest number that pretraining will read."""

    num_parameters: int
    seconds_per_step: float
    memory_bytes: int
    disk_bytes: int
    steps: int
    seconds: float
    tokens: NotRequired[int]


class Trained(TypedDict):
    """The result of pretraining."""

    model: str
    report: str | None


@dataclass(frozen=True)
class RunPlan:
    """A run that has not begun: lines for people, the numbers behind them, and remarks on the data."""

    lines: Mapping[str, str]
    values: TableRow
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Write a line for each fact."""
        width = max(map(len, self.lines), default=0)
        facts = [f"{name:<{width}}  {text}" for name, text in self.lines.items()]
        return "\n".join([*facts, *(f"{'note':<{width}}  {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        rows = (f"<tr><th>{escape(n)}</th><td>{escape(t)}</td></tr>" for n, t in self.lines.items())
        return f"<table>{''.join(rows)}</table>"


@dataclass(frozen=True)
class Run:
    """A run on disk, finished or not; a fine-tuning with several seeds is one run with `seeds`.

    `exit_code` is 0 unless a signal stopped the run: rerun the same call to resume. A dry run has a `plan`.
    """

    folder: Path
    exit_code: int = 0
    plan: RunPlan | None = None

    def __post_init__(self) -> None:
        """Accept the folder as a string, too."""
        object.__setattr__(self, "folder", as_path(self.folder, "the folder of a run"))

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """Open a run that was begun earlier.

        Raises:
            LitebertError: LB-921, there is no run in this folder.
        """
        run = cls(Path(folder))
        if not is_run(run.folder) and not run.seeds:
            raise LitebertError(
                "LB-921",
                f"{run.folder} is not a run",
                received="a folder without run.json" if run.folder.is_dir() else "no such folder",
                expected="a folder made by litebert pretrain or litebert finetune",
                next="litebert runs list",
            )
        return run

    @property
    def name(self) -> str:
        """The name of the run: that of its folder."""
        return self.folder.name

    @cached_property
    def seeds(self) -> tuple[Run, ...]:
        """The runs of each seed, where there are several."""
        return tuple(Run(folder) for folder in seed_folders(self.folder).values())

    @property
    def kind(self) -> Kind:
        """What was trained."""
        return self._recorded().kind

    @property
    def settings(self) -> dict[str, JsonValue]:
        """Every setting by its dotted name."""
        return self._recorded().settings

    @property
    def is_finished(self) -> bool:
        """Whether the last step was reached and the model written."""
        if self.seeds:
            return all(run.is_finished for run in self.seeds)
        if self.kind == "fine-tuning":
            return (self.folder / RESULT_FILE).is_file()
        return (self.folder / "model" / "config.json").is_file()

    @property
    def result(self) -> dict[str, Json]:
        """The measures of the last step and of the best evaluation; of pretraining, the last."""
        if self.kind == "fine-tuning":
            return read_json(self.folder / RESULT_FILE, command=f"ls {self.folder}")
        return next((dict(row) for row in reversed(self._rows()) if row["kind"] == "eval"), {})

    @property
    def metrics(self) -> Frame:
        """Every row of metrics.jsonl: a DataFrame where pandas is installed, else a Table."""
        if self.seeds:
            rows: list[TableRow] = [
                {"seed": run.settings.get("train.seed"), **row} for run in self.seeds for row in run._rows()
            ]
            return frame(rows)
        return frame(self._rows())

    @property
    def report(self) -> Path:
        """The page about this run, written now if it is not there yet."""
        path = self.folder / REPORT_FILE
        return path if path.is_file() else self.write_report()

    def write_report(self) -> Path:
        """Write report.html again, for each seed and for all together, and return its path."""
        for run in self.seeds:
            write_report(run.folder)
        return write_report(self.folder)

    def model(self, *, best: bool = False, precision: Precision = "fp32") -> Model:
        """Load the model of the last step, or of the best evaluation of a fine-tuning run.

        Raises:
            LitebertError: LB-922, it is not there yet, or there are several seeds to choose from.
        """
        path = self.folder / ("best" if best else "model")
        if not path.is_dir():
            has_seeds = bool(self.seeds)
            raise LitebertError(
                "LB-922",
                f"{self.folder} has no folder {path.name}",
                received=f"{len(self.seeds)} seeds" if has_seeds else "a run without this model",
                expected="one seed" if has_seeds else "a finished run",
                next="run.seeds[0].model()" if has_seeds else "rerun the command to resume",
            )
        return Model.load(path, precision=precision)

    def __fspath__(self) -> str:
        """Let a run stand for its folder: `litebert.load(run)`, `litebert.evaluate(run)`."""
        return str(self.folder)

    def __repr__(self) -> str:
        """Describe the run and its state in one line."""
        state = "finished" if self.is_finished else "not finished"
        several = f", {len(self.seeds)} seeds" if self.seeds else ""
        return f"Run({str(self.folder)!r}: {self.kind}{several}, {state})"

    def __str__(self) -> str:
        """Write the plan of a dry run; the measures of a finished run, and where its model and report are."""
        if self.plan is not None:
            return str(self.plan)
        if self.exit_code:
            return ""
        if not self.is_finished:
            return repr(self)
        page = self.folder / REPORT_FILE
        report = f"report  {page if page.is_file() else 'not written'}"
        if self.kind != "fine-tuning":
            return f"model   {self.folder / 'model'}\n{report}"
        parts = self.seeds or (self,)
        found = [read_result(part.folder) for part in parts]
        results = [result for result in found if result is not None]
        last, best = spreads([each.last for each in results]), spreads([each.best for each in results])
        number, baseline = len(results), results[0].baseline
        head = f"{'':<24}{'last step':>12}{'best step':>12}{'commonest':>12}" + "  over seeds" * (number > 1)
        lines = [head]
        for name, each in last.items():
            line = f"{name:<24}{each.median:>12.4f}{best[name].median:>12.4f}"
            line += f"{baseline[name]:>12.4f}" if name in baseline else f"{'':>12}"
            spread = f"  median of {number}; mean {each.mean:.4f} ± {each.spread:.4f} (last)"
            lines.append(line + (spread if number > 1 else ""))
        lines += [f"model   {part.folder / 'model'}  (best evaluation: {part.folder / 'best'})" for part in parts]
        return "\n".join([*lines, report])

    @property
    def notes(self) -> tuple[str, ...]:
        """Reasons not to trust the result, and the next command."""
        if self.plan is not None or not self.is_finished:
            return ()
        model = self.folder / "model"
        if self.kind == "fine-tuning":
            parts = self.seeds or (self,)
            found = [result for part in parts if (result := read_result(part.folder))]
            doubtful = dict.fromkeys(doubt for result in found for doubt in result.doubts)
            after = f"litebert predict {parts[0].folder} --data FILE --output answers"
            return (*(f"warning {doubt}" for doubt in doubtful), f"next    {after}")
        advice = "train longer, or lower optim.learning_rate"
        verb, text = ("embed", "A text.") if self.settings.get("distil.teacher") else ("fill", "A [MASK] text.")
        found_doubts = doubts(read_record(self.folder))
        warnings = (f"warning {doubt}: {advice}" for doubt in found_doubts)
        return (*warnings, f'next    litebert {verb} "{text}" --model {model}')

    def as_json(self) -> Planned | Trained | Result | list[Result] | None:
        """Return what --json prints."""
        if self.plan is not None:
            return cast("Planned", self.plan.values)
        if self.exit_code:
            return None
        if self.kind == "fine-tuning":
            results = [cast("Result", part.result) for part in self.seeds or (self,)]
            return results if self.seeds else results[0]
        page = self.folder / REPORT_FILE
        return {"model": str(self.folder / "model"), "report": str(page) if page.is_file() else None}

    def _repr_html_(self) -> str:
        """Show the last measures in a notebook, with a link to the report."""
        rows = "".join(
            f"<tr><th>{escape(name)}</th><td>{escape(_shown(value))}</td></tr>"
            for name, value in _summary(self.result if self.is_finished else {}).items()
        )
        page = self.folder / REPORT_FILE
        link = f'<p><a href="{escape(str(page))}">report</a></p>' if page.is_file() else ""
        return f"<p><code>{escape(repr(self))}</code></p><table>{rows}</table>{link}"

    def _rows(self) -> list[TableRow]:
        has_rows = (self.folder / "metrics.jsonl").is_file()
        return list(read_metrics(self.folder)) if has_rows else []

    def _recorded(self) -> RunFile:
        return read_run(self.seeds[0].folder if self.seeds else self.folder) or RunFile()


def _summary(result: dict[str, Json]) -> dict[str, Json]:
    """Return the measures of the last step alone."""
    last = result.get("last", result)
    assert isinstance(last, dict)
    return {name: value for name, value in last.items() if isinstance(value, int | float)}


def _shown(value: Json) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def concluded(run: Run, *, quiet: bool = False, was_finished: bool = False) -> Run:
    """Write the report of a finished run; say if there was nothing to do, or that it stopped."""
    speak = (lambda _: None) if quiet else say
    if run.exit_code:
        speak("stopped with a checkpoint; rerun the command to resume")
        return run
    if was_finished:
        speak(f"{run.folder} is already finished: nothing was trained")
    try:
        run.write_report()
    except LitebertError as error:  # the model is written; only its page failed
        speak(str(error))
    return run
