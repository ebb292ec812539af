"""Inputs of a model's verbs: checked where they enter, and turned into sequences,
vectors and words.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from litebert.errors import LitebertError, no_such_name
from litebert.tokenizer.models import SPACE

if TYPE_CHECKING:  # torch is imported where it is used
    from torch import Tensor

    from litebert.config import Pooling, Precision
    from litebert.folder.model import LoadedModel
    from litebert.nn import Batch, Network
    from litebert.tokenizer import Tokenizer

Texts: TypeAlias = str | Iterable[str]
MASK = "[MASK]"


def as_list(texts: Texts, verb: str) -> list[str]:
    """Return one text or several as a list.

    >>> as_list("one", "fill"), as_list(("one", "two"), "fill")
    (['one'], ['one', 'two'])
    """
    found = list(texts) if is_list(texts) else [texts]
    for text in found:
        if not isinstance(text, str):
            received = f"{text!r:.100} ({type(text).__name__})"
            advice = "give every text as a str; from a table, give one column"
            raise LitebertError(
                "LB-611", f"{verb} takes texts", received=received, next=advice
            )
    return [str(text) for text in found]  # numpy's strings become plain ones


def is_list(texts: object) -> bool:
    """Return whether texts come as an ordered collection; those of a set or a table do
    not.
    """
    is_flat = getattr(texts, "ndim", 1) == 1
    return (
        isinstance(texts, Iterable)
        and is_flat
        and not isinstance(texts, str | bytes | Mapping | Set)
    )


def as_pairs(
    texts: Texts, pairs: Texts | None, verb: str
) -> tuple[list[str], list[str] | None]:
    """Return the texts, and the second text of each pair; None without pairs."""
    listed = as_list(texts, verb)
    seconds = None if pairs is None else as_list(pairs, verb)
    if seconds is not None and len(seconds) != len(listed):
        what = f"{len(listed)} texts and {len(seconds)} pairs do not match"
        raise LitebertError("LB-931", what, next="give one pair for each text")
    return listed, seconds


def require_count(value: int, name: str, *, least: int = 1) -> int:
    """Return a count, such as the number of answers, if it is a whole number and not
    below `least`.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        what = f"{name} is a whole number, {least} or more"
        raise LitebertError("LB-932", what, received=value, next=f"{name}=5")
    return int(value)


def open_network(
    folder: Path, precision: "Precision", depth: int | None
) -> "LoadedModel":
    """Load a network for inference with activations of a precision; apply `depth` steps
    of its plan, or all.
    """
    from litebert.fast.steps import DTYPES
    from litebert.folder.model import load_model

    if precision not in DTYPES:
        raise no_such_name(
            "LB-933",
            "there is no such precision",
            str(precision),
            DTYPES,
            next='precision="fp32"',
        )
    loaded = load_model(folder, dtype=DTYPES[precision], for_inference=True)
    deepest = len(loaded.network.albert.plan)
    if depth is not None:
        loaded.network.albert.depth = depth
    if (
        not isinstance(depth, int | None)
        or not 1 <= loaded.network.albert.depth <= deepest
    ):
        what = f"this model cannot be applied to depth {depth}"
        expected = f"1 to {deepest} steps"
        raise LitebertError(
            "LB-452", what, expected=expected, next=f"choose a depth up to {deepest}"
        )
    return loaded


# Sequences of pieces


def encode_blanks(
    tokenizer: "Tokenizer", texts: Sequence[str]
) -> list[tuple[list[int], list[int]]]:
    """Return the ids of each text, with [MASK] as blanks, and their places in what the
    tokenizer returns.

    The tokenizer, like transformers, begins a word after every special piece: `on the
    [MASK] ▁ .` for "on the [MASK].". In training, words of whole sentences are masked,
    so what follows a blank without a space begins no word there.
    """
    found = []
    for text, ids in zip(
        texts, tokenizer.encode_ids(texts, special_tokens=True), strict=True
    ):
        after = (
            text[match.end() : match.end() + 1]
            for match in re.finditer(re.escape(MASK), text)
        )
        kept = list[int]()
        places = list[int]()
        continues = False
        for place, id_ in enumerate(ids):
            piece = tokenizer.pieces[id_]
            if (
                continues
                and piece.startswith(SPACE)
                and (rest := tokenizer.id(piece[1:])) != tokenizer.unk_id
            ):
                id_ = rest
            if not (continues and piece == SPACE):
                kept.append(id_)
                places.append(place)
            continues = id_ == tokenizer.mask_id and not next(after).isspace()
        found.append((kept, places))
    return found


