"""Files through every verb: order, bad rows, formats, and the same command after a kill."""

import csv
import json
import os
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from litebert.api.bulk import Answered, AnswerFile
from litebert.cli import run
from litebert.config import AlbertConfig, HeadConfig
from litebert.errors import LitebertError
from litebert.folder import save_model
from litebert.inference import Model
from litebert.inference.verbs import VERBS
from litebert.nn import AlbertForPretraining, AlbertForTask
from litebert.tasks.own.columns import chosen_columns
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.train import train_tokenizer

TEXTS = [f"a small cat number {number} sat on the mat" for number in range(10)]
HEADS = {
    "base": None,
    "classify": HeadConfig(kind="sequence-classification", labels=("bad", "good")),
    "choose": HeadConfig(kind="multiple-choice"),
    "answer": HeadConfig(kind="question-answering"),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    tokenizer = Tokenizer.from_model(train_tokenizer(TEXTS * 9, vocab_size=38))
    config = AlbertConfig(
        vocab_size=tokenizer.vocab_size,
        embedding_size=16,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
    )
    for name, head in HEADS.items():
        generator = torch.Generator().manual_seed(1)
        network = (
            AlbertForPretraining(config, generator=generator)
            if head is None
            else AlbertForTask(config, head, generator=generator)
        )
        save_model(network, root / name)
        tokenizer.save(root / name)
    return root


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("litebert.api.bulk.CHUNK", 4)
    monkeypatch.chdir(tmp_path)


def _lines(path: str) -> list[dict]:
    return [json.loads(line) for line in Path(path).read_text("utf-8").splitlines()]


def _table(path: str, rows: list[dict[str, str]]) -> str:
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_questions_of_a_table_are_answered_in_order(models: Path) -> None:
    rows = [{"question": "who sat?", "context": text} for text in TEXTS]
    words = ["answer", _table("q.csv", rows), "--model", str(models / "answer")]
    assert run([*words, "--output", "a.jsonl"]) == 0
    model = Model.load(models / "answer")
    found = _lines("a.jsonl")
    assert [each["row"] for each in found] == sorted(each["row"] for each in found)
    for row, each in zip(rows, found, strict=True):
        expected = model.answer(row["question"], row["context"])[0]
        assert each["answer"][0]["text"] == expected.text


def test_one_text_serves_all_questions(models: Path) -> None:
    Path("q.txt").write_text("who sat?\nwhere?\n")
    words = ["answer", "q.txt", "--context", TEXTS[0], "--model", str(models / "answer")]
    assert run([*words, "--output", "a.jsonl"]) == 0
    assert [bool(each["answer"]) for each in _lines("a.jsonl")] == [True, True]


def test_choices_are_columns(models: Path) -> None:
    rows = [{"question": "who?", "A": "a cat", "B": text} for text in TEXTS]
    columns = ["--column", "choice1=A", "--column", "choice2=B"]
    words = ["choose", _table("q.csv", rows), *columns, "--model", str(models / "choose")]
    assert run([*words, "--output", "chosen.csv"]) == 0
    with open("chosen.csv", encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))
    model = Model.load(models / "choose")
    for row, each in zip(rows, found, strict=True):
        expected = model.choose("who?", [row["A"], row["B"]])
        assert (each["text"], int(each["index"])) == (expected.text, expected.index)


