"""Attention relations and masked words of a teacher: against plain loops, and learnt in a run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

import litebert
from litebert.config import AlbertConfig
from litebert.corpus import build_corpus
from litebert.errors import LitebertError
from litebert.folder import save_model
from litebert.nn import AlbertForPretraining, Batch
from litebert.runs import read_metrics
from litebert.tasks.relations import projections, relation_error
from litebert.tokenizer import Tokenizer, train_tokenizer

SENTENCES = [
    f"The {colour} {animal} {verb} near the {place}."
    for colour in ("grey", "brown", "black", "white")
    for animal in ("goat", "hound", "heron", "otter")
    for verb in ("slept", "waited", "hid", "sang")
    for place in ("lake", "bridge", "market", "old tower")
]
SHAPE = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
SETTINGS = {
    "model.embedding_size": 16,
    "objective.max_seq_length": 32,
    "distil.texts": 4,
    "distil.text_length": 16,
    "distil.relations": 1,
    "train.batch_size": 4,
    "train.eval_sequences": 8,
    "train.loader_workers": 0,
    "train.precision": "fp32",
    "train.steps": 40,
    "train.eval_every": 40,
    "train.log_every": 10,
}
HEADS = 2


def _network(vocab_size: int, seed: int) -> AlbertForPretraining:
    config = AlbertConfig(
        vocab_size=vocab_size,
        embedding_size=16,
        num_hidden_layers=2,
        initializer_range=0.3,  # so that attention is not even from the start
        **SHAPE,
    )
    return AlbertForPretraining(config, generator=torch.Generator().manual_seed(seed))


def test_relations_equal_plain_loops() -> None:
    batch = Batch.from_lists([[2, 7, 8, 9, 3], [2, 8, 3]])
    generator = torch.Generator().manual_seed(5)
    ours, theirs = torch.randn(2, 8, 3 * 32, generator=generator)
    has_target = torch.tensor([True, True, False, True, True, True, True, True])
    got = relation_error(ours, theirs, batch=batch, has_target=has_target, heads=HEADS)
    wanted = torch.zeros(())
    for first, stop in ((0, 5), (5, 8)):
        keep = [row for row in range(first, stop) if has_target[row]]
        for part in range(3):
            for head in range(HEADS):
                columns = slice(part * 32 + head * 16, part * 32 + (head + 1) * 16)
                a, b = ours[keep, columns], theirs[keep, columns]
                student = (a @ a.T / 4).log_softmax(-1)
                teacher = (b @ b.T / 4).softmax(-1)
                wanted += F.kl_div(student, teacher, reduction="sum") / (3 * HEADS)
    torch.testing.assert_close(got, wanted, atol=1e-5, rtol=1e-5)
    same = relation_error(ours, ours, batch=batch, has_target=has_target, heads=HEADS)
    assert abs(float(same)) < 1e-6


def test_projections_are_those_that_the_last_step_computes() -> None:
    albert = _network(20, seed=1).albert
    *_, before, _ = albert.states(Batch.from_lists([[2, 7, 3]]))
    block = albert.attention[0]
    query, key, value = projections(albert, before).chunk(3, dim=1)
    torch.testing.assert_close(query, block.query(before))
    torch.testing.assert_close(key, block.key(before))
    torch.testing.assert_close(value, block.value(before))


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A teacher with a masked-LM head, and a corpus in its vocabulary."""
    folder = tmp_path_factory.mktemp("place")
    tokenizer = Tokenizer.from_model(train_tokenizer(SENTENCES * 3, vocab_size=44))
    save_model(_network(tokenizer.vocab_size, seed=2), folder / "teacher")
    tokenizer.save(folder / "teacher")
    texts = [SENTENCES[start : start + 8] for start in range(0, len(SENTENCES), 8)]
    (folder / "text.txt").write_text("\n\n".join(" ".join(text) for text in texts))
    build_corpus(
        [folder / "text.txt"],
        tokenizer=folder / "teacher",
        output=folder / "corpus",
        held_out=0.3,
        documents="blank-line",
        workers=1,
    )
    return folder / "teacher", folder / "corpus"


def test_a_student_learns_relations_and_masked_words(places: tuple[Path, Path], tmp_path: Path) -> None:
    teacher, corpus = places
    settings = SETTINGS | {"distil.logits": 1, "distil.pretraining": 0, "distil.hidden": 0}
    run = litebert.distil(teacher, corpus=corpus, runs=tmp_path, settings=settings, quiet=True)
    rows = read_metrics(run.folder)
    first, *_, last = [row for row in rows if row["kind"] == "eval"]
    assert last["relation_error"] < 0.9 * first["relation_error"]
    first, *_, last = [row for row in rows if row["kind"] == "train"]
    assert last["word_error"] < first["word_error"]


def test_masked_words_need_the_same_vocabulary(places: tuple[Path, Path], tmp_path: Path) -> None:
    _, corpus = places
    tokenizer = Tokenizer.from_model(train_tokenizer(SENTENCES, vocab_size=40))
    save_model(_network(tokenizer.vocab_size, seed=3), tmp_path / "teacher")
    tokenizer.save(tmp_path / "teacher")
    with pytest.raises(LitebertError, match="LB-987"):
        litebert.distil(
            tmp_path / "teacher", corpus=corpus, runs=tmp_path, settings=SETTINGS | {"distil.logits": 1}, quiet=True
        )
