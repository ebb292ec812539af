"""Answers to GLUE leave as the leaderboard takes them, and are measured as the paper does."""

import io
import zipfile

import pytest

from litebert.errors import LitebertError
from litebert.tasks.kinds.text import Scores, TextExample
from litebert.tasks.named.glue import DATASETS, SUBMISSION_FILES, glue_zip

EXAMPLES = [TextExample("0", "a"), TextExample("1", "b")]


def _submission(task: str, split: str, *answers: tuple[float, ...]) -> dict[str, str]:
    write = DATASETS[task].submission
    assert write is not None
    return dict(write(split, EXAMPLES, [Scores(values) for values in answers]))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("task", "file", "predictions"),
    [
        ("cola", "CoLA.tsv", ("0", "1")),
        ("sst2", "SST-2.tsv", ("0", "1")),
        ("mrpc", "MRPC.tsv", ("0", "1")),
        ("qqp", "QQP.tsv", ("0", "1")),
        ("qnli", "QNLI.tsv", ("entailment", "not_entailment")),
        ("rte", "RTE.tsv", ("entailment", "not_entailment")),
        ("wnli", "WNLI.tsv", ("0", "1")),
    ],
)
def test_labels_are_written_as_the_leaderboard_spells_them(task: str, file: str, predictions: tuple[str, str]) -> None:
    written = _submission(task, "test", (0.9, 0.1), (0.2, 0.8))
    assert written == {file: "index\tprediction\n0\t{}\n1\t{}\n".format(*predictions)}


@pytest.mark.parametrize(
    ("task", "split", "file"),
    [("mnli", "test_matched", "MNLI-m.tsv"), ("mnli", "test_mismatched", "MNLI-mm.tsv"), ("ax", "test", "AX.tsv")],
)
def test_the_tasks_of_mnli_write_words_into_files_of_their_own(task: str, split: str, file: str) -> None:
    written = _submission(task, split, (0.7, 0.2, 0.1), (0.1, 0.2, 0.7))
    assert written == {file: "index\tprediction\n0\tcontradiction\n1\tneutral\n"}


def test_scores_are_cut_to_the_scale_and_have_three_decimals() -> None:
    assert _submission("stsb", "test", (5.2,), (-0.01,)) == {"STS-B.tsv": "index\tprediction\n0\t5.000\n1\t0.000\n"}
    assert "\t2.718\n" in _submission("stsb", "test", (2.71828,), (1.0,))["STS-B.tsv"]


def test_the_archive_holds_the_eleven_files_and_the_same_answers_give_the_same_bytes() -> None:
    files = {name: f"{name}\n" for name in SUBMISSION_FILES}
    packed = glue_zip(files)
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        assert archive.testzip() is None
        assert {name: archive.read(name).decode() for name in archive.namelist()} == files
    assert len(files) == 11
    assert glue_zip(dict(reversed(files.items()))) == packed


def test_an_incomplete_archive_names_what_is_missing() -> None:
    files = {name: "" for name in SUBMISSION_FILES if name not in ("AX.tsv", "MNLI-mm.tsv")}
    with pytest.raises(LitebertError) as caught:
        glue_zip(files)
    assert caught.value.code == "LB-826"
    assert caught.value.received == "no MNLI-mm.tsv, AX.tsv"


def test_each_task_is_chosen_by_the_measure_of_the_official_code() -> None:
    for task, dataset in DATASETS.items():
        labels = [0.0, 1.0] if task == "stsb" else [0, 1]
        asked = [TextExample(str(n), "a", label=label) for n, label in enumerate(labels)]
        right = [(0.5,), (0.7,)] if task == "stsb" else [(0.9, 0.1, 0.0), (0.1, 0.9, 0.0)]
        size = len(dataset.family.head.labels)
        measured = dataset.family.measures(asked, [Scores(values[:size]) for values in right])
        assert measured[dataset.key_measure] == pytest.approx(1.0), task
    assert DATASETS["cola"].key_measure == "matthews"
    assert DATASETS["stsb"].key_measure == "pearson"


def test_mrpc_and_qqp_report_f1_and_stsb_spearman_as_well() -> None:
    two = [TextExample("0", "a", label=0), TextExample("1", "b", label=1)]
    answers = [Scores((0.9, 0.1)), Scores((0.6, 0.4))]
    for task in ("mrpc", "qqp"):
        assert DATASETS[task].family.measures(two, answers)["f1"] == 0.0
    scored = [TextExample("0", "a", label=1.0), TextExample("1", "b", label=3.0)]
    measured = DATASETS["stsb"].family.measures(scored, [Scores((2.0,)), Scores((9.0,))])
    assert measured["spearman"] == pytest.approx(1.0)
