"""Documents and passages of .txt inputs."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.corpus import text
from litebert.corpus.text import Passage, TextSettings, read_passages
from litebert.errors import LitebertError
from litebert.reading.source import Source

Write = Callable[[str, bytes | str], Source]
BLANK_LINE, FILE = TextSettings(documents="blank-line"), TextSettings(documents="file")


def documents_of(passages: list[Passage]) -> list[str]:
    """Join the passages of each document."""
    documents: list[str] = []
    for passage in passages:
        if passage.is_start:
            documents.append(passage.text)
        else:
            documents[-1] += "\n" + passage.text
    return documents


def test_blank_lines_end_documents_where_asked_and_passages_of_a_long_one(
    source: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = source("a.txt", "\n\none\ntwo\n \t\n\nthree\n")
    first, last = Passage("one\ntwo", 3, is_start=True), Passage("three", 7, is_start=True)
    assert list(read_passages(file, BLANK_LINE)) == [first, last]
    assert list(read_passages(file, FILE)) == [Passage("one\ntwo\n \t\n\nthree", 3, is_start=True)]
    monkeypatch.setattr(text, "PASSAGE_CHARACTERS", 5)
    assert list(read_passages(file, FILE)) == [first, Passage("three", 7, is_start=False)]


@given(
    st.lists(st.text(st.sampled_from("ab \t"), max_size=12)), st.sampled_from([BLANK_LINE, FILE]), st.integers(1, 30)
)
@settings(deadline=None, max_examples=60)
def test_passages_hold_all_text_however_it_is_cut(lines: list[str], choice: TextSettings, size: int) -> None:
    numbered = list(enumerate(lines, 1))
    ends_at_blank = choice.documents == "blank-line"
    whole = list(text._text_passages(numbered, ends_at_blank=ends_at_blank))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "PASSAGE_CHARACTERS", size)
        patch.setattr(text, "LONGEST_PASSAGE", 2 * size)
        cut = list(text._text_passages(numbered, ends_at_blank=ends_at_blank))
    words = [document.split() for document in documents_of(whole)]
    assert [document.split() for document in documents_of(cut)] == words
    assert [word for document in words for word in document] == " ".join(lines).split()
    assert all(passage.text.startswith(lines[passage.line - 1]) for passage in cut)


@pytest.mark.parametrize(
    ("name", "content"), [("a.txt", " \n\n\t\n"), ("a.jsonl", "\n\n"), ("b.jsonl", '{"text": " "}')]
)
def test_input_without_text_is_refused(source: Write, name: str, content: str) -> None:
    with pytest.raises(LitebertError, match="contains no text"):
        list(read_passages(source(name, content), BLANK_LINE))
