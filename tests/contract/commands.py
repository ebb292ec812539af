"""Every command with --json in one table, in an order in which each finds what it reads."""

import shlex
import shutil
from pathlib import Path

from .shell import QUICK, TEXTS
from .tiny import Desk

TESTS = Path(__file__).parents[1]
GOOGLE_CHECKPOINT = TESTS / "interop" / "google" / "fixtures" / "pretraining"
COMMANDS = [
    ("answer", "Who? 'Ada left.' --model RUNS/spans"),
    ("choose", "Who? Anna Bert --context 'Ada left.' --model RUNS/choices"),
    ("classify", "'Anna left.' 'Bert came.' --model RUNS/reviews"),
    ("config list", ""),
    ("config list", "finetune"),
    ("config show", "RUNS/base"),
    (
        "corpus build",
        (
            "STORIES --tokenizer TOKENIZER --output c --documents blank-line --held-out"
            " 0.2 --workers 1"
        ),
    ),
    ("corpus check", "CORPUS"),
    ("corpus check", "STORIES"),
    ("data check", "REVIEWS --model RUNS/base"),
    ("distil", f"RUNS/base --corpus CORPUS {shlex.join(QUICK)}"),
    ("doctor", ""),
    ("embed", "a b --model RUNS/base"),
    ("evaluate", "RUNS/reviews --data REVIEWS --quiet"),
    ("explain", "similar 'Anna left.' 'Bert came.' --model RUNS/base"),
    ("fill", "'Anna [MASK].' --model RUNS/base"),
    ("fill", "'Anna [MASK].' '[MASK] came.' --model RUNS/base"),
    ("finetune", f"REVIEWS --model RUNS/base {shlex.join(QUICK)}"),
    ("finetune", f"REVIEWS --model RUNS/base {shlex.join(QUICK)} --dry-run"),
    ("glue", f"--data glue --tasks rte --model RUNS/base {shlex.join(QUICK)}"),
    ("hub push", "RUNS/base me/mine --dry-run"),
    ("import google", "google ours"),
    ("import huggingface", "RUNS/base/model --output imported"),
    ("order", "'Anna left.' 'Bert came.' --model RUNS/base"),
    ("order", "'Anna left. Bert came.' --model RUNS/base"),
    ("predict", "RUNS/reviews --data REVIEWS --output answers --quiet"),
    ("pretrain", f"--corpus CORPUS --preset tiny {shlex.join(QUICK)} --dry-run"),
    ("quantize", "RUNS/base --output int8 --texts few.txt"),
    ("recipes list", ""),
    ("report", "RUNS/base"),
    ("runs compare", "RUNS/reviews RUNS/stars"),
    ("runs list", "--runs RUNS"),
    ("score", "'Anna left.' --model RUNS/base"),
    ("search", "Anna STORIES --model RUNS/base"),
    ("similar", "'Anna left.' 'Bert came.' --model RUNS/base"),
    ("sizes", "--preset tiny"),
    ("tag", "'Anna left.' --model RUNS/tags"),
    ("tokenizer encode", "'Anna left.' --tokenizer TOKENIZER"),
    ("tokenizer train", "STORIES --vocab-size 60 --output v"),
]
ELSEWHERE = {"export onnx", "export web", "hub pull"}
"""Commands with --json that need more than the desk; other tests run them."""


def typed_words(desk: Desk, words: str) -> list[str]:
    """Split a command line; words in capitals become paths on the desk."""
    names = {path.stem.upper(): str(path) for path in desk.folder.iterdir()}
    runs = str(desk.folder / "runs")
    typed = [word.replace("RUNS", runs, 1) for word in shlex.split(words)]
    return [names.get(word, word) for word in typed]


def furnish(place: Path, desk: Desk) -> None:
    """Fill the folder in which all commands run with what they read."""
    lines = [f"{text}\n" for text in TEXTS * 3]
    (place / "few.txt").write_text("".join(lines))
    rows = [
        f"{n}\tAnna left.\tBert came.\t{'not_' * (n % 2)}entailment\n" for n in range(8)
    ]
    (place / "glue" / "RTE").mkdir(parents=True)
    for split in ("train", "dev"):
        header = "index\tsentence1\tsentence2\tlabel\n"
        (place / "glue" / "RTE" / f"{split}.tsv").write_text(header + "".join(rows))
    shutil.copytree(GOOGLE_CHECKPOINT, place / "google")
