"""What a vocabulary cannot read is said before training, with what helps."""

from pathlib import Path
from typing import Any

import pytest

import litebert
from litebert.api.corpus import tokenizer_train
from litebert.api.training import data_check
from tests.tables import Write

TEXTS = {
    "Chinese": ("这家餐厅的菜很好吃，我下次还会再来。", "unknown piece"),
    "Hindi": ("यह फ़िल्म बहुत अच्छी है और मुझे पसंद आई।", "dropped mark"),
    "Vietnamese": ("Bộ phim này rất hay và tôi rất thích nó.", "dropped mark"),
    "Japanese": (
        "この映画はとてもすばらしい、だから、ぜひ見てください。",
        "dropped mark",
    ),
    "German": ("Das Gerät lässt sich nicht öffnen, schöne Grüße!", "dropped mark"),
    "English": (
        "This film is good, and I liked it more than the last one that we saw"
        " together in that small cinema behind the café on the other side of town.",
        "",
    ),
}


@pytest.mark.parametrize("language", TEXTS)
def test_data_check_says_what_the_packaged_vocabulary_cannot_read(
    language: str, write: Write
) -> None:
    text, kind = TEXTS[language]
    rows = [f"{text} {n}\t{'ab'[n % 2]}" for n in range(40)]
    report = data_check(write("a.tsv", "text\tlabel\n" + "\n".join(rows)))
    kinds = [finding.kind.partition(" (")[0] for finding in report.findings]
    of_vocabulary = [
        kind for kind in kinds if kind in ("unknown piece", "dropped mark")
    ]
    if not kind:
        assert of_vocabulary == []
    else:
        assert kind in of_vocabulary
        advice = [finding.advice for finding in report.findings if kind in finding.kind]
        assert "--model OWNER/NAME" in advice[0]


def test_finetune_says_so_in_its_plan(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    text, _ = TEXTS["Vietnamese"]
    rows = [f"{text} {n}\t{'ab'[n % 2]}" for n in range(40)]
    path = write("a.tsv", "text\tlabel\n" + "\n".join(rows))
    run = litebert.finetune(path, runs=path.parent / "runs", dry_run=True)
    assert run.plan is not None
    assert "lose a mark" in run.plan.text
    capsys.readouterr()


def test_a_vocabulary_that_drops_marks_says_so(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write("a.txt", (TEXTS["German"][0] + "\n") * 50)
    tokenizer_train(str(path), output=tmp_path / "dropped", vocab_size=36)
    assert "--keep-accents" in capsys.readouterr().err
    tokenizer_train(
        str(path), output=tmp_path / "kept", vocab_size=36, keep_accents=True
    )
    assert "--keep-accents" not in capsys.readouterr().err


@pytest.mark.parametrize(("name", "is_warned"), [("German", True), ("English", False)])
def test_a_run_that_continues_a_model_says_which_marks_are_lost(
    name: str,
    is_warned: bool,
    write: Write,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = write("text.txt", f"{TEXTS[name][0]}\n\n" * 40)
    how = {"start": "litebert", "runs": tmp_path, "settings": {"train.steps": 2}}
    litebert.pretrain(text, **how, dry_run=True)
    assert ("lose a mark" in capsys.readouterr().err) == is_warned
    with pytest.raises(litebert.LitebertError, match="LB-916: keep_accents="):
        litebert.pretrain(text, **how, keep_accents=True)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"vocab_size": 100}, "vocab_size="),
        ({"vocab_size": 8_000}, "vocab_size="),
        ({"keep_accents": True}, "keep_accents="),
    ],
)
def test_a_run_that_continues_a_model_makes_no_vocabulary(
    option: dict[str, Any], message: str, write: Write, tmp_path: Path
) -> None:
    text = write("text.txt", "A short text.\n\n" * 40)
    how = {"start": "litebert", "runs": tmp_path, **option}
    with pytest.raises(litebert.LitebertError, match=f"LB-916: {message}"):
        litebert.pretrain(text, **how)
    with pytest.raises(litebert.LitebertError, match=f"LB-916: {message}"):
        litebert.distil("litebert", text, **how)


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"preset": "mini"}, "omit --preset"),
        ({"settings": ["model.preset=mini"]}, "omit model.preset"),
        ({"settings": ["model.vocab_size=91"]}, "omit model.vocab_size"),
    ],
)
def test_a_size_that_does_not_fit_the_start_is_named_as_it_was_typed(
    options: dict[str, Any], advice: str, write: Write, tmp_path: Path
) -> None:
    text = write("text.txt", "A short text.\n\n" * 40)
    with pytest.raises(litebert.LitebertError) as caught:
        litebert.pretrain(text, start="litebert", runs=tmp_path, **options)
    assert (caught.value.code, caught.value.next) == ("LB-515", advice)


def test_a_run_that_continues_the_packaged_model_says_that_it_is_english(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = write("text.txt", "Das ist ein Satz ohne Umlaute.\n\n" * 40)
    how = {"start": "litebert", "runs": tmp_path, "settings": {"train.steps": 2}}
    litebert.pretrain(text, **how, language="de", dry_run=True)
    assert (
        "the packaged model and its vocabulary are English" in capsys.readouterr().err
    )


def test_many_small_files_are_told_how_each_is_one_document(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [write(f"{n}.txt", "One sentence.\n\nAnother one.\n") for n in range(12)]
    how = {"start": "litebert", "runs": tmp_path, "settings": {"train.steps": 2}}
    litebert.pretrain(files, **how, dry_run=True)
    assert "--documents file" in capsys.readouterr().err
    litebert.pretrain(files, **how, documents="file", dry_run=True)
    assert "--documents file" not in capsys.readouterr().err
