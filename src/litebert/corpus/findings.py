"""The kinds of findings in texts, the places of findings, and unknown tokens."""

from collections.abc import Iterator
from dataclasses import dataclass

from litebert.corpus.read import Passage
from litebert.reading.findings import Advice, Findings
from litebert.reading.source import Source
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.unknown import UnknownPieces

ADVICE: Advice = {
    "unreadable": ("error", "correct this place: the rest of the file was not read"),
    "damaged": ("error", "build the corpus again"),
    "held-out overlap": ("error", "build again with --held-out, which keeps duplicates together"),
    "mojibake": ("warning", "text was decoded wrongly before; repair it, for instance with ftfy"),
    "replacement character": ("warning", "U+FFFD stands for lost bytes; reconvert the text"),
    "control character": ("warning", "remove them; a NUL in every other place means UTF-16"),
    "duplicate document": ("warning", "remove all but one: training would see them more often"),
    "repeated line": ("warning", "probably boilerplate, such as a header or a licence; remove it"),
    "few documents": (
        "warning",
        "held-out documents may be none, and there is nothing to evaluate on: add text, set "
        "--held-out higher, or name data.eval_corpus",
    ),
    "unknown token": ("warning", "above 1 % another vocabulary is better: litebert tokenizer train"),
    "empty document": ("note", "omitted from a corpus"),
    "empty sentence": ("note", "omitted from a corpus"),
    "single-sentence document": ("note", "teaches no sentence order; join such documents"),
    "long sentence": ("note", "cut in training; does --sentences suit this text?"),
    "short sentence": ("note", "often a heading or a number; does --sentences suit this text?"),
}
"""The severity of each kind and what to do, in the order in which they are reported."""


@dataclass(frozen=True)
class PassagePlace:
    """A passage and its input; a row has one line, a .txt passage as many as its text."""

    source: Source
    passage: Passage

    def at(self, position: int) -> str:
        """Return the place of a character of the passage."""
        lines_before = self.passage.text.count("\n", 0, position) if self._has_lines else 0
        return f"{self.source.name}:{self.passage.line + lines_before}"

    def of(self, sentence: str) -> str:
        """Return the place of a sentence of the passage."""
        return self.at(max(0, self.passage.text.find(sentence)))

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield the lines of the passage with their numbers in the input."""
        for index, line in enumerate(self.passage.text.split("\n")):
            yield self.passage.line + index * self._has_lines, line

    @property
    def _has_lines(self) -> bool:
        return self.source.kind == ".txt"


class UnknownTokens:
    """Tokenise sentences and count unknown tokens."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer, self._unknown, self._where = tokenizer, UnknownPieces(tokenizer), ""

    @property
    def num_tokens(self) -> int:
        """The number of all tokens."""
        return self._unknown.num_pieces

    def look(self, sentences: list[str], place: PassagePlace) -> None:
        """Count the tokens of some sentences of one passage."""
        encoded = self._tokenizer.encode_ids(sentences, num_threads=1)
        for sentence, ids in zip(sentences, encoded, strict=True):
            if self._unknown.add(sentence, ids):
                self._where = self._where or place.of(sentence)

    def report(self, found: Findings) -> None:
        """Add one finding with the share of unknown tokens and the characters that caused them."""
        if number := self._unknown.num_unknown:
            characters = ", ".join(f"{c!r} {count:,}" for c, count in self._unknown.characters)
            example = f"{number / self.num_tokens:.2%} of tokens; {characters}"
            found.add("unknown token", self._where, example, times=number)
