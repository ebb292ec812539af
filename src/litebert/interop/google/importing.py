"""Convert a checkpoint of Google's code to a model folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from litebert.config import AlbertConfig, HeadKind
from litebert.files import require_absent, staged_folder
from litebert.folder import write_config
from litebert.folder.weights import WEIGHTS_FILE
from litebert.interop.google.bundle import read_bundle
from litebert.interop.google.configuration import read_official_config
from litebert.interop.google.heads import find_head
from litebert.interop.google.location import checkpoint_at, find_config, find_vocabulary
from litebert.interop.google.names import is_slot
from litebert.interop.google.optimizer import require_optimizer, write_optimizer
from litebert.interop.google.plan import ImportPlan, plan_import
from litebert.interop.google.source import albert_in, require_groups
from litebert.interop.google.streamed import write_tensors
from litebert.tokenizer import Tokenizer

_PROJECTION_WEIGHT = "albert.encoder.embedding_hidden_mapping_in.weight"
_PROJECTION_BIAS = "albert.encoder.embedding_hidden_mapping_in.bias"
_HEADS = {"masked_lm": "masked LM", "sentence_order": "sentence order"}


@dataclass(frozen=True)
class GoogleImport:
    """What was read and written: `missing` parameters and `unused` variables by name."""

    checkpoint: str
    folder: str
    num_variables: int
    num_parameters: int
    dtypes: tuple[str, ...]
    heads: tuple[str, ...]
    tokenizer: str | None
    optimizer_step: int | None
    missing: tuple[str, ...]
    unused: tuple[str, ...]
    notes: tuple[str, ...]


def import_checkpoint(
    path: Path,
    output: Path,
    *,
    config: Path | None = None,
    tokenizer: Path | None = None,
    head: HeadKind | None = None,
    labels: Sequence[str] = (),
    attention_heads: int | None = None,
    has_optimizer: bool = False,
) -> GoogleImport:
    """Write the model folder `output` from an archive, a folder, a prefix or a TF-Hub module.

    Only one tensor at a time is in memory. With `has_optimizer` the folder also gets the moments,
    under the names of `litebert.optim.state_tensors`, and the number of steps.

    Raises:
        LitebertError: LB-700 to LB-725, LB-728: nothing is left at `output` then.
    """
    require_absent(
        "LB-728",
        f"{output} already exists",
        output,
        expected="a new folder: nothing is overwritten",
        next="choose another folder with --output, or remove this one",
        or_empty=True,
    )
    with checkpoint_at(path, workplace=output.absolute().parent) as (prefix, notes):
        source = albert_in(read_bundle(prefix))
        shapes = {name: source.bundle.entries[key].shape for name, key in source.stored.items()}
        task = find_head(shapes, kind=head, labels=tuple(labels))
        settings, doubts = read_official_config(config or find_config(prefix), attention_heads=attention_heads)
        require_groups(source, settings)
        if source.is_folded:
            settings = settings.model_copy(update={"embedding_size": settings.hidden_size})
        plan = plan_import(source, settings, task)
        if has_optimizer:
            require_optimizer(source)
        vocabulary = tokenizer or find_vocabulary(prefix)
        with staged_folder(output) as staged:
            _write_weights(staged, plan)
            step = write_optimizer(staged, plan) if has_optimizer else None
            about_words = _write_tokenizer(staged, vocabulary, settings)
        return GoogleImport(
            checkpoint=prefix.name,
            folder=str(output),
            num_variables=len(plan.used),
            num_parameters=sum(each.num_parameters for each in plan.found),
            dtypes=tuple(sorted({source.dtype(name) for name in plan.used})),
            heads=_heads(plan),
            tokenizer=vocabulary.name if vocabulary else None,
            optimizer_step=step,
            missing=tuple(each.parameter for each in plan.missing),
            unused=tuple(plan.unused),
            notes=(*notes, *doubts, *_notes(plan, step), *about_words),
        )


def _write_weights(folder: Path, plan: ImportPlan) -> None:
    wanted = [*plan.found, *plan.extra]
    shapes = {each.tensor: each.shape for each in wanted}
    size = plan.config.hidden_size
    if not plan.config.projects_embeddings:  # transformers has a projection even where E = H
        shapes |= {_PROJECTION_WEIGHT: (size, size), _PROJECTION_BIAS: (size,)}

    def value(tensor: str) -> NDArray[np.float32]:
        if plan.source.variables_of(tensor):
            return plan.source.read(tensor)
        is_weight = tensor == _PROJECTION_WEIGHT
        return np.eye(size, dtype=np.float32) if is_weight else np.zeros(size, np.float32)

    parameters = [each.parameter for each in plan.found]
    write_config(plan.config, folder, head=plan.head, parameters=parameters)
    write_tensors(folder / WEIGHTS_FILE, shapes, value)


def _write_tokenizer(folder: Path, vocabulary: Path | None, config: AlbertConfig) -> list[str]:
    if vocabulary is None:
        return ["no tokenizer was found with the checkpoint: add one with --tokenizer FILE"]
    tokenizer = Tokenizer.load(vocabulary)
    tokenizer.save(folder, max_length=config.max_position_embeddings)
    if tokenizer.vocab_size == config.vocab_size:
        return []
    return [
        f"{vocabulary.name} has {tokenizer.vocab_size:,} pieces, the word table "
        f"{config.vocab_size:,} rows: make sure that they belong together"
    ]


def _heads(plan: ImportPlan) -> tuple[str, ...]:
    if plan.head is not None:
        return (plan.head.kind,)
    whole = {each.parameter.split(".")[0] for each in plan.found}
    whole -= {each.parameter.split(".")[0] for each in plan.missing}
    return tuple(name for module, name in _HEADS.items() if module in whole)


def _notes(plan: ImportPlan, step: int | None) -> list[str]:
    notes = []
    if plan.source.is_folded:
        notes.append(
            "the words are mapped to the width of the layers before positions are added, as in "
            "albert_zh: table and map became one table, a network with E = H that computes the same"
        )
    if plan.source.is_old:
        notes.append(
            "albert_zh also has a network with layer norms before the sub-layers, under the same "
            "names: this is read as the one with layer norms after them"
        )
    if plan.missing:
        names = sorted({each.parameter.rpartition(".")[0] for each in plan.missing})
        notes.append(f"not in the checkpoint: {', '.join(names)}")
    if plan.unused:
        notes.append(f"left out: {', '.join(plan.unused)}")
    if step is None and any(map(is_slot, plan.source.stored)):
        notes.append("the optimizer was omitted: --optimizer keeps it")
    return notes
