"""DataFrames are read wherever files are; columns may be a mapping; a wrong keyword and a
wrong name of a file get a hint.
"""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import litebert
from litebert.api.frames import as_file
from litebert.api.training import data_check
from litebert.errors import LitebertError
from litebert.tasks.tables.dataset import table_dataset

TEXTS = [f"a {word} film, number {n}" for n in range(12) for word in ("fine", "dull")]
FRAME = pd.DataFrame(
    {
        "review": TEXTS,
        "stars": [5, 1] * 12,
        "seen": pd.to_datetime("2024-03-01"),
        "note": [None, float("nan")] * 12,
    }
)


@pytest.fixture
def trained(
    tmp_path: Path, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> litebert.Run:
    monkeypatch.chdir(tmp_path)
    run = litebert.finetune(
        FRAME,
        model=small_model,
        columns={"text": "review", "label": "stars"},
        settings={"train.steps": 2, "train.batch_size": 4},
        quiet=True,
    )
    assert run.folder == Path("runs/table")
    return run


def test_a_frame_is_trained_on_evaluated_and_answered(trained: litebert.Run) -> None:
    evaluation = litebert.evaluate(trained.folder, quiet=True)
    assert litebert.evaluate(trained.folder, data=FRAME, quiet=True) == evaluation
    answered = litebert.predict(trained.folder, data=FRAME[["review"]], quiet=True)
    assert len(answered.rows["test"]) == len(FRAME)
    assert answered.notes == ()
    blank = FRAME[["review"]].copy()
    blank.loc[1, "review"] = ""
    answered = litebert.predict(trained.folder, data=blank, output="out", quiet=True)
    assert answered.notes == ("test: 1 row without a text or an answer: 2",)
    assert f" {len(FRAME) - 1} answers (test)" in str(answered)
    assert Path("runs/table.jsonl").is_file()


def test_another_frame_needs_another_name(
    trained: litebert.Run, small_model: Path
) -> None:
    assert trained.is_finished
    with pytest.raises(LitebertError, match=r"LB-545(.|\n)*name="):
        litebert.finetune(FRAME[:20], model=small_model, quiet=True)


def test_a_corrected_frame_takes_the_name_of_a_run_that_did_not_begin(
    tmp_path: Path, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for frame in (FRAME[["review"]], FRAME[["stars"]]):
        with pytest.raises(LitebertError, match="LB-8"):
            litebert.finetune(frame, model=small_model, quiet=True)
    assert not Path("runs/table.jsonl").exists()


def test_rows_that_are_no_table_are_told_how_to_become_one() -> None:
    rows: Any = [{"text": "Anna walked.", "label": "a"}]
    with pytest.raises(LitebertError) as raised:
        litebert.finetune(rows)
    assert raised.value.expected == "str | Path | DataFrame"
    assert "pandas.DataFrame(rows)" in str(raised.value)


def test_a_dry_run_of_a_frame_writes_nothing(
    tmp_path: Path, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = litebert.finetune(FRAME, model=small_model, dry_run=True, quiet=True)
    assert run.plan is not None
    assert not list(tmp_path.iterdir())


def test_a_frame_is_checked() -> None:
    report = data_check(FRAME, columns={"text": "review", "label": "stars"})
    assert report.splits[0].labels == {"1": 12, "5": 12}


def test_cells_of_a_frame_are_those_of_a_file() -> None:
    with as_file(FRAME) as path:
        assert path is not None
        rows = [row for _, row in table_dataset_rows(Path(path))]
    first = rows[0]
    assert (first["review"], first["stars"], first["note"]) == (TEXTS[0], 5, None)
    assert str(first["seen"]).startswith("2024-03-01")


def table_dataset_rows(path: Path) -> list[tuple[int, Any]]:
    from litebert.tasks.tables.layouts import open_table

    return list(open_table(path).rows())


def test_bins_are_labels() -> None:
    bins = pd.cut(pd.Series(range(4)), [-1, 1, 3])
    with as_file(pd.DataFrame({"text": ["a", "b", "c", "d"], "label": bins})) as path:
        rows = table_dataset_rows(Path(str(path)))
    assert [row["label"] for _, row in rows] == ["(-1, 1]"] * 2 + ["(1, 3]"] * 2


def test_two_columns_of_one_name_are_refused() -> None:
    frame = pd.concat([FRAME[["review"]], FRAME[["review"]]], axis=1)
    with pytest.raises(LitebertError, match="LB-544"), as_file(frame):
        pass


class Polars:
    """What a DataFrame of polars has of use here."""

    columns = ("text", "label")

    def to_dict(self) -> object:
        raise AssertionError("written as JSON lines instead")

    def write_ndjson(self) -> str:
        return '{"text":"a","label":1}\n{"text":"b","label":2}\n'


def test_a_frame_of_polars_is_read() -> None:
    with as_file(Polars()) as path:
        assert path is not None
        assert len(table_dataset_rows(Path(path))) == 2


def test_several_columns_of_a_mapping_are_several(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rows = [f"row number {n},{n % 2},{n % 3 % 2}" for n in range(20)]
    path.write_text("words,toxic,insult\n" + "\n".join(rows), "utf-8")
    report = data_check(path, columns={"label": ["toxic", "insult"]})
    assert set(report.splits[0].labels) == {"toxic", "insult"}
    bare = tmp_path / "b.csv"
    bare.write_text("\n".join(f"row number {n},{n % 2}" for n in range(20)), "utf-8")
    assert data_check(bare, columns={"header": False, "text": "1"}).splits


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "near": ({"epoch": 1}, "did you mean epochs"),
    "a setting": ({"learning_rate": 1e-4}, 'settings={"optim.learning_rate"'),
    "far": ({"zzz": 1}, r"help\(litebert.finetune\)"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_keyword_gets_a_hint(name: str) -> None:
    keywords, hint = WRONG[name]
    with pytest.raises(LitebertError, match=f"LB-540(.|\n)*{hint}"):
        litebert.finetune("a.csv", **keywords)


def test_a_wrong_name_of_a_file_gets_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("reviews.csv").write_text("text,label\na,b\n", "utf-8")
    with pytest.raises(LitebertError, match=r"LB-303(.|\n)*did you mean reviews.csv"):
        data_check(Path("reviws.csv"))
    with pytest.raises(LitebertError) as caught:
        litebert.finetune("reviews")
    assert caught.value.next == "litebert finetune reviews.csv"
    with pytest.raises(LitebertError) as caught:
        data_check(Path("nowhere/reviws.csv"))
    assert caught.value.next == "ls ."


def test_polars_itself_writes_what_is_read(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"text": TEXTS, "label": [0, 1] * 12})
    with as_file(frame) as path:
        assert path is not None
        assert len(table_dataset(Path(path)).read(Path(path), "train")) > 0
