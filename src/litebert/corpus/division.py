"""Give the other side a document where hashes put all of them on one side.

That happens to small corpora: with a hundredth held out, half of those of 70 documents
have none (0.99^70 is 0.49). One shard is divided: into a new one that stays, and one for
the other side. Below, the side that has all documents is the full one, and the other the
empty one.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from litebert.corpus import shards as disk


class Division(NamedTuple):
    """How a shard of the full side is divided."""

    place: int  # of the shard among those of the full side
    bounds: list[int]  # (documents + 1,): where each document begins, in sentences
    leaving: set[int]  # the documents that go to the empty side

    @property
    def staying(self) -> list[int]:
        """The documents that stay."""
        documents = range(len(self.bounds) - 1)
        return [number for number in documents if number not in self.leaving]


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
    shards = [disk.open_shard(folder, record, full.plan) for record in full.shards]
    if full.counts.documents == 1:
        division = _cut_document(full)
    else:
        division = _choose_documents(full, shards)

    shard = shards[division.place]
    staying = _write_staying(folder, full, shard, division, unknown_id)
    leaving = _write_leaving(folders[empty.part], full, shard, division, unknown_id)
    by_side = {
        full.part: _without_leaving(full, division.place, staying),
        empty.part: _with_leaving(empty, leaving),
    }
    return [by_side["train"], by_side["held-out"]]


# ---- which documents go to the empty side --------------------------------------------


def _cut_document(full: disk.Manifest) -> Division:
    """Cut the only document in two: its end is held out, at least two sentences if it
    has four.
    """
    num_sentences = full.counts.sentences
    share = round(full.plan.held_out * num_sentences)
    # Two sentences are the fewest that have an order to tell.
    num_held_out = max(share, min(2, num_sentences // 2))
    cut = max(1, num_sentences - num_held_out)
    # From here on, its beginning and its end are two documents, 0 and 1.
    leaving = {1} if full.part == "train" else {0}
    return Division(0, [0, cut, num_sentences], leaving)


def _choose_documents(full: disk.Manifest, shards: Sequence[disk.Shard]) -> Division:
    """Choose the documents that go to the empty side: the last ones with the fewest
    copies, together with these, so that nothing is both held out and trained on.

    They are in one shard: the last that has all copies of one of its documents. If
    there is none, the last document of the first shard goes.
    """
    hashes_by_shard = [shard.hash_documents().tolist() for shard in shards]
    num_copies = Counter[int]()  # by hash, in all shards
    for hashes in hashes_by_shard:
        num_copies.update(hashes)
    for place in reversed(range(len(shards))):
        hashes = hashes_by_shard[place]
        chosen = _choose_hashes(full, hashes, num_copies)
        if chosen:
            bounds = shards[place].documents.tolist()
            leaving = {n for n, digest in enumerate(hashes) if digest in chosen}
            return Division(place, bounds, leaving)
    # Every document has copies in other shards: one of them will be on both sides.
    bounds = shards[0].documents.tolist()
    last_document = len(bounds) - 2
    return Division(0, bounds, {last_document})


def _choose_hashes(
    full: disk.Manifest, hashes: Sequence[int], num_copies: Mapping[int, int]
) -> set[int]:
    """Return the hashes of the documents of a shard that go to the empty side; none if
    every document has copies in other shards.
    """
    num_documents = full.counts.documents
    num_leaving = _num_leaving(full)
    chosen = set[int]()
    num_chosen = 0  # documents with these hashes
    # `most_common` begins with the most copies and keeps the order of equals: reversed,
    # the fewest come first, and of these the last documents.
    for digest, number in reversed(Counter(hashes).most_common()):
        has_all_copies = number == num_copies[digest]
        # Copies leave together, so that more may leave than were asked for, but not all.
        leaves_others = num_chosen + number < num_documents
        if has_all_copies and leaves_others and num_chosen < num_leaving:
            chosen.add(digest)
            num_chosen += number
    return chosen


def _num_leaving(full: disk.Manifest) -> int:
    """Return how many documents should go to the other side: at least one, not all."""
    num_documents = full.counts.documents
    num_held_out = max(1, round(full.plan.held_out * num_documents))
    if full.part == "held-out":
        return max(1, num_documents - num_held_out)
    return min(num_held_out, num_documents - 1)


# ---- the two new shards --------------------------------------------------------------


def _write_staying(
    folder: Path,
    full: disk.Manifest,
    shard: disk.Shard,
    division: Division,
    unknown_id: int,
) -> list[disk.ShardRecord]:
    """Write the documents of the divided shard that stay; return the record of the new
    shard, or none if all documents leave.
    """
    old = full.shards[division.place]
    part = _part_of(old)
    # The writer numbers the new shard after these.
    present = [record for record in full.shards if _part_of(record) == part]
    with disk.ShardWriter(folder, part, full.plan, unknown_id, present) as writer:
        # what was left out of the old shard is also left out of its replacement
        writer.counts["empty_documents"] = old.counts.empty_documents
        writer.counts["empty_sentences"] = old.counts.empty_sentences
        for number in division.staying:
            writer.add(number, _sentences_of(shard, division, number))
        writer.finish(old.consumed)
        return writer.shards[len(present) :]


def _write_leaving(
    target: Path,
    full: disk.Manifest,
    shard: disk.Shard,
    division: Division,
    unknown_id: int,
) -> disk.ShardRecord:
    """Write the documents of the divided shard that leave, into the folder of the empty
    side.
    """
    old = full.shards[division.place]
    with disk.ShardWriter(target, _part_of(old), full.plan, unknown_id) as writer:
        for number in sorted(division.leaving):
            writer.add(number, _sentences_of(shard, division, number))
        writer.finish(old.consumed)
        (record,) = writer.shards
        return record


def _part_of(record: disk.ShardRecord) -> str:
    """Return the part of a shard, such as 00003 of `shard-00003-0000`."""
    return record.name.split("-")[1]


def _sentences_of(
    shard: disk.Shard, division: Division, number: int
) -> list[list[int]]:
    """Return the tokens of each sentence of a document."""
    start, stop = division.bounds[number : number + 2]
    # where the sentences begin, and where the last one ends, in tokens
    offsets = shard.sentences[start : stop + 1].tolist()
    return [shard.tokens[begin:end].tolist() for begin, end in pairwise(offsets)]


# ---- the manifests of both sides -----------------------------------------------------


def _without_leaving(
    full: disk.Manifest, place: int, staying: Sequence[disk.ShardRecord]
) -> disk.Manifest:
    """Return the manifest of the full side: a new shard replaces the divided one, or
    none does.
    """
    counts = full.counts - full.shards[place].counts
    for record in staying:
        counts = counts + record.counts
    records = (*full.shards[:place], *staying, *full.shards[place + 1 :])
    return full.model_copy(update={"shards": records, "counts": counts})


def _with_leaving(empty: disk.Manifest, leaving: disk.ShardRecord) -> disk.Manifest:
    """Return the manifest of the side that had no documents."""
    # It has counts already: of documents that were empty.
    counts = empty.counts + leaving.counts
    return empty.model_copy(update={"shards": (leaving,), "counts": counts})
