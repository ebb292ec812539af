"""Checkpoints: whole or absent, verified before use, resumed bit for bit, without pickle."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save

from litebert.errors import DamagedError, LitebertError
from litebert.files import (
    Json,
    hash_file,
    read_json,
    remove_unfinished,
    staged_folder,
    write_bytes,
    write_json,
)
from litebert.folder import load_model, save_model
from litebert.nn import Network
from litebert.optim import MomentOptimizer, load_state_tensors, state_tensors

FORMAT_VERSION = 1
_MANIFEST, _STATE, _OPTIMIZER = "manifest.json", "state.json", "optimizer.safetensors"


@dataclass(frozen=True)
class Progress:
    """Where a run stands: steps done, non-finite steps in a row, sums since the last log line."""

    step: int = 0
    skipped_in_a_row: int = 0
    window: tuple[float, ...] = ()
    window_tokens: int = 0


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one run, `step-N` folders; which is the latest is computed, not stored."""

    folder: Path
    keep: int

    def save(self, network: Network, optimizer: MomentOptimizer, progress: Progress) -> Path:
        """Write a checkpoint, read it back, and only then remove the oldest ones."""
        final = self.folder / f"step-{progress.step:09d}"
        with staged_folder(final) as staged:
            save_model(network, staged)
            tensors = state_tensors(optimizer, network.named_parameters())
            contiguous = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
            write_bytes(staged / _OPTIMIZER, save(contiguous))
            write_json(staged / _STATE, _progress_json(progress))
            write_json(staged / _MANIFEST, _manifest(staged, progress.step))
        verify(final)
        for outdated in self._newest_first()[self.keep :]:
            shutil.rmtree(outdated)
        return final

    def latest(self) -> tuple[Path | None, list[LitebertError]]:
        """Return the newest checkpoint that verifies, and why each newer one did not."""
        problems: list[LitebertError] = []
        if self.folder.is_dir():
            remove_unfinished(self.folder)
        for path in self._newest_first():
            try:
                verify(path)
            except LitebertError as error:
                problems.append(error)
            else:
                return path, problems
        return None, problems

    def _newest_first(self) -> list[Path]:
        return sorted(self.folder.glob("step-[0-9]*"), reverse=True)


def restore(path: Path, network: Network, optimizer: MomentOptimizer) -> Progress:
    """Copy a verified checkpoint into a network and its optimizer; return where the run stood."""
    loaded = load_model(path)
    if loaded.missing:
        raise DamagedError(
            "LB-500",
            f"{path} lacks weights of the model that is being trained",
            received=", ".join(sorted(loaded.missing)[:5]),
            expected="every parameter",
            next="remove this checkpoint and run the same command again",
        )
    network.load_state_dict(loaded.network.state_dict())
    try:
        tensors = load_file(path / _OPTIMIZER)
    except (SafetensorError, OSError) as error:
        raise _damaged(path / _OPTIMIZER, str(error)) from error
    load_state_tensors(optimizer, network.named_parameters(), tensors)
    table = read_json(path / _STATE, command="remove this checkpoint and run the command again")
    return Progress(
        step=int(str(table["step"])),
        skipped_in_a_row=int(str(table["skipped_in_a_row"])),
        window=tuple(float(str(value)) for value in _list(table["window"])),
        window_tokens=int(str(table["window_tokens"])),
    )


def verify(path: Path) -> None:
    """Check every file of a checkpoint against its manifest; raise DamagedError at the first."""
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


def _progress_json(progress: Progress) -> dict[str, Json]:
    return {
        "step": progress.step,
        "skipped_in_a_row": progress.skipped_in_a_row,
        "window": list(progress.window),
        "window_tokens": progress.window_tokens,
    }


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _damaged(path: Path, received: str) -> DamagedError:
    return DamagedError(
        "LB-501",
        f"checkpoint file {path} is damaged",
        received=received,
        expected="exactly what was written, by size and blake2b",
        next="run the same command again: it resumes from the newest whole checkpoint",
    )
