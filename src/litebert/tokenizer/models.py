"""Text to pieces: the official preprocessing, then ALBERT's unigram model, or WordPiece
for the Chinese ALBERTs.

Preprocessing is that of the official tokenization.py L33-50: join words with single
spaces, NFKD, drop combining characters, lower-case last. Every step keeps track of
where each character came from.
"""

import hashlib
import io
import math
import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import sentencepiece
from google.protobuf.message import DecodeError
from numpy.typing import NDArray
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]

from litebert.errors import DamagedError, LitebertError, format_count, missing_package
from litebert.tokenizer.added import AddedToken, Splitter

Spans: TypeAlias = NDArray[np.int32]  # half-open ranges in a text, rows (start, end)
# the pieces of a text, and the span of each in the original, (pieces, 2)
Trace: TypeAlias = tuple[list[str], Spans]

SPACE = "▁"
ALL_CORES = -1  # as a number of threads
# from this many texts on, one call for all is faster, even on one thread (13 % on
# articles)
_BATCH_WORTH_THREADS = 16

_WORD = re.compile(r"\S+")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_SURROGATE = re.compile("[\ud800-\udfff]")
_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~')
_PLAIN = _PUNCTUATION | frozenset("abcdefghijklmnopqrstuvwxyz")


# ---- text before it reaches a vocabulary ---------------------------------------------


class _FoldTable(dict[int, str]):
    # A code point's NFKD form without combining characters, computed on first use. One
    # character at a time is exact: NFKD of a whole text only reorders combining
    # characters, and all of these are dropped.
    def __missing__(self, code_point: int) -> str:
        decomposed = unicodedata.normalize("NFKD", chr(code_point))
        folded = self[code_point] = "".join(
            c for c in decomposed if not unicodedata.combining(c)
        )
        return folded


_FOLDED = _FoldTable()


