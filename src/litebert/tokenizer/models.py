"""Vocabularies that turn a text into pieces: ALBERT's unigram model, and WordPiece for
the Chinese ALBERTs.
"""

import hashlib
from array import array
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import sentencepiece
from numpy.typing import NDArray

from litebert.errors import LitebertError, missing_package
from litebert.tokenizer.added import AddedToken, Splitter, Trace
from litebert.tokenizer.model_file import (
    CONTROL,
    MAX_PIECE_BYTES,
    MAX_PIECES,
    UNKNOWN,
    USER_DEFINED,
    damaged_vocabulary,
    ends_in_number_comma,
    read_model,
)
from litebert.tokenizer.text import Normalizer, replace_surrogates

SPACE = "▁"
UNKNOWN_SIGN = "⁇"  # in decoded texts, as sentencepiece shows it
ALL_CORES = -1  # as a number of threads
# from this many texts on, one call for all is faster, even on one thread (13 % on
# articles)
_BATCH_WORTH_THREADS = 16
_LONGEST_WORD = 200  # in characters; WordPiece reads longer ones as unknown

_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~')
_PLAIN = _PUNCTUATION | frozenset("abcdefghijklmnopqrstuvwxyz")


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


class _Vocabulary:
    """All pieces by id, those of the file and then tokens that were added to them;
    `hash` is that of the file and of the settings that change ids.

    Either kind can `encode_ids` (on `num_threads`), `trace` where pieces came from, and
    `decode` them.
    """

    def __init__(
        self,
        data: bytes,
        normalizer: Normalizer,
        special: SpecialPieces,
        pieces: Sequence[str],
        name: str,
        added: Sequence[AddedToken],
    ) -> None:
        """Add tokens to the pieces of a file of this name, whose bytes are `data`."""
        self.data = data
        self.normalizer = normalizer
        self.special = special
        # The names of the five special pieces are plain text.
        self.added = tuple(token for token in added if token.content not in special)
        self.num_in_file = len(pieces)
        new = list[AddedToken]()  # tokens that the file does not have
        for token in sorted(self.added, key=lambda token: token.id):
            if token.id >= len(pieces):
                new.append(token)
        self.pieces = (*pieces, *(token.content for token in new))
        _check_ids(name, added, self.pieces)
        self.ids = {text: index for index, text in enumerate(self.pieces)}
        _require_special(name, special, self.ids)
        # the pieces that a decoded text leaves out
        hidden = {token.content for token in self.added if token.special}
        self._hidden = (hidden | set(special)) - {special.unk}

    def decode(self, pieces: Sequence[str]) -> str:
        """Return the text of pieces, without the special ones; ⁇ for unknown."""
        return self._join([piece for piece in pieces if piece not in self._hidden])

    def _join(self, pieces: list[str]) -> str:
        raise NotImplementedError


def _check_ids(name: str, added: Sequence[AddedToken], pieces: Sequence[str]) -> None:
    """Raise unless every added token has the id of its piece."""
    wrong = list[str]()
    for token in added:
        is_inside = 0 <= token.id < len(pieces)
        if not is_inside or pieces[token.id] != token.content:
            wrong.append(f"{token.content} {token.id}")
    if wrong:
        shown = ", ".join(wrong[:5])
        raise damaged_vocabulary(
            name, f"added tokens contradict the vocabulary: {shown}"
        )


def _require_special(name: str, special: SpecialPieces, ids: dict[str, int]) -> None:
    """Raise LB-211 unless a vocabulary has the five special pieces."""
    missing = [piece for piece in special if piece not in ids]
    if missing:
        raise LitebertError(
            "LB-211",
            f"{name} is not an ALBERT vocabulary: special pieces are missing",
            received=f"{len(ids):,} pieces without {', '.join(missing)}",
            next="litebert tokenizer train --help",
        )


