"""Checkpoints: complete or absent, verified before use, resumed bit for bit, without
pickle.

A checkpoint is a folder `step-N`: a model like any other, the optimizer's moments, the
run's progress, and a manifest with the size and hash of every file. It is written under
a temporary name and then renamed (`files.staged_folder`).
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from pydantic import BaseModel, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from litebert import files
from litebert.errors import (
    DamagedError,
    LitebertError,
    NonFiniteError,
    ResourceError,
    free_bytes,
)
from litebert.files import Json
from litebert.folder import ModelFolder, read_folder, write_folder
from litebert.nn import Network
from litebert.optim import MomentOptimizer, load_state_tensors, state_tensors
from litebert.runs import Run
from litebert.train.run import WRITTEN_FILES, write_model

FORMAT_VERSION = 1
MANIFEST_FILE = "manifest.json"
STATE_FILE = "state.json"
OPTIMIZER_FILE = "optimizer.safetensors"
CHECKPOINT_FILES = (*WRITTEN_FILES, MANIFEST_FILE, STATE_FILE, OPTIMIZER_FILE)
AGAIN = "remove this checkpoint and run again"


class RunProgress(BaseModel):
    """The progress of a run."""

    step: int = 0  # steps done
    position: float = 0.0  # in the schedule
    # schedule steps per training step; varies in a run by the clock
    stride: float = 1.0
    seconds: float = 0.0  # spent, in a run by the clock
    skipped_in_a_row: int = 0  # steps with a loss or gradient that is not finite
    window: tuple[float, ...] = ()  # sums since the last row of the log
    window_tokens: int = 0
    loss_scale: float = 1.0  # what the loss is multiplied by in fp16
    scaled_steps: int = 0  # since the scale changed
    first_loss: float | None = None  # of the first step
    trend: float | None = None  # a running mean of the losses
    # the step at which the trend rose far above the first loss
    diverged: int | None = None

    def steps_left(self, planned: int) -> int:
        """Return how many steps the rest of the schedule takes at the current
        stride.
        """
        return max(0, round((planned - self.position) / self.stride))


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one run: the latest one has the largest step in its name."""

    folder: Path
    keep: int
    keep_every: int | None = None
    # what is written beside the weights, so that a checkpoint is a whole model
    model: ModelFolder | None = None

    def save(
        self, network: Network, optimizer: MomentOptimizer, progress: RunProgress
    ) -> Path:
        """Write a checkpoint, verify it, and only then remove the oldest ones.

        Nothing is written if weights or moments are not finite. The last one from
        before a divergence is kept.
        """
        tensors = state_tensors(optimizer)
        if name := first_not_finite({**dict(network.named_parameters()), **tensors}):
            what = (
                f"training has diverged: {name} is not finite after step"
                f" {progress.step}"
            )
            expected = "finite numbers; earlier checkpoints are untouched"
            advice = "start a run with a lower optim.learning_rate under another --name"
            raise NonFiniteError("LB-541", what, expected=expected, next=advice)
        final = self.folder / f"step-{progress.step:09d}"
        with files.staged_folder(final) as staged:
            model = replace(self.model or ModelFolder(network), network=network)
            write_folder(model, staged)
            moments = {
                name: tensor.cpu().contiguous() for name, tensor in tensors.items()
            }
            files.write_bytes(staged / OPTIMIZER_FILE, save(moments))
            files.write_json(staged / STATE_FILE, progress.model_dump(mode="json"))
            # last, when every file that it lists is on disk
            files.write_json(staged / MANIFEST_FILE, manifest_of(staged, progress.step))
        verify(final)
        # keep the newest from before a divergence, so that a run can restart from it
        spared = [
            path
            for path in self.newest_first()
            if step_of(path) < (progress.diverged or 0)
        ][:1]
        for outdated in self.newest_first()[self.keep :]:
            is_kept = (
                self.keep_every is not None and step_of(outdated) % self.keep_every == 0
            )
            is_ours = not files.foreign_files(outdated, CHECKPOINT_FILES)
            if not is_kept and outdated not in spared and is_ours:
                files.remove_folder(outdated)
        return final

    def restore_latest(
        self,
        network: Network,
        optimizer: MomentOptimizer,
        problems: list[LitebertError],
    ) -> Json:
        """Restore the newest checkpoint that is undamaged and finite; rename newer ones
        and append their `problems`.

        Return its progress as stored; None if no checkpoint is left. Other errors end
        the run and change nothing.
        """
        for path in self.newest_first():
            try:
                verify(path)
                loaded = read_folder(path)
                tensors = load_file(path / OPTIMIZER_FILE)
                progress = files.read_json(path / STATE_FILE, command=AGAIN)
                RunProgress.model_validate(progress)
                if missing := loaded.missing - getattr(
                    network, "untrained", frozenset()
                ):
                    raise _damaged(path, f"it lacks {', '.join(sorted(missing)[:5])}")
                if name := first_not_finite(tensors):
                    raise _damaged(path / OPTIMIZER_FILE, f"{name} is not finite")
                # first: if this raises, nothing has changed
                load_state_tensors(optimizer, tensors)
                values = {
                    name: t
                    for name, t in loaded.network.state_dict().items()
                    if name not in loaded.missing
                }
                network.load_state_dict(values, strict=False)
                return progress
            except DamagedError as error:
                problems.append(error)
            except (SafetensorError, ValidationError) as error:
                problems.append(_damaged(path, error))
            # otherwise it would count as one to keep, and a good checkpoint would be
            # removed
            path.rename(path.with_name(f"damaged-{path.name}-{uuid.uuid4().hex[:4]}"))
        return None

    def newest_first(self) -> list[Path]:
        """Return the checkpoints of the run, newest first."""
        # also matches unfinished ones of a killed process
        found = self.folder.glob("step-*")
        return sorted(
            (path for path in found if path.name[5:].isdecimal()), reverse=True
        )

    def require_disk(self, num_parameters: int) -> None:
        """Check that the disk has room for the checkpoints that will be kept, one more,
        and the model.
        """
        one = num_parameters * 12  # weights and two moments in float32
        present = sum(
            file.stat().st_size
            for path in self.newest_first()
            for file in path.iterdir()
        )
        needed = (
            (self.keep + 1) * one + num_parameters * 4 - min(present, self.keep * one)
        )
        if (free := free_bytes(self.folder.parent)) < needed:
            what = f"the disk of {self.folder.parent} is too full for this run"
            has = files.format_bytes(free)
            expected = f"{files.format_bytes(needed)} for its checkpoints and its model"
            advice = (
                "free some space, lower train.keep_checkpoints, or choose another"
                " --runs folder"
            )
            raise ResourceError(
                "LB-506", what, received=f"{has} free", expected=expected, next=advice
            )


