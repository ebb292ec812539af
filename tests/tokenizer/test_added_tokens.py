"""Tokens that were added to a vocabulary: read as transformers defines them, kept by
whatever writes the tokenizer.
"""

import json
from pathlib import Path

import pytest
import transformers as hf
from tokenizers import AddedToken

from litebert.errors import DamagedError
from litebert.tokenizer import Tokenizer

WORDS = ["the", "cat", "u", "##s", "##e", "##r", "@", "hello", "there", "user", "x"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ADDED = [
    AddedToken("@USER", normalized=True),
    AddedToken("@USERS", normalized=True),
    AddedToken("[E]", normalized=False, single_word=True),
    AddedToken("covid", normalized=True, lstrip=True),
    AddedToken("<url>", normalized=False, rstrip=True),
    AddedToken("Über cat", normalized=True, single_word=True),
    AddedToken("hello", normalized=True),  # a piece of the vocabulary
]
TEXTS = [
    "the @USER covid cat hello there",
    "x@user  covid.covid the",
    "[E]x [E] x[E] [E]",
    "<url>  the <url><url> x<URL>",
    "the @USERS @Users@userx",
    "über  cat über cats ÜBER CAT uber cat",
    "<e1>hello<e1> the",
    "",
    " ",
    "@USER",
    "the cat \ud800 @USER x",
]


def _add(tokenizer: hf.PreTrainedTokenizerBase) -> None:
    tokenizer.add_tokens(ADDED)
    tokenizer.add_special_tokens({"extra_special_tokens": ["<e1>"]})


@pytest.fixture(params=["wordpiece", "unigram"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, own: Tokenizer) -> Path:
    """Write a folder of transformers whose tokenizer has added tokens."""
    if request.param == "wordpiece":
        vocabulary = tmp_path / "words.txt"
        vocabulary.write_text("\n".join([*SPECIAL, *WORDS]) + "\n")
        theirs = hf.BertTokenizer(vocab=str(vocabulary))
    else:
        own.save(tmp_path / "plain")
        theirs = hf.AutoTokenizer.from_pretrained(tmp_path / "plain")
    _add(theirs)
    theirs.save_pretrained(tmp_path / "theirs")
    return tmp_path / "theirs"


def _agree(tokenizer: Tokenizer, folder: Path) -> None:
    theirs = hf.AutoTokenizer.from_pretrained(folder)
    texts = [text for text in TEXTS if "\ud800" not in text]
    for text in texts:
        wanted = theirs(text, add_special_tokens=False)["input_ids"]
        assert tokenizer.encode(text).ids == wanted, text
    assert tokenizer.encode_ids(TEXTS) == [tokenizer.encode(x).ids for x in TEXTS]
    assert tokenizer.vocab_size == len(theirs)
    for text in TEXTS:
        encoding = tokenizer.encode(text)
        assert len(encoding.pieces) == len(encoding.ids) == len(encoding.offsets)
    marked = tokenizer.encode("the @USER covid <e1>")
    spans = dict(zip(marked.pieces, marked.offsets, strict=True))
    assert spans["@USER"] == (4, 9)


def test_added_tokens_are_split_off_as_transformers_does(folder: Path) -> None:
    tokenizer = Tokenizer.load(folder)
    _agree(tokenizer, folder)
    assert "<e1>" not in tokenizer.decode(tokenizer.encode("the <e1> cat").ids)
    assert tokenizer.decode(tokenizer.encode("the @USER").ids).endswith(" @USER")


def test_added_tokens_are_kept_beside_a_vocabulary_file_and_written_again(
    folder: Path, tmp_path: Path
) -> None:
    tokenizer = Tokenizer.load(folder)
    # now with spiece.model or vocab.txt, which has no added tokens
    tokenizer.save(tmp_path / "ours")
    again = Tokenizer.load(tmp_path / "ours")
    assert again.hash == tokenizer.hash and again.pieces == tokenizer.pieces
    _agree(again, tmp_path / "ours")


@pytest.mark.parametrize("version", ["added_tokens_decoder", "added_tokens.json"])
def test_the_files_of_transformers_4_are_read(tmp_path: Path, version: str) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]) + "\n")
    number = len(SPECIAL) + len(WORDS)
    if version == "added_tokens.json":
        (tmp_path / version).write_text(json.dumps({"@USER": number}))
    else:
        entry = {"content": "@USER", "lstrip": False, "normalized": True}
        (tmp_path / "tokenizer_config.json").write_text(
            json.dumps({"do_lower_case": True, version: {str(number): entry}})
        )
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.encode("the @user").ids == [5, number]


def test_damaged_added_tokens_are_refused(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]) + "\n")
    wrong = [{"a": 99}, {"a": -1}, {"a": "x"}, {"": 16}, {"cat": 7}, {"a": 16, "b": 16}]
    for added in wrong:
        (tmp_path / "added_tokens.json").write_text(json.dumps(added))
        with pytest.raises(DamagedError, match="LB-201"):
            Tokenizer.load(tmp_path)
