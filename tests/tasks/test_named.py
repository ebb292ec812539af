"""GLUE and RACE in their authors' and the Hub's layouts, submissions to leaderboards,
recipes, published scores.
"""

import csv
import gzip
import io
import json
import re
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from litebert.config import FinetuneConfig
from litebert.errors import LitebertError
from litebert.settings import Setting, resolve, settings_from_toml
from litebert.tasks.kinds.choice import ChoiceExample
from litebert.tasks.kinds.text import Scores, TextExample
from litebert.tasks.named import DATASETS, glue, published_scores, questions
from litebert.tasks.named.glue import SUBMISSION_FILES, glue_zip

# ---- GLUE: its files -----------------------------------------------------------------

# official-behaviour 6.1: columns by number (labeled: texts, label; unlabeled: texts),
# and rows by split
FILES = {
    "cola": ("CoLA", (3,), 1, (1,), {"train": 8_551, "dev": 1_043, "test": 1_063}),
    "sst2": ("SST-2", (0,), 1, (1,), {"train": 67_349, "dev": 872, "test": 1_821}),
    "mrpc": ("MRPC", (3, 4), 0, (3, 4), {"train": 3_668, "dev": 408, "test": 1_725}),
    "stsb": (
        "STS-B",
        (7, 8),
        -1,
        (7, 8),
        {"train": 5_749, "dev": 1_500, "test": 1_379},
    ),
    "qnli": ("QNLI", (1, 2), -1, (1, 2), {"dev": 5_463, "test": 5_463}),
    "rte": ("RTE", (1, 2), -1, (1, 2), {"train": 2_490, "dev": 277, "test": 3_000}),
    "wnli": ("WNLI", (1, 2), -1, (1, 2), {"train": 635, "dev": 71, "test": 146}),
}
WORDS = ["entailment", "not_entailment"]
PAIR_HEAD = "index\tsentence1\tsentence2\tlabel"


