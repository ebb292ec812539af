"""Work spread over processes: results, errors, deaths."""

import os
import signal
import sys
from pathlib import Path

import pytest

from litebert.corpus.build import run_local, run_on_ray
from litebert.errors import DamagedError, LitebertError, ResourceError


def die(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def wait_for_ever(number: int) -> int:
    if number == 0:
        raise DamagedError("LB-000", f"no {number}", received="it", expected="them", next="this")
    signal.pause()
    return number


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let spawned processes find the functions above."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))


def test_error_of_a_worker_stops_the_others_at_once_and_arrives_as_it_was_raised() -> None:
    with pytest.raises(DamagedError) as caught:
        list(run_local(wait_for_ever, range(4), workers=2))
    error = caught.value
    assert (error.code, error.received, error.expected, error.next) == ("LB-000", "it", "them", "this")


def test_worker_that_is_killed_and_a_cluster_without_ray_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ResourceError, match="a worker process died") as caught:
        list(run_local(die, range(2), workers=2))
    assert "fewer --workers" in caught.value.next
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(LitebertError, match=r"pip install 'litebert\[cluster\]'"):
        list(run_on_ray(die, [1]))
