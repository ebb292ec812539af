"""What `explain` asks the network for each verb: sequences of tokens that know their
place in the texts, and the score of an answer to explain.

First come the scores, and then the functions that a verb names as its `question`. Each
of these takes the model, the answer to explain (None: the likeliest one) and the texts of
its verb.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from litebert.errors import LitebertError, did_you_mean
from litebert.folder import SentenceVectors
from litebert.inference.inputs import pool
from litebert.nn import Batch
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


class Score(Protocol):
    """Scores an answer in each copy of the sequences of its question."""

    def __call__(self, network: Any, batch: Batch) -> Float[Tensor, " copies"]:
        """Return a score for each copy; a batch has all sequences of the first copy
        first.
        """


@dataclass(frozen=True)
class Question:
    """An answer to explain, and how to compute its score.

    Each of `sequences` is [CLS] and one or two parts, every one followed by [SEP].
    """

    sequences: Sequence[Sequence[Part]]
    score: Score
    answer: str
    kind: str = LOG_PROBABILITY  # what the score is


# ---- scores --------------------------------------------------------------------------


@dataclass(frozen=True)
class LabelScore:
    """The log-probability of a label or, in regression, the output itself."""

    family: TextClassification
    label: int

    def __call__(self, network: Any, batch: Batch) -> Float[Tensor, " copies"]:
        logits = self.family.logits(network, batch)  # (copies, labels)
        return self.family.log_values(logits)[:, self.label]


@dataclass(frozen=True)
class CosineScore:
    """The cosine of the vectors of two texts, which are sequences of their own."""

    vectors: SentenceVectors

    def __call__(self, network: Any, batch: Batch) -> Float[Tensor, " copies"]:
        rows = pool(network, batch, self.vectors)  # (copies * 2, width)
        return F.cosine_similarity(rows[::2], rows[1::2])


# ---- the questions of the verbs ------------------------------------------------------


def classify(
    model: "Model", answer: str | None, text: str, pair: str | None = None
) -> Question:
    """Ask for a label or, in regression, for the score."""
    second = pair or None  # an empty one counts as none
    classified = model.classify(text, second)
    head: Any = model.network.head_config
    family: TextClassification = head.family()
    if family.reads_apart:
        sequences = [
            _encode_texts(model, text=text),
            _encode_texts(model, pair=second),
        ]
    else:
        sequences = [_encode_texts(model, text=text, pair=second)]
    labels = list(classified.values)
    if family.is_number:
        return Question(sequences, LabelScore(family, 0), labels[0], "score")
    likeliest = max(labels, key=classified.values.__getitem__)
    if classified.labels:
        likeliest = classified.labels[0]
    label = _index_of(answer or likeliest, labels)
    return Question(sequences, LabelScore(family, label), labels[label])


def similar(model: "Model", _: str | None, first: str, second: str) -> Question:
    """Ask for the similarity of two texts: the cosine of their vectors."""
    vectors = model.vectors
    prompt = vectors.prompt()
    longest = model.network.config.max_position_embeddings
    if vectors.max_length is not None:
        longest = min(longest, vectors.max_length)
    sequences = list[list[Part]]()
    for name, text in (("first", first), ("second", second)):
        beginning = model.tokenizer.beginning(prompt + text, longest)
        part = _encode(model, name, beginning).cut(slice(longest - 2))
        sequences.append([replace(part, prompt=len(prompt))])
    cosine = float(model.similar(first, second))
    return Question(sequences, CosineScore(vectors), f"{cosine:.3f}", "cosine")


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
