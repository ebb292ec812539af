"""A loaded model: the verbs that its heads allow, on strings.

These methods are the interface: the commands of the shell, the routes of the server and their schemas are made from
their signatures, their docstrings and the records that they return (`litebert.answers`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from numbers import Integral
from os import PathLike
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar, get_args, overload

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from litebert.answers import (
    Choice,
    Classification,
    Coherence,
    Explanation,
    Filling,
    Match,
    Order,
    Results,
    Score,
    SpanFound,
    Tagged,
)
from litebert.config import HEADS, Backend, Precision
from litebert.errors import LitebertError, RequestError, no_such_name
from litebert.tokenizer import Tokenizer

if TYPE_CHECKING:  # what needs torch is imported where it is used, so that `litebert fill --help` loads none
    from litebert.folder.sentence_vectors import SentenceVectors
    from litebert.inference.answering import TextIndex
    from litebert.nn import Network

log = logging.getLogger("litebert")
PACKAGED = "the one that comes with litebert"
"""The packaged model in messages."""
MAX_CHARACTERS = 1_000_000
"""The longest text for `fill`, `tag`, `score` and `order`, whose answers grow with the text."""
_HEADS = {"fill": "masked_lm", "score": "masked_lm", "order": "sentence_order"}
"""The pretraining heads that answer verbs."""

Texts: TypeAlias = str | Iterable[str]
Pooling: TypeAlias = Literal["mean", "cls", "max"]
Patience = Annotated[int | None, Ge(1), "Stop once this many consecutive classifiers agree; needs train.exits=true."]
Top = Annotated[int, Ge(1), "Answers to show."]
PoolingOption = Annotated[
    Pooling | None, "How tokens become one vector; by default the model's own pooling, or the mean."
]
Normalize = Annotated[bool | None, "Scale vectors to length 1."]
MaxLength = Annotated[int | None, "Read only so many pieces of a text."]
Progress: TypeAlias = Callable[[int], None]
Found = TypeVar("Found")


class Model:
    """A network with its tokenizer; make one with `litebert.load`.

    `fill`, `score` and `order` need the pretraining heads, `classify`, `tag`, `choose` and `answer` the head of that
    task; `embed`, `similar` and `search` need none. One text gets one answer, a list of texts a list of answers.

    >>> model = Model.load()  # the packaged one
    >>> len(model.embed(["A cat.", "A kitten."]))
    2
    """

    def __init__(
        self,
        network: Network,
        tokenizer: Tokenizer,
        *,
        missing: frozenset[str] = frozenset(),
        notes: tuple[str, ...] = (),
        vectors: SentenceVectors | None = None,
        source: str = "this model",
        unused: tuple[str, ...] = (),
    ) -> None:
        from litebert.folder.sentence_vectors import SentenceVectors

        self.network, self.tokenizer, self.notes, self.source = network.eval(), tokenizer, notes, source
        self.vectors = vectors or SentenceVectors()
        self._missing, self._unused = missing, unused
        self.remark: Callable[[str], object] = log.warning
        self._has_remarked = False

    def __repr__(self) -> str:
        return f"Model({self.source!r}, verbs: {', '.join(self.verbs)})"

    @classmethod
    def load(
        cls,
        path: str | PathLike[str] | None = None,
        *,
        precision: Precision = "fp32",
        depth: int | None = None,
        backend: Backend = "torch",
    ) -> Model:
        """Read a model folder or a run, or fetch a model from the Hub by its name; without a path, the packaged model.

        `precision` is that of activations: bf16 is several times faster where the CPU or GPU has it, and within 1 % of
        fp32. An eight-bit folder (`litebert quantize`) has its own. `depth` is the number of steps applied; if a head
        was trained after that step, it answers. `backend` computes single short texts; "auto" is onnxruntime where
        that is faster. No code from the files is executed.
        """
        from litebert.fast import limit_depth, use_backend
        from litebert.fast.steps import DTYPES
        from litebert.folder.model import load_model
        from litebert.folder.sentence_vectors import read_sentence_vectors
        from litebert.hub.transfer import locate, packaged_model

        folder = packaged_model() if path is None else locate(path)
        precision = _one_of(precision, Precision, "LB-933", "precision", 'precision="fp32"')
        loaded = load_model(folder, dtype=DTYPES[precision], for_inference=True)
        if depth is not None:
            limit_depth(loaded.network, depth)
        use_backend(loaded.network.albert, backend)
        return cls(
            loaded.network,
            Tokenizer.load(folder),
            missing=loaded.missing,
            notes=loaded.notes,
            vectors=read_sentence_vectors(folder),
            source=str(folder),
            unused=loaded.unused,
        )

    @cached_property
    def verbs(self) -> tuple[str, ...]:
        """The verbs that this model's weights allow."""
        head = getattr(self.network, "head_config", None)
        if head is not None:
            return (head.record.verb, "embed")
        return (*(verb for verb in _HEADS if not self._lacking(verb)), "embed")

    # Pretrained models

    @overload
    def fill(self, text: str, *, top: Top = 5) -> Results[Filling]: ...  # type: ignore[overload-overlap]
    @overload
    def fill(self, text: Iterable[str], *, top: Top = 5) -> Results[Results[Filling]]: ...
    def fill(self, text: Texts, *, top: Top = 5) -> Results[Filling] | Results[Results[Filling]]:
        """Return the `top` likeliest fillings of every [MASK] in a text, best first.

        Blanks are filled independently; the probability of a filling is the product over its blanks. In a long text
        only the part around the blanks is read. Like `score`, `tag` and `order` of one text, this takes at most a
        million characters.
        """
        from litebert.inference import answering

        texts = self.read(text, "fill", is_bounded=True)
        found = answering.fill(self.able("fill"), self.tokenizer, texts, top=count(top, "top"))
        return found[0] if isinstance(text, str) else Results(found)

    @overload
    def score(self, text: str) -> Score: ...  # type: ignore[overload-overlap]
    @overload
    def score(self, text: Iterable[str]) -> Results[Score]: ...
    def score(self, text: Texts) -> Score | Results[Score]:
        """Return how likely a text and each of its words are: pseudo-log-likelihoods, in nats."""
        from litebert.inference import answering

        texts, network = self.read(text, "score", is_bounded=True), self.able("score")
        found = [answering.score(network, self.tokenizer, each) for each in texts]
        return found[0] if isinstance(text, str) else Results(found)

    @overload
    def order(self, first: str, second: str) -> Order: ...
    @overload
    def order(self, first: str) -> Coherence: ...
    def order(self, first: str, second: str | None = None) -> Order | Coherence:
        """Say whether `first` comes before `second`; given one text, say where it breaks.

        Sentences longer than the model reads are cut at their end.
        """
        from litebert.inference import answering

        texts = self.read([first] if second is None else [first, second], "order", is_bounded=second is None)
        network = self.able("order")
        if second is None:
            return answering.coherence(network, self.tokenizer, texts[0])
        return answering.order(network, self.tokenizer, texts[:1], texts[1:])[0]

    # Vectors

    def embed(
        self, texts: Texts, *, pooling: PoolingOption = None, normalize: Normalize = None, max_length: MaxLength = None
    ) -> NDArray[np.float32]:
        """Return one vector for each text: the mean or maximum of its tokens, or [CLS].

        The shape is (texts, H); of a single string, (H,). Texts longer than the model reads are cut at their end, see
        `too_long`. For more texts than fit in memory, see `embed_batches`.

        Unset, `pooling` and `normalize` are what the folder says, as sentence-transformers wrote it; where there is
        nothing, the mean, not normalised. Without fine-tuning or a teacher, a pretrained model gives poor vectors.
        `max_length` cuts texts earlier, to that many pieces including [CLS] and [SEP].
        """
        from litebert.inference import answering

        if pooling is not None:
            _one_of(pooling, Pooling, "LB-674", "pooling", 'model.embed(texts, pooling="mean")')
        vectors = replace(
            self.vectors,
            pooling=pooling or self.vectors.pooling,
            normalize=self.vectors.normalize if normalize is None else normalize,
            max_length=self.vectors.max_length if max_length is None else count(max_length, "max_length", least=3),
        )
        found = answering.embed(self.network, self.tokenizer, self.read(texts, "embed"), vectors=vectors)
        vector: NDArray[np.float32] = found[0] if isinstance(texts, str) else found
        return vector

    def embed_batches(
        self,
        texts: Iterable[str],
        *,
        batch_size: int = 1_024,
        pooling: PoolingOption = None,
        normalize: Normalize = None,
        max_length: MaxLength = None,
        progress: Progress | None = None,
    ) -> Iterator[NDArray[np.float32]]:
        """Yield the vectors of `batch_size` texts at a time, each of shape (batch_size, H); texts may come without end.

        `progress` is called with the number of texts after each batch.
        """
        remaining = iter(_several_only(texts, "embed_batches", "texts"))
        while batch := list(islice(remaining, count(batch_size, "batch_size"))):
            yield self.embed(batch, pooling=pooling, normalize=normalize, max_length=max_length)
            if progress is not None:
                progress(len(batch))

    def similar(self, first: Texts, second: Texts, *, pooling: PoolingOption = None) -> float | NDArray[np.float32]:
        """Return the cosine of two texts, or those of each pair of two lists, (first, second)."""
        left, right = (
            self.embed(self.read(texts, "similar"), pooling=pooling, normalize=True) for texts in (first, second)
        )
        cosines: NDArray[np.float32] = left @ right.T
        return float(cosines[0, 0]) if isinstance(first, str) and isinstance(second, str) else cosines

    def index(
        self, texts: Iterable[str], *, pooling: PoolingOption = None, progress: Progress | None = None
    ) -> TextIndex:
        """Embed texts once, to be searched many times; see `embed_batches` for `progress`."""
        from litebert.inference.answering import TextIndex

        listed = self.read(_several_only(texts, "index", "texts"), "index")
        embed = partial(self.embed, pooling=pooling, normalize=True)
        batches = self.embed_batches(listed, batch_size=256, pooling=pooling, normalize=True, progress=progress)
        return TextIndex(tuple(listed), np.concatenate([embed([]), *batches]), embed)

    def search(
        self, query: str, texts: Iterable[str], *, top: Top = 10, pooling: PoolingOption = None
    ) -> Results[Match]:
        """Return the texts nearest to a query by the cosine of their vectors, best first."""
        top = count(top, "top")
        return self.index(texts, pooling=pooling).search(query, top=top)

    def too_long(self, texts: Texts, pairs: Texts | None = None) -> list[int]:
        """Return the numbers of the texts, or pairs, that are longer than the model reads at once.

        `order`, `embed`, `classify` and `choose` cut these at the end.
        """
        listed, seconds = _paired(texts, pairs, "too_long")
        room = self.network.config.max_position_embeddings - (2 if seconds is None else 3)  # beside [CLS] and [SEP]
        sizes = [0] * len(listed)
        for column in (listed, seconds or []):
            read = [self.tokenizer.beginning(text, room + 1) for text in column]
            for number, ids in enumerate(self.tokenizer.encode_ids(read)):
                sizes[number] += len(ids)
        return [number for number, size in enumerate(sizes) if size > room]

    # Fine-tuned models

    @overload
    def classify(  # type: ignore[overload-overlap]
        self, texts: str, pairs: str | None = None, *, patience: Patience = None
    ) -> Classification: ...
    @overload
    def classify(
        self, texts: Iterable[str], pairs: Iterable[str] | None = None, *, patience: Patience = None
    ) -> Results[Classification]: ...
    def classify(
        self, texts: Texts, pairs: Texts | None = None, *, patience: Patience = None
    ) -> Classification | Results[Classification]:
        """Return the label of each text, or of each text with its pair; from regression, a score.

        With `patience`, a text takes no more steps once that many classifiers in a row have agreed with the one
        before; the model must have been trained with `train.exits`. A text longer than the model reads is cut at its
        end.
        """
        from litebert.inference import answering

        network = self.able("classify")
        listed, seconds = _paired(texts, pairs, "classify")
        found = answering.classify(network, self.tokenizer, self.read(listed, "classify"), seconds, patience=patience)
        return found[0] if isinstance(texts, str) else Results(found)

    @overload
    def tag(self, texts: str) -> Results[Tagged]: ...  # type: ignore[overload-overlap]
    @overload
    def tag(self, texts: Iterable[str]) -> Results[Results[Tagged]]: ...
    def tag(self, texts: Texts) -> Results[Tagged] | Results[Results[Tagged]]:
        """Return the tag of every word and punctuation mark of each text."""
        from litebert.inference import answering

        found = answering.tag(self.able("tag"), self.tokenizer, self.read(texts, "tag", is_bounded=True))
        return found[0] if isinstance(texts, str) else Results(found)

    def choose(
        self,
        question: str,
        choices: Iterable[str],
        *,
        context: Annotated[str, "The text that the question is about."] = "",
    ) -> Choice:
        """Return which of several choices answers a question about a context.

        A context longer than the model reads is cut at its end.
        """
        from litebert.inference import answering

        network, listed = self.able("choose"), self.read(_several_only(choices, "choose", "choices"), "choose")
        if not listed:
            raise LitebertError("LB-912", "there are no choices", next="give two or more")
        question, context = self.read([question, context], "choose")
        return answering.choose(network, self.tokenizer, [(question, listed, context)])[0]

    def answer(
        self, question: str, context: Texts, *, top: Top = 1, progress: Progress | None = None
    ) -> Results[SpanFound]:
        """Return the likeliest spans of a context, or of several, that answer a question.

        The best comes first. A SQuAD 2.0 model may find no answer: then an empty text comes first. `no_answer` of each
        span is the probability of that. `progress` is called with the number of windows that were read.
        """
        from litebert.inference import answering

        network = self.able("answer")
        asked = self.read([question], "answer")[0], self.read(context, "answer")
        return answering.answer(network, self.tokenizer, [asked], top=count(top, "top"), progress=progress)[0]

    def explain(self, verb: str, *texts: str, answer: str | None = None) -> Explanation:
        """Return how much each word of the texts adds to an answer of a verb.

        `texts` are what the verb takes: `explain("similar", "a cat", "a kitten")`; for `choose` the question, the
        context and the choices. Unset, `answer` is the one that the model gives.
        """
        from litebert.inference.explain import explain

        return explain(self, verb, self.read(texts, "explain"), answer)

    # What every verb asks first

    def able(self, verb: str) -> Any:
        """Return the network if its head answers this verb."""
        if verb in self.verbs:
            return self.network
        head = getattr(self.network, "head_config", None)
        has, advice = f"a {head.kind} head" if head else "pretraining heads only", "litebert finetune --help"
        if verb in _HEADS:
            lacking = [] if head else self._lacking(verb)
            raise RequestError(
                "LB-612",
                f"{self.source} cannot {verb}: its file lacks weights for that",
                received=f"no {', '.join(lacking[:3])}" if lacking else has,
                expected=f"the {_HEADS[verb]} head; hub files often come without sentence order",
                next="use a model that litebert pretrained, or pretrain this one further",
            )
        if self._unused and self.verbs == ("embed",):
            has = f"a head that no imported module knows, {', '.join(self._unused[:3])}"
            advice = "import the module that adds its head before you load it, as in docs/extending/task.md"
        heads = " or ".join(kind for kind, record in HEADS.items() if record.verb == verb)
        what = f"{self.source} cannot {verb}: it was not fine-tuned for that"
        raise RequestError("LB-615", what, received=has, expected=f"a {heads} head", next=advice)

    def _lacking(self, verb: str) -> list[str]:
        """Return the weights of a verb's pretraining head, or of the encoder, that the file lacks."""
        absent = [name for name in self._missing if name.startswith((f"{_HEADS[verb]}.", "albert."))]
        return sorted(name for name in absent if verb == "order" or "pooler" not in name)

    def read(self, texts: Texts, verb: str, *, is_bounded: bool = False) -> list[str]:
        """Return the texts of a verb, and say once where the vocabulary was not made for them."""
        found = several(texts, verb)
        if is_bounded and (longest := max(map(len, found), default=0)) > MAX_CHARACTERS:
            received, expected = (
                f"{longest:,} characters",
                f"at most {MAX_CHARACTERS:,}: the answer grows with the text",
            )
            advice = "split the text into chapters, one per row of a file"
            what = f"this text is too long for {verb}"
            raise LitebertError("LB-935", what, received=received, expected=expected, next=advice)
        if not self._has_remarked and any(self.tokenizer.reads_in_fragments(text[:300]) for text in found[:3]):
            self._has_remarked = True
            self.remark(
                f"note: {found[0][:60]!r} falls into single letters or unknown pieces: the vocabulary of this model "
                "was not made for its language, and answers about such texts mean little"
            )
        return found


