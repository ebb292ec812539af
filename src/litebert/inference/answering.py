"""What a network answers, on strings: blanks, likelihoods, order and vectors; labels, tags, choices and spans.

Texts are read in ragged batches of like lengths, at most `TOKENS_AT_ONCE` tokens together, so that a hundred short
texts cost one pass and a long one costs no more memory.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from litebert.answers import (
    Choice,
    Classification,
    Coherence,
    Filling,
    Join,
    Match,
    Order,
    Results,
    Score,
    SpanFound,
    Tagged,
    WordScore,
)
from litebert.errors import LitebertError
from litebert.fast.exits import require_exits
from litebert.folder.sentence_vectors import Pooling, SentenceVectors
from litebert.nn import AlbertForPretraining, AlbertForTask, Batch, Network
from litebert.nn.batch import by_length, mean_by_sequence
from litebert.tasks.finetuning import answer as answers_of
from litebert.tasks.kinds.choice import ChoiceExample, MultipleChoice
from litebert.tasks.kinds.family import Family, frame_ids
from litebert.tasks.kinds.spans import SPAN_FAMILIES, ConditionalSpanAnswering, SpanAnswer, SpanAnswering, SpanExample
from litebert.tasks.kinds.tagging import TagExample, TokenClassification
from litebert.tasks.kinds.text import TextClassification, TextExample
from litebert.tokenizer import Tokenizer

MASK = "[MASK]"
BLANKS_AT_ONCE = 256
"""Blanks whose probabilities of all pieces are held together: 30 MB with 30,000 pieces."""
WINDOWS_AT_ONCE = 256
"""Windows that are held in memory together; a context of 33,000 tokens has about as many."""
_WORD = re.compile(r"\w+(?:[-'’.,]\w+)*|[^\w\s]")
Example = TypeVar("Example")
Answer = TypeVar("Answer")


def frame(
    network: Network,
    tokenizer: Tokenizer,
    first: Sequence[Sequence[int]],
    second: Sequence[Sequence[int]] | None = None,
    *,
    longest: int | None = None,
) -> Batch:
    """Return [CLS] first [SEP] (second [SEP]) of each sequence, cut to what the model can read, on its device."""
    longest = min(longest or 1 << 30, network.config.max_position_embeddings)
    if second is None:
        batch = Batch.from_lists([[tokenizer.cls_id, *ids[: longest - 2], tokenizer.sep_id] for ids in first])
    else:
        framed = [frame_ids(tokenizer, a, b, max_length=longest) for a, b in zip(first, second, strict=True)]
        batch = Batch.from_lists([ids for ids, _ in framed], [segments for _, segments in framed])
    device = network.albert.embedding.norm.weight.device  # a plain parameter, in eight bits too
    return batch if device.type == "cpu" else batch.to(device)


def window(places: Sequence[int], size: int, room: int) -> slice:
    """Return which of `size` tokens to read: at most `room`, all `places` among them, in the middle.

    >>> window([700], 1000, 10)
    slice(695, 705, None)
    >>> window([2], 1000, 10)
    slice(0, 10, None)
    """
    first, last = min(places), max(places)
    if last - first >= room:
        received = f"{last - first + 1:,} tokens from the first [MASK] to the last"
        expected = f"at most {room:,}, as many as the model reads at once"
        advice = "fill parts of the text one by one"
        raise LitebertError("LB-934", "the blanks are too far apart", received=received, expected=expected, next=advice)
    start = min(max(0, (first + last + 1) // 2 - room // 2), max(0, size - room))
    return slice(start, start + room)


# Blanks and likelihoods: the masked LM


def masked_logits(network: AlbertForPretraining, batch: Batch, positions: Tensor) -> Float[Tensor, "positions vocab"]:
    """Return the logits of every piece at some token positions, in float32."""
    logits: Tensor = network.masked_lm(network.albert(batch, positions), network.albert.embedding.word.weight)
    return logits.float()


@torch.inference_mode()
def fill(
    network: AlbertForPretraining, tokenizer: Tokenizer, texts: Sequence[str], *, top: int
) -> list[Results[Filling]]:
    """Return the `top` likeliest fillings of every [MASK] in each text, best first.

    In a text longer than the model reads, the part around the blanks is read.
    """
    room = network.config.max_position_embeddings - 2
    encoded = tokenizer.encode_ids(texts, special_tokens=True, num_threads=1 if len(texts) == 1 else -1)
    for number, ids in enumerate(encoded):
        if tokenizer.mask_id not in ids:
            what, example = "there is nothing to fill in this text", 'litebert fill "The cat sat on the [MASK]."'
            raise LitebertError("LB-610", what, received=texts[number], expected="at least one [MASK]", next=example)
        if len(ids) > room:
            blanks = [place for place, id_ in enumerate(ids) if id_ == tokenizer.mask_id]
            encoded[number] = ids[window(blanks, len(ids), room)]

    found: list[Results[Filling]] = [Results()] * len(texts)
    for rows in by_length([len(ids) + 2 for ids in encoded]):
        batch = frame(network, tokenizer, [encoded[row] for row in rows])
        blanks_of_batch = (batch.ids == tokenizer.mask_id).nonzero().flatten()
        hidden, table = network.albert(batch, blanks_of_batch), network.albert.embedding.word.weight
        words: list[list[tuple[str, float]]] = []  # of each blank, the likeliest words with their probabilities
        for some in hidden.split(BLANKS_AT_ONCE):
            logits = network.masked_lm(some, table).float()  # (blanks, vocab)
            # A word can be spelt by two pieces, the one that begins a word and the one that continues it ("▁he" and
            # "he"): their probabilities are added up. Special pieces and a lone "▁" are no words.
            alike = torch.from_numpy(tokenizer.first_alike).to(logits.device)
            logits[:, [*tokenizer.special_ids, *tokenizer.textless_ids]] = -torch.inf
            best = torch.zeros_like(logits).index_add_(1, alike, logits.softmax(-1)).topk(min(top, logits.shape[1]))
            for pieces, values in zip(best.indices.tolist(), best.values.tolist(), strict=True):
                words.append([(tokenizer.decode([id_]), p) for id_, p in zip(pieces, values, strict=True) if p > 0])

        # Blanks are independent, so the best combinations of words extend the best shorter ones.
        for row in rows:  # the blanks of a batch lie in the order of its rows
            count = encoded[row].count(tokenizer.mask_id)
            beams: list[tuple[tuple[str, ...], float]] = [((), 1.0)]
            for blank in words[:count]:
                longer = [((*chosen, word), so_far * p) for chosen, so_far in beams for word, p in blank]
                beams = sorted(longer, key=lambda beam: -beam[1])[:top]
            words = words[count:]
            offsets = tuple(match.span() for match in re.finditer(re.escape(MASK), texts[row]))
            between = texts[row].split(MASK)
            found[row] = Results(
                Filling("".join(a + b for a, b in zip(between, (*chosen, ""), strict=True)), chosen, p, offsets)
                for chosen, p in beams
            )
    return found


@torch.inference_mode()
def score(network: AlbertForPretraining, tokenizer: Tokenizer, text: str) -> Score:
    """Mask each piece in turn and sum the log-probabilities of the masked pieces, in nats (Salazar et al. 2020).

    In a text longer than the model reads, the part around each piece is read.
    """
    encoding = tokenizer.encode(text)
    ids, room = encoding.ids, network.config.max_position_embeddings - 2
    spans = [window([place], len(ids), room) for place in range(len(ids))]
    found = [0.0] * len(ids)
    for places in by_length([min(len(ids), room) + 2] * len(ids)):
        copies = []
        for place in places:
            copies.append(ids[spans[place]])
            copies[-1][place - spans[place].start] = tokenizer.mask_id
        batch = frame(network, tokenizer, copies)
        masked = torch.tensor([1 + place - spans[place].start for place in places])  # [CLS] is before them
        logits = masked_logits(network, batch, batch.first_tokens + masked.to(batch.offsets.device))
        labels = torch.tensor([ids[place] for place in places], device=logits.device)
        picked = logits.log_softmax(-1).gather(-1, labels[:, None]).flatten()
        for place, value in zip(places, picked.tolist(), strict=True):
            found[place] = value
    total = math.fsum(found)
    perplexity = math.exp(min(700.0, -total / max(1, len(ids))))  # per piece
    return Score(text, total, perplexity, tuple(WordScore(*word) for word in by_word(text, encoding.offsets, found)))


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


# Sentence order


@torch.inference_mode()
def order(
    network: AlbertForPretraining, tokenizer: Tokenizer, firsts: Sequence[str], seconds: Sequence[str]
) -> list[Order]:
    """Say of each pair whether its first text comes before the second in running text."""
    longest = network.config.max_position_embeddings
    ids = tokenizer.encode_ids([tokenizer.beginning(text, longest) for text in (*firsts, *seconds)])
    first, second = ids[: len(firsts)], ids[len(firsts) :]
    found = [0.0] * len(firsts)
    for rows in by_length([len(a) + len(b) + 3 for a, b in zip(first, second, strict=True)]):
        batch = frame(network, tokenizer, [first[row] for row in rows], [second[row] for row in rows])
        pooled = network.albert.pool(network.albert(batch, batch.first_tokens))
        probabilities = network.sentence_order(pooled).float().softmax(-1)[:, 0]  # label 0 is "in order"
        for row, value in zip(rows, probabilities.tolist(), strict=True):
            found[row] = value
    return [Order(probability >= 0.5, probability) for probability in found]


def coherence(network: AlbertForPretraining, tokenizer: Tokenizer, text: str) -> Coherence:
    """Return the probability that each two neighbouring sentences of a text are in order."""
    from litebert.corpus.text import TextSettings, split_sentences  # 40 ms, which no other verb pays

    sentences = list(split_sentences(text, TextSettings()))
    if len(sentences) < 2:
        what, expected = "there is no order in one sentence", "a text of two sentences or more, or two texts"
        example = 'litebert order "He opened the door. Nobody was there." --model runs/mine'
        raise LitebertError("LB-936", what, received=f"{len(sentences)} sentences", expected=expected, next=example)
    orders = order(network, tokenizer, sentences[:-1], sentences[1:])
    joins, end = [], text.index(sentences[0]) + len(sentences[0])
    for (first, second), each in zip(pairwise(sentences), orders, strict=True):
        start = text.index(second, end)
        joins.append(Join(first, second, start, each.probability))
        end = start + len(second)
    return Coherence(tuple(joins))


# Vectors


@torch.inference_mode()
def embed(
    network: Network, tokenizer: Tokenizer, texts: Sequence[str], *, vectors: SentenceVectors
) -> NDArray[np.float32]:
    """Return the vectors of texts, shape (texts, H); texts longer than the model are cut."""
    positions = network.config.max_position_embeddings
    beginnings = [tokenizer.beginning(vectors.prompt + text, positions) for text in texts]
    encoded = tokenizer.encode_ids(beginnings, num_threads=1 if len(texts) == 1 else -1)
    found = np.zeros((len(encoded), network.config.hidden_size), dtype=np.float32)
    for rows in by_length([len(ids) + 2 for ids in encoded]):
        batch = frame(network, tokenizer, [encoded[row] for row in rows], longest=vectors.max_length)
        pooled = pool(network, batch, vectors.pooling)
        found[rows] = (F.normalize(pooled) if vectors.normalize else pooled).cpu().numpy()
    return found


def pool(network: Network, batch: Batch, pooling: Pooling) -> Float[Tensor, "sequences hidden"]:
    """Return one float32 vector for each sequence: [CLS], or the mean or the maximum of its tokens."""
    if pooling == "cls":
        hidden: Tensor = network.albert(batch, batch.first_tokens)
        return hidden.float()
    hidden = network.albert(batch).float()
    if pooling == "max":
        return torch.segment_reduce(hidden, "max", lengths=batch.offsets.diff())
    return mean_by_sequence(hidden, batch)


@dataclass(frozen=True)
class TextIndex:
    """Texts with their vectors; `embed` is the model that made them."""

    texts: tuple[str, ...]
    vectors: NDArray[np.float32]
    embed: Callable[[Sequence[str]], NDArray[np.float32]]

    def search(self, query: str, *, top: int = 10) -> Results[Match]:
        """Return the nearest texts, best first."""
        if not self.texts:
            raise LitebertError("LB-937", "there is nothing to search", next='litebert search "a query" texts.txt')
        scores = self.vectors @ self.embed([query])[0]
        best = np.argsort(-scores, kind="stable")[:top]
        return Results(Match(int(n), self.texts[n], float(scores[n])) for n in best)


# Fine-tuned heads


def _ask(
    network: AlbertForTask, tokenizer: Tokenizer, family: Family[Example, Answer], examples: Sequence[Example]
) -> list[Answer]:
    """Answer examples of a kind of task, each as far as the model reads."""
    features = family.features(examples, tokenizer, max_length=network.config.max_position_embeddings, training=False)
    return answers_of(network, family, examples, features)


def classify(
    network: AlbertForTask,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    pairs: Sequence[str] | None,
    *,
    patience: int | None,
) -> list[Classification]:
    """Return the label of each text, or of each text with its pair."""
    if patience is not None:
        require_exits(network, patience)
    family = replace(TextClassification.of(network.head_config), patience=patience)
    seconds = pairs if pairs is not None else [None] * len(texts)
    examples = [TextExample(str(n), a, b) for n, (a, b) in enumerate(zip(texts, seconds, strict=True))]
    return [
        Classification(labels=family.named(scores), values=dict(zip(family.head.labels, scores.values, strict=True)))
        for scores in _ask(network, tokenizer, family, examples)
    ]


def tag(network: AlbertForTask, tokenizer: Tokenizer, texts: Sequence[str]) -> list[Results[Tagged]]:
    """Return every word of each text with its tag; punctuation beside a word is a word of its own."""
    family, words = TokenClassification(network.head_config), [list(_WORD.finditer(text)) for text in texts]
    examples = [TagExample(str(n), tuple(word.group() for word in found)) for n, found in enumerate(words)]
    return [
        Results(
            Tagged(word.group(), family.head.labels[label], *word.span())
            for word, label in zip(of_text, answer.best, strict=True)
        )
        for of_text, answer in zip(words, _ask(network, tokenizer, family, examples), strict=True)
    ]


def choose(
    network: AlbertForTask, tokenizer: Tokenizer, asked: Sequence[tuple[str, Sequence[str], str]]
) -> list[Choice]:
    """Return which choice answers each question; what is asked is (question, choices, context)."""
    family = MultipleChoice(num_choices=max(len(choices) for _, choices, _ in asked))
    examples = [ChoiceExample(str(n), context, question, tuple(of)) for n, (question, of, context) in enumerate(asked)]
    return [
        Choice(scores.best, example.choices[scores.best], scores.values)
        for example, scores in zip(examples, _ask(network, tokenizer, family, examples), strict=True)
    ]


def answer(
    network: AlbertForTask,
    tokenizer: Tokenizer,
    asked: Sequence[tuple[str, Sequence[str]]],
    *,
    top: int,
    progress: Callable[[int], None] | None = None,
) -> list[Results[SpanFound]]:
    """Return the likeliest spans of all contexts of each question; what is asked is (question, contexts).

    A context of any length is read in overlapping windows, `WINDOWS_AT_ONCE` of which are held in memory together.
    """
    family = SPAN_FAMILIES[network.head_config.kind]
    examples = [SpanExample("", question, context) for question, contexts in asked for context in contexts]
    parts: list[list[SpanAnswer]] = [[] for _ in examples]
    windows = family.windows(examples, tokenizer, max_length=network.config.max_position_embeddings)
    while group := list(islice(windows, WINDOWS_AT_ONCE)):
        answers = answers_of(network, family, examples, group, progress=progress)
        for number in {each.example for each in group}:
            parts[number].append(answers[number])
    found = (family.merged(answers) for answers in parts)
    return [_likeliest(family, list(islice(found, len(contexts))), top) for _, contexts in asked]


def _likeliest(family: SpanAnswering, found: Sequence[SpanAnswer], top: int) -> Results[SpanFound]:
    """Return the likeliest spans of several contexts; for a SQuAD 2.0 model "no answer" is one."""
    nothing = None  # the probability that no context has an answer; contexts are taken as independent
    if isinstance(family, ConditionalSpanAnswering):
        clipped = [max(-700.0, min(each.null_score or 0.0, 700.0)) for each in found]
        empty = [1 / (1 + math.exp(-score)) for score in clipped]
        nothing, weights = math.prod(empty), [1 - each for each in empty]
    else:  # the share of each context: the softmax of the scores of their best spans
        best = [max((s.score for s in each.n_best if s.stop > s.start), default=-math.inf) for each in found]
        highest = max(best, default=0.0)
        powers = [math.exp(score - highest) if score > -math.inf else 0.0 for score in best]
        weights = [each / (sum(powers) or 1.0) for each in powers]
    scale = 1.0 if nothing is None else (1 - nothing) / (sum(weights) or 1.0)
    spans = [
        SpanFound(span.text, span.start, span.stop, weight * scale * span.probability, document, nothing)
        for document, (answer, weight) in enumerate(zip(found, weights, strict=True))
        for span in answer.n_best
        if span.stop > span.start
    ]
    if nothing is not None:
        spans.append(SpanFound("", 0, 0, nothing, 0, nothing))
    return Results(sorted(spans, key=lambda span: -span.probability)[:top])
