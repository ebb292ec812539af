"""Distillation: tokens aligned by characters, a start from the teacher, one trainer for both."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import litebert
from litebert.api.settings import flags, recipe_settings
from litebert.config import AlbertConfig, PretrainConfig
from litebert.distributed import ALONE
from litebert.errors import LitebertError
from litebert.folder import save_model
from litebert.nn import AlbertForPretraining, Batch
from litebert.runs import Run, read_metrics
from litebert.settings import Resolved, resolve
from litebert.tasks.distillation import Teacher, align, convert
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
SHAPE: dict[str, Any] = {"embedding_size": 32, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
SETTINGS = {"model.embedding_size": 16, "objective.max_seq_length": 32, "distil.texts": 4, "distil.text_length": 16}
SETTINGS |= {"train.batch_size": 2, "train.eval_sequences": 8, "train.loader_workers": 0, "train.precision": "fp32"}
SETTINGS |= {"train.steps": 6, "train.save_every": 3, "train.eval_every": 6, "train.log_every": 2}


def _tokenizer(vocab_size: int) -> Tokenizer:
    return Tokenizer.from_model(train_tokenizer(SENTENCES * 3, vocab_size=vocab_size))


def _unshared(tokenizer: Tokenizer) -> AlbertForPretraining:
    sizes = {**SHAPE, "vocab_size": tokenizer.vocab_size, "num_hidden_layers": 4}
    config = AlbertConfig(**sizes, hidden_act="gelu", sharing="none")
    return AlbertForPretraining(config, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def teacher_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a teacher with another vocabulary than its student, and unshared layers."""
    folder, tokenizer = tmp_path_factory.mktemp("teacher"), _tokenizer(44)
    save_model(_unshared(tokenizer), folder)
    tokenizer.save(folder)
    return folder


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n\n".join(" ".join(SENTENCES[start : start + 8]) for start in range(0, len(SENTENCES), 8)))
    return path


def test_tokens_of_two_vocabularies_cover_the_same_characters() -> None:
    ours, theirs, text = _tokenizer(40), _tokenizer(44), f" {SENTENCES[0].lower()}"
    ids = np.array([ours.cls_id, *ours.encode(text).ids, ours.sep_id])
    teacher = Teacher(_unshared(theirs).albert, theirs, ours)
    kept, (targets,), _ = teacher.read(ids, np.array([0, len(ids)]), [1])
    states = list(teacher.encoder.states(Batch.from_lists([theirs.encode(text, frame=True).ids])))[1]
    spans, their_spans = ([(0, 0), *each.encode(text).offsets, (0, 0)] for each in (ours, theirs))
    first, stop = align([spans], [their_spans])
    for (begin, end), low, high in zip(spans, first, stop, strict=True):
        covered = [span for span in their_spans[low:high] if span != (0, 0)]
        assert all(b < end and begin < e for b, e in covered)
        assert end == begin or (covered[0][0] <= begin and covered[-1][1] >= end)
    for number, target in zip(kept, targets, strict=True):  # a token gets the mean of the teacher's tokens behind it
        torch.testing.assert_close(target, states[first[number] : stop[number]].mean(0))


# A start from the teacher


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return _tokenizer(40)


@pytest.fixture(scope="module")
def known(tokenizer: Tokenizer) -> list[int]:
    """Give the pieces that their own texts are encoded as."""
    texts = [piece.replace("▁", " ") for piece in tokenizer.pieces]
    return [n for n, text in enumerate(texts) if text.startswith(" ") and tokenizer.encode(text).ids == [n]]


def _student(source: AlbertForPretraining, tokenizer: Tokenizer, **changes: object) -> AlbertForPretraining:
    student = AlbertForPretraining(source.config.model_copy(update={"embedding_projection": True} | changes))
    convert(student, Teacher(source.albert, tokenizer, tokenizer))
    return student