@dataclass(frozen=True)
class Embeddings:
    """An embedder for LangChain, LlamaIndex and anything else that calls these two methods.

    >>> vector = Embeddings().embed_query("a cat")
    >>> len(vector) == Embeddings().model.network.config.hidden_size
    True
    """

    path: str | PathLike[str] | None = None
    precision: Precision = "fp32"

    @cached_property
    def model(self) -> Model:
        """The model, loaded when it is first used."""
        return Model.load(self.path, precision=self.precision)

    def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector for each text."""
        return [[float(x) for x in vector] for vector in self.model.embed(list(texts))]

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a query."""
        return self.embed_documents([text])[0]


# Arguments, checked where they enter


def several(texts: Texts, verb: str) -> list[str]:
    """Return one text or several as a list.

    >>> several("one", "fill"), several(("one", "two"), "fill")
    (['one'], ['one', 'two'])
    """
    if isinstance(texts, str):
        return [texts]
    found = list(texts) if _is_list(texts) else [texts]
    for text in found:
        if not isinstance(text, str):
            received, expected = f"{text!r:.100} ({type(text).__name__})", "a string, or a list of strings"
            advice = "give every text as a str; of a table, one column"
            raise LitebertError("LB-611", f"{verb} takes texts", received=received, expected=expected, next=advice)
    return [str(text) for text in found]  # numpy's strings become plain ones