def step_of(path: Path) -> int:
    """Return the step of a checkpoint from its name."""
    return int(path.name.removeprefix("step-"))


def verify(path: Path) -> None:
    """Check that a checkpoint contains exactly the files in its manifest, with the same
    sizes and hashes.
    """
    if not (path / MANIFEST_FILE).exists():
        raise _damaged(path, f"it lacks {MANIFEST_FILE}")
    listed = files.read_json(path / MANIFEST_FILE, command=AGAIN)
    present = manifest_of(path, step_of(path))
    if listed != present:
        one, other = (
            x if isinstance(x := each.get("files"), dict) else {}
            for each in (listed, present)
        )
        differing = sorted(
            name for name in one | other if one.get(name) != other.get(name)
        )
        raise _damaged(
            path,
            f"differs from its manifest: {', '.join(differing or [MANIFEST_FILE])}",
        )


def manifest_of(folder: Path, step: int) -> dict[str, Json]:
    """Describe every file of a checkpoint."""
    paths = [
        path
        for path in sorted(folder.iterdir())
        if path.is_file() and path.name != MANIFEST_FILE
    ]
    listed: dict[str, Json] = {
        p.name: {"bytes": p.stat().st_size, "blake2b": files.hash_file(p)}
        for p in paths
    }
    return {"format": FORMAT_VERSION, "step": step, "files": listed}


def first_not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """Return the name of a tensor with NaN or infinity, if any, by operations that
    every device supports.
    """
    return next(
        (
            name
            for name, tensor in tensors.items()
            if not tensor.detach().isfinite().all()
        ),
        None,
    )


def _damaged(path: Path, received: object) -> DamagedError:
    what = f"checkpoint file {path} is damaged"
    expected = "exactly what was written, by size and blake2b"
    advice = (
        "run the same command again: it resumes from the newest undamaged checkpoint"
    )
    return DamagedError(
        "LB-501", what, received=received, expected=expected, next=advice
    )


# Averages of checkpoints


def average_checkpoints(
    run: Path, output: Path, *, last: int = 1, force: bool = False
) -> list[int]:
    """Write the mean weights of the `last` newest checkpoints as a model; return the
    steps of these checkpoints.
    """
    Run.of(Run.open(run).folder)  # refuses several seeds
    files.require_new(output, force=force, own=WRITTEN_FILES)
    every = Checkpoints(run / "checkpoints", keep=1).newest_first()
    if len(every) < last:
        steps = ", ".join(f"{step_of(path):,}" for path in reversed(every))
        received = f"{len(every)} of {last}; there are steps {steps or 'none'}"
        advice = (
            "lower --last; new runs keep more with train.keep_checkpoints or"
            " train.keep_every"
        )
        raise LitebertError(
            "LB-265", f"{run} has too few checkpoints", received=received, next=advice
        )
    chosen = every[:last]
    for path in chosen:
        verify(path)
    write_model(output, mean_model(chosen), force=force)
    return sorted(map(step_of, chosen))


@torch.no_grad()
def mean_model(folders: Sequence[Path], weights: Sequence[float] = ()) -> ModelFolder:
    """Return the first model with the mean weights of all folders, summed in float64.

    The models must have the same shape; `weights` are their shares, equal by default.
    """
    shares = weights or [1.0] * len(folders)
    model = read_folder(folders[0])
    network = model.network
    sums = {
        name: tensor.double() * shares[0]
        for name, tensor in network.state_dict().items()
    }
    for folder, share in zip(folders[1:], shares[1:], strict=True):
        for name, tensor in read_folder(folder).network.state_dict().items():
            sums[name] += tensor.double() * share
    network.load_state_dict(
        {name: (x / sum(shares)).float() for name, x in sums.items()}
    )
    return model
