"""Any plug-in: how it is loaded, recorded and named where it is missing."""

import html
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import litebert
from litebert.errors import LitebertError
from litebert.folder.card import model_card
from litebert.plugins import OPTIMIZERS, load_plugin
from litebert.runs import RunFolder
from tests.extending.commands import QUICK, SMALL, forget, refused, shell

# ---- a run with a plug-in ------------------------------------------------------------

Words = tuple[object, ...]


@pytest.fixture
def pretrain(page: Callable[[str], Path], corpus: Path) -> Words:
    """Train as `a` with the smallest plug-in, plain.py; return the words but for the
    name and the plug-in, which is loaded.
    """
    plugin = page("plugins")
    words = ("pretrain", "--corpus", corpus, *SMALL, *QUICK, "optim.name=plain")
    assert shell(*words, "--name", "a", "--plugin", plugin) == 0
    return words


@pytest.mark.usefixtures("pretrain")
def test_a_run_records_the_plug_in_and_its_report_and_card_name_it(
    tmp_path: Path,
) -> None:
    plugin = tmp_path / "plain.py"
    run = RunFolder(Path("runs/a"))
    assert run.file.plugins == {"plain": str(plugin)}
    report = html.unescape((run.folder / "report.html").read_text("utf-8"))
    assert f"report runs/a --plugin {plugin}" in report
    assert "--plugin plain.py" in model_card(Path("runs/a/model"))


@pytest.mark.usefixtures("pretrain")
def test_a_model_that_an_optimizer_trained_is_an_ordinary_one(tmp_path: Path) -> None:
    assert "litebert_plugins" not in Path("runs/a/model/config.json").read_text()
    forget(tmp_path / "plain.py")
    litebert.load("runs/a")


