"""No data is lost or corrupted: existing files are kept, interrupted work resumes,
damaged files are named.
"""

import contextlib
import csv
import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.waiting import DEADLINE, wait_until

from .shell import (
    COMMAND,
    QUICK,
    TEXTS,
    assert_error,
    damage,
    interrupted,
    litebert,
    refusal,
    tree,
)
from .tiny import Desk


def writers(desk: Desk) -> dict[str, list[object]]:
    """Return commands that lack only the last word, the path of their output."""
    few = desk.folder / "few.txt"
    few.write_text("".join(f"{text}\n" for text in TEXTS))
    return {
        "average": ["runs", "average", desk.base, "--output"],
        "predict": [
            "predict",
            desk.reviews,
            "--data",
            desk.table("reviews.csv"),
            "--quiet",
            "--output",
        ],
        "filter": [
            "corpus",
            "filter",
            desk.stories,
            "--documents",
            "blank-line",
            "--output",
        ],
        "embed": ["embed", few, "--model", desk.base, "--quiet", "--output"],
    }


def furnish(place: Path, desk: Desk) -> None:
    """Fill a folder with files that litebert did not write and with output of other
    commands.
    """
    for name in ("own/notes.txt", "own.jsonl", "answers/test.csv"):
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text("mine")
    (place / "link").symlink_to(place / "own")
    shutil.copytree(desk.reviews / "model", place / "model")
    shutil.copytree(desk.reviews, place / "runs" / "own")
    # a socket's path has at most 107 bytes
    with contextlib.chdir(place), socket.socket(socket.AF_UNIX) as link:
        link.bind("node")


EXISTING = {
    "average": ["own", "model", "runs", "link", "own.jsonl", "node"],
    "predict": ["answers"],
}
EXISTING |= {
    "filter": ["own.jsonl"],
    "embed": ["own.jsonl", "node"],
}


@pytest.mark.parametrize(
    ("verb", "name"),
    [(verb, name) for verb, names in EXISTING.items() for name in names],
)
def test_existing_files_are_not_replaced(
    desk: Desk, tmp_path: Path, verb: str, name: str
) -> None:
    furnish(tmp_path, desk)
    before = tree(tmp_path)
    kinds = sorted((str(path), path.lstat().st_mode) for path in tmp_path.rglob("*"))
    done = litebert(*writers(desk)[verb], tmp_path / name)
    assert tree(tmp_path) == before
    assert (
        sorted((str(path), path.lstat().st_mode) for path in tmp_path.rglob("*"))
        == kinds
    )
    assert_error(done, 1, str(tmp_path / name))


@pytest.mark.parametrize("verb", EXISTING)
def test_force_replaces_what_litebert_wrote_and_nothing_else(
    desk: Desk, tmp_path: Path, verb: str
) -> None:
    words = writers(desk)[verb]
    output = tmp_path / {
        "filter": "kept.jsonl",
        "embed": "v.npy",
    }.get(verb, "made")
    assert [litebert(*words, output).code for _ in "ab"] == [0, 1]
    for path in tmp_path.rglob("*"):
        os.utime(path, (0, 0))
    assert litebert(*words, output, "--force").ok
    assert all(path.stat().st_mtime for path in tmp_path.rglob("*") if path.is_file())
    furnish(tmp_path, desk)
    assert_error(litebert(*words, tmp_path / "own", "--force"), 1, "own")
    assert (tmp_path / "own" / "notes.txt").read_text() == "mine"


def test_a_second_process_with_the_same_output_is_refused(
    desk: Desk, tmp_path: Path
) -> None:
    output = tmp_path / "v.npy"
    words = ["embed", "-", "--model", desk.base, "--output", output, "--quiet"]
    rows = "".join(f"Anna walked {n} times.\n" for n in range(600))
    streams = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
    }
    with subprocess.Popen([*COMMAND, *map(str, words)], text=True, **streams) as first:
        try:
            first.stdin.write(rows)
            first.stdin.flush()
            unfinished = output.with_name("v.npy.unfinished")
            wait_until(lambda: unfinished.exists() or first.poll() is not None)
            second = litebert(*words, stdin=rows)
            _, said = first.communicate(timeout=DEADLINE)
        finally:
            first.kill()
    assert (first.returncode, second.code) == (0, 1), (said, second)
    assert len(np.load(output)) == 600
    assert_error(second, 1, "v.npy", str(first.pid))


