"""The studies of the paper as commands: what is measured becomes tables, figures and pages beside the paper's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Le
from pydantic import BaseModel
from typing_extensions import TypedDict

from litebert.config import PRESETS, preset
from litebert.errors import LitebertError
from litebert.files import Json, read_json, require_new, require_replaceable, write_json, write_text
from litebert.reading.lines import read_lines
from litebert.reading.source import find_file
from litebert.report.figures import Chart, Line, Point, RowPoint, RowsFigure
from litebert.report.page import Part, study_page, write_pictures
from litebert.report.tables import Table
from litebert.study.sizes import PAPER_PARAMETERS, Sizes, sizes_of
from litebert.terminal import say

if TYPE_CHECKING:  # what needs torch is imported where it is used, so that `litebert study --help` loads none
    from litebert.inference import Model
    from litebert.study.ablation import Ablation
    from litebert.study.claims import ClaimResult, Costs
    from litebert.study.layers import Layers, StepChange
    from litebert.study.masked import Depths, LocalAttention

COLORS = ("train", "held-out", "ink", "rule", "quiet")
Lines = Annotated[Path, "A file with one text per line."]
Models = Annotated[tuple[str, ...], "Models; by default the packaged one."]


@dataclass(frozen=True)
class Files:
    """Where a study is written; a page is replaced only with --force."""

    output: Annotated[Path | None, "Folder of metrics and figures."] = None
    html: Annotated[Path | None, "Write one page."] = None
    force: Annotated[bool, "Replace the page."] = False

    def __post_init__(self) -> None:
        """Refuse paths that cannot be written, before anything is measured."""
        if self.output is not None:
            require_replaceable(self.output, as_folder=True)
        if self.html is not None:
            require_new(self.html, force=self.force)


@dataclass(frozen=True)
class Study:
    """What a study found, as tables; its conclusion and the files that it wrote are notes."""

    part: Part
    found: Any
    written: tuple[Path, ...]
    formats: ClassVar = Table.formats

    def __str__(self) -> str:
        """Return the tables as text."""
        return "\n\n".join(table.as_text() for table in self.part.tables)

    def as_markdown(self) -> str:
        """Return the tables as Markdown."""
        return "\n\n".join(table.as_markdown() for table in self.part.tables)

    def as_csv(self) -> str:
        """Return the first table as CSV."""
        return self.part.tables[0].as_csv()

    def as_json(self) -> Any:
        """Return everything that was measured."""
        return self.found

    @property
    def notes(self) -> tuple[str, ...]:
        """The conclusion, and the files that were written."""
        return (self.part.finding, *map(str, self.written))


def write_study(
    parts: Sequence[Part],
    *,
    metrics: Mapping[str, BaseModel] | None = None,
    output: Path | None = None,
    html: Path | None = None,
) -> list[Path]:
    """Write metrics files, figures and the page of studies; return what was written."""
    written = []
    if output is not None:
        for name, value in (metrics or {}).items():
            written.append(output / f"{name}.json")
            write_json(written[-1], value.model_dump(mode="json"))
        written += write_pictures(output, parts)
    if html is not None:
        write_text(html, study_page("What the paper found, and what we found", parts).html())
        written.append(html)
    return written


def study_texts(path: str | Path, most: int | None = None) -> list[str]:
    """Return the lines of a file that are not blank, or the first of them."""
    lines = (line for _, line in read_lines(find_file(Path(path))) if line.strip())
    return list(islice(lines, most))


# ---- commands -------------------------------------------------------------------------------------------------------


def study_layers(
    models: Sequence[str | Path | None],
    texts: str | Path,
    *,
    depths: Sequence[int] = (24, 48, 96),
    most_texts: int = 32,
    say: Callable[[str], None] = lambda _: None,
) -> list[Layers]:
    """Measure the steps of each model on the first lines of a text file."""
    from litebert.inference import Model
    from litebert.study.layers import measure_layers

    lines, found = study_texts(texts, most_texts), []
    for path in models:
        model = Model.load(path)
        say(model.source)
        found.append(measure_layers(model, lines, depths=sorted(depths)))
    return found


def layers(
    models: Models = (),
    *,
    texts: Lines,
    limit: Annotated[int, Ge(1), "Texts read."] = 32,
    depths: Annotated[Sequence[int], "Depths to report."] = (24, 48, 96),
    files: Files,
) -> Study:
    """Compare the input and the output of every step, and apply the last step further.

    Reports at each depth whether the states converge (a step moves them by less than 1 %), oscillate (they return
    within 8 steps), close in (steps shrink by half), or wander.

    litebert study layers --texts my-text.txt
    litebert study layers runs/mine models/bert --texts my-text.txt --depths 24,48,96 --json
    """
    found = study_layers(models or (None,), texts, depths=depths, most_texts=limit, say=say)
    part, metrics = layers_part(found), {f"layers-{Path(each.source).name}": each for each in found}
    return Study(part, found, tuple(write_study([part], metrics=metrics, output=files.output, html=files.html)))


def ablation(
    name: str,
    *,
    corpus: Annotated[Path, "Corpus folder."],
    output: Annotated[Path, "Folder of runs, metrics and figures."] = Path("study"),
    scale: Annotated[str, "tiny, or paper: full scale."] = "tiny",
    seeds: Annotated[Sequence[int], "Seeds, separated by commas."] = (1, 2),
    rows: Annotated[tuple[str, ...], "Train only this row; may be repeated."] = (),
    afford: Annotated[
        float, Ge(0), "CPU minutes a row may take; the cost of others is predicted. 0: train none."
    ] = 10.0,
    train_all: Annotated[bool, "Train every row, whatever its cost."] = False,
    probes: Annotated[
        tuple[str, ...], "TASK=PATH: fine-tune each row at a fixed budget: sst2, squad, race-middle, or your own file."
    ] = (),
    more: Annotated[Path | None, "Second corpus, for the table `data` alone."] = None,
    html: Annotated[Path | None, "Write one page."] = None,
    force: Annotated[bool, "Replace the page."] = False,
) -> Study:
    """Train the rows of a table of the paper, and say whether its ordering is reproduced.

    NAME is embedding (Table 3), sharing (4), sentence (5), time (6), data (7), dropout (8), depth (11), width (12),
    ngram or groups; or an experiment that the authors name as future work: mining, masking, attention or elastic. A
    trained row is not trained again: rerun the command to resume.

    litebert study ablation sharing --corpus corpora/mine
    litebert study ablation sharing --corpus corpora/mine --probe sst2=data/glue --seeds 1,2,3
    litebert study ablation width --corpus corpora/mine --scale paper --afford 0
    """
    from litebert.study.ablation import Plan, Probe, ablate

    Files(html=html, force=force)
    plan = Plan(
        seeds=tuple(seeds),
        most_cpu_seconds=None if train_all else 60 * afford,
        only=rows,
        probes=tuple(map(Probe.parse, probes)),
        more=more.absolute() if more else None,
    )
    found = ablate(name, corpus, output, scale=scale, plan=plan, say=say)
    part = ablation_part(found)
    return Study(part, found, (output / f"{name}.json", *write_study([part], output=output, html=html)))


def cost(
    *,
    tokens: Annotated[int, Ge(8), "Tokens of a step."] = 64,
    seq_length: Annotated[int, Ge(8), Le(512), "Tokens of a sequence."] = 64,
    rounds: Annotated[int, Ge(1), "Measurements."] = 3,
    precision: Annotated[Literal["fp32", "bf16"], "Precision of activations."] = "fp32",
    files: Files,
) -> Study:
    """Time a training step and inference of ALBERT-large, ALBERT-xxlarge and BERT-large.

    The networks have random weights; BERT-large alone needs 5 GB. The times of data-parallel training are computed: the
    measured step, then the ring all-reduce of its gradients.

    litebert study cost
    litebert study cost --precision bf16 --tokens 512 --rounds 5 --json
    """
    from litebert.study.claims import measure_costs

    found = measure_costs(tokens=tokens, seq_length=seq_length, rounds=rounds, precision=precision, say=say)
    part = costs_part(found)
    return Study(part, found, tuple(write_study([part], metrics={"cost": found}, output=files.output, html=files.html)))


def attention(
    model: str | None = None,
    *,
    texts: Lines,
    window: Annotated[int, Ge(1), Le(65_536), "Tokens on each side that a token sees."] = 64,
    lengths: Annotated[Sequence[int], "Lengths to time."] = (512, 1_024, 2_048, 4_096, 8_192),
    rounds: Annotated[int, Ge(1), "Measurements."] = 3,
    longest: Annotated[int, Ge(8), "Tokens of a sequence for the loss."] = 512,
    write_model: Annotated[
        Path | None,
        "Write it with local attention and the longest length as positions; its position table is repeated. "
        "Continue training from it.",
    ] = None,
    trained_length: Annotated[
        int | None, Ge(1), "With --write-model: longest sequence of its training. Unset: all positions."
    ] = None,
    files: Files,
) -> Study:
    """Say whether local attention is exact, what a token costs, and what the loss becomes.

    litebert study attention --texts my-text.txt
    litebert study attention runs/mine --texts my-text.txt --window 32 --write-model models/long
    """
    from litebert.inference import Model
    from litebert.study.masked import measure_local_attention

    if write_model is not None:
        require_new(write_model)
    loaded = Model.load(model)
    found = measure_local_attention(
        loaded, study_texts(texts), window=window, lengths=lengths, rounds=rounds, longest=longest
    )
    part, name = attention_part(found), f"attention-{Path(found.source).name}"
    written = write_study([part], metrics={name: found}, output=files.output, html=files.html)
    if write_model is not None:
        written.append(write_lengthened(loaded, write_model, max(lengths), window, trained=trained_length))
    return Study(part, found, tuple(written))


def write_lengthened(
    model: Model, folder: Path, positions: int, window: int | None, *, trained: int | None = None
) -> Path:
    """Write a model with more positions and, with a window, local attention.

    Further training can start from it (`litebert pretrain --from`).
    """
    from litebert.nn import AlbertForPretraining
    from litebert.study.masked import lengthened
    from litebert.train.run import write_model

    assert isinstance(model.network, AlbertForPretraining)
    longer = lengthened(model.network, positions, window=window, trained=trained)
    write_model(folder, longer, model.tokenizer)
    return folder


def depth(
    models: Models = (),
    *,
    texts: Lines,
    longest: Annotated[int, Ge(8), "Pieces of a sequence."] = 128,
    rounds: Annotated[int, Ge(1), "Measurements."] = 3,
    files: Files,
) -> Study:
    """Measure the masked-LM head of models after each of their steps, and the time it takes.

    A model trained with elastic.least_depth serves at any depth; compare it with one that was not.

    litebert study depth --texts my-text.txt
    litebert study depth runs/elastic runs/fixed --texts my-text.txt --json
    """
    from litebert.inference import Model
    from litebert.study.masked import measure_depths

    lines = study_texts(texts)
    found = [measure_depths(Model.load(path), lines, longest=longest, rounds=rounds) for path in models or (None,)]
    part, metrics = depths_part(found), {f"depth-{Path(each.source).name}": each for each in found}
    return Study(part, found, tuple(write_study([part], metrics=metrics, output=files.output, html=files.html)))


class StudyPage(TypedDict):
    """The page of all studies, and what each of them found."""

    page: str
    findings: dict[str, str]


@dataclass(frozen=True)
class Paged:
    """The page of all studies."""

    path: Path
    parts: tuple[Part, ...]

    def __str__(self) -> str:
        """Return its path."""
        return str(self.path)

    def as_json(self) -> StudyPage:
        """Return what --json prints."""
        return {"page": str(self.path), "findings": {part.name: part.finding for part in self.parts}}


def page(folder: Path, *, html: Annotated[Path, "The page to write."]) -> Paged:
    """Write one page of all studies whose metrics files are in FOLDER, and print its path.

    litebert study page study --html study.html
    litebert study page study --html study.html --json
    """
    parts = read_parts(folder)
    write_study(parts, html=html)
    return Paged(html, tuple(parts))


class SizesList(dict[str, Sizes]):
    """Parameters, bytes and FLOPs by preset."""

    def as_json(self) -> list[dict[str, str | int | float]]:
        """Return every figure by name."""
        return [{"preset": name, **each.to_json()} for name, each in self.items()]  # type: ignore[dict-item]

    def __str__(self) -> str:
        """Return a table: the first column to the left, figures to the right."""
        head = (
            "preset",
            "body",
            "with heads",
            "paper",
            "MB fp32",
            "MB bf16",
            "MFLOP/token 128",
            "512",
            "formula",
            "cost",
        )
        rows = [head]
        for name, each in self.items():
            rows.append(
                (
                    name,
                    f"{each.body:,}",
                    f"{each.total:,}",
                    PAPER_PARAMETERS.get(name.removesuffix("-v1").removesuffix("-v2"), "-"),
                    f"{each.bytes_fp32 / 1e6:.1f}",
                    f"{each.bytes_bf16 / 1e6:.1f}",
                    f"{each.forward_flops_128 / 1e6:.1f}",
                    f"{each.forward_flops_512 / 1e6:.1f}",
                    f"{each.formula:,}",
                    f"{each.normalised_cost:.3e}",
                )
            )
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
            for row in rows
        )


def sizes(*, presets: Annotated[tuple[str, ...], "Show this preset only; may be repeated."] = ()) -> SizesList:
    """Show parameters, bytes and FLOPs of the presets.

    litebert sizes
    litebert sizes --preset base-v2 --preset bert-base --json

    FLOPs are those of one token's forward pass at lengths 128 and 512 (training: three times as many). The formula is
    V*E + E*H + L*(4H^2 + 2*4H^2) + H^2; its cost is that times the paper's 125,000 steps of 4,096 x 512 tokens. "paper"
    is Table 1, as printed.
    """
    return SizesList({name: sizes_of(preset(name)) for name in presets or PRESETS})


# ---- what was found, beside the paper's -----------------------------------------------------------------------------


def read_parts(folder: Path) -> list[Part]:
    """Return all studies whose metrics files are in a folder, the paper's first."""
    from litebert.study.ablation import GRIDS, Ablation
    from litebert.study.claims import Costs
    from litebert.study.layers import Layers
    from litebert.study.masked import Depths, LocalAttention

    def read(name: str) -> list[dict[str, Json]]:
        return [read_json(path, command="litebert study --help") for path in sorted(folder.glob(f"{name}.json"))]

    parts = []
    if layers := read("layers-*"):
        parts.append(layers_part([Layers.model_validate(each) for each in layers]))
    for grid in GRIDS:
        parts += [ablation_part(Ablation.model_validate(each)) for each in read(grid)]
    parts += [costs_part(Costs.model_validate(each)) for each in read("cost")]
    parts += [attention_part(LocalAttention.model_validate(each)) for each in read("attention-*")]
    if depths := read("depth-*"):
        parts.append(depths_part([Depths.model_validate(each) for each in depths]))
    if not parts:
        raise LitebertError(
            "LB-764",
            f"there is no metrics file of a study in {folder}",
            received="no layers-*.json, NAME.json, cost.json, attention-*.json or depth-*.json",
            expected="the folder that --output of a study names",
            next="litebert study layers --help",
        )
    return parts


