"""Folders of sentence-transformers: their pooling is the default of `embed`; ours open
there.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as hf
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import (
    Normalize,
    Pooling,
    Transformer,
)

import litebert
from litebert.config import AlbertConfig
from litebert.config import Pooling as Pooled
from litebert.errors import LitebertError
from litebert.folder import SentenceVectors, read_config
from litebert.folder.vector_files import (
    read_sentence_vectors,
    write_sentence_transformers,
)
from litebert.interop.huggingface import import_model
from tests.networks import random_model

WORDS = [
    "the",
    "cat",
    "sat",
    "on",
    "mat",
    "a",
    "dog",
    "##s",
    "ran",
    ".",
    ",",
    "un",
    "##seen",
]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXTS = ["The cat sat on the mat.", "A dog ran, unseen", "cats", "", "the cat " * 30]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a folder with a random BERT and its WordPiece tokenizer."""
    folder = tmp_path_factory.mktemp("bert")
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]) + "\n")
    hf.BertTokenizer(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    sizes = {"vocab_size": len(SPECIAL) + len(WORDS), "max_position_embeddings": 48}
    random_model("BertModel", **sizes).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_vectors_equal_those_of_sentence_transformers_in_its_folders_and_in_ours(
    tmp_path: Path, bert: Path, small_model: Path, pooling: Pooled, normalize: bool
) -> None:
    encoder = Transformer(str(bert), max_seq_length=20)
    modules = [
        encoder,
        Pooling(32, pooling_mode=pooling),
        *([Normalize()] if normalize else []),
    ]
    theirs = SentenceTransformer(modules=modules, device="cpu")
    theirs.save(str(tmp_path / "theirs"))
    read = litebert.load(tmp_path / "theirs")
    plain = SentenceVectors(pooling, normalize, max_length=20)
    assert replace(read.vectors, prompts={}) == plain
    expected = theirs.encode(TEXTS)
    np.testing.assert_allclose(read.embed(TEXTS), expected, atol=1e-5)
    # the BERT as an ALBERT, with its vectors
    report = import_model(tmp_path / "theirs", tmp_path / "imported")
    assert report.architecture == "AlbertModel" and not report.unused
    imported = SentenceTransformer(str(tmp_path / "imported"), device="cpu")
    for encode in (litebert.load(tmp_path / "imported").embed, imported.encode):
        np.testing.assert_allclose(encode(TEXTS), expected, atol=1e-5)
    ours = shutil.copytree(small_model, tmp_path / "ours")
    write_sentence_transformers(
        ours,
        SentenceVectors(
            pooling, normalize, prompts={"all": "the mat "}, default_prompt="all"
        ),
        read_config(ours),
    )
    opened = SentenceTransformer(str(ours), device="cpu")
    np.testing.assert_allclose(
        litebert.load(ours).embed(TEXTS), opened.encode(TEXTS), atol=1e-5
    )
    assert opened.max_seq_length == 64


def test_files_before_version_6_and_a_default_prompt_are_read(
    tmp_path: Path, bert: Path
) -> None:
    modules = [Transformer(str(bert)), Pooling(32)]
    prompts = {"query": "the dog "}
    SentenceTransformer(
        modules=modules, prompts=prompts, default_prompt_name="query", device="cpu"
    ).save(str(tmp_path))
    old = {"word_embedding_dimension": 32, "pooling_mode_max_tokens": True}
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(old))
    ours = litebert.load(tmp_path)
    again = SentenceTransformer(str(tmp_path), device="cpu")
    assert ours.vectors.pooling == "max" and ours.vectors.prompt() == "the dog "
    np.testing.assert_allclose(ours.embed(TEXTS), again.encode(TEXTS), atol=1e-5)
    assert not np.allclose(
        ours.embed(TEXTS), ours.embed(TEXTS, pooling="mean"), atol=1e-3
    )
    np.testing.assert_allclose(
        np.linalg.norm(ours.embed(TEXTS, normalize=True), axis=1), 1, atol=1e-5
    )
    settings = json.loads((tmp_path / "sentence_bert_config.json").read_text())
    (tmp_path / "sentence_bert_config.json").write_text(
        json.dumps(settings | {"max_seq_length": 1})
    )
    # there is no room for a piece
    assert litebert.load(tmp_path).vectors.max_length is None
    # a prompt that is read, but not pooled
    (tmp_path / "1_Pooling" / "config.json").write_text(
        json.dumps(old | {"include_prompt": False})
    )
    short = TEXTS[:4]
    ours = litebert.load(tmp_path)
    again = SentenceTransformer(str(tmp_path), device="cpu")
    np.testing.assert_allclose(ours.embed(short), again.encode(short), atol=1e-5)


