"""Convert between the head that a config.json names and HeadConfig."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from pydantic import ValidationError

from litebert.config import HEADS, HeadConfig, HeadKind, kind_of_class, numbered_labels
from litebert.config.allowed import expected
from litebert.errors import DamagedError
from litebert.files import Json

Shapes = Mapping[str, tuple[int, ...]]


def architecture(head: HeadConfig | None, parameters: Collection[str]) -> str:
    """Return the name of the transformers class that has these parameters."""
    if head is not None:
        return f"AlbertFor{head.record.class_name}"
    has_masked_lm = any(name.startswith("masked_lm.") for name in parameters)
    has_order = any(name.startswith("sentence_order.") for name in parameters)
    if has_order:
        return "AlbertForPreTraining"
    return "AlbertForMaskedLM" if has_masked_lm else "AlbertModel"


def head_table(head: HeadConfig | None) -> dict[str, Json]:
    """Return the settings of a head in config.json besides its class."""
    if head is None or not head.labels:
        return {}
    names: dict[str, Json] = {str(index): name for index, name in enumerate(head.labels)}
    ids: dict[str, Json] = {name: index for index, name in enumerate(head.labels)}
    table: dict[str, Json] = {"id2label": names, "label2id": ids}
    if head.record.has_problem_type:
        table["problem_type"] = head.problem_type
    return table


def head_from_table(table: dict[str, Json], *, source: Path, tensors: Shapes) -> HeadConfig | None:
    """Read a head from config.json; None if there are only pretraining heads, or none.

    For a config.json without architectures (files of 2019 and 2020), the tensors decide.

    Raises:
        DamagedError: LB-661, LB-662, the head cannot be built, or the files do not tell which.
    """
    named = table.get("architectures")
    first = str(named[0]) if isinstance(named, list) and named else None
    kind = kind_of_class(first) if first else _kind_of(tensors, source)
    if kind is None:
        return None
    if not HEADS[kind].has_labels:
        return HeadConfig(kind=kind)
    labels = _labels(table, tensors)
    problem = table.get("problem_type") or ("regression" if len(labels) == 1 else "single_label_classification")
    fields: dict[str, object] = {"kind": kind, "labels": labels}
    if HEADS[kind].has_problem_type:
        fields["problem_type"] = problem
    try:
        return HeadConfig.model_validate(fields)
    except ValidationError as error:
        reason = error.errors(include_url=False)[0]
        raise DamagedError(
            "LB-661",
            f"{source} describes no {kind} head that can be built",
            received=str(reason["input"]),
            expected=expected(error, HeadConfig),
            next=f"correct id2label or problem_type in {source}",
        ) from error


def _labels(table: dict[str, Json], tensors: Shapes) -> tuple[str, ...]:
    """Return the names of labels, by default as many numbered ones as the classifier has rows."""
    names = table.get("id2label")
    if isinstance(names, dict) and names and all(key.isdecimal() for key in names):
        return tuple(str(names[key]) for key in sorted(names, key=int))
    rows = tensors.get("classifier.weight", (2,))[0]
    return numbered_labels(min(rows, 100_000))


def _kind_of(tensors: Shapes, source: Path) -> HeadKind | None:
    """Guess the head from the tensors: only classifiers of whole sequences have a pooler."""
    if "qa_outputs.weight" in tensors:
        return "question-answering"
    if "classifier.weight" not in tensors:
        return None
    if not any("pooler." in name for name in tensors):
        return "token-classification"
    if tensors["classifier.weight"][0] > 1:
        return "sequence-classification"
    raise DamagedError(
        "LB-662",
        f"{source} does not say what its one-output classifier is for",
        received="no architectures",
        expected='["AlbertForSequenceClassification"] (a score) or ["AlbertForMultipleChoice"]',
        next=f"add architectures to {source}",
    )
