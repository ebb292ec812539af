"""SQuAD's files are read as they are packed, answered in the official form, scored; what is wrong in them is named."""

import json
import resource
from dataclasses import replace
from pathlib import Path

import pytest

from litebert.errors import DamagedError, LitebertError
from litebert.files import Json, write_bytes, write_json, write_text
from litebert.reading.source import find_file
from litebert.tasks.kinds.spans import (
    EMPTY,
    ConditionalSpanAnswering,
    GoldAnswer,
    ProposedSpan,
    SpanAnswer,
    SpanExample,
)
from litebert.tasks.named import DATASETS
from litebert.tasks.named.questions import read_squad, score_predictions

from .conftest import WriteSquad

NILE = SpanExample("q", "What is long?", "The Nile is long.", (GoldAnswer("Nile", 4),))
LAYOUT = {"text": "Nile", "answer_start": 4}


def _file(path: Path, **changes: Json) -> Path:
    """Write a question with some fields changed; None omits one."""
    fields = {"id": "q", "question": "What?", "answers": [LAYOUT]} | changes
    question: Json = {key: value for key, value in fields.items() if value is not None}
    write_json(path, {"data": [{"title": "Rivers", "paragraphs": [{"context": NILE.context, "qas": [question]}]}]})
    return path


@pytest.mark.parametrize(("version", "packing"), [("1.1", ".gz"), ("v2.0", "")])
def test_what_was_written_is_read(
    voyages: list[SpanExample], write_squad: WriteSquad, tmp_path: Path, version: str, packing: str
) -> None:
    chosen = voyages if version == "v2.0" else [one for one in voyages if one.answers]
    write_squad(tmp_path / f"dev.json{packing}", chosen, version=version)
    assert read_squad(find_file(tmp_path / "dev.json")) == (chosen, version == "v2.0")


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
    (example,), _ = read_squad(find_file(_file(tmp_path / "dev.json", **changes)))
    assert example.answers == answers


