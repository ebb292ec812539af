"""The heads of the padded network: one small module for each kind of output."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from litebert.interop.export.padded import Affine, PaddedChoices, PaddedEncoder, PaddedNetwork, Reader
from litebert.nn import AlbertForPretraining, AlbertForTask, Network
from litebert.nn.heads import LinearHead, MaskedLMHead
from litebert.tasks.kinds.family import NEVER
from litebert.tasks.kinds.spans.head import ConditionalSpanHead, SpanPieces, conditional_spans
from litebert.tasks.kinds.vectors import VectorHead, vector_rows

NUM_STARTS = 5
"""Number of likeliest starts whose ends the graph scores (official flag start_n_top)."""


def padded(
    network: Network, *, missing: frozenset[str] = frozenset(), has_head: bool = True, has_states: bool = False
) -> PaddedNetwork:
    """Return the network for padded rectangles, without what is `missing` from its file.

    Without a head its outputs are `last_hidden_state`, and `pooler_output` if there is a pooler;
    `has_states` adds `last_hidden_state` to the outputs of a head.
    """
    encoder = PaddedEncoder(network.albert)
    if not has_head:
        readers = _state_readers(network, missing)
    elif isinstance(network, AlbertForPretraining):
        readers = _pretraining_readers(network, missing) or _state_readers(network, missing)
    else:
        readers = [_task_reader(network)]
    if has_states and not isinstance(readers[0], _States):
        readers = [_States(), *readers]
    head = network.head_config if has_head and isinstance(network, AlbertForTask) else None
    kind = PaddedChoices if head and head.record.has_choices else PaddedNetwork
    return kind(encoder, readers).eval()


def _state_readers(network: Network, missing: frozenset[str]) -> list[Reader]:
    pooler = network.albert.pooler
    if pooler is None or "albert.pooler.weight" in missing:
        return [_States()]
    return [_States(), _Pooled(pooler)]


def _pretraining_readers(network: AlbertForPretraining, missing: frozenset[str]) -> list[Reader]:
    def has(*parts: str) -> bool:
        return not any(name.startswith(parts) for name in missing)

    readers: list[Reader] = []
    if has("masked_lm."):
        words = network.albert.embedding.word
        readers.append(_MaskedLM(network.masked_lm, words))
    if has("sentence_order.", "albert.pooler."):
        assert network.albert.pooler is not None
        classifier = cast(nn.Linear, network.sentence_order[0])
        readers.append(_PooledLogits(network.albert.pooler, classifier, "sop_logits"))
    return readers


def _task_reader(network: AlbertForTask) -> Reader:
    if isinstance(network.head, ConditionalSpanHead):
        return _ConditionalSpanLogits(network.head)
    if isinstance(network.head, VectorHead):
        return _VectorLogits(network.head.dense)
    assert isinstance(network.head, LinearHead)
    dense = network.head.dense
    if network.albert.pooler is not None:
        return _PooledLogits(network.albert.pooler, dense, "logits")
    names = network.head_config.record.logits
    return _TokenLogits(dense) if len(names) == 1 else _SpanLogits(dense, names)


class _States(Reader):
    output_names = ("last_hidden_state",)

    def forward(self, hidden: Tensor, _mask: Tensor, _segments: Tensor) -> tuple[Tensor, ...]:
        return (hidden,)


class _Pooled(Reader):
    output_names: tuple[str, ...] = ("pooler_output",)

    def __init__(self, pooler: nn.Linear) -> None:
        super().__init__()
        self.pooler = Affine.of(pooler)

    def forward(self, hidden: Tensor, _mask: Tensor, _segments: Tensor) -> tuple[Tensor, ...]:
        return (torch.tanh(self.pooler(hidden[:, 0])),)


class _PooledLogits(_Pooled):
    def __init__(self, pooler: nn.Linear, classifier: nn.Linear, name: str) -> None:
        super().__init__(pooler)
        self.classifier = Affine.of(classifier)
        self.output_names = (name,)

    def forward(self, hidden: Tensor, mask: Tensor, segments: Tensor) -> tuple[Tensor, ...]:
        (pooled,) = super().forward(hidden, mask, segments)
        return (self.classifier(pooled),)


class _MaskedLM(Reader):
    """Scores of every word at every position; the word table is the encoder's own."""

    output_names = ("prediction_logits",)

    def __init__(self, head: MaskedLMHead, words: nn.Embedding) -> None:
        super().__init__()
        self.dense, self.norm = Affine.of(head.dense), head.norm
        self.activation = head.activation
        self.table, self.bias = words.weight, head.bias

    def forward(self, hidden: Tensor, _mask: Tensor, _segments: Tensor) -> tuple[Tensor, ...]:
        embedded = self.norm(self.activation(self.dense(hidden)))
        return (embedded @ self.table.T + self.bias,)