@pytest.mark.parametrize(
    "name", ["embed.npy", "classify.csv", "embed.csv", "score.csv"]
)
def test_every_answer_is_kept_even_if_the_first_rows_have_no_text(
    desk: Desk, tmp_path: Path, name: str
) -> None:
    # half a character, which JSON can hold
    walked = '{"text": "Anna walked \\ud800."}\n'
    (tmp_path / "t.jsonl").write_text('{"text": null}\n' * 256 + walked * 44)
    verb = name.partition(".")[0]
    model = desk.reviews if "classify" in name else desk.base
    words = (verb, tmp_path / "t.jsonl", "--model", model, "--quiet")
    done = litebert(*words, "--output", tmp_path / name)
    assert (done.code, "256 of them skipped" in done.stderr) == (0, True), done
    if name.endswith(".npy"):
        vectors = np.load(tmp_path / name)
        assert (vectors.shape, vectors.dtype) == ((300, 32), np.float32)
        has_answer = (~np.isnan(vectors).any(axis=1)).tolist()
    else:
        rows = list(csv.DictReader((tmp_path / name).read_text("utf-8").splitlines()))
        has_answer = [
            any(cell for name, cell in row.items() if name not in ("row", "error"))
            for row in rows
        ]
    assert has_answer == [False] * 256 + [True] * 44


MANY = "".join(
    f"Anna walked {n} times to the market and home again.\n" for n in range(1_500)
)


