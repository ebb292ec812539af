"""The protocol of the two kinds of vocabulary, SentencePiece and WordPiece, behind `Tokenizer`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from litebert.errors import LitebertError
from litebert.tokenizer.encoding import Trace


@dataclass(frozen=True)
class SpecialPieces:
    """The names of the five special pieces, which text never produces (except the unknown one)."""

    pad: str
    unk: str
    cls: str
    sep: str
    mask: str

    def __iter__(self) -> Iterator[str]:
        return iter(astuple(self))

    def check(self, ids: Mapping[str, int], name: str) -> None:
        """Check that a vocabulary has all of them.

        Raises:
            LitebertError: LB-211, some are missing.
        """
        missing = [piece for piece in self if piece not in ids]
        if missing:
            raise LitebertError(
                "LB-211",
                f"{name} is not an ALBERT vocabulary: special pieces are missing",
                received=f"{len(ids):,} pieces without {', '.join(missing)}",
                expected=f"the pieces {', '.join(self)}",
                next="litebert tokenizer train --help",
            )


def vocabulary_hash(settings: str, data: bytes) -> str:
    """Return the blake2b of a vocabulary file and the settings that change its ids, in hex."""
    return hashlib.blake2b(f"{settings}\n".encode() + data, digest_size=32).hexdigest()


class SubwordModel(Protocol):
    """A vocabulary with its algorithm."""

    pieces: tuple[str, ...]
    ids: dict[str, int]
    special: SpecialPieces
    starts_word: NDArray[np.bool_]
    pieces_end_at_spaces: bool
    hash: str

    def encode_ids(self, texts: list[str], *, num_threads: int) -> list[list[int]]:
        """Return the ids of each text, without special pieces."""

    def trace(self, text: str) -> Trace:
        """Return the pieces and offsets of one text, one for each of its ids."""

    def join(self, pieces: list[str]) -> str:
        """Return the text of pieces."""

    def save(self, folder: Path, *, max_length: int) -> None:
        """Write the vocabulary, and the same tokenizer for transformers."""
