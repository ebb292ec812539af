"""A folder with tokenizer.json alone: its vocabulary is rebuilt, ids are the official ones."""

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from sentencepiece import SentencePieceTrainer
from transformers import AlbertTokenizer, AutoTokenizer, BertTokenizer

from litebert import files
from litebert.files import Json
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.fromjson import read_tokenizer_json
from litebert.tokenizer.modelfile import ModelFile, ends_in_number_comma, read_model
from litebert.tokenizer.normalize import Normalizer

Maker = Callable[..., bytes]
Change = Callable[[dict[str, Json]], object]

GOLDENS = {
    "In 2010, it cost $1,000.": "19 498 15 32 1516 28995 9",
    "GPT-3 (OpenAI)": "10538 38 8 240 13 5 10157 3622 6",
    "[MASK] [SEP] <pad>": "636 23265 500 636 18 3492 500 13 1 8240 1",
    "9/11/2001, 3.0, 92000,": "24025 118 3465 15 203 9 387 15 561 3050 15",
}
CHINESE = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "want", "##ed", "un", "博", "推", "!", "é"]


def only_json(source: Path, folder: Path) -> Path:
    """Copy what transformers 5 saves of a tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(source / name, folder / name)
    return folder


def rewritten(folder: Path, change: Change) -> Path:
    path = folder / "tokenizer.json"
    table = files.read_json(path, command="")
    change(table)
    path.write_text(json.dumps(table), encoding="utf-8")
    return folder


def as_version_4(table: dict[str, Json]) -> None:
    """Turn what version 5 made of a bare spiece.model into what version 4 made of it."""
    for row in table["model"]["vocab"]:
        row[1] -= 100 * ends_in_number_comma(row[0])
    blanks = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    table["normalizer"]["normalizers"].append(blanks)
    table["added_tokens"] = table["added_tokens"][:5]
    table["added_tokens"][4]["lstrip"] = True


def all_makers(model: bytes, folder: Path) -> dict[str, Path]:
    """Save a vocabulary in each way there is to a folder that has no spiece.model."""
    files.write_bytes(folder / "bare" / "spiece.model", model)
    Tokenizer.load(folder / "bare").save(folder / "saved")
    bare, saved = (AlbertTokenizer.from_pretrained(folder / name) for name in ("bare", "saved"))
    made = {name: folder / name for name in ("v5 of bare", "v5 of ours", "v5 twice", "v5 auto")}
    bare.save_pretrained(made["v5 of bare"])
    saved.save_pretrained(made["v5 of ours"])
    AlbertTokenizer.from_pretrained(made["v5 of bare"]).save_pretrained(made["v5 twice"])
    AutoTokenizer.from_pretrained(folder / "saved").save_pretrained(made["v5 auto"])
    made["ours"] = only_json(folder / "saved", folder / "ours")
    made["v4"] = rewritten(only_json(made["v5 of bare"], folder / "v4"), as_version_4)
    assert not [path for made_folder in made.values() for path in made_folder.glob("*.model")]
    return made


@pytest.fixture(scope="module")
def own_made(own_model: bytes, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return all_makers(own_model, tmp_path_factory.mktemp("own"))


@pytest.fixture
def folder(own_made: dict[str, Path], tmp_path: Path) -> Path:
    return only_json(own_made["ours"], tmp_path / "folder")


@pytest.fixture(scope="module")
def official_made(real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[ModelFile, dict[str, Path]]:
    model = (real_data / "tokenizer" / "spiece.model").read_bytes()
    made = all_makers(model, tmp_path_factory.mktemp("official"))
    return read_model(model, "official"), made


def contents(model: ModelFile) -> tuple[list[tuple[str, float, int]], bytes]:
    return [(piece.text, piece.score, piece.kind) for piece in model.pieces], model.charsmap


def rebuilt(folder: Path) -> ModelFile:
    return read_model(read_tokenizer_json(folder / "tokenizer.json").data, "rebuilt")


def test_every_maker_of_a_tokenizer_json_gives_the_same_bytes(own_made: dict[str, Path]) -> None:
    found = {name: read_tokenizer_json(path / "tokenizer.json") for name, path in own_made.items()}
    assert {name for name in found if found[name] != found["ours"]} == set()
    assert found["ours"].settings == Normalizer()


def test_an_own_vocabulary_is_rebuilt_piece_by_piece(
    own: Tokenizer, own_model: bytes, own_made: dict[str, Path], sentences: list[str]
) -> None:
    assert contents(rebuilt(own_made["v5 of ours"])) == contents(read_model(own_model, "own"))
    again = Tokenizer.load(own_made["v5 of ours"])
    texts = [*sentences, "``quoted''", "[MASK]", "<pad>", "a‐b ½ ﬁ \u0e31\u093e", "ΟΔΟΣ"]
    assert again.encode_ids(texts) == own.encode_ids(texts)
    trace = again.encode("In 1905, Jürgen [MASK]", special_tokens=True)
    assert trace.offsets == own.encode("In 1905, Jürgen [MASK]", special_tokens=True).offsets


def test_the_official_vocabulary_is_rebuilt_piece_by_piece_whoever_saved_it(
    official_made: tuple[ModelFile, dict[str, Path]],
) -> None:
    model, made = official_made
    found = {read_tokenizer_json(path / "tokenizer.json").data for path in made.values()}
    assert len(found) == 1
    assert contents(read_model(found.pop(), "rebuilt")) == contents(model)


def test_goldens_are_the_official_ids_and_not_those_of_transformers(
    official_made: tuple[ModelFile, dict[str, Path]],
) -> None:
    folder = official_made[1]["v5 of bare"]
    tokenizer, theirs = Tokenizer.load(folder), AlbertTokenizer.from_pretrained(folder)
    golden = {text: [int(number) for number in ids.split()] for text, ids in GOLDENS.items()}
    assert {text: tokenizer.encode(text).ids for text in golden} == golden
    assert not [text for text in golden if theirs(text)["input_ids"][1:-1] == golden[text]]


def test_thousands_of_real_paragraphs_have_the_official_ids(
    official: Tokenizer, official_made: tuple[ModelFile, dict[str, Path]], real_data: Path
) -> None:
    with gzip.open(real_data / "text" / "books.jsonl.gz", "rt", encoding="utf-8") as file:
        chapters = [json.loads(line)["chapters"][1:2] for line in file]
    texts = [chapter["text"] for found in chapters for chapter in found]
    paragraphs = [part for text in texts for part in text.split("\n") if part.strip()][:6000]
    assert len(paragraphs) == 6000
    tokenizer = Tokenizer.load(official_made[1]["v5 of ours"])
    assert tokenizer.encode_ids(paragraphs) == official.encode_ids(paragraphs)


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("keep_accents", [True, False])
def test_case_and_accents_are_those_of_the_pipeline(
    own_model: bytes, tmp_path: Path, lowercase: bool, keep_accents: bool
) -> None:
    files.write_bytes(tmp_path / "spiece.model", own_model)
    said: dict[str, Json] = {"do_lower_case": lowercase, "keep_accents": keep_accents}
    files.write_json(tmp_path / "tokenizer_config.json", said)
    expected = Tokenizer.load(tmp_path)
    expected.save(tmp_path / "ours")
    AlbertTokenizer.from_pretrained(tmp_path).save_pretrained(tmp_path / "theirs")
    for name in ("ours", "theirs"):
        (tmp_path / name / "spiece.model").unlink(missing_ok=True)
        (tmp_path / name / "tokenizer_config.json").unlink()
        tokenizer = Tokenizer.load(tmp_path / name)
        assert tokenizer.encode("Jürgen ΟΔΟΣ").ids == expected.encode("Jürgen ΟΔΟΣ").ids


def test_what_the_configuration_says_counts_more(folder: Path) -> None:
    files.write_json(folder / "tokenizer_config.json", {"do_lower_case": False})
    tokenizer = Tokenizer.load(folder)
    assert tokenizer.unk_id in tokenizer.encode("Jürgen").ids


def test_other_vocabularies_come_first(folder: Path, make_model: Maker) -> None:
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in CHINESE))
    assert Tokenizer.load(folder).vocab_size == len(CHINESE)
    files.write_bytes(folder / "spiece.model", make_model({"▁": -1.0}))
    assert Tokenizer.load(folder).vocab_size == 6


def test_saving_writes_the_rebuilt_vocabulary(own: Tokenizer, own_made: dict[str, Path], tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(own_made["v5 of bare"])
    tokenizer.save(tmp_path)
    assert (tmp_path / "spiece.model").is_file()
    assert Tokenizer.load(tmp_path).hash == tokenizer.hash
    ours = (own_made["ours"] / "tokenizer.json").read_bytes()
    assert (tmp_path / "tokenizer.json").read_bytes() == ours
    text = "The baker's daughter [MASK]"
    theirs = AutoTokenizer.from_pretrained(tmp_path)(text)["input_ids"]
    assert theirs == own.encode(text, special_tokens=True).ids


def test_transformers_reads_the_rebuilt_model_as_it_reads_the_first(own_made: dict[str, Path], tmp_path: Path) -> None:
    data = read_tokenizer_json(own_made["ours"] / "tokenizer.json").data
    files.write_bytes(tmp_path / "spiece.model", data)
    AlbertTokenizer.from_pretrained(tmp_path).save_pretrained(tmp_path / "again")
    first, again = own_made["v5 of bare"], tmp_path / "again"
    assert (again / "tokenizer.json").read_bytes() == (first / "tokenizer.json").read_bytes()


def test_a_vocabulary_without_a_character_map_is_read_as_such(sentences: list[str], tmp_path: Path) -> None:
    SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_prefix=str(tmp_path / "spiece"),
        vocab_size=200,
        normalization_rule_name="identity",
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        control_symbols=["[CLS]", "[SEP]", "[MASK]"],
        minloglevel=2,
    )
    first = Tokenizer.load(tmp_path / "spiece.model")
    first.save(tmp_path / "saved")
    again = Tokenizer.load(only_json(tmp_path / "saved", tmp_path / "only"))
    assert rebuilt(tmp_path / "only").charsmap == b""
    texts = [*sentences, "a\u200bb"]
    assert again.encode_ids(texts) == first.encode_ids(texts)


def test_where_scores_cannot_tell_they_stay_as_they_are(make_model: Maker, tmp_path: Path) -> None:
    scores = {"▁": -1.0, "1": -2.0, ",": -2.5, "1,": -0.5}
    files.write_bytes(tmp_path / "spiece.model", make_model(scores))
    Tokenizer.load(tmp_path).save(tmp_path)
    assert rebuilt(tmp_path).pieces[-1].score == -100.5
    rewritten(tmp_path, lambda table: table["model"]["vocab"][-1].__setitem__(1, -100.3))
    assert rebuilt(tmp_path).pieces[-1].score == pytest.approx(-100.3)


def test_names_that_are_called_special_are_no_text(folder: Path) -> None:
    def add(table: dict[str, Json]) -> None:
        added, size = table["added_tokens"], len(table["model"]["vocab"])
        added.append({"id": size, "content": "[e1]", "special": True})
        added.append({"id": size + 1, "content": "[e2]", "special": False})
        table["model"]["vocab"] += [["[e1]", 0.0], ["[e2]", 0.0]]

    tokenizer = Tokenizer.load(rewritten(folder, add))
    assert tokenizer.id("[e1]") not in tokenizer.encode("[e1]").ids
    assert tokenizer.id("[e2]") in tokenizer.encode("[e2]").ids


@pytest.mark.parametrize("lowercase", [True, False])
def test_wordpiece_of_transformers_has_the_ids_of_its_vocabulary(tmp_path: Path, lowercase: bool) -> None:
    (tmp_path / "vocab.txt").write_text("".join(f"{piece}\n" for piece in CHINESE))
    theirs = BertTokenizer.from_pretrained(tmp_path, do_lower_case=lowercase)
    theirs.save_pretrained(tmp_path / "only")
    shutil.copyfile(tmp_path / "only/tokenizer_config.json", tmp_path / "tokenizer_config.json")
    first, again = Tokenizer.load(tmp_path), Tokenizer.load(tmp_path / "only")
    assert again.hash == first.hash
    text = "UNwanted é, 博推! [MASK]"
    assert again.encode(text, special_tokens=True).ids == theirs(text)["input_ids"]
    (tmp_path / "only/tokenizer_config.json").unlink()
    assert Tokenizer.load(tmp_path / "only").hash == first.hash
    again.save(tmp_path / "saved")
    assert (tmp_path / "saved/vocab.txt").read_text() == (tmp_path / "vocab.txt").read_text()
