"""The tokenizer: find a vocabulary on disk, encode texts and pairs, decode ids,
save.
"""

import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import chain, islice
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert import files
from litebert.errors import LitebertError, NoVocabularyError
from litebert.tokenizer import models
from litebert.tokenizer import tokenizer_json as theirs
from litebert.tokenizer.models import (
    Normalizer,
    Spans,
    Trace,
    UnigramModel,
    WordPieceModel,
    replace_surrogates,
)

LONG = 1 << 20  # the longest text that is encoded at once, in characters
_PART = 1 << 17  # characters in each part of a longer text

_CONFIG = "tokenizer_config.json"
_PIPELINE = "tokenizer.json"
_VOCABULARIES = ("spiece.model", "vocab.txt", _PIPELINE)
TOKENIZER_FILES = (*_VOCABULARIES, _CONFIG)
"""The names of all files that `Tokenizer.save` writes into a folder."""
_BETWEEN_WORDS = re.compile(r"(?<=\w)\s+(?=\w)")
MOST_UNKNOWN = 0.01
OTHER_VOCABULARY = "above 1 % another vocabulary is better: litebert tokenizer train"
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
        return self._trace[0]

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """The (start, end) of each token in the original string."""
        return [(start, end) for start, end in self.offset_array.tolist()]

    @property
    def offset_array(self) -> Spans:
        """The offsets as an array, shape (tokens, 2): a twentieth of the memory of the
        list.
        """
        return self._trace[1]

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        shown = ", ".join(map(str, self.ids[:8])) + (", …" if len(self.ids) > 8 else "")
        return f"Encoding({len(self.ids)} ids: {shown})"


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
        self._special = re.compile(f"({'|'.join(map(re.escape, model.special))})")
        self.special_ids = tuple(model.ids[name] for name in model.special)
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
        found = read_vocabulary(files.as_path(path, "a tokenizer"))
        kind = UnigramModel if found.suffix == ".model" else WordPieceModel
        name = str(found.path)
        return cls(kind(found.data, found.settings, name=name, added=found.added))

    @classmethod
    def from_model(
        cls, model: bytes, *, lowercase: bool = True, keep_accents: bool = False
    ) -> "Tokenizer":
        """Make a tokenizer from the bytes of a model, such as those that
        `train_tokenizer` returns.
        """
        return cls(
            UnigramModel(model, Normalizer(lowercase, keep_accents), name="the model")
        )

    def save(self, folder: str | Path, *, max_length: int = 512) -> None:
        """Write a tokenizer folder that `load` and transformers' `AutoTokenizer` read.

        It writes the vocabulary byte for byte, in place of any other, `tokenizer.json`
        and `tokenizer_config.json`. `max_length` is the model's number of positions, to
        which transformers truncates on request.
        """
        folder = Path(folder)
        is_unigram = isinstance(self._model, UnigramModel)
        name, other = (
            ("spiece.model", "vocab.txt")
            if is_unigram
            else ("vocab.txt", "spiece.model")
        )
        # the rules of reading first: a vocabulary without them would encode wrongly
        config = theirs.tokenizer_config(self._model, max_length)
        files.write_json(folder / _CONFIG, config)
        files.write_json(folder / _PIPELINE, theirs.tokenizer_json(self._model))
        files.write_bytes(folder / name, self._model.data)
        (folder / other).unlink(missing_ok=True)

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
        return self.encode_batch(
            [text], pairs, special_tokens=special_tokens, frame=frame
        )[0]

    def encode_batch(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        *,
        special_tokens: bool = False,
        frame: bool | None = None,
    ) -> list[Encoding]:
        """Encode many texts, or texts with their pairs, each as `encode` would."""
        columns = [texts] if pairs is None else [texts, pairs]
        if len(sizes := {len(column) for column in columns}) > 1:
            what = "texts and pairs do not match"
            received = " and ".join(f"{size:,}" for size in sizes)
            raise LitebertError(
                "LB-215",
                what,
                received=received,
                next="give two lists of the same length",
            )
        is_framed = (special_tokens or pairs is not None) if frame is None else frame
        encoded = [
            self.encode_ids(each, special_tokens=special_tokens) for each in columns
        ]
        encodings = []
        for row, (first, *rest) in zip(
            zip(*columns, strict=True), zip(*encoded, strict=True), strict=True
        ):
            if is_framed:
                first = [self.cls_id, *first, self.sep_id]
                rest = [[*ids, self.sep_id] for ids in rest]
            trace = partial(
                self._trace, row, special_tokens=special_tokens, is_framed=is_framed
            )
            encodings.append(
                Encoding(first + rest[0] if rest else first, len(first), trace)
            )
        return encodings

    def encode_ids(
        self,
        texts: Sequence[str],
        *,
        special_tokens: bool = False,
        num_threads: int = models.ALL_CORES,
    ) -> list[list[int]]:
        """Return only the ids of many texts, without [CLS] and [SEP], on all cores:
        this is the fastest way.
        """
        if isinstance(texts, str):
            raise models.single_text(texts)
        texts = list(texts)
        # odd parts of a text are names of special pieces, even ones plain text
        if special_tokens:
            rows = [self._special.split(replace_surrogates(text)) for text in texts]
            ids = self._model.ids
            plain = iter(
                self.encode_ids(
                    [part for row in rows for part in row[::2]], num_threads=num_threads
                )
            )
            parts = (
                [[ids[part]] if n % 2 else next(plain) for n, part in enumerate(row)]
                for row in rows
            )
            return [list(chain.from_iterable(row)) for row in parts]
        if not any(isinstance(text, str) and len(text) > LONG for text in texts):
            return self._model.encode_ids(texts, num_threads=num_threads)
        # one object per id, or a long text takes 28 more bytes per token
        known: dict[int, int] = {}
        encode = self._model.encode_ids
        cut = ([part for _, part in self._parts(text)] for text in texts)
        return [
            [known.setdefault(id_, id_) for part in row for id_ in encode([part])[0]]
            for row in cut
        ]

    def encode_arrays(self, text: str) -> tuple[NDArray[np.int32], Spans]:
        """Return the ids of a text of any length and their offsets, in 12 bytes per
        token.
        """
        # id, start, end, …: lists of numbers would take five times as much
        found = array("i")
        for begin, part in self._parts(text):
            encoding = self.encode(part)
            rows = np.column_stack([encoding.ids, encoding.offset_array + begin])
            found.frombytes(rows.astype(np.int32).tobytes())
        columns = np.frombuffer(found, np.int32).reshape(-1, 3)
        return columns[:, 0], columns[:, 1:]

    def beginning(self, text: str, num_ids: int) -> str:
        """Return the beginning of a long text, with at least `num_ids` ids; short texts
        are unchanged.
        """
        if len(text) <= LONG:
            return text
        count = 0
        for begin, part in self._parts(text):
            # no space to cut at: the last ids may differ from the text's
            if (
                len(part) > LONG
                and count + len(self.encode_ids([part[:LONG]])[0]) >= 2 * num_ids
            ):
                return text[: begin + LONG]
            count += len(self.encode_ids([part])[0])
            if count >= num_ids:
                return text[: begin + len(part)]
        return text

    def _parts(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield a long text in parts, with their positions; encoding the parts gives
        the same ids in less memory.
        """
        begin = 0
        if len(text) > LONG and self._model.pieces_end_at_spaces:
            while found := _BETWEEN_WORDS.search(text, begin + _PART):
                yield begin, text[begin : found.start()]
                begin = found.end()
        yield begin, text[begin:]

    def _trace(
        self, texts: tuple[str, ...], *, special_tokens: bool, is_framed: bool
    ) -> Trace:
        special = self._model.special
        no_span = np.zeros((1, 2), np.int32)
        traces: list[Trace] = [([special.cls], no_span)] if is_framed else []
        for text in texts:
            end = 0
            for at, part in enumerate(
                self._special.split(replace_surrogates(text))
                if special_tokens
                else [text]
            ):
                begin = end
                end = end + len(part)
                if at % 2:
                    traces.append(([part], np.array([(begin, end)], np.int32)))
                    continue
                for place, plain in self._parts(part):
                    pieces, offsets = self._model.trace(plain)
                    traces.append((pieces, offsets + np.int32(begin + place)))
            if is_framed:
                traces.append(([special.sep], no_span))
        every, spans = zip(*traces, strict=True)
        return list(chain.from_iterable(every)), np.concatenate(spans)

    # ---- ids and pieces --------------------------------------------------------------

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids, without special pieces; the unknown piece is shown as
        ⁇.
        """
        return self._model.join([self.piece(id_) for id_ in ids])

    def piece(self, id: int) -> str:
        """Return the piece of an id."""
        if not 0 <= id < self.vocab_size:
            what = "this id is outside the vocabulary"
            expected = f"0 to {self.vocab_size - 1:,}"
            again = "decode with the tokenizer that made the ids"
            raise LitebertError(
                "LB-217", what, received=id, expected=expected, next=again
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
            texts = [
                piece[2:] if piece.startswith("##") else f" {piece}"
                for piece in self.pieces
            ]
        else:
            texts = [piece.replace(models.SPACE, " ") for piece in self.pieces]
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
        first = dict[str, int]()
        texts = zip(self.texts, self.pieces, strict=True)
        return np.array(
            [
                first.setdefault(text.strip() or piece, id_)
                for id_, (text, piece) in enumerate(texts)
            ]
        )

    @cached_property
    def textless_ids(self) -> list[int]:
        """The ids of pieces without text of their own, such as a lone `▁`."""
        return [index for index in range(self.vocab_size) if not self.decode([index])]

    def reads_in_fragments(self, text: str) -> bool:
        """Return whether a text, without [MASK], splits mostly into unknown pieces and
        single letters inside words.

        If so, the vocabulary was not made for its script or language.
        """
        mark = "##" if isinstance(self._model, WordPieceModel) else ""
        ids = [
            id_
            for id_ in self.encode_ids([self._special.sub(" ", text)])[0]
            if self.pieces[id_] != models.SPACE
        ]
        letters = [
            piece.removeprefix(mark)
            for piece in (self.pieces[id_] for id_ in ids)
            if piece.startswith(mark)
        ]
        # Kana, Chinese characters and Hangul are syllables or words of their own.
        found = [
            len(each) == 1 and each.isalpha() and not "\u3040" <= each <= "\ud7a3"
            for each in letters
        ]
        num_fragments = sum(found) + ids.count(self.unk_id)
        return num_fragments > len(ids) / 2 and (
            num_fragments >= _FEW_LETTERS or self.unk_id in ids
        )


class UnknownPieces:
    """Count the pieces of texts, the unknown ones among them, and the characters that
    cause those.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.num_pieces = 0
        self.num_unknown = 0
        self._characters = Counter[str]()  # of the texts with unknown pieces

    def add(self, text: str, ids: Sequence[int]) -> bool:
        """Count the pieces of a text; return whether one of them is unknown."""
        unknown = list(ids).count(self.tokenizer.unk_id)
        self.num_pieces += len(ids)
        self.num_unknown += unknown
        if unknown:
            self._characters.update(text)
        return unknown > 0

    def __str__(self) -> str:
        """Return their share, and the ten most common characters that the vocabulary
        lacks, with their counts.
        """
        common = self._characters.most_common()
        unk_id = self.tokenizer.unk_id
        encode = self.tokenizer.encode_ids
        lacking = islice(
            (each for each in common if unk_id in encode([each[0]])[0]), 10
        )
        characters = ", ".join(
            f"{character!r} {count:,}" for character, count in lacking
        )
        return (
            f"{self.num_unknown / max(1, self.num_pieces):.2%} of pieces: {characters}"
        )


def find_other_vocabulary(folder: Path, pieces: Sequence[str]) -> str | None:
    """Say which vocabulary in a folder has other pieces than those that are used; None
    if there is none.

    Published folders often have the same pieces in several files. Special pieces, and
    what was added at the end, may have other names there.
    """
    places = [folder / name for name in _VOCABULARIES]
    there = [place for place in places if place.is_file()]
    for path in there[1:]:  # the first one is used
        try:
            others = _listed_pieces(path)
        except (LitebertError, UnicodeDecodeError, TypeError, ValueError, LookupError):
            return f"{path.name} cannot be read"
        for id_, (piece, other) in enumerate(zip(pieces, others, strict=False)):
            is_special = other[:1] in ("[", "<") or piece[:1] in ("[", "<")
            if piece != other and not is_special:
                return f"in {path.name}, piece {id_:,} is {other!r}, not {piece!r}"
    return None


def _listed_pieces(path: Path) -> list[str]:
    """Return the pieces of a vocab.txt or a tokenizer.json by id."""
    look = f"ls -l {quote(str(path.parent))}"
    if path.name != _PIPELINE:
        data = files.read_capped(path, models.MAX_MODEL_BYTES, command=look)
        return data.decode("utf-8").splitlines()
    table: Any = files.read_json(path, command=look, limit=models.MAX_MODEL_BYTES)
    vocabulary = table["model"]["vocab"]
    if isinstance(vocabulary, dict):  # WordPiece: the id of each piece
        return sorted(vocabulary, key=lambda piece: int(vocabulary[piece]))
    return [str(piece) for piece, _ in vocabulary]  # Unigram: with its score


def read_vocabulary(path: Path) -> theirs.VocabularyFile:
    """Read the vocabulary at a path (a file, a folder or a run) with the settings next
    to it.
    """
    look = f"ls -l {quote(str(path if path.is_dir() else path.parent))}"
    there = [path] if path.suffix in (".model", ".txt") else []
    if path.is_dir():
        places = (
            folder / name for folder in (path, path / "model") for name in _VOCABULARIES
        )
        there = [place for place in places if place.is_file()]
    if not there:
        received = (
            "a folder without a vocabulary"
            if path.is_dir()
            else "a path that is not one"
        )
        expected = (
            f"a folder with one of {', '.join(_VOCABULARIES)}; a *.model or a *.txt"
            " file"
        )
        raise NoVocabularyError(
            "LB-213",
            f"no tokenizer at {path}",
            received=received,
            expected=expected,
            next=look,
        )
    file = there[0]
    if file.name == _PIPELINE:
        found = theirs.read_tokenizer_json(file)
    else:
        data = files.read_capped(file, models.MAX_MODEL_BYTES, command=look)
        added = theirs.read_added(file.parent) if path.is_dir() else ()
        found = theirs.VocabularyFile(file, file.suffix, data, Normalizer(), added)
    config = file.with_name(_CONFIG)
    if not config.exists():
        return found
    said = files.read_json(config, command=look)
    settings = {
        "do_lower_case": found.settings.lowercase,
        "keep_accents": found.settings.keep_accents,
    }
    for key, default in settings.items():
        value = default if said.get(key) is None else said[key]
        if not isinstance(value, bool):
            what = f"{key} in {config} cannot be used"
            again = f"correct {key} in {config}, or delete it for {default}"
            raise LitebertError(
                "LB-214", what, received=value, expected="true or false", next=again
            )
        settings[key] = value
    given = Normalizer(*settings.values())
    bert = (said.get("strip_accents"), said.get("tokenize_chinese_chars"))
    return found._replace(
        settings=(
            theirs.as_bert(given, config, *bert) if found.suffix == ".txt" else given
        )
    )
