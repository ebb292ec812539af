"""Checkpoints: complete or absent, verified before use, resumed bit for bit, without pickle."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from litebert.errors import DamagedError, LitebertError, NonFiniteError
from litebert.files import Json, hash_file, read_json, remove_folder, staged_folder, write_bytes, write_json
from litebert.folder import load_model, save_model
from litebert.nn import Network
from litebert.optim import MomentOptimizer, load_state_tensors, state_tensors
from litebert.tokenizer import Tokenizer

FORMAT_VERSION = 1
_MANIFEST, _STATE, _OPTIMIZER = "manifest.json", "state.json", "optimizer.safetensors"


@dataclass(frozen=True)
class RunProgress:
    """Where a run stands: steps done, non-finite steps in a row, sums since the last log line.

    In fp16 the loss is multiplied by `loss_scale`, and `scaled_steps`
    counts the steps since that changed.
    """

    step: int = 0
    skipped_in_a_row: int = 0
    window: tuple[float, ...] = ()
    window_tokens: int = 0
    loss_scale: float = 1.0
    scaled_steps: int = 0

    def to_json(self) -> dict[str, Json]:
        """Return the contents of state.json; fields of fp16 only where they are used."""
        table: dict[str, Json] = {
            "step": self.step,
            "skipped_in_a_row": self.skipped_in_a_row,
            "window": list(self.window),
            "window_tokens": self.window_tokens,
        }
        if self.scaled_steps or self.loss_scale != 1:
            table |= {"loss_scale": self.loss_scale, "scaled_steps": self.scaled_steps}
        return table

    @classmethod
    def of_json(cls, table: Json) -> RunProgress:
        """Read what `to_json` returned.

        Raises:
            ValidationError: It is something else.
        """
        return TypeAdapter(cls).validate_python(table)


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one run: folders `step-N`, the latest of which has the largest N."""

    folder: Path
    keep: int
    keep_every: int | None = None
    tokenizer: Tokenizer | None = None

    def save(self, network: Network, optimizer: MomentOptimizer, progress: RunProgress) -> Path:
        """Write a checkpoint, verify it, and only then remove the oldest ones.

        Raises:
            NonFiniteError: LB-541, weights or moments are not finite; nothing is written.
        """
        tensors = state_tensors(optimizer, network.named_parameters())
        _require_finite({**dict(network.named_parameters()), **tensors}, progress.step)
        final = self.folder / f"step-{progress.step:09d}"
        with staged_folder(final) as staged:
            save_model(network, staged)
            if self.tokenizer:  # so that a checkpoint is a model that can be used
                length = network.config.max_position_embeddings
                self.tokenizer.save(staged, max_length=length)
            contiguous = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
            write_bytes(staged / _OPTIMIZER, save(contiguous))
            write_json(staged / _STATE, progress.to_json())
            write_json(staged / _MANIFEST, _manifest(staged, progress.step))
        verify(final)
        for outdated in self.newest_first()[self.keep :]:
            if self.keep_every is None or step_of(outdated) % self.keep_every:
                remove_folder(outdated)
        return final

    def restore_latest(
        self, network: Network, optimizer: MomentOptimizer
    ) -> tuple[RunProgress | None, list[LitebertError]]:
        """Restore the newest checkpoint that is undamaged and finite; rename each newer one.

        Return the progress stored in it, and why each newer checkpoint was not used.
        """
        problems: list[LitebertError] = []
        for path in self.newest_first():
            try:
                verify(path)
                return restore(path, network, optimizer), problems
            except LitebertError as error:
                problems.append(error)
                # otherwise it would count as one to keep, and a good one would be removed
                path.rename(path.with_name(f"damaged-{path.name}-{uuid.uuid4().hex[:4]}"))
        return None, problems

    def newest_first(self) -> list[Path]:
        """Return the checkpoints of the run, the latest one first."""
        found = self.folder.glob("step-*")  # also unfinished ones that a killed writer left
        return sorted((path for path in found if path.name[5:].isdecimal()), reverse=True)

    @property
    def num_bytes(self) -> int:
        """The size of the checkpoints on disk."""
        files = (file for path in self.newest_first() for file in path.iterdir())
        return sum(file.stat().st_size for file in files)


