"""Whatever transforms a model folder keeps all that it had: opened again by
sentence-transformers and by us, it gives the same vectors.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
import transformers as hf
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.base.modules.dense import Dense
from sentence_transformers.sentence_transformer.modules import (
    Normalize,
    Pooling,
    Transformer,
)
from torch import Tensor

import litebert
from litebert.api.formats import quantize
from litebert.config import AlbertConfig, HeadConfig, Option, TaskConfig
from litebert.errors import LitebertError
from litebert.folder import ModelFolder, SentenceVectors, read_folder, write_folder
from litebert.folder.config import read_head, write_config
from litebert.folder.vectors import DenseLayer
from litebert.interop.huggingface import import_model
from litebert.nn import AlbertForPretraining
from litebert.plugins import TASK_KINDS
from litebert.tasks.kinds.text import SingleLabel
from litebert.tasks.named import with_settings
from litebert.tokenizer import Tokenizer
from litebert.train.checkpoint import average_checkpoints, mean_model
from tests.networks import config_for, random_model

WORDS = ["the", "cat", "sat", "on", "mat", "a", "dog", "##s", "ran", ".", ","]
WORDS += ["un", "##seen", "query", ":", "find", "good"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXTS = ["The cat sat on the mat.", "A dog ran, unseen", "cats", "", "the cat " * 30]
HIDDEN = 32


def sentence_model(
    base: Path,
    folder: Path,
    *,
    pooling: str = "mean",
    normalize: bool = False,
    dense: tuple[int, torch.nn.Module] | None = None,
    max_length: int = 20,
    pools_prompt: bool = True,
    **settings: object,
) -> Path:
    """Save a SentenceTransformer of these modules and settings."""
    encoder = Transformer(str(base), max_seq_length=max_length)
    modules: list[torch.nn.Module] = [
        encoder,
        Pooling(HIDDEN, pooling_mode=pooling, include_prompt=pools_prompt),
    ]
    if dense is not None:
        width, activation = dense
        torch.manual_seed(3)
        modules.append(Dense(HIDDEN, width, activation_function=activation))
    if normalize:
        modules.append(Normalize())
    model = SentenceTransformer(modules=modules, device="cpu", **settings)
    model.save(str(folder))
    return folder


PROMPTS = {"prompts": {"query": "query: ", "passage": "find good "}}
KINDS: dict[str, dict[str, object]] = {
    "mean": {},
    "cls, normalized": {"pooling": "cls", "normalize": True},
    "max": {"pooling": "max"},
    "prompts": {**PROMPTS, "normalize": True},
    "a default prompt": {**PROMPTS, "default_prompt_name": "query"},
    "a prompt that is not pooled": {
        **PROMPTS,
        "default_prompt_name": "passage",
        "pools_prompt": False,
        "pooling": "max",
    },
    "first dimensions": {"truncate_dim": 8, "normalize": True},
    "dense": {"dense": (12, torch.nn.Tanh()), "normalize": True},
    "dense, linear": {"dense": (HIDDEN, torch.nn.Identity()), "pooling": "cls"},
    "dot": {"similarity_fn_name": "dot"},
    "euclidean": {"similarity_fn_name": "euclidean", **PROMPTS},
    "manhattan": {"similarity_fn_name": "manhattan"},
}


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]) + "\n")
    hf.BertTokenizer(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    sizes = {"vocab_size": len(SPECIAL) + len(WORDS), "max_position_embeddings": 48}
    random_model("BertModel", **sizes).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def albert(tmp_path_factory: pytest.TempPathFactory, small_model: Path) -> Path:
    folder = tmp_path_factory.mktemp("albert")
    vocab_size = Tokenizer.load(small_model).vocab_size
    random_model("AlbertModel", vocab_size=vocab_size).save_pretrained(folder)
    hf.AutoTokenizer.from_pretrained(small_model).save_pretrained(folder)
    return folder


def assert_same_vectors(
    folder: Path, expected: SentenceTransformer, atol: float
) -> None:
    """Check a folder as we and as sentence-transformers open it."""
    ours = litebert.load(folder)
    again = SentenceTransformer(str(folder), device="cpu")
    assert again.max_seq_length == expected.max_seq_length
    assert again.prompts == expected.prompts
    assert again.similarity_fn_name == expected.similarity_fn_name
    assert again.truncate_dim == expected.truncate_dim
    vectors = expected.encode(TEXTS)
    for encode in (ours.embed, again.encode):
        np.testing.assert_allclose(encode(TEXTS), vectors, atol=atol)
    for name in expected.prompts:
        np.testing.assert_allclose(
            ours.embed(TEXTS, prompt=name),
            expected.encode(TEXTS, prompt_name=name),
            atol=atol,
        )
    width = min(5, vectors.shape[1])
    for normalize in (True, None):
        np.testing.assert_allclose(
            ours.embed(TEXTS, dimensions=width, normalize=normalize),
            expected.encode(
                TEXTS, truncate_dim=width, normalize_embeddings=bool(normalize)
            ),
            atol=atol,
        )
    scores = expected.similarity(vectors[:2], vectors[2:]).numpy()
    np.testing.assert_allclose(
        ours.similar(TEXTS[:2], TEXTS[2:]), scores, atol=atol * 50
    )
    matches = ours.search(TEXTS[1], TEXTS, top=len(TEXTS))
    ranked = expected.similarity(
        expected.encode_query(TEXTS[1]), expected.encode_document(TEXTS)
    )[0]
    for match in matches:
        assert match.score == pytest.approx(float(ranked[match.number]), abs=atol * 50)


def rewrite(folder: Path, output: Path) -> None:
    write_folder(read_folder(folder), output)


def average(folder: Path, output: Path) -> None:
    write_folder(mean_model([folder, folder]), output)


COMMANDS: dict[str, Callable[[Path, Path], object]] = {
    "import": import_model,
    "rewrite": rewrite,
    "average": average,
}


@pytest.mark.parametrize("family", ["bert", "albert"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_folder_opens_and_keeps_its_vectors_through_every_writer(
    tmp_path: Path, kind: str, family: str, request: pytest.FixtureRequest
) -> None:
    base: Path = request.getfixturevalue(family)
    source = sentence_model(base, tmp_path / "source", **KINDS[kind])  # type: ignore[arg-type]
    expected = SentenceTransformer(str(source), device="cpu")
    assert_same_vectors(source, expected, 1e-5)
    for name, transform in COMMANDS.items():
        transform(source, tmp_path / name)
        assert_same_vectors(tmp_path / name, expected, 2e-5)


@pytest.mark.parametrize("num_labels", [1, 3])
def test_a_cross_encoder_classifies_pairs_before_and_after_every_writer(
    tmp_path: Path, bert: Path, num_labels: int
) -> None:
    theirs = random_model(
        "BertForSequenceClassification",
        vocab_size=len(SPECIAL) + len(WORDS),
        max_position_embeddings=48,
        num_labels=num_labels,
    )
    shutil.copytree(bert, tmp_path / "base")
    theirs.save_pretrained(tmp_path / "base")
    source = tmp_path / "source"
    CrossEncoder(str(tmp_path / "base"), device="cpu").save_pretrained(str(source))
    pairs = [("the cat sat", "on the mat"), ("a dog", "unseen cats ran .")]
    firsts, seconds = zip(*pairs, strict=True)
    expected = CrossEncoder(str(source), device="cpu").predict(pairs)
    shares = torch.from_numpy(expected).softmax(-1).numpy()
    for name, transform in COMMANDS.items():
        transform(source, tmp_path / name)
    for name in ("source", *COMMANDS):
        again = CrossEncoder(str(tmp_path / name), device="cpu")
        np.testing.assert_allclose(again.predict(pairs), expected, atol=1e-5)
        answers = litebert.load(tmp_path / name).classify(firsts, seconds)
        values = np.array([[*answer.values.values()] for answer in answers])
        if num_labels == 1:  # ours is the number itself, theirs its sigmoid
            probabilities = 1 / (1 + np.exp(-values[:, 0]))
            np.testing.assert_allclose(probabilities, expected, atol=1e-5)
        else:
            np.testing.assert_allclose(values, shares, atol=1e-5)


def test_an_eight_bit_copy_makes_vectors_as_the_model_does(
    tmp_path: Path, bert: Path
) -> None:
    source = sentence_model(
        bert, tmp_path / "source", **PROMPTS, normalize=True, truncate_dim=8
    )
    texts = tmp_path / "texts.txt"
    texts.write_text("the cat sat on the mat .\n" * 40)
    quantize(str(source), tmp_path / "q", texts=(texts,))
    model = litebert.load(source)
    copy = litebert.load(tmp_path / "q")
    assert copy.vectors == model.vectors
    assert copy.embed("a cat sat", prompt="query").shape == (8,)
    np.testing.assert_allclose(
        np.linalg.norm(copy.embed(TEXTS, normalize=True), axis=1), 1, atol=1e-5
    )


def test_prompts_and_dimensions_that_a_model_lacks_are_refused(
    tmp_path: Path, bert: Path
) -> None:
    source = sentence_model(bert, tmp_path / "source", **PROMPTS)
    model = litebert.load(source)
    with pytest.raises(litebert.LitebertError, match=r"LB-678(?s:.*)query"):
        model.embed("cats", prompt="qeury")
    for wrong in (33, 0, True, 1.5):
        with pytest.raises(litebert.LitebertError, match=r"LB-679|LB-932"):
            model.embed("cats", dimensions=wrong)  # type: ignore[arg-type]
    # an empty name: no prompt at all
    plain = litebert.load(bert)
    np.testing.assert_allclose(
        model.embed("cats", prompt=""), plain.embed("cats"), atol=1e-6
    )


def test_too_long_minds_the_limit_of_the_folder(tmp_path: Path, bert: Path) -> None:
    source = sentence_model(bert, tmp_path / "source", max_length=6)
    model = litebert.load(source)
    assert model.too_long(["the cat sat on", "the cat sat on the"]) == [1]
    # pairs are not embedded
    assert model.too_long(["the cat sat on the"], ["a dog"]) == []


@pytest.mark.parametrize(
    ("name", "saved", "value"),
    [
        ("hidden_act", "gelu_new", "relu"),
        ("layer_norm_eps", 1e-12, 1e-5),
        ("num_attention_heads", 4, 2),
        ("num_hidden_layers", 3, 2),
    ],
)
def test_settings_that_changed_after_the_weights_were_saved_are_named(
    tmp_path: Path, albert: Path, name: str, saved: object, value: object
) -> None:
    """With another value the same weights compute something else, without an error."""
    model = read_folder(albert)
    write_folder(model, tmp_path)
    assert not read_folder(tmp_path).notes
    table = json.loads((tmp_path / "config.json").read_text())
    assert table[name] == saved
    (tmp_path / "config.json").write_text(json.dumps(table | {name: value}))
    (note,) = read_folder(tmp_path).notes
    assert f"{name} is {value}, was {saved}" in note

    write_folder(model, tmp_path)
    assert not read_folder(tmp_path).notes


# ---- what is trained -----------------------------------------------------------------

QUICK = {
    "train.steps": 2,
    "train.eval_every": 2,
    "train.batch_size": 2,
    "train.precision": "fp32",
}
PRETRAINING = QUICK | {
    "train.save_every": 2,
    "train.eval_sequences": 4,
    "train.loader_workers": 0,
    "objective.max_seq_length": 32,
}
DISTILLATION = PRETRAINING | {
    "model.embedding_size": 16,
    "distil.texts": 4,
    "distil.text_length": 16,
}


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Path:
    """Write a pretrained model that says everything about its vectors."""
    tokenizer = Tokenizer.load(corpus / "tokenizer")
    network = AlbertForPretraining(config_for(tokenizer))
    dense = DenseLayer(torch.randn(12, HIDDEN), torch.randn(12), "Tanh")
    vectors = SentenceVectors(
        pooling="cls",
        normalize=True,
        max_length=30,
        prompts={"query": "find ", "document": ""},
        dimensions=10,
        similarity="dot",
        dense=(dense,),
    )
    folder = tmp_path_factory.mktemp("start") / "model"
    write_folder(ModelFolder(network, tokenizer, vectors), folder)
    return folder


def _finetuned(start: Path, runs: Path) -> Path:
    table = runs / "table.csv"
    rows = [f"the cat sat {number},{number % 2}" for number in range(24)]
    table.write_text("\n".join(["text,label", *rows]) + "\n")
    return litebert.finetune(
        table, model=start, runs=runs, name="tuned", settings=QUICK, quiet=True
    ).folder


def _pretrained(start: Path, runs: Path, corpus: Path) -> Path:
    return litebert.pretrain(
        corpus=corpus,
        start=start,
        runs=runs,
        name="further",
        settings=PRETRAINING,
        quiet=True,
    ).folder


def _distilled(start: Path, runs: Path, corpus: Path) -> Path:
    return litebert.distil(
        start,
        corpus=corpus,
        runs=runs,
        name="student",
        settings=DISTILLATION,
        quiet=True,
    ).folder


def test_a_model_that_is_trained_further_keeps_how_it_makes_vectors(
    tmp_path: Path, start: Path, corpus: Path
) -> None:
    runs = {
        "finetune": _finetuned(start, tmp_path),
        "pretrain": _pretrained(start, tmp_path, corpus),
        "distil": _distilled(start, tmp_path, corpus),
    }
    before = litebert.load(start)
    for name, run in runs.items():
        after = litebert.load(run)
        assert after.vectors == before.vectors, name
        assert len(after.vectors.dense) == 1
        theirs = SentenceTransformer(str(run / "model"), device="cpu")
        texts = ["the cat", "a dog ran to the house"]
        for prompt in ("query", "document"):
            np.testing.assert_allclose(
                after.embed(texts, prompt=prompt),
                theirs.encode(texts, prompt_name=prompt),
                atol=1e-5,
            )
        assert after.embed(texts).shape == (2, 10)
    # checkpoints and their mean are whole models, too
    further = runs["pretrain"]
    (checkpoint,) = (further / "checkpoints").glob("step-*")
    assert litebert.load(checkpoint).vectors == before.vectors
    average_checkpoints(further, tmp_path / "mean")
    assert litebert.load(tmp_path / "mean").vectors == before.vectors


def test_a_student_of_a_model_that_says_nothing_is_served_as_it_was_trained(
    tmp_path: Path, start: Path, corpus: Path
) -> None:
    write_folder(replace(read_folder(start), vectors=None), tmp_path / "teacher")
    student = litebert.load(_distilled(tmp_path / "teacher", tmp_path, corpus))
    assert replace(student.vectors, max_length=None) == SentenceVectors()
    assert (Path(student.source) / "modules.json").is_file()


@dataclass(frozen=True)
class Cautious(SingleLabel):
    """A label that is given only if its probability reaches the caution."""

    problem_type: ClassVar[str] = "cautious"
    caution: float = 0.0


@pytest.fixture
def cautious() -> Iterator[Cautious]:
    TASK_KINDS.add("cautious", Cautious)
    labels = ("no", "yes")
    kind = "sequence-classification"
    yield Cautious(HeadConfig(kind=kind, labels=labels, problem_type="cautious"))
    TASK_KINDS.remove("cautious")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("caution", "much", "task.settings.caution of the kind of task cautious"),
        ("cautoin", 0.9, "did you mean caution"),
        ("class_weights", 1.0, "cautious has no setting of this name"),
    ],
)
def test_settings_that_a_kind_of_task_does_not_take_are_refused_by_its_name(
    cautious: Cautious, name: str, value: Option, said: str
) -> None:
    task = TaskConfig(name="table", settings={name: value})
    with pytest.raises(LitebertError, match=said):
        with_settings(cautious, task)


def test_a_changed_plug_in_that_lacks_a_models_setting_is_one_error(
    cautious: Cautious,
) -> None:
    head = cautious.head.model_copy(update={"settings": {"courage": 1}})
    with pytest.raises(LitebertError, match="with which the model was trained"):
        head.family()


def test_only_a_kind_that_learns_as_its_parent_does_starts_from_a_regression(
    cautious: Cautious,
) -> None:
    class Apart(Cautious):
        def by_example(self, logits: Tensor) -> Tensor:
            return logits[:, :1]

    assert cautious.has_linear_fit()
    assert not Apart.has_linear_fit()


def test_settings_of_a_kind_of_task_go_with_the_model(
    cautious: Cautious, tmp_path: Path
) -> None:
    head = cautious.head
    task = TaskConfig(name="table", settings={"caution": 0.9})
    trained = with_settings(cautious, task)
    assert isinstance(trained, Cautious) and trained.caution == 0.9
    write_config(AlbertConfig(), tmp_path, head=trained.head)
    stored = read_head(tmp_path)
    assert stored == trained.head
    assert stored.family() == trained
    # a head without settings writes none
    write_config(AlbertConfig(), tmp_path, head=head)
    assert "task_settings" not in (tmp_path / "config.json").read_text("utf-8")
