"""A large file is read in parts at the same time: the same documents, and the same
bytes for any number of workers.
"""

import json
from pathlib import Path

import hypothesis
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import strategies

from litebert.corpus import Corpus
from litebert.corpus import build as building
from litebert.corpus.shards import MANIFEST, PLAN
from litebert.corpus.text import TextSettings, read_documents, split_source
from litebert.errors import LitebertError
from litebert.reading.source import Source, find_input
from tests.contract.shell import tree

from .conftest import Build, Write, paragraphs, rows, tales, texts_of

STORIES = tales(60)


def documents_of(sources: list[Source], settings: TextSettings) -> list[str]:
    """Return the text of every document of some inputs."""
    return [
        "\n".join(passage.text for passage in passages)
        for source in sources
        for passages in read_documents(source, settings)
    ]


# ---- the same documents --------------------------------------------------------------

# everything that decides where a line or a document ends
LINES = strategies.sampled_from(
    ["a", "two words", "", " ", "\t", "é", "\u3000", "\ufeffb", "long " * 9, "\x1c"]
)
ENDS = strategies.sampled_from(["\n", "\r\n"])


@hypothesis.given(
    lines=strategies.lists(strategies.tuples(LINES, ENDS), max_size=30),
    part_bytes=strategies.integers(1, 60),
    starts_with_mark=strategies.booleans(),
)
@hypothesis.settings(
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
    deadline=None,
)
def test_parts_of_a_text_have_its_documents(
    tmp_path: Path,
    lines: list[tuple[str, str]],
    part_bytes: int,
    starts_with_mark: bool,
) -> None:
    text = "first" + "".join(line + end for line, end in lines)
    content = text.encode("utf-8-sig" if starts_with_mark else "utf-8")
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    source = find_input(str(path))
    settings = TextSettings()
    parts = split_source(source, settings, part_bytes)
    assert sum(part.size for part in parts) == source.size
    assert documents_of(parts, settings) == documents_of([source], settings)


@pytest.mark.parametrize("part_bytes", [1, 100, 900, 10_000, 1 << 20])
def test_parts_of_json_lines_and_parquet_have_their_documents(
    part_bytes: int, write: Write, tmp_path: Path
) -> None:
    settings = TextSettings()
    written = write("a.jsonl", rows(STORIES))
    texts = [" ".join(story) for story in STORIES]
    table = pyarrow.table({"text": texts})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=7)
    for path in (written, tmp_path / "a.parquet"):
        source = find_input(str(path))
        parts = split_source(source, settings, part_bytes)
        assert documents_of(parts, settings) == texts
        assert sum(part.size for part in parts) == source.size
        assert (len(parts) > 1) == (source.size > part_bytes)


def test_what_cannot_be_read_from_its_middle_stays_whole(write: Write) -> None:
    story = paragraphs(STORIES)
    one_document = find_input(str(write("a.txt", story)))
    as_file = TextSettings(documents="file")
    assert split_source(one_document, as_file, 100) == [one_document]
    # a document that is longer than a part
    no_blank_line = find_input(str(write("b.txt", story.replace("\n\n", "\n"))))
    assert split_source(no_blank_line, TextSettings(), 100) == [no_blank_line]
    import gzip

    packed = find_input(str(write("c.txt.gz", gzip.compress(story.encode()))))
    assert split_source(packed, TextSettings(), 10) == [packed]
    broken = find_input(str(write("d.parquet", "PAR1" + story)))
    assert split_source(broken, TextSettings(), 10) == [broken]


def test_an_error_in_a_part_names_the_line_of_the_file(write: Write) -> None:
    good = rows(STORIES)
    for bad, message in {
        "{": "line 61: not JSON",
        '{"text": 1}': "line 61: column text is not text",
        '{"other": ""}': "line 61: there is no column text",
    }.items():
        source = find_input(str(write("a.jsonl", f"{good}{bad}\n{good}")))
        parts = split_source(source, TextSettings(), 2_000)
        assert len(parts) > 10
        with pytest.raises(LitebertError, match=message):
            documents_of(parts, TextSettings())
    latin = good.encode() + b'{"text": "\xe9"}\n'
    source = find_input(str(write("a.jsonl", latin)))
    parts = split_source(source, TextSettings(), 2_000)
    with pytest.raises(LitebertError, match="line 61: not UTF-8"):
        documents_of(parts, TextSettings())


# ---- the same bytes ------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["txt", "jsonl", "parquet"])
def test_a_divided_file_gives_the_same_bytes_for_any_number_of_workers(
    kind: str,
    build: Build,
    write: Write,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stories = tales(120)
    path = tmp_path / f"a.{kind}"
    if kind == "parquet":
        table = pyarrow.table({"text": [" ".join(story) for story in stories]})
        pyarrow.parquet.write_table(table, path, row_group_size=9)
    else:
        write(path.name, rows(stories) if kind == "jsonl" else paragraphs(stories))
    build(path, output="whole", held_out=0.2)
    monkeypatch.setattr(building, "PART_BYTES", 1)
    monkeypatch.setattr(building, "SPLIT_BYTES", path.stat().st_size // 5)
    build(path, output="one", held_out=0.2)
    build(path, output="three", held_out=0.2, workers=3)
    assert tree(tmp_path / "one") == tree(tmp_path / "three")
    assert len(Corpus.open(tmp_path / "one").shards) >= 4
    for side in ("", "held-out"):
        divided = Corpus.open(tmp_path / "one" / side)
        whole = Corpus.open(tmp_path / "whole" / side)
        assert divided.manifest.counts == whole.manifest.counts
        assert texts_of(divided) == texts_of(whole)


def test_a_finished_corpus_of_before_stays_and_an_unfinished_one_is_refused(
    build: Build, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write("a.jsonl", rows(STORIES))
    build(path)
    manifest = tmp_path / "corpus" / MANIFEST
    record = json.loads(manifest.read_bytes())
    assert record["plan"]["inputs"] == [
        {"name": str(path), "size": path.stat().st_size}
    ]
    before = tree(tmp_path / "corpus")
    monkeypatch.setattr(building, "SPLIT_BYTES", 2_000)
    build(path)
    assert tree(tmp_path / "corpus") == before
    # as if that build had been killed before its end
    (tmp_path / "corpus" / PLAN).write_text(json.dumps(record["plan"]))
    manifest.unlink()
    with pytest.raises(LitebertError, match="LB-333") as caught:
        build(path)
    assert "parts" in str(caught.value.received)
