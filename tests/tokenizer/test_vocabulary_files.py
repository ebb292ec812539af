"""Vocabulary files: trained, found, saved; harmful ones are refused before native code,
mutations crash nothing.
"""

import math
import re
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from litebert import files, rng
from litebert.errors import DamagedError, LitebertError
from litebert.tokenizer import Tokenizer, model_file, train_tokenizer, training
from litebert.tokenizer.model_file import (
    MAX_MODEL_BYTES,
    check_charsmap,
    read_model,
)
from tests.memory import run_in_child


def test_a_run_its_folder_and_its_file_load_alike_with_their_settings(
    own: Tokenizer, tmp_path: Path
) -> None:
    folder = tmp_path / "run" / "model"
    own.save(folder, max_length=128)
    config = folder / "tokenizer_config.json"
    assert files.read_json(config, command="")["model_max_length"] == 128
    assert {
        Tokenizer.load(path).hash
        for path in (folder, str(folder / "spiece.model"), folder.parent)
    } == {own.hash}
    for case in (True, False):
        files.write_json(config, {"do_lower_case": case, "x": None})
        for path in (folder, folder / "spiece.model"):
            tokenizer = Tokenizer.load(path)
            assert (tokenizer.unk_id in tokenizer.encode("Jürgen").ids) is not case
    files.write_json(config, {"do_lower_case": "yes"})
    with pytest.raises(LitebertError, match=r"LB-214.*\n.*yes\n.*true or false"):
        Tokenizer.load(folder)


def test_a_path_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with open(tmp_path / "h.model", "wb") as file:
        file.truncate(MAX_MODEL_BYTES + 1)
    for name, code in {
        "": 213,
        "missing": 213,
        "tokenizer.json": 213,
        "spiece.model": "004",
        "h.model": "004",
    }.items():
        with pytest.raises(LitebertError, match=f"LB-{code}"):
            Tokenizer.load(tmp_path / name)


def piece(text: str = "a", **fields: float) -> bytes:
    """Return a sentencepiece model of one piece; appended to another, it adds its
    piece.
    """
    return ModelProto(
        pieces=[ModelProto.SentencePiece(piece=text, **fields)]
    ).SerializeToString()


DAMAGE = {
    "Error parsing": b"\x0a\xff\xff\xff\xff\x7f",
    "Error parsing ": b"\xff",
    "impossible text of 0": b"\x0a\x05\x0d1234",
    "is not UTF-8": b"\x0a\x03\x0a\x01\xff",
    "impossible text of 0 ": piece(""),
    "impossible text of 3": piece("x\0y"),
    "impossible text of 8": piece("x" * 8192),
    "score inf": piece("x", score=math.inf),
    "score nan": piece("x", score=math.nan),
    "of the type 6": piece("x", type=6),
    "9 pieces, 8 distinct": piece("a"),
    "2 for the unknown": piece("x", type=2),
    "is cut": b"\x2a\x0c\x12\x0a1234567890",
    "beyond": piece("") * 460_000,
    "beyond ": b"\0" * (MAX_MODEL_BYTES + 1),
}


