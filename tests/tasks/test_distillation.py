"""Distillation: tokens aligned by characters, a start from the teacher, one trainer for both."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import litebert
from litebert.api.corpus import build_from_texts
from litebert.api.settings import flags, recipe_settings
from litebert.config import AlbertConfig, Origin, PretrainConfig, Resolved, Setting, resolve
from litebert.distributed import ALONE
from litebert.errors import LitebertError
from litebert.folder import save_model
from litebert.nn import AlbertForPretraining, Batch
from litebert.runs import read_metrics
from litebert.tasks.distillation import Surface, Teacher, align
from litebert.tasks.start import convert
from litebert.tokenizer import Tokenizer, train_tokenizer
from litebert.train.pretrain import completed, new_network, shape_of_student, task_of
from litebert.train.sources import Sources

SENTENCES = [
    f"The {colour} {animal} {verb} near the {place}."
    for colour in ("red", "green", "blue", "white")
    for animal in ("fox", "horse", "mouse", "crow")
    for verb in ("slept", "waited", "walked", "sang")
    for place in ("river", "garden", "station", "old mill")
]
SHAPE = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
SETTINGS = {
    "model.embedding_size": 16,
    "objective.max_seq_length": 32,
    "distil.texts": 4,
    "distil.text_length": 16,
    "train.batch_size": 2,
    "train.eval_sequences": 8,
    "train.loader_workers": 0,
    "train.precision": "fp32",
    "train.steps": 6,
    "train.save_every": 3,
    "train.eval_every": 6,
    "train.log_every": 2,
}


def _tokenizer(vocab_size: int) -> Tokenizer:
    return Tokenizer.from_model(train_tokenizer(SENTENCES * 3, vocab_size=vocab_size))


def _unshared(vocab_size: int) -> AlbertForPretraining:
    config = AlbertConfig(
        vocab_size=vocab_size, embedding_size=32, num_hidden_layers=4, hidden_act="gelu", sharing="none", **SHAPE
    )
    return AlbertForPretraining(config, generator=torch.Generator().manual_seed(1))


def _known(tokenizer: Tokenizer) -> list[int]:
    """Give the pieces that their own texts are encoded as."""
    texts = [piece.replace("▁", " ") for piece in tokenizer.pieces]
    return [n for n, text in enumerate(texts) if text.startswith(" ") and tokenizer.encode(text).ids == [n]]


@pytest.fixture(scope="module")
def teacher_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A teacher with another vocabulary than its student, and unshared layers."""
    folder = tmp_path_factory.mktemp("teacher")
    tokenizer = _tokenizer(44)
    save_model(_unshared(tokenizer.vocab_size), folder)
    tokenizer.save(folder)
    return folder


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    documents = [SENTENCES[start : start + 8] for start in range(0, len(SENTENCES), 8)]
    path.write_text("\n\n".join(" ".join(document) for document in documents))
    return path


def test_tokens_of_two_vocabularies_cover_the_same_characters() -> None:
    ours, theirs = _tokenizer(40), _tokenizer(44)
    (text,), (spans,) = Surface(ours).read(*_framed(ours, SENTENCES[0]))
    encoded = theirs.encode(text)
    their_spans = [(0, 0), *encoded.offsets, (0, 0)]
    alignment = align([spans], [their_spans])
    for (begin, end), first, stop in zip(spans, alignment.first, alignment.stop, strict=True):
        covered = [span for span in their_spans[first:stop] if span != (0, 0)]
        assert all(b < end and begin < e for b, e in covered)
        assert end == begin or (covered[0][0] <= begin and covered[-1][1] >= end)


def test_a_token_gets_the_mean_of_the_teacher_tokens_behind_it() -> None:
    alignment = align([[(0, 0), (0, 4), (0, 0)]], [[(0, 0), (0, 1), (1, 4), (0, 0)]])
    states = torch.tensor([[1.0], [2.0], [6.0], [9.0]])
    assert alignment.means(states).flatten().tolist() == [1.0, 4.0, 9.0]


def test_a_student_with_every_dimension_computes_what_its_teacher_computes() -> None:
    tokenizer = _tokenizer(40)
    config = AlbertConfig(vocab_size=tokenizer.vocab_size, embedding_size=32, num_hidden_layers=1, **SHAPE).model_copy(
        update={"hidden_act": "gelu", "embedding_projection": True}
    )
    source = _unshared(tokenizer.vocab_size)
    source.albert.plan = source.albert.plan[:1]
    source.albert.depth = 1
    student = AlbertForPretraining(config)
    convert(student, tokenizer, Teacher(source.albert, tokenizer))
    ours, theirs = student.albert.state_dict(), source.albert.state_dict()
    for name in (n for n in ours if n.startswith(("attention.0", "feed_forward.0"))):
        assert torch.equal(ours[name], theirs[name]), name
    mean = theirs["embedding.word.weight"].mean(0)
    lifted = ours["embedding.word.weight"] @ student.masked_lm.dense.weight
    known = _known(tokenizer)
    assert known
    wanted = theirs["embedding.word.weight"][known] - mean
    torch.testing.assert_close(lifted[known], wanted, atol=1e-5, rtol=0)


