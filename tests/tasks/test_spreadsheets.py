"""Spreadsheets: the sheet that holds a table is found and read; damaged ones are
refused.
"""

import zipfile
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from litebert.errors import LitebertError
from litebert.tasks.tables.dataset import table_dataset
from litebert.tasks.tables.layouts import open_table
from tests.tables import REVIEWS, Write, read_pairs

pytest.importorskip("python_calamine")

Sheet = Sequence[Sequence[object]]

PAIRS = REVIEWS * 2
ROWS: Sheet = [("Review", "Verdict"), *PAIRS]

# ---- files as Excel writes them ------------------------------------------------------

SCHEMAS = "http://schemas.openxmlformats.org"
MAIN = f"{SCHEMAS}/spreadsheetml/2006/main"
OFFICE = f"{SCHEMAS}/officeDocument/2006/relationships"
PACKAGE = f"{SCHEMAS}/package/2006"
SHEET_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml"


def workbook(path: Path, sheets: dict[str, Sheet]) -> Path:
    """Write an Excel file with the least that the format asks for."""
    types = (
        '<Override PartName="/xl/workbook.xml"'
        f' ContentType="{SHEET_TYPE}.sheet.main+xml"/>'
    )
    targets = ""
    names = ""
    parts = dict[str, str]()
    for number, (name, rows) in enumerate(sheets.items(), 1):
        types += (
            f'<Override PartName="/xl/s{number}.xml"'
            f' ContentType="{SHEET_TYPE}.worksheet+xml"/>'
        )
        targets += (
            f'<Relationship Id="r{number}" Type="{OFFICE}/worksheet"'
            f' Target="s{number}.xml"/>'
        )
        names += f'<sheet name="{name}" sheetId="{number}" r:id="r{number}"/>'
        parts[f"xl/s{number}.xml"] = sheet_xml(rows)
    book = (
        f'<Relationship Id="r1" Type="{OFFICE}/officeDocument"'
        ' Target="xl/workbook.xml"/>'
    )
    parts["[Content_Types].xml"] = (
        f'<Types xmlns="{PACKAGE}/content-types">{types}</Types>'
    )
    parts["_rels/.rels"] = relationships(book)
    parts["xl/_rels/workbook.xml.rels"] = relationships(targets)
    parts["xl/workbook.xml"] = (
        f'<workbook xmlns="{MAIN}" xmlns:r="{OFFICE}">'
        f"<sheets>{names}</sheets></workbook>"
    )
    with zipfile.ZipFile(path, "w") as archive:
        for part, text in parts.items():
            archive.writestr(part, f'<?xml version="1.0" encoding="UTF-8"?>{text}')
    return path


def relationships(members: str) -> str:
    return f'<Relationships xmlns="{PACKAGE}/relationships">{members}</Relationships>'


def sheet_xml(rows: Sheet) -> str:
    lines = ""
    for number, cells in enumerate(rows, 1):
        line = ""
        for column, value in zip("ABCDEFG", cells, strict=False):
            line += cell_xml(f"{column}{number}", value)
        lines += f'<row r="{number}">{line}</row>'
    return f'<worksheet xmlns="{MAIN}"><sheetData>{lines}</sheetData></worksheet>'


def cell_xml(place: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        text = f"<is><t>{escape(value)}</t></is>"
        return f'<c r="{place}" t="inlineStr">{text}</c>'
    return f'<c r="{place}"><v>{value}</v></c>'


# ---- what is read --------------------------------------------------------------------


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(ROWS, id="nothing else"),
        pytest.param([["Reviews"], [], *ROWS], id="a title above"),
        pytest.param(
            [[None], *([None, *row] for row in ROWS)], id="an empty row and column"
        ),
        pytest.param([*ROWS[:3], [], *ROWS[3:], [], []], id="blank rows"),
    ],
)
def test_the_table_of_a_sheet_is_read(rows: Sheet, tmp_path: Path) -> None:
    path = workbook(tmp_path / "a.xlsx", {"Sheet1": rows})
    assert read_pairs(path) == PAIRS


