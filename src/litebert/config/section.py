"""What all groups of settings share: a frozen record, types of numbers, and the error of
settings that do not fit each other.
"""

from typing import Annotated, TypeAlias

from pydantic import BaseModel, Field

Count: TypeAlias = Annotated[int, Field(ge=1, le=10**12)]
UpToOne: TypeAlias = Annotated[float, Field(ge=0, le=1)]
BelowOne: TypeAlias = Annotated[float, Field(ge=0, lt=1)]  # of dropouts and decays
Weight: TypeAlias = Annotated[float, Field(gt=0)]

Option: TypeAlias = bool | int | float | str | list[str]
Options: TypeAlias = dict[str, Option]
"""Settings of a record that a plug-in may have added, by name; on a command line,
`section.field.name=value`.
"""


class Section(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """A group of settings, frozen; unknown names are refused."""


class ContradictionError(ValueError):
    """Settings that do not fit each other; `names` are those of the fields, one of which
    has to change.
    """

    def __init__(self, names: tuple[str, ...], message: str) -> None:
        super().__init__(message)
        self.names = names