def test_a_student_whose_embeddings_are_as_wide_as_its_layers_embeds_as_its_teacher() -> None:
    tokenizer = _tokenizer(40)
    source = _unshared(tokenizer.vocab_size)
    student = AlbertForPretraining(source.config.model_copy(update={"sharing": "all"}))
    convert(student, tokenizer, Teacher(source.albert, tokenizer))
    known = _known(tokenizer)
    assert known
    batch = Batch.from_lists([known])
    ours, theirs = (next(network.eval().albert.states(batch)) for network in (student, source))
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


@pytest.mark.parametrize("embedding_size", [8, 16, 24])
def test_an_albert_can_teach(embedding_size: int) -> None:
    tokenizer = _tokenizer(40)
    teacher = AlbertConfig(vocab_size=tokenizer.vocab_size, embedding_size=16, **SHAPE)
    source = AlbertForPretraining(teacher, generator=torch.Generator().manual_seed(2))
    config = teacher.model_copy(update={"embedding_size": embedding_size})
    student = AlbertForPretraining(config)
    convert(student, tokenizer, Teacher(source.albert, tokenizer))
    ours, theirs = (network.albert.embedding for network in (student, source))
    # dimensions that the teacher lacks keep their random start
    lifted = ours.projection.weight[:, :16] @ ours.word.weight[:, :16].T  # type: ignore[index]
    known = _known(tokenizer)
    centred = theirs.word.weight - theirs.word.weight.mean(0)
    wanted = theirs.projection.weight @ centred[known].T  # type: ignore[operator]
    error = (lifted[:, known] - wanted).norm() / wanted.norm()
    assert error < (1e-5 if embedding_size >= 16 else 0.9)


def test_distillation_brings_the_student_nearer(teacher_folder: Path, text: Path, tmp_path: Path) -> None:
    settings = SETTINGS | {"train.steps": 60, "train.eval_every": 60}
    run = litebert.distil(
        teacher_folder, text, runs=tmp_path, vocab_size=40, held_out=0.2, settings=settings, quiet=True
    )
    rows = [row for row in read_metrics(run.folder) if row["kind"] == "eval"]
    assert rows[-1]["vector_error"] < 0.7 * rows[0]["vector_error"]
    assert rows[-1]["hidden_error"] < rows[0]["hidden_error"]
    assert set(run.model().verbs) >= {"fill", "order", "embed"}


def test_without_a_weight_for_hidden_states_the_teacher_reads_no_pairs(
    teacher_folder: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, batches = Teacher.read, list[Batch]()
    monkeypatch.setattr(Teacher, "read", lambda *args: (batches.append(args[1]), read(*args))[1])

    def distil(name: str, hidden: float) -> tuple[int, dict[str, float]]:
        batches.clear()
        settings = SETTINGS | {"distil.hidden": hidden, "train.steps": 4, "train.eval_at_start": False}
        run = litebert.distil(
            teacher_folder, text, runs=tmp_path, name=name, vocab_size=40, held_out=0.2, settings=settings, quiet=True
        )
        return len(batches), [row for row in read_metrics(run.folder) if row["kind"] == "eval"][-1]

    (both, _), (texts_alone, measured) = distil("both", 1.0), distil("texts", 0.0)
    assert both - texts_alone == 4  # one lesson of pairs a step
    assert 0 < measured["hidden_error"] < 10  # on texts, as ever


def test_a_stopped_distillation_resumes_bit_for_bit(teacher_folder: Path, text: Path, tmp_path: Path) -> None:
    def run(name: str) -> dict[str, torch.Tensor]:
        made = litebert.distil(
            teacher_folder, text, runs=tmp_path, name=name, vocab_size=40, held_out=0.2, settings=SETTINGS, quiet=True
        )
        return made.model().network.state_dict()

    whole = run("whole")
    run("cut")
    folder = tmp_path / "cut"
    for path in (folder / "checkpoints" / "step-000000006", folder / "model"):
        path.rename(tmp_path / f"gone-{path.name}")
    resumed = run("cut")
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def _resolved(teacher: Path, settings: dict) -> Resolved[PretrainConfig]:
    return resolve(
        PretrainConfig,
        recipe_settings("pretrain", "distil"),
        flags({"data.corpus": "corpus", "distil.teacher": str(teacher)} | settings),
    )


def test_the_plan_counts_the_plain_texts_too(teacher_folder: Path, text: Path) -> None:
    settings = {**SETTINGS, "distil.texts": 5, "distil.text_length": 9}
    config = _resolved(teacher_folder, settings).config
    pairs = config.train.batch_size * config.objective.max_seq_length
    plan = litebert.distil(teacher_folder, text, settings=settings, dry_run=True).plan
    assert plan is not None
    assert plan.value["tokens"] == config.train.steps * (pairs + 45)
    assert re.search(r"model +H 32 x 4 layers", plan.text)  # the student's shape, not that of the recipe


def test_where_nobody_says_three_blocks_take_turns(teacher_folder: Path) -> None:
    def groups(**settings: object) -> int:
        return shape_of_student(_resolved(teacher_folder, SETTINGS | settings)).num_hidden_groups

    assert groups() == 3
    assert groups(**{"model.num_hidden_groups": 1}) == 1
    assert groups(**{"model.num_hidden_layers": 2}) == 2
    assert groups(**{"model.sharing": "attention"}) == 1
    with pytest.raises(LitebertError, match="LB-988"):
        groups(**{"model.num_hidden_groups": 5})


def test_neurons_that_never_change_go_into_the_bias() -> None:
    tokenizer = _tokenizer(40)
    source = _unshared(tokenizer.vocab_size)
    for block in source.albert.feed_forward:
        torch.nn.init.normal_(block.intermediate.weight)
        torch.nn.init.normal_(block.output.weight)
        block.intermediate.weight.data[::2] = 0  # every second neuron is a constant
        block.intermediate.bias.data[::2] = 1.5
    config = source.config.model_copy(update={"intermediate_size": 32, "embedding_projection": True})
    student = AlbertForPretraining(config)
    convert(student, tokenizer, Teacher(source.albert, tokenizer))
    x = torch.randn(50, 32, generator=torch.Generator().manual_seed(2))
    pairs = zip(student.albert.feed_forward, source.albert.feed_forward, strict=True)
    for ours, theirs in pairs:
        assert ours.intermediate.weight.shape == (32, 32)
        got, expected = (block(x) for block in (ours, theirs))
        torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)


