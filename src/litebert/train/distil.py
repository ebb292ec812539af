"""Distillation as a kind of pretraining: the student's shape, its initial weights, its task."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from pydantic import ValidationError

from litebert.config import AlbertConfig, EarlyConfig, ObjectiveConfig, Origin, PretrainConfig, Resolved
from litebert.config.allowed import expected
from litebert.errors import LitebertError
from litebert.folder import read_config
from litebert.hub import locate
from litebert.nn import AlbertForPretraining
from litebert.objectives import longest_first, sentence_objective
from litebert.tasks.conversion import convert, fit_projection
from litebert.tasks.distillation import Distillation
from litebert.tasks.pretraining import Pretraining, micro_batches
from litebert.tasks.surface import Surface
from litebert.tasks.teacher import Teacher, align
from litebert.train.run import choose_device, dtype_of
from litebert.train.sources import Sources, batches_of, loader_for

_FROM_TEACHER = ("hidden_size", "num_attention_heads", "intermediate_size", "hidden_act", "num_hidden_layers")
_ALONE = sentence_objective("none")
_GROUPS = 3
"""Blocks of a student, unless set: with six layers, three blocks reach in 2 minutes what one
reaches in 115 (benchmarks/distillation)."""
_FIT_TEXTS = 256
"""Texts that the embedding projection is fitted on: some 10,000 tokens for E + 1 unknowns each."""


def shape_of_student(resolved: Resolved[PretrainConfig]) -> AlbertConfig:
    """Return the student's configuration: the teacher's widths and depth, unless set.

    Its layers share three blocks, unless `num_hidden_groups` or another sharing is set.

    Raises:
        LitebertError: LB-991, a width differs, so that the student cannot start from the teacher;
            LB-988, the settings and the teacher together give no valid shape.
    """
    config = resolved.config
    teacher = read_config(locate(str(config.distil.teacher)))
    origins: dict[str, Origin] = {n: resolved.origins[f"model.{n}"] for n in _FROM_TEACHER}
    is_ours = {name for name, origin in origins.items() if origin.kind not in ("default", "preset")}
    taken = {name: getattr(teacher, name) for name in _FROM_TEACHER if name not in is_ours}
    shape = config.model.model_dump() | taken
    is_open = resolved.origins["model.num_hidden_groups"].kind in ("default", "preset")
    if is_open and config.model.sharing == "all":
        shape["num_hidden_groups"] = min(_GROUPS, shape["num_hidden_layers"])
    try:
        model = AlbertConfig.model_validate(shape)
    except ValidationError as error:
        raise LitebertError(
            "LB-988",
            "with what it takes from its teacher, the student cannot have this shape",
            received=f"{shape['num_hidden_layers']} layers, {shape['num_hidden_groups']} groups",
            expected=expected(error, AlbertConfig),
            next="litebert distil --help",
        ) from error
    for name in _FROM_TEACHER[:3]:
        size, theirs = getattr(model, name), getattr(teacher, name)
        may_be_less = name == "intermediate_size"
        if size > theirs or (size < theirs and not may_be_less):
            raise LitebertError(
                "LB-991",
                f"a student starts from its teacher's layers: model.{name} does not fit",
                received=f"{size} ({origins[name]})",
                expected=f"{theirs}{' or less' * may_be_less}, as in {config.distil.teacher}",
                next=f"omit model.{name}; choose num_hidden_layers, num_hidden_groups or embedding_size",
            )
    return model


def load_teacher(config: PretrainConfig) -> Teacher:
    """Load the teacher, on the run's device and in its precision."""
    folder = locate(str(config.distil.teacher))
    teacher = Teacher.load(folder, dtype=dtype_of(config.train))
    teacher.encoder.to(choose_device(config.train.device))
    return teacher


def begin_as_teacher(network: AlbertForPretraining, config: PretrainConfig, sources: Sources, teacher: Teacher) -> None:
    """Convert the teacher's weights, then fit the embedding projection on a part of the corpus."""
    convert(network, sources.tokenizer, teacher)
    loader = loader_for(sources.corpus.path, config=_of_texts(config), sentence=_ALONE)
    masked = longest_first(loader.samples(0, _FIT_TEXTS))
    ids = masked.ids.copy()
    ids[masked.masked_positions] = masked.masked_ids
    batch = replace(masked, ids=ids)
    texts, spans = Surface(sources.tokenizer).read(batch.ids, batch.offsets)
    theirs, their_spans = teacher.encode(texts)
    (work,) = micro_batches(batch, None, torch.device("cpu"))
    embedded = teacher.read(theirs, [0]).states[0]
    fit_projection(network, work.batch, align(spans, their_spans), embedded)


def distillation(pretraining: Pretraining, config: PretrainConfig, sources: Sources, teacher: Teacher) -> Distillation:
    """Return the task: pretraining together with learning from a teacher."""
    return Distillation(
        pretraining,
        teacher=teacher,
        surface=Surface(sources.tokenizer),
        open_pairs=partial(batches_of, sources.corpus.path, config=config, sentence=sources.sentence),
        open_texts=partial(loader_for, sources.corpus.path, config=_of_texts(config), sentence=_ALONE),
        held_out_texts=replace(sources, sentence=_ALONE).evaluation(_of_texts(config)),
        train=config.train,
        distil=config.distil,
    )


def _of_texts(config: PretrainConfig) -> PretrainConfig:
    """Return the configuration that draws the plain texts, by `distil.texts` and its lengths."""
    distil = config.distil
    objective = ObjectiveConfig(
        sentence="none", max_seq_length=distil.text_length, short_seq_prob=distil.short_text_prob
    )
    train = config.train.model_copy(update={"batch_size": distil.texts, "micro_batch_size": None})
    changes = {"objective": objective, "train": train, "early": EarlyConfig()}
    return config.model_copy(update=changes)
