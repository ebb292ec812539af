"""Sentences found in free text."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.corpus import text
from litebert.corpus.text import TextSettings, sentence_chunks, split_sentences

Stories = Callable[..., list[list[str]]]

PROSE = [
    "Dr. Smith left the U.S. on Jan. 5 with $3.5 million.",
    '"Is it cold?" he asked.',
    "See Fig. 3, e.g. the upper half.",
    "“Well!” she cried, “I never.”",
    "J. R. R. Tolkien wrote it.",
    "Mr. and Mrs. Jones came at 5 p.m. precisely.",
    "He waited… and went home!",
]


def split(text: str, settings: TextSettings | None = None) -> list[str]:
    return list(split_sentences(text, settings or TextSettings()))


def test_abbreviations_and_quotations_stay_whole() -> None:
    assert split(" ".join(PROSE)) == PROSE


def test_wrapped_lines_are_one_sentence_and_blank_lines_end_one() -> None:
    assert split("A heading\n \nA sentence that\nwraps. Next\n\n\nEnd") == [
        "A heading",
        "A sentence that\nwraps.",
        "Next",
        "End",
    ]


def test_lines_and_languages_change_what_is_a_sentence() -> None:
    assert split("One. Two.\n\n  three \r\n", TextSettings(sentences="line")) == ["One. Two.", "three"]
    assert split("Das ist z.B. gut. Ja.", TextSettings(language="de")) == ["Das ist z.B. gut.", "Ja."]


def test_long_paragraphs_and_speeches_are_cut_between_sentences(stories: Stories) -> None:
    told = [sentence for story in stories(200) for sentence in story]
    assert split(" ".join(told)) == told
    speech = "“" + " ".join(told[:27]) + "”"
    assert split(speech) == ["“" + told[0], *told[1:26], told[26] + "”"]


@pytest.mark.parametrize(
    "unit", ["“", "x", "no end ", ". ", ".", '" ', "。", "“Hello there. ", "\n", "a\n", "¡“«(", "(1) a "]
)
def test_no_block_is_longer_than_the_segmenter_takes_in_linear_time(unit: str) -> None:
    paragraph = unit * (100_000 // len(unit))
    blocks = list(text._blocks(paragraph))
    assert "".join(blocks) == paragraph
    assert max(map(len, blocks)) <= text.LONGEST_BLOCK


quotations = st.lists(st.sampled_from([*PROSE, "“", "”", '"', " ", "\n", "x" * 300]), max_size=40).map(" ".join)


@given(st.text(st.characters(exclude_categories=["Cs"])) | quotations, st.sampled_from(["segment", "line"]))
@settings(deadline=None, max_examples=160)
def test_no_character_but_white_space_is_lost(text: str, mode: str) -> None:
    settings = TextSettings(sentences=mode)  # type: ignore[arg-type]
    found = split(text, settings)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert [line for chunk in sentence_chunks(text, settings) for line in chunk] == found


def test_sentences_come_in_chunks_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "CHUNK_CHARACTERS", 10)
    chunks = list(sentence_chunks("123456\n789012\n345\n", TextSettings(sentences="line")))
    assert chunks == [["123456", "789012"], ["345"]]
