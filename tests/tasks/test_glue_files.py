"""GLUE is read as its authors pack it and as the Hub does, and what is wrong is said by line."""

import csv
import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from litebert.errors import LitebertError
from litebert.tasks.kinds.text import TextExample
from litebert.tasks.named.glue import DATASETS

MNLI_HEAD = (
    "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\t"
    "sentence1_parse\tsentence2_parse\tsentence1\tsentence2"
)
QQP_HEAD = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"

# official-behaviour 6.1: columns by number (labelled: id, texts, label; unlabelled: id, texts)
POSITIONS = {
    "cola": ("CoLA", (None, (3,), 1), (0, (1,))),
    "sst2": ("SST-2", (None, (0,), 1), (0, (1,))),
    "mrpc": ("MRPC", (None, (3, 4), 0), (0, (3, 4))),
    "stsb": ("STS-B", (0, (7, 8), -1), (0, (7, 8))),
    "qnli": ("QNLI", (0, (1, 2), -1), (0, (1, 2))),
    "rte": ("RTE", (0, (1, 2), -1), (0, (1, 2))),
    "wnli": ("WNLI", (0, (1, 2), -1), (0, (1, 2))),
}
OFFICIAL_LABELS = {"qnli": ["entailment", "not_entailment"], "rte": ["entailment", "not_entailment"]}
SIZES = {
    "cola": {"train": 8_551, "dev": 1_043, "test": 1_063},
    "sst2": {"train": 67_349, "dev": 872, "test": 1_821},
    "mrpc": {"train": 3_668, "dev": 408, "test": 1_725},
    "stsb": {"train": 5_749, "dev": 1_500, "test": 1_379},
    "qnli": {"dev": 5_463, "test": 5_463},
    "rte": {"train": 2_490, "dev": 277, "test": 3_000},
    "wnli": {"train": 635, "dev": 71, "test": 146},
}
SPLITS = [(task, split) for task, sizes in SIZES.items() for split in sizes]


