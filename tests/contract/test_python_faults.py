"""Python at its edges: trainings that diverge, what functions take, other processes and devices."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import litebert
from litebert import LitebertError, Run

from .tiny import FINETUNING, PRETRAINING, Desk, rows

# ---- trainings that diverge ------------------------------------------------------------------------------------------


def test_a_loss_that_grows_without_end_is_said_and_a_checkpoint_from_before_stays(
    desk: Desk, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = desk.pretrain(
        tmp_path,
        **{"optim.name": "adamw", "optim.learning_rate": 10, "optim.warmup_steps": 4},
        **{"train.steps": 24, "train.save_every": 2, "train.eval_every": 24},
    )
    losses = {row["step"]: row["masked_lm_loss"] for row in rows(run) if row["kind"] == "train"}
    assert losses[24] > 10 * losses[1]
    said = capfd.readouterr().err
    assert "diverges" in said
    assert "learning_rate" in said
    kept = [int(path.name.removeprefix("step-")) for path in (run.folder / "checkpoints").iterdir()]
    assert min(losses[step] for step in kept) < 2 * losses[1], (kept, losses)


def test_words_that_are_explained_are_those_of_the_text_also_behind_a_prompt(tmp_path: Path) -> None:
    plain = litebert.load()
    prompted = shutil.copytree(plain.source, tmp_path / "prompted")
    settings = json.loads((prompted / "config_sentence_transformers.json").read_text("utf-8"))
    settings |= {"prompts": {"query": "find this: "}, "default_prompt_name": "query"}
    (prompted / "config_sentence_transformers.json").write_text(json.dumps(settings))
    texts = {"first": "Anna left.", "second": "Bert came."}
    model = litebert.load(prompted)
    assert not np.allclose(model.embed("Anna left."), plain.embed("Anna left."), atol=1e-3)
    found = model.explain("similar", *texts.values())
    assert [word.word for word in found.words if word.part == "prompt" and word.word.strip()] == ["find", "this:"] * 2
    words = [(word.part, word.word) for word in found.words if word.part in texts]
    assert words == [("first", "Anna"), ("first", "left."), ("second", "Bert"), ("second", "came.")]
    assert all(texts[word.part][word.start : word.end] == word.word for word in found.words if word.part in texts)
    assert found.score == pytest.approx(model.similar(*texts.values()), abs=1e-4)


# ---- what functions take, and what they refuse ----------------------------------------------------------------------


def test_runs_and_whole_numbers_of_any_type_are_taken(desk: Desk, tmp_path: Path) -> None:
    base, reviews, table = Run.open(desk.base), Run.open(desk.reviews), desk.table("reviews.csv")
    assert litebert.load(reviews).verbs
    assert litebert.evaluate([reviews, desk.reviews], data=table, quiet=True).measures
    assert litebert.predict(reviews, data=table, quiet=True).rows
    given = {"runs": tmp_path, "quiet": True}
    seeds, settings = list(np.arange(1, 3)), {**FINETUNING, "train.steps": 2}
    assert litebert.finetune(str(table), model=base, seeds=seeds, settings=settings, **given).is_finished
    shape = {name: value for name, value in PRETRAINING.items() if not name.startswith("model.")}
    assert litebert.pretrain(corpus=desk.corpus, start=base, settings=shape, **given).is_finished
    small = {**shape, "train.steps": 2, "distil.texts": 4, "distil.text_length": 16}
    assert litebert.distil(base, corpus=desk.corpus, settings=small, **given).is_finished
    assert len(litebert.load(base).fill("Anna [MASK].", top=np.int64(2))) == 2
    assert litebert.load(base).embed("Anna left.", max_length=np.int32(4)).shape == (32,)


def test_a_row_without_a_word_has_no_answer(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('text,label\nAnna,good\n"   ",bad\n"",good\n')
    ((first, *others),) = litebert.predict(desk.reviews, data=tmp_path / "t.csv", quiet=True).rows.values()
    assert first.answer
    assert not any(row.answer for row in others)


WRONG: dict[str, Callable[[], object]] = {
    "a model that is a number": lambda: litebert.load(5),
    "a preset that is a number": lambda: litebert.preset(5),
    "a tokenizer that is a number": lambda: litebert.Tokenizer.load(5),
    "no texts": lambda: litebert.pretrain(None),
    "texts that are numbers": lambda: litebert.pretrain([5]),
    "settings in one string": lambda: litebert.pretrain("t.txt", settings="train.steps=5"),
    "a name that is a number": lambda: litebert.pretrain("t.txt", name=5),
    "a share above 1": lambda: litebert.pretrain("t.txt", held_out=2),
    "two lengths": lambda: litebert.pretrain("t.txt", minutes=1, settings={"train.steps": 5}),
    "no task": lambda: litebert.finetune(None),
    "seeds that are words": lambda: litebert.finetune("t.csv", seeds=["a"]),
    "seeds in one string": lambda: litebert.finetune("t.csv", seeds="1,2"),
    "columns that are a number": lambda: litebert.finetune("t.csv", columns=5),
    "no model to evaluate": lambda: litebert.evaluate([]),
    "data that are a number": lambda: litebert.evaluate("m", data=5),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_type_is_refused_before_any_work(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.txt").write_text("A cat sat.\n\nA dog ran.\n")
    Path("t.csv").write_text("text,label\na cat,x\na dog,y\n")
    with pytest.raises(litebert.LitebertError):
        WRONG[name]()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.csv", "t.txt"]
    assert litebert.Run("runs/x").folder == Path("runs/x")


def test_public_names_are_listed_before_they_are_imported() -> None:
    assert set(litebert.__all__) <= set(dir(litebert))
    assert all(getattr(litebert, name) for name in litebert.__all__)
    assert litebert.preset("base-v2").hidden_size == 768
    with pytest.raises(AttributeError):
        _ = litebert.nothing


def test_an_error_has_its_parts_and_advice_names_the_function_that_was_called() -> None:
    with pytest.raises(LitebertError) as caught:
        litebert.preset("bsae-v2")
    error = caught.value
    assert error.code.startswith("LB-")
    assert all(part in str(error) for part in ("bsae-v2", "base-v2", error.code, error.what, error.next))
    for function in (litebert.evaluate, litebert.predict, litebert.finetune):
        with pytest.raises(LitebertError) as caught:
            function(5)
        assert function.__name__ in caught.value.next
        assert "pretrain" not in caught.value.next


# ---- other processes and devices ------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_every_training_runs_on_a_gpu(desk: Desk, tmp_path: Path) -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    given = {"runs": tmp_path, "settings": {**PRETRAINING, "train.device": "cuda"}, "quiet": True}
    assert desk.finetune(tmp_path, given={**FINETUNING, "train.device": "cuda"}).is_finished
    assert litebert.distil(desk.base, corpus=desk.corpus, **given).is_finished
    assert litebert.pretrain(corpus=desk.corpus, **given).is_finished
