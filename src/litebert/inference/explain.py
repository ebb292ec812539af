"""Explanations of answers: how much each word adds to the score. At the end, views
inside a model.

Integrated gradients (Sundararajan et al. 2017): the gradient of the answer's score with
respect to the word vectors, averaged along the straight line from the fully masked text
to the text, times the difference of the two. The values of a text add up to the
difference of the two scores, except for the error of the numerical integration.
"""

import copy
import inspect
from collections.abc import Callable, Sequence
from itertools import chain, islice, pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import TypedDict

from litebert.answers import Explanation, WordAttribution
from litebert.device import device_of
from litebert.errors import LitebertError, did_you_mean, no_such_name
from litebert.fast import is_int8
from litebert.inference.inputs import encode_blanks, pool, sum_by_word, window
from litebert.inference.model import Model
from litebert.nn import Batch
from litebert.nn.model import attention_weights
from litebert.tasks.kinds.choice import (
    ChoiceExample,
    MultipleChoice,
    question_texts,
)
from litebert.tasks.kinds.spans import answers_with_spans
from litebert.tasks.kinds.text import TextClassification

NUM_POINTS = 50  # points of the Gauss-Legendre quadrature
TOKENS_AT_ONCE = 4_096
# tokens of a text for which attention is shown; the rest is cut off
MAX_ATTENTION_TOKENS = 64


class Part(NamedTuple):
    """A named text: its ids, the span of each in the text, and how many of its first
    characters are a prompt.
    """

    name: str
    text: str
    ids: list[int]
    offsets: list[tuple[int, int]]
    prompt: int = 0

    def cut(self, kept: slice) -> "Part":
        return self._replace(ids=self.ids[kept], offsets=self.offsets[kept])


class Question(NamedTuple):
    """What to explain: `score(network, copies of the sequences)` returns the score of
    `answer` for each copy.
    """

    # of one or two segments each, every one followed by [SEP]
    sequences: Sequence[Sequence[Part]]
    score: Callable[[Any, Batch], Float[Tensor, " copies"]]
    answer: str
    kind: str = "log-probability"