def layers_part(found: Sequence[Layers]) -> Part:
    """Return Figure 1: one line per model, within its depth and beyond it."""
    rows = [
        (
            each.source,
            step.step,
            step.block,
            step.step <= each.num_steps,
            round(step.l2, 3),
            round(step.angle, 2),
            round(step.norm, 3),
            round(step.residual, 4),
        )
        for each in found
        for step in (*each.steps, *each.beyond)
        if step.step <= each.num_steps or step.step in {fate.depth for fate in each.fates}
    ]
    fates = [
        (
            each.source,
            fate.depth,
            fate.verdict,
            round(fate.residual, 4),
            fate.period,
            round(fate.return_residual, 4),
            round(each.eigenvalue_at_depth.modulus, 3),
            round(each.eigenvalue_at_end.modulus, 3),
            round(each.eigenvalue_at_end.turn, 3),
        )
        for each in found
        for fate in each.fates
    ]
    step_headings = ("model", "step", "block", "trained", "L2", "angle", "norm", "residual")
    fate_headings = ("model", "depth", "verdict", "residual", "period", "return")
    eigen_headings = ("|eigenvalue|", "at the end", "turn")
    return Part(
        name="layers",
        title="Figure 1: what each step changes",
        paper="The distances of ALBERT-large oscillate and do not go to zero: no fixed point. "
        "Figure 1 prints no numbers and names no texts.",
        finding=" ".join(each.summary for each in found),
        tables=(
            Table((*fate_headings, *eigen_headings), tuple(fates), "Beyond the trained depth"),
            Table(step_headings, tuple(rows), "Each trained step, and the depths judged"),
        ),
        figures=(
            _steps_chart("L2 distance of input and output", found, lambda s: s.l2),
            _steps_chart("Angle of input and output, degrees", found, lambda s: s.angle),
            _beyond_chart("Residual beyond the trained depth", found),
        ),
    )


