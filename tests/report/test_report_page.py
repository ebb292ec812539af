"""report.html as a browser reads it: one file, sound markup, for every reader; curves that stay small."""

import json
import re
import sys
from html.parser import HTMLParser
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import matplotlib
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.errors import LitebertError
from litebert.files import append_line
from litebert.report import write_report
from litebert.report.figures import PALETTE as DRAWN
from litebert.report.figures import curve_of
from litebert.runs import LogRow

from .conftest import MakeRun

STYLE = (files("litebert.report") / "page.css").read_text("utf-8")
NUMBERS = st.floats(-1e300, 1e300) | st.sampled_from([float("nan"), float("inf")])


class Tag(NamedTuple):
    name: str
    attributes: dict[str, str]
    parent: str


class Page(HTMLParser):
    """Collect the tags and check that each is closed where it was opened."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source, self.tags, self.open = source, list[Tag](), [""]
        self.feed(source)
        self.close()
        assert self.open == [""]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(Tag(tag, {name: value or "" for name, value in attrs}, self.open[-1]))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def named(self, *names: str) -> list[Tag]:
        return [tag for tag in self.tags if tag.name in names]


@pytest.mark.parametrize(("kind", "num_tables"), [("pretraining", 5), ("fine-tuning", 8)])
def test_a_page_is_sound_and_asks_nothing_of_a_network(
    make_run: MakeRun, make_finetuned: MakeRun, kind: str, num_tables: int
) -> None:
    page = Page(write_report((make_run if kind == "pretraining" else make_finetuned)()).read_text("utf-8"))
    assert "http" not in page.source.replace("http-equiv", "")
    assert not page.named("script", "link", "img", "iframe", "object", "image", "a")
    policies = [tag.attributes.get("content") for tag in page.named("meta")]
    assert "default-src 'none'; style-src 'unsafe-inline'" in policies
    ids = [tag.attributes["id"] for tag in page.tags if "id" in tag.attributes]
    references = re.findall(r'(?:href="|url\()#([^")]+)', page.source)
    assert len(ids) == len(set(ids))
    assert references
    assert set(references) <= set(ids)
    assert len(page.named("table")) == len(page.named("caption")) == num_tables
    assert {tag.attributes.get("scope") for tag in page.named("th")} == {"col", "row"}
    levels = [int(tag.name[1]) for tag in page.named("h1", "h2", "h3")]
    assert levels[:2] == [1, 2]
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert page.named("html")[0].attributes == {"lang": "en"}

    # Figures are described for who cannot see them, and take their colours from the page.
    drawings = page.named("svg")
    assert len(drawings) == len(page.named("figcaption")) == 6
    assert all(tag.parent == "figure" and tag.attributes["role"] == "img" for tag in drawings)
    if kind == "pretraining":
        said = "Masked-LM loss: training from 9.875 at step 1 to 5.000 at step 40; held out from 10.000 at step 0 to "
        assert drawings[0].attributes["aria-label"] == f"{said}5.000 at step 40."
        assert "commonest token 5.4%." in drawings[1].attributes["aria-label"]
    else:
        said = "held out from 0.7500 at step 20 to 0.7000 at step 40; commonest label 0.7500."
        assert said in drawings[1].attributes["aria-label"]
        titles = ["Training loss", "Held-out accuracy", "Learning rate", "Gradient norm", "Tokens per second"]
        assert re.findall(r"<h3>(.*?)</h3>", page.source) == [*titles, "Reliability on dev"]
    shapes = re.findall(r"<svg.*?</svg>", page.source, flags=re.DOTALL)
    assert not re.search(r"(?:fill|stroke): #", "".join(shapes))
    assert "stroke: var(--train)" in shapes[0]


def test_figures_are_drawn_in_the_light_colours_of_the_style_sheet() -> None:
    assert {name: re.findall(rf"--{name}:(#\w{{6}})", STYLE)[0] for name in DRAWN} == DRAWN


def test_names_and_settings_cannot_become_markup(make_run: MakeRun) -> None:
    run = make_run("<script>alert(1)<", corpus='"><img src=x onerror="alert(2)">&amp;')
    append_line(run / "metrics.jsonl", json.dumps({"kind": "note", "step": 3, "text": "<b>skipped</b>"}))
    page = Page(write_report(run).read_text("utf-8"))
    assert not page.named("script", "img", "b")
    assert "&lt;script&gt;alert(1)&lt;</h1>" in page.source
    assert "&#34;&gt;&lt;img src=x onerror=&#34;alert(2)&#34;&gt;&amp;amp;" in page.source
    assert "&lt;b&gt;skipped&lt;/b&gt;" in page.source
    assert "fill &#34;The cat sat on the [MASK].&#34; --model &#39;" in page.source
    assert "<h1>caf?</h1>" in write_report(make_run("caf\udce9")).read_text("utf-8")  # a path that is no UTF-8


def test_fifty_thousand_rows_stay_a_small_page(make_run: MakeRun) -> None:
    run = make_run()
    row = {"kind": "train", "learning_rate": 1e-3, "tokens": 5, "tokens_per_second": 9.5}
    rows = ({**row, "step": n, "masked_lm_loss": n % 997, "gradient_norm": n % 13} for n in range(41, 50_041))
    with (run / "metrics.jsonl").open("a") as log:
        log.writelines(f"{json.dumps(each)}\n" for each in rows)
    assert write_report(run).stat().st_size < 200_000


@settings(max_examples=100, deadline=None)
@given(values=st.lists(NUMBERS, max_size=60), most_points=st.integers(1, 20))
def test_a_curve_is_short_and_hides_no_extreme(values: list[float], most_points: int) -> None:
    rows = [LogRow("train", step, {"loss": value}) for step, value in enumerate(values)]
    kept = [value for value in values if abs(value) < float("inf")]
    points = curve_of(rows, "loss", most_points=most_points)
    assert len(points) <= most_points
    assert bool(points) == bool(kept)
    assert [point.step for point in points] == sorted({point.step for point in points})
    assert min((p.low for p in points), default=0) == min(kept, default=0)
    assert max((p.high for p in points), default=0) == max(kept, default=0)


def test_the_same_run_gives_the_same_bytes_whatever_matplotlib_is_set_to(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run()
    plain = write_report(run).read_bytes()
    for name, value in {"lines.linewidth": 7.5, "axes.facecolor": "#ff00ff", "svg.fonttype": "path"}.items():
        monkeypatch.setitem(matplotlib.rcParams, name, value)
    before = dict(matplotlib.rcParams)
    with (run / "metrics.jsonl").open("a") as log:  # a last line that a crash cut off is left out
        log.write('{"kind": "train", "st')
    assert write_report(run).read_bytes() == plain
    assert dict(matplotlib.rcParams) == before


def test_what_is_no_run_and_a_missing_matplotlib_are_refused(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(LitebertError, match=r"LB-650(?s:.*)without run\.json(?s:.*)litebert runs list"):
        write_report(tmp_path)
    with pytest.raises(LitebertError, match=r"LB-650(?s:.*)no such folder"):
        write_report(tmp_path / "none")
    folder = make_run()
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "first").symlink_to(folder.absolute())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LitebertError, match="give its folder, runs/first"):  # a name from `runs list`
        write_report(Path("first"))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(LitebertError, match=r"LB-305(?s:.*)matplotlib(?s:.*)pip install 'litebert\[report\]'"):
        write_report(folder)
    assert not (folder / "report.html").exists()
