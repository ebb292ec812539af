"""Files of SQuAD: how they are read, what is refused, how answers are written and scored."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from litebert.errors import LitebertError
from litebert.files import Json, write_json, write_text
from litebert.reading.source import find_file
from litebert.tasks.kinds import spans
from litebert.tasks.kinds.spans import (
    GoldAnswer,
    ProposedSpan,
    SpanAnswer,
    SpanExample,
)
from litebert.tasks.named import DATASETS
from litebert.tasks.named.questions import read_squad, score_predictions
from tests.tasks.voyages import VOYAGES, write_squad

# ---- files that are read -------------------------------------------------------------

NILE = SpanExample("q", "What?", "The Nile is long.", (GoldAnswer("Nile", 4),))


@pytest.mark.parametrize(
    ("answers", "is_impossible", "expected"),
    [
        pytest.param(None, None, None, id="no field: unknown"),
        pytest.param([], False, None, id="possible, but none given: unknown"),
        pytest.param([], True, (), id="impossible: none"),
        pytest.param([], None, (), id="an empty list: none"),
        pytest.param(None, True, (), id="impossible without a list: none"),
    ],
)
def test_no_answer_is_distinguished_from_an_unknown_answer(
    answers: Json, is_impossible: Json, expected: object, tmp_path: Path
) -> None:
    path = write_squad(
        tmp_path / "dev.json", [NILE], answers=answers, is_impossible=is_impossible
    )
    (example,), _ = read_squad(find_file(path))
    assert example.answers == expected


# The content of a file, or changed fields of its question; the message
REFUSED: dict[str, tuple[str | dict[str, Json], str]] = {
    "cut off": ('{"data": [', "LB-312.*dev.json"),
    "another layout": ('{"rows": [1, 2]}', "LB-848.*dev.json, item 1"),
    "no question": (
        {"question": None},
        r"LB-801.*dev.json, item 1(.|\n)*question: Field required",
    ),
    "in letters": (
        {"answers": [{"text": "Nile", "answer_start": "4"}]},
        r"LB-801(.|\n)*answer_start should be",
    ),
    "answered and impossible": ({"is_impossible": True}, "LB-801.*dev.json, item 1"),
    **{
        f"at {n}": (
            {"answers": [{"text": "Nile", "answer_start": n}]},
            "LB-802.*question q",
        )
        for n in (5, -13, 10**30)
    },
    "beyond the end": ({"answers": [{"text": "long. ", "answer_start": 12}]}, "LB-802"),
    "a space": ({"answers": [{"text": " ", "answer_start": 3}]}, "LB-802"),
}


@pytest.mark.parametrize(("content", "message"), REFUSED.values(), ids=REFUSED)
def test_an_error_names_the_file_and_the_question(
    content: str | dict[str, Json], message: str, tmp_path: Path
) -> None:
    if isinstance(content, str):
        write_text(tmp_path / "dev.json", content)
    else:
        write_squad(tmp_path / "dev.json", [NILE], **content)
    with pytest.raises(LitebertError, match=message):
        read_squad(find_file(tmp_path / "dev.json"))


def test_a_split_is_a_file_of_a_folder(tmp_path: Path) -> None:
    read = DATASETS["squad2"].read
    file = write_squad(tmp_path / "dev-v2.0.json", VOYAGES)
    assert read(tmp_path, "dev") == VOYAGES
    assert read(file, "dev") == VOYAGES


def test_a_repeated_question_is_refused(tmp_path: Path) -> None:
    write_squad(tmp_path / "train-v2.0.json", [*VOYAGES[:2], VOYAGES[0]])
    with pytest.raises(LitebertError, match="LB-803"):
        DATASETS["squad2"].read(tmp_path, "train")


def test_a_context_that_is_too_long_for_a_data_set_is_refused(tmp_path: Path) -> None:
    write_squad(
        tmp_path / "dev.json", [replace(NILE, context="The Nile is long. " * 12_000)]
    )
    with pytest.raises(LitebertError, match=r"LB-811: .*question q"):
        read_squad(find_file(tmp_path / "dev.json"))


# ---- answers that are written --------------------------------------------------------


def test_answers_are_written_in_the_official_form() -> None:
    examples = [SpanExample("q1", "Who?", "Ada Né"), SpanExample("q2", "Né?", "Ada Né")]
    proposed = (
        ProposedSpan("Ada", 0, 3, 1.5, 2.0, 0.75),
        ProposedSpan("é", 4, 7, 1.0, 1.0, 0.25),
    )
    answers = [SpanAnswer(proposed), SpanAnswer((spans.EMPTY,))]
    files = DATASETS["squad"].submission("dev", examples, answers)
    assert files["predictions.json"] == '{\n    "q1": "Ada",\n    "q2": "empty"\n}\n'
    assert "null_odds.json" not in files

    _, second = json.loads(files["nbest_predictions.json"])["q1"]
    assert second == {
        "text": "é",
        "probability": 0.25,
        "start_log_prob": 1.0,
        "end_log_prob": 1.0,
    }


def _answers_to_voyages() -> list[SpanAnswer]:
    """Return the first letters of each context, with null scores on both sides of 0."""
    answers = list[SpanAnswer]()
    for number, example in enumerate(VOYAGES):
        span = ProposedSpan(example.context[:12], 0, 12, 0.0, 0.0)
        answers.append(SpanAnswer((span,), null_score=number % 7 - 3.5))
    return answers


def test_written_files_score_what_the_family_measures(tmp_path: Path) -> None:
    answers = _answers_to_voyages()
    for name, text in DATASETS["squad2"].submission("dev", VOYAGES, answers).items():
        write_text(tmp_path / name, text)
    scored = score_predictions(
        write_squad(tmp_path / "dev.json", VOYAGES),
        tmp_path / "predictions.json",
        null_odds=tmp_path / "null_odds.json",
    )

    measured = spans.ConditionalSpanAnswering().measures(VOYAGES, answers)
    names = [name for name in measured if name.endswith(("exact", "f1"))]
    shared = [name for name in names if "best" not in name]
    assert shared
    for name in shared:
        assert scored[name] == measured[name], name
    num_answered = sum(bool(example.answers) for example in VOYAGES)
    assert scored["has_answer_total"] == num_answered


# ---- predictions that are scored -----------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "exact", "words"),
    [
        pytest.param({"is_impossible": None}, 50.0, "count as wrong", id="SQuAD 1.1"),
        pytest.param({}, 100.0, "are left out", id="SQuAD 2.0"),
    ],
)
def test_unanswered_questions_are_named(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, Json],
    exact: float,
    words: str,
) -> None:
    answered, unanswered = VOYAGES[:2]
    write_squad(tmp_path / "dev.json", [answered, unanswered], **changes)
    assert answered.answers
    write_json(tmp_path / "answers.json", {answered.id: answered.answers[0].text})
    scores = score_predictions(tmp_path / "dev.json", tmp_path / "answers.json")
    assert scores["exact"] == exact
    assert scores["unanswered"] == 1
    warning = capsys.readouterr().err
    assert words in warning
    assert unanswered.id in warning


WHO = "v0-Who sailed?"


@pytest.mark.parametrize(
    ("code", "predictions", "null_odds"),
    [
        pytest.param("LB-801", {WHO: 1}, None, id="a number"),
        pytest.param("LB-809", {"elsewhere": "x"}, None, id="unknown question"),
        pytest.param("LB-801", {WHO: "x"}, {WHO: "high"}, id="odds in words"),
        pytest.param("LB-810", {WHO: "x"}, {"v0-Where to?": 0.5}, id="other odds"),
    ],
)
def test_predictions_that_do_not_fit_are_refused(
    tmp_path: Path, code: str, predictions: Json, null_odds: Json
) -> None:
    questions = write_squad(tmp_path / "dev.json", VOYAGES[:4])
    path = tmp_path / "predictions.json"
    write_json(path, predictions)
    path_of_odds = None
    if null_odds is not None:
        path_of_odds = tmp_path / "nulls.json"
        write_json(path_of_odds, null_odds)
    with pytest.raises(LitebertError, match=code):
        score_predictions(questions, path, null_odds=path_of_odds)


@pytest.mark.parametrize("null_odds", [{}, {WHO: 0.5}], ids=["empty", "one"])
def test_odds_of_no_answer_do_not_fit_squad_1(null_odds: Json, tmp_path: Path) -> None:
    questions = write_squad(tmp_path / "old.json", VOYAGES[:1], is_impossible=None)
    write_json(tmp_path / "predictions.json", {WHO: "x"})
    write_json(tmp_path / "nulls.json", null_odds)
    with pytest.raises(LitebertError, match=r"LB-810.*SQuAD 1[.]1"):
        score_predictions(
            questions,
            tmp_path / "predictions.json",
            null_odds=tmp_path / "nulls.json",
        )
