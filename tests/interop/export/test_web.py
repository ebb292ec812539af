"""`litebert export web`: the tokenizer in node, the page in Chromium, and what is
refused.
"""

import gzip
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

import litebert
from litebert.errors import LitebertError
from litebert.folder import read_head
from litebert.hub import packaged_model
from litebert.inference.inputs import encode_blanks
from litebert.interop import ExportReport
from litebert.interop.export import web
from litebert.tokenizer import Tokenizer
from tests.contract import shell

NODE = shutil.which("node")
CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
# a local copy of the npm package; else it is fetched once
RUNTIME = os.environ.get("LITEBERT_ONNXRUNTIME_WEB")
ODD = [
    *(
        "",
        "  ",
        "a[MASK]b <pad> [CLS]",
        "\ud800x",
        "½ cup of ﬁne sugar",
        "ΑΣ ΣΑΣ Σ",
        "İstanbul",
        "2010, 1,000, ٣, ²,",
    ),
    *(
        "日本語 ガ ㌔",
        "x" * 300,
        "a\x1cb\x85c\u2028d\ufeffe\u200bf",
        "☃☃, ☃",
        "un[MASK]able, the [MASK].",
        "[MASK] .",
    ),
]
COMPARE = """import { Tokenizer } from "./tokenizer.js"; import fs from "node:fs";
const [table, texts] = JSON.parse(fs.readFileSync(0)), tokenizer = new Tokenizer(table);
console.log(JSON.stringify(texts.map((text) => [...tokenizer.encode(text), ...tokenizer.encodeBlanks(text)])));"""  # noqa: E501


@pytest.mark.skipif(NODE is None, reason="node is not installed")
@pytest.mark.parametrize(("name", "size"), [("packaged", 10_000), ("official", 1_000)])
def test_the_page_gives_our_ids_for_ten_thousand_texts(
    name: str, size: int, real_data: Path, tmp_path: Path
) -> None:
    texts = list(ODD)
    with gzip.open(
        real_data / "text" / "wiki_articles.jsonl.gz", "rt", encoding="utf-8"
    ) as file:
        for line in file:
            texts += [
                part[:400]
                for part in json.loads(line)["text"].split("\n")
                if part.strip()
            ][:8]
    del texts[size:]
    folder = packaged_model() if name == "packaged" else tmp_path
    if name == "official":
        shutil.copy(real_data / "tokenizer" / "spiece.model", folder)
    tokenizer = Tokenizer.load(folder)
    shutil.copy(web.PAGE / "tokenizer.js", tmp_path)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "compare.js").write_text(COMPARE)
    argument = json.dumps([web.vocabulary_table(folder, tokenizer), texts])
    command = [str(NODE), "compare.js"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        input=argument,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    both = zip(
        tokenizer.encode_ids(texts), encode_blanks(tokenizer, texts), strict=True
    )
    rows = zip(
        texts,
        ([*ids, *of_blanks] for ids, of_blanks in both),
        json.loads(done.stdout),
        strict=True,
    )
    wrong = [(text, ours, theirs) for text, ours, theirs in rows if ours != theirs]
    # "kkk" is k + kk or kk + k, equally likely: the sums round differently after a long
    # text
    ties = [text for text, ours, theirs in wrong if sorted(ours) == sorted(theirs)]
    assert len(ties) == len(wrong) <= len(texts) // 5_000, wrong


def test_what_cannot_be_exported_is_refused(tmp_path: Path) -> None:
    (package := tmp_path / "package.tgz").write_bytes(b"another package")
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na")
    good = packaged_model()
    page = tmp_path / "page"
    for folder, output, code in (
        (good, tmp_path, "LB-619"),
        (good, page, "LB-878"),
        (tmp_path, page, "LB-879"),
    ):
        with pytest.raises(LitebertError, match=code):
            web.export_web(folder, output, runtime=package)
    assert not page.exists()


def test_a_failed_or_wrong_download_is_named_and_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "litebert" / f"onnxruntime-web-{web.VERSION}.tgz"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "served").write_bytes(b"another package")
    served = (tmp_path / "served").as_uri()
    failed = dict.fromkeys(
        ("http://127.0.0.1:9/none.tgz", "http://127.0.0.1:9/a b"),
        r"LB-877[\s\S]*runtime",
    )
    for url, said in (failed | {served: "LB-878: file://"}).items():
        monkeypatch.setattr(web, "URL", url)
        with pytest.raises(LitebertError, match=said):
            web.read_runtime(None)
        assert not kept.exists()
    kept.parent.mkdir(parents=True)
    shutil.copy(tmp_path / "served", kept)
    with pytest.raises(LitebertError, match=rf"LB-878: {kept}[\s\S]*rm {kept}"):
        web.read_runtime(None)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> ExportReport:
    runtime = Path(RUNTIME) if RUNTIME else None
    return web.export_web(
        packaged_model(), tmp_path_factory.mktemp("web") / "page", runtime=runtime
    )