def frame_batches(
    network: "Network",
    tokenizer: "Tokenizer",
    first: Sequence[Sequence[int]],
    second: Sequence[Sequence[int]] | None = None,
    *,
    longest: int | None = None,
) -> "Iterator[tuple[list[int], Batch]]":
    """Yield batches of sequences of similar lengths, [CLS] first [SEP] (second [SEP]),
    with the index of each.

    Sequences are cut to what the model can read, or to `longest`; batches are on the
    network's device.
    """
    from litebert.nn import Batch, device_of, group_by_length
    from litebert.tasks.kinds.family import frame_ids

    longest = min(longest or 1 << 30, network.config.max_position_embeddings)
    device = device_of(network)
    sizes = [
        len(a) + len(b) + 3
        for a, b in zip(first, second or [()] * len(first), strict=True)
    ]
    for rows in group_by_length([min(size, longest) for size in sizes]):
        if second is None:
            batch = Batch.from_lists(
                [
                    [tokenizer.cls_id, *first[n][: longest - 2], tokenizer.sep_id]
                    for n in rows
                ]
            )
        else:
            pairs = [
                frame_ids(tokenizer, first[n], second[n], max_length=longest)
                for n in rows
            ]
            batch = Batch.from_lists(
                [ids for ids, _ in pairs], [segments for _, segments in pairs]
            )
        yield rows, batch if device.type == "cpu" else batch.to(device)


def pool(network: "Network", batch: "Batch", pooling: "Pooling") -> "Tensor":
    """Return one float32 vector for each sequence, (sequences, hidden): [CLS], or its
    tokens' mean or maximum.
    """
    from litebert.nn import pool_rows

    states: Tensor = network.albert(
        batch, batch.first_tokens if pooling == "cls" else None
    ).float()
    return states if pooling == "cls" else pool_rows(states, batch, pooling)


def window(places: Sequence[int], size: int, room: int) -> slice:
    """Return which of `size` tokens to read: at most `room`, with all `places` among
    them, near the middle.

    >>> window([700], 1000, 10)
    slice(695, 705, None)
    """
    first = min(places)
    last = max(places)
    if last - first >= room:
        what = (
            f"the blanks, or the ends of the answer, are {last - first:,} tokens apart;"
            f" at most {room:,} are read"
        )
        raise LitebertError("LB-934", what, next="give parts of the text one by one")
    start = min(max(0, (first + last + 1) // 2 - room // 2), max(0, size - room))
    return slice(start, start + room)


def sum_by_word(
    text: str, offsets: Sequence[tuple[int, int]], values: Sequence[float]
) -> list[tuple[str, int, int, float]]:
    """Add up the values of the pieces of each word, (word, start, end, value); words
    end at white space.

    >>> sum_by_word("a cat", [(0, 1), (2, 3), (3, 5)], [1.0, 2.0, 3.0])
    [('a', 0, 1, 1.0), ('cat', 2, 5, 5.0)]
    """
    words: list[tuple[str, int, int, float]] = []
    for (start, end), value in zip(offsets, values, strict=True):
        _, begin, stop, total = words[-1] if words else ("", 0, 0, 0.0)
        # the last word continues
        if words and not any(map(str.isspace, text[stop : max(start, stop)])):
            end = max(end, stop)
            words[-1] = (text[begin:end], begin, end, total + value)
        else:
            words.append((text[start:end], start, end, value))
    return words
