"""The encodings that a text file may have if it is neither UTF-8 nor certain to be
another one: only a reader can tell the right one, by how a line looks in each.

An encoding is possible if all bytes are characters in it, and nearly all of these are
what people write in its languages. The bytes of Chinese fit into Japanese encodings,
too, but become characters that are rare.
"""

from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import NamedTuple

# the most encodings that a message shows
MOST_SHOWN = 3
# Of the characters beyond ASCII, at most this share may be odd: rare ones, capitals after
# small letters, and Greek or Cyrillic letters after those of ASCII.
_MOST_ODD = 0.1
# With a share that is larger than the lowest by this much, it is none to show.
_MARGIN = 0.03
_SAMPLE_BYTES = 1 << 16


@dataclass(frozen=True)
class Encoding:
    """An encoding, by a name that Python and iconv know, and what is written in it."""

    name: str
    languages: str
    usual: frozenset[str]  # the characters beyond ASCII that most texts have
    has_own_letters: bool = False  # no word has some of them and some of ASCII


class Possible(NamedTuple):
    """An encoding that a file may have, and how a line of the file looks in it."""

    name: str
    languages: str
    line: str


def possible_encodings(sample: bytes, line: bytes) -> list[Possible]:
    """Return the encodings that a file may have, the likeliest first, given some of its
    lines and the one that is shown.
    """
    beginning = sample[:_SAMPLE_BYTES]
    # the end of the sample may cut a character
    whole = beginning[: beginning.rfind(b"\n") + 1] or beginning
    shares = dict[Encoding, float]()
    for encoding in _encodings():
        share = _odd_share(whole, encoding)
        if share <= _MOST_ODD:
            shares[encoding] = share
    possible = list[Possible]()
    for encoding in sorted(shares, key=lambda encoding: shares[encoding]):
        if shares[encoding] > min(shares.values()) + _MARGIN:
            break
        text = line.decode(encoding.name, "replace").strip()
        possible.append(Possible(encoding.name.upper(), encoding.languages, text))
    return possible[:MOST_SHOWN]


def _odd_share(sample: bytes, encoding: Encoding) -> float:
    """Return the share of odd characters among those beyond ASCII; 1 if a byte is none
    at all.
    """
    try:
        text = sample.decode(encoding.name)
    except UnicodeDecodeError:
        return 1.0
    num_beyond = 0
    num_odd = 0
    for before, character in pairwise(f" {text}"):
        if character.isascii():
            continue
        num_beyond += 1
        is_misspelt = before.islower() and character.isupper()
        is_after_ascii = before.isascii() and before.isalpha()
        is_mixed = encoding.has_own_letters and is_after_ascii
        if is_misspelt or is_mixed or character not in encoding.usual:
            num_odd += 1
    return num_odd / max(1, num_beyond)


# ---- what people write in each encoding ----------------------------------------------


@cache
def _encodings() -> tuple[Encoding, ...]:
    marks = "“”‘’„‚–—…«»€£§°·\xa0№"
    wide_marks = _frequent("euc_jp", 0xA1, 0xA3) + marks
    korean = frozenset(_frequent("euc_kr", 0xB0, 0xC8) + wide_marks)
    kana = _frequent("euc_jp", 0xA4, 0xA5)
    japanese = frozenset(kana + _frequent("euc_jp", 0xB0, 0xCF) + wide_marks)
    simplified = frozenset(_frequent("gb2312", 0xB0, 0xD7) + wide_marks)
    traditional = frozenset(_frequent("big5", 0xA4, 0xC6) + wide_marks)
    cyrillic = _with_capitals("абвгдежзийклмнопрстуфхцчшщъыьэюяёіїєґ", marks)
    greek = _with_capitals("αβγδεζηθικλμνξοπρσςτυφχψωάέήίόύώϊϋ", marks)
    turkish = _with_capitals("çğöşüâîûıİ", marks)
    central = _with_capitals("ąćęłńóśźżáčďéěíňřšťúůýžőűäöüëâîăşţôĺľŕđ", marks)
    western = _with_capitals("àâäáãåæçèéêëìíîïñòóôöõøœùúûüß", marks)
    return (
        # Of encodings that fit equally well, the first: what is frequent in Korean or
        # Japanese is frequent in Chinese, too, but not the other way round.
        Encoding("cp949", "Korean", korean),
        Encoding("euc-jp", "Japanese", japanese),
        Encoding("cp932", "Japanese", japanese),
        Encoding("gb18030", "Chinese", simplified),
        Encoding("big5", "Chinese", traditional),
        Encoding("cp1251", "Cyrillic", cyrillic, has_own_letters=True),
        Encoding("koi8-r", "Cyrillic", cyrillic, has_own_letters=True),
        Encoding("cp1253", "Greek", greek, has_own_letters=True),
        Encoding("cp1254", "Turkish", turkish),
        Encoding("cp1250", "Central European", central),
        Encoding("cp1252", "Western European", western),
        Encoding("macintosh", "Western European", western),
    )


def _frequent(encoding: str, first: int, last: int) -> str:
    """Return the characters of an encoding whose first byte is `first` to `last`; the
    frequent ones stand together.
    """
    content = bytearray()
    for lead in range(first, last + 1):
        for trail in range(0x40, 0xFF):
            content += bytes([lead, trail])
    return content.decode(encoding, "ignore")


def _with_capitals(small: str, marks: str) -> frozenset[str]:
    return frozenset(small + small.upper() + marks)
