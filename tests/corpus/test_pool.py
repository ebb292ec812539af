"""Work spread over processes: results, errors, deaths; progress read off the folder."""

import gzip
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from litebert.corpus import BuildProgress, build_corpus
from litebert.corpus.pool import run_local, run_on_ray
from litebert.errors import DamagedError, LitebertError, ResourceError


def square(number: int) -> int:
    return number * number


def fail(number: int) -> int:
    raise DamagedError("LB-000", f"no {number}", received="it", expected="them", next="this")


def die(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def wait_for_ever(number: int) -> int:
    if number == 0:
        return fail(number)
    signal.pause()
    return number


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let spawned processes find the functions above."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))


@pytest.mark.parametrize("workers", [1, 2])
def test_results_of_all_tasks_come(workers: int) -> None:
    assert sorted(run_local(square, range(6), workers=workers)) == [0, 1, 4, 9, 16, 25]


def test_error_of_a_worker_arrives_as_it_was_raised() -> None:
    with pytest.raises(DamagedError) as caught:
        list(run_local(fail, range(2), workers=2))
    error = caught.value
    assert (error.code, error.received, error.expected, error.next) == ("LB-000", "it", "them", "this")


def test_error_of_a_worker_stops_the_others_at_once() -> None:
    with pytest.raises(DamagedError, match="no 0"):
        list(run_local(wait_for_ever, range(4), workers=2))


def test_worker_that_is_killed_is_reported() -> None:
    with pytest.raises(ResourceError, match="a worker process died") as caught:
        list(run_local(die, range(2), workers=2))
    assert "fewer --workers" in caught.value.next


def test_cluster_without_ray_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(LitebertError) as caught:
        list(run_on_ray(square, [1]))
    assert caught.value.next == "pip install 'litebert[cluster]'"


def test_progress_ends_with_everything_done(
    write: Callable[[str, str], Path], stories: Callable[..., list[list[str]]], vocabulary: Path, tmp_path: Path
) -> None:
    seen: list[BuildProgress] = []
    text = "\n\n".join(" ".join(story) for story in stories(50))
    summary = build_corpus(
        [write("a.txt", text)],
        tokenizer=vocabulary,
        output=tmp_path / "corpus",
        documents="blank-line",
        held_out=0.5,
        workers=1,
        report=seen.append,
    )
    assert summary.held_out is not None
    total = summary.train.tokens + summary.held_out.tokens
    assert (seen[-1].parts_done, seen[-1].num_parts, seen[-1].tokens) == (1, 1, total)
    assert seen[-1].tokens_per_second > 0


def test_the_time_left_follows_the_share_of_the_input_that_was_read() -> None:
    looks = [BuildProgress(0, 1, tokens, 10.0, tokens / 400) for tokens in (100, 150, 300)]
    assert [look.seconds_left for look in looks] == [30, pytest.approx(25), pytest.approx(10)]
    assert BuildProgress(0, 4, 50, 10.0, 0.0).seconds_left is None


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl.gz", "a.parquet"])
def test_a_build_of_one_part_says_how_much_it_has_read(
    name: str, vocabulary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("litebert.corpus.build.SECONDS_BETWEEN", 0.001)
    texts = [" ".join(f"Anna saw {pow(3, 50 * n + k, 99_991)} balls." for k in range(50)) for n in range(800)]
    path = tmp_path / name
    if name.endswith(".txt"):
        path.write_text("\n\n".join(texts))
    elif name.endswith(".gz"):
        rows = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        path.write_bytes(gzip.compress(rows.encode()))
    else:
        table = pytest.importorskip("pyarrow").table({"text": texts})
        pytest.importorskip("pyarrow.parquet").write_table(table, path)
    seen: list[BuildProgress] = []
    build_corpus([path], tokenizer=vocabulary, output=tmp_path / "corpus", workers=1, report=seen.append)
    shares = [look.share for look in seen]
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert any(0 < share < 1 for share in shares)
    assert any(look.seconds_left for look in seen)
