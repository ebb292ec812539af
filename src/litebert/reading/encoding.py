"""The encoding of a text file that is not UTF-8: UTF-16, or Windows-1252 of Western
Europe.

Any bytes at all are text in Windows-1252 and its sisters, so it takes signs that the
text was meant: its words are spelt with the letters of Western European languages, or
only few of its characters are beyond ASCII. What is not certain stays refused, and the
error shows how a line reads in the encodings that are possible.
"""

import re
import unicodedata
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator

# the encodings that are recognized, and what people call them
NAMES = {
    "utf-16": "UTF-16",
    "utf-16-le": "UTF-16",
    "utf-16-be": "UTF-16",
    "utf-32": "UTF-32",
    "cp1252": "Windows-1252",
}
# the bytes at the beginning of a file from which its encoding is recognized
SAMPLE_BYTES = 4 << 20
_MARKS_OF_UTF32 = (b"\xff\xfe\0\0", b"\0\0\xfe\xff")
# categories of Unicode: control, not assigned, of private use
_NOT_OF_TEXTS = ("Cc", "Cn", "Co")
# in English, a smaller share of the characters is beyond ASCII
_FEW = 0.01
# Of the characters beyond ASCII, at most this share may be odd: no letter or mark of
# Western Europe, or in a word that is not spelt as words are.
_MOST_ODD = 0.02

_SMALL = "àâäáãåæçèéêëìíîïñòóôöõøœùúûüß"
_CAPITAL = "ÀÂÄÁÃÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÖÕØŒÙÚÛÜ"
_MARKS = "’‘“”„‚–—…«»‹›€£¥§°ºª·•©®™¿¡²³½¼¾±×\xa0\xad"
_KNOWN = _SMALL + _CAPITAL + _MARKS
_WORD = re.compile(r"[^\W\d_]+")
# in a word, no capital follows a small letter
_SPELT = re.compile(rf"[A-Z{_CAPITAL}]*[a-z{_SMALL}]*")
# letters beyond ASCII stand alone or in pairs: créée, œuvre
_LONG_RUN = re.compile(r"[^\x00-\x7f]{3,}")


def find_encoding(sample: bytes) -> str:
    """Return the encoding of a file, given its first bytes; "utf-8" unless another one
    is certain.

    >>> text = "Größe und Farbe"
    >>> find_encoding(text.encode("cp1252")), find_encoding(text.encode())
    ('cp1252', 'utf-8')
    """
    if sample.startswith(_MARKS_OF_UTF32):
        return "utf-32"
    if sample.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    if b"\0" in sample:
        return _kind_of_utf16(sample)
    if is_utf8(sample) or not _is_western(sample):
        return "utf-8"
    return "cp1252"


def _kind_of_utf16(sample: bytes) -> str:
    """Return the kind of UTF-16 of a file with NUL bytes and without a byte-order mark;
    "utf-8" unless it is certain.
    """
    # ASCII characters have a NUL byte each: the second one if the order is little-endian
    share_of_first = _share_of_nul(sample[0:2000:2])
    share_of_second = _share_of_nul(sample[1:2000:2])
    if share_of_second > 0.5 and share_of_first == 0:
        return "utf-16-le"
    if share_of_first > 0.5 and share_of_second == 0:
        return "utf-16-be"
    if _is_text(sample.replace(b"\0", b""), "utf-8"):
        return "utf-8"  # with a few NUL bytes too many
    # Texts with few ASCII characters. In the wrong order, a line feed becomes U+0A00,
    # which is no character.
    orders = [order for order in ("utf-16-le", "utf-16-be") if _is_text(sample, order)]
    return orders[0] if len(orders) == 1 else "utf-8"


def _share_of_nul(data: bytes) -> float:
    return data.count(0) / max(1, len(data))


def _is_text(sample: bytes, encoding: str) -> bool:
    """Return whether bytes are nothing but characters of texts, in an encoding; the
    last one may be cut.
    """
    try:
        text = getincrementaldecoder(encoding)().decode(sample)
    except UnicodeDecodeError:
        return False
    return all(map(_is_of_texts, set(text)))


def _is_of_texts(character: str) -> bool:
    """Return whether a character is assigned, and no control character but a tab or the
    end of a line; emoji are not looked up, since there are new ones each year.
    """
    if character in "\t\r\n\f" or character > "\uffff":
        return True
    return unicodedata.category(character) not in _NOT_OF_TEXTS


def is_utf8(sample: bytes) -> bool:
    """Return whether bytes are UTF-8, or were: some characters are, and few others are
    damaged.
    """
    try:
        getincrementaldecoder("utf-8")().decode(sample)  # the last one may be cut
    except UnicodeDecodeError:
        num_whole = len(_beyond_ascii(sample.decode("utf-8", "ignore")))
        num_damaged = sample.decode("utf-8", "replace").count("\ufffd")
        return num_whole >= num_damaged
    return True


def _beyond_ascii(text: str) -> list[str]:
    return [character for character in text if character > "\x7f"]


def _is_western(sample: bytes) -> bool:
    """Return whether bytes are meant as Windows-1252."""
    try:
        text = sample.decode("cp1252")
    except UnicodeDecodeError:
        return False
    characters = _beyond_ascii(text)
    num_unknown = sum(character not in _KNOWN for character in characters)
    if len(characters) < _FEW * len(text):  # as in English
        return 2 * num_unknown <= len(characters)

    # Bytes of other encodings stand in long runs, or look like aÂrÃ in words.
    num_runs = len(_LONG_RUN.findall(text))
    num_misspelt = 0
    for word in _WORD.findall(text):
        if not word.isascii() and not _SPELT.fullmatch(word):
            num_misspelt += 1
    num_odd = num_unknown + num_runs + num_misspelt
    num_plain = sum(character.isascii() and character.isalpha() for character in text)
    has_few_odd = num_odd <= _MOST_ODD * len(characters)
    return has_few_odd and num_plain > 2 * len(characters)


def to_utf8(pieces: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """Yield pieces of another encoding in UTF-8; UnicodeDecodeError for a byte that it
    does not have.
    """
    decoder = getincrementaldecoder(encoding)()
    for piece in pieces:
        yield decoder.decode(piece).encode("utf-8", "surrogatepass")
    yield decoder.decode(b"", final=True).encode("utf-8", "surrogatepass")
