"""Where a setting got its value: from a default, a recipe, a file, the command line, or
a measurement.

Every value of a configuration carries its `Origin`. run.json and messages keep it as a
phrase such as `recipe mrpc`; nothing else looks into these phrases.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

_Nameless: TypeAlias = Literal[
    "default",  # of the schema
    "flag",  # an option of a command, or an argument of a Python call
    "measured default",  # suits the size of the network and of the data
    "measured here",  # on this machine: steps by the clock, threads, precision
    "tokenizer",  # the size of its vocabulary, and the ids of its special tokens
]
_Named: TypeAlias = Literal[
    "command line",  # the word `section.name=value`
    "file",  # the path of a TOML file
    "preset",  # the name of a network's shape
    "recipe",  # the name of a recipe
    "start",  # the name of the model whose shape was taken
]


@dataclass(frozen=True)
class Origin:
    """The kind of place where a value was set, and the name of that place.

    The shape of a network comes from a preset, and `chosen_by` is the origin of
    `model.preset`.
    """

    kind: _Nameless | _Named
    name: str = ""
    chosen_by: "Origin | None" = None

    @property
    def is_typed(self) -> bool:
        """Whether the user gave the value, or the preset it comes from, with this
        command or call.

        >>> Origin.parse("preset mini (flag)").is_typed
        True
        >>> Origin.parse("preset mini (recipe laptop)").is_typed
        False
        """
        if self.chosen_by is not None:
            return self.chosen_by.is_typed
        return self.kind in ("flag", "command line")

    def __str__(self) -> str:
        """Return the phrase for people, which run.json keeps."""
        if self.kind == "file":
            return self.name
        if self.kind == "command line":
            return f"command line: {self.name}"
        if self.kind == "preset":
            return f"preset {self.name} ({self.chosen_by})"
        return f"{self.kind} {self.name}".rstrip()

    @classmethod
    def parse(cls, phrase: str) -> "Origin":
        """Read the phrase of an origin back from run.json.

        >>> Origin.parse("recipe mrpc")
        Origin(kind='recipe', name='mrpc', chosen_by=None)
        >>> Origin.parse("runs/mine.toml").kind
        'file'
        """
        for nameless in get_args(_Nameless):
            if phrase == nameless:
                return cls(nameless)
        if phrase.startswith("command line: "):
            return cls("command line", phrase.removeprefix("command line: "))
        kind, _, name = phrase.partition(" ")
        if kind == "preset":
            preset, _, chosen_by = name.removesuffix(")").partition(" (")
            return cls("preset", preset, cls.parse(chosen_by))
        if kind == "recipe":
            return cls("recipe", name)
        if kind == "start":
            return cls("start", name)
        return cls("file", phrase)


DEFAULT = Origin("default")
FLAG = Origin("flag")
MEASURED = Origin("measured here")
SUITED = Origin("measured default")
TOKENIZER = Origin("tokenizer")
