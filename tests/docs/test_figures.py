"""Figures in README, the pages and the model's card are those of the files of
measurements that they come from. Both sides are read.

A case of `CLAIMS` names a sentence of a page, with `{}` where a figure stands, and where
each figure was recorded: a cell of a table, or a sentence of a file.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = "README.md"
SPEED_PAGE = "docs/speed.md"
RESULTS = "benchmarks/RESULTS.md"
NUMBER = r"(-?[\d,]*\.?\d+)"


@cache
def read(page: str) -> str:
    return (ROOT / page).read_text("utf-8")


def section(page: str, *headings: str) -> str:
    """Return the text below a heading up to the next of its rank, then below a heading
    in that text, and so on.
    """
    text = read(page)
    for heading in headings:
        title = re.search(rf"^(#+) {re.escape(heading)}.*$", text, re.MULTILINE)
        assert title, f"{page} has no heading {heading!r}"
        below = text[title.end() :]
        rank = len(title[1])
        end = re.search(rf"^#{{1,{rank}}} ", below, re.MULTILINE)
        text = below[: end.start()] if end else below
    return text


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def tables(text: str) -> list[list[list[str]]]:
    """Return the tables of a text: lists of rows, the headings first."""
    tables = []
    for block in re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE):
        rows = [cells(line) for line in block.splitlines()]
        # the second line is a rule
        tables.append([rows[0], *rows[2:]])
    return tables


def row(text: str, label: str) -> dict[str, str]:
    """Return the first row of the tables whose first cell is `label`, by column."""
    for headings, *lines in tables(text):
        for line in lines:
            if line[0] == label:
                return dict(zip(headings, line, strict=True))
    raise AssertionError(f"no row {label!r}")


def value(shown: str) -> float:
    return float(shown.replace(",", ""))


def assert_rounds_to(measured: float, shown: str) -> None:
    """Assert that a figure is a measured one, rounded to the digits that are shown."""
    decimals = len(shown.partition(".")[2])
    half = 0.5 * 10**-decimals
    assert abs(measured - value(shown)) <= half + 1e-9, (measured, shown)


# ---- the table of speeds, and the chart of README

SPEED = {
    "1 text of 16 tokens": "1 x 16",
    "8 texts of 128 tokens": "8 x 128",
    "SST-2, NLI and IMDB, batches of 16, in file order": "stream",
    "a pretraining step, 8 x 512": "pretraining 8 x 512",
    "fine-tuning on SST-2, against `Trainer`": "fine-tuning 96",
}
"""Rows of the table in docs/speed.md, and of the recorded one."""

PRECISIONS = ["fp32", "bf16", "int8"]
SPEEDUPS = re.compile(rf"\**{NUMBER}\** \({NUMBER} (\w+)\)")
SHOWN = re.compile(rf"{NUMBER} \((\w+) {NUMBER}\)")


def test_the_page_shows_our_speed_and_that_of_the_best_rival() -> None:
    recorded = section(RESULTS, "Speed on a Xeon with AMX", "1 thread")
    page = section(SPEED_PAGE, "Beside other programs")
    (table,) = tables(page)
    assert [line[0] for line in table[1:]] == list(SPEED)
    for label, work in SPEED.items():
        shown_row = row(page, label)
        measured_row = row(recorded, work)
        for precision in PRECISIONS:
            measured = SPEEDUPS.fullmatch(measured_row[precision])
            if not measured:
                assert shown_row[precision] == ""
                continue
            shown = SHOWN.fullmatch(shown_row[precision])
            assert shown, shown_row
            ours, rival, best = measured.groups()
            assert shown[2].lower() == best
            assert_rounds_to(value(ours), shown[1])
            assert_rounds_to(value(rival), shown[3])


def test_the_chart_of_readme_shows_what_was_measured() -> None:
    lines = tables(section(RESULTS, "Speed on a Xeon with AMX", "1 thread"))[1][1:]
    speeds = {
        contender: speed for work, contender, _, speed, *_ in lines if work == "stream"
    }
    readme = read(README)
    for precision in PRECISIONS:
        ours = speeds[f"litebert {precision}"]
        rival = speeds[f"openvino {precision}"]
        assert f"{ours} in {precision}" in readme
        assert rival in readme
        for theme in ("light", "dark"):
            chart = read(f"docs/images/speed-{theme}.svg")
            assert f" {ours}<" in chart
            assert f" {rival}<" in chart


@pytest.mark.parametrize("work", SPEED.values())
def test_the_best_rival_is_the_fastest_of_those_measured(work: str) -> None:
    recorded = section(RESULTS, "Speed on a Xeon with AMX", "1 thread")
    _, contenders = tables(recorded)
    headings, *lines = contenders
    times = headings.index("times")
    measured_row = row(recorded, work)
    for precision in PRECISIONS:
        measured = SPEEDUPS.fullmatch(measured_row[precision])
        if not measured:
            continue
        rivals = {
            line[1]: value(line[times])
            for line in lines
            if line[0] == work and line[1].endswith(precision)
        }
        ours = rivals.pop(f"litebert {precision}")
        assert ours == value(measured[1])
        assert max(rivals, key=rivals.__getitem__) == f"{measured[3]} {precision}"
        assert max(rivals.values()) == value(measured[2])


def test_the_page_says_where_the_best_rival_is_faster() -> None:
    recorded = section(RESULTS, "Speed on a Xeon with AMX", "1 thread")
    short = row(recorded, "1 x 16")
    for precision in PRECISIONS:
        ours, rival, best = SPEEDUPS.fullmatch(short[precision]).groups()
        assert value(ours) < value(rival)
        assert best == "openvino"
    text = " ".join(section(SPEED_PAGE, "Beside other programs").split())
    assert "one short text OpenVINO is faster than litebert in every precision" in text
    epyc = row(section(RESULTS, "Speed on a CPU: `make bench`", "1 thread"), "1 x 512")
    ours, rival, _ = SPEEDUPS.fullmatch(epyc["int8"]).groups()
    shown = re.search(rf"on an AMD EPYC, OpenVINO is up to {NUMBER} times", text)
    assert_rounds_to(value(rival) / value(ours), shown[1])


# ---- figures in sentences and in other tables


@dataclass(frozen=True)
class Cell:
    """A figure in a recorded table: below these headings, in the row whose first cells
    are these, in this column; the first number of the cell, or a later one.
    """

    page: str
    headings: tuple[str, ...]
    row: tuple[str, ...]
    column: str
    number: int = 0

    def read(self) -> float:
        for headings, *lines in tables(section(self.page, *self.headings)):
            for line in lines:
                start = tuple(plain(cell) for cell in line[: len(self.row)])
                if start == self.row and self.column in headings:
                    cell = line[headings.index(self.column)]
                    return value(re.findall(NUMBER, cell)[self.number])
        raise AssertionError(f"{self} was not recorded")


@dataclass(frozen=True)
class Said:
    """A figure in a recorded sentence: the one at `{}`; `...` stands for any others."""

    page: str
    sentence: str

    def read(self) -> float:
        return value(numbers_in(self.page, self.sentence)[0])


def plain(cell: str) -> str:
    return cell.replace("*", "")


def numbers_in(page: str, sentence: str) -> list[str]:
    """Return the figures that a page has where the sentence has `{}`."""
    pattern = re.escape(" ".join(sentence.split()))
    pattern = pattern.replace(r"\{\}", NUMBER).replace(r"\.\.\.", r"[\d.,]+")
    text = " ".join(read(page).split())
    match = re.search(pattern, text)
    assert match, f"{page} does not say {sentence!r}"
    return list(match.groups())


def start_up(contender: str, column: str) -> Cell:
    headings = ("Speed on a Xeon with AMX", "From a folder to the first answer")
    return Cell(RESULTS, headings, (contender,), column)


def single_text(precision: str, number: int) -> Cell:
    headings = ("Single texts by OpenVINO", "base-v2")
    return Cell(RESULTS, headings, ("1 x 16",), precision, number)


def ragged_batches(precision: str, number: int) -> Cell:
    headings = ("Single texts by OpenVINO", "base-v2")
    return Cell(RESULTS, headings, ("stream",), precision, number)


def memory(preset: str, precision: str) -> Cell:
    headings = ("Memory of a training step",)
    return Cell(RESULTS, headings, (preset, precision), "checkpointed to theirs")


SCALE = "benchmarks/scale_map.md"
DISTILLED = "benchmarks/distillation/README.md"
SHARING = ("What sharing costs",)
STATIC = ("Compared with static vectors",)
TASKS = "benchmarks/tasks/RESULTS.md"
WORDS = "benchmarks/pretraining/words/README.md"
MEASURED = ("What it can do",)
CARD = "src/litebert/model/README.md"


def tuned(task: str, measure: str, column: str = "packaged") -> Cell:
    return Cell(TASKS, ("The packaged model",), (task, measure), column)


def student(blocks: str, column: str) -> Cell:
    return Cell(DISTILLED, SHARING, (blocks,), column)


def packaged(column: str, number: int = 0) -> Cell:
    return Cell(WORDS, MEASURED, ("packaged",), column, number)


def static(row: str, column: str) -> Cell:
    return Cell(DISTILLED, STATIC, (row,), column)


SMALL_TABLE = "static, 128 dimensions"
LARGE_TABLE = "static, 256 dimensions"
RETRIEVAL = "SQuAD dev, question to paragraph, MRR at 10"
MEAN = "3, mean of the last two (packaged)"
SIX = "6, E 256 (english-16m, no longer in the repository)"

CLAIMS: list[tuple[str, str, list[Cell | Said]]] = [
    (
        "docs/speed.md",
        "with base, four forked processes hold {} (int8) to {} MB (fp32) together;"
        " four that load separately hold {} to {} MB",
        [
            start_up("litebert int8", "four forked, MB"),
            start_up("litebert fp32", "four forked, MB"),
            start_up("litebert int8", "four processes, MB"),
            start_up("litebert fp32", "four processes, MB"),
        ],
    ),
    (
        "docs/speed.md",
        "the first answer from a folder takes {} to {} seconds",
        [
            start_up("litebert int8", "first answer, s"),
            start_up("litebert fp32", "first answer, s"),
        ],
    ),
    (
        "docs/speed.md",
        "one text of 16 tokens was {} (fp32), {} (bf16) and {} (int8) times as fast as"
        " in transformers with ALBERT-base; OpenVINO itself, on a model that was"
        " exported, {}, {} and {}.",
        [
            *(single_text(precision, 0) for precision in PRECISIONS),
            *(single_text(precision, 1) for precision in PRECISIONS),
        ],
    ),
    (
        "docs/speed.md",
        "texts of different lengths were {}, {} and {} times as fast (OpenVINO {}, {}"
        " and {}).",
        [
            *(ragged_batches(precision, 0) for precision in PRECISIONS),
            *(ragged_batches(precision, 1) for precision in PRECISIONS),
        ],
    ),
    (
        "docs/speed.md",
        "its peak memory is {} to {} times that of transformers in the same precision,"
        " {} for xxlarge in bf16",
        [memory("tiny", "fp32"), memory("xlarge", "fp32"), memory("xxlarge", "bf16")],
    ),
    (
        "docs/scale.md",
        "that was {} times as fast for `mini`, {} times while another program kept one"
        " core busy, and {} times for fine-tuning the packaged model",
        [
            Said(SCALE, "4,354 (4,290 to 4,430) | {} times |"),
            Said(SCALE, "| 2,824 | {} times |"),
            Said(SCALE, "1,657 (1,618 to 1,696) | {} times |"),
        ],
    ),
    (
        "docs/scale.md",
        "with 512, base computes for {} % of it and xxlarge for {} %",
        [
            Said(SCALE, "| base-v2 | 512 | 5.9 ms | 94 MB | 1.9 ms | {} %"),
            Said(SCALE, "| xxlarge-v2 | 512 | 153 ms | 1,782 MB | 36 ms | {} %"),
        ],
    ),
    (
        "docs/scale.md",
        "should save every half hour and lose {} % of their time",
        [Said(SCALE, "| 512 | 98 | 31 min | {} % |")],
    ),
    (
        "docs/scale.md",
        "A build processes {} to {} MB of text per second and core: 1 TB in half an hour"
        " on 64 cores, {} GB on disk",
        [
            Said(RESULTS, "{} to ... MB/s per core"),
            Said(RESULTS, "... to {} MB/s per core"),
            Said(SCALE, "| 1 TB | 34 h | 32 min | 2.0 min | {} GB |"),
        ],
    ),
    (
        "docs/distillation.md",
        "with three blocks it begins at {}",
        [Said(DISTILLED, "the student with three blocks is at {}.")],
    ),
    (
        "docs/distillation.md",
        "({}, {} and STS-B dev {};",
        [
            Said(DISTILLED, "since removed, has {}, ... and ...: no"),
            Said(DISTILLED, "since removed, has ..., {} and ...: no"),
            Said(DISTILLED, "since removed, has ..., ... and {}: no"),
        ],
    ),
    (
        "docs/distillation.md",
        "| a student of six blocks, E 256 | {} M | {} | {} | {} |",
        [
            student(SIX, "pieces"),
            student(SIX, "minutes"),
            student(SIX, "bytes"),
            student(SIX, "STS-B dev"),
        ],
    ),
    (
        "docs/distillation.md",
        "trained further on words, three blocks | {} M | {} | {} | {} |",
        [
            student(MEAN, "pieces"),
            student(MEAN, "minutes"),
            student(MEAN, "bytes"),
            student(MEAN, "STS-B dev"),
        ],
    ),
    (
        "docs/distillation.md",
        "static vectors (model2vec) | | | {} | {} | | the teacher | | | {} | {} |",
        [
            static(SMALL_TABLE, "bytes"),
            static(SMALL_TABLE, "STS-B dev"),
            static("the teacher", "bytes"),
            static("the teacher", "STS-B dev"),
        ],
    ),
    (
        "docs/checkpoints.md",
        "{} of {} real paragraphs with the official vocabulary",
        [
            Said(RESULTS, "vocabulary ({} by the digit-comma rule"),
            Said(RESULTS, "6 of {} paragraphs differ with the official vocabulary"),
        ],
    ),
    (
        "docs/checkpoints.md",
        "(`0000 000`, `000 0000`): {} of these paragraphs, {} with a vocabulary of 8,000",
        [
            Said(RESULTS, "cannot express, {} by rounding of equally"),
            Said(RESULTS, "{} of 53,904 with an 8,000-piece vocabulary of our own"),
        ],
    ),
    (
        CARD,
        "zero-shot | {} | teacher {}; its static vectors of {} MB {}, of {} MB {} |",
        [
            packaged("STS-B dev"),
            static("the teacher", "STS-B dev"),
            static(SMALL_TABLE, "bytes"),
            static(SMALL_TABLE, "STS-B dev"),
            static(LARGE_TABLE, "bytes"),
            static(LARGE_TABLE, "STS-B dev"),
        ],
    ),
    (
        CARD,
        "| SICK, Spearman x 100, zero-shot | {} | teacher {}; static {}, {} |",
        [
            packaged("SICK"),
            static("the teacher", "SICK"),
            static(SMALL_TABLE, "SICK"),
            static(LARGE_TABLE, "SICK"),
        ],
    ),
    (
        CARD,
        "MRR at 10 / recall at 1 | {} / ... | teacher {} / ...; static of 7.6 MB {} /",
        [
            packaged("retrieval"),
            static("the teacher", RETRIEVAL),
            static(SMALL_TABLE, RETRIEVAL),
        ],
    ),
    (CARD, "| held-out [MASK] accuracy | {} % |", [packaged("[MASK]")]),
    (CARD, "accuracy of all masked pieces | {} % |", [packaged("all masked")]),
    (CARD, "in order or swapped | {} % |", [packaged("order")]),
    (CARD, "| BLiMP, 20 pairs of each paradigm | {} |", [packaged("BLiMP")]),
    (
        CARD,
        "| SST-2 dev | {} % *, 2,500 steps | {} %, 1,000 steps |",
        [
            Said(TASKS, "which are packaged now, SST-2 has **{}**"),
            tuned("SST-2", "accuracy"),
        ],
    ),
    (
        CARD,
        "| SNLI, 7,800 pairs, read together | {} % * | {} % | {} % |",
        [
            Said(TASKS, "(86.9 after 1,250 steps). SNLI has {} if"),
            tuned("SNLI-dev split", "accuracy"),
            tuned("SNLI-dev split", "accuracy", "teacher"),
        ],
    ),
    (
        CARD,
        "| MRPC: accuracy, F1 | | {} %, {} | {} %, {} |",
        [
            tuned("MRPC", "accuracy"),
            tuned("MRPC", "F1"),
            tuned("MRPC", "accuracy", "teacher"),
            tuned("MRPC", "F1", "teacher"),
        ],
    ),
    (CARD, "| QNLI, 4,300 pairs | | {} % |", [tuned("QNLI-dev split", "accuracy")]),
    (CARD, "| CoLA, Matthews | | {} |", [tuned("CoLA", "Matthews")]),
    (CARD, "| RTE | | {} % |", [tuned("RTE", "accuracy")]),
    (
        CARD,
        "| STS-B, Spearman | | {} * | {} |",
        [tuned("STS-B", "Spearman"), tuned("STS-B", "Spearman", "teacher")],
    ),
    (CARD, "| IMDB, 150 steps | | {} % * |", [tuned("IMDB", "accuracy")]),
    (
        CARD,
        "| SQuAD 1.1 F1, {} minutes | | {} * |",
        [
            Said(TASKS, "of the 224,000 in all, {} minutes of one core"),
            Said(TASKS, "**SQuAD 1.1: F1 {}, exact"),
        ],
    ),
    (
        CARD,
        "It has read {} M pieces",
        [Said(WORDS, "{} M pieces in all")],
    ),
    (
        CARD,
        "of single hidden words, {} % in a short caption and {} % in a sentence of SQuAD."
        " Another {} to {} % get",
        [
            packaged("captions: right, repeats"),
            packaged("SQuAD: right, repeats"),
            packaged("captions: right, repeats", 1),
            packaged("SQuAD: right, repeats", 1),
        ],
    ),
    (
        CARD,
        "n-gram masked LM: {} M pieces, {} minutes of one CPU core",
        [student(MEAN, "pieces"), student(MEAN, "minutes")],
    ),
]
"""Each page, a sentence of it, and where its figures were recorded, in order."""


@pytest.mark.parametrize(
    ("page", "sentence", "sources"), CLAIMS, ids=[claim[1][:40] for claim in CLAIMS]
)
def test_figures_of_a_sentence_are_the_recorded_ones(
    page: str, sentence: str, sources: list[Cell | Said]
) -> None:
    shown = numbers_in(page, sentence)
    for figure, source in zip(shown, sources, strict=True):
        assert_rounds_to(source.read(), figure)


def test_control_a_figure_that_was_not_measured_is_noticed() -> None:
    source = memory("tiny", "fp32")
    assert_rounds_to(source.read(), "0.13")
    with pytest.raises(AssertionError):
        assert_rounds_to(source.read(), "0.14")