def test_damage_and_models_of_another_kind_are_refused_by_name(
    make_model: Callable[[dict[str, float]], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = make_model({"▁": -1.0, "a": -2.0, "▁ab": -3.0})
    for words, data in {
        "": small[:-1],
        **{words: small + end for words, end in DAMAGE.items()},
    }.items():
        with pytest.raises(
            DamagedError, match=f"LB-201: the file is damaged(?s:.*){words.strip()}"
        ):
            read_model(data, "the file")
    with pytest.raises(LitebertError, match=r"LB-208.*\n.*not a unigram model"):
        read_model(small.replace(b"\x18\x01\x20\x08", b"\x18\x02\x20\x08"), "the file")
    with pytest.raises(LitebertError, match=r"LB-211.*\n.*without <pad>, \[CLS\]"):
        Tokenizer.from_model(piece("<unk>", type=2))
    monkeypatch.setattr(model_file, "MAX_PIECES", 7)
    with pytest.raises(DamagedError, match="more than 7 pieces"):
        read_model(small, "the file")


def test_damaged_wordpieces_are_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "vocab.txt"
    whole = b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nwant\n"
    damages = {
        b"\xff\xfe": "LB-201.*\n.*utf-8",
        b"x" * 1025 + b"\n" + whole: "longest of 1,025",
    }
    for data, words in {
        **damages,
        whole + b"want\n": "'want' is there twice",
        b"want\n": "LB-211",
    }.items():
        files.write_bytes(path, data)
        with pytest.raises(LitebertError, match=words):
            Tokenizer.load(path)
    files.write_bytes(path, whole)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(
        LitebertError, match=r"(?s)LB-305.*pip install 'litebert\[wordpiece\]'"
    ):
        Tokenizer.load(path)


def test_real_character_maps_are_sound_and_ruined_ones_are_not(
    own_model: bytes,
) -> None:
    charsmap = read_model(own_model, "own").charsmap
    trie_size = int.from_bytes(charsmap[:4], "little")
    assert len(charsmap) > 200_000
    header = charsmap[:4]
    trie = charsmap[4 : 4 + trie_size]
    texts = charsmap[4 + trie_size :]
    faults = {
        "of 2 bytes": b"12",
        "of 100 bytes": charsmap[:100],
        "is cut": charsmap[:-1],
        "utf-8": charsmap[:-2] + b"\xff\0",
        "should have": struct.pack("<I", len(charsmap)) + trie + texts,
        "out of the trie": header + struct.pack("<I", 0x7FFFF << 10) + trie[4:] + texts,
        "leads to no replacement": header + trie + b"\0",
        "inside a character": header + trie + "é".encode() * 40_000 + b"\0",
        "no replacement": header + b"\0\x01\0\0" * (trie_size // 4) + texts,
    }
    for words, data in faults.items():
        with pytest.raises(ValueError, match=words):
            check_charsmap(data)
    ruined = bytearray(own_model)
    # turns an inner unit into a leaf that nothing leads to
    ruined[own_model.index(charsmap) + 19] |= 0x80
    with pytest.raises(DamagedError, match="sentencepiece refuses it"):
        Tokenizer.from_model(bytes(ruined))


@pytest.mark.parametrize(
    "number", [2_000, pytest.param(20_000, marks=pytest.mark.slow)]
)
def test_mutated_models_are_refused_or_work(own_model: bytes, number: int) -> None:
    """Models that pass the reader are used by native code in this process, which must
    survive.
    """
    text = "In 1905, Jürgen weighed 12,000 ½ ﬁne (boats)\u200b 日本 e\u0301 가"
    num_accepted = 0
    for case in range(number):
        data = mutated(own_model, case)
        try:
            tokenizer = Tokenizer.from_model(data)
        except LitebertError:
            continue
        num_accepted += 1
        encoding = tokenizer.encode(text)
        assert all(0 <= index < tokenizer.vocab_size for index in encoding.ids)
        assert len(encoding.offsets) == len(encoding.ids)
        assert all(0 <= start <= end <= len(text) for start, end in encoding.offsets)
        tokenizer.decode(encoding.ids)
    assert num_accepted > number // 20


def mutated(data: bytes, case: int) -> bytes:
    """Flip one to four bits, mostly in the pieces; now and then cut out or double a
    stretch.
    """
    random = rng.stream(0, "mutate a model", case)
    changed = bytearray(data)
    reach = len(data) if case % 3 == 0 else 8000
    for place in random.integers(0, reach, size=random.integers(1, 5)):
        changed[place] ^= 1 << int(random.integers(8))
    start, stop = sorted(random.integers(0, reach, size=2))
    if case % 5 == 0:
        del changed[start : min(stop, start + 40)]
    if case % 7 == 0:
        changed[start:start] = changed[start : start + 40]
    return bytes(changed)


def test_a_file_of_a_million_pieces_costs_little_to_refuse() -> None:
    """To parse it would take half a gigabyte."""
    script = """
from litebert.errors import LitebertError
from litebert.tokenizer.model_file import read_model
data = bytes.fromhex("0a0d0a0678787878787815000080bf") * 1_000_000
before = peak_memory()
try:
    read_model(data, "large")
except LitebertError as error:
    print(error.code, peak_memory() - before)
"""
    code, size = run_in_child(script)
    assert code == "LB-201"
    assert int(size) < 64 << 20


def test_training_again_gives_the_same_bytes_and_a_book_in_one_string_is_read_to_its_end(
    own_model: bytes, sentences: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert train_tokenizer(iter(sentences), vocab_size=300) == own_model
    kept = Tokenizer.from_model(
        train_tokenizer(sentences, vocab_size=300, keep_accents=True), keep_accents=True
    )
    assert kept.decode(kept.encode("Her CAFÉ in Århus").ids) == "her café in århus"
    book = "\n".join([*sentences, *["Xylophone!"] * 9, "東京へ" * 2_000])
    tokenizer = Tokenizer.from_model(whole := train_tokenizer([book], vocab_size=150))
    assert all(
        tokenizer.unk_id not in ids for ids in tokenizer.encode_ids([*sentences, book])
    )
    monkeypatch.setattr(training, "MOST_LINES", 200)
    assert (
        train_tokenizer([book], vocab_size=150)
        == train_tokenizer([book], vocab_size=150)
        != whole
    )


def test_symbols_are_single_pieces_as_texts_show_them(sentences: list[str]) -> None:
    """Texts are lower-cased and lose their accents before pieces are found in them."""
    model = train_tokenizer(sentences, vocab_size=300, symbols=["<URL>", "É!"])
    tokenizer = Tokenizer.from_model(model)
    for text, symbol in (("a<URL>b", "<url>"), ("caffÉ!", "e!")):
        assert symbol in tokenizer.encode(text).pieces


def test_the_largest_and_the_smallest_size_are_named_and_work(
    sentences: list[str],
) -> None:
    def size(vocab_size: int, **limit: bool) -> int:
        return Tokenizer.from_model(
            train_tokenizer(sentences, vocab_size=vocab_size, **limit)
        ).vocab_size

    for wrong, words in ((8_000, r"<= (\d+)"), (20, r"alone need (\d+)")):
        with pytest.raises(
            LitebertError, match=r"LB-221(?s:.*)set vocab_size"
        ) as caught:
            size(wrong)
        named = int(re.findall(words, str(caught.value.received))[0])
        assert size(named) == named
    assert size(300, is_limit=True) == 300 < size(8_000, is_limit=True) < 8_000


def test_texts_that_cannot_be_trained_on_are_refused() -> None:
    def failing() -> Iterator[str]:
        yield "a line"
        raise OSError("the disk is gone")

    for texts, code in (
        ([], "LB-220"),
        (["  ", "\n"], "LB-220"),
        ([1], "LB-210"),
        ("one long text", "LB-216"),
    ):
        with pytest.raises(LitebertError, match=code):
            train_tokenizer(texts, vocab_size=50)
    with pytest.raises(OSError, match="the disk is gone"):
        train_tokenizer(failing(), vocab_size=100)
