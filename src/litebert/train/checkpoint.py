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
from litebert.runs import RunFolder
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

    folder: Path  # `checkpoints` in that of the run
    keep: int  # the number of newest ones that stay
    keep_every: int | None = None  # also those at multiples of this step
    # what is written beside the weights, so that a checkpoint is a whole model
    model: ModelFolder | None = None

    def save(
        self, network: Network, optimizer: MomentOptimizer, progress: RunProgress
    ) -> Path:
        """Write a checkpoint, verify it, and only then remove the oldest ones.

        Nothing is written if weights or moments are not finite. The last one from
        before a divergence is kept.
        """
        moments = state_tensors(optimizer)
        weights = dict(network.named_parameters())
        _require_finite({**weights, **moments}, progress.step)
        final = self.folder / f"step-{progress.step:09d}"
        with files.staged_folder(final) as staged:
            model = replace(self.model or ModelFolder(network), network=network)
            write_folder(model, staged)
            on_cpu = {name: x.cpu().contiguous() for name, x in moments.items()}
            files.write_bytes(staged / OPTIMIZER_FILE, save(on_cpu))
            files.write_json(staged / STATE_FILE, progress.model_dump(mode="json"))
            # last, when every file that it lists is on disk
            files.write_json(staged / MANIFEST_FILE, manifest_of(staged, progress.step))
        # Read back, so that older ones go only when this one is good.
        verify(final)
        self._remove_outdated(progress.diverged or 0)
        return final

    def _remove_outdated(self, diverged: int) -> None:
        """Remove all but the newest ones, those to keep, and the newest from before the
        step of a divergence, from which a run can start again.
        """
        checkpoints = self.newest_first()
        # those from before the divergence; none if there was no divergence (step 0)
        before = [path for path in checkpoints if step_of(path) < diverged]
        for path in checkpoints[self.keep :]:
            is_kept = self.keep_every and step_of(path) % self.keep_every == 0
            is_last_good = path in before[:1]
            has_foreign_files = bool(files.foreign_files(path, CHECKPOINT_FILES))
            if not (is_kept or is_last_good or has_foreign_files):
                files.remove_folder(path)

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
                return _restore(path, network, optimizer)
            except DamagedError as error:
                problems.append(error)
            except (SafetensorError, ValidationError) as error:
                problems.append(_damaged(path, error))
            # Otherwise it would count as one to keep, and a good checkpoint would be
            # removed. The suffix tells two damaged ones of the same step apart.
            path.rename(path.with_name(f"damaged-{path.name}-{uuid.uuid4().hex[:4]}"))
        return None

    def newest_first(self) -> list[Path]:
        """Return the checkpoints of the run, newest first."""
        paths = list[Path]()
        for path in self.folder.glob("step-*"):
            # others are unfinished ones of a killed process
            if path.name.removeprefix("step-").isdecimal():
                paths.append(path)
        return sorted(paths, reverse=True)

    def require_disk(self, num_parameters: int) -> None:
        """Check that the disk has room for the checkpoints that will be kept, one more,
        and the model.
        """
        one = num_parameters * 12  # bytes: weights and two moments in float32
        model = num_parameters * 4
        present = 0
        for path in self.newest_first():
            present += sum(file.stat().st_size for file in path.iterdir())
        # A resumed run has some already, and room for those that it will replace.
        needed = (self.keep + 1) * one + model - min(present, self.keep * one)
        run = self.folder.parent
        free = free_bytes(run)
        if free >= needed:
            return
        raise ResourceError(
            "LB-506",
            f"the disk of {run} is too full for this run",
            received=f"{files.format_bytes(free)} free",
            expected=f"{files.format_bytes(needed)} for its checkpoints and its model",
            next="free some space, lower train.keep_checkpoints, or choose another"
            " --runs folder",
        )


