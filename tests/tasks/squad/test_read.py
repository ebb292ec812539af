"""SQuAD's files are read as they are packed; what is wrong in them is named by question."""

import hashlib
import json
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from litebert.errors import DamagedError, LitebertError
from litebert.files import Json, write_bytes, write_json
from litebert.reading.source import find_file
from litebert.tasks.kinds.spans import GoldAnswer, SpanExample
from litebert.tasks.named.squad import DATASETS, read_squad, with_unanswerable

NILE = SpanExample("q", "What is long?", "The Nile is long.", (GoldAnswer("Nile", 4),), "Rivers")
WriteSquad = Callable[..., Path]


def _file(path: Path, **changes: Json) -> Path:
    answers: Json = [{"text": "Nile", "answer_start": 4}]
    fields = {"id": "q", "question": "What?", "answers": answers} | changes
    question: Json = {key: value for key, value in fields.items() if value is not None}
    paragraphs: Json = [{"context": NILE.context, "qas": [question]}]
    write_json(path, {"data": [{"title": "Rivers", "paragraphs": paragraphs}]})
    return path


@pytest.mark.parametrize("version", ["1.1", "v2.0"])
@pytest.mark.parametrize("packing", ["", ".gz"])
def test_what_was_written_is_read(
    voyages: list[SpanExample], write_squad: WriteSquad, tmp_path: Path, version: str, packing: str
) -> None:
    chosen = voyages if version == "v2.0" else [one for one in voyages if one.answers]
    write_squad(tmp_path / f"dev.json{packing}", chosen, version=version)
    file = read_squad(find_file(tmp_path / "dev.json"))
    assert file.examples == chosen
    assert file.is_version_2 == (version == "v2.0")


@pytest.mark.parametrize(
    ("changes", "answers"),
    [
        ({"answers": None}, None),
        ({"answers": [], "is_impossible": False}, None),
        ({"answers": [], "is_impossible": True}, ()),
        ({"answers": []}, ()),
        ({"answers": None, "is_impossible": True}, ()),
    ],
)
def test_no_answer_and_nothing_said_are_two_things(
    tmp_path: Path, changes: dict[str, Json], answers: tuple[GoldAnswer, ...] | None
) -> None:
    (example,) = read_squad(find_file(_file(tmp_path / "dev.json", **changes))).examples
    assert example.answers == answers


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("LB-801", {"question": None}),
        ("LB-801", {"answers": [{"text": "Nile"}]}),
        ("LB-801", {"answers": [{"text": "Nile", "answer_start": "4"}]}),
        ("LB-802", {"answers": [{"text": "Nile", "answer_start": 5}]}),
        ("LB-802", {"answers": [{"text": "Nile", "answer_start": -13}]}),
        ("LB-802", {"answers": [{"text": "long. ", "answer_start": 12}]}),
        ("LB-802", {"answers": [{"text": "Nile", "answer_start": 10**30}]}),
        ("LB-802", {"answers": [{"text": " ", "answer_start": 3}]}),
        ("LB-805", {"is_impossible": True}),
    ],
)
def test_an_error_names_file_and_question(tmp_path: Path, code: str, changes: dict[str, Json]) -> None:
    path = _file(tmp_path / "dev.json", **changes)
    with pytest.raises(LitebertError, match=code) as raised:
        read_squad(find_file(path))
    assert "dev.json" in raised.value.what
    assert "question q" in raised.value.what


