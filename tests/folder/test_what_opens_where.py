"""Which heads transformers opens, before and after each of our commands, and that it
computes the same numbers.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers as hf
from torch import Tensor

from litebert.config import HeadConfig
from litebert.folder import ModelFolder, read_folder, write_folder
from litebert.interop.huggingface import import_model
from litebert.nn import AlbertForTask, Batch
from litebert.tokenizer import Tokenizer
from litebert.train.checkpoint import mean_model
from tests.networks import config_for, drawn, random_model

IDS = [2, 7, 8, 9, 10, 3]
CLASSES = (
    "AlbertModel",
    "AlbertForPreTraining",
    "AlbertForMaskedLM",
    "AlbertForSequenceClassification",
    "AlbertForTokenClassification",
    "AlbertForQuestionAnswering",
    "AlbertForMultipleChoice",
)
LABELED = ("AlbertForSequenceClassification", "AlbertForTokenClassification")


def outputs(model: torch.nn.Module) -> list[Tensor]:
    """Return all outputs of a model of transformers for one text."""
    ids = torch.tensor([IDS])
    if type(model).__name__.endswith("MultipleChoice"):
        ids = ids[None]
    with torch.no_grad():
        return [
            value for value in model(input_ids=ids).values() if torch.is_tensor(value)
        ]


def as_version_5(folder: Path) -> None:
    """Leave the folder as transformers 5 wrote it."""


def with_null_ids(folder: Path) -> None:
    path = folder / "config.json"
    table = json.loads(path.read_text())
    table |= {"bos_token_id": None, "eos_token_id": -1, "pad_token_id": None}
    path.write_text(json.dumps(table))


def with_other_ids(folder: Path) -> None:
    path = folder / "config.json"
    table = json.loads(path.read_text())
    path.write_text(json.dumps(table | {"eos_token_id": [3, 4], "pad_token_id": -1}))


VARIANTS: tuple[Callable[[Path], None], ...] = (
    as_version_5,
    with_null_ids,
    with_other_ids,
)


def transformed(source: Path, output: Path, command: str) -> Path:
    if command == "import":
        import_model(source, output)
    elif command == "rewrite":
        write_folder(read_folder(source), output)
    else:
        write_folder(mean_model([source, source]), output)
    return output


@pytest.fixture(scope="module")
def vocabulary(small_model: Path) -> Tokenizer:
    return Tokenizer.load(small_model)


@pytest.mark.parametrize("shards", [False, True], ids=["one file", "shards"])
@pytest.mark.parametrize("name", CLASSES)
def test_every_head_of_transformers_opens_again_after_every_command(
    tmp_path: Path, vocabulary: Tokenizer, name: str, shards: bool
) -> None:
    labels: dict[str, object] = {}
    if name in LABELED:
        labels = {"id2label": {0: "no", 1: "yes", 2: "or"}, "label2id": {}}
    theirs = random_model(name, vocab_size=vocabulary.vocab_size, **labels)
    expected = outputs(theirs)
    for number, change in enumerate(VARIANTS):
        source = tmp_path / f"source-{number}"
        limit = {"max_shard_size": "20KB"} if shards else {}
        theirs.save_pretrained(source, **limit)
        assert (source / "model.safetensors.index.json").exists() == shards
        change(source)
        for command in ("import", "rewrite", "average"):
            if command == "average" and read_folder(source).missing:
                continue  # a mean of checkpoints has all heads
            output = transformed(source, tmp_path / f"{command}-{number}", command)
            again = getattr(hf, name).from_pretrained(output)
            for tensor, wanted in zip(outputs(again), expected, strict=True):
                torch.testing.assert_close(tensor, wanted, atol=2e-5, rtol=0)
            if name in LABELED:
                assert tuple(again.config.id2label.values()) == ("no", "yes", "or")


HEADS = {
    "sequence-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "question-answering": "AutoModelForQuestionAnswering",
    "multiple-choice": "AutoModelForMultipleChoice",
}
OURS_ALONE = {
    "vector-classification": "AutoModelForSequenceClassification",
    "pair-classification": "AutoModelForSequenceClassification",
    "conditional-question-answering": "AutoModelForQuestionAnswering",
}


def _saved(folder: Path, vocabulary: Tokenizer, kind: str) -> AlbertForTask:
    names = ("no", "yes") if kind.endswith("-classification") else ()
    head = HeadConfig(kind=kind, labels=names)
    network = drawn(AlbertForTask(config_for(vocabulary), head))
    assert isinstance(network, AlbertForTask)
    write_folder(ModelFolder(network, vocabulary), folder)
    return network


@pytest.mark.parametrize("kind", HEADS)
@torch.no_grad()
def test_transformers_computes_what_our_heads_do(
    tmp_path: Path, vocabulary: Tokenizer, kind: str
) -> None:
    network = _saved(tmp_path, vocabulary, kind)
    theirs = getattr(hf, HEADS[kind]).from_pretrained(tmp_path)
    logits = network(Batch.from_lists([IDS]))
    if kind == "question-answering":
        their_logits = torch.stack(outputs(theirs), -1)[0]
    else:
        their_logits = outputs(theirs)[0].reshape(logits.shape)
    torch.testing.assert_close(their_logits, logits, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", OURS_ALONE)
@torch.no_grad()
def test_of_a_head_that_transformers_lacks_it_opens_the_encoder(
    tmp_path: Path, vocabulary: Tokenizer, kind: str
) -> None:
    network = _saved(tmp_path, vocabulary, kind)
    encoder = hf.AutoModel.from_pretrained(tmp_path)
    hidden = encoder(input_ids=torch.tensor([IDS])).last_hidden_state[0]
    ours = network.albert(Batch.from_lists([IDS]))
    torch.testing.assert_close(hidden, ours, atol=1e-5, rtol=0)
    if kind != "conditional-question-answering":  # refused, never answered at random
        with pytest.raises(RuntimeError, match="mismatch"):
            getattr(hf, OURS_ALONE[kind]).from_pretrained(tmp_path)


def test_a_folder_with_added_tokens_opens_with_its_tokens_after_every_command(
    tmp_path: Path, vocabulary: Tokenizer, small_model: Path
) -> None:
    tokenizer = hf.AutoTokenizer.from_pretrained(small_model)
    tokenizer.add_tokens(["@USER", "#tag"])
    source = tmp_path / "source"
    theirs = random_model("AlbertForMaskedLM", vocab_size=vocabulary.vocab_size)
    theirs.resize_token_embeddings(len(tokenizer))
    theirs.save_pretrained(source)
    tokenizer.save_pretrained(source)
    text = "hello @user and #TAG"
    wanted = tokenizer(text)["input_ids"]
    for command in ("import", "rewrite"):
        output = transformed(source, tmp_path / command, command)
        again = hf.AutoTokenizer.from_pretrained(output)
        assert again(text)["input_ids"] == wanted
        ours = read_folder(output).require_tokenizer()
        assert ours.encode(text, frame=True).ids == wanted
        model = hf.AlbertForMaskedLM.from_pretrained(output)
        for tensor, expected in zip(outputs(model), outputs(theirs), strict=True):
            torch.testing.assert_close(tensor, expected, atol=1e-5, rtol=0)


def test_fewer_vectors_than_pieces_are_refused_where_texts_are_read(
    tmp_path: Path, vocabulary: Tokenizer
) -> None:
    network = drawn(
        AlbertForTask(config_for(vocabulary), HeadConfig(kind="multiple-choice"))
    )
    model = ModelFolder(network, vocabulary)  # type: ignore[arg-type]
    smaller = config_for(vocabulary, vocab_size=vocabulary.vocab_size - 1)
    few = drawn(AlbertForTask(smaller, HeadConfig(kind="multiple-choice")))
    write_folder(replace(model, network=few), tmp_path)  # type: ignore[arg-type]
    with pytest.raises(Exception, match="LB-677"):
        read_folder(tmp_path).require_tokenizer()