@dataclass(frozen=True)
class Normalizer:
    """Official preprocessing; both settings change ids, so they belong to the
    vocabulary.
    """

    lowercase: bool = True
    keep_accents: bool = False

    def normalize(self, text: str) -> str:
        """Return the text as the vocabulary expects it.

        >>> Normalizer().normalize("  Café\\tﬁne  ")
        'cafe fine'
        >>> Normalizer(lowercase=False).normalize("Café")
        'Cafe'
        """
        text = replace_surrogates(text)
        # All white space but " " is unprintable, so this quick check suffices for most
        # texts.
        if not text.isprintable() or "  " in text or text.strip(" ") != text:
            text = " ".join(text.split())
        if not (self.keep_accents or text.isascii()):
            text = _NOT_ASCII.sub(lambda run: run[0].translate(_FOLDED), text)
        return text.lower() if self.lowercase else text

    def align(self, text: str) -> tuple[str, Spans]:
        """Return the normalized text, and the span of each character in the original,
        including dropped marks.
        """
        starts = array("i")
        ends = array("i")
        previous_end = 0
        for found in _WORD.finditer(replace_surrogates(text)):
            word = found[0]
            begin = found.start()
            if previous_end:  # all white space between two words becomes a single space
                starts.append(previous_end)
                ends.append(begin)
            previous_end = found.end()
            if word.isascii():
                starts.extend(range(begin, previous_end))
                ends.extend(range(begin + 1, previous_end + 1))
                continue
            # output characters of the last base character: dropped marks extend their
            # spans
            base_width = 0
            for index, character in enumerate(word, begin):
                folded = (
                    character
                    if self.keep_accents or character.isascii()
                    else _FOLDED[ord(character)]
                )
                if width := len(folded.lower() if self.lowercase else folded):
                    starts.extend([index] * width)
                    ends.extend([index + 1] * width)
                    base_width = width
                elif base_width:
                    ends[-base_width:] = array("i", [index + 1] * base_width)
        return self.normalize(text), np.column_stack(
            [np.array(starts, np.int32), np.array(ends, np.int32)]
        )


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates with U+FFFD, which every encoder accepts; all text enters
    the tokenizer through here.
    """
    if not isinstance(text, str):
        received = f"{type(text).__name__} {text!r}"
        advice = "give one string, or a list of strings for a batch"
        raise LitebertError(
            "LB-210", "text must be a string", received=received, next=advice
        )
    if text.isascii():
        return text
    try:
        text.encode("utf-8")  # twenty times as fast as a search
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text)
    return text


def single_text(text: str) -> LitebertError:
    """Return the error for one string in place of a list, which would be read letter by
    letter.
    """
    what = "a list of texts is needed, not a single text"
    advice = 'put it in a list: ["one text"]'
    return LitebertError("LB-216", what, received=f"the string {text!r}", next=advice)


# ---- sentencepiece's model files -----------------------------------------------------
#
# A harmful file is refused before native code uses it: its size is limited, then
# sentencepiece's own protobuf module parses it, then pieces and the character map are
# checked, so that no text can make native code read beyond it. Only models for an
# ALBERT tokenizer are accepted: unigram models that put one space before the text and
# between words.

# the largest in use has 262,144 pieces in 5 MB
MAX_MODEL_BYTES = 16 << 20
MAX_PIECES = 300_000
MAX_PIECE_BYTES = 1024
# subtracted for pieces such as `▁2010,`, so that splitting off the comma wins
NUMBER_COMMA_PENALTY = 100.0
NORMAL = 1
UNKNOWN = 2
CONTROL = 3
USER_DEFINED = 4
_UNIGRAM = 1


class Piece(NamedTuple):
    """One entry of the vocabulary; its index is its id."""

    text: str
    score: float  # a log-probability
    kind: int


class ModelFile(NamedTuple):
    """A checked model file."""

    pieces: tuple[Piece, ...]
    charsmap: bytes  # the character map of its normalizer
    checked: bytes  # the part of it that native code may load


def damaged_vocabulary(name: str, fault: object) -> DamagedError:
    """Return the error for a file, of any format, that is not a usable vocabulary."""
    again = (
        "get the file again from its source, or train one: litebert tokenizer train"
        " --help"
    )
    return DamagedError(
        "LB-201", f"{name} is damaged or not a vocabulary", received=fault, next=again
    )


def ends_in_number_comma(piece: str) -> bool:
    """Return whether the official code would split the comma off this piece
    (tokenization.py L66).

    >>> ends_in_number_comma("▁2010,"), ends_in_number_comma("a,"), ends_in_number_comma("1,0")
    (True, False, False)
    """
    return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()


def write_model(pieces: Sequence[Piece], charsmap: bytes) -> bytes:
    """Return a unigram model of these pieces, one of which is unknown; ValueError if a
    piece is not UTF-8.
    """
    model = ModelProto()
    for piece in pieces:
        model.pieces.add(piece=piece.text, score=piece.score, type=piece.kind)
    unknown = next(index for index, piece in enumerate(pieces) if piece.kind == UNKNOWN)
    # What readers of the file need: transformers takes the id of the unknown piece from
    # here.
    model.trainer_spec.model_type = _UNIGRAM
    model.trainer_spec.vocab_size = len(pieces)
    model.trainer_spec.unk_id = unknown
    model.trainer_spec.unk_piece = pieces[unknown].text
    model.normalizer_spec.SetInParent()
    if charsmap:
        model.normalizer_spec.precompiled_charsmap = charsmap
    return bytes(model.SerializeToString())


def read_model(data: bytes, name: str) -> ModelFile:
    """Parse and check the bytes of a sentencepiece model; errors call it `name`."""
    try:
        # Limit what parsing will allocate, which protobuf does not: every piece begins
        # with a byte 10, and so does its text. Other bytes are rarely 10: the 30,000
        # pieces of the official model have 66,306 in all.
        if len(data) > MAX_MODEL_BYTES or data.count(b"\n") > 3 * MAX_PIECES:
            raise ValueError(
                f"{len(data):,} bytes, or pieces, beyond {MAX_MODEL_BYTES:,} and"
                f" {MAX_PIECES:,}"
            )
        model = ModelProto.FromString(data)
        if len(model.pieces) > MAX_PIECES:
            raise ValueError(f"more than {MAX_PIECES:,} pieces")
        # including texts that sentencepiece encodes whenever it loads a model
        model.DiscardUnknownFields()
        pieces = tuple(Piece(row.piece, row.score, row.type) for row in model.pieces)
        for index, (text, score, kind) in enumerate(pieces):
            if isinstance(text, bytes):  # what protobuf returns if it is not UTF-8
                raise ValueError(f"piece {index:,} is not UTF-8")
            if not 0 < len(text.encode()) <= MAX_PIECE_BYTES or "\0" in text:
                raise ValueError(
                    f"piece {index:,} has an impossible text of {len(text.encode()):,}"
                    " bytes"
                )
            if not math.isfinite(score):
                raise ValueError(f"piece {index:,} has the score {score}")
            if kind not in (NORMAL, UNKNOWN, CONTROL, USER_DEFINED):
                raise ValueError(
                    f"piece {index:,} is of the type {kind}, which no unigram model has"
                )
        num_unknown = sum(piece.kind == UNKNOWN for piece in pieces)
        num_distinct = len({p.text for p in pieces})
        if num_unknown != 1 or num_distinct != len(pieces):
            raise ValueError(
                f"{len(pieces):,} pieces, {num_distinct:,} distinct, {num_unknown} for"
                " the unknown"
            )
        for spec in (model.normalizer_spec, model.denormalizer_spec):
            if spec.precompiled_charsmap:
                check_charsmap(spec.precompiled_charsmap)
    except (DecodeError, ValueError) as error:
        raise damaged_vocabulary(name, error) from error

    # Features that change the meaning of pieces: other algorithms, bytes, spaces.
    trainer = model.trainer_spec
    normalizer = model.normalizer_spec
    features = {
        "not a unigram model": trainer.model_type != _UNIGRAM,
        "a space after words": trainer.treat_whitespace_as_suffix,
        "byte pieces": trainer.byte_fallback,
        "no space before the text": not normalizer.add_dummy_prefix,
        "repeated spaces kept": not normalizer.remove_extra_whitespaces,
        "spaces not shown as ▁": not normalizer.escape_whitespaces,
    }
    if found := ", ".join(
        feature for feature, is_there in features.items() if is_there
    ):
        what = f"{name} is a sentencepiece model of a kind that ALBERT does not use"
        raise LitebertError(
            "LB-208", what, received=found, next="litebert tokenizer train --help"
        )
    return ModelFile(pieces, normalizer.precompiled_charsmap, model.SerializeToString())


def check_charsmap(data: bytes) -> None:
    """Raise ValueError unless every path through a character map stays within it.

    The format (sentencepiece `normalizer.cc`): the size of a double-array trie in 4
    bytes, the trie in 4-byte units, then the replacements, each ended by a null byte.
    From unit `i`, byte `b` leads to unit `i ^ offset ^ b`; if a unit has a leaf, it is
    at `i ^ offset` and contains the start of its replacement.
    """
    trie_size = int.from_bytes(data[:4], "little")
    if trie_size == 0 or trie_size % 4 or trie_size >= len(data) - 4 or data[-1] != 0:
        raise ValueError(
            f"the character map of {len(data):,} bytes is cut: its trie should have"
            f" {trie_size:,}"
        )
    data[4 + trie_size :].decode("utf-8")
    units = np.frombuffer(data, "<u4", trie_size // 4, 4).astype(np.int64)
    replacements = np.frombuffer(data, np.uint8, offset=4 + trie_size)
    # A unit: bit 31 marks a leaf, bits 10-30 are the offset (times 256 if bit 9 is
    # set), bit 8 says that it has a leaf.
    is_leaf = units >> 31 == 1
    offsets = (units >> 10) << ((units & 1 << 9) >> 6)
    targets = np.arange(len(units)) ^ offsets
    if ((targets | 0xFF) >= len(units))[~is_leaf].any():
        raise ValueError("a transition leads out of the trie of the character map")
    leaves = targets[~is_leaf & (units >> 8 & 1 == 1)]
    starts = units[leaves] & (1 << 31) - 1
    if not is_leaf[leaves].all() or (starts >= len(replacements)).any():
        raise ValueError("a leaf of the character map leads to no replacement")
    if ((replacements[starts] & 0xC0) == 0x80).any():
        raise ValueError("a replacement of the character map starts inside a character")


# ---- what both kinds of vocabulary share ---------------------------------------------


class SpecialPieces(NamedTuple):
    """The names of the five special pieces, which text never produces (except the
    unknown one).
    """

    pad: str
    unk: str
    cls: str
    sep: str
    mask: str


UNIGRAM_SPECIAL = SpecialPieces("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
WORDPIECE_SPECIAL = SpecialPieces("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def vocabulary_hash(
    settings: str, data: bytes, added: Sequence[AddedToken] = ()
) -> str:
    if added:
        settings += f" {[tuple(token) for token in added]}"
    return hashlib.blake2b(f"{settings}\n".encode() + data, digest_size=32).hexdigest()


class _Vocabulary:
    """All pieces by id, those of the file and then tokens that were added to them;
    `hash` is that of the file and of the settings that change ids.

    Either kind can `encode_ids` (on `num_threads`), `trace` where pieces came from, and
    `join` them, ⁇ for unknown.
    """

    def __init__(
        self,
        data: bytes,
        normalizer: Normalizer,
        special: SpecialPieces,
        pieces: list[str],
        name: str,
        added: Sequence[AddedToken],
    ) -> None:
        self.data = data
        self.normalizer = normalizer
        self.special = special
        # The names of the five special pieces are plain text.
        self.added = tuple(token for token in added if token.content not in special)
        new = sorted(
            (token for token in self.added if token.id >= len(pieces)),
            key=lambda token: token.id,
        )
        self.num_in_file = len(pieces)
        self.pieces = (*pieces, *(token.content for token in new))
        _check_ids(name, added, self.pieces)
        self.ids = {text: index for index, text in enumerate(self.pieces)}
        if missing := [piece for piece in special if piece not in self.ids]:
            what = f"{name} is not an ALBERT vocabulary: special pieces are missing"
            received = f"{len(self.ids):,} pieces without {', '.join(missing)}"
            raise LitebertError(
                "LB-211",
                what,
                received=received,
                next="litebert tokenizer train --help",
            )


def _check_ids(name: str, added: Sequence[AddedToken], pieces: Sequence[str]) -> None:
    """Raise unless every added token has the id of its piece."""
    wrong = [
        f"{token.content} {token.id}"
        for token in added
        if not 0 <= token.id < len(pieces) or pieces[token.id] != token.content
    ]
    if wrong:
        shown = ", ".join(wrong[:5])
        raise damaged_vocabulary(
            name, f"added tokens contradict the vocabulary: {shown}"
        )


# ---- the unigram model of the English ALBERTs ----------------------------------------


def starts_word(piece: str) -> bool:
    """Return whether a piece begins a word (official create_pretraining_data.py
    L393-407).

    It does if it begins with `▁` or `<`, is a single punctuation character, or has any
    character other than a-z and punctuation: digits, apostrophes and foreign letters
    always begin a word.

    >>> [starts_word(piece) for piece in ["▁the", "ing", ",", "...", "2", "[MASK]"]]
    [True, False, True, False, True, True]
    """
    return piece[0] in "▁<" or piece in _PUNCTUATION or not _PLAIN.issuperset(piece)


class UnigramModel(_Vocabulary):
    """A checked sentencepiece model with ALBERT's own rule: commas are split off
    digits.
    """

    def __init__(
        self,
        data: bytes,
        normalizer: Normalizer,
        *,
        name: str,
        added: Sequence[AddedToken] = (),
    ) -> None:
        pieces, _, checked = read_model(data, name)
        unknown = next(piece.text for piece in pieces if piece.kind == UNKNOWN)
        special = UNIGRAM_SPECIAL._replace(unk=unknown)
        texts = [piece.text for piece in pieces]
        # sentencepiece itself splits off its user-defined pieces, within words; what
        # version 5 of transformers lists of these would begin a word
        whole = {piece.text for piece in pieces if piece.kind == USER_DEFINED}
        apart = [token for token in added if token.content not in whole]
        super().__init__(data, normalizer, special, texts, name, apart)
        self.hash = vocabulary_hash(f"unigram {normalizer}", data, self.added)
        # (vocab,); an added token is a word
        num_new = len(self.pieces) - self.num_in_file
        self.starts_word: NDArray[np.bool_] = np.array(
            [starts_word(piece) for piece in texts] + [True] * num_new
        )
        self._splitter = (
            Splitter(self.added, normalizer.normalize, normalizer.align)
            if self.added
            else None
        )
        self.pieces_end_at_spaces = not any(
            SPACE in piece.lstrip(SPACE) for piece in self.pieces
        )
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(checked)
        except (RuntimeError, ValueError, IndexError) as error:
            raise damaged_vocabulary(
                name, f"sentencepiece refuses it: {error}"
            ) from error
        # The ids of pieces that a text can produce; all others become the unknown
        # piece.
        self._spelled = {
            p.text: index
            for index, p in enumerate(pieces)
            if p.kind not in (UNKNOWN, CONTROL)
        }
        self._number_commas = {
            index: [self._id(part) for part in self._split_comma(piece)]
            for piece, index in self._spelled.items()
            if ends_in_number_comma(piece)
        }

    def encode_ids(
        self, texts: list[str], *, num_threads: int = ALL_CORES
    ) -> list[list[int]]:
        if self._splitter is None:
            return self._encode_plain(texts, num_threads=num_threads)
        # of each text, its plain parts and the ids of the tokens between them
        rows = [self._splitter.split(replace_surrogates(text)) for text in texts]
        plain = [
            text[start:end]
            for text, parts in zip(texts, rows, strict=True)
            for start, end, id_ in parts
            if id_ is None
        ]
        encoded = iter(self._encode_plain(plain, num_threads=num_threads))
        found = []
        for parts in rows:
            ids = list[int]()
            for _, _, id_ in parts:
                ids += next(encoded) if id_ is None else [id_]
            found.append(ids)
        return found

    def _encode_plain(self, texts: list[str], *, num_threads: int) -> list[list[int]]:
        normalized = [self.normalizer.normalize(text) for text in texts]
        # a run of unknown characters may contain a comma, which its id does not show
        if "," not in self._spelled:
            split = [self._processor.encode(text, out_type=str) for text in normalized]
            return [
                [self._id(part) for whole in row for part in self._split_comma(whole)]
                for row in split
            ]
        if len(texts) < _BATCH_WORTH_THREADS:
            encoded = [
                self._processor.encode(text, out_type=int) for text in normalized
            ]
        else:
            encoded = self._processor.encode(
                normalized, out_type=int, num_threads=num_threads
            )
        commas = self._number_commas
        return [
            (
                ids
                if commas.keys().isdisjoint(ids)
                else [part for index in ids for part in commas.get(index) or [index]]
            )
            for ids in encoded
        ]

    def trace(self, text: str) -> Trace:
        if self._splitter is None:
            return self._trace_plain(text)
        pieces = list[str]()
        spans = [np.zeros((0, 2), np.int32)]
        for start, end, id_ in self._splitter.split(replace_surrogates(text)):
            if id_ is not None:
                pieces.append(self.pieces[id_])
                spans.append(np.array([(start, end)], np.int32))
                continue
            names, places = self._trace_plain(text[start:end])
            pieces += names
            spans.append(places + np.int32(start))
        return pieces, np.concatenate(spans)

    def _trace_plain(self, text: str) -> Trace:
        normalized, spans = self.normalizer.align(text)
        pieces: list[str] = []
        # of each piece, in sentencepiece's own form of the normalized text
        begins = array("i")
        stops = array("i")
        end = 0
        for whole in self._processor.encode(normalized, out_type=str):
            begin = end
            end = end + len(whole)
            for part in self._split_comma(whole):
                stop = min(begin + len(part), end)
                known = self.ids.get(part)  # equal pieces of a long text are one object
                pieces.append(part if known is None else self.pieces[known])
                begins.append(begin + part.startswith(SPACE))
                stops.append(stop)
                begin = stop

        # Back to the normalized text, and from there to the original; empty spans stay
        # empty.
        _, places = self._processor.normalize(normalized, with_offsets=True)
        # (characters + 1,)
        origins = np.array([*places[:-1], len(normalized)], np.int32)
        # (pieces,)
        first = origins[np.array(begins)]
        last = origins[np.array(stops)]
        # (characters + 1,), starts
        after = np.append(spans[:, 0], spans[-1:, 1] if len(spans) else np.int32(0))
        starts = after[np.minimum(first, len(after) - 1)]  # (pieces,)
        ends = np.where(first < last, np.append(np.int32(0), spans[:, 1])[last], starts)
        return pieces, np.stack([starts, ends], axis=1)

    def join(self, pieces: list[str]) -> str:
        hidden = dict.fromkeys(self.special, "") | {self.special.unk: " ⁇ "}
        for token in self.added:
            hidden[token.content] = "" if token.special else f" {token.content}"
        return (
            "".join(hidden.get(piece, piece) for piece in pieces)
            .replace(SPACE, " ")
            .strip()
        )

    def _split_comma(self, piece: str) -> list[str]:
        """Encode a piece such as `▁2010,` without its comma, which becomes a separate
        piece.

        Official tokenization.py L66-79, as intended (Python 3 broke it); the `▁` that
        encoding adds is removed.
        """
        if not ends_in_number_comma(piece):
            return [piece]
        first, *rest = self._processor.encode(
            piece[:-1].replace(SPACE, " "), out_type=str
        ) or [""]
        if not piece.startswith(SPACE):
            first = first.removeprefix(SPACE)
        return [part for part in (first, *rest, ",") if part]

    def _id(self, piece: str) -> int:
        return self._spelled.get(piece, self.ids[self.special.unk])


# ---- the WordPiece model of the Chinese ALBERTs --------------------------------------


class WordPieceModel(_Vocabulary):
    """A WordPiece vocabulary, run by `tokenizers`; as with BERT, lower-casing also
    strips accents unless they are kept.

    The official code falls back to BERT's basic and WordPiece tokenizers
    (tokenization.py L230-400): whitespace and punctuation split words, each CJK
    character is a word, the longest match wins; words have at most 200 characters.
    """

    pieces_end_at_spaces = True

    def __init__(
        self,
        data: bytes,
        normalizer: Normalizer,
        *,
        name: str,
        added: Sequence[AddedToken] = (),
    ) -> None:
        try:
            import tokenizers
        except ImportError as error:
            raise missing_package(
                "tokenizers", extra="wordpiece", needed_for="a WordPiece vocabulary"
            ) from error
        # the vocabulary is the first column of each line (official tokenization.py
        # L150-168)
        try:
            lines = data.decode("utf-8-sig").removesuffix("\n").split("\n")
        except UnicodeDecodeError as error:
            raise damaged_vocabulary(name, error) from error
        pieces = [(line.split() or [line])[0] for line in lines]
        lowercase = normalizer.lowercase
        if len(pieces) > MAX_PIECES or any(
            len(piece.encode()) > MAX_PIECE_BYTES for piece in pieces
        ):
            longest = max(map(len, pieces))
            raise damaged_vocabulary(
                name, f"{len(pieces):,} pieces, the longest of {longest:,} characters"
            )
        if len(set(pieces)) < len(pieces):
            ((twice, _),) = Counter(pieces).most_common(1)
            raise damaged_vocabulary(name, f"the piece {twice!r} is there twice")
        super().__init__(data, normalizer, WORDPIECE_SPECIAL, pieces, name, added)
        self.strips_accents = strips = lowercase and not normalizer.keep_accents
        self.hash = vocabulary_hash(
            f"wordpiece {lowercase=}" + " strips=False" * (strips != lowercase),
            data,
            self.added,
        )
        self.starts_word: NDArray[np.bool_] = np.array(
            [not piece.startswith("##") for piece in self.pieces]
        )
        # Special pieces in a text are plain text here; on request, `Tokenizer` splits
        # them off.
        in_file = {piece: self.ids[piece] for piece in pieces}
        wordpiece = tokenizers.models.WordPiece(
            in_file, unk_token=self.special.unk, max_input_chars_per_word=200
        )
        self._native = tokenizers.Tokenizer(wordpiece)
        self._native.normalizer = tokenizers.normalizers.BertNormalizer(
            lowercase=lowercase, strip_accents=strips
        )
        self._native.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
        for token in sorted(self.added, key=lambda token: token.id):
            native = tokenizers.AddedToken(
                token.content,
                single_word=token.single_word,
                lstrip=token.lstrip,
                rstrip=token.rstrip,
                normalized=token.normalized,
            )
            self._native.add_tokens([native])

    def encode_ids(
        self, texts: list[str], *, num_threads: int = ALL_CORES
    ) -> list[list[int]]:
        texts = [replace_surrogates(text) for text in texts]
        # the library uses all cores for a batch
        if num_threads == 1 or len(texts) == 1:
            return [
                self._native.encode(text, add_special_tokens=False).ids
                for text in texts
            ]
        return [
            encoded.ids
            for encoded in self._native.encode_batch_fast(
                texts, add_special_tokens=False
            )
        ]

    def trace(self, text: str) -> Trace:
        encoded = self._native.encode(
            replace_surrogates(text), add_special_tokens=False
        )
        pieces = encoded.tokens
        if self.added:  # the library shows these as they are in the text
            pieces = [
                self.pieces[id_] if id_ >= self.num_in_file else piece
                for piece, id_ in zip(pieces, encoded.ids, strict=True)
            ]
        return pieces, np.array(encoded.offsets, np.int32).reshape(-1, 2)

    def join(self, pieces: list[str]) -> str:
        hidden = set(self.special) - {self.special.unk}
        hidden |= {token.content for token in self.added if token.special}
        shown = [
            "⁇" if piece == self.special.unk else piece
            for piece in pieces
            if piece not in hidden
        ]
        return " ".join(shown).replace(" ##", "")


# ---- training, by the official recipe (README L311-318), on text as encoding sees it

# the official ones, never part of another piece
USER_SYMBOLS = ("(", ")", '"', "-", ".", "–", "£", "€")
CHARACTER_COVERAGE = 0.99995
MOST_LINES = 10_000_000  # of more lines, a sample is used
# sums depend on it, so it is fixed: the same text gives the same bytes
_NUM_THREADS = 16
# sentencepiece skips lines above 4,192 bytes; these have at most 1,001 characters of 4
# bytes. No piece crosses a space, so cutting at spaces is harmless. Only what has none
# for longer, such as Chinese text, is cut elsewhere.
_LINE = re.compile(r"\S.{0,1000}(?!\S)|\S{1,1000}", re.S)


def train_tokenizer(
    texts: Iterable[str],
    *,
    vocab_size: int,
    is_limit: bool = False,
    lowercase: bool = True,
    keep_accents: bool = False,
    symbols: Sequence[str] = (),
) -> bytes:
    """Train a unigram vocabulary and return the bytes of its sentencepiece model.

    `texts` are read once, in order; line breaks in them are ignored. With `is_limit`, a
    text too small for `vocab_size` pieces gets fewer. `symbols` become pieces that are
    never split nor part of others. Ids 0 to 12 are those of the
    official vocabulary. The same texts give the same bytes.

    The official code splits the comma off pieces such as `▁2010,`, so their scores are
    lowered by 100: they are never chosen, and sentencepiece, this package and
    transformers agree.

    >>> from litebert.tokenizer import Tokenizer
    >>> texts = ["The cat sat on the mat.", "The mat was flat.", "That cat was fat."]
    >>> tokenizer = Tokenizer.from_model(train_tokenizer(texts, vocab_size=28))
    >>> tokenizer.decode(tokenizer.encode("THE fat cat").ids)
    'the fat cat'
    """
    if isinstance(texts, str):
        raise single_text(texts)
    normalizer = Normalizer(lowercase, keep_accents)
    # as the text that is trained on shows them
    whole = [normalizer.normalize(symbol) for symbol in symbols]
    num_lines = 0
    failure: BaseException | None = None

    def lines() -> Iterator[str]:
        nonlocal num_lines, failure
        try:
            for text in texts:
                for line in _LINE.findall(normalizer.normalize(text)):
                    num_lines += 1
                    yield line
        except (Exception, KeyboardInterrupt) as error:  # native code would swallow it
            failure = error
            raise

    written = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=lines(),
            model_writer=written,
            model_type="unigram",
            vocab_size=vocab_size,
            hard_vocab_limit=not is_limit,
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            control_symbols=["[CLS]", "[SEP]", "[MASK]"],
            user_defined_symbols=list(dict.fromkeys([*USER_SYMBOLS, *whole])),
            character_coverage=CHARACTER_COVERAGE,
            input_sentence_size=MOST_LINES,
            shuffle_input_sentence=True,
            num_threads=_NUM_THREADS,
            minloglevel=2,
        )
    except (RuntimeError, ValueError) as error:
        if failure is not None:
            raise failure from error
        if num_lines == 0:
            what = "there is no text to train a vocabulary on"
            again = "give a few thousand sentences"
            raise LitebertError("LB-220", what, next=again) from error
        given = format_count(num_lines, "line")
        what = f"no vocabulary of {vocab_size:,} pieces can be trained on these {given}"
        again = (
            "set vocab_size (--vocab-size) as that says, give more text, or see"
            " litebert tokenizer train --help"
        )
        # after the location in sentencepiece's code
        said = str(error).rpartition("] ")[2]
        if needed := re.search(r"required_chars\. \d+ vs (\d+)", said):
            said = f"its characters alone need {needed[1]}"
            again = "set vocab_size (--vocab-size) to at least that"
        raise LitebertError(
            "LB-221", what, received=said or error, next=again
        ) from error
    model = ModelProto.FromString(written.getvalue())
    for piece in model.pieces:
        if piece.type == NORMAL and ends_in_number_comma(piece.piece):
            piece.score -= NUMBER_COMMA_PENALTY
    return bytes(model.SerializeToString())
