"""The page: blocks of text, tables and figures in sections, shown by one template and one style sheet.

The sections that every run has are here, too: curves, settings, environment, data and notes.
"""

from __future__ import annotations

import json
import shlex
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, TypeAlias

import jinja2
from markupsafe import Markup
from pydantic import BaseModel

import litebert
from litebert.config import DataConfig, FinetuneConfig, PretrainConfig, TaskConfig, describe, flattened
from litebert.config.schema import StartConfig
from litebert.files import Json, write_bytes
from litebert.report.figures import Figure, draw, picture
from litebert.report.tables import Table, word
from litebert.runs import Kind, Run, finite

Block: TypeAlias = Mapping[str, Any]
"""A part of a section: its kind, and what page.html shows of it. A style is a CSS class."""
MOST_NOTES, LONGEST_VALUE = 50, 300


def paragraph(text: str, *, style: str = "") -> Block:
    return {"kind": "paragraph", "text": text, "style": style}


def commands(lines: Sequence[str]) -> Block:
    """Return lines for a shell, or code."""
    return {"kind": "commands", "lines": lines}


def table(caption: str, headings: Sequence[str], rows: Iterable[Sequence[Any]], *, style: str = "") -> Block:
    """Return a table whose first column names its rows. A cell may have a share, 0 to 1, as its shade."""
    return {"kind": "table", "caption": caption, "headings": headings, "rows": list(rows), "style": style}


def figures(shown: Sequence[Figure]) -> Block:
    """Return figures, side by side where there is room."""
    return {"kind": "figures", "figures": shown}


def details(summary: str, *blocks: Block) -> Block:
    """Return blocks that are folded until the reader opens them."""
    return {"kind": "details", "summary": summary, "blocks": blocks}


