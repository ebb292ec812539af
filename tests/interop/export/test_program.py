"""A .pt2 program: torch alone runs it, at every shape."""

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import torch

from litebert.cli import run
from litebert.cli.help import schema_of
from litebert.interop.export.network import INPUTS
from litebert.interop.export.program import export_program, ragged_outputs
from litebert.nn import AlbertForTask


def test_the_saved_program_gives_the_networks_numbers_at_every_shape(
    folder_of: Callable[[str], Path], build: Callable[..., AlbertForTask], tmp_path: Path
) -> None:
    folder, output = folder_of("question-answering"), tmp_path / "out" / "model.pt2"
    report = export_program(folder, output)
    assert report.outputs == ("start_logits", "end_logits")
    assert report.bytes == output.stat().st_size < (folder / "model.safetensors").stat().st_size + 250_000
    assert str(Path(torch.__file__).parent).encode() not in output.read_bytes()
    assert (output.parent / "tokenizer.json").is_file()
    loaded = torch.export.load(output).module()
    for shape in ((1, 1), (2, 33), (1, 512)):
        ids = torch.randint(5, 90, shape, generator=torch.Generator().manual_seed(shape[1]))
        tensors = dict(zip(INPUTS, (ids, torch.ones_like(ids), torch.zeros_like(ids)), strict=True))
        found = loaded(*tensors.values())
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        expected = ragged_outputs(build("question-answering"), arrays, report.outputs)
        for values, name in zip(found, report.outputs, strict=True):
            np.testing.assert_allclose(values.detach().numpy(), expected[name], atol=2e-5)


def test_the_command_reports_in_json(
    folder_of: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = str(tmp_path / "model.pt2")
    assert run(["export", "program", str(folder_of("pretraining")), output, "--head", "none", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    jsonschema.validate(report, schema_of("export program"))
    assert (report["output"], report["outputs"]) == (output, ["last_hidden_state", "pooler_output"])
    assert report["max_difference"] < 1e-4