@torch.inference_mode(False)
@torch.enable_grad()
def explain(
    model: Model, verb: str, texts: Sequence[str], answer: str | None
) -> Explanation:
    """Attribute the score of an answer to the words of its texts."""
    if verb not in QUESTIONS:
        advice = 'litebert explain similar "a cat" "a kitten"'
        raise no_such_name(
            "LB-873",
            "answers of this verb cannot be explained",
            verb,
            QUESTIONS,
            next=advice,
        )
    takes = inspect.signature(QUESTIONS[verb])
    try:
        takes.bind(model, answer, *texts)
    except TypeError as error:
        what = f"{verb} cannot be explained with these texts"
        advice = f'model.explain("{verb}", ...)'
        received = f"{len(texts)} texts"
        expected = ", ".join(list(takes.parameters)[2:])
        raise LitebertError(
            "LB-874", what, received=received, expected=expected, next=advice
        ) from error
    if is_int8(model.network.albert):
        what = "an eight-bit model has no gradients to explain its answers with"
        raise LitebertError(
            "LB-872", what, next="use the float model that it was made from"
        )
    question = QUESTIONS[verb](model, answer, *texts)
    tokenizer = model.tokenizer
    # a score, or a cosine
    if answer is not None and question.kind != "log-probability":
        raise _no_such(answer, f"no answer: a {question.kind} is explained as it is")
    # A copy of the network that shares its weights: other threads may be using the
    # model at the same time.
    network = copy.deepcopy(
        model.network, {id(weight): weight for weight in model.network.parameters()}
    )
    word = network.albert.embedding.word

    # The vectors of the words, and those of the same sequences with every token masked.
    ids = list[list[int]]()
    segments = list[list[int]]()
    for sequence in question.sequences:
        framed = [[*part.ids, tokenizer.sep_id] for part in sequence]
        ids.append([tokenizer.cls_id, *chain(*framed)])
        segments.append(
            [0, *chain(*([number] * len(each) for number, each in enumerate(framed)))]
        )
    device = device_of(network)
    flat = device.copy(torch.tensor([*chain(*ids)]))  # (tokens,)
    framing = [tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id]
    special = device.copy(torch.tensor(framing))
    table = word.weight.detach()  # (vocab, embed)
    words = table[flat]  # (tokens, embed)
    blanks = torch.where(
        torch.isin(flat, special, invert=True)[:, None], table[tokenizer.mask_id], words
    )

    def scores(
        vectors: Float[Tensor, "copies tokens embed"],
    ) -> Float[Tensor, " copies"]:
        batch = Batch.from_lists(ids * len(vectors), segments * len(vectors)).to(device)
        # in place of its rows
        with word.register_forward_hook(lambda *_: vectors.flatten(0, 1)):
            return question.score(network, batch).float()

    # The mean gradient along the line between them.
    score, blank = scores(torch.stack([words, blanks])).tolist()
    # on [-1, 1]; the weights add up to 2
    points, weights = np.polynomial.legendre.leggauss(NUM_POINTS)
    # (points, 1, 1)
    alphas = torch.tensor((points + 1) / 2, dtype=words.dtype)[:, None, None]
    shares = torch.tensor(weights / 2, dtype=torch.float32)[:, None, None]
    alphas = device.copy(alphas)
    shares = device.copy(shares)
    gradient = torch.zeros_like(words, dtype=torch.float32)
    size = max(1, TOKENS_AT_ONCE // len(flat))
    for some, own in zip(
        torch.split(alphas, size), torch.split(shares, size), strict=True
    ):
        # (points, tokens, embed)
        line = (blanks + some * (words - blanks)).requires_grad_()
        (found,) = torch.autograd.grad(scores(line).sum(), line)
        gradient += (found.float() * own).sum(0)
    # (tokens,)
    of_tokens = (gradient * (words - blanks)).sum(-1)
    values: list[float] = of_tokens.cpu().double().tolist()

    # The sum over the tokens of each word; those of a prompt are listed separately.
    attributions = list[WordAttribution]()
    left = iter(values)
    for sequence in question.sequences:
        next(left)  # [CLS]
        for part in sequence:
            *of_part, _ = islice(left, len(part.ids) + 1)  # with its [SEP]
            for _, begin, end, value in sum_by_word(part.text, part.offsets, of_part):
                name, first = (
                    (part.name, part.prompt) if end > part.prompt else ("prompt", 0)
                )
                begin = max(begin, first)
                attributions.append(
                    WordAttribution(
                        part.text[begin:end], name, begin - first, end - first, value
                    )
                )
    missed = sum(values) - (score - blank)
    return Explanation(
        verb, question.answer, question.kind, score, blank, missed, tuple(attributions)
    )


# The question that each verb asks the network, on sequences that keep the place of each
# token in its text


def _encode_part(model: Model, name: str, text: str) -> Part:
    """Encode a text without [CLS] and [SEP]."""
    encoding = model.tokenizer.encode(text)
    return Part(name, text, encoding.ids, encoding.offsets)


def _encode_parts(model: Model, **texts: str | None) -> list[Part]:
    """Encode one or two texts; if they do not fit, cut the longer one at its end."""
    longest = model.network.config.max_position_embeddings
    given = {
        name: model.tokenizer.beginning(text, longest)
        for name, text in texts.items()
        if text is not None
    }
    parts = [_encode_part(model, name, text) for name, text in given.items()]
    sizes = [len(part.ids) for part in parts]
    while sum(sizes) + len(parts) + 1 > longest:
        sizes[0 if sizes[0] > sizes[-1] else -1] -= 1
    return [part.cut(slice(size)) for part, size in zip(parts, sizes, strict=True)]


def _classify(
    model: Model, answer: str | None, text: str, pair: str | None = None
) -> Question:
    """Score a label: its log-probability or, in regression, the output itself."""
    pair = pair or None  # an empty one counts as none
    found = model.classify(text, pair)
    network = model.begin("classify", text)[0]
    labels = list(found.values)
    head = network.head_config
    family: TextClassification = head.task_kind(head)
    likeliest = (
        found.labels[0] if found.labels else max(labels, key=found.values.__getitem__)
    )
    label = 0 if family.is_number else _index_of(answer or likeliest, labels)
    sequences = [_encode_parts(model, text=text, pair=pair)]
    if family.reads_apart:
        sequences = [_encode_parts(model, text=text), _encode_parts(model, pair=pair)]
    return Question(
        sequences,
        lambda network, batch: family.log_values(family.logits(network, batch))[
            :, label
        ],
        labels[label],
        "score" if family.is_number else "log-probability",
    )


def _fill(model: Model, answer: str | None, text: str) -> Question:
    """Score the words in the blanks: the sum of their log-probabilities."""
    likeliest = model.fill(text, top=1)  # raises if the text cannot be filled
    tokenizer = model.tokenizer
    room = model.network.config.max_position_embeddings - 2
    (ids, places), *_ = encode_blanks(tokenizer, [text])
    offsets = tokenizer.encode(text, special_tokens=True, frame=False).offsets
    part = Part("text", text, ids, [offsets[place] for place in places])
    blanks = [place for place, id_ in enumerate(part.ids) if id_ == tokenizer.mask_id]

    # the piece that spells each word; if two do, the one that begins a word
    words = list(likeliest[0].words) if answer is None else answer.split()
    spelt = [
        [f"{mark}{each}" for each in (word, word.lower()) for mark in ("▁", "", "##")]
        for word in words
    ]
    known = [
        [id_ for id_ in map(tokenizer.id, pieces) if id_ != tokenizer.unk_id]
        for pieces in spelt
    ]
    if len(words) != len(blanks) or not all(known):
        raise _no_such(answer, f"{len(blanks)} words of one piece each")
    answers = [found[0] for found in known]
    # As in `fill`: the probability of a word is the sum over the pieces that spell it,
    # and special pieces are no words.
    alike = tokenizer.first_alike
    spellings = [np.flatnonzero(alike == alike[id_]) for id_ in answers]
    no_words = torch.tensor([*tokenizer.special_ids, *tokenizer.textless_ids])

    def score(network: Any, batch: Batch) -> Float[Tensor, " copies"]:
        device = device_of(network)
        num_blanks = len(batch.lengths) * len(blanks)
        places = device.indices(batch.ids == tokenizer.mask_id, num_blanks)
        hidden = network.albert(batch, places)
        table = network.albert.embedding.word.weight
        logits = network.masked_lm(hidden, table)[:, : tokenizer.vocab_size].float()
        logits = logits.index_fill(1, device.copy(no_words), -torch.inf)
        # (copies, blanks, vocab)
        by_blank = logits.view(-1, len(blanks), logits.shape[-1]).log_softmax(-1)
        total: Tensor = logits.new_zeros(len(by_blank))
        for blank, pieces in enumerate(spellings):
            total = total + by_blank[:, blank, pieces].logsumexp(-1)
        return total

    kept = part.cut(window(blanks, len(part.ids), room))
    return Question(
        [[kept]], score, " ".join(tokenizer.decode([id_]) for id_ in answers)
    )


def _order(model: Model, answer: str | None, first: str, second: str) -> Question:
    """Score the order as given, or swapped."""
    names = ["in order", "swapped"]
    label = _index_of(
        answer or names[0 if model.order(first, second).is_in_order else 1], names
    )

    def score(network: Any, batch: Batch) -> Tensor:
        logits: Tensor = network.sentence_order(
            network.albert.pool(network.albert(batch, batch.first_tokens))
        )
        return logits.log_softmax(-1)[:, label]

    return Question(
        [_encode_parts(model, first=first, second=second)], score, names[label]
    )


def _similar(model: Model, _: str | None, first: str, second: str) -> Question:
    """Score the similarity of two texts: the cosine of their vectors."""
    vectors = model.vectors
    prompt = vectors.prompt()
    longest = min(
        vectors.max_length or 1 << 30, model.network.config.max_position_embeddings
    )

    def score(network: Any, batch: Batch) -> Tensor:
        rows = pool(network, batch, vectors)
        # copies of the first text, and of the second
        return F.cosine_similarity(rows[::2], rows[1::2])

    sequences = []
    for name, text in {"first": first, "second": second}.items():
        part = _encode_part(
            model, name, model.tokenizer.beginning(prompt + text, longest)
        )
        sequences.append([part.cut(slice(longest - 2))._replace(prompt=len(prompt))])
    return Question(
        sequences, score, f"{float(model.similar(first, second)):.3f}", "cosine"
    )


def _choose(
    model: Model,
    answer: str | None,
    question: str,
    context: str,
    choice: str,
    *choices: str,
) -> Question:
    """Score a choice against the others."""
    listed = [choice, *choices]
    chosen = _index_of(
        answer or model.choose(question, listed, context=context).text, listed
    )
    room = model.network.config.max_position_embeddings - 3
    sequences = []
    read = _encode_part(model, "context", model.tokenizer.beginning(context, room))
    for number, text in enumerate(
        question_texts(ChoiceExample("0", context, question, tuple(listed))), start=1
    ):
        asked = _encode_part(model, f"choice {number}", text).cut(
            slice(-min(MultipleChoice.max_qa_length, room), None)
        )
        sequences.append([read.cut(slice(room - len(asked.ids))), asked])
    return Question(
        sequences,
        lambda network, batch: (
            network(batch).view(-1, len(listed)).log_softmax(-1)[:, chosen]
        ),
        listed[chosen],
    )


def _answer(model: Model, answer: str | None, question: str, context: str) -> Question:
    """Score a span, or "no answer", by its log-probability: minus twice its training
    loss.
    """
    if answer is None:
        found = model.answer(question, context)
        if not found:
            what = "the model finds no words of this context to answer with"
            advice = "give the text with the answer"
            raise LitebertError("LB-891", what, next=advice)
        start = found[0].start
        stop = found[0].stop
    else:
        model.begin("answer", question)  # raises if the model lacks the head
        start = context.find(answer)
        stop = start + len(answer)
    if start < 0:
        raise _no_such(answer, "words of the context")
    network: Any = model.network
    family = answers_with_spans(network.head_config)
    posed = _encode_part(model, "question", question).cut(
        slice(family.max_query_length)
    )
    ids, offsets = model.tokenizer.encode_arrays(context)
    inside: list[int] = np.flatnonzero(
        (offsets[:, 0] < stop) & (offsets[:, 1] > start)
    ).tolist()
    # [CLS] question [SEP] context [SEP]
    room = network.config.max_position_embeddings - len(posed.ids) - 3
    kept = window(inside or [0], len(ids), room)
    part = Part(
        "context",
        context,
        ids[kept].tolist(),
        [(begin, end) for begin, end in offsets[kept].tolist()],
    )
    first = len(posed.ids) + 2 - kept.start
    target = [first + inside[0], first + inside[-1], 0] if inside else [0, 0, 1]

    def score(network: Any, batch: Batch) -> Tensor:
        return -2 * family.losses(
            network,
            batch,
            device_of(network).copy(torch.tensor(target * len(batch.lengths))),
        )

    return Question([[posed, part]], score, context[start:stop] or "no answer")


QUESTIONS: dict[str, Callable[..., Question]] = {
    "answer": _answer,
    "choose": _choose,
    "classify": _classify,
    "fill": _fill,
    "order": _order,
    "similar": _similar,
}
"""The verbs with explainable answers, and the question of each: (model, answer, its
texts) -> question.
"""


def _index_of(answer: str, answers: Sequence[str]) -> int:
    """Return the index of an answer among the possible ones."""
    if answer not in answers:
        raise _no_such(answer, did_you_mean(answer, answers))
    return answers.index(answer)


def _no_such(answer: str | None, expected: str) -> LitebertError:
    what = "this is not an answer that the model can give"
    advice = "omit the answer to explain the likeliest one"
    return LitebertError(
        "LB-875", what, received=str(answer), expected=expected, next=advice
    )


# Inside a model: how hidden states move from step to step, and what each head attends
# to


class Steps(TypedDict):
    """Distance and cosine between the input and the output of each step: means, and
    distances by token.
    """

    pieces: list[str]
    l2: list[float]
    cosine: list[float]
    by_token: list[list[float]]


class Attention(TypedDict):
    """For each head and query piece, its share of attention on each piece."""

    pieces: list[str]
    heads: list[list[list[float]]]


@torch.inference_mode()
def steps(model: Model, text: str) -> Steps:
    """Return how far the hidden states of a text move in each step: L2 distance and
    cosine (Figure 1).
    """
    pieces, states = _states(model, text, model.network.config.max_position_embeddings)
    # (steps, tokens)
    distances = torch.stack(
        [(after - before).norm(dim=-1) for before, after in pairwise(states)]
    )
    cosines = torch.stack(
        [torch.cosine_similarity(*pair, dim=-1) for pair in pairwise(states)]
    )
    l2 = distances.mean(1).tolist()
    cosine = cosines.mean(1).tolist()
    return {
        "pieces": pieces,
        "l2": l2,
        "cosine": cosine,
        "by_token": distances.T.tolist(),
    }


@torch.inference_mode()
def attention(model: Model, text: str, *, step: int = 1) -> Attention:
    """Return what each head attends to in one step, counted from 1: `heads` is (heads,
    query, key).
    """
    albert = model.network.albert
    if not 1 <= step <= albert.depth:
        what = "this model has no such step"
        advice = "GET /v1/models lists the steps of each model"
        raise LitebertError(
            "LB-974", what, expected=f"a step from 1 to {albert.depth}", next=advice
        )
    pieces, states = _states(
        model,
        text,
        min(MAX_ATTENTION_TOKENS, model.network.config.max_position_embeddings),
    )
    block = albert.attention[albert.plan[step - 1].attention]
    query, key = (
        torch.unflatten(layer(states[step - 1]), -1, block.heads)
        for layer in (block.query, block.key)
    )
    weights = attention_weights(query, key, block.visible)
    rounded = weights.cpu().double().round(decimals=4)
    return {"pieces": pieces, "heads": rounded.tolist()}


def _states(model: Model, text: str, longest: int) -> tuple[list[str], list[Tensor]]:
    """Return the pieces of a text, including [CLS] and [SEP], and their states before
    and after each step.
    """
    encoding = model.tokenizer.encode(text, frame=True)
    ids, pieces = (
        [*each[:-1][: longest - 1], each[-1]]
        for each in (encoding.ids, encoding.pieces)
    )
    batch = Batch.from_lists([ids]).to(device_of(model.network))
    return pieces, [state.float() for state in model.network.albert.states(batch)]


INSIDE: dict[str, Callable[..., Steps | Attention]] = {
    "steps": steps,
    "attention": attention,
}
"""The views inside a model, by the name of their route."""
