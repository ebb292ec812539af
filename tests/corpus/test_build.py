"""Text to a corpus folder and back."""

import gzip
import subprocess
import sys
from itertools import chain, islice
from pathlib import Path

import numpy as np
import pytest

from litebert.corpus import BuildProgress, Corpus, build_corpus, check_corpus
from litebert.corpus import build as building
from litebert.corpus.shards import CorpusPlan
from litebert.errors import LitebertError

from .conftest import Build, Story, Write, paragraphs, rows, stories, texts_of


def lowered(told: list[Story]) -> list[Story]:
    return [[sentence.lower() for sentence in story] for story in told]


def test_corpus_decodes_to_its_documents_and_sentences(write: Write, build: Build, tmp_path: Path) -> None:
    told, folder = stories(40), tmp_path / "corpus" / "shard-00000-0000"
    path = write("a.jsonl.gz", gzip.compress(rows(told).encode(), mtime=0))
    summary = build(path, shard_tokens=1_000)
    corpus = Corpus.open(tmp_path / "corpus", verify=True)
    assert texts_of(corpus) == lowered(told)
    assert corpus.held_out() is None
    assert (summary.train.documents, summary.train.sentences) == (40, 360)
    assert summary.train.tokens == sum(len(shard.tokens) for shard in corpus.shards)
    assert summary.num_shards == len(corpus.shards) > 3
    assert all(len(shard.tokens) >= 1_000 for shard in corpus.shards[:-1])  # they end between documents
    for name, dtype in (("tokens", "<u2"), ("sentences", "<i8"), ("documents", "<i8")):
        loaded = np.load(folder / f"{name}.npy", mmap_mode="r")
        assert loaded.dtype == dtype
        np.testing.assert_array_equal(loaded, getattr(corpus.shards[0], name))
    stamp = folder.stat().st_mtime_ns
    assert build(path, shard_tokens=1_000) == summary  # nothing is built again
    assert folder.stat().st_mtime_ns == stamp
    sizes = (CorpusPlan.model_construct(vocab_size=size).dtypes["tokens"] for size in (65_536, 65_537))
    assert [*sizes] == ["<u2", "<u4"]


def test_what_has_no_token_is_left_out_and_counted(write: Write, build: Build, tmp_path: Path) -> None:
    path = write("a.ndjson", rows(["one\n\u200b\ntwo", "", " \n ", "\u200b", "three"]))
    train = build(path, sentences="line").train
    assert texts_of(Corpus.open(tmp_path / "corpus", verify=True)) == [["one", "two"], ["three"]]
    assert (train.empty_documents, train.empty_sentences, train.single_sentence_documents) == (3, 2, 1)


def test_held_out_documents_are_disjoint_and_duplicates_stay_together(
    write: Write, build: Build, tmp_path: Path
) -> None:
    told = stories(60)
    summary = build(write("a.jsonl", rows(told)), write("again.txt", paragraphs(told)), held_out=0.3)
    corpus = Corpus.open(tmp_path / "corpus", verify=True)
    held_out = corpus.held_out(verify=True)
    assert held_out.held_out() is None
    train, kept = texts_of(corpus), texts_of(held_out)
    assert sorted(train + kept) == sorted(2 * lowered(told))
    assert not [story for story in kept if story in train]
    assert 10 < summary.held_out.documents < 70


# stories, what ends a document, the share to hold out, and the documents that are
SHARES = [(120, "blank-line", 0.01, 1), (3, "blank-line", 0.999, 2), (1, "blank-line", 0.02, 1), (40, "file", 0.1, 1)]


@pytest.mark.parametrize("to_held_out", [False, True])  # whatever chance says of all of them
@pytest.mark.parametrize("case", SHARES)
def test_at_least_one_document_is_held_out_or_the_end_of_the_only_one(
    write: Write,
    build: Build,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    case: tuple[int, str, float, int],
    to_held_out: bool,
) -> None:
    count, documents, share, expected = case
    told = stories(count)
    told += told[-1:] if count > 1 else []  # a copy, which must not be held out
    monkeypatch.setattr(building, "is_held_out", lambda *_: to_held_out)
    settings = {"sentences": "line", "documents": documents, "held_out": share, "shard_tokens": 1_500}
    summary = build(write("a.txt", paragraphs(told)), **settings)
    corpus = Corpus.open(tmp_path / "corpus", verify=True)
    held_out = corpus.held_out(verify=True)
    assert not check_corpus(tmp_path / "corpus").has_errors, "nothing is held out that is also trained on"
    kept, trained = texts_of(held_out), texts_of(corpus)
    assert sorted(chain.from_iterable(kept + trained)) == sorted(chain.from_iterable(lowered(told)))
    assert 1 <= len(kept) <= (count if to_held_out else expected + 1)
    assert (summary.train, summary.held_out) == (corpus.manifest.counts, held_out.manifest.counts)
    assert summary.train.sentences == sum(map(len, trained))
    assert len(list((tmp_path / "corpus").glob("**/shard-*"))) == summary.num_shards
    if documents == "file":
        assert len(kept[0]) == round(0.1 * 9 * (count + 1))


