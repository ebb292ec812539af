"""Trouble that is found in texts and in corpora."""

from collections.abc import Callable
from pathlib import Path

import pytest

from litebert.corpus import CheckReport, Corpus, Finding, check_corpus, check_text
from litebert.corpus.build import CorpusSummary, is_held_out
from litebert.corpus.check import RepeatedLines

from .conftest import paragraphs
from .test_build import rows

Stories = Callable[..., list[list[str]]]
Write = Callable[[str, bytes | str], Path]


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
    write: Write, stories: Stories, vocabulary: Path, kind: str, line: str, times: int, told: str
) -> None:
    good = stories(1)[0]
    path = write("a.txt", "\n".join([*good, line, *good]))
    tokenizer = vocabulary if kind == "unknown token" else None
    found = findings(check_text([path], sentences="line", tokenizer=tokenizer))[kind]
    assert (found.where, found.count) == (f"{path}:10", times)
    assert told in found.example


def test_trouble_between_documents_is_found_and_clean_text_has_none(write: Write, stories: Stories) -> None:
    report = check_text([write("a.txt", paragraphs(stories(60)))], sentences="line")
    assert report.findings == ()
    assert (report.counts["documents"], report.counts["sentences"]) == (60, 540)
    assert "nothing to correct" in str(report)

    told = [" ".join(story) for story in stories(20)]
    first, second = write("a.jsonl", rows([*told, told[3]])), write("b.txt", told[5].replace(". ", ".\n\n"))
    found = findings(check_text([first, second], documents="file"))["duplicate document"]
    assert (found.count, found.where, found.example) == (2, f"{first}:21", f"repeats {first}:4")
    path = write("c.txt", paragraphs([*story, "All rights reserved."] for story in stories(40)))
    found = findings(check_text([path], sentences="line"))["repeated line"]
    assert (found.count, found.example, found.where) == (40, "All rights reserved.", f"{path}:10")
    path = write("d.jsonl", rows(["One. Two.", " ", "Three."]))
    several = findings(check_text([path]))
    assert several["empty document"].where == f"{path}:2"
    assert several["single-sentence document"].where == f"{path}:3"


def test_repeated_lines_are_counted_in_a_bounded_table() -> None:
    lines = RepeatedLines(limit=2)
    for number, line in enumerate(["buy", "a", "buy", "b", "buy", "c"], 1):
        lines.add(line, f"a.txt:{number}")
    assert lines.seen["buy"] == (3, "a.txt:1")


def test_unreadable_input_is_a_finding_and_the_others_are_read(write: Write, stories: Stories) -> None:
    bad, good = write("a.txt", b"one\ncaf\xe9\n"), write("b.txt", paragraphs(stories(1)))
    report = check_text([bad, good], sentences="line")
    found = findings(report)["unreadable"]
    assert report.has_errors and report.counts["sentences"] >= 9
    assert "line 2: not UTF-8" in found.example and "iconv" in found.advice


def test_trouble_in_a_corpus_is_found_and_so_is_overlap_with_what_is_held_out(
    write: Write, stories: Stories, build: Callable[..., CorpusSummary], tmp_path: Path
) -> None:
    told = [" ".join(story) for story in [*stories(40), *stories(5)]]
    odd = ["Only one lantern.", "word " * 600 + ". Two.", "A ☃ melts. Two boots."]
    build(write("a.jsonl", rows(told + odd)), held_out=0.2)
    corpus, other = tmp_path / "corpus", tmp_path / "other"
    found = findings(check_corpus(corpus))
    repeated = [story for story in stories(5) if not is_held_out(" ".join(story), 0.2)]
    assert found["duplicate document"].count == len(repeated) > 0
    assert found["single-sentence document"].example == "only one lantern."
    assert found["long sentence"].example.startswith("word word word")
    assert found["unknown token"].count == 1
    assert "held-out overlap" not in found

    held_out = Corpus.open(corpus).held_out()
    corpus.rename(other)
    (other / "held-out").rename(corpus)  # a corpus that holds itself out
    manifest = corpus / "corpus.json"
    manifest.write_text(manifest.read_text().replace('"part": "held-out"', '"part": "train"'))
    paths = list(corpus.iterdir())
    (corpus / "held-out").mkdir()
    for path in paths:
        (corpus / "held-out" / path.name).symlink_to(path)
    report = check_corpus(corpus)
    assert report.has_errors
    assert findings(report)["held-out overlap"].count == held_out.num_documents


def test_text_that_cannot_be_held_out_is_warned_of_with_what_helps(write: Write) -> None:
    for text, documents, advice in (
        ("One.\n\nTwo.", "file", "--documents blank-line makes a document of every paragraph"),
        ("One.\nTwo.", "blank-line", "put blank lines between documents"),
    ):
        found = findings(check_text([write("a.txt", text)], documents=documents))["few documents"]
        assert found.severity == "warning"
        assert found.advice.startswith(advice)