def vocabulary_hash(settings: str, data: bytes, added: Sequence[AddedToken]) -> str:
    """Return the hash of a file and of what else changes ids: the settings of its
    normalizer, and added tokens.
    """
    header = settings
    if added:
        header += f" {[tuple(token) for token in added]}"
    return hashlib.blake2b(f"{header}\n".encode() + data, digest_size=32).hexdigest()


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
        file = read_model(data, name)
        unknown = next(piece.text for piece in file.pieces if piece.kind == UNKNOWN)
        special = UNIGRAM_SPECIAL._replace(unk=unknown)
        texts = [piece.text for piece in file.pieces]
        # sentencepiece itself splits off its user-defined pieces, within words; what
        # version 5 of transformers lists of these would begin a word
        user_defined = {p.text for p in file.pieces if p.kind == USER_DEFINED}
        apart = [token for token in added if token.content not in user_defined]
        super().__init__(data, normalizer, special, texts, name, apart)
        self.hash = vocabulary_hash(f"unigram {normalizer}", data, self.added)

        # (vocab,); an added token is a word
        begins = [starts_word(text) for text in texts]
        begins += [True] * (len(self.pieces) - self.num_in_file)
        self.starts_word: NDArray[np.bool_] = np.array(begins)
        are_across_spaces = [SPACE in piece.lstrip(SPACE) for piece in self.pieces]
        self.pieces_end_at_spaces = not any(are_across_spaces)

        self._splitter = Splitter(self.added, normalizer) if self.added else None
        self._processor = _load_processor(file.checked, name)
        # the ids of pieces that a text can produce; all others become the unknown piece
        self._spelled = dict[str, int]()
        for index, piece in enumerate(file.pieces):
            if piece.kind not in (UNKNOWN, CONTROL):
                self._spelled[piece.text] = index
        # the ids of pieces such as `▁2010,`, each with the ids that stand for it
        self._number_commas = dict[int, list[int]]()
        for text, index in self._spelled.items():
            if ends_in_number_comma(text):
                self._number_commas[index] = self._ids_of([text])

    # ---- ids ----

    def encode_ids(
        self, texts: list[str], *, num_threads: int = ALL_CORES
    ) -> list[list[int]]:
        encode = partial(self._encode_plain, num_threads=num_threads)
        if self._splitter is None:
            return encode(texts)
        return self._splitter.encode(texts, encode)

    def _encode_plain(self, texts: list[str], *, num_threads: int) -> list[list[int]]:
        """Return the ids of texts without added tokens."""
        normalized = [self.normalizer.normalize(text) for text in texts]
        encode = self._processor.encode
        # a run of unknown characters may contain a comma, which its id does not show
        if "," not in self._spelled:
            return [self._ids_of(encode(text, out_type=str)) for text in normalized]
        if len(texts) < _BATCH_WORTH_THREADS:
            encoded = [encode(text, out_type=int) for text in normalized]
        else:
            encoded = encode(normalized, out_type=int, num_threads=num_threads)
        return [self._without_number_commas(ids) for ids in encoded]

    def _without_number_commas(self, ids: list[int]) -> list[int]:
        """Replace the ids of pieces such as `▁2010,`, which few texts have."""
        commas = self._number_commas
        if commas.keys().isdisjoint(ids):
            return ids
        split = list[int]()
        for index in ids:
            split += commas.get(index) or [index]
        return split

    def _ids_of(self, pieces: list[str]) -> list[int]:
        """Return the ids of pieces after their commas are split off."""
        ids = list[int]()
        for piece in pieces:
            for part in self._split_comma(piece):
                ids.append(self._spelled.get(part, self.ids[self.special.unk]))
        return ids

    def _split_comma(self, piece: str) -> list[str]:
        """Encode a piece such as `▁2010,` without its comma, which becomes a separate
        piece.

        Official tokenization.py L66-79, as intended (Python 3 broke it); the `▁` that
        encoding adds is removed.
        """
        if not ends_in_number_comma(piece):
            return [piece]
        number = piece[:-1].replace(SPACE, " ")
        parts: list[str] = self._processor.encode(number, out_type=str)
        if parts and not piece.startswith(SPACE):
            parts[0] = parts[0].removeprefix(SPACE)
        return [part for part in (*parts, ",") if part]

    # ---- pieces, and where they came from ----

    def trace(self, text: str) -> Trace:
        if self._splitter is None:
            return self._trace_plain(text)
        return self._splitter.trace(text, self._trace_plain)

    def _trace_plain(self, text: str) -> Trace:
        """Trace a text without added tokens through its three forms: as it is given,
        normalized, and as sentencepiece shows it, with ▁ and its own normalization.
        """
        normalized, spans = self.normalizer.align(text)  # spans: (characters, 2)
        pieces = list[str]()
        # of each piece, in sentencepiece's form; empty for a lone ▁
        begins = array("i")
        stops = array("i")
        end = 0
        for piece in self._processor.encode(normalized, out_type=str):
            begin = end
            end += len(piece)
            for part in self._split_comma(piece):
                stop = min(begin + len(part), end)
                if part in self.ids:  # equal pieces of a long text are one object
                    part = self.pieces[self.ids[part]]
                pieces.append(part)
                begins.append(begin + part.startswith(SPACE))
                stops.append(stop)
                begin = stop

        # From sentencepiece's form to the normalized text: `places` has, for each of
        # its characters, the one that it came from. (characters + 1,)
        _, places = self._processor.normalize(normalized, with_offsets=True)
        sources = np.array([*places[:-1], len(normalized)], np.int32)
        first = sources[np.array(begins)]  # (pieces,)
        last = sources[np.array(stops)]  # (pieces,)

        # From there to the given text: a piece begins where its first character came
        # from, and ends where the character before `last` ended. The end of the text
        # is a start, too, and 0 an end, so that empty pieces have a place.
        end_of_text = spans[-1:, 1] if len(spans) else np.int32(0)
        span_starts = np.append(spans[:, 0], end_of_text)  # (characters + 1,)
        span_ends = np.append(np.int32(0), spans[:, 1])  # (characters + 1,)
        starts = span_starts[np.minimum(first, len(spans))]  # (pieces,)
        ends = np.where(first < last, span_ends[last], starts)  # empty: where it starts
        return Trace(pieces, np.stack([starts, ends], axis=1))

    def _join(self, pieces: list[str]) -> str:
        # Other pieces say with ▁ where a word begins; these two do not.
        spelled = {token.content: f" {token.content}" for token in self.added}
        spelled[self.special.unk] = f" {UNKNOWN_SIGN} "
        text = "".join(spelled.get(piece, piece) for piece in pieces)
        return text.replace(SPACE, " ").strip()


