"""Formats and encodings of files: each is recognized, and read for what it means."""

import json
import os
import re
import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

import litebert
from litebert.api.training import data_check
from litebert.errors import LitebertError
from litebert.reading.encoding import find_encoding
from litebert.tasks.own.dataset import table_dataset
from litebert.tasks.own.layouts import FOLDER, LAYOUTS, SUFFIXES, hash_table, open_table

Write = Callable[[str, bytes | str], Path]
Read = list[tuple[str, object]]

TEXTS = ["A fine film, really.", "So dull I left early.", "I’d see it again.", "No."]
LABELS = ["good", "bad", "good", "bad"]
PAIRS = list(zip(TEXTS, LABELS, strict=True))


def read(path: Path) -> Read:
    """Return the texts and labels that are trained on."""
    dataset = table_dataset(path, path)
    names = dataset.family.head.labels
    return [
        (example.first, names[example.label]) for example in dataset.read(path, "train")
    ]


# ---- encodings -----------------------------------------------------------------------

WESTERN = {
    "German": "Größe;Anfrage\nXL;Das Gerät lässt sich nicht öffnen, schöne Grüße!\n",
    "French": "L’été à la forêt créée, œuvre de François; ça va «très» bien\n",
    "Spanish": "El niño comió una piña en España. ¿Qué? ¡Sí! Corazón, acción\n",
    "Portuguese": "A situação não é fácil; coração, três irmãs, à noite\n",
    "Danish": "Æblet er rødt, og på øen går børnene; Århus først\n",
    "English": "It’s a fine “film” — truly, a café " + "and more plain words " * 20,
}
OTHERS = {
    "cp1250": "Zażółć gęślą jaźń, świeża trawa; Příliš žluťoučký kůň úpěl ódy\n",
    "cp1254": "Bugün hava çok güzel, şarkı söylüyor, ağaç ığdır\n",
    "cp1251": "Привет, как дела? Очень хорошо\n",
    "koi8-r": "Привет, как дела? Очень хорошо\n",
    "cp1253": "Καλημέρα, τι κάνεις; Πολύ καλά\n",
    "gbk": "id,text\n1,你好，我很高兴认识你。今天天气很好\n",
    "shift_jis": "こんにちは世界、元気ですか\n",
    "mac_roman": "Größe; Das Gerät lässt sich nicht öffnen, schöne Grüße\n",
}


@pytest.mark.parametrize("language", WESTERN)
def test_western_text_is_told_from_utf8(language: str) -> None:
    text = WESTERN[language] * 20
    assert find_encoding(text.encode("cp1252")) == "cp1252"
    assert find_encoding(text.encode()) == "utf-8"
    assert find_encoding(text.encode("utf-16")) == "utf-16"
    # a character that is cut, and a few that are damaged, leave UTF-8 what it is
    assert find_encoding((text + "é").encode()[:-1]) == "utf-8"
    assert find_encoding(text.encode() + b"\xe9 \xe9") == "utf-8"


@pytest.mark.parametrize("encoding", OTHERS)
def test_other_encodings_are_not_taken_for_western(encoding: str) -> None:
    assert find_encoding((OTHERS[encoding] * 20).encode(encoding)) == "utf-8"


ENCODINGS = {"cp1252": "Windows-1252", "utf-16": "UTF-16", "utf-16-le": "UTF-16"}


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.json", "a.txt"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_tables_of_windows_are_read_with_a_note(
    encoding: str, name: str, write: Write
) -> None:
    rows = [{"text": text, "label": label} for text, label in PAIRS * 3]
    content = {
        "a.csv": "text;label\r\n" + "\r\n".join(";".join(pair) for pair in PAIRS * 3),
        "a.txt": "\n".join("\t".join(pair) for pair in PAIRS * 3),
        "a.json": json.dumps(rows, ensure_ascii=False),
        "a.jsonl": "\n".join(json.dumps(row, ensure_ascii=False) for row in rows),
    }
    path = write(name, content[name].encode(encoding))
    assert read(path) == PAIRS * 3
    assert ENCODINGS[encoding] in table_dataset(path).notes[0]


