"""SQuAD as data sets: where its files are, and the files that the official scripts write."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from litebert.reading.source import find_file, find_files
from litebert.tasks.dataset import Dataset
from litebert.tasks.kinds.spans.answering import SpanAnswering
from litebert.tasks.kinds.spans.conditional import ConditionalSpanAnswering
from litebert.tasks.kinds.spans.decode import ProposedSpan, SpanAnswer
from litebert.tasks.kinds.spans.example import SpanExample
from litebert.tasks.kinds.spans.threshold import given_texts
from litebert.tasks.named.squad_questions import read_squad, with_unanswerable

_UNANSWERABLE = ".unanswerable.json"
_PARTS = ("fit", "tune")
"""Parts of the training articles: about one in twenty to tune a threshold on, and the others."""


def read_split(version: str, folder: Path, split: str) -> list[SpanExample]:
    """Read the questions of one split: train or dev; or fit or tune, which are parts of train.

    `folder` has train-v1.1.json and so on, plain, compressed (.gz, .zst) or in parts
    (dev-v2.0.part1.json); or it is a single file. Training questions of 2.0 may also be split into
    train-v1.1.json and train-v2.0.unanswerable.json; see `with_unanswerable`.

    Raises:
        LitebertError: LB-820, there are no such files; what `read_squad` raises.
    """
    if split in _PARTS:
        train = read_split(version, folder, "train")
        return [example for example in train if _is_held_out(example) == (split == "tune")]
    if folder.is_file():
        return read_squad(find_file(folder)).examples
    stem = f"{split}-v{version}"
    names = [f"{stem}.json", f"{stem}.part*.json", stem + _UNANSWERABLE]
    sources = find_files(folder, names)
    if _UNANSWERABLE in sources[0].name:
        answerable = read_split("1.1", folder, split)
        return with_unanswerable(answerable, Path(sources[0].name))
    return [example for source in sources for example in read_squad(source).examples]


def submission(_: str, examples: Sequence[SpanExample], answers: Sequence[SpanAnswer]) -> dict[str, str]:
    """Write predictions.json, nbest_predictions.json and, for 2.0, null_odds.json."""
    ids = [example.id for example in examples]
    n_best = [[_proposal(span) for span in answer.n_best] for answer in answers]
    files: dict[str, object] = {
        "predictions.json": dict(zip(ids, given_texts(examples, answers), strict=True)),
        "nbest_predictions.json": dict(zip(ids, n_best, strict=True)),
    }
    nulls = {key: answer.null_score for key, answer in zip(ids, answers, strict=True)}
    if None not in nulls.values():
        files["null_odds.json"] = nulls
    return {name: json.dumps(content, indent=4) + "\n" for name, content in files.items()}


def _proposal(span: ProposedSpan) -> dict[str, str | float]:
    return {
        "text": span.text,
        "probability": span.probability,
        "start_log_prob": span.start_score,
        "end_log_prob": span.end_score,
    }


def _is_held_out(example: SpanExample) -> bool:
    """Choose by article, so that no context is in both parts."""
    name = (example.title or example.context).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(name).digest()[0] % 20 == 0


DATASETS: dict[str, Dataset[SpanExample, SpanAnswer]] = {
    "squad": Dataset(
        name="squad",
        family=SpanAnswering(),
        read=partial(read_split, "1.1"),
        key_measure="f1",
        test_splits=(),
        submission=submission,
    ),
    "squad2": Dataset(
        name="squad2",
        family=ConditionalSpanAnswering(),
        read=partial(read_split, "2.0"),
        key_measure="f1",
        test_splits=(),
        submission=submission,
    ),
}