def ablation_part(found: Ablation) -> Part:
    """Return a table of the paper with our rows beside it."""
    names = ("mask_token_accuracy", "masked_lm_loss", "sentence_order_accuracy")
    crossed = ("nsp_accuracy", "nsp_commonest", "sop_accuracy", "sop_commonest")
    by_depth = sorted(
        {n for row in found.rows for t in row.trials for n in t.measures if "_at_" in n},
        key=lambda name: int(name.rpartition("_")[2]),
    )
    by_row = [{name for t in row.trials for name in t.probes} for row in found.rows]
    # A probe of one row alone belongs to another table that shares the row.
    probes = sorted({n for names in by_row for n in names if sum(n in x for x in by_row) > 1})
    # A row that other tables share may have measures that only they want.
    from litebert.study.ablation import GRIDS

    grid = GRIDS[found.name]
    wanted = (*names, *(crossed if grid.crosses_objectives else ()), *(by_depth if grid.measures_depths else ()))
    measures = [n for n in wanted if any(row.values(n) for row in found.rows)]
    headings = ["row", "paper", "seeds", *(f"{m}{x}" for m in measures for x in ("", " ±")), *probes]
    headings += ["tokens", "CPU s", "table", "body", "predicted CPU s", "predicted FLOPs"]
    rows = []
    for row in found.rows:
        cells: list[str | int | float | None] = [row.label, row.paper, len(row.trials)]
        for measure in measures:
            spread = row.spread(measure)
            cells += [None, None] if spread is None else [spread.mean, spread.spread]
        cells += [_mean(t.probes[name] for t in row.trials if name in t.probes) for name in probes]
        trials = row.trials
        cells += [
            sum(t.tokens for t in trials) // len(trials) if trials else None,
            _mean(t.cpu_seconds for t in trials),
            trials[0].table if trials else None,
            trials[0].body if trials else None,
            row.predicted_cpu_seconds,
            f"{row.predicted_flops:.2e}",
        ]
        rows.append(tuple(cells))
    points = tuple(
        RowPoint(row.label, tuple(values), row.paper) for row, values in zip(found.rows, found.compared, strict=True)
    )
    is_measured = any(row.trials for row in found.rows)
    return Part(
        name=found.name,
        title=f"{found.title} (paper: {found.source})",
        paper=f"figures are the paper's {found.paper_measure}; ours is {found.measure} on held-out "
        f"text, at scale {found.scale}.",
        finding=found.verdict,
        tables=(Table(tuple(headings), tuple(rows), found.title),),
        figures=(RowsFigure(found.title, "Bars: deviation between seeds.", points),) if is_measured else (),
    )


