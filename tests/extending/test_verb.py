"""The verbs of docs/extending/verb.md: `keywords`, and the stream `drift`."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import litebert
from litebert.cli.answer_file import Answered, AnswerFile
from litebert.errors import LitebertError
from litebert.plugins import load_plugin
from tests.conftest import ROOT
from tests.contract.served import Server, serve
from tests.contract.shell import COMMAND
from tests.extending.commands import forget, shell, write_plugin

SHIP = "A ship sailed into the harbor at night."


# ---- a verb --------------------------------------------------------------------------


def test_the_verb_of_the_page_has_help(
    page: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert shell("--help", "--plugin", page("verb")) == 0
    assert "find the words that say most about a text" in capsys.readouterr().out
    assert shell("keywords", "--help") == 0
    help_text = capsys.readouterr().out
    assert "Find the words of each text" in help_text
    assert f'litebert keywords "{SHIP}"' in help_text
    assert "--top INTEGER RANGE" in help_text


def test_the_answers_of_the_page_have_a_schema(
    page: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    load_plugin(str(page("verb")))
    assert shell("help", "--schema", "keywords") == 0
    schema = json.loads(capsys.readouterr().out)
    properties = schema["$defs"]["Keywords"]["properties"]
    assert set(properties) == {"words", "similarities"}


def test_the_verb_of_the_page_answers_in_the_shell_and_in_files(
    page: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    load_plugin(str(page("verb")))
    assert shell("keywords", SHIP, "--top", 2, "--json") == 0
    [answer] = json.loads(capsys.readouterr().out)
    assert len(answer["words"]) == 2
    assert len(answer["similarities"]) == 2

    Path("t.csv").write_text(f"body\n{SHIP}\n \n", "utf-8")
    words = ("keywords", "t.csv", "--column", "body", "--output", "a.jsonl", "--quiet")
    assert shell(*words, "--top", 2) == 0
    first, second = Path("a.jsonl").read_text("utf-8").splitlines()
    assert json.loads(first)["answer"]["words"] == answer["words"]
    assert "has no text in column body" in json.loads(second)["error"]


def test_without_its_plug_in_the_verb_is_unknown(
    page: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    plugin = page("verb")
    load_plugin(str(plugin))
    forget(plugin)
    assert shell("keywords", SHIP) == 2
    assert "keywords" in capsys.readouterr().err


def test_the_verb_of_the_page_is_a_method(page: Callable[..., Path]) -> None:
    load_plugin(str(page("verb")))
    model = litebert.load()
    assert model.verbs == ("fill", "score", "order", "embed", "keywords")
    [keywords] = model.keywords([SHIP], top=2)
    assert len(keywords.to_pandas()) == 1
    with pytest.raises(AttributeError, match="keyword"):
        model.keyword([SHIP])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serve the packaged model with both plug-ins of the page."""
    folder = tmp_path_factory.mktemp("plugins")
    verb = write_plugin(folder, "verb")
    stream = write_plugin(folder, "verb", "drift")
    with serve("--plugin", verb, "--plugin", stream) as started:
        started.wait_for("is ready")
        yield started


def test_the_verb_of_the_page_is_a_route(
    page: Callable[..., Path], server: Server
) -> None:
    load_plugin(str(page("verb")))
    [keywords] = litebert.load().keywords([SHIP], top=2)
    answer = server.ask("/v1/keywords", {"texts": [SHIP], "top": 2}).json
    assert answer["result"][0]["words"] == list(keywords.words)
    too_many = server.ask("/v1/keywords", {"texts": [SHIP], "top": 51})
    assert too_many.status == 422


def test_the_stream_of_the_page_is_a_route(server: Server) -> None:
    first, second = server.ask("/v1/drift", {"texts": [SHIP, SHIP]}).json["result"]
    assert first == {"nearness": None}
    assert second["nearness"] == pytest.approx(1.0, abs=1e-5)


def test_the_route_of_the_page_is_described(server: Server) -> None:
    paths = server.ask("/openapi.json").json["paths"]
    description = paths["/v1/keywords"]["post"]["description"]
    assert description.startswith("Find the words of each text")


def test_the_verb_of_the_page_has_a_form(server: Server) -> None:
    form = server.ask("/page/verbs.json").json["keywords"]
    assert form["title"] == "Keywords"
    assert form["examples"] == [{"texts": SHIP}]


