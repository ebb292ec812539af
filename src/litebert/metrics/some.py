"""Nothing can be measured on nothing."""

from __future__ import annotations

from litebert.errors import LitebertError


def require_some(number: int) -> None:
    """Refuse to measure no examples."""
    if number:
        return
    raise LitebertError(
        "LB-430",
        "there is nothing to measure",
        received="no examples",
        expected="at least one labelled example",
        next="look whether the file that is evaluated on is empty",
    )
