"""A tokenizer.json of a stranger that cannot be used, or should not, is one clear error."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert import files
from litebert.errors import DamagedError, LitebertError
from litebert.files import Json
from litebert.tokenizer import Tokenizer

Change = Callable[[dict[str, Json]], object]

CHINESE = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "want", "##ed", "un", "博", "推", "!", "é"]


@pytest.fixture
def folder(own: Tokenizer, tmp_path: Path) -> Path:
    own.save(tmp_path)
    (tmp_path / "spiece.model").unlink()
    return tmp_path


def rewritten(folder: Path, change: Change) -> Path:
    path = folder / "tokenizer.json"
    table = files.read_json(path, command="")
    change(table)
    path.write_text(json.dumps(table), encoding="utf-8")
    return folder


def put(*keys: str | int, value: Json) -> Change:
    """Return a change of one place in the table."""

    def change(table: dict[str, Json]) -> None:
        for key in keys[:-1]:
            table = table[key]
        table[keys[-1]] = value

    return change


NEW_TOKEN: Json = [{"id": 300, "content": "[E1]", "special": True}]
MASK_ELSEWHERE: Json = [{"id": 7, "content": "[MASK]"}]
NO_SPACE: Json = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("model", value=None), r"LB-244.*\n.*no model"),
        (put("model", "type", value="BPE"), r"LB-244.*\n.*a BPE model"),
        (put("model", "type", value=[[]]), "LB-244"),
        (put("model", "byte_fallback", value=True), r"LB-244.*\n.*byte pieces"),
        (put("pre_tokenizer", value=NO_SPACE), r"LB-244.*\n.*no ▁ before words"),
        (put("pre_tokenizer", value={"type": "ByteLevel"}), "LB-244"),
        (put("model", "vocab", value={"a": 1}), "LB-245"),
        (put("model", "vocab", 9, value=["a"]), r"LB-245.*\n.*300 entries, 299 of them"),
        (put("model", "vocab", 9, 1, value="1"), "LB-245"),
        (put("model", "vocab", 9, 1, value=1e300), "LB-245"),
        (put("model", "vocab", 9, 1, value=10**400), "LB-245"),
        (put("model", "unk_id", value=None), r"LB-245.*\n.*is not named"),
        (put("model", "unk_id", value=300), "LB-245"),
        (put("added_tokens", value=NEW_TOKEN), r"LB-246.*\n.*\[E1\] \(1 in all\)"),
        (put("added_tokens", value=MASK_ELSEWHERE), r"LB-247.*\n.*\[MASK\] 7"),
        (put("added_tokens", 0, "content", value="new"), r"LB-247.*\n.*new 0"),
        (put("added_tokens", 0, "id", value=-1), "LB-247"),
        (put("added_tokens", value=[None]), "LB-247"),
        (put("added_tokens", value="none"), "LB-247"),
        (put("normalizer", value={"type": "Precompiled"}), "LB-248"),
        (put("normalizer", value={"type": "Precompiled", "precompiled_charsmap": "?"}), "LB-248"),
        (put("normalizer", value={"type": "Precompiled", "precompiled_charsmap": "MTI="}), "LB-209"),
        (put("model", "vocab", 9, 0, value="x" * 4_000_000), "LB-204"),
        (put("model", "vocab", 9, 0, value=""), "LB-204"),
        (put("model", "vocab", 9, 0, value="\ud800"), "LB-201"),
        (put("model", "vocab", 9, 0, value="▁"), "LB-207"),
        (put("model", "vocab", value=[["a", 0.0]] * 2), "LB-207"),
    ],
)
def test_what_cannot_be_used_is_one_clear_error(folder: Path, change: Change, message: str) -> None:
    if message == "LB-207":
        rewritten(folder, put("added_tokens", value=None))
    with pytest.raises(LitebertError, match=message):
        Tokenizer.load(rewritten(folder, change))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (put("model", "continuing_subword_prefix", value=""), "LB-244"),
        (put("normalizer", "handle_chinese_chars", value=False), "LB-244"),
        (put("model", "vocab", value=["a"]), "LB-249"),
        (put("model", "vocab", value={}), "LB-249"),
        (put("model", "vocab", "want", value=99), "LB-249"),
        (put("model", "vocab", "want", value="5"), "LB-249"),
        (put("model", "vocab", "two words", value=len(CHINESE)), "LB-249"),
        (put("added_tokens", value=[{"id": 12, "content": "new"}]), "LB-246"),
    ],
)
def test_wordpiece_that_cannot_be_used_is_one_clear_error(tmp_path: Path, change: Change, code: str) -> None:
    (tmp_path / "vocab.txt").write_text("".join(f"{piece}\n" for piece in CHINESE))
    Tokenizer.load(tmp_path).save(tmp_path)
    (tmp_path / "vocab.txt").unlink()
    with pytest.raises(LitebertError, match=code):
        Tokenizer.load(rewritten(tmp_path, change))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "LB-005"),
        ("[]", "LB-006"),
        ('{"model": ' * 100_000, "LB-005"),
        ('{"model": ' + "[" * 100_000, "LB-005"),
        ('{"model": {"type": "Unigram", "vocab": [["a", NaN]]}}', "LB-005"),
        ('{"model": {"type": "Unigram", "vocab": [["a", -Infinity]]}}', "LB-005"),
        ('{"model": ' + "9" * 100_000 + "}", "LB-005"),
        (" " * (33 << 20), "LB-003"),
    ],
    ids=["empty", "list", "objects", "lists", "nan", "infinity", "digits", "size"],
)
def test_what_is_no_json_of_a_sane_size_is_refused(tmp_path: Path, text: str, code: str) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(LitebertError, match=code):
        Tokenizer.load(tmp_path)


def test_more_pieces_than_any_vocabulary_has_are_refused(folder: Path) -> None:
    rows = ", ".join(['["a", 0]'] * 1_000_001)
    pre_tokenizer = '"pre_tokenizer": {"type": "Metaspace", "replacement": "▁"}'
    model = f'{{"type": "Unigram", "unk_id": 0, "vocab": [{rows}]}}'
    (folder / "tokenizer.json").write_text(f'{{{pre_tokenizer}, "model": {model}}}')
    with pytest.raises(DamagedError, match=r"LB-245.*\n.*1,000,001 entries"):
        Tokenizer.load(folder)


SMALL = [["<pad>", 0.0], ["<unk>", 0.0], ["[CLS]", 0.0], ["[SEP]", 0.0], ["[MASK]", 0.0]]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
PLACES = st.sampled_from(
    [
        ("model",),
        ("model", "type"),
        ("model", "unk_id"),
        ("model", "vocab"),
        ("model", "vocab", 6),
        ("model", "vocab", 6, 0),
        ("model", "vocab", 6, 1),
        ("added_tokens",),
        ("added_tokens", 0),
        ("added_tokens", 0, "id"),
        ("added_tokens", 0, "content"),
        ("normalizer",),
        ("normalizer", "normalizers"),
        ("normalizer", "normalizers", 0),
        ("normalizer", "normalizers", 0, "type"),
        ("pre_tokenizer",),
        ("pre_tokenizer", "type"),
    ]
)


@given(place=PLACES, value=ANYTHING)
@settings(max_examples=300, deadline=None)
def test_anything_in_any_place_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, place: tuple[str | int, ...], value: Json
) -> None:
    table: dict[str, Json] = {
        "added_tokens": [{"id": 0, "content": "<pad>", "special": True}],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Lowercase"}]},
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁"},
        "model": {"type": "Unigram", "unk_id": 1, "vocab": [*map(list, SMALL), ["▁", -1], ["a", -2]]},
    }
    put(*place, value=value)(table)
    folder = tmp_path_factory.mktemp("anything")
    (folder / "tokenizer.json").write_text(json.dumps(table))
    try:
        tokenizer = Tokenizer.load(folder)
    except LitebertError:
        return
    assert all(0 <= index < tokenizer.vocab_size for index in tokenizer.encode("A a b").ids)
