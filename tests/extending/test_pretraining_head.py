"""The pretraining head of docs/extending/pretraining-head.md, which reads the tokens
beside a masked span.
"""

import json
import shlex
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path

import pytest
import torch

import litebert
from litebert.config import AlbertConfig
from litebert.errors import LitebertError
from litebert.folder.card import model_card
from litebert.interop.export.source import open_source
from litebert.nn import AlbertForPretraining, Batch
from litebert.plugins import load_plugin
from litebert.runs import RunFolder
from tests.extending.commands import (
    QUICK,
    SMALL,
    assert_resumes_to_equal_bits,
    forget,
    refused,
    shell,
    write_plugin,
)
from tests.extending.test_labels import STARS
from tests.networks import SHAPE

# ---- what it computes ----------------------------------------------------------------


@pytest.fixture
def plugin(page: Callable[[str], Path]) -> Path:
    """Load the plug-in of the page, and return its file."""
    path = page("pretraining-head")
    load_plugin(str(path))
    return path


@pytest.mark.usefixtures("plugin")
def test_a_span_lies_between_the_tokens_that_are_not_masked() -> None:
    first, last = sys.modules["span_boundary"].spans(torch.tensor([2, 3, 4, 7, 9, 10]))
    assert first.tolist() == [2, 2, 2, 7, 9, 9]
    assert last.tolist() == [4, 4, 4, 7, 10, 10]


@pytest.mark.usefixtures("plugin")
def test_the_head_reads_the_token_after_a_span() -> None:
    config = AlbertConfig(**SHAPE, vocab_size=60)
    network = AlbertForPretraining(config, heads=("masked_lm", "span_boundary"))
    network.eval()
    masked = torch.tensor([2, 3])
    output = network(Batch.from_lists([[2, 7, 8, 9, 11, 3]]), masked)
    assert output.masked_lm.shape == (2, 60)
    assert output["span_boundary"].shape == (2, 60)

    changed = network(Batch.from_lists([[2, 7, 8, 9, 12, 3]]), masked)
    assert not torch.equal(output["span_boundary"], changed["span_boundary"])


# ---- a run with the head -------------------------------------------------------------

WITH_HEAD = "objective.heads.span_boundary=0.5"
HEADS = {"masked_lm": 1.0, "sentence_order": 1.0, "span_boundary": 0.5}


def test_a_run_resumes_to_equal_bits(plugin: Path, corpus: Path) -> None:
    pretrain = ("pretrain", "--corpus", corpus, *SMALL, *QUICK, "train.save_every=1")
    assert_resumes_to_equal_bits(*pretrain, WITH_HEAD, "--plugin", plugin)


