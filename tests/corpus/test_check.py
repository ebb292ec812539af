"""Trouble that is found in texts and in corpora."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from litebert.corpus import Corpus, Finding, build_corpus, check_corpus, check_text
from litebert.corpus.build import is_held_out

Stories = Callable[..., list[list[str]]]
Write = Callable[[str, bytes | str], Path]


def findings(report_of: object) -> dict[str, Finding]:
    return {finding.kind: finding for finding in report_of.findings}  # type: ignore[attr-defined]


def test_clean_text_has_no_findings(write: Write, stories: Stories) -> None:
    text = "\n\n".join("\n".join(story) for story in stories(60))
    report = check_text([write("a.txt", text)], sentences="line")
    assert report.findings == ()
    assert (report.counts["documents"], report.counts["sentences"]) == (60, 540)
    assert "nothing to correct" in str(report)


@pytest.mark.parametrize(
    ("kind", "line", "times"),
    [
        ("mojibake", "The cafÃ© isnâ€™t open.", 2),
        ("replacement character", "A lost \ufffd and \ufffd.", 2),
        ("control character", "A bell \x07 rang.", 1),
        ("short sentence", "II.", 1),
        ("long sentence", "word " * 500, 1),
    ],
)
def test_trouble_is_found_with_its_line(write: Write, stories: Stories, kind: str, line: str, times: int) -> None:
    good = stories(1)[0]
    path = write("a.txt", "\n".join([*good, line, *good]))
    found = findings(check_text([path], sentences="line"))
    assert found[kind].where == f"{path}:10"
    assert found[kind].count == times


def test_duplicates_are_found_across_inputs(write: Write, stories: Stories) -> None:
    told = [" ".join(story) for story in stories(20)]
    rows = "".join(json.dumps({"text": text}) + "\n" for text in [*told, told[3]])
    first = write("a.jsonl", rows)
    second = write("b.txt", told[5].replace(". ", ".\n\n"))
    found = findings(check_text([first, second], documents="file"))["duplicate document"]
    assert (found.count, found.where, found.example) == (2, f"{first}:21", f"repeats {first}:4")


def test_documents_without_use_are_found(write: Write) -> None:
    path = write("a.jsonl", '{"text": "One. Two."}\n{"text": " "}\n{"text": "Three."}\n')
    found = findings(check_text([path]))
    assert found["empty document"].where == f"{path}:2"
    assert found["single-sentence document"].where == f"{path}:3"


def test_boilerplate_is_found(write: Write, stories: Stories) -> None:
    text = "\n\n".join("\n".join([*story, "All rights reserved."]) for story in stories(40))
    found = findings(check_text([write("a.txt", text)], sentences="line"))["repeated line"]
    assert (found.count, found.example) == (40, "All rights reserved.")
    assert found.where.endswith("a.txt:10")


def test_unknown_characters_are_named(write: Write, stories: Stories, vocabulary: Path) -> None:
    path = write("a.txt", "\n".join([*stories(1)[0], "A ☃ and a ☃ and a ♞."]))
    report = check_text([path], sentences="line", tokenizer=vocabulary)
    found = findings(report)["unknown token"]
    assert found.where == f"{path}:10"
    assert found.count == 3
    assert "'☃' 2, '♞' 1" in found.example
    assert report.counts["tokens"] > 100


def test_unreadable_input_is_a_finding_and_the_others_are_read(write: Write, stories: Stories) -> None:
    bad = write("a.txt", b"one\ncaf\xe9\n")
    good = write("b.txt", "\n".join(stories(1)[0]))
    report = check_text([bad, good], sentences="line")
    assert report.has_errors
    assert "line 2: not UTF-8" in findings(report)["unreadable"].example
    assert "iconv" in findings(report)["unreadable"].advice
    assert report.counts["sentences"] >= 9


@pytest.fixture
def corpus(write: Write, stories: Stories, vocabulary: Path, tmp_path: Path) -> Path:
    """Give a corpus with a duplicate, a long sentence, a single one and an unknown token."""
    told = [" ".join(story) for story in stories(40)]
    odd = [*told_twice(stories), "Only one lantern.", "word " * 600 + ". Two.", "A ☃ melts. Two boots."]
    rows = "".join(json.dumps({"text": text}) + "\n" for text in told + odd)
    build_corpus([write("a.jsonl", rows)], tokenizer=vocabulary, output=tmp_path / "corpus", held_out=0.2, workers=1)
    return tmp_path / "corpus"


def told_twice(stories: Stories) -> list[str]:
    return [" ".join(story) for story in stories(5)]


def test_trouble_in_a_corpus_is_found(corpus: Path, stories: Stories) -> None:
    found = findings(check_corpus(corpus))
    repeated = [text for text in told_twice(stories) if not is_held_out(text, 0.2)]
    assert found["duplicate document"].count == len(repeated) > 0
    assert found["single-sentence document"].example == "only one lantern."
    assert found["long sentence"].example.startswith("word word word")
    assert found["unknown token"].count == 1
    assert "held-out overlap" not in found


def test_overlap_with_what_is_held_out_is_found(corpus: Path, tmp_path: Path) -> None:
    other = corpus.parent / "other"
    held_out = Corpus.open(corpus).held_out()
    assert held_out is not None
    corpus.rename(other)
    (other / "held-out").rename(corpus)
    train = other / "corpus.json"
    (corpus / "corpus.json").write_text(
        (corpus / "corpus.json").read_text().replace('"part": "held-out"', '"part": "train"')
    )
    copy = corpus / "held-out"
    copy.mkdir()
    for path in corpus.iterdir():
        if path != copy:
            (copy / path.name).symlink_to(path)
    report = check_corpus(corpus)
    assert train.exists()
    assert findings(report)["held-out overlap"].count == held_out.num_documents
    assert report.has_errors


@pytest.mark.parametrize(
    ("text", "documents", "advice"),
    [
        ("One.\n\nTwo.", "file", "--documents blank-line makes a document of every paragraph"),
        ("One.\nTwo.", "blank-line", "put blank lines between documents"),
    ],
)
def test_text_that_cannot_be_held_out_is_warned_of_with_what_helps(
    write: Write, text: str, documents: str, advice: str
) -> None:
    report = check_text([write("a.txt", text)], documents=documents)
    (found,) = [finding for finding in report.findings if finding.kind == "few documents"]
    assert found.severity == "warning"
    assert found.advice.startswith(advice)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("shard-00000-0000/shard.json", "removed"),
        ("shard-00000-0000/tokens.npy", "removed"),
        ("held-out/shard-00000-0000/shard.json", "swapped"),
        ("tokenizer/tokenizer.json", "cut"),
        ("held-out/tokenizer/tokenizer_config.json", "cut"),
        ("held-out/tokenizer/tokenizer.json", "removed"),
    ],
)
def test_every_file_of_a_corpus_is_verified(corpus: Path, name: str, damage: str) -> None:
    assert not check_corpus(corpus, verify_only=True).has_errors
    path = corpus / name
    if damage == "removed":
        path.unlink()
    elif damage == "swapped":
        path.write_bytes((corpus / "shard-00000-0000/shard.json").read_bytes())
    else:
        path.write_bytes(path.read_bytes()[:-9])
    assert "damaged" in findings(check_corpus(corpus, verify_only=True))
