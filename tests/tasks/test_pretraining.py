"""Pretraining: losses equal to those of transformers, heads that start by attending to
neighbours; distillation.
"""

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import AlbertForPreTraining

import litebert
from litebert.api.settings import flags, recipe_settings
from litebert.config import AlbertConfig, PretrainConfig, TrainConfig, preset
from litebert.device import choose_device
from litebert.distributed import ALONE
from litebert.errors import LitebertError
from litebert.fast.losses import count_right, masked_loss
from litebert.folder import ModelFolder, write_folder
from litebert.folder.names import tensor_names
from litebert.nn import Albert, AlbertForPretraining, Batch
from litebert.objectives import NO_LABEL, PretrainingBatch
from litebert.runs import RunFolder, read_metrics
from litebert.settings import Resolved, resolve
from litebert.tasks.pretraining import (
    Pretraining,
    micro_batches,
)
from litebert.tasks.task import Loss
from litebert.tasks.teacher import Teacher, align
from litebert.tokenizer import Tokenizer, train_tokenizer
from litebert.train.completion import complete, shape_of_student
from litebert.train.local_start import OFFSETS, attend_locally, num_local_heads
from litebert.train.pretrain import task_of
from litebert.train.sources import Sources
from litebert.train.student import convert
from litebert.train.weights import new_network
from tests.networks import PLAIN_SENTENCES, config_for, drawn

CONFIG = AlbertConfig(
    vocab_size=50,
    embedding_size=12,
    hidden_size=24,
    num_hidden_layers=3,
    num_attention_heads=3,
    intermediate_size=40,
)
BATCH = PretrainingBatch(
    ids=np.array([2, 7, 4, 3, 9, 3, 2, 4, 8, 3, 5, 6, 7, 3]),
    positions=np.array([0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 6, 7]),
    segments=np.array([0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1]),
    offsets=np.array([0, 6, 14]),
    masked_positions=np.array([2, 4, 7, 12]),
    masked_ids=np.array([30, 9, 31, 32]),
    sentence_labels=np.array([0, 1]),
)


@pytest.fixture
def task() -> Pretraining:
    network = drawn(AlbertForPretraining(CONFIG)).train()
    return Pretraining(network, held_out=[BATCH], train=TrainConfig())


def losses(
    task: Pretraining, batch: PretrainingBatch = BATCH, size: int | None = None
) -> list[Loss]:
    return [
        task.loss(work) for work in micro_batches(batch, size, choose_device("cpu"))
    ]


@pytest.mark.parametrize("orders", [[0, 1], [NO_LABEL, 1]])
def test_loss_and_gradients_equal_those_of_transformers(
    task: Pretraining, tmp_path: Path, orders: list[int]
) -> None:
    (loss,) = losses(task, replace(BATCH, sentence_labels=np.array(orders)))
    loss.total.backward()
    write_folder(ModelFolder(task.network), tmp_path)
    theirs = AlbertForPreTraining.from_pretrained(tmp_path).eval()
    ids, segments, mask = torch.zeros(3, 2, 8, dtype=torch.int64).unbind(0)
    labels = torch.full((2, 8), -100)
    for row, (start, stop) in enumerate([(0, 6), (6, 14)]):
        ids[row, : stop - start] = torch.from_numpy(BATCH.ids[start:stop])
        segments[row, : stop - start] = torch.from_numpy(BATCH.segments[start:stop])
        mask[row, : stop - start] = 1
    for position, label in zip(BATCH.masked_positions, BATCH.masked_ids, strict=True):
        labels[int(position >= 6), position - 6 * int(position >= 6)] = int(label)
    their_orders = torch.tensor(
        [-100 if order == NO_LABEL else order for order in orders]
    )
    inputs = {
        "attention_mask": mask,
        "token_type_ids": segments,
        "sentence_order_label": their_orders,
    }
    expected = theirs(ids, **inputs, labels=labels).loss
    expected.backward()
    assert loss.total.item() == pytest.approx(expected.item(), abs=1e-4)
    gradients = {name: p.grad for name, p in theirs.named_parameters()}
    for name, parameter in task.network.named_parameters():
        (their_name,) = tensor_names(name, CONFIG)
        if their_name.endswith("word_embeddings.weight"):
            # transformers never trains the row of <pad>
            gradients[their_name][0] = parameter.grad[0]
        torch.testing.assert_close(
            parameter.grad, gradients[their_name], rtol=1e-3, atol=1e-5
        )


