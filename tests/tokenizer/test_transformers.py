"""transformers reads our folder and gives our ids; its own tokenizer.json is read, or
refused with a clear error.
"""

import gzip
import json
import shutil
import sys
import unicodedata
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    AlbertTokenizer,
    AutoTokenizer,
    BertTokenizer,
    TokenizersBackend,
)

from litebert import files
from litebert.errors import LitebertError
from litebert.files import Json
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.model_file import Piece, ends_in_number_comma, read_model
from litebert.tokenizer.text import Normalizer
from litebert.tokenizer.tokenizer_json import read_tokenizer_json

Maker = Callable[..., bytes]
Change = Callable[[dict[str, Json]], object]
CHINESE = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "want",
    "##ed",
    "un",
    "博",
    "推",
    "!",
    "é",
]
# Characters of Unicode 3.2, which all tables involved have, without those that
# `litebert.tokenizer.tokenizer_json` documents as read differently: two letters next to
# which a capital sigma changes, and the joiners.
OLD_CHARACTERS = [
    chr(code)
    for code in range(sys.maxunicode + 1)
    if unicodedata.ucd_3_2_0.category(chr(code)) not in ("Cn", "Cs", "Co")
    and code not in (0x2C0, 0x2C1, 0x200C, 0x200D)
]


