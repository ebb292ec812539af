"""Corpora merged, counted and filtered."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from litebert.corpus import Corpus, build_corpus
from litebert.corpus.tools import corpus_filter, corpus_merge, corpus_stats
from litebert.errors import LitebertError

Write = Callable[[str, bytes | str], Path]


def test_a_merged_corpus_has_the_shards_of_both(corpus: Path, stories: Path, tmp_path: Path) -> None:
    corpus_merge(corpus, corpus, output=tmp_path / "both")
    one, both = Corpus.open(corpus), Corpus.open(tmp_path / "both", verify=True)
    assert both.manifest.counts == one.manifest.counts + one.manifest.counts
    assert len({shard.path.name for shard in both.shards}) == 2 * len(one.shards)
    assert np.array_equal(both.shards[-1].tokens, one.shards[-1].tokens)
    held_out = both.held_out()
    assert held_out is not None and held_out.manifest.counts.documents > 0
    with pytest.raises(LitebertError, match="LB-619"):
        corpus_merge(corpus, output=tmp_path / "both")
    settings = {"tokenizer": corpus / "tokenizer", "held_out": 0.2, "documents": "blank-line", "workers": 1}
    build_corpus([stories], output=tmp_path / "other", **settings)
    with pytest.raises(LitebertError, match="LB-275"):  # built differently
        corpus_merge(corpus, tmp_path / "other", output=tmp_path / "all")


_KILLED = """
import os, signal, sys
from pathlib import Path
from litebert.corpus import tools

write = tools.disk.write_record

def killing(path, record):
    write(path, record)
    os.kill(os.getpid(), signal.SIGKILL)

tools.disk.write_record = killing
tools.corpus_merge(*[Path(sys.argv[1])] * 2, output=Path(sys.argv[2]))
"""


def test_a_killed_merge_leaves_nothing_once_it_is_rerun(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "corpora" / "both"
    command = [sys.executable, "-c", _KILLED, str(corpus), str(output)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert not output.exists()
    corpus_merge(corpus, corpus, output=output)
    assert [path.name for path in output.parent.glob("both*")] == ["both"]
    Corpus.open(output, verify=True)


def test_stats_count_what_is_there(corpus: Path) -> None:
    opened, stats = Corpus.open(corpus), corpus_stats(corpus)
    counts = opened.manifest.counts
    assert (stats.documents, stats.sentences, stats.pieces) == (counts.documents, counts.sentences, counts.tokens)
    assert stats.sentence_lengths[-1] == max(int(np.diff(shard.sentences).max()) for shard in opened.shards)


def test_the_first_of_near_duplicates_stays(write: Write, tmp_path: Path) -> None:
    words = [f"word{number}" for number in range(60)]
    near = [*words[:-1], "another"]
    other = [f"other{number}" for number in range(60)]
    text = "\n\n".join(" ".join(each) for each in (words, near, other, words))
    source = write("documents.txt", text)
    told = corpus_filter(str(source), output=tmp_path / "clean.jsonl", near_duplicates=0.8)
    assert told == "2 documents kept, 2 near duplicates omitted"
    kept = [json.loads(line)["text"] for line in (tmp_path / "clean.jsonl").read_text().splitlines()]
    assert kept == [" ".join(words), " ".join(other)]
