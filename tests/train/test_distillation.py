"""Distillation: a student starts from its teacher's weights, has a shape that they fit,
and learns; a stopped run resumes.
"""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import litebert
from litebert.api.settings import flags, recipe_settings
from litebert.config import PretrainConfig
from litebert.distributed import ALONE
from litebert.errors import LitebertError
from litebert.folder import ModelFolder, write_folder
from litebert.nn import AlbertForPretraining
from litebert.runs import RunFolder, read_metrics
from litebert.settings import Resolved, resolve
from litebert.tasks.teacher import Teacher
from litebert.tokenizer import Tokenizer
from litebert.train.completion import complete, shape_of_student
from litebert.train.pretrain import task_of
from litebert.train.sources import Sources
from litebert.train.student import convert
from litebert.train.weights import new_network
from tests.networks import (
    PLAIN_SENTENCES,
    config_for,
    plain_tokenizer,
    unshared_network,
)

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


@pytest.fixture(scope="module")
def teacher_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a folder with a text and a teacher, which has layers of their own and
    another vocabulary than its student.
    """
    folder = tmp_path_factory.mktemp("teacher")
    tokenizer = plain_tokenizer(44)
    write_folder(ModelFolder(unshared_network(tokenizer)), folder)
    tokenizer.save(folder)
    documents = list[str]()
    for start in range(0, len(PLAIN_SENTENCES), 8):
        documents.append(" ".join(PLAIN_SENTENCES[start : start + 8]))
    (folder / "text.txt").write_text("\n\n".join(documents))
    return folder


# ---- a start from the teacher --------------------------------------------------------


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return plain_tokenizer(40)


@pytest.fixture(scope="module")
def words(tokenizer: Tokenizer) -> list[int]:
    """Return the ids of pieces that are whole words, whose text gives the same piece."""
    ids = list[int]()
    for number, text in enumerate(tokenizer.texts):
        if text.startswith(" ") and tokenizer.encode(text).ids == [number]:
            ids.append(number)
    assert ids
    return ids


def student_of(
    teacher: AlbertForPretraining, tokenizer: Tokenizer, **changes: object
) -> AlbertForPretraining:
    """Convert a teacher with the same vocabulary."""
    shape = teacher.config.model_copy(update={"embedding_projection": True} | changes)
    student = AlbertForPretraining(shape)
    convert(student, Teacher(teacher.albert, tokenizer, tokenizer))
    return student


def test_a_student_of_equal_width_gets_its_teachers_layers_and_words(
    tokenizer: Tokenizer, words: list[int]
) -> None:
    teacher = unshared_network(tokenizer)
    teacher.albert.plan = teacher.albert.plan[:1]
    teacher.albert.depth = 1
    student = student_of(teacher, tokenizer, num_hidden_layers=1, sharing="all")
    weights = student.albert.state_dict()
    expected = teacher.albert.state_dict()
    for name, weight in weights.items():
        if name.startswith(("attention.0", "feed_forward.0")):
            assert torch.equal(weight, expected[name]), name

    table = expected["embedding.word.weight"]
    lifted = weights["embedding.word.weight"] @ student.masked_lm.dense.weight
    centered = table - table.mean(0)
    torch.testing.assert_close(lifted[words], centered[words], atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("embedding_size", "most_error"),
    [
        (8, 0.9),  # half of the directions
        (16, 1e-5),
        (24, 1e-5),
    ],
)
def test_an_albert_can_teach(
    tokenizer: Tokenizer, words: list[int], embedding_size: int, most_error: float
) -> None:
    draws = torch.Generator().manual_seed(2)
    teacher = AlbertForPretraining(config_for(tokenizer), generator=draws)
    student = student_of(teacher, tokenizer, embedding_size=embedding_size)
    learned = student.albert.embedding
    source = teacher.albert.embedding
    assert isinstance(learned.projection, nn.Linear)
    assert isinstance(source.projection, nn.Linear)
    # directions that the teacher lacks keep their random start
    lifted = learned.projection.weight[:, :16] @ learned.word.weight[:, :16].T
    centered = source.word.weight - source.word.weight.mean(0)
    expected = source.projection.weight @ centered[words].T  # (hidden, words)
    error = (lifted[:, words] - expected).norm() / expected.norm()
    assert error < most_error


def test_neurons_that_never_change_go_into_the_bias(tokenizer: Tokenizer) -> None:
    teacher = unshared_network(tokenizer)
    draws = torch.Generator().manual_seed(3)
    for block in teacher.albert.feed_forward:
        nn.init.normal_(block.intermediate.weight, generator=draws)
        nn.init.normal_(block.output.weight, generator=draws)
        block.intermediate.weight.data[::2] = 0  # every second neuron is a constant
        block.intermediate.bias.data[::2] = 1.5
    student = student_of(teacher, tokenizer, intermediate_size=32)
    states = torch.randn(50, 32, generator=draws)
    for block, source in zip(
        student.albert.feed_forward, teacher.albert.feed_forward, strict=True
    ):
        torch.testing.assert_close(block(states), source(states), atol=1e-4, rtol=1e-4)


def test_the_most_active_neurons_are_kept(tokenizer: Tokenizer) -> None:
    teacher = unshared_network(tokenizer)
    draws = torch.Generator().manual_seed(3)
    block = teacher.albert.feed_forward[0]
    nn.init.normal_(block.intermediate.weight, generator=draws)
    block.output.weight.data[:] = 1
    active = torch.randperm(64, generator=draws)[:16].sort().values
    block.intermediate.bias.data[:] = -100  # all of them silent ...
    block.intermediate.bias.data[active] = 0  # ... but these
    student = student_of(teacher, tokenizer, intermediate_size=16)
    kept = student.albert.feed_forward[0].intermediate.weight
    assert torch.equal(kept, block.intermediate.weight[active])


# ---- the student's shape and the plan ------------------------------------------------


def resolved_for(teacher: Path, **settings: object) -> Resolved[PretrainConfig]:
    values = {"data.corpus": "corpus", "distil.teacher": str(teacher)}
    recipe = recipe_settings("pretrain", "distil")
    return resolve(PretrainConfig, recipe, flags(values | SETTINGS | settings))


@pytest.mark.parametrize(
    ("settings", "num_groups"),
    [
        ({}, 3),
        ({"model.num_hidden_groups": 1}, 1),
        ({"model.num_hidden_layers": 2}, 2),
        ({"model.sharing": "attention"}, 1),
    ],
)
def test_a_student_has_three_blocks_by_default(
    teacher_folder: Path, settings: dict[str, object], num_groups: int
) -> None:
    shape = shape_of_student(resolved_for(teacher_folder, **settings))
    assert shape.num_hidden_groups == num_groups


@pytest.mark.parametrize(
    "settings",
    [
        {"model.num_hidden_groups": 5},  # of four layers
        {"model.hidden_size": 48},  # that the teacher cannot fill
        {"model.intermediate_size": 65},
    ],
)
def test_a_shape_that_the_teacher_cannot_fill_is_refused(
    teacher_folder: Path, settings: dict[str, object]
) -> None:
    resolved = resolved_for(teacher_folder, **settings)
    with pytest.raises(LitebertError, match="LB-515"):
        shape_of_student(resolved)


def test_the_plan_counts_the_plain_texts_of_distillation_too(
    teacher_folder: Path,
) -> None:
    settings = {**SETTINGS, "distil.texts": 5, "distil.text_length": 9}
    run = litebert.distil(
        teacher_folder, teacher_folder / "text.txt", settings=settings, dry_run=True
    )
    assert run.plan is not None
    # 6 steps of 2 sequences of 32 pieces and 5 texts of 9
    assert run.plan.value["tokens"] == 6 * (2 * 32 + 5 * 9)
    # the student's shape, not that of the recipe
    assert re.search(r"model +H 32 x 4 layers", run.plan.text)


# ---- training ------------------------------------------------------------------------


def distil(teacher: Path, runs: Path, **settings: object) -> RunFolder:
    return litebert.distil(
        teacher,
        teacher / "text.txt",
        runs=runs,
        name="student",
        vocab_size=40,
        held_out=0.2,
        settings=SETTINGS | settings,
        quiet=True,
    )


def test_distillation_brings_the_student_nearer_to_its_teacher(
    teacher_folder: Path, tmp_path: Path
) -> None:
    pace: dict[str, Any] = {"train.steps": 60, "train.eval_every": 60}
    run = distil(teacher_folder, tmp_path, **pace)
    evaluations = [row for row in read_metrics(run.folder) if row["kind"] == "eval"]
    first = evaluations[0]
    last = evaluations[-1]
    assert last["vector_error"] < 0.7 * first["vector_error"]
    assert last["hidden_error"] < first["hidden_error"]
    assert set(run.model().verbs) >= {"fill", "order", "embed"}


def test_a_stopped_distillation_resumes_bit_for_bit_from_the_same_teacher(
    teacher_folder: Path, tmp_path: Path
) -> None:
    teacher = shutil.copytree(teacher_folder, tmp_path / "teacher")

    def weights() -> dict[str, Tensor]:
        return distil(teacher, tmp_path).model().network.state_dict()

    whole = weights()
    run = tmp_path / "student"
    shutil.rmtree(run / "checkpoints" / "step-000000006")
    shutil.rmtree(run / "model")
    resumed = weights()
    for name, weight in whole.items():
        assert torch.equal(weight, resumed[name]), name

    with (teacher / "model.safetensors").open("ab") as file:
        file.write(b" ")
    with pytest.raises(LitebertError, match="values of teacher"):
        weights()


def test_a_student_begins_on_the_cpu_and_learns_on_any_device(
    teacher_folder: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the meta device, as on a GPU, every operation refuses tensors of two
    devices.
    """
    resolved = resolved_for(teacher_folder, **{"data.corpus": str(corpus)})
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
