"""The examples: prose from the documentation of Python, and the files that start
training on several machines.
"""

import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from litebert.api.settings import recipe_settings
from tests.contract.shell import litebert

FOLDER = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def prose() -> Iterator[ModuleType]:
    """Return the script as a module that its worker processes can import too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER / "quickstart"))
        yield importlib.import_module("python_prose")


MARKUP = {
    "Read the ``key`` of a *lock* or a **door**.": "Read the key of a lock or a door.",
    "It opens a :class:`~house.door.Lock`, a house.door.Lock or nothing.": (
        "It opens a Lock, a Lock or nothing."
    ),
    "See `the manual <https://x.org>`_ or [the page](https://x.org).": (
        "See the manual or the page."
    ),
    "The rest is passed on as *args and **kwargs.": (
        "The rest is passed on as args and kwargs."
    ),
    "The proof is long. [1]_ It is not given here.": (
        "The proof is long. It is not given here."
    ),
    "A sentence runs\nover two lines.": "A sentence runs over two lines.",
}
NO_PROSE = [
    "Parameters\n----------\nkey : str\n    The name of the key is a word.",
    ":param key: The name of the key.\n    It is a word in English.",
    ">>> turn(key)\nThe lock is open to all of us.",
    "Do it like this::\n\n    The lock is open to all of us.",
    ".. code-block:: python\n\n    The lock is open to all of us.",
    "======  =====\nThe key of the lock.\n======  =====",
]
FRAGMENTS = [
    "lock of the door.",
    "Open the door.",
    "The lock (of the door is open.",
    "Ключ лежит in the house.",
]


def test_markup_becomes_plain_words_and_other_blocks_are_left_out(
    prose: ModuleType,
) -> None:
    assert {
        markup: " ".join(prose.find_sentences(markup)) for markup in MARKUP
    } == MARKUP
    first = "The lock is on the door."
    last = "Nobody has the key of it."
    for block in NO_PROSE:
        assert list(
            prose.find_sentences(f"{first}\n\n{block}\n\nNotes\n-----\n{last}")
        ) == [first, last]
    assert not any(map(prose.is_prose, FRAGMENTS))
    assert prose.is_prose(
        "A well-known lock doesn't open by itself, e.g. at 12 or at night!"
    )


MODULE = '''
"""The module is about a house."""
raise SystemExit("read, not run")
class Door:
    """The door is made of wood."""
    colour = 1
    """The colour of it is red."""
    def open(self):
        """The door is opened by this."""
        print("""The hall is what you see then.""")
try:
    add_docs(open, """The name of this is open.""" % ())
except OSError:
    pass
async def knock():
    """Somebody is at the door. \\ud800 It is late in the day."""
'''


def test_docstrings_of_a_module_are_returned_in_order(
    prose: ModuleType, tmp_path: Path
) -> None:
    path = tmp_path / "house.py"
    path.write_text(MODULE)
    assert prose.module_sentences(path) == [
        "The module is about a house.",
        "The door is made of wood.",
        "The colour of it is red.",
        "The door is opened by this.",
        "The name of this is open.",
        "Somebody is at the door.",
        "It is late in the day.",
    ]
    for broken in (b'print "two"', b'"""\xff"""', b'"""\0"""', b""):
        path.write_bytes(broken)
        assert prose.module_sentences(path) == []


# ---- several machines ----------------------------------------------------------------


def test_scripts_have_no_syntax_error_and_every_option_exists() -> None:
    help_of_torchrun = [sys.executable, "-m", "torch.distributed.run", "--help"]
    launcher = subprocess.run(
        help_of_torchrun, capture_output=True, text=True, check=True
    ).stdout
    ours = litebert("pretrain", "--help").stdout
    for name in ("one-node.sh", "slurm.sbatch", "kubernetes.yaml"):
        text = (FOLDER / "scale" / name).read_text()
        if not name.endswith("yaml"):
            subprocess.run(["bash", "-n", FOLDER / "scale" / name], check=True)
        module = re.search(r"-m\s+(?:- )?litebert\s", text)
        assert module
        called = text[text.index("torchrun") : module.start()]
        command = text[module.start() :]
        for option in re.findall(r"--[a-z-]+", called):
            assert option in launcher or option.replace("-", "_") in launcher, option
        for option in re.findall(r"(?<=[\s\"'])--[a-z-]+", command):
            assert option in ours, option
    recipe_settings("pretrain", "paper-base")


def test_the_job_is_what_kubernetes_expects() -> None:
    yaml = pytest.importorskip("yaml")
    service, job = yaml.safe_load_all(
        (FOLDER / "scale" / "kubernetes.yaml").read_text()
    )
    assert (service["kind"], job["kind"]) == ("Service", "Job")
    spec = job["spec"]
    assert spec["completionMode"] == "Indexed"
    (container,) = spec["template"]["spec"]["containers"]
    assert f"--nnodes={spec['completions']}" in container["args"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 8
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in spec["template"]["spec"]["volumes"]}
    assert spec["template"]["spec"]["subdomain"] == service["metadata"]["name"]