def test_a_folder_of_something_else_or_of_other_settings_is_left_alone(
    write: Write, build: Build, tmp_path: Path
) -> None:
    path = write("a.txt", "one two")
    (tmp_path / "mine").mkdir()
    write("mine/thesis.partial-1", "precious")
    with pytest.raises(LitebertError, match="LB-619"):
        build(path, output="mine")
    assert (tmp_path / "mine" / "thesis.partial-1").read_text() == "precious"
    build(path)
    with pytest.raises(LitebertError, match="begun with other settings") as caught:
        build(path, path, held_out=0.1, language="de")
    assert caught.value.received == "language: en -> de; held_out: 0.0 -> 0.1; inputs: 1 -> 2 files"


REFUSED = [
    ("x", {"held_out": 1.0}, "LB-335"),
    ("x", {"held_out": float("nan")}, "LB-335"),
    ("x", {"workers": 0}, "LB-336"),
    ("x", {"sentences": "lines"}, "LB-300: --sentences"),
    ("x", {"documents": "page"}, "LB-300: --documents"),
    ("x", {"language": "English"}, "LB-300: --language"),
    ("x", {"column": "a..b"}, "LB-300: --column"),
    ("x", {"column": ""}, "LB-300: --column"),
    ("\u200b\n", {}, "LB-343"),
    ("my uncle lost the ladder", {"held_out": 0.02}, "LB-343"),
    ("caf\udce9 is here.\n", {}, "LB-309"),
]


@pytest.mark.parametrize(("text", "settings", "told"), REFUSED)
def test_what_cannot_be_built_is_refused_and_another_command_is_enough(
    write: Write, build: Build, text: str, settings: dict[str, float], told: str
) -> None:
    with pytest.raises(LitebertError, match=told):
        build(write("a.txt", text.encode("utf-8", "surrogateescape")), **settings)
    assert build(write("b.txt", "Two boots.")).train.documents == 1


@pytest.mark.parametrize("workers", [1, 2])
def test_error_in_an_input_stops_the_build_and_mending_it_resumes(
    write: Write, build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    monkeypatch.setattr(building, "PART_BYTES", 1)
    good, bad = write("a.txt", paragraphs(stories(9))), write("b.jsonl", '{"text": "one"}\n{"text": 2222}\n')
    with pytest.raises(LitebertError, match="line 2: column text is not text"):
        build(good, bad, workers=workers)
    with pytest.raises(LitebertError, match=r"LB-322.*not a finished corpus") as caught:
        Corpus.open(tmp_path / "corpus")
    assert "to resume" in caught.value.next
    write("b.jsonl", '{"text": "one"}\n{"text": "tw"}\n')
    assert build(good, bad).train.documents == 11


PEAK = """
import re, sys
from pathlib import Path
from litebert.corpus import build_corpus
built = build_corpus([sys.argv[1]], tokenizer=sys.argv[2], output=sys.argv[3], documents="file", workers=1)
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1], built.train.documents)
"""


def test_memory_does_not_grow_with_the_input(write: Write, vocabulary: Path) -> None:
    peaks = []
    text = "\n".join(chain.from_iterable(stories(250)))
    for kilobytes in (2_500, 25_000):
        content = f"{text}\n" * (kilobytes * 1_000 // len(text))  # one document, in many batches
        path = write(f"{kilobytes}.txt.gz", gzip.compress(content.encode()))
        command = [sys.executable, "-c", PEAK, str(path), str(vocabulary), str(path) + ".corpus"]
        peak, documents = map(int, subprocess.check_output(command).split())
        peaks.append(peak)
        assert documents == 1
    assert peaks[1] - peaks[0] < 10_000, "kilobytes, of 22,500 more that were read"


def test_real_articles_become_sentences_of_sensible_length(real_data: Path, write: Write, tmp_path: Path) -> None:
    with gzip.open(real_data / "text" / "wiki_articles.jsonl.gz") as lines:
        articles = write("articles.jsonl", b"".join(islice(lines, 300)))
    official = real_data / "tokenizer" / "spiece.model"
    train = build_corpus([articles], tokenizer=official, output=tmp_path / "wiki", workers=1).train
    lengths = np.diff(Corpus.open(tmp_path / "wiki", verify=True).shards[0].sentences)
    assert train.documents == 300
    assert train.unknown_tokens < 0.003 * train.tokens
    assert 20 < np.median(lengths) < 40
    assert np.mean(lengths > 128) < 0.005


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl.gz"])
def test_a_build_of_one_part_says_how_much_it_has_read(
    name: str, write: Write, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "SECONDS_BETWEEN", 0.001)
    texts = [" ".join(f"Anna saw {pow(3, 50 * n + k, 99_991)} balls." for k in range(50)) for n in range(800)]
    path = write(name, "\n\n".join(texts) if name == "a.txt" else gzip.compress(rows(texts).encode()))
    seen: list[BuildProgress] = []
    summary = build(path, report=seen.append)
    shares = [look.share for look in seen]
    assert shares == sorted(shares)
    assert any(0 < share < 1 for share in shares)
    assert any(look.seconds_left for look in seen)
    last = seen[-1]
    assert (last.share, last.parts_done, last.num_parts, last.tokens) == (1, 1, 1, summary.train.tokens)
