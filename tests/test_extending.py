"""Plug-ins, each made only from its how-to page, and read by every reader that the page
names.
"""

import html
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click
import numpy as np
import pytest
import torch
import transformers
from click.testing import CliRunner
from safetensors.torch import load_file

import litebert
from litebert import cli
from litebert.cli.answer_file import Answered, AnswerFile
from litebert.config import AlbertConfig
from litebert.errors import LitebertError
from litebert.fast import pack
from litebert.folder import ModelFolder, write_folder
from litebert.folder.card import model_card
from litebert.interop.export.source import open_source
from litebert.interop.export.web import export_web
from litebert.nn import Albert, AlbertForPretraining, Batch
from litebert.plugins import REGISTRIES, load_plugin
from litebert.runs import RunFolder
from tests.conftest import ROOT, blocks, made_by_page
from tests.contract.served import serve
from tests.contract.shell import COMMAND
from tests.networks import SHAPE

QUICK = ("train.steps=3", "train.batch_size=8", "train.eval_every=3", "--quiet")
SMALL = (
    "--preset",
    "tiny",
    "model.hidden_size=32",
    "model.intermediate_size=64",
    "model.num_attention_heads=4",
    "objective.max_seq_length=64",
    "train.loader_workers=0",
)


@pytest.fixture
def page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], Path]]:
    """Return a function that writes a plug-in of a page, by default the first one; its
    folder is the working directory.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    names = list[str]()

    def write(name: str, plugin_name: str = r"\w+") -> Path:
        text = f"docs/extending/{name}.md"
        start = re.compile(rf'"""{plugin_name}\.py: ')
        (code, *_) = [block for block in blocks(Path(text)) if start.match(block)]
        plugin = re.match(r'"""(\w+)\.py: ', code)
        assert plugin is not None
        for recipe in blocks(Path(text), "toml"):
            if recipe.startswith("# "):
                (tmp_path / f"{plugin[1]}.toml").write_text(recipe, "utf-8")
        names.append(plugin[1])
        path = tmp_path / f"{plugin[1]}.py"
        path.write_text(code, "utf-8")
        return path

    yield write
    for name in names:
        sys.modules.pop(name, None)


def forget(plugin: Path) -> None:
    """Undo the loading of a plug-in, as a new process does."""
    sys.modules.pop(plugin.stem, None)
    for registry in REGISTRIES:
        for name in registry.from_plugins():
            registry.remove(name)


def shell(*words: object) -> int:
    return cli.run([str(word) for word in words])


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """Return the error of a command that must fail."""
    capsys.readouterr()
    assert shell(*words) == 1, words
    return capsys.readouterr().err


def kill_after_step_2(run: Path) -> Path:
    """Leave of a run of three steps what there is if it is killed after its second."""
    shutil.rmtree(run / "checkpoints/step-000000003")
    shutil.rmtree(run / "model")
    return run


def assert_resumes_to_equal_bits(*words: object) -> None:
    """Run a command twice, as whole and as cut, of which the second is killed."""
    assert shell(*words, "--name", "whole") == 0
    assert shell(*words, "--name", "cut") == 0
    cut = kill_after_step_2(Path("runs/cut"))
    assert shell(*words, "--name", "cut") == 0
    whole = Path("runs/whole/model/model.safetensors").read_bytes()
    assert (cut / "model/model.safetensors").read_bytes() == whole


# ---- any plug-in ---------------------------------------------------------------------


