"""Check the machine, and run a self-test of a few seconds: train, save, load, answer."""

from __future__ import annotations

import platform
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from litebert.answers import Shown
from litebert.config import AlbertConfig
from litebert.errors import LitebertError, as_litebert_error, free_bytes
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.train import train_tokenizer

LEAST_PYTHON, LEAST_TORCH, LEAST_DISK = (3, 11), (2, 9), 2 << 30
EXTRAS = {
    "cluster": "ray",
    "data": "pyarrow",
    "google": "google_crc32c",
    "hub": "huggingface_hub",
    "onnx": "onnx",
    "report": "matplotlib",
    "serve": "fastapi",
    "track": "tensorboard",
    "wordpiece": "tokenizers",
}


@dataclass(frozen=True)
class Check:
    """One check, and what to do if it fails."""

    name: str
    is_good: bool
    found: str
    advice: str = ""


def doctor() -> Shown[list[Check]]:
    """Check Python, torch, device, disk and threads; train and answer for a few seconds.

    The exit code is 1 if something is wrong.

    litebert doctor
    litebert doctor --json
    """
    import torch

    free = free_bytes(Path.cwd())
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    missing = [name for name, module in EXTRAS.items() if find_spec(module) is None]
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU only"
    checks = [
        Check(
            "python", sys.version_info[:2] >= LEAST_PYTHON, platform.python_version(), "install Python 3.11 or newer"
        ),
        Check("torch", version >= LEAST_TORCH, torch.__version__, "pip install -U torch"),
        Check("device", True, device),
        Check("threads", True, f"{torch.get_num_threads()} of torch"),
        Check(
            "disk",
            free >= LEAST_DISK,
            f"{free / 2**30:.1f} GiB free here",
            "free some space, or work in another folder",
        ),
        Check("extras", True, f"not installed: {', '.join(missing)}" if missing else "all"),
        _self_test(_train_and_answer),
    ]
    lines = []
    for check in checks:
        lines.append(f"{'ok' if check.is_good else 'BAD':<4} {check.name:<10} {check.found}")
        if not check.is_good:
            lines.append(f"     {'next':<10} {check.advice}")
    is_good = all(check.is_good for check in checks)
    return Shown(checks, "\n".join(lines), exit_code=0 if is_good else 1)


def _self_test(work: Callable[[], None]) -> Check:
    """Run the self-test; an exception is its finding."""
    started = time.monotonic()
    try:
        work()
    except Exception as error:  # noqa: BLE001 - a check reports anything that is broken
        shown = as_litebert_error(error) or error
        first = str(shown).partition("\n")[0]
        return Check("self-test", False, f"{type(error).__name__}: {first}", "litebert --debug ...")
    return Check("self-test", True, f"passed in {time.monotonic() - started:.1f} s")


def _train_and_answer() -> None:
    """Lower the loss of a tiny network, save it, load it and fill a blank."""
    import torch

    from litebert.folder import save_model
    from litebert.inference import Model
    from litebert.nn import AlbertForPretraining, Batch

    texts = ["a small cat sat on a mat", "a small dog sat on a log"] * 20
    tokenizer = Tokenizer.from_model(train_tokenizer(texts, vocab_size=26))
    config = AlbertConfig(
        vocab_size=tokenizer.vocab_size,
        embedding_size=16,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
    )
    network = AlbertForPretraining(config, generator=torch.Generator().manual_seed(1))
    encoding = tokenizer.encode(texts[0], texts[1])
    batch = Batch.from_lists([encoding.ids], [encoding.segments])
    places = torch.arange(1, 5)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
    losses = []
    for _ in range(20):
        logits = network(batch, places).masked_lm
        loss = torch.nn.functional.cross_entropy(logits, batch.ids[places])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(float(loss.detach()))
    if not losses[-1] < losses[0]:
        raise LitebertError(
            "LB-940",
            "training does not lower the loss on this machine",
            received=f"{losses[0]:.3f} -> {losses[-1]:.3f}",
            expected="a lower loss after 20 steps",
            next="pip install --force-reinstall torch",
        )
    with tempfile.TemporaryDirectory() as scratch:
        save_model(network.eval(), Path(scratch))
        tokenizer.save(scratch)
        model = Model.load(scratch)
        model.remark = lambda _: None  # that the vocabulary is small
        model.fill("a small [MASK] sat on a mat")
