"""A loaded model with its verbs, on strings: fill, order, embed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from litebert.errors import LitebertError
from litebert.folder import load_model
from litebert.nn import AlbertForPretraining, Batch, Network
from litebert.tasks.framing import frame_ids
from litebert.tokenizer import Tokenizer

TOKENS_AT_ONCE = 8_192


@dataclass(frozen=True)
class Filling:
    """One way to fill the blanks of a text."""

    text: str
    words: tuple[str, ...]
    probability: float


@dataclass(frozen=True)
class Order:
    """Which of two sentences comes first; `probability` is that of the order as given."""

    is_in_order: bool
    probability: float


class Model:
    """A pretrained network with its tokenizer; make one with `litebert.load`."""

    def __init__(
        self,
        network: Network,
        tokenizer: Tokenizer,
        *,
        missing: frozenset[str] = frozenset(),
        source: str = "this model",
    ) -> None:
        self.network, self.tokenizer = network.eval(), tokenizer
        self._missing, self._source = missing, source

    @classmethod
    def load(cls, path: str | Path, *, dtype: torch.dtype = torch.float32) -> Model:
        """Read a model folder; verbs whose weights it lacks refuse when called."""
        folder = Path(path)
        loaded = load_model(folder, dtype=dtype)
        return cls(
            loaded.network, Tokenizer.load(folder), missing=loaded.missing, source=str(folder)
        )

    @torch.inference_mode()
    def fill(self, text: str, *, top: int = 5) -> list[Filling]:
        """Return the `top` likeliest fillings of every [MASK] in a text, best first.

        Blanks are filled independently; the probability is the product of theirs.
        """
        network = self._pretraining("masked_lm", "fill")
        ids = self.tokenizer.encode(text, special_tokens=True, frame=False).ids
        if self.tokenizer.mask_id not in ids:
            raise LitebertError(
                "LB-610",
                "there is nothing to fill in this text",
                received=text,
                expected="at least one [MASK]",
                next='litebert fill "The cat sat on the [MASK]."',
            )
        batch = self._batch([ids], None)
        positions = torch.nonzero(batch.ids == self.tokenizer.mask_id).flatten()
        hidden, table = network.albert(batch), network.albert.embedding.word.weight
        logits = network.masked_lm(hidden[positions], table).float()
        logits[:, self._special_ids()] = -torch.inf
        return [
            Filling(_filled(text, words), tuple(words), probability)
            for words, probability in self._likeliest(logits.softmax(-1), top)
        ]

    @torch.inference_mode()
    def order(self, first: str, second: str) -> Order:
        """Say whether `first` comes before `second` in running text."""
        network = self._pretraining("sentence_order", "order")
        a, b = (self.tokenizer.encode(text).ids for text in (first, second))
        batch = self._batch([a], [b])
        pooled = network.albert.pool(network.albert(batch), batch)
        logits = network.sentence_order(pooled)
        probability = float(logits.softmax(-1)[0, 0])
        return Order(probability >= 0.5, probability)

    @torch.inference_mode()
    def embed(
        self, texts: Sequence[str], *, pooling: Literal["mean", "cls"] = "mean"
    ) -> NDArray[np.float32]:
        """Return one vector of size H for each text: the mean of its tokens, or its [CLS].

        A model that was only pretrained pools badly; fine-tune before you rely on distances.
        """
        if isinstance(texts, str):
            raise LitebertError(
                "LB-611",
                "embed takes a list of texts",
                received="one string",
                expected="a list of strings",
                next="model.embed([text])",
            )
        encoded = [encoding.ids for encoding in self.tokenizer.encode_batch(list(texts))]
        vectors = np.zeros((len(encoded), self.network.config.hidden_size), dtype=np.float32)
        for rows in _by_length([len(ids) for ids in encoded]):
            batch = self._batch([encoded[row] for row in rows], None)
            hidden = self.network.albert(batch).float()
            pooled = _means(hidden, batch) if pooling == "mean" else hidden[batch.first_tokens]
            vectors[rows] = pooled.cpu().numpy()
        return vectors

    def _batch(
        self, first: Sequence[Sequence[int]], second: Sequence[Sequence[int]] | None
    ) -> Batch:
        longest = self.network.config.max_position_embeddings
        pairs = zip(first, second if second is not None else [None] * len(first), strict=True)
        framed = [frame_ids(self.tokenizer, a, b, max_length=longest) for a, b in pairs]
        batch = Batch.from_lists([ids for ids, _ in framed], [segments for _, segments in framed])
        return batch.to(next(self.network.parameters()).device)

    def _likeliest(self, probabilities: Tensor, top: int) -> list[tuple[list[str], float]]:
        """Return the best combinations of words over all blanks."""
        beams: list[tuple[list[str], float]] = [([], 1.0)]
        for blank in probabilities:
            best = blank.topk(min(top, len(blank)))
            words = [self.tokenizer.decode([piece]) for piece in best.indices.tolist()]
            longer = [
                ([*chosen, word], so_far * p)
                for chosen, so_far in beams
                for word, p in zip(words, best.values.tolist(), strict=True)
                if p > 0
            ]
            beams = sorted(longer, key=lambda beam: -beam[1])[:top]
        return beams

    def _special_ids(self) -> list[int]:
        tokenizer = self.tokenizer
        return [
            tokenizer.pad_id,
            tokenizer.unk_id,
            tokenizer.cls_id,
            tokenizer.sep_id,
            tokenizer.mask_id,
        ]

    def _pretraining(self, head: str, verb: str) -> AlbertForPretraining:
        """Return the network if it has a pretraining head; say what it lacks if not."""
        if isinstance(self.network, AlbertForPretraining):
            absent = [name for name in self._missing if name.startswith((f"{head}.", "albert."))]
            needed = [name for name in absent if head != "masked_lm" or "pooler" not in name]
            if not needed:
                return self.network
            lack = f"no {', '.join(sorted(needed)[:3])}"
        else:
            lack = f"a {self.network.head_config.kind} head"
        raise LitebertError(
            "LB-612",
            f"{self._source} cannot {verb}: its file lacks weights for that",
            received=lack,
            expected=f"the {head} head; hub files often come without sentence order",
            next="use a model that litebert pretrained, or pretrain this one further",
        )


def _filled(text: str, words: Sequence[str]) -> str:
    for word in words:
        text = text.replace("[MASK]", word, 1)
    return text


def _means(hidden: Tensor, batch: Batch) -> Tensor:
    sums = hidden.new_zeros(len(batch.lengths), hidden.shape[1])
    owner = torch.arange(len(batch.lengths), device=hidden.device).repeat_interleave(
        batch.offsets.diff()
    )
    return sums.index_add_(0, owner, hidden) / batch.offsets.diff().unsqueeze(1)


def _by_length(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield row numbers, similar lengths together, at most TOKENS_AT_ONCE tokens in one go."""
    rows: list[int] = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        if rows and (len(rows) + 1) * (lengths[row] + 2) > TOKENS_AT_ONCE:
            yield rows
            rows = []
        rows.append(row)
    if rows:
        yield rows
