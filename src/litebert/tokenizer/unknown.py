"""Does a vocabulary fit a text? What it cannot read is counted."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from litebert.tokenizer.tokenizer import Tokenizer

# of the pieces of a text may be unknown
MOST_UNKNOWN = 0.01
# of the letters of a text may lose a mark; in English, fewer do
MOST_DROPPED = 0.01
OTHER_VOCABULARY = "above 1 % another vocabulary is better: litebert tokenizer train"


class UnknownPieces:
    """Count what a vocabulary cannot read of texts: unknown pieces, with the characters
    that cause them, and letters that lose a mark.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.num_pieces = 0
        self.num_unknown = 0
        self.num_letters = 0
        self.num_dropped = 0  # marks
        self._characters = Counter[str]()  # of the texts with unknown pieces

    def add(self, text: str, ids: Sequence[int]) -> bool:
        """Count the pieces of a text; return whether one of them is unknown."""
        unknown = list(ids).count(self.tokenizer.unk_id)
        self.num_letters += sum(map(str.isalpha, text))
        self.num_dropped += self.tokenizer.normalizer.count_dropped(text)
        self.num_pieces += len(ids)
        self.num_unknown += unknown
        if unknown:
            self._characters.update(text)
        return unknown > 0

    def __str__(self) -> str:
        """Return their share, and the ten most common characters that the vocabulary
        lacks, with their counts.
        """
        lacking = list[str]()
        for character in islice(self._lacking(), 10):
            lacking.append(f"{character!r} {self._characters[character]:,}")
        share = self.num_unknown / max(1, self.num_pieces)
        return f"{share:.2%} of pieces: {', '.join(lacking)}"

    @property
    def are_letters(self) -> bool:
        """Whether letters are among the most common characters that the vocabulary
        lacks; others are emoji and signs.
        """
        return any(map(str.isalpha, islice(self._lacking(), 10)))

    def _lacking(self) -> Iterator[str]:
        """Yield the characters that the vocabulary lacks, the most common first."""
        unk_id = self.tokenizer.unk_id
        for character, _ in self._characters.most_common():
            if unk_id in self.tokenizer.encode_ids([character])[0]:
                yield character

    @property
    def has_unknown(self) -> bool:
        """Whether so many pieces are unknown that another vocabulary is better."""
        return self.num_unknown > MOST_UNKNOWN * self.num_pieces

    @property
    def dropped(self) -> str | None:
        """Say that the vocabulary drops marks, if it drops many."""
        if self.num_dropped <= MOST_DROPPED * self.num_letters:
            return None
        share = self.num_dropped / self.num_letters
        return f"{share:.0%} of the letters lose a mark, such as an accent"
