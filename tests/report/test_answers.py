"""What a report says of answers: confusions, calibration, the worst errors."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from litebert.report.answers import (
    NUM_BINS,
    Bin,
    answer_sections,
    calibration_bins,
    calibration_error,
    shorten,
)
from litebert.report.page import Section
from litebert.runs import AnswerRow, RunFolder


def row(
    number: int,
    expected: str,
    answer: str,
    *,
    confidence: float | None = 0.9,
    score: float | None = None,
) -> AnswerRow:
    is_right = float(expected == answer)
    return AnswerRow(
        id=f"{number:03d}",
        text=f"Text {number}.",
        expected=expected,
        answer=answer,
        confidence=confidence,
        score=is_right if score is None else score,
    )


def sections(
    folder: Path, rows: list[AnswerRow], labels: list[str]
) -> dict[str, Section]:
    """Return the sections of a run whose model has these labels, by title."""
    names = {str(number): label for number, label in enumerate(labels)}
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "config.json").write_text(json.dumps({"id2label": names}))
    made = answer_sections(RunFolder(folder), {"dev": rows})
    return {section.title: section for section in made}


def test_a_matrix_has_a_row_for_each_correct_label(tmp_path: Path) -> None:
    rows = [row(1, "a", "a"), row(2, "a", "b"), row(3, "a", "a"), row(4, "b", "b")]
    (table,) = sections(tmp_path, rows, ["a", "b", "c"])["Confusion"].tables
    assert table.title == "dev, 4 examples"
    assert table.rows == [
        ["a", 2, 1, 0, "66.7%"],
        ["b", 0, 1, 0, "100.0%"],
        ["c", 0, 0, 0, "none"],
    ]


@pytest.mark.parametrize(("num_labels", "is_matrix"), [(12, True), (13, False)])
def test_more_than_twelve_labels_have_their_most_common_confusions(
    tmp_path: Path, num_labels: int, is_matrix: bool
) -> None:
    labels = [f"l{number}" for number in range(num_labels)]
    rows = [row(1, "l0", "l1"), row(2, "l0", "l1"), row(3, "l1", "l0")]
    rows.append(row(4, "l2", "l2"))
    (table,) = sections(tmp_path, rows, labels)["Confusion"].tables
    assert ("Times" not in table.headings) == is_matrix
    if not is_matrix:
        assert table.rows == [("l0", "l1", 2), ("l1", "l0", 1)]
        assert "2 most common of 2 " in table.title


def test_twenty_confusions_are_shown(tmp_path: Path) -> None:
    labels = [f"l{number}" for number in range(30)]
    rows = [row(number, "l0", f"l{number}") for number in range(1, 26)]
    (table,) = sections(tmp_path, rows, labels)["Confusion"].tables
    assert len(table.rows) == 20
    assert "20 most common of 25" in table.title


def test_answers_that_are_no_labels_have_no_confusions(tmp_path: Path) -> None:
    rows = [row(1, "a", "a"), row(2, "a", "other")]
    by_title = sections(tmp_path, rows, ["a", "b"])
    assert not by_title["Confusion"].tables
    assert not by_title["Confusion"].words


def test_a_single_label_has_no_confusions(tmp_path: Path) -> None:
    assert not sections(tmp_path, [row(1, "a", "a")], ["a"])["Confusion"].tables


def test_blank_answers_are_not_counted(tmp_path: Path) -> None:
    rows = [row(1, "a", "a"), row(2, "a", "", confidence=None)]
    (table,) = sections(tmp_path, rows, ["a", "b"])["Confusion"].tables
    assert table.title == "dev, 1 examples"


# ---- calibration ---------------------------------------------------------------------


def test_calibration_is_told_of_a_set_whose_answers_are_all_sure(
    tmp_path: Path,
) -> None:
    rows = [row(1, "a", "a", confidence=0.75), row(2, "a", "b", confidence=0.75)]
    section = sections(tmp_path, rows, ["a", "b"])["Calibration"]
    assert "it is 0.2500" in section.words[1]
    assert "75.0% sure on average and 50.0% right" in section.words[1]
    assert len(section.figures) == 1


def test_answers_that_are_no_labels_have_calibration_only_without_labels(
    tmp_path: Path,
) -> None:
    rows = [row(1, "Ada", "Ada"), row(2, "Bert", "Ada")]
    assert sections(tmp_path / "spans", rows, [])["Calibration"].figures
    assert not sections(tmp_path / "tags", rows, ["a", "b"])["Calibration"].figures


def test_an_answer_without_a_probability_has_no_calibration(tmp_path: Path) -> None:
    rows = [row(1, "a", "a"), row(2, "a", "b", confidence=None)]
    section = sections(tmp_path, rows, ["a", "b"])["Calibration"]
    assert not section.words
    assert not section.figures


def test_a_bin_has_its_upper_edge_and_not_its_lower_one() -> None:
    edge = 2 / NUM_BINS
    together = calibration_bins([edge - 0.001, edge], [1.0, 0.0])
    assert [bin_.size for bin_ in together] == [2]
    assert together[0].accuracy == 0.5
    assert together[0].confidence == pytest.approx(edge - 0.0005)
    apart = calibration_bins([edge, edge + 0.001], [1.0, 0.0])
    assert [bin_.size for bin_ in apart] == [1, 1]


def test_there_are_fifteen_bins_of_equal_width() -> None:
    confidences = [(number + 0.5) / 300 for number in range(300)]
    bins = calibration_bins(confidences, [1.0] * 300)
    assert [bin_.size for bin_ in bins] == [20] * 15


def test_the_calibration_error_weighs_bins_by_their_answers() -> None:
    bins = [Bin(0.5, 0.7, 30), Bin(0.9, 0.5, 10)]
    assert calibration_error(bins) == pytest.approx((30 * 0.2 + 10 * 0.4) / 40)


# ---- the worst errors ----------------------------------------------------------------


def test_the_most_confident_and_the_farthest_errors_come_first(tmp_path: Path) -> None:
    rows = [
        row(1, "a", "b", confidence=0.6),
        row(2, "a", "b", confidence=0.9),
        row(3, "a", "b", confidence=None),  # as if it were sure
        row(4, "a", "b", confidence=0.9, score=0.5),  # half right
        row(5, "a", "a", confidence=0.9),
    ]
    (table,) = sections(tmp_path, rows, ["a", "b"])["Worst errors"].tables
    assert [cells[0] for cells in table.rows] == ["003", "002", "001", "004"]
    assert [cells[1] for cells in table.rows] == ["unknown", "90.0%", "60.0%", "90.0%"]
    assert "the worst 4 of 4 errors in 5" in table.title


def test_an_unknown_confidence_counts_as_sure_not_as_more(tmp_path: Path) -> None:
    rows = [
        row(1, "a", "b", confidence=None, score=0.5),
        row(2, "a", "b", confidence=0.9),
    ]
    (table,) = sections(tmp_path, rows, ["a", "b"])["Worst errors"].tables
    assert [cells[0] for cells in table.rows] == ["002", "001"]


def test_an_empty_answer_is_shown_as_none_and_a_long_one_is_cut(
    tmp_path: Path,
) -> None:
    rows = [row(1, "", "x" * 121), row(2, "y" * 120, "", confidence=0.5)]
    (table,) = sections(tmp_path, rows, ["a", "b"])["Worst errors"].tables
    first, second = table.rows
    assert first[2:4] == ("(none)", "x" * 120 + "…")
    assert second[2:4] == ("y" * 120, "(none)")


def test_twenty_errors_are_shown(tmp_path: Path) -> None:
    rows = [row(number, "a", "b") for number in range(30)]
    (table,) = sections(tmp_path, rows, ["a", "b"])["Worst errors"].tables
    assert [cells[0] for cells in table.rows] == [f"{n:03d}" for n in range(20)]


def test_a_text_is_cut_beyond_its_limit_only() -> None:
    assert shorten("abcd", 4) == "abcd"
    assert shorten("abcde", 4) == "abcd…"


def test_cosines_are_judged_by_their_ranks(tmp_path: Path) -> None:
    """Cosines have another scale than scores: the order alone counts."""
    answers = (("5", "0.2"), ("1", "0.3"), ("3", "0.4"), ("4", "0.9"))
    rows = [
        replace(row(number, expected, answer, confidence=None), score=None)
        for number, (expected, answer) in enumerate(answers)
    ]
    (table,) = sections(tmp_path, rows, ["cosine"])["Worst errors"].tables
    assert table.rows[0][:2] == ("000", "4, 1")
    assert {cells[1] for cells in table.rows[1:]} == {"1, 2", "2, 3", "3, 4"}
    assert "farthest from their place" in table.title


def test_the_order_of_errors_is_explained_where_there_are_errors(
    tmp_path: Path,
) -> None:
    explanation = "The errors of the last step"
    wrong = sections(tmp_path / "wrong", [row(1, "a", "b")], ["a", "b"])
    (sentence,) = wrong["Worst errors"].words
    assert sentence.startswith(explanation)
    right = sections(tmp_path / "right", [row(1, "a", "a")], ["a", "b"])
    assert right["Worst errors"].words == ["All 1 answers on dev are right."]
    assert not right["Worst errors"].tables