@pytest.fixture(scope="module")
def unfinished(desk: Desk, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with files of answers, each interrupted by Ctrl-C after some
    rows.
    """
    folder = tmp_path_factory.mktemp("broken")
    (folder / "t.txt").write_text(MANY)
    shutil.copytree(desk.base / "model", folder / "m")
    # bytes of more than 200 of the 1,500 rows
    sizes = {"v.npy": 30_000, "v.csv": 100_000, "v.jsonl": 150_000}
    for name, size in sizes.items():
        words = ("embed", "t.txt", "--model", "m", "--output", name, "--quiet")
        path = folder / f"{name}.unfinished"
        done = interrupted(*words, once=path, size=size, cwd=folder)
        assert (done.code, (folder / name).exists()) == (130, False), done
    num_rows = len((folder / "v.jsonl.unfinished").read_bytes().splitlines())
    assert 201 < num_rows < 1_500
    return folder


@pytest.mark.parametrize("name", ["v.jsonl", "v.csv", "v.npy"])
def test_interrupted_answers_resume_to_the_same_bytes(
    unfinished: Path, tmp_path: Path, name: str
) -> None:
    place = shutil.copytree(unfinished, tmp_path / "place")
    with open(place / f"{name}.unfinished", "ab") as file:
        file.write(b"\x01\x02\x03")  # half a row, as a kill leaves it
    words = ("embed", "t.txt", "--model", "m", "--quiet", "--output")
    assert_error(litebert(*words, name, "--pooling", "cls", cwd=place), 1, name)
    # an unfinished file is resumed with --force, too
    force = ["--force"] if name == "v.csv" else []
    resumed = litebert(*words, name, *force, cwd=place).ok
    assert "resuming after" in resumed.stderr
    assert litebert(*words, f"whole-{name}", cwd=place).ok
    assert (place / name).read_bytes() == (place / f"whole-{name}").read_bytes()
    assert not (place / f"{name}.unfinished").exists()


def _change_an_answer(data: bytes) -> bytes:
    """Change one digit of an answer in a line that stays valid."""
    lines = data.splitlines(keepends=True)
    head, answer, tail = lines[200].partition(b'"answer": ')
    lines[200] = head + answer + tail.replace(b"1", b"2", 1)
    assert lines[200] != head + answer + tail
    return b"".join(lines)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "a blank line": lambda data: data + b"\n",
    "zeros": lambda data: data + bytes(4_096) + b"\n",
    "zeros without a line end": lambda data: data + bytes(4_096),
    "a list": lambda data: data + b"[]\n",
    "an empty object": lambda data: data + b"{}\n",
    "a record without an answer": lambda data: data + b'{"row":1}\n',
    "a page of zeros": lambda data: data[:20_000] + bytes(4_096) + data[24_096:],
    "another answer": _change_an_answer,
    "a line twice": lambda data: data + data.splitlines(keepends=True)[-1],
    "a line too few": lambda data: b"".join(
        data.splitlines(keepends=True)[:100] + data.splitlines(keepends=True)[101:]
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("how", [(), ("--force",)])
def test_damaged_answers_are_computed_again(
    unfinished: Path, tmp_path: Path, damage: str, how: tuple[str, ...]
) -> None:
    place = shutil.copytree(unfinished, tmp_path / "place")
    path = place / "v.jsonl.unfinished"
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    words = ("embed", "t.txt", "--model", "m", "--quiet", "--output")
    done = litebert(*words, "v.jsonl", *how, cwd=place)
    if damage in ("a line twice", "a line too few") and not how:
        # whole records of other rows: somebody edited the file
        assert_error(done, 1, "LB-942")
        return
    assert "resuming after" in done.ok.stderr
    if not (unfinished / "whole.jsonl").exists():
        assert litebert(*words, "whole.jsonl", cwd=unfinished).ok
    assert (place / "v.jsonl").read_bytes() == (unfinished / "whole.jsonl").read_bytes()
    assert not path.exists()


def test_force_answers_again_only_what_has_changed(
    unfinished: Path, tmp_path: Path
) -> None:
    place = shutil.copytree(unfinished, tmp_path / "place")
    (place / "t.txt").write_text(
        "".join(MANY.splitlines(keepends=True)[:5]) + "Anna left.\n" * 300
    )
    for name, model in {"v.jsonl": "m", "v.npy": "litebert"}.items():
        words = ("embed", "t.txt", "--model", model, "--force", "--quiet", "--output")
        assert (
            "resuming after 5 rows" in litebert(*words, name, cwd=place).ok.stderr
        ) == (model == "m")
        assert litebert(*words, f"whole-{name}", cwd=place).ok
        assert (place / name).read_bytes() == (place / f"whole-{name}").read_bytes()
    assert not [*place.glob("v.npy.*"), *place.glob("v.jsonl.*")]


CHANGES: dict[str, Callable[[Path, Desk], object]] = {
    "other lines": (
        lambda place, _: (place / "t.txt").write_text(MANY.replace("Anna", "Bert"))
    ),
    "fewer lines": lambda place, _: (place / "t.txt").write_text("Anna left.\n"),
    "other weights": lambda place, desk: [
        shutil.copy(path, place / "m")
        for path in (desk.stars / "model").iterdir()
        if path.is_file()
    ],
}


@pytest.mark.parametrize("name", ["v.jsonl", "v.npy"])
@pytest.mark.parametrize("change", CHANGES)
def test_answers_are_not_resumed_with_other_texts_or_weights(
    unfinished: Path, desk: Desk, tmp_path: Path, name: str, change: str
) -> None:
    place = shutil.copytree(unfinished, tmp_path / "place")
    CHANGES[change](place, desk)
    before = (place / f"{name}.unfinished").read_bytes()
    assert_error(
        litebert(
            "embed", "t.txt", "--model", "m", "--output", name, "--quiet", cwd=place
        ),
        1,
        name,
    )
    assert (place / f"{name}.unfinished").read_bytes() == before
    assert not (place / name).exists()


# ---- damage --------------------------------------------------------------------------

ARRAYS = ["tokens.npy", "sentences.npy", "documents.npy"]
OF_CORPUS = [(how, f"shard-*/{name}") for how in ("cut", "flipped") for name in ARRAYS]
OF_CORPUS += [(how, "shard-*/shard.json") for how in ("removed", "another")] + [
    ("cut", "tokenizer/tokenizer.json")
]


@pytest.mark.parametrize(("how", "pattern"), OF_CORPUS)
def test_a_damaged_corpus_file_is_named_with_exit_code_3(
    desk: Desk, tmp_path: Path, how: str, pattern: str
) -> None:
    corpus = shutil.copytree(desk.corpus, tmp_path / "corpus")
    assert litebert("corpus", "check", corpus, "--verify").code == 0
    path = next(corpus.glob(pattern))
    damage(path, how)
    done = litebert("corpus", "check", corpus, "--verify")
    assert done.code == 3, done
    assert path.name in done.stdout + done.stderr
    if path.name in ARRAYS:
        trained = litebert(
            "pretrain",
            "--corpus",
            corpus,
            "--preset",
            "tiny",
            *QUICK,
            "--runs",
            tmp_path / "runs",
        )
        assert (trained.code, path.name in refusal(trained)["what"]) == (
            3,
            True,
        ), trained


OF_MODEL = [
    ("cut", name)
    for name in ("model.safetensors", "config.json", "tokenizer.json", "spiece.model")
]


@pytest.mark.parametrize(("how", "name"), [*OF_MODEL, ("flipped", "model.safetensors")])
def test_a_damaged_model_file_is_named_with_exit_code_3(
    desk: Desk, tmp_path: Path, how: str, name: str
) -> None:
    model = shutil.copytree(desk.base / "model", tmp_path / "m")
    damage(model / name, how)
    for words in (
        ["embed", "a", "--json", "--model"],
        ["evaluate", "--data", desk.stories, "--quiet"],
    ):
        done = litebert(*words, model)
        # the vocabulary is in two files
        if done.code or name in ("model.safetensors", "config.json"):
            assert_error(done, 3, name)
