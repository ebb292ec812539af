"""A .pt2 program: torch alone runs it, at every shape."""

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from litebert.interop.export.padded import INPUTS
from litebert.interop.export.program import export_program, trace
from litebert.interop.export.ragged import ragged_outputs
from litebert.interop.export.readers import padded
from litebert.nn import AlbertForTask

COMPILE = (
    "import sys; from pathlib import Path; "
    "from litebert.interop.export.program import export_program; "
    "export_program(Path(sys.argv[1]), Path(sys.argv[2]), compiled=True)"
)


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
    program = torch.export.load(output).module()
    for shape in ((1, 1), (2, 33), (1, 512)):
        tensors = _tensors(*shape)
        found = program(*tensors.values())
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        expected = ragged_outputs(build("question-answering"), arrays, report.outputs)
        for values, name in zip(found, report.outputs, strict=True):
            np.testing.assert_allclose(values.detach().numpy(), expected[name], atol=2e-5)


def test_the_program_holds_each_weight_once_and_no_paths(folder_of: Callable[[str], Path], tmp_path: Path) -> None:
    folder, output = folder_of("question-answering"), tmp_path / "model.pt2"
    export_program(folder, output)
    assert output.stat().st_size < (folder / "model.safetensors").stat().st_size + 250_000
    assert str(Path(torch.__file__).parent).encode() not in output.read_bytes()


def test_too_long_a_sequence_is_refused_by_the_program(build: Callable[..., AlbertForTask]) -> None:
    buffer = io.BytesIO()
    torch.export.save(trace(padded(build("token-classification"))), buffer)
    buffer.seek(0)
    program = torch.export.load(buffer).module()
    with pytest.raises(AssertionError, match="512"):
        program(*_tensors(1, 513).values())


@pytest.mark.slow
def test_a_compiled_program_is_a_package_that_runs(folder_of: Callable[[str], Path], tmp_path: Path) -> None:
    output = tmp_path / "model.pt2"
    report = export_program(folder_of("sequence-classification"), output, compiled=True)
    assert report.is_compiled
    assert report.max_difference < 1e-4
    loaded = torch._inductor.aoti_load_package(str(output))
    (logits,) = loaded(*_tensors(3, 9).values())
    assert logits.shape == (3, 3)


@pytest.mark.slow
def test_without_a_compiler_the_command_says_so_and_writes_nothing(
    folder_of: Callable[[str], Path], tmp_path: Path
) -> None:
    output = tmp_path / "out" / "model.pt2"
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, str(folder_of("sequence-classification")), str(output)],
        env=os.environ | {"CXX": "/nonexistent", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "LB-754" in done.stderr
    assert not output.parent.exists()
