"""A run as a Python object: its measures as a table, its report, its model; and the plan of one that has not begun."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NotRequired, cast

from typing_extensions import TypedDict

from litebert import runs
from litebert.errors import LitebertError, counted, say
from litebert.files import Json, read_json
from litebert.inference import Model
from litebert.report import REPORT_FILE, write_report
from litebert.report.comparison import doubts_of, spreads
from litebert.report.tables import Frame, TableRow, frame
from litebert.runs import METRICS_FILE, RESULT_FILE, Result, read_metrics

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
class Run(runs.Run):
    """A run on disk, finished or not; a fine-tuning with several seeds is one run with `seeds`.

    `exit_code` is 0 unless a signal stopped the run: rerun the same call to resume. A dry run has a `plan`.
    """

    exit_code: int = 0
    plan: RunPlan | None = None

    @property
    def result(self) -> dict[str, Json]:
        """The measures of the last step and of the best evaluation (of seeds: medians); of pretraining, the last."""
        if self.seeds:
            results = [each.outcome for each in self.seeds if each.outcome]
            kept = {"last": [result.last for result in results], "best": [result.best for result in results]}
            return {
                "seeds": [each.result for each in self.seeds if each.outcome],
                **{name: {m: s.median for m, s in spreads(each).items()} for name, each in kept.items() if each},
            }
        if self.kind == "fine-tuning":
            return read_json(self.folder / RESULT_FILE, command=f"ls {self.folder}")
        return next((dict(row) for row in reversed(self._log()) if row["kind"] == "eval"), {})

    @property
    def metrics(self) -> Frame:
        """Every row of metrics.jsonl: a DataFrame where pandas is installed, else a Table."""
        if self.seeds:
            return frame([{"seed": run.settings.get("train.seed"), **row} for run in self.seeds for row in run._log()])
        return frame(self._log())

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
        """Load the model of the last step, or of the best evaluation of a fine-tuning run."""
        path = self.folder / ("best" if best else "model")
        if not path.is_dir():
            several = bool(self.seeds)
            raise LitebertError(
                "LB-922",
                f"{self.folder} has no folder {path.name}",
                received=f"{len(self.seeds)} seeds" if several else "a run without this model",
                expected="one seed" if several else "a finished run",
                next="run.seeds[0].model()" if several else "rerun the command to resume",
            )
        return Model.load(path, precision=precision)

    def __fspath__(self) -> str:
        """Let a run stand for its folder: `litebert.load(run)`, `litebert.evaluate(run)`."""
        return str(self.folder)

    def __repr__(self) -> str:
        """Describe the run and its state in one line."""
        state = "finished" if self.is_finished else "not finished"
        several = f", {counted(len(self.seeds), 'seed')}" if self.seeds else ""
        return f"Run({str(self.folder)!r}: {self.kind}{several}, {state})"

    def _repr_html_(self) -> str:
        """Show the last measures in a notebook, with a link to the report."""
        found = self.result if self.is_finished else {}
        last = found.get("last", found)
        assert isinstance(last, dict)
        rows = "".join(
            f"<tr><th>{escape(name)}</th><td>{f'{value:.4f}' if isinstance(value, float) else value}</td></tr>"
            for name, value in last.items()
            if isinstance(value, int | float)
        )
        page = self.folder / REPORT_FILE
        link = f'<p><a href="{escape(str(page))}">report</a></p>' if page.is_file() else ""
        return f"<p><code>{escape(repr(self))}</code></p><table>{rows}</table>{link}"

    def _log(self) -> list[TableRow]:
        return list(read_metrics(self.folder)) if (self.folder / METRICS_FILE).is_file() else []

    # What the shell shows

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
        results = [each.outcome for each in parts if each.outcome]
        last, best = spreads([result.last for result in results]), spreads([result.best for result in results])
        number, baseline = len(results), results[0].baseline
        lines = [f"{'':<24}{'last step':>12}{'best step':>12}{'commonest':>12}" + "  over seeds" * (number > 1)]
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
        if self.plan is not None or self.exit_code or not self.is_finished:
            return ()
        after = "train longer, or lower optim.learning_rate"
        if self.kind == "fine-tuning":
            part = (self.seeds or (self,))[0]
            warnings = [f"warning {doubt}" for doubt in doubts_of(self)]
            command = f"litebert predict {part.folder} --data FILE --output answers"
        else:
            warnings = [f"warning {doubt}: {after}" for doubt in doubts_of(self)]
            verb = 'embed "A text."' if self.settings.get("distil.teacher") else 'fill "A [MASK] text."'
            command = f"litebert {verb} --model {self.folder / 'model'}"
        return (*warnings, f"next    {command}")

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