def test_unsupported_modules_and_poolings_are_refused(
    tmp_path: Path, bert: Path
) -> None:
    with pytest.raises(LitebertError, match=r"LB-674[\s\S]*did you mean mean"):
        litebert.load(bert).embed(["the cat"], pooling="maen")  # type: ignore[arg-type]
    (tmp_path / "p").mkdir()

    def modules(**other: str) -> str:
        paths = {"Transformer": "", "Pooling": "p"} | other
        return json.dumps(
            [
                {"type": f"sentence_transformers.models.{kind}", "path": at}
                for kind, at in paths.items()
            ]
        )

    wrong = [
        modules(Dense="d"),
        modules(Transformer="0_Transformer"),
        modules(Pooling="../p"),
        modules(Pooling="/etc"),
    ]
    cases = [
        (content, "mean")
        for content in (*wrong, "{}", "[{}]", "[1]", "nonsense", "[" * 9999)
    ]
    for listed, pooling in [
        *cases,
        (modules(), "lasttoken"),
        (modules(), ["mean", "cls"]),
    ]:
        (tmp_path / "modules.json").write_text(listed)
        (tmp_path / "p" / "config.json").write_text(
            json.dumps({"pooling_mode": pooling})
        )
        with pytest.raises(LitebertError, match="LB-672"):
            read_sentence_vectors(tmp_path)


# ---- what the files of a folder say, without its encoder -----------------------------

WEIGHT = torch.ones(3, 4)  # (outputs, inputs)
BIAS = torch.ones(3)
LAYER = {"linear.weight": WEIGHT, "linear.bias": BIAS}
TANH = "torch.nn.modules.activation.Tanh"


def write_folder(
    folder: Path,
    *,
    layers: Sequence[dict[str, torch.Tensor]] = (),
    config: Mapping[str, object] | None = None,
    **tables: Mapping[str, object],
) -> Path:
    """Write the files about vectors: dense layers with one `config`, and other tables by
    the names of their files.
    """
    paths = {"Transformer": "", "Pooling": "p"}
    rows = [{"type": f"st.models.{kind}", "path": at} for kind, at in paths.items()]
    for number, tensors in enumerate(layers):
        place = folder / f"d{number}"
        place.mkdir()
        (place / "config.json").write_text(json.dumps(config or {}))
        if tensors:
            save_file(tensors, place / "model.safetensors")
        rows.append({"type": "st.models.Dense", "path": place.name})
    (folder / "modules.json").write_text(json.dumps(rows))
    (folder / "p").mkdir()
    (folder / "p" / "config.json").write_text("{}")
    for name, table in tables.items():
        (folder / f"{name}.json").write_text(json.dumps(table))
    return folder


@pytest.mark.parametrize("tensors", [LAYER, {"linear.weight": WEIGHT}])
def test_a_dense_layer_is_read_with_or_without_a_bias(
    tmp_path: Path, tensors: dict[str, torch.Tensor]
) -> None:
    folder = write_folder(
        tmp_path, layers=[tensors, {"linear.weight": torch.ones(4, 3)}]
    )
    vectors = read_sentence_vectors(folder, hidden_size=4)
    assert vectors is not None
    assert [layer.activation for layer in vectors.dense] == ["Tanh", "Tanh"]
    first, second = vectors.dense
    assert first.weight.equal(WEIGHT) and second.bias is None
    assert (first.bias is not None) == ("linear.bias" in tensors)


