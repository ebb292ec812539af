"""`litebert report`, and what it refuses."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from litebert.cli import run
from litebert.errors import DamagedError, LitebertError
from litebert.files import append_line
from litebert.report import write_report

MakeRun = Callable[..., Path]


def test_the_command_prints_the_path_or_json(make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    page = make_run() / "report.html"
    assert run(["report", str(page.parent)]) == 0
    assert capsys.readouterr().out == f"{page}\n"
    assert page.is_file()
    assert run(["report", str(page.parent), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"report": str(page)}


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LitebertError, match=r"LB-650(?s:.*)without run\.json(?s:.*)litebert runs list"):
        write_report(tmp_path)
    with pytest.raises(LitebertError, match=r"LB-650(?s:.*)no such folder"):
        write_report(tmp_path / "none")


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "7",
        "{}",
        '{"kind": "train"}',
        '{"kind": "train", "step": -1}',
        '{"kind": "train", "step": 1.5}',
        '{"kind": 3, "step": 1}',
        '{"kind": "train", "step": 1, "tokens": 1' + 400 * "0" + "}",
        100_000 * "[",
        "\x00",
    ],
    ids=lambda line: line[:32],
)
def test_a_damaged_log_is_named_and_the_old_report_stays(make_run: MakeRun, line: str) -> None:
    folder = make_run()
    before = write_report(folder).read_bytes()
    append_line(folder / "metrics.jsonl", line)

    with pytest.raises(DamagedError, match=r"LB-651(?s:.*)metrics\.jsonl(?s:.*)next: +\S"):
        write_report(folder)

    assert (folder / "report.html").read_bytes() == before


def test_a_last_line_cut_off_by_a_crash_is_left_out(make_run: MakeRun) -> None:
    folder = make_run()
    before = write_report(folder).read_bytes()
    with (folder / "metrics.jsonl").open("a") as log:
        log.write('{"kind": "train", "st')

    assert write_report(folder).read_bytes() == before


def test_without_matplotlib_the_extra_is_named(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_run()
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    with pytest.raises(LitebertError, match=r"LB-652(?s:.*)pip install 'litebert\[report\]'"):
        write_report(folder)

    assert not (folder / "report.html").exists()
