"""NaN and infinity are never answers: whoever asks gets one error that names the weights."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import litebert
from litebert.cli import cli
from litebert.config import AlbertConfig, HeadConfig
from litebert.errors import DamagedError
from litebert.folder import save_model
from litebert.inference import Model
from litebert.nn import AlbertForPretraining, AlbertForTask, Network
from litebert.tokenizer import Tokenizer

CONTEXT = "In the morning Anna walked to the house. There Anna found a red ball."
VERBS: dict[str, tuple[HeadConfig | None, Callable[[Model], object]]] = {
    "fill": (None, lambda model: model.fill("Anna walked to the [MASK].")),
    "order": (None, lambda model: model.order("Anna walked.", "Bert slept.")),
    "embed": (None, lambda model: model.embed(["Anna walked."])),
    "classify": (
        HeadConfig(kind="sequence-classification", labels=("no", "yes")),
        lambda model: model.classify(["Anna found it."]),
    ),
    "tag": (
        HeadConfig(kind="token-classification", labels=("O", "B-PER")),
        lambda model: model.tag(["Anna found it."]),
    ),
    "choose": (
        HeadConfig(kind="multiple-choice"),
        lambda model: model.choose("Who?", ["Anna", "Bert"], context=CONTEXT),
    ),
    "answer": (HeadConfig(kind="question-answering"), lambda model: model.answer("Who walked?", CONTEXT)),
    "answer or none": (
        HeadConfig(kind="conditional-question-answering"),
        lambda model: model.answer("Who walked?", CONTEXT),
    ),
}


@pytest.fixture
def folder(corpus: Path, tmp_path: Path) -> Callable[[HeadConfig | None, str], Path]:
    """Return a function that writes a model one of whose weights is far too large."""
    tokenizer = Tokenizer.load(corpus / "tokenizer")
    config = AlbertConfig(
        vocab_size=tokenizer.vocab_size,
        embedding_size=16,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=48,
    )

    def write(head: HeadConfig | None, weight: str) -> Path:
        # With these draws the sums of the head overflow; with others they may cancel out.
        draws = torch.Generator().manual_seed(2)
        network: Network = (
            AlbertForPretraining(config, generator=draws)
            if head is None
            else AlbertForTask(config, head, generator=draws)
        )
        with torch.no_grad():
            for name, parameter in network.named_parameters():
                if weight in name:
                    parameter.fill_(3e38)
        save_model(network, tmp_path)
        tokenizer.save(tmp_path)
        return tmp_path

    return write


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_refuses_what_is_no_number(folder: Callable[[HeadConfig | None, str], Path], verb: str) -> None:
    head, call = VERBS[verb]
    model = litebert.load(folder(head, "feed_forward.0.output"))
    with pytest.raises(DamagedError, match=r"LB-472[\s\S]*3e\+38[\s\S]*feed_forward.0.output"):
        call(model)


@pytest.mark.parametrize("verb", ["fill", "classify", "answer or none"])
def test_a_head_alone_can_be_to_blame(folder: Callable[[HeadConfig | None, str], Path], verb: str) -> None:
    head, call = VERBS[verb]
    weight = "masked_lm.dense" if verb == "fill" else "head."
    with pytest.raises(DamagedError, match="LB-472"):
        call(litebert.load(folder(head, weight)))


def test_the_shell_exits_with_3(folder: Callable[[HeadConfig | None, str], Path]) -> None:
    path = folder(None, "feed_forward.0.output")
    shown = CliRunner().invoke(cli, ["fill", "Anna [MASK].", "--model", str(path), "--json"])
    assert shown.stdout == ""
    assert (getattr(shown.exception, "exit_code", None) or shown.exit_code) == 3


def test_control_without_the_check_such_outputs_are_answers(
    folder: Callable[[HeadConfig | None, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("litebert.folder.model.refuse_non_finite", lambda _: None)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_every_verb_refuses_what_is_no_number(folder, "embed")
