"""A build on a real Ray cluster: a head and two workers, one of which is killed."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from litebert.corpus import Corpus, build, build_corpus

from .conftest import tree

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

BUILD = """
import sys
from pathlib import Path
from litebert.corpus import build, build_corpus
build.PART_BYTES = 1  # a part for each input
folder = Path(sys.argv[1])
build_corpus(sorted(folder.glob("*.txt")), tokenizer=folder / "tokenizer", output=folder / "spread",
             sentences="line", held_out=0.1, cluster=True)
"""


@pytest.fixture
def cluster() -> Iterator[str]:
    """Start a head without processors and two nodes with one each; give their address."""
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    cluster.wait_for_nodes()
    yield cluster.address
    for node in nodes:
        cluster.remove_node(node)
    cluster.shutdown()


def test_a_worker_killed_while_building_loses_nothing_and_repeats_nothing(
    cluster: str, corpus: Path, stories: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(24):  # inputs that take a second each
        (tmp_path / f"{number:02d}.txt").write_text(f"Story {number}.\n{stories.read_text()}\n" * 40)
    (tmp_path / "tokenizer").symlink_to(corpus.parent / "tokenizer")
    driver = subprocess.Popen([sys.executable, "-c", BUILD, str(tmp_path)], env={**os.environ, "RAY_ADDRESS": cluster})
    limit = time.monotonic() + 300
    while len(list((tmp_path / "spread" / "parts").glob("*.json"))) < 3 and time.monotonic() < limit:
        assert driver.poll() is None
        time.sleep(0.05)
    running = psutil.process_iter(["cmdline"])
    victims = [each for each in running if (each.info["cmdline"] or [""])[0].startswith("ray::_run")]
    victims[0].kill()
    assert driver.wait(timeout=500) == 0

    monkeypatch.setattr(build, "PART_BYTES", 1)
    settings = {"tokenizer": tmp_path / "tokenizer", "sentences": "line", "held_out": 0.1, "workers": 1}
    build_corpus(sorted(tmp_path.glob("*.txt")), output=tmp_path / "local", **settings)
    assert tree(tmp_path / "spread") == tree(tmp_path / "local")
    assert Corpus.open(tmp_path / "spread", verify=True).manifest.counts.documents
