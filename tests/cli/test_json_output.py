"""What `--json` prints has a schema: every command is listed, and keeps to its own."""

import json
from pathlib import Path

import click
import jsonschema
import pytest
from pydantic import TypeAdapter

from litebert.cli.help import json_type, schema_of
from litebert.errors import LitebertError

from .conftest import Command, write_model
from .test_commands import LEAVES

ELSEWHERE = {
    "export onnx": "tests/interop/export/test_onnx.py",
    "export program": "tests/interop/export/test_program.py",
    "export web": "tests/interop/export/test_web.py",
    "hub pull": "tests/hub/test_hub_fetch.py",
    "study cost": "BERT-large alone needs 5 GB",
}
"""Commands that are run elsewhere, and where."""
Words = list[object]


@pytest.fixture(scope="session")
def place(
    tmp_path_factory: pytest.TempPathFactory, stories: Path, corpus: Path, pretrained: Path, classifier: Path
) -> dict[str, Path]:
    """Give everything that the commands below name."""
    folder = tmp_path_factory.mktemp("json")
    rows = [f"Anna walked {n} times.,{'good' if n % 2 else 'bad'}" for n in range(40)]
    (folder / "reviews.csv").write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    heads = {
        "tags": ("token-classification", ("O", "B-PER")),
        "spans": ("question-answering", ()),
        "choices": ("multiple-choice", ()),
    }
    models = {name: write_model(folder / name, corpus, labels, kind=kind) for name, (kind, labels) in heads.items()}
    (folder / "few.txt").write_text("Anna walked to the house.\nBert found a ball.\n" * 8)
    pairs = [f"{n}\tAnna walked.\tBert slept.\t{'not_' * (n % 2)}entailment" for n in range(8)]
    (folder / "glue" / "RTE").mkdir(parents=True)
    for split in ("train", "dev"):
        table = "\n".join(["index\tsentence1\tsentence2\tlabel", *pairs]) + "\n"
        (folder / "glue" / "RTE" / f"{split}.tsv").write_text(table)
    return {
        "few": folder / "few.txt",
        "glue": folder / "glue",
        "folder": folder,
        "runs": folder / "runs",
        "run": folder / "runs" / "reviews",
        "reviews": folder / "reviews.csv",
        "stories": stories,
        "corpus": corpus,
        "tokenizer": corpus / "tokenizer",
        "pretrained": pretrained,
        "classifier": classifier,
        **models,
    }


def _keeps_to(name: str, value: object) -> None:
    jsonschema.validate(value, schema_of(name))
    adapter: TypeAdapter[object] = TypeAdapter(json_type(name))
    read = adapter.validate_python(value)
    assert adapter.dump_python(read, mode="json", by_alias=True) == value


def test_every_command_with_json_has_a_schema() -> None:
    with_json = {
        name
        for name, command in LEAVES.items()
        for param in command.params
        if isinstance(param, click.Option) and "--json" in param.opts
    }
    assert with_json == {name for name in LEAVES if json_type(name) is not None}
    assert all({"$defs", "type", "anyOf"} & set(schema_of(name)) for name in with_json)


def test_the_schema_of_a_command_can_be_asked_for(command: Command) -> None:
    assert json.loads(command("help", "--schema", "similar").stdout) == schema_of("similar")
    assert "LB-887" in command("help", "--schema", "recipes", "show").stderr
    with pytest.raises(LitebertError, match="LB-887"):
        schema_of("nothing")


