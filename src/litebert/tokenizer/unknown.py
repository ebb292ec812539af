"""Count unknown pieces, and the characters that cause them."""

from collections import Counter
from collections.abc import Sequence

from litebert.tokenizer.tokenizer import Tokenizer

MOST_COMMON = 10


class UnknownPieces:
    """Counts the pieces of texts, the unknown ones, and the characters that cause these."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.num_pieces = self.num_unknown = 0
        self._tokenizer, self._characters = tokenizer, Counter[str]()
        self._is_unknown: dict[str, bool] = {}

    def add(self, text: str, ids: Sequence[int]) -> bool:
        """Count the pieces of a text; tell whether one of them is unknown."""
        self.num_pieces += len(ids)
        unknown = list(ids).count(self._tokenizer.unk_id)
        self.num_unknown += unknown
        if unknown:
            self._characters.update(filter(self._lacks, text))
        return unknown > 0

    @property
    def characters(self) -> tuple[tuple[str, int], ...]:
        """The commonest characters that the vocabulary lacks, with their counts."""
        return tuple(self._characters.most_common(MOST_COMMON))

    def _lacks(self, character: str) -> bool:
        if character not in self._is_unknown:
            ids = self._tokenizer.encode_ids([character], num_threads=1)[0]
            self._is_unknown[character] = self._tokenizer.unk_id in ids
        return self._is_unknown[character]
