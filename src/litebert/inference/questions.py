"""What `explain` explains: for each verb, the sequences that are read and the answer's score."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from litebert.errors import LitebertError, did_you_mean
from litebert.inference.attribution import ScoreOf
from litebert.inference.embedding import pooled_rows
from litebert.inference.pretrained import masked_logits, window
from litebert.inference.traced import Framed, Pieces, framed_pieces, pieces_of
from litebert.nn import AlbertForPretraining, AlbertForTask, Batch, Network
from litebert.tasks.kinds.choice import ChoiceExample, question_texts
from litebert.tasks.kinds.spans import SPAN_FAMILIES
from litebert.tokenizer import Tokenizer

if TYPE_CHECKING:
    from litebert.inference.model import Model


@dataclass(frozen=True)
class Question:
    """What is explained: `score` returns the score of `answer` for each copy of the sequences."""

    sequences: tuple[Framed, ...]
    score: ScoreOf
    answer: str
    kind: str = "log-probability"


QuestionMaker: TypeAlias = Callable[["Model", Sequence[str], str | None], Question]


def _classify(model: Model, texts: Sequence[str], answer: str | None) -> Question:
    """Score a label by its log-probability; a regression model, by its output."""
    _require(texts, "classify", "a text, or a text and its pair", range(1, 3))
    found = model.classify(texts[0], texts[1] if len(texts) == 2 else None)
    labels = list(found.values)
    likeliest = found.labels[0] if found.labels else max(labels, key=found.values.__getitem__)
    problem = cast(AlbertForTask, model.network).head_config.problem_type
    is_number = problem == "regression"
    label = 0 if is_number else labels.index(_known(answer or likeliest, labels))

    def score(network: Network, batch: Batch) -> Tensor:
        logits: Tensor = network(batch)
        if is_number:
            return logits[:, label]
        has_several = problem == "multi_label_classification"
        return (F.logsigmoid(logits) if has_several else logits.log_softmax(-1))[:, label]

    framed = _framed(model, dict(zip(("text", "pair"), texts, strict=False)))
    return Question((framed,), score, labels[label], "score" if is_number else "log-probability")


def _fill(model: Model, texts: Sequence[str], answer: str | None) -> Question:
    """Score the words in the blanks: the sum of their log-probabilities."""
    _require(texts, "fill", "one text with [MASK]", range(1, 2))
    model.fill(texts[0], top=1)  # refuses what cannot be filled
    tokenizer, longest = model.tokenizer, model.network.config.max_position_embeddings
    text = pieces_of(tokenizer, "text", texts[0], special=True)
    blanks = [place for place, id_ in enumerate(text.ids) if id_ == tokenizer.mask_id]
    kept = text.cut(window(blanks, len(text.ids), longest - 2))
    framed = framed_pieces(tokenizer, [kept], longest=longest)

    def logits(network: Network, batch: Batch) -> Tensor:
        places = torch.nonzero(batch.ids == tokenizer.mask_id).flatten()
        found = masked_logits(cast(AlbertForPretraining, network), batch, places)
        return found.view(len(batch.lengths), len(blanks), -1)  # (copies, blanks, vocab)

    if answer is None:
        batch = Batch.from_lists([framed.ids]).to(next(model.network.parameters()).device)
        with torch.inference_mode():
            found = logits(model.network, batch)[0]
            found[:, tokenizer.special_ids] = -torch.inf
            ids = found.argmax(-1).tolist()
    else:
        ids = [_piece(tokenizer, word) for word in answer.split()]
    if len(ids) != len(blanks) or tokenizer.unk_id in ids:
        raise _no_such(answer, f"{len(blanks)} words of one piece each")

    def score(network: Network, batch: Batch) -> Tensor:
        by_blank = logits(network, batch).log_softmax(-1)
        return sum((by_blank[:, blank, id_] for blank, id_ in enumerate(ids)), torch.tensor(0.0))

    return Question((framed,), score, " ".join(tokenizer.decode([id_]) for id_ in ids))


def _piece(tokenizer: Tokenizer, word: str) -> int:
    """Return the piece that spells a word; of two, the one that begins a word."""
    pieces = (f"▁{word.lower()}", word.lower(), f"▁{word}", word)
    found = (tokenizer.id(piece) for piece in pieces)
    return next((id_ for id_ in found if id_ != tokenizer.unk_id), tokenizer.unk_id)


def _order(model: Model, texts: Sequence[str], answer: str | None) -> Question:
    """Score the order as given, or swapped."""
    _require(texts, "order", "two sentences", range(2, 3))
    names = ["in order", "swapped"]
    likeliest = names[0 if model.order(texts[0], texts[1]).is_in_order else 1]
    label = names.index(_known(answer or likeliest, names))

    def score(network: Network, batch: Batch) -> Tensor:
        first = network.albert(batch, batch.first_tokens)
        head = cast(AlbertForPretraining, network).sentence_order
        logits: Tensor = head(network.albert.pool(first))
        return logits.log_softmax(-1)[:, label]

    framed = _framed(model, dict(zip(("first", "second"), texts, strict=True)))
    return Question((framed,), score, names[label])


def _similar(model: Model, texts: Sequence[str], _: str | None) -> Question:
    """Score how near two texts are: the cosine of their vectors."""
    _require(texts, "similar", "two texts", range(2, 3))
    vectors = model.vectors

    def score(network: Network, batch: Batch) -> Tensor:
        read = batch.first_tokens if vectors.pooling == "cls" else None
        rows = pooled_rows(network.albert(batch, read).float(), batch, vectors.pooling)
        return F.cosine_similarity(rows[::2], rows[1::2])

    named = zip(("first", "second"), texts, strict=True)
    framed = tuple(_framed(model, {name: vectors.prompt + text}) for name, text in named)
    return Question(framed, score, f"{float(model.similar(*texts)):.3f}", "cosine")


def _choose(model: Model, texts: Sequence[str], answer: str | None) -> Question:
    """Score a choice against the others."""
    _require(texts, "choose", "a question, a context (or an empty text), the choices", range(3, 99))
    question, context, *choices = texts
    chosen = model.choose(question, choices, context=context).index
    chosen = choices.index(_known(answer or choices[chosen], choices))

    def score(network: Network, batch: Batch) -> Tensor:
        logits: Tensor = network(batch)
        return logits.view(-1, len(choices)).log_softmax(-1)[:, chosen]

    variants = question_texts(ChoiceExample("0", context, question, tuple(choices)))
    framed = tuple(
        _framed(model, {"context": context, f"choice {number}": each}) for number, each in enumerate(variants, 1)
    )
    return Question(framed, score, choices[chosen])


def _answer(model: Model, texts: Sequence[str], answer: str | None) -> Question:
    """Score a span, or "no answer", by its log-probability: minus twice its training loss."""
    _require(texts, "answer", "a question and a context", range(2, 3))
    question, context = texts
    best = model.answer(question, context)[0]
    start, stop = best.start, best.stop
    if answer is not None:
        start = context.find(answer)
        stop = start + len(answer)
    if start < 0:
        raise _no_such(answer, "words of the context")
    network = cast(AlbertForTask, model.network)
    family = SPAN_FAMILIES[network.head_config.kind]
    posed = pieces_of(model.tokenizer, "question", question).cut(slice(family.max_query_length))
    ids, offsets = model.tokenizer.encode_arrays(context)
    is_inside = (offsets[:, 0] < stop) & (offsets[:, 1] > start)
    inside: list[int] = np.flatnonzero(is_inside).tolist()
    longest = network.config.max_position_embeddings
    kept = window(inside or [0], len(ids), longest - len(posed.ids) - 3)
    spans = [(begin, end) for begin, end in offsets[kept].tolist()]
    read = Pieces("context", context, ids[kept].tolist(), spans)
    framed = framed_pieces(model.tokenizer, [posed, read], longest=longest)
    first = framed.begins[1] - kept.start
    span = [first + inside[0], first + inside[-1], 0] if inside else [0, 0, 1]

    def score(network: Network, batch: Batch) -> Tensor:
        targets = torch.tensor(span * len(batch.lengths), device=batch.ids.device)
        return -2 * family.losses(cast(AlbertForTask, network), batch, targets)

    return Question((framed,), score, context[start:stop] or "no answer")


QUESTIONS: dict[str, QuestionMaker] = {
    "answer": _answer,
    "choose": _choose,
    "classify": _classify,
    "fill": _fill,
    "order": _order,
    "similar": _similar,
}
"""The verbs whose answers can be explained."""


def _framed(model: Model, texts: Mapping[str, str]) -> Framed:
    """Frame one text or two, by the names of their parts."""
    longest = model.network.config.max_position_embeddings
    if len(texts) == 1 and model.vectors.max_length:
        longest = min(longest, model.vectors.max_length)
    tokenizer = model.tokenizer
    parts = [pieces_of(tokenizer, name, tokenizer.beginning(text, longest)) for name, text in texts.items()]
    return framed_pieces(tokenizer, parts, longest=longest)


def _require(texts: Sequence[str], verb: str, expected: str, counts: range) -> None:
    if len(texts) not in counts:
        raise LitebertError(
            "LB-874",
            f"{verb} cannot be explained with these texts",
            received=f"{len(texts)} texts",
            expected=expected,
            next=f'model.explain("{verb}", ...)',
        )


def _known(answer: str, answers: Sequence[str]) -> str:
    if answer not in answers:
        raise _no_such(answer, did_you_mean(answer, answers))
    return answer


def _no_such(answer: str | None, expected: str) -> LitebertError:
    return LitebertError(
        "LB-875",
        "this is not an answer that the model can give",
        received=str(answer),
        expected=expected,
        next="omit the answer to explain the likeliest one",
    )
