"""The commands of `litebert study`: findings as a record in a JSON file, a conclusion,
tables and figures.

Imports inside functions need torch, which `litebert study layers --help` does not load.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from statistics import fmean, median
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

from annotated_types import Ge, Le
from pydantic import BaseModel

from litebert.answers import Shown
from litebert.config import preset
from litebert.errors import LitebertError, no_such_name, say
from litebert.files import require_new, require_replaceable, write_json, write_text
from litebert.metrics import Spread
from litebert.reading.source import find_file, read_lines
from litebert.report.figures import Figure, Line, Point, chart, picture, rows_figure
from litebert.report.page import Page, Section
from litebert.report.tables import Cell, Table
from litebert.runs import read_record, require_distinct
from litebert.study.ablation import (
    MEASURE,
    Ablation,
    AblationRow,
    read_grids,
    training_flops,
)

HELP = "litebert study ablation --help"
GIGABITS = (1, 10, 100)
COLORS = ("train", "held-out", "ink", "rule", "quiet")
Verdict = Literal["converges", "closes in", "oscillates", "wanders"]
Record = TypeVar("Record", bound=BaseModel)
Found = TypeVar("Found")
Output = Annotated[Path | None, "Folder for metrics and figures."]


@dataclass(frozen=True)
class Study(Generic[Found]):
    """What the paper found and what we found, a sentence that compares them, and the
    files that were written.
    """

    found: Found
    name: str
    title: str
    paper: str
    finding: str
    tables: Sequence[Table]
    figures: Sequence[Figure] = ()
    written: tuple[Path, ...] = ()
    formats: ClassVar = ("json", "csv", "markdown")

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.tables))

    def as_json(self) -> Found:
        return self.found

    def as_csv(self) -> str:
        return self.tables[0].as_csv()

    def as_markdown(self) -> str:
        return "\n\n".join(table.as_markdown() for table in self.tables)

    @property
    def notes(self) -> tuple[str, ...]:
        return (self.finding, *map(str, self.written))

    def write(
        self, folder: Path | None, records: Mapping[str, BaseModel]
    ) -> "Study[Found]":
        """Write the records as metrics files by name, and the figures."""
        if folder is None:
            return self
        files = {
            f"{name}.json": record.model_dump_json(indent=2)
            for name, record in records.items()
        }
        files |= {
            f"{self.name}-{number}.svg": picture(each)
            for number, each in enumerate(self.figures, start=1)
        }
        for name, text in files.items():
            write_text(folder / name, text)
        return replace(self, written=tuple(folder / name for name in files))


def read_findings(record: type[Record], folder: Path, name: str) -> list[Record]:
    """Return the records in the metrics files with this name, which may contain a *."""
    advice = "make it again with this version; a file of another kind belongs elsewhere"
    found = (
        read_record(record, path, advice)
        for path in sorted(folder.glob(f"{name}.json"))
    )
    return [each for each in found if each]


# ---- Figure 1 of the paper: what each step changes -----------------------------------


class StepChange(BaseModel):
    """Input and output of one step compared: means over the tokens of the texts."""

    step: int
    block: int  # the block that the step applies, numbered by first use
    l2: float  # distance of input and output
    angle: float  # in degrees
    norm: float  # length of the output
    residual: float  # the distance as a share of the length of the input


class Fate(BaseModel):
    """The behaviour of the iterates at a depth beyond the trained one; `models.fate_of`
    has the criteria.
    """

    depth: int
    verdict: Verdict
    residual: float  # mean over the last 8 steps
    period: int  # 2 to 8 steps, after which the states come closest to where they were
    return_residual: float  # their distance then


class Layers(BaseModel):
    """What `litebert study layers` found in one network."""

    source: str
    num_steps: int
    num_tokens: int
    steps: list[StepChange]
    beyond: list[StepChange]
    fates: list[Fate]
    # The modulus of the dominant eigenvalue of a step's Jacobian: below 1 the step is
    # locally a contraction.
    eigenvalue_at_depth: float
    eigenvalue_at_end: float

    @property
    def summary(self) -> str:
        """What happens beyond the trained depth, in two sentences."""
        blocks = self.steps[-1].block
        repeated = (
            "its shared step" if blocks == 1 else f"the last of its {blocks} blocks"
        )
        if 1 < blocks == self.num_steps:
            repeated = "its last step"
        fates = ", ".join(f"{fate.verdict} at step {fate.depth}" for fate in self.fates)
        return (
            f"{self.source}, trained with {self.num_steps} steps: applying {repeated}"
            f" further, it {fates}. In the end a step moves a state by"
            f" {self.fates[-1].residual:.1%} of its length; the dominant eigenvalue has"
            f" modulus {self.eigenvalue_at_end:.2f} there and"
            f" {self.eigenvalue_at_depth:.2f} at the trained depth."
        )


def study_layers(
    *models: str | Path,
    texts: Annotated[Path, "A file with one text per line."],
    limit: Annotated[int, Ge(1), "Maximum texts to read."] = 32,
    depths: Annotated[tuple[int, ...], "Depths to report."] = (24, 48, 96),
    output: Output = None,
) -> Study[list[Layers]]:
    """Compare the input and the output of every step, and go on applying the last step.

    This reports at each depth whether the states converge (a step moves them by less
    than 1 %), oscillate (they return within 8 steps), close in (steps shrink by half),
    or wander. Without a model, the packaged model is measured.

    litebert study layers --texts my-text.txt
    litebert study layers runs/mine models/bert --texts my-text.txt --depths 24,48,96 --output study
    """
    if output:
        require_replaceable(output, as_folder=True)  # before anything is measured
    from litebert.inference import Model
    from litebert.study.models import measure_layers

    filled = (line for _, line in read_lines(find_file(texts)) if line.strip())
    lines = list(islice(filled, limit))
    found = []
    for path in models or (None,):
        model = Model.load(path)
        say(model.source)
        found.append(measure_layers(model, lines, depths=sorted(depths)))
    named = zip(_names(found), found, strict=True)
    return report_layers(found).write(
        output, {f"layers-{name}": each for name, each in named}
    )


def _names(found: Sequence[Layers]) -> list[str]:
    """Name models by the ends of their paths, long enough that they differ and none is
    only `model` or `best`.
    """
    paths = [Path(each.source).absolute().parts[1:] for each in found]
    ends = (
        ["-".join(path[-length:]) for path in paths]
        for length in range(1, max(map(len, paths)))
    )
    good = (
        names
        for names in ends
        if len({*names}) == len({*paths}) and not {"model", "best"} & {*names}
    )
    return next(good, ["-".join(path) for path in paths])


def report_layers(found: Sequence[Layers]) -> Study[list[Layers]]:
    fates = list[list[Cell]]()
    steps = list[list[Cell]]()
    for each in found:
        moduli = (each.eigenvalue_at_depth, each.eigenvalue_at_end)
        fates += [
            [each.source, *fate.model_dump().values(), *moduli] for fate in each.fates
        ]
        judged = [
            step
            for step in each.beyond
            if step.step in {fate.depth for fate in each.fates}
        ]
        steps += [
            [each.source, *step.model_dump().values()]
            for step in (*each.steps, *judged)
        ]

    def draw(
        title: str,
        caption: str,
        value: Callable[[StepChange], float],
        *,
        beyond: bool = False,
    ) -> list[Figure]:
        lines = []
        for name, each, color in zip(_names(found), found, cycle(COLORS), strict=False):
            shown = [*each.steps, *each.beyond] if beyond else each.steps
            points = [
                Point(step.step, value(step), value(step), value(step))
                for step in shown
            ]
            lines.append(Line(name, color, points))
        return chart(title, caption, lines, "{:.3g}".format, is_logarithmic=beyond)

    fate_headings = (
        "model",
        "depth",
        "verdict",
        "residual",
        "period",
        "return",
        "|eigenvalue|",
        "at the end",
    )
    step_headings = ("model", "step", "block", "L2", "angle", "norm", "residual")
    moved_by = "How far a step moves a state, as a share of its length."
    return Study(
        list(found),
        name="layers",
        title="Figure 1: what each step changes",
        paper=(
            "The distances of ALBERT-large oscillate and do not go to zero: no fixed"
            " point. Figure 1 gives no numbers and names no texts."
        ),
        finding=" ".join(each.summary for each in found),
        tables=[
            Table(fate_headings, fates, "Beyond the trained depth"),
            Table(step_headings, steps, "Each trained step, and the depths judged"),
        ],
        figures=[
            *draw(
                "L2 distance of input and output",
                "Means over tokens.",
                lambda step: step.l2,
            ),
            *draw(
                "Angle of input and output, degrees",
                "Means over tokens.",
                lambda step: step.angle,
            ),
            *draw(
                "Residual beyond the trained depth",
                moved_by,
                lambda step: step.residual,
                beyond=True,
            ),
        ],
    )


# ---- the paper's tables --------------------------------------------------------------


def study_ablation(
    name: str,
    *,
    corpus: Annotated[Path, "Corpus folder."],
    output: Annotated[Path, "Folder for runs, metrics and figures."] = Path("study"),
    scale: Annotated[str, "tiny, or paper (full scale)."] = "tiny",
    seeds: Annotated[tuple[int, ...], "Seeds, separated by commas."] = (1, 2),
    rows: Annotated[
        tuple[str, ...], "--row", "Train only this row; may be repeated."
    ] = (),
    afford: Annotated[
        float,
        Ge(0),
        "CPU minutes that a row may take; longer rows are only predicted. 0: train"
        " none, inf: all.",
    ] = 10.0,
    probes: Annotated[
        tuple[str, ...],
        "--probe",
        "TASK=PATH: fine-tune each row at a fixed budget, on sst2, squad, race-middle,"
        " or your own file.",
    ] = (),
    more: Annotated[Path | None, "Second corpus, only for the table `data`."] = None,
) -> Study[Ablation]:
    """Train the rows of a table of the paper, and report whether its ordering is
    reproduced.

    NAME is embedding (Table 3), sharing (4), sentence (5), time (6), data (7), dropout
    (8), depth (11), width (12), ngram or groups; or masking or attention, which the
    authors name as future work. A trained row is not trained again: rerun the command
    to resume.

    litebert study ablation sharing --corpus corpora/mine
    litebert study ablation sharing --corpus corpora/mine --probe sst2=data/glue --seeds 1,2,3
    litebert study ablation width --corpus corpora/mine --scale paper --afford 0
    """
    require_replaceable(output, as_folder=True)
    tables = read_grids().tables
    scales = read_grids().scales
    variants = (
        tables[name].variants(scales[scale])
        if name in tables and scale in scales
        else {}
    )
    asked: list[tuple[str, str, Mapping[str, object]]] = [
        ("table", name, tables),
        ("scale", scale, scales),
    ]
    asked += [("row", label, variants) for label in rows]
    for kind, given, known in asked:
        if given not in known:
            raise no_such_name(
                "LB-746", f"there is no {kind} of this name", given, known, next=HELP
            )
    for probe in probes:
        if not all(probe.partition("=")):
            wanted = (
                "TASK=PATH: a named task and its folder, or a name and your own file"
            )
            raise LitebertError(
                "LB-762",
                "a probe is a task and its data",
                received=probe,
                expected=wanted,
                next=HELP,
            )
    if more is None and any(variant.has_more_data for variant in variants.values()):
        again = "litebert study ablation data --corpus CORPUS --more CORPUS"
        raise LitebertError(
            "LB-829",
            "this table compares one corpus with two of the same vocabulary",
            next=again,
        )
    require_distinct(seeds)
    from litebert.study.trials import Bench, measure_rate

    bench = Bench(
        tables[name],
        scale,
        corpus.absolute(),
        output / "runs",
        more and more.absolute(),
    )
    rate = measure_rate(bench.scale)
    measured = list[AblationRow]()
    for label, variant in variants.items():
        flops = training_flops(bench.words(variant, 0))
        predicted = {
            "predicted_flops": flops,
            "predicted_cpu_seconds": float(f"{flops / rate:.3g}"),
        }
        measured.append(
            AblationRow(
                label=label, part=variant.part, paper=variant.paper, **predicted
            )
        )
    found = Ablation(
        name=name,
        title=tables[name].title,
        source=tables[name].source,
        scale=scale,
        rows=measured,
    )
    for seed in seeds:
        for row in found.rows:
            variant = variants[row.label]
            trained = bench.read_trial(variant, seed)
            if row.predicted_flops / rate <= 60 * afford and (
                not rows or row.label in rows
            ):
                if not trained:
                    say(f"{name}, {row.label}, seed {seed}")
                trained = bench.trial(variant, seed, probes)
            row.trials += [trained] if trained else []
            # after each row: training takes long
            write_json(output / f"{name}.json", found.model_dump(mode="json"))
    return report_ablation(found).write(output, {name: found})


def report_ablation(found: Ablation) -> Study[Ablation]:
    """Return a table with the paper's figures next to ours, and its figure."""
    headings = [
        "row",
        "paper",
        "seeds",
        *(f"{name}{end}" for name in found.columns for end in ("", " ±")),
    ]
    headings += [
        "tokens",
        "CPU s",
        "table",
        "body",
        "predicted CPU s",
        "predicted FLOPs",
    ]
    rows = list[list[Cell]]()
    points = dict[str, list[float]]()
    for row in found.rows:
        cells: list[Cell] = [row.label, row.paper, len(row.trials)]
        for name in found.columns:
            values = row.values(name)
            cells += (
                [Spread.of(values).mean, Spread.of(values).spread]
                if values
                else [None, None]
            )
        cost: list[Cell] = [None] * 4
        if row.trials:
            first = row.trials[0]
            tokens = fmean(trial.tokens for trial in row.trials)
            cost = [
                int(tokens),
                fmean(trial.cpu_seconds for trial in row.trials),
                first.table,
                first.body,
            ]
        rows.append(
            [*cells, *cost, row.predicted_cpu_seconds, f"{row.predicted_flops:.2e}"]
        )
        points[f"{row.label} (paper {row.paper})" if row.paper else row.label] = (
            row.values(MEASURE)
        )
    is_measured = any(row.trials for row in found.rows)
    return Study(
        found,
        name=found.name,
        title=f"{found.title} (paper: {found.source})",
        paper=(
            f"its figures are percent on tasks; ours are {MEASURE} on held-out text, at"
            f" scale {found.scale}."
        ),
        finding=found.verdict,
        tables=[Table(headings, rows, found.title)],
        figures=(
            [rows_figure(found.title, "Bars: deviation between seeds.", points)]
            if is_measured
            else []
        ),
    )


