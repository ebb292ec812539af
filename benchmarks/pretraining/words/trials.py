"""Which network is worth 16 MB? Trials of equal processor time on the same text, by the
loss of masked words on held-out articles.

`python -m benchmarks.pretraining.words.trials STATE NAME [NAME ...]` runs them one
after the other; run it again to go on after a stop. STATE has the corpus `wiki` and the
network `grown` (resume.sh makes both). The name `bits` measures the packaged network
with the rows of its word table in fewer bits, which needs no training.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import litebert
from benchmarks.pretraining.words.measure import evaluate
from litebert.config import PretrainConfig
from litebert.device import device_at
from litebert.files import write_json
from litebert.folder import read_folder
from litebert.nn import AlbertForPretraining
from litebert.optim import Muon
from litebert.plugins import OPTIMIZERS
from litebert.runs import read_metrics
from litebert.train.sources import Sources

SECONDS = 300.0  # of processor time for each trial
PROBE_STEPS = (2, 8)
FROM_PACKAGED = {"optim.learning_rate": 0.0007, "optim.muon_learning_rate": 0.0014}
HEIGHT = {"model.vocab_size": 20_000, "model.embedding_size": 128}
SAME_WIDTH = HEIGHT | {
    "model.hidden_size": 384,
    "model.num_attention_heads": 12,
    "model.hidden_act": "gelu",
}
SIX_LAYERS = SAME_WIDTH | {
    "model.num_hidden_layers": 6,
    "model.num_hidden_groups": 5,
    "model.intermediate_size": 1_024,
}
TRIALS: dict[str, dict[str, Any]] = {
    # from the packaged weights, which have 16 MB
    "grown": FROM_PACKAGED | {"start.model": "STATE/grown"},
    # from random weights: the shape before it grew, and others of at most 16 MB
    "random": SIX_LAYERS,
    "twelve-layers": SAME_WIDTH
    | {
        "model.num_hidden_layers": 12,
        "model.num_hidden_groups": 6,
        "model.intermediate_size": 1_856,
    },
    "wide": HEIGHT
    | {
        "model.hidden_size": 512,
        "model.num_attention_heads": 8,
        "model.hidden_act": "gelu",
        "model.num_hidden_layers": 8,
        "model.num_hidden_groups": 4,
        "model.intermediate_size": 1_856,
    },
    "polar": SIX_LAYERS | {"optim.name": "polar"},
}
SETTINGS: dict[str, Any] = {
    "objective.max_seq_length": 128,
    "objective.short_seq_prob": 0.15,
    "optim.name": "muon",
    "early.depth": None,
    "early.mask_prob": None,
    "optim.learning_rate": 0.003,
    "optim.muon_learning_rate": 0.004,
    "optim.beta2": 0.98,
    "optim.average_decay": 0.99,
    "optim.schedule": "linear",
    "optim.warmup_steps": 0.05,
    "train.batch_size": 64,
    "train.precision": "auto",
    "train.threads": 1,
    "train.loader_workers": 0,
    "train.eval_at_start": False,
    "train.eval_every": 10_000,
    "train.eval_sequences": 512,
    "train.log_every": 10,
    "train.save_every": 10,
}


# ---- trials --------------------------------------------------------------------------


def run_trial(state: Path, name: str) -> None:
    """Measure what a step costs, run as many as fit, and print the held-out loss."""
    settings = SETTINGS | TRIALS[name]
    if "start.model" in settings:
        start = str(settings["start.model"])
        settings["start.model"] = start.replace("STATE", str(state))
    plan = state / "trials" / f"{name}.json"
    if not plan.exists():
        cost = _seconds_per_step(state, settings)
        plan.parent.mkdir(exist_ok=True)
        write_json(plan, {"seconds_per_step": cost, "steps": int(SECONDS / cost)})
    planned = json.loads(plan.read_text())
    print(f"{name}: {planned}", flush=True)
    run = _train(state, state / "trials", name, settings, planned["steps"])
    last = read_metrics(run.folder)[-1]
    shown = {key: last[key] for key in ("masked_lm_loss", "mask_token_accuracy")}
    print(f"{name}: {shown}", flush=True)


def _seconds_per_step(state: Path, settings: dict[str, Any]) -> float:
    """Return the cost of a step: the slope between two short runs, so that what a run
    does once does not count.
    """
    probe = state / "trials" / f"probe-{time.time_ns()}"
    seconds = list[float]()
    for steps in PROBE_STEPS:
        runs = probe / str(steps)
        seconds.append(_processor_seconds(state, runs, settings, steps))
    return (seconds[1] - seconds[0]) / (PROBE_STEPS[1] - PROBE_STEPS[0])


def _processor_seconds(
    state: Path, runs: Path, settings: dict[str, Any], steps: int
) -> float:
    started = time.process_time()
    _train(state, runs, "probe", settings | {"train.eval_sequences": 1}, steps)
    return time.process_time() - started


def _train(
    state: Path, runs: Path, name: str, settings: dict[str, Any], steps: int
) -> litebert.Run:
    others = settings | {"train.steps": steps}
    start = others.pop("start.model", None)
    return litebert.pretrain(
        corpus=state / "wiki",
        start=start,
        recipe="further" if start else "laptop",
        runs=runs,
        name=name,
        settings=others,
        quiet=True,  # also measures nothing
    )


# ---- Muon with Polar Express ---------------------------------------------------------

# Each step has its own quintic, the best for the range of singular values that the
# steps before it leave (Amsel and others, 2025, arXiv 2505.16932, for values from 0.001).
_SAFETY = 1.01
_QUINTICS = (
    (8.28721201814563, -23.595886519098837, 17.300387312530933),
    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
    (3.3184196573706015, -2.488488024314874, 0.51004894012372),
)


def polar_express(matrix: Tensor) -> Tensor:
    """Return approximately U V^T of a matrix U S V^T by four steps."""
    is_tall = matrix.shape[0] > matrix.shape[1]
    wide = matrix.T if is_tall else matrix
    x = wide.to(device_at(matrix.device).product_dtype)
    x = x / (x.norm() * _SAFETY + 1e-7)
    for a, b, c in _QUINTICS:
        gram = x @ x.T
        polynomial = torch.addmm(
            gram, gram, gram, beta=b / _SAFETY**3, alpha=c / _SAFETY**5
        )
        x = torch.addmm(x, polynomial, x, beta=a / _SAFETY)
    orthogonal = x.to(matrix.dtype)
    return orthogonal.T.contiguous() if is_tall else orthogonal


class Polar(Muon):
    """Muon whose updates four steps of Polar Express make orthogonal."""

    def orthogonalized(self, direction: Tensor) -> Tensor:
        return polar_express(direction)


OPTIMIZERS.add("polar", Polar)


# ---- the word table in fewer bits ----------------------------------------------------


def measure_bits(state: Path, model: Path = Path("src/litebert/model")) -> None:
    """Write and print the held-out loss with the word table in whole numbers of 8 to 4
    bits and a scale for each row.
    """
    written = state / "trials" / "bits.json"
    if written.exists():
        print(written.read_text(), flush=True)
        return
    config = PretrainConfig.model_validate(
        {
            "data": {"corpus": str(state / "wiki")},
            "objective": {"max_seq_length": 128, "short_seq_prob": 0.15},
            "train": {"batch_size": 64, "eval_sequences": 512},
        }
    )
    sources = Sources.open(config)
    losses = dict[str, float]()
    for bits in (32, 8, 6, 5, 4):
        network = read_folder(model, dtype=torch.float32).network
        assert isinstance(network, AlbertForPretraining)
        if bits < 32:
            round_rows(network.albert.embedding.word.weight.data, bits)
        measured = evaluate(network, sources, config)
        losses[f"{bits} bits"] = round(measured["masked_lm_loss"], 4)
    written.parent.mkdir(exist_ok=True)
    write_json(written, losses)
    print(losses, flush=True)


def round_rows(table: Tensor, bits: int) -> None:
    """Round each row, in place, to multiples of its own scale."""
    largest = 2 ** (bits - 1) - 1
    scales = table.abs().amax(1, keepdim=True).clamp_min(1e-12) / largest  # (rows, 1)
    table.copy_((table / scales).round() * scales)


if __name__ == "__main__":
    state = Path(sys.argv[1])
    for name in sys.argv[2:]:
        if name == "bits":
            measure_bits(state)
        else:
            run_trial(state, name)
