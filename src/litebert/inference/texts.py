"""What goes into the verbs of a model, checked where it enters, and how it becomes sequences, vectors and words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from numbers import Integral
from typing import TYPE_CHECKING, Literal, TypeAlias

from litebert.errors import LitebertError

if TYPE_CHECKING:  # torch is imported where it is used
    from torch import Tensor

    from litebert.nn import Batch, Network
    from litebert.tokenizer import Tokenizer

Texts: TypeAlias = str | Iterable[str]
Pooling: TypeAlias = Literal["mean", "cls", "max"]


def several(texts: Texts, verb: str) -> list[str]:
    """Return one text or several as a list.

    >>> several("one", "fill"), several(("one", "two"), "fill")
    (['one'], ['one', 'two'])
    """
    found = [texts] if isinstance(texts, str) or not _is_list(texts) else list(texts)
    for text in found:
        if not isinstance(text, str):
            received = f"{text!r:.100} ({type(text).__name__})"
            advice = "give every text as a str; of a table, one column"
            raise LitebertError("LB-611", f"{verb} takes texts", received=received, next=advice)
    return [str(text) for text in found]  # numpy's strings become plain ones


def _is_list(texts: Texts) -> bool:
    """Tell whether texts come in an order of their own, as those of a set or a table do not."""
    is_flat = getattr(texts, "ndim", 1) == 1
    return isinstance(texts, Iterable) and is_flat and not isinstance(texts, bytes | Mapping | Set)


def several_only(texts: Iterable[str], verb: str, name: str) -> Iterable[str]:
    """Refuse a single string, which would be taken for a list of characters."""
    if isinstance(texts, str):
        raise LitebertError("LB-930", f"{verb} takes several {name}, not one string", next=f"put the {name} in a list")
    return texts if _is_list(texts) else several(texts, verb)


def paired(texts: Texts, pairs: Texts | None, verb: str) -> tuple[list[str], list[str] | None]:
    """Return the texts, and the second text of each pair; None without pairs."""
    listed, seconds = several(texts, verb), None if pairs is None else several(pairs, verb)
    if seconds is not None and len(seconds) != len(listed):
        what = f"{len(listed)} texts and {len(seconds)} pairs do not match"
        raise LitebertError("LB-931", what, next="give one pair for each text")
    return listed, seconds


def count(value: int, name: str, *, least: int = 1) -> int:
    """Return a count, such as the number of answers, if it is a whole number that can be."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        what = f"{name} is a whole number, {least} or more"
        raise LitebertError("LB-932", what, received=value, next=f"{name}=5")
    return int(value)


# Sequences of pieces


def frame(
    network: Network,
    tokenizer: Tokenizer,
    first: Sequence[Sequence[int]],
    second: Sequence[Sequence[int]] | None = None,
    *,
    longest: int | None = None,
) -> Batch:
    """Return [CLS] first [SEP] (second [SEP]) of each sequence, cut to what the model can read, on its device."""
    from litebert.nn import Batch
    from litebert.tasks.kinds.family import frame_ids

    longest = min(longest or 1 << 30, network.config.max_position_embeddings)
    if second is None:
        batch = Batch.from_lists([[tokenizer.cls_id, *ids[: longest - 2], tokenizer.sep_id] for ids in first])
    else:
        framed = [frame_ids(tokenizer, a, b, max_length=longest) for a, b in zip(first, second, strict=True)]
        batch = Batch.from_lists([ids for ids, _ in framed], [segments for _, segments in framed])
    device = network.albert.embedding.norm.weight.device  # a plain parameter, in eight bits too
    return batch if device.type == "cpu" else batch.to(device)


def pool(network: Network, batch: Batch, pooling: Pooling) -> Tensor:
    """Return one float32 vector for each sequence, (sequences, hidden): [CLS], or its tokens' mean or maximum."""
    import torch

    from litebert.nn.batch import mean_by_sequence

    hidden: Tensor = network.albert(batch, batch.first_tokens if pooling == "cls" else None).float()
    if pooling == "max":
        return torch.segment_reduce(hidden, "max", lengths=batch.offsets.diff())
    return hidden if pooling == "cls" else mean_by_sequence(hidden, batch)


def window(places: Sequence[int], size: int, room: int) -> slice:
    """Return which of `size` tokens to read: at most `room`, all `places` among them, in the middle.

    >>> window([700], 1000, 10)
    slice(695, 705, None)
    >>> window([2], 1000, 10)
    slice(0, 10, None)
    """
    first, last = min(places), max(places)
    if last - first >= room:
        what = f"the blanks are {last - first:,} tokens apart; the model reads {room:,} at once"
        raise LitebertError("LB-934", what, next="fill parts of the text one by one")
    start = min(max(0, (first + last + 1) // 2 - room // 2), max(0, size - room))
    return slice(start, start + room)


def by_word(
    text: str, offsets: Sequence[tuple[int, int]], values: Sequence[float]
) -> list[tuple[str, int, int, float]]:
    """Add up the values of the pieces of each word, (word, start, end, value); words end at white space.

    >>> by_word("a cat", [(0, 1), (2, 3), (3, 5)], [1.0, 2.0, 3.0])
    [('a', 0, 1, 1.0), ('cat', 2, 5, 5.0)]
    """
    words: list[tuple[str, int, int, float]] = []
    for (start, end), value in zip(offsets, values, strict=True):
        _, begin, stop, total = words[-1] if words else ("", 0, 0, 0.0)
        if words and not any(map(str.isspace, text[stop : max(start, stop)])):  # the last word continues
            end = max(end, stop)
            words[-1] = (text[begin:end], begin, end, total + value)
        else:
            words.append((text[start:end], start, end, value))
    return words
