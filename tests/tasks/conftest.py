"""A tokenizer for tests of tasks."""

import pytest

from litebert.tokenizer import Tokenizer, train_tokenizer

WORDS = (
    "anna took a red ball to the river. david found an old map in the house near a tree"
    " ? . who went to berlin with 1,905 ( old ) maps in one bag , zürich lies north of"
    " rome"
)


@pytest.fixture(scope="session")
def words_tokenizer() -> Tokenizer:
    """Return a tokenizer of 54 pieces, which knows these words."""
    return Tokenizer.from_model(train_tokenizer(WORDS.split() * 9, vocab_size=54))