def test_a_run_that_lacks_its_plug_in_names_it(
    pretrain: Words, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin = tmp_path / "plain.py"
    forget(plugin)
    resuming = (*pretrain, "--name", "a")
    for words in (("report", "runs/a"), ("evaluate", "runs/a"), resuming):
        error = refused(capsys, *words)
        assert "needs the plug-in plain" in error
        assert f"--plugin {plugin}" in error


def test_a_new_run_without_the_plug_in_does_not_know_its_optimizer(
    pretrain: Words, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forget(tmp_path / "plain.py")
    error = refused(capsys, *pretrain, "--name", "b")
    assert "there is no optimizer of this name" in error
    assert "one of adamw, lamb, muon" in error


# ---- what cannot be loaded -----------------------------------------------------------

IMPORTS = """
from litebert.inference.verb import Verb
from litebert.optim import AdamW, Lamb
from litebert.plugins import OPTIMIZERS, TASK_KINDS, VERBS
from litebert.tasks.kinds.text import SingleLabel, TextClassification
"""
TWICE = """
OPTIMIZERS.add("twice", AdamW)
OPTIMIZERS.add("twice", Lamb)
"""
BARE = """
class Bare(TextClassification):
    problem_type = "bare"

TASK_KINDS.add("bare", Bare)
"""
SAME = """
class Same(SingleLabel):
    pass

TASK_KINDS.add("same", Same)
"""
VERB = """
{function}
VERBS.add({name!r}, Verb(
    name={own_name!r},
    function={name},
    summary="s",
    answer_type=str,
    example={{"texts": ["a"]}},
))
"""
UNTYPED = VERB.format(
    function="def shout(model, texts, *, loud=3): return texts",
    name="shout",
    own_name="shout",
)
MISNAMED = VERB.format(
    function="def shout(model, texts): return texts",
    name="shout",
    own_name="shouts",
)
YIELDS = VERB.format(
    function="def tell(model, text): yield text",
    name="tell",
    own_name="tell",
)
FAULTY = {
    "absent.py": (None, "LB-110"),
    "json.py": ("", "LB-111"),
    "broken.py": ("1 / 0", "ZeroDivisionError"),
    "syntax.py": ("def", "SyntaxError"),
    "exits.py": ("raise SystemExit(3)", "SystemExit: 3"),
    "empty.py": ("", "adds nothing"),
    "three.py": ('OPTIMIZERS.add("three", 3)', "not a MomentOptimizer"),
    "muon.py": ('OPTIMIZERS.add("muon", AdamW)', "the one of litebert"),
    "twice.py": (TWICE, "another one, from twice"),
    "bare.py": (BARE, "its class lacks commonest, log_values"),
    "same.py": (SAME, "needs a problem_type of its own, not that of classification"),
    "untyped.py": (UNTYPED, "the option loud of shout needs a type"),
    "misnamed.py": (MISNAMED, "calls itself shouts"),
    "yields.py": (YIELDS, "first parameter must be texts"),
}
"""Files that are no plug-ins: their text, if they exist, and what is said of each."""


@pytest.mark.usefixtures("page")
@pytest.mark.parametrize("name", FAULTY)
def test_a_plug_in_that_cannot_be_loaded_is_named(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text, message = FAULTY[name]
    if text is not None:
        Path(name).write_text(IMPORTS + text, "utf-8")
    error = refused(capsys, "sizes", "--plugin", name)
    assert message in error
    assert name in error or "LB-113" in error or "LB-109" in error
    if name != "json.py":  # a module of Python, which others need
        forget(Path(name))


# ---- which file is loaded, and what is its own ---------------------------------------


def test_a_plug_in_is_the_file_that_was_named(page: Callable[[str], Path]) -> None:
    """The working directory, which `python -m litebert` looks in first, has another."""
    Path("better.py").write_text("1 / 0", "utf-8")
    Path("other").mkdir()
    text = page("plugins").read_text("utf-8").replace("plain", "better")
    Path("other/better.py").write_text(text, "utf-8")
    sys.path.insert(0, "")
    load_plugin("other/better.py")
    loaded = sys.modules["better"].__file__
    assert loaded is not None
    assert Path(loaded).samefile("other/better.py")
    forget(Path("better.py"))


def test_a_module_may_add_its_own_name_again(page: Callable[[str], Path]) -> None:
    """As a cell of a notebook does that is run again."""
    load_plugin(str(page("optimizer")))
    lion = sys.modules["lion"]
    exec("class Lion(Lion):\n    pass\nOPTIMIZERS.add('lion', Lion)", lion.__dict__)
    assert OPTIMIZERS["lion"] is lion.Lion


def test_a_name_belongs_to_the_module_that_added_it(
    page: Callable[[str], Path],
) -> None:
    load_plugin(str(page("optimizer")))
    with pytest.raises(LitebertError, match="LB-109"):
        OPTIMIZERS.add("lion", litebert.AdamW)


def test_a_name_of_litebert_cannot_be_added(page: Callable[[str], Path]) -> None:
    load_plugin(str(page("optimizer")))
    with pytest.raises(LitebertError, match="LB-109"):
        OPTIMIZERS.add("lamb", sys.modules["lion"].Lion)


# ---- advice --------------------------------------------------------------------------

UNKNOWN = [
    pytest.param(("keyword", "A ship sailed."), "keyword", id="verb"),
    pytest.param(("finetune", "boolq"), "boolq", id="task"),
    # the data are there, but no task of this name
    pytest.param(("finetune", "boolq", "--data", "boolq"), "boolq", id="task of data"),
]


@pytest.mark.usefixtures("page")
@pytest.mark.parametrize(("words", "unknown"), UNKNOWN)
def test_what_a_plug_in_may_add_is_said_where_a_name_is_unknown(
    words: tuple[str, ...], unknown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if "--data" in words:
        Path("boolq").mkdir()
    assert shell(*words) in (1, 2)
    error = capsys.readouterr().err
    assert unknown in re.findall(r"\w+", error)
    assert "--plugin FILE" in error


def test_advice_loads_the_plug_ins_that_were_given(
    page: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    plugin = page("plugins")
    error = refused(capsys, "report", "absent", "--plugin", plugin)
    assert f"next:     litebert runs list --plugin {plugin}\n" in error
