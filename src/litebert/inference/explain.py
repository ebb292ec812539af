"""Explanations of answers: how much each word adds to the score.

Integrated gradients (Sundararajan et al. 2017): the gradient of the answer's score with
respect to the word vectors, averaged along the straight line from the fully masked text
to the text, times the difference of the two. The values of a text add up to the
difference of the two scores, except for the error of the numerical integration.
"""

import copy
import inspect
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from litebert.answers import Explanation, WordAttribution
from litebert.device import Device, device_of
from litebert.errors import LitebertError, no_such_name
from litebert.fast import is_int8
from litebert.inference.inputs import as_list, sum_by_word
from litebert.inference.questions import LOG_PROBABILITY, Part, Question, no_such_answer
from litebert.inference.verb import load_named
from litebert.nn import Batch
from litebert.plugins import VERBS
from litebert.tokenizer import Tokenizer

if TYPE_CHECKING:
    from litebert.inference.model import Model

NUM_POINTS = 50  # points of the Gauss-Legendre quadrature
TOKENS_AT_ONCE = 4_096


@torch.inference_mode(False)
@torch.enable_grad()
def explain(
    model: "Model", verb: str, texts: Sequence[str], answer: str | None
) -> Explanation:
    """Attribute the score of an answer to the words of its texts."""
    question = _ask(model, verb, texts, answer)
    line = _Line(model, question)
    ends = torch.stack([line.words, line.blanks])  # (2, tokens, embed)
    score, blank = line.scores(ends).tolist()
    # the mean gradient along the line, times the line itself
    difference = line.words - line.blanks  # (tokens, embed)
    by_token = (line.mean_gradient() * difference).sum(-1)  # (tokens,)
    values: list[float] = by_token.cpu().double().tolist()
    missed = sum(values) - (score - blank)
    words = tuple(_by_word(question, values))
    return Explanation(
        verb, question.answer, question.kind, score, blank, missed, words
    )


# ---- the question --------------------------------------------------------------------


def _ask(
    model: "Model", verb: str, texts: Sequence[str], answer: str | None
) -> Question:
    """Return what to explain, after checking that it can be."""
    as_list([verb, *texts], "explain")
    if answer is not None:
        as_list([answer], "explain")
    explained = [name for name, record in VERBS.items() if record.question]
    if verb not in explained:
        raise no_such_name(
            "LB-873",
            "answers of this verb cannot be explained",
            verb,
            explained,
            next='litebert explain similar "a cat" "a kitten"',
        )
    ask = load_named(VERBS[verb].question)
    parameters = inspect.signature(ask)
    try:
        parameters.bind(model, answer, *texts)
    except TypeError as error:
        names = list(parameters.parameters)[2:]
        raise LitebertError(
            "LB-874",
            f"{verb} cannot be explained with these texts",
            received=f"{len(texts)} texts",
            expected=", ".join(names),
            next=f"litebert explain {verb} {' '.join(names).upper()}",
        ) from error
    if is_int8(model.network.albert):
        raise LitebertError(
            "LB-872",
            "an eight-bit model has no gradients to explain its answers with",
            next="use the float model that it was made from",
        )
    question: Question = ask(model, answer, *texts)
    if answer is not None and question.kind != LOG_PROBABILITY:
        expected = f"no answer: a {question.kind} is explained as it is"
        raise no_such_answer(answer, expected)
    return question


# ---- gradients -----------------------------------------------------------------------


