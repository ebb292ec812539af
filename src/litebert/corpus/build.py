"""Build a corpus folder from inputs: parts in parallel, resumed where a killed build
stopped.

The folder of a build has `build.json`, the plan. For each part of the inputs, here and
in `held-out/`, it gets shards `shard-PPPPP-NNNN`, then `parts/PPPPP.json`, their
manifest, which marks the part as done. At the end come tokenizers and the merged
manifests of all parts, `corpus.json` last.
"""

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
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain, count, pairwise, takewhile
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple, TypeAlias

from litebert import files
from litebert.corpus import shards as disk
from litebert.corpus.text import (
    TextSettings,
    read_documents,
    sentence_chunks,
    split_source,
    too_little_text,
    wrong_value,
)
from litebert.cpu import find_processors
from litebert.errors import (
    LitebertError,
    ResourceError,
    format_count,
    missing_package,
)
from litebert.files import Json
from litebert.reading.source import Names, Source, find_texts
from litebert.settings import difference
from litebert.tokenizer import TOKENIZER_FILES, Tokenizer
from litebert.tokenizer.tokenizer import MOST_UNKNOWN, OTHER_VOCABULARY

SHARD_TOKENS = 64 << 20
# consecutive inputs are grouped into parts of up to this size, so small files share a
# shard
PART_BYTES = 16 << 20
# Larger inputs are divided into parts of about this size, so that one file keeps many
# cores busy. The shards follow from it, and never from the number of workers.
SPLIT_BYTES = 64 << 20
BATCH_CHARACTERS = 1 << 18  # passed to the tokenizer at once
# at the beginning of a document, which decide whether it is held out
HEAD_CHARACTERS = 1 << 14
MOST_CHANGES = 9  # the most differences between plans that an error lists
SECONDS_BETWEEN = 1.0  # between notes of how much has been read, and between reports


@dataclass(frozen=True)
class CorpusSummary:
    """The results of a build; `held_out` is None if nothing was to be held out."""

    path: str
    train: disk.Counts
    held_out: disk.Counts | None

    def __str__(self) -> str:
        lines = [_line("train", self.train)]
        if self.held_out is not None:
            lines.append(_line("held out", self.held_out))
        unknown = self.train.unknown_tokens
        if unknown > MOST_UNKNOWN * self.train.tokens:
            lines.append(
                f"warning: {unknown / self.train.tokens:.1%} of the tokens are unknown;"
                f" {OTHER_VOCABULARY}"
            )
        return "\n".join(lines)


def _line(name: str, counts: disk.Counts) -> str:
    return (
        f"{name:<9} {format_count(counts.documents, 'document')},"
        f" {format_count(counts.sentences, 'sentence')},"
        f" {format_count(counts.tokens, 'token')}"
    )


class BuildProgress(NamedTuple):
    """The progress of a build; `tokens` counts the whole build, the rate only this
    process.
    """

    parts_done: int
    num_parts: int
    tokens: int
    tokens_per_second: float
    seconds_left: float | None  # an estimate, once something has been read


Report: TypeAlias = Callable[[BuildProgress], None]


