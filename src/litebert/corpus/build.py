"""Build a corpus folder from inputs: parts in parallel, resumed where a killed build stopped.

The folder of a build has `build.json`, the plan; `shard-IIIII-JJJJ` of part IIIII, here and in `held-out/`; and
`parts/IIIII.json` for each part that is done. At the end come tokenizers and manifests, `corpus.json` last.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice, pairwise
from pathlib import Path
from shlex import quote
from typing import Literal

import numpy as np

from litebert import files
from litebert.config.schema import Section
from litebert.corpus.corpus import Shard, open_shard
from litebert.corpus.manifest import (
    HELD_OUT,
    MANIFEST,
    PARTS,
    PLAN,
    TOKENIZER,
    CorpusPlan,
    Counts,
    InputRecord,
    Manifest,
    ShardRecord,
    read_record,
    write_record,
)
from litebert.corpus.pool import num_cores, run_local, run_on_ray
from litebert.corpus.text import read_passages, sentence_chunks, text_settings
from litebert.corpus.write import HEADER_BYTES, ShardSeries, ShardWriter
from litebert.errors import LitebertError
from litebert.files import STAGING_MARK, remove_unfinished, staged_folder
from litebert.reading.source import Source, find_texts
from litebert.tokenizer import Tokenizer

SHARD_TOKENS = 64 << 20
PART_BYTES = 16 << 20
"""Consecutive inputs form one part of the work up to this size, so small files share a shard."""
BATCH_CHARACTERS = 1 << 18
HEAD_CHARACTERS = 1 << 14
SECONDS_BETWEEN = 1.0
"""The time between two notes of how much has been read, and between two reports."""


@dataclass(frozen=True)
class CorpusSummary:
    """The results of a build; `held_out` is None if nothing was to be held out."""

    path: Path
    num_shards: int
    train: Counts
    held_out: Counts | None


@dataclass(frozen=True)
class BuildProgress:
    """The progress of a build; `tokens` are of the whole build, the rate is of this process.

    `share` is the share of the input's bytes that have been read.
    """

    parts_done: int
    num_parts: int
    tokens: int
    tokens_per_second: float
    share: float

    @property
    def seconds_left(self) -> float | None:
        """An estimate of the seconds left; None until something has been read."""
        if not self.share or not self.tokens_per_second:
            return None
        return self.tokens * (1 / self.share - 1) / self.tokens_per_second


Report = Callable[[BuildProgress], None]


def build_corpus(
    inputs: Iterable[str | Path],
    *,
    tokenizer: str | Path,
    output: str | Path,
    sentences: str = "segment",
    documents: str = "blank-line",
    column: str = "text",
    language: str = "en",
    held_out: float = 0.0,
    shard_tokens: int = SHARD_TOKENS,
    workers: int | None = None,
    cluster: bool = False,
    report: Report | None = None,
) -> CorpusSummary:
    """Tokenise text files into a corpus for `Corpus.open`; rerun a killed build to resume it.

    The bytes are the same for any number of `workers` (default: all cores) and on a Ray `cluster`. `held_out` is the
    share of documents that go to a corpus of their own, `output`/held-out: at least one document, or the end of the
    only one. A script that calls this with several workers needs the usual `if __name__ == "__main__":`.
    """
    text = text_settings(sentences=sentences, documents=documents, column=column, language=language)
    workers = num_cores() if workers is None else workers
    require_share(held_out)
    for flag, value in (("--shard-tokens", shard_tokens), ("--workers", workers)):
        if value < 1:
            next_step = f"omit {flag} for the default"
            raise LitebertError("LB-336", f"{flag} is too small", received=value, expected="1 or more", next=next_step)
    sources = find_texts(inputs)
    loaded = Tokenizer.load(tokenizer)
    plan = CorpusPlan(
        tokenizer_hash=loaded.hash,
        vocab_size=loaded.vocab_size,
        sentences=text.sentences,
        documents=text.documents,
        column=text.column,
        language=text.language,
        held_out=held_out,
        shard_tokens=shard_tokens,
        inputs=tuple(InputRecord(name=source.name, size=source.size) for source in sources),
    )
    folder = Path(output)
    with locked(folder):
        if not _begin(folder, plan):
            small = plan.model_copy(update={"inputs": ()})
            groups = list(_grouped(sources))
            tasks = [
                PartTask(number, tuple(group), Path(tokenizer).absolute(), small, folder.absolute())
                for number, group in enumerate(groups)
            ]
            with _reported(folder, tasks, report):
                parts = list(
                    run_on_ray(build_part, tasks) if cluster else run_local(build_part, tasks, workers=workers)
                )
            _finish(folder, plan, sorted(parts, key=lambda record: record.part), loaded)
    return _summary(folder)


def require_share(held_out: float) -> None:
    """Check the share of documents that is held out."""
    if not 0 <= held_out < 1:
        raise LitebertError(
            "LB-335",
            "--held-out is not a share",
            received=held_out,
            expected="0 or more, below 1; 0.01 is a hundredth of the documents",
            next="--held-out 0.01",
        )


def locked(folder: Path) -> AbstractContextManager[None]:
    """Lock a folder against other builds."""
    return files.locked(
        folder,
        lambda: LitebertError(
            "LB-319",
            f"{folder} is being written by another process",
            received="a locked folder",
            expected="one build at a time in one folder",
            next="wait for it, or choose another --output",
        ),
    )


def _grouped(sources: Iterable[Source]) -> Iterator[list[Source]]:
    """Group consecutive inputs: a part ends before it would exceed `PART_BYTES`."""
    group: list[Source] = []
    for source in sources:
        if group and sum(member.size for member in group) + source.size > PART_BYTES:
            yield group
            group = []
        group.append(source)
    yield group


def _summary(folder: Path) -> CorpusSummary:
    command = f"rm -r {quote(str(folder))}, then rerun the command"
    train = read_record(folder / MANIFEST, Manifest, command=command)
    if not train.plan.held_out:
        return CorpusSummary(folder, len(train.shards), train.counts, None)
    rest = read_record(folder / HELD_OUT / MANIFEST, Manifest, command=command)
    return CorpusSummary(folder, len(train.shards) + len(rest.shards), train.counts, rest.counts)


# One part: some consecutive inputs become shards.


@dataclass(frozen=True)
class PartTask:
    """Everything that one part depends on, small enough to send to another machine (the plan without its inputs)."""

    part: int
    sources: tuple[Source, ...]
    tokenizer: Path
    plan: CorpusPlan
    output: Path

    @property
    def record_path(self) -> Path:
        """The record that marks this part as done; `.read` beside it notes how much has been read."""
        return self.output / PARTS / f"{self.part:05d}.json"


class SideRecord(Section):
    """The training or held-out shards of a part; `rest` counts documents after the last shard."""

    shards: tuple[ShardRecord, ...]
    rest: Counts


class PartRecord(Section):
    """A finished part: its training and held-out shards."""

    part: int
    train: SideRecord
    held_out: SideRecord


def build_part(task: PartTask) -> PartRecord:
    """Tokenise the inputs of one part into shards, continuing after the complete ones."""
    plan = task.plan
    if task.record_path.exists():
        command = f"rm {task.record_path}, then rerun the command"
        return read_record(task.record_path, PartRecord, command=command)
    tokenizer = _tokenizer(task.tokenizer, plan.tokenizer_hash)
    text = text_settings(sentences=plan.sentences, documents=plan.documents, column=plan.column, language=plan.language)
    num_documents = bytes_before = bytes_read = 0

    def note(of_this_input: int) -> None:
        nonlocal bytes_read
        bytes_read = bytes_before + of_this_input

    def chunks() -> Iterator[tuple[ShardSeries, int, list[str]]]:
        """Yield the sentences of every document still to be built, with its side and number, in chunks."""
        nonlocal num_documents, bytes_before
        series = train
        for source in task.sources:
            for passage in read_passages(replace(source, on_read=note), text):
                if passage.is_start:
                    num_documents += 1
                    series = held_out if plan.held_out and is_held_out(passage.text, plan.held_out) else train
                if num_documents > series.consumed:
                    for sentences in sentence_chunks(passage.text, text):
                        yield series, num_documents - 1, sentences
            bytes_before += source.size

    with ExitStack() as stack:
        train, held_out = (
            stack.enter_context(
                ShardSeries(
                    folder,
                    task.part,
                    dtype=plan.token_dtype,
                    unknown_id=tokenizer.unk_id,
                    shard_tokens=plan.shard_tokens,
                )
            )
            for folder in (task.output, task.output / HELD_OUT)
        )
        noted = time.monotonic()
        for batch in _batches(chunks()):
            texts = [sentence for _, _, sentences in batch for sentence in sentences]
            ids = iter(tokenizer.encode_ids(texts, num_threads=1))
            for series, document, sentences in batch:
                series.add(document, [next(ids) for _ in sentences])
            if time.monotonic() - noted >= SECONDS_BETWEEN:
                files.write_json(task.record_path.with_suffix(".read"), bytes_read)
                noted = time.monotonic()
        rests = [side.close(consumed=num_documents) for side in (train, held_out)]
        record = PartRecord(
            part=task.part,
            train=SideRecord(shards=tuple(train.shards), rest=rests[0]),
            held_out=SideRecord(shards=tuple(held_out.shards), rest=rests[1]),
        )
    write_record(task.record_path, record)
    return record


def _batches(
    chunks: Iterator[tuple[ShardSeries, int, list[str]]],
) -> Iterator[list[tuple[ShardSeries, int, list[str]]]]:
    """Collect chunks of about BATCH_CHARACTERS: what the tokenizer gets at once."""
    batch, size = [], 0
    for chunk in chunks:
        batch.append(chunk)
        size += sum(map(len, chunk[2])) + 1
        if size >= BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


@lru_cache(maxsize=1)
def _tokenizer(path: Path, hash: str) -> Tokenizer:
    """Load a tokenizer once per process."""
    tokenizer = Tokenizer.load(path)
    if tokenizer.hash != hash:
        raise LitebertError(
            "LB-321",
            f"the tokenizer at {path} changed while the corpus was built",
            received=tokenizer.hash[:16],
            expected=hash[:16],
            next="restore the former tokenizer, then rerun the command",
        )
    return tokenizer


def is_held_out(text: str, share: float) -> bool:
    """Decide by a hash of the beginning of a document, without white space.

    The beginning suffices: documents with the same first 16,384 characters stay together, and no document has to fit
    in memory.

    >>> is_held_out("A  text.", 0.5) == is_held_out("A text.\\n", 0.5)
    True
    """
    head = "".join(text[: 4 * HEAD_CHARACTERS].split())[:HEAD_CHARACTERS]
    digest = hashlib.blake2b(head.encode(), digest_size=8, person=b"held-out").digest()
    return int.from_bytes(digest, "little") < share * 2.0**64


# The folder: begun, resumed with the same plan, finished.


def _begin(output: Path, plan: CorpusPlan) -> bool:
    """Prepare a folder for building; return whether the corpus is already finished."""
    command = f"rm -r {quote(str(output))}, then rerun the command"
    if (output / MANIFEST).exists():
        _require_same(read_record(output / MANIFEST, Manifest, command=command).plan, plan, output)
        _clean(output)
        return True
    if (output / PLAN).exists():
        for folder in (output, output / HELD_OUT, output / PARTS):
            remove_unfinished(folder)
        places = ((output, "shard-*"), (output / HELD_OUT, "shard-*"), (output / PARTS, "*"))
        if any(any(folder.glob(pattern)) for folder, pattern in places):
            _require_same(read_record(output / PLAN, CorpusPlan, command=command), plan, output)
            return False
        # Without any work the first try failed on its input: a corrected command may use the same folder.
    elif found := sorted(path.name for path in output.iterdir() if not path.name.startswith(PLAN + STAGING_MARK)):
        raise LitebertError(
            "LB-332",
            f"{output} is not empty",
            received=f"{len(found)} files or folders, such as {found[0]}",
            expected="a new folder, or one where a build of this corpus was begun",
            next="choose another --output",
        )
    remove_unfinished(output)
    write_record(output / PLAN, plan)
    return False


def _require_same(begun: CorpusPlan, plan: CorpusPlan, output: Path) -> None:
    if differences := _differences(begun, plan):
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
    changed = [
        f"{name}: {getattr(begun, name)} -> {getattr(plan, name)}"
        for name in CorpusPlan.model_fields
        if name != "inputs" and getattr(begun, name) != getattr(plan, name)
    ]
    if len(begun.inputs) != len(plan.inputs):
        changed.append(f"inputs: {len(begun.inputs)} -> {len(plan.inputs)} files")
    pairs = zip(begun.inputs, plan.inputs, strict=False)
    differing = [(before, now) for before, now in pairs if before != now]
    return changed + [
        f"inputs: {before.name} of {before.size:,} bytes -> {now.name} of {now.size:,} bytes"
        for before, now in differing[:3]
    ]


def _finish(output: Path, plan: CorpusPlan, parts: Sequence[PartRecord], tokenizer: Tokenizer) -> None:
    """Write tokenizers and manifests: those of the held-out part first, `corpus.json` last."""
    train = _manifest("train", plan, [record.train for record in parts])
    held_out = _manifest("held-out", plan, [record.held_out for record in parts])
    if not train.shards and not held_out.shards:
        _discard(output)
        raise LitebertError(
            "LB-334",
            "no document is left to train on",
            received=f"{train.counts.empty_documents + held_out.counts.empty_documents:,} documents without tokens",
            expected="at least one document with text",
            next="rerun the command with more text",
        )
    if plan.held_out and not (train.shards and held_out.shards):
        train, held_out = _divided(output, plan, train, held_out, tokenizer.unk_id)
    with staged_folder(output / TOKENIZER) as staged:
        tokenizer.save(staged)
    if plan.held_out:
        with staged_folder(output / HELD_OUT / TOKENIZER) as staged:
            shutil.copytree(output / TOKENIZER, staged, dirs_exist_ok=True)
        write_record(output / HELD_OUT / MANIFEST, held_out)
    write_record(output / MANIFEST, train)
    _clean(output)


def _manifest(part: Literal["train", "held-out"], plan: CorpusPlan, sides: Sequence[SideRecord]) -> Manifest:
    shards = tuple(shard for side in sides for shard in side.shards)
    rest = sum((side.rest for side in sides), Counts())
    return Manifest(part=part, plan=plan, counts=sum((shard.counts for shard in shards), rest), shards=shards)


def _divided(
    output: Path, plan: CorpusPlan, train: Manifest, held_out: Manifest, unknown_id: int
) -> tuple[Manifest, Manifest]:
    """Divide a shard where chance, by hash, gave all documents to one side.

    At least one document is held out: the last ones that have no copy, so that nothing is held out that is also
    trained on. Of a single document it is the end. The old shard stays until the manifests are written, beside a new
    one under the next free name, so that a build killed here does the same again.
    """
    full = train if train.shards else held_out
    folders = {"train": output, "held-out": output / HELD_OUT}
    command = plan.command(output)
    shards = [open_shard(folders[full.part], record, plan, command=command) for record in full.shards]
    num_documents, num_sentences = full.counts.documents, full.counts.sentences
    if num_sentences < 2:
        _discard(output)
        raise LitebertError(
            "LB-343",
            "no document is held out to evaluate on",
            received="one document of one sentence",
            expected="two sentences or more",
            next="rerun the command with more text, or with --held-out 0",
        )
    if num_documents == 1:
        place = len(shards) - 1
        cut = num_sentences - max(min(2, num_sentences // 2), round(plan.held_out * num_sentences))
        trained, evaluated = [(0, cut)], [(cut, num_sentences)]
    else:
        wanted = max(1, round(plan.held_out * num_documents))
        moved = min(wanted if full is train else max(1, num_documents - wanted), num_documents - 1)
        place, chosen = len(shards) - 1, [len(shards[-1].documents) - 2]
        for candidate in reversed(range(len(shards))):
            last_first = reversed(range(len(shards[candidate].documents) - 1))
            unique = list(islice((n for n in last_first if not _has_copy(shards, candidate, n)), moved))
            if unique:
                place, chosen = candidate, unique
                break
        ranges = list(enumerate(pairwise(shards[place].documents.tolist())))  # of sentences, one for each document
        leaving = [each for number, each in ranges if number in chosen]
        staying = [each for number, each in ranges if number not in chosen]
        trained, evaluated = (staying, leaving) if full is train else (leaving, staying)

    record, shard = full.shards[place], shards[place]
    part = record.name.split("-")[1]
    in_part = sum(each.name.split("-")[1] == part for each in full.shards)
    manifests = []
    for manifest, documents in ((train, trained), (held_out, evaluated)):
        is_full = manifest is full
        rest = manifest.counts - sum((each.counts for each in manifest.shards), Counts())
        written: list[ShardRecord] = []
        if documents:
            writer = ShardWriter(
                folders[manifest.part] / f"shard-{part}-{in_part if is_full else 0:04d}", plan.token_dtype, unknown_id
            )
            for start, stop in documents:
                offsets = shard.sentences[start : stop + 1].tolist()
                writer.append([shard.tokens[a:b].tolist() for a, b in pairwise(offsets)])
                writer.end_document()
            counts = Counts(single_sentence_documents=sum(stop - start == 1 for start, stop in documents))
            if is_full:  # what was left out of the old shard was left out of the new one
                was = record.counts
                counts += Counts(empty_documents=was.empty_documents, empty_sentences=was.empty_sentences)
            written.append(writer.finish(record.consumed, counts))
        records = (*full.shards[:place], *written, *full.shards[place + 1 :]) if is_full else tuple(written)
        counts = sum((each.counts for each in records), rest)
        manifests.append(manifest.model_copy(update={"shards": records, "counts": counts}))
    return manifests[0], manifests[1]


def _has_copy(shards: Sequence[Shard], place: int, number: int) -> bool:
    """Whether a document stands anywhere else among the shards."""

    def tokens_of(shard: Shard, document: int) -> bytes:
        return shard.between(int(shard.documents[document]), int(shard.documents[document + 1])).tobytes()

    size = np.diff(shards[place].sentences[shards[place].documents])[number]
    wanted = tokens_of(shards[place], number)
    return any(
        tokens_of(shard, other) == wanted
        for at, shard in enumerate(shards)
        for other in np.flatnonzero(np.diff(shard.sentences[shard.documents]) == size).tolist()
        if (at, other) != (place, number)
    )


def _discard(output: Path) -> None:
    """Remove a build from which nothing can become: a corrected command may use the same folder."""
    for pattern in ("shard-*", PARTS, HELD_OUT):
        for path in output.glob(pattern):
            shutil.rmtree(path)
    (output / PLAN).unlink()


def _clean(output: Path) -> None:
    """Remove what a finished corpus does not need, and the shards that another one has replaced."""
    for folder in (output, output / HELD_OUT):
        remove_unfinished(folder)
        if (folder / MANIFEST).exists():
            manifest = read_record(folder / MANIFEST, Manifest, command=f"rm -r {quote(str(output))}")
            for path in {*folder.glob("shard-*")} - {folder / record.name for record in manifest.shards}:
                shutil.rmtree(path)
    (output / PLAN).unlink(missing_ok=True)
    shutil.rmtree(output / PARTS, ignore_errors=True)


# Progress, read from the folder, so that it includes workers on other machines.


@contextmanager
def _reported(output: Path, tasks: Sequence[PartTask], report: Report | None) -> Iterator[None]:
    """Call `report` once per second, from a thread, and once at the end of the block."""
    if report is None:
        yield
        return
    sizes = [sum(source.size for source in task.sources) for task in tasks]
    token_bytes = np.dtype(tasks[0].plan.token_dtype).itemsize
    started, done = time.monotonic(), threading.Event()

    def size_of(path: Path) -> int:
        try:
            return max(path.stat().st_size - HEADER_BYTES, 0)
        except FileNotFoundError:  # renamed since it was listed
            return 0

    def bytes_read(part: int) -> int:
        try:
            return int(tasks[part].record_path.with_suffix(".read").read_text(encoding="utf-8"))
        except FileNotFoundError:  # its first batch is not done
            return 0

    def tokens_now() -> int:
        """Count tokens by file sizes, including shards that are still being written."""
        folders = (output, output / HELD_OUT)
        return sum(size_of(path) for each in folders for path in each.glob("shard-*/tokens.npy")) // token_bytes

    def look() -> BuildProgress:
        finished = {int(path.stem) for path in (output / PARTS).glob("*.json")}
        tokens = tokens_now()
        rate = (tokens - tokens_before) / max(time.monotonic() - started, 1e-9)
        read = sum(size if part in finished else bytes_read(part) for part, size in enumerate(sizes))
        return BuildProgress(len(finished), len(sizes), tokens, rate, min(read / (sum(sizes) or 1), 1.0))

    def run() -> None:
        while not done.wait(SECONDS_BETWEEN):
            report(look())

    tokens_before = tokens_now()
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    report(look())