def test_a_byte_that_the_encoding_lacks_is_refused_with_its_place(
    write: Write,
) -> None:
    start = "text;label\n" + "Das Gerät lässt sich öffnen;gut\n" * 200_000
    path = write("a.csv", start.encode("cp1252") + b"\x81;gut\n")
    with pytest.raises(LitebertError, match=r"LB-309: .*not Windows-1252 after line"):
        list(open_table(path).rows())


# ---- formats -------------------------------------------------------------------------


def workbook(path: Path, sheets: dict[str, Sequence[Sequence[object]]]) -> Path:
    """Write an Excel file with the least that the format asks for."""
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006/"
    kinds = "application/vnd.openxmlformats-officedocument.spreadsheetml."
    names = [*enumerate(sheets, 1)]
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{package}content-types">'
        f'<Override PartName="/xl/workbook.xml" ContentType="{kinds}sheet.main+xml"/>'
        + "".join(
            f'<Override PartName="/xl/s{n}.xml" ContentType="{kinds}worksheet+xml"/>'
            for n, _ in names
        )
        + "</Types>",
        "_rels/.rels": f'<Relationships xmlns="{package}relationships">'
        f'<Relationship Id="r1" Type="{office}/officeDocument"'
        ' Target="xl/workbook.xml"/></Relationships>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{package}relationships">'
        + "".join(
            f'<Relationship Id="r{n}" Type="{office}/worksheet" Target="s{n}.xml"/>'
            for n, _ in names
        )
        + "</Relationships>",
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{office}"><sheets>'
        + "".join(
            f'<sheet name="{name}" sheetId="{n}" r:id="r{n}"/>' for n, name in names
        )
        + "</sheets></workbook>",
    }
    for n, name in names:
        rows = ""
        for number, cells in enumerate(sheets[name], 1):
            row = ""
            for column, value in zip("ABCDEFG", cells, strict=False):
                row += cell_of(f"{column}{number}", value)
            rows += f'<row r="{number}">{row}</row>'
        sheet = f'<worksheet xmlns="{main}"><sheetData>{rows}</sheetData></worksheet>'
        parts[f"xl/s{n}.xml"] = sheet
    with zipfile.ZipFile(path, "w") as archive:
        for part, text in parts.items():
            archive.writestr(part, f'<?xml version="1.0" encoding="UTF-8"?>{text}')
    return path


def cell_of(place: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        text = f"<is><t>{escape(value)}</t></is>"
        return f'<c r="{place}" t="inlineStr">{text}</c>'
    return f'<c r="{place}"><v>{value}</v></c>'


ROWS = [("Review", "Verdict"), *PAIRS, *PAIRS]
SHEETS: dict[str, dict[str, Sequence[Sequence[object]]]] = {
    "one": {"Sheet1": ROWS},
    "a cover before it, and others": {"About": [["ours"]], "Data": ROWS, "Old": ROWS},
    "a title above it": {"S": [["Reviews"], [], *ROWS]},
    "rows and columns without content": {"S": [[None, *row] for row in [[], *ROWS]]},
    "blank rows": {"S": [*ROWS[:3], [], *ROWS[3:], [], []]},
}


@pytest.mark.parametrize("name", SHEETS)
def test_spreadsheets_are_read(name: str, tmp_path: Path) -> None:
    pytest.importorskip("python_calamine")
    path = workbook(tmp_path / "a.xlsx", SHEETS[name])
    assert read(path) == PAIRS * 2
    if len(SHEETS[name]) > 1:
        assert "sheet Data" in table_dataset(path).notes[0]
        assert "not read: About, Old" in table_dataset(path).notes[0]


def test_labels_of_spreadsheets_are_those_of_other_files(tmp_path: Path) -> None:
    pytest.importorskip("python_calamine")
    rows = [("text", "label"), *((text, n % 2) for n, text in enumerate(TEXTS * 2))]
    path = workbook(tmp_path / "a.xlsx", {"S": rows})
    assert [label for _, label in read(path)] == ["0", "1"] * 4


def test_what_is_no_spreadsheet_is_refused(write: Write) -> None:
    pytest.importorskip("python_calamine")
    with pytest.raises(LitebertError, match="LB-318"):
        open_table(write("a.xlsx", "text,label\na,b\n"))


FAR = {
    "a cell far below and to the right": ('r="B9"', 'r="XFD1048576"'),
    "a cell beyond every sheet": ('r="B9"', 'r="ZZZZZZ4294967295"'),
    "no place": ('r="B9"', 'r="@"'),
}


@pytest.mark.parametrize("case", FAR)
def test_a_sheet_that_ends_the_library_is_refused(case: str, tmp_path: Path) -> None:
    pytest.importorskip("python_calamine")
    path = workbook(tmp_path / "a.xlsx", {"S": ROWS})
    old, new = FAR[case]
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name).decode() for name in archive.namelist()}
    assert old in parts["xl/s1.xml"]
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, text.replace(old, new))
    with pytest.raises(LitebertError, match="LB-318"):
        open_table(path)