def test_of_several_sheets_the_first_with_a_table_is_read_with_a_note(
    tmp_path: Path,
) -> None:
    about: Sheet = [["Feedback of May"], ["Exported by Jane"], ["Page", "of 2"]]
    sheets: dict[str, Sheet] = {"About": about, "Data": ROWS, "Old": ROWS}
    path = workbook(tmp_path / "a.xlsx", sheets)
    assert read_pairs(path) == PAIRS

    note = table_dataset(path).notes[0]
    assert "sheet Data" in note
    assert "not read: About, Old" in note
    assert "save it as a file of its own" in note


def test_a_sheet_with_one_column_is_told_to_have_two(tmp_path: Path) -> None:
    path = workbook(tmp_path / "a.xlsx", {"Notes": [["so good"], ["so bad"]]})
    with pytest.raises(LitebertError, match=r"LB-861(.|\n)*two columns of one sheet"):
        table_dataset(path)


def test_whole_numbers_of_a_sheet_are_labels_without_a_point(tmp_path: Path) -> None:
    rows = [("text", "label"), *((text, int(label == "good")) for text, label in PAIRS)]
    path = workbook(tmp_path / "a.xlsx", {"Sheet1": rows})
    assert [label for _, label in read_pairs(path)] == ["1", "0"] * 4


# ---- what is refused -----------------------------------------------------------------


def test_another_file_under_the_name_of_a_spreadsheet_is_refused(write: Write) -> None:
    with pytest.raises(LitebertError, match="LB-318"):
        open_table(write("a.xlsx", "text,label\na,b\n"))


@pytest.mark.parametrize(
    "place",
    [
        pytest.param("XFD1048576", id="far below and to the right"),
        pytest.param("ZZZZZZ4294967295", id="beyond every sheet"),
        pytest.param("@", id="no place"),
    ],
)
def test_a_cell_at_a_place_that_the_library_cannot_hold_is_refused(
    place: str, tmp_path: Path
) -> None:
    path = workbook(tmp_path / "a.xlsx", {"Sheet1": ROWS})
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name).decode() for name in archive.namelist()}
    last_cell = 'r="B9"'
    assert last_cell in parts["xl/s1.xml"]
    parts["xl/s1.xml"] = parts["xl/s1.xml"].replace(last_cell, f'r="{place}"')
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, text)

    with pytest.raises(LitebertError, match="LB-318"):
        open_table(path)


def test_a_spreadsheet_that_unpacks_to_too_much_is_told_to_become_text(
    tmp_path: Path,
) -> None:
    path = workbook(tmp_path / "a.xlsx", {"Sheet1": ROWS})
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/media/picture.bmp", bytes(40 << 20))
    with pytest.raises(LitebertError, match="LB-307") as caught:
        open_table(path)
    assert caught.value.next is not None
    assert "save the sheet that has the table as .csv" in caught.value.next


def test_a_spreadsheet_that_ends_too_early_is_refused(tmp_path: Path) -> None:
    content = workbook(tmp_path / "whole.xlsx", {"Sheet1": ROWS}).read_bytes()
    path = tmp_path / "a.xlsx"
    for end in range(1, len(content), len(content) // 8):
        path.write_bytes(content[:end])
        with pytest.raises(LitebertError, match="LB-318"):
            open_table(path)


def test_a_file_with_a_damaged_byte_is_refused_or_has_the_same_rows(
    tmp_path: Path,
) -> None:
    content = workbook(tmp_path / "whole.xlsx", {"Sheet1": ROWS}).read_bytes()
    path = tmp_path / "a.xlsx"
    # the directory of the archive stands at its end
    for place in range(len(content) - 100, len(content), 9):
        path.write_bytes(content[:place] + b"\xff" + content[place + 1 :])
        try:
            pairs = read_pairs(path)
        except LitebertError as error:
            assert error.code in ("LB-318", "LB-853")  # damaged, or without rows
        else:
            assert pairs == PAIRS
