"""Where the value of a setting came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

OriginKind = Literal["default", "recipe", "preset", "file", "flag", "measured", "suited", "tokenizer", "start"]

_WORDS = {"flag": "command line: ", "recipe": "recipe ", "start": "start "}
"""How the text of an origin with a detail begins."""
_ALONE = {"measured": "measured here", "suited": "measured default"}


@dataclass(frozen=True)
class Origin:
    """Where a value was set: the word as typed, the recipe, the file, or the preset.

    `chosen_by` is the origin of `model.preset`, for a value from a preset.

    >>> str(Origin("flag", "train.steps=3"))
    'command line: train.steps=3'
    >>> str(Origin("preset", "mini", chosen_by=Origin("recipe", "laptop")))
    'preset mini (recipe laptop)'
    """

    kind: OriginKind = "default"
    detail: str = ""
    chosen_by: Origin | None = None

    @property
    def is_typed(self) -> bool:
        """Whether the value was given on the command line, or by a preset named there."""
        return self.kind == "flag" or (self.chosen_by is not None and self.chosen_by.is_typed)

    def __str__(self) -> str:
        """Write the origin as run.json keeps it and people read it."""
        if self.kind == "preset":
            return f"preset {self.detail} ({self.chosen_by})"
        if not self.detail:
            return _ALONE.get(self.kind, self.kind)
        return _WORDS.get(self.kind, "") + self.detail

    @classmethod
    def read(cls, text: str) -> Origin:
        """Parse what `str` wrote, in this version or an older one; other words name a file.

        >>> all(Origin.read(str(o)) == o for o in (
        ...     Origin(), Origin("flag"), Origin("flag", "a.b=1"), Origin("file", "my.toml"),
        ...     Origin("measured"), Origin("preset", "mini", Origin("recipe", "laptop"))))
        True
        """
        if text.startswith("preset ") and text.endswith(")"):
            name, _, chosen_by = text.removeprefix("preset ").removesuffix(")").partition(" (")
            return cls("preset", name, cls.read(chosen_by))
        for kind in get_args(OriginKind):
            if text == _ALONE.get(kind, kind):
                return cls(kind)
            if kind in _WORDS and text.startswith(_WORDS[kind]):
                return cls(kind, text.removeprefix(_WORDS[kind]))
        return cls("file", text)