def test_the_smallest_plug_in_is_recorded_and_named_where_it_is_missing(
    page: Callable[[str], Path], corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin = page("plugins")
    words = ("pretrain", "--corpus", corpus, *SMALL, *QUICK, "optim.name=plain")
    assert shell(*words, "--name", "a", f"--plugin={plugin}") == 0
    run = RunFolder(Path("runs/a"))
    assert run.file.plugins == {"plain": str(plugin)}
    # its model is an ordinary one
    assert "litebert_plugins" not in Path("runs/a/model/config.json").read_text()
    page_words = run.folder.joinpath("report.html").read_text("utf-8")
    assert f"report runs/a --plugin {plugin}" in html.unescape(page_words)
    assert "--plugin plain.py" in model_card(Path("runs/a/model"))
    forget(plugin)
    litebert.load("runs/a")
    commands = (("report", "runs/a"), ("evaluate", "runs/a"), (*words, "--name", "a"))
    for again in commands:
        error = refused(capsys, *again)
        assert "needs the plug-in plain" in error
        assert f"--plugin {plugin}" in error
    error = refused(capsys, *words, "--name", "b")
    assert "there is no optimizer of this name" in error
    assert "one of adamw, lamb, muon" in error


ADDS = "{0}.add({1!r}, {2})\n"
VERB = (
    "VERBS.add({0!r}, Verb(name={1!r}, function={2}, summary='s', answer_type=str,"
    " example={{'texts': ['a']}}))\n"
)
IMPORTS = """
from litebert.inference.verb import Verb
from litebert.optim import AdamW, Lamb
from litebert.plugins import OPTIMIZERS, TASK_KINDS, VERBS
from litebert.tasks.kinds.text import SingleLabel, TextClassification
"""


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("absent.py", None, "LB-110"),
        ("json.py", "", "LB-111"),
        ("broken.py", "1 / 0", "ZeroDivisionError"),
        ("syntax.py", "def", "SyntaxError"),
        ("exits.py", "raise SystemExit(3)", "SystemExit: 3"),
        ("empty.py", "", "adds nothing"),
        ("three.py", ADDS.format("OPTIMIZERS", "three", "3"), "not a MomentOptimizer"),
        ("muon.py", ADDS.format("OPTIMIZERS", "muon", "AdamW"), "the one of litebert"),
        (
            "twice.py",
            ADDS.format("OPTIMIZERS", "twice", "AdamW")
            + ADDS.format("OPTIMIZERS", "twice", "Lamb"),
            "another one, from twice",
        ),
        (
            "bare.py",
            "class Bare(TextClassification): problem_type = 'bare'\n"
            + ADDS.format("TASK_KINDS", "bare", "Bare"),
            "its class lacks commonest, log_values",
        ),
        (
            "same.py",
            "class Same(SingleLabel): pass\n"
            + ADDS.format("TASK_KINDS", "same", "Same"),
            "needs a problem_type of its own, not that of classification",
        ),
        (
            "untyped.py",
            "def shout(model, texts, *, loud=3): return texts\n"
            + VERB.format("shout", "shout", "shout"),
            "the option loud of shout needs a type",
        ),
        (
            "misnamed.py",
            "def shout(model, texts): return texts\n"
            + VERB.format("shout", "shouts", "shout"),
            "calls itself shouts",
        ),
        (
            "yields.py",
            "def tell(model, text): yield text\n" + VERB.format("tell", "tell", "tell"),
            "first parameter must be texts",
        ),
    ],
)
def test_a_plug_in_that_cannot_be_loaded_is_named(
    name: str,
    text: str | None,
    said: str,
    page: Callable[[str], Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    if text is not None:
        Path(name).write_text(IMPORTS + text, "utf-8")
    error = refused(capsys, "sizes", "--plugin", name)
    assert said in error
    assert name in error or "LB-113" in error or "LB-109" in error
    if name != "json.py":
        forget(Path(name))


def test_a_plug_in_is_the_file_that_was_named(page: Callable[[str], Path]) -> None:
    """The working directory, which `python -m litebert` looks in first, has another."""
    Path("better.py").write_text("1 / 0", "utf-8")
    Path("other").mkdir()
    text = page("plugins").read_text("utf-8").replace("plain", "better")
    Path("other/better.py").write_text(text, "utf-8")
    sys.path.insert(0, "")
    load_plugin("other/better.py")
    loaded = sys.modules["better"].__file__
    assert loaded is not None and Path(loaded).samefile("other/better.py")
    forget(Path("better.py"))


@pytest.mark.parametrize(
    "words",
    [
        ("keyword", "A ship sailed."),
        ("finetune", "boolq", "--data", "boolq"),
        ("finetune", "boolq"),
    ],
)
def test_what_a_plug_in_may_add_is_said_where_a_name_is_unknown(
    words: tuple[str, ...],
    page: Callable[[str], Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    if "--data" in words:
        Path("boolq").mkdir()  # the data, not a task of the user's own
    assert shell(*words) in (1, 2)
    error = capsys.readouterr().err
    assert {"keyword", "boolq"} & set(words) & set(re.findall(r"\w+", error))
    assert "--plugin FILE" in error


def test_advice_loads_the_plug_ins_that_were_given(
    page: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    plugin = page("plugins")
    error = refused(capsys, "report", "absent", "--plugin", plugin)
    assert f"next:     litebert runs list --plugin {plugin}\n" in error


def test_a_name_belongs_to_the_module_that_added_it(
    page: Callable[[str], Path],
) -> None:
    load_plugin(str(page("optimizer")))
    module = sys.modules["lion"]
    exec('OPTIMIZERS.add("lion", Lion)', module.__dict__)  # a cell that is run again
    with pytest.raises(LitebertError, match="LB-109"):
        module.OPTIMIZERS.add("lion", litebert.AdamW)
    with pytest.raises(LitebertError, match="LB-109"):
        module.OPTIMIZERS.add("lamb", module.Lion)


# ---- labels on a scale ---------------------------------------------------------------

STARS = "text,stars\n" + "".join(
    f"the cat ran after {n} dogs,{('bad', 'fair', 'good')[n % 3]}\n" for n in range(30)
)
ORDER = 'data.labels=["bad","fair","good"]'


@pytest.fixture
def stars(page: Callable[[str], Path], small_model: Path) -> Path:
    """Train on labels on a scale; return the plug-in, which is loaded."""
    plugin = page("labels")
    Path("stars.csv").write_text(STARS, "utf-8")
    words = ("finetune", "stars.csv", "--problem", "ordinal", ORDER, *QUICK)
    assert shell(*words, "--model", small_model, "--plugin", plugin) == 0
    (following,) = litebert.Run("runs/stars").notes
    assert f"--model runs/stars/model --plugin {plugin}" in following
    return plugin


def test_labels_on_a_scale_are_read_by_every_reader(
    stars: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = litebert.Run("runs/stars")
    assert "distance" in run.result["last"]
    config = json.loads(Path("runs/stars/model/config.json").read_text())
    assert config["litebert_plugins"] == ["ordinal"]
    assert list(config["label2id"]) == ["bad", "fair", "good"]
    model = run.model()
    found = model.classify("the cat ran")
    assert sum(found.values.values()) == pytest.approx(1.0, abs=1e-5)
    explained = model.explain("classify", "the cat ran")
    chance = found.values[found.labels[0]]
    assert explained.score == pytest.approx(np.log(chance), abs=1e-4)
    card = model_card(Path("runs/stars/model"))
    assert "classifies texts" in card
    assert "a softmax of them means nothing" in card
    assert "opens only the encoder" in card
    assert shell("evaluate", "runs/stars") == 0
    assert "ordinal" in Path("runs/stars/run.json").read_text()
    assert "distance" in capsys.readouterr().out
    assert stars.is_file()


def test_other_programs_do_not_answer_labels_on_a_scale(stars: Path) -> None:
    model = Path("runs/stars/model")
    with pytest.raises(ValueError, match="albert-litebert"):
        transformers.AutoModelForSequenceClassification.from_pretrained(model)
    reason = "a softmax of them means nothing"
    for export in (
        lambda: open_source(model),
        lambda: export_web(model, Path("page")),
    ):
        with pytest.raises(LitebertError, match=reason):
            export()
    open_source(model, has_head=False)  # its encoder is an ordinary one
    assert stars.is_file()


def test_a_model_of_labels_on_a_scale_names_its_plug_in(
    stars: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forget(stars)
    for words in (
        ("classify", "a cat", "--model", "runs/stars"),
        ("evaluate", "runs/stars"),
        ("report", "runs/stars"),
        ("serve", "runs/stars", "--port", "0"),
    ):
        assert "needs the plug-in ordinal" in refused(capsys, *words)


def test_labels_that_the_order_lacks_are_named(
    page: Callable[[str], Path], small_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page("labels")
    Path("stars.csv").write_text(STARS, "utf-8")
    words = ("finetune", "stars.csv", "--problem", "classification", *QUICK)
    words = (*words, 'data.labels=["bad","good"]', "--model", small_model)
    assert "labels that data.labels does not list" in refused(capsys, *words)
    words = ("finetune", "stars.csv", "--problem", "ordinals", "--model", small_model)
    assert "--plugin FILE" in refused(capsys, *words)


def test_labels_on_a_scale_need_their_order(
    page: Callable[[str], Path], small_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By name, doubt would come between advice and praise."""
    plugin = page("labels")
    Path("stars.csv").write_text(STARS, "utf-8")
    words = ("--problem", "ordinal", *QUICK, "--plugin", plugin)
    words = (*words, "--model", small_model)
    wrong = refused(capsys, "finetune", "stars.csv", *words)
    assert "ordinal needs the order of the labels" in wrong
    assert """data.labels='["bad", "fair", "good"]'""" in wrong
    numbered = STARS.replace("bad", "1").replace("fair", "2").replace("good", "10")
    Path("numbers.csv").write_text(numbered, "utf-8")
    assert shell("finetune", "numbers.csv", *words) == 0
    config = json.loads(Path("runs/numbers/model/config.json").read_text())
    assert list(config["label2id"]) == ["1", "2", "10"]


def test_preferences_between_two_texts_are_learned_and_do_not_depend_on_their_order(
    page: Callable[..., Path], small_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin = page("labels", "preference")
    lines = ["text,second,label"]
    for number in range(30):
        lines.append(f"the cat sat {number},a dog ran {number},first")
        lines.append(f"a dog ran {number},the cat sat {number},second")
    Path("pairs.csv").write_text("\n".join(lines), "utf-8")
    words = ("finetune", "pairs.csv", "--problem", "preference", *QUICK)
    assert shell(*words, "--model", small_model, "--plugin", plugin) == 0
    model = litebert.load("runs/pairs")
    found = model.classify("the cat sat", "a dog ran")
    turned = model.classify("a dog ran", "the cat sat")
    assert found.values["first"] == pytest.approx(turned.values["second"], abs=1e-5)
    assert sum(found.values.values()) == pytest.approx(1.0, abs=1e-5)
    explained = model.explain("classify", "the cat sat", "a dog ran")
    chance = found.values[explained.answer]
    assert explained.score == pytest.approx(np.log(chance), abs=1e-4)
    assert "two texts" in refused(capsys, "classify", "a cat", "--model", "runs/pairs")
    with pytest.raises(LitebertError, match="compares two scores"):
        open_source(Path("runs/pairs/model"))


# ---- attention, an optimizer, a task -------------------------------------------------


@pytest.fixture
def albert(
    page: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Albert:
    load_plugin(str(page("attention")))
    _, use = blocks(Path("docs/extending/attention.md"))
    names: dict[str, object] = {}
    exec(use, names)
    made = names["albert"]
    assert isinstance(made, Albert)
    return made


def test_the_attention_of_the_page_reads_at_multiples_of_its_own_setting(
    albert: Albert,
) -> None:
    rows = [[2, 8, 9, 11, 3], [2, 8, 9, 11, 17]]
    with torch.no_grad():
        one, other = (albert(Batch.from_lists([ids])) for ids in rows)
        # a change of the last token, at 4, is seen from 0, 1 and 4, with its layers,
        # but after one layer not from 2 and 3
        config = albert.config.model_copy(update={"num_hidden_layers": 1})
        first = Albert(config).eval()
        seen = (first(Batch.from_lists([ids])) for ids in rows)
        differ = [not torch.equal(a, b) for a, b in zip(*seen, strict=True)]
        assert differ == [True, True, False, False, True]
        pack(albert)
        packed = albert(Batch.from_lists([rows[0]]))
        torch.testing.assert_close(packed, one, rtol=0, atol=1e-5)
    assert not torch.equal(one, other)
    albert.train()(Batch.from_lists(rows)).sum().backward()
    assert albert.attention[0].query.weight.grad.isfinite().all()


def test_its_setting_is_saved_and_other_programs_refuse_it(
    albert: Albert, corpus: Path, tmp_path: Path
) -> None:
    tokenizer = litebert.Tokenizer.load(corpus / "tokenizer")
    folder = tmp_path / "model"
    folder.mkdir()
    size = {"vocab_size": tokenizer.vocab_size}
    network = AlbertForPretraining(albert.config.model_copy(update=size))
    write_folder(ModelFolder(network, tokenizer), folder)
    tokenizer.save(folder)
    assert (folder / "model-dilated.safetensors").is_file()
    config = json.loads((folder / "config.json").read_text())
    assert config["dilation"] == 3
    assert config["litebert_plugins"] == ["dilated"]
    # transformers does not know this model_type, and finds no weights by its class
    with pytest.raises(ValueError, match="albert-litebert"):
        transformers.AutoConfig.from_pretrained(folder)
    with pytest.raises(OSError, match=r"model\.safetensors"):
        transformers.AlbertModel.from_pretrained(folder)
    model = litebert.load(folder)
    assert model.network.config.attention_arguments == {"dilation": 3}
    with pytest.raises(LitebertError, match="LB-470"):
        open_source(folder)
    with pytest.raises(LitebertError, match="no setting of this name"):
        AlbertConfig(attention="dilated", attention_settings={"width": 1})
    with pytest.raises(LitebertError, match="cannot have this value"):
        AlbertConfig(attention="dilated", attention_settings={"dilation": "far"})
    forget(tmp_path / "dilated.py")
    with pytest.raises(LitebertError, match="needs the plug-in dilated"):
        litebert.load(folder)


def test_the_optimizer_of_the_page_takes_equal_steps_and_resumes_to_equal_bits(
    page: Callable[[str], Path], corpus: Path
) -> None:
    plugin = page("optimizer")
    load_plugin(str(plugin))
    weight = torch.nn.Parameter(torch.tensor([3.0, -4.0]))
    weight.grad = torch.tensor([0.5, 0.01])
    sys.modules["lion"].Lion([weight], lr=0.1, weight_decay=0.0).step()
    torch.testing.assert_close(weight.detach(), torch.tensor([2.9, -4.1]))
    words = ("pretrain", "--corpus", corpus, *SMALL, *QUICK, "train.save_every=1")
    words = (*words, "optim.name=lion", "--plugin", plugin)
    assert_resumes_to_equal_bits(*words)


def test_the_optimizer_of_the_page_has_a_setting_of_its_own(
    page: Callable[[str], Path], corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("pretrain", "--corpus", corpus, *SMALL, *QUICK, "train.steps=1")
    words = (*words, "--plugin", page("optimizer"), "optim.warmup_steps=0")
    # every average is smaller than this: without decay, no weight moves
    still = ("optim.weight_decay=0", "optim.settings.floor=1e9")
    assert shell(*words, "optim.name=lion", *still, "--name", "still") == 0
    run = RunFolder(Path("runs/still"))
    assert run.settings["optim.settings"] == {"floor": 1e9}
    checkpoint = run.folder / "checkpoints/step-000000001/optimizer.safetensors"
    assert any(tensor.any() for tensor in load_file(checkpoint).values())
    assert shell(*words, "optim.name=lion", "--name", "moves") == 0
    assert weights_of("still") != weights_of("moves")

    wrong = refused(capsys, *words, "optim.name=lion", "optim.settings.flor=1")
    assert "the optimizer lion has no setting of this name" in wrong
    assert "did you mean floor?" in wrong
    wrong = refused(capsys, *words, "optim.name=lion", "optim.settings.floor=low")
    assert "optim.settings.floor of the optimizer lion cannot have this value" in wrong
    wrong = refused(capsys, *words, "optim.name=adamw", "optim.settings.floor=1")
    assert "the optimizer adamw has no setting of this name" in wrong


def weights_of(name: str) -> bytes:
    return Path(f"runs/{name}/model/model.safetensors").read_bytes()


def test_the_head_of_the_page_reads_the_boundaries_of_spans(
    page: Callable[[str], Path],
) -> None:
    load_plugin(str(page("pretraining-head")))
    module = sys.modules["span_boundary"]
    first, last = module.spans(torch.tensor([2, 3, 4, 7, 9, 10]))
    assert first.tolist() == [2, 2, 2, 7, 9, 9]
    assert last.tolist() == [4, 4, 4, 7, 10, 10]
    network = AlbertForPretraining(
        AlbertConfig(**SHAPE, vocab_size=60), heads=("masked_lm", "span_boundary")
    ).eval()
    one = Batch.from_lists([[2, 7, 8, 9, 11, 3]])
    other = Batch.from_lists([[2, 7, 8, 9, 12, 3]])
    masked = torch.tensor([2, 3])
    heads = network(one, masked)
    assert heads["span_boundary"].shape == heads.masked_lm.shape == (2, 60)
    assert not torch.equal(*(network(x, masked)["span_boundary"] for x in (one, other)))


def test_the_head_of_the_page_is_weighted_saved_resumed_and_reported(
    page: Callable[[str], Path], corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin = page("pretraining-head")
    words = ("pretrain", "--corpus", corpus, *SMALL, *QUICK, "train.save_every=1")
    plain = (*words, "--name", "plain")
    assert shell(*plain) == 0
    words = (*words, "objective.heads.span_boundary=0.5", "--plugin", plugin)
    assert_resumes_to_equal_bits(*words)
    run = litebert.Run("runs/whole")
    assert run.settings["objective.heads"] == {
        "masked_lm": 1.0,
        "sentence_order": 1.0,
        "span_boundary": 0.5,
    }
    assert run.evaluations[-1].values["span_boundary_loss"] > 0
    assert "Span-boundary loss" in run.report.read_text("utf-8")
    card = model_card(Path("runs/whole/model"))
    (command,) = [line for line in card.splitlines() if "litebert pretrain" in line]
    (heads,) = [word for word in shlex.split(command) if "objective.heads=" in word]
    written = tomllib.loads(heads)["objective"]["heads"]
    assert written == run.settings["objective.heads"]
    for name in ("whole", "plain"):  # with the plug-in, each has its own heads
        assert litebert.load(f"runs/{name}").verbs == (
            "fill",
            "score",
            "order",
            "embed",
        )
    assert litebert.load("runs/whole").network.heads[-1] == "span_boundary"
    # a continuation says that it drops the head, unless it is asked to keep it
    further = ("pretrain", "--corpus", corpus, "--from", "runs/whole", *QUICK)
    further = (*further, "objective.max_seq_length=64", "train.loader_workers=0")
    capsys.readouterr()
    assert shell(*further, "--name", "dropping") == 0
    assert "objective.heads.span_boundary=1 keeps it" in capsys.readouterr().err
    keeping = (*further, "objective.heads.span_boundary=0.5", "--name", "keeping")
    assert shell(*keeping, "--dry-run") == 0
    plan = capsys.readouterr().out
    assert "span_boundary x 0.5" in plan
    assert shell(*keeping) == 0
    assert "keeps it" not in capsys.readouterr().err
    with pytest.raises(LitebertError, match="span_boundary"):
        open_source(Path("runs/whole/model"))
    open_source(Path("runs/whole/model"), has_head=False)
    assert shell("evaluate", "runs/whole") == 0
    assert "span_boundary_loss" in capsys.readouterr().out
    config = json.loads(Path("runs/whole/model/config.json").read_text())
    assert config["pretraining_heads"][-1] == "span_boundary"
    forget(plugin)
    litebert.load("runs/plain")
    error = refused(capsys, "fill", "Anna [MASK].", "--model", "runs/whole")
    assert "needs the plug-in span_boundary" in error
    assert "needs the plug-in" in refused(capsys, "report", "runs/whole")
    load_plugin(str(plugin))
    Path("stars.csv").write_text(STARS, "utf-8")
    tuning = ("finetune", "stars.csv", "--model", "runs/whole", *QUICK)
    assert shell(*tuning) == 0
    forget(plugin)
    assert RunFolder(Path("runs/stars")).file.plugins == {}
    assert shell("evaluate", "runs/stars") == 0


def test_a_run_without_sentence_order_has_no_such_head(
    page: Callable[[str], Path],
    corpus: Path,
) -> None:
    words = ("pretrain", "--corpus", corpus, *SMALL, *QUICK, "--name", "a")
    assert shell(*words, "objective.heads.sentence_order=0") == 0
    model = litebert.load("runs/a")
    assert model.verbs == ("fill", "score", "embed")
    assert "sentence_order_loss" not in RunFolder(Path("runs/a")).evaluations[-1].values
    assert not any("sop" in name for name in model_card(Path("runs/a/model")).split())


BOOLQ = [
    {"question": f"is {n} a cat", "passage": "the cat sat", "answer": n % 2 == 0}
    for n in range(24)
]


def test_the_task_of_the_page_has_a_recipe_and_a_published_figure(
    page: Callable[[str], Path], small_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin = page("task")
    lines = "".join(json.dumps(row) + "\n" for row in BOOLQ)
    for split in ("train", "dev", "test"):
        Path(f"{split}.jsonl").write_text(lines, "utf-8")
    assert shell("recipes", "list", "--plugin", plugin) == 0
    assert "yes/no questions on passages" in capsys.readouterr().out
    words = ("finetune", "boolq", "--data", ".", "--model", small_model, *QUICK)
    assert shell(*words, "--plugin", plugin) == 0
    run = litebert.Run("runs/boolq")
    assert run.file.origins["task.max_length"] == "recipe boolq"
    assert run.file.plugins == {"boolq": str(plugin)}
    assert "80.4" in run.report.read_text("utf-8")
    assert shell("predict", "runs/boolq", "--data", ".", "--output", "answers") == 0
    answers = Path("answers/BoolQ.jsonl").read_text("utf-8").splitlines()
    assert len(answers) == len(BOOLQ)
    forget(plugin)
    litebert.load("runs/boolq/model").classify("is it", "a cat")  # needs no plug-in
    error = refused(capsys, "evaluate", "runs/boolq", "--data", ".")
    assert "needs the plug-in boolq" in error


# ---- a verb ------------------------------------------------------------------------

SHIP = "A ship sailed into the harbor at night."


def test_the_verb_of_the_page_is_in_the_shell_and_in_files(
    page: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    plugin = page("verb")
    assert shell("--help", "--plugin", plugin) == 0
    assert "find the words that say most about a text" in capsys.readouterr().out
    assert shell("keywords", "--help") == 0
    shown = capsys.readouterr().out
    assert "Find the words of each text" in shown
    assert f'litebert keywords "{SHIP}"' in shown
    assert "--top INTEGER RANGE" in shown
    assert shell("keywords", SHIP, "--top", 2, "--json") == 0
    (answer,) = json.loads(capsys.readouterr().out)
    assert len(answer["words"]) == len(answer["similarities"]) == 2
    assert shell("help", "--schema", "keywords") == 0
    schema = json.loads(capsys.readouterr().out)
    assert set(schema["$defs"]["Keywords"]["properties"]) == {"words", "similarities"}
    Path("t.csv").write_text(f"body\n{SHIP}\n \n", "utf-8")
    words = ("keywords", "t.csv", "--column", "body", "--output", "a.jsonl", "--quiet")
    assert shell(*words, "--top", 2) == 0
    first, second = Path("a.jsonl").read_text("utf-8").splitlines()
    assert json.loads(first)["answer"]["words"] == answer["words"]
    assert "has no text" in json.loads(second)["error"]
    forget(plugin)
    assert shell("keywords", SHIP) == 2
    assert "keywords" in capsys.readouterr().err


def test_the_verb_of_the_page_is_a_method_and_a_route_with_a_schema_and_a_form(
    page: Callable[..., Path],
) -> None:
    plugin = page("verb")
    stream = page("verb", "drift")
    load_plugin(str(plugin))
    load_plugin(str(stream))
    model = litebert.load()
    assert model.verbs == ("fill", "score", "order", "embed", "keywords", "drift")
    (found,) = model.keywords([SHIP], top=2)
    assert len(found.to_pandas()) == 1
    with pytest.raises(AttributeError, match="keyword"):
        model.keyword([SHIP])
    with serve("--plugin", plugin, "--plugin", stream) as server:
        server.wait_for("is ready")
        answer = server.ask("/v1/keywords", {"texts": [SHIP], "top": 2}).json
        assert answer["result"][0]["words"] == list(found.words)
        refused = server.ask("/v1/keywords", {"texts": [SHIP], "top": 51})
        assert refused.status == 422
        drifts = server.ask("/v1/drift", {"texts": [SHIP, SHIP]}).json["result"]
        assert drifts[0] == {"nearness": None}
        assert drifts[1]["nearness"] == pytest.approx(1.0, abs=1e-5)
        route = server.ask("/openapi.json").json["paths"]["/v1/keywords"]["post"]
        assert route["description"].startswith("Find the words of each text")
        form = server.ask("/page/verbs.json").json["keywords"]
        assert form["title"] == "Keywords"
        assert form["examples"] == [{"texts": SHIP}]


NODE = shutil.which("node")
SHOW = """
class Node {
  constructor(name) { this.name = name; this.inside = []; }
  setAttribute() {}
  addEventListener() {}
  append(...children) { this.inside.push(...children); }
  get text() { return this.inside.map((one) => one.text ?? String(one)).join(" "); }
}
globalThis.document = { createElement: (name) => new Node(name) };
const { views } = await import("./views.js");
const [forms, entered, answers] = JSON.parse(process.argv[2]);
const view = views(forms).keywords;
console.log(JSON.stringify({
  calls: view.calls(entered), shown: view.show([answers], entered).map((node) => node.text),
}));
"""


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_the_playground_asks_and_shows_the_verb_of_the_page(
    page: Callable[..., Path], tmp_path: Path
) -> None:
    from litebert.serve.routes import forms

    load_plugin(str(page("verb")))
    for script in (ROOT / "src/litebert/serve/page").glob("*.js"):
        text = script.read_text("utf-8").replace('"/page/', '"./')
        (tmp_path / script.name).write_text(text, "utf-8")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "show.js").write_text(SHOW)
    answers = [{"words": ["ship", "night"], "similarities": [0.512345, 0.25]}]
    given = json.dumps([forms(), {"texts": f"{SHIP}\n\n"}, answers])
    done = subprocess.run(
        [str(NODE), "show.js", given], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["calls"] == [["keywords", {"texts": [SHIP]}]]
    (shown,) = found["shown"]
    assert shown.startswith(SHIP)
    assert '["ship","night"]' in shown


def test_the_stream_of_the_page_answers_each_line_before_it_waits_for_the_next(
    page: Callable[..., Path],
) -> None:
    plugin = page("verb", "drift")
    words = [*COMMAND, "drift", "-", "--json", "--quiet", "--plugin", str(plugin)]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        nearness = list[float | None]()
        for text in (SHIP, SHIP, "Nothing else."):
            process.stdin.write(f"{text}\n")
            answer = json.loads(process.stdout.readline())
            nearness.append(answer["answer"]["nearness"])
        process.stdin.close()
        assert process.wait(60) == 0
    assert nearness[0] is None
    assert nearness[1] == pytest.approx(1.0, abs=1e-5)
    assert nearness[2] < 0.99


def test_a_stream_in_python_reads_texts_and_checks_its_options(
    page: Callable[..., Path],
) -> None:
    load_plugin(str(page("verb", "drift")))
    model = litebert.load()
    answers = model.drift(iter([SHIP, SHIP]), memory=0.5)
    assert next(answers) == {"nearness": None}
    assert next(answers)["nearness"] == pytest.approx(1.0, abs=1e-5)
    with pytest.raises(LitebertError, match=r"(?s)one text.*model.drift\(\['abc'\]\)"):
        model.drift("abc")
    with pytest.raises(LitebertError, match="less than or equal to 1"):
        model.drift([SHIP], memory=2)
    with pytest.raises(TypeError, match="speed"):
        model.drift([SHIP], speed=2)


def test_an_output_of_a_stream_is_continued_with_what_was_read_before(
    page: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    load_plugin(str(page("verb", "drift")))
    texts = ["It rains.", "It is wet.", "", "Shares fell.", "It rains again."]
    Path("t.csv").write_text("text\n" + "\n".join(f'"{t}"' for t in texts), "utf-8")
    words = ("drift", "t.csv", "--quiet", "--output")
    assert shell(*words, "whole.jsonl") == 0
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, num_rows=2)
        with pytest.raises(RuntimeError, match="stopped"):
            shell(*words, "cut.jsonl")
    assert shell(*words, "cut.jsonl") == 0
    assert "resuming after 2 rows" in capsys.readouterr().err
    whole = Path("whole.jsonl").read_text("utf-8")
    assert Path("cut.jsonl").read_text("utf-8") == whole
    assert len(whole.splitlines()) == len(texts)


def stop_after(patch: pytest.MonkeyPatch, num_rows: int) -> None:
    """Let writing answers fail after some rows, as if the process were killed."""
    write = AnswerFile.write
    written = list[int]()

    def write_or_stop(file: AnswerFile, chunk: Sequence[Answered]) -> None:
        if len(written) == num_rows:
            raise RuntimeError("stopped")
        written.append(len(chunk))
        write(file, chunk)

    patch.setattr(AnswerFile, "write", write_or_stop)


# ---- a command, a rival --------------------------------------------------------------


def test_the_command_of_the_page_has_help_checks_and_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text.txt").write_text("one two three-and-a-half")
    monkeypatch.chdir(tmp_path)
    command = made_by_page("command", tmp_path, monkeypatch, "words")["command"]
    assert isinstance(command, click.Command)

    def call(*words: str) -> str:
        return CliRunner().invoke(command, words).output

    assert call("text.txt") == "3 words\n"
    assert json.loads(call("text.txt", "--longest", "3", "--json")) == {"number": 2}
    assert "Letters of the longest word that counts." in call("--help")
    assert "litebert words my-text.txt --longest 12 --json" in call("--help")
    assert "x>=1" in call("text.txt", "--longest", "0") and "FILE" in call()


def test_the_rival_of_the_page_gives_the_same_states_as_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.speed.rivals import RIVALS, load, names
    from benchmarks.texts import Texts

    monkeypatch.setattr("benchmarks.speed.rivals.RIVALS", RIVALS | {})
    made_by_page("rival", tmp_path, monkeypatch)
    write_folder(
        ModelFolder(AlbertForPretraining(AlbertConfig(**SHAPE, vocab_size=60))),
        tmp_path / "model",
    )
    texts = Texts(([2, 7, 8, 3], [2, 9, 3]), ([0] * 4, [0] * 3))
    assert "plain fp32" in names()
    states = []
    for name in ("plain fp32", "litebert fp32"):
        rival = load(name, tmp_path)
        states.append(rival.states(rival.ready(texts)().detach(), texts))
    np.testing.assert_allclose(states[0], states[1], rtol=0, atol=1e-5)
