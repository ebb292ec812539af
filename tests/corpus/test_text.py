"""Documents, passages and sentences in free text; problems in texts and in corpora, and
near duplicates.
"""

import json
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.corpus import check, check_corpus, check_text, part, text
from litebert.corpus.filter import corpus_filter
from litebert.corpus.text import (
    Passage,
    TextSettings,
    read_passages,
    sentence_chunks,
    split_sentences,
)
from litebert.errors import LitebertError
from litebert.reading.findings import CheckReport, Finding
from litebert.reading.source import Source

from .conftest import Build, Write, paragraphs, rows, tales

Find = Callable[[str, bytes | str], Source]
BLANK_LINE = TextSettings()
FILE = TextSettings(documents="file")
LINE = TextSettings(sentences="line")


def test_blank_lines_end_documents_on_request_and_passages_of_a_long_one(
    source: Find, monkeypatch
) -> None:
    file = source("a.txt", "\n\none\ntwo\n \t\n\nthree\n")
    first = Passage("one\ntwo", 3, 0)
    last = Passage("three", 7, 1)
    assert list(read_passages(file, BLANK_LINE)) == [first, last]
    assert list(read_passages(file, FILE)) == [Passage("one\ntwo\n \t\n\nthree", 3, 0)]
    monkeypatch.setattr(text, "PASSAGE_CHARACTERS", 5)
    assert list(read_passages(file, FILE)) == [first, Passage("three", 7, 0)]


@given(
    st.lists(st.text(st.sampled_from("ab \t"), max_size=12)),
    st.booleans(),
    st.integers(1, 30),
)
@settings(deadline=None, max_examples=60)
def test_passages_hold_all_text_however_it_is_cut(
    lines: list[str], ends_at_blank: bool, size: int
) -> None:
    numbered = list(enumerate(lines, 1))
    whole = list(text._text_passages(numbered, ends_at_blank=ends_at_blank))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "PASSAGE_CHARACTERS", size)
        patch.setattr(text, "LONGEST_PASSAGE", 2 * size)
        cut = list(text._text_passages(numbered, ends_at_blank=ends_at_blank))
    once, again = (
        [(p.document, word) for p in passages for word in p.text.split()]
        for passages in (whole, cut)
    )
    assert once == again and [word for _, word in again] == " ".join(lines).split()
    assert all(passage.text.startswith(lines[passage.line - 1]) for passage in cut)


def test_input_without_text_is_refused(source: Find) -> None:
    for name, content in (
        ("a.txt", " \n\n\t\n"),
        ("a.jsonl", "\n\n"),
        ("b.jsonl", '{"text": " "}'),
    ):
        with pytest.raises(LitebertError, match="has no content"):
            list(read_passages(source(name, content), BLANK_LINE))


PROSE = [
    "Dr. Smith left the U.S. on Jan. 5 with $3.5 million.",
    '"Is it cold?" he asked.',
    "See Fig. 3, e.g. the upper half.",
    "“Well!” she cried, “I never.”",
    "J. R. R. Tolkien wrote it.",
    "Mr. and Mrs. Jones came at 5 p.m. precisely.",
    "He waited… and went home!",
]
WRAPPED = "A heading\n \nA sentence that\nwraps. Next\n\n\nEnd"
SENTENCES = [
    (" ".join(PROSE), BLANK_LINE, PROSE),
    (WRAPPED, BLANK_LINE, ["A heading", "A sentence that\nwraps.", "Next", "End"]),
    ("One. Two.\n\n  three \r\n", LINE, ["One. Two.", "three"]),
    (
        "Das ist z.B. gut. Ja.",
        TextSettings(language="de"),
        ["Das ist z.B. gut.", "Ja."],
    ),
]


def test_sentences_end_where_a_reader_ends_them() -> None:
    for given_text, choice, expected in SENTENCES:
        assert list(split_sentences(given_text, choice)) == expected
    # long paragraphs and speeches are cut between sentences
    long = [sentence for story in tales(200) for sentence in story]
    assert list(split_sentences(" ".join(long), BLANK_LINE)) == long
    speech = "“" + " ".join(long[:27]) + "”"
    assert list(split_sentences(speech, BLANK_LINE)) == [
        "“" + long[0],
        *long[1:26],
        long[26] + "”",
    ]


