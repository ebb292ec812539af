"""The playground as a person uses it, in a real Chromium; run with `make test-browser`."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
FLAGS += ["--disable-background-networking", "--disable-component-update"]
CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
pytestmark = [pytest.mark.browser, pytest.mark.skipif(not Path(CHROMIUM).exists(), reason="chromium is not installed")]
ALL = {"base": ["fill", "order", "score", "embed"], "classify": ["classify"], "answer": ["answer"]}
ALL |= {"choose": ["choose"], "tag": ["tag"]}


@pytest.fixture(scope="module")
def browser() -> Iterator:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def open_page(browser, server) -> Iterator[Callable]:
    """Return a function that opens a page; at the end require no error and no request to another host."""
    contexts, faults = [], []
    origin = f"http://127.0.0.1:{server.port}"

    def open_at(path: str = "/", **options):
        context = browser.new_context(permissions=["clipboard-read", "clipboard-write"], base_url=origin, **options)
        context.set_default_timeout(60_000)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda entry: faults.append(entry.text) if entry.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda asked: None if asked.url.startswith((origin, "data:")) else faults.append(asked.url))
        page.goto(path)
        page.wait_for_selector(".run, .route, #key-row:not([hidden])")
        return page

    yield open_at
    for context in contexts:
        context.close()
    assert faults == []


def ask(page, model: str = "base", **texts: str):
    """Fill in texts by the names of their fields, run the model, and return the page."""
    if model != "base":
        page.select_option("#model", model)
        page.click(f"#tab-{model}")
    for name, text in texts.items():
        page.fill(f"[name={name}]", text)
    page.click(".run")
    page.wait_for_selector("#result:not(.waiting) > :not(.empty)")
    return page


@pytest.mark.parametrize(("model", "verbs"), ALL.items())
def test_only_what_a_model_can_do_is_shown_and_all_of_it_works(open_page, model, verbs) -> None:
    page = open_page()
    assert page.text_content("#facts") == "One shared block, 2 steps, vectors of 32."
    page.select_option("#model", model)
    shown = [tab.get_attribute("id") for tab in page.locator("[role=tab]").all()]
    assert set(shown) == {f"tab-{verb}" for verb in [*verbs, "embed", "steps"]}
    for tab in shown:
        page.click(f"#{tab}")
        ask(page)
        assert page.locator("#result .error").count() == 0
        assert page.locator("#result li, #result svg, #result .tagged, #result .tinted").count() > 0


def test_bars_are_ranked_and_several_blanks_are_filled(open_page) -> None:
    page = open_page("/#fill")
    page.fill("textarea", "Anna found [MASK] under the [MASK].")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".bars li:nth-child(8)")
    values = [float(text.rstrip(" %")) for text in page.locator(".bars .value").all_inner_texts()]
    assert values == sorted(values, reverse=True)
    assert all(" … " in name for name in page.locator(".bars .name").all_inner_texts())
    page = open_page("/#fill")  # a mistake is explained
    page.fill("textarea", " ")
    page.click(".run")
    assert "is empty" in page.locator(".error").inner_text()


def test_a_late_answer_is_dropped_and_failures_are_told(browser, server, open_page) -> None:
    page = open_page("/#fill")
    page.route("**/v1/fill", lambda route: (page.wait_for_timeout(800), route.continue_()))
    page.click(".run")
    page.click("#tab-score")
    with page.expect_response("**/v1/fill"):
        page.wait_for_selector("#result:not(.waiting)")
    page.wait_for_timeout(100)
    assert page.locator("#result").inner_text() == "The answer appears here."
    page = browser.new_page(base_url=f"http://127.0.0.1:{server.port}")  # where errors in the console are expected
    page.route("**/v1/score", lambda route: route.fulfill(status=502, body="<h1>Bad gateway</h1>"))
    page.goto("/#score")
    assert ask(page).locator("#result .error").inner_text() == "The server answered 502."
    page.route("**/v1/models", lambda route: route.fulfill(status=401, json={"error": {"message": "no such key"}}))
    page.reload()
    page.wait_for_selector("#key-row:not([hidden])")
    assert page.locator("#result .error").count() == 0
    page.press("#key", "Enter")
    page.wait_for_selector("#result .error >> text=no such key")
    page.route("**/openapi.json", lambda route: route.fulfill(status=500))
    page.goto("/docs")
    page.wait_for_selector("#about >> text=could not be loaded: the server answered 500")
    page.close()


def test_an_answer_is_marked_a_curve_has_a_point_for_each_join_and_a_text_is_found_first(open_page) -> None:
    context = "😀 In the morning Anna walked to the house. There was a ball."
    page = ask(open_page("/#answer"), "answer", context=context, question="Where?")
    assert page.locator(".passage mark").inner_text() == page.locator(".bars .name").first.inner_text()
    page = ask(open_page("/#order"), text="Anna left. Bert came. Then Clara slept. It was night.")
    assert page.locator("svg circle").count() == 3
    assert page.locator(".sentences li:not(.join)").count() == 4
    texts = "Anna left.\nBert found three apples.\nThe river was quiet."
    page = ask(open_page("/#embed"), texts=texts, query="Bert found three apples.")
    assert page.locator(".bars .name").first.inner_text() == "2. Bert found three apples."
    assert page.locator("figure circle").count() == 4


def test_looking_inside_shows_every_step_and_the_attention_of_the_chosen_head(open_page) -> None:
    page = ask(open_page("/#steps"), text="Anna left.")
    assert page.locator("svg circle").count() == 2 * 2
    assert page.locator("thead").first.locator("th").count() == 1 + 2
    pieces = page.locator("table").first.locator("tbody tr").count()
    assert page.locator(".heads td").count() == pieces**2
    shown = [page.locator(".heads").inner_text()]
    page.get_by_label("Head", exact=True).select_option("2")
    shown.append(page.locator(".heads").inner_text())
    with page.expect_response("**/v1/attention"):
        page.get_by_label("Step", exact=True).select_option("2")
    page.wait_for_selector(".attention .choice:not([aria-busy])")
    page.wait_for_function("before => document.querySelector('.heads').innerText !== before", arg=shown[-1])
    shown.append(page.locator(".heads").inner_text())
    assert len(set(shown)) == 3
    assert '"step": 2' in page.locator("#snippets").text_content()


def test_the_least_likely_word_is_the_darkest_and_words_for_and_against_a_label_look_different(open_page) -> None:
    page = ask(open_page("/#score"), text="Anna found a red ball.")
    words, values = page.locator(".tinted span").all(), page.locator(".tinted small").all_inner_texts()
    shares = [float(word.evaluate("e => e.style.getPropertyValue('--share')")) for word in words]
    likely = [float(text.strip("< %")) for text in values]
    assert len(shares) == len(likely) == 5
    assert [likely[shares.index(end(shares))] for end in (min, max)] == [max(likely), min(likely)]
    page = ask(open_page("/#classify"), "classify", texts="Anna found a red ball.")
    page.click("text=Explain by word")
    page.wait_for_selector(".tinted")
    values = [float(text) for text in page.locator(".tinted small").all_inner_texts()]
    assert len(values) == 5
    assert page.locator(".tinted .against").count() == sum(value < 0 for value in values)


def test_the_copied_calls_give_what_the_page_shows(open_page) -> None:
    page = ask(open_page("/#fill"), text="Anna's [MASK] isn't \"here\" \\ there.")
    page.click("summary")
    shown = page.locator(".bars .more").first.inner_text()
    for name, command in (("Shell", ["bash", "-c"]), ("Python", [sys.executable, "-c"])):
        page.click(f"text=Copy {name}")
        copied = page.evaluate("navigator.clipboard.readText()")
        run = subprocess.run([*command, copied], capture_output=True, text=True, check=True)
        found = json.loads(run.stdout)["result"] if name == "Shell" else eval(run.stdout)
        assert found[0]["text"] == shown


def test_everything_can_be_done_with_the_keyboard(open_page) -> None:
    page = open_page("/#fill")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    for _ in range(8):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.getAttribute('role')") == "tab":
            break
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.id") == "tab-order"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") == "TEXTAREA"
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#result .sentences")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390, 320])
def test_pages_fit_their_window_and_pass_axe(open_page, scheme: str, width: int) -> None:
    """320 CSS pixels are a window of 1,280 at a zoom of 400 % (WCAG 1.4.10)."""
    from axe_playwright_python.sync_playwright import Axe

    for path in ("/#fill", "/#order", "/#steps", "/docs"):
        page = open_page(path, viewport={"width": width, "height": 800}, color_scheme=scheme)
        if path != "/docs":
            ask(page)
            page.click("summary")
            page.wait_for_timeout(400)  # until the bars have grown
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        report = Axe().run(page)
        assert report.violations_count == 0, report.generate_report()
