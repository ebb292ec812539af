"""Every verb that takes a model takes a name on the Hub, and so all that `locate` finds."""

import shlex
import shutil
from pathlib import Path

import pytest
import torch

from litebert.cli import run
from litebert.config import HeadConfig
from litebert.files import write_json
from litebert.folder import read_config, save_model
from litebert.nn import AlbertForTask
from litebert.tokenizer import Tokenizer

HEADS = {
    "sentiment": HeadConfig(kind="sequence-classification", labels=("good", "bad")),
    "tags": HeadConfig(kind="token-classification", labels=("O", "B-PER")),
    "spans": HeadConfig(kind="question-answering"),
    "choices": HeadConfig(kind="multiple-choice"),
}
VERBS: dict[str, tuple[str, str]] = {
    "fill": ("small", "fill 'the cat sat on the [MASK]' --model {model}"),
    "score": ("small", "score 'the cat sat' --model {model}"),
    "order": ("small", "order 'the cat sat' 'a dog ran' --model {model}"),
    "embed": ("small", "embed 'the cat sat' --model {model} --pooling mean"),
    "similar": ("small", "similar 'the cat sat' 'a dog ran' --model {model}"),
    "search": ("small", "search cat {texts} --model {model}"),
    "classify": ("sentiment", "classify 'the cat sat' --model {model}"),
    "tag": ("tags", "tag 'the cat sat' --model {model}"),
    "answer": ("spans", "answer who --context 'the cat sat' --model {model}"),
    "choose": ("choices", "choose who 'the cat' 'a dog' --model {model}"),
    "explain": ("sentiment", "explain classify 'the cat sat' --model {model}"),
    "evaluate on": ("small", "evaluate {model} --on sts --data {pairs}"),
    "evaluate text": ("small", "evaluate {model} --data {documents}"),
    "quantize": ("small", "quantize {model} {new} --texts {texts}"),
    "export google": ("small", "export google {model} {new}"),
    "hub push": ("small", "hub push {model} me/new --dry-run"),
    "data check": ("small", "data check {rows} --model {model}"),
    "corpus check": ("small", "corpus check {texts} --tokenizer {model}"),
    "study layers": ("small", "study layers {model} --texts {texts} --depths 24 --json"),
    "pretrain": ("small", "pretrain {texts} --from {model} objective.max_seq_length=64 --dry-run"),
    "finetune": ("small", "finetune {rows} --model {model} --dry-run"),
    "tokenizer encode": ("small", "tokenizer encode 'the cat' --tokenizer {model}"),
    "corpus build": ("small", "corpus build {texts} --tokenizer {model} --output {new} --held-out 0 --sentences line"),
}


@pytest.fixture(scope="session")
def models(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with a model of each head, and with the texts that the verbs read."""
    place = tmp_path_factory.mktemp("every")
    shutil.copytree(small_model, place / "small")
    tokenizer, config = Tokenizer.load(small_model), read_config(small_model)
    for name, head in HEADS.items():
        network = AlbertForTask(config, head, generator=torch.Generator().manual_seed(1))
        (place / name).mkdir()
        save_model(network, place / name)
        tokenizer.save(place / name)
    sentences = ["the cat sat on the mat", "a dog ran after the cat", "the mat was red and blue"]
    (place / "texts.txt").write_text("\n\n".join(["\n".join(sentences)] * 30) + "\n")
    text = " ".join(f"{sentence}." for sentence in sentences)
    (place / "documents.jsonl").write_text(f'{{"text": "{text}"}}\n' * 30)
    pairs = [f"the cat sat\t{text}\t{score}" for score, text in enumerate(sentences)]
    (place / "pairs.tsv").write_text("\n".join(["sentence1\tsentence2\tscore", *pairs]) + "\n")
    rows = [f"{text},{('good', 'bad')[n % 2]}" for n, text in enumerate(sentences * 20)]
    (place / "rows.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    return place


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_takes_a_name_on_the_hub_or_a_run(
    verb: str, hub, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    head, words = VERBS[verb]
    if verb == "hub push":
        shutil.copytree(models / head, "run/model")
        write_json(tmp_path / "run/run.json", {"settings": {"data.corpus": "c"}, "origins": {}, "data": {}})
    else:
        hub.add("me/small", models / head)
    command = words.format(
        model="run" if verb == "hub push" else "me/small",
        texts=models / "texts.txt",
        documents=models / "documents.jsonl",
        pairs=models / "pairs.tsv",
        rows=models / "rows.csv",
        new=tmp_path / "new",
    )
    assert run(shlex.split(command)) == 0
