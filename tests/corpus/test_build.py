"""Text to a corpus folder and back; builds that are killed, here or on a cluster, end
with the same bytes.
"""

import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from litebert.corpus import Corpus, build_corpus, check_corpus
from litebert.corpus import build as building
from litebert.corpus.jobs import run_local, run_on_ray
from litebert.corpus.shards import CorpusPlan
from litebert.corpus.storage import corpus_push
from litebert.errors import DamagedError, LitebertError, ResourceError
from litebert.files import locked
from tests.contract.shell import tree
from tests.kills import killed
from tests.memory import require_proc, run_in_child
from tests.waiting import assert_ends, exit_code, wait_until

from .conftest import Build, Story, Write, paragraphs, rows, tales, texts_of

Settings = dict[str, object]


def lowered(originals: list[Story]) -> list[Story]:
    return [[sentence.lower() for sentence in story] for story in originals]


def test_corpus_decodes_to_its_documents_and_sentences(
    write: Write, build: Build
) -> None:
    originals = tales(40)
    path = write("a.jsonl.gz", gzip.compress(rows(originals).encode(), mtime=0))
    summary = build(path, shard_tokens=1_000)
    corpus = Corpus.open(summary.path, verify=True)
    folder = corpus.shards[0].path
    assert texts_of(corpus) == lowered(originals) and corpus.held_out() is None
    assert (summary.train.documents, summary.train.sentences) == (40, 360)
    assert summary.train.tokens == sum(len(shard.tokens) for shard in corpus.shards)
    # shards end between documents
    full = [len(shard.tokens) >= 1_000 for shard in corpus.shards[:-1]]
    assert len(full) > 2 and all(full)
    for name, dtype in (("tokens", "<u2"), ("sentences", "<i8"), ("documents", "<i8")):
        loaded = np.load(folder / f"{name}.npy", mmap_mode="r")
        assert loaded.dtype == dtype and np.array_equal(
            loaded, getattr(corpus.shards[0], name)
        )
    stamp = folder.stat().st_mtime_ns
    assert (
        build(path, shard_tokens=1_000) == summary
        and folder.stat().st_mtime_ns == stamp
    ), "it was built again"
    sizes = (
        CorpusPlan.model_construct(vocab_size=size).dtypes["tokens"]
        for size in (65_536, 65_537)
    )
    assert [*sizes] == ["<u2", "<u4"]


def test_documents_and_sentences_without_a_token_are_left_out_and_counted(
    write: Write, build: Build
) -> None:
    path = write("a.ndjson", rows(["one\n\u200b\ntwo", "", " \n ", "\u200b", "three"]))
    summary = build(path, sentences="line")
    assert texts_of(Corpus.open(summary.path, verify=True)) == [
        ["one", "two"],
        ["three"],
    ]
    train = summary.train
    assert (
        train.empty_documents,
        train.empty_sentences,
        train.single_sentence_documents,
    ) == (3, 2, 1)


# number of stories (-6: each twice), what ends a document, the share to hold out, and
# the number of documents held out
SHARES = [
    (120, "blank-line", 0.01, 1),
    (3, "blank-line", 0.999, 2),
    (1, "blank-line", 0.02, 1),
    (40, "file", 0.1, 1),
]
SHARES += [(-6, "blank-line", 0.02, 1)]


