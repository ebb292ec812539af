"""Distillation from vectors that a teacher made before: their files, the directions
that a student learns, training and resuming.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import litebert
from litebert.corpus import build_corpus
from litebert.errors import LitebertError
from litebert.folder import ModelFolder, write_folder
from litebert.nn import AlbertForPretraining
from litebert.objectives.taught import TaughtLoader, TaughtTexts, holds_vectors
from litebert.runs import RunFolder, read_metrics
from litebert.tokenizer import Tokenizer
from tests.contract import shell
from tests.networks import PLAIN_SENTENCES, config_for, plain_tokenizer

WIDTH = 24  # of the vectors; the student has 16
SETTINGS: dict[str, Any] = {
    "model.preset": "tiny",
    "model.hidden_size": 16,
    "model.intermediate_size": 32,
    "model.embedding_size": 8,
    "objective.max_seq_length": 32,
    "distil.texts": 8,
    "distil.text_length": 16,
    "optim.learning_rate": 0.01,
    "train.batch_size": 2,
    "train.eval_sequences": 12,
    "train.loader_workers": 0,
    "train.precision": "fp32",
    "train.steps": 6,
    "train.save_every": 3,
    "train.eval_every": 6,
}


def write_vectors(folder: Path, name: str, texts: list[str], rows: Any) -> Path:
    lines = [json.dumps({"text": text}) for text in texts]
    (folder / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    np.save(folder / f"{name}.npy", rows)
    return folder / f"{name}.npy"


def vectors_of(texts: list[str]) -> Any:
    """Return made-up vectors, in which words add up; small words count little."""
    words = sorted({word for text in PLAIN_SENTENCES for word in text.split()})
    of_word = np.random.default_rng(1).normal(size=(len(words), WIDTH))
    for word in ("The", "near", "the"):
        of_word[words.index(word)] /= 10
    rows = [sum(of_word[words.index(word)] for word in text.split()) for text in texts]
    return np.array(rows, np.float16)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return plain_tokenizer(44)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    folder = tmp_path_factory.mktemp("text")
    documents = [
        " ".join(PLAIN_SENTENCES[start : start + 8]) for start in range(0, 256, 8)
    ]
    (folder / "text.txt").write_text("\n\n".join(documents))
    tokenizer.save(folder / "vocabulary")
    build_corpus(
        [folder / "text.txt"],
        tokenizer=folder / "vocabulary",
        output=folder / "corpus",
        held_out=0.2,
        workers=1,
    )
    return folder / "corpus"


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    """Write a folder with three files of vectors, and return it."""
    folder = tmp_path / "vectors"
    folder.mkdir()
    for number, start in enumerate((0, 100, 200)):
        texts = PLAIN_SENTENCES[start : start + 100]
        write_vectors(folder, f"{number:04}", texts, vectors_of(texts))
    return folder


def distil(vectors: Path, corpus: Path, runs: Path, **settings: Any) -> RunFolder:
    return litebert.distil(
        vectors,
        corpus=corpus,
        runs=runs,
        name="student",
        settings=SETTINGS | settings,
        quiet=True,
    )


# ---- training ------------------------------------------------------------------------


def test_a_student_comes_near_known_vectors_and_its_first_numbers_do_too(
    vectors: Path, corpus: Path, tmp_path: Path
) -> None:
    run = distil(
        vectors,
        corpus,
        tmp_path,
        **{
            "distil.texts": 32,
            "distil.text_length": 64,
            "optim.learning_rate": 0.02,
            "optim.muon_learning_rate": 0.02,
            "train.steps": 200,
            "train.eval_every": 200,
        },
    )
    first, *_, last = [row for row in read_metrics(run.folder) if row["kind"] == "eval"]
    assert last["vector_error"] < 0.5 * first["vector_error"]
    assert "hidden_error" not in last
    assert last["masked_lm_loss"] < first["masked_lm_loss"]

    # vectors of the same text, of the student and of its teacher, in few directions
    student = np.array(run.model().embed(PLAIN_SENTENCES[200:]))
    axes = np.load(run.folder / "axes.npy")
    teacher = vectors_of(PLAIN_SENTENCES[200:]).astype(np.float32) @ axes
    assert axes.shape == (WIDTH, 16)
    assert holds_vectors(vectors) and not holds_vectors(run.folder)
    for size in (4, 16):
        ours = torch.tensor(student[:, :size])
        theirs = torch.tensor(teacher[:, :size])
        alike = torch.cosine_similarity(ours, theirs).mean()
        of_others = torch.cosine_similarity(ours, theirs.roll(7, 0)).mean()
        assert alike > of_others + 0.2


def test_a_stopped_run_resumes_bit_for_bit_from_the_same_vectors(
    vectors: Path, corpus: Path, tmp_path: Path
) -> None:
    def weights() -> dict[str, Tensor]:
        return distil(vectors, corpus, tmp_path).model().network.state_dict()

    whole = weights()
    folder = tmp_path / "student"
    for path in (folder / "checkpoints" / "step-000000006", folder / "model"):
        path.rename(tmp_path / f"gone-{path.name}")
    resumed = weights()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    write_vectors(
        vectors, "0001", PLAIN_SENTENCES[:100], vectors_of(PLAIN_SENTENCES[:100])
    )
    with pytest.raises(LitebertError, match="other values of teacher"):
        weights()


def test_a_worker_process_prepares_the_same_batches(
    vectors: Path, corpus: Path, tmp_path: Path
) -> None:
    losses = [
        read_metrics(
            distil(
                vectors,
                corpus,
                tmp_path / str(workers),
                **{"train.loader_workers": workers},
            ).folder
        )[-1]["vector_error"]
        for workers in (0, 1)
    ]
    assert losses[0] == losses[1]


def test_a_student_may_start_from_a_model_and_keeps_its_pooling(
    vectors: Path, corpus: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    network = AlbertForPretraining(config_for(tokenizer, hidden_size=16))
    write_folder(ModelFolder(network), tmp_path / "start")
    tokenizer.save(tmp_path / "start")
    settings = {name: SETTINGS[name] for name in SETTINGS if "model." not in name}
    run = litebert.distil(
        vectors,
        corpus=corpus,
        start=tmp_path / "start",
        runs=tmp_path,
        settings=settings,
        quiet=True,
    )
    assert run.is_finished


# ---- files ---------------------------------------------------------------------------


def test_every_text_is_read_once_in_an_epoch_with_its_vector(
    vectors: Path, tokenizer: Tokenizer
) -> None:
    texts = TaughtTexts(vectors, num_held_out=1_000)
    assert (texts.num_training, texts.num_held_out) == (244, 12)
    assert isinstance(texts.shards[0].vectors, np.memmap)
    loader = TaughtLoader(texts, tokenizer, batch_size=16, seed=1, longest=40)
    batch = loader.batch_between(244, 488)  # the second epoch
    read = []
    for begin, end, vector in zip(
        batch.offsets[:-1], batch.offsets[1:], batch.vectors, strict=True
    ):
        ids = batch.ids[begin + 1 : end - 1]
        read.append((tuple(ids.tolist()), vector.tobytes()))
    expected = [
        (tuple(tokenizer.encode(text).ids), vectors_of([text])[0].tobytes())
        for text in PLAIN_SENTENCES[:244]
    ]
    assert sorted(read) == sorted(expected)
    assert (
        loader.batch_between(244, 250).ids.tolist()
        != loader.batch_between(0, 6).ids.tolist()
    )
    held_out = [*loader.held_out()]
    assert sum(len(batch.offsets) - 1 for batch in held_out) == 12


def test_a_long_text_is_cut_to_the_longest_sequence(
    vectors: Path, tokenizer: Tokenizer
) -> None:
    texts = TaughtTexts(vectors, num_held_out=8)
    loader = TaughtLoader(texts, tokenizer, batch_size=8, seed=1, longest=5)
    batch = loader.batch(0)
    cls_id = tokenizer.cls_id
    sep_id = tokenizer.sep_id
    assert np.diff(batch.offsets).tolist() == [5] * 8
    assert batch.ids[::5].tolist() == [cls_id] * 8
    assert batch.ids[4::5].tolist() == [sep_id] * 8


def test_one_file_with_a_text_a_line_holds_the_same_as_shards(
    vectors: Path, tmp_path: Path
) -> None:
    (tmp_path / "all.txt").write_text("".join(f"{text}\n" for text in PLAIN_SENTENCES))
    np.save(tmp_path / "all.npy", vectors_of(PLAIN_SENTENCES))
    shards = TaughtTexts(vectors, num_held_out=8)
    whole = TaughtTexts(tmp_path / "all.npy", num_held_out=8)
    for number in (0, 99, 100, 255):
        text, vector = whole.row(number)
        assert shards.row(number)[0] == text == PLAIN_SENTENCES[number]
        assert np.array_equal(shards.row(number)[1], vector)
    np.testing.assert_allclose(shards.axes(4), whole.axes(4), atol=1e-6)


def test_the_first_directions_hold_most_of_the_vectors(vectors: Path) -> None:
    texts = TaughtTexts(vectors, num_held_out=8)
    axes = texts.axes(6)
    np.testing.assert_allclose(axes.T @ axes, np.eye(6), atol=1e-5)
    rows = vectors_of(PLAIN_SENTENCES[:248]).astype(np.float64)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    held = np.square(rows @ axes).sum(0)
    assert (np.diff(held) < 0).all()
    # no other directions hold more
    best = np.square(np.linalg.svd(rows, compute_uv=False)[:6]).sum()
    assert held.sum() == pytest.approx(best, rel=1e-4)
    assert np.array_equal(texts.axes(WIDTH), np.eye(WIDTH))


def _without_texts(folder: Path) -> None:
    (folder / "0001.jsonl").unlink()


def _with_two_files_of_texts(folder: Path) -> None:
    shutil.copy(folder / "0001.jsonl", folder / "0001.txt")


def _with_a_text_less(folder: Path) -> None:
    lines = (folder / "0001.jsonl").read_text().splitlines(keepends=True)
    (folder / "0001.jsonl").write_text("".join(lines[1:]))


def _cut_off(folder: Path) -> None:
    content = (folder / "0001.npy").read_bytes()
    (folder / "0001.npy").write_bytes(content[:-10])


def _with_header(old: bytes, new: bytes) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        content = (folder / "0001.npy").read_bytes()
        assert old in content
        (folder / "0001.npy").write_bytes(content.replace(old, new))

    return damage


def _of_whole_numbers(folder: Path) -> None:
    np.save(folder / "0001.npy", np.zeros((100, WIDTH), np.int64))


def _with_blank_lines(folder: Path) -> None:
    path = folder / "0001.jsonl"
    path.write_text("\n" + path.read_text().replace("}\n", "}\n \t\n", 7))


def _an_archive(folder: Path) -> None:
    np.savez(folder / "0001.npz", vectors=np.zeros((100, WIDTH), np.float32))
    (folder / "0001.npz").rename(folder / "0001.npy")


def _not_a_number(folder: Path) -> None:
    table = np.zeros((100, WIDTH), np.float32)
    table[41, 3] = np.nan
    np.save(folder / "0001.npy", table)


def _with_line_7(line: str) -> Any:
    def damage(folder: Path) -> None:
        lines = (folder / "0001.jsonl").read_text().splitlines()
        lines[6] = line
        (folder / "0001.jsonl").write_text("\n".join(lines) + "\n")

    return damage


def _of_another_width(folder: Path) -> None:
    np.save(folder / "0001.npy", np.zeros((100, WIDTH + 1), np.float32))


def _too_few(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    texts = PLAIN_SENTENCES[:19]
    write_vectors(folder, "0001", texts, vectors_of(texts))


def _narrow(folder: Path) -> None:
    for path in folder.glob("*.npy"):
        np.save(path, np.zeros((len(np.load(path)), 8), np.float32))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_without_texts, r"LB-560(?s:.*)received: none"),
        (_with_two_files_of_texts, r"LB-560(?s:.*)0001\.txt and "),
        (_with_a_text_less, r"LB-561(?s:.*)100 vectors and 99 texts"),
        (_cut_off, r"LB-562(?s:.*)0001\.npy"),
        (_with_header(b"(100, ", b"( -1, "), r"LB-562(?s:.*)0001\.npy"),
        (_with_header(b"(100, ", b"((00, "), r"LB-562(?s:.*)0001\.npy"),
        (_with_header(b"'descr'", b"b'escr'"), r"LB-562(?s:.*)0001\.npy"),
        (_an_archive, r"LB-562(?s:.*)0001\.npy"),
        (_of_whole_numbers, r"LB-563(?s:.*)int64"),
        (_not_a_number, r"LB-563(?s:.*)vector 42"),
        (_with_line_7('{"words": "A fox."}'), r"LB-564(?s:.*)line 7 of"),
        (_with_line_7('{"text": null}'), r"LB-564(?s:.*)NoneType instead of a text"),
        (_with_line_7("[" * 100_000), r"LB-564(?s:.*)nested too deeply"),
        (_of_another_width, r"LB-565(?s:.*)256 vectors of the widths 24, 25"),
        (_too_few, r"LB-565(?s:.*)19 vectors(?s:.*)20 or more"),
        (_narrow, r"LB-566(?s:.*)hidden_size 16, and vectors of 8"),
    ],
)
def test_files_that_cannot_teach_are_refused_before_a_run_begins(
    damage: Any, message: str, vectors: Path, corpus: Path, tmp_path: Path
) -> None:
    damage(vectors)
    with pytest.raises(LitebertError, match=message):
        distil(vectors, corpus, tmp_path)
    assert not (tmp_path / "student" / "run.json").exists()


@pytest.mark.parametrize("dry_run", [True, False])
def test_vectors_that_do_not_fit_are_refused_before_a_corpus_is_built(
    dry_run: bool, vectors: Path, tmp_path: Path
) -> None:
    _with_a_text_less(vectors)
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(PLAIN_SENTENCES))
    with pytest.raises(LitebertError, match="LB-561"):
        litebert.distil(
            vectors,
            text,
            runs=tmp_path,
            name="student",
            vocab_size=44,
            settings=SETTINGS,
            dry_run=dry_run,
            quiet=True,
        )
    assert not (tmp_path / "student").exists()


def test_blank_lines_of_the_texts_have_no_vectors(
    vectors: Path, corpus: Path, tmp_path: Path
) -> None:
    before = TaughtTexts(vectors, num_held_out=8)
    rows = [before.row(number)[0] for number in (99, 100, 101, 150, 199, 200)]
    _with_blank_lines(vectors)
    texts = TaughtTexts(vectors, num_held_out=8)
    assert [texts.row(number)[0] for number in (99, 100, 101, 150, 199, 200)] == rows
    assert distil(vectors, corpus, tmp_path).is_finished


def test_what_embed_writes_for_a_text_with_blank_lines_can_teach(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    network = AlbertForPretraining(config_for(tokenizer))
    write_folder(ModelFolder(network), tmp_path / "model")
    tokenizer.save(tmp_path / "model")
    texts = tmp_path / "t.txt"
    sentences = PLAIN_SENTENCES[:60]
    texts.write_text("\n".join([*sentences[:9], "", *sentences[9:], " \t"]) + "\n")
    path = tmp_path / "t.npy"
    shell.litebert("embed", texts, "--model", tmp_path / "model", "--output", path)
    assert TaughtTexts(path, num_held_out=8).row(9)[0] == sentences[9]
