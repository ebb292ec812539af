"""Train a unigram vocabulary by the official recipe (README L311-318), on text as
encoding sees it.
"""

import io
import re
from collections.abc import Iterable, Iterator, Sequence

import sentencepiece

from litebert.errors import LitebertError, format_count
from litebert.tokenizer.model_file import lower_number_commas
from litebert.tokenizer.text import Normalizer, single_text

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
    lines = _Lines(texts, normalizer)
    # symbols as the text that is trained on shows them
    whole = [normalizer.normalize(symbol) for symbol in symbols]
    written = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
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
        if lines.failure is not None:
            raise lines.failure from error
        raise _untrainable(vocab_size, lines.count, error) from error
    return lower_number_commas(written.getvalue())


class _Lines:
    """The normalized lines of texts; it keeps an error that native code would swallow."""

    def __init__(self, texts: Iterable[str], normalizer: Normalizer) -> None:
        self.texts = texts
        self.normalizer = normalizer
        self.count = 0
        self.failure: BaseException | None = None

    def __iter__(self) -> Iterator[str]:
        try:
            for text in self.texts:
                for line in _LINE.findall(self.normalizer.normalize(text)):
                    self.count += 1
                    yield line
        except (Exception, KeyboardInterrupt) as error:
            self.failure = error
            raise


def _untrainable(
    vocab_size: int, num_lines: int, error: RuntimeError | ValueError
) -> LitebertError:
    """Return the error for texts that sentencepiece makes no such vocabulary of."""
    if num_lines == 0:
        return LitebertError(
            "LB-220",
            "there is no text to train a vocabulary on",
            next="give a few thousand sentences",
        )
    # after the location in sentencepiece's code
    said = str(error).rpartition("] ")[2]
    advice = (
        "set vocab_size (--vocab-size) as that says, give more text, or see"
        " litebert tokenizer train --help"
    )
    needed = re.search(r"required_chars\. \d+ vs (\d+)", said)
    if needed:
        said = f"its characters alone need {needed[1]}"
        advice = "set vocab_size (--vocab-size) to at least that"
    lines = format_count(num_lines, "line")
    return LitebertError(
        "LB-221",
        f"no vocabulary of {vocab_size:,} pieces can be trained on these {lines}",
        received=said or error,
        next=advice,
    )
