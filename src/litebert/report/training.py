"""The report of a training run: pretraining, or fine-tuning with one or several seeds.

It compares results with the baseline of no learning, and shows last step and best
evaluation side by side. This chapter has what all runs have in common; what pretraining
and fine-tuning show differently stands in chapters of their own.
"""

import shlex
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pydantic_core import to_jsonable_python

from litebert.config import FinetuneConfig, PretrainConfig
from litebert.errors import format_duration
from litebert.files import Json, write_text
from litebert.report.finetuning import finetuning_parts
from litebert.report.page import Page, Section
from litebert.report.parts import Parts
from litebert.report.pretraining import pretraining_parts
from litebert.report.results import results_of
from litebert.report.tables import Cell, Table, format_value
from litebert.runs import RunFolder
from litebert.settings import fields_of

REPORT_FILE = "report.html"
MOST_NOTES = 50


def write_report(folder: Path) -> Path:
    """Write `report.html` into the folder of a run, finished or not, or of several
    seeds, and return its path.

    The page depends only on the files of the run: the same run gives the same bytes. It
    loads nothing else.
    """
    run = RunFolder.open(folder)
    run.require_plugins()
    is_pretraining = run.kind == "pretraining"
    parts = pretraining_parts(run) if is_pretraining else finetuning_parts(run)
    sections = [*parts.sections, _next_step(run, parts), _settings(run), _origins(run)]
    facts = parts.facts
    if not run.seeds:
        facts = {**facts, **_resources(run)}
        sections.append(_notes(run))
    kind = f"{run.kind.capitalize()} run"
    if run.seeds:
        kind += ", several seeds"
    page = Page(
        name=_title(run),
        kind=kind,
        sections=sections,
        sources="the files of the run",
        status=_status(run),
        facts=facts,
    )
    write_text(folder / REPORT_FILE, page.html())
    return folder / REPORT_FILE


def _title(run: RunFolder) -> str:
    place = run.folder.resolve()
    if place.name.startswith("seed-"):
        return f"{place.parent.name}/{place.name}"
    return place.name


def _status(run: RunFolder) -> str:
    if run.seeds:
        return f"{len(results_of(run))} of {len(run.seeds)} seeds are finished."
    if run.has_model:
        return f"Finished after {run.step:,} steps."
    if not run.step:
        return "Not finished: no training step was logged yet."
    reached = f"step {run.step:,} of {run.setting('train.steps')}"
    return f"Not finished: {reached}. There is no model yet."


def _next_step(run: RunFolder, parts: Parts) -> Section:
    """Return what the reader can do next: open the seeds, use the model, or resume."""
    this_page = _report_command(run)
    if run.seeds:
        words = (
            "Confusion, calibration and the worst errors are on the page of each seed:"
        )
        pages = [_report_command(seed) for seed in run.seeds]
        return Section("Each seed", commands={words: [*pages, this_page]})
    if run.has_model:
        code = [
            "import litebert",
            f"model = litebert.load({str(run.folder / 'model')!r})",
            f"print(model.{parts.python})",
        ]
        commands = {
            "In the shell:": parts.shell,
            "In Python:": code,
            "This page again:": [this_page],
        }
        return Section("Use the model", commands=commands)
    verb = "pretrain" if run.kind == "pretraining" else "finetune"
    words = f"Rerun the litebert {verb} command that began this run to resume it; then:"
    return Section("Resume", commands={words: [this_page]})


def _report_command(run: RunFolder) -> str:
    return run.command(f"report {shlex.quote(str(run.folder))}")


# ---- where everything comes from -----------------------------------------------------


class SettingRow(NamedTuple):
    """A row of the table of settings."""

    name: str
    value: str
    default: str
    origin: str
    meaning: str


def _settings(run: RunFolder) -> Section:
    """Return the settings that differ from their defaults, and all of them."""
    settings: dict[str, Json] = dict(run.settings)
    if run.seeds:
        settings["train.seed"] = ", ".join(str(part.seed) for part in run.seeds)
    config = PretrainConfig if run.kind == "pretraining" else FinetuneConfig
    fields = fields_of(config)
    rows = list[SettingRow]()
    for name, value in settings.items():
        row = SettingRow(
            name,
            format_value(value),
            default="unknown",
            origin=run.file.origins.get(name, "unknown"),
            meaning="not a setting of this version",
        )
        field = fields.get(name)
        if field is not None:
            default = "required"
            if not field.is_required():
                default = format_value(to_jsonable_python(field.default))
            row = row._replace(default=default, meaning=field.description or "")
        rows.append(row)
    headings = ("Setting", "Value", "Default", "Set by", "Meaning")
    differing = [row for row in rows if row.value != row.default]
    changed = Table(
        headings, differing, "Settings that differ from their defaults", "names"
    )
    everything = Table(headings, rows, f"All {len(rows)} settings", "names")
    return Section("Settings", tables=[changed], folded=[everything])


def _origins(run: RunFolder) -> Section:
    recorded: dict[str, Json] = {
        "litebert": run.file.litebert,
        **run.file.environment,
        **run.file.data,
    }
    rows = [(name, _as_cell(value)) for name, value in recorded.items()]
    caption = "Versions, machine and data; hashes are blake2b"
    table = Table(("Name", "Value"), rows, caption, "names")
    return Section("Environment and data", tables=[table])


def _as_cell(value: Json) -> Cell:
    return value if isinstance(value, int | None) else format_value(value)


# ---- what happened -------------------------------------------------------------------


def _resources(run: RunFolder) -> Mapping[str, str]:
    """Return what the training took, in words; what is unknown is left out."""
    seconds = 0.0
    speeds = list[float]()
    utilizations = list[float]()
    for row in run.training:
        speed = row.values.get("tokens_per_second")
        if speed is None:
            continue
        speeds.append(speed)
        if speed > 0:
            seconds += row.values.get("tokens", 0) / speed
        if "mfu" in row.values:
            utilizations.append(row.values["mfu"])

    facts = dict[str, str]()
    if run.tokens:
        facts["Tokens seen"] = f"{run.tokens:,}"
    if seconds:
        facts["Time, without evaluations"] = format_duration(seconds)
    if speeds:
        facts["Median speed"] = f"{statistics.median(speeds):,.0f} tokens/s"
    if utilizations:
        share = statistics.median(utilizations)
        facts["Model FLOP utilization"] = f"{share:.1%} of the peak"
    num_notes = sum(row.kind == "note" for row in run.rows)
    if num_notes:
        facts["Notes"] = f"{num_notes:,}, listed below"
    return facts


def _notes(run: RunFolder) -> Section:
    notes = [(row.step, row.text) for row in run.rows if row.kind == "note"]
    if not notes:
        return Section("Notes", ["Nothing unusual was noted: no step was skipped."])
    last = notes[-MOST_NOTES:]
    caption = f"The last {len(last)} of {len(notes):,} notes"
    return Section("Notes", tables=[Table(("Step", "What happened"), last, caption)])
