"""Build a corpus from text: documents and sentences as token ids in memory-mapped files."""

from litebert.corpus.build import CorpusSummary, build_corpus
from litebert.corpus.check import check_text
from litebert.corpus.check_corpus import check_corpus
from litebert.corpus.progress import BuildProgress
from litebert.corpus.shard import Shard
from litebert.corpus.shards import Corpus
from litebert.reading.findings import CheckReport, Finding

__all__ = [
    "BuildProgress",
    "CheckReport",
    "Corpus",
    "CorpusSummary",
    "Finding",
    "Shard",
    "build_corpus",
    "check_corpus",
    "check_text",
]
