"""The official English tokenizer: sentencepiece after the official preprocessing, commas split off digits."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import sentencepiece
from numpy.typing import NDArray

from litebert.errors import DamagedError, LitebertError
from litebert.tokenizer.modelfile import CONTROL, UNKNOWN, ends_in_number_comma, read_model
from litebert.tokenizer.normalize import Normalizer, Places, Spans, cuts

SPACE = "▁"

_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~')
_PLAIN = _PUNCTUATION | frozenset("abcdefghijklmnopqrstuvwxyz")
_PART_CHARACTERS = 1 << 16
_BATCH_WORTH_THREADS = 16
"""From this many texts on, one call for all is faster, even on one thread (13 % on articles)."""


class SpecialPieces(NamedTuple):
    """The names of the five special pieces, which text never produces (except the unknown one)."""

    pad: str
    unk: str
    cls: str
    sep: str
    mask: str


UNIGRAM_SPECIAL = SpecialPieces(pad="<pad>", unk="<unk>", cls="[CLS]", sep="[SEP]", mask="[MASK]")


@dataclass(frozen=True, slots=True)
class Trace:
    """The pieces of a text, and the half-open span of each in the original string."""

    pieces: list[str]
    offsets: Spans

    @classmethod
    def joined(cls, traces: Iterable[Trace]) -> Trace:
        """Concatenate several traces."""
        traces = list(traces)
        spans = [np.empty((0, 2), np.int32), *(trace.offsets for trace in traces)]
        return cls([piece for trace in traces for piece in trace.pieces], np.concatenate(spans))

    def shifted(self, by: int) -> Trace:
        """Return the trace of the same text if it starts `by` characters later."""
        return Trace(self.pieces, self.offsets + np.int32(by))


def check_special(special: SpecialPieces, ids: Mapping[str, int], name: str) -> None:
    """Check that a vocabulary has all special pieces."""
    if missing := [piece for piece in special if piece not in ids]:
        raise LitebertError(
            "LB-211",
            f"{name} is not an ALBERT vocabulary: special pieces are missing",
            received=f"{len(ids):,} pieces without {', '.join(missing)}",
            expected=f"the pieces {', '.join(special)}",
            next="litebert tokenizer train --help",
        )


def vocabulary_hash(settings: str, data: bytes) -> str:
    """Return the blake2b of a vocabulary file and the settings that change its ids, in hex."""
    return hashlib.blake2b(f"{settings}\n".encode() + data, digest_size=32).hexdigest()


def starts_word(piece: str) -> bool:
    """Tell whether a piece begins a word (official create_pretraining_data.py L393-407).

    It does if it begins with `▁` or `<`, is a single punctuation character, or has any character other than a-z and
    punctuation: digits, apostrophes and foreign letters always begin a word.

    >>> [starts_word(piece) for piece in ["▁the", "ing", ",", "...", "2", "[MASK]"]]
    [True, False, True, False, True, True]
    """
    return piece[0] in "▁<" or piece in _PUNCTUATION or not _PLAIN.issuperset(piece)


class UnigramModel:
    """A checked sentencepiece model with ALBERT's rules around it."""

    def __init__(self, data: bytes, normalizer: Normalizer, *, name: str) -> None:
        model = read_model(data, name)
        self.data, self.name, self.normalizer = data, name, normalizer
        self.special = UNIGRAM_SPECIAL._replace(unk=model.unknown)
        self.pieces = tuple(piece.text for piece in model.pieces)
        self.ids = {text: index for index, text in enumerate(self.pieces)}
        self._known = {text: text for text in self.pieces}
        check_special(self.special, self.ids, name)
        self.starts_word: NDArray[np.bool_] = np.array([starts_word(piece) for piece in self.pieces])
        self.pieces_end_at_spaces = not any(SPACE in piece.lstrip(SPACE) for piece in self.pieces)
        self.hash = vocabulary_hash(f"unigram {normalizer}", data)
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(data)
        except (RuntimeError, ValueError, IndexError) as error:
            raise DamagedError(
                "LB-212",
                f"sentencepiece refuses {name}",
                received=str(error),
                expected="a model that this version of sentencepiece can load",
                next="get the file again from where it came from",
            ) from error
        self._never_spelled = frozenset(piece.text for piece in model.pieces if piece.kind in (UNKNOWN, CONTROL))
        # Without a piece for the comma, a run of unknown characters may contain one, which its id does not show.
        self._has_comma = "," in self.ids and "," not in self._never_spelled
        self._number_commas = {
            index: [self._id(part) for part in self._without_comma(piece)]
            for piece, index in self.ids.items()
            if ends_in_number_comma(piece) and piece not in self._never_spelled
        }

    def encode_ids(self, texts: list[str], *, num_threads: int) -> list[list[int]]:
        """Return the ids of each text; `num_threads` -1 means one thread per core."""
        normalized = [self.normalizer.normalize(text) for text in texts]
        if not self._has_comma:
            split = [self._processor.encode(text, out_type=str) for text in normalized]
            return [[self._id(part) for whole in row for part in self._parts(whole)] for row in split]
        if len(texts) < _BATCH_WORTH_THREADS:
            encoded = [self._processor.encode(text, out_type=int) for text in normalized]
        else:
            encoded = self._processor.encode(normalized, out_type=int, num_threads=num_threads)
        return [self._split_number_commas(ids) for ids in encoded]

    def trace(self, text: str) -> Trace:
        """Return the pieces of a text and where each came from."""
        aligned = self.normalizer.align(text)
        pieces: list[str] = []
        starts, stops = array("i"), array("i")
        end = 0
        for whole in self._processor.encode(aligned.text, out_type=str):
            begin, end = end, end + len(whole)
            for part in self._parts(whole):
                stop = min(begin + len(part), end)
                pieces.append(self._known.get(part, part))
                starts.append(begin + part.startswith(SPACE))
                stops.append(stop)
                begin = stop
        origins = self._origins(aligned.text, end)
        return Trace(pieces, aligned.spans(origins[np.array(starts)], origins[np.array(stops)]))

    def _origins(self, text: str, length: int) -> Places:
        """Return where each character that sentencepiece encodes came from, and the text's end.

        To save memory, parts of the text are normalised separately, because sentencepiece returns a Python number for
        each character. If that changes the length, the text is one part.
        """
        for parts in (cuts(text, _PART_CHARACTERS), [(0, len(text))]):
            origins = array("i")
            for begin, stop in parts:
                _, places = self._processor.normalize(text[begin:stop], with_offsets=True)
                first = len(origins)
                origins.extend(place + begin for place in places[:-1])
                if begin:
                    origins[first] = begin - 1  # the space between the parts
            if len(origins) == length:
                break
        origins.append(len(text))
        return np.array(origins, dtype=np.int32)

    def join(self, pieces: list[str]) -> str:
        """Return the text of pieces, with ⁇ for the unknown one and without control pieces."""
        hidden = dict.fromkeys(self.special, "") | {self.special.unk: " ⁇ "}
        return "".join(hidden.get(piece, piece) for piece in pieces).replace(SPACE, " ").strip()

    def _parts(self, piece: str) -> list[str]:
        return self._without_comma(piece) if ends_in_number_comma(piece) else [piece]

    def _without_comma(self, piece: str) -> list[str]:
        """Encode a piece such as `▁2010,` without its comma, which becomes a separate piece.

        Official tokenization.py L66-79, as intended (Python 3 broke it): encoding adds a `▁` in front, which is
        removed if the piece had none.
        """
        first, *rest = self._processor.encode(piece[:-1].replace(SPACE, " "), out_type=str) or [""]
        if not piece.startswith(SPACE):
            first = first.removeprefix(SPACE)
        return [part for part in (first, *rest, ",") if part]

    def _split_number_commas(self, ids: list[int]) -> list[int]:
        if self._number_commas.keys().isdisjoint(ids):
            return ids
        split: list[int] = []
        for index in ids:
            parts = self._number_commas.get(index)
            split.extend(parts) if parts else split.append(index)
        return split

    def _id(self, piece: str) -> int:
        known = piece in self.ids and piece not in self._never_spelled
        return self.ids[piece if known else self.special.unk]
