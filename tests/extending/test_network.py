"""What plug-ins add to a network and its training: a kind of attention, an optimizer, a
pretraining head.
"""

import json
import shlex
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file

import litebert
from litebert.config import AlbertConfig
from litebert.errors import LitebertError
from litebert.fast import pack
from litebert.folder import ModelFolder, write_folder
from litebert.folder.card import model_card
from litebert.interop.export.source import open_source
from litebert.nn import Albert, AlbertForPretraining, Batch
from litebert.plugins import load_plugin
from litebert.runs import RunFolder
from tests.conftest import blocks
from tests.extending.commands import (
    QUICK,
    SMALL,
    assert_resumes_to_equal_bits,
    forget,
    refused,
    shell,
    weights_of,
)
from tests.extending.test_labels import STARS
from tests.networks import SHAPE

# ---- a kind of attention -------------------------------------------------------------


@pytest.fixture
def albert(page: Callable[[str], Path]) -> Albert:
    """Return the network of the page, whose tokens attend to every third token."""
    load_plugin(str(page("attention")))
    _, use = blocks(Path("docs/extending/attention.md"))
    names: dict[str, object] = {}
    exec(use, names)
    network = names["albert"]
    assert isinstance(network, Albert)
    return network


def test_the_attention_of_the_page_reads_at_multiples_of_its_own_setting(
    albert: Albert,
) -> None:
    # two texts that differ in their last token, at place 4
    text = Batch.from_lists([[2, 8, 9, 11, 3]])
    changed_text = Batch.from_lists([[2, 8, 9, 11, 17]])
    one_layer = albert.config.model_copy(update={"num_hidden_layers": 1})
    shallow = Albert(one_layer).eval()
    with torch.no_grad():
        states = albert(text)
        assert not torch.equal(states, albert(changed_text))
        # after one layer, the change is seen from 0, 1 and 4, not from 2 and 3
        is_seen = (shallow(text) != shallow(changed_text)).any(-1)
        assert is_seen.tolist() == [True, True, False, False, True]
        pack(albert)
        torch.testing.assert_close(albert(text), states, rtol=0, atol=1e-5)

    albert.train()(text).sum().backward()
    assert albert.attention[0].query.weight.grad.isfinite().all()


def test_its_setting_is_saved_and_other_programs_refuse_it(
    albert: Albert, corpus: Path, tmp_path: Path
) -> None:
    tokenizer = litebert.Tokenizer.load(corpus / "tokenizer")
    size = {"vocab_size": tokenizer.vocab_size}
    network = AlbertForPretraining(albert.config.model_copy(update=size))
    folder = tmp_path / "model"
    folder.mkdir()
    write_folder(ModelFolder(network, tokenizer), folder)

    assert (folder / "model-dilated.safetensors").is_file()
    config = json.loads((folder / "config.json").read_text())
    assert config["dilation"] == 3
    assert config["litebert_plugins"] == ["dilated"]
    model = litebert.load(folder)
    assert model.network.config.attention_arguments == {"dilation": 3}

    # transformers does not know this model_type, and finds no weights by its class
    with pytest.raises(ValueError, match="albert-litebert"):
        transformers.AutoConfig.from_pretrained(folder)
    with pytest.raises(OSError, match=r"model\.safetensors"):
        transformers.AlbertModel.from_pretrained(folder)
    with pytest.raises(LitebertError, match="LB-470"):
        open_source(folder)

    forget(tmp_path / "dilated.py")
    with pytest.raises(LitebertError, match="needs the plug-in dilated"):
        litebert.load(folder)


@pytest.mark.usefixtures("albert")
def test_a_wrong_setting_of_an_attention_is_refused() -> None:
    with pytest.raises(LitebertError, match="no setting of this name"):
        AlbertConfig(attention="dilated", attention_settings={"width": 1})
    with pytest.raises(LitebertError, match="cannot have this value"):
        AlbertConfig(attention="dilated", attention_settings={"dilation": "far"})


# ---- an optimizer --------------------------------------------------------------------


def test_the_optimizer_of_the_page_takes_equal_steps_and_resumes_to_equal_bits(
    page: Callable[[str], Path], corpus: Path
) -> None:
    plugin = page("optimizer")
    load_plugin(str(plugin))
    weight = torch.nn.Parameter(torch.tensor([3.0, -4.0]))
    weight.grad = torch.tensor([0.5, 0.01])
    sys.modules["lion"].Lion([weight], lr=0.1, weight_decay=0.0).step()
    torch.testing.assert_close(weight.detach(), torch.tensor([2.9, -4.1]))

    pretrain = ("pretrain", "--corpus", corpus, *SMALL, *QUICK, "train.save_every=1")
    assert_resumes_to_equal_bits(*pretrain, "optim.name=lion", "--plugin", plugin)


