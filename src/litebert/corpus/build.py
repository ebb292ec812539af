"""Build a corpus folder from inputs: parts in parallel, resumed where a killed build stopped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

import numpy as np

from litebert.corpus.cluster import run_on_ray
from litebert.corpus.folder import begin, finish, locked
from litebert.corpus.manifest import HELD_OUT, MANIFEST, CorpusPlan, Counts, InputRecord, Manifest, read_record
from litebert.corpus.part import PartTask, build_part
from litebert.corpus.pool import num_cores, run_local
from litebert.corpus.progress import Report, reported
from litebert.corpus.settings import TextSettings, text_settings
from litebert.errors import LitebertError
from litebert.reading.find import find_texts
from litebert.reading.source import Source
from litebert.tokenizer import Tokenizer

SHARD_TOKENS = 64 << 20
PART_BYTES = 16 << 20
"""Consecutive inputs form one part of the work up to this size, so small files share a shard."""


@dataclass(frozen=True)
class CorpusSummary:
    """The results of a build; `held_out` is None if nothing was to be held out."""

    path: Path
    num_shards: int
    train: Counts
    held_out: Counts | None


def build_corpus(
    inputs: Iterable[str | Path],
    *,
    tokenizer: str | Path,
    output: str | Path,
    sentences: str = "segment",
    documents: str | None = None,
    column: str = "text",
    language: str = "en",
    held_out: float = 0.0,
    shard_tokens: int = SHARD_TOKENS,
    workers: int | None = None,
    cluster: bool = False,
    report: Report | None = None,
) -> CorpusSummary:
    """Tokenise text files into a corpus for `Corpus.open`; rerun a killed build to resume it.

    The bytes are the same for any number of `workers` (default: all cores) and on a Ray `cluster`.
    `held_out` is the share of documents that go to a corpus of their own, `output`/held-out.
    A script that calls this with several workers needs the usual `if __name__ == "__main__":`.

    Raises:
        LitebertError: An input or a setting cannot be used, or the folder was begun with others.
    """
    text = text_settings(sentences=sentences, documents=documents, column=column, language=language)
    workers = num_cores() if workers is None else workers
    _require_numbers(held_out=held_out, shard_tokens=shard_tokens, workers=workers)
    sources = find_texts(inputs)
    loaded = Tokenizer.load(tokenizer)
    plan = _plan(sources, text, loaded, held_out=held_out, shard_tokens=shard_tokens)
    folder = Path(output)
    with locked(folder):
        if not begin(folder, plan):
            tasks = _tasks(plan, sources, text, Path(tokenizer), folder)
            token_bytes = np.dtype(plan.token_dtype).itemsize
            sizes = [sum(source.size for source in task.sources) for task in tasks]
            with reported(folder, part_sizes=sizes, token_bytes=token_bytes, report=report):
                if cluster:
                    parts = list(run_on_ray(build_part, tasks))
                else:
                    parts = list(run_local(build_part, tasks, workers=workers))
            finish(folder, plan, parts, loaded)
    return _summary(folder)


def _plan(
    sources: tuple[Source, ...], text: TextSettings, tokenizer: Tokenizer, *, held_out: float, shard_tokens: int
) -> CorpusPlan:
    return CorpusPlan(
        tokenizer_hash=tokenizer.hash,
        vocab_size=tokenizer.vocab_size,
        sentences=text.sentences,
        documents=text.documents,
        column=text.column,
        language=text.language,
        held_out=held_out,
        shard_tokens=shard_tokens,
        inputs=tuple(InputRecord(name=source.name, size=source.size) for source in sources),
    )


def _tasks(
    plan: CorpusPlan, sources: tuple[Source, ...], text: TextSettings, tokenizer: Path, output: Path
) -> list[PartTask]:
    return [
        PartTask(
            part=number,
            sources=tuple(group),
            text=text,
            tokenizer=tokenizer.absolute(),
            tokenizer_hash=plan.tokenizer_hash,
            token_dtype=plan.token_dtype,
            held_out=plan.held_out,
            shard_tokens=plan.shard_tokens,
            output=output.absolute(),
        )
        for number, group in enumerate(_parts(sources))
    ]


def _parts(sources: Iterable[Source]) -> Iterator[list[Source]]:
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
    shards, held_out = len(train.shards), None
    if train.plan.held_out:
        rest = read_record(folder / HELD_OUT / MANIFEST, Manifest, command=command)
        shards, held_out = shards + len(rest.shards), rest.counts
    return CorpusSummary(folder, shards, train.counts, held_out)


def require_share(held_out: float) -> None:
    """Check the share of documents that is held out.

    Raises:
        LitebertError: LB-335, it is not a share.
    """
    if not 0 <= held_out < 1:
        raise LitebertError(
            "LB-335",
            "--held-out is not a share",
            received=held_out,
            expected="0 or more, below 1; 0.01 is a hundredth of the documents",
            next="--held-out 0.01",
        )


def _require_numbers(*, held_out: float, shard_tokens: int, workers: int) -> None:
    require_share(held_out)
    for flag, value in (("--shard-tokens", shard_tokens), ("--workers", workers)):
        if value < 1:
            raise LitebertError(
                "LB-336",
                f"{flag} is too small",
                received=value,
                expected="1 or more",
                next=f"omit {flag} for the default",
            )
