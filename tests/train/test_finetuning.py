"""Fine-tuning end to end: it learns, and reports last and best separately."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import litebert
from litebert.config import FinetuneConfig
from litebert.errors import LitebertError
from litebert.folder import ModelFolder, read_folder, write_folder
from litebert.folder.card import model_card
from litebert.inference.finetuned import Finetuned, ensemble_answers, measure_split
from litebert.inference.model import Model
from litebert.nn import AlbertForPretraining
from litebert.origins import SUITED, Origin
from litebert.runs import RunFolder, read_metrics
from litebert.settings import Resolved, Setting, resolve, settings_from_words
from litebert.tokenizer import Tokenizer, train_tokenizer
from litebert.train.defaults import MAX_EPOCHS, ON_CLS, ON_MEAN, adapt_defaults
from litebert.train.finetune import finetune
from litebert.train.preparation import prepare
from tests.contract import shell
from tests.networks import SHAPE, config_for

STEPS = SHAPE["num_hidden_layers"]
PACE = (
    "train.batch_size=16 train.save_every=4 train.log_every=4 optim.learning_rate=0.005"
    " train.epochs=5"
)
PEOPLE = ("Anna", "Bert", "Clara", "David", "Emma", "Felix")
LABELS = {
    "good": ("liked", "loved", "praised", "enjoyed"),
    "bad": ("hated", "left", "cursed", "feared"),
}
Configure = Callable[..., Resolved[FinetuneConfig]]


def _rows(number: int, first: int = 0) -> str:
    lines = ["text,verdict"]
    for index in range(first, first + number):
        label = ("good", "bad")[index % 2]
        who = PEOPLE[index % 6]
        did = LABELS[label][index // 2 % 4]
        other = PEOPLE[index // 6 % 6]
        lines.append(f'"{who} {did} the film, said {other}.",{label}')
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a folder with film reviews and a model to start from, a small network with
    random weights.
    """
    folder = tmp_path_factory.mktemp("films")
    (folder / "train.csv").write_text(_rows(96), encoding="utf-8")
    (folder / "dev.csv").write_text(_rows(24, first=200), encoding="utf-8")
    tokenizer = Tokenizer.from_model(
        train_tokenizer(_rows(96).splitlines(), vocab_size=50)
    )
    tokenizer.save(folder / "start")
    sizes = {
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 40,
    }
    config = config_for(tokenizer, **sizes, initializer_range=0.2)
    write_folder(
        ModelFolder(
            AlbertForPretraining(config, generator=torch.Generator().manual_seed(3))
        ),
        folder / "start",
    )
    return folder


@pytest.fixture(scope="module")
def words(films: Path) -> list[str]:
    return [
        f"data.train={films / 'train.csv'}",
        f"data.dev={films / 'dev.csv'}",
        f"model.start={films / 'start'}",
    ]


@pytest.fixture(scope="module")
def configure(words: list[str]) -> Configure:
    defaults = ["task.name=table", *words, *PACE.split()]
    return lambda *changes: resolve(
        FinetuneConfig, settings_from_words([*defaults, *changes])
    )


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory, configure: Configure) -> Path:
    run = tmp_path_factory.mktemp("learnt") / "run"
    changes = ("train.eval_every=5", "optim.learning_rate=0.003")
    assert finetune(configure("train.epochs=15", *changes), run, is_quiet=True) == 0
    return run


def test_a_task_is_learnt_and_last_and_best_are_reported_as_they_are_on_disk(
    learnt: Path, films: Path
) -> None:
    model = Model.load(learnt / "model")
    assert model.verbs == ("classify", "embed")
    predictions = model.classify(
        ["Emma loved the film, said Bert.", "Bert cursed the film."]
    )
    assert [prediction.labels for prediction in predictions] == [("good",), ("bad",)]
    answers = (learnt / "answers" / "dev.jsonl").read_text().splitlines()
    assert (len(answers), json.loads(answers[0])["expected"] in ("good", "bad")) == (
        24,
        True,
    )
    result = json.loads((learnt / "result.json").read_text())
    rows = [row for row in read_metrics(learnt) if row["kind"] == "eval"]
    accuracies = [row["accuracy"] for row in rows]
    assert (
        result["last"]["accuracy"]
        == result["best"]["accuracy"]
        == max(accuracies)
        == 1.0
    )
    assert (
        result["best"]["step"]
        == rows[accuracies.index(1.0)]["step"]
        < result["last"]["step"]
    )
    assert result["last"]["step"] == rows[-1]["step"] == 90
    for kept, model in {"last": learnt, "best": learnt / "best"}.items():
        measures, _, _ = measure_split(
            [Finetuned.open(model)], films / "dev.csv", "dev"
        )
        assert measures["accuracy"] == pytest.approx(result[kept]["accuracy"])