def test_pairs_of_a_file_are_compared(models: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rows = [{"a": TEXTS[0], "b": text} for text in TEXTS]
    words = ["--column", "first=a", "--column", "second=b", "--model", str(models / "base")]
    assert run(["similar", _table("pairs.csv", rows), *words, "--output", "cosines.csv"]) == 0
    with open("cosines.csv", encoding="utf-8", newline="") as file:
        found = [float(row["cosine"]) for row in csv.DictReader(file)]
    model = Model.load(models / "base")
    assert found == pytest.approx([model.similar(TEXTS[0], text) for text in TEXTS], abs=1e-5)
    assert found[0] == pytest.approx(1) and len(set(found)) > 1
    Path("alone.txt").write_text("Anna walked.\n")
    for first in ("alone.txt", "Anna walked."):
        capfd.readouterr()
        run(["similar", first, *words[-2:]])
        assert "LB-947" in capfd.readouterr().err


def test_pairs_are_ordered_and_single_texts_too(models: Path) -> None:
    rows = [{"first": TEXTS[0], "second": text} for text in TEXTS]
    words = ["--model", str(models / "base"), "--output"]
    assert run(["order", _table("pairs.csv", rows), *words, "pairs.jsonl"]) == 0
    model = Model.load(models / "base")
    for row, each in zip(rows, _lines("pairs.jsonl"), strict=True):
        expected = model.order(row["first"], row["second"]).probability
        assert each["answer"]["probability"] == pytest.approx(expected, abs=1e-6)
    Path("texts.txt").write_text("One cat sat. Two cats sat.\nOne sentence only\n")
    assert run(["order", "texts.txt", *words, "texts.jsonl"]) == 0
    joined, alone = _lines("texts.jsonl")
    assert len(joined["answer"]) == 1
    assert "no order in one sentence" in alone["error"]


@pytest.mark.parametrize("columns", [["text=2"], ["2", "header=no"], ["header=no", "text=2"]])
def test_columns_without_names_are_chosen_by_number(models: Path, columns: list[str]) -> None:
    Path("t.csv").write_text("".join(f"{number},{text}\n" for number, text in enumerate(TEXTS)))
    words = [word for column in columns for word in ("--column", column)]
    words += ["--model", str(models / "base"), "--output", "v.npy"]
    assert run(["embed", "t.csv", *words]) == 0
    assert len(np.load("v.npy")) == len(TEXTS)


TYPED = {
    "similar": ("base", ["similar", *TEXTS[:2]]),
    "order": ("base", ["order", *TEXTS[:2]]),
    "pair": ("classify", ["classify", TEXTS[0], "--pair", TEXTS[1]]),
    "answer": ("answer", ["answer", "who sat?", "--context", TEXTS[0]]),
    "choose": ("choose", ["choose", "who sat?", *TEXTS[:2], "--context", TEXTS[2]]),
}


@pytest.mark.parametrize("name", TYPED)
def test_the_answer_to_typed_texts_goes_to_the_output(
    models: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    kind, typed = TYPED[name]
    words = [*typed, "--model", str(models / kind)]
    assert run([*words, "--json"]) == 0
    (expected,) = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert run([*words, "--output", "found.jsonl"]) == 0
    assert capfd.readouterr().out == ""
    (found,) = _lines("found.jsonl")
    alone = expected[0] if name == "pair" else expected
    assert found == {"row": 1, "answer": alone}


def test_vectors_become_an_array_and_a_bad_row_is_not_a_number(models: Path) -> None:
    rows = [json.dumps({"text": text}) for text in TEXTS]
    rows[3] = '{"text": null}'
    Path("t.jsonl").write_text("\n".join(rows) + "\n")
    words = ["embed", "t.jsonl", "--model", str(models / "base"), "--output", "v.npy"]
    assert run(words) == 0
    found = np.load("v.npy")
    expected = Model.load(models / "base").embed(TEXTS)
    assert np.isnan(found[3]).all()
    good = [row for row in range(len(TEXTS)) if row != 3]
    np.testing.assert_allclose(found[good], expected[good], atol=1e-5)
    assert sorted(path.name for path in Path().glob("v.npy*")) == ["v.npy"]


@pytest.mark.parametrize("output", ["v.npy", "v.csv", "v.jsonl"])
def test_the_same_command_resumes_after_a_kill(models: Path, output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("t.txt").write_text("\n".join(TEXTS) + "\n")
    words = ["embed", "t.txt", "--model", str(models / "base"), "--output"]
    assert run([*words, f"whole-{output}"]) == 0
    calls: list[int] = []
    write = AnswerFile.write

    def killed(self: AnswerFile, chunk: list[Answered]) -> None:
        calls.append(len(chunk))
        if len(calls) == 2:
            raise KeyboardInterrupt
        write(self, chunk)

    with monkeypatch.context() as patch:
        patch.setattr(AnswerFile, "write", killed)
        assert run([*words, output]) == 130
    assert not Path(output).exists()
    with open(f"{output}.unfinished", "ab") as file:
        file.write(b"\x01\x02\x03")  # half a row
    calls.clear()
    assert run([*words, output]) == 0
    assert Path(output).read_bytes() == Path(f"whole-{output}").read_bytes()
    assert run([*words, output]) == 1  # it is finished


def test_rows_are_resumed_by_the_same_command_on_the_same_rows(
    models: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("t.txt").write_text("\n".join(TEXTS) + "\n")
    words = ["embed", "t.txt", "--model", str(models / "base"), "--output", "v.npy"]
    with monkeypatch.context() as patch:
        patch.setattr(AnswerFile, "finish", Mock(side_effect=KeyboardInterrupt))
        assert run(words) == 130
    Path("t.txt").write_text("\n".join(["another text", *TEXTS[1:]]) + "\n")
    assert run(words) == 1
    assert "LB-942" in capfd.readouterr().err
    Path("t.txt").write_text("\n".join(TEXTS) + "\n")
    assert run([*words, "--pooling", "cls"]) == 1
    assert "LB-942" in capfd.readouterr().err
    assert run([*words, "--quiet"]) == 0


def test_a_corrected_command_takes_over_an_output_without_rows(models: Path) -> None:
    table = _table("t.csv", [{"body": text} for text in TEXTS])
    words = ["embed", table, "--model", str(models / "base"), "--output", "v.npy"]
    assert run(words) == 1
    assert run([*words, "--column", "body"]) == 0
    assert len(np.load("v.npy")) == len(TEXTS)


REFUSED = {
    "a file that is not there": (["embed", "mising.csv"], "LB-943"),
    "one of two files that is not there": (["embed", "t.txt", "mising.txt"], "LB-943"),
    "a file beside a text": (["embed", "t.txt", "a small cat"], "LB-948"),
    "a role that is none": (["embed", "t.csv", "--column", "txt=first"], "LB-915"),
    "no role": (["embed", "t.csv", "--column", "=first"], "LB-915"),
    "a second column that is not there": (["similar", "t.csv", "--column", "second=other"], "LB-944"),
    "no choices": (["choose", "t.csv", "--column", "question=first"], "LB-912"),
    "texts without a second": (["similar", "t.txt"], "LB-947"),
    "a table without a second column": (["similar", "t.csv"], "LB-944"),
    "a pair beside a file": (["classify", "t.txt", "--pair", "a"], "LB-946"),
    "an output of another format": (["embed", "t.txt", "--output", "v.parquet"], "LB-914"),
    "a compressed output": (["embed", "t.txt", "--output", "v.jsonl.gz"], "LB-914"),
    "the input as output": (["embed", "t.txt", "--output", "./t.txt", "--force"], "LB-949"),
    "a verb that the model lacks": (["classify", "t.txt"], "LB-615"),
    "a depth that the model lacks": (["embed", "t.txt", "--depth", "9"], "LB-452"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_mistake_in_the_command_ends_it_before_any_row(
    models: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("t.txt").write_text("\n".join(TEXTS) + "\n")
    _table("t.csv", [{"first": text} for text in TEXTS])
    words, code = REFUSED[name]
    assert run([*words, "--model", str(models / "base")]) == 1
    found = capfd.readouterr()
    assert code in found.err and "skipped" not in found.err
    assert found.out == ""
    assert sorted(path.name for path in Path().iterdir() if path.is_file()) == ["t.csv", "t.txt"]


@pytest.mark.parametrize("role", ["second", "pair"])
def test_the_second_text_of_a_pair_has_one_name_in_every_verb(
    models: Path, role: str, capfd: pytest.CaptureFixture[str]
) -> None:
    table = _table("pairs.csv", [{"text": text, "b": TEXTS[0]} for text in TEXTS])
    model = ["--model", str(models / "classify")]
    pairs = [word for _ in TEXTS for word in ("--pair", TEXTS[0])]
    assert run(["classify", *TEXTS, *pairs, *model]) == 0
    expected = capfd.readouterr().out
    assert run(["classify", table, "--column", f"{role}=b", *model]) == 0
    assert capfd.readouterr().out == expected
    named = _table("named.csv", [{"text": text, role: TEXTS[0]} for text in TEXTS])
    assert run(["classify", named, *model]) == 0
    assert capfd.readouterr().out == expected
    assert chosen_columns([f"{role}=b"], ["a", "b"]).one("second") == "b"


def test_only_vectors_are_an_array(models: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Path("t.txt").write_text("a cat\n")
    words = ["score", "t.txt", "--model", str(models / "base"), "--output", "s.npy"]
    assert run(words) == 1
    assert "LB-911" in capfd.readouterr().err


def test_progress_knows_how_many_rows_there_are() -> None:
    from litebert.api.bulk import count_rows

    Path("t.txt").write_text("a\nb\n")
    _table("t.csv", [{"text": "a"}, {"text": "b"}])
    assert count_rows(["t.txt", "t.csv"]) == 4
    assert count_rows(["-"]) is None


@pytest.mark.parametrize("output", [".", "models"])
def test_answers_do_not_go_to_a_folder(models: Path, output: str, capfd: pytest.CaptureFixture[str]) -> None:
    Path("models").mkdir()
    Path("t.txt").write_text("a [MASK]\n")
    assert run(["fill", "t.txt", "--model", str(models / "base"), "--output", output]) == 1
    assert "LB-913" in capfd.readouterr().err


@pytest.mark.parametrize("suffix", ["", ".csv", ".npy"])
def test_a_pipe_or_device_is_not_replaced_by_answers(models: Path, tmp_path: Path, suffix: str) -> None:
    output = tmp_path / f"pipe{suffix}"
    os.mkfifo(output)
    with pytest.raises(LitebertError, match="LB-008"):
        AnswerFile(output, VERBS["embed"], Model.load(models / "base"), {}, force=True)
    assert [path.name for path in tmp_path.iterdir()] == [output.name]