def _restore(path: Path, network: Network, optimizer: MomentOptimizer) -> Json:
    """Load one checkpoint; return its progress. If it is damaged, nothing changes."""
    verify(path)
    loaded = read_folder(path)
    moments = load_file(path / OPTIMIZER_FILE)
    progress = files.read_json(path / STATE_FILE, command=AGAIN)
    RunProgress.model_validate(progress)
    # what nothing trains is not written
    untrained: frozenset[str] = getattr(network, "untrained", frozenset())
    missing = sorted(loaded.missing - untrained)
    if missing:
        raise _damaged(path, f"it lacks {', '.join(missing[:5])}")
    name = first_not_finite(moments)
    if name is not None:
        raise _damaged(path / OPTIMIZER_FILE, f"{name} is not finite")
    # first: if this raises, nothing has changed
    load_state_tensors(optimizer, moments)
    weights = loaded.network.state_dict()
    for name in loaded.missing:
        del weights[name]
    network.load_state_dict(weights, strict=False)
    return progress


def _require_finite(tensors: Mapping[str, Tensor], step: int) -> None:
    """Raise LB-541 for a weight or moment with NaN or infinity."""
    name = first_not_finite(tensors)
    if name is None:
        return
    raise NonFiniteError(
        "LB-541",
        f"training has diverged: {name} is not finite after step {step}",
        expected="finite numbers; earlier checkpoints are untouched",
        next="start a run with a lower optim.learning_rate under another --name",
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
    if listed == present:
        return
    listed_files = _files_in(listed)
    present_files = _files_in(present)
    names = sorted({**listed_files, **present_files})
    changed = [n for n in names if listed_files.get(n) != present_files.get(n)]
    # none if only its format or step differs
    differing = ", ".join(changed) or MANIFEST_FILE
    raise _damaged(path, f"differs from its manifest: {differing}")


def _files_in(manifest: Mapping[str, Json]) -> dict[str, Json]:
    entries = manifest.get("files")
    return entries if isinstance(entries, dict) else {}


def manifest_of(folder: Path, step: int) -> dict[str, Json]:
    """Describe every file of a checkpoint."""
    listed: dict[str, Json] = {}
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.name != MANIFEST_FILE:
            size = path.stat().st_size
            listed[path.name] = {"bytes": size, "blake2b": files.hash_file(path)}
    return {"format": FORMAT_VERSION, "step": step, "files": listed}


def first_not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """Return the name of a tensor with NaN or infinity, if any, by operations that
    every device supports.
    """
    for name, tensor in tensors.items():
        if not tensor.detach().isfinite().all():
            return name
    return None


def _damaged(path: Path, received: object) -> DamagedError:
    return DamagedError(
        "LB-501",
        f"checkpoint file {path} is damaged",
        received=received,
        expected="exactly what was written, by size and blake2b",
        next="run the same command again: it resumes from the newest undamaged"
        " checkpoint",
    )


# ---- averages of checkpoints ---------------------------------------------------------


def average_checkpoints(
    run: Path, output: Path, *, last: int = 1, force: bool = False
) -> list[int]:
    """Write the mean weights of the `last` newest checkpoints as a model; return the
    steps of these checkpoints.
    """
    RunFolder.of(RunFolder.open(run).folder)  # refuses several seeds
    if_exists = files.by_force(force)
    files.require_new(output, if_exists=if_exists, known_files=WRITTEN_FILES)
    checkpoints = Checkpoints(run / "checkpoints", keep=1).newest_first()
    if len(checkpoints) < last:
        steps = [f"{step_of(path):,}" for path in reversed(checkpoints)]
        present = ", ".join(steps) or "none"
        raise LitebertError(
            "LB-265",
            f"{run} has too few checkpoints",
            received=f"{len(checkpoints)} of {last}; there are steps {present}",
            next="lower --last; new runs keep more with train.keep_checkpoints or"
            " train.keep_every",
        )
    chosen = checkpoints[:last]
    for path in chosen:
        verify(path)
    write_model(output, mean_model(chosen), if_exists=if_exists)
    return sorted(map(step_of, chosen))


@torch.no_grad()
def mean_model(folders: Sequence[Path]) -> ModelFolder:
    """Return the first model with the mean weights of all folders, which must have the
    same shape, summed in float64.
    """
    model = read_folder(folders[0])
    network = model.network
    sums = {name: weight.double() for name, weight in network.state_dict().items()}
    for folder in folders[1:]:
        for name, weight in read_folder(folder).network.state_dict().items():
            sums[name] += weight
    # Rounded to float32 once, at the end.
    number = len(folders)
    means = {name: (weight / number).float() for name, weight in sums.items()}
    network.load_state_dict(means)
    return model