def _cases(at: dict[str, Path]) -> dict[str, list[Words]]:
    model: Words = ["--model", at["pretrained"]]
    tuned: Words = [at["reviews"], "--model", at["pretrained"], "--runs", at["runs"]]
    quick: Words = ["train.steps=2", "optim.warmup_steps=1", "train.precision=fp32"]
    out = at["folder"]
    study: Words = ["--output", out / "study"]
    few: Words = [at["pretrained"], "--texts", at["few"]]
    return {
        "answer": [["Who walked?", "--context", "Anna walked.", "--model", at["spans"]]],
        "choose": [["Who?", "Anna", "Bert", "--context", "Anna walked.", "--model", at["choices"]]],
        "classify": [["Anna walked.", "Bert slept.", "--model", at["classifier"]]],
        "config list": [[], ["finetune"]],
        "corpus build": [
            [
                at["stories"],
                "--tokenizer",
                at["tokenizer"],
                "--output",
                out / "built",
                "--documents",
                "blank-line",
                "--held-out",
                0.2,
                "--quiet",
                "--workers",
                1,
            ]
        ],
        "corpus mix": [[at["corpus"], at["corpus"]]],
        "corpus stats": [[at["corpus"]]],
        "corpus check": [[at["corpus"]], [at["stories"]]],
        "data check": [[at["reviews"], "--model", at["pretrained"]]],
        "doctor": [[]],
        "embed": [["a", "b", *model]],
        "distil": [[at["pretrained"], "--corpus", at["corpus"], "--runs", at["runs"], "--quiet", *quick]],
        "explain": [["similar", "Anna walked.", "Bert slept.", *model]],
        "export google": [[at["pretrained"], out / "google" / "model.ckpt"]],
        "import google": [[out / "google" / "model.ckpt", "--output", out / "from-google"]],
        "glue": [[*model, "--data", at["glue"], "--tasks", "rte", "--runs", at["runs"], *quick]],
        "quantize": [[at["pretrained"], out / "int8", "--texts", at["few"]]],
        "study ablation": [["sharing", "--corpus", at["corpus"], "--afford", 0.0001, *study]],
        "study attention": [[*few, "--lengths", 32, "--window", 8, "--longest", 32, *study]],
        "study depth": [[*few, "--rounds", 1, *study]],
        "study layers": [[*few, "--depths", 16, *study]],
        "study page": [[out / "study", "--html", out / "study.html"]],
        "fill": [["Anna [MASK].", *model], ["Anna [MASK].", "[MASK] slept.", *model]],
        "finetune": [[*tuned, "--dry-run", "--quiet"], [*tuned, *quick, "--quiet"]],
        "config show": [[at["run"]]],
        "evaluate": [[at["run"], "--data", at["reviews"], "--quiet"]],
        "predict": [[at["run"], "--data", at["reviews"], "--output", out / "answers", "--quiet"]],
        "report": [[at["run"]]],
        "runs list": [["--runs", at["runs"]]],
        "runs tail": [[at["run"], "--rows", 1]],
        "runs compare": [[at["run"], out / "." / "runs" / ".." / "runs" / "reviews"]],
        "hub push": [[at["pretrained"], "me/mine", "--dry-run"]],
        "import huggingface": [[at["pretrained"], "--output", out / "imported"]],
        "order": [["Anna walked.", "Bert slept.", *model], ["Anna walked. Bert slept.", *model]],
        "pretrain": [["--corpus", at["corpus"], "--preset", "tiny", "--dry-run"]],
        "recipes copy": [["laptop", out / "recipe.toml"]],
        "recipes list": [[]],
        "runs clean": [[at["runs"], "--dry-run"]],
        "runs resume": [[at["run"], "--quiet"]],
        "score": [["Anna walked.", *model]],
        "search": [["Anna", at["stories"], *model]],
        "similar": [["Anna walked.", "Bert slept.", *model]],
        "sizes": [["--preset", "tiny"]],
        "tag": [["Anna walked .", "--model", at["tags"]]],
        "tokenizer encode": [["Anna walked.", "--tokenizer", at["tokenizer"]]],
        "tokenizer train": [[at["stories"], "--vocab-size", 90, "--output", out / "vocabulary"]],
    }


def test_what_json_prints_keeps_to_its_schema(command: Command, place: dict[str, Path]) -> None:
    cases = _cases(place)
    assert set(cases) | set(ELSEWHERE) == {name for name in LEAVES if json_type(name) is not None}
    wrong = []
    for name, several in cases.items():
        for words in several:
            done = command(*name.split(), *words, "--json")
            try:
                _keeps_to(name, json.loads(done.stdout))
            except (AssertionError, ValueError, jsonschema.ValidationError) as error:
                wrong.append((name, str(error), done.stderr))
    assert not wrong, wrong


def test_rows_of_files_keep_to_the_schema(command: Command, place: dict[str, Path]) -> None:
    words = ("embed", place["reviews"], "--column", "text", "--model", place["pretrained"])
    lines = command(*words, "--json", "--quiet").stdout.splitlines()
    assert len(lines) == 40
    for line in lines:
        _keeps_to("embed", json.loads(line))


def test_a_schema_notices_what_is_missing_and_what_is_new() -> None:
    for wrong in ({}, {"cosine": "near"}, {"cosine": 0.5, "more": 1}):
        with pytest.raises((AssertionError, ValueError, jsonschema.ValidationError)):
            _keeps_to("similar", wrong)