# ---- speed and cost ------------------------------------------------------------------


class ClaimResult(BaseModel):
    """One claim as measured here; pairs are (this network, the one beside it), speeds
    are relative to the latter.
    """

    name: str
    beside: str
    paper_speed: float
    training_speeds: list[float]  # of each round
    inference_speeds: list[float]
    flops_speed: float
    parameters: tuple[int, int]
    training_seconds: tuple[float, float]  # CPU seconds of one process

    def speed_at(self, gigabits: int) -> float:
        """Return the ratio of speeds of a step with a ring all-reduce, which sends the
        gradients about twice.
        """
        own, other = (
            # gradients are in float32: 32 bits per parameter
            seconds + 2 * 32 * number / (gigabits * 1e9)
            for seconds, number in zip(
                self.training_seconds, self.parameters, strict=True
            )
        )
        return other / own


class Costs(BaseModel):
    """What `litebert study cost` measured."""

    tokens: int
    seq_length: int
    rounds: int
    precision: str
    threads: int
    claims: list[ClaimResult]


def study_cost(
    *,
    tokens: Annotated[int, Ge(8), "Tokens per step."] = 64,
    seq_length: Annotated[int, Ge(8), Le(512), "Tokens per sequence."] = 64,
    rounds: Annotated[
        int, Ge(1), "Measurements of each time; the median is reported."
    ] = 3,
    precision: Literal["fp32", "bf16"] = "fp32",
    output: Output = None,
) -> Study[Costs]:
    """Time a training step and inference of ALBERT-large, ALBERT-xxlarge and
    BERT-large.

    The networks have random weights; BERT-large alone needs 5 GB. The times of
    data-parallel training are computed: the measured step plus a ring all-reduce of its
    gradients.

    litebert study cost
    litebert study cost --precision bf16 --tokens 512 --rounds 5
    """
    if output:
        require_replaceable(output, as_folder=True)  # before anything is measured
    from litebert.study.models import measure_costs

    # Table 2, 4.3
    claims = {
        "ALBERT-large": (preset("large-v2"), 1.7),
        "ALBERT-xxlarge": (preset("xxlarge-v2"), 0.3),
    }
    given = {"tokens": tokens, "seq_length": seq_length, "rounds": rounds}
    found = measure_costs(
        claims, ("BERT-large", preset("bert-large")), **given, precision=precision
    )
    return report_costs(found).write(output, {"cost": found})


