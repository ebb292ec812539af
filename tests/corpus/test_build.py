"""Text to a corpus folder and back."""

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from litebert.corpus import Corpus, build, build_corpus, check_corpus
from litebert.corpus.manifest import CorpusPlan
from litebert.errors import LitebertError
from litebert.tokenizer import Tokenizer

Stories = Callable[..., list[list[str]]]
Write = Callable[[str, bytes | str], Path]
Jsonl = Callable[[str, list[list[str]]], Path]
ReadBack = Callable[[Corpus, Tokenizer], list[list[str]]]
Tree = Callable[[Path], dict[str, bytes]]


def lowered(stories: list[list[str]]) -> list[list[str]]:
    return [[sentence.lower() for sentence in story] for story in stories]


def test_corpus_decodes_to_its_documents_and_sentences(
    jsonl: Jsonl, stories: Stories, vocabulary: Path, tokenizer: Tokenizer, read_back: ReadBack, tmp_path: Path
) -> None:
    told = stories(30)
    summary = build_corpus([jsonl("a.jsonl.gz", told)], tokenizer=vocabulary, output=tmp_path / "corpus", workers=1)
    corpus = Corpus.open(tmp_path / "corpus", verify=True)
    assert read_back(corpus, tokenizer) == lowered(told)
    assert corpus.held_out() is None
    assert (corpus.tokenizer_hash, corpus.vocab_size) == (tokenizer.hash, tokenizer.vocab_size)
    assert Tokenizer.load(corpus.tokenizer_path).hash == tokenizer.hash
    assert (summary.train.documents, summary.train.sentences) == (30, 270)
    assert summary.train.tokens == corpus.num_tokens == len(corpus.shards[0].tokens)


def test_shards_are_plain_npy_files(jsonl: Jsonl, stories: Stories, vocabulary: Path, tmp_path: Path) -> None:
    inputs = [jsonl("a.jsonl.gz", stories(5))]
    build_corpus(inputs, tokenizer=vocabulary, output=tmp_path / "corpus", workers=1)
    shard = tmp_path / "corpus" / "shard-00000-0000"
    opened = Corpus.open(tmp_path / "corpus").shards[0]
    for name, dtype in (("tokens", "<u2"), ("sentences", "<i8"), ("documents", "<i8")):
        loaded = np.load(shard / f"{name}.npy", mmap_mode="r")
        assert loaded.dtype == dtype
        np.testing.assert_array_equal(loaded, getattr(opened, name))


def test_what_has_no_token_is_left_out_and_counted(
    write: Write, vocabulary: Path, tokenizer: Tokenizer, read_back: ReadBack, tmp_path: Path
) -> None:
    rows = ["one\n\u200b\ntwo", "", " \n ", "\u200b", "three"]
    path = write("a.jsonl", "".join(json.dumps({"text": row}) + "\n" for row in rows))
    output = tmp_path / "corpus"
    summary = build_corpus([path], tokenizer=vocabulary, output=output, sentences="line", workers=1)
    assert read_back(Corpus.open(output, verify=True), tokenizer) == [["one", "two"], ["three"]]
    assert (summary.train.empty_documents, summary.train.empty_sentences) == (3, 2)
    assert summary.train.single_sentence_documents == 1


def test_big_inputs_roll_over_between_documents(
    jsonl: Jsonl, stories: Stories, vocabulary: Path, tokenizer: Tokenizer, read_back: ReadBack, tmp_path: Path
) -> None:
    told, output = stories(40), tmp_path / "corpus"
    summary = build_corpus(
        [jsonl("a.jsonl.gz", told)], tokenizer=vocabulary, output=output, shard_tokens=1_000, workers=1
    )
    corpus = Corpus.open(output, verify=True)
    assert summary.num_shards == len(corpus.shards) > 3
    assert all(len(shard.tokens) >= 1_000 for shard in corpus.shards[:-1])
    assert [shard.path.name for shard in corpus.shards[:2]] == ["shard-00000-0000", "shard-00000-0001"]
    assert read_back(corpus, tokenizer) == lowered(told)


def test_long_document_streams_through_many_batches(
    write: Write, stories: Stories, vocabulary: Path, tmp_path: Path
) -> None:
    told = [" ".join(story) for story in stories(2_000)]
    output = tmp_path / "corpus"
    summary = build_corpus(
        [write("a.txt", "\n\n".join(told))], tokenizer=vocabulary, output=output, documents="file", workers=1
    )
    assert (summary.train.documents, summary.train.sentences) == (1, 18_000)


def test_bytes_do_not_depend_on_the_number_of_workers(
    jsonl: Jsonl, stories: Stories, vocabulary: Path, tmp_path: Path, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "PART_BYTES", 1)
    inputs = [jsonl(f"{k}.jsonl.gz", stories(12, 20 * k)) for k in range(3)]
    for workers in (1, 2):
        summary = build_corpus(
            inputs,
            tokenizer=vocabulary,
            output=tmp_path / str(workers),
            held_out=0.2,
            shard_tokens=1_000,
            workers=workers,
        )
        assert summary.num_shards > 3
    assert tree(tmp_path / "1") == tree(tmp_path / "2")