class _Line:
    """The straight line from the word vectors of the masked texts to the word vectors
    of the texts.

    `words` and `blanks` are its ends, (tokens, embed) of all sequences one after the
    other; [CLS] and [SEP] are the same in both.
    """

    def __init__(self, model: "Model", question: Question) -> None:
        # A copy of the network that shares its weights: other threads may be using the
        # model at the same time.
        weights = {id(weight): weight for weight in model.network.parameters()}
        self._network: Any = copy.deepcopy(model.network, weights)
        self._question = question
        self._device: Device = device_of(self._network)
        self._ids, self._segments = _framed(question, model.tokenizer)
        self._word = self._network.albert.embedding.word
        table = self._word.weight.detach()  # (vocab, embed)
        ids: Int[Tensor, " tokens"] = torch.tensor([*chain(*self._ids)])
        tokenizer = model.tokenizer
        framing = torch.tensor([tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id])
        is_text = torch.isin(ids, framing, invert=True)[:, None]
        self.words = table[self._device.copy(ids)]
        self.blanks = torch.where(
            self._device.copy(is_text), table[tokenizer.mask_id], self.words
        )

    def scores(
        self, vectors: Float[Tensor, "copies tokens embed"]
    ) -> Float[Tensor, " copies"]:
        """Return the score of the answer for each copy of the word vectors."""
        copies = len(vectors)
        batch = Batch.from_lists(self._ids * copies, self._segments * copies)
        flat = vectors.flatten(0, 1)
        # the vectors stand in for the rows that the embedding looks up
        with self._word.register_forward_hook(lambda *_: flat):
            scores = self._question.score(self._network, batch.to(self._device))
        return scores.float()

    def mean_gradient(self) -> Float[Tensor, "tokens embed"]:
        """Return the gradient of the score, averaged along the line."""
        points, weights = np.polynomial.legendre.leggauss(NUM_POINTS)
        # The quadrature is for [-1, 1], where its weights add up to 2; the line goes
        # from 0, the masked texts, to 1, the texts.
        places = torch.tensor((points + 1) / 2, dtype=self.words.dtype)
        shares = torch.tensor(weights / 2, dtype=torch.float32)
        places = self._device.copy(places[:, None, None])  # (points, 1, 1)
        shares = self._device.copy(shares[:, None, None])

        mean = torch.zeros_like(self.words, dtype=torch.float32)  # (tokens, embed)
        points_at_once = max(1, TOKENS_AT_ONCE // len(self.words))
        for start in range(0, NUM_POINTS, points_at_once):
            part = slice(start, start + points_at_once)
            # (points, tokens, embed)
            vectors = self.blanks + places[part] * (self.words - self.blanks)
            vectors.requires_grad_()
            # Points do not depend on one another: the sum has the gradients of all.
            total = self.scores(vectors).sum()
            (gradients,) = torch.autograd.grad(total, vectors)
            mean += (gradients.float() * shares[part]).sum(0)
        return mean


def _framed(
    question: Question, tokenizer: Tokenizer
) -> tuple[list[list[int]], list[list[int]]]:
    """Return the ids and the segments of each sequence, with [CLS] and [SEP]."""
    ids = []
    segments = []
    for sequence in question.sequences:
        ids_of_sequence = [tokenizer.cls_id]
        segments_of_sequence = [0]
        for number, part in enumerate(sequence):
            ids_of_sequence += [*part.ids, tokenizer.sep_id]
            segments_of_sequence += [number] * (len(part.ids) + 1)
        ids.append(ids_of_sequence)
        segments.append(segments_of_sequence)
    return ids, segments


# ---- words ---------------------------------------------------------------------------


def _by_word(question: Question, values: Sequence[float]) -> Iterator[WordAttribution]:
    """Yield the sum over the tokens of each word."""
    remaining = iter(values)
    for sequence in question.sequences:
        next(remaining)  # [CLS]
        for part in sequence:
            *of_part, _ = islice(remaining, len(part.ids) + 1)  # with its [SEP]
            yield from _words_of(part, of_part)


def _words_of(part: Part, values: Sequence[float]) -> Iterator[WordAttribution]:
    """Yield the words of a part; the words of its prompt get a part name of their own."""
    for word in sum_by_word(part.text, part.offsets, values):
        name = "prompt"
        first = 0  # where the prompt, or the text after it, begins
        if word.end > part.prompt:
            name = part.name
            first = part.prompt
        start = max(word.start, first)
        yield WordAttribution(
            part.text[start : word.end],
            name,
            start - first,
            word.end - first,
            word.value,
        )
