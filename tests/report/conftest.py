"""Runs as litebert pretrain and finetune write them, by the same functions."""

import html
import json
import re
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest

from litebert.config import (
    AlbertConfig,
    FinetuneConfig,
    HeadConfig,
    Origin,
    PretrainConfig,
    Setting,
    TrainConfig,
    resolve,
)
from litebert.files import Json, write_json, write_text
from litebert.folder import write_config
from litebert.report import write_report
from litebert.train.run import RunLog, Session, begin

MakeRun = Callable[..., Path]


def text_of(run: Path) -> str:
    """Write a page and return its words, without figures."""
    page = write_report(run).read_text(encoding="utf-8")
    body = re.sub(r"<svg.*?</svg>", "", page[page.index("<body>") :], flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split())


def require_said(run: Path, said: Iterable[str], unsaid: Iterable[str] = ()) -> None:
    text = text_of(run)
    assert [words for words in said if words.replace("{folder}", str(run)) not in text] == []
    assert [words for words in unsaid if words in text] == []


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Give a function that writes a run of 40 steps, evaluated at 0, 20 and 40."""

    def make(
        name: str = "mine",
        *,
        sentence: str = "order",
        corpus: str = "corpora/wiki",
        evaluated: tuple[int, ...] = (0, 20, 40),
        last_step: int = 40,
        accuracies: tuple[float, float] = (0.3, 0.8),
    ) -> Path:
        folder, (masked, order) = tmp_path / name, accuracies

        def measures(step: int) -> dict[str, float]:
            values = {"masked_lm_loss": 10 - step / 8, "masked_lm_accuracy": masked * step / 40}
            if sentence == "none":
                return values
            swapped = 0.5 + (order - 0.5) * step / 40
            return values | {"sentence_order_loss": 0.7, "sentence_order_accuracy": swapped}

        settings = {
            "model.preset": Setting("tiny", Origin("flag")),
            "data.corpus": Setting(corpus, Origin("flag")),
            "objective.sentence": Setting(sentence, Origin("flag", f"objective.sentence={sentence}")),
            "train.steps": Setting(40, Origin("recipe", "laptop")),
            "train.log_every": Setting(1, Origin("recipe", "laptop")),
        }
        data = {"tokenizer": "a1b2c3", "training tokens": 1_234_567}
        begin(folder, resolve(PretrainConfig, settings), data=data)
        log = RunLog(Session(folder), TrainConfig(steps=40), is_quiet=True)
        for step in range(last_step + 1):
            if step:
                log.training(step, 4_000, measures(step), {"learning_rate": 1e-3, "gradient_norm": 2.0 / step})
            if step in evaluated:
                log.evaluation(step, partial(dict, measures(step), masked_lm_baseline=0.054))
        if last_step == 40:
            write_json(folder / "model" / "config.json", {})
        return folder

    return make


@pytest.fixture
def make_finetuned(tmp_path: Path) -> MakeRun:
    """Give a function that writes a fine-tuning of 40 steps, evaluated at 20 and 40, as litebert finetune does."""
    return partial(write_finetuned, tmp_path)


def write_finetuned(
    runs: Path,
    name: str = "mrpc",
    *,
    task: str = "mrpc",
    start: str = "models/mine",
    seed: int = 1,
    accuracies: tuple[float, float] = (0.75, 0.7),
    splits: tuple[str, ...] = ("dev",),
    is_finished: bool = True,
    **overrides: Json,
) -> Path:
    folder = runs / name
    settings = {
        "task.name": Setting(task, Origin("recipe", task)),
        "optim.learning_rate": Setting(2e-5, Origin("recipe", task)),
        "data.folder": Setting("glue", Origin("flag")),
        "model.start": Setting(start, Origin("flag")),
        "train.steps": Setting(40, Origin("flag", "train.steps=40")),
        "train.seed": Setting(seed, Origin("flag")),
    }
    typed = {key.replace("__", "."): Setting(v, Origin("flag")) for key, v in overrides.items()}
    data = {"tokenizer": "a1b2c3", "training examples": 3_668, "training features": 3_668}
    data |= {f"{split} examples": 4 for split in splits}
    begin(folder, resolve(FinetuneConfig, settings | typed), data=data)
    prefixes = [f"{split}_" for split in splits] if len(splits) > 1 else [""]
    log = RunLog(Session(folder), TrainConfig(steps=40), is_quiet=True)

    def measures(value: float) -> dict[str, float]:
        return {f"{each}{name}": value / part for each in prefixes for name, part in (("accuracy", 1), ("f1", 2))}

    for step in range(10, 41 if is_finished else 31, 10):
        log.training(step, 900, {"loss": 7 / step}, {"learning_rate": 1e-5, "gradient_norm": 1})
        if step % 20 == 0:
            log.evaluation(step, partial(measures, accuracies[step // 20 - 1]))
    if not is_finished:
        return folder
    result = {
        "task": task,
        "key_measure": f"{prefixes[0]}accuracy",
        "last": {"step": 40, **measures(accuracies[1])},
        "best": {"step": 20 if accuracies[0] >= accuracies[1] else 40, **measures(max(accuracies))},
        "evaluations": 2,
        "seed": seed,
        "start": start,
        "fresh": ["head.dense.weight", "head.dense.bias"],
    }
    write_json(folder / "result.json", result)
    head = HeadConfig(kind="sequence-classification", labels=("not_equivalent", "equivalent"))
    (folder / "model").mkdir()
    write_config(AlbertConfig(), folder / "model", head=head)
    for split in splits:
        write_answers(folder, map(_answer, range(4)), split)
    return folder


def write_answers(run: Path, rows: Iterable[dict[str, Json]], split: str = "dev") -> None:
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    write_text(run / "answers" / f"{split}.jsonl", lines)


def _answer(number: int) -> dict[str, Json]:
    """Answer a pair; the last two of four answers are wrong, and surer each time."""
    expected, is_right = ("not_equivalent", "equivalent")[number % 2], number < 2
    return {
        "id": str(number),
        "text": f"One says {number}. ¦ The other says {number}.",
        "expected": expected if is_right else "equivalent",
        "answer": expected if is_right else "not_equivalent",
        "confidence": 0.6 + number / 10,
        "score": float(is_right),
    }