def _write(folder: Path, name: str, *lines: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _error(folder: Path, task: str, split: str = "train") -> LitebertError:
    with pytest.raises(LitebertError) as caught:
        DATASETS[task].read(folder, split)
    return caught.value


def _by_position(path: Path, task: str, split: str) -> Iterator[tuple[list[str], str | None]]:
    """Read texts and label as the official reader counts columns."""
    _, labelled, unlabelled = POSITIONS[task]
    (_, texts), label = (unlabelled, None) if split == "test" else (labelled[:2], labelled[2])
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        rows = list(csv.reader(file, delimiter="\t", quotechar=None))
    for row in rows if task == "cola" and split != "test" else rows[1:]:
        yield [row[column] for column in texts], None if label is None else row[label]


def _expected_label(task: str, written: str | None) -> float | None:
    if written is None:
        return None
    return OFFICIAL_LABELS[task].index(written) if task in OFFICIAL_LABELS else float(written)


@pytest.mark.parametrize(("task", "split"), SPLITS)
def test_every_official_file_reads_as_the_official_columns_say(real_data: Path, task: str, split: str) -> None:
    path = real_data / "glue" / POSITIONS[task][0] / f"{split}.tsv.gz"
    expected = [(*texts, _expected_label(task, label)) for texts, label in _by_position(path, task, split)]
    read = DATASETS[task].read(real_data / "glue", split)
    found = [(*([e.first] if e.second is None else [e.first, e.second]), e.label) for e in read]
    assert found == expected
    assert [example.id for example in read] == [str(n) for n in range(SIZES[task][split])]


def test_the_diagnostic_set_is_found_beside_the_tasks(real_data: Path) -> None:
    examples = DATASETS["ax"].read(real_data / "glue", "test")
    assert len(examples) == 1_104
    assert {example.label for example in examples} == {None}


def test_rows_of_real_mnli_are_read_as_the_hub_lays_them_out(real_data: Path, tmp_path: Path) -> None:
    (tmp_path / "mnli").mkdir()
    file = real_data / "nli" / "mnli_dev_matched_a.jsonl.gz"
    (tmp_path / "mnli/validation_matched.jsonl.gz").symlink_to(file)
    read = DATASETS["mnli"].read(tmp_path, "dev_matched")
    assert len(read) == 5_000
    assert {example.label for example in read} == {0, 1, 2}


def test_mnli_has_two_dev_sets_and_labels_in_the_official_order(tmp_path: Path) -> None:
    cells = "\t".join(f"x{n}" for n in range(1, 8))
    for split, votes, label in [("matched", 5, "Neutral"), ("mismatched", 5, "contradiction")]:
        head = "\t".join([MNLI_HEAD, *(f"label{n + 1}" for n in range(votes)), "gold_label"])
        row = "\t".join(["0", cells, "A man sleeps.", "A man is.", *["-"] * votes, label])
        _write(tmp_path, f"MNLI/dev_{split}.tsv", head, row)
    dataset = DATASETS["mnli"]
    read = [dataset.read(tmp_path, split)[0] for split in dataset.dev_splits]
    assert read == [
        TextExample("0", "A man sleeps.", "A man is.", 2),
        TextExample("0", "A man sleeps.", "A man is.", 0),
    ]
    assert dataset.family.head.labels == ("contradiction", "entailment", "neutral")
    assert dataset.test_splits == ("test_matched", "test_mismatched")


def test_qqp_skips_lines_that_break_off_and_only_these(tmp_path: Path) -> None:
    whole, broken = "7\t1\t2\tWho?\tWhom?\t1", "8\t1\t2\tWho is"
    _write(tmp_path, "QQP/train.tsv", QQP_HEAD, broken, whole)
    assert DATASETS["qqp"].read(tmp_path, "train") == [TextExample("7", "Who?", "Whom?", 1)]
    _write(tmp_path, "QQP/train.tsv", QQP_HEAD, whole, f"{whole}\t1")
    error = _error(tmp_path, "qqp")
    assert error.code == "LB-823"
    assert "line 3" in error.what
    _write(tmp_path, "QQP/test.tsv", "id\tquestion1\tquestion2", "0\tWhy?\tHow?")
    assert DATASETS["qqp"].read(tmp_path, "test") == [TextExample("0", "Why?", "How?")]


def test_quotes_mean_nothing_and_text_stays_as_it_is(tmp_path: Path) -> None:
    _write(tmp_path, "SST-2/train.tsv", "sentence\tlabel", ' "an  Open quote \t1', "plain\t0")
    read = DATASETS["sst2"].read(tmp_path, "train")
    assert [(e.first, e.label) for e in read] == [(' "an  Open quote ', 1), ("plain", 0)]


@pytest.mark.parametrize("end", ["", ".gz", ".zst"])
def test_files_may_be_packed_and_lie_in_the_given_folder_itself(tmp_path: Path, end: str) -> None:
    data = b"index\tsentence1\tsentence2\tlabel\n3\tIt rains.\tIt is wet.\tEntailment"
    packed = {"": data, ".gz": gzip.compress(data), ".zst": zstandard.compress(data)}[end]
    (tmp_path / f"train.tsv{end}").write_bytes(packed)
    assert DATASETS["rte"].read(tmp_path, "train") == [TextExample("3", "It rains.", "It is wet.", 0)]


def test_a_file_of_another_task_is_noticed_at_its_header(tmp_path: Path) -> None:
    _write(tmp_path, "train.tsv", "index\tquestion\tsentence\tlabel", "0\tWho?\tHe.\tentailment")
    error = _error(tmp_path, "rte")
    assert error.code == "LB-822"
    assert "train.tsv, line 1" in error.what
    assert error.received == "index, question, sentence, label"
    assert "sentence1, sentence2, label" in error.expected


def test_a_file_with_the_same_columns_is_told_by_its_labels(tmp_path: Path) -> None:
    _write(tmp_path, "train.tsv", "index\tsentence1\tsentence2\tlabel", "0\tA.\tB.\tentailment")
    assert DATASETS["rte"].read(tmp_path, "train") == [TextExample("0", "A.", "B.", 0)]
    error = _error(tmp_path, "wnli")
    assert (error.code, error.received, error.expected) == ("LB-825", "entailment", "one of 0, 1")


@pytest.mark.parametrize(
    ("task", "lines", "code", "line"),
    [
        ("wnli", ["index\tsentence1\tsentence2\tlabel", "0\tA.\tB.\t1", "1\tA."], "LB-823", 3),
        ("wnli", ["index\tsentence1\tsentence2\tlabel", "0\tA.\tB.\t2"], "LB-825", 2),
        ("wnli", [""], "LB-822", 1),
        ("cola", ["source\tlabel\toriginal\tsentence"], "LB-825", 1),
        ("cola", ["gj04\t1\t\tA sentence.", "gj04\t1\tA sentence."], "LB-823", 2),
        ("stsb", ["index\tsentence1\tsentence2\tscore", "0\tA.\tB.\t5.1"], "LB-825", 2),
        ("stsb", ["index\tsentence1\tsentence2\tscore", "0\tA.\tB.\tnan"], "LB-825", 2),
        ("stsb", ["index\tsentence1\tsentence2\tscore", "0\tA.\tB.\tmuch"], "LB-825", 2),
    ],
)
def test_what_is_malformed_is_named_with_its_line(
    tmp_path: Path, task: str, lines: list[str], code: str, line: int
) -> None:
    _write(tmp_path, "train.tsv", *lines)
    error = _error(tmp_path, task)
    assert error.code == code
    assert f"train.tsv, line {line}:" in error.what


def test_a_folder_without_the_task_says_what_it_has_and_what_is_wanted(tmp_path: Path) -> None:
    _write(tmp_path, "RTE/train.tsv", "")
    error = _error(tmp_path, "mrpc", "dev")
    assert (error.code, error.received) == ("LB-820", "RTE")
    assert "MRPC/dev.tsv" in error.expected
    assert _error(tmp_path / "none", "mrpc").received == "no such folder"
    assert _error(tmp_path / "RTE/train.tsv", "rte").received == "a file, not a folder"


def test_nothing_is_trained_on_the_diagnostic_set(tmp_path: Path) -> None:
    error = _error(tmp_path, "ax")
    assert error.code == "LB-821"
    assert error.next == "litebert recipes show mnli"


def test_parquet_files_of_the_hub_are_read_with_its_order_of_labels(tmp_path: Path) -> None:
    columns = {
        "premise": ["A man sleeps.", "A dog barks.", "It rains."],
        "hypothesis": ["He is awake.", "It is loud.", "Monday."],
        "label": [2, 0, 1],
        "idx": [4, 5, 6],
    }
    (tmp_path / "mnli").mkdir()
    name = "validation_matched-00000-of-00001.parquet"
    pq.write_table(pa.table(columns), tmp_path / "mnli" / name)
    read = DATASETS["mnli"].read(tmp_path, "dev_matched")
    assert [(e.id, e.label) for e in read] == [("4", 0), ("5", 1), ("6", 2)]
    assert (read[1].first, read[1].second) == ("A dog barks.", "It is loud.")


def test_parquet_parts_follow_each_other_and_test_labels_of_minus_one_are_none(tmp_path: Path) -> None:
    for part in range(2):
        columns = {"sentence": [f"text {part}"], "label": [-1], "idx": [part]}
        pq.write_table(pa.table(columns), tmp_path / f"test-0000{part}-of-00002.parquet")
    read = DATASETS["cola"].read(tmp_path, "test")
    assert read == [TextExample("0", "text 0"), TextExample("1", "text 1")]


def test_a_parquet_file_without_a_column_names_those_it_has(tmp_path: Path) -> None:
    columns = {"sentence": ["one", "two"], "label": [0, 1]}
    pq.write_table(pa.table(columns), tmp_path / "train-00000-of-00001.parquet")
    error = _error(tmp_path, "sst2")
    assert (error.code, error.received) == ("LB-822", "sentence, label")


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ({"sentence1": "A.", "sentence2": "B."}, "LB-822"),
        ({"sentence1": "A.", "sentence2": None, "label": 1}, "LB-824"),
        ({"sentence1": "A.", "sentence2": "B.", "label": 2}, "LB-825"),
        ({"sentence1": "A.", "sentence2": "B.", "label": -1}, "LB-825"),
        ({"sentence1": "A.", "sentence2": "B.", "label": None}, "LB-825"),
    ],
)
def test_rows_of_the_hub_are_checked_one_by_one(tmp_path: Path, row: object, code: str) -> None:
    good = {"sentence1": "A.", "sentence2": "B.", "label": 1, "idx": 9}
    _write(tmp_path, "mrpc/train.jsonl", json.dumps(good), json.dumps(row))
    error = _error(tmp_path, "mrpc")
    assert error.code == code
    assert "train.jsonl, line 2" in error.what


def test_labels_of_the_hub_may_be_words_and_scores_are_numbers(tmp_path: Path) -> None:
    pair = {"sentence1": "A.", "sentence2": "B."}
    _write(tmp_path, "mrpc/train.jsonl", json.dumps({**pair, "label": "Equivalent"}))
    _write(tmp_path, "stsb/train.jsonl", json.dumps({**pair, "label": 3.5}))
    assert DATASETS["mrpc"].read(tmp_path, "train") == [TextExample("0", "A.", "B.", 1)]
    assert DATASETS["stsb"].read(tmp_path, "train") == [TextExample("0", "A.", "B.", 3.5)]