def test_shares_of_micro_batches_add_up(task: Pretraining) -> None:
    (whole,) = losses(task)
    for size in (1, 2):
        parts = losses(task, size=size)
        torch.testing.assert_close(sum(loss.total for loss in parts), whole.total)
        torch.testing.assert_close(sum(loss.sums for loss in parts), whole.sums)


def test_a_micro_batch_without_masked_words_still_has_its_sentence_loss(
    task: Pretraining,
) -> None:
    unmasked = replace(
        BATCH,
        masked_positions=BATCH.masked_positions[:0],
        masked_ids=BATCH.masked_ids[:0],
    )
    (loss,) = losses(task, unmasked)
    loss.total.backward()
    assert loss.total.isfinite()
    assert task.network.sentence_order.classifier.weight.grad.abs().sum() > 0


def test_evaluation_reports_the_share_of_the_commonest_token(task: Pretraining) -> None:
    assert task.evaluate()["masked_lm_baseline"] == 0.25
    # masked, as in a text of words that are longer than the share to mask
    nothing = np.empty(0, np.int64)
    task.held_out = [
        replace(batch, masked_positions=nothing, masked_ids=nothing)
        for batch in task.held_out
    ]
    assert task.evaluate()["masked_lm_baseline"] == 0
    assert task.network.training


def test_evaluation_counts_the_pairs_that_have_an_order(task: Pretraining) -> None:
    labels = [label for batch in task.held_out for label in batch.sentence_labels]
    assert task.evaluate()["sentence_order_pairs"] == len(labels)
    one = replace(task.held_out[0])
    one.sentence_labels[0] = NO_LABEL  # a document of one sentence
    task.held_out = [one]
    assert task.evaluate()["sentence_order_pairs"] == len(one.sentence_labels) - 1


# ---- the loss in slices is the loss of the whole, and so is its gradient -------------


def logits_of(rows: int, vocab: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows)
    return 3 * torch.randn(rows, vocab, generator=generator), torch.randint(
        vocab, (rows,), generator=generator
    )


@pytest.mark.parametrize("rows", [1, 32, 33, 100])
def test_bf16_loss_and_gradient_are_those_of_a_float32_copy(rows: int) -> None:
    numbers, labels = logits_of(rows, 500)
    assert torch.equal(
        masked_loss(numbers, labels), F.cross_entropy(numbers, labels, reduction="sum")
    )
    ours, theirs = (numbers.bfloat16().requires_grad_() for _ in range(2))
    loss = masked_loss(ours, labels) / rows
    expected = F.cross_entropy(theirs.float(), labels, reduction="sum") / rows
    loss.backward()
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=2e-2, atol=1e-6)
    # and right answers are counted as argmax does, ties included
    for dtype in (torch.float32, torch.bfloat16):
        tied = (numbers / 2).round().to(dtype)
        assert count_right(tied, labels) == (tied.argmax(-1) == labels).sum()


# Some heads start by attending to their neighbours, whatever the words are


def with_local_heads(config: AlbertConfig, seed: int = 1) -> Albert:
    albert = Albert(config, generator=torch.Generator().manual_seed(0))
    attend_locally(albert, seed=seed)
    return albert


@pytest.mark.parametrize("name", ["tiny", "mini", "small"])
def test_each_local_head_attends_to_its_offset(name: str) -> None:
    config = preset(name).model_copy(update={"vocab_size": 500})
    albert = with_local_heads(config)
    ids = torch.randint(5, 500, (64,), generator=torch.Generator().manual_seed(3))
    hidden = next(albert.states(Batch.from_lists([ids.tolist()])))[:64]
    block = albert.attention[0]
    shape = (64, config.num_attention_heads, config.head_size)
    query, key = (
        p(hidden).view(shape).transpose(0, 1) for p in (block.query, block.key)
    )
    attention = (query @ key.transpose(1, 2) * config.head_size**-0.5).softmax(-1)
    for head, offset in enumerate(
        OFFSETS[: num_local_heads(config.num_attention_heads)]
    ):
        at_offset = attention[head].diagonal(offset)[8:48]
        assert at_offset.median() > 0.5, (name, head, offset)
    free = attention[num_local_heads(config.num_attention_heads) :]
    assert free.max() < 0.2