def test_held_out_documents_are_disjoint_and_duplicates_stay_together(
    jsonl: Jsonl,
    write: Write,
    stories: Stories,
    vocabulary: Path,
    tokenizer: Tokenizer,
    read_back: ReadBack,
    tmp_path: Path,
) -> None:
    told = stories(60)
    again = write("again.txt", "\n\n".join("\n".join(story) for story in told))
    output = tmp_path / "corpus"
    summary = build_corpus(
        [jsonl("a.jsonl.gz", told), again],
        tokenizer=vocabulary,
        output=output,
        documents="blank-line",
        held_out=0.3,
        workers=1,
    )
    corpus = Corpus.open(output, verify=True)
    held_out = corpus.held_out(verify=True)
    assert held_out is not None
    assert held_out.held_out() is None
    train, kept = read_back(corpus, tokenizer), read_back(held_out, tokenizer)
    assert sorted(train + kept) == sorted(2 * lowered(told))
    assert not [story for story in kept if story in train]
    assert summary.held_out is not None
    assert 10 < summary.held_out.documents < 70


def test_finished_corpus_is_not_built_again(jsonl: Jsonl, stories: Stories, vocabulary: Path, tmp_path: Path) -> None:
    path, output = jsonl("a.jsonl.gz", stories(5)), tmp_path / "corpus"
    first = build_corpus([path], tokenizer=vocabulary, output=output, workers=1)
    stamp = (output / "shard-00000-0000").stat().st_mtime_ns
    assert build_corpus([path], tokenizer=vocabulary, output=output, workers=1) == first
    assert (output / "shard-00000-0000").stat().st_mtime_ns == stamp


def test_other_settings_are_refused_field_by_field(
    jsonl: Jsonl, stories: Stories, vocabulary: Path, tmp_path: Path
) -> None:
    path, output = jsonl("a.jsonl.gz", stories(5)), tmp_path / "corpus"
    build_corpus([path], tokenizer=vocabulary, output=output, workers=1)
    with pytest.raises(LitebertError, match="begun with other settings") as caught:
        build_corpus([path, path], tokenizer=vocabulary, output=output, held_out=0.1, language="de")
    assert caught.value.received == ("language: en -> de; held_out: 0.0 -> 0.1; inputs: 1 -> 2 files")


