"""OWNER/NAME, OWNER/NAME@REVISION: what a model is called on the Hub."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath

from litebert.errors import LitebertError

_NAME = re.compile(r"([a-zA-Z0-9][\w.-]*/[\w.-]+)(?:@([\w./-]+))?", re.ASCII)
# Folders that people and litebert itself keep models in; no owner on the Hub has such a name.
_OUR_FOLDERS = {"runs", "models", "model", "checkpoints", "output", "outputs", "out", "data", "tmp"}
_OUR_MODELS = {"model", "best", "checkpoints"}


@dataclass(frozen=True)
class HubName:
    """OWNER/NAME of a repository, and perhaps a branch, tag or commit of it.

    >>> HubName.parse("albert/albert-base-v2@main")
    HubName(repository='albert/albert-base-v2', revision='main')
    """

    repository: str
    revision: str | None = None

    @classmethod
    def parse(cls, text: str) -> HubName | None:
        """Read OWNER/NAME or OWNER/NAME@REVISION; None for anything else."""
        match = _NAME.fullmatch(text)
        return cls(match[1], match[2]) if match else None

    @classmethod
    def read(cls, text: str, *, revision: str | None = None) -> HubName:
        """Read a name that can be nothing else, with a revision after it or apart.

        Raises:
            LitebertError: LB-636, this is no name.
        """
        name = cls.parse(text if revision is None else f"{text}@{revision}")
        if name is None:
            raise LitebertError(
                "LB-636",
                "this is no name of a model on the Hub",
                received=text if revision is None else f"{text} at revision {revision}",
                expected="OWNER/NAME, or OWNER/NAME@REVISION",
                next="hf auth whoami prints your OWNER; https://huggingface.co/models has others",
            )
        return name


def looks_local(text: str) -> bool:
    """Tell whether a text means a path on this disk, though it could be a name on the Hub.

    >>> [looks_local(text) for text in ("runs/mine", "mine/model", "albert/albert-base-v2")]
    [True, True, False]
    """
    path = PurePath(text)
    owner, name = path.parts[0], path.name
    return owner in _OUR_FOLDERS or name in _OUR_MODELS or path.suffix in (".json", ".safetensors")
