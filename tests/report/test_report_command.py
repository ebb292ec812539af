"""`litebert report`, and what it refuses."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from litebert.cli import cli
from litebert.errors import DamagedError, LitebertError
from litebert.files import append_line
from litebert.report import write_report

MakeRun = Callable[..., Path]


def test_the_command_prints_the_path(make_run: MakeRun) -> None:
    run = make_run()

    result = CliRunner().invoke(cli, ["report", str(run)])

    assert result.exit_code == 0
    assert result.stdout == f"{run / 'report.html'}\n"
    assert (run / "report.html").is_file()


def test_the_command_prints_json(make_run: MakeRun) -> None:
    run = make_run()

    result = CliRunner().invoke(cli, ["report", str(run), "--json"])

    assert json.loads(result.stdout) == {"report": str(run / "report.html")}


def test_the_help_shows_two_examples() -> None:
    examples = CliRunner().invoke(cli, ["report", "--help"]).stdout.splitlines()

    assert "  litebert report runs/mine" in examples
    assert "  litebert report runs/mine --json" in examples


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
    run = make_run()
    before = write_report(run).read_bytes()
    append_line(run / "metrics.jsonl", line)

    with pytest.raises(DamagedError, match=r"LB-651(?s:.*)metrics\.jsonl(?s:.*)next: +\S"):
        write_report(run)

    assert (run / "report.html").read_bytes() == before


def test_a_last_line_cut_off_by_a_crash_is_left_out(make_run: MakeRun) -> None:
    run = make_run()
    before = write_report(run).read_bytes()
    with (run / "metrics.jsonl").open("a") as log:
        log.write('{"kind": "train", "st')

    assert write_report(run).read_bytes() == before


def test_without_matplotlib_the_extra_is_named(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run()
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    with pytest.raises(LitebertError, match=r"LB-652(?s:.*)pip install 'litebert\[report\]'"):
        write_report(run)

    assert not (run / "report.html").exists()
