"""What `explain` asks the network for each verb: sequences of tokens that know their
place in the texts, and the score of an answer to explain.

Every function here takes the model, the answer to explain (None: the likeliest one) and
the texts of its verb.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from litebert.device import device_of
from litebert.errors import LitebertError, did_you_mean
from litebert.inference.inputs import encode_blanks, pool, window
from litebert.nn import Batch
from litebert.tasks.kinds.choice import (
    ChoiceExample,
    MultipleChoice,
    question_texts,
)
from litebert.tasks.kinds.spans import answers_with_spans
from litebert.tasks.kinds.text import TextClassification

if TYPE_CHECKING:
    from litebert.inference.model import Model

LOG_PROBABILITY = "log-probability"


@dataclass(frozen=True)
class Part:
    """A text in a sequence, with the place of each of its tokens."""

    name: str
    text: str
    ids: list[int]
    offsets: list[tuple[int, int]]  # of each id: first character, and the one after
    prompt: int = 0  # how many of the first characters are a prompt

    def cut(self, kept: slice) -> "Part":
        """Return the part with only these tokens."""
        return replace(self, ids=self.ids[kept], offsets=self.offsets[kept])


@dataclass(frozen=True)
class Question:
    """An answer to explain, and how to compute its score.

    Each of `sequences` is [CLS] and one or two parts, every one followed by [SEP].
    `score(network, batch)` gets a batch of copies of the sequences, all sequences of
    the first copy first, and returns a score for each copy.
    """

    sequences: Sequence[Sequence[Part]]
    score: Callable[[Any, Batch], Float[Tensor, " copies"]]
    answer: str
    kind: str = LOG_PROBABILITY  # what the score is


# ---- the questions of the verbs ------------------------------------------------------


def fill(model: "Model", answer: str | None, text: str) -> Question:
    """Score the words in the blanks: the sum of their log-probabilities."""
    likeliest = model.fill(text, top=1)  # raises if the text cannot be filled
    words = list(likeliest[0].words) if answer is None else answer.split()
    tokenizer = model.tokenizer
    [(ids, places)] = encode_blanks(tokenizer, [text])
    offsets = tokenizer.encode(text, special_tokens=True, frame=False).offsets
    part = Part("text", text, ids, [offsets[place] for place in places])
    blanks = [place for place, id_ in enumerate(ids) if id_ == tokenizer.mask_id]

    pieces = list[int]()
    for word in words:
        piece = _piece_of(model, word)
        if piece is not None:
            pieces.append(piece)
    if len(pieces) < len(words) or len(words) != len(blanks):
        raise no_such_answer(answer, f"{len(blanks)} words of one piece each")
    # As in `Model.fill`, the probability of a word is the sum over the pieces that
    # spell it, and special pieces are no words.
    alike = tokenizer.first_alike  # (vocab,)
    spellings = [np.flatnonzero(alike == alike[piece]) for piece in pieces]
    no_words = torch.tensor([*tokenizer.special_ids, *tokenizer.textless_ids])

    def score(network: Any, batch: Batch) -> Float[Tensor, " copies"]:
        device = device_of(network)
        num_blanks = len(batch.lengths) * len(blanks)
        masked = device.indices(batch.ids == tokenizer.mask_id, num_blanks)
        hidden = network.albert(batch, masked)  # (copies * blanks, hidden)
        table = network.albert.embedding.word.weight
        logits = network.masked_lm(hidden, table)[:, : tokenizer.vocab_size].float()
        of_words = logits.index_fill(1, device.copy(no_words), -torch.inf)
        by_blank = of_words.view(-1, len(blanks), tokenizer.vocab_size)
        log_probabilities = by_blank.log_softmax(-1)  # (copies, blanks, vocab)
        total: Tensor = logits.new_zeros(len(batch.lengths))
        for blank, spelling in enumerate(spellings):
            total = total + log_probabilities[:, blank, spelling].logsumexp(-1)
        return total

    room = model.network.config.max_position_embeddings - 2  # beside [CLS] and [SEP]
    kept = part.cut(window(blanks, len(ids), room))
    filled = " ".join(tokenizer.decode([piece]) for piece in pieces)
    return Question([[kept]], score, filled)


def _piece_of(model: "Model", word: str) -> int | None:
    """Return the piece that spells a word; of two, the one that begins a word."""
    tokenizer = model.tokenizer
    for spelling in (word, word.lower()):
        for mark in ("▁", "", "##"):
            piece = tokenizer.id(f"{mark}{spelling}")
            if piece != tokenizer.unk_id:
                return piece
    return None


def classify(
    model: "Model", answer: str | None, text: str, pair: str | None = None
) -> Question:
    """Score a label: its log-probability or, in regression, the output itself."""
    second = pair or None  # an empty one counts as none
    classified = model.classify(text, second)
    labels = list(classified.values)
    head: Any = model.network.head_config
    kind: TextClassification = head.family()
    label = 0
    score_name = "score"
    if not kind.is_number:
        score_name = LOG_PROBABILITY
        likeliest = max(labels, key=classified.values.__getitem__)
        if classified.labels:
            likeliest = classified.labels[0]
        label = _index_of(answer or likeliest, labels)

    def score(network: Any, batch: Batch) -> Float[Tensor, " copies"]:
        return kind.log_values(kind.logits(network, batch))[:, label]

    if kind.reads_apart:
        sequences = [
            _encode_texts(model, text=text),
            _encode_texts(model, pair=second),
        ]
    else:
        sequences = [_encode_texts(model, text=text, pair=second)]
    return Question(sequences, score, labels[label], score_name)


def order(model: "Model", answer: str | None, first: str, second: str) -> Question:
    """Score the order as given, or swapped."""
    names = ["in order", "swapped"]
    judged = names[0] if model.order(first, second).is_in_order else names[1]
    label = _index_of(answer or judged, names)

    def score(network: Any, batch: Batch) -> Float[Tensor, " copies"]:
        pooled = network.albert.pool(network.albert(batch, batch.first_tokens))
        logits: Tensor = network.sentence_order(pooled)
        return logits.log_softmax(-1)[:, label]

    sequence = _encode_texts(model, first=first, second=second)
    return Question([sequence], score, names[label])


def similar(model: "Model", _: str | None, first: str, second: str) -> Question:
    """Score the similarity of two texts: the cosine of their vectors."""
    vectors = model.vectors
    prompt = vectors.prompt()
    longest = model.network.config.max_position_embeddings
    if vectors.max_length is not None:
        longest = min(longest, vectors.max_length)
    sequences = []
    for name, text in (("first", first), ("second", second)):
        beginning = model.tokenizer.beginning(prompt + text, longest)
        part = _encode(model, name, beginning).cut(slice(longest - 2))
        sequences.append([replace(part, prompt=len(prompt))])

    def score(network: Any, batch: Batch) -> Float[Tensor, " copies"]:
        rows = pool(network, batch, vectors)  # (copies * 2, width)
        return F.cosine_similarity(rows[::2], rows[1::2])

    cosine = float(model.similar(first, second))
    return Question(sequences, score, f"{cosine:.3f}", "cosine")


def choose(
    model: "Model",
    answer: str | None,
    question: str,
    context: str,
    choice: str,
    *choices: str,
) -> Question:
    """Score a choice against the others."""
    listed = [choice, *choices]
    best = model.choose(question, listed, context=context).text
    chosen = _index_of(answer or best, listed)
    room = model.network.config.max_position_embeddings - 3
    # as in training: the end of the question, and as much of the context as fits
    longest = min(MultipleChoice.max_qa_length, room)
    read = _encode(model, "context", model.tokenizer.beginning(context, room))
    texts = question_texts(ChoiceExample("0", context, question, tuple(listed)))
    sequences = []
    for number, text in enumerate(texts, start=1):
        asked = _encode(model, f"choice {number}", text).cut(slice(-longest, None))
        sequences.append([read.cut(slice(room - len(asked.ids))), asked])

    def score(network: Any, batch: Batch) -> Float[Tensor, " copies"]:
        logits = network(batch).view(-1, len(listed))  # (copies, choices)
        chances: Tensor = logits.log_softmax(-1)
        return chances[:, chosen]

    return Question(sequences, score, listed[chosen])


def answer(model: "Model", answer: str | None, question: str, context: str) -> Question:
    """Score a span, or "no answer", by its log-probability: minus twice its training
    loss.
    """
    start, stop = _place_of_answer(model, answer, question, context)
    network: Any = model.network
    kind = answers_with_spans(network.head_config)
    posed = _encode(model, "question", question).cut(slice(kind.max_query_length))

    # [CLS] question [SEP] context [SEP], with the tokens of the span near the middle
    ids, offsets = model.tokenizer.encode_arrays(context)
    is_in_span = (offsets[:, 0] < stop) & (offsets[:, 1] > start)
    inside: list[int] = np.flatnonzero(is_in_span).tolist()
    room = network.config.max_position_embeddings - len(posed.ids) - 3
    kept = window(inside or [0], len(ids), room)
    places = [(begin, end) for begin, end in offsets[kept].tolist()]
    part = Part("context", context, ids[kept].tolist(), places)

    target = [0, 0, 1]  # the first and last token, and whether there is no answer
    if inside:
        first = len(posed.ids) + 2 - kept.start
        target = [first + inside[0], first + inside[-1], 0]

    def score(network: Any, batch: Batch) -> Float[Tensor, " copies"]:
        targets = torch.tensor(target * len(batch.lengths))
        losses: Tensor = kind.losses(network, batch, device_of(network).copy(targets))
        doubled: Tensor = -2 * losses
        return doubled

    return Question([[posed, part]], score, context[start:stop] or "no answer")


def _place_of_answer(
    model: "Model", answer: str | None, question: str, context: str
) -> tuple[int, int]:
    """Return where an answer begins and ends in its context."""
    if answer is None:
        spans = model.answer(question, context)
        if not spans:
            raise LitebertError(
                "LB-891",
                "the model finds no words of this context to answer with",
                next="give the text with the answer",
            )
        return spans[0].start, spans[0].stop
    model.begin("answer", question)  # raises if the model lacks the head
    start = context.find(answer)
    if start < 0:
        raise no_such_answer(answer, "words of the context")
    return start, start + len(answer)


# ---- sequences and answers -----------------------------------------------------------


def _encode(model: "Model", name: str, text: str) -> Part:
    """Encode a text without [CLS] and [SEP]."""
    encoding = model.tokenizer.encode(text)
    return Part(name, text, encoding.ids, encoding.offsets)


def _encode_texts(model: "Model", **texts: str | None) -> list[Part]:
    """Encode one or two texts; if they do not fit, cut the longer one at its end."""
    longest = model.network.config.max_position_embeddings
    parts = []
    for name, text in texts.items():
        if text is not None:
            beginning = model.tokenizer.beginning(text, longest)
            parts.append(_encode(model, name, beginning))
    sizes = [len(part.ids) for part in parts]
    while sum(sizes) + len(parts) + 1 > longest:
        longer = 0 if sizes[0] > sizes[-1] else -1
        sizes[longer] -= 1
    return [part.cut(slice(size)) for part, size in zip(parts, sizes, strict=True)]


def _index_of(answer: str, answers: Sequence[str]) -> int:
    """Return the index of an answer among the possible ones."""
    if answer not in answers:
        raise no_such_answer(answer, did_you_mean(answer, answers))
    return answers.index(answer)


def no_such_answer(answer: str | None, expected: str) -> LitebertError:
    """Return the error for an answer that the model cannot give."""
    return LitebertError(
        "LB-875",
        "this is not an answer that the model can give",
        received=str(answer),
        expected=expected,
        next="omit the answer to explain the likeliest one",
    )