def test_no_block_is_longer_than_the_segmenter_takes_in_linear_time() -> None:
    for unit in (
        "“",
        "x",
        "no end ",
        ". ",
        ".",
        '" ',
        "。",
        "“Hello there. ",
        "\n",
        "a\n",
        "¡“«(",
        "(1) a ",
    ):
        paragraph = unit * (100_000 // len(unit))
        blocks = list(text._blocks(paragraph))
        assert (
            "".join(blocks) == paragraph and max(map(len, blocks)) <= text.LONGEST_BLOCK
        )


QUOTATIONS = st.lists(
    st.sampled_from([*PROSE, "“", "”", '"', " ", "\n", "x" * 300]), max_size=40
).map(" ".join)


@given(
    st.text(st.characters(exclude_categories=["Cs"])) | QUOTATIONS,
    st.sampled_from([BLANK_LINE, LINE]),
)
@settings(deadline=None, max_examples=160)
def test_no_character_but_white_space_is_lost(
    given_text: str, choice: TextSettings
) -> None:
    sentences = list(split_sentences(given_text, choice))
    assert "".join("".join(sentences).split()) == "".join(given_text.split())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "CHUNK_CHARACTERS", 10)
        chunks = list(sentence_chunks(given_text, choice))
    assert [line for chunk in chunks for line in chunk] == sentences
    assert all(sum(map(len, chunk[:-1])) < 10 for chunk in chunks)


def findings(report: CheckReport) -> dict[str, Finding]:
    return {finding.kind: finding for finding in report.findings}


PROBLEMS = [
    ("mojibake", "The cafÃ© isnâ€™t open.", 2, ""),
    ("replacement character", "A lost \ufffd and \ufffd.", 2, ""),
    ("control character", "A bell \x07 rang.", 1, ""),
    ("short sentence", "II.", 1, "II."),
    ("long sentence", "word " * 500, 1, "word word"),
    ("unknown token", "A ☃ and a ☃ and a ♞.", 3, "'☃' 2, '♞' 1"),
]


def test_problems_are_found_with_their_line(write: Write, vocabulary: Path) -> None:
    (good,) = tales(1)
    for kind, line, times, example in PROBLEMS:
        path = write("a.txt", "\n".join([*good, line, *good]))
        tokenizer = vocabulary if kind == "unknown token" else None
        finding = findings(check_text([path], LINE, tokenizer=tokenizer))[kind]
        assert (finding.where, finding.count, example in finding.example) == (
            f"{path}:10",
            times,
            True,
        )


def test_clean_text_has_nothing_to_correct_and_a_single_document_gives_a_warning(
    write: Write,
) -> None:
    report = check_text([write("a.txt", paragraphs(tales(60)))], LINE)
    assert (
        report.findings,
        report.counts["documents"],
        report.counts["sentences"],
    ) == ((), 60, 540)
    assert "nothing to correct" in str(report)
    finding = findings(check_text([write("a.txt", "One.\n\nTwo.")], BLANK_LINE))[
        "few documents"
    ]
    assert (finding.severity, finding.count) == (
        "warning",
        2,
    ) and finding.advice.endswith("blank lines between documents")


