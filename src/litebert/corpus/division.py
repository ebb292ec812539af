"""Give the other side a document where hashes put all of them on one side.

That happens to small corpora: with a hundredth held out, half of those of 70 documents
have none. One shard is divided: into a new one that stays, and one for the other side.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple

from litebert.corpus import shards as disk


class Division(NamedTuple):
    """How a shard is divided: where its documents begin and end, in sentences, and
    which of them go to the other side.
    """

    place: int  # of the shard
    bounds: list[int]  # (documents + 1,)
    leaving: set[int]


def divide(
    folders: Mapping[disk.Side, Path],
    manifests: Sequence[disk.Manifest],
    unknown_id: int,
) -> list[disk.Manifest]:
    """Divide a shard of the side that has all documents; return the manifests of both.

    The old shard stays until the manifests are written, next to a new one under the
    next free name, so that a build killed here can do the same again.
    """
    full, empty = sorted(manifests, key=lambda manifest: not manifest.shards)
    folder = folders[full.part]
    if full.counts.documents == 1:
        division = _cut_document(full)
    else:
        shards = [disk.open_shard(folder, shard, full.plan) for shard in full.shards]
        division = _choose_documents(full, shards)
    staying = _write_staying(folder, full, division, unknown_id)
    leaving = _write_leaving(folders[empty.part], folder, full, division, unknown_id)

    # the side that had all documents: the old shard is replaced, or gone
    counts = full.counts - full.shards[division.place].counts
    for record in staying:
        counts = counts + record.counts
    before = full.shards[: division.place]
    after = full.shards[division.place + 1 :]
    records = (*before, *staying, *after)
    manifest = full.model_copy(update={"shards": records, "counts": counts})
    # the other side, which had none
    other_counts = empty.counts + leaving.counts
    other = empty.model_copy(update={"shards": (leaving,), "counts": other_counts})

    by_side = {full.part: manifest, empty.part: other}
    return [by_side["train"], by_side["held-out"]]


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
    there is none, the last document of the first shard goes.
    """
    hashes = [shard.hash_documents().tolist() for shard in shards]
    num_copies = Counter(chain.from_iterable(hashes))  # by hash, in all shards
    for place in reversed(range(len(shards))):
        chosen = _choose_hashes(full, hashes[place], num_copies)
        if chosen:
            bounds = shards[place].documents.tolist()
            documents = enumerate(hashes[place])
            leaving = {number for number, digest in documents if digest in chosen}
            return Division(place, bounds, leaving)
    bounds = shards[0].documents.tolist()
    last_document = len(bounds) - 2
    return Division(0, bounds, {last_document})


def _choose_hashes(
    full: disk.Manifest, hashes: Sequence[int], num_copies: Mapping[int, int]
) -> set[int]:
    """Return the hashes of the documents of a shard that go to the other side; none if
    every document has copies in other shards.
    """
    num_documents = full.counts.documents
    num_leaving = _num_leaving(full)
    chosen = set[int]()
    size = 0  # documents chosen so far
    # `most_common` begins with the most copies and keeps the order of equals: reversed,
    # the fewest come first, and of these the last documents
    for digest, number in reversed(Counter(hashes).most_common()):
        has_all_copies = number == num_copies[digest]
        leaves_others = size + number < num_documents
        if has_all_copies and leaves_others and size < num_leaving:
            chosen.add(digest)
            size += number
    return chosen


def _num_leaving(full: disk.Manifest) -> int:
    """Return how many documents should go to the other side: at least one, not all."""
    num_documents = full.counts.documents
    num_held_out = max(1, round(full.plan.held_out * num_documents))
    if full.part == "held-out":
        return max(1, num_documents - num_held_out)
    return min(num_held_out, num_documents - 1)


def _write_staying(
    folder: Path, full: disk.Manifest, division: Division, unknown_id: int
) -> list[disk.ShardRecord]:
    """Write the documents of the divided shard that stay; return the record of the new
    shard, or none if all documents leave.
    """
    old = full.shards[division.place]
    part = old.name.split("-")[1]
    shard = disk.open_shard(folder, old, full.plan)
    present = [record for record in full.shards if record.name.split("-")[1] == part]
    with disk.ShardWriter(folder, part, full.plan, unknown_id, present) as writer:
        # what was left out of the old shard is also left out of its replacement
        writer.counts["empty_documents"] = old.counts.empty_documents
        writer.counts["empty_sentences"] = old.counts.empty_sentences
        for number in range(len(division.bounds) - 1):
            if number not in division.leaving:
                writer.add(number, _sentences_of(shard, division, number))
        writer.finish(old.consumed)
        return writer.shards[len(present) :]


def _write_leaving(
    target: Path,
    folder: Path,
    full: disk.Manifest,
    division: Division,
    unknown_id: int,
) -> disk.ShardRecord:
    """Write the documents of the divided shard that go to the other side."""
    old = full.shards[division.place]
    part = old.name.split("-")[1]
    shard = disk.open_shard(folder, old, full.plan)
    with disk.ShardWriter(target, part, full.plan, unknown_id) as writer:
        for number in sorted(division.leaving):
            writer.add(number, _sentences_of(shard, division, number))
        writer.finish(old.consumed)
        (record,) = writer.shards
        return record


def _sentences_of(
    shard: disk.Shard, division: Division, number: int
) -> list[list[int]]:
    """Return the tokens of each sentence of a document."""
    start, stop = division.bounds[number : number + 2]
    offsets = shard.sentences[start : stop + 1].tolist()
    return [shard.tokens[begin:end].tolist() for begin, end in pairwise(offsets)]