NODE = shutil.which("node")
SHOW = """
class Node {
  constructor(name) { this.name = name; this.inside = []; }
  setAttribute() {}
  addEventListener() {}
  append(...children) { this.inside.push(...children); }
  get text() { return this.inside.map((one) => one.text ?? String(one)).join(" "); }
}
globalThis.document = { createElement: (name) => new Node(name) };
const { views } = await import("./views.js");
const [forms, entered, answers] = JSON.parse(process.argv[2]);
const view = views(forms).keywords;
console.log(JSON.stringify({
  calls: view.calls(entered), shown: view.show([answers], entered).map((node) => node.text),
}));
"""


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_the_playground_asks_and_shows_the_verb_of_the_page(
    page: Callable[..., Path], tmp_path: Path
) -> None:
    from litebert.serve.routes import forms

    load_plugin(str(page("verb")))
    for script in (ROOT / "src/litebert/serve/page").glob("*.js"):
        text = script.read_text("utf-8").replace('"/page/', '"./')
        (tmp_path / script.name).write_text(text, "utf-8")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "show.js").write_text(SHOW)

    entered = {"texts": f"{SHIP}\n\n"}
    answers = [{"words": ["ship", "night"], "similarities": [0.512345, 0.25]}]
    done = subprocess.run(
        [str(NODE), "show.js", json.dumps([forms(), entered, answers])],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    view = json.loads(done.stdout)
    assert view["calls"] == [["keywords", {"texts": [SHIP]}]]
    [shown] = view["shown"]
    assert shown.startswith(SHIP)
    assert '["ship","night"]' in shown


# ---- a stream ------------------------------------------------------------------------


def test_the_stream_of_the_page_answers_each_line_before_it_waits_for_the_next(
    page: Callable[..., Path],
) -> None:
    plugin = page("verb", "drift")
    words = [*COMMAND, "drift", "-", "--json", "--quiet", "--plugin", str(plugin)]
    nearness = list[float | None]()
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for text in (SHIP, SHIP, "Nothing else."):
            process.stdin.write(f"{text}\n")
            answer = json.loads(process.stdout.readline())
            nearness.append(answer["answer"]["nearness"])
        process.stdin.close()
        assert process.wait(60) == 0
    before_any, same, other = nearness
    assert before_any is None
    assert same == pytest.approx(1.0, abs=1e-5)
    assert other is not None
    assert other < 0.99


def test_a_stream_in_python_answers_one_text_after_another(
    page: Callable[..., Path],
) -> None:
    load_plugin(str(page("verb", "drift")))
    answers = litebert.load().drift(iter([SHIP, SHIP]), memory=0.5)
    assert next(answers) == {"nearness": None}
    assert next(answers)["nearness"] == pytest.approx(1.0, abs=1e-5)


def test_a_stream_in_python_checks_its_texts_and_options(
    page: Callable[..., Path],
) -> None:
    load_plugin(str(page("verb", "drift")))
    model = litebert.load()
    with pytest.raises(LitebertError, match=r"(?s)one text.*model.drift\(\['abc'\]\)"):
        model.drift("abc")
    with pytest.raises(LitebertError, match="less than or equal to 1"):
        model.drift([SHIP], memory=2)
    with pytest.raises(TypeError, match="speed"):
        model.drift([SHIP], speed=2)


def test_an_output_of_a_stream_is_continued_with_what_was_read_before(
    page: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    load_plugin(str(page("verb", "drift")))
    texts = ["It rains.", "It is wet.", "", "Shares fell.", "It rains again."]
    lines = ["text", *(f'"{text}"' for text in texts)]
    Path("t.csv").write_text("\n".join(lines), "utf-8")
    drift = ("drift", "t.csv", "--quiet", "--output")

    assert shell(*drift, "whole.jsonl") == 0
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, num_chunks=2)
        with pytest.raises(RuntimeError, match="stopped"):
            shell(*drift, "cut.jsonl")
    assert shell(*drift, "cut.jsonl") == 0
    assert "resuming after 2 rows" in capsys.readouterr().err
    whole = Path("whole.jsonl").read_text("utf-8")
    assert Path("cut.jsonl").read_text("utf-8") == whole
    assert len(whole.splitlines()) == len(texts)


def stop_after(patch: pytest.MonkeyPatch, num_chunks: int) -> None:
    """Let writing answers fail after some chunks, as if the process were killed."""
    write = AnswerFile.write
    written = list[int]()

    def write_or_stop(file: AnswerFile, chunk: Sequence[Answered]) -> None:
        if len(written) == num_chunks:
            raise RuntimeError("stopped")
        written.append(len(chunk))
        write(file, chunk)

    patch.setattr(AnswerFile, "write", write_or_stop)
