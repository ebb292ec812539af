"""Vocabulary files: found, saved, settings beside them; harm is refused before native code, mutations crash nothing."""

import math
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from litebert import files, rng
from litebert.errors import DamagedError, LitebertError
from litebert.tokenizer import Tokenizer, modelfile
from litebert.tokenizer.modelfile import MAX_MODEL_BYTES, charsmap_fault, read_model


def test_a_saved_folder_and_a_run_load_as_the_same_tokenizer(own: Tokenizer, own_model: bytes, tmp_path: Path) -> None:
    folder = tmp_path / "run" / "model"
    own.save(folder, max_length=128)
    assert (folder / "spiece.model").read_bytes() == own_model
    for path in (folder, str(folder / "spiece.model"), folder.parent):
        assert Tokenizer.load(path).hash == own.hash
    assert files.read_json(folder / "tokenizer_config.json", command="")["model_max_length"] == 128


def test_settings_beside_the_vocabulary_count(own_model: bytes, tmp_path: Path) -> None:
    files.write_bytes(tmp_path / "spiece.model", own_model)
    for case in (True, False):
        files.write_json(tmp_path / "tokenizer_config.json", {"do_lower_case": case, "x": None})
        for path in (tmp_path, tmp_path / "spiece.model"):
            tokenizer = Tokenizer.load(path)
            assert (tokenizer.unk_id in tokenizer.encode("Jürgen").ids) is not case
    files.write_json(tmp_path / "tokenizer_config.json", {"do_lower_case": "yes"})
    with pytest.raises(LitebertError, match=r"LB-214.*\n.*yes\n.*true or false"):
        Tokenizer.load(tmp_path)


def test_what_is_no_tokenizer_is_refused(tmp_path: Path) -> None:
    named = {
        "": "LB-213",
        "missing": "LB-213",
        "tokenizer.json": "LB-213",
        "spiece.model": "LB-004",
        "h.model": "LB-003",
    }
    with open(tmp_path / "h.model", "wb") as file:
        file.truncate(MAX_MODEL_BYTES + 1)
    for name, code in named.items():
        with pytest.raises(LitebertError, match=code):
            Tokenizer.load(tmp_path / name)


Maker = Callable[..., bytes]
Writer = Callable[[int, bytes], bytes]
INFINITE, NOT_A_NUMBER = (b"\x15" + struct.pack("<f", value) for value in (math.inf, math.nan))


@pytest.fixture
def small(make_model: Maker) -> bytes:
    return make_model({"▁": -1.0, "a": -2.0, "▁ab": -3.0})


def piece(message: Writer, text: bytes, score: bytes = b"", kind: bytes = b"") -> bytes:
    return message(1, message(1, text) + score + kind)


def test_the_reader_agrees_with_sentencepiece(own_model: bytes, own: Tokenizer) -> None:
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_proto=own_model)
    model = read_model(own_model, "own")
    assert [p.text for p in model.pieces] == processor.id_to_piece(list(range(len(processor))))
    assert [p.score for p in model.pieces] == processor.get_score(list(range(len(processor))))
    assert [p.kind == 3 for p in model.pieces] == processor.is_control(list(range(len(processor))))
    assert [p.text for p in model.pieces if p.kind == 2] == [model.unknown] == ["<unk>"]


@pytest.mark.parametrize(
    ("code", "ruin"),
    [
        ("LB-201", lambda small, message: small[:-1]),
        ("LB-201", lambda small, message: small + b"\x0a\xff\xff\xff\xff\x7f"),
        ("LB-201", lambda small, message: small + b"\x03"),
        ("LB-204", lambda small, message: small + message(1, b"\x0d1234")),
        ("LB-201", lambda small, message: small + piece(message, b"\xff")),
        ("LB-203", lambda small, message: small + message(2, b"") + message(2, b"")),
        ("LB-204", lambda small, message: small + piece(message, b"")),
        ("LB-204", lambda small, message: small + piece(message, b"x\0y")),
        ("LB-205", lambda small, message: small + piece(message, b"x", INFINITE)),
        ("LB-205", lambda small, message: small + piece(message, b"x", NOT_A_NUMBER)),
        ("LB-206", lambda small, message: small + piece(message, b"x", kind=b"\x18\x06")),
        ("LB-207", lambda small, message: small + piece(message, b"a")),
        ("LB-207", lambda small, message: small + piece(message, b"x", kind=b"\x18\x02")),
        ("LB-208", lambda small, message: small + message(2, b"\x18\x02")),
        ("LB-209", lambda small, message: small + message(3, message(2, b"1234567890"))),
        ("LB-204", lambda small, message: small + piece(message, b"x", message(4, b"y" * 8192))),
        ("LB-256", lambda small, message: small + message(2, b"\x0a\x00" * 600_000)),
        ("LB-200", lambda small, message: b"\0" * (MAX_MODEL_BYTES + 1)),
    ],
)  # fmt: skip
def test_damage_is_refused_by_name(small: bytes, message: Writer, code: str, ruin) -> None:
    with pytest.raises(LitebertError, match=code):
        read_model(ruin(small, message), "the file")


