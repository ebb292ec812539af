"""Work spread over processes: results, errors, deaths."""

import os
import signal
import sys
from pathlib import Path

import pytest

from litebert.corpus.pool import run_local, run_on_ray
from litebert.errors import DamagedError, LitebertError, ResourceError


def square(number: int) -> int:
    return number * number


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


@pytest.mark.parametrize("workers", [1, 2])
def test_results_of_all_tasks_come(workers: int) -> None:
    assert sorted(run_local(square, range(6), workers=workers)) == [0, 1, 4, 9, 16, 25]


def test_error_of_a_worker_stops_the_others_at_once_and_arrives_as_it_was_raised() -> None:
    with pytest.raises(DamagedError) as caught:
        list(run_local(wait_for_ever, range(4), workers=2))
    error = caught.value
    assert (error.code, error.received, error.expected, error.next) == ("LB-000", "it", "them", "this")


def test_worker_that_is_killed_is_reported() -> None:
    with pytest.raises(ResourceError, match="a worker process died") as caught:
        list(run_local(die, range(2), workers=2))
    assert "fewer --workers" in caught.value.next


def test_cluster_without_ray_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(LitebertError) as caught:
        list(run_on_ray(square, [1]))
    assert caught.value.next == "pip install 'litebert[cluster]'"
