"""Runs: measures, report and model, or the plan of a run that has not begun; and the
commands of `litebert runs`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NotRequired, cast

from annotated_types import Ge
from typing_extensions import TypedDict

from litebert import runs as on_disk
from litebert.answers import Results, Shown
from litebert.errors import LitebertError, format_count, say
from litebert.files import Json, read_json
from litebert.inference.model import Model
from litebert.metrics import Spread
from litebert.report import results as run_results
from litebert.report.finetuning import result_table, usage_of
from litebert.report.training import REPORT_FILE, write_report
from litebert.runs import RESULT_FILE, Result, read_metrics

if TYPE_CHECKING:
    from litebert.config import Precision


class Planned(TypedDict):
    num_parameters: int
    seconds_per_step: float
    memory_bytes: int
    disk_bytes: int
    steps: int
    seconds: float
    tokens: NotRequired[int]  # the most that pretraining will read


class Trained(TypedDict):
    model: str
    report: str | None


@dataclass(frozen=True)
class Run(on_disk.RunFolder):
    """A run on disk, finished or not; a fine-tuning with several seeds is one run with
    `seeds`.

    `exit_code` is 0 unless a signal stopped the run; call again to resume. A dry run
    has a `plan`, as text and value. `is_here` is false in the second process of a run
    and later ones: their machines need not have the folder.
    """

    exit_code: int = 0
    plan: Shown[Planned] | None = None
    is_here: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.plan is None and self.is_here:
            self.require_begun()

    @property
    def result(self) -> dict[str, Json]:
        """The measures of the last step and of the best evaluation; with several seeds,
        their medians, and each seed's. A pretraining has those of its last evaluation.
        """
        if self.seeds:
            return self._result_over_seeds()
        if self.kind == "fine-tuning":
            return read_json(self.folder / RESULT_FILE)
        for row in reversed(read_metrics(self.folder)):
            if row["kind"] == "eval":
                return dict(row)
        return {}

    def _result_over_seeds(self) -> dict[str, Json]:
        finished = [run.result for run in self.seeds if run.outcome]
        results: dict[str, Json] = {"seeds": list[Json](finished)}
        ends = run_results.ends_of(run_results.results_of(self))
        for end, spreads in ends.items():
            results[end] = dict(_medians(spreads))
        return results

    @property
    def metrics(self) -> Results[dict[str, Json]]:
        """All rows of metrics.jsonl; `to_pandas()` makes a DataFrame of them."""
        if not self.seeds:
            return Results(read_metrics(self.folder))
        rows = list[dict[str, Json]]()
        for run in self.seeds:
            rows += [{"seed": run.seed, **row} for row in read_metrics(run.folder)]
        return Results(rows)

    @property
    def report(self) -> Path:
        """The path of report.html, which is written now if it does not exist yet."""
        path = self.folder / REPORT_FILE
        return path if path.is_file() else self.write_report()

    def write_report(self) -> Path:
        """Write report.html again, for each seed and for all seeds together, and return
        the path of the latter.
        """
        for run in self.seeds:
            write_report(run.folder)
        return write_report(self.folder)

    def model(
        self, *, device: str = "auto", precision: "Precision | None" = None
    ) -> Model:
        """Load the model of the last step; the model of the best evaluation is in
        `folder / "best"`.
        """
        path = self.folder / "model"
        if not path.is_dir():
            advice = "rerun the command to resume"
            if self.seeds:
                advice = "run.seeds[0].model()"
            raise LitebertError("LB-922", f"{path} does not exist yet", next=advice)
        return Model.load(path, device=device, precision=precision)

    def __fspath__(self) -> str:  # litebert.load(run), litebert.evaluate(run)
        return str(self.folder)

    def __repr__(self) -> str:
        if self.plan is not None:
            return self.plan.text
        facts: list[str] = [self.kind]
        if self.seeds:
            facts.append(format_count(len(self.seeds), "seed"))
        facts.append("finished" if self.is_finished else "not finished")
        return f"Run({str(self.folder)!r}: {', '.join(facts)})"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self) or repr(self))}</pre>"

    # ---- output in the shell -----------------------------------------------------

    def __str__(self) -> str:
        parts = self.finished
        if self.exit_code:
            return ""
        if self.plan is not None or not parts:
            return repr(self)
        page = self.folder / REPORT_FILE
        report = "report  not written"
        if page.is_file():
            report = f"report  {page}"
        if self.kind != "fine-tuning":
            return f"model   {self.folder / 'model'}\n{report}"
        # result.json may be gone
        results = [part.outcome for part in parts if part.outcome]
        lines = [_model_line(part) for part in parts]
        if results:
            lines.insert(0, str(result_table(self, results)))
        return "\n".join([*lines, report])

    @property
    def notes(self) -> tuple[str, ...]:
        """Which seeds are not finished, and the next command."""
        if self.plan is not None or self.exit_code or not self.finished:
            return ()
        if run_results.is_worse_than_start(self):  # a warning says what helps
            return ()
        verb = 'fill "A [MASK] text."'
        if self.settings.get("distil.teacher"):
            verb = 'embed "A text."'
        command = self.finished[0].model_command(verb)
        if self.kind == "fine-tuning":
            command = usage_of(self.finished[0])[0]
        unfinished = [run.folder for run in self.seeds if not run.is_finished]
        notes = [f"note    {path} is not finished" for path in unfinished]
        return (*notes, f"next    {command}")

    @property
    def warnings(self) -> list[str]:
        """Reasons not to trust the result, and what to do about them."""
        doubts = run_results.doubts_of(self)
        if self.kind == "fine-tuning":
            return doubts
        advice = ": train longer, or lower optim.learning_rate"
        warnings = list[str]()
        for doubt in doubts:
            names_command = "litebert" in doubt
            has_advice = names_command or run_results.MORE_HELD_OUT in doubt
            warning = doubt if has_advice else doubt + advice
            warnings.append(warning)
        return warnings

    def as_json(self) -> Planned | Trained | Result | list[Result] | None:
        """Return what --json prints."""
        if self.plan is not None:
            return self.plan.value
        if self.exit_code:
            return None
        if self.kind == "fine-tuning":
            results = [cast("Result", part.result) for part in self.finished or (self,)]
            return results if self.seeds else results[0]
        page = self.folder / REPORT_FILE
        report = str(page) if page.is_file() else None
        return {"model": str(self.folder / "model"), "report": report}


def _model_line(run: on_disk.RunFolder) -> str:
    result = run.outcome
    model = f"model   {run.folder / 'model'}"
    if result is not None and result.kept == "best":
        return f"{model}  (the best evaluation, at step {result.best.step:,})"
    return f"{model}  (best evaluation: {run.folder / 'best'})"


def _medians(spreads: Mapping[str, Spread]) -> dict[str, float]:
    return {name: spread.median for name, spread in spreads.items()}


def conclude(run: Run, *, quiet: bool = False, was_finished: bool = False) -> None:
    """Write the report of a finished run, and say what a reader must know: reasons not
    to trust the result, even if `quiet`; that nothing was left to do; that it stopped.
    """
    if was_finished and not quiet:
        finished = f"what was asked for is already finished in {run.folder}"
        say(f"nothing was trained: {finished}")
    if run.exit_code:
        if not quiet:
            say("stopped with a checkpoint; rerun the command to resume")
        return
    try:
        run.write_report()
    except LitebertError as error:  # the model is written; only the report failed
        if not quiet:
            say(str(error))
    for warning in run.warnings:
        say(f"warning {warning}")


# ---- the commands of `litebert runs`, and `litebert report` --------------------------


def runs_average(
    run: Path,
    *,
    output: Annotated[Path, "Model to write."],
    last: Annotated[int, Ge(1), "Checkpoints to average."] = 1,
    force: Annotated[bool, "Replace the model if it exists."] = False,
) -> str:
    """Write the mean of the last checkpoints of a run (by default, only the last one)
    as a model.

    litebert runs average runs/mine --output models/last
    litebert runs average runs/mine --last 3 --output models/averaged
    """
    from litebert.train.checkpoint import average_checkpoints

    steps = average_checkpoints(run, output, last=last, force=force)
    return f"{output}  from steps {', '.join(f'{step:,}' for step in steps)}"


def report(run: Path) -> Shown[dict[Literal["report"], str]]:
    """Write report.html for RUN, finished or not, into its folder, and print its path.

    litebert report runs/mine
    litebert report runs/mine --json
    """
    path = str(write_report(run))
    return Shown({"report": path}, path)
