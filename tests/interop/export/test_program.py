"""A .pt2 program: torch alone runs it, at every shape."""

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import numpy as np
import torch
from click.testing import CliRunner

from litebert.cli import cli
from litebert.cli.help import schema_of
from litebert.interop.export.check import ragged_outputs
from litebert.interop.export.network import INPUTS
from litebert.interop.export.program import export_program
from litebert.nn import AlbertForTask


def _tensors(batch: int, length: int) -> dict[str, torch.Tensor]:
    ids = torch.randint(5, 90, (batch, length), generator=torch.Generator().manual_seed(length))
    return dict(zip(INPUTS, (ids, torch.ones_like(ids), torch.zeros_like(ids)), strict=True))


def test_the_saved_program_gives_the_networks_numbers_at_every_shape(
    folder_of: Callable[[str], Path], build: Callable[..., AlbertForTask], tmp_path: Path
) -> None:
    output = tmp_path / "out" / "model.pt2"
    report = export_program(folder_of("question-answering"), output)
    assert report.outputs == ("start_logits", "end_logits")
    assert report.bytes == output.stat().st_size
    assert (output.parent / "tokenizer.json").is_file()
    loaded = torch.export.load(output).module()
    for shape in ((1, 1), (2, 33), (1, 512)):
        tensors = _tensors(*shape)
        found = loaded(*tensors.values())
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        expected = ragged_outputs(build("question-answering"), arrays, report.outputs)
        for values, name in zip(found, report.outputs, strict=True):
            np.testing.assert_allclose(values.detach().numpy(), expected[name], atol=2e-5)


def test_the_program_holds_each_weight_once_and_no_paths(folder_of: Callable[[str], Path], tmp_path: Path) -> None:
    folder, output = folder_of("question-answering"), tmp_path / "model.pt2"
    export_program(folder, output)
    assert output.stat().st_size < (folder / "model.safetensors").stat().st_size + 250_000
    assert str(Path(torch.__file__).parent).encode() not in output.read_bytes()


def test_the_command_reports_in_json(folder_of: Callable[[str], Path], tmp_path: Path) -> None:
    output = tmp_path / "model.pt2"
    shown = CliRunner().invoke(
        cli,
        ["export", "program", str(folder_of("pretraining")), str(output), "--head", "none", "--json"],
        catch_exceptions=False,
    )
    report = json.loads(shown.stdout)
    jsonschema.validate(report, schema_of("export program"))
    assert report["output"] == str(output)
    assert report["outputs"] == ["last_hidden_state", "pooler_output"]
    assert report["max_difference"] < 1e-4
