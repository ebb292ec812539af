"""Build a corpus folder from inputs: parts in parallel, resumed where a killed build stopped.

The folder of a build has `build.json`, the plan; `shard-IIIII-JJJJ` of part IIIII, here and in `held-out/`; and
`parts/IIIII.json` for each part that is done. At the end come tokenizers and manifests, `corpus.json` last.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from shlex import quote
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np

from litebert import files
from litebert.config import Section
from litebert.corpus.corpus import num_cores
from litebert.corpus.shards import (
    HELD_OUT,
    MANIFEST,
    PARTS,
    PLAN,
    SHARD,
    TOKENIZER,
    CorpusPlan,
    Counts,
    Ids,
    InputRecord,
    Manifest,
    ShardRecord,
    ShardWriter,
    open_shard,
    read_record,
    write_record,
)
from litebert.corpus.text import TextSettings, read_passages, sentence_chunks, text_settings
from litebert.errors import LitebertError, ResourceError, missing_package
from litebert.reading.source import Source, find_texts
from litebert.tokenizer import Tokenizer

Task = TypeVar("Task")
Result = TypeVar("Result")

SHARD_TOKENS = 64 << 20
PART_BYTES = 16 << 20  # consecutive inputs form one part of the work up to this size, so small files share a shard
BATCH_CHARACTERS = 1 << 18  # that the tokenizer gets at once
HEAD_CHARACTERS = 1 << 14  # by which it is decided whether a document is held out
SECONDS_BETWEEN = 1.0  # two notes of how much has been read, and two reports


@dataclass(frozen=True)
class CorpusSummary:
    """The results of a build; `held_out` is None if nothing was to be held out."""

    path: Path
    num_shards: int
    train: Counts
    held_out: Counts | None


@dataclass(frozen=True)
class BuildProgress:
    """The progress of a build; `tokens` are of the whole build, the rate is of this process."""

    parts_done: int
    num_parts: int
    tokens: int
    tokens_per_second: float
    share: float  # of the input's bytes, that has been read

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
    if workers < 1:
        raise LitebertError("LB-336", "--workers is too small", received=workers, next="omit it for all cores")
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
            groups, size = [list[Source]()], 0
            for source in sources:
                if groups[-1] and size + source.size > PART_BYTES:
                    groups.append([])
                    size = 0
                groups[-1].append(source)
                size += source.size
            small = plan.model_copy(update={"inputs": ()})
            tasks = [
                PartTask(number, tuple(group), text, Path(tokenizer).absolute(), small, folder.absolute())
                for number, group in enumerate(groups)
            ]
            done = run_on_ray(build_part, tasks) if cluster else run_local(build_part, tasks, workers=workers)
            with _reported(tasks, report):
                parts = list(done)
            _finish(folder, plan, sorted(parts, key=lambda record: record.part), loaded)
    command = f"rm -r {quote(str(folder))}, then rerun the command"
    train = read_record(folder / MANIFEST, Manifest, command=command)
    rest = read_record(folder / HELD_OUT / MANIFEST, Manifest, command=command) if held_out else None
    num_shards = len(train.shards) + (len(rest.shards) if rest else 0)
    return CorpusSummary(folder, num_shards, train.counts, rest.counts if rest else None)


def require_share(held_out: float) -> None:
    """Check the share of documents that is held out."""
    if not 0 <= held_out < 1:
        expected = "0 or more, below 1; 0.01 is a hundredth of the documents"
        advice = "--held-out 0.01"
        raise LitebertError("LB-335", "--held-out is not a share", received=held_out, expected=expected, next=advice)


def locked(folder: Path) -> AbstractContextManager[None]:
    """Lock a folder against other builds."""
    what, advice = f"{folder} is being written by another process", "wait for it, or choose another --output"
    return files.locked(folder, lambda: LitebertError("LB-319", what, next=advice))


# ---- one part: the shards of each of its sides ----------------------------------------------------------------------


class ShardSeries:
    """Write shards one after the other: the first document after `shard_tokens` tokens begins a new one.

    Shards of an earlier, killed build are kept: the first `consumed` documents must not be added again.
    """

    def __init__(self, folder: Path, part: int, plan: CorpusPlan, unknown_id: int) -> None:
        self._folder, self._part, self._plan, self._unknown_id = folder, part, plan, unknown_id
        self.shards: list[ShardRecord] = []
        while (path := self._next_path() / SHARD).exists():
            command = f"rm -r {quote(str(path.parent))}, then rerun the command"
            self.shards.append(read_record(path, ShardRecord, command=command))
        self.consumed = self.shards[-1].consumed if self.shards else 0
        self._writer: ShardWriter | None = None
        self._document: int | None = None  # the number of the current one, and its sentences so far
        self._num_sentences = 0
        self._left_out = Counter[str]()

    @property
    def num_tokens(self) -> int:
        return sum(shard.counts.tokens for shard in self.shards) + (self._writer.num_tokens if self._writer else 0)

    def _next_path(self) -> Path:
        return self._folder / f"shard-{self._part:05d}-{len(self.shards):04d}"

    def add(self, document: int, sentences: Sequence[Ids]) -> None:
        """Append the sentences that are not empty to a document; document numbers only grow."""
        if document != self._document:
            self._end_document()
            self._document = document
            if self._writer and self._writer.num_tokens >= self._plan.shard_tokens:
                self._finish_shard(self._writer, document)
        kept = [ids for ids in sentences if ids]
        self._left_out["empty_sentences"] += len(sentences) - len(kept)
        if kept:
            self._writer = self._writer or ShardWriter(self._next_path(), self._plan.token_dtype, self._unknown_id)
            self._writer.append(kept)
            self._num_sentences += len(kept)

    def close(self, *, consumed: int) -> Counts:
        """Finish the last shard; return the counts of the empty documents after it."""
        self._end_document()
        if self._writer:
            self._finish_shard(self._writer, consumed)
        return Counts(**self._left_out)

    def _end_document(self) -> None:
        if self._document is None:
            return
        if self._writer and self._num_sentences:
            self._writer.end_document()
        self._left_out["empty_documents"] += self._num_sentences == 0
        self._left_out["single_sentence_documents"] += self._num_sentences == 1
        self._document, self._num_sentences = None, 0

    def _finish_shard(self, writer: ShardWriter, consumed: int) -> None:
        self.shards.append(writer.finish(consumed, Counts(**self._left_out)))
        self._writer = None
        self._left_out.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer:
            self._writer.stack.__exit__(kind, error, trace)


@dataclass(frozen=True)
class PartTask:
    """Everything that one part depends on, small enough to send to another machine (the plan without its inputs)."""

    part: int
    sources: tuple[Source, ...]
    text: TextSettings
    tokenizer: Path
    plan: CorpusPlan
    output: Path

    @property
    def record_path(self) -> Path:
        """The record that marks this part as done; `.progress` beside it has the bytes read and the tokens so far."""
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
        return read_record(task.record_path, PartRecord, command=f"rm {task.record_path}, then rerun the command")
    tokenizer = Tokenizer.load(task.tokenizer)
    if tokenizer.hash != plan.tokenizer_hash:
        what = f"the tokenizer at {task.tokenizer} changed while the corpus was built"
        raise LitebertError("LB-321", what, next="restore the former tokenizer, then rerun the command")
    num_documents = bytes_before = bytes_read = 0

    def note(of_this_input: int) -> None:
        nonlocal bytes_read
        bytes_read = bytes_before + of_this_input

    def batches() -> Iterator[list[tuple[ShardSeries, int, list[str]]]]:
        """Yield the sentences of every document still to be built, with its side and its number."""
        nonlocal num_documents, bytes_before
        series, batch, size = train, list[tuple[ShardSeries, int, list[str]]](), 0
        for source in task.sources:
            for passage in read_passages(replace(source, on_read=note), task.text):
                if passage.is_start:
                    num_documents += 1
                    series = held_out if plan.held_out and is_held_out(passage.text, plan.held_out) else train
                if num_documents <= series.consumed:
                    continue
                for sentences in sentence_chunks(passage.text, task.text):
                    batch.append((series, num_documents - 1, sentences))
                    size += sum(map(len, sentences)) + 1
                    if size >= BATCH_CHARACTERS:
                        yield batch
                        batch, size = [], 0
            bytes_before += source.size
        if batch:
            yield batch

    def save_progress() -> None:
        so_far: files.Json = {"bytes": bytes_read, "tokens": train.num_tokens + held_out.num_tokens}
        files.write_json(task.record_path.with_suffix(".progress"), so_far)

    with ExitStack() as stack:
        train, held_out = sides = [
            stack.enter_context(ShardSeries(folder, task.part, plan, tokenizer.unk_id))
            for folder in (task.output, task.output / HELD_OUT)
        ]
        noted = time.monotonic()
        for batch in batches():
            ids = iter(tokenizer.encode_ids([text for *_, texts in batch for text in texts], num_threads=1))
            for series, document, sentences in batch:
                series.add(document, [next(ids) for _ in sentences])
            if time.monotonic() - noted >= SECONDS_BETWEEN:
                save_progress()
                noted = time.monotonic()
        rests = [side.close(consumed=num_documents) for side in sides]
    done = [SideRecord(shards=tuple(side.shards), rest=rest) for side, rest in zip(sides, rests, strict=True)]
    record = PartRecord(part=task.part, train=done[0], held_out=done[1])
    bytes_read = bytes_before
    save_progress()
    write_record(task.record_path, record)
    return record


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


# ---- the folder: begun, resumed with the same plan, finished --------------------------------------------------------


def _begin(output: Path, plan: CorpusPlan) -> bool:
    """Prepare a folder for building; return whether the corpus is already finished."""
    command = f"rm -r {quote(str(output))}, then rerun the command"
    is_finished = (output / MANIFEST).exists()
    if is_finished:
        begun = read_record(output / MANIFEST, Manifest, command=command).plan
    elif (output / PLAN).exists():
        for folder in (output, output / HELD_OUT, output / PARTS):
            files.remove_unfinished(folder)
        places = ((output, "shard-*"), (output / HELD_OUT, "shard-*"), (output / PARTS, "*"))
        # Without any work the first try failed on its input: a corrected command may use the same folder.
        has_work = any(any(folder.glob(pattern)) for folder, pattern in places)
        begun = read_record(output / PLAN, CorpusPlan, command=command) if has_work else plan
    else:
        files.remove_unfinished(output, PLAN)
        if any(output.iterdir()):
            files.require_new(output, force=None)
        begun = plan
    if begun != plan:
        changed = [
            f"{name}: {getattr(begun, name)} -> {getattr(plan, name)}"
            for name in CorpusPlan.model_fields
            if name != "inputs" and getattr(begun, name) != getattr(plan, name)
        ]
        if len(begun.inputs) != len(plan.inputs):
            changed.append(f"inputs: {len(begun.inputs)} -> {len(plan.inputs)} files")
        pairs = zip(begun.inputs, plan.inputs, strict=False)
        differing = [f"{a.name} of {a.size:,} bytes -> {b.name} of {b.size:,} bytes" for a, b in pairs if a != b]
        raise LitebertError(
            "LB-333",
            f"{output} was begun with other settings or inputs",
            received="; ".join(changed + [f"inputs: {each}" for each in differing[:3]]),
            expected="the same command, or another folder",
            next=f"choose another --output, or {command}",
        )
    if is_finished:
        _clean(output)
    else:
        write_record(output / PLAN, plan)
    return is_finished


def _finish(output: Path, plan: CorpusPlan, parts: Sequence[PartRecord], tokenizer: Tokenizer) -> None:
    """Write tokenizers and manifests: those of the held-out part first, `corpus.json` last."""
    manifests = []
    for part, sides in (("train", [each.train for each in parts]), ("held-out", [each.held_out for each in parts])):
        shards = tuple(shard for side in sides for shard in side.shards)
        counts = sum((shard.counts for shard in shards), sum((side.rest for side in sides), Counts()))
        manifests.append(Manifest.model_validate({"part": part, "plan": plan, "counts": counts, "shards": shards}))
    train, held_out = manifests
    what = ""
    if not train.shards and not held_out.shards:
        what = "no document with text is left to train on"
    elif plan.held_out and train.counts.sentences + held_out.counts.sentences < 2:
        what = "no document is held out to evaluate on: there is one sentence"
    if what:  # nothing can become of this build: a corrected command may use the same folder
        for pattern in ("shard-*", PARTS, HELD_OUT):
            for path in output.glob(pattern):
                shutil.rmtree(path)
        (output / PLAN).unlink()
        raise LitebertError("LB-343", what, next="rerun the command with more text, or with --held-out 0")
    if plan.held_out and not (train.shards and held_out.shards):
        train, held_out = _divided(output, plan, train, held_out, tokenizer.unk_id)
    with files.staged_folder(output / TOKENIZER) as staged:
        tokenizer.save(staged)
    if plan.held_out:
        with files.staged_folder(output / HELD_OUT / TOKENIZER) as staged:
            shutil.copytree(output / TOKENIZER, staged, dirs_exist_ok=True)
        write_record(output / HELD_OUT / MANIFEST, held_out)
    write_record(output / MANIFEST, train)
    _clean(output)


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
    shards = [open_shard(folders[full.part], each, plan, command=plan.command(output)) for each in full.shards]
    num_documents, num_sentences = full.counts.documents, full.counts.sentences

    def tokens_of(place: int, document: int) -> bytes:
        return shards[place].between(*map(int, shards[place].documents[document : document + 2])).tobytes()

    def has_copy(place: int, document: int) -> bool:
        sizes = [np.diff(shard.sentences[shard.documents]) for shard in shards]  # of the documents, in tokens
        return any(
            (at, other) != (place, document) and tokens_of(at, other) == tokens_of(place, document)
            for at in range(len(shards))
            for other in np.flatnonzero(sizes[at] == sizes[place][document]).tolist()
        )

    place = len(shards) - 1  # of the shard that is divided
    if num_documents == 1:
        cut = num_sentences - max(min(2, num_sentences // 2), round(plan.held_out * num_sentences))
        trained, evaluated = [(0, cut)], [(cut, num_sentences)]
    else:
        wanted = max(1, round(plan.held_out * num_documents))
        moved = min(wanted if full is train else max(1, num_documents - wanted), num_documents - 1)
        chosen = [len(shards[-1].documents) - 2]
        for candidate in reversed(range(len(shards))):
            last_first = reversed(range(len(shards[candidate].documents) - 1))
            if unique := list(islice((number for number in last_first if not has_copy(candidate, number)), moved)):
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
            path = folders[manifest.part] / f"shard-{part}-{in_part if is_full else 0:04d}"
            writer = ShardWriter(path, plan.token_dtype, unknown_id)
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


def _clean(output: Path) -> None:
    """Remove what a finished corpus does not need, and the shards that another one has replaced."""
    for folder in (output, output / HELD_OUT):
        files.remove_unfinished(folder)
        if (folder / MANIFEST).exists():
            manifest = read_record(folder / MANIFEST, Manifest, command=f"rm -r {quote(str(output))}")
            for path in {*folder.glob("shard-*")} - {folder / record.name for record in manifest.shards}:
                shutil.rmtree(path)
    (output / PLAN).unlink(missing_ok=True)
    shutil.rmtree(output / PARTS, ignore_errors=True)


# ---- progress, read from the folder, so that it includes workers on other machines ----------------------------------


@contextmanager
def _reported(tasks: Sequence[PartTask], report: Report | None) -> Iterator[None]:
    """Call `report` once per second, from a thread, and once at the end of the block."""
    if report is None:
        yield
        return
    num_bytes = sum(source.size for task in tasks for source in task.sources)
    folder, started, done = tasks[0].record_path.parent, time.monotonic(), threading.Event()

    def so_far() -> tuple[int, int]:
        """Return how many bytes were read, and how many tokens they gave."""
        notes = [json.loads(path.read_bytes()) for path in folder.glob("*.progress")]
        return sum(note["bytes"] for note in notes), sum(note["tokens"] for note in notes)

    def look() -> BuildProgress:
        bytes_read, tokens = so_far()
        rate = (tokens - tokens_before) / max(time.monotonic() - started, 1e-9)
        parts_done = len(list(folder.glob("*.json")))
        return BuildProgress(parts_done, len(tasks), tokens, rate, min(bytes_read / (num_bytes or 1), 1.0))

    def run() -> None:
        while not done.wait(SECONDS_BETWEEN):
            report(look())

    _, tokens_before = so_far()
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    report(look())


# ---- the parts, in processes of this machine or as tasks of a Ray cluster -------------------------------------------


def run_local(work: Callable[[Task], Result], tasks: Sequence[Task], *, workers: int) -> Iterator[Result]:
    """Yield the results of all tasks as they finish, from spawned processes, or from this one.

    The error of the first task that fails is raised, and the others are stopped at once. The processes end, even if
    busy, when this one dies.
    """
    workers = min(workers, len(tasks))
    if workers <= 1:
        yield from map(work, tasks)
        return
    context = get_context("spawn")
    lifeline, held_here = context.Pipe(duplex=False)
    executor = ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with, initargs=(lifeline,))
    try:
        for future in as_completed([executor.submit(work, task) for task in tasks]):
            yield future.result()
        executor.shutdown()
    except BrokenProcessPool as error:
        raise _died("rerun the command with fewer --workers to resume") from error
    finally:
        held_here.close()
        executor.shutdown(cancel_futures=True)
        lifeline.close()


def _end_with(lifeline: Connection) -> None:
    """End this process when the other end of a pipe closes, for instance because it was killed."""

    def wait_and_exit() -> None:
        lifeline.poll(None)
        os._exit(1)

    threading.Thread(target=wait_and_exit, daemon=True).start()


def run_on_ray(work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
    """Yield the results of all tasks as they finish; join the cluster at RAY_ADDRESS if set.

    Every node needs litebert, and the same paths for inputs, tokenizer and output. Ray repeats a task whose worker
    died; its `util.multiprocessing.Pool` would not.
    """
    try:
        import ray
    except ImportError as error:
        raise missing_package("ray", extra="cluster", needed_for="--cluster") from error
    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    remote: Any = ray.remote(_guarded)
    pending = [remote.remote(work, task) for task in tasks]
    try:
        while pending:
            done, pending = ray.wait(pending)
            for reference in done:
                result = ray.get(reference)
                if isinstance(result, LitebertError):
                    raise result
                yield result
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
        raise _died("ray status; then rerun the command to resume") from error
    finally:
        for reference in pending:
            ray.cancel(reference, force=True)


def _guarded(work: Callable[[Task], Result], task: Task) -> Result | LitebertError:
    """Do the work; return a LitebertError instead of raising it, because Ray would wrap it."""
    try:
        return work(task)
    except LitebertError as error:
        return error


def _died(advice: str) -> ResourceError:
    received = "the system may have run out of memory"
    return ResourceError("LB-320", "a worker process died", received=received, next=advice)