REFUSED: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "LB-800"),
    "cut off": (b'{"data": [', "LB-800"),
    "no number": (b'{"data": [NaN]}', "LB-800"),
    "no text": (b"\xff{}", "LB-800"),
    "no end": (b"[" * 100_000, "LB-800"),
    "another layout": (json.dumps({"rows": list(range(10_000))}).encode(), "LB-801.*\n.*an object with rows\n"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_file_of_questions_is_refused_shortly(name: str, tmp_path: Path) -> None:
    data, message = REFUSED[name]
    write_bytes(tmp_path / "dev.json", data)
    with pytest.raises(LitebertError, match=message) as raised:
        read_squad(find_file(tmp_path / "dev.json"))
    assert isinstance(raised.value, DamagedError) == (message == "LB-800")


def test_two_questions_may_not_share_an_id(write_squad: WriteSquad, tmp_path: Path) -> None:
    with pytest.raises(LitebertError, match="LB-803"):
        read_squad(find_file(write_squad(tmp_path / "dev.json", [NILE, NILE])))


def _key(context: str) -> str:
    return hashlib.sha1(context.encode()).hexdigest()


def _table(examples: list[SpanExample]) -> dict[str, Json]:
    """Give the unanswerable questions by the SHA-1 of their context."""
    return {_key(one.context): [{"id": one.id, "question": one.question}] for one in examples if one.is_impossible}


def test_unanswerable_questions_on_other_contexts_are_refused(tmp_path: Path) -> None:
    write_json(tmp_path / "more.json", {_key("else"): [{"id": "x", "question": "Why?"}]})
    with pytest.raises(LitebertError, match="LB-804"):
        with_unanswerable([NILE], tmp_path / "more.json")


def test_training_data_of_version_2_may_lie_in_two_files(
    voyages: list[SpanExample], write_squad: WriteSquad, tmp_path: Path
) -> None:
    write_squad(tmp_path / "train-v1.1.json.gz", [one for one in voyages if one.answers])
    other: Json = [{"id": "x", "question": "Passed over?"}]
    write_json(tmp_path / "train-v2.0.unanswerable.json", {**_table(voyages), "00": other})
    assert DATASETS["squad2"].read(tmp_path, "train") == voyages


def test_a_split_may_come_in_parts_or_as_a_file(
    voyages: list[SpanExample], write_squad: WriteSquad, tmp_path: Path
) -> None:
    for number, part in enumerate((voyages[:100], voyages[100:]), start=1):
        write_squad(tmp_path / f"dev-v2.0.part{number}.json", part, version="v2.0")
    assert DATASETS["squad2"].read(tmp_path, "dev") == voyages
    first = DATASETS["squad2"].read(tmp_path / "dev-v2.0.part1.json", "dev")
    assert first == voyages[:100]


def test_fit_and_tune_share_no_article_and_lose_none(
    voyages: list[SpanExample], write_squad: WriteSquad, tmp_path: Path
) -> None:
    titled = [
        SpanExample(one.id, one.question, one.context, one.answers, f"article {number // 8}")
        for number, one in enumerate(voyages)
    ]
    write_squad(tmp_path / "train-v2.0.json", titled, version="v2.0")
    fit, tune = (DATASETS["squad2"].read(tmp_path, part) for part in ("fit", "tune"))
    assert sorted(one.id for one in fit + tune) == sorted(one.id for one in titled)
    assert {one.title for one in fit}.isdisjoint({one.title for one in tune})
    assert 0 < len(tune) < len(fit)


def test_real_files_are_read_whole(real_data: Path) -> None:
    squad, squad2 = (DATASETS[name] for name in ("squad", "squad2"))
    dev = squad.read(real_data / "squad", "dev")
    assert len(dev) == 10_570
    dev2 = squad2.read(real_data / "squad", "dev")
    assert (len(dev2), sum(one.is_impossible for one in dev2)) == (6_078, 3_168)


def test_a_context_of_ten_megabytes_is_refused_at_once(tmp_path: Path) -> None:
    long = "The Nile is long. " * 600_000
    article = {"title": "t", "paragraphs": [{"context": long, "qas": [{"id": "q", "question": "?"}]}]}
    write_json(tmp_path / "dev.json", {"version": "1.1", "data": [article]})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(LitebertError, match="LB-811") as raised:
        read_squad(find_file(tmp_path / "dev.json"))
    assert "question q" in raised.value.what
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < (64 << 10) + len(long) // 1024  # kB beyond the file