def build_corpus(
    inputs: Names,
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
    """Tokenize text files into a corpus for `Corpus.open`; rerun a killed build to
    resume it.

    The bytes are the same for any number of `workers` (default: all cores) and on a Ray
    `cluster`. `held_out` is the share of documents that go to a separate corpus,
    `output`/held-out: at least one document, or the end of the only one. A script that
    calls this with several workers needs the usual `if __name__ == "__main__":`.
    """
    text = TextSettings(sentences, documents, column, language)
    require_share(held_out)
    sources = [split_source(source, text, SPLIT_BYTES) for source in find_texts(inputs)]
    loaded = Tokenizer.load(tokenizer)
    folder = Path(output)
    plan = disk.CorpusPlan(
        tokenizer_hash=loaded.hash,
        vocab_size=loaded.vocab_size,
        **asdict(text),
        held_out=held_out,
        shard_tokens=shard_tokens,
        inputs=tuple(_record_of(parts) for parts in sources),
    )
    what = f"{folder} is being written by another process"
    advice = "wait for it, or choose another --output"
    with files.locked(folder, lambda: LitebertError("LB-319", what, next=advice)):
        if not _begin(folder, plan):
            groups = _grouped(chain.from_iterable(sources))
            # A job must be small enough to send to another machine, so the plan goes
            # without its inputs.
            build = partial(
                build_part,
                plan=plan.model_copy(update={"inputs": ()}),
                tokenizer=Path(tokenizer).absolute(),
                output=folder.absolute(),
            )
            jobs = [
                partial(build, f"{number:05d}", group)
                for number, group in enumerate(groups)
            ]
            num_bytes = sum(record.size for record in plan.inputs)
            with _report_progress(folder, len(jobs), num_bytes, report):
                if cluster:
                    run_on_ray(jobs)
                else:
                    usable = find_processors().usable
                    run_local(jobs, workers=usable if workers is None else workers)
            _finish(folder, plan, len(jobs), loaded)
    counts = [
        disk.read_record(side / disk.MANIFEST, disk.Manifest).counts
        for side in _sides(folder, plan).values()
    ]
    return CorpusSummary(str(folder), counts[0], counts[1] if held_out else None)


def _record_of(parts: Sequence[Source]) -> disk.InputRecord:
    """Describe an input, which may be divided into parts."""
    starts = [part.part.start for part in parts if part.part is not None]
    return disk.InputRecord(
        name=parts[0].name,
        size=sum(part.size for part in parts),
        starts=tuple(starts),
    )


def _grouped(sources: Iterable[Source]) -> list[list[Source]]:
    """Group consecutive small inputs; a large one, or a part of it, is a group of its
    own.
    """
    groups = [list[Source]()]
    size = 0
    for source in sources:
        if groups[-1] and size + source.size > PART_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(source)
        size += source.size
    return groups


def require_share(held_out: float) -> None:
    """Check the share of documents that is held out."""
    if not 0 <= held_out < 1:
        raise wrong_value(
            "held-out",
            held_out,
            "a share below 1; 0.01 is a hundredth of the documents",
        )


def _sides(folder: Path, plan: disk.CorpusPlan) -> dict[disk.Side, Path]:
    return (
        {"train": folder, "held-out": folder / disk.HELD_OUT}
        if plan.held_out
        else {"train": folder}
    )


# ---- one part: the shards of each of its sides ---------------------------------------


def build_part(
    part: str,
    sources: Sequence[Source],
    *,
    plan: disk.CorpusPlan,
    tokenizer: Path,
    output: Path,
) -> None:
    """Tokenize the inputs of one part into shards, continuing after the complete
    ones.
    """
    sides = _sides(output, plan)
    records = [folder / disk.PARTS / f"{part}.json" for folder in sides.values()]
    if all(record.exists() for record in records):
        return
    loaded = Tokenizer.load(tokenizer)
    settings = plan.text
    if loaded.hash != plan.tokenizer_hash:
        what = f"the tokenizer at {tokenizer} changed while the corpus was built"
        raise LitebertError(
            "LB-321",
            what,
            next="restore the previous tokenizer, then rerun the command",
        )
    batch = list[tuple[disk.ShardWriter, int, list[str]]]()
    size = 0
    num_documents = 0
    bytes_read = [0] * len(sources)
    noted = time.monotonic()

    def write() -> None:
        ids = iter(
            loaded.encode_ids(
                [text for *_, texts in batch for text in texts], num_threads=1
            )
        )
        for writer, document, sentences in batch:
            writer.add(document, [next(ids) for _ in sentences])
        batch.clear()

    def note_progress() -> None:
        num_tokens = sum(writer.num_tokens for writer in writers)
        files.write_json(
            records[0].with_suffix(".progress"),
            {"bytes": sum(bytes_read), "tokens": num_tokens},
        )

    with ExitStack() as stack:
        writers = list[disk.ShardWriter]()
        for folder in sides.values():
            paths = (
                folder / f"shard-{part}-{number:04d}" / disk.SHARD for number in count()
            )
            complete = [
                disk.read_record(path, disk.ShardRecord)
                for path in takewhile(Path.exists, paths)
            ]
            writers.append(
                stack.enter_context(
                    disk.ShardWriter(folder, part, plan, loaded.unk_id, complete)
                )
            )
        writer = writers[0]
        for number, source in enumerate(sources):
            source = replace(source, on_read=partial(bytes_read.__setitem__, number))
            for passages in read_documents(source, settings):
                for at, passage in enumerate(passages):
                    if at == 0:
                        writer = writers[
                            plan.held_out > 0
                            and is_held_out(passage.text, plan.held_out)
                        ]
                    if num_documents < writer.consumed:  # it is in a complete shard
                        continue
                    for sentences in sentence_chunks(passage.text, settings):
                        batch.append((writer, num_documents, sentences))
                        size += sum(map(len, sentences)) + 1
                        if size >= BATCH_CHARACTERS:
                            write()
                            size = 0
                            if time.monotonic() - noted >= SECONDS_BETWEEN:
                                note_progress()
                                noted = time.monotonic()
                num_documents += 1
            bytes_read[number] = source.size
        write()
        for side, record, writer in zip(sides, records, writers, strict=True):
            counts = writer.finish(num_documents)
            disk.write_record(
                record,
                disk.Manifest(
                    part=side, plan=plan, counts=counts, shards=tuple(writer.shards)
                ),
            )
        note_progress()


def is_held_out(text: str, share: float) -> bool:
    """Decide by a hash of the beginning of a document, without white space.

    Documents with the same first 16,384 characters stay together, and no document has
    to fit in memory.

    >>> is_held_out("A  text.", 0.5) == is_held_out("A text.\\n", 0.5)
    True
    """
    head = "".join(text[: 4 * HEAD_CHARACTERS].split())[:HEAD_CHARACTERS]
    digest = hashlib.blake2b(head.encode(), digest_size=8, person=b"held-out").digest()
    return int.from_bytes(digest, "little") < share * 2.0**64


# ---- the folder: begun, resumed with the same plan, finished -------------------------


def _begin(output: Path, plan: disk.CorpusPlan) -> bool:
    """Prepare a folder for building; return whether the corpus is already finished."""
    is_finished = (output / disk.MANIFEST).exists()
    begun = plan
    if is_finished:
        begun = disk.read_record(output / disk.MANIFEST, disk.Manifest).plan
    elif (output / disk.PLAN).exists():
        try:
            begun = disk.read_record(output / disk.PLAN, disk.CorpusPlan)
        except LitebertError:  # this build.json is not of a corpus
            files.require_new(output, force=None)
        for folder in (output, output / disk.HELD_OUT):
            files.clear_stale(folder)
            files.clear_stale(folder / disk.PARTS)
        # If no work was done, the first try failed on its input: a corrected command
        # may use the same folder.
        if not any(
            any(output.rglob(pattern)) for pattern in ("shard-*", f"{disk.PARTS}/*")
        ):
            begun = plan
    else:
        files.clear_stale(output, disk.PLAN)
        if any(output.iterdir()):
            files.require_new(output, force=None)
    # A finished corpus stays as it is, also if its large inputs were not divided then.
    if is_finished and _undivided(begun) == _undivided(plan):
        begun = plan
    if begun != plan:
        raise _other_plan(output, begun, plan)
    if is_finished:
        _clean(output)
    else:
        disk.write_record(output / disk.PLAN, plan)
    return is_finished


def _undivided(plan: disk.CorpusPlan) -> disk.CorpusPlan:
    """Return the plan without the parts of its inputs."""
    whole = tuple(
        disk.InputRecord(name=record.name, size=record.size) for record in plan.inputs
    )
    return plan.model_copy(update={"inputs": whole})


def _other_plan(
    output: Path, begun: disk.CorpusPlan, plan: disk.CorpusPlan
) -> LitebertError:
    """Return the error for a folder that was begun with another plan."""
    changes = difference(_described(begun), _described(plan))
    advice = (
        "choose another --output, or --name of a run, or rm -r"
        f" {quote(str(output))}, then rerun the command"
    )
    return LitebertError(
        "LB-333",
        f"{output} was begun with other settings or inputs",
        received="; ".join(changes[:MOST_CHANGES]),
        next=advice,
    )


def _described(plan: disk.CorpusPlan) -> dict[str, Json]:
    """Return the settings of a plan, and a line for each of its inputs."""
    described: dict[str, Json] = plan.model_dump(exclude={"inputs"})
    for number, record in enumerate(plan.inputs, 1):
        line = f"{record.name} of {record.size:,} bytes"
        if record.starts:
            line += f" in {len(record.starts)} parts"
        described[f"input {number}"] = line
    return described


def _finish(
    output: Path, plan: disk.CorpusPlan, num_parts: int, tokenizer: Tokenizer
) -> None:
    """Write tokenizers and manifests: those of the held-out part first, `corpus.json`
    last.
    """
    manifests = []
    for side, folder in _sides(output, plan).items():
        parts = [
            disk.read_record(folder / disk.PARTS / f"{part:05d}.json", disk.Manifest)
            for part in range(num_parts)
        ]
        counts = sum((part.counts for part in parts), disk.Counts())
        shards = tuple(shard for part in parts for shard in part.shards)
        manifests.append(
            disk.Manifest(part=side, plan=plan, counts=counts, shards=shards)
        )
    # fewer than one per side
    if sum(manifest.counts.sentences for manifest in manifests) < len(manifests):
        # This build cannot succeed: clear the folder for another.
        for path in (
            output / disk.PLAN,
            output / disk.PARTS,
            output / disk.HELD_OUT,
            *output.glob("shard-*"),
        ):
            path.unlink() if path.is_file() else shutil.rmtree(path, ignore_errors=True)
        raise too_little_text()
    if not all(manifest.shards for manifest in manifests):
        manifests = _divide(output, manifests, tokenizer.unk_id)
    with files.staged_folder(output / disk.TOKENIZER, own=TOKENIZER_FILES) as staged:
        tokenizer.save(staged)
    if plan.held_out:
        with files.staged_folder(
            output / disk.HELD_OUT / disk.TOKENIZER, own=TOKENIZER_FILES
        ) as staged:
            tokenizer.save(staged)
        disk.write_record(output / disk.HELD_OUT / disk.MANIFEST, manifests[1])
    disk.write_record(output / disk.MANIFEST, manifests[0])
    _clean(output)


class Division(NamedTuple):
    """How a shard is divided: where its documents begin and end, in sentences, and
    which of them go to the other side.
    """

    place: int  # of the shard
    bounds: list[int]  # (documents + 1,)
    leaving: set[int]


def _divide(
    output: Path, manifests: Sequence[disk.Manifest], unknown_id: int
) -> list[disk.Manifest]:
    """Divide a shard if the hashes happened to put all documents on one side.

    The old shard stays until the manifests are written, next to a new one under the
    next free name, so that a build killed here can do the same again.
    """
    full, empty = sorted(manifests, key=lambda manifest: not manifest.shards)
    folders = _sides(output, full.plan)
    if full.counts.documents == 1:
        division = _cut_document(full)
    else:
        folder = folders[full.part]
        shards = [disk.open_shard(folder, each, full.plan) for each in full.shards]
        division = _choose_documents(full, shards)
    old = full.shards[division.place]
    part = old.name.split("-")[1]
    shard = disk.open_shard(folders[full.part], old, full.plan)
    present = [each for each in full.shards if each.name.split("-")[1] == part]
    with disk.ShardWriter(
        folders[full.part], part, full.plan, unknown_id, present
    ) as writer:
        # what was left out of the old shard is also left out of its replacement
        writer.counts["empty_documents"] = old.counts.empty_documents
        writer.counts["empty_sentences"] = old.counts.empty_sentences
        for number in range(len(division.bounds) - 1):
            if number not in division.leaving:
                writer.add(number, _sentences_of(shard, division, number))
        writer.finish(old.consumed)
        staying = writer.shards[len(present) :]  # none if all documents leave
    with disk.ShardWriter(folders[empty.part], part, full.plan, unknown_id) as writer:
        for number in sorted(division.leaving):
            writer.add(number, _sentences_of(shard, division, number))
        writer.finish(old.consumed)
        (left,) = writer.shards
    counts = full.counts - old.counts
    for record in staying:
        counts = counts + record.counts
    before = full.shards[: division.place]
    after = full.shards[division.place + 1 :]
    divided = {
        full.part: full.model_copy(
            update={"shards": (*before, *staying, *after), "counts": counts}
        ),
        empty.part: empty.model_copy(
            update={"shards": (left,), "counts": empty.counts + left.counts}
        ),
    }
    return [divided["train"], divided["held-out"]]


def _cut_document(full: disk.Manifest) -> Division:
    """Cut the only document in two: its end is held out, at least two sentences if it
    has four.
    """
    num_sentences = full.counts.sentences
    num_held_out = round(full.plan.held_out * num_sentences)
    num_held_out = max(num_held_out, min(2, num_sentences // 2))
    cut = max(1, num_sentences - num_held_out)
    leaving = {1} if full.part == "train" else {0}
    return Division(0, [0, cut, num_sentences], leaving)


def _choose_documents(full: disk.Manifest, shards: Sequence[disk.Shard]) -> Division:
    """Choose the documents that go to the other side: the last ones with the fewest
    copies, together with these, so that nothing is both held out and trained on.

    They are in one shard: the last that has all copies of one of its documents. If
    there is none, the last document goes.
    """
    num_documents = full.counts.documents
    num_leaving = max(1, round(full.plan.held_out * num_documents))
    if full.part == "held-out":
        num_leaving = max(1, num_documents - num_leaving)
    num_leaving = min(num_leaving, num_documents - 1)
    hashes = [shard.hash_documents().tolist() for shard in shards]
    copies = Counter(chain.from_iterable(hashes))
    moved = set[int]()
    size = 0
    place = 0
    for place in reversed(range(len(shards))):
        here = Counter(hashes[place])
        # with few copies first, the last ones first
        for digest, number in reversed(here.most_common()):
            has_all = number == copies[digest]
            if has_all and size < num_leaving and size + number < num_documents:
                moved.add(digest)
                size += number
        if moved:
            break
    bounds = shards[place].documents.tolist()
    leaving = {at for at, digest in enumerate(hashes[place]) if digest in moved}
    return Division(place, bounds, leaving or {len(bounds) - 2})


def _sentences_of(
    shard: disk.Shard, division: Division, number: int
) -> list[list[int]]:
    """Return the tokens of each sentence of a document."""
    start, stop = division.bounds[number : number + 2]
    offsets = shard.sentences[start : stop + 1].tolist()
    return [shard.tokens[begin:end].tolist() for begin, end in pairwise(offsets)]


def _clean(output: Path) -> None:
    for folder in (output, output / disk.HELD_OUT):
        files.clear_stale(folder)
        if (folder / disk.MANIFEST).exists():
            manifest = disk.read_record(folder / disk.MANIFEST, disk.Manifest)
            for path in {*folder.glob("shard-*")} - {
                folder / record.name for record in manifest.shards
            }:
                shutil.rmtree(path)
        shutil.rmtree(folder / disk.PARTS, ignore_errors=True)
    (output / disk.PLAN).unlink(missing_ok=True)


# ---- progress, read from the folder, so that it includes workers on other machines


@contextmanager
def _report_progress(
    output: Path, num_parts: int, num_bytes: int, report: Report | None
) -> Iterator[None]:
    """Call `report` once per second, from a thread, and once at the end of the
    block.
    """
    if report is None:
        yield
        return
    started = time.monotonic()
    done = threading.Event()
    tokens_before = 0

    def read_progress() -> BuildProgress:
        bytes_read = 0
        tokens = 0
        parts = output / disk.PARTS
        for path in parts.glob("*.progress"):
            note = json.loads(path.read_bytes())
            bytes_read += note["bytes"]
            tokens += note["tokens"]
        rate = (tokens - tokens_before) / max(time.monotonic() - started, 1e-9)
        left = None
        if bytes_read and rate:
            left = tokens * max(num_bytes / bytes_read - 1, 0) / rate
        num_done = len(list(parts.glob("*.json")))
        return BuildProgress(num_done, num_parts, tokens, rate, left)

    def run() -> None:
        while not done.wait(SECONDS_BETWEEN):
            report(read_progress())

    tokens_before = read_progress().tokens
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    report(read_progress())


# ---- the parts, in processes of this machine or as tasks of a Ray cluster ------------


def run_local(jobs: Sequence[Callable[[], object]], *, workers: int) -> None:
    """Run all jobs in spawned processes, or in this one if one is enough.

    The error of the first job that fails is raised, and the others are stopped at once,
    as when this process dies.
    """
    workers = min(workers, len(jobs))
    if workers <= 1:
        for job in jobs:
            job()
        return
    context = get_context("spawn")
    lifeline, held_here = context.Pipe(duplex=False)
    executor = ProcessPoolExecutor(
        workers, mp_context=context, initializer=_end_with, initargs=(lifeline,)
    )
    with lifeline, held_here, executor:
        try:
            for future in as_completed([executor.submit(job) for job in jobs]):
                future.result()
        except BaseException as error:
            held_here.close()
            executor.shutdown(cancel_futures=True)
            if isinstance(error, BrokenProcessPool):
                raise _died(
                    "rerun the command with fewer --workers to resume"
                ) from error
            raise


def _end_with(lifeline: Connection) -> None:
    """End this process when the other end of a pipe closes, for instance because its
    owner was killed.
    """

    def wait_and_exit() -> None:
        lifeline.poll(None)
        os._exit(1)

    threading.Thread(target=wait_and_exit, daemon=True).start()


def run_on_ray(jobs: Sequence[Callable[[], object]]) -> None:
    """Run all jobs on the cluster at RAY_ADDRESS, or on one that is started here.

    Every node needs litebert and the same paths. Ray retries tasks whose worker died;
    its `util.multiprocessing` not.
    """
    try:
        import ray
    except ImportError as error:
        raise missing_package("ray", extra="cluster", needed_for="--cluster") from error
    ray.init(log_to_driver=False, ignore_reinit_error=True)
    remote: Any = ray.remote(_run)
    pending = [remote.remote(job) for job in jobs]
    try:
        while pending:
            done, pending = ray.wait(pending)
            ray.get(done)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error
    except (
        ray.exceptions.WorkerCrashedError,
        ray.exceptions.OutOfMemoryError,
    ) as error:
        raise _died("ray status; then rerun the command to resume") from error
    finally:
        for reference in pending:
            ray.cancel(reference, force=True)


def _run(job: Callable[[], object]) -> None:
    job()


def _died(advice: str) -> ResourceError:
    received = "the system may have run out of memory"
    return ResourceError(
        "LB-320", "a worker process died", received=received, next=advice
    )