def _load_processor(checked: bytes, name: str) -> Any:
    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(checked)
    except (RuntimeError, ValueError, IndexError) as error:
        raise damaged_vocabulary(name, f"sentencepiece refuses it: {error}") from error
    return processor


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
        pieces = _read_word_pieces(data, name)
        super().__init__(data, normalizer, WORDPIECE_SPECIAL, pieces, name, added)
        self.strips_accents = normalizer.lowercase and not normalizer.keep_accents
        settings = f"wordpiece lowercase={normalizer.lowercase}"
        if normalizer.lowercase and not self.strips_accents:
            settings += " strips=False"
        self.hash = vocabulary_hash(settings, data, self.added)
        begins = [not piece.startswith("##") for piece in self.pieces]
        self.starts_word: NDArray[np.bool_] = np.array(begins)
        self._native = self._make_native(pieces)

    def _make_native(self, pieces: Sequence[str]) -> Any:
        """Return the same vocabulary as a tokenizer of the library."""
        try:
            import tokenizers
        except ImportError as error:
            raise missing_package(
                "tokenizers", extra="wordpiece", needed_for="a WordPiece vocabulary"
            ) from error
        native = tokenizers.Tokenizer(
            tokenizers.models.WordPiece(
                {piece: self.ids[piece] for piece in pieces},
                unk_token=self.special.unk,
                max_input_chars_per_word=_LONGEST_WORD,
            )
        )
        native.normalizer = tokenizers.normalizers.BertNormalizer(
            lowercase=self.normalizer.lowercase, strip_accents=self.strips_accents
        )
        native.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
        # Special pieces in a text are plain text here; on request, `Tokenizer` splits
        # them off.
        for token in sorted(self.added, key=lambda token: token.id):
            native_token = tokenizers.AddedToken(
                token.content,
                single_word=token.single_word,
                lstrip=token.lstrip,
                rstrip=token.rstrip,
                normalized=token.normalized,
            )
            native.add_tokens([native_token])
        return native

    def encode_ids(
        self, texts: list[str], *, num_threads: int = ALL_CORES
    ) -> list[list[int]]:
        clean = [replace_surrogates(text) for text in texts]
        # the library uses all cores for a batch
        if num_threads == 1 or len(texts) == 1:
            encode = partial(self._native.encode, add_special_tokens=False)
            encodings = [encode(text) for text in clean]
        else:
            encodings = self._native.encode_batch_fast(clean, add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def trace(self, text: str) -> Trace:
        clean = replace_surrogates(text)
        encoding = self._native.encode(clean, add_special_tokens=False)
        pieces: list[str] = encoding.tokens
        for number, id_ in enumerate(encoding.ids):
            if id_ >= self.num_in_file:  # the library shows it as it is in the text
                pieces[number] = self.pieces[id_]
        spans = np.array(encoding.offsets, np.int32).reshape(-1, 2)
        return Trace(pieces, spans)

    def _join(self, pieces: list[str]) -> str:
        spelled = {self.special.unk: UNKNOWN_SIGN}
        words = [spelled.get(piece, piece) for piece in pieces]
        # A piece that goes on with a word begins with ##.
        return " ".join(words).replace(" ##", "")


def _read_word_pieces(data: bytes, name: str) -> list[str]:
    """Return the pieces of a vocab.txt: the first column of each line (official
    tokenization.py L150-168).
    """
    try:
        lines = data.decode("utf-8-sig").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise damaged_vocabulary(name, error) from error
    pieces = list[str]()
    for line in lines:
        columns = line.split()
        pieces.append(columns[0] if columns else line)
    largest = max(len(piece.encode()) for piece in pieces)
    if len(pieces) > MAX_PIECES or largest > MAX_PIECE_BYTES:
        raise damaged_vocabulary(
            name, f"{len(pieces):,} pieces, the longest of {largest:,} bytes"
        )
    if len(set(pieces)) < len(pieces):
        ((twice, _),) = Counter(pieces).most_common(1)
        raise damaged_vocabulary(name, f"the piece {twice!r} is there twice")
    return pieces
