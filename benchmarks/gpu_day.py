"""Everything that needs a GPU, in twelve minutes: `make gpu-day`.

    python -m benchmarks.gpu_day --out build/gpu-day --glue glue --then litebert pretrain ...

Each part is a process of its own with a limit, so that one that fails or hangs costs no
other: the tests that need a GPU; parity with the CPU; tokens per second beside
transformers (`benchmarks.gpu`); fine-tuning on SST-2; serving. What time is left goes
to the command after --then, which is stopped by a signal and resumes when it is given
again. The folder gets a log of each part, `gpu-day.json` and `gpu-day.md`.

    python -m benchmarks.gpu_day --rehearse --out build/rehearsal

runs every part on the CPU, with tiny sizes: its figures mean nothing.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import torch

import litebert
from benchmarks.steps import our_step
from benchmarks.texts import made_up
from litebert.config import AlbertConfig
from litebert.device import Device, choose_device, device_of, move_network
from litebert.folder import ModelFolder, read_folder, write_folder
from litebert.nn import AlbertForPretraining

MINUTES = 12.0
STOP_SECONDS = 30  # for the last command to save what it has
RESERVE_SECONDS = 60  # of the minutes, for starting and stopping
TEXTS = ["A small cat sat on the mat.", "Prices rose again.", "Who wrote this?"] * 10


@dataclass(frozen=True)
class Part:
    """A part of the day: its command, and the most seconds that it may take."""

    name: str
    command: list[str]
    seconds: float
    is_stopped: bool = False  # it is meant to be stopped when the time is up


@dataclass(frozen=True)
class Outcome:
    """What became of a part."""

    name: str
    code: int | None  # None: it was not started, or had to be killed
    seconds: float
    last_lines: list[str]


# ---- the day -------------------------------------------------------------------------


def main() -> int:
    options = _parser().parse_args()
    out = options.out
    out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60 * options.minutes - RESERVE_SECONDS
    outcomes = []
    for part in _parts(options):
        left = end - time.monotonic()
        if left < 5:
            outcomes.append(Outcome(part.name, None, 0.0, ["no time was left"]))
            continue
        outcomes.append(_run(part, min(part.seconds, left), out))
        _write(out, outcomes, options)  # what there is, should the machine be taken
    print((out / "gpu-day.md").read_text(encoding="utf-8"))
    is_good = all(outcome.code == 0 for outcome in outcomes)
    return 0 if is_good else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("build/gpu-day"))
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of the day")
    parser.add_argument("--glue", type=Path, help="folder of GLUE, for SST-2")
    parser.add_argument(
        "--rehearse", action="store_true", help="tiny sizes, on the CPU"
    )
    parser.add_argument(
        "--then", nargs=argparse.REMAINDER, default=[], help="a command that resumes"
    )
    parser.add_argument("--part", choices=list(CHECKS), help=argparse.SUPPRESS)
    return parser


def _parts(options: argparse.Namespace) -> list[Part]:
    """Return the parts in the order of what must not be missed."""
    python = [sys.executable, "-m"]
    size = ["--rehearse"] if options.rehearse else []
    day = [*python, "benchmarks.gpu_day", *size, "--out", str(options.out)]
    rates = [*python, "benchmarks.gpu", "--out", str(options.out / "rates")]
    if options.rehearse:
        rates += ["--device", "cpu", "--preset", "tiny", "--smoke"]
    if options.glue:
        day += ["--glue", str(options.glue)]
    parts = [
        Part("parity", [*day, "--part", "parity"], 90),
        Part("rates", rates, 240),
        Part("fine-tuning", [*day, "--part", "fine-tuning"], 150),
        Part("serving", [*day, "--part", "serving"], 60),
        Part("tests", [*python, "pytest", "-q", "-n", "0", "-m", "gpu"], 120),
    ]
    if options.then:
        parts.append(Part("then", options.then, 60 * options.minutes, is_stopped=True))
    return parts


def _run(part: Part, seconds: float, out: Path) -> Outcome:
    """Run a part for at most so long; its output goes to a log of its name."""
    path = out / f"{part.name}.log"
    started = time.monotonic()
    with path.open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            part.command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        code: int | None = None
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = _stop(process, is_expected=part.is_stopped)
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return Outcome(part.name, code, time.monotonic() - started, lines[-8:])


def _stop(process: subprocess.Popen[bytes], *, is_expected: bool) -> int | None:
    """Ask a process to stop, so that a run saves its checkpoint; kill it if it does
    not. Return 0 if that was expected.
    """
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return None
    return 0 if is_expected else None


def _write(out: Path, outcomes: Sequence[Outcome], options: argparse.Namespace) -> None:
    """Write gpu-day.json and gpu-day.md."""
    device = _device(options)
    facts = {
        "device": device.name,
        "torch": torch.__version__,
        "litebert": litebert.__version__,
        "is_rehearsal": options.rehearse,
    }
    record = {**facts, "parts": [asdict(outcome) for outcome in outcomes]}
    text = json.dumps(record, indent=1) + "\n"
    (out / "gpu-day.json").write_text(text, encoding="utf-8")
    lines = ["# A day on a GPU", ""]
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    for outcome in outcomes:
        lines += _page_of(outcome)
    rates = out / "rates.md"
    if rates.exists():
        lines += ["", rates.read_text(encoding="utf-8")]
    (out / "gpu-day.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _page_of(outcome: Outcome) -> list[str]:
    state = "passed" if outcome.code == 0 else f"FAILED ({outcome.code})"
    heading = f"## {outcome.name}: {state}, {outcome.seconds:.0f} s"
    return ["", heading, "", "```", *outcome.last_lines, "```"]


def _device(options: argparse.Namespace) -> Device:
    name = "cpu" if options.rehearse else "cuda"
    return choose_device(name)


# ---- parity with the CPU -------------------------------------------------------------


def check_parity(options: argparse.Namespace) -> None:
    """Compare losses, answers and checkpoints of the device with those of the CPU."""
    device = _device(options)
    _compare_answers(device)
    _compare_losses(device)
    _compare_checkpoints(device)


def _compare_answers(device: Device) -> None:
    """Compare vectors and fillings of the packaged model."""
    name = str(device.place)
    on_cpu = litebert.load(device="cpu", precision="fp32")
    exact = on_cpu.embed(TEXTS)  # (texts, hidden)
    for precision, limit in (("fp32", 1e-4), ("bf16", 2e-2)):
        there = litebert.load(device=name, precision=precision)
        vectors = there.embed(TEXTS)
        apart = float(np.linalg.norm(vectors - exact) / np.linalg.norm(exact))
        print(f"vectors in {precision}: {apart:.2e} apart")
        _require(apart < limit, f"vectors in {precision}")
    blank = "A small [MASK] sat on a mat."
    there = litebert.load(device=name, precision="fp32")
    words = on_cpu.fill(blank)[0].words
    _require(words == there.fill(blank)[0].words, f"the filling {words}")


def _config(dropout: float) -> AlbertConfig:
    return AlbertConfig(
        vocab_size=500,
        embedding_size=64,
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=2,
        intermediate_size=256,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=dropout,
    )


def _loss(device: Device, precision: str, dropout: float) -> tuple[float, torch.Tensor]:
    """Return the loss of ragged texts, and the gradients of all weights, end to end."""
    network = AlbertForPretraining(
        _config(dropout),
        dtype=device.dtype(precision),
        generator=torch.Generator().manual_seed(1),
    )
    network.to(device.place).train()
    texts = made_up([40, 17, 9, 64, 33, 33], vocab_size=500)
    loss = our_step(network, texts).loss()
    loss.backward()
    gradients = [weight.grad for weight in network.parameters()]
    flat = [part.flatten() for part in gradients if part is not None]
    return loss.item(), torch.cat(flat).cpu()


def _compare_losses(device: Device) -> None:
    """Compare the loss and the gradients of one batch; with dropout, whose draws
    differ, only the loss.
    """
    cpu = choose_device("cpu")
    exact, gradients = _loss(cpu, "fp32", 0.0)
    for precision, limit in (("fp32", 1e-3), ("bf16", 5e-2)):
        loss, others = _loss(device, precision, 0.0)
        apart = float((others - gradients).norm() / gradients.norm())
        print(f"{precision}: loss {loss:.5f} for {exact:.5f}, gradients {apart:.1e}")
        _require(abs(loss - exact) < limit * exact, f"the loss in {precision}")
        _require(apart < limit, f"the gradients in {precision}")
        dropped, _ = _loss(device, precision, 0.1)
        print(f"{precision}: loss {dropped:.5f} with attention dropout")
        _require(abs(dropped - exact) < 0.1 * exact, f"dropout in {precision}")


def _compare_checkpoints(device: Device) -> None:
    """Write a network from the device, and read it on the CPU and on the device."""
    network = AlbertForPretraining(_config(0.0)).eval()
    move_network(network, device)
    with TemporaryDirectory() as scratch:
        write_folder(ModelFolder(network), Path(scratch) / "model")
        again = read_folder(Path(scratch) / "model").network
    _require(device_of(again).is_cpu, "a network that is read is on the CPU")
    for name, weight in network.state_dict().items():
        _require(torch.equal(weight.cpu(), again.state_dict()[name]), name)
    print("checkpoints: equal")


def _require(is_good: bool, what: str) -> None:
    if not is_good:
        raise SystemExit(f"not as on the CPU: {what}")


# ---- fine-tuning and serving ---------------------------------------------------------


def fine_tune(options: argparse.Namespace) -> None:
    """Fine-tune the packaged model on SST-2, or on a made-up table in a rehearsal."""
    settings = {"train.device": str(_device(options).place)}
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        started = time.monotonic()
        if options.rehearse or not options.glue:
            run = litebert.finetune(
                _made_up_table(folder / "reviews.csv"),
                runs=folder / "runs",
                settings=settings | {"train.steps": 3, "train.batch_size": 4},
            )
        else:
            run = litebert.finetune(
                "sst2",
                data=options.glue,
                runs=folder / "runs",
                settings=settings | {"train.steps": 400, "train.batch_size": 256},
            )
        print(run)
        print(f"fine-tuning took {time.monotonic() - started:.1f} s")


def _made_up_table(path: Path) -> str:
    rows = [f"{text},{number % 2}" for number, text in enumerate(TEXTS)]
    path.write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    return str(path)


def serve(options: argparse.Namespace) -> None:
    """Start the server, wait for its first answer, and time batches of texts."""
    command = [sys.executable, "-m", "litebert", "serve", "--port", "0"]
    process = subprocess.Popen(
        [*command, "--device", str(_device(options).place)],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        address = _address(process)
        _wait_until_ready(address)
        body = json.dumps({"texts": TEXTS}).encode()
        seconds = []
        number = 3 if options.rehearse else 200
        for _ in range(number):
            started = time.perf_counter()
            _post(f"{address}/v1/embed", body)
            seconds.append(time.perf_counter() - started)
        median = float(np.median(seconds))
        print(f"{len(TEXTS)} texts a request: {len(TEXTS) / median:,.0f} texts/s")
        print(f"median {1e3 * median:.1f} ms, slowest {1e3 * max(seconds):.1f} ms")
    finally:
        process.terminate()
        process.wait(STOP_SECONDS)


def _address(process: subprocess.Popen[str]) -> str:
    """Return the address that the server prints when it is ready."""
    assert process.stderr is not None
    for line in process.stderr:
        print(line, end="")
        for word in line.split():
            if word.startswith("http://"):
                return word.rstrip(".,;/")
    raise SystemExit("the server has ended")


def _wait_until_ready(address: str) -> None:
    """Wait while the model is loaded."""
    for _ in range(600):
        try:
            urlopen(f"{address}/ready", timeout=30).close()
        except HTTPError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit("the model was not loaded within a minute")


def _post(url: str, body: bytes) -> bytes:
    request = Request(url, body, {"Content-Type": "application/json"})
    try:
        with urlopen(request, timeout=30) as response:
            answer: bytes = response.read()
    except HTTPError as error:
        raise SystemExit(f"{error}: {error.read().decode()}") from error
    return answer


CHECKS: dict[str, Callable[[argparse.Namespace], None]] = {
    "parity": check_parity,
    "fine-tuning": fine_tune,
    "serving": serve,
}


if __name__ == "__main__":
    part_options = _parser().parse_args()
    if part_options.part:
        CHECKS[part_options.part](part_options)
        sys.exit(0)
    sys.exit(main())
