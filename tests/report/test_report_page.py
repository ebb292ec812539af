"""report.html as a browser reads it: one file, sound markup, for every reader."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from html.parser import HTMLParser
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import pytest

from litebert.files import append_line
from litebert.report import write_report
from litebert.report.figures import PALETTE as DRAWN

MakeRun = Callable[..., Path]


@dataclass
class Tag:
    name: str
    attributes: dict[str, str]
    inside: tuple[str, ...]


@dataclass
class Page(HTMLParser):
    """Collect the tags and check that each is closed where it was opened."""

    source: str
    tags: list[Tag] = field(default_factory=list)
    open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.tags.append(Tag(tag, values, tuple(self.open)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def named(self, *names: str) -> list[Tag]:
        return [tag for tag in self.tags if tag.name in names]


def page_of(run: Path) -> Page:
    return Page(write_report(run).read_text(encoding="utf-8"))


def test_the_page_asks_nothing_of_a_network_and_forbids_it(make_run: MakeRun) -> None:
    page = page_of(make_run())

    assert "http" not in page.source.replace("http-equiv", "")
    assert not page.named("script", "link", "img", "iframe", "object", "image")
    links = [tag.attributes[name] for tag in page.tags for name in ("src", "href") & tag.attributes.keys()]
    assert links
    assert all(link.startswith("#") for link in links)
    policies = [tag.attributes.get("content") for tag in page.named("meta")]
    assert "default-src 'none'; style-src 'unsafe-inline'" in policies


def test_every_id_is_unique_and_every_reference_leads_to_one(make_run: MakeRun) -> None:
    page = page_of(make_run())

    ids = [tag.attributes["id"] for tag in page.tags if "id" in tag.attributes]
    assert len(ids) == len(set(ids))
    references = re.findall(r'(?:href="|url\()#([^")]+)', page.source)
    assert references
    assert set(references) <= set(ids)


def test_figures_are_named_and_described_for_who_cannot_see_them(make_run: MakeRun) -> None:
    page = page_of(make_run())

    drawings = page.named("svg")
    assert len(drawings) == len(page.named("figcaption")) == 6
    assert all(tag.inside[-1] == "figure" for tag in drawings)
    assert {tag.attributes["role"] for tag in drawings} == {"img"}
    assert drawings[0].attributes["aria-label"] == (
        "Masked-LM loss: training from 9.875 at step 1 to 5.000 at step 40; "
        "held out from 10.000 at step 0 to 5.000 at step 40."
    )
    assert "commonest token 5.4%." in drawings[1].attributes["aria-label"]


def test_headings_go_down_one_level_at_a_time(make_run: MakeRun) -> None:
    page = page_of(make_run())

    levels = [int(tag.name[1]) for tag in page.named("h1", "h2", "h3")]
    assert levels[:2] == [1, 2]
    assert levels.count(1) == 1
    assert page.named("html")[0].attributes == {"lang": "en"}


def test_every_table_has_a_caption_and_scoped_headings(make_run: MakeRun) -> None:
    page = page_of(make_run())

    assert len(page.named("table")) == len(page.named("caption")) == 5
    assert {tag.attributes.get("scope") for tag in page.named("th")} == {"col", "row"}


def test_figures_take_their_colours_from_the_page(make_run: MakeRun) -> None:
    drawings = re.findall(r"<svg.*?</svg>", page_of(make_run()).source, flags=re.DOTALL)

    assert not re.search(r"(?:fill|stroke): #", "".join(drawings))
    assert "stroke: var(--train)" in drawings[0]
    assert "stroke: var(--held-out)" in drawings[0]


STYLE = (files("litebert.report") / "page.css").read_text("utf-8")
PALETTE = {name: re.findall(rf"--{name}:(#\w{{6}})", STYLE) for name in (*DRAWN, "panel")}


def test_figures_are_drawn_in_the_colours_of_the_day() -> None:
    assert {name: shades[0] for name, shades in PALETTE.items() if name != "panel"} == DRAWN


@pytest.mark.parametrize("shade", [0, 1], ids=["day", "night"])
def test_text_and_lines_stand_out_by_day_and_by_night(shade: int) -> None:
    papers = [PALETTE[name][shade] for name in ("paper", "panel")]

    for paper in papers:
        assert min(contrast(PALETTE[name][shade], paper) for name in ("ink", "quiet")) >= 4.5
        assert min(contrast(PALETTE[n][shade], paper) for n in ("train", "held-out", "rule")) >= 3


def test_names_and_settings_cannot_become_markup(make_run: MakeRun) -> None:
    run = make_run("<script>alert(1)<", corpus='"><img src=x onerror="alert(2)">&amp;')
    append_line(run / "metrics.jsonl", json.dumps(note(3, "<b>skipped</b>")))

    page = page_of(run)

    assert not page.named("script", "img", "b")
    assert "&lt;script&gt;alert(1)&lt;</h1>" in page.source
    assert "&#34;&gt;&lt;img src=x onerror=&#34;alert(2)&#34;&gt;&amp;amp;" in page.source
    assert "&lt;b&gt;skipped&lt;/b&gt;" in page.source
    assert "fill &#34;The cat sat on the [MASK].&#34; --model &#39;" in page.source


def test_a_path_that_is_no_utf8_still_gives_a_utf8_page(make_run: MakeRun) -> None:
    run = make_run("caf\udce9")

    assert "<h1>caf?</h1>" in page_of(run).source


def test_the_same_run_gives_the_same_bytes(make_run: MakeRun) -> None:
    run = make_run()

    assert write_report(run).read_bytes() == write_report(run).read_bytes()


def test_fifty_thousand_rows_stay_a_small_page(make_run: MakeRun) -> None:
    run = make_run()
    row = {"kind": "train", "learning_rate": 1e-3, "tokens": 5, "tokens_per_second": 9.5}
    rows = (
        json.dumps({**row, "step": step, "masked_lm_loss": step % 997, "gradient_norm": step % 13})
        for step in range(41, 50_041)
    )
    with (run / "metrics.jsonl").open("a") as log:
        log.writelines(f"{line}\n" for line in rows)

    assert write_report(run).stat().st_size < 200_000


def test_a_fine_tuning_page_is_as_sound(finetuned_page: str) -> None:
    page = Page(finetuned_page)

    assert "http" not in page.source.replace("http-equiv", "")
    assert not page.named("script", "link", "img", "iframe", "object", "image", "a")
    ids = [tag.attributes["id"] for tag in page.tags if "id" in tag.attributes]
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', page.source)) <= set(ids)
    assert len(page.named("svg")) == len(page.named("figcaption")) == 6
    assert all(tag.attributes["aria-label"] for tag in page.named("svg"))
    assert len(page.named("table")) == len(page.named("caption")) == 10
    assert {tag.attributes.get("scope") for tag in page.named("th")} == {"col", "row"}
    levels = [int(tag.name[1]) for tag in page.named("h1", "h2", "h3")]
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    drawings = re.findall(r"<svg.*?</svg>", page.source, flags=re.DOTALL)
    assert not re.search(r"(?:fill|stroke): #", "".join(drawings))


@pytest.mark.parametrize("shade", [0, 1], ids=["day", "night"])
def test_numbers_stand_out_on_the_darkest_cell(shade: int) -> None:
    line, paper, ink = (PALETTE[name][shade] for name in ("train", "paper", "ink"))

    assert "calc(var(--share,0)*35%)" in STYLE
    assert contrast(ink, mixed(line, paper, 0.35)) >= 4.5


def mixed(one: str, other: str, share: float) -> str:
    """Mix two colours as CSS color-mix does in sRGB."""
    parts = [round(share * int(one[at : at + 2], 16) + (1 - share) * int(other[at : at + 2], 16)) for at in (1, 3, 5)]
    return "#" + "".join(f"{part:02x}" for part in parts)


def note(step: int, text: str) -> dict[str, object]:
    return {"kind": "note", "step": step, "text": text}


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours (WCAG 2.2, 1.4.3)."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def luminance(color: str) -> float:
    shares = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