def test_of_neurons_the_most_active_are_kept() -> None:
    tokenizer = _tokenizer(40)
    source = _unshared(tokenizer.vocab_size)
    block = source.albert.feed_forward[0]
    torch.nn.init.normal_(block.intermediate.weight)
    block.output.weight.data[:] = 1
    block.intermediate.bias.data[:] = -100  # all of them silent ...
    loud = torch.randperm(64, generator=torch.Generator().manual_seed(3))[:16].sort().values
    block.intermediate.bias.data[loud] = 0  # ... but these
    config = source.config.model_copy(update={"intermediate_size": 16, "embedding_projection": True})
    student = AlbertForPretraining(config)
    convert(student, tokenizer, Teacher(source.albert, tokenizer))
    kept = student.albert.feed_forward[0].intermediate.weight
    assert torch.equal(kept, block.intermediate.weight[loud])


@pytest.mark.parametrize(("name", "size"), [("hidden_size", 48), ("intermediate_size", 65)])
def test_a_width_that_the_teacher_cannot_fill_is_refused(
    teacher_folder: Path, text: Path, tmp_path: Path, name: str, size: int
) -> None:
    with pytest.raises(LitebertError, match="LB-991"):
        litebert.distil(
            teacher_folder,
            text,
            runs=tmp_path,
            vocab_size=40,
            held_out=0.2,
            settings=SETTINGS | {f"model.{name}": size},
            quiet=True,
        )


def _framed(tokenizer: Tokenizer, text: str):
    import numpy as np

    ids = [tokenizer.cls_id, *tokenizer.encode(text).ids, tokenizer.sep_id]
    return np.array(ids), np.array([0, len(ids)])


def test_a_student_begins_on_the_cpu_and_learns_on_any_device(
    teacher_folder: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a device without numbers every operation still refuses tensors of two devices, as a GPU does."""
    corpus = build_from_texts(text, tmp_path, vocab_size=60, held_out=0.2, quiet=True)
    given = {"data.corpus": str(corpus), "distil.teacher": str(teacher_folder), **SETTINGS}
    resolved = resolve(PretrainConfig, {name: Setting(value, Origin("flag")) for name, value in given.items()})
    sources = Sources.open(resolved.config)
    config, _ = completed(resolved, sources, tmp_path)
    teacher = Teacher.load(teacher_folder, dtype=torch.float32)
    network = new_network(config, sources, teacher)

    network.to("meta").train()
    teacher.encoder.to("meta")
    monkeypatch.setattr("torch.fx.experimental._config.meta_nonzero_assume_all_nonzero", True)
    task = task_of(network, config, sources, teacher, ALONE)
    for work in next(iter(task.batches(0, 1))):
        loss = task.loss(work)
        loss.total.backward()
        assert loss.sums.device.type == "meta"
    assert all(p.grad is not None for p in network.masked_lm.parameters())
