"""The check that there is something to measure."""

from __future__ import annotations

from litebert.errors import LitebertError


def require_some(number: int) -> None:
    """Raise LB-430 if there are no examples."""
    if number:
        return
    raise LitebertError(
        "LB-430",
        "there is nothing to measure",
        received="no examples",
        expected="at least one labelled example",
        next="check whether the file to evaluate on is empty",
    )
