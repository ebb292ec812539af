"""The kinds of labels of docs/extending/labels.md: a scale, and preferences."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import transformers

import litebert
from litebert.errors import LitebertError
from litebert.folder.card import model_card
from litebert.interop.export.source import open_source
from litebert.interop.export.web import export_web
from tests.extending.commands import QUICK, forget, refused, shell

NAMES = ("bad", "fair", "good")
STARS = "text,stars\n" + "".join(
    f"the cat ran after {number} dogs,{NAMES[number % 3]}\n" for number in range(30)
)
ORDER = 'data.labels=["bad","fair","good"]'


# ---- labels on a scale ---------------------------------------------------------------


@pytest.fixture
def stars(page: Callable[[str], Path], small_model: Path) -> Path:
    """Train on labels on a scale; return the plug-in, which is loaded."""
    plugin = page("labels")
    Path("stars.csv").write_text(STARS, "utf-8")
    finetune = ("finetune", "stars.csv", "--problem", "ordinal", ORDER, *QUICK)
    assert shell(*finetune, "--model", small_model, "--plugin", plugin) == 0
    [note] = litebert.Run("runs/stars").notes
    assert f"--model runs/stars/model --plugin {plugin}" in note
    return plugin


def assert_is_explained(model: litebert.Model, *texts: str) -> None:
    """Check that an explanation adds up to the logarithm of the label's chance."""
    classified = model.classify(*texts)
    explained = model.explain("classify", *texts)
    chance = classified.values[explained.answer]
    assert explained.score == pytest.approx(np.log(chance), abs=1e-4)


@pytest.mark.usefixtures("stars")
def test_labels_on_a_scale_are_recorded_in_their_order() -> None:
    assert "ordinal" in Path("runs/stars/run.json").read_text()
    config = json.loads(Path("runs/stars/model/config.json").read_text())
    assert config["litebert_plugins"] == ["ordinal"]
    assert list(config["label2id"]) == list(NAMES)


@pytest.mark.usefixtures("stars")
def test_labels_on_a_scale_have_a_measure_of_their_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "distance" in litebert.Run("runs/stars").result["last"]
    capsys.readouterr()
    assert shell("evaluate", "runs/stars") == 0
    assert "distance" in capsys.readouterr().out


@pytest.mark.usefixtures("stars")
def test_labels_on_a_scale_have_probabilities_that_are_explained() -> None:
    model = litebert.load("runs/stars")
    classified = model.classify("the cat ran")
    assert sum(classified.values.values()) == pytest.approx(1.0, abs=1e-5)
    assert_is_explained(model, "the cat ran")


@pytest.mark.usefixtures("stars")
def test_the_card_says_what_other_programs_can_do_with_labels_on_a_scale() -> None:
    card = model_card(Path("runs/stars/model"))
    assert "classifies texts" in card
    assert "a softmax of them means nothing" in card
    assert "opens only the encoder" in card


@pytest.mark.usefixtures("stars")
def test_transformers_does_not_answer_labels_on_a_scale() -> None:
    model = Path("runs/stars/model")
    with pytest.raises(ValueError, match="albert-litebert"):
        transformers.AutoModelForSequenceClassification.from_pretrained(model)


@pytest.mark.usefixtures("stars")
def test_of_a_model_of_labels_on_a_scale_only_the_encoder_is_exported() -> None:
    model = Path("runs/stars/model")
    reason = "a softmax of them means nothing"
    with pytest.raises(LitebertError, match=reason):
        open_source(model)
    with pytest.raises(LitebertError, match=reason):
        export_web(model, Path("page"))
    open_source(model, has_head=False)


def test_a_model_of_labels_on_a_scale_names_its_plug_in(
    stars: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forget(stars)
    for words in (
        ("classify", "a cat", "--model", "runs/stars"),
        ("evaluate", "runs/stars"),
        ("report", "runs/stars"),
        ("serve", "runs/stars", "--port", "0"),
    ):
        assert "needs the plug-in ordinal" in refused(capsys, *words)


@pytest.fixture
def tables(page: Callable[[str], Path], small_model: Path) -> tuple[object, ...]:
    """Write tables of labels by name and by number; return the options of a training
    with the plug-in.
    """
    plugin = page("labels")
    Path("stars.csv").write_text(STARS, "utf-8")
    numbered = STARS.replace("bad", "1").replace("fair", "2").replace("good", "10")
    Path("numbers.csv").write_text(numbered, "utf-8")
    return ("--model", small_model, "--plugin", plugin, *QUICK)


def test_labels_that_the_order_lacks_are_named(
    tables: tuple[object, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--problem", "classification", 'data.labels=["bad","good"]')
    error = refused(capsys, "finetune", "stars.csv", *tables, *words)
    assert "labels that data.labels does not list" in error


def test_an_unknown_problem_may_be_one_of_a_plug_in(
    page: Callable[[str], Path], small_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page("labels")
    Path("stars.csv").write_text(STARS, "utf-8")
    finetune = ("finetune", "stars.csv", "--model", small_model, *QUICK)
    error = refused(capsys, *finetune, "--problem", "ordinals")
    assert "--plugin FILE" in error


def test_labels_with_names_need_their_order(
    tables: tuple[object, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Sorted by name, they would be in no order."""
    error = refused(capsys, "finetune", "stars.csv", *tables, "--problem", "ordinal")
    assert "ordinal needs the order of the labels" in error
    assert """data.labels='["bad", "fair", "good"]'""" in error


def test_labels_that_are_numbers_are_in_their_order(tables: tuple[object, ...]) -> None:
    assert shell("finetune", "numbers.csv", *tables, "--problem", "ordinal") == 0
    config = json.loads(Path("runs/numbers/model/config.json").read_text())
    assert list(config["label2id"]) == ["1", "2", "10"]


# ---- preferences ---------------------------------------------------------------------


@pytest.fixture
def pairs(page: Callable[..., Path], small_model: Path) -> litebert.Model:
    """Train on preferences between two texts."""
    plugin = page("labels", "preference")
    lines = ["text,second,label"]
    for number in range(30):
        lines.append(f"the cat sat {number},a dog ran {number},first")
        lines.append(f"a dog ran {number},the cat sat {number},second")
    Path("pairs.csv").write_text("\n".join(lines), "utf-8")
    finetune = ("finetune", "pairs.csv", "--problem", "preference", *QUICK)
    assert shell(*finetune, "--model", small_model, "--plugin", plugin) == 0
    return litebert.load("runs/pairs")


def test_a_preference_does_not_depend_on_the_order_of_the_texts(
    pairs: litebert.Model,
) -> None:
    classified = pairs.classify("the cat sat", "a dog ran")
    turned = pairs.classify("a dog ran", "the cat sat")
    chance = classified.values["first"]
    assert chance == pytest.approx(turned.values["second"], abs=1e-5)
    assert sum(classified.values.values()) == pytest.approx(1.0, abs=1e-5)


def test_a_preference_is_explained(pairs: litebert.Model) -> None:
    assert_is_explained(pairs, "the cat sat", "a dog ran")


@pytest.mark.usefixtures("pairs")
def test_a_preference_is_between_two_texts(capsys: pytest.CaptureFixture[str]) -> None:
    assert "two texts" in refused(capsys, "classify", "a cat", "--model", "runs/pairs")


@pytest.mark.usefixtures("pairs")
def test_a_model_of_preferences_cannot_be_exported() -> None:
    with pytest.raises(LitebertError, match="compares two scores"):
        open_source(Path("runs/pairs/model"))
