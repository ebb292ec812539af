"""What the tests of plug-ins run: plug-ins of pages, short trainings, commands in this
process, commands that must fail.
"""

import re
import shutil
import sys
from pathlib import Path

import pytest

from litebert import cli
from litebert.plugins import REGISTRIES
from tests.conftest import blocks

QUICK = ("train.steps=3", "train.batch_size=8", "train.eval_every=3", "--quiet")
SMALL = (
    "--preset",
    "tiny",
    "model.hidden_size=32",
    "model.intermediate_size=64",
    "model.num_attention_heads=4",
    "objective.max_seq_length=64",
    "train.loader_workers=0",
)


# the first line of a plug-in on a page: the name of its file, and what it is
_FIRST_LINE = re.compile(r'"""(\w+)\.py: ')


def write_plugin(folder: Path, page_name: str, plugin_name: str = "") -> Path:
    """Write a plug-in of a how-to page, by default its first one, and the recipe beside
    it, if the page has one.
    """
    page = Path(f"docs/extending/{page_name}.md")
    name, code = _find_plugin(page, plugin_name)
    for recipe in blocks(page, "toml"):
        if recipe.startswith("# "):
            (folder / f"{name}.toml").write_text(recipe, "utf-8")
    path = folder / f"{name}.py"
    path.write_text(code, "utf-8")
    return path


def _find_plugin(page: Path, plugin_name: str) -> tuple[str, str]:
    """Return the name and the code of a plug-in, by default of the first one."""
    for code in blocks(page):
        first_line = _FIRST_LINE.match(code)
        if first_line and plugin_name in ("", first_line[1]):
            return first_line[1], code
    raise LookupError(f"{page} has no plug-in {plugin_name}")


def forget(plugin: Path) -> None:
    """Undo the loading of a plug-in, as a new process does; the records of other
    plug-ins stay.
    """
    sys.modules.pop(plugin.stem, None)
    for registry in REGISTRIES:
        for name in registry.from_plugins():
            if registry.plugin_of(name) == plugin.stem:
                registry.remove(name)


def shell(*words: object) -> int:
    """Run a command in this process and return its exit code."""
    return cli.run([str(word) for word in words])


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """Return the error of a command that must fail."""
    capsys.readouterr()
    assert shell(*words) == 1, words
    return capsys.readouterr().err


def weights_of(name: str) -> bytes:
    """Return the weights of the model of a run."""
    return Path(f"runs/{name}/model/model.safetensors").read_bytes()


def assert_resumes_to_equal_bits(*words: object) -> None:
    """Train twice, as `whole` and as `cut`; the second run is killed after two of its
    three steps and resumed.
    """
    assert shell(*words, "--name", "whole") == 0
    assert shell(*words, "--name", "cut") == 0
    _leave_two_steps(Path("runs/cut"))
    assert shell(*words, "--name", "cut") == 0
    assert weights_of("cut") == weights_of("whole")


def _leave_two_steps(run: Path) -> None:
    """Leave of a run of three steps what there is if it is killed after its second."""
    shutil.rmtree(run / "checkpoints/step-000000003")
    shutil.rmtree(run / "model")