def test_damaged_spreadsheets_are_refused_or_read(tmp_path: Path) -> None:
    pytest.importorskip("python_calamine")
    whole = workbook(tmp_path / "whole.xlsx", {"S": ROWS}).read_bytes()
    path = tmp_path / "a.xlsx"
    for end in range(1, len(whole), len(whole) // 8):
        path.write_bytes(whole[:end])
        with pytest.raises(LitebertError, match="LB-318"):
            open_table(path)
    for place in range(len(whole) - 100, len(whole), 9):  # the directory of the archive
        path.write_bytes(whole[:place] + b"\xff" + whole[place + 1 :])
        with suppress(LitebertError):
            open_table(path)


FAST_TEXT = {
    "train.txt": "".join(f"__label__{label} {text}\n" for text, label in PAIRS),
    "reviews.train": "".join(f"{text} __label__{label}\n" for text, label in PAIRS),
}


@pytest.mark.parametrize("name", FAST_TEXT)
def test_lines_of_fasttext_are_read(name: str, write: Write) -> None:
    assert read(write(name, FAST_TEXT[name] * 2)) == PAIRS * 2


def test_several_labels_of_fasttext_are_several_labels(write: Write) -> None:
    lines = "__label__a __label__b one text\n__label__a another\n__label__b third\n"
    dataset = table_dataset(write("a.txt", lines * 4))
    assert dataset.settled["problem"] == "multi-label"
    assert dataset.family.head.labels == ("a", "b")


def test_a_folder_for_each_label_is_read(tmp_path: Path) -> None:
    for number, (text, label) in enumerate(PAIRS * 2):
        folder = tmp_path / "reviews" / label
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.txt").write_text(text, "utf-8")
    (tmp_path / "reviews" / "README.txt").write_text("about", "utf-8")
    (tmp_path / "reviews" / "good" / ".DS_Store").write_bytes(b"\0\x81")
    folder = tmp_path / "reviews"
    assert sorted(read(folder)) == sorted(PAIRS * 2)
    dataset = table_dataset(folder)
    assert "8 texts in the folders of 2 labels" in dataset.notes[0]
    held_out = [example.id for example in dataset.read(folder, "dev")]
    again = table_dataset(folder, settled=dataset.settled)
    assert [example.id for example in again.read(folder, "dev")] == held_out
    assert "/" in held_out[0]
    (folder / "good" / "new.txt").write_text("one more", "utf-8")
    with pytest.raises(LitebertError, match="LB-890"):
        again.read(folder, "dev")


def test_names_that_are_not_utf8_are_read_and_hashed(tmp_path: Path) -> None:
    for label in (b"good", b"b\xe9d"):
        folder = tmp_path / os.fsdecode(label)
        folder.mkdir()
        (folder / "1.txt").write_text("A film.")
    labels = {row["label"] for _, row in open_table(tmp_path).rows()}
    assert labels == {"good", os.fsdecode(b"b\xe9d")}
    assert len(hash_table(tmp_path)) == 64


def test_folders_for_splits_stand_above_those_for_labels(tmp_path: Path) -> None:
    for split in ("train", "test"):
        for number, (text, label) in enumerate(PAIRS):
            folder = tmp_path / split / label
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number}.txt").write_text(f"{split} {text}", "utf-8")
    dataset = table_dataset(tmp_path)
    trained = dataset.read(tmp_path, "train")
    assert {example.first.split()[0] for example in trained} == {"train"}
    held_out = dataset.read(tmp_path, "dev")
    assert {example.first.split()[0] for example in held_out} == {"test"}


