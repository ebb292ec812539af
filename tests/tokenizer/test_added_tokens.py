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
]
# which transformers cannot read
HALF_A_CHARACTER = "the cat \ud800 @USER x"


def write_vocabulary(folder: Path) -> Path:
    path = folder / "vocab.txt"
    path.write_text("\n".join([*SPECIAL, *WORDS]) + "\n")
    return path


@pytest.fixture(params=["wordpiece", "unigram"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, own: Tokenizer) -> Path:
    """Write a folder of transformers whose tokenizer has added tokens."""
    if request.param == "wordpiece":
        reference = hf.BertTokenizer(vocab=str(write_vocabulary(tmp_path)))
    else:
        own.save(tmp_path / "plain")
        reference = hf.AutoTokenizer.from_pretrained(tmp_path / "plain")
    reference.add_tokens(ADDED)
    reference.add_special_tokens({"extra_special_tokens": ["<e1>"]})
    folder = tmp_path / "transformers"
    reference.save_pretrained(folder)
    return folder


# ---- what is read --------------------------------------------------------------------


def assert_agrees_with_transformers(tokenizer: Tokenizer, folder: Path) -> None:
    reference = hf.AutoTokenizer.from_pretrained(folder)
    assert tokenizer.vocab_size == len(reference)
    for text in TEXTS:
        expected = reference(text, add_special_tokens=False)["input_ids"]
        assert tokenizer.encode(text).ids == expected, text


def test_added_tokens_are_split_off_as_transformers_does(folder: Path) -> None:
    assert_agrees_with_transformers(Tokenizer.load(folder), folder)


def test_a_batch_with_added_tokens_has_the_ids_of_single_texts(folder: Path) -> None:
    tokenizer = Tokenizer.load(folder)
    texts = [*TEXTS, HALF_A_CHARACTER]
    single = [tokenizer.encode(text).ids for text in texts]
    assert tokenizer.encode_ids(texts) == single


@pytest.mark.parametrize("text", [*TEXTS, HALF_A_CHARACTER], ids=ascii)
def test_every_piece_has_its_offsets(folder: Path, text: str) -> None:
    encoding = Tokenizer.load(folder).encode(text)
    assert len(encoding.pieces) == len(encoding.ids) == len(encoding.offsets)


def test_an_added_token_has_the_offsets_of_its_text(folder: Path) -> None:
    encoding = Tokenizer.load(folder).encode("the @USER covid <e1>")
    place = encoding.pieces.index("@USER")
    assert encoding.offsets[place] == (4, 9)


def test_decoding_keeps_added_tokens_and_omits_special_ones(folder: Path) -> None:
    tokenizer = Tokenizer.load(folder)
    assert tokenizer.decode(tokenizer.encode("the @USER").ids).endswith(" @USER")
    assert "<e1>" not in tokenizer.decode(tokenizer.encode("the <e1> cat").ids)


def test_an_added_token_is_a_word(folder: Path) -> None:
    """Masking hides whole words, and a teacher reads the text of each piece."""
    tokenizer = Tokenizer.load(folder)
    added = tokenizer.id("@USER")
    assert tokenizer.starts_word[added]
    assert tokenizer.texts[added] == " @USER"
    assert tokenizer.texts[tokenizer.id("<e1>")] == ""  # a special one has no text


def test_added_tokens_change_the_hash(folder: Path, tmp_path: Path) -> None:
    """A corpus of ids without them does not fit."""
    tokenizer = Tokenizer.load(folder)
    tokenizer.save(tmp_path / "plain")
    (tmp_path / "plain" / "tokenizer.json").unlink()
    plain = Tokenizer.load(tmp_path / "plain")
    assert plain.vocab_size < tokenizer.vocab_size
    assert plain.hash != tokenizer.hash


# ---- what is written -----------------------------------------------------------------


def test_added_tokens_are_kept_beside_a_vocabulary_file(
    folder: Path, tmp_path: Path
) -> None:
    tokenizer = Tokenizer.load(folder)
    # with spiece.model or vocab.txt, which has no added tokens
    tokenizer.save(tmp_path / "ours")
    again = Tokenizer.load(tmp_path / "ours")
    assert again.hash == tokenizer.hash
    assert again.pieces == tokenizer.pieces
    assert_agrees_with_transformers(again, tmp_path / "ours")
    reference = hf.AutoTokenizer.from_pretrained(tmp_path / "ours")
    assert "<e1>" in reference.all_special_tokens


# ---- a vocabulary with capitals -------------------------------------------------------


@pytest.fixture
def cased(tmp_path: Path) -> Path:
    """Write a cased BERT's vocabulary: it keeps accents, too."""
    reference = hf.BertTokenizer(
        vocab=str(write_vocabulary(tmp_path)), do_lower_case=False
    )
    reference.add_tokens([AddedToken("Über", normalized=True)])
    folder = tmp_path / "cased"
    reference.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("text", ["Über the cat", "Uber the cat", "über the cat"])
def test_accents_of_added_tokens_count_where_capitals_do(
    cased: Path, tmp_path: Path, text: str
) -> None:
    reference = hf.AutoTokenizer.from_pretrained(cased)
    expected = reference(text, add_special_tokens=False)["input_ids"]
    tokenizer = Tokenizer.load(cased)
    assert tokenizer.encode(text).ids == expected
    tokenizer.save(tmp_path / "ours")
    assert Tokenizer.load(tmp_path / "ours").encode(text).ids == expected


def test_no_letter_loses_a_mark_where_capitals_are_kept(cased: Path) -> None:
    tokenizer = Tokenizer.load(cased)
    assert tokenizer.normalizer.count_dropped("Ça va, Zoë?") == 0


# ---- other files ---------------------------------------------------------------------

NEXT_ID = len(SPECIAL) + len(WORDS)


def test_the_configuration_of_transformers_4_is_read(tmp_path: Path) -> None:
    write_vocabulary(tmp_path)
    token = {"content": "@USER", "lstrip": False, "normalized": True}
    config = {"do_lower_case": True, "added_tokens_decoder": {str(NEXT_ID): token}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert Tokenizer.load(tmp_path).encode("the @user").ids == [5, NEXT_ID]


def test_the_list_of_older_versions_is_read(tmp_path: Path) -> None:
    write_vocabulary(tmp_path)
    (tmp_path / "added_tokens.json").write_text(json.dumps({"@USER": NEXT_ID}))
    assert Tokenizer.load(tmp_path).encode("the @user").ids == [5, NEXT_ID]


@pytest.mark.parametrize(
    "added",
    [
        pytest.param({"a": 99}, id="an id with a gap before it"),
        pytest.param({"a": -1}, id="an id below zero"),
        pytest.param({"a": "x"}, id="no id"),
        pytest.param({"": 16}, id="no text"),
        pytest.param({"cat": 7}, id="an id of another piece"),
        pytest.param({"a": 16, "b": 16}, id="an id twice"),
    ],
)
def test_damaged_added_tokens_are_refused(
    added: dict[str, object], tmp_path: Path
) -> None:
    write_vocabulary(tmp_path)
    (tmp_path / "added_tokens.json").write_text(json.dumps(added))
    with pytest.raises(DamagedError, match="LB-201"):
        Tokenizer.load(tmp_path)
