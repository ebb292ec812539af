"""RACE is read in each way it is packed, and answered by letters."""

import gzip
import json
from pathlib import Path

import pytest

from litebert.errors import LitebertError
from litebert.tasks.kinds.choice import ChoiceExample
from litebert.tasks.kinds.text import Scores
from litebert.tasks.named.race import DATASETS

ARTICLE = "Mia has a kite.\nIt is green."


def _passage(name: str) -> str:
    return json.dumps(
        {
            "answers": ["C", "A"],
            "options": [["red", "blue", "green", "black"], ["Mia", "Tom", "Ann", "Ben"]],
            "questions": ["The kite is  _ .", "Whose kite is it?"],
            "article": ARTICLE,
            "id": name,
        }
    )


def _write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_a_question_carries_its_passage_options_answer_and_school(tmp_path: Path) -> None:
    _write(tmp_path, "RACE/dev/middle/5.txt", _passage("middle5.txt"))
    assert DATASETS["race-middle"].read(tmp_path, "dev") == [
        ChoiceExample(
            id="middle5.txt-0",
            context=ARTICLE,
            question="The kite is  _ .",
            choices=("red", "blue", "green", "black"),
            label=2,
            group="middle",
        ),
        ChoiceExample(
            id="middle5.txt-1",
            context=ARTICLE,
            question="Whose kite is it?",
            choices=("Mia", "Tom", "Ann", "Ben"),
            label=0,
            group="middle",
        ),
    ]


def test_both_schools_are_read_from_a_file_a_passage(tmp_path: Path) -> None:
    for group, number in [("middle", 2), ("middle", 1), ("high", 3)]:
        _write(tmp_path, f"test/{group}/{number}.txt", _passage(f"{group}{number}.txt"))
    read = DATASETS["race"].read(tmp_path, "test")
    ids = ["middle1.txt", "middle2.txt", "high3.txt"]
    assert [example.id for example in read] == [f"{name}-{n}" for name in ids for n in (0, 1)]
    assert {example.group for example in read[4:]} == {"high"}


def test_a_joined_file_stands_for_the_single_ones_beside_it(tmp_path: Path) -> None:
    _write(tmp_path, "train/high/1.txt", _passage("high1.txt"))
    joined = _passage("high1.txt") + "\n" + _passage("high2.txt") + "\n"
    _write(tmp_path, "train/high/all.txt", joined)
    assert len(DATASETS["race-high"].read(tmp_path, "train")) == 4


def test_packed_lines_by_split_and_school_are_read(tmp_path: Path) -> None:
    packed = gzip.compress(_passage("high1.txt").encode())
    (tmp_path / "dev-high.jsonl.gz").write_bytes(packed)
    assert len(DATASETS["race-high"].read(tmp_path, "dev")) == 2


def _changed(**fields: object) -> str:
    return json.dumps({**json.loads(_passage("high1.txt")), **fields})


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("{", "LB-312", "complete object"),
        (_changed(answers=["C"]), "LB-827", "1 answers"),
        (_changed(answers=["C", "E"]), "LB-827", "'A', 'B', 'C' or 'D'"),
        (_changed(options=[["a", "b"], ["c", "d"]]), "LB-827", "up to 4 options, C among them"),
        (_changed(options=[list("abcde"), list("abcd")]), "LB-827", "not 5"),
        (_changed(questions="Who?"), "LB-827", "a list of texts"),
        (_changed(article=None), "LB-827", "text"),
    ],
)
def test_what_is_no_passage_is_named_with_file_and_line(tmp_path: Path, line: str, code: str, said: str) -> None:
    _write(tmp_path, "train/high/all.txt", _passage("high0.txt") + "\n" + line)
    with pytest.raises(LitebertError) as caught:
        DATASETS["race-high"].read(tmp_path, "train")
    assert caught.value.code == code
    assert "all.txt, line 2" in caught.value.what
    assert said in caught.value.expected


def test_a_missing_school_is_named(tmp_path: Path) -> None:
    _write(tmp_path, "dev/middle/all.txt", _passage("middle1.txt"))
    with pytest.raises(LitebertError) as caught:
        DATASETS["race"].read(tmp_path, "dev")
    assert caught.value.code == "LB-820"
    assert "dev/high/all.txt" in caught.value.expected


def test_answers_leave_as_letters_by_question() -> None:
    asked = [ChoiceExample(f"high1.txt-{n}", "", "", tuple("wxyz")) for n in range(2)]
    write = DATASETS["race-high"].submission
    assert write is not None
    answers = [Scores((0.1, 0.2, 0.6, 0.1)), Scores((0.7, 0.1, 0.1, 0.1))]
    written = write("test", asked, answers)
    assert list(written) == ["race-high-test.json"]
    letters = json.loads(str(written["race-high-test.json"]))
    assert letters == {"high1.txt-0": "C", "high1.txt-1": "A"}


@pytest.mark.parametrize(
    ("name", "split", "size"),
    [("race-middle", "dev", 1_436), ("race-high", "dev", 3_451), ("race", "dev", 4_887), ("race", "train", 87_866)],
)
def test_the_real_files_have_the_published_number_of_questions(
    real_data: Path, name: str, split: str, size: int
) -> None:
    examples = DATASETS[name].read(real_data / "race", split)
    assert len(examples) == size
    assert len({example.id for example in examples}) == size
    assert {len(example.choices) for example in examples} == {4}