# What a file has instead, or what is changed in its question, and the message
REFUSED: dict[str, tuple[bytes | dict[str, Json], str]] = {
    "nothing": (b"", "LB-800"),
    "cut off": (b'{"data": [', "LB-800"),
    "no number": (b'{"data": [NaN]}', "LB-800"),
    "no text": (b"\xff{}", "LB-800"),
    "no end": (b"[" * 100_000, "LB-800"),
    "another layout": (json.dumps({"rows": list(range(10_000))}).encode(), "LB-801.*\n.*an object with rows\n"),
    "no question": ({"question": None}, "LB-801"),
    "no start": ({"answers": [{"text": "Nile"}]}, "LB-801"),
    "a start in letters": ({"answers": [{"text": "Nile", "answer_start": "4"}]}, "LB-801"),
    **{f"at {n}": ({"answers": [{"text": "Nile", "answer_start": n}]}, "LB-802") for n in (5, -13, 10**30)},
    "beyond the end": ({"answers": [{"text": "long. ", "answer_start": 12}]}, "LB-802"),
    "a space": ({"answers": [{"text": " ", "answer_start": 3}]}, "LB-802"),
    "answered and impossible": ({"is_impossible": True}, "LB-805"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_named_with_file_and_question(name: str, tmp_path: Path) -> None:
    content, message = REFUSED[name]
    if isinstance(content, bytes):
        write_bytes(tmp_path / "dev.json", content)
    else:
        _file(tmp_path / "dev.json", **content)
    with pytest.raises(LitebertError, match=message) as raised:
        read_squad(find_file(tmp_path / "dev.json"))
    assert isinstance(raised.value, DamagedError) == (message == "LB-800")
    assert "dev.json" in raised.value.what
    assert isinstance(content, bytes) or "question q" in raised.value.what


def test_a_split_is_a_file_or_its_parts(voyages: list[SpanExample], write_squad: WriteSquad, tmp_path: Path) -> None:
    read = DATASETS["squad2"].read
    for number, part in enumerate((voyages[:100], voyages[100:]), start=1):
        write_squad(tmp_path / f"dev-v2.0.part{number}.json", part, version="v2.0")
    assert read(tmp_path, "dev") == voyages
    assert read(tmp_path / "dev-v2.0.part1.json", "dev") == voyages[:100]
    write_squad(tmp_path / "train-v2.0.json", [*voyages[:2], voyages[0]], version="v2.0")
    with pytest.raises(LitebertError, match="LB-803"):
        read(tmp_path, "train")


def test_real_files_are_read_whole(real_data: Path) -> None:
    assert len(DATASETS["squad"].read(real_data / "squad", "dev")) == 10_570
    dev2 = DATASETS["squad2"].read(real_data / "squad", "dev")
    assert (len(dev2), sum(one.is_impossible for one in dev2)) == (6_078, 3_168)


def test_a_context_of_ten_megabytes_is_refused_at_once(write_squad: WriteSquad, tmp_path: Path) -> None:
    long = "The Nile is long. " * 600_000
    write_squad(tmp_path / "dev.json", [replace(NILE, context=long)])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(LitebertError, match=r"LB-811: .*question q"):
        read_squad(find_file(tmp_path / "dev.json"))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < (64 << 10) + len(long) // 1024  # kB beyond the file


def test_answers_are_written_in_the_official_form() -> None:
    examples = [SpanExample("q1", "Who?", "Ada Né"), SpanExample("q2", "Né?", "Ada Né")]
    proposed = (ProposedSpan("Ada", 0, 3, 1.5, 2.0, 0.75), ProposedSpan("é", 4, 7, 1.0, 1.0, 0.25))
    files = DATASETS["squad"].submission("dev", examples, [SpanAnswer(proposed), SpanAnswer((EMPTY,))])
    assert files["predictions.json"] == '{\n    "q1": "Ada",\n    "q2": "empty"\n}\n'
    second = {"text": "é", "probability": 0.25, "start_log_prob": 1.0, "end_log_prob": 1.0}
    assert json.loads(files["nbest_predictions.json"])["q1"][1] == second
    assert "null_odds.json" not in files


def test_written_files_score_what_the_family_measures(
    voyages: list[SpanExample], write_squad: WriteSquad, tmp_path: Path
) -> None:
    answers = [
        SpanAnswer((ProposedSpan(one.context[:12], 0, 12, 0.0, 0.0),), null_score=number % 7 - 3.5)
        for number, one in enumerate(voyages)
    ]
    for name, text in DATASETS["squad2"].submission("dev", voyages, answers).items():
        write_text(tmp_path / name, text)
    write_squad(tmp_path / "dev.json", voyages, version="v2.0")
    files = [tmp_path / f"{name}.json" for name in ("dev", "predictions", "null_odds")]
    scored = score_predictions(files[0], files[1], null_odds=files[2])
    measured = ConditionalSpanAnswering().measures(voyages, answers)
    shared = [name for name in measured if name.endswith(("exact", "f1")) and "best" not in name]
    assert {name: scored[name] for name in shared} == {name: measured[name] for name in shared}
    assert scored["has_answer_total"] == sum(bool(one.answers) for one in voyages)


@pytest.mark.parametrize(
    ("version", "expected", "said"), [("1.1", 50.0, "count as wrong"), ("v2.0", 100.0, "are left out")]
)
def test_unanswered_questions_are_named(
    voyages: list[SpanExample],
    write_squad: WriteSquad,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    version: str,
    expected: float,
    said: str,
) -> None:
    write_squad(tmp_path / "dev.json", voyages[:2], version=version)
    write_json(tmp_path / "found.json", {voyages[0].id: voyages[0].answers[0].text})  # type: ignore[index]
    measured = score_predictions(tmp_path / "dev.json", tmp_path / "found.json")
    assert (measured["exact"], measured["unanswered"]) == (expected, 1)
    warning = capsys.readouterr().err
    assert said in warning and voyages[1].id in warning


@pytest.mark.parametrize(
    ("code", "predictions", "nulls"),
    [
        ("LB-801", {"v0-0": 1}, None),
        ("LB-801", ["v0-0"], None),
        ("LB-809", {"elsewhere": "x"}, None),
        ("LB-809", {}, None),
        ("LB-801", {"v0-0": "x"}, {"v0-0": "high"}),
        ("LB-810", {"v0-0": "x"}, {"v0-1": 0.5}),
    ],
)
def test_predictions_that_do_not_fit_are_refused(
    voyages: list[SpanExample], write_squad: WriteSquad, tmp_path: Path, code: str, predictions: Json, nulls: Json
) -> None:
    write_squad(tmp_path / "dev.json", voyages[:4], version="v2.0")
    write_json(tmp_path / "found.json", predictions)
    write_json(tmp_path / "nulls.json", nulls)
    null_odds = None if nulls is None else tmp_path / "nulls.json"
    with pytest.raises(LitebertError, match=code):
        score_predictions(tmp_path / "dev.json", tmp_path / "found.json", null_odds=null_odds)
