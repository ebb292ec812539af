"""The folder of a corpus during a build: begin it, resume it with the same plan, finish it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from shlex import quote
from typing import Literal

from litebert import files
from litebert.corpus.manifest import (
    HELD_OUT,
    MANIFEST,
    PARTS,
    PLAN,
    TOKENIZER,
    CorpusPlan,
    Counts,
    Manifest,
    read_record,
    write_record,
)
from litebert.corpus.part import PartRecord, SideRecord
from litebert.errors import LitebertError
from litebert.files import STAGING_MARK, remove_unfinished, staged_folder
from litebert.tokenizer import Tokenizer


def locked(folder: Path) -> AbstractContextManager[None]:
    """Lock a folder against other builds.

    Raises:
        LitebertError: LB-319, another process has locked it.
    """
    return files.locked(folder, lambda: _busy(folder))


def begin(output: Path, plan: CorpusPlan) -> bool:
    """Prepare a folder for building; return whether the corpus is already finished.

    Raises:
        LitebertError: LB-332, it contains something else; LB-333, it was begun with another plan.
    """
    command = f"rm -r {quote(str(output))}, then rerun the command"
    if (output / MANIFEST).exists():
        manifest = read_record(output / MANIFEST, Manifest, command=command)
        _require_same(manifest.plan, plan, output)
        _clean(output)
        return True
    if (output / PLAN).exists():
        for folder in (output, output / HELD_OUT, output / PARTS):
            remove_unfinished(folder)
        if _holds_work(output):
            _require_same(read_record(output / PLAN, CorpusPlan, command=command), plan, output)
        else:  # the first try failed on its input: a corrected command may use the same folder
            write_record(output / PLAN, plan)
        return False
    _require_empty(output)
    remove_unfinished(output)
    write_record(output / PLAN, plan)
    return False


def finish(output: Path, plan: CorpusPlan, parts: Iterable[PartRecord], tokenizer: Tokenizer) -> None:
    """Write tokenizers and manifests: those of the held-out part first, `corpus.json` last.

    Raises:
        LitebertError: LB-334, LB-343, no document is left to train on, or none is held out.
    """
    parts = sorted(parts, key=lambda record: record.part)
    train = _manifest("train", plan, [record.train for record in parts])
    if not train.counts.documents:
        raise LitebertError(
            "LB-334",
            "no document is left to train on",
            received=f"{train.counts.empty_documents:,} documents without tokens",
            expected="at least one document with text, and not held out",
            next=f"rm -r {quote(str(output))}, then build from more text",
        )
    with staged_folder(output / TOKENIZER) as staged:
        tokenizer.save(staged)
    if plan.held_out:
        held_out = _manifest("held-out", plan, [record.held_out for record in parts])
        if not held_out.counts.documents:
            raise _nothing_held_out(output, plan, train.counts.documents)
        with staged_folder(output / HELD_OUT / TOKENIZER) as staged:
            shutil.copytree(output / TOKENIZER, staged, dirs_exist_ok=True)
        write_record(output / HELD_OUT / MANIFEST, held_out)
    write_record(output / MANIFEST, train)
    _clean(output)


def _busy(folder: Path) -> LitebertError:
    return LitebertError(
        "LB-319",
        f"{folder} is being written by another process",
        received="a locked folder",
        expected="one build at a time in one folder",
        next="wait for it, or choose another --output",
    )


def _nothing_held_out(output: Path, plan: CorpusPlan, num_documents: int) -> LitebertError:
    is_text = any(".txt" in record.name for record in plan.inputs)
    share = min(0.5, max(2 * plan.held_out, 4 / max(1, num_documents)))
    told_apart = "--documents blank-line, " if is_text and plan.documents == "file" else ""
    larger = "blank lines between documents" if num_documents < 2 else f"--held-out {share:.1g}"
    return LitebertError(
        "LB-343",
        "no document is held out to evaluate on",
        received=f"{num_documents:,} documents, of which --held-out {plan.held_out:g} took none",
        expected="enough documents for this share, or a larger share",
        next=f"rm -r {quote(str(output))}, then rerun with {told_apart}{larger}, or --held-out 0",
    )


def _manifest(part: Literal["train", "held-out"], plan: CorpusPlan, sides: Sequence[SideRecord]) -> Manifest:
    shards = tuple(shard for side in sides for shard in side.shards)
    counts = sum((shard.counts for shard in shards), Counts())
    rest = sum((side.rest for side in sides), Counts())
    return Manifest(part=part, plan=plan, counts=counts + rest, shards=shards)


def _clean(output: Path) -> None:
    for folder in (output, output / HELD_OUT):
        remove_unfinished(folder)
    (output / PLAN).unlink(missing_ok=True)
    shutil.rmtree(output / PARTS, ignore_errors=True)


def _holds_work(output: Path) -> bool:
    """Tell whether a build has finished anything here: a shard of either part, or a record."""
    return any(
        any(folder.glob(pattern))
        for folder, pattern in ((output, "shard-*"), (output / HELD_OUT, "shard-*"), (output / PARTS, "*"))
    )


def _require_empty(output: Path) -> None:
    found = sorted(path.name for path in output.iterdir() if not path.name.startswith(PLAN + STAGING_MARK))
    if found:
        raise LitebertError(
            "LB-332",
            f"{output} is not empty",
            received=f"{len(found)} files or folders, such as {found[0]}",
            expected="a new folder, or one where a build of this corpus was begun",
            next="choose another --output",
        )


def _require_same(begun: CorpusPlan, plan: CorpusPlan, output: Path) -> None:
    differences = _differences(begun, plan)
    if differences:
        raise LitebertError(
            "LB-333",
            f"{output} was begun with other settings or inputs",
            received="; ".join(differences),
            expected="the same command, or another folder",
            next=f"choose another --output, or rm -r {quote(str(output))} to start again",
        )


def _differences(begun: CorpusPlan, plan: CorpusPlan) -> list[str]:
    """Name each field that differs, as `field: before -> now`.

    >>> plan = CorpusPlan(tokenizer_hash="a", vocab_size=9, sentences="line", documents="file",
    ...     column="text", language="en", held_out=0, shard_tokens=1, inputs=())
    >>> _differences(plan, plan.model_copy(update={"column": "body"}))
    ['column: text -> body']
    """
    names = [name for name in CorpusPlan.model_fields if name != "inputs"]
    changed = [
        f"{name}: {getattr(begun, name)} -> {getattr(plan, name)}"
        for name in names
        if getattr(begun, name) != getattr(plan, name)
    ]
    if len(begun.inputs) != len(plan.inputs):
        changed.append(f"inputs: {len(begun.inputs)} -> {len(plan.inputs)} files")
    changed += [
        f"inputs: {before.name} of {before.size:,} bytes -> {now.name} of {now.size:,} bytes"
        for before, now in zip(begun.inputs, plan.inputs, strict=False)
        if before != now
    ][:3]
    return changed
