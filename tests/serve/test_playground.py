"""The playground as a person uses it, in a real Chromium; run with `make
test-browser`.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
]
FLAGS += ["--disable-background-networking", "--disable-component-update"]
CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not Path(CHROMIUM).exists(), reason="chromium is not installed"),
]
ALL = {"base": ["fill", "order", "score", "embed"]} | {
    verb: [verb] for verb in ("classify", "answer", "choose", "tag")
}


@pytest.fixture(scope="module")
def browser() -> Iterator:
    from playwright.sync_api import sync_playwright

    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS) as started,
    ):
        yield started


@pytest.fixture
def open_page(browser, server) -> Iterator[Callable]:
    """Return a function that opens a page; at the end require no error and no request
    to another host.
    """
    origin = f"http://127.0.0.1:{server.port}"
    faults = []

    def open_at(path: str = "/", **options):
        context = browser.new_context(
            permissions=["clipboard-read", "clipboard-write"],
            base_url=origin,
            **options,
        )
        context.set_default_timeout(60_000)
        page = context.new_page()
        page.on(
            "console",
            lambda entry: (
                faults.append(entry.text)
                if entry.type in ("error", "warning")
                else None
            ),
        )
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on(
            "request",
            lambda asked: (
                None
                if asked.url.startswith((origin, "data:"))
                else faults.append(asked.url)
            ),
        )
        page.goto(path)
        page.wait_for_selector(".run, .route, #key-row:not([hidden])")
        return page

    yield open_at
    for context in browser.contexts:
        context.close()
    assert faults == []


def ask(page, model: str = "base", **texts: str):
    """Fill in texts by the names of their fields, run the model, and return the
    page.
    """
    if model != "base":
        page.select_option("#model", model)
        page.click(f"#tab-{model}")
    for name, text in texts.items():
        page.fill(f"[name={name}]", text)
    page.click(".run")
    page.wait_for_selector("#result:not(.waiting) > :not(.empty)")
    return page


@pytest.mark.parametrize(("model", "verbs"), ALL.items())
def test_only_what_a_model_can_do_is_shown_and_all_of_it_works(
    open_page, model, verbs
) -> None:
    page = open_page()
    assert page.text_content("#facts") == "One shared block, 2 steps, vectors of 32."
    page.select_option("#model", model)
    shown = [tab.get_attribute("id") for tab in page.locator("[role=tab]").all()]
    assert set(shown) == {f"tab-{verb}" for verb in [*verbs, "embed"]}
    for tab in shown:
        page.click(f"#{tab}")
        assert ask(page).locator("#result .error").count() == 0
        assert (
            page.locator(
                "#result li, #result svg, #result .tagged, #result .tinted"
            ).count()
            > 0
        )


def test_bars_are_ranked_and_several_blanks_are_filled(open_page) -> None:
    page = open_page("/#fill")
    page.fill("textarea", "Anna found [MASK] under the [MASK].")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".bars li:nth-child(8)")
    values = [
        float(text.rstrip(" %"))
        for text in page.locator(".bars .value").all_inner_texts()
    ]
    assert values == sorted(values, reverse=True)
    assert all(" … " in name for name in page.locator(".bars .name").all_inner_texts())
    assert "is empty" in ask(page, text=" ").locator(".error").inner_text()


def test_a_question_is_cancelled_by_the_next_one_and_failures_are_told(
    browser, server, open_page
) -> None:
    page = open_page("/#fill")
    page.route("**/v1/fill", lambda route: None)  # never answered
    page.click(".run")
    for leave in (".run", "#tab-score"):
        with page.expect_event(
            "requestfailed", lambda request: request.failure == "net::ERR_ABORTED"
        ):
            page.click(leave)
    assert page.locator("#result").inner_text() == "The answer appears here."
    # where errors in the console are expected
    page = browser.new_page(base_url=f"http://127.0.0.1:{server.port}")
    page.goto("/#score")
    ask(page).route(
        "**/v1/score",
        lambda route: route.fulfill(status=502, body="<h1>Bad gateway</h1>"),
        times=1,
    )
    failed = ask(page).locator("#result .error").inner_text()
    assert "The server answered 502." in failed
    page.route("**/v1/score", lambda route: route.abort())
    assert (
        "Is litebert serve still running?"
        in ask(page).locator("#result .error").inner_text()
    )
    page.route(
        "**/v1/{models,score}",
        lambda to: to.fulfill(status=401, json={"error": {"message": "no such key"}}),
    )
    ask(page)
    page.wait_for_selector("#key-row:not([hidden])")
    page.reload()
    page.wait_for_selector("#key-row:not([hidden])")
    assert page.locator("#result .error").count() == 0
    page.press("#key", "Enter")
    page.get_by_text("no such key").wait_for()
    page.route("**/openapi.json", lambda route: route.fulfill(status=500))
    page.goto("/docs")
    page.wait_for_selector(
        "#about >> text=could not be loaded: the server answered 500"
    )


@pytest.mark.parametrize(
    "before", [{"id": "former"}, {"version": "former"}, {"ready": False}]
)
def test_an_open_page_follows_a_server_that_was_started_again(
    browser, server, before: dict
) -> None:
    models = {"data": [server.ask("/v1/models").json["data"][0] | before]}
    page = browser.new_page(base_url=f"http://127.0.0.1:{server.port}")
    page.route("**/v1/models", lambda route: route.fulfill(json=models), times=1)
    page.goto("/#score")
    assert ("Ask again." in ask(page).locator("#result").inner_text()) == (
        "ready" not in before
    )
    assert ask(page).locator("#result .tinted").count() == 1


def test_an_answer_is_marked_a_curve_has_a_point_for_each_join_and_a_text_is_found_first(
    open_page,
) -> None:
    # a mark without a letter: no piece
    page = ask(open_page(), "answer", context="\u0301", question="Where?")
    assert (
        page.locator("#result").inner_text()
        == "The model finds no answer in this passage."
    )
    page = ask(
        open_page(),
        "answer",
        context="😀 Anna walked to the house. There was a ball.",
        question="Where?",
    )
    assert (
        page.locator(".passage mark").inner_text()
        == page.locator(".bars .name").first.inner_text()
    )
    page = ask(
        open_page("/#order"),
        first="Anna left. Bert came. Then Clara slept. It was night.",
    )
    assert page.locator("svg circle").count() == 3
    assert page.locator(".sentences li:not(.join)").count() == 4
    joins = [float(join.split()[0]) for join in page.locator(".join").all_inner_texts()]
    assert (
        page.locator(".join.break").count()
        == page.locator(".bad").count()
        == sum(join < 50 for join in joins)
    )
    texts = [
        "Anna left.",
        "Bert found three apples.",
        "The river was quiet.",
        *["Anna ate an apple. " * 20] * 37,
    ]
    page = ask(open_page("/#embed"), texts="\n".join(texts), query=texts[1])
    assert (
        page.locator(".bars .name").first.inner_text() == "2. Bert found three apples."
    )
    assert page.locator("figure circle").count() == 41
    assert (
        sum(
            call.count(texts[-1].strip())
            for call in page.locator("pre").all_text_contents()
        )
        == 2 * 37
    )


def test_the_least_likely_word_is_the_darkest_and_words_for_and_against_a_label_look_different(
    open_page,
) -> None:
    page = ask(open_page("/#score"), text="Anna found a red ball.")
    words = page.locator(".tinted span").all()
    values = page.locator(".tinted small").all_inner_texts()
    shares = [
        float(word.evaluate("e => e.style.getPropertyValue('--share')"))
        for word in words
    ]
    likely = [float(text.strip("< %")) for text in values]
    assert len(shares) == len(likely) == 5
    assert [likely[shares.index(end(shares))] for end in (min, max)] == [
        max(likely),
        min(likely),
    ]
    page = ask(open_page("/#classify"), "classify", texts="Anna found a red ball.")
    page.click("text=Explain by word")
    page.wait_for_selector(".tinted")
    values = [float(text) for text in page.locator(".tinted small").all_inner_texts()]
    assert len(values) == 5 and page.locator(".tinted .against").count() == sum(
        value < 0 for value in values
    )
    # from right to left
    page = ask(open_page("/#score"), text="اللغة العربية جميلة جدا.")
    places = [word.bounding_box()["x"] for word in page.locator(".tinted span").all()]
    assert len(places) > 3 and places == sorted(places, reverse=True)
    assert (
        page.locator(".tinted small").first.evaluate(
            "number => getComputedStyle(number).direction"
        )
        == "ltr"
    )


def test_the_copied_calls_give_what_the_page_shows(open_page) -> None:
    page = ask(open_page("/#fill"), text="Anna's [MASK] isn't \"here\" \\ there.")
    page.click("summary")
    shown = page.locator(".bars .more").first.inner_text()
    for name, command in (
        ("Shell", ["bash", "-c"]),
        ("Python", [sys.executable, "-c"]),
    ):
        page.get_by_label(f"Copy fill for {name}").click()
        copied = page.evaluate("navigator.clipboard.readText()")
        run = subprocess.run(
            [*command, copied], capture_output=True, text=True, check=True
        )
        answer = (
            json.loads(run.stdout)["result"] if name == "Shell" else eval(run.stdout)
        )
        assert answer[0]["text"] == shown
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject() }")
    page.get_by_label("Copy fill for Shell").click()
    page.wait_for_selector("#told >> text=press Ctrl + C")
    assert page.evaluate("getSelection().toString()").startswith("curl")


def test_everything_can_be_done_with_the_keyboard(open_page) -> None:
    page = open_page("/#fill")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert (
        page.evaluate("document.activeElement.id + location.hash") == "view#fill/base"
    )
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.id") == "tab-order"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") == "TEXTAREA"
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#result .sentences")
    page.locator(".examples button").last.press("Enter")
    page.wait_for_selector("#told >> text=Answered.")
    assert page.evaluate("document.activeElement.className") == "run"
    page.evaluate("location.hash = 'tag/tag'")  # a link, or the address typed
    page.wait_for_selector("#tab-tag[aria-selected=true]")


@pytest.mark.parametrize("scheme", ["light", "dark"])
# 320: a window of 1,280 at a zoom of 400 % (WCAG 1.4.10)
@pytest.mark.parametrize("width", [1280, 390, 320])
def test_pages_fit_their_window_and_pass_axe(
    open_page, scheme: str, width: int
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    for path in ("/#fill", "/#order", "/#score", "/#classify/classify", "/docs"):
        page = open_page(
            path, viewport={"width": width, "height": 800}, color_scheme=scheme
        )
        if path != "/docs":
            ask(page, **({"texts": "x" * 300} if "classify" in path else {}))
            page.click("summary")
            page.wait_for_timeout(400)  # until the bars have grown
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        report = Axe().run(page)
        assert report.violations_count == 0, report.generate_report()