def test_a_student_with_every_dimension_has_the_layers_and_the_words_of_its_teacher(
    tokenizer: Tokenizer, known: list[int]
) -> None:
    assert known
    source = _unshared(tokenizer)
    source.albert.plan, source.albert.depth = source.albert.plan[:1], 1
    student = _student(source, tokenizer, num_hidden_layers=1, sharing="all")
    ours, theirs = student.albert.state_dict(), source.albert.state_dict()
    for name in (n for n in ours if n.startswith(("attention.0", "feed_forward.0"))):
        assert torch.equal(ours[name], theirs[name]), name
    words = theirs["embedding.word.weight"]
    lifted = ours["embedding.word.weight"] @ student.masked_lm.dense.weight
    torch.testing.assert_close(lifted[known], words[known] - words.mean(0), atol=1e-5, rtol=0)


@pytest.mark.parametrize("embedding_size", [8, 16, 24])
def test_an_albert_can_teach(tokenizer: Tokenizer, known: list[int], embedding_size: int) -> None:
    teacher = AlbertConfig(**{**SHAPE, "embedding_size": 16}, vocab_size=tokenizer.vocab_size)
    source = AlbertForPretraining(teacher, generator=torch.Generator().manual_seed(2))
    student = _student(source, tokenizer, embedding_size=embedding_size)
    ours, theirs = (network.albert.embedding for network in (student, source))
    # dimensions that the teacher lacks keep their random start
    lifted = ours.projection.weight[:, :16] @ ours.word.weight[:, :16].T  # type: ignore[index]
    centred = theirs.word.weight - theirs.word.weight.mean(0)
    wanted = theirs.projection.weight @ centred[known].T  # type: ignore[operator]
    error = (lifted[:, known] - wanted).norm() / wanted.norm()
    assert error < (1e-5 if embedding_size >= 16 else 0.9)


def test_the_most_active_neurons_are_kept_and_those_that_never_change_go_into_the_bias(tokenizer: Tokenizer) -> None:
    source, drawn = _unshared(tokenizer), torch.Generator().manual_seed(3)
    for block in source.albert.feed_forward:
        torch.nn.init.normal_(block.intermediate.weight, generator=drawn)
        torch.nn.init.normal_(block.output.weight, generator=drawn)
        block.intermediate.weight.data[::2] = 0  # every second neuron is a constant
        block.intermediate.bias.data[::2] = 1.5
    student, x = _student(source, tokenizer, intermediate_size=32), torch.randn(50, 32, generator=drawn)
    for ours, theirs in zip(student.albert.feed_forward, source.albert.feed_forward, strict=True):
        torch.testing.assert_close(ours(x), theirs(x), atol=1e-4, rtol=1e-4)
    block = source.albert.feed_forward[0]
    torch.nn.init.normal_(block.intermediate.weight, generator=drawn)
    block.output.weight.data[:] = 1
    block.intermediate.bias.data[:] = -100  # all of them silent ...
    loud = torch.randperm(64, generator=drawn)[:16].sort().values
    block.intermediate.bias.data[loud] = 0  # ... but these
    kept = _student(source, tokenizer, intermediate_size=16).albert.feed_forward[0].intermediate.weight
    assert torch.equal(kept, block.intermediate.weight[loud])


# What is settled before


def _resolved(teacher: Path, settings: dict[str, Any]) -> Resolved[PretrainConfig]:
    given = {"data.corpus": "corpus", "distil.teacher": str(teacher)} | settings
    return resolve(PretrainConfig, recipe_settings("pretrain", "distil"), flags(given))