def test_the_optimizer_of_the_page_has_a_setting_of_its_own(
    page: Callable[[str], Path], corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pretrain = ("pretrain", "--corpus", corpus, *SMALL, *QUICK, "train.steps=1")
    pretrain += ("--plugin", page("optimizer"), "optim.warmup_steps=0")
    lion = (*pretrain, "optim.name=lion")
    # every average is smaller than this: without decay, no weight moves
    still = ("optim.weight_decay=0", "optim.settings.floor=1e9")
    assert shell(*lion, *still, "--name", "still") == 0
    assert shell(*lion, "--name", "moves") == 0

    run = RunFolder(Path("runs/still"))
    assert run.settings["optim.settings"] == {"floor": 1e9}
    checkpoint = run.folder / "checkpoints/step-000000001/optimizer.safetensors"
    assert any(tensor.any() for tensor in load_file(checkpoint).values())
    assert weights_of("still") != weights_of("moves")

    error = refused(capsys, *lion, "optim.settings.flor=1")
    assert "the optimizer lion has no setting of this name" in error
    assert "did you mean floor?" in error
    error = refused(capsys, *lion, "optim.settings.floor=low")
    assert "optim.settings.floor of the optimizer lion cannot have this value" in error
    error = refused(capsys, *pretrain, "optim.name=adamw", "optim.settings.floor=1")
    assert "the optimizer adamw has no setting of this name" in error


# ---- a pretraining head --------------------------------------------------------------

WITH_HEAD = "objective.heads.span_boundary=0.5"


def test_the_head_of_the_page_reads_the_boundaries_of_spans(
    page: Callable[[str], Path],
) -> None:
    load_plugin(str(page("pretraining-head")))
    module = sys.modules["span_boundary"]
    first, last = module.spans(torch.tensor([2, 3, 4, 7, 9, 10]))
    assert first.tolist() == [2, 2, 2, 7, 9, 9]
    assert last.tolist() == [4, 4, 4, 7, 10, 10]

    config = AlbertConfig(**SHAPE, vocab_size=60)
    network = AlbertForPretraining(config, heads=("masked_lm", "span_boundary"))
    network.eval()
    masked = torch.tensor([2, 3])
    output = network(Batch.from_lists([[2, 7, 8, 9, 11, 3]]), masked)
    assert output["span_boundary"].shape == output.masked_lm.shape == (2, 60)
    # the token after the span is another one
    changed = network(Batch.from_lists([[2, 7, 8, 9, 12, 3]]), masked)
    assert not torch.equal(output["span_boundary"], changed["span_boundary"])


def test_the_head_of_the_page_is_weighted_saved_resumed_and_reported(
    page: Callable[[str], Path], corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin = page("pretraining-head")
    pretrain = ("pretrain", "--corpus", corpus, *SMALL, *QUICK, "train.save_every=1")
    assert shell(*pretrain, "--name", "plain") == 0
    assert_resumes_to_equal_bits(*pretrain, WITH_HEAD, "--plugin", plugin)

    run = litebert.Run("runs/whole")
    heads = {"masked_lm": 1.0, "sentence_order": 1.0, "span_boundary": 0.5}
    assert run.settings["objective.heads"] == heads
    assert run.evaluations[-1].values["span_boundary_loss"] > 0
    assert "Span-boundary loss" in run.report.read_text("utf-8")
    assert heads_in_command(Path("runs/whole/model")) == heads
    config = json.loads(Path("runs/whole/model/config.json").read_text())
    assert config["pretraining_heads"][-1] == "span_boundary"

    # with the plug-in, each model has its own heads
    verbs = ("fill", "score", "order", "embed")
    assert litebert.load("runs/plain").verbs == verbs
    model = litebert.load("runs/whole")
    assert model.verbs == verbs
    assert model.network.heads[-1] == "span_boundary"

    with pytest.raises(LitebertError, match="span_boundary"):
        open_source(Path("runs/whole/model"))
    open_source(Path("runs/whole/model"), has_head=False)
    capsys.readouterr()
    assert shell("evaluate", "runs/whole") == 0
    assert "span_boundary_loss" in capsys.readouterr().out

    assert_is_continued_with_the_head_or_without(corpus, capsys)
    assert_needs_its_plugin(plugin, capsys)


def heads_in_command(model: Path) -> object:
    """Return the heads in the command of a card, which trains its model again."""
    lines = model_card(model).splitlines()
    [command] = [line for line in lines if "litebert pretrain" in line]
    words = shlex.split(command)
    [setting] = [word for word in words if "objective.heads=" in word]
    return tomllib.loads(setting)["objective"]["heads"]


def assert_is_continued_with_the_head_or_without(
    corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check that a continuation says that it drops the head, unless it is asked to keep
    it.
    """
    further = ("pretrain", "--corpus", corpus, "--from", "runs/whole", *QUICK)
    further += ("objective.max_seq_length=64", "train.loader_workers=0")
    capsys.readouterr()
    assert shell(*further, "--name", "dropping") == 0
    assert "objective.heads.span_boundary=1 keeps it" in capsys.readouterr().err

    keeping = (*further, WITH_HEAD, "--name", "keeping")
    assert shell(*keeping, "--dry-run") == 0
    assert "span_boundary x 0.5" in capsys.readouterr().out
    assert shell(*keeping) == 0
    assert "keeps it" not in capsys.readouterr().err


def assert_needs_its_plugin(plugin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check that a model with the head needs the plug-in, and one that was fine-tuned
    from it does not.
    """
    forget(plugin)
    litebert.load("runs/plain")
    error = refused(capsys, "fill", "Anna [MASK].", "--model", "runs/whole")
    assert "needs the plug-in span_boundary" in error
    assert "needs the plug-in" in refused(capsys, "report", "runs/whole")

    load_plugin(str(plugin))
    Path("stars.csv").write_text(STARS, "utf-8")
    assert shell("finetune", "stars.csv", "--model", "runs/whole", *QUICK) == 0
    forget(plugin)
    assert RunFolder(Path("runs/stars")).file.plugins == {}
    assert shell("evaluate", "runs/stars") == 0


def test_a_run_without_sentence_order_has_no_such_head(
    page: Callable[[str], Path],  # its working directory
    corpus: Path,
) -> None:
    pretrain = ("pretrain", "--corpus", corpus, *SMALL, *QUICK, "--name", "a")
    assert shell(*pretrain, "objective.heads.sentence_order=0") == 0
    assert litebert.load("runs/a").verbs == ("fill", "score", "embed")
    last = RunFolder(Path("runs/a")).evaluations[-1]
    assert "sentence_order_loss" not in last.values
    assert "sop" not in model_card(Path("runs/a/model"))