@pytest.fixture(scope="module")
def folder_of_runs(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train without the head, as `plain`, and with it, as `spans`; return the folder of
    the plug-in and of both runs.
    """
    folder = tmp_path_factory.mktemp("heads")
    file = write_plugin(folder, "pretraining-head")
    pretrain = ("pretrain", "--corpus", corpus, *SMALL, *QUICK)
    with chdir(folder):
        assert shell(*pretrain, "--name", "plain") == 0
        assert shell(*pretrain, WITH_HEAD, "--plugin", file, "--name", "spans") == 0
    forget(file)
    return folder


@pytest.fixture
def trained(
    folder_of_runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """Copy both runs into the working directory; return the plug-in, which is loaded."""
    shutil.copytree(folder_of_runs / "runs", tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    file = folder_of_runs / "span_boundary.py"
    load_plugin(str(file))
    yield file
    forget(file)


@pytest.mark.usefixtures("trained")
def test_its_weight_and_its_loss_are_recorded_and_reported() -> None:
    run = litebert.Run("runs/spans")
    assert run.settings["objective.heads"] == HEADS
    assert run.evaluations[-1].values["span_boundary_loss"] > 0
    assert "Span-boundary loss" in run.report.read_text("utf-8")


@pytest.mark.usefixtures("trained")
def test_an_evaluation_measures_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert shell("evaluate", "runs/spans") == 0
    assert "span_boundary_loss" in capsys.readouterr().out


@pytest.mark.usefixtures("trained")
def test_the_command_of_the_card_trains_it_again() -> None:
    lines = model_card(Path("runs/spans/model")).splitlines()
    [command] = [line for line in lines if "litebert pretrain" in line]
    words = shlex.split(command)
    [setting] = [word for word in words if "objective.heads=" in word]
    assert tomllib.loads(setting)["objective"]["heads"] == HEADS


@pytest.mark.usefixtures("trained")
def test_each_model_has_its_own_heads_and_the_same_verbs() -> None:
    config = json.loads(Path("runs/spans/model/config.json").read_text())
    assert config["pretraining_heads"][-1] == "span_boundary"
    spans = litebert.load("runs/spans")
    plain = litebert.load("runs/plain")
    assert spans.network.heads[-1] == "span_boundary"
    assert "span_boundary" not in plain.network.heads
    verbs = ("fill", "score", "order", "embed")
    assert spans.verbs == verbs
    assert plain.verbs == verbs


@pytest.mark.usefixtures("trained")
def test_its_encoder_alone_can_be_exported() -> None:
    model = Path("runs/spans/model")
    with pytest.raises(LitebertError, match="span_boundary"):
        open_source(model)
    open_source(model, has_head=False)


# ---- a run that goes on from its model -----------------------------------------------


def continuation(corpus: Path) -> tuple[object, ...]:
    """Return the words of a training that starts from the model with the head."""
    start = ("pretrain", "--corpus", corpus, "--from", "runs/spans", *QUICK)
    return (*start, "objective.max_seq_length=64", "train.loader_workers=0")


@pytest.mark.usefixtures("trained")
def test_a_continuation_says_that_it_drops_the_head(
    corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shell(*continuation(corpus), "--name", "dropping") == 0
    assert "objective.heads.span_boundary=1 keeps it" in capsys.readouterr().err


@pytest.mark.usefixtures("trained")
def test_a_continuation_keeps_the_head_if_it_is_asked_to(
    corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keeping = (*continuation(corpus), WITH_HEAD, "--name", "keeping")
    assert shell(*keeping, "--dry-run") == 0
    assert "span_boundary x 0.5" in capsys.readouterr().out
    assert shell(*keeping) == 0
    assert "keeps it" not in capsys.readouterr().err


# ---- without the plug-in -------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [("fill", "Anna [MASK].", "--model", "runs/spans"), ("report", "runs/spans")],
    ids=["fill", "report"],
)
def test_a_model_with_the_head_needs_the_plug_in(
    words: tuple[str, ...], trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forget(trained)
    assert "needs the plug-in span_boundary" in refused(capsys, *words)


def test_a_model_without_the_head_needs_no_plug_in(trained: Path) -> None:
    forget(trained)
    assert "fill" in litebert.load("runs/plain").verbs


def test_a_model_that_is_fine_tuned_from_it_needs_no_plug_in(trained: Path) -> None:
    Path("stars.csv").write_text(STARS, "utf-8")
    assert shell("finetune", "stars.csv", "--model", "runs/spans", *QUICK) == 0
    forget(trained)
    assert RunFolder(Path("runs/stars")).file.plugins == {}
    assert shell("evaluate", "runs/stars") == 0


# ---- without sentence order ----------------------------------------------------------


def test_a_run_without_sentence_order_has_no_such_head(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pretrain = ("pretrain", "--corpus", corpus, *SMALL, *QUICK, "--name", "a")
    assert shell(*pretrain, "objective.heads.sentence_order=0") == 0
    assert litebert.load("runs/a").verbs == ("fill", "score", "embed")
    last = RunFolder(Path("runs/a")).evaluations[-1]
    assert "sentence_order_loss" not in last.values
    assert "sop" not in model_card(Path("runs/a/model"))