def only_json(source: Path, folder: Path) -> Path:
    """Copy the files that transformers 5 saves of a tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(source / name, folder / name)
    return folder


def rewritten(folder: Path, change: Change) -> Path:
    table = files.read_json(folder / "tokenizer.json", command="")
    change(table)
    (folder / "tokenizer.json").write_text(json.dumps(table), encoding="utf-8")
    return folder


def as_version_4(table: dict[str, Json]) -> None:
    """Change a table that version 5 made from a bare spiece.model into the one that
    version 4 made.
    """
    for row in table["model"]["vocab"]:
        row[1] -= 100 * ends_in_number_comma(row[0])
    blanks = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    table["normalizer"]["normalizers"].append(blanks)
    table["added_tokens"] = table["added_tokens"][:5]
    table["added_tokens"][4]["lstrip"] = True


@pytest.fixture(scope="module")
def saved(own: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    own.save(folder := tmp_path_factory.mktemp("own") / "saved")
    return folder


@pytest.fixture(scope="module")
def theirs(saved: Path) -> TokenizersBackend:
    return AutoTokenizer.from_pretrained(saved)


@pytest.fixture(scope="module")
def own_made(
    own_model: bytes, saved: Path, theirs: TokenizersBackend
) -> dict[str, Path]:
    """Save a vocabulary in every way that leads to a folder without spiece.model."""
    folder = saved.parent
    files.write_bytes(folder / "bare" / "spiece.model", own_model)
    made = {
        name: folder / name
        for name in ("v5 of bare", "v5 of ours", "v5 twice", "v5 auto")
    }
    AlbertTokenizer.from_pretrained(folder / "bare").save_pretrained(made["v5 of bare"])
    AlbertTokenizer.from_pretrained(saved).save_pretrained(made["v5 of ours"])
    AlbertTokenizer.from_pretrained(made["v5 of bare"]).save_pretrained(
        made["v5 twice"]
    )
    theirs.save_pretrained(made["v5 auto"])
    made["ours"] = only_json(saved, folder / "ours")
    made["v4"] = rewritten(only_json(made["v5 of bare"], folder / "v4"), as_version_4)
    assert not [
        path for made_folder in made.values() for path in made_folder.glob("*.model")
    ]
    return made


def differing(
    ours: Tokenizer, theirs: TokenizersBackend, texts: list[str]
) -> list[tuple[list[int], list[int]]]:
    ids = [encoding.ids for encoding in ours.encode_batch(texts, special_tokens=True)]
    return [
        (a, b) for a, b in zip(ids, theirs(texts)["input_ids"], strict=True) if a != b
    ]


ODD = [
    "",
    " ",
    "``quoted''",
    "a\x0bb\x1cc\x85d\u2028e",
    "ΟΔΟΣ ΑΣ, ΣΣ Σ ΑΣ’Α",
    "é̖ \u0e31\u093e \u09c7\u09be",
]
ODD += [
    "x▁y ▁ ▁\u034f",
    "가각 \u1112\u1161\u11ab",
    "[MASK][SEP] <pad><unk>",
    "a\u200bb\ufeffc\x00d\x01",
]
ODD += ["1,2,3, 12,000,", "🤷\u200d♀️ ｱﾞ ㍿ ½"]


def test_special_ids_odd_texts_pairs_and_ends_agree(
    own: Tokenizer, saved: Path, theirs: TokenizersBackend
) -> None:
    special = (
        theirs.pad_token_id,
        theirs.unk_token_id,
        theirs.cls_token_id,
        theirs.sep_token_id,
        theirs.mask_token_id,
    )
    assert special == own.special_ids and differing(own, theirs, ODD) == []
    long = "the old miller " * 400
    ids = own.encode(long, frame=True).ids
    assert theirs(long, truncation=True)["input_ids"] == [*ids[:511], own.sep_id]
    for reference in (theirs, AlbertTokenizer.from_pretrained(saved)):
        for pair in (
            ("In 1905, Jürgen", "weighed 12,000"),
            ("", "(letters)"),
            ("[MASK] boats", "x"),
        ):
            encoding = own.encode(*pair, special_tokens=True)
            inputs = reference(*pair)
            assert (inputs["input_ids"], inputs["token_type_ids"]) == (
                encoding.ids,
                encoding.segments,
            )


@given(st.text(st.sampled_from(OLD_CHARACTERS)))
@settings(max_examples=500, deadline=None)
def test_any_text_is_normalized_alike(
    own: Tokenizer, theirs: TokenizersBackend, text: str
) -> None:
    ours = own._model._processor.normalize(Normalizer().normalize(text))
    steps = theirs.backend_tokenizer.normalizer
    assert ours == "".join("▁" + word for word in steps.normalize_str(text).split())


def test_real_text_differs_only_in_ties_and_commas(
    official: Tokenizer, paragraphs: list[str], tmp_path: Path
) -> None:
    official.save(tmp_path)
    files.write_json(tmp_path / "config.json", {"model_type": "albert"})
    scores = [piece.score for piece in contents(official._model.data)[0]]
    different = differing(
        official, AutoTokenizer.from_pretrained(tmp_path), paragraphs[:3000]
    )
    assert len(different) <= 3
    for ours, theirs in different:
        # Scores tie within 32-bit rounding over the whole text, or ours split a comma
        # off a number where they diverge.
        is_tie = (
            abs(sum(scores[k] for k in ours) - sum(scores[k] for k in theirs)) < 0.01
        )
        place = next(
            k for k, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b
        )
        pieces = [official.piece(k) for k in ours[place - 1 : place + 3]]
        assert is_tie or any(
            left[-1].isdigit() and right == "," for left, right in pairwise(pieces)
        )


def contents(model: bytes) -> tuple[tuple[Piece, ...], bytes]:
    """Return the pieces and the character map."""
    return read_model(model, "the model")[:2]


def rebuilt(folder: Path) -> tuple[tuple[Piece, ...], bytes]:
    return contents(read_tokenizer_json(folder / "tokenizer.json").data)


def test_every_tokenizer_json_gives_the_same_bytes(
    own: Tokenizer, own_made: dict[str, Path], tmp_path: Path
) -> None:
    models = {
        name: read_tokenizer_json(path / "tokenizer.json")
        for name, path in own_made.items()
    }
    # all but the path, and the tokens that version 5 lists beside the vocabulary
    read = {name: (model.data, model.settings) for name, model in models.items()}
    assert {name for name in read if read[name] != read["ours"]} == set()
    assert models["ours"].settings == Normalizer()
    Tokenizer.load(own_made["v5 of bare"]).save(tmp_path)
    assert (tmp_path / "spiece.model").read_bytes() == models["ours"].data
    assert (tmp_path / "tokenizer.json").read_bytes() == (
        own_made["ours"] / "tokenizer.json"
    ).read_bytes()
    assert rebuilt(own_made["v5 of ours"]) == contents(own._model.data)
    again = Tokenizer.load(own_made["v5 of ours"])
    texts = ["[MASK]", "<pad>", "a‐b ½ ﬁ \u0e31\u093e", "ΟΔΟΣ"]
    assert again.encode_ids(texts) == own.encode_ids(texts)


def test_thousands_of_real_paragraphs_have_official_ids(
    official: Tokenizer, real_data: Path, tmp_path: Path
) -> None:
    model = (real_data / "tokenizer" / "spiece.model").read_bytes()
    official.save(tmp_path / "saved")
    AlbertTokenizer.from_pretrained(tmp_path / "saved").save_pretrained(
        tmp_path / "only"
    )
    assert not list((tmp_path / "only").glob("*.model")) and rebuilt(
        tmp_path / "only"
    ) == contents(model)
    with gzip.open(
        real_data / "text" / "books.jsonl.gz", "rt", encoding="utf-8"
    ) as file:
        texts = [
            chapter["text"]
            for line in file
            for chapter in json.loads(line)["chapters"][1:2]
        ]
    paragraphs = [part for text in texts for part in text.split("\n") if part.strip()][
        :6000
    ]
    assert len(paragraphs) == 6000
    assert Tokenizer.load(tmp_path / "only").encode_ids(
        paragraphs
    ) == official.encode_ids(paragraphs)


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("keep_accents", [True, False])
def test_case_and_accents_are_as_set(
    own_model: bytes, tmp_path: Path, lowercase: bool, keep_accents: bool
) -> None:
    files.write_bytes(tmp_path / "spiece.model", own_model)
    chosen: dict[str, Json] = {"do_lower_case": lowercase, "keep_accents": keep_accents}
    files.write_json(tmp_path / "tokenizer_config.json", chosen)
    expected = Tokenizer.load(tmp_path)
    expected.save(tmp_path / "ours")
    AlbertTokenizer.from_pretrained(tmp_path).save_pretrained(tmp_path / "theirs")
    for name in ("ours", "theirs"):
        (tmp_path / name / "spiece.model").unlink(missing_ok=True)
        (tmp_path / name / "tokenizer_config.json").unlink()
        assert (
            Tokenizer.load(tmp_path / name).encode("Jürgen ΟΔΟΣ").ids
            == expected.encode("Jürgen ΟΔΟΣ").ids
        )
        # has priority
        files.write_json(
            tmp_path / name / "tokenizer_config.json", {"do_lower_case": not lowercase}
        )
        assert (
            Tokenizer.load(tmp_path / name).encode("Jürgen").ids
            != expected.encode("Jürgen").ids
        )


def test_ambiguous_scores_and_a_missing_character_map_are_read_unchanged(
    make_model: Maker, tmp_path: Path
) -> None:
    files.write_bytes(
        tmp_path / "spiece.model",
        make_model({"▁": -1.0, "1": -2.0, ",": -2.5, "1,": -0.5}),
    )
    first = Tokenizer.load(tmp_path)
    first.save(tmp_path / "saved")
    only = only_json(tmp_path / "saved", tmp_path / "only")
    pieces, charsmap = rebuilt(only)
    assert (pieces[-1].score, charsmap) == (-100.5, b"")
    assert Tokenizer.load(only).encode_ids(["1\u200b1", "11, 1"]) == first.encode_ids(
        ["1\u200b1", "11, 1"]
    )
    rewritten(only, lambda table: table["model"]["vocab"][-1].__setitem__(1, -100.3))
    assert rebuilt(only)[0][-1].score == pytest.approx(-100.3)


def test_names_that_are_marked_as_special_are_split_off(
    own_made: dict[str, Path], tmp_path: Path
) -> None:
    def add(table: dict[str, Json]) -> None:
        for name, special in {"[e1]": True, "[e2]": False}.items():
            table["added_tokens"].append(
                {
                    "id": len(table["model"]["vocab"]),
                    "content": name,
                    "special": special,
                }
            )
            table["model"]["vocab"].append([name, 0.0])

    tokenizer = Tokenizer.load(rewritten(only_json(own_made["ours"], tmp_path), add))
    ids = [tokenizer.id(name) for name in ("[e1]", "[e2]")]
    assert tokenizer.encode("[e1]").ids == ids[:1]
    assert ids[1] in tokenizer.encode("[e2]").ids
    # a special one is no text
    assert tokenizer.decode(ids) == "[e2]"


@pytest.mark.parametrize(
    ("lowercase", "strips"),
    [(True, None), (False, None), (True, False), (False, False)],
)
def test_wordpiece_of_transformers_gives_the_same_ids(
    tmp_path: Path, lowercase: bool, strips: bool | None
) -> None:
    (tmp_path / "vocab.txt").write_text("".join(f"{piece}\n" for piece in CHINESE))
    theirs = BertTokenizer.from_pretrained(
        tmp_path, do_lower_case=lowercase, strip_accents=strips
    )
    theirs.save_pretrained(tmp_path / "only")
    shutil.copyfile(
        tmp_path / "only/tokenizer_config.json", tmp_path / "tokenizer_config.json"
    )
    first = Tokenizer.load(tmp_path)
    again = Tokenizer.load(tmp_path / "only")
    assert again.hash == first.hash
    text = "UNwanted é, 博推! [MASK]"
    assert again.encode(text, special_tokens=True).ids == theirs(text)["input_ids"]
    (tmp_path / "only/tokenizer_config.json").unlink()
    assert Tokenizer.load(tmp_path / "only").hash == first.hash
    files.write_text(tmp_path / "saved/spiece.model", "of another tokenizer")
    again.save(tmp_path / "saved")
    assert Tokenizer.load(tmp_path / "saved").hash == first.hash
    assert (
        AutoTokenizer.from_pretrained(tmp_path / "saved")(text)["input_ids"]
        == theirs(text)["input_ids"]
    )
    assert (tmp_path / "saved/vocab.txt").read_text() == (
        tmp_path / "vocab.txt"
    ).read_text()
    for refused in (
        {"tokenize_chinese_chars": False},
        {"strip_accents": True, "do_lower_case": False},
    ):
        files.write_json(tmp_path / "tokenizer_config.json", refused)
        with pytest.raises(LitebertError, match="LB-244"):
            Tokenizer.load(tmp_path)


def put(*keys: str | int, value: Json) -> Change:
    """Return a function that changes one place in the table."""

    def change(table: dict[str, Json]) -> None:
        for key in keys[:-1]:
            table = table[key]
        table[keys[-1]] = value

    return change


WORDPIECE = "(?#of a WordPiece)"
NO_SPACE: Json = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"}
# as versions of tokenizers before 0.15 wrote it
OLD_NO_SPACE: Json = {
    "type": "Metaspace",
    "replacement": "▁",
    "add_prefix_space": False,
}
UNIGRAM = (
    '{"pre_tokenizer": {"type": "Metaspace", "replacement": "▁"}, "model": {"type":'
    ' "Unigram", "unk_id": 0, '
)
CANNOT_BE_USED: list[tuple[str | Change, str]] = [
    ("", "LB-005"),
    ("[]", "LB-005.*\\n.*list instead of an object"),
    ('{"model": ' * 100_000, "LB-005"),
    (UNIGRAM + '"vocab": [["a", -Infinity]]}}', "LB-005"),
    ('{"model": ' + "9" * 100_000 + "}", "LB-005"),
    (" " * (33 << 20), "LB-004"),
    (
        UNIGRAM + '"vocab": [' + '["a", 0], ' * 1_000_000 + '["b", 0]]}}',
        r"LB-201.*\n.*at most 300000 items",
    ),
    (put("model", value=None), r"LB-244.*\n.*no model"),
    (put("model", "type", value="BPE"), r"LB-244.*\n.*a BPE model"),
    (put("model", "byte_fallback", value=True), r"LB-244.*\n.*byte pieces"),
    (put("pre_tokenizer", value=NO_SPACE), r"LB-244.*\n.*no ▁ before words"),
    (put("pre_tokenizer", value=OLD_NO_SPACE), r"LB-244.*\n.*no ▁ before words"),
    (put("model", "vocab", 9, value=["a"]), r"LB-201.*\n.*vocab\.9\.1: Field required"),
    (put("model", "vocab", 9, 1, value=1e300), "less than or equal to 34"),
    (put("model", "vocab", 9, 1, value=10**400), "a valid number|finite"),
    (put("model", "unk_id", value=None), "unk_id should be a valid integer"),
    (
        put("added_tokens", value=[{"id": 999, "content": "[E1]", "special": True}]),
        r"contradict the vocabulary: \[E1\] 999",
    ),
    (
        put("added_tokens", value=[{"id": 7, "content": "[MASK]"}]),
        r"contradict the vocabulary: \[MASK\] 7",
    ),
    (
        put("added_tokens", 0, "content", value="new"),
        "contradict the vocabulary: new 0",
    ),
    (
        put("normalizer", value={"type": "Precompiled", "precompiled_charsmap": "?"}),
        "LB-201.*\n.*base64",
    ),
    (
        put(
            "normalizer", value={"type": "Precompiled", "precompiled_charsmap": "MTI="}
        ),
        "LB-201.*\n.*is cut",
    ),
    (put("model", "vocab", 9, 0, value="x" * 4_000_000), "impossible text"),
    (put("model", "vocab", 9, 0, value="\ud800"), "LB-201.*\n.*surrogates"),
    (put("model", "vocab", 9, 0, value="▁"), "299 distinct"),
    (put("model", "continuing_subword_prefix", value=""), WORDPIECE + "LB-244"),
    (put("normalizer", "handle_chinese_chars", value=False), WORDPIECE + "LB-244"),
    (
        put("normalizer", "lowercase", value=False),
        WORDPIECE + "LB-244.*\n.*unaccented capitals",
    ),
    (
        put("model", "vocab", value=["a"]),
        WORDPIECE + "vocab should be a valid dictionary",
    ),
    (put("model", "vocab", "want", value=99), WORDPIECE + "are not 0, 1, 2"),
    (
        put("model", "vocab", "two words", value=len(CHINESE)),
        WORDPIECE + "a piece with spaces",
    ),
    (
        put("added_tokens", value=[{"id": 99, "content": "new"}]),
        WORDPIECE + "contradict the vocabulary: new 99",
    ),
]


def test_an_unusable_tokenizer_json_is_one_clear_error(
    own_made: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "vocab.txt").write_text("".join(f"{piece}\n" for piece in CHINESE))
    Tokenizer.load(tmp_path).save(chinese := tmp_path / "chinese")
    for change, message in CANNOT_BE_USED:
        folder = only_json(
            chinese if message.startswith(WORDPIECE) else own_made["ours"],
            tmp_path / "folder",
        )
        if isinstance(change, str):
            (folder / "tokenizer.json").write_text(change)
        else:
            rewritten(folder, change)
        with pytest.raises(LitebertError, match=message):
            Tokenizer.load(folder)


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
)
ANYTHING = st.recursive(
    SCALARS,
    lambda any_: st.lists(any_) | st.dictionaries(st.text(), any_),
    max_leaves=9,
)
PLACES = (
    "model, model type, model unk_id, model vocab, model vocab 6, model vocab 6 0,"
    " model vocab 6 1, added_tokens, added_tokens 0, added_tokens 0 id, added_tokens 0"
    " content, normalizer, normalizer normalizers, pre_tokenizer, normalizer"
    " normalizers 0, normalizer normalizers 0 type, pre_tokenizer type"
)


@given(place=st.sampled_from(PLACES.split(", ")), value=ANYTHING)
@settings(max_examples=300, deadline=None)
def test_anything_in_any_place_is_read_or_refused(
    own_made: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
    place: str,
    value: Json,
) -> None:
    change = put(
        *(int(key) if key.isdigit() else key for key in place.split()), value=value
    )
    folder = rewritten(
        only_json(own_made["ours"], tmp_path_factory.mktemp("anything")), change
    )
    try:
        tokenizer = Tokenizer.load(folder)
    except LitebertError:
        return
    assert all(
        0 <= index < tokenizer.vocab_size for index in tokenizer.encode("A a b").ids
    )
