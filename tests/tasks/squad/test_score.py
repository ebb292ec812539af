"""Prediction files are scored as the official scripts score them, and bad ones are refused."""

from collections.abc import Callable
from pathlib import Path

import pytest

from litebert.errors import LitebertError
from litebert.files import Json, write_json, write_text
from litebert.tasks.kinds.spans import ConditionalSpanAnswering, ProposedSpan, SpanAnswer, SpanExample
from litebert.tasks.named.squad import DATASETS, score_predictions

WriteSquad = Callable[..., Path]


def test_written_files_score_what_the_family_measures(
    voyages: list[SpanExample], write_squad: WriteSquad, tmp_path: Path
) -> None:
    answers = [
        SpanAnswer("x", (ProposedSpan(one.context[:12], 0, 12, 0.0, 0.0),), null_score=number % 7 - 3.5)
        for number, one in enumerate(voyages)
    ]
    for name, text in DATASETS["squad2"].submission("dev", voyages, answers).items():
        write_text(tmp_path / name, text)
    write_squad(tmp_path / "dev.json", voyages, version="v2.0")
    scored = score_predictions(
        tmp_path / "dev.json", tmp_path / "predictions.json", null_odds=tmp_path / "null_odds.json"
    )
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
    asked = voyages[:2]
    write_squad(tmp_path / "dev.json", asked, version=version)
    write_json(tmp_path / "found.json", {asked[0].id: asked[0].answers[0].text})  # type: ignore[index]
    measured = score_predictions(tmp_path / "dev.json", tmp_path / "found.json")
    assert (measured["exact"], measured["unanswered"]) == (expected, 1)
    warning = capsys.readouterr().err
    assert said in warning
    assert asked[1].id in warning


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
def test_files_that_do_not_fit_are_refused(
    voyages: list[SpanExample], write_squad: WriteSquad, tmp_path: Path, code: str, predictions: Json, nulls: Json
) -> None:
    write_squad(tmp_path / "dev.json", voyages[:4], version="v2.0")
    write_json(tmp_path / "found.json", predictions)
    write_json(tmp_path / "nulls.json", nulls)
    with pytest.raises(LitebertError, match=code):
        score_predictions(
            tmp_path / "dev.json", tmp_path / "found.json", null_odds=None if nulls is None else tmp_path / "nulls.json"
        )
