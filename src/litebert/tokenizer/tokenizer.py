"""The tokenizer: load a vocabulary, encode texts and pairs, decode ids, save."""

import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from litebert import files
from litebert.errors import LitebertError
from litebert.tokenizer.added import AddedToken, Splitter, Trace, join_traces
from litebert.tokenizer.models import (
    ALL_CORES,
    SPACE,
    UnigramModel,
    WordPieceModel,
)
from litebert.tokenizer.on_disk import (
    CONFIG_FILE,
    PIPELINE_FILE,
    UNIGRAM_FILE,
    WORDPIECE_FILE,
    read_vocabulary,
)
from litebert.tokenizer.text import Normalizer, Spans, single_text
from litebert.tokenizer.tokenizer_json import tokenizer_config, tokenizer_json

LONG = 1 << 20  # the longest text that is encoded at once, in characters
_PART = 1 << 17  # characters in each part of a longer text

_BETWEEN_WORDS = re.compile(r"(?<=\w)\s+(?=\w)")
_FEW_LETTERS = 6  # a short name or abbreviation may be spelt out in any language


class Encoding:
    """A text, or a text and its pair, as ids; its pieces and offsets are computed on
    first access.

    All lists have one entry per token. `segments` is 0 for `[CLS] A [SEP]` and 1 for `B
    [SEP]`. `offsets` are (start, end) in the original string of the token's own text
    (A's or B's): `text[start:end]` is the word or part of a word without the space
    before it. Tokens without text have an empty span: `[CLS]` and `[SEP]` from framing
    are at (0, 0), a lone `▁` is before its word. Pieces of a single character, such as
    `½`, share its span.
    """

    def __init__(
        self, ids: list[int], first_size: int, find_trace: Callable[[], Trace]
    ) -> None:
        self.ids = ids
        self._first_size = first_size
        self._find_trace = find_trace

    @cached_property
    def _trace(self) -> Trace:
        return self._find_trace()

    @property
    def segments(self) -> list[int]:
        """0 for tokens of the first text, 1 for those of the second."""
        return [0] * self._first_size + [1] * (len(self.ids) - self._first_size)

    @property
    def pieces(self) -> list[str]:
        """The pieces; characters that the vocabulary lacks appear unchanged."""
        return self._trace.pieces

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """The (start, end) of each token in the original string."""
        return [(start, end) for start, end in self.offset_array.tolist()]

    @property
    def offset_array(self) -> Spans:
        """The offsets as an array, shape (tokens, 2): a twentieth of the memory of the
        list.
        """
        return self._trace.spans

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        shown = [str(id_) for id_ in self.ids[:8]]
        if len(self.ids) > 8:
            shown.append("…")
        return f"Encoding({len(self.ids)} ids: {', '.join(shown)})"