@pytest.mark.parametrize("to_held_out", [False, True])  # whichever way all draws fall
@pytest.mark.parametrize(("count", "documents", "share", "expected"), SHARES)
def test_at_least_one_document_is_held_out_or_the_end_of_the_only_one(
    write: Write,
    build: Build,
    monkeypatch: pytest.MonkeyPatch,
    to_held_out: bool,
    count: int,
    documents: str,
    share: float,
    expected: int,
) -> None:
    distinct = tales(abs(count))
    originals = (
        sorted(distinct * 2)
        if count < 0
        else distinct + (distinct[-1:] if count > 1 else [])
    )
    monkeypatch.setattr("litebert.corpus.part.is_held_out", lambda *_: to_held_out)
    path = write("a.txt", paragraphs(originals))
    summary = build(
        path, sentences="line", documents=documents, held_out=share, shard_tokens=1_500
    )
    corpus = Corpus.open(summary.path, verify=True)
    held_out = corpus.held_out(verify=True)
    assert check_corpus(summary.path).exit_code == 0, (
        "nothing is held out that is also trained on"
    )
    kept = texts_of(held_out)
    trained = texts_of(corpus)
    assert sorted(chain.from_iterable(kept + trained)) == sorted(
        chain.from_iterable(lowered(originals))
    )
    assert 1 <= len(kept) <= (len(distinct) if to_held_out else expected + 1)
    assert (summary.train, summary.held_out) == (
        corpus.manifest.counts,
        held_out.manifest.counts,
    )
    assert summary.train.sentences == sum(map(len, trained))
    assert len(list(corpus.path.glob("**/shard-*"))) == len(corpus.shards) + len(
        held_out.shards
    )
    if documents == "file":
        assert len(kept[0]) == round(0.1 * 9 * (count + 1))


def test_a_folder_of_another_build_or_purpose_is_left_alone(
    write: Write, build: Build, tmp_path: Path
) -> None:
    path = write("a.txt", "one two")
    (tmp_path / "mine" / "parts").mkdir(parents=True)
    thesis = write("mine/thesis.partial-1", "precious")
    other = {"build.json": '{"name": "web"}', "parts/1.txt": "x"}
    for name, content in {"": "", **other}.items():
        write(f"mine/{name or 'a'}", content)
        with pytest.raises(LitebertError, match="LB-619"):
            build(path, output="mine", held_out=0.1)
        assert thesis.read_text() == "precious"
    with (
        locked(tmp_path / "corpus"),
        pytest.raises(LitebertError, match="is being written by another process"),
    ):
        build(path)
    assert not list((tmp_path / "corpus").iterdir())
    build(path)
    with pytest.raises(LitebertError, match="begun with other settings") as caught:
        build(path, path, held_out=0.1, language="de")
    assert caught.value.received.startswith("held_out: 0.0 -> 0.1; input 2: None -> ")
    assert caught.value.received.endswith("a.txt of 7 bytes; language: en -> de")


REFUSED: list[tuple[str, Settings, str]] = [
    *(("x", {"held_out": share}, "LB-300: held_out=") for share in (1.0, float("nan"))),
    *(
        ("x", {name: "deu"}, f"LB-300: {name}=")
        for name in ("sentences", "documents", "language")
    ),
    ("\u200b\n", {}, "LB-343"),
    ("my uncle lost the ladder", {"held_out": 0.02}, "LB-343"),
    ("caf\udce9 is here.\n", {}, "LB-309"),
]


def test_what_cannot_be_built_is_refused_and_a_corrected_command_works(
    write: Write, build: Build
) -> None:
    for number, (text, settings, message) in enumerate(REFUSED):
        with pytest.raises(LitebertError, match=message):
            build(
                write("a.txt", text.encode("utf-8", "surrogateescape")),
                output=str(number),
                **settings,
            )
        assert (
            build(write("b.txt", "Two boots."), output=str(number)).train.documents == 1
        )


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_in_an_input_stops_the_build_and_fixing_it_resumes(
    write: Write,
    build: Build,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    workers: int,
) -> None:
    monkeypatch.setattr(building, "PART_BYTES", 1)
    good = write("a.txt", paragraphs(tales(9)))
    bad = write("b.jsonl", '{"text": "one"}\n{"text": 2222}\n')
    with pytest.raises(LitebertError, match="line 2: column text is not text"):
        build(good, bad, workers=workers)
    for read in (Corpus.open, partial(corpus_push, url="s3://bucket/it")):
        with pytest.raises(
            LitebertError, match=r"(?s)LB-322.*not a finished corpus.*to resume"
        ):
            read(tmp_path / "corpus")
    write("b.jsonl", '{"text": "one"}\n{"text": "tw"}\n')
    assert build(good, bad).train.documents == 11