@contextmanager
def _opened(folder: Path, verb: str) -> Iterator:
    """Open a page from Python's static server; at the end require no error and no
    request to another host.
    """
    from playwright.sync_api import sync_playwright

    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=folder)
    )
    Thread(target=server.serve_forever, daemon=True).start()
    origin = f"http://127.0.0.1:{server.server_port}"
    faults = []
    with server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"]
        )
        opened = browser.new_page(viewport={"width": 390, "height": 844})
        opened.set_default_timeout(120_000)
        opened.on("console", lambda message: faults.append(message.text))
        opened.on("pageerror", lambda error: faults.append(str(error)))

        def note_foreign(request: Any) -> None:
            if origin not in request.url:
                faults.append(request.url)

        opened.on("request", note_foreign)
        opened.goto(f"{origin}/")
        opened.wait_for_selector(f"#{verb} ol li")
        try:
            yield opened
        finally:
            browser.close()
            server.shutdown()
    assert faults == []


@pytest.fixture(scope="class")
def page(exported: ExportReport) -> Iterator:
    with _opened(exported.output, "fill") as opened:
        yield opened


def _ask(page, verb: str, request: object):
    return page.evaluate(
        "([verb, given]) => litebert.ask(verb, given)", [verb, request]
    )


@pytest.mark.browser
class TestInChromium:
    def test_a_browser_fetches_less_than_seventeen_megabytes(
        self, exported: ExportReport
    ) -> None:
        assert exported.outputs == ("fill", "search") and exported.bytes < 16_300_000
        # some servers tell the browser to unpack them
        assert not [*exported.output.glob("*.gz")]

    def test_it_answers_as_python_does(self, page) -> None:
        model = litebert.load()
        text = "He opened the [MASK] and went into the [MASK]."
        in_python = model.fill(text, top=10)
        on_the_page = dict[tuple[str, ...], float]()
        for filling in _ask(page, "fill", {"text": text, "top": 10}):
            on_the_page[tuple(filling["words"])] = filling["probability"]
        assert len({filling.words for filling in in_python} & on_the_page.keys()) >= 5
        for filling in in_python[:3]:
            probability = on_the_page.get(filling.words, 0)
            assert probability == pytest.approx(filling.probability, abs=0.05)

        sentences = [
            "A man plays a guitar.",
            "The bank raised its interest rates.",
            "bread",
        ]
        vectors = model.embed(sentences, normalize=True)
        for sentence, vector in zip(sentences, vectors, strict=True):
            assert np.array(_ask(page, "embed", {"text": sentence})) @ vector > 0.97
        for sentence in ODD[4:]:
            (ids,) = model.tokenizer.encode_ids([sentence])
            assert _ask(page, "encode", {"text": sentence}) == ids

    def test_a_person_can_use_it_with_the_keyboard_and_axe_finds_no_violation(
        self, page
    ) -> None:
        from axe_playwright_python.sync_playwright import Axe

        page.get_by_role("button", name="Search by meaning").press("Enter")
        page.get_by_label("What are you looking for?").fill("money and finance")
        page.get_by_label("What are you looking for?").press("Enter")
        assert (
            page.locator("#search .name").first.inner_text()
            == "The bank raised its interest rates again."
        )
        page.get_by_label("Your texts").fill(
            "\n".join(f"Text {number}." for number in range(30))
        )
        page.get_by_role("button", name="Search", exact=True).press("Enter")
        page.wait_for_selector("#search li >> nth=29")
        assert page.evaluate("document.activeElement.innerText") == "Search"
        page.get_by_role("button", name="Fill the blanks").press("Enter")
        page.get_by_label("A text with [MASK]").fill("اللغة العربية جميلة.")
        assert (
            page.locator("#fill textarea").evaluate(
                "area => getComputedStyle(area).direction"
            )
            == "rtl"
        )
        page.get_by_role("button", name="Fill", exact=True).click()
        page.get_by_text("Put [MASK] where a word is missing.").wait_for()
        assert Axe().run(page).violations_count == 0

    def test_a_question_waits_for_the_model(self, page) -> None:
        page.reload(wait_until="domcontentloaded")
        expected = litebert.load().tokenizer.encode_ids(["A cat."])[0]
        assert _ask(page, "encode", {"text": "A cat."}) == expected
        for verb, said in (
            ("dance", "no verb dance"),
            ("classify", "no verb classify"),
            ("embed", "embed needs text"),
        ):
            with pytest.raises(Exception, match=said):
                _ask(page, verb, None)