def _is_list(texts: Texts) -> bool:
    """Tell whether texts come in an order of their own, as those of a set or a table do not."""
    is_flat = getattr(texts, "ndim", 1) == 1
    return isinstance(texts, Iterable) and is_flat and not isinstance(texts, bytes | Mapping | Set)


def _several_only(texts: Iterable[str], verb: str, name: str) -> Iterable[str]:
    """Refuse a single string, which would be taken for a list of characters."""
    if isinstance(texts, str):
        what = f"{verb} takes several {name}"
        raise LitebertError("LB-930", what, received="one string", next=f"put the {name} in a list")
    return texts if _is_list(texts) else several(texts, verb)


def _paired(texts: Texts, pairs: Texts | None, verb: str) -> tuple[list[str], list[str] | None]:
    """Return the texts, and the second text of each pair; None without pairs."""
    listed, seconds = several(texts, verb), None if pairs is None else several(pairs, verb)
    if seconds is not None and len(seconds) != len(listed):
        received, advice = f"{len(listed)} texts and {len(seconds)} pairs", "give one pair for each text"
        raise LitebertError("LB-931", "texts and pairs do not match", received=received, next=advice)
    return listed, seconds


def count(value: int, name: str, *, least: int = 1) -> int:
    """Return a count, such as the number of answers, if it is a whole number that can be."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        what, expected = f"{name} cannot have this value", f"a whole number, {least} or more"
        raise LitebertError("LB-932", what, received=value, expected=expected, next=f"{name}=5")
    return int(value)


def _one_of(value: Found, kind: object, code: str, name: str, example: str) -> Found:
    if value not in get_args(kind):
        raise no_such_name(code, f"there is no such {name}", str(value), get_args(kind), next=example)
    return value