def test_too_few_and_too_many_pieces_are_refused(
    small: bytes, message: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(LitebertError, match=r"LB-211.*\n.*without <pad>, \[CLS\]"):
        Tokenizer.from_model(piece(message, b"<unk>", kind=b"\x18\x02"))
    monkeypatch.setattr(modelfile, "MAX_PIECES", 7)
    with pytest.raises(DamagedError, match="LB-202"):
        read_model(small, "the file")


def test_what_only_sentencepiece_can_refuse_is_one_clear_error(own_model: bytes) -> None:
    trie = own_model.index(read_model(own_model, "own").charsmap) + 4
    ruined = bytearray(own_model)
    ruined[trie + 15] |= 0x80  # makes a leaf, which nothing leads to, of an inner unit
    with pytest.raises(DamagedError, match="LB-212"):
        Tokenizer.from_model(bytes(ruined))


def test_real_character_maps_are_sound_and_ruined_ones_are_not(own_model: bytes) -> None:
    charsmap = read_model(own_model, "own").charsmap
    trie_size = int.from_bytes(charsmap[:4], "little")
    assert len(charsmap) > 200_000
    assert charsmap_fault(charsmap) is None
    header, trie, texts = charsmap[:4], charsmap[4 : 4 + trie_size], charsmap[4 + trie_size :]
    faults = {
        "in 100": charsmap[:100],
        "does not end": charsmap[:-1],
        "not UTF-8": charsmap[:-2] + b"\xff\0",
        "a trie of": struct.pack("<I", len(charsmap)) + trie + texts,
        "out of the trie": header + struct.pack("<I", 0x7FFFF << 10) + trie[4:] + texts,
        "outside the table": header + trie + b"\0",
        "inside a character": header + trie + "é".encode() * 40_000 + b"\0",
        "leaf is missing": header + b"\0\x01\0\0" * (trie_size // 4) + texts,
    }
    found = {words: words in str(charsmap_fault(data)) for words, data in faults.items()}
    assert found == dict.fromkeys(faults, True)


@pytest.mark.parametrize("number", [2_000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_mutated_models_are_refused_or_work(own_model: bytes, number: int) -> None:
    """Those that pass the reader are loaded and used natively in this process: it must survive."""
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
        assert all(0 <= number < tokenizer.vocab_size for number in encoding.ids)
        assert len(encoding.offsets) == len(encoding.ids)
        assert all(0 <= start <= end <= len(text) for start, end in encoding.offsets)
        tokenizer.decode(encoding.ids)
    assert num_accepted > number // 20


def mutated(data: bytes, case: int) -> bytes:
    """Flip one to four bits, mostly in the pieces; now and then cut out or double a stretch."""
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
    """It would take 19 s and half a gigabyte to parse."""
    script = """
import resource, sys, time
from litebert.errors import LitebertError
from litebert.tokenizer.modelfile import read_model
data = bytes.fromhex("0a0d0a0678787878787815000080bf") * 1_000_000
before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
try:
    read_model(data, "large")
except LitebertError as error:
    spent = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(error.code, time.process_time() - begin, spent >> 10)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    code, seconds, mebibytes = done.stdout.split()
    assert code == "LB-202"
    assert float(seconds) < 1
    assert int(mebibytes) < 64


def test_control_sentencepiece_takes_what_the_reader_refuses(own_model: bytes) -> None:
    """In a child: the native code may not survive."""
    script = """
import sys
from sentencepiece import SentencePieceProcessor
from litebert.errors import LitebertError
from litebert.tokenizer.modelfile import read_model
number = 0
for data in map(bytes.fromhex, sys.stdin.read().split()):
    try:
        read_model(data, "mutated")
    except LitebertError:
        try:
            SentencePieceProcessor(model_proto=data)
        except Exception:
            continue
        number += 1
print(number)
"""
    cases = "\n".join(mutated(own_model, case).hex() for case in range(200))
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, input=cases, capture_output=True, text=True, check=False)
    assert done.returncode < 0 or int(done.stdout) > 0
