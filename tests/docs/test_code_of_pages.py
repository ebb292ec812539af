"""The code of the documentation: Python blocks run, commands use verbs and options that
exist.
"""

import ast
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import litebert as package
from litebert.config import FinetuneConfig, PretrainConfig
from litebert.hub import packaged_model
from litebert.interop.huggingface import import_model
from litebert.settings import describe
from tests.conftest import ROOT, blocks
from tests.contract.shell import QUICK, litebert

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)

# ---- Python --------------------------------------------------------------------------


@every_page
def test_python_of_a_page_is_valid_and_uses_names_that_exist(page: Path) -> None:
    tree = ast.parse("\n".join(blocks(page, "python")))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "litebert":
            assert hasattr(package, node.attr), node.attr


@pytest.mark.parametrize(
    "name",
    [
        "README",
        "docs/tutorial",
        "docs/transformers",
        "docs/estimators",
        "docs/explain",
        "docs/bulk",
    ],
)
def test_python_of_a_page_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = blocks(Path(f"{name}.md"))
    assert code
    names: dict[str, object] = {}
    for block in code:
        exec(compile(block, f"{name}.md", "exec"), names)


def test_python_of_two_libraries_side_by_side_gives_the_same_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = Path("docs/coming-from.md")
    furnish_side_by_side()
    for block_of_others in blocks(page, "py"):
        ast.parse(block_of_others)
    names: dict[str, Any] = {}
    for block in blocks(page):
        short = block.replace("epochs=3", 'settings={"train.steps": 2}')
        exec(compile(short, page, "exec"), names)

    sentence = "Paris is the [MASK] of France."
    filling = package.load("albert/albert-base-v2").fill(sentence, top=1)[0]
    (answer,) = names["fill"](sentence, top_k=1)
    assert answer["token_str"] == filling.words[0]

    animals = ["a cat", "a dog"]
    vectors = names["encoder"].encode(animals)
    np.testing.assert_allclose(names["model"].embed(animals), vectors, atol=1e-4)

    (label,) = names["classifier"].predict(["a cat sleeps"])
    assert label in ("animal", "food")


def furnish_side_by_side() -> None:
    """Write what the page reads: the packaged model under names of the Hub, and a short
    table of tickets.
    """
    for name in ("albert/albert-base-v2", "sentence-transformers/all-MiniLM-L6-v2"):
        import_model(str(packaged_model()), Path(name))
    tickets = (ROOT / "examples" / "tickets.csv").read_text("utf-8").splitlines()
    Path("tickets.csv").write_text("\n".join(tickets[:31]))


# ---- commands ------------------------------------------------------------------------

# the commands that plug-ins of pages add, which tests/extending runs
OF_PLUGINS = {"keywords", "drift"}
ALWAYS = {"--help", "-h", "--debug", "--plugin", "--version"}
OPTION = re.compile(r"(?<![\w-])--?[a-z][\w-]*")
SETTING = re.compile(r"([a-z]+\.[a-z_]+)=")


def commands_of(page: Path) -> list[list[str]]:
    """Return the words of each litebert command of a page, without `litebert`."""
    code = "\n".join(blocks(page, "sh")).replace("\\\n", " ")
    commands = []
    for line in code.splitlines():
        program, *words = shlex.split(line, comments=True) or [""]
        if program == "litebert" and words[0] not in OF_PLUGINS:
            commands.append(words)
    return commands


@cache
def options_of(verb: tuple[str, ...]) -> frozenset[str] | None:
    """Return the options in the help of a verb; None if there is no such verb."""
    done = litebert(*verb, "--help")
    usage = " ".join(done.stdout.split()).partition("Usage: litebert ")[2]
    if done.code != 0 or not usage.startswith(" ".join(verb)):
        return None
    return frozenset(OPTION.findall(done.stdout))


def verb_of(words: list[str]) -> tuple[str, ...]:
    """Return the longest beginning of a command that is a verb, such as `runs list`."""
    for size in (3, 2, 1):
        verb = tuple(words[:size])
        has_option = any(word.startswith("-") for word in verb)
        if not has_option and options_of(verb) is not None:
            return verb
    assert words[0].startswith("-"), f"no verb: {words}"
    return ()


@cache
def names_of_settings() -> frozenset[str]:
    settings = (*describe(PretrainConfig), *describe(FinetuneConfig))
    return frozenset(setting.name for setting in settings)


@every_page
def test_commands_of_a_page_use_verbs_and_options_that_exist(page: Path) -> None:
    for words in commands_of(page):
        verb = verb_of(words)
        options = options_of(verb)
        assert options is not None
        for word in words[len(verb) :]:
            name = word.split("=")[0]
            if OPTION.fullmatch(name):
                assert name in options | ALWAYS, words


@every_page
def test_commands_of_a_page_use_settings_that_exist(page: Path) -> None:
    for words in commands_of(page):
        for word in words:
            setting = SETTING.match(word)
            if setting is not None:
                assert setting[1] in names_of_settings(), words


# what makes a long training short
SHORT = {"finetune": QUICK, "pretrain": ("--dry-run",)}
RUN_HERE = {"fill", "search", "finetune", "classify", "pretrain"}
# models and data that the tests do not have
ELSEWHERE = {"albert/albert-base-v2", "runs/mine", "mrpc", "further"}


def test_the_first_commands_of_the_readme_run_as_written(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "my-text.txt").write_text("Anna walked home.\n" * 99)
    verbs_run = set[str]()
    for words in commands_of(ROOT / "README.md"):
        verb = words[0]
        if verb in RUN_HERE and ELSEWHERE.isdisjoint(words):
            done = litebert(*words, *SHORT.get(verb, ()), cwd=tmp_path)
            assert done.code == 0, done
            verbs_run.add(verb)
    assert verbs_run == RUN_HERE
