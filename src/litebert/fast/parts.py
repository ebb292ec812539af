"""The tokens of a batch, laid out for a graph.

The tokens of a batch lie end to end, so that no product is computed for padding. Only
attention needs a rectangle with one line for each text: the graph gathers the tokens
into it, and back. Which token goes where is an input of the graph, made here once for
all batches of the same lengths.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int32, Int64

from litebert.fast.operators import Layout, shared

# A line of scores that ends within a vector of the CPU takes up to twice the time.
_VECTOR = 16
# Tokens of a part of a batch: smaller parts have less padding, but their products are
# slower. Texts of one length have no padding.
_PART = 512
_PART_OF_ONE_LENGTH = 1_024


class Rectangle(NamedTuple):
    """Where the rows of texts are in a rectangle with one line for each text."""

    rows: Int32[np.ndarray, "texts width"]  # the row in each cell; 0 if there is none
    mask: Float[np.ndarray, "texts 1 1 width"]  # 0, or -inf if there is no row
    cells: Int32[np.ndarray, " rows"]  # the cell of each row, line by line


class Part:
    """Texts of a batch that are computed together, because their lengths are similar.

    `lengths` are those of all texts of the batch, in tokens; `texts` are the numbers of
    the texts of this part.
    """

    def __init__(self, lengths: Sequence[int], texts: Sequence[int]) -> None:
        starts = np.cumsum([0, *lengths])  # (texts of the batch + 1,)
        spans = [np.arange(starts[text], starts[text + 1]) for text in texts]
        counts = tuple(lengths[text] for text in texts)
        # the token of the batch that each row of this part is, (rows,)
        self.tokens = np.concatenate(spans)
        self._rows = np.arange(len(self.tokens))
        # the row of each token of the batch, (tokens,); -1 if it is in another part
        self._row_of = np.full(starts[-1], -1)
        self._row_of[self.tokens] = self._rows
        self._text_of = np.repeat(np.arange(len(texts)), counts)  # (rows,)
        # Their width is padded, because each line of scores has one number per key.
        self._keys = _rectangle(counts, multiple_of=_VECTOR)
        # the layout if all rows are queries
        self.layout = self.layout_for(self._rows)

    def find(
        self, tokens: Int64[np.ndarray, " queries"]
    ) -> tuple[Int64[np.ndarray, " present"], Int64[np.ndarray, " present"]]:
        """Return which of these tokens are in this part, and their rows, ascending."""
        rows = self._row_of[tokens]
        order = np.argsort(rows, kind="stable")
        # The tokens of other parts come first, as -1.
        num_absent = np.searchsorted(rows[order], 0)
        present = order[num_absent:]
        return present, rows[present]

    def layout_for(self, queries: Int64[np.ndarray, " queries"]) -> Layout:
        """Return what a graph reads beside the tokens, for these ascending rows as
        queries.
        """
        num_texts = len(self._keys.rows)
        counts = np.bincount(self._text_of[queries], minlength=num_texts)
        # A text without a query has an empty line, so that the lines of queries and of
        # keys are those of the same texts.
        places = _rectangle(tuple(counts.tolist()), multiple_of=1)
        query_rows = queries.astype(np.int32)
        return Layout(
            key_rows=shared(self._keys.rows),
            mask=shared(self._keys.mask),
            key_cells=shared(self._keys.cells),
            # The rectangle numbers the queries; the graph needs their rows.
            query_rows=shared(query_rows[places.rows]),
            query_cells=shared(places.cells),
            queries=shared(query_rows),
        )


@lru_cache(maxsize=64)
def _rectangle(counts: tuple[int, ...], *, multiple_of: int) -> Rectangle:
    """Lay out rows that are sorted by text, so many of each text; the width is a
    multiple.
    """
    num_texts = len(counts)
    width = -(-max(counts) // multiple_of) * multiple_of
    sizes = np.array(counts)
    line = np.repeat(np.arange(num_texts), sizes)  # (rows,), the text of each row
    numbers = np.arange(len(line))
    first_row = np.cumsum(sizes) - sizes  # (texts,)
    columns = numbers - first_row[line]  # (rows,)
    cells = line * width + columns
    rows = np.zeros(num_texts * width, np.int32)
    rows[cells] = numbers
    mask = np.full(num_texts * width, -np.inf, np.float32)
    mask[cells] = 0
    return Rectangle(
        rows=rows.reshape(num_texts, width),
        mask=mask.reshape(num_texts, 1, 1, width),
        cells=cells.astype(np.int32),
    )


@lru_cache(maxsize=256)
def divide(lengths: tuple[int, ...]) -> list[Part]:
    """Divide a batch into parts of about equal size, text by text in order of length."""
    num_tokens = sum(lengths)
    has_one_length = len(set(lengths)) == 1
    part_size = _PART_OF_ONE_LENGTH if has_one_length else _PART
    num_parts = -(-num_tokens // part_size)
    if num_parts == 1:
        return [Part(lengths, range(len(lengths)))]
    groups: list[list[int]] = [[] for _ in range(num_parts)]
    num_before = 0  # tokens of the shorter texts
    for text in sorted(range(len(lengths)), key=lengths.__getitem__):
        groups[num_before * num_parts // num_tokens].append(text)
        num_before += lengths[text]
    # a long text leaves the next part empty
    return [Part(lengths, texts) for texts in groups if texts]