def report_costs(found: Costs) -> Study[Costs]:
    headings = [
        "networks",
        "paper",
        "training step",
        "low",
        "high",
        "inference",
        "low",
        "high",
        "by FLOPs",
    ]
    headings += ["gradient MB", "beside", *(f"at {speed} Gbit/s" for speed in GIGABITS)]
    rows = list[list[Cell]]()
    said = []
    for each in found.claims:
        rounds = (each.training_speeds, each.inference_speeds)
        speeds = [
            value for some in rounds for value in (median(some), min(some), max(some))
        ]
        sizes = [4 * number / 1e6 for number in each.parameters]
        cells = (
            each.paper_speed,
            *speeds,
            each.flops_speed,
            *sizes,
            *map(each.speed_at, GIGABITS),
        )
        rows.append([f"{each.name} / {each.beside}", *cells])
        said.append(
            f"{each.name}: a training step is {speeds[0]:.2f} times as fast as"
            f" {each.beside}'s on one process (paper {each.paper_speed}), inference"
            f" {speeds[3]:.2f} times."
        )
    title = (
        f"Speeds relative to the second network; {found.tokens} tokens, sequences of"
        f" {found.seq_length}, {found.precision}, {found.threads} threads,"
        f" {found.rounds} interleaved rounds of CPU time"
    )
    return Study(
        found,
        name="cost",
        title="Speed and cost (paper: Table 2, 4.3)",
        paper=(
            "ALBERT-large trains 1.7 times as fast as BERT-large, ALBERT-xxlarge 0.3"
            " times, on many TPUs, including communication."
        ),
        finding=" ".join(said),
        tables=[Table(headings, rows, title, decimals=2)],
    )


