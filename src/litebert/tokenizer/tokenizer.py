"""The tokenizer: load a vocabulary, encode texts and pairs, decode ids, save."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from litebert.errors import LitebertError
from litebert.files import as_path
from litebert.tokenizer.encoding import Encoding, Spans, Trace, spans_of
from litebert.tokenizer.fromjson import read_vocabulary
from litebert.tokenizer.location import vocabulary_file
from litebert.tokenizer.normalize import Normalizer, refuse_lone_string, replace_surrogates
from litebert.tokenizer.parts import LONG, parts_of
from litebert.tokenizer.subword import SubwordModel
from litebert.tokenizer.unigram import UnigramModel
from litebert.tokenizer.wordpiece import WordPieceModel

ALL_CORES = -1


class Tokenizer:
    """A vocabulary and its rules; it is immutable, so threads can share one.

    >>> from importlib.resources import files
    >>> tokenizer = Tokenizer.load(files("litebert") / "model")
    >>> tokenizer.decode(tokenizer.encode("A small cat.").ids)
    'a small cat.'
    """

    def __init__(self, model: SubwordModel) -> None:
        self._model = model

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Load a tokenizer folder, a sentencepiece `*.model` or a WordPiece vocabulary `*.txt`.

        A folder has `spiece.model`, `vocab.txt` or, as transformers 5 saves it, only
        `tokenizer.json`; the first of these is used. A `tokenizer_config.json` beside the
        vocabulary may set `do_lower_case` and `keep_accents`; otherwise `tokenizer.json` does if it
        is the vocabulary, and by default text is lower-cased and loses its accents.

        Raises:
            LitebertError: LB-213, there is no vocabulary; LB-214, a setting is not true or false;
                LB-208, LB-211, LB-244, LB-246, it is not a vocabulary for ALBERT; LB-240, the
                library for WordPiece is missing.
            DamagedError: The vocabulary is damaged.
        """
        folder = as_path(path, "a tokenizer")
        name, found = str(vocabulary_file(folder)), read_vocabulary(folder)
        if found.suffix == ".model":
            return cls(UnigramModel(found.data, found.settings, name=name))
        return cls(WordPieceModel(found.data, lowercase=found.settings.lowercase, name=name))

    @classmethod
    def from_model(cls, model: bytes, *, lowercase: bool = True) -> Tokenizer:
        """Make a tokenizer from the bytes of a model, such as `train_tokenizer` returns."""
        return cls(UnigramModel(model, Normalizer(lowercase=lowercase), name="the model"))

    def save(self, folder: str | Path, *, max_length: int = 512) -> None:
        """Write a tokenizer folder that `load` and transformers' `AutoTokenizer` read.

        It writes the vocabulary byte for byte, `tokenizer.json` and `tokenizer_config.json`; other
        files are unchanged. `max_length` is the model's number of positions, where transformers
        truncates on request.
        """
        self._model.save(Path(folder), max_length=max_length)

    def encode(
        self, text: str, pair: str | None = None, *, special_tokens: bool = False, frame: bool | None = None
    ) -> Encoding:
        """Encode a text, or a text and its pair; any Python string encodes.

        With `special_tokens`, names such as `[MASK]` in the text become the special ids; without
        it, they are plain text. `frame` adds `[CLS]` before and `[SEP]` after the text (`[SEP]`
        after the pair); None frames pairs and, with `special_tokens`, single texts, too.

        >>> from litebert.tokenizer import train_tokenizer
        >>> model = train_tokenizer(["red, green, blue"] * 9, vocab_size=25)
        >>> tokenizer = Tokenizer.from_model(model)
        >>> encoding = tokenizer.encode("Red [MASK]", special_tokens=True)
        >>> encoding.pieces[-2:], encoding.offsets[-2:]
        (['[MASK]', '[SEP]'], [(4, 10), (0, 0)])
        """
        pairs = None if pair is None else [pair]
        return self.encode_batch([text], pairs, special_tokens=special_tokens, frame=frame, num_threads=1)[0]

    def encode_batch(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        *,
        special_tokens: bool = False,
        frame: bool | None = None,
        num_threads: int = ALL_CORES,
    ) -> list[Encoding]:
        """Encode many texts, or texts with their pairs, each as `encode` would.

        Raises:
            LitebertError: LB-210, LB-216, texts are not a list of strings; LB-215, there are not as
                many pairs as texts.
        """
        columns = [texts] if pairs is None else [texts, pairs]
        if len({len(column) for column in columns}) > 1:
            raise LitebertError(
                "LB-215",
                "texts and pairs do not match",
                received=" and ".join(f"{len(column):,}" for column in columns),
                expected="one pair for each text",
                next="give two lists of the same length",
            )
        is_framed = (special_tokens or pairs is not None) if frame is None else frame
        encoded = [
            self.encode_ids(column, special_tokens=special_tokens, num_threads=num_threads) for column in columns
        ]
        traces = [
            partial(self._trace, row, special_tokens=special_tokens, is_framed=is_framed)
            for row in zip(*columns, strict=True)
        ]
        rows: Iterable[tuple[list[int], ...]] = zip(*encoded, strict=True)
        if is_framed:
            rows = map(self._framed, rows)
        return [
            Encoding(first + second[0] if second else first, len(first), trace)
            for (first, *second), trace in zip(rows, traces, strict=True)
        ]

    def encode_ids(
        self, texts: Sequence[str], *, special_tokens: bool = False, num_threads: int = ALL_CORES
    ) -> list[list[int]]:
        """Return only the ids of many texts, without [CLS] and [SEP]; this is the fastest way."""
        refuse_lone_string(texts)
        if special_tokens:
            rows = [self._around_special(text) for text in texts]
            between = [part for row in rows for part in row[::2]]
            plain = iter(self.encode_ids(between, num_threads=num_threads))
            return [self._with_special(row, plain) for row in rows]
        if any(isinstance(text, str) and len(text) > LONG for text in texts):
            return [self._long_ids(text) for text in texts]
        return self._model.encode_ids(list(texts), num_threads=num_threads)

    def beginning(self, text: str, num_ids: int) -> str:
        """Return a beginning of a long text with at least `num_ids` ids; short texts unchanged."""
        if len(text) <= LONG:
            return text
        count = 0
        for begin, part in self._parts(text):
            if len(part) > LONG:  # no space to cut at: the last ids may differ from the text's
                found = len(self._model.encode_ids([part[:LONG]], num_threads=1)[0])
                if count + found >= 2 * num_ids:
                    return text[: begin + LONG]
            count += len(self._model.encode_ids([part], num_threads=1)[0])
            if count >= num_ids:
                return text[: begin + len(part)]
        return text

    def encode_arrays(self, text: str) -> tuple[NDArray[np.int32], Spans]:
        """Return the ids of a text of any length and their offsets, in 12 bytes per token."""
        ids, offsets = array("i"), array("i")
        for begin, part in self._parts(text):
            ids.extend(self._model.encode_ids([part], num_threads=1)[0])
            offsets.frombytes(self._model.trace(part).shifted(begin).offsets.tobytes())
        return np.frombuffer(ids, np.int32), np.frombuffer(offsets, np.int32).reshape(-1, 2)

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids, without special pieces; the unknown one is shown as ⁇.

        Raises:
            LitebertError: LB-217, an id is outside the vocabulary.
        """
        return self._model.join([self.piece(index) for index in ids])

    def piece(self, id: int) -> str:
        """Return the piece of an id.

        Raises:
            LitebertError: LB-217, the id is outside the vocabulary.
        """
        if not 0 <= id < len(self._model.pieces):
            raise LitebertError(
                "LB-217",
                "this id is outside the vocabulary",
                received=id,
                expected=f"0 to {len(self._model.pieces) - 1:,}",
                next="decode with the tokenizer that made the ids",
            )
        return self._model.pieces[id]

    def id(self, piece: str) -> int:
        """Return the id of a piece; that of the unknown piece if the vocabulary lacks it."""
        return self._model.ids.get(piece, self.unk_id)

    @property
    def vocab_size(self) -> int:
        """The number of pieces."""
        return len(self._model.pieces)

    @property
    def pieces(self) -> tuple[str, ...]:
        """All pieces, by id."""
        return self._model.pieces

    @property
    def starts_word(self) -> NDArray[np.bool_]:
        """Whether each id's piece begins a word, shape (vocab,); masking uses this rule."""
        return self._model.starts_word

    @property
    def hash(self) -> str:
        """The blake2b of the vocabulary file and the settings that change ids, in hex."""
        return self._model.hash

    @cached_property
    def pad_id(self) -> int:
        """The id of `<pad>` (`[PAD]`)."""
        return self._model.ids[self._model.special.pad]

    @cached_property
    def unk_id(self) -> int:
        """The id of the unknown piece."""
        return self._model.ids[self._model.special.unk]

    @cached_property
    def cls_id(self) -> int:
        """The id of `[CLS]`."""
        return self._model.ids[self._model.special.cls]

    @cached_property
    def sep_id(self) -> int:
        """The id of `[SEP]`."""
        return self._model.ids[self._model.special.sep]

    @cached_property
    def mask_id(self) -> int:
        """The id of `[MASK]`."""
        return self._model.ids[self._model.special.mask]

    @cached_property
    def first_alike(self) -> NDArray[np.int64]:
        """For each id, the first id with the same text: `▁man` and `man` both read "man"."""
        first: dict[str, int] = {}
        ids = range(self.vocab_size)
        return np.array([first.setdefault(self.decode([index]), index) for index in ids])

    @cached_property
    def special_ids(self) -> tuple[int, ...]:
        """The ids of padding, unknown, [CLS], [SEP] and [MASK]."""
        return tuple(self._model.ids[name] for name in self._model.special)

    def _parts(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield a text in parts whose ids are the same as within the text."""
        return parts_of(text) if self._model.pieces_end_at_spaces else iter([(0, text)])

    def _long_ids(self, text: str) -> list[int]:
        """Return the ids of a text, part by part; equal ids are one object."""
        known: dict[int, int] = {}
        ids: list[int] = []
        for _, part in self._parts(text):
            found = self._model.encode_ids([part], num_threads=1)[0]
            ids.extend(known.setdefault(id_, id_) for id_ in found)
        return ids

    def _framed(self, parts: tuple[list[int], ...]) -> tuple[list[int], ...]:
        first, *second = parts
        return ([self.cls_id, *first, self.sep_id], *([*ids, self.sep_id] for ids in second))

    def _with_special(self, parts: list[str], plain: Iterator[list[int]]) -> list[int]:
        ids: list[int] = []
        for index, part in enumerate(parts):
            ids += [self._model.ids[part]] if index % 2 else next(plain)
        return ids

    def _trace(self, texts: tuple[str, ...], *, special_tokens: bool, is_framed: bool) -> Trace:
        find = self._trace_special if special_tokens else self._trace_plain
        traces = [find(text) for text in texts]
        if is_framed:
            head, tail = (
                Trace([piece], spans_of([(0, 0)])) for piece in (self._model.special.cls, self._model.special.sep)
            )
            traces = [head, *(part for trace in traces for part in (trace, tail))]
        return Trace.joined(traces)

    def _trace_plain(self, text: str) -> Trace:
        return Trace.joined(self._model.trace(part).shifted(begin) for begin, part in self._parts(text))

    def _trace_special(self, text: str) -> Trace:
        traces, begin = [], 0
        for index, part in enumerate(self._around_special(text)):
            end = begin + len(part)
            traces.append(
                Trace([part], spans_of([(begin, end)])) if index % 2 else self._trace_plain(part).shifted(begin)
            )
            begin = end
        return Trace.joined(traces)

    def _around_special(self, text: str) -> list[str]:
        """Split a text at special pieces: odd entries are their names, even ones plain text."""
        return self._special_pattern.split(replace_surrogates(text))

    @cached_property
    def _special_pattern(self) -> re.Pattern[str]:
        return re.compile(f"({'|'.join(map(re.escape, self._model.special))})")