@dataclass(frozen=True)
class Section:
    """A part of the page under its heading."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Page:
    """A page: its title, its overview, its sections in order, and the files that it was written from."""

    name: str
    kind: str
    sections: Sequence[Section]
    sources: str
    status: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    of: str = "report"

    def html(self) -> str:
        """Return the page as one file."""
        style = (files("litebert.report") / "page.css").read_text("utf-8").partition("*/\n")[2]
        return _template().render(page=self, style=style, draw=draw, version=litebert.__version__)


@cache
def _template() -> jinja2.Template:
    def plain(value: object) -> object:
        """Replace what is not UTF-8, as in a file name of other bytes."""
        is_text = isinstance(value, str) and not isinstance(value, Markup)
        return value.encode("utf-8", "replace").decode("utf-8") if is_text else value  # type: ignore[attr-defined]

    environment = jinja2.Environment(
        autoescape=True, finalize=plain, undefined=jinja2.StrictUndefined, keep_trailing_newline=True
    )
    return environment.from_string((files("litebert.report") / "page.html").read_text("utf-8"))


# ---- what every run has ---------------------------------------------------------------------------------------------

NEIGHBOURS = "Lines are means of neighbouring log lines; bands show their lowest and highest."
_EXAMPLES: dict[Kind, BaseModel] = {
    "pretraining": PretrainConfig(data=DataConfig(corpus="")),
    # model_construct does not validate: the defaults have no data, which validation would refuse.
    "fine-tuning": FinetuneConfig.model_construct(task=TaskConfig(name=""), model=StartConfig(start="")),
}
"""A configuration of each kind, with only the required settings set."""


def page_of_run(run: Run, name: str, facts: Mapping[str, str], sections: Sequence[Section], sources: str) -> Page:
    """Return the page of a run with its own sections, and those that every run has."""
    status = f"Not finished: step {run.step:,} of {run.setting('train.steps')}. There is no model yet."
    if run.has_model:
        status = f"Finished after {run.step:,} steps."
    elif run.step == 0:
        status = "Not finished: no training step was logged yet."
    notes = paragraph("Nothing unusual was noted: no step was skipped.")
    if run.remarks:
        shown, total = run.remarks[-MOST_NOTES:], len(run.remarks)
        caption = f"{total:,} notes" if len(shown) == total else f"The last {len(shown)} of {total:,} notes"
        notes = table(caption, ("Step", "What happened"), ((f"{note.step:,}", note.text) for note in shown))
    common = (settings_of(run), surroundings_of(run), Section("Notes", [notes]))
    kind = f"{run.kind.capitalize()} run"
    return Page(name, kind, (*sections, *common), f"the run's run.json, metrics.jsonl{sources}", status, facts)


def report_line(folder: Path) -> str:
    """Return the command that writes a page again."""
    return f"litebert report {shlex.quote(str(folder))}"


def next_steps(run: Run, shell: Sequence[str], python: str) -> Section:
    """Return the lines that use the model of a run, or resume it, and write its page again; `python` is a call."""
    again = [report_line(run.folder)]
    if not run.has_model:
        verb = "pretrain" if run.kind == "pretraining" else "finetune"
        words = f"Rerun the litebert {verb} command that began this run to resume it; then:"
        return Section("Resume", [paragraph(words), commands(again)])
    code = ["import litebert", f"model = litebert.load({str(run.folder / 'model')!r})", f"print(model.{python})"]
    said = {"In the shell:": shell, "In Python:": code, "This page again:": again}
    return Section("Use the model", [b for words, lines in said.items() for b in (paragraph(words), commands(lines))])


def effort(run: Run) -> dict[str, str]:
    """Return what training took; unknown figures are empty."""
    from litebert.train.run import duration  # torch comes with it

    speeds = finite(run.training, "tokens_per_second")
    return {
        "Tokens seen": f"{run.tokens:,}" if run.tokens else "",
        "Time, evaluations not counted": duration(run.seconds) if run.seconds else "",
        "Median speed": f"{statistics.median(speeds):,.0f} tokens/s" if speeds else "",
        "Notes": f"{len(run.remarks):,}, listed below" if run.remarks else "",
    }


def curves(drawn: Sequence[Figure], run: Run, *, bands: str = NEIGHBOURS) -> Section:
    """Return the figures of a training; `bands` explains the bands around their lines."""
    if not drawn:
        return Section("Curves", [paragraph("No step was logged yet.")])
    words = f"{bands} A log line is the mean of {run.settings.get('train.log_every')} training steps."
    return Section("Curves", [paragraph(words, style="quiet"), figures(drawn)])


def settings_of(run: Run, changed: Mapping[str, Json] = {}) -> Section:
    """Return the settings that differ from their defaults, and a folded table of all settings.

    `changed` are those that several seeds do not have in common.
    """
    example = _EXAMPLES[run.kind]
    described = {setting.name: setting for setting in describe(type(example))}
    required = {name: each.default for name, each in described.items() if each.default == "required"}
    defaults = flattened(example) | required
    rows = []
    for name, value in {**run.settings, **changed}.items():
        meaning = described[name].description if name in described else "not a setting of this version"
        origin = str(run.file.origins.get(name, "unknown"))
        rows.append((name, written(value), written(defaults.get(name, "unknown")), written(origin), meaning))
    headings = ("Setting", "Value", "Default", "Set by", "Meaning")
    differing = [row for row in rows if row[1] != row[2]]
    every = table("All settings of the run", headings, rows, style="names")
    first = table("Settings that differ from their defaults", headings, differing, style="names")
    return Section("Settings", [first, details(f"All {len(rows)} settings", every)])


def surroundings_of(run: Run) -> Section:
    """Return the machine, and the data that the run learnt from, with counts and hashes."""
    environment: dict[str, Json] = {"litebert": run.file.litebert, **run.file.environment}
    machine = [(name, "none" if value is None else written(value)) for name, value in environment.items()]
    data = [(n, f"{value:,}" if isinstance(value, int) else written(value)) for n, value in run.file.data.items()]
    tables = {"Environment": machine, "Data, hashes are blake2b": data}
    blocks = [table(caption, ("Name", "Value"), rows, style="names") for caption, rows in tables.items()]
    return Section("Environment and data", blocks)


def written(value: Json) -> str:
    """Return a value as written in a recipe; a long one is truncated.

    >>> written(20_000), written(1e-12), written("lamb"), written(True), written(None)
    ('20000', '1e-12', 'lamb', 'true', 'unset')
    """
    if value is None:
        return "unset"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


# ---- studies --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """One study: what the paper found, what we found, and the sentence that compares them."""

    name: str
    title: str
    paper: str
    finding: str
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...] = ()


def study_page(title: str, parts: Sequence[Part]) -> Page:
    """Return studies as one page."""
    sections = []
    for part in parts:
        blocks = [paragraph(f"The paper: {part.paper}"), paragraph(f"Here: {part.finding}", style="status")]
        blocks += [figures(part.figures)] if part.figures else []
        for each in part.tables:
            rows = ([word(cell, decimals=each.decimals) for cell in row] for row in each.rows)
            blocks.append(table(each.title, each.headings, rows, style="numbers"))
        sections.append(Section(part.title, blocks))
    sources = "the metrics files of the studies. The paper is arXiv 1909.11942"
    return Page(title, "Study", sections, sources, of="study")


def write_pictures(folder: Path, part: Part) -> list[Path]:
    """Write every figure of a study as an SVG and a PNG file, and return their paths."""
    kinds: tuple[Literal["svg", "png"], ...] = ("svg", "png")
    written = []
    for kind in kinds:
        for number, each in enumerate(part.figures, start=1):
            written.append(folder / f"{part.name}-{number}.{kind}")
            write_bytes(written[-1], picture(each, kind))
    return written