def costs_part(found: Costs) -> Part:
    """Return the claims of speed and cost, with the time that three network speeds add."""
    from litebert.study.claims import GIGABITS

    headings = ["networks", "paper", "training step", "low", "high", "inference", "low", "high"]
    headings += ["by FLOPs", "parameters", "beside", "gradient MB", "beside", "training GB", "beside"]
    headings += [f"at {speed} Gbit/s" for speed in GIGABITS]
    return Part(
        name="cost",
        title="Speed and cost (paper: Table 2, 4.3)",
        paper="ALBERT-large trains 1.7 times as fast as BERT-large, ALBERT-xxlarge 0.3 times, on "
        "many TPUs with their communication.",
        finding=" ".join(map(_claim_sentence, found.claims)),
        tables=(
            Table(
                tuple(headings),
                tuple(_claim_row(each) for each in found.claims),
                f"Speeds as multiples of the network beside; {found.tokens} tokens, sequences of "
                f"{found.seq_length}, {found.precision}, {found.threads} threads, "
                f"{found.rounds} interleaved rounds of CPU time",
                decimals=2,
            ),
        ),
    )


def attention_part(found: LocalAttention) -> Part:
    """Return what local attention costs and loses."""
    costs = tuple((x.length, x.full, x.local, x.full / x.local) for x in found.costs)
    losses = tuple((x.window or "full attention", x.loss) for x in found.losses)
    return Part(
        name="attention",
        title="Local attention",
        paper="sparse and block attention are named as a next step (section 5), without a figure.",
        finding=found.summary,
        tables=(
            Table(
                ("tokens", "full", "local", "full / local"),
                costs,
                "CPU microseconds a token of one sequence, forward pass",
                decimals=2,
            ),
            Table(("window", "masked-LM loss"), losses, "The same weights, not trained for it"),
        ),
    )


