"""What `explain` asks the network for each verb: sequences of tokens that know their
place in the texts, and the score of an answer to explain.

Every function here takes the model, the answer to explain (None: the likeliest one) and
the texts of its verb.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from litebert.errors import LitebertError, did_you_mean
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
