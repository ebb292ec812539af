"""The plug-ins of the how-to pages."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.extending.commands import write_plugin


@pytest.fixture
def page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Path]]:
    """Return a function that writes a plug-in of a page, by default the first one; its
    folder is the working directory.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    plugins = list[Path]()

    def write(page_name: str, plugin_name: str = "") -> Path:
        plugin = write_plugin(tmp_path, page_name, plugin_name)
        plugins.append(plugin)
        return plugin

    yield write
    for plugin in plugins:
        sys.modules.pop(plugin.stem, None)
