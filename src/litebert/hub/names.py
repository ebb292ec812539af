"""The names of models on the Hub: OWNER/NAME or OWNER/NAME@REVISION."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath

from litebert.errors import LitebertError

_NAME = re.compile(r"([a-zA-Z0-9][\w.-]*/[\w.-]+)(?:@([\w./-]+))?", re.ASCII)
# The usual folders of models; no owner on the Hub has such a name.
_OUR_FOLDERS = {"runs", "models", "model", "checkpoints", "output", "outputs", "out", "data", "tmp"}
_OUR_MODELS = {"model", "best", "checkpoints"}


@dataclass(frozen=True)
class HubName:
    """OWNER/NAME of a repository, and optionally a branch, tag or commit.

    >>> HubName.parse("albert/albert-base-v2@main")
    HubName(repository='albert/albert-base-v2', revision='main')
    """

    repository: str
    revision: str | None = None

    @classmethod
    def parse(cls, text: str) -> HubName | None:
        """Parse OWNER/NAME or OWNER/NAME@REVISION; return None for anything else."""
        match = _NAME.fullmatch(text)
        return cls(match[1], match[2]) if match else None

    @classmethod
    def read(cls, text: str, *, revision: str | None = None) -> HubName:
        """Parse a name that must be one, with its revision in it or as an argument.

        Raises:
            LitebertError: LB-636, it is not a name.
        """
        name = cls.parse(text if revision is None else f"{text}@{revision}")
        if name is None:
            raise LitebertError(
                "LB-636",
                "this is not the name of a model on the Hub",
                received=text if revision is None else f"{text} at revision {revision}",
                expected="OWNER/NAME, or OWNER/NAME@REVISION",
                next="hf auth whoami prints your OWNER; https://huggingface.co/models has others",
            )
        return name


def looks_local(text: str) -> bool:
    """Tell whether a text that could be a name on the Hub means a path on this disk.

    >>> [looks_local(text) for text in ("runs/mine", "mine/model", "albert/albert-base-v2")]
    [True, True, False]
    """
    path = PurePath(text)
    owner, name = path.parts[0], path.name
    return owner in _OUR_FOLDERS or name in _OUR_MODELS or path.suffix in (".json", ".safetensors")