def test_folder_of_something_else_is_left_alone(write: Write, vocabulary: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    write("mine/thesis.partial-1", "precious")
    with pytest.raises(LitebertError, match="is not empty"):
        build_corpus([write("a.txt", "x")], tokenizer=vocabulary, output=tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.partial-1").read_text() == "precious"


@pytest.mark.parametrize(
    ("setting", "value", "code"),
    [
        ("held_out", 1.0, "LB-335"),
        ("held_out", -0.1, "LB-335"),
        ("held_out", float("nan"), "LB-335"),
        ("shard_tokens", 0, "LB-336"),
        ("workers", 0, "LB-336"),
    ],
)
def test_impossible_number_is_refused(
    write: Write, vocabulary: Path, tmp_path: Path, setting: str, value: float, code: str
) -> None:
    with pytest.raises(LitebertError) as caught:
        build_corpus(
            [write("a.txt", "x")],
            tokenizer=vocabulary,
            output=tmp_path / "corpus",
            **{setting: value},  # type: ignore[arg-type]
        )
    assert caught.value.code == code
    assert not (tmp_path / "corpus").exists()


def test_corpus_without_a_token_is_refused(write: Write, vocabulary: Path, tmp_path: Path) -> None:
    with pytest.raises(LitebertError, match="no document is left to train on"):
        build_corpus([write("a.txt", "\u200b\n")], tokenizer=vocabulary, output=tmp_path / "corpus", workers=1)


@pytest.mark.parametrize("workers", [1, 2])
def test_error_in_an_input_stops_the_build_and_mending_it_resumes(
    jsonl: Jsonl,
    write: Write,
    stories: Stories,
    vocabulary: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    workers: int,
) -> None:
    monkeypatch.setattr(build, "PART_BYTES", 1)
    good, output = jsonl("a.jsonl.gz", stories(9)), tmp_path / "corpus"
    bad = write("b.jsonl", '{"text": "one"}\n{"text": 2222}\n')
    with pytest.raises(LitebertError, match="line 2: column text is not text"):
        build_corpus([good, bad], tokenizer=vocabulary, output=output, workers=workers)
    with pytest.raises(LitebertError, match="not a finished corpus") as caught:
        Corpus.open(output)
    assert "to resume" in caught.value.next
    write("b.jsonl", '{"text": "one"}\n{"text": "tw"}\n')
    summary = build_corpus([good, bad], tokenizer=vocabulary, output=output, workers=1)
    assert summary.train.documents == 11


def test_memory_does_not_grow_with_the_input(jsonl: Jsonl, stories: Stories, vocabulary: Path, tmp_path: Path) -> None:
    peaks = []
    for kilobytes in (2_500, 25_000):
        text = " ".join(sentence for story in stories(250) for sentence in story)
        path = jsonl(f"{kilobytes}.jsonl.gz", [[text]] * (kilobytes * 1_000 // len(text)))
        command = [sys.executable, "-c", PEAK, str(path), str(vocabulary), str(path) + ".corpus"]
        peaks.append(int(subprocess.check_output(command)))
    assert peaks[1] - peaks[0] < 10_000, "kilobytes, of 22,500 more that were read"


PEAK = """
import re, sys
from pathlib import Path
from litebert.corpus import build_corpus
build_corpus([sys.argv[1]], tokenizer=sys.argv[2], output=sys.argv[3], workers=1)
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""


def test_ids_of_a_large_vocabulary_take_four_bytes() -> None:
    plan = CorpusPlan.model_construct(vocab_size=65_536)
    assert plan.token_dtype == "<u2"
    assert plan.model_copy(update={"vocab_size": 65_537}).token_dtype == "<u4"


def test_real_articles_become_sentences_of_sensible_length(real_data: Path, write: Write, tmp_path: Path) -> None:
    with gzip.open(real_data / "text" / "wiki_articles.jsonl.gz") as lines:
        articles = write("articles.jsonl", b"".join(islice(lines, 300)))
    official = real_data / "tokenizer" / "spiece.model"
    summary = build_corpus([articles], tokenizer=official, output=tmp_path / "wiki", workers=1)
    corpus = Corpus.open(tmp_path / "wiki", verify=True)
    lengths = np.diff(corpus.shards[0].sentences)
    assert summary.train.documents == 300
    assert summary.train.unknown_tokens < 0.003 * summary.train.tokens
    assert 20 < np.median(lengths) < 40
    assert np.mean(lengths > 128) < 0.005


# (documents, share): text of stories, or of one document; what is held out of how many
HELD_OUT = [
    (120, "blank-line", 0.01, 1),
    (5, "blank-line", 0.02, 1),
    (40, "blank-line", 0.05, 2),
    (2, "blank-line", 0.5, 1),
    (3, "blank-line", 0.999, 2),
    (1, "blank-line", 0.02, 1),
    (40, "file", 0.1, 1),
]


@pytest.mark.parametrize(("count", "documents", "share", "expected"), HELD_OUT)
def test_at_least_one_document_is_held_out_or_the_end_of_the_only_one(
    write: Write,
    stories: Stories,
    vocabulary: Path,
    tokenizer: Tokenizer,
    read_back: ReadBack,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    documents: str,
    share: float,
    expected: int,
) -> None:
    told = stories(count)
    told += told[-1:] if count > 1 else []  # a copy, which must not be held out
    source = write("a.txt", "\n\n".join("\n".join(story) for story in told))
    for to_held_out in (False, True):  # whatever chance says of all of them
        monkeypatch.setattr(build, "is_held_out", lambda *_, side=to_held_out: side)
        output = tmp_path / str(to_held_out)
        summary = build_corpus(
            [source],
            tokenizer=vocabulary,
            output=output,
            sentences="line",
            documents=documents,
            held_out=share,
            shard_tokens=1_500,
            workers=1,
        )
        assert summary.held_out is not None
        corpus = Corpus.open(output, verify=True)
        held_out = corpus.held_out(verify=True)
        assert held_out is not None
        assert not check_corpus(output).has_errors, "nothing is held out that is also trained on"
        kept, trained = read_back(held_out, tokenizer), read_back(corpus, tokenizer)
        assert sorted(line for story in kept + trained for line in story) == sorted(
            line for story in lowered(told) for line in story
        )
        assert 1 <= len(kept) <= (expected + 1 if not to_held_out else count)
        assert (summary.train.sentences, summary.held_out.sentences) == (corpus.num_sentences, held_out.num_sentences)
        assert len(list(output.glob("**/shard-*"))) == summary.num_shards
        if documents == "file":
            assert len(kept[0]) == round(0.1 * 9 * (count + 1))


def test_a_single_sentence_cannot_be_divided_and_another_option_is_enough(
    write: Write, vocabulary: Path, tmp_path: Path
) -> None:
    settings = {"tokenizer": vocabulary, "output": tmp_path / "corpus", "workers": 1}
    path = write("a.txt", "my uncle lost the ladder")
    with pytest.raises(LitebertError, match="LB-343"):
        build_corpus([path], **settings, held_out=0.02)  # type: ignore[arg-type]
    assert build_corpus([path], **settings).train.documents == 1  # type: ignore[arg-type]


def test_rows_of_ndjson_are_documents(write: Write, vocabulary: Path, tmp_path: Path) -> None:
    path = write("a.ndjson", '{"text": "one two"}\n{"text": "three"}\n')
    assert build_corpus([path], tokenizer=vocabulary, output=tmp_path / "corpus", workers=1).train.documents == 2