def write_lines(folder: Path, name: str, *lines: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def error_of(folder: Path, task: str, split: str = "train") -> LitebertError:
    with pytest.raises(LitebertError) as caught:
        DATASETS[task].read(folder, split)
    return caught.value


def by_position(path: Path, task: str, split: str) -> Iterator[tuple[object, ...]]:
    """Read texts and label as the official reader counts columns."""
    _, labeled, label, unlabeled, _ = FILES[task]
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        rows = list(csv.reader(file, delimiter="\t", quotechar=None))
    for row in rows if task == "cola" and split != "test" else rows[1:]:
        if split == "test":
            yield (*(row[column] for column in unlabeled), None)
        else:
            value = row[label]
            yield (
                *(row[column] for column in labeled),
                (WORDS.index(value) if value in WORDS else float(value)),
            )


@pytest.mark.parametrize(
    ("task", "split"),
    [(task, split) for task, (*_, sizes) in FILES.items() for split in sizes],
)
def test_every_official_file_reads_as_the_official_columns_say(
    real_data: Path, task: str, split: str
) -> None:
    folder, *_, sizes = FILES[task]
    read = DATASETS[task].read(real_data / "glue", split)
    rows = [
        (*([e.first] if e.second is None else [e.first, e.second]), e.label)
        for e in read
    ]
    assert rows == list(
        by_position(real_data / "glue" / folder / f"{split}.tsv.gz", task, split)
    )
    assert [example.id for example in read] == [str(n) for n in range(sizes[split])]


def test_real_files_of_other_layouts_are_read(real_data: Path, tmp_path: Path) -> None:
    examples = DATASETS["ax"].read(real_data / "glue", "test")
    assert (len(examples), {example.label for example in examples}) == (1_104, {None})
    (tmp_path / "mnli").mkdir()
    file = real_data / "nli" / "mnli_dev_matched_a.jsonl.gz"
    (tmp_path / "mnli/validation_matched.jsonl.gz").symlink_to(file)
    read = DATASETS["mnli"].read(tmp_path, "dev_matched")
    assert (len(read), {example.label for example in read}) == (5_000, {0, 1, 2})


MNLI_HEAD = "index\tgenre\tsentence1\tsentence2\tgold_label"
QQP_HEAD = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"
SCORE_HEAD = PAIR_HEAD.replace("label", "score")
NEUTRAL = f"{MNLI_HEAD}\n0\tx\tA man sleeps.\tA man is.\tNeutral".encode()
BROKEN_OFF = f"{QQP_HEAD}\n8\t1\t2\tWho is\n7\t1\t2\tWho?\tWhom?\t1".encode()
# quotes mean nothing
QUOTED = f'{PAIR_HEAD}\n3\t "It  rains. \tIt is wet.\tEntailment'.encode()
RETURN = f"{PAIR_HEAD}\n3\tA\rB\tC\tEntailment".encode()
RAINS = [TextExample("3", ' "It  rains. ', "It is wet.", 0)]
SLEEPS = [TextExample("0", "A man sleeps.", "A man is.", 2)]
WHOM = [TextExample("7", "Who?", "Whom?", 1)]
# A task, a split, a file, its content, and the examples
LAYOUTS: dict[str, tuple[str, str, str, bytes, list[TextExample]]] = {
    "in its own folder, packed": (
        "rte",
        "train",
        "train.tsv.zst",
        zstandard.compress(QUOTED),
        RAINS,
    ),
    "two dev sets, labels in the official order": (
        "mnli",
        "dev_matched",
        "MNLI/dev_matched.tsv",
        NEUTRAL,
        SLEEPS,
    ),
    "a carriage return in a cell": (
        "rte",
        "train",
        "train.tsv",
        RETURN,
        [TextExample("3", "A\rB", "C", 0)],
    ),
    "a line that breaks off, which QQP has": (
        "qqp",
        "train",
        "QQP/train.tsv",
        BROKEN_OFF,
        WHOM,
    ),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_files_of_every_layout_are_read(tmp_path: Path, name: str) -> None:
    task, split, file, content, examples = LAYOUTS[name]
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_bytes(content)
    assert DATASETS[task].read(tmp_path, split) == examples


GOOD = {"sentence1": "A.", "sentence2": "B.", "label": 1, "idx": 9}
MALFORMED = {
    "another task": (
        "rte",
        "tsv",
        ["index\tquestion\tsentence\tlabel", "0\tWho?\tHe.\tentailment"],
        "LB-822",
        2,
    ),
    "another task's labels": (
        "wnli",
        "tsv",
        [PAIR_HEAD, "0\tA.\tB.\tentailment"],
        "LB-825",
        2,
    ),
    "a short line": ("wnli", "tsv", [PAIR_HEAD, "0\tA.\tB.\t1", "1\tA."], "LB-843", 3),
    "a long line": ("wnli", "tsv", [PAIR_HEAD, "0\tA.\tB.\t1\t1"], "LB-843", 2),
    "a header where none is": (
        "cola",
        "tsv",
        ["source\tlabel\toriginal\tsentence"],
        "LB-825",
        1,
    ),
    "a score": ("stsb", "tsv", [SCORE_HEAD, "0\tA.\tB.\t5.1"], "LB-825", 2),
    "a key less": (
        "mrpc",
        "jsonl",
        [json.dumps(GOOD), '{"sentence1": "A.", "sentence2": "B."}'],
        "LB-822",
        2,
    ),
    "no text": (
        "mrpc",
        "jsonl",
        [json.dumps(GOOD), json.dumps({**GOOD, "sentence2": None})],
        "LB-824",
        2,
    ),
    "a label of the Hub": (
        "mrpc",
        "jsonl",
        [json.dumps(GOOD), json.dumps({**GOOD, "label": -1})],
        "LB-825",
        2,
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_rows_are_named_with_their_line(tmp_path: Path, name: str) -> None:
    task, kind, lines, code, line = MALFORMED[name]
    write_lines(tmp_path, f"train.{kind}", *lines)
    error = error_of(tmp_path, task)
    assert (error.code, f"train.{kind}, line {line}:" in error.what) == (code, True)


def test_an_error_for_a_folder_without_the_task_names_what_it_has_and_what_is_expected(
    tmp_path: Path,
) -> None:
    write_lines(tmp_path, "RTE/train.tsv", "")
    error = error_of(tmp_path, "mrpc", "dev")
    assert (error.code, error.received, "MRPC/dev.tsv" in str(error.expected)) == (
        "LB-820",
        "RTE",
        True,
    )
    assert error_of(tmp_path / "none", "mrpc").received == "no such folder"
    assert (
        error_of(tmp_path / "RTE/train.tsv", "rte").received == "a file, not a folder"
    )
    # nothing is trained on the diagnostic set
    assert error_of(tmp_path, "ax").next == "litebert recipes show mnli"


def test_parquet_files_of_the_hub_are_read_with_its_order_of_labels(
    tmp_path: Path,
) -> None:
    columns = {
        "premise": ["A.", "B.", "C."],
        "hypothesis": ["D.", "E.", "F."],
        "label": [2, 0, 1],
        "idx": [4, 5, 6],
    }
    (tmp_path / "mnli").mkdir()
    pq.write_table(
        pa.table(columns),
        tmp_path / "mnli" / "validation_matched-00000-of-00001.parquet",
    )
    read = DATASETS["mnli"].read(tmp_path, "dev_matched")
    assert [(e.id, e.first, e.label) for e in read] == [
        ("4", "A.", 0),
        ("5", "B.", 1),
        ("6", "C.", 2),
    ]
    # parts are read in order, even without idx, and -1 is no label
    for part in range(2):
        columns = {"sentence": [f"text {part}"], "label": [-1]}
        pq.write_table(
            pa.table(columns), tmp_path / f"test-0000{part}-of-00002.parquet"
        )
    assert DATASETS["mnli"].dev_splits == ("dev_matched", "dev_mismatched")
    assert DATASETS["cola"].read(tmp_path, "test") == [
        TextExample("0", "text 0"),
        TextExample("1", "text 1"),
    ]
    pq.write_table(
        pa.table({"sentence": ["one"], "idx": [0]}),
        tmp_path / "train-00000-of-00001.parquet",
    )
    assert (error_of(tmp_path, "sst2").code, error_of(tmp_path, "sst2").received) == (
        "LB-822",
        "sentence, idx",
    )


# ---- GLUE: submissions ---------------------------------------------------------------

SPELT = {
    **{
        name: (f"{file}.tsv", "0", "1")
        for name, file in {"cola": "CoLA", "sst2": "SST-2", "mrpc": "MRPC"}.items()
    },
    **{name: (f"{name.upper()}.tsv", "0", "1") for name in ("qqp", "wnli")},
    **{name: (f"{name.upper()}.tsv", *WORDS) for name in ("qnli", "rte")},
    "mnli matched": ("MNLI-m.tsv", "contradiction", "entailment"),
    "mnli mismatched": ("MNLI-mm.tsv", "contradiction", "entailment"),
    "ax": ("AX.tsv", "contradiction", "entailment"),
    "stsb": ("STS-B.tsv", "5.000", "0.000"),  # clipped to the scale
}


@pytest.mark.parametrize("name", SPELT)
def test_answers_are_written_as_the_leaderboard_spells_them(name: str) -> None:
    file, *predictions = SPELT[name]
    task, _, part = name.partition(" ")
    asked = [TextExample("0", "a"), TextExample("1", "b")]
    answers = (
        [Scores((5.2,)), Scores((-0.01,))]
        if task == "stsb"
        else [Scores((0.9, 0.1, 0)), Scores((0.2, 0.8, 0))]
    )
    written = dict(
        DATASETS[task].submission(f"test_{part}".rstrip("_"), asked, answers)
    )
    assert written == {file: "index\tprediction\n0\t{}\n1\t{}\n".format(*predictions)}


def test_the_archive_holds_the_eleven_files_and_the_same_answers_give_the_same_bytes() -> (
    None
):
    contents = {name: f"{name}\n" for name in SUBMISSION_FILES}
    packed = glue_zip(contents)
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        assert archive.testzip() is None
        assert {
            name: archive.read(name).decode() for name in archive.namelist()
        } == contents
    assert len(contents) == 11 and glue_zip(dict(reversed(contents.items()))) == packed
    with pytest.raises(LitebertError, match=r"LB-826(.|\n)*no MNLI-mm.tsv, AX.tsv"):
        glue_zip(
            {
                name: ""
                for name in SUBMISSION_FILES
                if name not in ("AX.tsv", "MNLI-mm.tsv")
            }
        )


# ---- RACE ----------------------------------------------------------------------------


def passage(name: str, **changes: object) -> str:
    fields = {
        "id": name,
        "article": "Mia has a kite.\nIt is green.",
        "answers": ["C", "A"],
    }
    fields |= {"questions": ["The kite is  _ .", "Whose kite is it?"]}
    fields |= {
        "options": [["red", "blue", "green", "black"], ["Mia", "Tom", "Ann", "Ben"]]
    }
    return json.dumps(fields | changes)


def test_race_is_read_from_one_file_per_passage_joined_files_and_compressed_lines(
    tmp_path: Path,
) -> None:
    for group, number in [("middle", 2), ("middle", 1), ("high", 3)]:
        write_lines(
            tmp_path, f"RACE/test/{group}/{number}.txt", passage(f"{group}{number}.txt")
        )
    read = DATASETS["race"].read(tmp_path, "test")
    names = ("Mia", "Tom", "Ann", "Ben")
    article = "Mia has a kite.\nIt is green."
    assert read[1] == ChoiceExample(
        "middle1.txt-1", article, "Whose kite is it?", names, 0, "middle"
    )
    ids = ["middle1.txt", "middle2.txt", "high3.txt"]
    assert [example.id for example in read] == [
        f"{name}-{n}" for name in ids for n in (0, 1)
    ]
    write_lines(tmp_path, "train/high/1.txt", passage("high1.txt"))
    write_lines(
        tmp_path, "train/high/all.txt", passage("high1.txt"), passage("high2.txt")
    )
    assert len(DATASETS["race-high"].read(tmp_path, "train")) == 4
    (tmp_path / "dev-high.jsonl.gz").write_bytes(
        gzip.compress(passage("high1.txt").encode())
    )
    assert len(DATASETS["race-high"].read(tmp_path, "dev")) == 2
    assert "dev-middle.jsonl" in str(error_of(tmp_path, "race", "dev").expected)


NO_PASSAGES: dict[str, tuple[str, str]] = {
    "{": ("LB-312", "complete object"),
    passage("h", answers=["C"]): ("LB-801", "not 2, 2 and 1"),
    passage("h", answers=["C", "E"]): ("LB-801", "'A', 'B', 'C' or 'D'"),
    passage("h", options=[["a", "b"], ["c", "d"]]): (
        "LB-801",
        "up to 4 options, C among them",
    ),
    passage("h", options=[list("abcde"), list("abcd")]): ("LB-801", "not 5"),
    passage("h", questions="Who?"): ("LB-801", "a valid list"),
    passage("h", article=None): ("LB-801", "a valid string"),
}


@pytest.mark.parametrize("line", NO_PASSAGES)
def test_a_malformed_passage_is_named_with_file_and_line(
    tmp_path: Path, line: str
) -> None:
    write_lines(tmp_path, "train/high/all.txt", passage("high0.txt"), line)
    error, (code, said) = error_of(tmp_path, "race-high"), NO_PASSAGES[line]
    assert (
        error.code,
        "all.txt, line 2" in error.what,
        said in str(error.expected),
    ) == (code, True, True)


def test_answers_are_submitted_as_letters_by_question() -> None:
    asked = [ChoiceExample(f"high1.txt-{n}", "", "", tuple("wxyz")) for n in range(2)]
    answers = [Scores((0.1, 0.2, 0.6, 0.1)), Scores((0.7, 0.1, 0.1, 0.1))]
    ((name, text),) = DATASETS["race-high"].submission("test", asked, answers).items()
    assert (name, json.loads(str(text))) == (
        "race-high-test.json",
        {"high1.txt-0": "C", "high1.txt-1": "A"},
    )


def test_the_real_files_have_the_published_number_of_questions(real_data: Path) -> None:
    for name, split, size in (
        ("race-middle", "dev", 1_436),
        ("race-high", "dev", 3_451),
        ("race", "train", 87_866),
    ):
        examples = DATASETS[name].read(real_data / "race", split)
        assert len(examples) == len({example.id for example in examples}) == size
        assert {len(example.choices) for example in examples} == {4}
    squad = DATASETS["squad2"].read(
        real_data / "squad" / "dev-v2.0.part1.json.gz", "dev"
    )
    assert (len(squad), sum(one.is_impossible for one in squad)) == (6_078, 3_168)


# The recipes (Table 14 and run_glue.sh, official-behaviour 6.6) and the published
# scores

FOLDER = files("litebert") / "recipes" / "finetune"
# rate, batch, encoder dropout, steps, warm-up, length, evaluated every; size of the
# training set, epochs
RECIPES = {
    "cola": (1e-5, 16, 0.0, 5_336, 320, 512, 100, 8_551, 10.0),
    "stsb": (2e-5, 16, 0.0, 3_598, 214, 512, 100, 5_749, 10.0),
    "sst2": (1e-5, 32, 0.0, 20_935, 1_256, 512, 100, 67_349, 9.9),
    "mnli": (3e-5, 128, 0.0, 10_000, 1_000, 512, 100, 392_702, 3.3),
    "qnli": (1e-5, 32, 0.0, 33_112, 1_986, 512, 200, 104_743, 10.1),
    "qqp": (5e-5, 128, 0.1, 14_000, 1_000, 512, 100, 363_846, 4.9),
    "rte": (3e-5, 32, 0.1, 800, 200, 512, 100, 2_490, 10.3),
    "mrpc": (2e-5, 32, 0.0, 800, 200, 512, 100, 3_668, 7.0),
    "wnli": (2e-5, 16, 0.1, 2_000, 250, 512, 0, 635, 50.4),
    "squad": (5e-5, 48, 0.0, 3_649, 365, 384, 5_000, 87_599, 2.0),
    "squad2": (3e-5, 48, 0.0, 8_144, 814, 512, 5_000, 130_319, 3.0),
    "race": (2e-5, 32, 0.1, 12_000, 1_000, 512, 100, 87_866, 4.4),
    "race-v2": (1e-5, 32, 0.0, 12_000, 1_000, 512, 100, 87_866, 4.4),
}


def recipe(name: str) -> FinetuneConfig:
    settings = {"model.start": Setting("model"), "data.folder": Setting("data")}
    with as_file(FOLDER / f"{name}.toml") as path:
        return resolve(FinetuneConfig, settings_from_toml(path), settings).config


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_has_the_published_values(name: str) -> None:
    config = recipe(name)
    task = config.task
    model = config.model
    optim = config.optim
    train = config.train
    *values, size, epochs = RECIPES[name]
    actual: list[Any] = [
        optim.learning_rate,
        train.batch_size,
        model.hidden_dropout_prob,
        train.steps,
    ]
    assert [*actual, optim.warmup_steps, task.max_length, train.eval_every] == values
    assert task.name == name.removesuffix("-v2")
    assert model.attention_probs_dropout_prob == model.hidden_dropout_prob
    assert model.classifier_dropout_prob == 0.1
    assert (optim.name, optim.schedule, optim.weight_decay, optim.clip_norm) == (
        "adamw",
        "official",
        0.01,
        1.0,
    )
    assert (optim.beta1, optim.beta2, optim.epsilon) == (0.9, 0.999, 1e-6)
    assert train.steps * train.batch_size / size == pytest.approx(epochs, abs=0.051)
    assert (task.max_query_length, task.doc_stride) == (64, 128)


def test_every_task_that_can_be_trained_has_a_recipe_that_names_its_source() -> None:
    names = {entry.name.removesuffix(".toml") for entry in FOLDER.iterdir()}
    assert {*glue.DATASETS, *questions.RACE, *questions.SQUAD} - names == {"ax"}
    # by which the official code chooses
    measures = {task: dataset.key_measure for task, dataset in glue.DATASETS.items()}
    assert measures == dict.fromkeys(measures, "accuracy") | {
        "cola": "matthews",
        "stsb": "pearson",
    }
    for name in [*RECIPES, "race-middle", "race-high"]:
        head = (
            (FOLDER / f"{name}.toml").read_text(encoding="utf-8").partition("[task]")[0]
        )
        for part in (
            "# Source: ",
            "# Data: ",
            "# Hardware: ",
            "# Expected: ",
            "Table 14",
            "Not run",
        ):
            assert part in head, name
        if expected := re.search(r"(\d\d\.\d)[^.]*xxlarge\s\(Table 9", head):
            (score,) = (
                s
                for s in published_scores()
                if (s.task, s.model, s.table) == (name, "xxlarge-v1", "Table 9")
            )
            assert float(expected[1]) == score.percent


def test_two_tasks_of_one_name_are_refused() -> None:
    sst2 = DATASETS["sst2"]
    DATASETS.add("sst2", sst2)  # adding the same one again does nothing
    with pytest.raises(LitebertError, match="LB-109"):
        DATASETS.add("sst2", replace(sst2, key_measure="f1"))
