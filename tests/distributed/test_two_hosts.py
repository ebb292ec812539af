"""Two hosts, each a network namespace of its own with nothing but a cable between them."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import litebert
from litebert.runs import read_metrics

from .test_several_processes import _pretrain

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root and the tool ip"),
]
ADDRESSES = {"left": "10.77.0.1", "right": "10.77.0.2"}


@pytest.fixture
def hosts() -> Iterator[dict[str, str]]:
    """Lay a cable between two namespaces; give the name of each."""
    names = {side: f"litebert-{side}-{os.getpid()}" for side in ADDRESSES}
    for name in names.values():
        subprocess.run(["ip", "netns", "add", name], check=True)
    cable = ["ip", "link", "add", "cable", "netns", names["left"], "type", "veth", "peer"]
    subprocess.run([*cable, "name", "cable", "netns", names["right"]], check=True)
    for side, name in names.items():
        inside = ["ip", "-n", name]
        address = f"{ADDRESSES[side]}/24"
        subprocess.run([*inside, "address", "add", address, "dev", "cable"], check=True)
        for device in ("cable", "lo"):
            subprocess.run([*inside, "link", "set", device, "up"], check=True)
    yield names
    for name in names.values():
        subprocess.run(["ip", "netns", "delete", name], check=True)


def test_two_hosts_train_what_one_process_trains(hosts: dict[str, str], corpus: Path, tmp_path: Path) -> None:
    litebert.pretrain(**_pretrain(corpus, tmp_path, "alone")[1], quiet=True)
    command = [
        sys.executable,
        str(Path(__file__).with_name("jobs.py")),
        json.dumps([_pretrain(corpus, tmp_path, "hosts")]),
    ]
    shared = {
        "WORLD_SIZE": "2",
        "MASTER_ADDR": ADDRESSES["left"],
        "MASTER_PORT": "29511",
        "GLOO_SOCKET_IFNAME": "cable",
    }
    children = [
        subprocess.Popen(["ip", "netns", "exec", name, *command], env={**os.environ, **shared, "RANK": str(place)})
        for place, name in enumerate(hosts.values())
    ]
    assert [child.wait(timeout=500) for child in children] == [0, 0]
    alone, hosts_rows = (read_metrics(tmp_path / name) for name in ("alone", "hosts"))
    assert len(hosts_rows) > 6
    clock = {"tokens_per_second", "kind"}
    for expected, row in zip(alone, hosts_rows, strict=True):
        assert row["kind"] == expected["kind"]
        kept = {name: value for name, value in row.items() if name not in clock}
        assert kept == pytest.approx({n: v for n, v in expected.items() if n not in clock}, rel=1e-6, abs=3e-7)
