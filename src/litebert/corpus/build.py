"""Build a corpus folder from inputs: parts in parallel, resumed where a killed build
stopped.

The folder of a build has `build.json`, the plan. For each part of the inputs, here and
in `held-out/`, it gets shards `shard-PPPPP-NNNN`, then `parts/PPPPP.json`, their
manifest, which marks the part as done. At the end come tokenizers and the merged
manifests of all parts, `corpus.json` last.
"""

import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from shlex import quote

from litebert import files
from litebert.corpus import shards as disk
from litebert.corpus.division import divide
from litebert.corpus.jobs import run_local, run_on_ray
from litebert.corpus.part import build_part
from litebert.corpus.progress import Report, report_progress
from litebert.corpus.text import (
    TextSettings,
    split_source,
    too_little_text,
    wrong_value,
)
from litebert.cpu import find_processors
from litebert.errors import LitebertError, format_count
from litebert.files import Json
from litebert.reading.source import Names, Source, find_texts
from litebert.settings import difference
from litebert.tokenizer import TOKENIZER_FILES, Tokenizer
from litebert.tokenizer.unknown import MOST_UNKNOWN, OTHER_VOCABULARY

SHARD_TOKENS = 64 << 20  # 128 MB of ids in 16 bits
# Consecutive inputs are grouped into parts of up to this size, so that small files share
# a shard.
PART_BYTES = 16 << 20
# Larger inputs are divided into parts of about this size, so that one file keeps many
# cores busy. The shards follow from it, and never from the number of workers.
SPLIT_BYTES = 64 << 20
MOST_CHANGES = 9  # the most differences between plans that an error lists


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
    jobs = _jobs(folder, plan, Path(tokenizer), list(chain.from_iterable(sources)))
    num_bytes = sum(record.size for record in plan.inputs)
    num_workers = find_processors().usable if workers is None else workers
    with files.locked(folder, partial(_in_use, folder)):
        is_finished = _begin(folder, plan)
        if not is_finished:
            with report_progress(folder, len(jobs), num_bytes, report):
                if cluster:
                    run_on_ray(jobs)
                else:
                    run_local(jobs, workers=num_workers)
            # Jobs return nothing: what they made is read from the folder, as after a
            # build that was resumed.
            _finish(folder, plan, len(jobs), loaded)
    return _summary(folder, plan)


def _record_of(parts: Sequence[Source]) -> disk.InputRecord:
    """Describe an input, which may be divided into parts."""
    starts = [part.part.start for part in parts if part.part is not None]
    return disk.InputRecord(
        name=parts[0].name,
        size=sum(part.size for part in parts),
        starts=tuple(starts),
    )


def _jobs(
    folder: Path, plan: disk.CorpusPlan, tokenizer: Path, sources: Sequence[Source]
) -> list[Callable[[], None]]:
    """Return a job for each part of the inputs."""
    # A job must be small enough to send to another machine, so the plan goes without
    # its inputs.
    build = partial(
        build_part,
        plan=plan.model_copy(update={"inputs": ()}),
        tokenizer=tokenizer.absolute(),
        output=folder.absolute(),
    )
    jobs = list[Callable[[], None]]()
    # The number of a part is in the names of its shards, whichever worker makes them.
    for number, group in enumerate(_grouped(sources)):
        jobs.append(partial(build, f"{number:05d}", group))
    return jobs


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


def _in_use(folder: Path) -> LitebertError:
    return LitebertError(
        "LB-319",
        f"{folder} is being written by another process",
        next="wait for it, or choose another --output",
    )


def _summary(folder: Path, plan: disk.CorpusPlan) -> CorpusSummary:
    counts = dict[disk.Side, disk.Counts]()
    for side, path in disk.sides_of(folder, plan).items():
        counts[side] = disk.read_record(path / disk.MANIFEST, disk.Manifest).counts
    return CorpusSummary(str(folder), counts["train"], counts.get("held-out"))


def require_share(held_out: float) -> None:
    """Check the share of documents that is held out."""
    if not 0 <= held_out < 1:
        raise wrong_value(
            "held-out",
            held_out,
            "a share below 1; 0.01 is a hundredth of the documents",
        )


# ---- the folder: begun, resumed with the same plan, finished -------------------------