PEAK = """
from litebert.corpus import build_corpus
built = build_corpus([sys.argv[1]], tokenizer=sys.argv[2], output=sys.argv[3], documents="file", workers=1)
print(peak_memory(), built.train.documents)
"""  # noqa: E501


def test_memory_does_not_grow_with_the_input(write: Write, vocabulary: Path) -> None:
    peaks = []
    text = "\n".join(chain.from_iterable(tales(250)))
    for kilobytes in (2_500, 25_000):
        # one document, in many batches
        content = f"{text}\n" * (kilobytes * 1_000 // len(text))
        path = write(f"{kilobytes}.txt.gz", gzip.compress(content.encode()))
        peak, documents = map(
            int, run_in_child(PEAK, path, vocabulary, f"{path}.corpus")
        )
        peaks.append(peak)
        assert documents == 1
    assert peaks[1] - peaks[0] < 10_000 << 10, "of 22,500 kilobytes more that were read"


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl.gz"])
def test_a_build_of_one_part_reports_its_progress(
    name: str, write: Write, build: Build, monkeypatch
) -> None:
    monkeypatch.setattr("litebert.corpus.progress.SECONDS_BETWEEN", 0.001)
    texts = [
        " ".join(f"Anna saw {pow(3, 50 * n + k, 99_991)} balls." for k in range(50))
        for n in range(800)
    ]
    path = write(
        name,
        "\n\n".join(texts) if name == "a.txt" else gzip.compress(rows(texts).encode()),
    )
    seen = []
    summary = build(path, report=seen.append)
    tokens = [look.tokens for look in seen]
    last = seen[-1]
    assert tokens == sorted(tokens) and any(look.seconds_left for look in seen)
    assert (last.seconds_left, last.parts_done, last.num_parts, last.tokens) == (
        0,
        1,
        1,
        summary.train.tokens,
    )


BUILD = """
import json, sys
from litebert.corpus import build
build.PART_BYTES = 1  # a part for each input
build.SPLIT_BYTES = 20_000  # and two for a large one
build.build_corpus(**json.loads(sys.argv[1]))
"""


def build_in_child(settings: Settings, **environment: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-c", BUILD, json.dumps(settings, default=str)]
    return subprocess.Popen(command, env={**os.environ, **environment})


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory, vocabulary: Path) -> Settings:
    """Return the settings of a build of three parts, of a small and of a large file,
    with several shards in both splits.
    """
    folder = tmp_path_factory.mktemp("inputs")
    for name, stories in {"0": tales(40), "1": tales(80, 40)}.items():
        (folder / f"{name}.txt").write_text(
            "\n\n".join(" ".join(story) for story in stories)
        )
    inputs = [str(path) for path in sorted(folder.iterdir())]
    text = {"inputs": inputs, "tokenizer": str(vocabulary), "documents": "blank-line"}
    return {**text, "held_out": 0.3, "shard_tokens": 2_000, "workers": 1}


# shares of the file operations: 0 is the first operation, 1 the last
KILLED_AT = [k / 6 for k in range(7)]


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory, settings: Settings) -> Path:
    """Return a folder with an uninterrupted build and one killed at each of those
    operations.
    """
    folder = tmp_path_factory.mktemp("builds")
    assert killed("build", settings=settings, folder=folder, parts=KILLED_AT) > 100
    whole = folder / "whole"
    assert (len(list(whole.glob("shard-*"))) > 6) and (
        len(list(whole.glob("held-out/shard-*"))) > 3
    )
    assert not [*whole.rglob("*.partial-*"), *whole.glob("build.json")]
    return folder