def test_problems_between_documents_are_found(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [" ".join(story) for story in tales(20)]
    first = write("a.jsonl", rows([*texts, texts[3]]))
    second = write("b.txt", texts[5].replace(". ", ".\n\n"))
    finding = findings(check_text([first, second], FILE))["duplicate document"]
    assert (finding.count, finding.where, finding.example) == (
        2,
        f"{first}:21",
        f"repeats {first}:4",
    )
    monkeypatch.setattr(check, "MOST_LINES", 40)  # of 361
    path = write(
        "c.txt", paragraphs([*story, "All rights reserved."] for story in tales(40))
    )
    finding = findings(check_text([path], LINE))["repeated line"]
    assert (finding.count, finding.example, finding.where) == (
        40,
        "All rights reserved.",
        f"{path}:10",
    )
    path = write("d.jsonl", rows(["One. Two.", " ", "Three."]))
    several = findings(check_text([path], BLANK_LINE))
    assert (
        several["empty document"].where == f"{path}:2"
        and several["single-sentence document"].where == f"{path}:3"
    )

    bad = write("e.txt", b"one\ncaf\xe9\n")
    good = write("f.txt", paragraphs(tales(1)))
    report = check_text([bad, good], LINE)
    finding = findings(report)["unreadable"]
    assert report.exit_code == 3 and report.counts["sentences"] >= 9, (
        "the others are read"
    )
    assert "line 2: not UTF-8" in finding.example and "iconv" in finding.advice


def test_problems_in_a_corpus_are_found(
    write: Write, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [" ".join(story) for story in [*tales(40), *tales(5)]]
    odd = ["Only one lantern.", "word " * 600 + ". Two.", "A ☃ melts. Two boots."]
    report = check_corpus(build(write("a.jsonl", rows(texts + odd)), held_out=0.2).path)
    by_kind = findings(report)
    assert " single sentence documents, " in str(report)
    repeated = [
        story for story in tales(5) if not part.is_held_out(" ".join(story), 0.2)
    ]
    assert by_kind["duplicate document"].count == len(repeated) > 0
    assert by_kind["single-sentence document"].example == "only one lantern."
    assert by_kind["long sentence"].example.startswith("word word word")
    assert by_kind["unknown token"].count == 1 and "held-out overlap" not in by_kind

    turns = cycle([False, True])
    monkeypatch.setattr(part, "is_held_out", lambda *_: next(turns))
    report = check_corpus(
        build(
            write("b.jsonl", rows([texts[0], *texts])), output="other", held_out=0.2
        ).path
    )
    assert (
        report.exit_code == 3
        and findings(report)["held-out overlap"].where == "held-out/shard-00000-0000:0"
    )


def test_the_first_near_duplicate_is_kept_whole(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "PASSAGE_CHARACTERS", 4)
    monkeypatch.setattr(text, "LONGEST_PASSAGE", 9)
    words, other = (
        [f"{name}{number}" for number in range(60)] for name in ("word", "other")
    )
    whole = "\n\n".join(
        " ".join(words_of_document)
        for words_of_document in (words, [*words[:-1], "another"], other, words)
    )
    summary = corpus_filter(
        str(write("documents.txt", whole)),
        output=tmp_path / "clean.jsonl",
        near_duplicates=0.8,
    )
    assert summary == "2 documents kept, 2 near duplicates omitted"
    kept = [
        json.loads(line)["text"]
        for line in (tmp_path / "clean.jsonl").read_text().splitlines()
    ]
    assert kept == [" ".join(words), " ".join(other)]
    wrapped = write("wrapped.txt", "\n\nA cat\nsat.\n\n\n" + "Two dogs\nran.\n" * 2)
    output = tmp_path / "whole.jsonl"
    corpus_filter(str(wrapped), output=output, documents="file")
    assert json.loads(output.read_text())["text"] == wrapped.read_text().strip(), (
        "lines and paragraphs stay"
    )
    # a .txt is no JSON
    with pytest.raises(
        LitebertError, match=r"LB-300: output=(?s:.*)\.jsonl(?s:.*)filter --help"
    ):
        corpus_filter(str(wrapped), output=tmp_path / "clean.txt")
    # 46 of 66 5-grams
    texts = [
        " ".join(f"{n}.{k}" for k in range(at, at + 60))
        for n in range(20)
        for at in (0, 10)
    ]
    texts += [
        "".join(chr(0x4E00 + 99 * n + k) for k in range(at, at + 60))
        for n in range(20)
        for at in (0, 10)
    ]
    summary = corpus_filter(
        str(write("pairs.jsonl", rows(texts))),
        output=tmp_path / "half.jsonl",
        near_duplicates=0.5,
    )
    assert summary == "40 documents kept, 40 near duplicates omitted"