@pytest.mark.parametrize(
    ("settings", "groups"),
    [
        ({}, 3),
        ({"num_hidden_groups": 1}, 1),
        ({"num_hidden_layers": 2}, 2),
        ({"sharing": "attention"}, 1),
        ({"num_hidden_groups": 5}, "LB-515"),
        ({"hidden_size": 48}, "LB-515"),  # widths that the teacher cannot fill
        ({"intermediate_size": 65}, "LB-515"),
    ],
)
def test_where_nobody_says_three_blocks_take_turns_and_what_does_not_fit_is_refused(
    teacher_folder: Path, settings: dict[str, object], groups: int | str
) -> None:
    resolved = _resolved(teacher_folder, SETTINGS | {f"model.{name}": value for name, value in settings.items()})
    if isinstance(groups, int):
        assert shape_of_student(resolved).num_hidden_groups == groups
    else:
        with pytest.raises(LitebertError, match=groups):
            shape_of_student(resolved)


def test_the_plan_counts_the_plain_texts_too(teacher_folder: Path, text: Path) -> None:
    settings = {**SETTINGS, "distil.texts": 5, "distil.text_length": 9}
    config = _resolved(teacher_folder, settings).config
    pairs = config.train.batch_size * config.objective.max_seq_length
    plan = litebert.distil(teacher_folder, text, settings=settings, dry_run=True).plan
    assert plan is not None
    assert plan.value["tokens"] == config.train.steps * (pairs + 45)
    assert re.search(r"model +H 32 x 4 layers", plan.text)  # the student's shape, not that of the recipe


# Training


def _distil(teacher: Path, text: Path, runs: Path, name: str = "student", **settings: object) -> Run:
    given = {"vocab_size": 40, "held_out": 0.2, "settings": SETTINGS | settings, "quiet": True}
    return litebert.distil(teacher, text, runs=runs, name=name, **given)


def _evaluations(run: Run) -> list[dict[str, Any]]:
    return [row for row in read_metrics(run.folder) if row["kind"] == "eval"]


def test_distillation_brings_the_student_nearer(teacher_folder: Path, text: Path, tmp_path: Path) -> None:
    run = _distil(teacher_folder, text, tmp_path, **{"train.steps": 60, "train.eval_every": 60})
    first, *_, last = _evaluations(run)
    assert last["vector_error"] < 0.7 * first["vector_error"]
    assert last["hidden_error"] < first["hidden_error"]
    assert set(run.model().verbs) >= {"fill", "order", "embed"}


def test_without_a_weight_for_hidden_states_the_teacher_reads_no_pairs(
    teacher_folder: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, batches, counts = Teacher.read, list[Batch](), list[int]()
    monkeypatch.setattr(Teacher, "read", lambda *args: (batches.append(args[1]), read(*args))[1])
    for hidden in (1.0, 0.0):
        batches.clear()
        settings = {"distil.hidden": hidden, "train.steps": 4, "train.eval_at_start": False}
        run = _distil(teacher_folder, text, tmp_path, f"hidden-{hidden}", **settings)
        counts.append(len(batches))
        assert 0 < _evaluations(run)[-1]["hidden_error"] < 10  # on texts, as ever
    assert counts[0] - counts[1] == 4  # one lesson of pairs a step


def test_a_stopped_distillation_resumes_bit_for_bit(teacher_folder: Path, text: Path, tmp_path: Path) -> None:
    def weights() -> dict[str, Tensor]:
        return _distil(teacher_folder, text, tmp_path).model().network.state_dict()

    whole, folder = weights(), tmp_path / "student"
    for path in (folder / "checkpoints" / "step-000000006", folder / "model"):
        path.rename(tmp_path / f"gone-{path.name}")
    resumed = weights()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_a_student_begins_on_the_cpu_and_learns_on_any_device(
    teacher_folder: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a device without numbers every operation still refuses tensors of two devices, as a GPU does."""
    resolved = _resolved(teacher_folder, SETTINGS | {"data.corpus": str(corpus)})
    sources = Sources.open(resolved.config)
    config, _ = completed(resolved, sources, tmp_path)
    teacher = Teacher.load(teacher_folder, sources.tokenizer, dtype=torch.float32)
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
