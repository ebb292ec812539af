"""Merge corpora with the same vocabulary into one, without reading any text again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from litebert.corpus.folder import locked
from litebert.corpus.manifest import HELD_OUT, MANIFEST, SHARD, TOKENIZER, Counts, Manifest, ShardRecord, write_record
from litebert.corpus.shards import Corpus
from litebert.errors import LitebertError
from litebert.files import remove_unfinished, require_absent, staged_folder

_SAME = ("tokenizer_hash", "vocab_size", "sentences", "documents", "column", "language", "held_out")


def merge_corpora(folders: Sequence[str | Path], output: str | Path) -> Counts:
    """Write a corpus with all shards, in the order of the folders; return its counts.

    Shards are hard links if the disk allows it, otherwise copies.

    Raises:
        LitebertError: LB-275, they were built differently; LB-276, `output` exists.
    """
    corpora, output = [Corpus.open(folder) for folder in folders], Path(output)
    _require_alike(corpora)
    require_absent(
        "LB-276", f"{output} exists already", output, expected="a new folder", next="choose another --output"
    )
    held_out = [part for corpus in corpora if (part := corpus.held_out()) is not None]
    with locked(output.parent):
        remove_unfinished(output.parent, output.name)
        with staged_folder(output) as staged:
            counts = _write(corpora, staged)
            if held_out:
                _write(held_out, staged / HELD_OUT)
    return counts


def _write(corpora: Sequence[Corpus], folder: Path) -> Counts:
    folder.mkdir(exist_ok=True)
    shutil.copytree(corpora[0].tokenizer_path, folder / TOKENIZER)
    records: list[ShardRecord] = []
    first_part = 0
    for corpus in corpora:
        last_part = first_part
        for record in corpus.manifest.shards:
            part, index = map(int, record.name.split("-")[1:])
            name = f"shard-{first_part + part:05d}-{index:04d}"
            renamed = record.model_copy(update={"name": name})
            last_part = max(last_part, first_part + part)
            target = folder / renamed.name
            shutil.copytree(corpus.path / record.name, target, copy_function=_link)
            (target / SHARD).unlink()
            write_record(target / SHARD, renamed)
            records.append(renamed)
        first_part = last_part + 1
    counts = sum((corpus.manifest.counts for corpus in corpora), Counts())
    plans = [corpus.manifest.plan for corpus in corpora]
    plan = plans[0].model_copy(
        update={
            "inputs": tuple(each for plan in plans for each in plan.inputs),
            "shard_tokens": max(plan.shard_tokens for plan in plans),
        }
    )
    manifest = Manifest(part=corpora[0].manifest.part, plan=plan, counts=counts, shards=tuple(records))
    write_record(folder / MANIFEST, manifest)
    return counts


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another disk, or one without links
        shutil.copy2(source, target)


def _require_alike(corpora: Sequence[Corpus]) -> None:
    first = corpora[0].manifest.plan
    for corpus in corpora[1:]:
        plan = corpus.manifest.plan
        differing = [name for name in _SAME if getattr(plan, name) != getattr(first, name)]
        if differing:
            raise LitebertError(
                "LB-275",
                "corpora that were built differently cannot be merged",
                received=f"{corpus.path}: another {', '.join(differing)}",
                expected=f"that of {corpora[0].path}",
                next="litebert corpus mix, which only needs one vocabulary",
            )