def depths_part(found: Sequence[Depths]) -> Part:
    """Return what models predict at every depth."""
    rows = tuple((each.source, x.depth, x.loss, x.accuracy, x.microseconds) for each in found for x in each.depths)
    return Part(
        name="depth",
        title="Elastic depth",
        paper="Table 11 trains every depth separately; no network is used at several depths.",
        finding=" ".join(each.summary for each in found),
        tables=(Table(("model", "depth", "loss", "accuracy", "µs a token"), rows, "By depth"),),
    )


def _mean(values: Iterable[float]) -> float | None:
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else None


def _steps_chart(title: str, found: Sequence[Layers], value: Callable[[StepChange], float]) -> Chart:
    return _chart(title, "Means over tokens.", [(e.source, e.steps) for e in found], value)


def _beyond_chart(title: str, found: Sequence[Layers]) -> Chart:
    lines = [(each.source, [*each.steps, *each.beyond]) for each in found]
    caption = "Share of its length by which a step moves a state."
    return _chart(title, caption, lines, lambda s: s.residual, is_logarithmic=True)


def _chart(
    title: str,
    caption: str,
    lines: Sequence[tuple[str, Sequence[StepChange]]],
    value: Callable[[StepChange], float],
    *,
    is_logarithmic: bool = False,
) -> Chart:
    return Chart(
        title,
        caption,
        tuple(
            Line(
                Path(source).name,
                COLORS[number % len(COLORS)],
                tuple(Point(s.step, value(s), value(s), value(s)) for s in steps),
            )
            for number, (source, steps) in enumerate(lines)
        ),
        "{:.3g}".format,
        is_logarithmic=is_logarithmic,
    )


