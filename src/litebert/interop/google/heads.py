"""The task head of a checkpoint, from its variables and from what the user says about it."""

from __future__ import annotations

from litebert.config import HEADS, HeadConfig, HeadKind, numbered_labels
from litebert.errors import LitebertError
from litebert.folder.heads import Shapes

_CLASSIFIER = "output_weights"
"""The variable that several kinds of heads have in common."""
_MAX_LABELS = 100_000


def find_head(variables: Shapes, *, kind: HeadKind | None, labels: tuple[str, ...]) -> HeadConfig | None:
    """Return the task head of a checkpoint; None if it has the pretraining heads, or none.

    `variables` has the shapes by official name; `kind` and `labels` come from the user.

    Raises:
        LitebertError: LB-711 to LB-714, the variables do not determine it or contradict the user.
    """
    kinds = {record.variable: kind for kind, record in HEADS.items() if record.variable}
    found = [kinds[name] for name in kinds if name in variables and name != _CLASSIFIER]
    if _CLASSIFIER in variables:
        found.append(_CLASSIFIER)
    if len(found) > 1:
        raise LitebertError(
            "LB-711",
            "the checkpoint has more than one task head",
            received=", ".join(found),
            expected="one task head on the encoder",
            next="give the checkpoint of one task",
        )
    if found == [_CLASSIFIER]:
        return _classifier(variables[_CLASSIFIER], kind, labels)
    head = HeadConfig.model_validate({"kind": found[0]}) if found else None
    if labels or kind not in (None, head and head.kind):
        raise LitebertError(
            "LB-712",
            "the checkpoint does not have the requested head",
            received=f"--head {kind}" if kind else f"--labels {','.join(labels)}",
            expected=f"nothing: it has a {head.kind} head" if head else "nothing: it has no task head",
            next="omit --head and --labels",
        )
    return head


def _classifier(shape: tuple[int, ...], kind: HeadKind | None, labels: tuple[str, ...]) -> HeadConfig:
    """Return the head of GLUE or of RACE; one output may be a score or a choice."""
    num_outputs = shape[0] if shape else 0
    if kind is None and num_outputs == 1 and not labels:
        raise LitebertError(
            "LB-713",
            "a head with one output can be a regression or a multiple choice",
            received="output_weights with one row, and no --head",
            expected="--head sequence-classification (STS-B) or --head multiple-choice (RACE)",
            next="name it with --head",
        )
    kind = kind or "sequence-classification"
    record = HEADS.get(kind)
    is_choice = record is not None and record.has_choices
    names = () if is_choice else labels or numbered_labels(min(num_outputs, _MAX_LABELS))
    fits = num_outputs == 1 and not labels if is_choice else len(names) == num_outputs > 0
    is_classifier = record is not None and record.variable == _CLASSIFIER
    if not is_classifier or not fits or len(set(names)) < len(names):
        raise LitebertError(
            "LB-714",
            "the checkpoint's head does not fit the requested one",
            received=f"{num_outputs} outputs, --head {kind}, --labels {','.join(labels) or 'none'}",
            expected="one distinct label for each output; one output and no label for a choice",
            next="litebert import google --help",
        )
    fields: dict[str, object] = {"kind": kind, "labels": names}
    if HEADS[kind].has_problem_type and num_outputs == 1:
        fields["problem_type"] = "regression"
    return HeadConfig.model_validate(fields)