# ---- all studies of a folder ---------------------------------------------------------


def study_page(
    folder: Path,
    *,
    html: Annotated[Path, "The page to write."],
    force: Annotated[bool, "Replace the page."] = False,
) -> Shown[dict[str, str | dict[str, str]]]:
    """Write one page of all studies that have metrics files in FOLDER, and print its
    path.

    litebert study page study --html study.html
    litebert study page study --html study.html --force
    """
    require_new(html, force=force)
    layers = read_findings(Layers, folder, "layers-*")
    studies: list[Study[Any]] = [report_layers(layers)] if layers else []
    studies += [
        report_ablation(each)
        for name in read_grids().tables
        for each in read_findings(Ablation, folder, name)
    ]
    studies += map(report_costs, read_findings(Costs, folder, "cost"))
    if not studies:
        what = f"there is no metrics file of a study in {folder}"
        expected = "the --output folder of a study"
        raise LitebertError(
            "LB-764", what, expected=expected, next="litebert study layers --help"
        )
    sections = [
        Section(
            each.title,
            [f"The paper: {each.paper}", f"Here: {each.finding}"],
            each.figures,
            each.tables,
        )
        for each in studies
    ]
    sources = "the metrics files of the studies. The paper is arXiv 1909.11942"
    write_text(
        html,
        Page(
            "What the paper found, and what we found", "Study", sections, sources
        ).html(),
    )
    return Shown(
        {"page": str(html), "findings": {each.name: each.finding for each in studies}},
        str(html),
    )