def step_of(path: Path) -> int:
    """Return the step of a checkpoint from its name."""
    return int(path.name.removeprefix("step-"))


def restore(path: Path, network: Network, optimizer: MomentOptimizer) -> RunProgress:
    """Copy a verified checkpoint into a network and its optimizer; return its progress.

    Raises:
        DamagedError: LB-500, LB-501, it lacks weights, or a file cannot be read.
    """
    loaded = load_model(path)
    if loaded.missing:
        raise DamagedError(
            "LB-500",
            f"{path} lacks weights of the model that is being trained",
            received=", ".join(sorted(loaded.missing)[:5]),
            expected="every parameter",
            next="remove this checkpoint and run the same command again",
        )
    try:
        tensors = load_file(path / _OPTIMIZER)
    except (SafetensorError, OSError) as error:
        raise _damaged(path / _OPTIMIZER, str(error)) from error
    if name := _first_not_finite(tensors):
        raise _damaged(path / _OPTIMIZER, f"{name} is not finite")
    table = read_json(path / _STATE, command="remove this checkpoint and run the command again")
    try:
        progress = RunProgress.of_json(table)
    except ValidationError as error:
        raise _damaged(path / _STATE, str(error)) from error
    network.load_state_dict(loaded.network.state_dict())
    load_state_tensors(optimizer, network.named_parameters(), tensors)
    return progress


def verify(path: Path) -> None:
    """Check every file of a checkpoint against its manifest.

    Raises:
        DamagedError: LB-501, a file is missing, superfluous or changed.
    """
    manifest = read_json(path / _MANIFEST, command="remove this checkpoint and run again")
    if manifest.get("format") != FORMAT_VERSION:
        raise _damaged(path / _MANIFEST, f"format {manifest.get('format')}")
    listed = manifest.get("files")
    if not isinstance(listed, dict):
        raise _damaged(path / _MANIFEST, "no list of files")
    present = {file.name for file in path.iterdir()} - {_MANIFEST}
    if present != set(listed):
        raise _damaged(path, f"files that differ from the list: {sorted(present ^ set(listed))}")
    for name, described in listed.items():
        if not isinstance(described, dict) or described != _described(path / name):
            raise _damaged(path / name, "size or hash differ from the manifest")


def _manifest(folder: Path, step: int) -> dict[str, Json]:
    files: dict[str, Json] = {p.name: _described(p) for p in sorted(folder.iterdir())}
    return {"format": FORMAT_VERSION, "step": step, "files": files}


def _described(path: Path) -> dict[str, Json]:
    return {"bytes": path.stat().st_size, "blake2b": hash_file(path)}


def _require_finite(tensors: Mapping[str, Tensor], step: int) -> None:
    if name := _first_not_finite(tensors):
        raise NonFiniteError(
            "LB-541",
            f"training has diverged: {name} is not finite after step {step}",
            received="NaN or infinity in the weights or in the optimizer's moments",
            expected="finite numbers; earlier checkpoints are untouched",
            next="start a run with a lower optim.learning_rate under another --name",
        )


def _first_not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """Return the name of a tensor with NaN or infinity, if any: its sum is not finite either."""
    return next((n for n, t in tensors.items() if not t.detach().double().sum().isfinite()), None)


def _damaged(path: Path, received: str) -> DamagedError:
    return DamagedError(
        "LB-501",
        f"checkpoint file {path} is damaged",
        received=received,
        expected="exactly what was written, by size and blake2b",
        next="run the same command again: it resumes from the newest undamaged checkpoint",
    )