@pytest.mark.parametrize(
    ("layers", "config", "said"),
    [
        ([{}], {}, "a dense layer without model.safetensors"),
        ([{"linear.bias": BIAS}], {}, "a dense layer of linear.bias"),
        (
            [{**LAYER, "more": torch.ones(1)}],
            {},
            "a dense layer of linear.bias, linear.weight",
        ),
        ([{**LAYER, "linear.bias": torch.ones(4)}], {}, r"of shape \[3, 4\]"),
        ([{"linear.weight": BIAS}], {}, r"a dense layer of shape \[3\]"),
        ([{"linear.weight": torch.ones(0, 4)}], {}, r"a dense layer of shape \[0, 4\]"),
        ([{"linear.weight": WEIGHT[:, :2].clone()}], {}, "reads 2 of 4 numbers"),
        ([LAYER, LAYER], {}, "reads 4 of 3 numbers"),
        ([LAYER], {"use_residual": True}, "with a residual"),
        ([LAYER], {"module_input_name": "token_embeddings"}, "not on the vectors"),
        ([LAYER], {"module_output_name": "other"}, "not on the vectors"),
        ([LAYER], {"activation_function": "mine.Tanh"}, "layer with mine.Tanh"),
        ([LAYER], {"activation_function": f"{TANH}s"}, f"layer with {TANH}s"),
    ],
)
def test_a_dense_layer_that_cannot_be_computed_is_refused(
    tmp_path: Path,
    layers: Sequence[dict[str, torch.Tensor]],
    config: Mapping[str, object],
    said: str,
) -> None:
    folder = write_folder(tmp_path, layers=layers, config=config)
    with pytest.raises(LitebertError, match=f"LB-672[\\s\\S]*{said}"):
        read_sentence_vectors(folder, hidden_size=4)


@pytest.mark.parametrize(
    ("in_settings", "in_tokenizer", "length"),
    [
        (3, 64, 3),
        (2, 64, None),  # there is no room for a piece
        (None, 64, 64),
        (0, 64, 64),
        (1 << 20, None, 1 << 20),
        ((1 << 20) + 1, None, None),  # nobody chose it
        ("8", None, None),
    ],
)
def test_the_longest_text_is_that_of_the_settings_or_of_the_tokenizer(
    tmp_path: Path, in_settings: object, in_tokenizer: object, length: int | None
) -> None:
    folder = write_folder(
        tmp_path,
        sentence_bert_config={"max_seq_length": in_settings},
        tokenizer_config={"model_max_length": in_tokenizer},
    )
    vectors = read_sentence_vectors(folder)
    assert vectors is not None and vectors.max_length == length


@pytest.mark.parametrize(("max_length", "written"), [(None, 64), (20, 20), (100, 64)])
def test_the_longest_text_that_is_written_has_a_position_for_each_piece(
    tmp_path: Path, max_length: int | None, written: int
) -> None:
    """sentence-transformers cuts texts there; a network fails on longer ones."""
    vectors = SentenceVectors(max_length=max_length)
    config = AlbertConfig(max_position_embeddings=64)
    write_sentence_transformers(tmp_path, vectors, config)
    settings = json.loads((tmp_path / "sentence_bert_config.json").read_text())
    assert settings["max_seq_length"] == written


def test_dimensions_similarity_and_case_are_read_or_refused(tmp_path: Path) -> None:
    prompts = {"truncate_dim": 1, "similarity_fn_name": "maxsim"}
    folder = write_folder(
        tmp_path,
        config_sentence_transformers=prompts,
        tokenizer_config={"do_lower_case": False},
    )
    vectors = read_sentence_vectors(folder)
    assert vectors is not None
    assert (vectors.dimensions, vectors.similarity) == (1, "cosine")
    settings = folder / "sentence_bert_config.json"
    settings.write_text('{"do_lower_case": true}')
    with pytest.raises(LitebertError, match=r"LB-672[\s\S]*keeps capitals"):
        read_sentence_vectors(folder)
    settings.unlink()
    (folder / "config_sentence_transformers.json").write_text('{"truncate_dim": 0}')
    with pytest.raises(LitebertError, match=r"LB-672[\s\S]*truncate_dim"):
        read_sentence_vectors(folder)