REVIEWS = [
    "The film was warm and I enjoyed it.,good",
    "The play was dull and I hated it.,bad",
]
REVIEWS += [
    "The song was lovely and I enjoyed it.,good",
    "The book was awful and I hated it.,bad",
]
NEW_REVIEWS = [
    "The hotel was lovely and I enjoyed the stay.",
    "The dinner was awful; I hated every bite.",
]
NEW_REVIEWS += ["The song was terrible and I hated it.", "A clumsy, boring film. " * 60]


@pytest.mark.browser
def test_a_fine_tuned_models_page_labels_as_the_command_does(tmp_path: Path) -> None:
    (tmp_path / "reviews.csv").write_text("\n".join(["text,label", *REVIEWS * 8]))
    more = (
        "--quiet",
        "train.steps=12",
        "train.batch_size=8",
        "optim.learning_rate=1e-4",
    )
    start = ("--model", packaged_model(), "--runs", tmp_path / "runs")
    assert shell.litebert("finetune", tmp_path / "reviews.csv", *start, *more).ok
    model = tmp_path / "runs" / "reviews" / "model"
    assert (head := read_head(model)) and head.kind == "vector-classification"
    assert shell.litebert(
        "export",
        "web",
        model,
        tmp_path / "page",
        *(("--runtime", RUNTIME) if RUNTIME else ()),
    ).ok
    expected = shell.litebert(
        "classify", *NEW_REVIEWS, "--model", model, "--json"
    ).ok.json
    with _opened(tmp_path / "page", "classify") as page:
        for text, ours in zip(NEW_REVIEWS, expected, strict=True):
            scores = {
                row["label"]: row["value"]
                for row in _ask(page, "classify", {"text": text})
            }
            # 12 steps make unsure answers, which eight bits move
            assert scores == pytest.approx(ours["values"], abs=0.1)
        # it was trained on single texts, so the page has no field for a second one
        assert page.locator("#classify textarea").first.is_visible()
        assert not page.locator("#second").is_visible()
        first, second = NEW_REVIEWS[0], NEW_REVIEWS[3]
        scores = {
            row["label"]: row["value"]
            for row in _ask(page, "classify", {"text": first, "second": second})
        }
        expected = litebert.load(model).classify(first, second).values
        assert scores == pytest.approx(expected, abs=0.1)
