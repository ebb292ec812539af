"""Inputs of a model's verbs: checked where they enter, and turned into sequences,
vectors and words.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from litebert.config import Pooling
from litebert.errors import LitebertError, did_you_mean, format_count, no_such_name
from litebert.tokenizer.models import SPACE

if TYPE_CHECKING:  # torch is imported where it is used
    from torch import Tensor

    from litebert.config import Precision
    from litebert.folder import ModelFolder, SentenceVectors
    from litebert.folder.vectors import Similarity
    from litebert.nn import Batch, Network
    from litebert.tokenizer import Tokenizer

Texts: TypeAlias = str | Iterable[str]
MASK = "[MASK]"


def as_list(texts: Texts, verb: str) -> list[str]:
    """Return one text or several as a list.

    >>> as_list("one", "fill"), as_list(("one", "two"), "fill")
    (['one'], ['one', 'two'])
    """
    listed = list(texts) if is_list(texts) else [texts]
    for number, text in enumerate(listed, 1):
        if not isinstance(text, str):
            received = f"{text!r:.100} ({type(text).__name__})"
            if len(listed) > 1:
                received += f" as text {number:,} of {len(listed):,}"
            raise LitebertError(
                "LB-611",
                f"{verb} takes texts",
                received=received,
                next="give every text as a str; from a table, give one column",
            )
    return [str(text) for text in listed]  # numpy's strings become plain ones


def is_list(texts: object) -> bool:
    """Return whether texts come as an ordered collection; sets and tables are none."""
    if isinstance(texts, str | bytes | Mapping | Set):
        return False
    is_flat = getattr(texts, "ndim", 1) == 1
    return isinstance(texts, Iterable) and is_flat


def as_pairs(
    texts: Texts, pairs: Texts | None, verb: str
) -> tuple[list[str], list[str] | None]:
    """Return the texts, and the second text of each pair; None without pairs."""
    listed = as_list(texts, verb)
    seconds = None if pairs is None else as_list(pairs, verb)
    if seconds is not None and len(seconds) != len(listed):
        raise LitebertError(
            "LB-931",
            f"{format_count(len(listed), 'text')} and"
            f" {format_count(len(seconds), 'pair')} do not match",
            next="give one pair for each text",
        )
    return listed, seconds


def require_count(value: int, name: str, *, least: int = 1) -> int:
    """Return a count, such as the number of answers, if it is a whole number and not
    below `least`.
    """
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_whole or value < least:
        raise LitebertError(
            "LB-932",
            f"{name} is a whole number, {least} or more",
            received=value,
            next=f"{name}=5",
        )
    return int(value)


def open_network(
    folder: Path,
    precision: "Precision | None",
    device: str = "auto",
) -> "ModelFolder":
    """Load a network for inference on a device, with activations of a precision (by
    default, the device's).
    """
    from litebert.device import choose_device
    from litebert.folder import read_folder

    chosen = choose_device(device)
    dtype = chosen.dtype(precision)
    return read_folder(folder, dtype=dtype, for_inference=True, device=chosen)


# ---- sequences of pieces -------------------------------------------------------------


def encode_blanks(tokenizer: "Tokenizer", texts: Sequence[str]) -> list[list[int]]:
    """Return the ids of each text, with [MASK] as blanks.

    The tokenizer, like transformers, begins a word after every special piece: `on the
    [MASK] ▁ .` for "on the [MASK].". In training, words of whole sentences are masked,
    so what follows a blank without a space begins no word there.
    """
    ids_of_texts = tokenizer.encode_ids(texts, special_tokens=True)
    pairs = zip(texts, ids_of_texts, strict=True)
    return [_join_to_blanks(tokenizer, text, ids) for text, ids in pairs]


def _join_to_blanks(tokenizer: "Tokenizer", text: str, ids: Sequence[int]) -> list[int]:
    """Return the ids of one text, with each piece that follows a blank without a space
    as a part of the blank's word.
    """
    blanks = re.finditer(re.escape(MASK), text)
    joined = list[int]()
    continues_blank = False
    for id_ in ids:
        joined_id = _inside_word(tokenizer, id_) if continues_blank else id_
        if joined_id is not None:
            joined.append(joined_id)
        continues_blank = False
        if id_ == tokenizer.mask_id:
            end = next(blanks).end()
            continues_blank = not text[end : end + 1].isspace()
    return joined


def _inside_word(tokenizer: "Tokenizer", id_: int) -> int | None:
    """Return the piece that continues a word with the letters of one that begins it, if
    the vocabulary has it; None for a lone "▁", which has no letters.
    """
    piece = tokenizer.pieces[id_]
    if piece == SPACE:
        return None
    if not piece.startswith(SPACE):
        return id_
    inside = tokenizer.id(piece.removeprefix(SPACE))
    return id_ if inside == tokenizer.unk_id else inside


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
    from litebert.device import device_of
    from litebert.nn import Batch, group_by_length
    from litebert.tasks.kinds.family import frame_ids

    device = device_of(network)
    max_length = network.config.max_position_embeddings
    if longest is not None:
        max_length = min(longest, max_length)
    lengths = list[int]()
    for row, pieces in enumerate(first):
        size = len(pieces) + 3  # [CLS] and two [SEP]
        if second is not None:
            size += len(second[row])
        lengths.append(min(size, max_length))

    for rows in group_by_length(lengths, device.tokens_at_once):
        ids = list[list[int]]()
        segments = list[list[int]]()
        for row in rows:
            pair = None if second is None else second[row]
            ids_of_row, segments_of_row = frame_ids(
                tokenizer, first[row], pair, max_length=max_length
            )
            ids.append(ids_of_row)
            segments.append(segments_of_row)
        yield rows, Batch.from_lists(ids, segments).to(device)


# ---- vectors of texts ----------------------------------------------------------------


def chosen_vectors(
    vectors: "SentenceVectors",
    hidden_size: int,
    *,
    pooling: "Pooling | None",
    max_length: int | None,
    prompt: str | None,
    dimensions: int | None,
) -> "SentenceVectors":
    """Return how texts become vectors: as the folder says, with what a caller
    chose.
    """
    if pooling not in (None, *get_args(Pooling)):
        raise no_such_name(
            "LB-674",
            "there is no such pooling",
            str(pooling),
            get_args(Pooling),
            next='model.embed(texts, pooling="mean")',
        )
    if prompt and prompt not in vectors.prompts:
        known = "no prompt: this model has none"
        if vectors.prompts:
            known = did_you_mean(str(prompt), vectors.prompts)
        raise LitebertError(
            "LB-678",
            "the model has no such prompt",
            received=prompt,
            expected=known,
            next="put the words before each text instead of naming a prompt",
        )
    width = vectors.width(hidden_size)
    if dimensions is not None and require_count(dimensions, "dimensions") > width:
        raise LitebertError(
            "LB-679",
            f"vectors of this model have {width:,} dimensions",
            received=dimensions,
            expected=f"1 to {width:,}",
            next=f"dimensions={width}",
        )
    longest = vectors.max_length
    if max_length is not None:
        longest = require_count(max_length, "max_length", least=3)
    default_prompt = vectors.default_prompt if prompt is None else prompt
    return replace(
        vectors,
        pooling=pooling or vectors.pooling,
        max_length=longest,
        default_prompt=default_prompt,
        dimensions=dimensions or vectors.dimensions,
    )


def embed_texts(
    network: "Network",
    tokenizer: "Tokenizer",
    texts: Sequence[str],
    vectors: "SentenceVectors",
    *,
    normalize: bool | None = None,
) -> NDArray[np.float32]:
    """Return the vectors of texts, (texts, width).

    As sentence-transformers does, the model normalizes before dimensions are cut off;
    `normalize=True` also does so afterwards, False does neither.
    """
    import torch

    positions = network.config.max_position_embeddings
    prompt = vectors.prompt()
    encoded = tokenizer.encode_ids(
        [tokenizer.beginning(prompt + text, positions) for text in texts]
    )
    # [CLS] and the pieces of the prompt, which some models do not pool
    skipped = 0
    if prompt and not vectors.pools_prompt:
        skipped = 1 + len(tokenizer.encode_ids([prompt])[0])
    width = vectors.width(network.config.hidden_size)
    kept = vectors.length(network.config.hidden_size)
    rows_of = np.zeros((len(encoded), kept), dtype=np.float32)
    is_unit = vectors.normalize if normalize is None else normalize
    for rows, batch in frame_batches(
        network, tokenizer, encoded, longest=vectors.max_length
    ):
        with torch.inference_mode():
            pooled = pool(network, batch, vectors, skipped=skipped)  # (texts, width)
            if is_unit:
                pooled = torch.nn.functional.normalize(pooled)
            if kept < width:
                pooled = pooled[:, :kept]
            if kept < width and normalize:
                pooled = torch.nn.functional.normalize(pooled)
            rows_of[rows] = pooled.cpu().numpy()
    return rows_of


def pool(
    network: "Network",
    batch: "Batch",
    vectors: "SentenceVectors",
    *,
    skipped: int = 0,
) -> "Tensor":
    """Return one float32 vector for each sequence, (sequences, width), before
    normalization; the first `skipped` tokens do not count.
    """
    reads_first = vectors.pooling == "cls" and not skipped
    if reads_first:
        firsts: Tensor = network.albert(batch, batch.first_tokens).float()
        return vectors.project(firsts)
    states: Tensor = network.albert(batch).float()
    return vectors.pool(states, batch, skipped=skipped)


def compare(
    left: NDArray[np.float32], right: NDArray[np.float32], similarity: "Similarity"
) -> NDArray[np.float32]:
    """Return the similarity of every pair of vectors, (left, right); distances are
    negative, so that more is nearer.
    """
    if similarity == "cosine":
        return to_unit(left) @ to_unit(right).T
    if similarity == "dot":
        return left @ right.T
    order = 1 if similarity == "manhattan" else 2
    scores = np.zeros((len(left), len(right)), dtype=np.float32)
    for number, vector in enumerate(left):
        scores[number] = -np.linalg.norm(right - vector, ord=order, axis=1)
    return scores


def to_unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return vectors scaled to length 1; zeros stay zeros."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    unit: NDArray[np.float32] = vectors / np.maximum(norms, 1e-12)
    return unit


# ---- parts of texts ------------------------------------------------------------------


def window(places: Sequence[int], size: int, room: int) -> slice:
    """Return which of `size` tokens to read: at most `room`, with all `places` among
    them, near the middle.

    >>> window([700], 1000, 10)
    slice(695, 705, None)
    """
    first = min(places)
    last = max(places)
    if last - first >= room:
        raise LitebertError(
            "LB-934",
            f"the blanks, or the ends of the answer, are {last - first:,} tokens apart;"
            f" at most {room:,} are read",
            next="give parts of the text one by one",
        )
    centered = (first + last + 1) // 2 - room // 2
    latest = max(0, size - room)  # which still fills the room
    start = min(max(0, centered), latest)
    return slice(start, start + room)


@dataclass
class WordSum:
    """A word of a text, text[start:end], with the sum of the values of its pieces."""

    start: int
    end: int
    value: float


def sum_by_word(
    text: str, offsets: Sequence[tuple[int, int]], values: Sequence[float]
) -> list[WordSum]:
    """Add up the values of the pieces of each word; words end at white space.

    >>> sum_by_word("a cat", [(0, 1), (2, 3), (3, 5)], [1.0, 2.0, 3.0])
    [WordSum(start=0, end=1, value=1.0), WordSum(start=2, end=5, value=5.0)]
    """
    words = list[WordSum]()
    for (start, end), value in zip(offsets, values, strict=True):
        if words:
            word = words[-1]
            space = text[word.end : start]
            if not any(letter.isspace() for letter in space):
                word.end = max(word.end, end)
                word.value += value
                continue
        words.append(WordSum(start, end, value))
    return words
