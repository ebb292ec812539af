"""The studies as functions: measure, print, and write metrics files, figures and one page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, ClassVar, Generic, Literal, TypeVar

from annotated_types import Ge, Le
from pydantic import BaseModel
from typing_extensions import TypedDict

from litebert.answers import Shown
from litebert.errors import say
from litebert.files import require_new, require_replaceable, write_json, write_text
from litebert.reading.source import find_file, read_lines
from litebert.report import page as pages
from litebert.report.page import Part, write_pictures
from litebert.study.ablation import Ablation, ablation_part
from litebert.study.findings import Costs, Layers, costs_part, layers_part, read_parts

# What is imported in the functions needs torch, which `litebert study layers --help` does without.

Found = TypeVar("Found")
TITLE = "What the paper found, and what we found"


Output = Annotated[Path | None, "Folder of metrics and figures."]


@dataclass(frozen=True)
class Study(Generic[Found]):
    """What a study found, its tables, and the files that it wrote."""

    found: Found
    part: Part
    written: tuple[Path, ...]
    formats: ClassVar = ("json", "csv", "markdown")

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.part.tables))

    def as_json(self) -> Found:
        return self.found

    def as_csv(self) -> str:
        return self.part.tables[0].as_csv()

    def as_markdown(self) -> str:
        return "\n\n".join(table.as_markdown() for table in self.part.tables)

    @property
    def notes(self) -> tuple[str, ...]:
        return (self.part.finding, *map(str, self.written))


def study_layers(
    *models: str | Path,
    texts: Annotated[Path, "A file with one text per line."],
    limit: Annotated[int, Ge(1), "Texts read."] = 32,
    depths: Annotated[tuple[int, ...], "Depths to report."] = (24, 48, 96),
    output: Output = None,
) -> Study[list[Layers]]:
    """Compare the input and the output of every step, and apply the last step further.

    Reports at each depth whether the states converge (a step moves them by less than 1 %), oscillate (they return
    within 8 steps), close in (steps shrink by half), or wander. Without a model, the one that comes with the package is
    measured.

    litebert study layers --texts my-text.txt
    litebert study layers runs/mine models/bert --texts my-text.txt --depths 24,48,96 --output study
    """
    _require(output)
    from litebert.inference import Model
    from litebert.study.models import measure_layers

    filled = (line for _, line in read_lines(find_file(texts)) if line.strip())
    lines, found = list(islice(filled, limit)), []
    for path in models or (None,):
        model = Model.load(path)
        say(model.source)
        found.append(measure_layers(model, lines, depths=sorted(depths)))
    return _written(found, layers_part(found), {f"layers-{Path(each.source).name}": each for each in found}, output)


def study_ablation(
    name: str,
    *,
    corpus: Annotated[Path, "Corpus folder."],
    output: Annotated[Path, "Folder of runs, metrics and figures."] = Path("study"),
    scale: Annotated[str, "tiny, or paper: full scale."] = "tiny",
    seeds: Annotated[tuple[int, ...], "Seeds, separated by commas."] = (1, 2),
    rows: Annotated[tuple[str, ...], "--row", "Train only this row; may be repeated."] = (),
    afford: Annotated[
        float, Ge(0), "CPU minutes that a row may take; the cost of longer rows is predicted. 0: train none, inf: all."
    ] = 10.0,
    probes: Annotated[
        tuple[str, ...],
        "--probe",
        "TASK=PATH: fine-tune each row at a fixed budget, on sst2, squad, race-middle, or a file of your own.",
    ] = (),
    more: Annotated[Path | None, "Second corpus, for the table `data` alone."] = None,
) -> Study[Ablation]:
    """Train the rows of a table of the paper, and say whether its ordering is reproduced.

    NAME is embedding (Table 3), sharing (4), sentence (5), time (6), data (7), dropout (8), depth (11), width (12),
    ngram or groups; or what the authors name as future work: masking or attention. A trained row is not trained again:
    rerun the command to resume.

    litebert study ablation sharing --corpus corpora/mine
    litebert study ablation sharing --corpus corpora/mine --probe sst2=data/glue --seeds 1,2,3
    litebert study ablation width --corpus corpora/mine --scale paper --afford 0
    """
    from litebert.study.trials import ablate

    _require(output)
    found = ablate(
        name,
        corpus,
        output,
        scale=scale,
        seeds=seeds,
        most_cpu_seconds=60 * afford,
        only=rows,
        probes=probes,
        more=more,
        say=say,
    )
    study = _written(found, ablation_part(found), {}, output)
    return replace(study, written=(output / f"{name}.json", *study.written))


def study_cost(
    *,
    tokens: Annotated[int, Ge(8), "Tokens of a step."] = 64,
    seq_length: Annotated[int, Ge(8), Le(512), "Tokens of a sequence."] = 64,
    rounds: Annotated[int, Ge(1), "Measurements of each time; their median counts."] = 3,
    precision: Literal["fp32", "bf16"] = "fp32",
    output: Output = None,
) -> Study[Costs]:
    """Time a training step and inference of ALBERT-large, ALBERT-xxlarge and BERT-large.

    The networks have random weights; BERT-large alone needs 5 GB. The times of data-parallel training are computed: the
    measured step, then the ring all-reduce of its gradients.

    litebert study cost
    litebert study cost --precision bf16 --tokens 512 --rounds 5
    """
    _require(output)
    from litebert.study.models import measure_costs

    found = measure_costs(tokens=tokens, seq_length=seq_length, rounds=rounds, precision=precision, say=say)
    return _written(found, costs_part(found), {"cost": found}, output)


class PageFound(TypedDict):
    page: str
    findings: dict[str, str]


def study_page(
    folder: Path, *, html: Annotated[Path, "The page to write."], force: Annotated[bool, "Replace the page."] = False
) -> Shown[PageFound]:
    """Write one page of all studies whose metrics files are in FOLDER, and print its path.

    litebert study page study --html study.html
    litebert study page study --html study.html --force
    """
    require_new(html, force=force)
    parts = read_parts(folder)
    write_text(html, pages.study_page(TITLE, parts).html())
    return Shown({"page": str(html), "findings": {part.name: part.finding for part in parts}}, str(html))


def _require(output: Path | None) -> None:
    if output is not None:  # before anything is measured
        require_replaceable(output, as_folder=True)


def _written(found: Found, part: Part, metrics: Mapping[str, BaseModel], output: Path | None) -> Study[Found]:
    """Write the metrics files by name, and the figures."""
    written: list[Path] = []
    if output is not None:
        for name, record in metrics.items():
            written.append(output / f"{name}.json")
            write_json(written[-1], record.model_dump(mode="json"))
        written += write_pictures(output, part)
    return Study(found, part, tuple(written))
