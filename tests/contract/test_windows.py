"""litebert works on a system like Windows: without `fcntl`, `resource` and most signals,
and where a rename never replaces.

This shows what the tests can show on Linux; nobody has run the suite on Windows.
"""

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

from . import windows
from .shell import QUICK
from .tiny import Desk

PROGRAM = [sys.executable, windows.__file__]


def run(place: Path, *words: object) -> str:
    """Run a command as on Windows, and return what it printed."""
    done = subprocess.run(
        [*PROGRAM, *map(str, words)],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_every_module_is_imported() -> None:
    """Not only those that a command happens to need."""
    code = """
import importlib, pkgutil, litebert
for module in pkgutil.walk_packages(litebert.__path__, "litebert."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""
    done = subprocess.run([*PROGRAM, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_model_is_loaded_and_fills_and_embeds(tmp_path: Path, desk: Desk) -> None:
    assert "It was a fine" in run(tmp_path, "fill", "It was a fine [MASK].")
    model = ("--model", desk.base)
    assert len(json.loads(run(tmp_path, "embed", "Anna.", *model, "--json"))[0]) == 32
    texts = desk.stories
    for _ in range(2):  # the second replaces the vectors of the first
        run(tmp_path, "embed", texts, *model, "--output", "v.npy", "--force")


def test_any_character_goes_through_a_pipe(tmp_path: Path) -> None:
    """Python writes to a pipe in the code page of Windows."""
    text = "日本 [MASK] ━ 😀"
    for encoding in ("cp1252", "ascii", "utf-8"):
        environment = {**os.environ, "PYTHONIOENCODING": encoding}
        done = subprocess.run(
            [sys.executable, "-m", "litebert", "fill", text, "--json"],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert "━ 😀" in json.loads(done.stdout.decode("utf-8"))[0]["text"]


def test_a_model_is_fine_tuned_quantized_and_replaced(
    tmp_path: Path, desk: Desk
) -> None:
    words = ("finetune", desk.table("reviews.csv"), "--model", desk.base, *QUICK)
    run(tmp_path, *words, "--name", "own")
    # the same command again finds the finished run
    run(tmp_path, *words, "--name", "own")
    assert "good" in run(tmp_path, "classify", "Fine.", "--model", "runs/own")
    run(tmp_path, "quantize", "runs/own", "small", "--texts", desk.stories)
    for _ in range(2):  # the second replaces the model of the first
        run(tmp_path, "runs", "average", "runs/own", "--output", "mean", "--force")


def test_a_network_is_pretrained_from_text_with_worker_processes(
    tmp_path: Path, desk: Desk
) -> None:
    build = ("corpus", "build", desk.stories, "--tokenizer", desk.tokenizer)
    run(tmp_path, *build, "--documents", "blank-line", "--output", "c", "--workers", 2)
    words = ("pretrain", "--corpus", "c", "--preset", "tiny", "--name", "own", *QUICK)
    run(tmp_path, *words, "train.loader_workers=2", "objective.max_seq_length=64")
    assert (tmp_path / "runs" / "own" / "model" / "model.safetensors").is_file()


def test_a_server_answers_and_ends_when_interrupted(tmp_path: Path, desk: Desk) -> None:
    words = [*PROGRAM, "serve", f"own={desk.base}", "--port", "0", "--threads", "1"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        try:
            lines = iter(process.stderr.readline, "")
            listening = next(line for line in lines if "listening on" in line)
            port = int(listening.split(":")[2].split(",")[0])
            assert any("own is ready" in line for line in lines)
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/v1/embeddings",
                json.dumps({"input": "Anna.", "model": "own"}).encode(),
                {"Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request) as answer:
                assert len(json.load(answer)["data"]) == 1
        finally:
            process.send_signal(2)  # SIGINT, Ctrl-C
            assert process.wait(60) == 0


def test_control_what_windows_lacks_is_hidden(tmp_path: Path) -> None:
    code = """
import os, signal
try:
    import resource
except ImportError:
    print("no resource")
print(hasattr(signal, "SIGHUP"), hasattr(os, "sched_getaffinity"))
os.mkdir("a"), os.mkdir("b")
try:
    os.rename("a", "b")
except FileExistsError:
    print("no replacing")
"""
    shown = run(tmp_path, "-c", code).split("\n")
    assert shown[:3] == ["no resource", "False False", "no replacing"]
