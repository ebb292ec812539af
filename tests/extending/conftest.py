"""The plug-ins of the how-to pages."""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import blocks

# the first line of a plug-in on a page: the name of its file, and what it is
_FIRST_LINE = r'"""({name})\.py: '


@pytest.fixture
def page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], Path]]:
    """Return a function that writes a plug-in of a page, by default the first one; its
    folder is the working directory.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    written = list[str]()

    def write(page_name: str, plugin_name: str = r"\w+") -> Path:
        text = Path(f"docs/extending/{page_name}.md")
        first_line = re.compile(_FIRST_LINE.format(name=plugin_name))
        code = next(block for block in blocks(text) if first_line.match(block))
        match = first_line.match(code)
        assert match is not None
        name = match[1]
        for recipe in blocks(text, "toml"):
            if recipe.startswith("# "):
                (tmp_path / f"{name}.toml").write_text(recipe, "utf-8")
        written.append(name)
        path = tmp_path / f"{name}.py"
        path.write_text(code, "utf-8")
        return path

    yield write
    for name in written:
        sys.modules.pop(name, None)
