"""Unknown tokens: how many, and which characters cause them."""

from __future__ import annotations

from collections import Counter

from litebert.corpus.place import Place
from litebert.reading.findings import Findings
from litebert.tokenizer import Tokenizer

MOST_COMMON = 10


class UnknownPieces:
    """Tokenise sentences and count what the vocabulary lacks."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.num_tokens = 0
        self._num_unknown = 0
        self._where = ""
        self._tokenizer = tokenizer
        self._characters = Counter[str]()
        self._is_unknown: dict[str, bool] = {}

    def look(self, sentences: list[str], place: Place) -> None:
        """Count the tokens of some sentences of one passage."""
        encoded = self._tokenizer.encode_ids(sentences, num_threads=1)
        for sentence, ids in zip(sentences, encoded, strict=True):
            self.num_tokens += len(ids)
            if num_unknown := ids.count(self._tokenizer.unk_id):
                self._num_unknown += num_unknown
                self._where = self._where or place.of(sentence)
                self._characters.update(filter(self._lacks, sentence))

    def report(self, found: Findings) -> None:
        """Add one finding with the share of unknown tokens and the characters behind them."""
        if self._num_unknown:
            share = self._num_unknown / self.num_tokens
            characters = ", ".join(
                f"{character!r} {count:,}"
                for character, count in self._characters.most_common(MOST_COMMON)
            )
            example = f"{share:.2%} of tokens; {characters}"
            found.add("unknown token", self._where, example, times=self._num_unknown)

    def _lacks(self, character: str) -> bool:
        if character not in self._is_unknown:
            ids = self._tokenizer.encode_ids([character], num_threads=1)[0]
            self._is_unknown[character] = self._tokenizer.unk_id in ids
        return self._is_unknown[character]