@pytest.mark.parametrize("part", KILLED_AT)
def test_build_killed_at_any_file_operation_resumes_to_the_same_bytes(
    settings: Settings, builds: Path, monkeypatch: pytest.MonkeyPatch, part: float
) -> None:
    monkeypatch.setattr(building, "PART_BYTES", 1)
    monkeypatch.setattr(building, "SPLIT_BYTES", 20_000)
    # at 0 nothing is there: two workers build it all
    output = builds / f"killed-{part}"
    workers = 2 if part == 0 else 1
    if part == 0.5:
        with pytest.raises(LitebertError, match="begun with other settings"):
            build_corpus(**{**settings, "output": output, "held_out": 0.2})
    before = {path: path.stat().st_ino for path in output.rglob("shard-*-????")}
    build_corpus(**{**settings, "output": output, "workers": workers})
    assert {path: path.stat().st_ino for path in before} == before, (
        "shards that are whole are not made again"
    )
    assert tree(output) == tree(builds / "whole")


def test_killing_a_build_ends_its_workers(settings: Settings, tmp_path: Path) -> None:
    require_proc()
    output = tmp_path / "corpus"
    with build_in_child({**settings, "workers": 2, "output": output}) as parent:
        while not list(output.glob("shard-*")):  # until its workers have begun to write
            assert parent.poll() is None
        workers = (
            Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        )
        children = [os.pidfd_open(int(worker)) for worker in workers]
        parent.kill()
    for child in children:
        assert_ends(child)
        os.close(child)


def fail_or_wait(number: int) -> None:
    if number == 0:
        raise DamagedError(
            "LB-000", f"no {number}", received="it", expected="them", next="this"
        )
    signal.pause()


def test_an_error_of_a_worker_stops_the_others_and_a_death_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # where spawned processes find the functions above
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    with pytest.raises(DamagedError) as caught:
        run_local([partial(fail_or_wait, number) for number in range(4)], workers=2)
    error = caught.value
    assert (error.code, error.received, error.expected, error.next) == (
        "LB-000",
        "it",
        "them",
        "this",
    )
    with pytest.raises(
        ResourceError, match=r"a worker process died(?s:.*)fewer workers="
    ):
        run_local([partial(signal.raise_signal, signal.SIGKILL)] * 2, workers=2)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(LitebertError, match=r"pip install 'litebert\[cluster\]'"):
        run_on_ray([])


# ---- on a real Ray cluster: a head and two workers -----------------------------------


@pytest.fixture
def cluster() -> Iterator[str]:
    """Start a head without processors and two nodes with one each; give their
    address.
    """
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    cluster = cluster_utils.Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
    )
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    cluster.wait_for_nodes()
    yield cluster.address
    for node in nodes:
        cluster.remove_node(node)
    cluster.shutdown()


@pytest.mark.slow
@pytest.mark.cluster
def test_a_worker_killed_while_building_loses_nothing_and_repeats_nothing(
    cluster: str,
    corpus: Path,
    stories: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for number in range(24):  # inputs that take a second each
        (tmp_path / f"{number:02d}.txt").write_text(
            f"Story {number}.\n{stories.read_text()}\n" * 40
        )
    settings = {
        "inputs": sorted(tmp_path.glob("*.txt")),
        "tokenizer": corpus.parent / "tokenizer",
    }
    settings |= {"sentences": "line", "held_out": 0.1}
    driver = build_in_child(
        {**settings, "output": tmp_path / "spread", "cluster": True},
        RAY_ADDRESS=cluster,
    )
    parts = tmp_path / "spread" / "parts"

    def are_begun() -> bool:
        assert driver.poll() is None
        return len(list(parts.glob("*.json"))) >= 3

    wait_until(are_begun)
    running = pytest.importorskip("psutil").process_iter(["cmdline"])
    victims = [
        process
        for process in running
        if (process.info["cmdline"] or [""])[0].startswith("ray::_run")
    ]
    victims[0].kill()
    assert exit_code(driver) == 0

    # the parts of a build in a child
    monkeypatch.setattr(building, "PART_BYTES", 1)
    monkeypatch.setattr(building, "SPLIT_BYTES", 20_000)
    build_corpus(**settings, output=tmp_path / "local", workers=1)
    # not in the assertion: pytest would compare thousands of files for minutes
    are_equal = tree(tmp_path / "spread") == tree(tmp_path / "local")
    assert are_equal
    assert Corpus.open(tmp_path / "spread", verify=True).manifest.counts.documents
