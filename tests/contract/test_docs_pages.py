"""The documentation: Python blocks run, commands use verbs and options that exist,
links lead to files.
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
from docs.gather_pages import gather
from litebert.config import FinetuneConfig, PretrainConfig
from litebert.hub import packaged_model
from litebert.interop.huggingface import import_model
from litebert.settings import describe
from tests.conftest import ROOT, blocks

from .shell import QUICK, litebert

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN = [
    "README",
    "docs/tutorial",
    "docs/transformers",
    "docs/estimators",
    "docs/explain",
    "docs/bulk",
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_of_a_page_is_valid_and_uses_names_that_exist(page: Path) -> None:
    for node in ast.walk(ast.parse("\n".join(blocks(page, "python")))):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "litebert":
            assert hasattr(package, node.attr), node.attr


@pytest.mark.parametrize("name", RUN)
def test_python_of_a_page_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    found = blocks(Path(f"{name}.md"))
    assert found
    for block in found:
        exec(compile(block, f"{name}.md", "exec"), names)


def test_python_of_two_libraries_side_by_side_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # folders under the names of models on the Hub
    monkeypatch.chdir(tmp_path)
    for name in ("albert/albert-base-v2", "sentence-transformers/all-MiniLM-L6-v2"):
        import_model(str(packaged_model()), Path(name))
    tickets = (ROOT / "examples" / "tickets.csv").read_text("utf-8").splitlines()
    Path("tickets.csv").write_text("\n".join([tickets[0], *tickets[1:31]]))
    page = Path("docs/coming-from.md")
    names: dict[str, object] = {}
    for other in blocks(page, "py"):
        ast.parse(other)
    for block in blocks(page):
        short = block.replace("epochs=3", 'settings={"train.steps": 2}')
        exec(compile(short, page, "exec"), names)
    # the libraries that stand side by side give the same answers
    sentence = "Paris is the [MASK] of France."
    filled: Any = names["fill"]
    ours = package.load("albert/albert-base-v2").fill(sentence, top=1)[0]
    assert filled(sentence, top_k=1)[0]["token_str"] == ours.words[0]
    encoder: Any = names["encoder"]
    model: Any = names["model"]
    theirs = encoder.encode(["a cat", "a dog"])
    assert np.allclose(model.embed(["a cat", "a dog"]), theirs, atol=1e-4)
    classifier: Any = names["classifier"]
    assert set(classifier.predict(["a cat sleeps"])) <= {"animal", "food"}


# the commands that plug-ins of pages add, which tests/extending runs
OF_PLUGINS = {"keywords", "drift"}


def commands(page: Path) -> list[list[str]]:
    text = "\n".join(blocks(page, "sh")).replace("\\\n", " ")
    words = [shlex.split(line, comments=True) for line in text.splitlines()]
    ours = [line[1:] for line in words if line[:1] == ["litebert"]]
    return [line for line in ours if line[0] not in OF_PLUGINS]


@cache
def options(words: tuple[str, ...]) -> frozenset[str] | None:
    done = litebert(*words, "--help")
    usage = " ".join(done.stdout.split()).partition("Usage: litebert ")[2]
    if done.code or not usage.startswith(" ".join(words)):
        return None
    return frozenset(re.findall(r"(?<![\w-])--?[a-z][\w-]*", done.stdout))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_of_a_page_use_verbs_and_options_that_exist(page: Path) -> None:
    for words in commands(page):
        known = None
        for size in range(min(3, len(words)), -1, -1):
            verb = tuple(words[:size])
            if (
                not any(word.startswith("-") for word in verb)
                and (known := options(verb)) is not None
            ):
                break
        assert known is not None and (size or words[0].startswith("-")), words
        typed = {
            word.split("=")[0] for word in words[size:] if re.match(r"--?[a-z]", word)
        }
        assert typed <= known | {"--help", "-h", "--debug", "--plugin", "--version"}, (
            words
        )
        settings = {
            word.split("=")[0] for word in words if re.match(r"[a-z]+\.[a-z_]+=", word)
        }
        assert settings <= {
            each.name
            for kind in (PretrainConfig, FinetuneConfig)
            for each in describe(kind)
        }, words


def test_pages_of_the_site_link_to_each_other_only(tmp_path: Path) -> None:
    gather(tmp_path / "pages")
    for page in (tmp_path / "pages").rglob("*.md"):
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text("utf-8")):
            is_inside = (page.parent / target).resolve().is_relative_to(tmp_path)
            assert "://" in target or is_inside, target


def test_the_site_lists_existing_pages_once_each() -> None:
    listed = re.findall(r"(\S+\.md)", (ROOT / "mkdocs.yml").read_text("utf-8"))
    there = {str(page.relative_to(ROOT / "docs")) for page in PAGES[1:]}
    assert set(listed) <= there and len(set(listed)) == len(listed)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_files_that_a_page_links_to_exist(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text("utf-8")):
        assert "://" in target or (page.parent / target).exists(), target


SHORT = {"finetune": QUICK, "pretrain": ("--dry-run",)}


def test_the_first_commands_of_the_readme_run_as_written(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "my-text.txt").write_text("Anna walked home.\n" * 99)
    ours = ("fill", "search", "finetune", "classify", "pretrain")
    # not available in the tests, or too long
    elsewhere = {"albert/albert-base-v2", "runs/mine", "mrpc", "further"}
    shown = [
        words
        for words in commands(ROOT / "README.md")
        if words[0] in ours and elsewhere.isdisjoint(words)
    ]
    assert {words[0] for words in shown} == set(ours)
    for words in shown:
        assert litebert(*words, *SHORT.get(words[0], ()), cwd=tmp_path).ok
