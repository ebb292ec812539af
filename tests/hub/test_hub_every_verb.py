"""Every verb that takes a model takes a name on the Hub, and so all that `locate` finds."""

import shlex
import shutil
from pathlib import Path

import pytest

from litebert.cli import run
from litebert.files import write_json

# The verbs that answer a typed text share one way to their model: `embed` and `explain` stand for them.
VERBS = {
    "embed": "embed 'the cat sat' --model {model} --pooling mean",
    "explain": "explain fill 'the cat sat on the [MASK]' --model {model}",
    "evaluate on": "evaluate {model} --on sts --data {texts}/pairs.tsv",
    "evaluate text": "evaluate {model} --data {texts}/documents.jsonl",
    "quantize": "quantize {model} {new} --texts {texts}/texts.txt",
    "export google": "export google {model} {new}",
    "hub push": "hub push {model} me/new --dry-run",
    "data check": "data check {texts}/rows.csv --model {model}",
    "corpus check": "corpus check {texts}/texts.txt --tokenizer {model}",
    "study layers": "study layers {model} --texts {texts}/texts.txt --depths 24 --json",
    "pretrain": "pretrain {texts}/texts.txt --from {model} objective.max_seq_length=64 --dry-run",
    "finetune": "finetune {texts}/rows.csv --model {model} --dry-run",
    "tokenizer encode": "tokenizer encode 'the cat' --tokenizer {model}",
    "corpus build": "corpus build {texts}/texts.txt --tokenizer {model} --output {new} --held-out 0 --sentences line",
}


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with the texts that the verbs read."""
    place = tmp_path_factory.mktemp("every")
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
    verb: str, hub, texts: Path, small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = "run" if verb == "hub push" else "me/small"
    hub.add("me/small", small_model)
    shutil.copytree(small_model, "run/model")
    write_json(tmp_path / "run/run.json", {"settings": {"data.corpus": "c"}, "origins": {}, "data": {}})
    assert run(shlex.split(VERBS[verb].format(model=model, texts=texts, new=tmp_path / "new"))) == 0
