"""A corpus: text as documents and sentences of token ids, in memory-mapped files.

`text` splits inputs into sentences, `shards` are files, `build` makes them, `part` by
part, `corpus` opens them, `check` finds trouble.
"""

from litebert.corpus.build import build_corpus
from litebert.corpus.check import check_corpus, check_text
from litebert.corpus.corpus import Corpus
from litebert.corpus.shards import Shard

__all__ = ["Corpus", "Shard", "build_corpus", "check_corpus", "check_text"]
