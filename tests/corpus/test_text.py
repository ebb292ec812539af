"""Documents, passages and sentences found in free text."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.corpus import text
from litebert.corpus.text import Passage, TextSettings, read_passages, sentence_chunks, split_sentences
from litebert.errors import LitebertError
from litebert.reading.source import Source

from .conftest import stories

Write = Callable[[str, bytes | str], Source]
BLANK_LINE, FILE, LINE = TextSettings(), TextSettings(documents="file"), TextSettings(sentences="line")


def test_blank_lines_end_documents_where_asked_and_passages_of_a_long_one(
    source: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = source("a.txt", "\n\none\ntwo\n \t\n\nthree\n")
    first, last = Passage("one\ntwo", 3, 0), Passage("three", 7, 1)
    assert list(read_passages(file, BLANK_LINE)) == [first, last]
    assert list(read_passages(file, FILE)) == [Passage("one\ntwo\n \t\n\nthree", 3, 0)]
    monkeypatch.setattr(text, "PASSAGE_CHARACTERS", 5)
    assert list(read_passages(file, FILE)) == [first, Passage("three", 7, 0)]


def words_of(passages: list[Passage]) -> list[list[str]]:
    """Return the words of each document."""
    documents: list[list[str]] = []
    for passage in passages:
        if passage.document == len(documents):
            documents.append([])
        documents[passage.document] += passage.text.split()
    return documents


@given(st.lists(st.text(st.sampled_from("ab \t"), max_size=12)), st.booleans(), st.integers(1, 30))
@settings(deadline=None, max_examples=60)
def test_passages_hold_all_text_however_it_is_cut(lines: list[str], ends_at_blank: bool, size: int) -> None:
    numbered = list(enumerate(lines, 1))
    whole = list(text._text_passages(numbered, ends_at_blank=ends_at_blank))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "PASSAGE_CHARACTERS", size)
        patch.setattr(text, "LONGEST_PASSAGE", 2 * size)
        cut = list(text._text_passages(numbered, ends_at_blank=ends_at_blank))
    assert words_of(cut) == words_of(whole)
    assert [word for document in words_of(cut) for word in document] == " ".join(lines).split()
    assert all(passage.text.startswith(lines[passage.line - 1]) for passage in cut)


def test_input_without_text_is_refused(source: Write) -> None:
    for name, content in (("a.txt", " \n\n\t\n"), ("a.jsonl", "\n\n"), ("b.jsonl", '{"text": " "}')):
        with pytest.raises(LitebertError, match="has no text"):
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
SENTENCES = [
    (" ".join(PROSE), TextSettings(), PROSE),
    (
        "A heading\n \nA sentence that\nwraps. Next\n\n\nEnd",
        TextSettings(),
        ["A heading", "A sentence that\nwraps.", "Next", "End"],
    ),
    ("One. Two.\n\n  three \r\n", LINE, ["One. Two.", "three"]),
    ("Das ist z.B. gut. Ja.", TextSettings(language="de"), ["Das ist z.B. gut.", "Ja."]),
]


def test_sentences_end_where_a_reader_ends_them() -> None:
    for given_text, choice, expected in SENTENCES:
        assert list(split_sentences(given_text, choice)) == expected
    # long paragraphs and speeches are cut between sentences
    told = [sentence for story in stories(200) for sentence in story]
    assert list(split_sentences(" ".join(told), TextSettings())) == told
    speech = "“" + " ".join(told[:27]) + "”"
    assert list(split_sentences(speech, TextSettings())) == ["“" + told[0], *told[1:26], told[26] + "”"]


UNITS = ["“", "x", "no end ", ". ", ".", '" ', "。", "“Hello there. ", "\n", "a\n", "¡“«(", "(1) a "]


def test_no_block_is_longer_than_the_segmenter_takes_in_linear_time() -> None:
    for unit in UNITS:
        paragraph = unit * (100_000 // len(unit))
        blocks = list(text._blocks(paragraph))
        assert "".join(blocks) == paragraph
        assert max(map(len, blocks)) <= text.LONGEST_BLOCK


QUOTATIONS = st.lists(st.sampled_from([*PROSE, "“", "”", '"', " ", "\n", "x" * 300]), max_size=40).map(" ".join)


@given(st.text(st.characters(exclude_categories=["Cs"])) | QUOTATIONS, st.sampled_from([TextSettings(), LINE]))
@settings(deadline=None, max_examples=160)
def test_no_character_but_white_space_is_lost(given_text: str, choice: TextSettings) -> None:
    found = list(split_sentences(given_text, choice))
    assert "".join("".join(found).split()) == "".join(given_text.split())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "CHUNK_CHARACTERS", 10)
        chunks = list(sentence_chunks(given_text, choice))
    assert [line for chunk in chunks for line in chunk] == found
    assert all(sum(map(len, chunk[:-1])) < 10 for chunk in chunks)