SHAPES = [{"embedding_size": 64}, {"embedding_size": 128}, {"sharing": "none"}]
SHAPES += [{"num_attention_heads": 1}, {"num_attention_heads": 32}]


@pytest.mark.parametrize("changes", SHAPES, ids=str)
def test_any_shape_can_have_local_heads_and_the_seed_decides_the_start(
    changes: dict[str, object],
) -> None:
    sizes = {
        "vocab_size": 50,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    config = AlbertConfig(**sizes, intermediate_size=64).model_copy(update=changes)
    ours, again, other = (
        with_local_heads(config, seed).state_dict() for seed in (1, 1, 2)
    )
    assert all(
        tensor.isfinite().all() and torch.equal(tensor, again[name])
        for name, tensor in ours.items()
    )
    assert not torch.equal(
        ours["embedding.position.weight"], other["embedding.position.weight"]
    )


# Distillation: tokens aligned by characters, a start from the teacher, one trainer for
# both

SETTINGS = {
    "model.embedding_size": 16,
    "objective.max_seq_length": 32,
    "distil.texts": 4,
    "distil.text_length": 16,
}
SETTINGS |= {
    "train.batch_size": 2,
    "train.eval_sequences": 8,
    "train.loader_workers": 0,
    "train.precision": "fp32",
}
SETTINGS |= {
    "train.steps": 6,
    "train.save_every": 3,
    "train.eval_every": 6,
    "train.log_every": 2,
}


def _tokenizer(vocab_size: int) -> Tokenizer:
    return Tokenizer.from_model(
        train_tokenizer(PLAIN_SENTENCES * 3, vocab_size=vocab_size)
    )


def _unshared(tokenizer: Tokenizer) -> AlbertForPretraining:
    sizes = {"embedding_size": 32, "num_hidden_layers": 4, "intermediate_size": 64}
    config = config_for(tokenizer, **sizes, hidden_act="gelu", sharing="none")
    return AlbertForPretraining(config, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def teacher_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a folder with a text and a teacher that has unshared layers and another
    vocabulary than its student.
    """
    folder = tmp_path_factory.mktemp("teacher")
    tokenizer = _tokenizer(44)
    write_folder(ModelFolder(_unshared(tokenizer)), folder)
    tokenizer.save(folder)
    texts = (
        " ".join(PLAIN_SENTENCES[start : start + 8])
        for start in range(0, len(PLAIN_SENTENCES), 8)
    )
    (folder / "text.txt").write_text("\n\n".join(texts))
    return folder


def test_tokens_of_two_vocabularies_cover_the_same_characters() -> None:
    ours = _tokenizer(40)
    theirs = _tokenizer(44)
    text = f" {PLAIN_SENTENCES[0].lower()}"
    ids = np.array([ours.cls_id, *ours.encode(text).ids, ours.sep_id])
    teacher = Teacher(_unshared(theirs).albert, theirs, ours)
    kept, (targets,), _ = teacher.read(ids, np.array([0, len(ids)]), [1])
    states = list(
        teacher.encoder.states(Batch.from_lists([theirs.encode(text, frame=True).ids]))
    )[1]
    spans, their_spans = (
        [(0, 0), *tokenizer.encode(text).offsets, (0, 0)]
        for tokenizer in (ours, theirs)
    )
    first, stop = align([spans], [their_spans])
    for (begin, end), low, high in zip(spans, first, stop, strict=True):
        covered = [span for span in their_spans[low:high] if span != (0, 0)]
        assert all(b < end and begin < e for b, e in covered)
        assert end == begin or (covered[0][0] <= begin and covered[-1][1] >= end)
    # the mean of the teacher's tokens that overlap a token
    for number, target in zip(kept, targets, strict=True):
        torch.testing.assert_close(target, states[first[number] : stop[number]].mean(0))


# A start from the teacher


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return _tokenizer(40)


@pytest.fixture(scope="module")
def known(tokenizer: Tokenizer) -> list[int]:
    return [
        n
        for n, text in enumerate(tokenizer.texts)
        if text.startswith(" ") and tokenizer.encode(text).ids == [n]
    ]


def _student(
    source: AlbertForPretraining, tokenizer: Tokenizer, **changes: object
) -> AlbertForPretraining:
    student = AlbertForPretraining(
        source.config.model_copy(update={"embedding_projection": True} | changes)
    )
    convert(student, Teacher(source.albert, tokenizer, tokenizer))
    return student


def test_a_student_of_equal_width_gets_its_teachers_layers_and_words(
    tokenizer: Tokenizer, known: list[int]
) -> None:
    assert known
    source = _unshared(tokenizer)
    source.albert.plan = source.albert.plan[:1]
    source.albert.depth = 1
    student = _student(source, tokenizer, num_hidden_layers=1, sharing="all")
    ours = student.albert.state_dict()
    theirs = source.albert.state_dict()
    for name in (n for n in ours if n.startswith(("attention.0", "feed_forward.0"))):
        assert torch.equal(ours[name], theirs[name]), name
    words = theirs["embedding.word.weight"]
    lifted = ours["embedding.word.weight"] @ student.masked_lm.dense.weight
    torch.testing.assert_close(
        lifted[known], words[known] - words.mean(0), atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("embedding_size", [8, 16, 24])
def test_an_albert_can_teach(
    tokenizer: Tokenizer, known: list[int], embedding_size: int
) -> None:
    source = AlbertForPretraining(
        config_for(tokenizer), generator=torch.Generator().manual_seed(2)
    )
    student = _student(source, tokenizer, embedding_size=embedding_size)
    ours, theirs = (network.albert.embedding for network in (student, source))
    # dimensions that the teacher lacks keep their random start
    lifted = ours.projection.weight[:, :16] @ ours.word.weight[:, :16].T  # type: ignore[index]
    centred = theirs.word.weight - theirs.word.weight.mean(0)
    wanted = theirs.projection.weight @ centred[known].T  # type: ignore[operator]
    error = (lifted[:, known] - wanted).norm() / wanted.norm()
    assert error < (1e-5 if embedding_size >= 16 else 0.9)


def test_the_most_active_neurons_are_kept_and_those_that_never_change_go_into_the_bias(
    tokenizer: Tokenizer,
) -> None:
    source = _unshared(tokenizer)
    draws = torch.Generator().manual_seed(3)
    for block in source.albert.feed_forward:
        torch.nn.init.normal_(block.intermediate.weight, generator=draws)
        torch.nn.init.normal_(block.output.weight, generator=draws)
        block.intermediate.weight.data[::2] = 0  # every second neuron is a constant
        block.intermediate.bias.data[::2] = 1.5
    student = _student(source, tokenizer, intermediate_size=32)
    x = torch.randn(50, 32, generator=draws)
    for ours, theirs in zip(
        student.albert.feed_forward, source.albert.feed_forward, strict=True
    ):
        torch.testing.assert_close(ours(x), theirs(x), atol=1e-4, rtol=1e-4)
    block = source.albert.feed_forward[0]
    torch.nn.init.normal_(block.intermediate.weight, generator=draws)
    block.output.weight.data[:] = 1
    block.intermediate.bias.data[:] = -100  # all of them silent ...
    loud = torch.randperm(64, generator=draws)[:16].sort().values
    block.intermediate.bias.data[loud] = 0  # ... but these
    kept = (
        _student(source, tokenizer, intermediate_size=16)
        .albert.feed_forward[0]
        .intermediate.weight
    )
    assert torch.equal(kept, block.intermediate.weight[loud])


# The student's shape and the plan


def _resolved(teacher: Path, settings: dict[str, Any]) -> Resolved[PretrainConfig]:
    values = {"data.corpus": "corpus", "distil.teacher": str(teacher)} | settings
    return resolve(PretrainConfig, recipe_settings("pretrain", "distil"), flags(values))


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
def test_a_student_has_three_blocks_by_default_and_impossible_shapes_are_refused(
    teacher_folder: Path, settings: dict[str, object], groups: int | str
) -> None:
    resolved = _resolved(
        teacher_folder,
        SETTINGS | {f"model.{name}": value for name, value in settings.items()},
    )
    if isinstance(groups, int):
        assert shape_of_student(resolved).num_hidden_groups == groups
    else:
        with pytest.raises(LitebertError, match=groups):
            shape_of_student(resolved)


def test_the_plan_counts_the_plain_texts_of_distillation_too(
    teacher_folder: Path,
) -> None:
    settings = {**SETTINGS, "distil.texts": 5, "distil.text_length": 9}
    config = _resolved(teacher_folder, settings).config
    pairs = config.train.batch_size * config.objective.max_seq_length
    plan = litebert.distil(
        teacher_folder, teacher_folder / "text.txt", settings=settings, dry_run=True
    ).plan
    assert plan is not None
    assert plan.value["tokens"] == config.train.steps * (pairs + 45)
    # the student's shape, not that of the recipe
    assert re.search(r"model +H 32 x 4 layers", plan.text)


# Training


def _distil(teacher: Path, runs: Path, **settings: object) -> RunFolder:
    arguments = {
        "vocab_size": 40,
        "held_out": 0.2,
        "settings": SETTINGS | settings,
        "quiet": True,
    }
    return litebert.distil(
        teacher, teacher / "text.txt", runs=runs, name="student", **arguments
    )


def test_distillation_brings_the_student_nearer_to_its_teacher(
    teacher_folder: Path, tmp_path: Path
) -> None:
    run = _distil(
        teacher_folder, tmp_path, **{"train.steps": 60, "train.eval_every": 60}
    )
    first, *_, last = [row for row in read_metrics(run.folder) if row["kind"] == "eval"]
    assert last["vector_error"] < 0.7 * first["vector_error"]
    assert last["hidden_error"] < first["hidden_error"]
    assert set(run.model().verbs) >= {"fill", "order", "embed"}


def test_a_stopped_distillation_resumes_bit_for_bit_from_the_same_teacher(
    teacher_folder: Path, tmp_path: Path
) -> None:
    teacher_folder = shutil.copytree(teacher_folder, tmp_path / "teacher")

    def weights() -> dict[str, Tensor]:
        return _distil(teacher_folder, tmp_path).model().network.state_dict()

    whole = weights()
    folder = tmp_path / "student"
    for path in (folder / "checkpoints" / "step-000000006", folder / "model"):
        path.rename(tmp_path / f"gone-{path.name}")
    resumed = weights()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    with (teacher_folder / "model.safetensors").open("ab") as file:
        file.write(b" ")
    with pytest.raises(LitebertError, match="values of teacher"):
        weights()


def test_a_student_begins_on_the_cpu_and_learns_on_any_device(
    teacher_folder: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the meta device, as on a GPU, every operation refuses tensors of two
    devices.
    """
    resolved = _resolved(teacher_folder, SETTINGS | {"data.corpus": str(corpus)})
    sources = Sources.open(resolved.config)
    config, _ = complete(resolved, sources, tmp_path)
    teacher = Teacher.load(teacher_folder, sources.tokenizer, dtype=torch.float32)
    network = new_network(config, sources, teacher, torch.float32)
    network.to("meta").train()
    teacher.encoder.to("meta")
    monkeypatch.setattr(
        "torch.fx.experimental._config.meta_nonzero_assume_all_nonzero", True
    )
    held_out = sources.evaluation(config)
    task = task_of(network, config, sources, held_out, teacher, ALONE)
    for work in next(iter(task.batches(0, 1))):
        loss = task.loss(work)
        loss.total.backward()
        assert loss.sums.device.type == "meta"
    assert all(p.grad is not None for p in network.masked_lm.parameters())
