"""The two commands as they are typed."""

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import torch
from click.testing import CliRunner

from litebert.cli.export_onnx import onnx
from litebert.cli.export_program import program
from litebert.cli.json_types import schema_of
from litebert.interop.export.onnx.graph import OPSETS


def test_export_onnx_prints_size_agreement_and_times_of_every_runtime(
    folder_of: Callable[[str], Path], tmp_path: Path
) -> None:
    (tmp_path / "texts.txt").write_text("It rained.\tAll day.\nWho came?\n", encoding="utf-8")
    threads = torch.get_num_threads()
    shown = CliRunner().invoke(
        onnx,
        [
            *(str(folder_of("sequence-classification")), str(tmp_path / "out" / "model.onnx")),
            *("--int8", "--opset", str(OPSETS[-1]), "--texts", str(tmp_path / "texts.txt")),
        ],
        catch_exceptions=False,
    )
    assert "0 products with weights in float, 11 in int8" in shown.stdout
    head, *rows = [line.split() for line in shown.stdout.splitlines()[3:7]]
    assert head[-6:] == ["1x16", "ms", "1x128", "ms", "8x128", "ms"]
    assert [" ".join(row[:-8]) or row[0] for row in rows] == [*("litebert", "onnxruntime fp32", "onnxruntime int8")]
    assert all(float(cell) > 0 for row in rows for cell in row[-3:])
    assert torch.get_num_threads() == threads


def test_export_onnx_reports_in_json_without_times(folder_of: Callable[[str], Path], tmp_path: Path) -> None:
    output = tmp_path / "model.onnx"
    shown = CliRunner().invoke(
        onnx,
        [*(str(folder_of("token-classification")), str(output)), *("--no-latency", "--json")],
        catch_exceptions=False,
    )
    report = json.loads(shown.stdout)
    jsonschema.validate(report, schema_of("export onnx"))
    assert (report["outputs"], report["head"]) == (["logits"], "token-classification")
    assert report["products"] == {"floating": 10, "integer": 0}
    ours, exported = report["rows"]
    assert ours["parity"] is None
    assert exported["bytes"] == output.stat().st_size
    assert exported["parity"]["max_difference"] < 1e-4
    assert exported["parity"]["same_choice"] == 1.0
    assert exported["milliseconds"] == {}


def test_export_program_reports_in_json(folder_of: Callable[[str], Path], tmp_path: Path) -> None:
    output = tmp_path / "model.pt2"
    shown = CliRunner().invoke(
        program, [str(folder_of("pretraining")), str(output), "--head", "none", "--json"], catch_exceptions=False
    )
    report = json.loads(shown.stdout)
    jsonschema.validate(report, schema_of("export program"))
    assert report["output"] == str(output)
    assert report["outputs"] == ["last_hidden_state", "pooler_output"]
    assert report["max_difference"] < 1e-4


def test_the_help_begins_with_two_examples() -> None:
    for command in (onnx, program):
        shown = CliRunner().invoke(command, ["--help"]).stdout
        assert shown.count("litebert export ") >= 2
