"""Folders of sentence-transformers: their pooling is the default of `embed`; ours open
there.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import transformers as hf
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import (
    Normalize,
    Pooling,
    Transformer,
)

import litebert
from litebert.config import Pooling as Pooled
from litebert.errors import LitebertError
from litebert.folder import SentenceVectors, read_config
from litebert.folder.vectors import read_sentence_vectors, write_sentence_transformers
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