class _TokenLogits(Reader):
    output_names: tuple[str, ...] = ("logits",)

    def __init__(self, dense: nn.Linear) -> None:
        super().__init__()
        self.dense = Affine.of(dense)

    def forward(self, hidden: Tensor, _mask: Tensor, _segments: Tensor) -> tuple[Tensor, ...]:
        return (self.dense(hidden),)


class _VectorLogits(_TokenLogits):
    """Logits of a text or a pair from the means of its tokens."""

    def forward(self, hidden: Tensor, mask: Tensor, segments: Tensor) -> tuple[Tensor, ...]:
        is_second = mask * segments.clamp(max=1)
        first, second = ((hidden * chosen.unsqueeze(-1)).sum(1) for chosen in (mask - is_second, is_second))
        rows = vector_rows(first, second, is_second.amax(1, keepdim=True))
        return (self.dense(rows),)


class _SpanLogits(_TokenLogits):
    """Logits of starts and ends, each an output; padding can be neither."""

    def __init__(self, dense: nn.Linear, names: tuple[str, ...]) -> None:
        super().__init__(dense)
        self.output_names = names

    def forward(self, hidden: Tensor, mask: Tensor, segments: Tensor) -> tuple[Tensor, ...]:
        (logits,) = super().forward(hidden, mask, segments)
        return logits.masked_fill(mask[..., None] == 0, NEVER).unbind(-1)


class _ConditionalSpanLogits(Reader):
    """The official SQuAD 2.0 beam: log-probabilities of starts, and of ends after the best of them.

    A span may be on [CLS] or in the paragraph: segment 1 up to the closing [SEP].
    """

    output_names = ("start_logits", "start_top_index", "end_logits", "no_answer_logits")
    shortest = NUM_STARTS

    def __init__(self, head: ConditionalSpanHead) -> None:
        super().__init__()
        for_token, for_start = head.end_hidden.weight.chunk(2, dim=1)
        self.start, self.end = Affine.of(head.start), Affine.of(head.end)
        self.end_token = Affine(for_token, head.end_hidden.bias)
        self.end_start = Affine(for_start, None)
        self.end_norm = head.end_norm
        self.answer_hidden, self.answer = Affine.of(head.answer_hidden), Affine.of(head.answer)

    def forward(self, hidden: Tensor, mask: Tensor, segments: Tensor) -> tuple[Tensor, ...]:
        allowed = allowed_positions(mask, segments)
        hidden = hidden * mask.unsqueeze(-1)  # where fewer than five starts are allowed
        pieces = SpanPieces(*(getattr(self, name) for name in SpanPieces._fields))
        return tuple(conditional_spans(hidden, allowed, NUM_STARTS, pieces))


def allowed_positions(mask: Tensor, segments: Tensor) -> Tensor:
    """Return where a span may be, (batch, length): on [CLS], or in segment 1 before its [SEP].

    >>> segments = torch.tensor([[0, 0, 0, 1, 1, 1, 0]])
    >>> allowed_positions(torch.tensor([[1, 1, 1, 1, 1, 1, 0]]), segments).int().tolist()
    [[1, 0, 0, 1, 1, 0, 0]]
    """
    column = torch.arange(mask.shape[1], device=mask.device)
    last = mask.sum(-1, keepdim=True) - 1
    return (column == 0) | ((segments == 1) & (column < last))
