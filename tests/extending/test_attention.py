"""The kind of attention of docs/extending/attention.md."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers

import litebert
from litebert.config import AlbertConfig
from litebert.errors import LitebertError
from litebert.fast import pack
from litebert.folder import ModelFolder, write_folder
from litebert.interop.export.source import open_source
from litebert.nn import Albert, AlbertForPretraining, Batch
from litebert.plugins import load_plugin
from tests.conftest import blocks
from tests.extending.commands import forget


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


# ---- what it computes ----------------------------------------------------------------

# two texts that differ in their last token, at place 4
TEXT = Batch.from_lists([[2, 8, 9, 11, 3]])
CHANGED_TEXT = Batch.from_lists([[2, 8, 9, 11, 17]])


def test_a_layer_reads_at_multiples_of_its_own_setting(albert: Albert) -> None:
    one_layer = albert.config.model_copy(update={"num_hidden_layers": 1})
    shallow = Albert(one_layer).eval()
    # the change is seen from 0, 1 and 4, not from 2 and 3
    is_seen = (shallow(TEXT) != shallow(CHANGED_TEXT)).any(-1)
    assert is_seen.tolist() == [True, True, False, False, True]


def test_the_fast_path_computes_the_same(albert: Albert) -> None:
    with torch.no_grad():
        states = albert(TEXT)
        assert not torch.equal(states, albert(CHANGED_TEXT))
        pack(albert)
        torch.testing.assert_close(albert(TEXT), states, rtol=0, atol=1e-5)


def test_it_can_be_trained(albert: Albert) -> None:
    albert.train()(TEXT).sum().backward()
    assert albert.attention[0].query.weight.grad.isfinite().all()


# ---- its folder ----------------------------------------------------------------------


@pytest.fixture
def folder(albert: Albert, corpus: Path, tmp_path: Path) -> Path:
    """Write a model with this attention."""
    tokenizer = litebert.Tokenizer.load(corpus / "tokenizer")
    size = {"vocab_size": tokenizer.vocab_size}
    network = AlbertForPretraining(albert.config.model_copy(update=size))
    model = tmp_path / "model"
    model.mkdir()
    write_folder(ModelFolder(network, tokenizer), model)
    return model


def test_its_setting_is_saved_with_the_model(folder: Path) -> None:
    assert (folder / "model-dilated.safetensors").is_file()
    config = json.loads((folder / "config.json").read_text())
    assert config["dilation"] == 3
    assert config["litebert_plugins"] == ["dilated"]

    network = litebert.load(folder).network
    assert network.config.attention_arguments == {"dilation": 3}


def test_other_programs_refuse_it(folder: Path) -> None:
    # transformers does not know this model_type, and finds no weights by its class
    with pytest.raises(ValueError, match="albert-litebert"):
        transformers.AutoConfig.from_pretrained(folder)
    with pytest.raises(OSError, match=r"model\.safetensors"):
        transformers.AlbertModel.from_pretrained(folder)


def test_it_cannot_be_exported(folder: Path) -> None:
    with pytest.raises(LitebertError, match="LB-470"):
        open_source(folder)


def test_a_model_names_the_plug_in_that_it_needs(folder: Path, tmp_path: Path) -> None:
    forget(tmp_path / "dilated.py")
    with pytest.raises(LitebertError, match="needs the plug-in dilated"):
        litebert.load(folder)


# ---- its settings --------------------------------------------------------------------


@pytest.mark.usefixtures("albert")
def test_a_setting_that_it_does_not_have_is_refused() -> None:
    with pytest.raises(LitebertError, match="no setting of this name"):
        AlbertConfig(attention="dilated", attention_settings={"width": 1})


@pytest.mark.usefixtures("albert")
def test_a_wrong_value_of_its_setting_is_refused() -> None:
    with pytest.raises(LitebertError, match="cannot have this value"):
        AlbertConfig(attention="dilated", attention_settings={"dilation": "far"})
