"""Trouble that is found in texts and in corpora."""

from itertools import cycle
from pathlib import Path

import pytest

from litebert.corpus import CheckReport, Finding, check, check_corpus, check_text
from litebert.corpus import build as building
from litebert.corpus.build import is_held_out

from .conftest import Build, Write, paragraphs, rows, stories


def findings(report: CheckReport) -> dict[str, Finding]:
    return {finding.kind: finding for finding in report.findings}


TROUBLE = [
    ("mojibake", "The cafÃ© isnâ€™t open.", 2, ""),
    ("replacement character", "A lost \ufffd and \ufffd.", 2, ""),
    ("control character", "A bell \x07 rang.", 1, ""),
    ("short sentence", "II.", 1, "II."),
    ("long sentence", "word " * 500, 1, "word word"),
    ("unknown token", "A ☃ and a ☃ and a ♞.", 3, "'☃' 2, '♞' 1"),
]


@pytest.mark.parametrize(("kind", "line", "times", "told"), TROUBLE)
def test_trouble_is_found_with_its_line(
    write: Write, vocabulary: Path, kind: str, line: str, times: int, told: str
) -> None:
    (good,) = stories(1)
    path = write("a.txt", "\n".join([*good, line, *good]))
    tokenizer = vocabulary if kind == "unknown token" else None
    found = findings(check_text([path], sentences="line", tokenizer=tokenizer))[kind]
    assert (found.where, found.count) == (f"{path}:10", times)
    assert told in found.example


def test_trouble_between_documents_is_found_and_clean_text_has_none(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = check_text([write("a.txt", paragraphs(stories(60)))], sentences="line")
    assert report.findings == ()
    assert (report.counts["documents"], report.counts["sentences"]) == (60, 540)
    assert "nothing to correct" in str(report)

    told = [" ".join(story) for story in stories(20)]
    first, second = write("a.jsonl", rows([*told, told[3]])), write("b.txt", told[5].replace(". ", ".\n\n"))
    found = findings(check_text([first, second], documents="file"))["duplicate document"]
    assert (found.count, found.where, found.example) == (2, f"{first}:21", f"repeats {first}:4")
    monkeypatch.setattr(check, "MOST_LINES", 40)  # of 361
    path = write("c.txt", paragraphs([*story, "All rights reserved."] for story in stories(40)))
    found = findings(check_text([path], sentences="line"))["repeated line"]
    assert (found.count, found.example, found.where) == (40, "All rights reserved.", f"{path}:10")
    path = write("d.jsonl", rows(["One. Two.", " ", "Three."]))
    several = findings(check_text([path]))
    assert several["empty document"].where == f"{path}:2"
    assert several["single-sentence document"].where == f"{path}:3"

    bad, good = write("e.txt", b"one\ncaf\xe9\n"), write("f.txt", paragraphs(stories(1)))
    report = check_text([bad, good], sentences="line")
    found = findings(report)["unreadable"]
    assert report.has_errors and report.counts["sentences"] >= 9, "the others are read"
    assert "line 2: not UTF-8" in found.example and "iconv" in found.advice


def test_trouble_in_a_corpus_is_found_and_so_is_overlap_with_what_is_held_out(
    write: Write, build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = [" ".join(story) for story in [*stories(40), *stories(5)]]
    odd = ["Only one lantern.", "word " * 600 + ". Two.", "A ☃ melts. Two boots."]
    build(write("a.jsonl", rows(told + odd)), held_out=0.2)
    found = findings(check_corpus(tmp_path / "corpus"))
    repeated = [story for story in stories(5) if not is_held_out(" ".join(story), 0.2)]
    assert found["duplicate document"].count == len(repeated) > 0
    assert found["single-sentence document"].example == "only one lantern."
    assert found["long sentence"].example.startswith("word word word")
    assert found["unknown token"].count == 1
    assert "held-out overlap" not in found

    turns = cycle([False, True])
    monkeypatch.setattr(building, "is_held_out", lambda *_: next(turns))
    build(write("b.jsonl", rows([told[0], told[0], *told[1:]])), output="other", held_out=0.2)
    report = check_corpus(tmp_path / "other")
    assert report.has_errors
    assert findings(report)["held-out overlap"].where == "held-out/shard-00000-0000:0"


def test_text_that_cannot_be_held_out_is_warned_of_with_what_helps(write: Write) -> None:
    for text, documents, advice in (
        ("One.\n\nTwo.", "file", "--documents blank-line makes a document of every paragraph"),
        ("One.\nTwo.", "blank-line", "put blank lines between documents"),
    ):
        found = findings(check_text([write("a.txt", text)], documents=documents))["few documents"]
        assert found.severity == "warning"
        assert found.advice.startswith(advice)
