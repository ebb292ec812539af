"""Train a vocabulary by the official recipe (README L311-318), on text as encoding sees it."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator

import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]

from litebert.errors import LitebertError
from litebert.tokenizer.modelfile import NORMAL, ends_in_number_comma
from litebert.tokenizer.models import Normalizer, single_text
from litebert.tokenizer.tokenizer_json import NUMBER_COMMA_PENALTY

USER_SYMBOLS = ("(", ")", '"', "-", ".", "–", "£", "€")
"""The user-defined pieces of the official vocabulary, which are never part of another piece."""

# Sums depend on the number of threads, which is fixed so that the same text gives the same bytes.
_NUM_THREADS = 16
# sentencepiece skips lines above 4,192 bytes; no piece crosses a space, so cutting there is free.
_LINE = re.compile(r"\S.{0,1000}(?!\S)|\S+", re.S)


def train_tokenizer(
    texts: Iterable[str],
    *,
    vocab_size: int,
    is_limit: bool = False,
    lowercase: bool = True,
    character_coverage: float = 0.99995,
    max_sentences: int = 10_000_000,
) -> bytes:
    """Train a unigram vocabulary and return the bytes of its sentencepiece model.

    `texts` are read once, in order; line breaks in them are ignored. If there are more than `max_sentences`, they are
    sampled. With `is_limit` a text too small for `vocab_size` pieces gets as many as it has. Ids 0 to 12 are those of
    the official vocabulary. The same texts give the same bytes.

    The official code splits the comma off pieces such as `▁2010,`, so their scores are lowered by 100: they are never
    chosen, and sentencepiece, this package and transformers agree.

    >>> from litebert.tokenizer import Tokenizer
    >>> texts = ["The cat sat on the mat.", "The mat was flat.", "That cat was fat."]
    >>> tokenizer = Tokenizer.from_model(train_tokenizer(texts, vocab_size=28))
    >>> tokenizer.decode(tokenizer.encode("THE fat cat").ids)
    'the fat cat'
    """
    if isinstance(texts, str):
        raise single_text(texts)
    normalizer, num_lines = Normalizer(lowercase=lowercase), 0
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
            user_defined_symbols=list(USER_SYMBOLS),
            character_coverage=character_coverage,
            input_sentence_size=max_sentences,
            shuffle_input_sentence=True,
            num_threads=_NUM_THREADS,
            minloglevel=2,
        )
    except (RuntimeError, ValueError) as error:
        if failure is not None:
            raise failure from error
        if num_lines == 0:
            what, again = "there is no text to train a vocabulary on", "give some thousands of sentences"
            raise LitebertError("LB-220", what, next=again) from error
        what = f"no vocabulary of {vocab_size:,} pieces can be trained on these {num_lines:,} lines"
        again = "set vocab_size (--vocab-size) as it says, give more text, or see litebert tokenizer train --help"
        said = str(error).rpartition("] ")[2]  # after the place in sentencepiece's code
        raise LitebertError("LB-221", what, received=said or error, next=again) from error
    model = ModelProto.FromString(written.getvalue())
    for piece in model.pieces:
        if piece.type == NORMAL and ends_in_number_comma(piece.piece):
            piece.score -= NUMBER_COMMA_PENALTY
    return bytes(model.SerializeToString())
