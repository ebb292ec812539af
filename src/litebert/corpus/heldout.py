"""Which documents are held out: a matter of their content alone, so duplicates stay together."""

from __future__ import annotations

import hashlib

HEAD_CHARACTERS = 1 << 14


def is_held_out(text: str, share: float) -> bool:
    """Decide by a hash of the beginning of a document, white space aside.

    The beginning suffices: documents that share their first 16,384 characters stay together, and
    no document need be held whole.

    >>> is_held_out("A  text.", 0.5) == is_held_out("A text.\\n", 0.5)
    True
    """
    head = "".join(text[: 4 * HEAD_CHARACTERS].split())[:HEAD_CHARACTERS]
    digest = hashlib.blake2b(head.encode(), digest_size=8, person=b"held-out").digest()
    return int.from_bytes(digest, "little") < share * 2.0**64