def _begin(output: Path, plan: disk.CorpusPlan) -> bool:
    """Prepare a folder for building; return whether the corpus is already finished."""
    if (output / disk.MANIFEST).exists():
        begun = disk.read_record(output / disk.MANIFEST, disk.Manifest).plan
        # A finished corpus stays as it is, also if large inputs were not divided then.
        if _undivided(begun) != _undivided(plan):
            raise _other_plan(output, begun, plan)
        _clean(output)
        return True
    if (output / disk.PLAN).exists():
        _clear_for_resuming(output, plan)
    else:
        files.clear_stale(output, disk.PLAN)
        if any(output.iterdir()):
            files.require_new(output)
    disk.write_record(output / disk.PLAN, plan)
    return False


def _clear_for_resuming(output: Path, plan: disk.CorpusPlan) -> None:
    """Remove what a killed build left incomplete; raise unless it had this plan."""
    begun = plan
    try:
        begun = disk.read_record(output / disk.PLAN, disk.CorpusPlan)
    except LitebertError:
        # This build.json is not of a corpus, and the folder is somebody's: this raises.
        files.require_new(output)
    for folder in (output, output / disk.HELD_OUT):
        files.clear_stale(folder)
        files.clear_stale(folder / disk.PARTS)
    # If no work was done, the first try failed on its input: a corrected command may
    # use the same folder.
    has_shards = any(output.rglob("shard-*"))
    has_parts = any(output.rglob(f"{disk.PARTS}/*"))
    if begun != plan and (has_shards or has_parts):
        raise _other_plan(output, begun, plan)


def _undivided(plan: disk.CorpusPlan) -> disk.CorpusPlan:
    """Return the plan without the parts of its inputs."""
    whole = [record.model_copy(update={"starts": ()}) for record in plan.inputs]
    return plan.model_copy(update={"inputs": tuple(whole)})


def _other_plan(
    output: Path, begun: disk.CorpusPlan, plan: disk.CorpusPlan
) -> LitebertError:
    """Return the error for a folder that was begun with another plan."""
    changes = difference(_described(begun), _described(plan))
    return LitebertError(
        "LB-333",
        f"{output} was begun with other settings or inputs",
        received="; ".join(map(str, changes[:MOST_CHANGES])),
        next=(
            "choose another --output, or --name of a run, or rm -r"
            f" {quote(str(output))}, then rerun the command"
        ),
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
    sides = disk.sides_of(output, plan)
    manifests = list[disk.Manifest]()
    for side, folder in sides.items():
        manifests.append(_merge_parts(side, folder, plan, num_parts))
    num_sentences = sum(manifest.counts.sentences for manifest in manifests)
    if num_sentences < len(manifests):  # fewer than one per side
        _clear(output)
        raise too_little_text()
    # By chance, small corpora have all documents on one side.
    if not all(manifest.shards for manifest in manifests):
        manifests = divide(sides, manifests, tokenizer.unk_id)
    for folder in sides.values():
        target = folder / disk.TOKENIZER
        with files.staged_folder(target, known_files=TOKENIZER_FILES) as staged:
            tokenizer.save(staged)
    # A folder with `corpus.json` is a finished corpus, so that of the training side, which
    # has the held-out part in it, is written last.
    for manifest in reversed(manifests):
        disk.write_record(sides[manifest.part] / disk.MANIFEST, manifest)
    _clean(output)


def _merge_parts(
    side: disk.Side, folder: Path, plan: disk.CorpusPlan, num_parts: int
) -> disk.Manifest:
    counts = disk.Counts()
    shards = list[disk.ShardRecord]()
    for number in range(num_parts):
        path = folder / disk.PARTS / f"{number:05d}.json"
        part = disk.read_record(path, disk.Manifest)
        counts = counts + part.counts
        shards += part.shards
    return disk.Manifest(part=side, plan=plan, counts=counts, shards=tuple(shards))


def _clear(output: Path) -> None:
    """Remove everything of a build that cannot succeed, so that another may begin."""
    (output / disk.PLAN).unlink(missing_ok=True)  # first: nothing is to be resumed
    for path in (output / disk.PARTS, output / disk.HELD_OUT, *output.glob("shard-*")):
        shutil.rmtree(path, ignore_errors=True)


def _clean(output: Path) -> None:
    """Remove what only the build needed: parts, divided shards and, last, its plan."""
    for folder in (output, output / disk.HELD_OUT):
        files.clear_stale(folder)
        if (folder / disk.MANIFEST).exists():
            manifest = disk.read_record(folder / disk.MANIFEST, disk.Manifest)
            listed = {folder / record.name for record in manifest.shards}
            for path in set(folder.glob("shard-*")) - listed:
                shutil.rmtree(path)
        shutil.rmtree(folder / disk.PARTS, ignore_errors=True)
    (output / disk.PLAN).unlink(missing_ok=True)
