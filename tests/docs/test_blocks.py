"""The pages: Python blocks run, shell blocks parse, links and the site's pages exist."""

import re
import shlex
from pathlib import Path

import click
import pytest

from litebert.cli import cli

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN = ["tutorial", "transformers", "estimators", "explain"]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def _blocks(page: Path, language: str) -> list[str]:
    return [code for kind, code in BLOCK.findall(page.read_text("utf-8")) if kind == language]


@pytest.mark.parametrize("name", RUN)
def test_python_of_a_page_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    blocks = _blocks(ROOT / "docs" / f"{name}.md", "python")
    assert blocks
    for block in blocks:
        exec(compile(block, f"{name}.md", "exec"), names)


def _commands(page: Path) -> list[list[str]]:
    text = "\n".join(_blocks(page, "sh")).replace("\\\n", " ")
    words = [shlex.split(line, comments=True) for line in text.splitlines()]
    return [line[1:] for line in words if line[:1] == ["litebert"]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_of_a_page_have_the_verbs_and_options_that_there_are(page: Path) -> None:
    for words in _commands(page):
        command: click.Command = cli
        context = command.make_context("litebert", list(words))
        while isinstance(command, click.Group):
            rest = [*context._protected_args, *context.args]
            if not rest:
                break
            name, found, rest = command.resolve_command(context, rest)
            assert found is not None, words
            command, context = found, found.make_context(name, rest, parent=context)


def test_the_site_lists_pages_that_there_are_each_once() -> None:
    listed = re.findall(r"(\S+\.md)", (ROOT / "mkdocs.yml").read_text("utf-8"))
    there = {str(page.relative_to(ROOT / "docs")) for page in PAGES[1:]}
    assert set(listed) <= there
    assert len(set(listed)) == len(listed)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_files_that_a_page_links_to_exist(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text("utf-8")):
        assert "://" in target or (page.parent / target).exists(), target
