"""Fine-tuning with a head after every step: all of them learn, resume, and lie in the folder."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file
from torch.nn import functional as F
from transformers import AlbertForSequenceClassification

import litebert
from litebert.cli import cli
from litebert.config import AlbertConfig, FinetuneConfig, HeadConfig, Resolved, resolve, settings_from_words
from litebert.errors import DamagedError, LitebertError
from litebert.fast import AlbertWithExits
from litebert.fast.exits import logits_by_step
from litebert.files import Json, hash_file
from litebert.folder import load_model, save_model, start_from
from litebert.inference.finetuned import Finetuned, with_patience
from litebert.nn import AlbertForPretraining, AlbertForTask
from litebert.runs import read_metrics
from litebert.tasks.kinds.family import joined, targets_of
from litebert.tokenizer import Tokenizer, train_tokenizer, write_tokenizer
from litebert.train.finetune import finetune, plan_finetuning

STEPS = 3
PEOPLE = ("Anna", "Bert", "Clara", "David", "Emma", "Felix")
VERBS = ("liked", "hated", "loved", "left", "praised", "cursed")
Configure = Callable[..., Resolved[FinetuneConfig]]


class StopAt:
    """Ends the process that trains, as a kill would, when a row of this step is written."""

    def __init__(self, step: int) -> None:
        self.step = step

    def row(self, row: dict[str, Json]) -> None:
        if row["step"] == self.step:
            raise KeyboardInterrupt


def _rows(number: int, first: int = 0) -> str:
    lines = ["text,verdict"]
    for index in range(first, first + number):
        who, other = PEOPLE[index % 6], PEOPLE[index // 6 % 6]
        label = ("good", "bad")[index % 2]
        lines.append(f'"{who} {VERBS[index % 6]} the film, said {other}.",{label}')
    return "\n".join(lines) + "\n"


@pytest.fixture
def configure(tmp_path: Path) -> Configure:
    """Return a function that makes the configuration of a run of seconds, with changes."""
    start = tmp_path / "start"
    start.mkdir()
    write_tokenizer(start, train_tokenizer(_rows(96).splitlines(), vocab_size=40))
    config = AlbertConfig(
        vocab_size=Tokenizer.load(start).vocab_size,
        embedding_size=16,
        hidden_size=32,
        num_hidden_layers=STEPS,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=40,
        initializer_range=0.2,
    )
    save_model(AlbertForPretraining(config, generator=torch.Generator().manual_seed(3)), start)
    for name, first in (("train", 0), ("dev", 200)):
        (tmp_path / f"{name}.csv").write_text(_rows(96 - first // 4, first), encoding="utf-8")
    words = [
        "task.name=table",
        f"data.train={tmp_path / 'train.csv'}",
        f"data.dev={tmp_path / 'dev.csv'}",
        f"model.start={start}",
        "model.hidden_dropout_prob=0.1",
        "optim.learning_rate=0.003",
        "train.steps=60",
        "train.batch_size=16",
        "train.save_every=4",
        "train.log_every=4",
        "train.exits=true",
    ]
    return lambda *changes: resolve(FinetuneConfig, settings_from_words([*words, *changes]))


@torch.no_grad()
def _losses(model: Finetuned, data: Path) -> list[float]:
    family = model.dataset.family
    examples = model.dataset.read(data, "dev")
    features = family.features(examples, model.tokenizer, max_length=40, training=True)
    targets = targets_of(features)
    by_step = logits_by_step(model.network, joined(features))
    return [float(F.cross_entropy(logits, targets)) for logits in by_step]


def _state(run: Path) -> dict[str, object]:
    last = sorted((run / "checkpoints").iterdir())[-1]
    files = [last / "model.safetensors", last / "optimizer.safetensors"]
    files += [run / kept / "model.safetensors" for kept in ("model", "best")]
    rows = [{name: value for name, value in row.items() if name != "tokens_per_second"} for row in read_metrics(run)]
    return {"rows": rows, "files": [hash_file(file) for file in files]}


def test_every_head_learns_and_fewer_steps_answer_as_well(tmp_path: Path, configure: Configure) -> None:
    finetune(configure("train.steps=1"), tmp_path / "begun", is_quiet=True)
    finetune(configure(), tmp_path / "run", is_quiet=True)
    data = tmp_path / "train.csv"
    before = _losses(Finetuned.open(tmp_path / "begun"), data)
    after = _losses(Finetuned.open(tmp_path / "run"), data)
    assert len(after) == STEPS
    assert all(late < 0.5 * early for late, early in zip(after, before, strict=True))
    model = Finetuned.open(tmp_path / "run")
    examples = model.dataset.read(data, "dev")
    for depth in range(1, STEPS + 1):
        shallow = Finetuned.open(tmp_path / "run", depth=depth)
        found = shallow.dataset.family.measures(examples, shallow.answers(examples))
        assert found["accuracy"] == 1.0
    (patient,) = with_patience([model], 1)
    assert [a.best for a in patient.answers(examples)] == [a.best for a in model.answers(examples)]
    evaluated = CliRunner().invoke(
        cli, ["evaluate", str(tmp_path / "run"), "--depth", "2", "--patience", "1", "--json"]
    )
    assert json.loads(evaluated.stdout)["dev"]["accuracy"] == 1.0
    assert litebert.evaluate(tmp_path / "run", quiet=True).doubts == ()
    begun = litebert.evaluate(tmp_path / "begun", quiet=True)
    (accuracy,), (commonest,) = (
        [values["accuracy"] for values in found.values()] for found in (begun.measures, begun.baseline)
    )
    assert 0 < commonest < 1
    assert f"{accuracy:.4f}  (commonest label {commonest:.4f})" in str(begun)
    assert bool(begun.doubts) == (accuracy <= commonest)
    plain = ["evaluate", str(tmp_path / "plain"), "--patience", "1"]
    finetune(configure("train.steps=1", "train.exits=false"), tmp_path / "plain", is_quiet=True)
    assert str(CliRunner().invoke(cli, plain).exception).startswith("LB-454")


def test_a_run_with_exits_that_was_cut_off_ends_as_one_that_was_not(tmp_path: Path, configure: Configure) -> None:
    finetune(configure(), tmp_path / "whole", is_quiet=True)
    for step in (20, 40):
        with pytest.raises(KeyboardInterrupt):
            finetune(configure(), tmp_path / "cut", is_quiet=True, listeners=(StopAt(step),))
    finetune(configure(), tmp_path / "cut", is_quiet=True)
    assert _state(tmp_path / "cut") == _state(tmp_path / "whole")


def test_exits_come_back_from_the_folder_and_transformers_reads_the_last_head(
    tmp_path: Path, configure: Configure
) -> None:
    finetune(configure("train.steps=2"), tmp_path / "run", is_quiet=True)
    folder = tmp_path / "run" / "model"
    network = load_model(folder).network
    assert isinstance(network, AlbertForTask)
    tensors = load_file(folder / "model.safetensors")
    inner = {f"exits.{step}.{kind}" for step in range(STEPS - 1) for kind in ("weight", "bias")}
    assert {name for name in tensors if name.startswith("exits.")} == inner
    again = tmp_path / "again"
    save_model(network, again)
    assert hash_file(again / "model.safetensors") == hash_file(folder / "model.safetensors")
    theirs, report = AlbertForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    assert set(report["unexpected_keys"]) == inner
    assert not report["missing_keys"]
    model = litebert.load(folder)
    encoding = model.tokenizer.encode("Anna liked the film.", frame=True)
    with torch.no_grad():
        logits = theirs.eval()(torch.tensor([encoding.ids])).logits[0]
    (found,) = model.classify(["Anna liked the film."])
    assert list(found.values.values()) == pytest.approx(logits.softmax(-1).tolist(), abs=1e-5)


def test_a_folder_that_lacks_one_exit_is_damaged(tmp_path: Path, configure: Configure) -> None:
    from safetensors.torch import save_file

    finetune(configure("train.steps=1"), tmp_path / "run", is_quiet=True)
    file = tmp_path / "run" / "model" / "model.safetensors"
    tensors = load_file(file)
    del tensors["exits.1.bias"]
    save_file(tensors, file)
    with pytest.raises(DamagedError, match=r"LB-660[\s\S]*exits.1.bias"):
        load_model(file.parent)


def test_training_that_starts_from_exits_takes_them_where_labels_are_the_same(
    tmp_path: Path, configure: Configure
) -> None:
    finetune(configure("train.steps=1"), tmp_path / "run", is_quiet=True)
    folder = tmp_path / "run" / "model"
    trained = load_model(folder).network
    assert isinstance(trained, AlbertWithExits)
    same = AlbertWithExits(trained.config, trained.head_config)
    assert start_from(same, folder).fresh == ()
    assert torch.equal(same.exits[1].dense.weight, trained.exits[1].dense.weight)
    plain = AlbertForTask(trained.config, trained.head_config)
    assert all(name.startswith("exits.") for name in start_from(plain, folder).dropped)
    other = HeadConfig(kind="sequence-classification", labels=("a", "b", "c"))
    fresh = start_from(AlbertWithExits(trained.config, other), folder).fresh
    assert {name.split(".")[0] for name in fresh} == {"head", "exits"}


def test_other_tasks_have_no_exits(tmp_path: Path, configure: Configure) -> None:
    (tmp_path / "tags.conll").write_text("Anna B-PER\nlaughs O\n\n" * 20, encoding="utf-8")
    changes = (f"data.train={tmp_path / 'tags.conll'}", f"data.dev={tmp_path / 'tags.conll'}")
    with pytest.raises(LitebertError, match=r"LB-518[\s\S]*token-classification"):
        finetune(configure(*changes), tmp_path / "run", is_quiet=True)
    assert not (tmp_path / "run" / "run.json").exists()


def test_the_plan_counts_every_head(tmp_path: Path, configure: Configure) -> None:
    plans = [plan_finetuning(configure(f"train.exits={exits}"), tmp_path / "run") for exits in ("true", "false")]
    more = plans[0].needs.num_parameters - plans[1].needs.num_parameters
    assert more == (STEPS - 1) * (2 * 32 + 2)