class Tokenizer:
    """A vocabulary and its rules; it is immutable, so threads can share one.

    `pieces` are all pieces by id, `vocab_size` of them; `starts_word` says whether each
    begins a word, shape (vocab,), the rule that masking uses. `special_ids` are
    `pad_id`, `unk_id`, `cls_id`, `sep_id` and `mask_id`. `hash` is the blake2b of the
    vocabulary file and the settings that change ids, in hex.

    >>> from importlib.resources import files
    >>> tokenizer = Tokenizer.load(files("litebert") / "model")
    >>> tokenizer.decode(tokenizer.encode("A small cat.").ids)
    'a small cat.'
    """

    def __init__(self, model: UnigramModel | WordPieceModel) -> None:
        self._model = model
        self.pieces = model.pieces
        self.starts_word = model.starts_word
        self.hash = model.hash
        self.normalizer = model.normalizer
        # tokens that are split off before the vocabulary sees a text
        self.added = model.added
        self.vocab_size = len(model.pieces)
        special = list[AddedToken]()
        for name in model.special:
            special.append(AddedToken(name, model.ids[name], normalized=False))
        self._special = Splitter(special, model.normalizer)
        self.special_ids = tuple(token.id for token in special)
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (
            self.special_ids
        )

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        """Load a tokenizer folder, a sentencepiece `*.model` or a WordPiece vocabulary
        `*.txt`.

        A folder has `spiece.model`, `vocab.txt` or, as transformers 5 saves it, only
        `tokenizer.json`; the first of these is used. A `tokenizer_config.json` next to
        the vocabulary may set `do_lower_case` and `keep_accents` (for WordPiece,
        `strip_accents`), else a `tokenizer.json` that is the vocabulary; default: lower
        case, no accents.
        """
        vocabulary = read_vocabulary(files.as_path(path, "a tokenizer"))
        is_unigram = vocabulary.suffix == ".model"
        model_class = UnigramModel if is_unigram else WordPieceModel
        model = model_class(
            vocabulary.data,
            vocabulary.settings,
            name=str(vocabulary.path),
            added=vocabulary.added,
        )
        return cls(model)

    @classmethod
    def from_model(
        cls, model: bytes, *, lowercase: bool = True, keep_accents: bool = False
    ) -> "Tokenizer":
        """Make a tokenizer from the bytes of a model, such as those that
        `train_tokenizer` returns.
        """
        normalizer = Normalizer(lowercase, keep_accents)
        return cls(UnigramModel(model, normalizer, name="the model"))

    def save(self, folder: str | Path, *, max_length: int = 512) -> None:
        """Write a tokenizer folder that `load` and transformers' `AutoTokenizer` read.

        It writes the vocabulary byte for byte, in place of any other, `tokenizer.json`
        and `tokenizer_config.json`. `max_length` is the model's number of positions, to
        which transformers truncates on request.
        """
        path = Path(folder)
        is_unigram = isinstance(self._model, UnigramModel)
        name = UNIGRAM_FILE if is_unigram else WORDPIECE_FILE
        replaced_name = WORDPIECE_FILE if is_unigram else UNIGRAM_FILE
        # the rules of reading first: a vocabulary without them would encode wrongly
        config = tokenizer_config(self._model, max_length)
        files.write_json(path / CONFIG_FILE, config)
        files.write_bytes(path / PIPELINE_FILE, self._pipeline)
        files.write_bytes(path / name, self._model.data)
        (path / replaced_name).unlink(missing_ok=True)

    @cached_property
    def _pipeline(self) -> bytes:
        """The content of `tokenizer.json`, which a run writes into each of its
        folders.
        """
        return files.encode_json(tokenizer_json(self._model))

    # ---- texts to ids ----------------------------------------------------------------

    def encode(
        self,
        text: str,
        pair: str | None = None,
        *,
        special_tokens: bool = False,
        frame: bool | None = None,
    ) -> Encoding:
        """Encode a text, or a text and its pair; any Python string can be encoded.

        With `special_tokens`, names such as `[MASK]` in the text become the special
        ids; without it, they are plain text. `frame` adds `[CLS]` before and `[SEP]`
        after the text (`[SEP]` after the pair); None frames pairs and, with
        `special_tokens`, also single texts.
        """
        pairs = None if pair is None else [pair]
        [encoding] = self.encode_batch(
            [text], pairs, special_tokens=special_tokens, frame=frame
        )
        return encoding

    def encode_batch(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        *,
        special_tokens: bool = False,
        frame: bool | None = None,
    ) -> list[Encoding]:
        """Encode many texts, or texts with their pairs, each as `encode` would."""
        if pairs is not None:
            _check_same_length(texts, pairs)
        is_framed = frame
        if is_framed is None:
            is_framed = special_tokens or pairs is not None

        # Column by column, so that all cores work on many texts at once; then row by row.
        columns = [texts] if pairs is None else [texts, pairs]
        encode_ids = partial(self.encode_ids, special_tokens=special_tokens)
        id_columns = [encode_ids(column) for column in columns]
        text_rows = zip(*columns, strict=True)
        id_rows = zip(*id_columns, strict=True)
        encodings = []
        for text_row, id_row in zip(text_rows, id_rows, strict=True):
            find_trace = partial(
                self._trace,
                text_row,
                special_tokens=special_tokens,
                is_framed=is_framed,
            )
            segments = self._framed(id_row) if is_framed else id_row
            ids = segments[0] if pairs is None else segments[0] + segments[1]
            encodings.append(Encoding(ids, len(segments[0]), find_trace))
        return encodings

    def _framed(self, segments: Sequence[list[int]]) -> list[list[int]]:
        """Return the ids of a text, or of a text and its pair, as `[CLS] A [SEP]` and `B
        [SEP]`.
        """
        first, *pair = segments
        framed = [[self.cls_id, *first, self.sep_id]]
        framed += [[*ids, self.sep_id] for ids in pair]
        return framed

    def encode_ids(
        self,
        texts: Sequence[str],
        *,
        special_tokens: bool = False,
        num_threads: int = ALL_CORES,
    ) -> list[list[int]]:
        """Return only the ids of many texts, without [CLS] and [SEP], on all cores:
        this is the fastest way.
        """
        if isinstance(texts, str):
            raise single_text(texts)
        as_list = list(texts)
        if special_tokens:
            encode = partial(self.encode_ids, num_threads=num_threads)
            return self._special.encode(as_list, encode)
        if any(isinstance(text, str) and len(text) > LONG for text in as_list):
            return self._encode_long(as_list)
        return self._model.encode_ids(as_list, num_threads=num_threads)

    def _encode_long(self, texts: list[str]) -> list[list[int]]:
        """Return the ids of texts of any length, which are encoded part by part."""
        # One object for all occurrences of an id: otherwise a long text takes 28 more
        # bytes per token.
        shared_ids: dict[int, int] = {}
        encoded = []
        for text in texts:
            ids = list[int]()
            for _, part in self._parts(text):
                part_ids = self._model.encode_ids([part])[0]
                ids += [shared_ids.setdefault(id_, id_) for id_ in part_ids]
            encoded.append(ids)
        return encoded

    def encode_arrays(self, text: str) -> tuple[NDArray[np.int32], Spans]:
        """Return the ids of a text of any length and their offsets, in 12 bytes per
        token.
        """
        # id, start, end, …: lists of numbers would take five times as much
        numbers = array("i")
        for begin, part in self._parts(text):
            encoding = self.encode(part)
            rows = np.column_stack([encoding.ids, encoding.offset_array + begin])
            numbers.frombytes(rows.astype(np.int32).tobytes())
        table = np.frombuffer(numbers, np.int32).reshape(-1, 3)  # (tokens, 3)
        return table[:, 0], table[:, 1:]

    def beginning(self, text: str, num_ids: int) -> str:
        """Return the beginning of a long text, with at least `num_ids` ids; short texts
        are unchanged.
        """
        if len(text) <= LONG:
            return text
        num_before = 0  # ids of the parts before this one
        for begin, part in self._parts(text):
            if len(part) > LONG:
                # No space to cut at: the last ids of the cut may differ from the text's,
                # hence the factor of 2.
                cut_ids = self.encode_ids([part[:LONG]])[0]
                if num_before + len(cut_ids) >= 2 * num_ids:
                    return text[: begin + LONG]
            num_before += len(self.encode_ids([part])[0])
            if num_before >= num_ids:
                return text[: begin + len(part)]
        return text

    def _parts(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield a long text in parts, with their positions; encoding the parts gives
        the same ids in less memory.
        """
        begin = 0
        if len(text) > LONG and self._model.pieces_end_at_spaces:
            while space := _BETWEEN_WORDS.search(text, begin + _PART):
                yield begin, text[begin : space.start()]
                begin = space.end()
        yield begin, text[begin:]

    def _trace(
        self, texts: tuple[str, ...], *, special_tokens: bool, is_framed: bool
    ) -> Trace:
        """Return the pieces of one or two texts and their spans, with the framing."""
        special = self._model.special
        no_span = np.zeros((1, 2), np.int32)
        traces = list[Trace]()
        if is_framed:
            traces.append(Trace([special.cls], no_span))
        for text in texts:
            if special_tokens:
                traces.append(self._special.trace(text, self._trace_plain))
            else:
                traces.append(self._trace_plain(text))
            if is_framed:
                traces.append(Trace([special.sep], no_span))
        return join_traces(traces)

    def _trace_plain(self, text: str) -> Trace:
        """Return the pieces and spans of a text of any length."""
        parts = self._parts(text)
        return join_traces([self._model.trace(part).moved(at) for at, part in parts])

    # ---- ids and pieces --------------------------------------------------------------

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids, without special pieces; the unknown piece is shown as
        ⁇.
        """
        return self._model.decode([self.piece(id_) for id_ in ids])

    def piece(self, id: int) -> str:
        """Return the piece of an id."""
        if not 0 <= id < self.vocab_size:
            raise LitebertError(
                "LB-217",
                "this id is outside the vocabulary",
                received=id,
                expected=f"0 to {self.vocab_size - 1:,}",
                next="decode with the tokenizer that made the ids",
            )
        return self.pieces[id]

    def id(self, piece: str) -> int:
        """Return the id of a piece; that of the unknown piece if the vocabulary lacks
        it.
        """
        return self._model.ids.get(piece, self.unk_id)

    @cached_property
    def texts(self) -> list[str]:
        """The text of each piece within a sentence: a word begins with a space, and
        special pieces have no text.
        """
        if isinstance(self._model, WordPieceModel):
            texts = [_word_piece_text(piece) for piece in self.pieces]
        else:
            texts = [piece.replace(SPACE, " ") for piece in self.pieces]
        for token in self._model.added:
            texts[token.id] = "" if token.special else f" {token.content}"
        for index in self.special_ids:
            texts[index] = ""
        return texts

    @cached_property
    def first_alike(self) -> NDArray[np.int64]:
        """For each id, the first id with the same text: `▁man` and `man` both read
        "man".
        """
        first_ids = dict[str, int]()
        row = list[int]()
        for id_, text in enumerate(self.texts):
            reading = text.strip() or self.pieces[id_]
            row.append(first_ids.setdefault(reading, id_))
        return np.array(row)

    @cached_property
    def textless_ids(self) -> list[int]:
        """The ids of pieces without text of their own, such as a lone `▁`."""
        return [index for index in range(self.vocab_size) if not self.decode([index])]

    def reads_in_fragments(self, text: str) -> bool:
        """Return whether a text, without [MASK], splits mostly into unknown pieces and
        single letters inside words.

        If so, the vocabulary was not made for its script or language.
        """
        # what the pieces inside words begin with
        mark = "##" if isinstance(self._model, WordPieceModel) else ""
        num_pieces = 0
        num_letters = 0
        num_unknown = 0
        for id_ in self.encode_ids([text], special_tokens=True)[0]:
            piece = self.pieces[id_]
            if piece == SPACE or id_ == self.mask_id:
                continue
            num_pieces += 1
            if id_ == self.unk_id:
                num_unknown += 1
            if piece.startswith(mark) and _is_letter(piece.removeprefix(mark)):
                num_letters += 1
        num_fragments = num_letters + num_unknown
        is_enough = num_fragments >= _FEW_LETTERS or num_unknown > 0
        return is_enough and num_fragments > num_pieces / 2


def _check_same_length(texts: Sequence[str], pairs: Sequence[str]) -> None:
    """Raise LB-215 unless there is a pair for each text."""
    if len(texts) == len(pairs):
        return
    raise LitebertError(
        "LB-215",
        "texts and pairs do not match",
        received=f"{len(texts):,} and {len(pairs):,}",
        next="give two lists of the same length",
    )


def _word_piece_text(piece: str) -> str:
    """Return the text of a WordPiece within a sentence: a word has a space before it."""
    if piece.startswith("##"):
        return piece[2:]
    return f" {piece}"


def _is_letter(text: str) -> bool:
    """Return whether a text is one letter of an alphabet: kana, Chinese characters and
    Hangul are syllables or words of their own.
    """
    return len(text) == 1 and text.isalpha() and not "\u3040" <= text <= "\ud7a3"