def test_a_folder_of_texts_without_labels_can_be_answered_but_not_trained_on(
    tmp_path: Path, write: Write
) -> None:
    new = tmp_path / "new"
    new.mkdir()
    with pytest.raises(LitebertError, match="LB-869"):
        open_table(new)
    (new / "a.txt").write_text("one\n", "utf-8")
    table = "Review,Stars,Shop\nso good,a,x\nso bad,b,y\n"
    columns = ("text=Review", "label=Stars")
    dataset = table_dataset(write("b.csv", table), columns=columns)
    (example,) = dataset.read(new, "test")
    assert (example.id, example.first) == ("a.txt", "one")
    with pytest.raises(LitebertError, match=r"LB-861(.|\n)*like its label"):
        table_dataset(new)


def test_a_folder_of_splits_is_refused_with_the_command(tmp_path: Path) -> None:
    for name in ("train.csv", "validation.csv", "test.csv"):
        (tmp_path / name).write_text("text,label\na,b\n", "utf-8")
    with pytest.raises(LitebertError) as raised:
        open_table(tmp_path)
    train = tmp_path / "train.csv"
    dev = tmp_path / "validation.csv"
    assert raised.value.next == f"litebert finetune {train} --dev {dev}"


def test_names_of_labels_in_parquet_are_read(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    names = ["O", "B-PER"]
    a_label = {"names": names, "_type": "ClassLabel"}
    features = {
        "tokens": {"feature": {"_type": "Value"}, "_type": "Sequence"},
        "tags": {"feature": a_label, "_type": "Sequence"},
        "topic": a_label | {"names": ["sport", "news"]},
    }
    table = pa.table(
        {"tokens": [["Anna", "left"]] * 4, "tags": [[1, 0]] * 4, "topic": [0, 1, 0, -1]}
    )
    described = json.dumps({"info": {"features": features}}).encode()
    path = tmp_path / "a.parquet"
    parquet.write_table(
        table.replace_schema_metadata({b"huggingface": described}), path
    )
    rows = [row for _, row in open_table(path).rows()]
    assert [row["topic"] for row in rows] == ["sport", "news", "sport", None]
    assert rows[0]["tags"] == ["B-PER", "O"]
    dataset = table_dataset(path, path)
    assert dataset.family.head.labels == ("B-PER", "O")


SHAPES = {
    "tabs without an extension": ("SMSSpamCollection", "{label}\t{text}\n", ""),
    "semicolons": ("train.txt", "{text};{label}\n", ""),
    "a header": ("train.txt", '"{text}",{label}\n', "text,label\n"),
    "tab": ("a.tab", "{text}\t{label}\n", "text\tlabel\n"),
    "dat": ("a.dat", "{label}|{text}\n", ""),
}


@pytest.mark.parametrize("name", SHAPES)
def test_delimited_files_are_recognized_by_their_shape(name: str, write: Write) -> None:
    file, form, head = SHAPES[name]
    rows = [form.format(text=text, label=label) for text, label in PAIRS * 2]
    assert read(write(file, head + "".join(rows))) == PAIRS * 2


def test_prose_is_no_table(write: Write) -> None:
    prose = "It was, as he said, late; we left.\nThey stayed, and we, too, slept.\n"
    for name in ("a.txt", "prose"):
        with pytest.raises(LitebertError, match=r"LB-304(.|\n)*spreadsheet"):
            open_table(write(name, prose * 10))


@pytest.mark.parametrize("function", [litebert.finetune, data_check])
def test_help_names_formats_that_are_read(function: Callable[..., object]) -> None:
    named = re.findall(r"\.[a-z]+(?=[, ])", str(function.__doc__).split("...")[0])
    assert len(named) >= 5
    assert set(named) <= set(SUFFIXES)


def test_the_docs_list_all_formats() -> None:
    page = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text("utf-8")
    for suffix in SUFFIXES:
        assert f"`{suffix}`" in page, suffix
    kinds = [suffix for layout in LAYOUTS for suffix in layout.suffixes]
    assert len(set(kinds)) == len(kinds) == len(SUFFIXES) + 1
    assert FOLDER in kinds