def _claim_row(each: ClaimResult) -> tuple[str | int | float | None, ...]:
    from litebert.study.claims import GIGABITS

    train, infer = each.training_speed, each.inference_speed
    return (
        f"{each.name} / {each.beside}",
        each.paper_speed,
        *(train.median, train.low, train.high, infer.median, infer.low, infer.high),
        each.flops_speed,
        *each.parameters,
        *(size / 1e6 for size in each.gradient_bytes),
        *(size / 1e9 for size in each.training_bytes),
        *(each.speed_at(speed) for speed in GIGABITS),
    )


def _claim_sentence(each: ClaimResult) -> str:
    from litebert.study.claims import GIGABITS

    own, other = (size / 1e6 for size in each.gradient_bytes)
    speed = each.training_speed.median
    is_near = 0.8 <= speed / each.paper_speed <= 1.25
    return (
        f"{each.name}: a training step is {speed:.2f} times as fast as {each.beside}'s "
        f"(paper {each.paper_speed}: {'within' if is_near else 'not within'} 25 % of that, on "
        f"one process), inference {each.inference_speed.median:.2f} times; it sends {own:,.0f} MB "
        f"of gradients a step, not {other:,.0f} MB, and with the all-reduce of "
        f"{GIGABITS[0]} / {GIGABITS[1]} / {GIGABITS[2]} Gbit/s it is "
        f"{' / '.join(f'{each.speed_at(g):.2f}' for g in GIGABITS)} times as fast."
    )