def test_an_ensemble_answers_with_the_mean_even_without_the_training_file(
    tmp_path: Path, films: Path, configure: Configure
) -> None:
    table = Path(shutil.copy(films / "train.csv", tmp_path))
    runs = [tmp_path / f"seed-{seed}" for seed in (1, 2)]
    for seed, run in enumerate(runs, 1):
        finetune(
            configure(f"train.seed={seed}", "train.steps=2", f"data.train={table}"),
            run,
            is_quiet=True,
        )
    new = tmp_path / "new.csv"
    new.write_text("text\nAnna loved it.\nBert left.\n", encoding="utf-8")
    # an earlier version had settings that are gone, and took some without effect
    record = json.loads((runs[0] / "run.json").read_text())
    record["settings"]["train.patience"] = 3
    assert record["settings"]["data.dev"] is not None
    record["settings"]["data.held_out"] = 0.3
    (runs[0] / "run.json").write_text(json.dumps(record))

    members = [Finetuned.open(run) for run in runs]
    dataset = members[0].dataset
    examples = dataset.read(new, "test")
    means = ensemble_answers(members, examples)
    first, second = (ensemble_answers([member], examples) for member in members)
    for a, b, mean in zip(first, second, means, strict=True):
        expected = np.mean([a.values, b.values], axis=0)
        assert mean.values == pytest.approx(expected)
    (file,) = dataset.submission("test", examples, means).values()
    assert len(file.splitlines()) == 3

    table.unlink()
    members = [Finetuned.open(run) for run in runs]
    examples = members[0].dataset.read(new, "test")
    assert ensemble_answers(members, examples) == means


def test_random_weights_take_nothing_from_the_model_and_an_unlearnt_task_is_doubted(
    tmp_path: Path, films: Path, configure: Configure
) -> None:
    tables = [read_folder(films / "start").network.albert.embedding.word.weight]
    for is_random in ("true", "false"):
        changes = (
            "train.steps=1",
            "optim.learning_rate=1e-9",
            f"model.random={is_random}",
        )
        finetune(configure(*changes), tmp_path / is_random, is_quiet=True)
        tables.append(
            read_folder(
                tmp_path / is_random / "model"
            ).network.albert.embedding.word.weight
        )
    start, random, pretrained = tables
    assert torch.allclose(pretrained, start, atol=1e-5)
    assert not torch.allclose(random, start, atol=1e-2)
    result = RunFolder(tmp_path / "false").outcome
    assert result is not None and result.baseline["accuracy"] == 0.5 and result.doubts
    card = model_card(tmp_path / "false" / "model")
    assert "most common label" in card and "**Warning**" in card
    evaluated = litebert.evaluate(tmp_path / "false", quiet=True)
    assert "most common label" in str(evaluated)
    assert evaluated.doubts


def test_a_run_of_other_data_or_another_start_is_not_resumed(
    tmp_path: Path, films: Path, configure: Configure
) -> None:
    place = shutil.copytree(films, tmp_path / "films")
    resolved = configure(
        "train.steps=1",
        f"data.dev={place / 'dev.csv'}",
        f"model.start={place / 'start'}",
    )
    assert finetune(resolved, tmp_path / "run", is_quiet=True) == 0
    for name, old, new in (
        ("dev.csv", b",good", b",bad"),
        ("start/config.json", b'layers": 3', b'layers": 1'),
    ):
        (place / name).write_bytes((place / name).read_bytes().replace(old, new))
        with pytest.raises(
            LitebertError, match=r"LB-505[\s\S]*values of (dev hash|shape of the start)"
        ):
            finetune(resolved, tmp_path / "run", is_quiet=True)
        shutil.copy(films / name, place / name)
    write_folder(
        ModelFolder(AlbertForPretraining(read_folder(place / "start").network.config)),
        place / "start",
    )
    with pytest.raises(
        LitebertError, match=r"LB-505[\s\S]*its start model[\s\S]*values of start "
    ):
        finetune(resolved, tmp_path / "run", is_quiet=True)


def test_names_of_labels_that_are_assumed_are_said(
    learnt: Path, tmp_path: Path, capsys
) -> None:
    written = shutil.copytree(learnt, tmp_path / "run") / "model" / "config.json"
    written.write_text(
        written.read_text().replace('"bad"', '"LABEL_0"').replace('"good"', '"LABEL_1"')
    )
    assert (
        litebert.evaluate(tmp_path / "run", quiet=True).measures["dev"]["accuracy"]
        == 1.0
    )
    assert (
        "names no labels: they are taken to be, in order, bad, good"
        in capsys.readouterr().err
    )


def test_heads_that_an_older_version_trained_after_other_steps_are_ignored(
    learnt: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(learnt / "model", tmp_path / "older")
    tensors = load_file(folder / "model.safetensors")
    tensors["exits.0.weight"] = torch.ones(2, 32)
    tensors["exits.0.bias"] = torch.ones(2)
    save_file(tensors, folder / "model.safetensors")
    text = "Anna liked the film."
    expected = litebert.load(learnt / "model").classify(text)
    assert litebert.load(folder).classify(text) == expected


def test_a_model_of_a_table_without_its_run_is_measured_on_rows(
    learnt: Path, films: Path, tmp_path: Path
) -> None:
    alone = shutil.copytree(learnt / "model", tmp_path / "alone")
    data = ("--data", films / "dev.csv")
    measures = shell.litebert("evaluate", learnt, *data, "--json").json
    for words in ((), ("--task", "table")):
        done = shell.litebert("evaluate", alone, *data, *words, "--json")
        assert done.json == measures
    copy = tmp_path / "int8"
    assert shell.litebert("quantize", alone, copy, *data).ok
    of_copy = shell.litebert("evaluate", copy, *data, "--json").json
    assert of_copy["dev"]["accuracy"] > 0.9

    done = shell.litebert("evaluate", alone)
    shell.assert_error(done, 1, "LB-613", "names its task")
    done = shell.litebert("predict", alone, *data, "--output", tmp_path / "out")
    shell.assert_error(done, 1, "LB-613", f"litebert classify FILE --model {alone}")


def test_small_networks_get_measured_defaults_and_given_values_stay(
    words: list[str], tmp_path: Path
) -> None:
    recipe = {
        "optim.learning_rate": Setting(2e-5, Origin("recipe", "table")),
        "task.name": Setting("table"),
    }

    def configured(*more: str) -> Resolved[FinetuneConfig]:
        return resolve(FinetuneConfig, recipe, settings_from_words([*words, *more]))

    prepared = prepare(configured(), tmp_path / "a")
    assert (prepared.config.optim.learning_rate, prepared.config.train.epochs) == (
        1e-4,
        MAX_EPOCHS,
    )
    assert prepared.resolved.origins["optim.learning_rate"] == SUITED
    prepared = prepare(
        configured("optim.learning_rate=2e-5", "train.steps=3"), tmp_path / "b"
    )
    assert (prepared.config.optim.learning_rate, prepared.config.train.steps) == (
        2e-5,
        3,
    )
    published = resolve(
        FinetuneConfig,
        settings_from_words(["task.name=sst2", "data.folder=x", "model.start=y"]),
    )
    large = adapt_defaults(published, ON_CLS, hidden_size=768, num_features=500)
    assert large is published
    for size, rows, defaults, expected in (
        (256, 500, ON_CLS, (1e-4, 0.1, 10, 1.0)),
        (512, 67_349, ON_CLS, (5e-5, 0.1, 3, 1.0)),
        (384, 500, ON_MEAN, (2e-4, 0.1, 5, 10.0)),
    ):
        small = adapt_defaults(
            configured(), defaults, hidden_size=size, num_features=rows
        ).config
        optim = small.optim
        assert (
            optim.learning_rate,
            optim.warmup_steps,
            small.train.epochs,
            optim.head_rate_scale,
        ) == expected


@pytest.mark.parametrize("length", ["train.epochs=5", "train.minutes=0.1"])
def test_a_warm_up_as_long_as_the_run_is_refused_before_work(
    tmp_path: Path, configure: Configure, length: str
) -> None:
    with pytest.raises(LitebertError, match=r"LB-426[\s\S]*=1000, 30 steps"):
        finetune(configure(length, "optim.warmup_steps=1000"), tmp_path, is_quiet=True)
    assert not (tmp_path / "run.json").exists()


def test_settings_of_other_tasks_are_refused(
    tmp_path: Path, configure: Configure
) -> None:
    (tmp_path / "tags.conll").write_text(
        "Anna B-PER\nlaughs O\n\n" * 20, encoding="utf-8"
    )
    tags = [f"data.{part}={tmp_path / 'tags.conll'}" for part in ("train", "dev")]
    for changes, what in {
        (*tags, "model.pooling=mean"): r"LB-518[\s\S]*token-classification",
        (*tags, "task.class_weights=[1, 2]"): r"LB-517[\s\S]*token-classification",
        (
            "task.class_weights=[1, 2, 3]",
        ): r"LB-517[\s\S]*3.0\] for sequence-classification",
        ("task.class_weights=[0, 0]",): r"LB-517[\s\S]*not all 0",
        ("task.class_weights=[-1, 1]",): r"LB-517[\s\S]*none below 0",
        ("task.doc_stride=64",): r"LB-520: task.doc_stride[\s\S]*omit",
        (*tags, "task.null_threshold=0"): r"LB-520: task.null_threshold",
    }.items():
        with pytest.raises(LitebertError, match=what):
            finetune(configure(*changes), tmp_path / "run", is_quiet=True)
    assert not (tmp_path / "run" / "run.json").exists()
